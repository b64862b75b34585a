"""A run's memory as a model: its growth, what usually stands above its level, and what the growth is called."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from memwatch.core.forecast.generation_profile import GenerationProfile, fit_profile
from memwatch.core.forecast.generation_tracker import USUAL_GENERATIONS, GenerationTracker
from memwatch.core.forecast.growth_axes import (
    WITHOUT_START,
    CycleIndex,
    ElapsedTime,
    GaugeLevel,
    GaugeReadings,
    GenerationSchedule,
    Regressor,
    UnitGrowth,
    fit_schedule,
    fit_unit_growth,
)
from memwatch.core.forecast.growth_models import GrowthModel
from memwatch.core.forecast.outlook import GrowthRate
from memwatch.core.forecast.periodic_peaks import PeriodicPeak, periodic_peak_of_bins
from memwatch.core.forecast.piecewise_trend import (
    BaselinePoint,
    SegmentHistory,
    TrendFit,
    fit_trend,
    noise_of,
)
from memwatch.core.forecast.sample_summaries import (
    ExcursionDistribution,
    TimeBin,
    excursion_distribution,
)
from memwatch.core.robust_statistics import mean, median, upper_semideviation
from memwatch.core.snapshot import Verdict

TIME_BLOCKS = 16  # equal stretches of time that stand for generations where there are no markers
BLOCKS_IN_PIECE = 4  # blocks of a line
OWN_GENERATIONS = 3  # from which on the growth of a process is its own, not that of the process before it
FEW_POINTS = 6  # fewer levels than this do not tell their own noise:
FEW_NOISE = 0.05  # of what memory does within a generation, is taken for it
UNEVEN_LENGTH_SHARE = 0.1  # generations whose lengths differ by less tell nothing of growth by the hour
PROFILED = 40  # latest generations that say what stands above the level
EXPLAINED = 0.9  # share of the levels' variance from which on a gauge explains them
EXPLAINED_POINTS = 4  # levels, or readings: fewer leave a line no misfit to speak of, their interval tells all
FULL_POINTS = 3  # levels after the gauge is full: from then on they speak for themselves
LEVELLED = 0.2  # growth slower than this share of the earlier growth is a plateau
SURELY_RISEN = 4.0  # times the noise of a level: no chance
GAUGE_WEIGHT = 0.95  # of the belief that a gauge gets which explains the growth


@dataclass(frozen=True, slots=True)
class TrendComponent:
    """The growth along one axis, with its share of the belief."""

    fit: TrendFit
    regressor: Regressor
    weight: float
    latest_x: float  # position of the latest level

    @property
    def first_x(self) -> float:
        """Position of the first level that its best model rests on."""
        best = self.fit.best
        return best.x - best.span if self.regressor.name == "index" else self.latest_x - (best.points - 1)

    def ahead(self, period: float) -> tuple[float, float]:
        """Growth over the next `period`, bytes a unit of the axis, and its standard error."""
        models, span, pace = self.fit.models, period * self.regressor.pace, self.regressor.pace
        growing = [model for model in models if model.kind != "flat"]
        known = [(m.weight, (m.level_at(m.x + span) - m.level) / span, m.slope_error) for m in growing]
        known.append((1.0 - sum(m.weight for m in growing), 0.0, 0.0))
        usual = sum(weight * slope for weight, slope, _ in known)
        squares = sum(weight * ((slope - usual) ** 2 + error**2) for weight, slope, error in known)
        return usual * pace, math.sqrt(max(0.0, squares)) * pace


@dataclass(frozen=True, slots=True)
class GaugeFit:
    """Growth along one gauge that explains it."""

    name: str
    component: TrendComponent
    level: GaugeLevel
    units: UnitGrowth | None = None  # None: of enough levels that the models tell their own uncertainty


@dataclass(frozen=True, slots=True)
class FittedModel:
    """Places in it are generations (ordinal and part), or seconds since the first sample where there are no markers."""

    components: tuple[TrendComponent, ...]  # the most believed first; none: too little is known
    schedule: GenerationSchedule
    profile: GenerationProfile  # what stands above the level
    by_generation: bool
    periodic_peak: PeriodicPeak | None  # of peaks that not every generation has
    excursions: ExcursionDistribution | None = None  # from where memory is; without markers
    period: float = 1.0  # units of the axis from one high to the next
    gauges: tuple[GaugeFit, ...] = ()  # that explain the growth, the one that is believed first
    begins_x: float = 0.0  # how far from a whole x the generations begin

    @property
    def fit(self) -> TrendFit | None:
        return self.components[0].fit if self.components else None

    def level_at(self, x: float) -> float:
        """The level at a place near the latest, by the model that is believed most."""
        if not self.components:
            return 0.0
        latest = self.components[0]
        return latest.fit.best.level + self.slope * (x - latest.latest_x)

    def growth_ahead(self) -> GrowthRate:
        """Over the next period, by the component that is believed most."""
        slope, error = self.components[0].ahead(self.period)
        seconds = self.schedule.generation_seconds
        return GrowthRate(slope / seconds, error / seconds)

    def beside(self, others: GrowthRate | None, now_x: float) -> FittedModel:
        """The same model where others take the limit, too, from now on; None: they do not."""
        if others is None:
            return self
        components = []
        for component in self.components:
            seconds = self.schedule.generation_seconds / component.regressor.pace  # of a unit of the models' x
            x, slope, error = component.regressor.x_at(now_x), others.per_second * seconds, others.error * seconds
            models = tuple([model.steeper(slope, error, x) for model in component.fit.models])
            components.append(replace(component, fit=replace(component.fit, models=models)))
        return replace(self, components=tuple(components))

    @property
    def has_filled(self) -> bool:
        """Whether the growth was that of a buffer which is full now."""
        along = self.components[0].regressor if self.components else None
        return isinstance(along, GaugeLevel) and along.value >= along.capacity

    @property
    def slope(self) -> float:
        """Bytes a unit of the axis, now."""
        if not self.components or self.components[0].fit.best.kind == "flat" or self.has_filled:
            return 0.0
        return self.components[0].fit.best.slope * self.components[0].regressor.pace


@dataclass(frozen=True, slots=True)
class BaselineSeries:
    """What growth is looked for in."""

    points: Sequence[BaselinePoint]
    noise: float | None  # deviation of one of them, bytes; None: they are too few


def levels_by_generation(tracker: GenerationTracker, t: float) -> BaselineSeries:
    points = tracker.points(t)
    return BaselineSeries(points, noise_of(points, FEW_NOISE * tracker.range() if len(points) < FEW_POINTS else 0.0))


def levels_by_time(items: Sequence[TimeBin], first_t: float) -> BaselineSeries:
    """The levels of blocks of time, placed by the seconds since `first_t`."""
    points = []
    for block in _blocks(items):
        middle_t = 0.5 * (block[0].start_t + block[-1].end_t)
        level = sum(b.total for b in block) / sum(b.count for b in block)
        points.append(BaselinePoint(middle_t - first_t, level, 1.0, middle_t))
    return BaselineSeries(points, noise_of(points))


def _blocks(items: Sequence[TimeBin]) -> list[Sequence[TimeBin]]:
    """Of time, as long as each other, the latest of them whole."""
    size = max(1, round(len(items) / TIME_BLOCKS))
    return [items[max(0, end - size) : end] for end in range(len(items), 0, -size)][::-1]


def _steps(points: Sequence[BaselinePoint]) -> list[float]:
    """How much the level rises from half a block before each to half a block after it."""
    steps = [after.level - before.level for before, after in pairwise(points)]
    if not steps:
        return [0.0]
    return [0.5 * (before + after) for before, after in zip([steps[0], *steps], [*steps, steps[-1]], strict=True)]


def fit_by_generation(
    levels: BaselineSeries,
    tracker: GenerationTracker,
    t: float,
    gauges: Mapping[str, GaugeReadings],
    *,
    prior: GrowthModel | None = None,
    error: float = 0.0,
) -> FittedModel:
    """The model over generations; `prior` is the growth, by single generation, of the process before a restart.

    `error` is the deviation of their count: nobody told them.
    """
    points = levels.points
    days = fit_schedule(tracker.x(t), tracker.lengths() or [tracker.seconds or 1.0])
    fitted = fit_trend(points, noise=levels.noise)
    if prior is not None and points and len(tracker.summaries) < OWN_GENERATIONS:
        last = points[-1]
        line = replace(
            prior.in_units(tracker.size), x=last.x, level=last.level, first=0, points=len(points), weight=1.0
        )
        fitted = TrendFit((line,), 0.1 * abs(line.slope), SegmentHistory(), 1.0, 0.5)
        components, explained = [TrendComponent(fitted, CycleIndex(), 1.0, last.x)], []
    else:
        own = None if fitted is None else TrendComponent(fitted, CycleIndex(), 1.0, points[-1].x)
        explained = _explaining(own, points, gauges, days, t) if own is not None else []
        components = _components(own, explained)
        if fitted is not None and tracker.unevenness > UNEVEN_LENGTH_SHARE:
            components = _with_time(components, points, days, t)
    usual = tracker.usual(PROFILED)
    peak = tracker.peaks.periodic_peak(tracker.is_by_base, error)
    doubtful = usual if peak is not None else usual[-1:]  # a high of the latest generation may be a step or a burst
    calm = [s for s in usual if s not in doubtful or not tracker.peaks.is_rare(s)] or usual
    return FittedModel(
        tuple(components),
        days,
        fit_profile(calm, [tracker.baseline(s) for s in calm], fitted),
        True,
        peak,
        gauges=tuple(explained),
        begins_x=tracker.ordinal % 1.0,
    )


def _components(own: TrendComponent | None, explained: Sequence[GaugeFit]) -> list[TrendComponent]:
    """The growth of its own, and before it that along the gauge that explains it and has an end."""
    if own is None:
        return []
    ending = [one.component for one in explained if math.isfinite(one.level.capacity)]
    return [ending[0], replace(own, weight=1.0 - GAUGE_WEIGHT)] if ending else [own]


def _explaining(
    own: TrendComponent,
    points: Sequence[BaselinePoint],
    gauges: Mapping[str, GaugeReadings],
    days: GenerationSchedule,
    t: float,
) -> list[GaugeFit]:
    """The gauges that explain the growth: with a capacity first, then of the log, then the one that explains most."""
    found = []
    for readings in gauges.values():
        if len(readings.values) < 2 or t > readings.stale_from:
            continue
        # without the open generation
        known = [p for p in points if readings.times[0] <= p.t <= readings.known_until and p.weight >= 1.0]
        one = _along(own, known, readings, days, t)
        if one is not None and readings.may_take(one.component.fit.best.slope):
            found.append(one)
    told = [name for name, readings in gauges.items() if math.isinf(readings.known_until)]
    return sorted(
        found,
        key=lambda one: (math.isinf(one.level.capacity), one.name not in told, -one.component.fit.r_squared),
    )


def _along(
    own: TrendComponent, known: Sequence[BaselinePoint], readings: GaugeReadings, days: GenerationSchedule, t: float
) -> GaugeFit | None:
    """Growth along a gauge; None unless it explains the levels, also those after its last change."""
    after = [p for p in known if p.t > readings.times[-1]]
    found = _by_levels(own, known, readings, days, t) if len(after) < FULL_POINTS else None
    if found is None or len(after) < 2:
        return found
    growth = found.component.fit.best.slope * found.level.pace
    rise, places = after[-1].level - after[0].level, after[-1].x - after[0].x
    return None if rise > max(LEVELLED * growth * places, SURELY_RISEN * own.fit.noise) else found


def _by_levels(
    own: TrendComponent, known: Sequence[BaselinePoint], readings: GaugeReadings, days: GenerationSchedule, t: float
) -> GaugeFit | None:
    """Growth along a gauge that rises, up to its capacity if it has one; None unless it explains the levels."""
    capacity = readings.capacity_or_infinity
    if readings.values[-1] >= capacity:  # a level while it became full is not on the line, and one after it neither
        known = [p for p in known if p.t <= readings.times[-2]]
    along = [BaselinePoint(readings.at(p.t), p.level, p.weight, p.t) for p in known]
    places = [p.x for p in known]
    first = max(0, len(along) - 1)
    while first > 0 and along[first - 1].x < along[first].x:
        first -= 1
    along, places = along[first:], places[first : len(along)]
    if len(along) < FEW_POINTS or readings.capacity is None:  # without an end its line is told, not followed
        return _by_few(own, known, readings, days, t)
    fitted = fit_trend(along)
    if fitted is None or fitted.best.kind == "flat" or fitted.best.slope <= 0.0 or fitted.r_squared < EXPLAINED:
        return None
    recent = max(0, len(along) - 1 - USUAL_GENERATIONS)
    pace = (along[-1].x - along[recent].x) / (places[-1] - places[recent])
    level = GaugeLevel(days.now_x, readings.at(t), pace, capacity)
    return GaugeFit(readings.name, TrendComponent(fitted, level, GAUGE_WEIGHT, places[-1]), level)


def _by_few(
    own: TrendComponent, known: Sequence[BaselinePoint], readings: GaugeReadings, days: GenerationSchedule, t: float
) -> GaugeFit | None:
    """The same of fewer levels, or from memory at the moments when the gauge was read, which tells more exactly."""
    times, values = readings.times, readings.values
    recent = max(0, len(values) - 1 - USUAL_GENERATIONS)
    if values[-1] <= values[recent] or own.fit.best.kind == "flat":
        return None
    told = [p for p in known if p.t <= times[-1]]
    by_levels = fit_unit_growth([readings.at(p.t) for p in told], [p.level for p in told], own.fit.noise)
    by_readings = fit_unit_growth(values, readings.used, own.fit.noise)
    both = [one for one in (by_levels, by_readings) if one is not None]
    units = min(both, key=lambda one: (one.readings < WITHOUT_START, one.error), default=None)
    if units is None or units.bytes <= 0.0 or (units.readings >= EXPLAINED_POINTS and units.r2 < EXPLAINED):
        return None
    x, level, place = values[-1], readings.used[-1], days.now_x - (t - times[-1]) / days.generation_seconds
    if told:  # the latest level at which the gauge is known
        x, level, place = readings.at(told[-1].t), told[-1].level, told[-1].x
    line = GrowthModel(
        kind="linear",
        weight=1.0,
        cost=0.0,
        first=0,
        points=own.fit.best.points,
        x=x,
        level=level,
        slope=units.bytes,
        slope_error=units.error,
        span=max(values) - min(values),
    )
    pace = (values[-1] - values[recent]) / (times[-1] - times[recent]) * days.generation_seconds
    along = GaugeLevel(days.now_x, readings.at(t), pace, readings.capacity_or_infinity)
    fitted = TrendFit((line,), own.fit.noise, SegmentHistory(), 1.0, units.r2)
    return GaugeFit(readings.name, TrendComponent(fitted, along, GAUGE_WEIGHT, place), along, units)


def _with_time(
    components: list[TrendComponent], points: Sequence[BaselinePoint], days: GenerationSchedule, t: float
) -> list[TrendComponent]:
    """Growth by the hour beside growth by the generation, each with the weight that the levels give it."""
    own = components[-1]
    first_t = points[0].t
    hourly = fit_trend([BaselinePoint(p.t - first_t, p.level, p.weight, p.t) for p in points], noise=own.fit.noise)
    if hourly is None:
        return components
    odds = math.exp(max(-30.0, min(30.0, 0.5 * (own.fit.best.cost - hourly.best.cost))))
    timed = TrendComponent(hourly, ElapsedTime(days, t - first_t), own.weight * odds / (1.0 + odds), own.latest_x)
    both = sorted((replace(own, weight=own.weight / (1.0 + odds)), timed), key=lambda component: -component.weight)
    return [*components[:-1], *both]


def fit_by_time(
    levels: BaselineSeries, items: Sequence[TimeBin], first_t: float, gauges: Mapping[str, GaugeReadings]
) -> FittedModel:
    """The model over blocks of time, for a run without markers; its places are seconds since `first_t`."""
    points, now_t = levels.points, items[-1].end_t
    x = now_t - first_t
    above, periodic = [], periodic_peak_of_bins(items, first_t)
    for block, point in zip(_blocks(items), points, strict=True):
        highs = sorted(b.high for b in block)
        calm = highs[: max(1, len(highs) * 3 // 4)] if periodic is not None else highs
        above.append(calm[-1] - point.level)
    fitted = fit_trend(points, BLOCKS_IN_PIECE, levels.noise)
    slope, own = 0.0, None
    if fitted is not None:
        slope = max(0.0, fitted.best.slope)
        own = TrendComponent(replace(fitted, models=tuple([m.moved(x) for m in fitted.models])), CycleIndex(), 1.0, x)
    usual, period = above[-USUAL_GENERATIONS:], (now_t - items[0].start_t) / len(points)
    high = max(0.0, median(usual) - 0.5 * slope * period)
    # what was before the latest piece grew in another way
    kept = len(points) if fitted is None else max(USUAL_GENERATIONS, fitted.best.points)
    ways = list(zip(above, _steps(points), strict=True))[-kept:]
    seen = tuple([(one - 0.5 * max(step, slope * period),) for one, step in ways])
    days, explained = GenerationSchedule(x, 1.0), []
    if own is not None:
        explained = _explaining(own, points, gauges, days, now_t)
    components = _components(own, explained)
    return FittedModel(
        tuple(components),
        days,
        GenerationProfile(
            (0.0,),
            (high,),
            upper_semideviation(usual),
            past_slot_maxima=seen,
            noise=0.0 if fitted is None else fitted.noise,
            mean_sd=0.0 if fitted is None else _deviation(items, first_t, fitted.best),
        ),
        False,
        periodic,
        excursion_distribution(items),
        period,
        tuple(explained),
    )


def _deviation(items: Sequence[TimeBin], first_t: float, line: GrowthModel) -> float:
    """Of the bins that a line was fitted to, around it."""
    places = [(0.5 * (item.start_t + item.end_t) - first_t, item.mean) for item in items]
    off = [level - line.level_at(x) for x, level in places if x >= line.x - line.span]
    return math.sqrt(mean([each**2 for each in off])) if off else 0.0


MIN_GENERATIONS = 3  # complete generations (or blocks of time)
SUSTAINED = 4  # points of a line that may be called a leak
PERSISTENT = 16  # points of a line that is a leak even if the limit is far away ...
FAR = 25.0  # ... up to so many times its own length
FADING = 0.75  # a short line that grows this much less in its later half may be the beginning of a curve
DECIDED = 8  # points from which on a curve would have been told from a line
NEAR = 5.0  # the limit matters when the line meets it within this many times its own length
MATERIAL = 0.25  # of the rise before it
CEASING = ("saturating", "logarithmic", "power")  # curves whose growth becomes ever less
STILL_DOUBT = 0.1  # belief that nothing grows: with more, growth is no leak
SLOWED = 0.6  # growth slower than this share of the earlier growth slows down: no leak yet


def classify_growth(fit: TrendFit, complete: int, limit: float | None) -> Verdict:
    """Warming up, stable, plateau, growing or leak: the least alarming that the evidence allows.

    `complete` is the number of generations (or blocks of time) that are over, `limit` is in bytes.
    """
    best, past = fit.best, fit.history
    if complete < MIN_GENERATIONS:
        return Verdict.WARMING_UP
    if best.kind == "flat" or best.slope <= 0.0:
        return Verdict.PLATEAU if past.risen > SURELY_RISEN * fit.noise else Verdict.STABLE
    fading = best.kind in CEASING or (best.curve is None and best.points < DECIDED and fit.slope_ratio < FADING)
    if best.slope < LEVELLED * past.fastest and (fading or best.points < DECIDED or not _is_material(best, past.risen)):
        return Verdict.GROWING if _near(limit, best, 1.0) else Verdict.PLATEAU
    sustained = best.points + (past.points if past.slope > SLOWED * best.slope else 0)
    undecided = best.points < DECIDED and (best.kind == "accelerating" or best.slope < SLOWED * past.slope)
    still = sum(model.weight for model in fit.models if model.kind == "flat")
    if fading or undecided or sustained < SUSTAINED or still > STILL_DOUBT:
        return Verdict.GROWING
    lengths = FAR if best.points >= PERSISTENT else NEAR
    return Verdict.LEAK if _near(limit, best, lengths) else Verdict.GROWING


def _is_material(line: GrowthModel, risen: float) -> bool:
    """Slow growth after a fast rise has come to a share of that rise that cannot be its tail."""
    slope = line.linear_term if line.curve is not None else line.slope
    return slope * line.span > MATERIAL * (
        risen + (line.level - line.level_at(line.x - line.span) if line.curve else 0.0)
    )


def _near(limit: float | None, model: GrowthModel, lengths: float) -> bool:
    """The limit is met within so many times the model's own length: soon enough to matter."""
    return limit is not None and model.x_at_level(limit) - model.x <= lengths * model.span
