"""The stacks of the trainer's threads, read by py-spy from outside without stopping them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from memwatch.core.examination import StackFrame, ThreadStack
from memwatch.core.text_and_units import printable
from memwatch.diagnosis.heap.remote_memory import PERMISSION_HINT
from memwatch.errors import SourceError

_TRIES = 3  # A stack that changes while it is read gives an error.
_TIMEOUT_SECONDS = 20.0  # of one try (chosen)
_MAX_FRAMES = 200  # of a stack: a bound on what is stored


def read_stacks(pid: int) -> tuple[ThreadStack, ...]:
    """Read all Python threads of a process; SourceError, with a hint, when they cannot be read."""
    for _ in range(_TRIES):
        ended = _dump(pid)
        if ended.returncode == 0:
            return parse_stacks(ended.stdout)
    complaint = (ended.stderr.decode("utf-8", "replace").strip().splitlines() or ["it says nothing"])[-1]
    hint = PERMISSION_HINT if "ermission" in complaint else ""
    raise SourceError(f"py-spy cannot read the stacks of process {pid}: {printable(complaint)}", hint)


def _dump(pid: int) -> subprocess.CompletedProcess[bytes]:
    beside = Path(sys.executable).with_name("py-spy")
    executable = str(beside) if beside.exists() else shutil.which("py-spy")
    if executable is None:
        raise SourceError("py-spy is not installed", "pip install py-spy, beside memwatch")
    command = [executable, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        return subprocess.run(command, capture_output=True, timeout=_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"py-spy did not answer within {_TIMEOUT_SECONDS:g} s") from error
    except OSError as error:
        raise SourceError(f"py-spy cannot be run: {error}") from error


# [{"pid": 5518, "thread_name": "MainThread", "active": true, "frames": [{"name": "step", "filename": "/a/b.py",
#   "short_filename": "b.py", "line": 23, ...}], ...}]
def parse_stacks(raw: bytes) -> tuple[ThreadStack, ...]:
    """Parse the output of `py-spy dump --json`; SourceError when it is something else."""
    try:
        return tuple(
            ThreadStack(
                printable(str(thread["thread_name"] or "")),
                bool(thread["active"]),
                tuple(_frame(frame) for frame in thread["frames"][:_MAX_FRAMES]),
            )
            for thread in json.loads(raw)
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SourceError("py-spy's answer cannot be read", "memwatch reads that of py-spy 0.3.14 and later") from error


def _frame(frame: dict[str, Any]) -> StackFrame:
    file = str(frame["short_filename"] or frame["filename"])
    return StackFrame(printable(str(frame["name"])), printable(file), int(frame["line"]))
