"""How often a watch samples where it is one of many: all watches of a node together keep within a share of a core."""

from __future__ import annotations

import math
import mmap
import time
from collections.abc import Callable

from memwatch.sources.memory.memory_peek import MemoryPeek

# The longest time between two samples: a forecast needs some in each minute, and a decision allows for two (chosen).
MAX_INTERVAL_SECONDS = 20.0
PEEK_SECONDS = 1.0  # between two looks at memory alone, which take 30 us with the wakeup (measured), a sample 2 ms
PEEK_SHARE = 0.05  # of the headroom: memory that has moved by more since the last sample is sampled at once (chosen)
COST_WEIGHT = 0.3  # of the latest sample in the average of what one costs (chosen)
_SUPERVISOR_T, _WATCHES, _FIRST = 0, 1, 2


class NodeBoard:
    """Shared memory of all processes of a node: when each last iterated, and how many watches there are."""

    def __init__(self, most_watches: int) -> None:
        self._values = memoryview(mmap.mmap(-1, 8 * (_FIRST + most_watches))).cast("d")
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


class SharedPace:
    """The pace of one of the watches: what its samples cost sets their number."""

    def __init__(
        self, board: NodeBoard, slot: int, least_seconds: float, most_seconds: float, cpu_share: float
    ) -> None:
        """`cpu_share` of a core is for all watches; `least_seconds` lie between two samples in any case."""
        self._board, self._slot, self._cpu_share = board, slot, cpu_share
        self._least, self._most = least_seconds, max(least_seconds, most_seconds)
        self._cpu_seconds = time.process_time()
        self._cost = 0.0  # CPU seconds from one tick to the next, averaged

    def next_interval(self) -> float:
        """Return the time until the next tick."""
        self._board.beat(self._slot)
        before, self._cpu_seconds = self._cpu_seconds, time.process_time()
        cost = self._cpu_seconds - before
        self._cost = cost if self._cost == 0.0 else self._cost + COST_WEIGHT * (cost - self._cost)
        wanted = self._cost * max(1, self._board.watches) / self._cpu_share
        return min(max(self._least, wanted), self._most)

    def with_peeks(
        self, sleep: Callable[[float], bool], peek: MemoryPeek, headroom: Callable[[], float | None]
    ) -> Callable[[float], bool]:
        """Return a sleep that ends early when memory has moved by PEEK_SHARE of the headroom (bytes)."""

        def sleep_with_peeks(seconds: float) -> bool:
            if seconds <= PEEK_SECONDS:
                return sleep(seconds)
            end = time.monotonic() + seconds
            before, room = peek.read(), headroom()
            tolerated = math.inf if room is None else PEEK_SHARE * max(0.0, room)
            while (left := end - time.monotonic()) > 0.0:
                if sleep(min(left, PEEK_SECONDS)):
                    return True
                if any(abs(now - then) > tolerated for now, then in zip(peek.read(), before, strict=True)):
                    return True
            return False

        return sleep_with_peeks
