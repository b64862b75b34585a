"""Programs as the user nobody, with the capabilities that are named and no other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import memwatch

NOBODY = 65534
CAN_BECOME = os.geteuid() == 0 and shutil.which("setpriv") is not None
PACKAGES = os.pathsep.join([str(Path(memwatch.__file__).parents[1]), sysconfig.get_path("purelib")])


def powerless(*capabilities: str) -> list[str]:
    """What to put before a command. setpriv itself still finds a program as root would; what env starts, as nobody."""
    only = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return ["setpriv", *user, f"--bounding-set={only}", f"--inh-caps={only}", f"--ambient-caps={only}", "env"]


def python() -> str | None:
    """One that anybody may run and that fits the installed packages."""
    for one in (sys.executable, "/usr/bin/python3"):
        command = [*powerless(), one, "-c", "import sys; print(*sys.version_info[:2])"]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        if said == [str(number) for number in sys.version_info[:2]]:
            return one
    return None
