"""What a page shows of a console: the commands, and whether what they print is what stands below them.

Text is text, but runs of blanks are one. `...` is anything: within a line, or as a line any number of them.
Clock times, dates, durations and the names of processes and runs may be any; other numbers are near those shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

NEAR, NEAR_SHARE = 3.0, 0.3  # how far from the shown number one may be: the larger of the two
RUN = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")  # the name of a run
EXACT = r"exit status \d+|--[\w-]+ \d[\d.]*(?: [kMG]B)?(?![\d-])"  # as given, or as a shell sees it
FREE = {
    "run": RUN.pattern,
    "date": r"\d{4}-\d\d-\d\d \d\d:\d\d",
    "clock": r"\d\d:\d\d:\d\d",
    "process": r"(?i:pid) \d+",
    "duration": r"(?:under )?\d+(?:\.\d+)? [dhms]\b(?: \d+ [hms]\b)*",
}
NUMBER = r"\d[\d,]*(?:\.\d+)?"
_PARTS = re.compile(
    "|".join(f"(?P<{name}>{pattern})" for name, pattern in {"exact": EXACT, **FREE, "number": NUMBER}.items())
    + r"|(?P<anything>\.\.\.)|(?P<blank>\s+)"
)


class Step(NamedTuple):
    """A command, and the lines that are shown below it."""

    command: str
    shown: str


def steps(text: str) -> list[Step]:
    """All commands of a page's blocks of ```console, in order."""
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [Step(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def renamed(command: str, runs: Mapping[str, str]) -> str:
    """The command with the names that runs have here for those of the page."""
    return RUN.sub(lambda name: runs[name[0]], command)


@dataclass(frozen=True, slots=True)
class Shown:
    """A line of a page."""

    pattern: re.Pattern[str]
    numbers: tuple[float, ...]

    @staticmethod
    def of(line: str) -> Shown:
        """What it asks of a line that is seen."""
        pattern, numbers, end = "", [], 0
        for part in _PARTS.finditer(line):
            pattern += re.escape(line[end : part.start()])
            kind, end = part.lastgroup or "", part.end()
            if kind == "number":
                numbers.append(_value(part[0]))
            pattern += _PATTERNS.get(kind, re.escape(part[0]))
        return Shown(re.compile(pattern + re.escape(line[end:])), tuple(numbers))

    def is_like(self, line: str) -> bool:
        """Whether that line is of its form, with numbers near its own."""
        found = self.pattern.fullmatch(line)
        return found is not None and all(
            abs(_value(seen) - shown) <= max(NEAR, NEAR_SHARE * shown)
            for seen, shown in zip(found.groups(), self.numbers, strict=True)
        )


_PATTERNS = {**FREE, "number": f"({NUMBER})", "anything": ".*?", "blank": r"\s+"}


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def difference(shown: str, seen: str) -> str:
    """Empty where what was seen is what is shown; else the first line that cannot be where it is."""
    lines = _lines(seen)
    reached = {0}  # how many lines may be accounted for: with `...`, and numbers that are near, there are several ways
    for line in _lines(shown):
        if line == "...":
            reached = set(range(min(reached), len(lines) + 1))
            continue
        wanted = Shown.of(line)
        reached = {n + 1 for n in reached if n < len(lines) and wanted.is_like(lines[n])}
        if not reached:
            return f"not seen here: {line!r}"
    return "" if len(lines) in reached else f"not shown: {lines[max(reached)]!r}"
