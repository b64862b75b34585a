"""The manual page and completion: made of the command line as it is, and understood by man and by each shell."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memwatch.cli import main
from memwatch.errors import ExitCode
from support.screens import screen

ROOT = Path(__file__).resolve().parents[2]
MANUAL = ROOT / "docs" / "manual"
PAGE = MANUAL / "memwatch.1"
WORDS = [  # what is typed, and what completes it
    ("memwatch re", {"report", "replay"}),
    ("memwatch --pi", {"--pid", "--pidfile"}),
    ("memwatch --pid 12 --log ma", {"main.log", "main.py"}),
    ("memwatch markers ma", {"main.log", "main.py"}),
    ("memwatch config s", {"show", "schema"}),
    ("memwatch run --profile ", {"observe", "default", "aggressive"}),
    ("memwatch completion ", {"bash", "zsh", "fish"}),
    ("memwatch run --dry-run -- python ma", {"main.log", "main.py"}),
    ("memwatch run -- memwatch-tr", {"memwatch-trainer", "memwatch-trains"}),
]
each = pytest.mark.parametrize(("typed", "wanted"), WORDS, ids=lambda value: value if isinstance(value, str) else "")


def needed(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}: make tools")


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with two files, and two programs on the PATH."""
    for name in ("main.log", "main.py"):
        (tmp_path / name).touch()
    for name in ("memwatch", "memwatch-trainer", "memwatch-trains"):
        (tmp_path / "bin" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def environ(desk: Path) -> dict[str, str]:
    return {"PATH": f"{desk / 'bin'}:{os.environ['PATH']}", "HOME": str(desk)}


def test_they_are_made_of_the_command_line_as_it_is(tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "docs" / "manual.py"))["main"](tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert {path.name: path.read_text() for path in MANUAL.iterdir()} == made, "make manual"


# --- the page -------------------------------------------------------------------------------------------------------


def shown(*command: str) -> str:
    """What a viewer of manual pages makes of it, without bold and underlined letters."""
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"}, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout)


def test_mandoc_has_nothing_to_say_against_it() -> None:
    needed("mandoc")
    assert shown("mandoc", "-T", "lint", "-W", "warning", str(PAGE)) == ""


@pytest.mark.parametrize("viewer", [["man", "--warnings", "-l"], ["mandoc", "-T", "utf8"]], ids=["man", "mandoc"])
def test_it_can_be_read(viewer: list[str]) -> None:
    needed(viewer[0])
    text = shown(*viewer, str(PAGE))
    for heading in ("NAME", "SYNOPSIS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"):
        assert f"\n{heading}\n" in text
    assert "memwatch --match 'main\\.py' --dry-run" in text, "a backslash and hyphens as a shell wants them"


def test_its_exit_codes_are_those_of_the_code() -> None:
    section = PAGE.read_text().partition(".SH EXIT STATUS")[2].partition(".SH")[0]
    assert [int(code) for code in re.findall(r"^\.B (\d+)$", section, re.MULTILINE)] == [int(code) for code in ExitCode]


def test_its_examples_are_understood() -> None:
    examples = re.findall(r"^\.EX\n(.*?)\n\.EE", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) >= 5
    for line in examples:
        plain = line.replace("\\-", "-").replace("\\e", "\\").replace("\\(ti", "~").partition(" > ")[0]
        main._parse(plain.replace("'", "").split()[1:])


# --- completion -----------------------------------------------------------------------------------------------------


@each
def test_bash_completes(desk: Path, typed: str, wanted: set[str]) -> None:
    needed("bash")
    script = 'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _shtab_memwatch; printf "%s\\n" "${COMPREPLY[@]}"'
    words = " ".join(f"'{word}'" for word in typed.split(" "))
    code = f"source {MANUAL / 'memwatch.bash'}; COMP_WORDS=({words}); {script}"
    assert set(output("bash", "--norc", "-c", code, desk=desk).split()) == wanted


def test_bash_completes_the_pids_of_ones_own(desk: Path) -> None:
    code = f"source {MANUAL / 'memwatch.bash'}; COMP_WORDS=(memwatch --pid ''); COMP_CWORD=2; _shtab_memwatch"
    pids = output("bash", "--norc", "-c", f'{code}; echo "${{COMPREPLY[@]}}"', desk=desk).split()
    assert str(os.getpid()) in pids


@each
def test_fish_completes(desk: Path, typed: str, wanted: set[str]) -> None:
    needed("fish")
    code = f'source {MANUAL / "memwatch.fish"}; complete -C "{typed}"'
    told = output("fish", "--no-config", "-c", code, desk=desk).splitlines()
    assert {line.partition("\t")[0] for line in told} == wanted


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@each
def test_tab_in_a_terminal_lists_what_completes(desk: Path, shell: str, typed: str, wanted: set[str]) -> None:
    needed(shell)
    ready, script = {
        "bash": ("bind 'set show-all-if-ambiguous on'", "memwatch.bash"),
        "zsh": ("autoload -U compinit; compinit -u -D", "_memwatch"),
    }[shell]
    command = {"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
    begun = ["sh", "-c", f'cd "{desk}" && exec "$@"', "sh", *command]
    with screen(begun, {**environ(desk), "PS1": "> "}, (100, 30)) as terminal:
        terminal.press(f"{ready}; eval \"$(cat '{MANUAL / script}')\"; clear; echo rea''dy\n")
        terminal.until(lambda text: "ready" in text.splitlines())
        terminal.press(typed + "\t\t")
        terminal.until(lambda text: wanted <= set(text.partition("ready")[2].split()))


def output(*command: str, desk: Path) -> str:
    done = subprocess.run(
        command, cwd=desk, env=os.environ | environ(desk), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


# --- the commands ---------------------------------------------------------------------------------------------------


def test_the_page_opens_in_a_terminal() -> None:
    needed("man")
    manual = [sys.executable, "-m", "memwatch", "man"]
    with screen(manual, {"MANPAGER": "cat", "MANWIDTH": "80"}, (80, 30)) as terminal:
        assert terminal.wait() == 0
        assert "SEE ALSO" in terminal.text


def test_a_terminal_without_man_is_told(tmp_path: Path) -> None:
    with screen([sys.executable, "-m", "memwatch", "man"], {"PATH": str(tmp_path)}, (100, 20)) as terminal:
        assert terminal.wait() == ExitCode.USAGE
        assert "memwatch: man is not installed here" in terminal.text
