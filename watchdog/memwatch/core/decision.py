"""When to interrupt: judges every look, waits for the best moment, and wants a second look before it says so."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from memwatch.core.checkpoints import Checkpoints
from memwatch.core.generations import Ledger
from memwatch.core.model import Forecast, Limit
from memwatch.core.policy import (
    POINT_GENERATIONS,
    POINT_ODDS,
    SILENT_STAKE,
    STAKE_LEADS,
    STARTUP_LEADS,
    WAITS,
    Policy,
    Stakes,
    believable,
    counts,
    has_settled,
    is_last_moment,
    knows_generations,
    lead_seconds,
    next_step_fits,
    runs_out_within,
    threatens,
)
from memwatch.core.track import Track

URGENCY = ("emergency", "time", "boundary", "saved")  # the kinds of reasons, most urgent first
POINT_SHARE = 0.5  # of a generation: so long a boundary that a save is awaited at stays open
LOAD_FACTOR = 2.0  # a program that has multiplied since the first reading, and that soon, is still loading
TREND_FACTOR = 1.5  # growth at no more than this times the forecast's rate is the forecast's to judge
ROOM_FACTOR = 2.0  # a forecast is acted upon when twice the growth that was seen could bring it about
EMERGENCY_LOOKS = 3  # the later ones higher than the first
YOUNG_ODDS = 0.9  # of being too late: less is no reason to act in the first generations
RECORD_SHARE = 0.995  # of the highest so far: below it there is no new growth yet
NEW_POINTS = 9  # levels from which on growth is no accident, even below what was in use before
BLOCKS = 8  # of the time watched: without generations, what is recent
RAMP_GUARDS = 2.0  # times the guard against bursts: a ramp is surer
GAP_LOOKS = 8  # readings that the usual distance between them is averaged over


@dataclass(frozen=True, slots=True)
class Decision:
    """Interrupt now, because of this resource. `kind` is one of URGENCY."""

    track: Track
    kind: str


@dataclass(frozen=True, slots=True)
class _FirstLook:
    t: float
    used_bytes: int
    looks: int = 1  # that have said so, one after the other


class Decider:
    """The judgement of one trainer process. Reads the ledger and the checkpoints that the engine keeps."""

    def __init__(self, policy: Policy, ledger: Ledger, checkpoints: Checkpoints) -> None:
        self._policy, self._ledger, self._checkpoints = policy, ledger, checkpoints
        self._point: tuple[float, str] | None = None  # a good moment for an interrupt: since when, its kind
        self._firsts: dict[tuple[str, bool], _FirstLook] = {}  # by resource, and whether it is an emergency
        self._last_t: float | None = None
        self._gap = 0.0

    def sampled(self, t: float) -> None:
        """A reading was taken: learn how far apart they are."""
        if self._last_t is not None and t > self._last_t:
            gap = t - self._last_t
            self._gap = gap if self._gap == 0 else self._gap + (gap - self._gap) / GAP_LOOKS
        self._last_t = t

    def good_moment(self, t: float, kind: str) -> None:
        """A generation has ended ("boundary"), or the trainer has just saved ("saved")."""
        self._point = (t, kind)

    def drop(self) -> None:
        """No interrupt can begin now: what was being considered is void."""
        self._point = None
        self._firsts.clear()

    def checkpoint_seconds(self, t: float) -> tuple[float, str]:
        """What a checkpoint is taken to need, and where that comes from."""
        seconds, origin = self._checkpoints.lead(self._policy.checkpoint_seconds, self._ledger.step_seconds(t))
        # begun and complete between two readings is measured as 0: it took less than what lies between them
        return (max(seconds, self._gap) if origin == "measured" else seconds), origin

    @property
    def second_look_seconds(self) -> float | None:
        """How soon the second look is wanted; None when there was no first."""
        return self._policy.second_look_seconds if self._firsts else None

    def decide(self, t: float, tracks: Sequence[Track]) -> Decision | None:
        """Judge this look; a decision only when an earlier look said the same."""
        lead = self._lead(t)
        reasons = [Decision(track, kind) for track in tracks for kind in self._reasons(t, track, lead)]
        if self._point is not None and not any(reason.kind == self._point[1] for reason in reasons):
            self._expire_point(t, *self._point)
        if self._firsts:
            said, seen = {_key(reason) for reason in reasons}, {track.usage.resource for track in tracks}
            self._firsts = {key: look for key, look in self._firsts.items() if key in said or key[0] not in seen}
        confirmed = [reason for reason in reasons if self._confirms(t, reason)]
        return min(confirmed, key=lambda reason: URGENCY.index(reason.kind), default=None)

    def _lead(self, t: float) -> float:
        look = max(self._policy.second_look_seconds, self._gap) + self._gap
        return lead_seconds(self.checkpoint_seconds(t)[0], look)

    def _expire_point(self, t: float, begun: float, kind: str) -> None:
        """Drop a good moment that was not taken, unless the save that is due then is still awaited."""
        step = self._ledger.step_seconds(t)
        awaited = kind == "boundary" and self._checkpoints.due_seconds(t) is not None
        if not awaited or t - begun > POINT_SHARE * (step or 0.0):
            self._point = None

    def _reasons(self, t: float, track: Track, lead: float) -> Iterator[str]:
        """Why this resource asks for an interrupt now: an emergency, and what the forecast says."""
        limit = track.usage.limit
        if limit is None:
            return
        if self._is_emergency(t, track, limit, lead):
            yield "emergency"
        foreseen = self._foreseen(t, track, limit, lead)
        if foreseen is not None:
            yield foreseen

    def _foreseen(self, t: float, track: Track, limit: Limit, lead: float) -> str | None:
        """Why the forecast of this resource asks for an interrupt now; None: it does not."""
        forecast = track.outlook.forecast
        if forecast is None or not threatens(track.outlook.verdict, forecast):
            return None
        if not believable(forecast, t - track.first_t, lead, limit.headroom_bytes, limit.bytes):
            return None
        if self._is_last_moment(t, track, forecast, lead):
            return "time" if self._is_tight(t, track, limit, lead) else None
        trend = track.outlook.trend
        seen = self._ledger.complete if trend is None else min(self._ledger.complete, trend.points)
        if not knows_generations(seen) or self._ledger.stalled(track.usage.resource):
            return None
        return self._point_reason(t, track, limit, forecast, lead)

    def _is_emergency(self, t: float, track: Track, limit: Limit, lead: float) -> bool:
        """A burst that no forecast knows of, by a program that has something to save."""
        guard, left = self._policy.headroom_guard, limit.headroom_bytes
        track.ramp.look_over(lead)
        foreseen = threatens(track.outlook.verdict, track.outlook.forecast, finishing=True)
        bursts = track.burst.threatens(left, limit.bytes, guard, lead)
        near = not bursts and not foreseen and left <= RAMP_GUARDS * guard * limit.bytes
        if not bursts and not (near and track.ramp.threatens(left)):
            return False
        if self._counts_few(t):
            return False  # jumps are usual
        loading = track.usage.used_bytes > LOAD_FACTOR * track.baseline and t - track.first_t < STARTUP_LEADS * lead
        if loading and self._ledger.complete == 0 and limit.headroom_bytes > 0:
            return False
        trend = track.outlook.trend
        if trend is None or not foreseen:
            return True
        return track.burst.rate > TREND_FACTOR * trend.growth_per_second

    def _point_reason(self, t: float, track: Track, limit: Limit, forecast: Forecast, lead: float) -> str | None:
        """At a boundary or after a save: the next step does not fit, so this is the last good moment."""
        if self._point is None:
            return None
        begun, kind = self._point
        saves = self._checkpoints
        step = saves.interval_seconds if kind == "saved" else None
        step = step if step is not None else self._ledger.step_seconds(t)
        if step is None:
            return None
        due = saves.due_seconds(t) if kind == "boundary" else None
        if due is not None and not runs_out_within(forecast, due + lead):
            return None  # the trainer saves by itself before: that is the better moment
        left = max(0.0, step - (t - begun))
        ends = track.outlook.ends
        if next_step_fits(forecast, left, lead) or (ends is not None and ends.odds(left + lead) < POINT_ODDS):
            return None
        climb = self._ledger.climb_bytes(track.usage.resource)
        generations = max(1.0, (left + lead) / (self._ledger.step_seconds(t) or math.inf))
        return kind if climb is None or limit.headroom_bytes <= ROOM_FACTOR * climb * generations else None

    def _is_last_moment(self, t: float, track: Track, forecast: Forecast, lead: float) -> bool:
        ends = track.outlook.ends
        if ends is None:
            return runs_out_within(forecast, lead)
        if not counts(ends.odds(lead + ends.step_seconds), self._policy.confidence) or not self._is_new(t, track):
            return False
        if self._is_young(t, track, lead):
            return ends.odds(lead) >= YOUNG_ODDS and track.usage.used_bytes >= RECORD_SHARE * track.peak
        stake = max(t - track.first_t, STAKE_LEADS * lead) * (SILENT_STAKE if forecast.generation is None else 1.0)
        waits = (max(share * ends.step_seconds, self._gap) for share in WAITS)
        return is_last_moment(ends.odds, lead, waits, Stakes(stake, ends.left(lead, stake), ends.never))

    def _is_new(self, t: float, track: Track) -> bool:
        """Memory has been where it was not before, or the growth was seen for long."""
        trend = track.outlook.trend
        if trend is None or trend.points >= NEW_POINTS:
            return True
        recent = self._ledger.step_seconds(t) or (t - track.first_t) / BLOCKS
        return track.forecaster.high(recent) >= RECORD_SHARE * track.peak

    def _counts_few(self, t: float) -> bool:
        return not self._ledger.silent(t) and self._ledger.complete < POINT_GENERATIONS

    def _is_young(self, t: float, track: Track, lead: float) -> bool:
        """Little has been seen, and little is lost."""
        watched = t - track.first_t
        starting = self._ledger.silent(t) and not has_settled(watched, lead)
        return starting or self._counts_few(t) or watched < STARTUP_LEADS * lead

    def _is_tight(self, t: float, track: Track, limit: Limit, lead: float) -> bool:
        """What is left could be used up within the lead: by the fastest rise of late, or by growth and a peak."""
        forecaster = track.forecaster
        if self._is_young(t, track, lead):  # growth that is over is no threat yet
            return limit.headroom_bytes <= ROOM_FACTOR * forecaster.rise(lead)
        step = self._ledger.step_seconds(t)
        share = 1.0 if step is None else min(1.0, lead / step)
        climb = self._ledger.climb_bytes(track.usage.resource, share) or 0
        return limit.headroom_bytes <= ROOM_FACTOR * max(forecaster.peak_rate() * lead, forecaster.reach_bytes, climb)

    def _confirms(self, t: float, decision: Decision) -> bool:
        """An earlier look, and each since, said so too; what is said now becomes the first look otherwise."""
        key, usage = _key(decision), decision.track.usage
        first = self._firsts.get(key)
        if first is None:
            self._firsts[key] = _FirstLook(t, usage.used_bytes)
            return False
        if decision.kind != "emergency":
            return t > first.t and t - first.t >= self._policy.second_look_seconds
        if t <= first.t or usage.used_bytes <= first.used_bytes:
            return False
        self._firsts[key] = replace(first, looks=first.looks + 1)
        return first.looks + 1 >= EMERGENCY_LOOKS  # still rising, not a step that stays


def _key(decision: Decision) -> tuple[str, bool]:
    return decision.track.usage.resource, decision.kind == "emergency"
