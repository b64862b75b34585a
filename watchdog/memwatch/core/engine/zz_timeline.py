"""Memory over a whole watch, however long, in a bounded number of steps of equal length."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from memwatch.core.snapshot import Step

MOST = 240  # steps; with more to tell, two become one
FIRST_SECONDS = 0.25  # of a step, as the watch begins


class Timeline:
    """Of one resource. Steps in which nothing was read are left out."""

    def __init__(self, began_t: float) -> None:
        self._began_t, self._seconds = began_t, FIRST_SECONDS
        self._ended: list[Step] = []
        self._open: tuple[int, int, int] | None = None  # which step it is; the least and the most in it

    def take(self, times: Sequence[float], used: Sequence[int]) -> None:
        """Readings in order."""
        at, end = 0, len(times)
        while at < end:
            index = self._index(times[at])
            until = max(at + 1, bisect_left(times, self._began_t + (index + 1) * self._seconds, at, end))
            part = used[at:until]
            self._put(index, min(part), max(part))
            at = until

    def _index(self, t: float) -> int:
        while (index := int((t - self._began_t) / self._seconds)) >= MOST:
            self._halve()
        return index

    def _put(self, index: int, least: int, most: int) -> None:
        if self._open is not None:
            earlier, lower, upper = self._open
            if earlier >= index:  # a clock that was set back stays where it was
                index, least, most = earlier, min(least, lower), max(most, upper)
            else:
                self._ended.append(self._step(*self._open))
        self._open = index, least, most

    def _step(self, index: int, least: int, most: int) -> Step:
        return Step(self._began_t + index * self._seconds, self._seconds, least, most)

    def _halve(self) -> None:
        """Steps of twice the length."""
        steps, self._ended, self._open = self.steps(), [], None
        self._seconds *= 2.0
        for one in steps:
            self._put(int((one.t + 0.5 * one.seconds - self._began_t) / self._seconds), one.least_bytes, one.most_bytes)

    def steps(self) -> tuple[Step, ...]:
        """Oldest first."""
        return (*self._ended, self._step(*self._open)) if self._open is not None else ()
