"""The CPU time that examinations may take within any minute, and when more of it is free again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

WINDOW_SECONDS = 60.0  # In any such time, examinations stay within the share of a core that the user sets.


class CpuWindow:
    """The CPU time that examinations took within the last minute, and what those under way may take."""

    def __init__(self, share: float) -> None:
        self.seconds = share * WINDOW_SECONDS  # that may be spent in a window
        self._spent: deque[tuple[float, float, float]] = deque()  # began, ended, CPU seconds
        self._reserved = 0.0  # for the one under way

    def reserve(self, cpu_seconds: float) -> None:
        self._reserved = cpu_seconds

    def add(self, began_t: float, ended_t: float, cpu_seconds: float) -> None:
        self._spent.append((began_t, ended_t, cpu_seconds))

    def forget_running(self) -> None:
        self._reserved = 0.0

    def left(self, t: float) -> float:
        """Return the CPU seconds that may be spent now."""
        return self.seconds - self.spent(t)

    def spent_since(self, began_t: float) -> float:
        """Return what was spent by those that began at this time or later."""
        return sum(cpu for began, _, cpu in self._spent if began >= began_t)

    def spent(self, t: float) -> float:
        """Return what was spent or is reserved."""
        return self._reserved + sum(cpu for _, cpu in self.free_again(t))

    def free_again(self, t: float) -> list[tuple[float, float]]:
        """Return when what was spent may be spent again: after how many seconds, and how many CPU seconds.

        Of one that lasted longer than the window, its share of it counts.
        """
        begin = t - WINDOW_SECONDS
        while self._spent and self._spent[0][1] <= begin:
            self._spent.popleft()
        found = list[tuple[float, float]]()
        for began, ended, cpu in self._spent:
            if ended > begin:
                lasted = ended - began
                counts = cpu if lasted <= WINDOW_SECONDS else cpu * (ended - begin) / lasted
                found.append((ended - begin, counts))
        return found


class CpuAllowance:
    """CPU time that may be spent from a time on: some at once, more later, and as much in each minute to come."""

    def __init__(self, began_t: float = 0.0, at_once: float = 0.0, later: Sequence[tuple[float, float]] = ()) -> None:
        self._began_t, self._at_once, self._later, self._spent = began_t, at_once, later, 0.0

    def spend(self, cpu_seconds: float) -> None:
        self._spent += cpu_seconds

    def permits(self, cpu_seconds: float, t: float) -> bool:
        if self._at_once + sum(cpu for _, cpu in self._later) <= 0.0:
            return False
        return seconds_until(self._spent + cpu_seconds, self._at_once, self._later) <= t - self._began_t


def seconds_until(cpu_seconds: float, at_once: float, later: Sequence[tuple[float, float]]) -> float:
    """Return how long an examination lasts until it may have spent so much; 0 where nothing is given: no bound.

    It may spend `at_once`, what is free again `later` (after seconds, CPU seconds), and as much in each minute to come.
    """
    every_window = at_once + sum(cpu for _, cpu in later)
    if every_window <= 0.0:
        return 0.0
    windows, left = divmod(cpu_seconds, every_window)
    for after, cpu in ((0.0, at_once), *later):
        if left <= cpu:
            return windows * WINDOW_SECONDS + after
        left -= cpu
    return (windows + 1.0) * WINDOW_SECONDS
