"""One look at one resource that is forecast to meet its limit: whether it is the last at which a checkpoint is sure.

When to interrupt: judges every look, waits for the best moment, and wants a second look before it says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from memwatch.core.checkpoint_timing import CheckpointTracker
from memwatch.core.decision.policy import (
    DELIVERY_SECONDS,
    ESTABLISHED_GENERATIONS,
    OPPORTUNITY_PROBABILITY,
    SILENT_STAKE,
    STAKE_LEADS,
    STARTUP_LEADS,
    WAITS,
    Policy,
    Stakes,
    exceeds_accepted_risk,
    is_credible,
    is_overdue,
    is_past_startup,
    may_reach_limit_within,
    next_step_fits,
    reaches_limit,
    waiting_costs_more,
)
from memwatch.core.engine.monitored_resource import InterruptDecision, MonitoredResource
from memwatch.core.forecast.time_to_limit import CheckpointCost, TimeToLimit
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.measurements import Limit
from memwatch.core.snapshot import Forecast

FEW_STAKE = 0.5  # times what is at stake where few generations say how high one goes
ROOM_FACTOR = 2.0  # a forecast is acted upon when twice the growth that was seen could bring it about
YOUNG_ODDS = 0.9  # of being too late: less is no reason to act in the first generations
AS_HIGH = 0.005  # of the highest so far: farther below it there is no new growth yet
SIGNIFICANT_T_STAT = 4.0  # standard errors: levels depend on each other, and of many lines the steepest was chosen
RECENT_SHARE, RISEN = (
    0.25,
    0.02,
)  # of what was watched, of the limit: what comes and goes rises less from one to the next
PLAIN_CLEAR = 15.0  # standard errors: so clear ...
PLAIN_POINTS = 12  # ... in so many of 16 blocks of time ...
PLAIN_LEADS = 20.0  # ... for so many lead times, growth is no start-up, though nobody tells generations
NEW_POINTS = 9  # levels from which on growth is no accident, even below what was in use before
SOON_SHARE = 0.25  # of a generation: what rose within more may have fallen again by then
RECENT_BLOCKS = 8  # of the time watched: without generations, what is recent


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """Seconds and bytes. `lead`: from the look until a checkpoint is complete; `gap`: between two readings."""

    policy: Policy
    ledger: GenerationLedger
    t: float
    track: MonitoredResource
    limit: Limit
    forecast: Forecast
    lead: float
    gap: float

    @property
    def checkpoint_cost(self) -> CheckpointCost:
        """What a checkpoint takes."""
        return CheckpointCost(self.lead, self.track.expected_checkpoint_bytes)

    @property
    def watched(self) -> float:
        """How long this process is known."""
        return self.t - self.track.first_t

    @property
    def points(self) -> float:
        """Levels that the growth was seen in."""
        trend = self.track.outlook.trend
        return math.inf if trend is None else trend.points

    def is_credible(self) -> bool:
        """The forecast rests on enough."""
        return is_credible(self.forecast, self.watched, self.lead, self.limit.headroom_bytes, self.limit.bytes)

    def checkpoint_fits_in_memory(self) -> bool:
        """There is memory for a checkpoint that is asked for now, also if what rises goes on rising until it begins."""
        seconds = DELIVERY_SECONDS + self.policy.second_look_seconds
        step = self.ledger.generation_seconds(self.t)
        seconds = seconds if step is None else min(seconds, SOON_SHARE * step)
        return self.limit.headroom_bytes >= self.track.measured_checkpoint_bytes + self.track.recent_rise_bytes(seconds)

    def is_last_chance(self) -> bool:
        """A checkpoint still fits, in time and memory; later it might not."""
        ends = self.track.outlook.time_to_limit
        if ends is None:
            return may_reach_limit_within(self.forecast, self.lead)
        if (
            not exceeds_accepted_risk(
                ends.p_checkpoint_fails(ends.cycle_seconds, self.checkpoint_cost), self.policy.confidence
            )
            or not self.is_new_high()
        ):
            return False
        return self._is_last_of_young(ends) if self._is_warming_up() else self._is_last_of_all(ends)

    def _is_last_of_young(self, ends: TimeToLimit) -> bool:
        gain = (
            self.track.forecaster.new_high_bytes(self.lead) + self.track.measured_checkpoint_bytes
        )  # what is beneath a save of before counts
        if gain <= min(AS_HIGH * self.track.peak, 0.5 * self.limit.headroom_bytes):
            return False
        odds = ends.p_checkpoint_fails(self.gap, self.checkpoint_cost) if self.checkpoint_fits_in_memory() else 0.0
        return max(ends.p_exceed(self.lead), odds) >= YOUNG_ODDS

    def _is_last_of_all(self, ends: TimeToLimit) -> bool:
        stake = max(self.watched, STAKE_LEADS * self.lead)
        stake *= SILENT_STAKE if self.forecast.generation is None else 1.0
        stake *= FEW_STAKE if ends.cycles_seen < ESTABLISHED_GENERATIONS else 1.0
        stakes, odds = (
            Stakes(stake, ends.expected_time_to_limit(self.lead, stake), self.track.p_never),
            ends.p_exceed(self.lead),
        )
        if is_overdue(odds, stakes):
            return self.checkpoint_fits_in_memory() or odds >= YOUNG_ODDS
        waits = (max(share * ends.cycle_seconds, self.gap) for share in WAITS)
        return self.checkpoint_fits_in_memory() and waiting_costs_more(
            partial(ends.p_checkpoint_fails, need=self.checkpoint_cost), waits, stakes
        )

    def is_headroom_tight(self) -> bool:
        """What is left could be used up: by the fastest rise of late, or by growth and a peak, or by a checkpoint."""
        forecaster, lead = self.track.forecaster, self.lead
        if self._is_warming_up():  # growth that is over is no threat yet
            return self.limit.headroom_bytes <= ROOM_FACTOR * forecaster.rise_bytes(lead)
        step = self.ledger.generation_seconds(self.t)
        share = 1.0 if step is None else min(1.0, lead / step)
        climb = self.ledger.next_generation_rise_bytes(self.track.usage.resource, share) or 0
        most = max(forecaster.peak_rate() * lead, forecaster.range_bytes, climb, self.checkpoint_cost.bytes)
        return self.limit.headroom_bytes <= ROOM_FACTOR * most

    def growth_could_fill(self, seconds: float) -> bool:
        """What is left beside a checkpoint could be used up by as many generations' growth."""
        climb = self.ledger.next_generation_rise_bytes(self.track.usage.resource)
        generations = max(1.0, seconds / (self.ledger.generation_seconds(self.t) or math.inf))
        return (
            climb is None or self.limit.headroom_bytes - self.checkpoint_cost.bytes <= ROOM_FACTOR * climb * generations
        )

    def is_new_high(self) -> bool:
        """Memory has been where it was not before, or the growth was seen for long."""
        if self.points >= NEW_POINTS:
            return True
        recent = self.ledger.generation_seconds(self.t) or self.watched / RECENT_BLOCKS
        return self.track.forecaster.new_high_bytes(recent) >= -AS_HIGH * self.track.peak

    def is_growth_significant(self) -> bool:
        """The growth is no accident: so the levels say, or memory has lately been far above all before."""
        forecaster = self.track.forecaster
        return (
            forecaster.slope_t_stat >= SIGNIFICANT_T_STAT
            or forecaster.new_high_bytes(RECENT_SHARE * self.watched) >= RISEN * self.limit.bytes
        )

    def _is_warming_up(self) -> bool:
        """Little has been seen, and little is lost; or what was seen tells little."""
        if self.watched < STARTUP_LEADS * self.lead or not self.is_growth_significant() or self._may_be_sawtooth():
            return True
        if self.ledger.has_no_markers(self.t):
            return not (
                is_past_startup(self.watched, self.lead) or self._has_sawtooth_cycle() or self._has_clear_trend()
            )
        least = ESTABLISHED_GENERATIONS + int(
            self.points < ESTABLISHED_GENERATIONS
        )  # growth that not all of them show: one more
        return self.ledger.complete_generations < least

    def _has_clear_trend(self) -> bool:
        """Growth that goes through most of what was watched, or has begun after a calm, and that for long."""
        forecaster = self.track.forecaster
        if self.watched < PLAIN_LEADS * self.lead or forecaster.slope_t_stat < PLAIN_CLEAR:
            return False
        return self.points >= PLAIN_POINTS or (
            forecaster.growth_follows_plateau and self.points > ESTABLISHED_GENERATIONS
        )

    def _has_sawtooth_cycle(self) -> bool:
        """Enough teeth stand for the generations that nobody tells."""
        ends = self.track.outlook.time_to_limit
        by_part = (
            ends is not None and ends.short_horizon is not None and len(ends.short_horizon.profile.slot_maxima) > 1
        )
        return by_part and ESTABLISHED_GENERATIONS < self.points < math.inf

    def _may_be_sawtooth(self) -> bool:
        """Growth in few levels, and less than what memory does within a generation: that of teeth out of step."""
        ends, trend = self.track.outlook.time_to_limit, self.track.outlook.trend
        if ends is None or trend is None or trend.points >= ESTABLISHED_GENERATIONS:
            return False
        return trend.growth_per_second * ends.cycle_seconds * trend.points < self.track.forecaster.range_bytes


URGENCY = ("time", "boundary", "saved")  # the kinds of reasons, most urgent first
POINT_SHARE = 0.5  # of a generation: so long a boundary that a save is awaited at stays open


class InterruptDecider:
    """The judgement of one trainer process. Reads the ledger and the checkpoints that the engine keeps."""

    def __init__(self, policy: Policy, ledger: GenerationLedger, checkpoints: CheckpointTracker) -> None:
        self._policy, self._ledger, self._checkpoints = policy, ledger, checkpoints
        self._opportunity: tuple[float, str] | None = None  # a good moment for an interrupt: since when, its kind
        self._pending_since: dict[str, float] = {}  # when a resource first asked, and at each look since

    @property
    def pending(self) -> bool:
        """Another look is wanted."""
        return bool(self._pending_since)

    @property
    def wants_look(self) -> bool:
        """A look is wanted whatever memory does: another one, or one at a good moment."""
        return self.pending or self._opportunity is not None

    def add_opportunity(self, t: float, kind: str) -> None:
        """A generation has ended ("boundary"), or the trainer has just saved ("saved")."""
        self._opportunity = (t, kind)

    def reset(self) -> None:
        """No interrupt can begin now: what was being considered is void."""
        self._opportunity = None
        self._pending_since.clear()

    def decide(
        self, t: float, tracks: Sequence[MonitoredResource], lead: float, gap: float
    ) -> InterruptDecision | None:
        """Judge this look; a decision only when an earlier look said the same. `gap`: seconds between two readings."""
        reasons = [InterruptDecision(track, kind) for track in tracks if (kind := self._reason(t, track, lead, gap))]
        if self._opportunity is not None and not any(reason.kind == self._opportunity[1] for reason in reasons):
            self._expire_point(t, *self._opportunity)
        said, seen = {_resource(reason) for reason in reasons}, {track.usage.resource for track in tracks}
        self._pending_since = {
            name: first for name, first in self._pending_since.items() if name in said or name not in seen
        }
        confirmed = [reason for reason in reasons if self._confirms(t, _resource(reason))]
        return min(confirmed, key=lambda reason: URGENCY.index(reason.kind), default=None)

    def _expire_point(self, t: float, begun: float, kind: str) -> None:
        """Drop a good moment that was not taken, unless the save that is due then is still awaited."""
        step = self._ledger.generation_seconds(t)
        awaited = kind == "boundary" and self._checkpoints.seconds_until_own_save(t) is not None
        if not awaited or t - begun > POINT_SHARE * (step or 0.0):
            self._opportunity = None

    def _reason(self, t: float, track: MonitoredResource, lead: float, gap: float) -> str | None:
        """Why the forecast of this resource asks for an interrupt now; None: it does not."""
        limit, forecast = track.usage.limit, track.outlook.forecast
        if limit is None or forecast is None or not reaches_limit(track.outlook.verdict, forecast):
            return None
        moment = DecisionContext(self._policy, self._ledger, t, track, limit, forecast, lead, gap)
        if not moment.is_credible():
            return None
        if moment.is_last_chance():
            return "time" if moment.is_headroom_tight() else None
        return self._point_reason(moment)

    def _point_reason(self, moment: DecisionContext) -> str | None:
        """At a boundary or after a save: the next step does not fit, so this is the last good moment."""
        if self._opportunity is None or min(self._ledger.complete_generations, moment.points) < ESTABLISHED_GENERATIONS:
            return None
        if self._ledger.has_stalled(moment.track.usage.resource) or not moment.checkpoint_fits_in_memory():
            return None
        if not (moment.is_new_high() and moment.is_growth_significant()):
            return None
        (begun, kind), saves, lead = self._opportunity, self._checkpoints, moment.lead
        step = saves.own_save_interval_seconds if kind == "saved" else None
        step = step if step is not None else self._ledger.generation_seconds(moment.t)
        if step is None:
            return None
        due = saves.seconds_until_own_save(moment.t) if kind == "boundary" else None
        if due is not None and not may_reach_limit_within(moment.forecast, due + lead):
            return None  # the trainer saves by itself before: that is the better moment
        left, ends = max(0.0, step - (moment.t - begun)), moment.track.outlook.time_to_limit
        if next_step_fits(moment.forecast, left, lead):
            return None
        if ends is not None and ends.p_checkpoint_fails(left, moment.checkpoint_cost) < OPPORTUNITY_PROBABILITY:
            return None
        return kind if moment.growth_could_fill(left + lead) else None

    def _confirms(self, t: float, resource: str) -> bool:
        """An earlier look, and each since, said so too; this is the first otherwise."""
        first_t = self._pending_since.setdefault(resource, t)
        return t > first_t and t - first_t >= self._policy.second_look_seconds


def _resource(decision: InterruptDecision) -> str:
    return decision.resource.usage.resource
