"""The generations of one process, by its markers or by its sawtooth: the open one, and those that are over."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter

from memwatch.core.forecast.growth_axes import RECENT, usual_seconds
from memwatch.core.forecast.periodic_peaks import PeriodicPeakDetector
from memwatch.core.forecast.piecewise_trend import BaselinePoint, line_t_stat
from memwatch.core.forecast.sample_summaries import (
    MIN_SECONDS,
    MISSED,
    SLOTS,
    GenerationSummary,
    TimeBin,
    TimeBins,
    add_shape,
    is_torn,
    longest_unseen,
    slots_of,
    summarize_generation,
)
from memwatch.core.robust_statistics import median, quantile, robust_sd, trimmed_mean

GENERATION_BINS = 64  # time bins of the open generation
USUAL_GENERATIONS = 8  # latest generations that say how a generation usually goes
COMPARED_GENERATIONS = 3  # latest generations that the open one is compared with
BASE_GENERATIONS = 6  # from which on it is asked whether the base tells more than the middle: ...
CLEARER = 1.5  # ... it grows so many times as clearly, or is so many times as calm
OVERDUE_SHARE = 0.1  # of its usual length, or ...
UNSEEN = 0.6  # of a generation without samples: too much to know how it went, or when it began
OVERDUE_DEVIATIONS = 3.0  # ... so many deviations beyond it, and a generation cannot be compared part by part
GROWS = 4.0  # standard errors: growth that is no accident
OPEN_SLOTS = 4  # of the open generation that tell its level
OPEN_SAMPLES = 8  # of it from which on they are as good as those of the others
SHORT_SECONDS = 2.0  # generations shorter than this, or with ...
FEW_SAMPLES = 3  # ... fewer samples than this, are taken together: their shape is not seen
OTHER_SIZE = 1.5  # times the size of the bundles: another one is chosen
FAR_SMALLER = 4.0  # times as large as the latest needed: at once
BUNDLE_WAIT = 2.0  # usual lengths of a bundle after which it is over with however few generations
LOST_AFTER = 3.0  # markers are lost when a generation lasts this many times the longest of the usual ones


class GenerationTracker:
    """Generations counted by `ordinal` from 0, whatever index the program gives them; very short ones in bundles.

    One of `ordinal` is `size` of the program's index: what a log leaves out, and how many are bundled, changes nothing.
    """

    def __init__(self, index: float, start_t: float, prior_seconds: float | None) -> None:
        self.index = index
        self.first_t = self.start_t = start_t
        self.ordinal = 0.0
        self.samples = 0
        self.summaries: list[GenerationSummary] = []
        self.peaks = PeriodicPeakDetector()
        self.step = 1.0  # by how much the index usually grows from one marker to the next
        self.size = 1.0  # by how much in what is taken as one generation
        self.seconds = prior_seconds  # that such a one usually lasts; None before one is over
        self.is_by_base = False  # what is followed from one generation to the next: the base, or the middle
        self._low_slots: list[int] = [0]
        self.unevenness = 0.0  # robust deviation of the lengths of the latest generations, as a share of one
        self._longest = prior_seconds
        self._before_t = start_t  # of the last sample before the open generation
        self._open = TimeBins(GENERATION_BINS)
        self._steps: deque[float] = deque(maxlen=USUAL_GENERATIONS)
        self._enough: deque[float] = deque(maxlen=USUAL_GENERATIONS)  # after how much of the index each was long enough
        self._latest = index  # marker
        self._told = 0.0  # how much of the index since the open one began, without what passed while nobody watched
        self._is_enough = False  # whether the open one is long enough to stand alone

    def add_samples(self, times: Sequence[float], used: Sequence[float]) -> None:
        self._open.add_samples(times, used)
        self.samples += len(times)

    def resume(self, known: Sequence[TimeBin]) -> None:
        """The first marker was told late: what is known of the time since."""
        self._open.items = [replace(item) for item in known if item.start_t >= self.start_t][1 - GENERATION_BINS :]
        self._open.samples = self.samples = sum(item.count for item in self._open.items)

    def begin_generation(self, t: float, index: float) -> None:
        """The open generation is over, the one of this index begins; markers in between may have been missed.

        A marker that is told late takes the samples since then with it.
        """
        t = max(t, self.start_t)
        step, self._latest = index - self._latest, index
        if step > 0.0:
            self._told += step
            self._steps.append(step)
            self.step = median(self._steps, 1.0)
        later = self._open.split(t)
        self._before_t = self._open.items[-1].end_t if self._open.items else t
        grown = index - self.index
        if not self._is_enough and not self._is_short(t):
            self._is_enough = True
            self._choose_size()
        if not self._is_enough or self._is_part_of_bundle(t, grown):
            self._open.join(later)
            return
        passed = grown / self.size if grown > 0.0 else 1.0  # a counter that began again
        shape = summarize_generation(self._open.items, self.start_t, t, self.ordinal + 0.5 * (passed - 1.0))
        seen = longest_unseen(self._open.items, self.start_t, t) <= UNSEEN * (t - self.start_t)
        if shape is not None and passed < MISSED and (seen or not self.summaries):
            shape = replace(shape, seconds=shape.seconds / passed)
            add_shape(self.summaries, shape)
            self._learn_torn()
            self._learn_seconds()
            self._learn_base()
            self.peaks.add(shape, self.base(shape))
        self.ordinal += passed
        self.index, self.start_t, self._open, self._is_enough, self._told = index, t, later, False, 0.0

    def add_late_marker(self, index: float) -> None:
        """The latest marker, told late, as where memwatch was away: what passed before it says nothing of a step."""
        self._latest = index

    def _learn_torn(self) -> None:
        """A jump is told when the generation after it is over. Stairs are no jumps."""
        recent = self.summaries[-USUAL_GENERATIONS:]
        if len(recent) >= 3 and not any(s.has_level_shift for s in recent) and is_torn(recent):
            self.summaries[-2] = replace(self.summaries[-2], has_level_shift=True)

    def _is_short(self, t: float) -> bool:
        """What is open is too short to stand alone, and not by accident: a late marker shortens the next generation."""
        if self.size <= self.step and self.summaries and (self.seconds or 0.0) > 2.0 * SHORT_SECONDS:
            return False
        is_whole = self.size > self.step and self._told >= self.size  # a bundle that is a little early is no longer one
        least = SHORT_SECONDS / OTHER_SIZE if is_whole else SHORT_SECONDS
        return t - self.start_t < least or self._open.samples < FEW_SAMPLES

    def _is_part_of_bundle(self, t: float, grown: float) -> bool:
        """More markers make a bundle of about the usual size, unless this one takes far longer than usual."""
        return 0.0 < grown < self.size - 0.5 * self.step and t - self.start_t < BUNDLE_WAIT * (self.seconds or 0.0)

    def _choose_size(self) -> None:
        """Change the size when it usually is far too small, or has been too large for all, or far too for the latest.

        The first one may have begun anywhere: its size is used until others are known, and three of them refine it.
        """
        if self._told <= 0.0:
            return
        if self.ordinal <= 0.0:
            self._rescale(self._told)
            return
        self._enough.append(self._told)
        usual, most = median(self._enough), max(self._enough)
        latest = max([self.size, *self._enough][-COMPARED_GENERATIONS:])
        is_refined = len(self._enough) == COMPARED_GENERATIONS and OTHER_SIZE * usual > self.size
        if usual >= OTHER_SIZE * self.size or is_refined:
            self._rescale(usual)
        elif OTHER_SIZE * most <= self.size:
            self._rescale(most)
        elif FAR_SMALLER * latest <= self.size:
            self._rescale(latest)

    def _rescale(self, size: float) -> None:
        if size == self.size:
            return
        share, self.size = self.size / size, size
        self.ordinal *= share
        self.seconds = None if self.seconds is None else self.seconds / share
        self._longest = None if self._longest is None else self._longest / share
        self.summaries[:] = [
            replace(s, ordinal=(s.ordinal + 0.5) * share - 0.5, seconds=s.seconds / share) for s in self.summaries
        ]
        self.peaks = PeriodicPeakDetector()

    def _learn_seconds(self) -> None:
        recent = [s.seconds for s in self.summaries[-RECENT:]]
        self.seconds = usual_seconds(recent[1:] if len(self.summaries) == len(recent) > 2 else recent)
        self._longest = max(s.seconds for s in self.summaries[-USUAL_GENERATIONS:])
        self.unevenness = robust_sd(self.lengths()) / (self.seconds or MIN_SECONDS)

    def part(self, t: float) -> float:
        """How far the open generation is: 1 for as long as usual, more when it takes longer."""
        return max(0.0, t - self.start_t) / (self.seconds or MIN_SECONDS)

    def likely_parts(self, t: float) -> tuple[float, ...]:
        """How far the open generation is, if it lasts as the shorter ones, as usual, or as the longer ones.

        These are equally likely; one where all last alike. At most all but over.
        """
        lengths = [self.seconds or MIN_SECONDS]
        if self.unevenness > 1.0 / SLOTS:
            shorter, longer = (quantile(self.lengths(), share) for share in (1 / 6, 5 / 6))
            lengths = [min(shorter, lengths[0]), lengths[0], max(longer, lengths[0])]
        over = max(0.0, t - self.start_t)
        return tuple([min(over / length, 1.0 - 0.5 / SLOTS) for length in lengths])

    def is_blurred(self, t: float) -> bool:
        """Nobody knows which part of the generation this is: it is late, or began when no samples were taken."""
        overdue = self.part(t) > 1.0 + max(OVERDUE_SHARE, OVERDUE_DEVIATIONS * self.unevenness)
        first_t = self._open.items[0].start_t if self._open.items else t
        return overdue or first_t - self._before_t > UNSEEN * (self.seconds or MIN_SECONDS)

    def x(self, t: float) -> float:
        return self.ordinal + min(self.part(t), 1.0)

    def goes_on(self, t: float) -> bool:
        """A generation's length is known, and the markers have not stopped."""
        return t <= self.lost_t

    @property
    def lost_t(self) -> float:
        """When the markers will have stopped, if none comes until then."""
        return -math.inf if self._longest is None else self.start_t + LOST_AFTER * self._longest

    def usual(self, most: int = USUAL_GENERATIONS) -> list[GenerationSummary]:
        """The latest generations; the first is left out where others are known, it holds the warm-up."""
        usual = [s for s in self.summaries[-most:] if s.count == 1 and not s.has_level_shift] or self.summaries[-1:]
        return usual[1:] if 2 < len(usual) == len(self.summaries) else usual

    def points(self, t: float) -> list[BaselinePoint]:
        """The level of each generation, the open one's as far as it can be told.

        The mean of the middle, or of the parts that usually are the lowest where these show more clearly whether there
        is growth: what comes and goes in a generation, now longer, now shorter, is not in them.
        """
        shapes = [s for s in self.summaries if not s.has_level_shift]

        def series(level: Callable[[GenerationSummary], float]) -> list[BaselinePoint]:
            return [BaselinePoint(s.ordinal + 0.5, level(s), float(s.count), s.middle_t) for s in shapes]

        self.is_by_base, points = False, series(attrgetter("baseline"))
        if len(shapes) >= BASE_GENERATIONS:
            growth, noise = line_t_stat(points)
            base = series(self.base)
            base_growth, base_noise = line_t_stat(base)
            if base_growth > CLEARER * growth or (base_noise * CLEARER < noise and growth < GROWS):
                self.is_by_base, points = True, base
        open_point = self._open_point(t, self.usual()[-COMPARED_GENERATIONS:])
        return points if open_point is None else [*points, open_point]

    def baseline(self, shape: GenerationSummary) -> float:
        return self.base(shape) if self.is_by_base else shape.baseline

    def base(self, shape: GenerationSummary) -> float:
        """Mean of the parts of a generation that usually are the lowest."""
        return sum([shape.slot_means[k] for k in self._low_slots]) / len(self._low_slots)

    def _learn_base(self) -> None:
        usual = self.usual()
        heights = [median([s.slot_means[k] - s.baseline for s in usual]) for k in range(SLOTS)]
        self._low_slots = sorted(range(SLOTS), key=heights.__getitem__)[: SLOTS // 4]

    def _open_point(self, t: float, like: Sequence[GenerationSummary]) -> BaselinePoint | None:
        """The level of the open generation from those of its slots that are over, each compared with its like."""
        length = max(self.seconds or MIN_SECONDS, t - self.start_t)
        over = min(SLOTS, int((t - self.start_t) / length * SLOTS))
        if over < OPEN_SLOTS or not like or not self._open.items or self.is_blurred(t):
            return None
        means, _ = slots_of(self._open.items, self.start_t, length, over)
        usual = [sum(s.slot_means[k] - self.baseline(s) for s in like) / len(like) for k in range(SLOTS)]
        telling = self._low_slots if self.is_by_base else range(SLOTS)
        levels = [means[k] - usual[k] for k in telling if k < over]
        if len(levels) < (OPEN_SLOTS // 2 if self.is_by_base else OPEN_SLOTS):
            return None
        weight = over / SLOTS * min(1.0, len(self._open.items) / OPEN_SAMPLES)
        return BaselinePoint(self.ordinal + 0.5, trimmed_mean(levels), weight, self.start_t + 0.5 * length)

    def range(self) -> float:
        """Bytes between the lowest and the highest part of a usual generation."""
        return median([max(s.slot_means) - min(s.slot_means) for s in self.usual()])

    def latest(self) -> float:
        """Bytes of the latest samples of the open generation, averaged."""
        items = self._open.items[-3:]
        if not items:
            return self.summaries[-1].slot_means[-1] if self.summaries else 0.0
        return sum(item.total for item in items) / sum(item.count for item in items)

    def lengths(self) -> list[float]:
        """Seconds of the latest generations, oldest first."""
        lengths = [s.seconds for s in self.summaries[-USUAL_GENERATIONS:]]
        return lengths[1:] if 2 < len(self.summaries) == len(lengths) else lengths


FALL_SHARE = 0.05  # of the level: a smaller fall is no collection
FALL_UNREST = 8.0  # ... nor one that is within so many times the usual change from sample to sample
UNREST_SAMPLES = 64
MIN_CYCLES = 5  # that make a sawtooth
REGULAR = 0.4  # robust deviation of their lengths, as a share, up to which they are one
OVERDUE_FACTOR = 1.4  # a tooth that lasts so many times the usual one may be none


class SawtoothDetector:
    """Finds the period of the garbage collections in the samples of one process."""

    def __init__(self) -> None:
        self._unrest = 0.0
        self._seen = 0
        self._last: float | None = None
        self._top = 0.0
        self._falling = False
        self._tracker: GenerationTracker | None = None
        self._count = 0

    def add_samples(self, times: Sequence[float], used: Sequence[float]) -> None:
        if self._last is None:
            self._last = self._top = used[0]
            times, used = times[1:], used[1:]
        last, top, falling = self._last, self._top, self._falling
        unrest, seen, told = self._unrest, self._seen, 0
        for i, now in enumerate(used):
            change = abs(now - last)
            if change > 4.0 * unrest and seen > 8:  # a fall is not the usual unrest
                change = 4.0 * unrest
            if seen < UNREST_SAMPLES:
                seen += 1
            unrest += (change - unrest) / seen
            if falling:
                falling = now < last
                top = now
            elif now > top:
                top = now
            elif top - now > FALL_SHARE * top and top - now > FALL_UNREST * unrest:
                falling = True
                top = now
                self._tell(times[told:i], used[told:i])
                if self._tracker is None:
                    self._tracker = GenerationTracker(0.0, times[i], None)
                else:
                    self._count += 1
                    self._tracker.begin_generation(times[i], float(self._count))
                told = i
            last = now
        self._last, self._top, self._falling, self._unrest, self._seen = last, top, falling, unrest, seen
        self._tell(times[told:], used[told:])

    def _tell(self, times: Sequence[float], used: Sequence[float]) -> None:
        if self._tracker is not None:
            self._tracker.add_samples(times, used)

    def cycle(self, t: float) -> GenerationTracker | None:
        """The cycles as generations, if they come regularly."""
        tracker = self._tracker
        if tracker is None or len(tracker.summaries) < MIN_CYCLES:
            return None
        lengths = tracker.lengths()
        usual = median(lengths)
        is_regular = robust_sd(lengths) <= REGULAR * usual and t - tracker.start_t <= OVERDUE_FACTOR * usual
        return tracker if is_regular else None
