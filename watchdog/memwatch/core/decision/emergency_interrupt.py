"""Emergencies: growth that no forecast foresees, looked for at each sample before anything else.

And the headrooms at which a sample is wanted at once: thresholds that the kernel can watch between two samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memwatch.core.decision.burst_detector import BELIEVED
from memwatch.core.decision.interrupt_rule import InterruptDecision, WatchedResource
from memwatch.core.decision.policy import (
    ESTABLISHED_GENERATIONS,
    LOADING_LEADS,
    PACE_FLOOR_SECONDS,
    Policy,
    reaches_limit,
)
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.measurements import Limit, Usage

CONFIRMING_SAMPLES = 3  # the later ones higher than the first
APPROACH_GUARDS = 2.0  # times the guard: below it samples confirm a burst
LAST_CHANCE_SECONDS = 0.25  # before the limit: the trainer is interrupted even when it has little to save
CONFIRM_SECONDS = CONFIRMING_SAMPLES * PACE_FLOOR_SECONDS  # where less time is left, one sample is enough
LONG_SEEN_SECONDS = 0.25  # between two samples: growth over a longer time is no single allocation
SETTLED_LEADS = 40.0  # lead times: a program that was watched for so long has loaded
LOAD_FACTOR = 2.0  # a program that has multiplied since the first reading, and that soon, is still loading
TREND_FACTOR = 1.5  # growth at no more than this times the forecast's rate is the forecast's to judge


@dataclass(frozen=True, slots=True)
class _BurstState:
    """What one sample shows."""

    rate: float  # bytes/s
    samples: int = CONFIRMING_SAMPLES  # that must show it
    beyond_bytes: float = 0.0  # still above the headroom at which to act; such a sample confirms all the same
    is_climb: bool = False  # seen over as long as a checkpoint takes

    @property
    def is_due(self) -> bool:
        return self.beyond_bytes <= 0.0


@dataclass(frozen=True, slots=True)
class _PendingBurst:
    t: float
    taken_bytes: int
    last_bytes: int  # of the latest sample that showed it
    is_due: bool
    samples: int = 1  # that have shown it, one after the other


class EmergencyDetector:
    """Watches for bursts and climbs of one trainer process. Reads the ledger that the engine keeps."""

    def __init__(self, policy: Policy, ledger: GenerationLedger) -> None:
        self._policy, self._ledger = policy, ledger
        self._pending: dict[str, _PendingBurst] = {}  # by resource
        self.next_sample_seconds: float | None = None  # at most; None: no burst is being considered

    def reset(self) -> None:
        self._pending.clear()
        self.next_sample_seconds = None

    def safe_below_bytes(self, resource: WatchedResource, usage: Usage) -> float:
        """Bytes in use below which no growth is an emergency, for any samples up to that use."""
        limit = usage.limit
        if limit is None:
            return math.inf
        guarded = APPROACH_GUARDS * self._policy.headroom_guard * limit.bytes
        climbed = (1.0 - BELIEVED) * (limit.bytes - resource.climb_record)
        return usage.used_bytes + limit.headroom_bytes - max(guarded, climbed)

    def decide(self, t: float, resources: Sequence[WatchedResource], lead: float) -> InterruptDecision | None:
        """Whether to interrupt at this sample; earlier ones must have called for it too."""
        found, waits = None, []
        for resource in resources:
            state = self._burst_state(t, resource, lead)
            if state is None:
                self._pending.pop(resource.usage.resource, None)
                continue
            if self._confirms(t, resource, state, lead) and state.is_due and found is None:
                found = InterruptDecision(resource.usage, "emergency", state.rate)
            waits.append(self._wait(t, state, self._pending[resource.usage.resource]))
        self.next_sample_seconds = min(waits, default=None)
        return found

    def _wait(self, t: float, state: _BurstState, first: _PendingBurst) -> float:
        """Until it is time to act or, after that, until a sample that may confirm: at once when it was long seen."""
        if not state.is_due:
            return state.beyond_bytes / state.rate
        seen = first.samples > 1 and t - first.t >= LONG_SEEN_SECONDS
        return PACE_FLOOR_SECONDS if seen else self._policy.confirmation_seconds

    def _burst_state(self, t: float, resource: WatchedResource, lead: float) -> _BurstState | None:
        limit = resource.usage.limit
        resource.climb.set_window_seconds(lead)
        if limit is None or resource.usage.used_bytes < self.safe_below_bytes(resource, resource.usage):
            return None
        guard, left = self._policy.headroom_guard * limit.bytes, limit.headroom_bytes
        outlook = resource.outlook
        foreseen = outlook.fits_when_full or reaches_limit(outlook.verdict, outlook.forecast, finishing=True)
        usual = math.inf if outlook.time_to_limit is None else outlook.time_to_limit.usual_headroom(lead)
        burst = resource.burst.threat_rate(left, limit.bytes, lead, usual)
        climb = 0.0 if outlook.fits_when_full else resource.climb.threat_rate(resource.limit_used_bytes, left, usual)
        if left <= guard and left < burst * LAST_CHANCE_SECONDS:
            return _BurstState(burst, CONFIRMING_SAMPLES if left > burst * CONFIRM_SECONDS else 1)
        rate = max(burst, climb)
        if rate == 0.0:
            return None
        if climb > 0.0 and t - resource.started_t >= LOADING_LEADS * lead:
            return _BurstState(rate, is_climb=True)
        if self._has_little_to_save(t, resource, lead):
            return None
        trend = resource.outlook.trend
        if foreseen and trend is not None and rate <= TREND_FACTOR * trend.growth_per_second:
            return None
        return _BurstState(rate, beyond_bytes=left - guard)

    def _has_little_to_save(self, t: float, resource: WatchedResource, lead: float) -> bool:
        """Jumps are usual in the first generations, and while a program loads."""
        running, complete = t - resource.started_t, self._ledger.complete_generations
        few = complete < ESTABLISHED_GENERATIONS and not running >= SETTLED_LEADS * lead
        if not self._ledger.has_no_markers(t):
            return few or running < LOADING_LEADS * lead
        return few and complete == 0 and resource.usage.used_bytes > LOAD_FACTOR * resource.first_bytes

    def _confirms(self, t: float, resource: WatchedResource, state: _BurstState, lead: float) -> bool:
        """As many samples as are wanted have shown it, this one the last; otherwise this may be the first."""
        name, taken = resource.usage.resource, resource.limit_used_bytes
        first = self._pending.get(name)
        stayed = first is not None and not first.is_due and t > first.t and taken <= first.last_bytes
        if first is None or stayed:  # a step on the way is no burst
            self._pending[name] = _PendingBurst(t, taken, taken, state.is_due)
            return state.samples == 1
        if t <= first.t or taken <= first.taken_bytes:
            return False
        # at the rate since the first sample the limit is reached within the lead; a step that stays is slower
        limit, risen = resource.usage.limit, taken - first.taken_bytes
        if not (state.is_climb or limit is None or risen * lead > limit.headroom_bytes * (t - first.t)):
            return False
        self._pending[name] = replace(first, samples=first.samples + 1, last_bytes=taken)
        return first.samples + 1 >= state.samples


GUARDS = (APPROACH_GUARDS, 1.5, 1.0, 0.5, 0.25)  # times the guard: samples confirm, the guard itself, the end
HALVINGS = 4  # of the headroom at the highest use so far, down to the first of GUARDS


def wake_thresholds(limit: Limit, used_bytes: int, peak_bytes: int, guard: float) -> tuple[int, ...]:
    """Bytes of headroom, the most first.

    Nobody need be woken by what memory reaches again and again: the thresholds divide the headroom at the highest use
    so far, and follow it as it grows.
    """
    guarded = [share * guard * limit.bytes for share in GUARDS if guard > 0.0]
    above = limit.headroom_bytes - (peak_bytes - used_bytes)
    halves = [above * 0.5**n for n in range(1, HALVINGS + 1)]
    most = guarded[0] if guarded else 0.0
    return tuple([int(room) for room in (*[half for half in halves if half > most], *guarded)])


def is_exhausting(resource: WatchedResource) -> bool:
    """The limit is reached within seconds: nothing can be waited for."""
    limit = resource.usage.limit
    return limit is not None and resource.burst.is_exhausting(limit.headroom_bytes, limit.bytes)
