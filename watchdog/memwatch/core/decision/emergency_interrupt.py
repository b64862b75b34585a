"""Growth that no forecast knows of: judged at each reading, before anything else is.

How little room must be left for a look to be wanted at once: levels that the kernel can watch between two looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memwatch.core.decision.policy import (
    PACE_FLOOR_SECONDS,
    POINT_GENERATIONS,
    STARTUP_LEADS,
    Policy,
    has_settled,
    threatens,
)
from memwatch.core.engine.resource_monitor import Decision, Track
from memwatch.core.generation_ledger import Ledger
from memwatch.core.measurements import Limit, Usage

LOOKS = 3  # the later ones higher than the first
APPROACH_GUARDS = 2.0  # times the guard: a burst's looks count from there on, and a ramp is acted upon: it is surer
BRINK_SECONDS = 0.25  # before the end: the last that a program hears; it is told even when it has little to save
CONFIRM_SECONDS = LOOKS * PACE_FLOOR_SECONDS  # where less time is left, the first look is the last
LONG_SEEN_SECONDS = 0.25  # between two looks: growth over so long is no single allocation
LOAD_FACTOR = 2.0  # a program that has multiplied since the first reading, and that soon, is still loading
TREND_FACTOR = 1.5  # growth at no more than this times the forecast's rate is the forecast's to judge


@dataclass(frozen=True, slots=True)
class _Danger:
    """What one look says."""

    rate: float  # bytes/s
    looks: int = LOOKS  # that must say so
    beyond_bytes: float = 0.0  # how far from the moment to act a look is that counts all the same
    is_ramp: bool = False  # seen over as long as a checkpoint takes

    @property
    def ripe(self) -> bool:
        return self.beyond_bytes <= 0.0


@dataclass(frozen=True, slots=True)
class _FirstLook:
    t: float
    taken_bytes: int
    last_bytes: int  # of the latest of them
    ripe: bool
    looks: int = 1  # that have said so, one after the other


class Emergencies:
    """Watches for bursts and ramps of one trainer process. Reads the ledger that the engine keeps."""

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self._policy, self._ledger = policy, ledger
        self._firsts: dict[str, _FirstLook] = {}  # by resource
        self.wait_seconds: float | None = None  # until the next look, at most; None: none is wanted

    def drop(self) -> None:
        """No interrupt can begin now: what was being considered is void."""
        self._firsts.clear()
        self.wait_seconds = None

    def far_below(self, usage: Usage) -> float:
        """Bytes in use below which no growth is an emergency."""
        limit = usage.limit
        if limit is None:
            return math.inf
        return usage.used_bytes + limit.headroom_bytes - APPROACH_GUARDS * self._policy.headroom_guard * limit.bytes

    def judge(self, t: float, tracks: Sequence[Track], lead: float) -> Decision | None:
        """Whether to interrupt at this look, which earlier ones must have asked for too."""
        found, waits = None, []
        for track in tracks:
            danger = self._danger(t, track, lead)
            if danger is None:
                self._firsts.pop(track.usage.resource, None)
                continue
            if self._confirms(t, track, danger, lead) and danger.ripe and found is None:
                found = Decision(track, "emergency", danger.rate)
            waits.append(self._wait(t, danger, self._firsts[track.usage.resource]))
        self.wait_seconds = min(waits, default=None)
        return found

    def _wait(self, t: float, danger: _Danger, first: _FirstLook) -> float:
        """Until the moment to act or, past it, until a look that may be the last: at once when it was long seen."""
        if not danger.ripe:
            return danger.beyond_bytes / danger.rate
        seen = first.looks > 1 and t - first.t >= LONG_SEEN_SECONDS
        return PACE_FLOOR_SECONDS if seen else self._policy.second_look_seconds

    def _danger(self, t: float, track: Track, lead: float) -> _Danger | None:
        limit = track.usage.limit
        track.ramp.look_over(lead)
        if limit is None or track.usage.used_bytes < self.far_below(track.usage):
            return None
        guard, left = self._policy.headroom_guard * limit.bytes, limit.headroom_bytes
        foreseen = threatens(track.outlook.verdict, track.outlook.forecast, finishing=True)
        burst = track.burst.threat(left, limit.bytes, lead)
        ramp = 0.0 if foreseen else track.ramp.threat(left)
        if left <= guard and left < burst * BRINK_SECONDS:
            return _Danger(burst, LOOKS if left > burst * CONFIRM_SECONDS else 1)
        rate = max(burst, ramp)
        if rate == 0.0 or self._has_little_to_save(t, track, lead) or self._is_usual(track, left, lead):
            return None
        trend = track.outlook.trend
        if foreseen and trend is not None and rate <= TREND_FACTOR * trend.growth_per_second:
            return None
        return _Danger(rate, is_ramp=True) if ramp > 0.0 else _Danger(rate, beyond_bytes=left - guard)

    def _is_usual(self, track: Track, headroom_bytes: int, lead: float) -> bool:
        """Memory is not above what it was in this part of other generations."""
        ends = track.outlook.ends
        if ends is None or ends.near is None or ends.seen < POINT_GENERATIONS:
            return False
        return headroom_bytes >= ends.near.usual_room(lead)

    def _has_little_to_save(self, t: float, track: Track, lead: float) -> bool:
        """Jumps are usual in the first generations, and while a program loads."""
        watched = t - track.first_t
        few = self._ledger.complete < POINT_GENERATIONS and not has_settled(watched, lead)
        if not self._ledger.silent(t):
            return few or watched < STARTUP_LEADS * lead
        return few and self._ledger.complete == 0 and track.usage.used_bytes > LOAD_FACTOR * track.baseline

    def _confirms(self, t: float, track: Track, danger: _Danger, lead: float) -> bool:
        """As many looks as are wanted have said so, this one the last; what is said now is the first otherwise."""
        resource, taken = track.usage.resource, track.taken_bytes
        first = self._firsts.get(resource)
        stayed = first is not None and not first.ripe and t > first.t and taken <= first.last_bytes
        if first is None or stayed:  # a step on the way is no burst
            self._firsts[resource] = _FirstLook(t, taken, taken, danger.ripe)
            return danger.looks == 1
        if t <= first.t or taken <= first.taken_bytes or not (danger.is_ramp or _goes_on(t, track, lead, first)):
            return False
        self._firsts[resource] = replace(first, looks=first.looks + 1, last_bytes=taken)
        return first.looks + 1 >= danger.looks


def _goes_on(t: float, track: Track, lead: float, first: _FirstLook) -> bool:
    """What memory has risen by since the first look meets the limit within the lead, or it was a step that stays."""
    limit = track.usage.limit
    return limit is None or (track.taken_bytes - first.taken_bytes) * lead > limit.headroom_bytes * (t - first.t)


GUARDS = (APPROACH_GUARDS, 1.5, 1.0, 0.5, 0.25)  # times the guard against bursts: looks that count, the guard, the end
HALVINGS = 4  # of the room above the highest use so far, down to the first of those


def look_headrooms(limit: Limit, used_bytes: int, peak_bytes: int, guard: float) -> tuple[int, ...]:
    """Bytes of headroom, the most first.

    Below what memory reaches again and again nobody need be woken: the levels divide the room above the highest use so
    far, and follow it as it grows.
    """
    guarded = [share * guard * limit.bytes for share in GUARDS if guard > 0.0]
    above = limit.headroom_bytes - (peak_bytes - used_bytes)
    halves = [above * 0.5**n for n in range(1, HALVINGS + 1)]
    most = guarded[0] if guarded else 0.0
    return tuple([int(room) for room in (*[half for half in halves if half > most], *guarded)])
