"""CPythons of several versions: as pyenv and the machine have them, and newer ones of Debian's in a folder of its own.

`make pythons` installs the newer ones, and numpy for all: `python -m support.pythons` in `tests/`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "programs"
OWN = [f"3.{minor}" for minor in range(8, 14)]
NEWER = ["Debian 3.13", "Debian 3.14", "Debian 3.15"]
NAMES = [*OWN, *NEWER]
_VENV = Path(__file__).parents[2] / ".venv"
_NEWER = _VENV / "newer"


@dataclass(frozen=True, slots=True)
class Python:
    """One interpreter."""

    command: tuple[str, ...]
    installed: Path  # where numpy is, if it is there
    seen: str  # the same as the interpreter names it

    @property
    def has_numpy(self) -> bool:
        """It can import it from there."""
        return (self.installed / "numpy").is_dir()

    @property
    def numpy_env(self) -> dict[str, str]:
        """What it needs for that."""
        return {"PYTHONPATH": self.seen, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

    def program(self, name: str) -> list[str]:
        """The command that runs a program of the tests."""
        return [*self.command, "-X", "utf8", "-c", (PROGRAMS / name).read_text()]


@cache
def pythons() -> dict[str, Python]:
    """Those that are here, by name; the one that runs this among them."""
    found = {f"3.{sys.version_info[1]}": sys.executable}
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=True).stdout.strip()
        for name in OWN:
            for one in sorted(Path(root, "versions").glob(f"{name}.*/bin/python")):
                found.setdefault(name, str(one))
    for name in OWN:
        one = shutil.which(f"python{name}", path="/usr/bin:/usr/local/bin")
        if one is not None:
            found.setdefault(name, one)
    here = {name: Python((one,), _VENV / "numpy" / name, str(_VENV / "numpy" / name)) for name, one in found.items()}
    return here | {name: _newer(name) for name in NEWER if (_NEWER / "usr/bin" / _executable(name)).exists()}


def needed_python(name: str, *, numpy: bool = False) -> Python:
    """The interpreter of this name, which has numpy if asked for; where it is not here, the test is skipped."""
    python = pythons().get(name)
    if python is None or (numpy and not python.has_numpy):
        brought = "make tools" if name in NEWER or python is not None else f"pyenv install {name}"
        pytest.skip(f"needs CPython {name}{' with numpy' * numpy}: {brought}")
    return python


def _newer(name: str) -> Python:
    folder = f"/packages/{name.split()[1]}"
    return Python(("chroot", str(_NEWER), f"/usr/bin/{_executable(name)}"), _NEWER / folder[1:], folder)


def _executable(name: str) -> str:
    return f"python{name.split()[1]}"


def _install() -> None:
    """What cannot be installed is left out, and its tests skip."""
    subprocess.run(["bash", str(Path(__file__).with_name("newer_pythons")), str(_NEWER)], check=False)
    for name, python in pythons().items():
        if not python.has_numpy:
            pip = [python.command[0], "-m", "pip"]
            options = []
            if name in NEWER:
                pip = [sys.executable, "-m", "pip"]
                options = ["--only-binary", ":all:", "--python-version", name.split()[1]]
            target = ["--target", str(python.installed)]
            subprocess.run([*pip, "install", "--quiet", *options, *target, "numpy"], check=False)


if __name__ == "__main__":
    _install()
