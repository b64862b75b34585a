"""How long something took, on a machine that does other things, too."""

from __future__ import annotations

import time
from contextlib import suppress


class Stopwatch:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._begun, self._waited = time.monotonic(), _waited_seconds()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    @property
    def undisturbed_seconds(self) -> float:
        """Without the time in which something on this machine could have run and found no core: for upper bounds."""
        return self.seconds - (_waited_seconds() - self._waited)


class CpuStopwatch:
    """CPU seconds of this process, as the machine would take for which the bounds of tests are written.

    A loop is timed before and after the work: where it takes n times as long as there, n seconds count as one.
    """

    def __init__(self) -> None:
        self._slowness = _slowness()
        self._begun = time.process_time()

    @property
    def slowness(self) -> float:
        """How many times as long this machine takes, at least 1."""
        return max(1.0, self._slowness, _slowness())

    @property
    def seconds(self) -> float:
        took = time.process_time() - self._begun
        return took / self.slowness


# Of the loop below: CPython 3.11, a core of a 2-core cloud machine of 2024 that does nothing else.
_LOOP_SECONDS = 0.0125


def _slowness() -> float:
    """How many times as long a loop takes as where the bounds were written."""
    began = time.process_time()
    total = 0
    for i in range(250_000):
        total += i
    return (time.process_time() - began) / _LOOP_SECONDS


def _waited_seconds() -> float:
    """As the kernel counts it since the machine's start (docs.kernel.org/accounting/psi.html); 0 where it does not."""
    with suppress(OSError), open("/proc/pressure/cpu", encoding="ascii") as file:
        return int(file.readline().rpartition("total=")[2]) / 1e6
    return 0.0
