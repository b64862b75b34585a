"""What measuring programs share: what a process has used, and quantiles."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
_PATHS = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
ENVIRON = os.environ | {"PYTHONPATH": os.pathsep.join(_PATHS)}  # for a measuring program that is a process of its own

_CPUCLOCK_SCHED = 2


def cpu_seconds(pid: int) -> float:
    """Of all its threads, those that have ended too, in nanoseconds' precision (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def rss_mib(pid: int | str = "self") -> float:
    """What it holds now."""
    return _status_mib(pid, "VmRSS:")


def peak_rss_mib(pid: int | str = "self") -> float:
    """Of what the process runs now: ru_maxrss counts what its parent held when it forked."""
    return _status_mib(pid, "VmHWM:")


def _status_mib(pid: int | str, name: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def quantile(values: Sequence[float], part: float) -> float:
    """The least value that so great a part of all does not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def median(values: Sequence[float]) -> float:
    """The lower of two."""
    return quantile(values, 0.5)
