"""When to interrupt: judges every look, waits for the best moment, and wants a second look before it says so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from memwatch.core.checkpoints import Checkpoints
from memwatch.core.generations import Ledger
from memwatch.core.model import Limit
from memwatch.core.near import Need
from memwatch.core.policy import (
    DELIVERY_SECONDS,
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
    is_overdue,
    next_step_fits,
    runs_out_within,
    threatens,
)
from memwatch.core.snapshot import Forecast
from memwatch.core.track import Decision, Track

URGENCY = ("time", "boundary", "saved")  # the kinds of reasons, most urgent first
POINT_SHARE = 0.5  # of a generation: so long a boundary that a save is awaited at stays open
FEW_STAKE = 0.5  # times what is at stake where few generations say how high one goes
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
        if self._is_last_moment(t, track, forecast, lead, gap):
            return "time" if self._is_tight(t, track, limit, lead) else None
        seen = min(self._ledger.complete, self._points(track))
        if seen < POINT_GENERATIONS or self._ledger.stalled(track.usage.resource) or not self._fits(track):
            return None
        return self._point_reason(t, track, limit, forecast, lead)

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
        need = Need(lead, track.needed_bytes)
        if next_step_fits(forecast, left, lead) or (ends is not None and ends.too_late(left, need) < POINT_ODDS):
            return None
        climb = self._ledger.climb_bytes(track.usage.resource)
        generations = max(1.0, (left + lead) / (self._ledger.step_seconds(t) or math.inf))
        room = limit.headroom_bytes - track.needed_bytes
        return kind if climb is None or room <= ROOM_FACTOR * climb * generations else None

    def _is_last_moment(self, t: float, track: Track, forecast: Forecast, lead: float, gap: float) -> bool:
        """A checkpoint still fits, in time and memory; later it might not."""
        ends = track.outlook.ends
        if ends is None:
            return runs_out_within(forecast, lead)
        need = Need(lead, track.needed_bytes)
        if not counts(ends.too_late(ends.step_seconds, need), self._policy.confidence) or not self._is_new(t, track):
            return False
        met, fits = ends.odds(lead), self._fits(track)
        if self._is_young(t, track, lead):
            is_record = track.usage.used_bytes + need.bytes >= RECORD_SHARE * track.peak  # or it was a save's
            return is_record and max(met, ends.too_late(gap, need) if fits else 0.0) >= YOUNG_ODDS
        stake = max(t - track.first_t, STAKE_LEADS * lead) * (SILENT_STAKE if forecast.generation is None else 1.0)
        if ends.seen < POINT_GENERATIONS:
            stake *= FEW_STAKE
        waits = (max(share * ends.step_seconds, gap) for share in WAITS)
        stakes = Stakes(stake, ends.left(lead, stake), ends.never)
        if is_overdue(met, stakes):
            return fits or met >= YOUNG_ODDS
        return fits and is_last_moment(partial(ends.too_late, need=need), waits, stakes)

    def _fits(self, track: Track) -> bool:
        """There is memory for a checkpoint that is asked for now, also if what rises goes on rising until it begins."""
        limit = track.usage.limit
        rise = track.forecaster.rise(DELIVERY_SECONDS + self._policy.second_look_seconds)
        return limit is None or limit.headroom_bytes >= track.save_bytes + max(0.0, rise)

    def _is_new(self, t: float, track: Track) -> bool:
        """Memory has been where it was not before, or the growth was seen for long."""
        trend = track.outlook.trend
        if trend is None or trend.points >= NEW_POINTS:
            return True
        recent = self._ledger.step_seconds(t) or (t - track.first_t) / BLOCKS
        return track.forecaster.high(recent) >= RECORD_SHARE * track.peak

    def _counts_few(self, t: float, track: Track) -> bool:
        """Too few generations; growth that not all of them show wants one more."""
        least = POINT_GENERATIONS + int(self._points(track) < POINT_GENERATIONS)
        return not self._ledger.silent(t) and self._ledger.complete < least

    def _points(self, track: Track) -> float:
        """Levels that the growth was seen in."""
        return track.outlook.trend.points if track.outlook.trend is not None else math.inf

    def _is_young(self, t: float, track: Track, lead: float) -> bool:
        """Little has been seen, and little is lost."""
        watched = t - track.first_t
        starting = self._ledger.silent(t) and not has_settled(watched, lead)
        return starting or self._counts_few(t, track) or watched < STARTUP_LEADS * lead

    def _is_tight(self, t: float, track: Track, limit: Limit, lead: float) -> bool:
        """What is left could be used up: by the fastest rise of late, or by growth and a peak, or by a checkpoint."""
        forecaster = track.forecaster
        if self._is_young(t, track, lead):  # growth that is over is no threat yet
            return limit.headroom_bytes <= ROOM_FACTOR * forecaster.rise(lead)
        step = self._ledger.step_seconds(t)
        share = 1.0 if step is None else min(1.0, lead / step)
        climb = self._ledger.climb_bytes(track.usage.resource, share) or 0
        risen = forecaster.peak_rate() * lead
        return limit.headroom_bytes <= ROOM_FACTOR * max(risen, forecaster.reach_bytes, climb, track.needed_bytes)

    def _confirms(self, t: float, resource: str) -> bool:
        """An earlier look, and each since, said so too; this is the first otherwise."""
        first_t = self._firsts.setdefault(resource, t)
        return t > first_t and t - first_t >= self._policy.second_look_seconds


def _resource(decision: Decision) -> str:
    return decision.track.usage.resource
