"""Growth of memory credited to the code that ran as it rose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from memwatch.core.examination import LineGrowth, StackFrame, StackGrowth

S = TypeVar("S", bound=Hashable)


class LifoAttribution(Generic[S]):
    """Who raised memory to where it is: what came last goes first when it falls.

    So what is made and dropped again, be it gigabytes a second, leaves nothing; the sum is always what memory has
    grown by, from the lowest level on that it had since the beginning.
    """

    def __init__(self) -> None:
        self._rises: list[tuple[S, int]] = []  # who, and bytes

    def add_change(self, by: int, who: S) -> None:
        """Memory has risen by so many bytes while `who` ran; or fallen."""
        rises = self._rises
        if by > 0:
            if rises and rises[-1][0] == who:
                by += rises.pop()[1]
            rises.append((who, by))
        while by < 0 and rises:
            last, size = rises.pop()
            by += size
            if by > 0:
                rises.append((last, by))

    def bytes_by_source(self) -> Counter[S]:
        """Bytes by who raised them."""
        found: Counter[S] = Counter()
        for who, size in self._rises:
            found[who] += size
        return found


def merge_stacks(credits: Iterable[StackGrowth]) -> tuple[StackGrowth, ...]:
    """One for each stack, the largest first."""
    sizes: Counter[tuple[StackFrame, ...]] = Counter()
    for one in credits:
        sizes[one.frames] += one.bytes
    return tuple(StackGrowth(frames, size) for frames, size in sizes.most_common())


def by_line(credits: Iterable[StackGrowth]) -> tuple[LineGrowth, ...]:
    """The lines of the program that memory rose in, the most first; growth whose code was not seen is left out.

    A rise in a library's code is that of the line that called it.
    """
    sizes: Counter[StackFrame] = Counter()
    for one in credits:
        if one.frames:
            sizes[next((frame for frame in one.frames if not frame.installed), one.frames[0])] += one.bytes
    seen = sum(sizes.values())
    return tuple(LineGrowth(frame, size, round(size / seen, 4)) for frame, size in sizes.most_common() if size)
