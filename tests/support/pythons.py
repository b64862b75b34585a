"""CPythons of several versions, as pyenv and the distribution have them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

MINORS = range(8, 16)


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
