"""The decision to interrupt, and the rule when the last chance for a checkpoint has come, asked of one resource."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from memwatch.core.decision.burst_detector import BurstDetector, ClimbDetector
from memwatch.core.decision.policy import (
    DELIVERY_SECONDS,
    ESTABLISHED_GENERATIONS,
    SILENT_STAKE,
    STAKE_LEADS,
    STARTUP_LEADS,
    WAITS,
    Policy,
    is_past_startup,
    may_reach_limit_within,
    waiting_costs_more,
)
from memwatch.core.forecast.outlook import CheckpointCost, GrowthEvidence, Outlook, TimeToLimitProtocol
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.measurements import Limit, Usage
from memwatch.core.snapshot import Forecast

FEW_STAKE = 0.5  # times the work at risk, where few generations show how high one goes
ROOM_FACTOR = 2.0  # a forecast is acted upon when twice the growth that was seen could bring it about
WARM_UP_PROBABILITY = 0.9  # of being too late: less is no reason to act in the first generations
NEW_HIGH_SHARE = 0.005  # of the highest use so far: farther below it there is no new growth yet
SIGNIFICANT_T_STAT = 4.0  # standard errors: levels depend on each other, and of many lines the steepest was chosen
RECENT_SHARE = 0.25  # of the time watched: a new high within it of at least ...
SIGNIFICANT_RISE_SHARE = 0.02  # ... this share of the limit is growth: what comes and goes rises less from peak to peak
CLEAR_T_STAT = 15.0  # standard errors: without generations, growth as significant as this ...
CLEAR_POINTS = 12  # ... in so many of the 16 blocks of time is clear, ...
CLEAR_LEADS = 20.0  # ... and watched for so many lead times it is not that of starting up
NEW_HIGH_POINTS = 9  # levels: growth seen in so many is no accident, even below what was in use before
SOON_SHARE = 0.25  # of a generation: a rise over a longer time may have gone again by then
RECENT_BLOCKS = 8  # without generations, an eighth of the time watched is recent


class WatchedResource(Protocol):
    """One resource of the trainer. Bytes, and bytes per second."""

    usage: Usage  # at the latest sample
    outlook: Outlook  # the latest; it may be older than the sample
    peak: int  # the highest use by this process
    first_bytes: int  # in use at its first sample, ...
    first_t: float  # ... and when that was

    @property
    def limit_used_bytes(self) -> int: ...  # what is gone of the limit, by anybody
    @property
    def burst(self) -> BurstDetector: ...
    @property
    def climb(self) -> ClimbDetector: ...
    @property
    def climb_record(self) -> int: ...  # as of the climb, or of some samples ago and then lower
    @property
    def fastest(self) -> float: ...  # how fast the headroom has recently shrunk, at most
    @property
    def p_never(self) -> float: ...  # the probability that the limit is never reached
    @property
    def measured_checkpoint_bytes(self) -> int: ...
    @property
    def expected_checkpoint_bytes(self) -> float: ...
    def recent_rise_bytes(self, seconds: float) -> int:
        """What was taken of the limit within so many seconds, by anybody, as far as the latest samples show."""


@dataclass(frozen=True, slots=True)
class InterruptDecision:
    """Interrupt the trainer now, because of this resource."""

    usage: Usage
    kind: str  # "emergency", "time", "boundary", "saved"
    rate: float = 0.0  # bytes per second, of an emergency

    @property
    def seconds_left(self) -> float:
        """Until the headroom is used up at the rate of an emergency; infinite for the other kinds."""
        if self.is_exceeded:
            return 0.0
        limit = self.usage.limit
        return math.inf if limit is None or self.rate <= 0.0 else limit.headroom_bytes / self.rate

    @property
    def is_exceeded(self) -> bool:
        """More is in use than the limit allows: the limit was lowered."""
        return self.usage.limit is not None and self.usage.limit.headroom_bytes < 0


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """One resource at one sample, and what is needed to decide on it."""

    policy: Policy
    ledger: GenerationLedger
    t: float
    resource: WatchedResource
    limit: Limit
    forecast: Forecast
    lead: float  # seconds from now until a checkpoint is complete
    sample_interval: float  # seconds

    @property
    def checkpoint_cost(self) -> CheckpointCost:
        return CheckpointCost(self.lead, self.resource.expected_checkpoint_bytes)

    @property
    def growth(self) -> GrowthEvidence:
        return self.resource.outlook.growth

    @property
    def watched_seconds(self) -> float:
        return self.t - self.resource.first_t

    @property
    def points(self) -> float:
        """How many levels (generations, or blocks of time) show the growth."""
        trend = self.resource.outlook.trend
        return math.inf if trend is None else trend.points

    @property
    def cannot_fit(self) -> bool:
        """The growth is that of a buffer for which the limit has no room: no starting up, young as the watch is."""
        return any(one.fits is False for one in self.resource.outlook.drivers)

    def checkpoint_fits_in_memory(self) -> bool:
        """There is memory for a checkpoint that is requested now, even if memory goes on rising until it begins."""
        seconds = DELIVERY_SECONDS + self.policy.confirmation_seconds
        step = self.ledger.generation_seconds(self.t)
        seconds = seconds if step is None else min(seconds, SOON_SHARE * step)
        needed = self.resource.measured_checkpoint_bytes + self.resource.recent_rise_bytes(seconds)
        return self.limit.headroom_bytes >= needed

    def is_last_chance(self) -> bool:
        """A checkpoint still fits, in time and memory; later it might not."""
        risk = self.resource.outlook.time_to_limit
        if risk is None:
            return may_reach_limit_within(self.forecast, self.lead)
        p_fail = risk.p_checkpoint_fails(risk.cycle_seconds, self.checkpoint_cost)
        if p_fail <= 1.0 - self.policy.confidence or not self.is_new_high():
            return False
        return self._is_last_in_warm_up(risk) if self._is_warming_up() else self._is_last_by_stakes(risk)

    def _is_last_in_warm_up(self, risk: TimeToLimitProtocol) -> bool:
        # a rise that the memory of an earlier checkpoint hides counts too
        risen = self.growth.new_high_bytes(self.lead) + self.resource.measured_checkpoint_bytes
        if risen <= min(NEW_HIGH_SHARE * self.resource.peak, 0.5 * self.limit.headroom_bytes):
            return False
        p_fail = 0.0
        if self.checkpoint_fits_in_memory():
            p_fail = risk.p_checkpoint_fails(self.sample_interval, self.checkpoint_cost)
        return max(risk.p_exceed(self.lead), p_fail) >= WARM_UP_PROBABILITY

    def _is_last_by_stakes(self, risk: TimeToLimitProtocol) -> bool:
        work = max(self.watched_seconds, STAKE_LEADS * self.lead)
        work *= SILENT_STAKE if self.forecast.generation is None else 1.0
        work *= FEW_STAKE if risk.cycles_seen < ESTABLISHED_GENERATIONS else 1.0
        p_exceed = risk.p_exceed(self.lead)
        # what the run would still do until the limit is worth less than what it may lose
        if p_exceed * work > risk.expected_time_to_limit(self.lead, work):
            return self.checkpoint_fits_in_memory() or p_exceed >= WARM_UP_PROBABILITY
        waits = (max(share * risk.cycle_seconds, self.sample_interval) for share in WAITS)
        p_fail = partial(risk.p_checkpoint_fails, cost=self.checkpoint_cost)
        return self.checkpoint_fits_in_memory() and waiting_costs_more(p_fail, waits, work, self.resource.p_never)

    def is_headroom_tight(self) -> bool:
        """What is left could be used up: by the fastest recent rise, by growth and a peak, or by a checkpoint."""
        growth, lead = self.growth, self.lead
        if self._is_warming_up():  # growth that is over is no threat yet
            return self.limit.headroom_bytes <= ROOM_FACTOR * growth.rise_bytes(lead)
        step = self.ledger.generation_seconds(self.t)
        share = 1.0 if step is None else min(1.0, lead / step)
        rise = self.ledger.next_generation_rise_bytes(self.resource.usage.resource, share) or 0
        most = max(growth.peak_rate() * lead, growth.range_bytes, rise, self.checkpoint_cost.bytes)
        return self.limit.headroom_bytes <= ROOM_FACTOR * most

    def growth_could_fill(self, seconds: float) -> bool:
        """What is left beside a checkpoint could be used up by the growth of the generations in so many seconds."""
        rise = self.ledger.next_generation_rise_bytes(self.resource.usage.resource)
        generations = max(1.0, seconds / (self.ledger.generation_seconds(self.t) or math.inf))
        headroom = self.limit.headroom_bytes - self.checkpoint_cost.bytes
        return rise is None or headroom <= ROOM_FACTOR * rise * generations

    def is_new_high(self) -> bool:
        """Memory has lately been higher than ever before, or many levels show the growth."""
        if self.points >= NEW_HIGH_POINTS:
            return True
        recent = self.ledger.generation_seconds(self.t) or self.watched_seconds / RECENT_BLOCKS
        return self.growth.new_high_bytes(recent) >= -NEW_HIGH_SHARE * self.resource.peak

    def is_growth_significant(self) -> bool:
        """The growth is no accident: the levels show it, or memory has lately been far above all before."""
        if self.growth.slope_t_stat >= SIGNIFICANT_T_STAT:
            return True
        rise = self.growth.new_high_bytes(RECENT_SHARE * self.watched_seconds)
        return rise >= SIGNIFICANT_RISE_SHARE * self.limit.bytes

    def _is_warming_up(self) -> bool:
        """Little has been seen, so that little is lost; or the samples do not yet show what the growth is."""
        if self.cannot_fit and self.ledger.has_no_markers(self.t):
            return False
        if self.watched_seconds < STARTUP_LEADS * self.lead:
            return True
        if not self.is_growth_significant() or self._may_be_sawtooth():
            return True
        if self.ledger.has_no_markers(self.t):
            is_past = is_past_startup(self.watched_seconds, self.lead)
            is_clear = self.watched_seconds >= CLEAR_LEADS * self.lead and self.has_clear_trend()
            return not (is_past or self._has_sawtooth_cycle() or is_clear)
        # one more generation is wanted where not all of them show the growth
        wanted = ESTABLISHED_GENERATIONS + (self.points < ESTABLISHED_GENERATIONS)
        return self.ledger.complete_generations < wanted

    def has_clear_trend(self) -> bool:
        """Most levels show the growth, or it began after a plateau."""
        if self.growth.slope_t_stat < CLEAR_T_STAT:
            return False
        if self.points >= CLEAR_POINTS:
            return True
        return self.growth.growth_follows_plateau and self.points > ESTABLISHED_GENERATIONS

    def _has_sawtooth_cycle(self) -> bool:
        """Without markers: enough cycles of a sawtooth were seen, which stand for generations."""
        risk = self.resource.outlook.time_to_limit
        return risk is not None and risk.knows_generation_profile and ESTABLISHED_GENERATIONS < self.points < math.inf

    def _may_be_sawtooth(self) -> bool:
        """Few levels show the growth, and it is smaller than the swing within a generation: a sawtooth out of step."""
        risk, trend = self.resource.outlook.time_to_limit, self.resource.outlook.trend
        if risk is None or trend is None or trend.points >= ESTABLISHED_GENERATIONS:
            return False
        return trend.growth_per_second * risk.cycle_seconds * trend.points < self.growth.range_bytes
