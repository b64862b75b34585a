"""docs/tutorial.md as a newcomer would do it: each of its commands, and what is printed is what the page shows."""

from __future__ import annotations

import os
import shutil
import site
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.shell import Shell
from support.transcript import RUN, difference, renamed, steps

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
SOURCES = ("watchdog", "configs", "docs", "examples", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE")
DEFAULT_ADDRESS = "127.0.0.1:9877"

pytestmark = [pytest.mark.integration, pytest.mark.paced, pytest.mark.timeout(300)]


class Newcomer:
    """At a console in a fresh checkout; what pip would fetch is lent by the tests' own environment."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "memwatch"
        self.checkout.mkdir()
        for name in SOURCES:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, self.checkout / name)
        self._folder = folder
        self._address = f"127.{os.getpid() >> 16 & 255}.{os.getpid() >> 8 & 255}.{os.getpid() & 255}:9877"  # its own
        (folder / "bin").mkdir()
        (folder / "bin" / "python3").symlink_to(Path(sys._base_executable))
        self._runs: dict[str, str] = {}  # as the page calls them -> as they are called here

    def environ(self) -> dict[str, str]:
        """Nothing but what a login has."""
        return {
            "PATH": f"{self._folder / 'bin'}:/usr/bin:/bin",
            "HOME": str(self._folder),
            "LANG": "C.UTF-8",
            "XDG_STATE_HOME": str(self._folder / "state"),
            "MEMWATCH_LISTEN": self._address,  # the default one may be taken
            "MEMWATCH_DAEMON__END_PAGE_SECONDS": "0",  # no process is left behind
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # as pip reads it: do not isolate
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    def types(self, shell: Shell, command: str, shown: str) -> str:
        """What comes of it, in the page's names."""
        printed = shell.run(renamed(command, self._runs).replace(DEFAULT_ADDRESS, self._address))
        if "-m venv" in command:
            self._lend()
        self._runs.update(zip(RUN.findall(shown), RUN.findall(printed), strict=False))
        return printed.replace(self._address, DEFAULT_ADDRESS)

    def _lend(self) -> None:
        """All that the tests have, but memwatch itself."""
        lent = self._folder / "lent"
        lent.mkdir()
        for entry in Path(site.getsitepackages()[0]).iterdir():
            if "memwatch" not in entry.name and entry.suffix != ".pth":
                (lent / entry.name).symlink_to(entry)
        (packages,) = self.checkout.glob(".venv/lib/python*/site-packages")
        (packages / "lent.pth").write_text(f"{lent}\n")


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    return Newcomer(tmp_path)


@pytest.fixture
def shell(newcomer: Newcomer) -> Iterator[Shell]:
    with Shell(newcomer.checkout, newcomer.environ()) as running:
        yield running


def test_what_the_tutorial_shows_is_what_is_seen(newcomer: Newcomer, shell: Shell) -> None:
    keep = os.environ.get("MEMWATCH_TRANSCRIPT", os.devnull)  # where all that was seen is kept, to write the page from
    with Path(keep).open("w") as transcript:
        wrong = []
        for command, shown in steps(PAGE):
            seen = newcomer.types(shell, command, shown)
            transcript.write(f"$ {command}\n{seen}")
            if found := difference(shown, seen):
                wrong.append(f"$ {command}\n{found}\n{seen}")
    assert not wrong, "\n".join(wrong)
    assert shell.run("command -v memwatch").strip() == str(newcomer.checkout / ".venv" / "bin" / "memwatch")
