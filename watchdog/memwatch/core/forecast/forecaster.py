"""Samples and generation starts of one resource -> verdict, trend, and the time to its limit with an interval.

A level a generation (or, without markers, a level a block of time) is extrapolated by `piecewise_trend`; what a
generation does above its level (its shape, and peaks every few generations) is put on top before the limit is met.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from memwatch.core.examination import GrowthDriver
from memwatch.core.forecast.fitted_model import (
    EXPLAINED_POINTS,
    MIN_GENERATIONS,
    FittedModel,
    GaugeFit,
    classify_growth,
    fit_by_generation,
    fit_by_time,
    levels_by_generation,
    levels_by_time,
)
from memwatch.core.forecast.generation_tracker import GenerationTracker, SawtoothDetector
from memwatch.core.forecast.growth_axes import GaugeReadings, GenerationSchedule
from memwatch.core.forecast.growth_models import GrowthModel
from memwatch.core.forecast.interval_calibration import IntervalCalibration
from memwatch.core.forecast.outlook import (
    LIMIT_CHANGE_SHARE,
    NOBODY,
    WARMING_UP,
    GrowthEvidence,
    GrowthRate,
    Outlook,
    UseByOthers,
)
from memwatch.core.forecast.piecewise_trend import TrendFit
from memwatch.core.forecast.sample_summaries import SLOTS, TimeBins
from memwatch.core.forecast.time_to_limit import (
    ShortHorizonModel,
    TimeToLimit,
    TimeToLimitDistribution,
    UncertainSchedule,
    memory_needed,
    time_to_limit_distribution,
)
from memwatch.core.sample_windows import PeakRate
from memwatch.core.snapshot import Forecast, Gauge, MemoryNeeded, Trend, Verdict

RUN_BINS = 256  # time bins of the whole run
SETTLED_SAMPLES = 60  # without markers, what comes before this many samples and seconds is the load
SETTLED_SECONDS = 30.0
SETTLED_MARKED_SAMPLES = 24  # with markers: samples since the first one
STALE_SHARE = 0.03  # of the time watched: so old a model is fitted anew ...
STALE_MIN_SECONDS = 100.0  # ... as if at least so long
STILL_SHARE = 0.2  # ... or so old, while memory stands still: without growth, within what it did in half of the run
STALE_LEAD = 0.1  # ... or of the time that is left ...
STALE_FLOOR = 0.003  # ... but not more often than this
# Times the noise of the levels by cycles of the sawtooth: with more, the model goes by these cycles.
STEADIER = 1.7
MISCOUNT = 0.7  # of the sawtooth: deviation of the number of cycles between two peaks, which may break one in two
BELOW_SHARE = 0.2  # of the distance to the trend counts while memory is below it, and goes on along it
NEAR_RANGES = 2.0  # of what a generation does: the limit is not met within one where it is farther off
GAUGE_SE = 1.65  # standard errors to either end of an interval of 90 %
COUNTS_GENERATIONS = 0.05  # of a step: a gauge that rises by one step of the generation's index is that index
RUN_END_SE = 1.65  # standard errors: the run's end comes no later


class Forecaster(GrowthEvidence):
    """One resource: told its samples and generation starts, asked for its outlook. No clock; deterministic; causal."""

    def __init__(self) -> None:
        self._rate = PeakRate()
        self._prior: GrowthModel | None = None  # growth by generation, learned before a restart
        self._prior_seconds: float | None = None
        self._t = -math.inf
        self._used = 0.0
        self._run = TimeBins(RUN_BINS)  # of this process
        self._tracker: GenerationTracker | None = None  # of the markers
        self._sawtooth = SawtoothDetector()
        self._basis: GenerationTracker | None = None  # that the model goes by: of the markers, of the sawtooth, or none
        self._model: FittedModel | None = None
        self._blocks: FittedModel | None = None  # of the same time by blocks of it, while generations are few
        self._fitted_t = -math.inf  # when it was fitted
        self._fitted_until = -math.inf  # from when on it is stale
        self._outcomes: tuple[TimeToLimitDistribution, GrowthRate | None] | None = None  # with what others take
        self._end_in_sight = False  # as of the last look
        self._still_high = math.inf  # while it stands still: more bytes than these are something new
        self._judged: tuple[FittedModel, tuple[object, ...], tuple[Verdict, Trend | None]] | None = None
        self._known_need: tuple[FittedModel, float, MemoryNeeded | None] | None = None  # to finish
        self._gauges: dict[str, GaugeReadings] = {}
        self._calibration = IntervalCalibration()
        self._limit = math.inf  # as of the last outlook, bytes

    def add_samples(self, times: Sequence[float], used: Sequence[int]) -> None:
        """Samples in order, seconds and bytes; those from before the last are ignored."""
        if times and not (times[0] >= self._t and math.isfinite(times[0])):
            first = next((i for i, t in enumerate(times) if t >= self._t and math.isfinite(t)), len(times))
            times, used = times[first:], used[first:]
        if not times:
            return
        self._rate.add_samples(times, used)
        self._t, self._used = times[-1], float(used[-1])
        self._run.add_samples(times, used)
        self._sawtooth.add_samples(times, used)
        if self._tracker is not None:
            self._tracker.add_samples(times, used)

    def begin_generation(self, t: float | None, index: float) -> None:
        """The work of generation `index` begins at t; the one before it has ended. The same index again is ignored.

        `t` is None where nobody saw the beginning: other generations may have passed unseen before it.
        """
        if not math.isfinite(index) or (t is not None and not math.isfinite(t)):
            return
        if t is None:
            if self._tracker is not None:
                self._tracker.add_late_marker(index)
        elif self._tracker is None:
            self._tracker = GenerationTracker(index, t, self._prior_seconds)
            self._tracker.resume(self._run.items)
        elif index != self._tracker.index:
            self._tracker.begin_generation(t, index)
            self._rate.set_fade_seconds(2.0 * (self._tracker.seconds or 0.0))
            self._fitted_until = min(self._fitted_until, self._fitted_t + STALE_FLOOR * self._watched)

    def forget_generations(self) -> None:
        """Another counter is taken for the clock: what was told so far were no generations."""
        self._tracker = self._prior = self._prior_seconds = self._model = self._blocks = self._outcomes = None

    def restart(self, t: float) -> None:
        """A new process of the same run: its levels begin anew, the growth that was seen stays as what to expect."""
        if self._run.items and self._tracker is not None and len(self._tracker.summaries) >= MIN_GENERATIONS:
            levels = levels_by_generation(self._tracker, self._t)
            fitted = fit_by_generation(levels, self._tracker, self._t, {}, prior=self._prior)
            if fitted.fit is not None:
                size = self._tracker.size
                lines = [each.fit.best for each in fitted.components if each.regressor.name == "index"]
                best = min(lines, key=lambda line: line.cost)
                self._prior = best.persistent().in_units(1 / size)
                self._prior_seconds = fitted.schedule.generation_seconds / size
        self._run = TimeBins(RUN_BINS)
        self._tracker = None
        self._sawtooth = SawtoothDetector()
        self._gauges.clear()
        self._model = self._blocks = self._outcomes = None
        self._calibration.forget_kept()
        self._rate.restart()

    def peak_rate(self) -> float:
        return self._rate.fastest

    @property
    def periodic_peak_bytes(self) -> float:
        """How far a peak that not every generation has rises above the level; 0 without such."""
        peak = self._model.periodic_peak if self._model is not None else None
        return peak.excess if peak is not None else 0.0

    def growth_ahead(self) -> GrowthRate:
        fitted = self._model
        return super().growth_ahead() if fitted is None or not fitted.components else fitted.growth_ahead()

    def greatest_rise_bytes(self, seconds: float, since_t: float) -> float:
        items = [item for item in self._run.items if item.start_t >= since_t]
        most, highs = 0.0, deque[int]()  # of the items within the time, latest first, ever higher
        for i in range(len(items) - 1, -1, -1):
            while highs and items[highs[-1]].high <= items[i].high:
                highs.pop()
            highs.append(i)
            while items[highs[0]].start_t > items[i].end_t + seconds:
                highs.popleft()
            most = max(most, items[highs[0]].high - items[i].low)
        return most

    def outlook(
        self,
        t: float,
        limit_bytes: int | None,
        headroom_bytes: int | None,
        last_generation: float | None,
        gauges: Sequence[Gauge] = (),
        *,
        save_bytes: float = 0.0,
        others: UseByOthers = NOBODY,
    ) -> Outlook:
        """What is known at t.

        `headroom_bytes` is the room above the last sample, whoever owns the limit; without it `limit_bytes` minus
        the last sample. `save_bytes` of it are what a checkpoint takes. The verdict is not about `others`; the
        forecast is. `last_generation` is the index of the run's last one. Growth that one of the `gauges` explains is
        not called a leak, and ends when the gauge is at its capacity.
        Without any limit there is no forecast; before enough was seen it says nothing (all None).
        """
        if not self._run.items:
            return WARMING_UP
        for gauge in gauges:
            used = self._used_at(gauge.t) if gauge.seldom else self._used
            readings = self._gauges.setdefault(gauge.name, GaugeReadings(gauge.name, in_bytes=gauge.in_bytes))
            readings.unit_bytes = gauge.unit_bytes
            is_new = readings.add(gauge.t, gauge.value, gauge.capacity, gauge.seldom, used=used)
            if is_new and len(readings.values) <= EXPLAINED_POINTS:  # each of the first tells much
                self._fitted_until = -math.inf
        fitted = self._current_model()
        limit = None if limit_bytes is None else float(limit_bytes)
        if headroom_bytes is not None:
            limit = self._used + headroom_bytes
        last, ends, forecast, far_below = self._last_place(last_generation), None, None, math.inf
        if limit is not None:
            if abs(limit - self._limit) > LIMIT_CHANGE_SHARE * limit:
                self._calibration.forget_kept()
                self._limit = limit
            growing = fitted.beside(others.growth, self._now_x)
            far_below, passed = limit - save_bytes - self._far_bytes(growing), max(t, self._t) - self._t
            ends = self._ends(passed, growing, limit, far_below=far_below, others=others, last_place=last)
            forecast = self._forecast(ends, limit, last)
        self._end_in_sight = forecast is not None and forecast.eta_seconds is not None
        if forecast is not None and forecast.eta_low_seconds is not None:  # the nearer the end, the sooner a new fit
            wait = max(STALE_LEAD * forecast.eta_low_seconds, STALE_FLOOR * self._watched)
            self._fitted_until = min(self._fitted_until, self._fitted_t + wait)
        verdict, trend = self._judgement(fitted, limit)
        seen = 0.0 if ends is None or trend is None else (trend.points - 1) * ends.level_seconds
        until = min(
            [self._fitted_until, *(basis.lost_t for basis in (self._basis, self._marked()) if basis is not None)]
        )
        below = min(far_below, math.nextafter(self._still_high, math.inf))
        drivers = self._drivers(fitted, limit)
        needed = _full(drivers) if verdict is Verdict.WARMING_UP else self._needed(fitted, last)
        return Outlook(verdict, trend, forecast, ends, until, below, self, drivers, seen, needed=needed)

    def _needed(self, fitted: FittedModel, last_place: float) -> MemoryNeeded | None:
        """What the run needs to finish; computed anew when the model or the run's end has changed."""
        known = self._known_need
        if known is None or known[0] is not fitted or known[1] != last_place:
            end = last_place
            if (marked := self._marked()) is not None and marked is not self._basis and math.isfinite(last_place):
                seconds = (last_place - marked.x(self._t)) * (marked.seconds or 1.0)
                end = replace(fitted.schedule, now_x=self._now_x).place(seconds)
            needed = memory_needed(fitted, end, max(item.high for item in self._run.items))
            known = self._known_need = fitted, last_place, needed
        return known[2]

    def _used_at(self, t: float) -> float:
        """Bytes in use at a time of the past, averaged over its bin."""
        return next((item.mean for item in self._run.items if t <= item.end_t), self._used)

    def _drivers(self, fitted: FittedModel, limit: float | None) -> tuple[GrowthDriver, ...]:
        """The gauge that explains the growth, and where that ends: not full, and not the count of the generations."""
        found = [one for one in fitted.gauges if one.level.value < one.level.capacity]
        found = [one for one in found if not self._counts_generations(one)]
        peak = self.periodic_peak_bytes
        return tuple([_driver(fitted, one, self._gauges[one.name].in_bytes, limit, peak) for one in found[:1]])

    def _counts_generations(self, one: GaugeFit) -> bool:
        tracker = self._basis
        if tracker is None or tracker is not self._tracker or math.isfinite(one.level.capacity):
            return False
        return abs(one.level.pace - tracker.size) <= COUNTS_GENERATIONS * tracker.size

    @property
    def _fit(self) -> TrendFit | None:
        return self._model.fit if self._model is not None else None

    @property
    def _now_x(self) -> float:
        """The position on the model's axis."""
        return self._watched if self._basis is None else self._basis.x(self._t)

    @property
    def _watched(self) -> float:
        return self._t - self._run.items[0].start_t if self._run.items else 0.0

    def _marked(self) -> GenerationTracker | None:
        """The generations, while markers come."""
        return self._tracker if self._tracker is not None and self._tracker.goes_on(self._t) else None

    @property
    def _first_generations(self) -> GenerationTracker | None:
        """The generations, until enough are over to tell how one follows another: time tells more of long ones."""
        tracker = self._tracker
        if tracker is None or self._prior is not None or len(tracker.summaries) >= MIN_GENERATIONS:
            return None
        return tracker if not tracker.summaries or tracker.goes_on(self._t) else None

    def _current_model(self) -> FittedModel:
        tracker = self._marked()
        lost = self._basis is not None and not self._basis.goes_on(self._t)
        fitted, stale = self._model, self._t >= self._fitted_until or self._used > self._still_high
        if fitted is not None and stale and not lost and self._stands_still(fitted):
            self._fitted_until = self._fitted_t + STILL_SHARE * self._watched
        elif fitted is None or lost or stale:
            self._basis, fitted = self._fitted(tracker)
            self._model, self._fitted_t, self._outcomes, self._blocks = fitted, self._t, None, None
            self._fitted_until = self._t + STALE_SHARE * max(self._watched, STALE_MIN_SECONDS)
            self._still_high = math.inf
        return fitted

    def _stands_still(self, fitted: FittedModel) -> bool:
        """A fit would show what the last one did: no growth, no end in sight, and memory did nothing new since."""
        fitted_t = self._fitted_t
        if fitted.by_generation or self._tracker is not None or self._end_in_sight:
            return False
        if self._t - fitted_t >= STILL_SHARE * self._watched or self._verdict(fitted, None) is not Verdict.STABLE:
            return False
        half_t = self._t - 0.5 * self._watched
        before = [item for item in self._run.items if half_t <= item.end_t <= fitted_t]
        since = [item for item in self._run.items if item.end_t > fitted_t]
        if not before or not since:
            return False
        low, self._still_high = min(item.low for item in before), max(item.high for item in before)
        return all(low <= item.low and item.high <= self._still_high for item in since)

    def _fitted(self, tracker: GenerationTracker | None) -> tuple[GenerationTracker | None, FittedModel]:
        """The model by the markers or, without them, by time; or by cycles of a sawtooth, where these are steadier.

        Growth on one line goes by time, too, until enough generations are over.
        """
        t, gauges, sawtooth = self._t, self._gauges, self._sawtooth.cycle(self._t)
        items, first_t = self._run.items, self._run.items[0].start_t
        own = levels_by_time(items, first_t) if tracker is None else levels_by_generation(tracker, t)
        goes_on = self._prior is not None and tracker is not None and len(tracker.summaries) < MIN_GENERATIONS
        if sawtooth is not None and not goes_on:
            by_sawtooth = levels_by_generation(sawtooth, t)
            if by_sawtooth.noise is not None and (own.noise is None or own.noise >= STEADIER * by_sawtooth.noise):
                return sawtooth, fit_by_generation(by_sawtooth, sawtooth, t, gauges, error=MISCOUNT)
        if tracker is None:
            fitted = fit_by_time(own, items, first_t, gauges)
        else:
            fitted = fit_by_generation(own, tracker, t, gauges, prior=self._prior)
        first = self._first_generations
        if first is None or fitted.gauges:
            return tracker, fitted
        items = [item for item in items if item.start_t >= first.first_t]  # after the load
        by_time = fit_by_time(levels_by_time(items, first_t), items, first_t, {}) if items else None
        if by_time is not None and by_time.fit is not None and _is_straight(by_time.fit, first.seconds):
            return None, by_time
        return tracker, fitted if first.summaries else replace(fitted, components=())

    @property
    def _is_settled(self) -> bool:
        """There is more to see than the load that every run begins with."""
        if self._basis is not None and self._basis is self._tracker:
            return self._prior is not None or self._basis.samples >= SETTLED_MARKED_SAMPLES
        if (first := self._first_generations) is not None:
            return first.samples >= SETTLED_SAMPLES and self._t - first.first_t >= SETTLED_SECONDS
        if self._tracker is not None and not self._tracker.summaries:
            return False
        return self._run.samples >= SETTLED_SAMPLES and self._watched >= SETTLED_SECONDS

    def _judgement(self, fitted: FittedModel, limit: float | None) -> tuple[Verdict, Trend | None]:
        """Verdict and trend of a model, made anew when what they rest on has changed."""
        tracker, known = self._marked(), self._judged
        rests_on = (None if tracker is None else tracker.ordinal, limit, self._is_settled)
        if known is None or known[0] is not fitted or known[1] != rests_on:
            judged = self._verdict(fitted, limit), self._trend(fitted)
            known = self._judged = fitted, rests_on, judged
        return known[2]

    def _verdict(self, fitted: FittedModel, limit: float | None) -> Verdict:
        if fitted.fit is None or not self._is_settled:
            return Verdict.WARMING_UP
        complete = MIN_GENERATIONS
        if self._tracker is not None and self._tracker is self._basis and self._prior is None:
            complete = len(self._tracker.summaries)
        room = None if limit is None else limit - max(self.periodic_peak_bytes, *fitted.profile.slot_maxima)
        verdict = classify_growth(fitted.fit, complete, room)
        if fitted.has_filled and verdict in (Verdict.GROWING, Verdict.LEAK):
            return Verdict.PLATEAU
        explained = fitted.components[0].regressor.name == "gauge"
        return Verdict.GROWING if explained and verdict is Verdict.LEAK else verdict

    def _trend(self, fitted: FittedModel) -> Trend | None:
        if fitted.fit is None:
            return None
        per_second = fitted.slope / fitted.schedule.generation_seconds
        tracker, per_generation = self._marked(), None
        if tracker is not None and tracker.seconds is not None:
            seconds = fitted.schedule.generation_seconds if tracker is self._basis else tracker.seconds
            per_generation = per_second * seconds / tracker.size
        component, best = fitted.components[0], fitted.fit.best
        since = None if tracker is None or tracker is not self._basis else _index(tracker, component.first_x)
        weight = component.weight * best.weight
        return Trend(best.kind, per_second, per_generation, fitted.fit.r_squared, weight, best.points, since)

    def _outcomes_of(
        self, fitted: FittedModel, timing: UncertainSchedule, limit: float, others: GrowthRate | None
    ) -> TimeToLimitDistribution:
        if self._outcomes is not None:
            known, beside = self._outcomes
            is_same = others == beside and abs(known.limit - limit) <= LIMIT_CHANGE_SHARE * (limit - self._used)
            if is_same and not known.is_passed(timing.calendar.now_x):
                return known
        found = time_to_limit_distribution(fitted, timing, limit)
        self._outcomes = found, others
        return found

    def _last_place(self, last_generation: float | None) -> float:
        """Where, by the markers' count, the run's last generation ends; infinity when that is not known."""
        tracker = self._marked()
        if tracker is None or last_generation is None:
            return math.inf
        return tracker.ordinal + (last_generation - tracker.index + tracker.step) / tracker.size

    def _ends(
        self,
        passed: float,
        fitted: FittedModel,
        limit: float,
        *,
        far_below: float,
        others: UseByOthers,
        last_place: float,
    ) -> TimeToLimit | None:
        """When the limit may be met, `passed` seconds after the last sample; None before enough was seen.

        The limit is far away while less than `far_below` bytes are in use.
        """
        if fitted.fit is None or not self._is_settled or self._used >= limit:
            return None
        basis = self._basis
        calendar = replace(fitted.schedule, now_x=self._now_x)
        if basis is not None:
            timing = UncertainSchedule(calendar, basis.unevenness, 0.6 / SLOTS)
        else:
            peak = fitted.periodic_peak
            timing = UncertainSchedule(calendar, blur=peak.error if peak is not None else 0.0)
        step, near, safe = fitted.period * calendar.generation_seconds, None, 0.0
        cycle = step
        if self._used < far_below:  # the next minutes need no model of their own
            safe = step
        elif basis is None or len(basis.summaries) > MIN_GENERATIONS:
            near = self._near(fitted, basis, calendar, limit, others.deviation)
        else:  # too few generations say how one goes: blocks of time do
            items, first_t = self._run.items, self._run.items[0].start_t
            blocks = self._blocks = self._blocks or fit_by_time(levels_by_time(items, first_t), items, first_t, {})
            if blocks.fit is not None:
                now = replace(blocks.schedule, now_x=self._watched)
                near = self._near(blocks.beside(others.growth, now.now_x), None, now, limit, others.deviation)
        run = self._run_seconds(timing, last_place)
        if basis is None and (first := self._first_generations) is not None:  # growth within one may end with it
            cycle = max(step, first.seconds or 0.0, self._t - first.start_t)
        outcomes = self._outcomes_of(fitted, timing, limit, others.growth)
        p_ended = 0.0 if near is None else near.p_ended
        if_ended = near.if_ended() if near is not None and p_ended > 0.0 else None
        return TimeToLimit(outcomes, timing, cycle, step, passed, near, safe, run, p_ended, if_ended)

    def _run_seconds(self, timing: UncertainSchedule, last_place: float) -> float:
        """From the last sample until the run ends, at the latest."""
        tracker = self._marked()
        if tracker is None or math.isinf(last_place):
            return math.inf
        if tracker is not self._basis:
            timing = UncertainSchedule(
                GenerationSchedule(tracker.x(self._t), tracker.seconds or 1.0), tracker.unevenness
            )
        return max(0.0, timing.calendar.seconds_until(last_place + RUN_END_SE * timing.error(last_place)))

    def _far_bytes(self, fitted: FittedModel) -> float:
        """More headroom than this is more than memory may use within a generation."""
        reach = max(self.periodic_peak_bytes, fitted.profile.range, fitted.profile.reach)
        return NEAR_RANGES * (reach + abs(fitted.slope) * fitted.period)

    def _near(
        self,
        fitted: FittedModel,
        basis: GenerationTracker | None,
        calendar: GenerationSchedule,
        limit: float,
        others_deviation: float,
    ) -> ShortHorizonModel:
        """How memory stands to its trend now."""
        profile = fitted.profile
        parts: tuple[float, ...] = (0.0,)
        latest = self._run.items[-1].mean
        if basis is not None:
            latest = basis.latest()
            if basis.is_blurred(self._t):
                profile = profile.whole()
            else:
                parts = basis.likely_parts(self._t)
        line = fitted.level_at(calendar.now_x)
        aside = profile.residual(latest - line, parts[len(parts) // 2])
        peaks, due, between = fitted.periodic_peak, math.inf, math.inf
        if peaks is not None:
            between = peaks.period * calendar.generation_seconds
            due = max(0.0, calendar.seconds_until(peaks.first_from(calendar.now_x) - peaks.error))
            if peaks.regular and due == 0.0:  # it is under way: what it explains is no deviation
                aside = min(aside, max(0.0, aside - max(peaks.highs)))
        growth, best = fitted.growth_ahead(), fitted.components[0].fit.best
        noise = profile.noise if fitted.components[0].regressor.name == "index" else fitted.components[0].fit.noise
        return ShortHorizonModel(
            room=limit - line,
            residual=aside if aside > 0.0 else BELOW_SHARE * aside,
            slope=max(growth.per_second, 0.0),
            slope_error=growth.error,
            noise=math.hypot(noise, others_deviation),
            profile=profile,
            parts=parts,
            seconds=fitted.period * calendar.generation_seconds,
            peaks=peaks,
            due_seconds=due,
            peak_seconds=between,
            headroom=limit - latest,
            rises=fitted.excursions,
            behind=min(-aside, max(growth.per_second, 0.0) * self._seconds_since_record()) if aside < 0.0 else 0.0,
            risen=best.level - best.level_at(best.x - best.span),
        )

    def _seconds_since_record(self) -> float:
        """Since memory was last higher than ever before: so long it has not grown."""
        items, most, record_t = self._run.items, 0.0, self._t
        for item in items:
            if item.high > most:
                most, record_t = item.high, item.end_t
        return self._t - record_t

    def _calibrated_places(self, ends: TimeToLimit) -> tuple[float, float, float]:
        """Where the limit is met, as quantiles, with the interval that the run's own errors ask for."""
        low, middle, high = ends.quantiles()
        calendar = ends.timing.calendar
        left = [calendar.seconds_until(x) - ends.passed for x in (low, middle, high)]
        self._calibration.add_forecast(self._watched + ends.passed, (left[0], left[1], left[2]))
        if math.isinf(middle):
            return low, middle, high
        factor = self._calibration.factor
        return max(calendar.now_x, middle - factor * (middle - low)), middle, middle + factor * (high - middle)

    def _forecast(self, ends: TimeToLimit | None, limit: float, last_place: float) -> Forecast:
        tracker = self._marked()
        if self._used >= limit:
            index = tracker.index if tracker is not None else None
            return Forecast(0.0, 0.0, 0.0, index, index, index, finishes=False)
        if ends is None:
            return Forecast(None, None, None)
        low_x, middle_x, high_x = self._calibrated_places(ends)
        places = [middle_x, low_x, high_x]
        seconds = [ends.timing.calendar.seconds_until(x) for x in places]
        eta, low, high = (max(0.0, s - ends.passed) if math.isfinite(s) else None for s in seconds)
        if tracker is None:
            return Forecast(eta, low, high)
        if tracker is not self._basis:
            marked = GenerationSchedule(tracker.x(self._t), tracker.seconds or 1.0)
            places = [marked.place(s) for s in seconds]
        finishes = None if math.isinf(last_place) else places[1] > last_place
        middle_index, low_index, high_index = (_index(tracker, place) for place in places)
        return Forecast(eta, low, high, middle_index, low_index, high_index, finishes)


def _full(drivers: Sequence[GrowthDriver]) -> MemoryNeeded | None:
    """What is needed where all that is known of the growth is the buffer that fills."""
    full = [(one.full_bytes, one.full_range) for one in drivers if one.full_bytes is not None and one.full_range]
    return next(
        (MemoryNeeded(middle, int(low), None if high is None else int(high)) for middle, (low, high) in full), None
    )


def _is_straight(fit: TrendFit, generation_seconds: float | None) -> bool:
    """Growth on one line over a generation, or over all levels of the first: no part of one is unlike the others."""
    line = fit.best
    return line.kind == "linear" and (line.first == 0 or line.span >= (generation_seconds or math.inf))


def _driver(fitted: FittedModel, one: GaugeFit, in_bytes: bool, limit: float | None, peak: float) -> GrowthDriver:
    """The gauge as the rest of memwatch reads it; `peak` bytes stand above the level now and then."""
    level, fit = one.level, one.component.fit
    ends = math.isfinite(level.capacity)
    ahead = max(0.0, level.capacity - level.value) if ends else 0.0
    bent = min(ahead, fit.best.span) / level.pace  # a bend is believed for as long as it was seen
    usual, error = one.component.ahead(bent if bent > 0.0 else fitted.period)
    unit, off = usual / level.pace, GAUGE_SE * error / level.pace
    low, high = (unit - off, unit + off) if one.units is None else (one.units.low, one.units.high)
    rates = max(0.0, low), unit, high
    now = fit.best.level + fit.best.slope * (level.value - fit.best.x) + max(0.0, peak, *fitted.profile.slot_maxima)
    unrest = GAUGE_SE * math.hypot(fitted.profile.peak_sd, fit.noise)
    tops = now - unrest, now, now + unrest
    full = [int(top + rate * ahead) for top, rate in zip(tops, rates, strict=True)]
    reached: list[float | None] = [None] * 3
    fits = None
    if limit is not None:
        rooms = [max(0.0, limit - top) for top in tops]
        reached = [level.value + room / rate if rate > 0.0 else None for room, rate in zip(rooms, rates, strict=True)]
        if ends and not full[0] <= limit < full[2]:
            fits = full[2] <= limit
    return GrowthDriver(
        name=one.name,
        value=level.value,
        capacity=level.capacity if ends else None,
        bytes_per_unit=unit,
        r2=fit.r_squared,
        path="",
        full_bytes=full[1] if ends else None,
        limit_value=reached[1],
        bytes_per_unit_range=(rates[0], rates[2]),
        full_range=(full[0], full[2]) if ends else None,
        limit_range=None if reached[2] is None else (reached[2], reached[0]),
        fits=fits,
        in_bytes=in_bytes,
    )


def _index(tracker: GenerationTracker, place: float) -> float | None:
    """The generation, as the program counts, at a position on the model's axis."""
    if math.isinf(place):
        return None
    return tracker.index + math.floor((place - tracker.ordinal) * tracker.size / tracker.step + 1e-9) * tracker.step
