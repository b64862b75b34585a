"""Growth that no forecast knows of: judged at each reading, before anything else is.

How little room must be left for a look to be wanted at once: levels that the kernel can watch between two looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memwatch.core.decision.policy import (
    ESTABLISHED_GENERATIONS,
    PACE_FLOOR_SECONDS,
    STARTUP_LEADS,
    Policy,
    is_past_startup,
    reaches_limit,
)
from memwatch.core.engine.monitored_resource import InterruptDecision, MonitoredResource
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.measurements import Limit, Usage

CONFIRMING_SAMPLES = 3  # the later ones higher than the first
APPROACH_GUARDS = 2.0  # times the guard: a burst's looks count from there on, and a ramp is acted upon: it is surer
LAST_CHANCE_SECONDS = 0.25  # before the end: the last that a program hears; it is told even when it has little to save
CONFIRM_SECONDS = CONFIRMING_SAMPLES * PACE_FLOOR_SECONDS  # where less time is left, the first look is the last
LONG_SEEN_SECONDS = 0.25  # between two looks: growth over so long is no single allocation
LOAD_FACTOR = 2.0  # a program that has multiplied since the first reading, and that soon, is still loading
TREND_FACTOR = 1.5  # growth at no more than this times the forecast's rate is the forecast's to judge


@dataclass(frozen=True, slots=True)
class _BurstState:
    """What one look says."""

    rate: float  # bytes/s
    looks: int = CONFIRMING_SAMPLES  # that must say so
    beyond_bytes: float = 0.0  # how far from the moment to act a look is that counts all the same
    is_ramp: bool = False  # seen over as long as a checkpoint takes

    @property
    def is_due(self) -> bool:
        return self.beyond_bytes <= 0.0


@dataclass(frozen=True, slots=True)
class _PendingBurst:
    t: float
    taken_bytes: int
    last_bytes: int  # of the latest of them
    ripe: bool
    looks: int = 1  # that have said so, one after the other


class EmergencyDetector:
    """Watches for bursts and ramps of one trainer process. Reads the ledger that the engine keeps."""

    def __init__(self, policy: Policy, ledger: GenerationLedger) -> None:
        self._policy, self._ledger = policy, ledger
        self._firsts: dict[str, _PendingBurst] = {}  # by resource
        self.next_sample_seconds: float | None = None  # until the next look, at most; None: none is wanted

    def reset(self) -> None:
        """No interrupt can begin now: what was being considered is void."""
        self._firsts.clear()
        self.next_sample_seconds = None

    def safe_below_bytes(self, usage: Usage) -> float:
        """Bytes in use below which no growth is an emergency."""
        limit = usage.limit
        if limit is None:
            return math.inf
        return usage.used_bytes + limit.headroom_bytes - APPROACH_GUARDS * self._policy.headroom_guard * limit.bytes

    def decide(self, t: float, tracks: Sequence[MonitoredResource], lead: float) -> InterruptDecision | None:
        """Whether to interrupt at this look, which earlier ones must have asked for too."""
        found, waits = None, []
        for track in tracks:
            danger = self._danger(t, track, lead)
            if danger is None:
                self._firsts.pop(track.usage.resource, None)
                continue
            if self._confirms(t, track, danger, lead) and danger.is_due and found is None:
                found = InterruptDecision(track, "emergency", danger.rate)
            waits.append(self._wait(t, danger, self._firsts[track.usage.resource]))
        self.next_sample_seconds = min(waits, default=None)
        return found

    def _wait(self, t: float, danger: _BurstState, first: _PendingBurst) -> float:
        """Until the moment to act or, past it, until a look that may be the last: at once when it was long seen."""
        if not danger.is_due:
            return danger.beyond_bytes / danger.rate
        seen = first.looks > 1 and t - first.t >= LONG_SEEN_SECONDS
        return PACE_FLOOR_SECONDS if seen else self._policy.second_look_seconds

    def _danger(self, t: float, track: MonitoredResource, lead: float) -> _BurstState | None:
        limit = track.usage.limit
        track.ramp.set_window_seconds(lead)
        if limit is None or track.usage.used_bytes < self.safe_below_bytes(track.usage):
            return None
        guard, left = self._policy.headroom_guard * limit.bytes, limit.headroom_bytes
        foreseen = reaches_limit(track.outlook.verdict, track.outlook.forecast, finishing=True)
        burst = track.burst.threat_rate(left, limit.bytes, lead)
        ramp = 0.0 if foreseen else track.ramp.threat_rate(left)
        if left <= guard and left < burst * LAST_CHANCE_SECONDS:
            return _BurstState(burst, CONFIRMING_SAMPLES if left > burst * CONFIRM_SECONDS else 1)
        rate = max(burst, ramp)
        if rate == 0.0 or self._has_little_to_save(t, track, lead) or self._is_usual(track, left, lead):
            return None
        trend = track.outlook.trend
        if foreseen and trend is not None and rate <= TREND_FACTOR * trend.growth_per_second:
            return None
        return _BurstState(rate, is_ramp=True) if ramp > 0.0 else _BurstState(rate, beyond_bytes=left - guard)

    def _is_usual(self, track: MonitoredResource, headroom_bytes: int, lead: float) -> bool:
        """Memory is not above what it was in this part of other generations."""
        ends = track.outlook.time_to_limit
        if ends is None or ends.short_horizon is None or ends.cycles_seen < ESTABLISHED_GENERATIONS:
            return False
        return headroom_bytes >= ends.short_horizon.usual_headroom(lead)

    def _has_little_to_save(self, t: float, track: MonitoredResource, lead: float) -> bool:
        """Jumps are usual in the first generations, and while a program loads."""
        watched = t - track.first_t
        few = self._ledger.complete_generations < ESTABLISHED_GENERATIONS and not is_past_startup(watched, lead)
        if not self._ledger.has_no_markers(t):
            return few or watched < STARTUP_LEADS * lead
        return (
            few and self._ledger.complete_generations == 0 and track.usage.used_bytes > LOAD_FACTOR * track.first_bytes
        )

    def _confirms(self, t: float, track: MonitoredResource, danger: _BurstState, lead: float) -> bool:
        """As many looks as are wanted have said so, this one the last; what is said now is the first otherwise."""
        resource, taken = track.usage.resource, track.limit_used_bytes
        first = self._firsts.get(resource)
        stayed = first is not None and not first.ripe and t > first.t and taken <= first.last_bytes
        if first is None or stayed:  # a step on the way is no burst
            self._firsts[resource] = _PendingBurst(t, taken, taken, danger.is_due)
            return danger.looks == 1
        if t <= first.t or taken <= first.taken_bytes or not (danger.is_ramp or _goes_on(t, track, lead, first)):
            return False
        self._firsts[resource] = replace(first, looks=first.looks + 1, last_bytes=taken)
        return first.looks + 1 >= danger.looks


def _goes_on(t: float, track: MonitoredResource, lead: float, first: _PendingBurst) -> bool:
    """What memory has risen by since the first look meets the limit within the lead, or it was a step that stays."""
    limit = track.usage.limit
    return limit is None or (track.limit_used_bytes - first.taken_bytes) * lead > limit.headroom_bytes * (t - first.t)


GUARDS = (APPROACH_GUARDS, 1.5, 1.0, 0.5, 0.25)  # times the guard against bursts: looks that count, the guard, the end
HALVINGS = 4  # of the room above the highest use so far, down to the first of those


def wake_thresholds(limit: Limit, used_bytes: int, peak_bytes: int, guard: float) -> tuple[int, ...]:
    """Bytes of headroom, the most first.

    Below what memory reaches again and again nobody need be woken: the levels divide the room above the highest use so
    far, and follow it as it grows.
    """
    guarded = [share * guard * limit.bytes for share in GUARDS if guard > 0.0]
    above = limit.headroom_bytes - (peak_bytes - used_bytes)
    halves = [above * 0.5**n for n in range(1, HALVINGS + 1)]
    most = guarded[0] if guarded else 0.0
    return tuple([int(room) for room in (*[half for half in halves if half > most], *guarded)])
