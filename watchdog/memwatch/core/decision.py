"""When to interrupt: judges every look, waits for the best moment, and wants a second look before it says so."""

from __future__ import annotations

import math
from collections.abc import Sequence

from memwatch.core.checkpoints import Checkpoints
from memwatch.core.generations import Ledger
from memwatch.core.model import Limit
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
    next_step_fits,
    reserve_bytes,
    runs_out_within,
    threatens,
)
from memwatch.core.snapshot import Forecast
from memwatch.core.track import Decision, Track

URGENCY = ("time", "boundary", "saved")  # the kinds of reasons, most urgent first
POINT_SHARE = 0.5  # of a generation: so long a boundary that a save is awaited at stays open
RESERVE_WATCHED = 0.5  # of the time watched: no forecast is trusted to tell further ahead when the reserve is reached
SAVE_SHARE = 0.003  # of the limit: what a checkpoint is taken to need of memory where none was seen to need more
SAVE_MARGIN = 1.05  # checkpoints vary
ROOM_FACTOR = 2.0  # a forecast is acted upon when twice the growth that was seen could bring it about
YOUNG_ODDS = 0.9  # of being too late: less is no reason to act in the first generations
RECORD_SHARE = 0.995  # of the highest so far: below it there is no new growth yet
NEW_POINTS = 9  # levels from which on growth is no accident, even below what was in use before
BLOCKS = 8  # of the time watched: without generations, what is recent


class Decider:
    """The judgement of one trainer process. Reads the ledger and the checkpoints that the engine keeps."""

    def __init__(self, policy: Policy, ledger: Ledger, checkpoints: Checkpoints) -> None:
        self._policy, self._ledger, self._checkpoints = policy, ledger, checkpoints
        self._point: tuple[float, str] | None = None  # a good moment for an interrupt: since when, its kind
        self._firsts: dict[str, float] = {}  # when a resource first asked, and at each look since

    @property
    def pending(self) -> bool:
        """Another look is wanted."""
        return bool(self._firsts)

    @property
    def waits(self) -> bool:
        """A look is wanted whatever memory does: another one, or one at a good moment."""
        return self.pending or self._point is not None

    def good_moment(self, t: float, kind: str) -> None:
        """A generation has ended ("boundary"), or the trainer has just saved ("saved")."""
        self._point = (t, kind)

    def drop(self) -> None:
        """No interrupt can begin now: what was being considered is void."""
        self._point = None
        self._firsts.clear()

    def decide(self, t: float, tracks: Sequence[Track], lead: float, gap: float) -> Decision | None:
        """Judge this look; a decision only when an earlier look said the same. `gap`: seconds between two readings."""
        reasons = [Decision(track, kind) for track in tracks if (kind := self._reason(t, track, lead, gap))]
        if self._point is not None and not any(reason.kind == self._point[1] for reason in reasons):
            self._expire_point(t, *self._point)
        said, seen = {_resource(reason) for reason in reasons}, {track.usage.resource for track in tracks}
        self._firsts = {name: first for name, first in self._firsts.items() if name in said or name not in seen}
        confirmed = [reason for reason in reasons if self._confirms(t, _resource(reason))]
        return min(confirmed, key=lambda reason: URGENCY.index(reason.kind), default=None)

    def _expire_point(self, t: float, begun: float, kind: str) -> None:
        """Drop a good moment that was not taken, unless the save that is due then is still awaited."""
        step = self._ledger.step_seconds(t)
        awaited = kind == "boundary" and self._checkpoints.due_seconds(t) is not None
        if not awaited or t - begun > POINT_SHARE * (step or 0.0):
            self._point = None

    def _reason(self, t: float, track: Track, lead: float, gap: float) -> str | None:
        """Why the forecast of this resource asks for an interrupt now; None: it does not."""
        limit = track.usage.limit
        if limit is None:
            return None
        forecast = track.outlook.forecast
        if forecast is None or not threatens(track.outlook.verdict, forecast):
            return None
        if not believable(forecast, t - track.first_t, lead, limit.headroom_bytes, limit.bytes):
            return None
        if self._is_last_room(t, track, limit, lead):
            return "time"
        ahead = self.ahead(t, track, lead)
        if self._is_last_moment(t, track, forecast, (lead, ahead), gap):
            return "time" if self._is_tight(t, track, limit, lead) else None
        trend = track.outlook.trend
        seen = self._ledger.complete if trend is None else min(self._ledger.complete, trend.points)
        if not knows_generations(seen) or self._ledger.stalled(track.usage.resource):
            return None
        return self._point_reason(t, track, limit, forecast, ahead)

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
        room = limit.headroom_bytes - reserve(track)
        return kind if climb is None or room <= ROOM_FACTOR * climb * generations else None

    def _is_last_moment(
        self, t: float, track: Track, forecast: Forecast, leads: tuple[float, float], gap: float
    ) -> bool:
        """`leads`: that a checkpoint takes, and how long before the limit is met it must begin."""
        (lead, ahead), ends = leads, track.outlook.ends
        if ends is None:
            return runs_out_within(forecast, ahead)
        if not counts(ends.odds(ahead + ends.step_seconds), self._policy.confidence) or not self._is_new(t, track):
            return False
        if self._is_young(t, track, lead):
            return ends.odds(lead) >= YOUNG_ODDS and track.usage.used_bytes >= RECORD_SHARE * track.peak
        stake = max(t - track.first_t, STAKE_LEADS * lead) * (SILENT_STAKE if forecast.generation is None else 1.0)
        waits = (max(share * ends.step_seconds, gap) for share in WAITS)
        return is_last_moment(ends.odds, ahead, waits, Stakes(stake, ends.left(ahead, stake), ends.never))

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
        return limit.headroom_bytes - reserve(track) <= ROOM_FACTOR * max(
            forecaster.peak_rate() * lead, forecaster.reach_bytes, climb
        )

    def _is_last_room(self, t: float, track: Track, limit: Limit, lead: float) -> bool:
        """A checkpoint still fits, as large as they were seen to be; in a lead time it would not any more."""
        trend = track.outlook.trend
        if trend is None or self._checkpoints.is_writing(t, lead):
            return False
        needed = (
            SAVE_MARGIN * max(track.save_bytes, SAVE_SHARE * limit.bytes) + max(trend.growth_per_second, 0.0) * lead
        )
        return limit.headroom_bytes <= needed and self._is_new(t, track) and not self._is_young(t, track, lead)

    def ahead(self, t: float, track: Track, lead: float) -> float:
        """Seconds before the limit is met at which a checkpoint must begin, that it has the time and the room.

        The room counts as soon as it would not be there any more after another generation.
        """
        limit, climb = track.usage.limit, self._ledger.climb_bytes(track.usage.resource)
        if limit is None or (
            climb is not None and limit.headroom_bytes > max(reserve(track), track.save_bytes) + climb
        ):
            return lead
        return lead + room_seconds(t, track)

    def _confirms(self, t: float, resource: str) -> bool:
        """An earlier look, and each since, said so too; this is the first otherwise."""
        first_t = self._firsts.setdefault(resource, t)
        return t > first_t and t - first_t >= self._policy.second_look_seconds


def reserve(track: Track) -> float:
    """Bytes that must be left for the checkpoint itself."""
    return reserve_bytes(track.save_bytes, track.forecaster.reach_bytes)


def room_seconds(t: float, track: Track) -> float:
    """How long before the limit is met its room becomes too small for a checkpoint, as the growth goes."""
    trend = track.outlook.trend
    if trend is None or trend.growth_per_second <= 0.0:
        return 0.0
    return min(reserve(track) / trend.growth_per_second, RESERVE_WATCHED * (t - track.first_t))


def _resource(decision: Decision) -> str:
    return decision.track.usage.resource
