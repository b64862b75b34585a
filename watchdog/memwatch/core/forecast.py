"""Samples and generation starts of one resource -> verdict, trend, and the time to its limit with an interval.

A level a generation (or, without markers, a level a block of time) is extrapolated by the models of `trend`; what a
generation does above its level (its shape, and peaks every few generations) is put on top before the limit is met.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memwatch.core import course as courses
from memwatch.core.course import Course
from memwatch.core.meeting import meeting
from memwatch.core.model import Forecast, Gauge, Trend, Verdict
from memwatch.core.rate import PeakRate
from memwatch.core.rhythm import LOST_AFTER, Rhythm
from memwatch.core.shapes import SLOTS, Bins
from memwatch.core.trend import Model
from memwatch.core.verdict import ENOUGH, Evidence, judge

RUN_BINS = 256  # time bins of the whole run
SETTLED_SAMPLES = 60  # without markers, what comes before this many samples and seconds is the load
SETTLED_SECONDS = 30.0
SETTLED_MARKED_SAMPLES = 24  # with markers: samples since the first one
FEW = 12  # generations up to which the models are looked at in every slot of the open one, later LATER_LOOKS times
LATER_LOOKS = 4
BLOCK_LOOKS = 64  # looks at the models while the run's bins fill up once


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known of one resource: how it grows, and when it meets its limit."""

    verdict: Verdict
    trend: Trend | None
    forecast: Forecast | None


class Forecaster:
    """One resource: told its samples and generation starts, asked for its outlook. No clock; deterministic; causal."""

    def __init__(self) -> None:
        self._rate = PeakRate()
        self._prior: Model | None = None  # growth by generation, learned before a restart
        self._prior_seconds: float | None = None
        self._t = -math.inf
        self._used = 0.0
        self._run = Bins(RUN_BINS)  # of this process
        self._rhythm: Rhythm | None = None
        self._course: Course | None = None
        self._course_key: tuple[int, int] | None = None

    # --- being told ---

    def observe(self, t: float, used_bytes: int) -> None:
        """A sample; one from before the last is ignored."""
        if not math.isfinite(t) or t < self._t:
            return
        self._rate.observe(t, used_bytes)
        self._t, self._used = t, float(used_bytes)
        self._run.add(t, used_bytes)
        if self._rhythm is not None:
            self._rhythm.observe(t, used_bytes)

    def begin_generation(self, t: float, index: float) -> None:
        """The work of generation `index` begins at t; the one before it has ended. The same index again is ignored."""
        if not (math.isfinite(t) and math.isfinite(index)):
            return
        if self._rhythm is None:
            self._rhythm = Rhythm(index, t, self._prior_seconds)
            self._rhythm.resume(self._run.items)
        elif index != self._rhythm.index:
            self._rhythm.begin(t, index)
            self._rate.remember(2.0 * (self._rhythm.seconds or 0.0))

    def recount(self) -> None:
        """Another counter is taken for the clock: what was told so far were no generations."""
        self._rhythm = self._course = self._course_key = self._prior = self._prior_seconds = None

    def restart(self, t: float) -> None:
        """A new process of the same run: its levels begin anew, the growth that was seen stays as what to expect."""
        if self._run.items and self._rhythm is not None and len(self._rhythm.shapes) >= ENOUGH:
            course = courses.by_generation(self._rhythm, self._t, self._prior)
            if course.fit is not None:
                bundle = self._rhythm.bundle
                self._prior, self._prior_seconds = course.fit.best.in_units(1 / bundle), course.seconds / bundle
        self._run = Bins(RUN_BINS)
        self._rhythm = self._course = self._course_key = None
        self._rate.restart()

    # --- being asked ---

    def peak_rate(self) -> float:
        """Bytes a second of the fastest recent rise over a short window; 0 if there was none."""
        return self._rate.fastest

    def outlook(
        self,
        t: float,
        limit_bytes: int | None,
        headroom_bytes: int | None,
        last_generation: float | None,
        gauges: Sequence[Gauge] = (),
    ) -> Outlook:
        """What is known at t.

        `headroom_bytes` is the room above the last sample, whoever owns the limit; without it `limit_bytes` minus
        the last sample. `last_generation` is the index of the run's last one. While one of the `gauges` fills towards
        its capacity, growth is not called a leak: the forecast stays as it is, for the limit may come first.
        Without any limit there is no forecast; before enough was seen it says nothing (all None).
        """
        if not self._run.items:
            return Outlook(Verdict.WARMING_UP, None, None)
        course = self._current_course()
        limit = None if limit_bytes is None else float(limit_bytes)
        if headroom_bytes is not None:
            limit = self._used + headroom_bytes
        forecast = None if limit is None else self._forecast(max(t, self._t) - self._t, course, limit, last_generation)
        verdict = self._verdict(course, limit)
        if verdict is Verdict.LEAK and any(_fills(gauge) for gauge in gauges):
            verdict = Verdict.GROWING
        return Outlook(verdict, self._trend(course), forecast)

    def _current_course(self) -> Course:
        """The course, fitted anew only when there is something new to fit."""
        rhythm = self._rhythm if self._rhythm is not None and self._rhythm.goes_on(self._t) else None
        if rhythm is not None:
            looks = SLOTS if len(rhythm.shapes) <= FEW else LATER_LOOKS
            key = (rhythm.ordinal, int(min(rhythm.part(self._t), LOST_AFTER) * looks))
        else:
            begun = self._run.begun
            key = (-1, begun * BLOCK_LOOKS // RUN_BINS if begun > RUN_BINS else begun)
        if self._course is None or key != self._course_key:
            self._course_key = key
            if rhythm is not None:
                self._course = courses.by_generation(rhythm, self._t, self._prior)
            else:
                self._course = courses.by_time(self._run)
        return self._course

    def _settled(self, course: Course) -> bool:
        """There is more to see than the load that every run begins with."""
        if self._rhythm is not None and course.by_generation:
            return self._prior is not None or self._rhythm.samples >= SETTLED_MARKED_SAMPLES
        if self._rhythm is not None and not self._rhythm.shapes:
            return False
        return self._run.samples >= SETTLED_SAMPLES and self._t - self._run.items[0].start_t >= SETTLED_SECONDS

    def _verdict(self, course: Course, limit: float | None) -> Verdict:
        if course.fit is None or not self._settled(course):
            return Verdict.WARMING_UP
        complete = ENOUGH
        if self._rhythm is not None and course.by_generation and self._prior is None:
            complete = self._rhythm.ordinal
        return judge(Evidence(course.fit, complete, limit))

    def _trend(self, course: Course) -> Trend | None:
        if course.fit is None:
            return None
        best = course.fit.best
        slope = 0.0 if best.kind == "flat" else best.slope
        by_generation = self._rhythm is not None and course.by_generation
        per_generation = (
            slope / (self._rhythm.step * self._rhythm.bundle) if self._rhythm is not None and by_generation else None
        )
        return Trend(best.kind, slope / course.seconds, per_generation, course.fit.explained)

    def _forecast(self, passed: float, course: Course, limit: float, last_generation: float | None) -> Forecast:
        """The forecast `passed` seconds after the last sample."""
        rhythm = self._rhythm if course.by_generation else None
        if self._used >= limit:
            index = rhythm.index if rhythm is not None else None
            return Forecast(0.0, 0.0, 0.0, index, index, index, finishes=False)
        if course.fit is None or not self._settled(course):
            return Forecast(None, None, None)
        if rhythm is None:
            now_x = self._t - self._run.items[0].start_t
            met = meeting(course, now_x, limit, None, 0.0)
        else:
            now_x = rhythm.x(self._t)
            met = meeting(course, now_x, limit, rhythm.peaks, rhythm.unevenness())

        def seconds(x: float) -> float | None:
            return max(0.0, (x - now_x) * course.seconds - passed) if math.isfinite(x) else None

        def generation(x: float) -> float | None:
            if rhythm is None or math.isinf(x):
                return None
            return rhythm.index + math.floor((x - rhythm.ordinal) * rhythm.bundle + 1e-9) * rhythm.step

        finishes = None
        if rhythm is not None and last_generation is not None:
            left = (last_generation - rhythm.index) / rhythm.step + 1.0
            finishes = met.low > rhythm.ordinal + left / rhythm.bundle
        return Forecast(
            eta_seconds=seconds(met.middle),
            eta_low_seconds=seconds(met.low),
            eta_high_seconds=seconds(met.high),
            generation=generation(met.middle),
            generation_low=generation(met.low),
            generation_high=generation(met.high),
            finishes=finishes,
        )


def _fills(gauge: Gauge) -> bool:
    return gauge.capacity is not None and 0.0 < gauge.value < gauge.capacity
