"""Attributes growth of resident memory to the code that ran as it rose, by stack and by line of the program.

It follows the level of memory, not single allocations: memory that is allocated and freed again leaves no trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from memwatch.core.examination import LineGrowth, StackFrame, StackGrowth

S = TypeVar("S", bound=Hashable)


class LifoAttribution(Generic[S]):
    """Attributes the level of memory to sources (stacks): a fall takes back the latest rises first.

    So a temporary buffer leaves nothing, be it gigabytes a second. The sum of all sources is the growth of memory from
    its lowest level since the beginning.
    """

    def __init__(self) -> None:
        self._rises: list[tuple[S, int]] = []  # source and bytes

    def add_change(self, by: int, source: S) -> None:
        """Add a rise (or fall, if negative) of memory by so many bytes, while `source` ran."""
        rises = self._rises
        if by > 0:
            if rises and rises[-1][0] == source:
                by += rises.pop()[1]
            rises.append((source, by))
        while by < 0 and rises:
            last, size = rises.pop()
            by += size
            if by > 0:
                rises.append((last, by))

    def bytes_by_source(self) -> Counter[S]:
        found: Counter[S] = Counter()
        for source, size in self._rises:
            found[source] += size
        return found


def merge_stacks(credits: Iterable[StackGrowth]) -> tuple[StackGrowth, ...]:
    """Add up the growth of equal stacks, the largest first."""
    sizes: Counter[tuple[StackFrame, ...]] = Counter()
    for credit in credits:
        sizes[credit.frames] += credit.bytes
    return tuple(StackGrowth(frames, size) for frames, size in sizes.most_common())


def by_line(credits: Iterable[StackGrowth]) -> tuple[LineGrowth, ...]:
    """Add up growth by line of the program, the largest first; growth without a stack is left out.

    Growth in a library's code counts for the line of the program that called it.
    """
    sizes: Counter[StackFrame] = Counter()
    for credit in credits:
        if credit.frames:
            sizes[next((frame for frame in credit.frames if not frame.installed), credit.frames[0])] += credit.bytes
    total = sum(sizes.values())
    return tuple(LineGrowth(frame, size, round(size / total, 4)) for frame, size in sizes.most_common() if size)
