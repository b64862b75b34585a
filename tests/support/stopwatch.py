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


def _waited_seconds() -> float:
    """As the kernel counts it since the machine's start (docs.kernel.org/accounting/psi.html); 0 where it does not."""
    with suppress(OSError), open("/proc/pressure/cpu", encoding="ascii") as file:
        return int(file.readline().rpartition("total=")[2]) / 1e6
    return 0.0
