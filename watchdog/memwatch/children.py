"""How memwatch starts a Python process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

_PACKAGE = str(Path(__file__).parents[1])


def start(code: str, stdin: int | IO[bytes], stdout: int | IO[bytes] = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Run a line of Python that finds this package, in a session of its own: Ctrl-C is not meant for it.

    It takes as long as an exec, 1 ms; OSError when it cannot be done.
    """
    # -S: all of sys.path is given, and looking for it again is half of Python's own start
    return subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (_PACKAGE, *sys.path)))},
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
