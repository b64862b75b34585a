"""How often a watch samples where it is one of many: all watches of a node together keep within a share of a core."""

from __future__ import annotations

import math
import mmap
import time
from collections.abc import Callable

from memwatch.sources.memory.memory_peek import MemoryPeek

# The longest time between two samples: a forecast needs some in each minute, and a decision allows for two (chosen).
MAX_INTERVAL_SECONDS = 30.0
MIN_PEEK_SECONDS = 1.0  # between two looks at memory alone (chosen)
PEEKS = 6  # of these between two samples, at most (chosen: one takes 0.3 ms of a cold core, a sample 5)
GOLDEN = 0.618034  # whose multiples are spread evenly over the unit interval
EXAMINATION_SHARE = 0.25  # of what all watches may use is for examinations (chosen)
EXAMINATION_BURST_SECONDS = 1.0  # of CPU that examinations may use at once (chosen: one of a torch program)
PEEK_SHARE = 0.05  # of the headroom: memory that has moved by more since the last sample is sampled at once (chosen)
COST_WEIGHT = 0.3  # of the latest sample in the average of what one costs (chosen)
_SUPERVISOR_T, _WATCHES, _SAVED, _SAVED_T, _FIRST = range(5)


class NodeBoard:
    """Shared memory of all processes of a node: when each last iterated, how many watches there are, what they may use.

    Two that write at once may lose what one of them spent: no lock is held by a process that may be killed.
    """

    def __init__(self, most_watches: int, cpu_share: float) -> None:
        """`cpu_share` of a core is for all watches and their examinations."""
        self.watch_share = (1.0 - EXAMINATION_SHARE) * cpu_share
        self._examination_share = EXAMINATION_SHARE * cpu_share
        self._values = memoryview(mmap.mmap(-1, 8 * (_FIRST + most_watches))).cast("d")
        self._values[_SAVED], self._values[_SAVED_T] = EXAMINATION_BURST_SECONDS, time.monotonic()
        self.free = list(range(_FIRST, _FIRST + most_watches))  # slots

    @property
    def watches(self) -> int:
        return int(self._values[_WATCHES])

    @watches.setter
    def watches(self, count: int) -> None:
        self._values[_WATCHES] = count

    def beat(self, slot: int = _SUPERVISOR_T) -> None:
        """Note that this slot's process, by default the supervisor, iterates now."""
        self._values[slot] = time.monotonic()

    def last_beat(self, slot: int = _SUPERVISOR_T) -> float:
        """Return when it last iterated, as time.monotonic()."""
        return self._values[slot]

    def take(self, cpu_seconds: float) -> bool:
        """Take what an examination is expected to use; False, and nothing is taken, while there is none left."""
        now, values = time.monotonic(), self._values
        earned = self._examination_share * (now - values[_SAVED_T])
        values[_SAVED] = min(EXAMINATION_BURST_SECONDS, values[_SAVED] + earned)
        values[_SAVED_T] = now
        if values[_SAVED] <= 0.0:
            return False
        values[_SAVED] -= cpu_seconds
        return True

    def correct(self, cpu_seconds: float) -> None:
        """Note that an examination has used so much more than was expected; less where it is negative."""
        self._values[_SAVED] -= cpu_seconds


class SharedPace:
    """The pace of one of the watches: what its samples cost sets their number."""

    def __init__(self, board: NodeBoard, slot: int, least_seconds: float, most_seconds: float) -> None:
        """`least_seconds` lie between two ticks in any case."""
        self._board, self._slot = board, slot
        self._least, self._most = least_seconds, max(least_seconds, most_seconds)
        self._spread = 0.9 + 0.2 * (GOLDEN * slot % 1.0)  # watches that began together do not tick together for long
        self._cpu_seconds: float | None = None  # at the last tick
        self._cost = 0.0  # CPU seconds from one tick to the next, averaged
        self.interval = least_seconds  # from the last tick to the next

    def next_interval(self) -> float:
        """Return the time until the next tick."""
        self._board.beat(self._slot)
        before, self._cpu_seconds = self._cpu_seconds, time.process_time()
        if before is not None:
            cost = self._cpu_seconds - before
            self._cost = cost if self._cost == 0.0 else self._cost + COST_WEIGHT * (cost - self._cost)
        wanted = self._cost * self.watches() / self._board.watch_share
        self.interval = self._spread * min(max(self._least, wanted), self._most)
        return self.interval

    def watches(self) -> int:
        """Return how many watches the node has now."""
        return max(1, self._board.watches)

    def with_peeks(
        self, sleep: Callable[[float], bool], peek: MemoryPeek, aim: Callable[[MemoryPeek], float | None]
    ) -> Callable[[float], bool]:
        """Return a sleep that ends early when memory has moved by PEEK_SHARE of the headroom, which `aim` returns."""

        def sleep_with_peeks(seconds: float) -> bool:
            pause = max(MIN_PEEK_SECONDS, self.interval / PEEKS)
            if seconds <= pause:
                return sleep(seconds)
            end = time.monotonic() + seconds
            room = aim(peek)
            before = peek.read()
            tolerated = math.inf if room is None else PEEK_SHARE * max(0.0, room)
            while (left := end - time.monotonic()) > 0.0:
                if sleep(min(left, pause)):
                    return True
                if any(abs(now - then) > tolerated for now, then in zip(peek.read(), before, strict=True)):
                    return True
            return False

        return sleep_with_peeks
