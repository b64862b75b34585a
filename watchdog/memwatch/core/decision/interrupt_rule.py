"""The decision to interrupt, and the rule when the last chance for a checkpoint has come, asked of one resource.

Two questions, both in probabilities. Is it likelier than not that the limit is reached at all? And does each longer
wait for a checkpoint put more work at risk than it gains?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from memwatch.core.decision.burst_detector import BurstDetector, ClimbDetector
from memwatch.core.decision.policy import (
    DELIVERY_SECONDS,
    ESTABLISHED_GENERATIONS,
    LOADING_LEADS,
    Policy,
    may_reach_limit_within,
)
from memwatch.core.forecast.outlook import CheckpointCost, GrowthEvidence, Outlook
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.measurements import Limit, Usage
from memwatch.core.snapshot import Forecast

WAITS = (1 / 16, 0.25, 0.5, 1.0, 2.0)  # of a generation: how long an interrupt may wait
WAIT_WORTH = 4.0  # seconds at risk that a second of work is worth: 3 loses as few runs and wastes more, 5 loses more
ROOM_FACTOR = 2.0  # a forecast is acted upon when twice the rise that was seen could bring it about
LIKELIER = 0.5  # probability that the limit is reached at all: with less, an interrupt is likelier to be needless
SURE = 0.9  # probability that the limit is reached before a checkpoint is complete: nothing is lost by trying
SOON_SHARE = 0.25  # of a generation: a rise over a longer time may have gone again by then


class WatchedResource(Protocol):
    """One resource of the trainer. Bytes, and bytes per second."""

    usage: Usage  # at the latest sample
    outlook: Outlook  # the latest; it may be older than the sample
    peak: int  # the highest use by this process
    first_bytes: int  # in use at its first sample, ...
    first_t: float  # ... and when that was
    started_t: float  # when its process began

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
    def running_seconds(self) -> float:
        """For how long its process has run, be it watched or not: so much work is at risk."""
        return self.t - self.resource.started_t

    @property
    def p_limit_reached(self) -> float:
        """The probability that the limit is reached at all.

        As the forecast has it, if memory goes on as it does; and growth that has lasted for s goes on for t more with
        probability s / (s + t), the Pareto prior of a duration of unknown scale (Gott, Nature 363, 1993). A cycle is
        the least that it must go on: growth is known from one to the next.
        """
        outlook, eta = self.resource.outlook, self.forecast.eta_seconds
        risk, trend = outlook.time_to_limit, outlook.trend
        if eta is None:
            return 0.0
        if risk is None or trend is None:  # the forecast is all that is known
            return 1.0
        if any(driver.fits is False for driver in outlook.drivers):
            return 1.0 - risk.p_never  # a buffer goes on filling until it is full
        seen, cycle = self.growth_seen_seconds, risk.cycle_seconds
        return (1.0 - risk.p_never) * seen / (seen + max(eta, 0.0) + cycle) if seen > 0.0 else 0.0

    @property
    def growth_seen_seconds(self) -> float:
        """From the first level of the growth to the last, but not while the program loaded; negative while it loads.

        A steady climb is growth that is seen, too, where the forecast's levels began in its midst, as with a marker.
        """
        seen = max(self.resource.outlook.growth_seen_seconds, self.resource.climb.seconds)
        return min(seen, self.running_seconds - LOADING_LEADS * self.lead)

    @property
    def is_believed(self) -> bool:
        """It is likelier than not that the limit is reached at all; in a young run, before a checkpoint is complete.

        Before it has completed some generations that must be all but sure, and the limit near.
        """
        if self.p_limit_reached >= LIKELIER:
            return True
        risk = self.resource.outlook.time_to_limit
        if risk is None:
            return False
        soon = min(risk.p_exceed(self.lead), 1.0 - risk.p_never)
        if self.ledger.complete_generations >= ESTABLISHED_GENERATIONS:
            return soon >= LIKELIER
        return soon >= SURE and self.limit.headroom_bytes <= self.policy.headroom_guard * self.limit.bytes

    @property
    def confirmation_seconds(self) -> float:
        """After which another sample must agree; 0: the next one, if a checkpoint after the usual wait likely fails."""
        risk, usual = self.resource.outlook.time_to_limit, self.policy.confirmation_seconds
        late = risk is not None and risk.p_checkpoint_fails(usual, self.checkpoint_cost) >= LIKELIER
        return 0.0 if late else usual

    def checkpoint_fits_in_memory(self) -> bool:
        """There is memory for a checkpoint that is requested now, even if memory goes on rising until it begins."""
        seconds = DELIVERY_SECONDS + self.policy.confirmation_seconds
        step = self.ledger.generation_seconds(self.t)
        seconds = seconds if step is None else min(seconds, SOON_SHARE * step)
        needed = self.resource.measured_checkpoint_bytes + self.resource.recent_rise_bytes(seconds)
        return self.limit.headroom_bytes >= needed

    def is_last_chance(self) -> bool:
        """A checkpoint still fits, in time and memory; with each wait it becomes less likely than the wait is worth."""
        risk, cost = self.resource.outlook.time_to_limit, self.checkpoint_cost
        if risk is None:
            return may_reach_limit_within(self.forecast, self.lead)
        if risk.p_checkpoint_fails(risk.cycle_seconds, cost) <= 1.0 - self.policy.confidence:
            return False
        p_exceed = risk.p_exceed(self.lead)
        if not self.checkpoint_fits_in_memory():
            return p_exceed >= SURE
        # what the run would still do until the limit is worth less than what it may lose
        if p_exceed * self.running_seconds > risk.expected_time_to_limit(self.lead, self.running_seconds):
            return True
        return waiting_costs_more(partial(risk.p_checkpoint_fails, cost=cost), self._waits(), self.running_seconds)

    def _waits(self) -> Iterator[float]:
        risk = self.resource.outlook.time_to_limit
        return (max(share * risk.cycle_seconds, self.sample_interval) for share in WAITS) if risk else iter(())

    def could_fill_room(self, seconds: float) -> bool:
        """What is left could be used up within so many seconds: by twice the rise that was seen, or by a checkpoint."""
        return self.limit.headroom_bytes <= self._most_bytes(seconds)

    def _most_bytes(self, seconds: float) -> float:
        loaded_t = self.resource.started_t + min(LOADING_LEADS * self.lead, 0.5 * self.running_seconds)
        fastest = self.growth.greatest_rise_bytes(seconds, loaded_t)
        return ROOM_FACTOR * max(fastest, self.checkpoint_cost.bytes)

    def numbers(self) -> dict[str, Any]:
        """What the rule stands on at this sample, JSON-ready: seconds, bytes, probabilities. The answers: `is_...`."""
        risk, cost, eta = self.resource.outlook.time_to_limit, self.checkpoint_cost, self.forecast.eta_seconds
        found: dict[str, Any] = {
            "left_s": eta,
            "growth_seen_s": self.growth_seen_seconds,
            "p_limit_reached": self.p_limit_reached,
            "is_believed": self.is_believed,
            "lead_s": self.lead,
            "is_last_chance": self.is_last_chance(),
            "headroom": self.limit.headroom_bytes,
            "most_within_lead": round(self._most_bytes(self.lead)),
            "checkpoint_bytes": round(cost.bytes),
            "is_checkpoint_room": self.checkpoint_fits_in_memory(),
        }
        if risk is not None:
            p_fail, at_risk = partial(risk.p_checkpoint_fails, cost=cost), self.running_seconds
            found |= {
                "p_never": risk.p_never,
                "cycle_s": risk.cycle_seconds,
                "p_within_lead": risk.p_exceed(self.lead),
                "p_fails_now": p_fail(0.0),
                "p_fails_after_cycle": p_fail(risk.cycle_seconds),
                "work_at_risk_s": at_risk,
                "work_left_s": risk.expected_time_to_limit(self.lead, at_risk),
                "waits": [
                    {"wait_s": wait, "p_fails": later, "cost_s": cost_s, "worth_s": worth_s}
                    for wait, later, cost_s, worth_s in costs_of_waiting(p_fail, self._waits(), at_risk)
                ],
            }
        return found


def waiting_costs_more(p_fail: Callable[[float], float], waits: Iterable[float], work_at_risk_seconds: float) -> bool:
    """Waiting costs more than acting now, for each of the `waits`, seconds."""
    return all(cost >= worth for _, _, cost, worth in costs_of_waiting(p_fail, waits, work_at_risk_seconds))


def costs_of_waiting(
    p_fail: Callable[[float], float], waits: Iterable[float], work_at_risk_seconds: float
) -> Iterator[tuple[float, float, float, float]]:
    """Each wait, the probability that a checkpoint after it fails, what it costs, and what it is worth: seconds.

    `p_fail`: probability that a checkpoint that is requested after so many seconds fails, and the work is lost. Acting
    now gives up what would be done in the wait, unless it would be lost with the rest.
    """
    now = p_fail(0.0)
    for wait in waits:
        later = p_fail(wait)
        yield wait, later, (later - now) * work_at_risk_seconds, WAIT_WORTH * (1.0 - later) * wait
