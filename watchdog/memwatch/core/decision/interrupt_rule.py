"""One look at one resource that is forecast to meet its limit: whether it is the last at which a checkpoint is sure.

When to interrupt: judges every look, waits for the best moment, and wants a second look before it says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from memwatch.core.checkpoint_timing import Checkpoints
from memwatch.core.decision.policy import (
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
from memwatch.core.engine.resource_monitor import Decision, Track
from memwatch.core.forecast.time_to_limit import Ends, Need
from memwatch.core.generation_ledger import Ledger
from memwatch.core.measurements import Limit
from memwatch.core.snapshot import Forecast

FEW_STAKE = 0.5  # times what is at stake where few generations say how high one goes
ROOM_FACTOR = 2.0  # a forecast is acted upon when twice the growth that was seen could bring it about
YOUNG_ODDS = 0.9  # of being too late: less is no reason to act in the first generations
AS_HIGH = 0.005  # of the highest so far: farther below it there is no new growth yet
CLEAR = 4.0  # standard errors: levels depend on each other, and of many lines the steepest was chosen
LATELY, RISEN = 0.25, 0.02  # of what was watched, of the limit: what comes and goes rises less from one to the next
PLAIN_CLEAR = 15.0  # standard errors: so clear ...
PLAIN_POINTS = 12  # ... in so many of 16 blocks of time ...
PLAIN_LEADS = 20.0  # ... for so many lead times, growth is no start-up, though nobody tells generations
NEW_POINTS = 9  # levels from which on growth is no accident, even below what was in use before
SOON_SHARE = 0.25  # of a generation: what rose within more may have fallen again by then
BLOCKS = 8  # of the time watched: without generations, what is recent


@dataclass(frozen=True, slots=True)
class Moment:
    """Seconds and bytes. `lead`: from the look until a checkpoint is complete; `gap`: between two readings."""

    policy: Policy
    ledger: Ledger
    t: float
    track: Track
    limit: Limit
    forecast: Forecast
    lead: float
    gap: float

    @property
    def need(self) -> Need:
        """What a checkpoint takes."""
        return Need(self.lead, self.track.needed_bytes)

    @property
    def watched(self) -> float:
        """How long this process is known."""
        return self.t - self.track.first_t

    @property
    def points(self) -> float:
        """Levels that the growth was seen in."""
        trend = self.track.outlook.trend
        return math.inf if trend is None else trend.points

    def is_believable(self) -> bool:
        """The forecast rests on enough."""
        return believable(self.forecast, self.watched, self.lead, self.limit.headroom_bytes, self.limit.bytes)

    def fits(self) -> bool:
        """There is memory for a checkpoint that is asked for now, also if what rises goes on rising until it begins."""
        seconds = DELIVERY_SECONDS + self.policy.second_look_seconds
        step = self.ledger.step_seconds(self.t)
        seconds = seconds if step is None else min(seconds, SOON_SHARE * step)
        return self.limit.headroom_bytes >= self.track.save_bytes + self.track.rise(seconds)

    def is_last(self) -> bool:
        """A checkpoint still fits, in time and memory; later it might not."""
        ends = self.track.outlook.ends
        if ends is None:
            return runs_out_within(self.forecast, self.lead)
        if not counts(ends.too_late(ends.step_seconds, self.need), self.policy.confidence) or not self.is_new():
            return False
        return self._is_last_of_young(ends) if self._is_young() else self._is_last_of_all(ends)

    def _is_last_of_young(self, ends: Ends) -> bool:
        gain = self.track.forecaster.gain(self.lead) + self.track.save_bytes  # what is beneath a save of before counts
        if gain <= min(AS_HIGH * self.track.peak, 0.5 * self.limit.headroom_bytes):
            return False
        odds = ends.too_late(self.gap, self.need) if self.fits() else 0.0
        return max(ends.odds(self.lead), odds) >= YOUNG_ODDS

    def _is_last_of_all(self, ends: Ends) -> bool:
        stake = max(self.watched, STAKE_LEADS * self.lead)
        stake *= SILENT_STAKE if self.forecast.generation is None else 1.0
        stake *= FEW_STAKE if ends.seen < POINT_GENERATIONS else 1.0
        stakes, odds = Stakes(stake, ends.left(self.lead, stake), self.track.never), ends.odds(self.lead)
        if is_overdue(odds, stakes):
            return self.fits() or odds >= YOUNG_ODDS
        waits = (max(share * ends.step_seconds, self.gap) for share in WAITS)
        return self.fits() and is_last_moment(partial(ends.too_late, need=self.need), waits, stakes)

    def is_tight(self) -> bool:
        """What is left could be used up: by the fastest rise of late, or by growth and a peak, or by a checkpoint."""
        forecaster, lead = self.track.forecaster, self.lead
        if self._is_young():  # growth that is over is no threat yet
            return self.limit.headroom_bytes <= ROOM_FACTOR * forecaster.rise(lead)
        step = self.ledger.step_seconds(self.t)
        share = 1.0 if step is None else min(1.0, lead / step)
        climb = self.ledger.climb_bytes(self.track.usage.resource, share) or 0
        most = max(forecaster.peak_rate() * lead, forecaster.reach_bytes, climb, self.need.bytes)
        return self.limit.headroom_bytes <= ROOM_FACTOR * most

    def could_fill(self, seconds: float) -> bool:
        """What is left beside a checkpoint could be used up by as many generations' growth."""
        climb = self.ledger.climb_bytes(self.track.usage.resource)
        generations = max(1.0, seconds / (self.ledger.step_seconds(self.t) or math.inf))
        return climb is None or self.limit.headroom_bytes - self.need.bytes <= ROOM_FACTOR * climb * generations

    def is_new(self) -> bool:
        """Memory has been where it was not before, or the growth was seen for long."""
        if self.points >= NEW_POINTS:
            return True
        recent = self.ledger.step_seconds(self.t) or self.watched / BLOCKS
        return self.track.forecaster.gain(recent) >= -AS_HIGH * self.track.peak

    def is_clear(self) -> bool:
        """The growth is no accident: so the levels say, or memory has lately been far above all before."""
        forecaster = self.track.forecaster
        return forecaster.clarity >= CLEAR or forecaster.gain(LATELY * self.watched) >= RISEN * self.limit.bytes

    def _is_young(self) -> bool:
        """Little has been seen, and little is lost; or what was seen tells little."""
        if self.watched < STARTUP_LEADS * self.lead or not self.is_clear() or self._may_be_teeth():
            return True
        if self.ledger.silent(self.t):
            return not (has_settled(self.watched, self.lead) or self._has_beat() or self._is_plain())
        least = POINT_GENERATIONS + int(self.points < POINT_GENERATIONS)  # growth that not all of them show: one more
        return self.ledger.complete < least

    def _is_plain(self) -> bool:
        """Growth that goes through most of what was watched, or has begun after a calm, and that for long."""
        forecaster = self.track.forecaster
        if self.watched < PLAIN_LEADS * self.lead or forecaster.clarity < PLAIN_CLEAR:
            return False
        return self.points >= PLAIN_POINTS or (forecaster.begins and self.points > POINT_GENERATIONS)

    def _has_beat(self) -> bool:
        """Enough teeth stand for the generations that nobody tells."""
        ends = self.track.outlook.ends
        by_part = ends is not None and ends.near is not None and len(ends.near.outline.highs) > 1
        return by_part and POINT_GENERATIONS < self.points < math.inf

    def _may_be_teeth(self) -> bool:
        """Growth in few levels, and less than what memory does within a generation: that of teeth out of step."""
        ends, trend = self.track.outlook.ends, self.track.outlook.trend
        if ends is None or trend is None or trend.points >= POINT_GENERATIONS:
            return False
        return trend.growth_per_second * ends.step_seconds * trend.points < self.track.forecaster.reach_bytes


URGENCY = ("time", "boundary", "saved")  # the kinds of reasons, most urgent first
POINT_SHARE = 0.5  # of a generation: so long a boundary that a save is awaited at stays open


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
        limit, forecast = track.usage.limit, track.outlook.forecast
        if limit is None or forecast is None or not threatens(track.outlook.verdict, forecast):
            return None
        moment = Moment(self._policy, self._ledger, t, track, limit, forecast, lead, gap)
        if not moment.is_believable():
            return None
        if moment.is_last():
            return "time" if moment.is_tight() else None
        return self._point_reason(moment)

    def _point_reason(self, moment: Moment) -> str | None:
        """At a boundary or after a save: the next step does not fit, so this is the last good moment."""
        if self._point is None or min(self._ledger.complete, moment.points) < POINT_GENERATIONS:
            return None
        if self._ledger.stalled(moment.track.usage.resource) or not moment.fits():
            return None
        if not (moment.is_new() and moment.is_clear()):
            return None
        (begun, kind), saves, lead = self._point, self._checkpoints, moment.lead
        step = saves.interval_seconds if kind == "saved" else None
        step = step if step is not None else self._ledger.step_seconds(moment.t)
        if step is None:
            return None
        due = saves.due_seconds(moment.t) if kind == "boundary" else None
        if due is not None and not runs_out_within(moment.forecast, due + lead):
            return None  # the trainer saves by itself before: that is the better moment
        left, ends = max(0.0, step - (moment.t - begun)), moment.track.outlook.ends
        if next_step_fits(moment.forecast, left, lead):
            return None
        if ends is not None and ends.too_late(left, moment.need) < POINT_ODDS:
            return None
        return kind if moment.could_fill(left + lead) else None

    def _confirms(self, t: float, resource: str) -> bool:
        """An earlier look, and each since, said so too; this is the first otherwise."""
        first_t = self._firsts.setdefault(resource, t)
        return t > first_t and t - first_t >= self._policy.second_look_seconds


def _resource(decision: Decision) -> str:
    return decision.track.usage.resource
