"""Peaks that not every generation has: a checkpoint or a validation every few generations."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from memwatch.core.forecast.sample_summaries import MISSED, GenerationSummary, TimeBin
from memwatch.core.robust_statistics import median, robust_sd_about

REMEMBERED = 48  # generations
GRACE_GENERATIONS = 1  # generations that such a peak may be late by, before they are taken to have ceased
LATE_SHARE = 0.08  # of the gap: a peak that is due may come so late
IRREGULAR_GAP_SHARE = 0.3  # of the usual gap: a period that is off by more, in any of ...
RECENT_GAPS = 4  # ... the latest, is none
CEASED = 1.3  # of the usual gap: without markers, peaks that have not come for so long have ceased
FORGOTTEN = 3.0  # times the usual gap: so do those of generations when they are not periodic
AROUND = 6  # bins to either side that a peak stands out of
ALIKE = 0.5  # of a peak's height: a high of the latest generation that is more may be the next one
MIN_EARLIER_GENERATIONS = 3  # generations before the latest, from which on it can stand out
ONSET_SHARE = 0.8  # of a peak's height: there it begins
RARE_SHARE = 0.4  # peaks in more generations than this are the usual shape


@dataclass(frozen=True, slots=True)
class PeriodicPeak:
    """Peaks that come every so often, in units of the model's axis."""

    last: float  # place at which the latest begins
    period: float
    highs: tuple[float, ...]  # bytes above the level, of each that was seen
    regular: bool = True
    error: float = 0.0  # standard deviation of the place of the next one

    @property
    def excess(self) -> float:
        """Bytes above the level of a usual one."""
        return median(self.highs)

    def first_from(self, x: float) -> float:
        """The place of the first one from x on; of those without a period, where it is to be expected."""
        if not self.regular:
            return max(x, self.last + 0.5 * self.period) + 0.5 * self.period
        times = max(1, math.ceil((x - self.last) / self.period - LATE_SHARE))
        return max(x, self.last + times * self.period)


@dataclass(frozen=True, slots=True)
class _Peak:
    number: int  # of the generation: the next one has the next, whatever part of the index either is
    x: float  # its ordinal
    level: float  # of the generation, bytes
    excess: float  # bytes above its level
    above_base: float  # bytes above its base
    part: float  # of the generation that is over when it begins
    fall: float  # bytes that went again: above the level of the generation and of the one after it


class PeriodicPeakDetector:
    """The highest excess of each of the latest generations, and the period of those that stand out.

    Whether a high was a peak or a step is known when the next generation is over.
    """

    def __init__(self) -> None:
        self._all: deque[_Peak] = deque(maxlen=REMEMBERED)
        self._rare: list[_Peak] = []

    def add(self, shape: GenerationSummary, base: float) -> None:
        """A generation is complete; `base` is the level of its lowest parts."""
        number = round(shape.ordinal)
        if self._all:
            last = self._all.pop()
            stayed = max(last.level, min(shape.baseline, last.level + last.excess))
            self._all.append(replace(last, fall=last.level + last.excess - stayed))
            apart = shape.ordinal - last.x  # two of uneven size are less than two apart
            number = last.number + (1 if apart < MISSED else round(apart))
        excess = shape.peak - shape.baseline
        part = onset_part(shape, shape.baseline)
        self._all.append(_Peak(number, shape.ordinal, shape.baseline, excess, shape.peak - base, part, excess))
        over = [p for p in self._all if p.number > 0][:-1]
        falls = [p.fall for p in over]
        bound = _bound(falls, shape.baseline)
        rare = [p for p in over if p.fall > bound]
        if len(rare) > RARE_SHARE * len(over) or not rare:  # every second one, perhaps: the calmer half tells
            bound = _bound(sorted(falls)[: (len(falls) + 1) // 2], shape.baseline)
            rare = [p for p in over if p.fall > bound]
            gaps = [b.number - a.number for a, b in pairwise(rare)]
            if any(gap % min(gaps) for gap in gaps) or 1 in gaps:  # one that fell between two samples: a double gap
                rare = []
        usual = ALIKE * median([p.excess for p in rare]) if rare else _bound([p.excess for p in over], shape.baseline)
        if len(over) >= MIN_EARLIER_GENERATIONS and excess > usual:
            rare.append(self._all[-1])
        self._rare = rare

    def __bool__(self) -> bool:
        return bool(self._rare)

    def is_rare(self, shape: GenerationSummary) -> bool:
        return any(p.x == shape.ordinal for p in self._rare)

    def periodic_peak(self, above_base: bool, error: float = 0.0) -> PeriodicPeak | None:
        """The period of those that stand out, their excess above the base or the level; None if they have ceased.

        `error` is the deviation of a generation's ordinal.
        """
        if len(self._rare) < 2:
            return None
        last, every = self._rare[-1], self._every()
        gaps = [b.number - a.number for a, b in pairwise(self._rare)]
        off = [abs(gap - every * max(1, round(gap / every))) for gap in gaps[-RECENT_GAPS:]]  # from a multiple
        regular = all(each <= IRREGULAR_GAP_SHARE * every for each in off)
        if self._have_ceased(last.number, every, regular):
            return None
        highs = tuple([p.above_base if above_base else p.excess for p in self._rare])
        a, b = self._all[0], self._all[-1]
        length = (b.x - a.x) / (b.number - a.number)  # of a generation, as the ordinal counts
        return PeriodicPeak(last.x + last.part * length, every * length, highs, regular, error)

    def _every(self) -> int:
        """Generations from one to the next: the fewest that no generation contradicts which was seen."""
        rare = {p.number for p in self._rare}
        seen = {p.number for p in self._all} - rare
        gaps = sorted(b.number - a.number for a, b in pairwise(self._rare))
        usual = gaps[(len(gaps) - 1) // 2]
        first, last = self._rare[0].number, self._rare[-1].number
        for every in range(2, usual):
            due = range(last, first - 1, -every)
            if usual % every == 0 and not seen.intersection(due):
                return every
        return usual

    def _have_ceased(self, last: int, every: int, regular: bool) -> bool:
        """One was due, and it did not come in that generation nor (OVERDUE) soon after; or none came for long."""
        if not regular:
            return self._all[-1].number - last > FORGOTTEN * every
        seen = {p.number for p in self._all if p.number > last}
        due = range(last + every, max(seen, default=last) + 1 - GRACE_GENERATIONS, every)
        return any(all(number in seen for number in range(at, at + GRACE_GENERATIONS + 1)) for at in due)


def periodic_peak_of_bins(bins: Sequence[TimeBin], first_t: float) -> PeriodicPeak | None:
    """Peaks that stand out of a run without markers, by their times; None of fewer than two."""
    if len(bins) < 4 * AROUND:
        return None
    means = [b.mean for b in bins]
    calm = [median(means[max(0, i - AROUND) : i + AROUND + 1]) for i in range(len(bins))]
    excesses = [b.high - level for b, level in zip(bins, calm, strict=True)]
    bound = _bound(excesses[len(excesses) // 4 :], calm[-1])
    peaks: list[tuple[float, float]] = []  # time, excess
    for i in range(len(bins) // 8, len(bins)):  # the load is no peak
        if excesses[i] <= bound:
            continue
        if peaks and excesses[i - 1] > bound:
            peaks[-1] = (peaks[-1][0], max(peaks[-1][1], excesses[i]))
        else:
            peaks.append((bins[i].start_t - first_t, excesses[i]))
    highest = max((excess for _, excess in peaks), default=0.0)
    peaks = [peak for peak in peaks if peak[1] > ALIKE * highest]
    if len(peaks) < 2 or len(peaks) > len(bins) // 8:
        return None
    gaps = [b[0] - a[0] for a, b in pairwise(peaks)]
    every = median(gaps)
    now = bins[-1].end_t - first_t
    if now - peaks[-1][0] > CEASED * every:
        return None
    regular = all(abs(gap - every) <= IRREGULAR_GAP_SHARE * every for gap in gaps[-RECENT_GAPS:])
    width = median([b.start_t - a.start_t for a, b in pairwise(bins)])
    error = max(width, robust_sd_about(gaps, every))
    return PeriodicPeak(peaks[-1][0], every, tuple([excess for _, excess in peaks]), regular, error)


def onset_part(shape: GenerationSummary, level: float) -> float:
    """Where in the generation its peak above the level begins, 0 to 1."""
    enough = level + ONSET_SHARE * (shape.peak - level)
    return (next(k for k, high in enumerate(shape.slot_maxima) if high >= enough) + 0.25) / len(shape.slot_maxima)


def _bound(excesses: Sequence[float], level: float) -> float:
    """What stands out among these."""
    usual = median(excesses)
    around = robust_sd_about(excesses, usual)
    return usual + max(6.0 * around, 0.5 * usual, 0.01 * abs(level))
