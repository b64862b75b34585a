"""Processes that memwatch starts."""

from __future__ import annotations

import subprocess
from pathlib import Path

from memwatch.system.python_workers import start_python


def test_the_kernel_kills_them_first_from_their_first_moment_on() -> None:
    process = start_python("import sys; sys.stdin.read()", subprocess.PIPE)
    try:
        assert Path(f"/proc/{process.pid}/oom_score_adj").read_text() == "1000\n"
    finally:
        process.communicate()
