"""The fastest recent rise: what a burst could do before the next sample."""

from __future__ import annotations

import math
from collections import deque

WINDOW = 6  # samples
FIRST_MEMORY_SECONDS = 120.0


class PeakRate:
    """Rises over the last few samples; the fastest fades over `remember` seconds."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self._memory = FIRST_MEMORY_SECONDS
        self._interval = 0.0  # usual seconds between samples
        self.fastest = 0.0  # bytes a second

    def remember(self, seconds: float) -> None:
        """Let a rise fade to a third in this time: two generations, so that a rise in each of them is not forgotten."""
        self._memory = max(seconds, 1e-6)

    def restart(self) -> None:
        """A new process: the fall to it is no rise, its rises are its own."""
        self._recent.clear()

    def observe(self, t: float, used: float) -> None:
        """A sample; times never go back. A rise over a jittered, very short time counts over half the usual one."""
        if self._recent:
            elapsed = t - self._recent[-1][0]
            self._interval += (elapsed - self._interval) * (0.1 if self._interval else 1.0)
            fastest = self.fastest * math.exp(-elapsed / self._memory)
            shortest = max(0.5 * self._interval, 1e-6)
            for s, u in self._recent:
                if used > u:
                    seconds = t - s if t - s > shortest else shortest
                    if used - u > fastest * seconds:
                        fastest = (used - u) / seconds
            self.fastest = fastest
        self._recent.append((t, used))
