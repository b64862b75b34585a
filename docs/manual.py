"""Makes docs/manual from the command line's own parser, the page also from docs/memwatch.1.in: `make manual`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import shtab

from memwatch import __version__
from memwatch.cli import main as cli
from memwatch.config.settings import Profile

DOCS = Path(__file__).resolve().parent
FILES = re.compile(r"FILE|LOG|TRACE|HISTORY|SNAPSHOT|RUN$")  # metavars of what may be a file
PIDS = {
    "bash": "_memwatch_pids",
    "zsh": "_pids",
    "fish": "(__fish_complete_pids)",
    "preamble": {
        "bash": """
_memwatch_pids() {
  local folder
  for folder in /proc/[0-9]*; do
    if [[ -O $folder ]]; then compgen -W "${folder#/proc/}" -- "$1"; fi
  done
}"""
    },
}
TRAINER = {  # the command line behind `memwatch run --`, completed as if it stood alone
    "bash": "_memwatch_trainer_files",
    "zsh": "_memwatch_trainer",
    "fish": "(_memwatch_trainer)",
    "preamble": {
        "bash": """
_memwatch_trainer_files() {
  if [[ ${COMP_WORDS[COMP_CWORD-1]} == -- ]]; then compgen -c -- "$1"; else compgen -f -- "$1"; fi
}""",
        "zsh": """
_memwatch_trainer() {
  shift words
  (( CURRENT -= 1 ))
  _normal
}""",
        "fish": """
function _memwatch_trainer
  set -l words (commandline -opc) (commandline -ct)
  if set -l cut (contains -i -- -- $words)
    complete -C (string join ' ' -- $words[(math $cut + 1)..-1])
  end
end""",
    },
}
Subparsers = argparse._SubParsersAction


def main(folder: Path = DOCS / "manual") -> None:
    """Write all of it: the page and a script for each shell."""
    folder.mkdir(exist_ok=True)
    (folder / "memwatch.1").write_text(page((DOCS / "memwatch.1.in").read_text()))
    for shell, name in (("bash", "memwatch.bash"), ("zsh", "_memwatch"), ("fish", "memwatch.fish")):
        (folder / name).write_text(shtab.complete(completed(), shell).rstrip() + "\n")


# --- completion -----------------------------------------------------------------------------------------------------


def completed() -> argparse.ArgumentParser:
    """The parser with all that a shell can complete: files, PIDs, the trainer's command line."""
    root = cli._parser()
    for name, parser in [("", root), *commands(root)]:
        if name == "run":
            parser.add_argument("trainer", nargs=argparse.REMAINDER, help="its command").complete = TRAINER
        for action in parser._actions:
            if action.dest == "pid":
                action.complete = PIDS
            elif action.dest == "profile":
                action.choices = get_args(Profile)
            elif FILES.match(str(action.metavar)):
                action.complete = shtab.FILE
    return root


def commands(parser: argparse.ArgumentParser, above: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each command below this one with its parser: `run`; `config check`."""
    for subparsers in (action for action in parser._actions if isinstance(action, Subparsers)):
        for name, child in subparsers.choices.items():
            yield f"{above}{name}", child
            yield from commands(child, f"{above}{name} ")


# --- the page -------------------------------------------------------------------------------------------------------


def page(template: str) -> str:
    """The manual page in the macros of man(7)."""
    root = cli._parser()
    groups = {(group.title or "").replace("options", "general options"): shown(group) for group in root._action_groups}
    options = [line for title, actions in groups.items() if actions for line in section(title, actions)]
    described = [line for name, parser in commands(root) for line in command(name, parser, groups)]
    filled = {"VERSION": __version__, "OPTIONS": "\n".join(options), "COMMANDS": "\n".join(described)}
    return re.sub(r"@([A-Z]+)@", lambda place: filled[place[1]], template)


def shown(group: argparse._ArgumentGroup) -> list[argparse.Action]:
    """What a group has, without commands and what is hidden."""
    return [
        action
        for action in group._group_actions
        if action.help != argparse.SUPPRESS and not isinstance(action, Subparsers)
    ]


def section(title: str, actions: list[argparse.Action]) -> list[str]:
    """A group of options at the top."""
    return [f".SH {escaped(title.upper())}", *(line for action in actions for line in paragraph(action))]


def command(name: str, parser: argparse.ArgumentParser, groups: dict[str, list[argparse.Action]]) -> Iterator[str]:
    """A command with what it alone takes; what it shares with a plain watch is told above, by the group's name."""
    own = [action for group in parser._action_groups for action in shown(group) if action.dest != "help"]
    lent = {title: [a for a in actions if any(same(a, b) for b in own)] for title, actions in groups.items()}
    own = [action for action in own if not any(same(action, a) for actions in lent.values() for a in actions)]
    arguments = [f"\\fI{escaped(argument(action))}\\fR" for action in own if not action.option_strings]
    yield " ".join([".SS memwatch", escaped(name), *arguments])
    yield escaped(parser.description or "")
    for action in own:
        yield from paragraph(action)
    if any(lent.values()):
        yield ".PP"
        yield f"Takes also, as above: {escaped(', '.join(title for title, actions in lent.items() if actions))}."


def same(one: argparse.Action, other: argparse.Action) -> bool:
    """One option of two parsers."""
    return (one.option_strings, one.help) == (other.option_strings, other.help) and bool(one.option_strings)


def paragraph(action: argparse.Action) -> Iterator[str]:
    """An option or an argument, and what it is for."""
    names = ", ".join(f"\\fB{escaped(name)}\\fR" for name in action.option_strings)
    value = "" if action.nargs == 0 else f"\\fI{escaped(label(action))}\\fR"
    yield ".TP"
    yield " ".join(filter(None, (names, value)))
    yield escaped((action.help or "").replace("%%", "%"))


def argument(action: argparse.Action) -> str:
    """How it stands in a command line: `[URL]`, `SNAPSHOT SNAPSHOT`."""
    words = " ".join([label(action)] * action.nargs) if isinstance(action.nargs, int) else label(action)
    return f"[{words}]" if action.nargs in ("?", "*") else words


def label(action: argparse.Action) -> str:
    """What stands for its value."""
    return str(action.metavar or (action.choices and "|".join(action.choices)) or action.dest.upper())


def escaped(text: str) -> str:
    """Text that troff shows as it is."""
    return re.sub(r"^(?=[.'])", r"\\&", text.replace("\\", r"\e").replace("-", r"\-"))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
