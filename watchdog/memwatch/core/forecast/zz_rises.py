"""How far memory rises from where it is, in a time: as it did from each place of a recording without markers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import sub

from memwatch.core.forecast.sample_summaries import Bin
from memwatch.core.robust_statistics import variance

LOAD_SHARE = 1 / 8  # of the recording: what a run begins with is no rise to expect
LONGEST_SHARE = 1 / 4  # of the rest: the longest span that enough of are seen
ENOUGH = 32  # time bins


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time, and the rises within it that began at each place."""

    seconds: float
    rises: tuple[float, ...]  # bytes above the place, ascending
    variance: float  # of the rises
    apart: float  # spans that do not overlap

    def highest(self, least: float) -> Sequence[float]:
        """Those of at least so many bytes."""
        return self.rises[bisect_left(self.rises, least) :]


class Rises:
    """Spans, each twice as long as the one before it. Made when asked for: few recordings come close to a limit."""

    def __init__(self, bins: Sequence[Bin]) -> None:
        self._width = (bins[-1].start_t - bins[0].start_t) / (len(bins) - 1)
        self._means, self._tops = [b.mean for b in bins], [b.high for b in bins[1:]]  # tops: of the next span
        self._size, self._longest = 1, LONGEST_SHARE * len(bins)  # in bins
        self._spans: list[Span] = []

    def within(self, seconds: float) -> Span:
        """The shortest span that is as long, or the longest of all."""
        while self._size <= self._longest and not (self._spans and self._spans[-1].seconds >= seconds):
            self._spans.append(self._next())
        return next((span for span in self._spans if span.seconds >= seconds), self._spans[-1])

    def _next(self) -> Span:
        size, tops = self._size, self._tops
        found = _again(list(map(sub, tops, self._means)), size)
        self._tops, self._size = list(map(max, tops, tops[size:])), 2 * size
        return Span(size * self._width, tuple(found), variance(found), len(found) / size)


def _again(rises: Sequence[float], size: int) -> list[float]:
    """What may come again, ascending: without the spans that hold the greatest rise, which came once."""
    once = max(range(len(rises)), key=rises.__getitem__)
    return sorted([*rises[: max(0, once - size + 1)], *rises[once + size :]])


def rises(bins: Sequence[Bin]) -> Rises | None:
    """Of a whole recording; None while it is short."""
    calm = bins[int(LOAD_SHARE * len(bins)) :]
    return Rises(calm) if len(calm) >= ENOUGH else None
