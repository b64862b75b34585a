"""One resource as the engine follows it: its samples, its latest outlook and its latest notice."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import sub

from memwatch.core.decision.burst_detector import BurstDetector, ClimbDetector
from memwatch.core.decision.policy import Policy, reaches_limit
from memwatch.core.decision.warning import LimitWarning
from memwatch.core.forecast.outlook import (
    LIMIT_CHANGE_SHARE,
    WARMING_UP,
    ForecasterProtocol,
    GrowthOfAll,
    Outlook,
    UseByOthers,
)
from memwatch.core.leaks.growth_attribution import NeighbourGrowthTracker
from memwatch.core.measurements import Limit, Usage
from memwatch.core.memory_accounting import is_cgroups
from memwatch.core.robust_statistics import robust_sd, straight_line
from memwatch.core.sample_windows import WINDOW_SAMPLES, PeakRate
from memwatch.core.snapshot import Gauge, NeighbourGrowth, TimelineStep, Verdict

MAX_STEPS = 240  # Steps of a timeline; beyond this, pairs of steps are merged (chosen).
INITIAL_STEP_SECONDS = 0.25  # The length of a step at the start of the watch (chosen).


class Timeline:
    """Memory over a whole watch, in a bounded number of steps of equal length; steps without a sample are left out."""

    def __init__(self, began_t: float) -> None:
        self._began_t, self._seconds = began_t, INITIAL_STEP_SECONDS
        self._ended: list[TimelineStep] = []
        self._open: tuple[int, int, int] | None = None  # number of the step, the least and the most in it

    def add_samples(self, times: Sequence[float], used: Sequence[int]) -> None:
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
            if earlier >= index:  # The clock was set back: this belongs to the open step.
                index, least, most = earlier, min(least, lower), max(most, upper)
            else:
                self._ended.append(self._step(*self._open))
        self._open = index, least, most

    def _step(self, index: int, least: int, most: int) -> TimelineStep:
        return TimelineStep(self._began_t + index * self._seconds, self._seconds, least, most)

    def _halve(self) -> None:
        steps, self._ended, self._open = self.steps(), [], None
        self._seconds *= 2.0
        for one in steps:
            self._put(int((one.t + 0.5 * one.seconds - self._began_t) / self._seconds), one.least_bytes, one.most_bytes)

    def steps(self) -> tuple[TimelineStep, ...]:
        """The steps with a sample, oldest first."""
        return (*self._ended, self._step(*self._open)) if self._open is not None else ()


MAX_PENDING_SAMPLES = 16  # Single samples that wait at most: added together, each costs a fifth (measured).
OTHERS_SAMPLES = 63  # Latest samples from which the spread of the others' usage is estimated (chosen).
DECISION_SAMPLES = 16  # Latest samples that are reported with a decision (chosen).
FORECAST_SHARE = 0.02  # Without markers, forecast notices are at least this share of the time watched apart (chosen).
FORECAST_FLOOR_SECONDS = 5.0  # Forecast notices of the same verdict are at least this far apart (chosen).
ETA_CHANGE = 0.10  # A forecast whose time has moved by this share is worth a notice (chosen).
OTHERS_MATTER = 0.25  # Of the headroom: others that have taken so much may take the rest, too (chosen).
CHECKPOINTS = 5  # Latest checkpoints whose use of memory is remembered (chosen).
CHECKPOINT_SHARE = 0.003  # Share of the limit that a checkpoint is expected to need at least (chosen).
MIN_STEP_BYTES = 1 << 20  # Where other memory is counted from now on, a smaller step may be growth (chosen).
CHECKPOINT_MARGIN = 1.05  # The expected need is this many times the measured one, because checkpoints vary (chosen).


class MonitoredResource:
    """One resource of the trainer, over all its processes.

    Single samples wait in `_pending` and are added to the forecaster, the timeline and the burst detectors together.
    Their properties first add the waiting samples, so a caller finds every sample in them. A sample that rises faster
    than any recent one does not wait, because the fastest rise must be known at once.
    """

    def __init__(
        self,
        usage: Usage,
        new_forecaster: Callable[[], ForecasterProtocol],
        t: float,
        neighbours: NeighbourGrowthTracker | None = None,
        *,
        started_t: float = math.inf,
    ) -> None:
        """`started_t`: when its process began, where that is before the watch."""
        self.usage, self._neighbours, self._new_forecaster = usage, neighbours, new_forecaster
        self._forecaster, self._timeline = new_forecaster(), Timeline(t)
        self._pending: list[tuple[float, int, int]] = []  # time, bytes in use, bytes of the limit that anybody uses
        self.latest: deque[tuple[float, int, int]] = deque(maxlen=DECISION_SAMPLES)  # the same
        self.fastest = 0.0  # bytes per second: the headroom has not recently shrunk faster
        self._checkpoints: deque[tuple[int, int]] = deque(maxlen=CHECKPOINTS)  # bytes each took, at least and at most
        self.begin_process(usage.used_bytes, t, started_t)

    def begin_attempt(self, t: float) -> None:
        """Its process is gone; the next sample is another's."""
        self.forecaster.restart(t)
        self.begin_process(self.usage.used_bytes, t)

    def begin_process(self, used_bytes: int, t: float, started_t: float = math.inf) -> None:
        """The watch of a process begins with this sample."""
        self.started_t = min(t, started_t)
        self.reset_limit()
        self._last = t, used_bytes, used_bytes
        self._fast_steps = 0  # samples for which a fast step may still make a rise faster
        self.latest.clear()
        self.first_t = self._t = self._outlook_t = t
        self.first_bytes = self.peak = used_bytes
        self._offset = 0  # bytes that the forecaster is given more than are in use: steps that were no growth
        self._offsets = {self.usage.limit.origin if is_cgroups(self.usage.limit) else "": 0}  # by the way of counting
        self.outlook = self._reported_outlook = WARMING_UP  # to decide by, and to tell people
        self.growth_is_no_leak = False  # by its cause, as of a model that gains trees
        self._warning = LimitWarning()
        self.outlook_valid_until = self._valid_below = -math.inf  # seconds, bytes: before and below, it stays the same
        self._outlook_limit_at = 0  # bytes in use at which the limit was reached, when the outlook was made
        self._last_generation: float | None = None
        self._reported: tuple[float, float | None, Verdict] | None = None  # time, eta and verdict of the last notice
        self._checkpoint: tuple[int, int] | None = None  # in use when one was begun, and at most since then
        self._completed: tuple[int, int] | None = None  # the same of one that is complete, until the next sample

    # --- samples ---

    def reset_limit(self) -> None:
        """The use of the limit is counted in another way from now on: the step is no growth."""
        self._flush()
        self._burst, self._climb, self._limit_rate = BurstDetector(), ClimbDetector(), PeakRate()
        self._others: deque[int] = deque(maxlen=OTHERS_SAMPLES)
        self._limit_lowered = 0  # bytes, since then
        self._least_others = math.inf  # bytes of the limit that others used, at the least
        self._others_forecaster: ForecasterProtocol | None = None  # of what they use

    def add_sample(self, t: float, usage: Usage) -> None:
        used, limit, known_limit = usage.used_bytes, usage.limit, self.usage.limit
        if (None if limit is None else limit.origin) != (None if known_limit is None else known_limit.origin):
            self.reset_limit()
            if is_cgroups(limit) or is_cgroups(known_limit):
                self._count_by(limit.origin if is_cgroups(limit) else "", t, used)
        elif limit is not None and known_limit is not None:
            self._limit_lowered += known_limit.bytes - limit.bytes
        self.usage, self._t = usage, t
        limit_used = self.limit_used_bytes
        if used > self.peak:
            self.peak = used
        if self._checkpoint is not None or self._completed is not None:
            self._follow_checkpoint(used, used)
        before_t, before_used, before_limit_used = self._last
        known_rise = self.fastest * (t - before_t)
        is_fast = used - before_used > known_rise or limit_used - before_limit_used > known_rise
        self._fast_steps = WINDOW_SAMPLES if is_fast else self._fast_steps - 1
        self._last = sample = t, used, limit_used
        self.latest.append(sample)
        self._pending.append(sample)
        if self._fast_steps > 0 or len(self._pending) >= MAX_PENDING_SAMPLES:
            self._flush()

    def _count_by(self, origin: str, t: float, used: int) -> None:
        """Level the step between two ways of counting: a cgroup that is shared holds more than the job, at once.

        `origin`: of a cgroup's limit; empty: the job is counted. A way that was left and comes again goes on.
        """
        before_t, before, _ = self._last
        step = used - before
        if origin not in self._offsets:
            is_step = abs(step) > max(MIN_STEP_BYTES, 2 * self.fastest * (t - before_t))
            self._offsets[origin] = self._offset - (step if is_step else 0)
        change = self._offset - self._offsets[origin]
        self._offset -= change
        self.peak += change
        self.first_bytes += change
        self._last = before_t, before + change, before + change
        self.invalidate_outlook()

    def add_samples(self, times: Sequence[float], used: Sequence[int], limit_used: Sequence[int], usage: Usage) -> None:
        """Add samples in order under one limit. `limit_used`: its bytes that anybody uses; `usage`: the last sample."""
        highest = max(used)
        self.usage, self.peak, self._t = usage, max(self.peak, highest), times[-1]
        self._follow_checkpoint(used[0], highest)
        if self._limit_lowered:
            limit_used = [each + self._limit_lowered for each in limit_used]
        last = slice(-DECISION_SAMPLES, None)
        self.latest.extend(zip(times[last], used[last], limit_used[last], strict=True))
        self._flush()
        self._last = times[-1], used[-1], limit_used[-1]
        self._accumulate(times, used, limit_used)

    def _flush(self) -> None:
        if self._pending:
            times, used, limit_used = zip(*self._pending, strict=True)
            self._pending.clear()
            self._accumulate(times, used, limit_used)

    def _accumulate(self, times: Sequence[float], used: Sequence[int], limit_used: Sequence[int]) -> None:
        offset = self._offset
        self._forecaster.add_samples(times, [each + offset for each in used] if offset else used)
        self._timeline.add_samples(times, used)
        self._burst.add_samples(times, limit_used)
        self._climb.add_samples(times, limit_used)
        if limit_used != used:
            self._limit_rate.add_samples(times, limit_used)
            others = list(map(sub, limit_used, used))
            self._others.extend(others[-OTHERS_SAMPLES:])
            self._least_others = min(self._least_others, *others)
            if self._others_forecaster is None:
                self._others_forecaster = self._new_forecaster()
            self._others_forecaster.add_samples(times, others)
        self.fastest = max(self._forecaster.peak_rate(), self._limit_rate.fastest)

    @property
    def forecaster(self) -> ForecasterProtocol:
        self._flush()
        return self._forecaster

    @property
    def timeline(self) -> Timeline:
        self._flush()
        return self._timeline

    @property
    def burst(self) -> BurstDetector:
        self._flush()
        return self._burst

    @property
    def climb(self) -> ClimbDetector:
        self._flush()
        return self._climb

    @property
    def climb_record(self) -> int:
        """Bytes of the limit that were used before the climb under way.

        A lower bound, as pending samples are not added for it; where the limit was lowered, as if it had been before.
        """
        return self._climb.record - self._limit_lowered

    @property
    def other_usage_sd_bytes(self) -> float:
        """Standard deviation of the others' usage of the limit around its trend."""
        self._flush()
        return robust_sd(straight_line(range(len(self._others)), self._others).residuals) if self._others else 0.0

    @property
    def neighbour_growth(self) -> NeighbourGrowth | None:
        """Growth that is not of the trainer's own tree: of others too where the limit is a cgroup's."""
        if self._neighbours is None:
            return None
        return self._neighbours.growth(counts_others=is_cgroups(self.usage.limit))

    @property
    def limit_used_bytes(self) -> int:
        """Bytes that are gone of the first limit: anybody uses them, or it was lowered."""
        limit = self.usage.limit
        taken = self.usage.used_bytes if limit is None else limit.bytes - limit.headroom_bytes
        return taken + self._limit_lowered

    def recent_rise_bytes(self, seconds: float) -> int:
        """Bytes of the limit that anybody took within so many seconds, as far as the latest samples show."""
        now, _, limit_used = self.latest[-1]
        return limit_used - min(earlier for t, _, earlier in self.latest if t >= now - seconds)

    # --- checkpoints ---

    def checkpoint_started(self) -> None:
        """A checkpoint is being written from now on; one that was started before and never completed is forgotten."""
        self._checkpoint = self.usage.used_bytes, self.usage.used_bytes

    def checkpoint_completed(self, is_whole: bool) -> None:
        """The checkpoint is complete; `is_whole`: it was seen from its beginning."""
        self._completed, self._checkpoint = self._checkpoint if is_whole else None, None

    def _follow_checkpoint(self, first: int, highest: int) -> None:
        """Follow the next samples, by the first and the highest of them.

        The memory that a checkpoint takes lies between the rise while it was written and the release after it.
        """
        if self._checkpoint is not None:
            self._checkpoint = self._checkpoint[0], max(self._checkpoint[1], highest)
        elif self._completed is not None:
            begun, most = self._completed
            self._checkpoints.append((max(0, most - max(begun, first)), max(0, most - min(begun, first))))
            self._completed = None
            self.invalidate_outlook()

    @property
    def measured_checkpoint_bytes(self) -> int:
        """Memory that a checkpoint took, by measurement: the highest lower bound, or the least upper one if higher."""
        least = [low for low, _ in self._checkpoints]
        return max(*least, min((high for _, high in self._checkpoints), default=0), 0)

    @property
    def expected_checkpoint_bytes(self) -> float:
        limit = self.usage.limit
        least = 0 if limit is None else CHECKPOINT_SHARE * limit.bytes
        return CHECKPOINT_MARGIN * max(self.measured_checkpoint_bytes, least)

    # --- the outlook ---

    def begin_generation(self, t: float, index: float) -> None:
        """A generation begins: the next outlook is worth a notice."""
        self.forecaster.begin_generation(t, index)
        self._reported = None

    def update_outlook(self, t: float, last_generation: float | None, gauges: Sequence[Gauge]) -> None:
        self._last_generation, self._outlook_t = last_generation, t
        limit, forecaster = self.usage.limit, self.forecaster
        others = None if limit is None else self._growth_of_others(t, limit)
        outlook = forecaster.outlook(
            t,
            None if limit is None else limit.bytes,
            None if limit is None else limit.headroom_bytes,
            last_generation,
            gauges,
            save_bytes=self.expected_checkpoint_bytes,
            others=UseByOthers(self.other_usage_sd_bytes, None if others is None else others.growth.growth_ahead()),
        )
        if self.growth_is_no_leak and outlook.verdict is Verdict.LEAK:
            outlook = replace(outlook, verdict=Verdict.GROWING)
        self.outlook_valid_until = outlook.valid_until
        self._valid_below = outlook.valid_below_bytes - self._offset
        self._outlook_limit_at = 0 if limit is None else self.usage.used_bytes + limit.headroom_bytes
        self.outlook = self._reported_outlook = outlook
        if others is None:
            return
        self.outlook_valid_until = min(outlook.valid_until, others.valid_until)
        growth, rate = GrowthOfAll(outlook.growth, others.growth), _growth_per_second(others)
        self._reported_outlook = replace(outlook, growth=growth, others_per_second=rate)
        self.outlook = replace(self._reported_outlook, drivers=())  # what fits beside others that stay as they are
        if rate > _growth_per_second(outlook):
            seen = others.growth_seen_seconds
            self.outlook = replace(self.outlook, verdict=others.verdict, trend=others.trend, growth_seen_seconds=seen)

    def _growth_of_others(self, t: float, limit: Limit) -> Outlook | None:
        """The outlook of all others, where they take more and more of the limit."""
        taken, forecaster = self._others_bytes, self._others_forecaster
        if forecaster is None or taken - self._least_others < OTHERS_MATTER * limit.headroom_bytes:
            return None
        others = forecaster.outlook(t, taken + limit.headroom_bytes, limit.headroom_bytes, None)
        return others if reaches_limit(others.verdict, others.forecast) else None

    @property
    def _others_bytes(self) -> int:
        return self.limit_used_bytes - self.usage.used_bytes

    def invalidate_outlook(self) -> None:
        """Something has happened that may change the outlook: the next sample needs a new one."""
        self.outlook_valid_until = -math.inf

    def outlook_valid_below(self, usage: Usage) -> float:
        """Bytes in use below which the outlook stays the same: the fewer, the further the limit has moved since."""
        if usage.limit is None:
            return self._valid_below
        limit_at = usage.used_bytes + usage.limit.headroom_bytes
        return min(self._valid_below, limit_at - abs(limit_at - self._outlook_limit_at) / LIMIT_CHANGE_SHARE)

    @property
    def outlook_times(self) -> tuple[float, float]:
        """When the latest outlook was made, and how old it is at the latest sample."""
        return self._outlook_t, max(0.0, self._t - self._outlook_t)

    @property
    def is_outlook_valid(self) -> bool:
        """Another outlook, made at the latest sample, would say the same."""
        return self._t < self.outlook_valid_until and self.usage.used_bytes < self.outlook_valid_below(self.usage)

    @property
    def current_outlook(self) -> Outlook:
        """The latest outlook of the trainer, with its times counted from the latest sample."""
        outlook, passed = self._reported_outlook, self._t - self._outlook_t
        if outlook.forecast is None or passed <= 0.0:
            return outlook
        return replace(outlook, forecast=outlook.forecast.after(passed))

    def mark_reported_if_changed(self, t: float, without_markers: bool) -> bool:
        """Whether the outlook is worth a notice now; if so, it counts as reported. Call it once for each outlook."""
        eta = self.outlook.forecast.eta_seconds if self.outlook.forecast is not None else None
        changed = self._has_changed(t, eta, without_markers)
        if changed:
            self._reported = (t, eta, self._reported_outlook.verdict)
        return changed

    def _has_changed(self, t: float, eta: float | None, without_markers: bool) -> bool:
        if self._reported is None:
            return True
        reported_t, reported_eta, reported_verdict = self._reported
        since = t - reported_t
        if self._reported_outlook.verdict is not reported_verdict:
            return True
        if since < FORECAST_FLOOR_SECONDS:
            return False
        if (eta is None) != (reported_eta is None):
            return True
        if eta is not None and reported_eta is not None:
            expected = reported_eta - since
            if abs(eta - expected) > ETA_CHANGE * max(abs(expected), FORECAST_FLOOR_SECONDS):
                return True
        return without_markers and since >= FORECAST_SHARE * (t - self.first_t)

    @property
    def warned(self) -> bool:
        """People are warned that the limit is near."""
        return self._warning.is_given

    @property
    def warning_held_seconds(self) -> float:
        """For so long there had been reason before the warning was given or withdrawn last."""
        return self._warning.held_seconds

    def update_warning(self, t: float, policy: Policy, step_seconds: float | None) -> bool:
        """Give or withdraw the warning, by the latest outlook; True: `warned` has just changed."""
        changed = self._warning.update(t, policy, self.outlook, self._last_generation, step_seconds)
        self.outlook_valid_until = min(self.outlook_valid_until, self._warning.next_check_t)
        return changed


def _growth_per_second(outlook: Outlook) -> float:
    return 0.0 if outlook.trend is None else outlook.trend.growth_per_second
