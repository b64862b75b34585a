"""Parts of a page in Markdown."""

from __future__ import annotations

import re


def section(text: str, title: str) -> str:
    """What stands below a heading, up to the next; a `#` in a fenced block is no heading."""
    lines, fenced, inside = [], False, False
    for line in text.splitlines(keepends=True):
        fenced ^= line.startswith("```")
        if not fenced and re.match(r"#+ ", line):
            if inside:
                break
            inside = line.lstrip("#").strip() == title
        elif inside:
            lines.append(line)
    assert inside, f"no section {title!r}"
    return "".join(lines)


def rows(text: str) -> list[list[str]]:
    """The cells of all tables, without heads and rules; `\\|` within a cell is a bar."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = [i for i, row in enumerate(cells) if set("".join(row)) <= set("-: ")]
    return [row for i, row in enumerate(cells) if i not in rules and i + 1 not in rules]


def words(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def blocks(text: str, language: str) -> list[str]:
    """The contents of fenced blocks in a language."""
    return re.findall(rf"^```{language}$\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def placed(page: str, name: str, text: str) -> str:
    """The page with the text between `<!-- NAME -->` and `<!-- /NAME -->`, in place of what was there."""
    before, _, after = page.partition(f"<!-- {name} -->\n{in_place(page, name)}")
    return f"{before}<!-- {name} -->\n{text}\n{after}"


def in_place(page: str, name: str) -> str:
    """What stands between `<!-- NAME -->` and `<!-- /NAME -->`; ValueError unless there is one such place."""
    found = re.findall(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", page, re.DOTALL)
    if len(found) != 1:
        raise ValueError(f"{len(found)} places for the table {name!r}")
    return str(found[0])
