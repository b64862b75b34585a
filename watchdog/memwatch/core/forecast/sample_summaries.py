"""What is kept of the samples, in bounded memory: time bins of the whole run, and the shape of each generation.

How far memory rises from where it is, in a time: as it did from each place of a recording without markers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import sub

from memwatch.core.robust_statistics import trimmed_mean, variance
from memwatch.core.sample_windows import first_beyond

MIN_SECONDS = 1e-6  # two times that are closer are the same
MISSED = 2.0  # usual sizes that one generation seems to have: a marker in it was not told
SLOTS = 16  # equal parts of a generation in which two generations are compared
KEPT_SHAPES = 40  # more generations than these are merged, the oldest first
FRESH_SHAPES = 20  # the latest generations are never merged
TORN_FACTOR = 3.0  # times as high as any other step of late is a jump
TORN_SHARE = 0.2  # of a jump: so little is a torn generation off its neighbours; steady growth is off by half


@dataclass(slots=True)
class TimeBin:
    """Samples of one stretch of time."""

    start_t: float
    end_t: float
    count: int
    total: float  # sum of the bytes of all samples
    low: float
    high: float

    @property
    def mean(self) -> float:
        return self.total / self.count

    def add_samples(self, times: Sequence[float], used: Sequence[float]) -> None:
        self.end_t = times[-1]
        self.count += len(used)
        self.total += sum(used)
        self.low, self.high = min(self.low, *used), max(self.high, *used)


class TimeBins:
    """At most `size` bins over a growing stretch of time; two neighbours become one when they run out."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._width = 0.0  # seconds of a bin; 0: one bin a sample
        self.items: list[TimeBin] = []
        self.samples = 0

    def add_samples(self, times: Sequence[float], used: Sequence[float]) -> None:
        """Take samples, in order and not before the last one."""
        self.samples += len(times)
        i, count = 0, len(times)
        while i < count:
            first = i
            if self.items:
                last = self.items[-1]
                i = first_beyond(times, last.start_t, self._width, first)
                if i == first and times[i] - last.end_t < MIN_SECONDS:
                    i += 1
                if i > first:
                    last.add_samples(times[first:i], used[first:i])
                    continue
            self.items.append(TimeBin(times[i], times[i], 1, used[i], used[i], used[i]))
            i += 1
            if len(self.items) >= self._size:
                self._halve()

    def split(self, t: float) -> TimeBins:
        """Keep what was before t; what began at t or later is the other's."""
        later = TimeBins(self._size)
        later._width = self._width
        later.items = [item for item in self.items if item.start_t >= t]
        later.samples = sum(item.count for item in later.items)
        self.items = self.items[: len(self.items) - len(later.items)]
        self.samples -= later.samples
        return later

    def join(self, later: TimeBins) -> None:
        self.items += later.items
        self.samples += later.samples

    def _halve(self) -> None:
        old = self.items
        self.items = [
            TimeBin(a.start_t, b.end_t, a.count + b.count, a.total + b.total, min(a.low, b.low), max(a.high, b.high))
            for a, b in zip(old[::2], old[1::2], strict=False)
        ]
        self.items.extend(old[len(old) // 2 * 2 :])
        self._width = 2.0 * (old[-1].start_t - old[0].start_t) / len(old)


@dataclass(frozen=True, slots=True)
class GenerationSummary:
    """One complete generation, or several merged ones, as levels in SLOTS equal parts of its time."""

    ordinal: float  # how many generations began before it (mean of the merged ones)
    middle_t: float  # half of its time is over
    count: int  # generations in it
    seconds: float  # length of one generation
    baseline: float  # bytes: mean of the slots without the highest and lowest fifth
    slot_means: tuple[float, ...]
    slot_maxima: tuple[float, ...]
    has_level_shift: bool = False  # a jump lies in it: it has no level of its own
    peak: float = field(init=False)  # bytes

    def __post_init__(self) -> None:
        object.__setattr__(self, "peak", max(self.slot_maxima))


def summarize_generation(
    bins: Sequence[TimeBin], start_t: float, end_t: float, ordinal: float
) -> GenerationSummary | None:
    """The shape of a generation from its bins; None without a sample or without length."""
    if not bins or end_t - start_t < MIN_SECONDS:
        return None
    means, highs = slots_of(bins, start_t, end_t - start_t, SLOTS)
    return GenerationSummary(
        ordinal, 0.5 * (start_t + end_t), 1, end_t - start_t, trimmed_mean(means), tuple(means), tuple(highs)
    )


def longest_unseen(bins: Sequence[TimeBin], start_t: float, end_t: float) -> float:
    begins = [*(item.start_t for item in bins), end_t]
    ends = [start_t, *(item.end_t for item in bins)]
    return max(begin - end for begin, end in zip(begins, ends, strict=True))


def slots_of(bins: Sequence[TimeBin], start_t: float, seconds: float, slots: int) -> tuple[list[float], list[float]]:
    """Mean and highest bytes in each of the first `slots` slots; a slot without samples has its last level before."""
    means, highs = [], []
    scale = SLOTS / seconds
    at, last = 0, bins[0].mean
    for slot in range(slots):
        weight = total = 0.0
        high = last
        while at < len(bins) and ((bins[at].start_t - start_t) * scale < slot + 1 or slot == SLOTS - 1):
            item = bins[at]
            weight += item.count
            total += item.total
            high = item.high if weight == item.count else max(high, item.high)
            at += 1
        if weight:
            last = total / weight
        means.append(last)
        highs.append(max(high, last))
        if weight:
            last = bins[at - 1].mean
    return means, highs


def add_shape(shapes: list[GenerationSummary], new: GenerationSummary) -> None:
    """Append a generation; beyond KEPT_SHAPES the smallest old neighbours become one."""
    shapes.append(new)
    if len(shapes) <= KEPT_SHAPES:
        return
    pairs = range(len(shapes) - FRESH_SHAPES)
    i = min(pairs, key=lambda i: shapes[i].count + shapes[i + 1].count)
    shapes[i : i + 2] = [_merged(shapes[i], shapes[i + 1])]


def is_torn(shapes: Sequence[GenerationSummary]) -> bool:
    """The last but one goes on as the one before it, and from some part on as the one after it does already.

    A jump: no other step of these generations is like it, as those of stairs are.
    """
    before, shape, after = shapes[-3:]
    jump = abs(after.baseline - before.baseline)
    if jump <= TORN_FACTOR * max((abs(b.baseline - a.baseline) for a, b in pairwise(shapes[:-2])), default=0.0):
        return False
    as_before = [abs(a - b) for a, b in zip(shape.slot_means, before.slot_means, strict=True)]
    as_after = [abs(a - b) for a, b in zip(shape.slot_means, after.slot_means, strict=True)]
    off = min(sum(as_before[:k]) + sum(as_after[k:]) for k in range(1, SLOTS))
    return off < TORN_SHARE * min(SLOTS * jump, 2.0 * sum(as_before), 2.0 * sum(as_after))


def _merged(a: GenerationSummary, b: GenerationSummary) -> GenerationSummary:
    count = a.count + b.count

    def mean(x: float, y: float) -> float:
        return (x * a.count + y * b.count) / count

    return replace(
        a,
        ordinal=mean(a.ordinal, b.ordinal),
        middle_t=mean(a.middle_t, b.middle_t),
        count=count,
        seconds=mean(a.seconds, b.seconds),
        baseline=mean(a.baseline, b.baseline),
        slot_means=(*map(mean, a.slot_means, b.slot_means),),
        slot_maxima=(*map(max, a.slot_maxima, b.slot_maxima),),
    )


LOAD_SHARE = 1 / 8  # of the recording: what a run begins with is no rise to expect
LONGEST_SHARE = 1 / 4  # of the rest: the longest span that enough of are seen
MIN_BINS = 32  # time bins


@dataclass(frozen=True, slots=True)
class ExcursionHorizon:
    """A span of time, and the rises within it that began at each place."""

    seconds: float
    rises: tuple[float, ...]  # bytes above the place, ascending
    variance: float  # of the rises
    apart: float  # spans that do not overlap


class ExcursionDistribution:
    """Spans, each twice as long as the one before it. Made when asked for: few recordings come close to a limit."""

    def __init__(self, bins: Sequence[TimeBin]) -> None:
        self._width = (bins[-1].start_t - bins[0].start_t) / (len(bins) - 1)
        self._means, self._tops = [b.mean for b in bins], [b.high for b in bins[1:]]  # tops: of the next span
        self._size, self._longest = 1, LONGEST_SHARE * len(bins)  # in bins
        self._spans: list[ExcursionHorizon] = []

    def within(self, seconds: float) -> ExcursionHorizon:
        """The shortest span that is as long, or the longest of all."""
        while self._size <= self._longest and not (self._spans and self._spans[-1].seconds >= seconds):
            self._spans.append(self._next())
        return next((span for span in self._spans if span.seconds >= seconds), self._spans[-1])

    def _next(self) -> ExcursionHorizon:
        size, tops = self._size, self._tops
        rises = list(map(sub, tops, self._means))
        once = rises.index(max(rises))  # the greatest came once: what may come again is in the spans without it
        found = sorted([*rises[: max(0, once - size + 1)], *rises[once + size :]])
        self._tops, self._size = list(map(max, tops, tops[size:])), 2 * size
        return ExcursionHorizon(size * self._width, tuple(found), variance(found), len(found) / size)


def excursion_distribution(bins: Sequence[TimeBin]) -> ExcursionDistribution | None:
    """Of a whole recording; None while it is short."""
    calm = bins[int(LOAD_SHARE * len(bins)) :]
    return ExcursionDistribution(calm) if len(calm) >= MIN_BINS else None
