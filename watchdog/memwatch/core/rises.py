"""How far memory rises from where it is, in a time: as it did from each place of a recording without markers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import sub

from memwatch.core.shapes import Bin
from memwatch.core.stats import variance

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


@dataclass(frozen=True, slots=True)
class Rises:
    """Spans, each twice as long as the one before it."""

    spans: tuple[Span, ...]

    def within(self, seconds: float) -> Span:
        """The shortest span that is as long, or the longest of all."""
        return next((span for span in self.spans if span.seconds >= seconds), self.spans[-1])


def rises(bins: Sequence[Bin]) -> Rises | None:
    """Of a whole recording; None while it is short."""
    calm = bins[int(LOAD_SHARE * len(bins)) :]
    if len(calm) < ENOUGH:
        return None
    width = (calm[-1].start_t - calm[0].start_t) / (len(calm) - 1)
    means, tops, spans, size = [b.mean for b in calm], [b.high for b in calm[1:]], list[Span](), 1
    while size <= LONGEST_SHARE * len(calm):
        found = sorted(map(sub, tops, means))
        spans.append(Span(size * width, tuple(found), variance(found), len(found) / size))
        tops = list(map(max, tops, tops[size:]))
        size *= 2
    return Rises(tuple(spans))
