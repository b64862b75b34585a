"""The course of a run: its growth models, and what usually stands above the level that they extrapolate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from memwatch.core.forecast.generation_profile import Outline, outline
from memwatch.core.forecast.generation_tracker import USUAL, Level, Rhythm
from memwatch.core.forecast.growth_models import Model
from memwatch.core.forecast.periodic_peaks import Beat, beat_of_bins
from memwatch.core.forecast.regressors import (
    Axis,
    Calendar,
    Clock,
    Filling,
    Readings,
    Straight,
    calendar,
)
from memwatch.core.forecast.sample_summaries import Bin, Bins, Rises, rises
from memwatch.core.forecast.trend_changepoints import (
    Fit,
    Past,
    Point,
    fit,
    noise_of,
)
from memwatch.core.robust_statistics import median, rise_above

BLOCKS = 16  # equal stretches of time that stand for generations where there are no markers
BLOCKS_IN_PIECE = 4  # blocks of a line
OWN_GENERATIONS = 3  # from which on the growth of a process is its own, not that of the process before it
FEW_POINTS = 6  # fewer levels than this do not tell their own noise:
FEW_NOISE = 0.05  # of what memory does within a generation, is taken for it
UNEVEN = 0.1  # generations whose lengths differ by less tell nothing of growth by the hour
OUTLINED = 40  # latest generations that say what stands above the level
EXPLAINED = 0.9  # share of the levels' variance from which on a gauge explains them
EXPLAINED_POINTS = 4
FULL_POINTS = 3  # levels after the gauge is full: from then on they speak for themselves
GAUGE_WEIGHT = 0.95  # of the belief that a gauge gets which explains the growth


@dataclass(frozen=True, slots=True)
class Strand:
    """The growth along one axis, with its share of the belief."""

    fit: Fit
    axis: Axis
    weight: float
    latest_x: float  # place in the course of the latest level

    @property
    def first_x(self) -> float:
        """Place in the course of the first level that its best model rests on."""
        best = self.fit.best
        return best.x - best.span if self.axis.name == "course" else self.latest_x - (best.points - 1)

    def ahead(self, period: float) -> tuple[float, float]:
        """Growth over the next `period` of the course, bytes a unit of it, and its standard error."""
        models, span, pace = self.fit.models, period * self.axis.pace, self.axis.pace
        growing = [model for model in models if model.kind != "flat"]
        known = [(m.weight, (m.at(m.x + span) - m.level) / span, m.slope_error) for m in growing]
        known.append((1.0 - sum(m.weight for m in growing), 0.0, 0.0))
        usual = sum(weight * slope for weight, slope, _ in known)
        squares = sum(weight * ((slope - usual) ** 2 + error**2) for weight, slope, error in known)
        return usual * pace, math.sqrt(max(0.0, squares)) * pace


@dataclass(frozen=True, slots=True)
class Course:
    """Places in it are generations (ordinal and part), or seconds since the first sample where there are no markers."""

    strands: tuple[Strand, ...]  # the most believed first; none: too little is known
    calendar: Calendar
    outline: Outline  # what stands above the level
    by_generation: bool
    beat: Beat | None  # of peaks that not every generation has
    rises: Rises | None = None  # from where memory is; without markers
    period: float = 1.0  # units of the course from one high to the next

    @property
    def fit(self) -> Fit | None:
        """Of the axis that explains the levels best."""
        return self.strands[0].fit if self.strands else None

    def level_at(self, x: float) -> float:
        """The level at a place near the latest, by the model that is believed most."""
        if not self.strands:
            return 0.0
        latest = self.strands[0]
        return latest.fit.best.level + self.slope * (x - latest.latest_x)

    @property
    def slope(self) -> float:
        """Bytes a unit of the course, now."""
        if not self.strands or self.strands[0].fit.best.kind == "flat":
            return 0.0
        return self.strands[0].fit.best.slope * self.strands[0].axis.pace


@dataclass(frozen=True, slots=True)
class Levels:
    """What growth is looked for in."""

    points: Sequence[Point]
    noise: float | None  # deviation of one of them, bytes; None: they are too few


def levels_by_generation(rhythm: Rhythm, t: float) -> Levels:
    """A level a generation."""
    points = rhythm.points(t)
    return Levels(points, noise_of(points, FEW_NOISE * rhythm.range() if len(points) < FEW_POINTS else 0.0))


def levels_by_time(bins: Bins) -> Levels:
    """A level a block of time."""
    first_t = bins.items[0].start_t
    points = []
    for block in _blocks(bins):
        middle_t = 0.5 * (block[0].start_t + block[-1].end_t)
        level = sum(b.total for b in block) / sum(b.count for b in block)
        points.append(Point(middle_t - first_t, level, 1.0, middle_t))
    return Levels(points, noise_of(points))


def _blocks(bins: Bins) -> list[list[Bin]]:
    """Of time, as long as each other, the latest of them whole."""
    items = bins.items
    size = max(1, round(len(items) / BLOCKS))
    return [items[max(0, end - size) : end] for end in range(len(items), 0, -size)][::-1]


def _steps(points: Sequence[Point]) -> list[float]:
    """How much the level rises from half a block before each to half a block after it."""
    steps = [after.level - before.level for before, after in pairwise(points)]
    if not steps:
        return [0.0]
    return [0.5 * (before + after) for before, after in zip([steps[0], *steps], [*steps, steps[-1]], strict=True)]


def by_generation(
    levels: Levels,
    rhythm: Rhythm,
    t: float,
    gauges: Mapping[str, Readings],
    *,
    prior: Model | None = None,
    error: float = 0.0,
) -> Course:
    """The course over generations; `prior` is the growth, by single generation, of the process before a restart.

    `error` is the deviation of their count: nobody told them.
    """
    points = levels.points
    days = calendar(rhythm.x(t), rhythm.lengths() or [rhythm.seconds or 1.0])
    fitted = fit(points, noise=levels.noise)
    if prior is not None and points and len(rhythm.shapes) < OWN_GENERATIONS:
        fitted = _continued(prior.in_units(rhythm.bundle), points)
        strands = [Strand(fitted, Straight(), 1.0, points[-1].x)]
    else:
        own = None if fitted is None else Strand(fitted, Straight(), 1.0, points[-1].x)
        strands = _strands(own, points, gauges, days.now_x, t)
        if fitted is not None and rhythm.unevenness > UNEVEN:
            strands = _with_time(strands, points, days, t)
    usual = rhythm.usual(OUTLINED)
    calm = [s for s in usual if not rhythm.peaks.is_rare(s)] or usual
    return Course(
        tuple(strands),
        days,
        outline(calm, [rhythm.level(s) for s in calm], fitted),
        True,
        rhythm.peaks.beat(rhythm.level_by is Level.BASE, error),
    )


def _continued(prior: Model, points: Sequence[Point]) -> Fit:
    last = points[-1]
    model = replace(prior.renewed(last.x, last.level), first=0, points=len(points), weight=1.0)
    return Fit((model,), 0.1 * abs(model.slope), Past(), 1.0, 0.5)


def _strands(
    own: Strand | None, points: Sequence[Point], gauges: Mapping[str, Readings], now_x: float, t: float
) -> list[Strand]:
    """The course's own growth, and behind or before it the gauge that explains it."""
    if own is None:
        return []
    filled = [strand for readings in gauges.values() if (strand := _filling(points, readings, now_x, t)) is not None]
    if not filled:
        return [own]
    best = max(filled, key=lambda strand: strand.fit.explained)
    return [best, replace(own, weight=1.0 - GAUGE_WEIGHT)]


def _filling(points: Sequence[Point], readings: Readings, now_x: float, t: float) -> Strand | None:
    """Growth along a gauge that rises towards its capacity; None unless it explains the levels."""
    capacity = readings.capacity
    if capacity is None or len(readings.values) < EXPLAINED_POINTS or readings.is_stale(t):
        return None
    known = [p for p in points if readings.is_known(p.t) and p.weight >= 1.0]  # without the open generation
    along = [Point(min(readings.at(p.t), capacity), p.level, p.weight, p.t) for p in known]
    places = [p.x for p in known]
    while len(along) > 1 and along[-1].x <= along[-2].x == capacity:  # full: the first such level tells as much
        along.pop()
    if len(known) - len(along) >= FULL_POINTS:
        return None
    first = len(along) - 1
    while first > 0 and along[first - 1].x < along[first].x:
        first -= 1
    along, places = along[first:], places[first : len(along)]
    if len(along) < EXPLAINED_POINTS:
        return None
    fitted = fit(along)
    if fitted is None or fitted.best.kind == "flat" or fitted.best.slope <= 0.0 or fitted.explained < EXPLAINED:
        return None
    recent = max(0, len(along) - 1 - USUAL)
    pace = (along[-1].x - along[recent].x) / (places[-1] - places[recent])
    return Strand(fitted, Filling(now_x, readings.at(t), pace, capacity), GAUGE_WEIGHT, places[-1])


def _with_time(strands: list[Strand], points: Sequence[Point], days: Calendar, t: float) -> list[Strand]:
    """Growth by the hour beside growth by the generation, each with the weight that the levels give it."""
    own = strands[-1]
    first_t = points[0].t
    hourly = fit([Point(p.t - first_t, p.level, p.weight, p.t) for p in points], noise=own.fit.noise)
    if hourly is None:
        return strands
    odds = math.exp(max(-30.0, min(30.0, 0.5 * (own.fit.cost - hourly.cost))))
    timed = Strand(hourly, Clock(days, t - first_t), own.weight * odds / (1.0 + odds), own.latest_x)
    both = sorted((replace(own, weight=own.weight / (1.0 + odds)), timed), key=lambda strand: -strand.weight)
    return [*strands[:-1], *both]


def by_time(levels: Levels, bins: Bins, gauges: Mapping[str, Readings]) -> Course:
    """The course over blocks of time, for a run without markers."""
    items, points = bins.items, levels.points
    first_t, now_t = items[0].start_t, items[-1].end_t
    x = now_t - first_t
    above, beat = [], beat_of_bins(items, first_t)
    for block, point in zip(_blocks(bins), points, strict=True):
        highs = sorted(b.high for b in block)
        calm = highs[: max(1, len(highs) * 3 // 4)] if beat is not None else highs
        above.append(calm[-1] - point.level)
    fitted = fit(points, BLOCKS_IN_PIECE, levels.noise)
    slope, own = 0.0, None
    if fitted is not None:
        slope = max(0.0, fitted.best.slope)
        own = Strand(replace(fitted, models=tuple([m.moved(x) for m in fitted.models])), Straight(), 1.0, x)
    usual, period = above[-USUAL:], x / len(points)
    high = max(0.0, median(usual) - 0.5 * slope * period)
    kept = len(points) if fitted is None else max(USUAL, fitted.best.points)  # what was before grew in another way
    ways = list(zip(above, _steps(points), strict=True))[-kept:]
    seen = tuple([(one - 0.5 * max(step, slope * period),) for one, step in ways])
    strands = _strands(own, points, gauges, x, now_t)
    return Course(
        tuple(strands),
        Calendar(x, 1.0),
        Outline((0.0,), (high,), rise_above(usual), seen=seen, noise=0.0 if fitted is None else fitted.noise),
        False,
        beat,
        rises(items),
        period,
    )
