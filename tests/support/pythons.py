"""CPythons of several versions, as pyenv and the distribution have them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

MINORS = range(8, 16)
PROGRAMS = Path(__file__).parents[1] / "programs"
_NUMPY = Path(__file__).parents[2] / ".venv/numpy"  # by minor version, as `make numpy` installs it


def interpreters() -> dict[str, str]:
    """By minor version ("3.8"), the executable of each that is there; the one that runs this among them."""
    found = {f"3.{sys.version_info[1]}": sys.executable}
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=True).stdout.strip()
        for minor in MINORS:
            for one in sorted(Path(root, "versions").glob(f"3.{minor}.*/bin/python")):
                found.setdefault(f"3.{minor}", str(one))
    for minor in MINORS:
        one = shutil.which(f"python3.{minor}", path="/usr/bin:/usr/local/bin")
        if one is not None:
            found.setdefault(f"3.{minor}", one)
    return found


def numpy_folder(minor: str) -> Path | None:
    """Where numpy for "3.8" is; None where it was not installed."""
    folder = _NUMPY / minor
    return folder if (folder / "numpy").is_dir() else None


def _install_numpy() -> None:
    """Into a folder for each interpreter that has pip; what cannot be installed is left out, and its tests skip."""
    for minor, python in interpreters().items():
        if numpy_folder(minor) is None:
            command = [python, "-m", "pip", "install", "--quiet", "--target", str(_NUMPY / minor), "numpy"]
            subprocess.run(command, check=False)


if __name__ == "__main__":
    _install_numpy()
