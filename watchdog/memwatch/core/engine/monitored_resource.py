"""One resource as the engine follows it: its forecaster, its latest outlook, and what has been told of it.

Memory over a whole watch, however long, in a bounded number of steps of equal length.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from operator import sub
from typing import Protocol

from memwatch.core.decision.burst_detector import BurstDetector, RampDetector
from memwatch.core.decision.policy import (
    Policy,
    run_ends_first,
    seconds_until_warning,
    should_warn,
    should_withdraw_warning,
    warning_hold_seconds,
)
from memwatch.core.forecast.forecaster import LIMIT_CHANGE_SHARE, Outlook
from memwatch.core.measurements import Usage
from memwatch.core.robust_statistics import robust_sd
from memwatch.core.sample_windows import WINDOW_SAMPLES, PeakRate
from memwatch.core.snapshot import Gauge, TimelineStep, Verdict

MAX_STEPS = 240  # steps; with more to tell, two become one
INITIAL_STEP_SECONDS = 0.25  # of a step, as the watch begins


class Timeline:
    """Of one resource. Steps in which nothing was read are left out."""

    def __init__(self, began_t: float) -> None:
        self._began_t, self._seconds = began_t, INITIAL_STEP_SECONDS
        self._ended: list[TimelineStep] = []
        self._open: tuple[int, int, int] | None = None  # which step it is; the least and the most in it

    def add_samples(self, times: Sequence[float], used: Sequence[int]) -> None:
        """Readings in order."""
        at, end = 0, len(times)
        while at < end:
            index = self._index(times[at])
            until = max(at + 1, bisect_left(times, self._began_t + (index + 1) * self._seconds, at, end))
            part = used[at:until]
            self._put(index, min(part), max(part))
            at = until

    def _index(self, t: float) -> int:
        while (index := int((t - self._began_t) / self._seconds)) >= MAX_STEPS:
            self._halve()
        return index

    def _put(self, index: int, least: int, most: int) -> None:
        if self._open is not None:
            earlier, lower, upper = self._open
            if earlier >= index:  # a clock that was set back stays where it was
                index, least, most = earlier, min(least, lower), max(most, upper)
            else:
                self._ended.append(self._step(*self._open))
        self._open = index, least, most

    def _step(self, index: int, least: int, most: int) -> TimelineStep:
        return TimelineStep(self._began_t + index * self._seconds, self._seconds, least, most)

    def _halve(self) -> None:
        """Steps of twice the length."""
        steps, self._ended, self._open = self.steps(), [], None
        self._seconds *= 2.0
        for one in steps:
            self._put(int((one.t + 0.5 * one.seconds - self._began_t) / self._seconds), one.least_bytes, one.most_bytes)

    def steps(self) -> tuple[TimelineStep, ...]:
        """Oldest first."""
        return (*self._ended, self._step(*self._open)) if self._open is not None else ()


FORECAST_SHARE = 0.02  # of the time observed: forecast notices come no closer where no generation gives one
FORECAST_FLOOR_SECONDS = 5.0
ETA_CHANGE = 0.10  # a forecast that moved by this share is news
DECISION_READINGS = 16  # readings that are told with a decision
SAVES = 5  # the memory that the latest so many checkpoints took; the most of it counts
SAVE_SHARE = 0.003  # of the limit: what a checkpoint is taken to need of memory where none was seen to need more
SAVE_MARGIN = 1.05  # checkpoints vary
OTHERS = 63  # readings that tell how much what others take goes up and down
MAX_PENDING_READINGS = 16  # readings, at most, that nobody has asked about are taken together: each then costs a fifth


class ForecasterProtocol(Protocol):
    """What the engine needs of a forecaster."""

    def add_samples(self, times: Sequence[float], used: Sequence[int]) -> None: ...
    def begin_generation(self, t: float, index: float) -> None: ...
    def add_late_marker(self, index: float) -> None: ...
    def forget_generations(self) -> None: ...
    def restart(self, t: float) -> None: ...
    def outlook(
        self,
        t: float,
        limit_bytes: int | None,
        headroom_bytes: int | None,
        last_generation: float | None,
        gauges: Sequence[Gauge] = (),
        *,
        save_bytes: float = 0.0,
        others_deviation: float = 0.0,
    ) -> Outlook: ...
    def peak_rate(self) -> float: ...
    def rise_bytes(self, seconds: float) -> float: ...
    def new_high_bytes(self, seconds: float) -> float: ...
    @property
    def slope_t_stat(self) -> float: ...
    @property
    def growth_follows_plateau(self) -> bool: ...
    @property
    def range_bytes(self) -> float: ...


class MonitoredResource:
    """One resource of the trainer, over all its processes."""

    def __init__(self, usage: Usage, forecaster: ForecasterProtocol, t: float) -> None:
        self._forecaster = forecaster
        self._pending: list[tuple[float, int, int]] = []  # readings that nobody has asked about: t, used, taken
        self._fastest = 0.0
        self._timeline = Timeline(t)
        self.latest: deque[tuple[float, int, int]] = deque(maxlen=DECISION_READINGS)  # t, used, taken
        self.usage = usage
        self._saves: deque[tuple[int, int]] = deque(maxlen=SAVES)  # bytes that each took, at least and at most
        self.begin_process(usage.used_bytes, t)

    def begin_attempt(self, t: float) -> None:
        """Its process is gone; the next reading is another's."""
        self.forecaster.restart(t)
        self.begin_process(self.usage.used_bytes, t)

    def begin_process(self, used_bytes: int, t: float) -> None:
        """A process begins with this reading."""
        self._flush()
        self.latest.clear()
        self.first_t = t
        self.first_bytes = self.peak = used_bytes
        self.reset_burst_detection()
        self.outlook = Outlook(Verdict.WARMING_UP, None, None)
        self.warned = False
        self._never = t, 0.0
        self._last_generation: float | None = None
        self._turned_t: float | None = None  # since when the opposite of `warned` holds
        self._last_reported: tuple[float, float | None, Verdict] | None = (
            None  # t, eta, verdict of the last forecast notice
        )
        self._t = self._looked_t = t
        self._used = self._taken = used_bytes
        self._save: tuple[int, int] | None = None  # in use when a checkpoint was begun, and at most since
        self._saved: tuple[int, int] | None = None  # the same of one that is complete, until the next reading
        self._risen = 0  # looks for which a fast step is still seen
        self._end_bytes = 0  # where the limit was at the last look
        self.quiescent_until = -math.inf

    def reset_burst_detection(self) -> None:
        """What is taken of a limit is counted in another way from now on: the step is no growth."""
        self._flush()
        self._burst, self._ramp, self._loss = BurstDetector(), RampDetector(), PeakRate()
        self._others: deque[int] = deque(maxlen=OTHERS)

    def add_sample(self, t: float, usage: Usage) -> None:
        """A reading. It waits with others until somebody asks about them, unless a rise was faster than any of late."""
        if _origin(usage) != _origin(self.usage):
            self.reset_burst_detection()
        self.usage = usage
        used, taken, known = usage.used_bytes, self.limit_used_bytes, self._fastest * (t - self._t)
        rises = used - self._used > known or taken - self._taken > known
        self._risen = (
            WINDOW_SAMPLES if rises else self._risen - 1
        )  # a fast step may make the rises of all that see it faster
        self._t, self._used, self._taken, self.peak = t, used, taken, max(self.peak, used)
        self._follow_save(used, used)
        reading = (t, used, taken)
        self.latest.append(reading)
        self._pending.append(reading)
        if self._risen > 0 or len(self._pending) >= MAX_PENDING_READINGS:
            self._flush()

    def add_samples(self, times: Sequence[float], used: Sequence[int], taken: Sequence[int], usage: Usage) -> None:
        """Readings in order, of the limit as before, and what is taken of it; `usage` is the latest of them."""
        self._flush()
        self.usage, self._t, self._used, self._taken = usage, times[-1], used[-1], taken[-1]
        self.peak = max(self.peak, *used)
        self._follow_save(used[0], max(used))
        self.latest.extend(
            zip(times[-DECISION_READINGS:], used[-DECISION_READINGS:], taken[-DECISION_READINGS:], strict=True)
        )
        self._take(times, used, taken)

    def _flush(self) -> None:
        """Take the readings that wait, as if each had been taken when it came."""
        if self._pending:
            times, used, taken = zip(*self._pending, strict=True)
            self._pending.clear()
            self._take(times, used, taken)

    def _take(self, times: Sequence[float], used: Sequence[int], taken: Sequence[int]) -> None:
        self._forecaster.add_samples(times, used)
        self._timeline.add_samples(times, used)
        self._burst.add_samples(times, taken)
        self._ramp.add_samples(times, taken)
        if taken != used:
            self._loss.add_samples(times, taken)
            self._others.extend(map(sub, taken[-OTHERS:], used[-OTHERS:]))
        self._fastest = max(self._forecaster.peak_rate(), self._loss.fastest)

    @property
    def forecaster(self) -> ForecasterProtocol:
        """Told of every reading."""
        self._flush()
        return self._forecaster

    @property
    def timeline(self) -> Timeline:
        """Told of every reading."""
        self._flush()
        return self._timeline

    @property
    def burst(self) -> BurstDetector:
        """Told of all that is taken of the limit."""
        self._flush()
        return self._burst

    @property
    def ramp(self) -> RampDetector:
        """Told of all that is taken of the limit."""
        self._flush()
        return self._ramp

    @property
    def limit_used_bytes(self) -> int:
        """What is gone of the limit that binds: for the host's, what others use is gone too."""
        limit = self.usage.limit
        return self.usage.used_bytes if limit is None else limit.bytes - limit.headroom_bytes

    @property
    def other_usage_sd_bytes(self) -> float:
        """Standard deviation of what others take of the limit, bytes."""
        self._flush()
        return robust_sd(self._others)

    def checkpoint_started(self) -> None:
        """A checkpoint is being written from now on; what was begun before and never ended is given up."""
        self._save = self.usage.used_bytes, self.usage.used_bytes

    def checkpoint_completed(self, is_whole: bool) -> None:
        """It is complete; `is_whole`: it was seen from its begin on."""
        self._saved, self._save = self._save if is_whole else None, None

    def _follow_save(self, first: int, highest: int) -> None:
        """What is in use next, and at most of late. What it rose by, and what went again: the rest was no save's."""
        if self._save is not None:
            self._save = self._save[0], max(self._save[1], highest)
        elif self._saved is not None:
            begun, most = self._saved
            self._saves.append((max(0, most - max(begun, first)), max(0, most - min(begun, first))))
            self._saved = None
            self.invalidate_outlook()

    @property
    def measured_checkpoint_bytes(self) -> int:
        """What the latest checkpoints took of memory: one of them so much, each of them no less, as far as was seen."""
        return max((*(least for least, _ in self._saves), min((most for _, most in self._saves), default=0)))

    @property
    def expected_checkpoint_bytes(self) -> float:
        """What a checkpoint is taken to need of memory."""
        limit = self.usage.limit
        return SAVE_MARGIN * max(self.measured_checkpoint_bytes, 0 if limit is None else SAVE_SHARE * limit.bytes)

    def recent_rise_bytes(self, seconds: float) -> int:
        """Bytes that were taken of the limit within so many seconds, by anybody, as far as the latest readings tell."""
        return self._taken - min(taken for t, _, taken in self.latest if t >= self._t - seconds)

    @property
    def fastest(self) -> float:
        """Bytes/s: the room has not shrunk faster of late."""
        return self._fastest

    def begin_generation(self, t: float, index: float) -> None:
        """A marker: what the next look gives is news."""
        self.forecaster.begin_generation(t, index)
        self.burst.begin_period(t)
        self._last_reported = None

    def update_outlook(self, t: float, last_generation: float | None, gauges: Sequence[Gauge]) -> None:
        """Renew the outlook."""
        self._last_generation, self._looked_t, self._end_bytes = last_generation, t, _used_bytes_at_limit(self.usage)
        limit = self.usage.limit
        limit_bytes = None if limit is None else limit.bytes
        headroom_bytes = None if limit is None else limit.headroom_bytes
        self.outlook = self.forecaster.outlook(
            t,
            limit_bytes,
            headroom_bytes,
            last_generation,
            gauges,
            save_bytes=self.expected_checkpoint_bytes,
            others_deviation=self.other_usage_sd_bytes,
        )
        self.quiescent_until = self.outlook.quiescent_until
        ends = self.outlook.time_to_limit
        if ends is not None:
            known_t, known = self._never
            self._never = t, max(ends.p_never, known * math.exp((known_t - t) / ends.cycle_seconds))

    @property
    def p_never(self) -> float:
        """Probability that the limit is never met, as of now or, the less the longer ago, of late: one fit may err."""
        return self._never[1]

    def invalidate_outlook(self) -> None:
        """Something was told that an outlook may change with: the next reading wants a look."""
        self.quiescent_until = -math.inf

    def is_quiescent(self, t: float) -> bool:
        """A look would show nothing new but the passing of time."""
        return t < self.quiescent_until and self.usage.used_bytes < self.quiescent_below_bytes(self.usage)

    def quiescent_below_bytes(self, usage: Usage) -> float:
        """Bytes in use below which it is, until `calm_until`: the fewer, the further the end of the room has moved."""
        below = self.outlook.quiescent_below_bytes
        if usage.limit is None:
            return below
        end = _used_bytes_at_limit(usage)
        return min(below, end - abs(end - self._end_bytes) / LIMIT_CHANGE_SHARE)

    @property
    def current_outlook(self) -> Outlook:
        """The outlook of the last look, as it stands at the latest reading."""
        forecast, passed = self.outlook.forecast, self._t - self._looked_t
        if forecast is None or passed <= 0.0:
            return self.outlook
        return Outlook(self.outlook.verdict, self.outlook.trend, forecast.after(passed), self.outlook.time_to_limit)

    def mark_reported_if_changed(self, t: float, without_markers: bool) -> bool:
        """The outlook is worth a notice now; asked once a look, and taken as told when it is."""
        news = self._is_news(t, without_markers)
        if news:
            self._last_reported = (t, self._eta, self.outlook.verdict)
        return news

    @property
    def _eta(self) -> float | None:
        return self.outlook.forecast.eta_seconds if self.outlook.forecast is not None else None

    def _is_news(self, t: float, without_markers: bool) -> bool:
        if self._last_reported is None:
            return True
        told_t, told_eta, told_verdict = self._last_reported
        since, eta = t - told_t, self._eta
        if self.outlook.verdict is not told_verdict:
            return True
        if since < FORECAST_FLOOR_SECONDS:
            return False
        if (eta is None) != (told_eta is None):
            return True
        if eta is not None and told_eta is not None:
            expected = told_eta - since
            if abs(eta - expected) > ETA_CHANGE * max(abs(expected), FORECAST_FLOOR_SECONDS):
                return True
        return without_markers and since >= FORECAST_SHARE * (t - self.first_t)

    def update_warning(self, t: float, policy: Policy, step_seconds: float | None) -> bool:
        """Begin or end the warning when there has been reason to for long enough; True: `warned` has just changed."""
        verdict, forecast = self.outlook.verdict, self.outlook.forecast
        if run_ends_first(forecast, self._last_generation):
            reason = self.warned
        else:
            reason = (should_withdraw_warning if self.warned else should_warn)(policy, verdict, forecast, step_seconds)
        if not reason:
            self._turned_t = None
            if not self.warned:
                self.quiescent_until = min(
                    self.quiescent_until, t + seconds_until_warning(policy, verdict, forecast, step_seconds)
                )
            return False
        if self._turned_t is None:
            self._turned_t = t
        if t - self._turned_t < warning_hold_seconds(forecast):
            self.quiescent_until = min(self.quiescent_until, self._turned_t + warning_hold_seconds(forecast))
            return False
        self.warned, self._turned_t = not self.warned, None
        return True


def _used_bytes_at_limit(usage: Usage) -> int:
    """Bytes in use at which the limit is met."""
    return 0 if usage.limit is None else usage.used_bytes + usage.limit.headroom_bytes


def _origin(usage: Usage) -> str | None:
    return None if usage.limit is None else usage.limit.origin


@dataclass(frozen=True, slots=True)
class InterruptDecision:
    """Interrupt now, because of this resource."""

    resource: MonitoredResource
    kind: str  # "emergency", "time", "boundary", "saved"
    rate: float = 0.0  # bytes/s of an emergency

    @property
    def seconds_left(self) -> float:
        """Until the room that is left is gone, at the rate of an emergency; infinite where there is room otherwise."""
        limit = self.resource.usage.limit
        if self.is_exceeded:
            return 0.0
        return math.inf if limit is None or self.rate <= 0.0 else limit.headroom_bytes / self.rate

    @property
    def is_exceeded(self) -> bool:
        """More is in use than the limit allows: it was lowered."""
        limit = self.resource.usage.limit
        return limit is not None and limit.headroom_bytes < 0
