"""Samples in bulk: those that can change nothing are added up many at a time, as if each had been processed.

A recording comes in batches (`SampleBatch`). `FastForward` finds the part of a batch that can change nothing: no
resource's outlook becomes invalid (`QuiescentPeriod`) and no growth may be an emergency. That part goes to the
accumulators at once; the next sample is processed as a single event. A live watch comes with one sample at a time,
which waits in `SampleAccumulators` until somebody asks for what they add up to. Without this file a replay would take
several times as long, and decide the same.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from operator import sub
from typing import TYPE_CHECKING

from memwatch.core.decision.burst_detector import BurstDetector, RampDetector
from memwatch.core.events import Sampled
from memwatch.core.forecast.outlook import LIMIT_CHANGE_SHARE, ForecasterProtocol, Outlook
from memwatch.core.measurements import Limit, Sample, Usage
from memwatch.core.robust_statistics import robust_sd
from memwatch.core.sample_windows import WINDOW_SAMPLES, PeakRate

if TYPE_CHECKING:
    from memwatch.core.engine.memory_monitor import ResourceMonitor
    from memwatch.core.engine.resource_state import MonitoredResource, Timeline

MAX_PENDING_SAMPLES = 16  # that wait at most: taken together, each costs a fifth
OTHERS_SAMPLES = 63  # latest samples that show how much the usage of others goes up and down


# --- recorded samples -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UsageSeries:
    """Consecutive samples of one resource under one limit."""

    resource: str
    used: Sequence[int]  # bytes
    limit_bytes: int | None
    origin: str
    limit_used: Sequence[int] | None = None  # bytes of the limit that anybody uses; None: the same as `used`

    def usage_at(self, i: int) -> Usage:
        used, limit = self.used[i], self.limit_bytes
        if limit is None:
            return Usage(self.resource, used, None)
        taken = used if self.limit_used is None else self.limit_used[i]
        return Usage(self.resource, used, Limit(limit, self.origin, limit - taken))

    def continues(self, usage: Usage) -> bool:
        """The series has the limit of the usage, and shows as much of it."""
        limit = usage.limit
        if limit is None or self.limit_bytes is None:
            return limit is None and self.limit_bytes is None
        shows_enough = self.limit_used is not None or limit.headroom_bytes == limit.bytes - usage.used_bytes
        return shows_enough and (limit.bytes, limit.origin) == (self.limit_bytes, self.origin)


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Consecutive recorded samples, with no other event between them."""

    times: Sequence[float]  # seconds, in order
    series: tuple[UsageSeries, ...]  # each of as many samples
    accounting: str | None = None  # of all of them

    def event_at(self, i: int) -> Sampled:
        usages = tuple([series.usage_at(i) for series in self.series])
        return Sampled(self.times[i], Sample(usages, accounting=self.accounting))


# --- what can change nothing ----------------------------------------------------------------------------------------


class QuiescentPeriod:
    """Until when, and below how many bytes in use, another outlook of a resource would say the same."""

    def __init__(self) -> None:
        self.until = self._below = -math.inf
        self._limit_at = 0  # bytes in use at which the limit was reached, when the outlook was made

    def begin(self, outlook: Outlook, usage: Usage) -> None:
        self.until, self._below, self._limit_at = outlook.valid_until, outlook.valid_below_bytes, _limit_at(usage)

    def end_by(self, t: float) -> None:
        self.until = min(self.until, t)

    def invalidate(self) -> None:
        """Something has happened that an outlook may change with: the next sample needs a new one."""
        self.until = -math.inf

    def holds(self, t: float, usage: Usage) -> bool:
        return t < self.until and usage.used_bytes < self.below_bytes(usage)

    def below_bytes(self, usage: Usage) -> float:
        """The further the limit has moved since the outlook, the fewer."""
        if usage.limit is None:
            return self._below
        limit_at = _limit_at(usage)
        return min(self._below, limit_at - abs(limit_at - self._limit_at) / LIMIT_CHANGE_SHARE)


def _limit_at(usage: Usage) -> int:
    """Bytes in use at which the limit is reached; 0 without one."""
    return 0 if usage.limit is None else usage.used_bytes + usage.limit.headroom_bytes


class FastForward:
    """Adds samples in bulk to the resources of a monitor."""

    def __init__(self, monitor: ResourceMonitor) -> None:
        self._monitor = monitor

    def is_quiescent(self, t: float, resources: Sequence[MonitoredResource]) -> bool:
        """The latest sample, of these resources, can change nothing."""
        return self._monitor.is_idle and all(
            t < resource.quiescence.until and resource.usage.used_bytes < self._below_bytes(resource, resource.usage)
            for resource in resources
        )

    def _below_bytes(self, resource: MonitoredResource, usage: Usage) -> float:
        safe_below = self._monitor.decision_maker.safe_below_bytes(usage)
        return min(resource.quiescence.below_bytes(usage), safe_below)

    def add_samples(self, batch: SampleBatch, first: int, last: int, decide_from_t: float) -> int:
        """Add the samples from `first` to before `last` that can change nothing; the index of the next.

        The samples before `decide_from_t` are added whatever they show.
        """
        if self._monitor.has_episode:
            return first
        resources = self._continued_resources(batch)
        if not resources:
            return first
        end = bisect_left(batch.times, decide_from_t, first)
        if self._monitor.is_idle:
            end = max(end, self._quiescent_end(batch, resources, first))
        end = min(end, last)
        if end > first:
            part = slice(first, end)
            used = [series.used[part] for series in batch.series]
            taken = [None if series.limit_used is None else series.limit_used[part] for series in batch.series]
            self._monitor.add_samples(batch.times[part], batch.event_at(end - 1).sample, used, taken)
        return end

    def _continued_resources(self, batch: SampleBatch) -> list[MonitoredResource]:
        """The resources of the batch; none when the batch does not continue what was last seen of each."""
        monitor, names = self._monitor, [series.resource for series in batch.series]
        if batch.accounting != monitor.accounting or not monitor.sampled_resources.issuperset(names):
            return []
        resources = [monitor.resources[name] for name in names]
        continued = (series.continues(one.usage) for one, series in zip(resources, batch.series, strict=True))
        return resources if all(continued) else []

    def _quiescent_end(self, batch: SampleBatch, resources: Sequence[MonitoredResource], first: int) -> int:
        """The first sample from `first` on that may change something."""
        end = bisect_left(batch.times, min(resource.quiescence.until for resource in resources), first)
        for resource, series in zip(resources, batch.series, strict=True):
            end = self._end_below(resource, series, first, end)
        return end

    def _end_below(self, resource: MonitoredResource, series: UsageSeries, first: int, end: int) -> int:
        """The first sample from `first` on, before `end`, with too much in use."""
        if series.limit_used is not None:
            usages = ((i, series.usage_at(i)) for i in range(first, end))
            return next((i for i, usage in usages if usage.used_bytes >= self._below_bytes(resource, usage)), end)
        below = self._below_bytes(resource, resource.usage)  # the same for all samples of the series
        if end > first and max(series.used[first:end]) >= below:
            end = next(i for i in range(first, end) if series.used[i] >= below)
        return end


# --- accumulators ---------------------------------------------------------------------------------------------------


class SampleAccumulators:
    """All that adds up the samples of one resource. Who asks for one of them finds every sample in it.

    Single samples wait, unless one rises faster than any recent one: then the fastest rise must be known at once.
    """

    def __init__(self, forecaster: ForecasterProtocol, timeline: Timeline, t: float, used: int) -> None:
        self._forecaster, self._timeline = forecaster, timeline
        self._pending: list[tuple[float, int, int]] = []  # time, bytes in use, bytes used of the limit by anybody
        self.fastest = 0.0  # bytes per second: the headroom has not recently shrunk faster
        self._begin_process(t, used)

    def reset_limit(self) -> None:
        """What is used of the limit is counted in another way from now on: the step is no growth."""
        self._flush()
        self._burst, self._ramp, self._limit_rate = BurstDetector(), RampDetector(), PeakRate()
        self._others: deque[int] = deque(maxlen=OTHERS_SAMPLES)

    def _begin_process(self, t: float, used: int) -> None:
        self.reset_limit()
        self._last = t, used, used
        self._fast_steps = 0  # samples for which a fast step may still make a rise faster

    def _add_later(self, t: float, used: int, taken: int) -> None:
        """Add a sample; `taken` is what is used of the limit, by anybody."""
        before_t, before_used, before_taken = self._last
        known = self.fastest * (t - before_t)
        is_fast = used - before_used > known or taken - before_taken > known
        self._fast_steps = WINDOW_SAMPLES if is_fast else self._fast_steps - 1
        self._last = t, used, taken
        self._pending.append(self._last)
        if self._fast_steps > 0 or len(self._pending) >= MAX_PENDING_SAMPLES:
            self._flush()

    def _add_now(self, times: Sequence[float], used: Sequence[int], taken: Sequence[int]) -> None:
        """Add samples, in order."""
        self._flush()
        self._last = times[-1], used[-1], taken[-1]
        self._add(times, used, taken)

    def _flush(self) -> None:
        if self._pending:
            times, used, taken = zip(*self._pending, strict=True)
            self._pending.clear()
            self._add(times, used, taken)

    def _add(self, times: Sequence[float], used: Sequence[int], taken: Sequence[int]) -> None:
        self._forecaster.add_samples(times, used)
        self._timeline.add_samples(times, used)
        self._burst.add_samples(times, taken)
        self._ramp.add_samples(times, taken)
        if taken != used:
            self._limit_rate.add_samples(times, taken)
            self._others.extend(map(sub, taken[-OTHERS_SAMPLES:], used[-OTHERS_SAMPLES:]))
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
    def ramp(self) -> RampDetector:
        self._flush()
        return self._ramp

    @property
    def other_usage_sd_bytes(self) -> float:
        """Standard deviation of what others use of the limit."""
        self._flush()
        return robust_sd(self._others)
