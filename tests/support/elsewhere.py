"""memwatch's wheel and those that it depends on, for the Python of another machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.needed import missing

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check")


def build(folder: Path) -> Path:
    """The wheel, built into `folder`."""
    _run("wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT))
    return next(folder.glob("memwatch-*.whl"))


def download(wheel: Path, python: str) -> None:
    """What it depends on, beside it; `python` as 3.13."""
    _run("download", "--only-binary=:all:", "--python-version", python, "-d", str(wheel.parent), str(wheel))


def unpack(wheel: Path, python: str, site: Path) -> None:
    """All of it as it will lie in site-packages: where pip itself would take minutes."""
    _run(
        "install", "--no-compile", "--only-binary=:all:", "--python-version", python, "--target", str(site), str(wheel)
    )


def _run(*arguments: str) -> None:
    done = subprocess.run([*PIP, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        missing(f"pip {arguments[0]} brought no wheels: {done.stderr.strip()[-300:]}")
