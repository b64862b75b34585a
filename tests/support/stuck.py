"""A thread that does not come back while the other threads of its process go on: ptrace(2) holds it alone."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_WAIT_ALL = 0x40000000  # __WALL: also a thread that is no child
_RUNNING = "-1"  # in /proc/PID/syscall, of a thread that was stopped outside of any system call

_ptrace = ctypes.CDLL(None, use_errno=True).ptrace
_ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_ptrace.restype = ctypes.c_long


@contextmanager
def stuck(pid: int) -> Iterator[None]:
    """The first thread of a process (a child, or root asks) stays in a system call, as in a read that hangs.

    Only there: between two calls it would hold Python's lock, and all threads would be stuck. OSError when not allowed.
    """
    while not _stopped_in_a_call(pid):
        _call(_DETACH, pid)
        time.sleep(0.01)
    try:
        yield
    finally:
        _call(_DETACH, pid)


def _stopped_in_a_call(pid: int) -> bool:
    _call(_SEIZE, pid)
    _call(_INTERRUPT, pid)
    os.waitpid(pid, _WAIT_ALL)
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] != _RUNNING


def _call(request: int, pid: int) -> None:
    if _ptrace(request, pid, None, None) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
