"""What should be done now: whether to interrupt the trainer, and how soon the next sample is needed to decide it.

An interrupt is decided for an emergency, or because the forecast calls for one and a later sample confirms it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from memwatch.core.checkpoint_timing import CheckpointTracker
from memwatch.core.decision.emergency_interrupt import EmergencyDetector, wake_thresholds
from memwatch.core.decision.interrupt_plan import plan_interrupt
from memwatch.core.decision.interrupt_rule import DecisionContext, InterruptDecision, WatchedResource
from memwatch.core.decision.policy import (
    DELIVERY_SECONDS,
    MARGIN_SECONDS,
    MARGIN_SHARE,
    OPPORTUNITY_PROBABILITY,
    PACE_FLOOR_SECONDS,
    PACE_IDLE_SECONDS,
    WORTH_SHARE,
    Policy,
    may_reach_limit_within,
    next_step_fits,
    pace_seconds,
    reaches_limit,
)
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.measurements import Usage
from memwatch.core.snapshot import PlannedInterrupt

URGENCY = ("time", "boundary", "saved")  # the kinds of reasons, most urgent first
INTERVAL_SAMPLES = 8  # that the recent sample interval is averaged over, with fading weights
OPPORTUNITY_SHARE = 0.5  # of a generation: how long a boundary stays an opportunity while a save is awaited


class LeadTimeEstimator:
    """Told when samples are taken; reads the ledger and the checkpoints that the engine keeps. Seconds."""

    def __init__(self, policy: Policy, ledger: GenerationLedger, checkpoints: CheckpointTracker) -> None:
        self._policy, self._ledger, self._checkpoints = policy, ledger, checkpoints
        self._last_t: float | None = None
        self.sample_interval_seconds = 0.0  # the recent one

    def add_sample_times(self, times: Sequence[float]) -> None:
        last, usual = times[0] if self._last_t is None else self._last_t, self.sample_interval_seconds
        for t in times:
            if t > last:
                usual = t - last if usual == 0 else usual + (t - last - usual) / INTERVAL_SAMPLES
            last = t
        self._last_t, self.sample_interval_seconds = last, usual

    def checkpoint_estimate(self, t: float) -> tuple[float, str]:
        """Seconds that a checkpoint is expected to need, and where that comes from."""
        seconds, origin = self._checkpoints.duration_estimate(
            self._policy.checkpoint_seconds, self._ledger.generation_seconds(t)
        )
        # a checkpoint that begins and ends between two samples is measured as 0: it took up to the sample interval
        return (max(seconds, self.sample_interval_seconds) if origin == "measured" else seconds), origin

    def lead_seconds(self, checkpoint_seconds: float) -> float:
        """From the first sample that calls for an interrupt until the checkpoint, which takes so long, is complete."""
        confirm = max(self._policy.confirmation_seconds, self.sample_interval_seconds) + self.sample_interval_seconds
        margin = max(MARGIN_SECONDS, MARGIN_SHARE * checkpoint_seconds)
        return checkpoint_seconds + margin + DELIVERY_SECONDS + confirm


class DecisionMaker:
    """Decides for one trainer process. Reads the ledger and the checkpoints that the engine keeps."""

    def __init__(self, policy: Policy, ledger: GenerationLedger, checkpoints: CheckpointTracker) -> None:
        self._policy, self._ledger, self._checkpoints = policy, ledger, checkpoints
        self.lead_time = LeadTimeEstimator(policy, ledger, checkpoints)
        self._emergencies = EmergencyDetector(policy, ledger)
        self._opportunity: tuple[float, str] | None = None  # a good time for an interrupt: since when, its kind
        self._pending_since: dict[str, float] = {}  # by resource: when it first called for an interrupt, without pause
        self.awaited_save_seconds: float | None = None  # until its own save, which an interrupt waits for; None: none

    def add_opportunity(self, t: float, kind: str) -> None:
        """A generation has ended ("boundary"), or the trainer has just saved ("saved").

        Where an interrupt ends the trainer without a save, its own save is the better of the two.
        """
        if kind == "saved" or not (self._checkpoints.saves_on_signal is False and self._is_just_saved):
            self._opportunity = (t, kind)

    @property
    def _is_just_saved(self) -> bool:
        return self._opportunity is not None and self._opportunity[1] == "saved"

    def reset(self) -> None:
        """No interrupt can begin now: what was being considered is void."""
        self._opportunity = self.awaited_save_seconds = None
        self._pending_since.clear()
        self._emergencies.reset()

    @property
    def is_pending(self) -> bool:
        is_waiting = bool(self._pending_since) or self.awaited_save_seconds is not None
        return is_waiting or self._emergencies.next_sample_seconds is not None

    @property
    def needs_outlook(self) -> bool:
        """The next sample needs a new outlook whatever memory does: to confirm, or because there is an opportunity."""
        return bool(self._pending_since or self._opportunity) or self.awaited_save_seconds is not None

    def safe_below_bytes(self, resource: WatchedResource, usage: Usage) -> float:
        """Bytes in use below which no growth is an emergency, for any samples up to that use."""
        return self._emergencies.safe_below_bytes(resource, usage)

    def next_sample_seconds(self, resources: Iterable[WatchedResource]) -> float:
        paces = [
            pace_seconds(resource.usage.limit.headroom_bytes, resource.fastest)
            for resource in resources
            if resource.usage.limit is not None
        ]
        if self._pending_since:
            paces.append(self._policy.confirmation_seconds)
        if self._emergencies.next_sample_seconds is not None:
            paces.append(self._emergencies.next_sample_seconds)
        return max(min(paces, default=PACE_IDLE_SECONDS), PACE_FLOOR_SECONDS)

    def wake_thresholds(self, resource: WatchedResource) -> tuple[int, ...]:
        """Bytes of headroom at which a sample is wanted at once, the most first; none without a limit."""
        limit, used = resource.usage.limit, resource.usage.used_bytes
        return () if limit is None else wake_thresholds(limit, used, resource.peak, self._policy.headroom_guard)

    def check_emergency(self, t: float, resources: Sequence[WatchedResource], lead: float) -> InterruptDecision | None:
        """Decide by the sample alone, before the outlooks are renewed; earlier samples must have called for it too."""
        return self._emergencies.decide(t, resources, lead)

    def decide(self, t: float, resources: Sequence[WatchedResource], lead: float) -> InterruptDecision | None:
        """Decide by the outlooks, which have just been renewed; an earlier sample must have called for it too."""
        self.awaited_save_seconds = None
        contexts = [self._context(t, resource, max(0.0, lead - self._waited(t, resource))) for resource in resources]
        called = [(one, kind) for one in contexts if one is not None and (kind := self._reason(one)) is not None]
        if self._opportunity is not None and not any(kind == self._opportunity[1] for _, kind in called):
            self._expire_opportunity(t, *self._opportunity)
        calling = {one.resource.usage.resource for one, _ in called}
        silent = {resource.usage.resource for resource in resources} - calling
        self._pending_since = {name: t0 for name, t0 in self._pending_since.items() if name not in silent}
        confirmed = [InterruptDecision(one.resource.usage, kind) for one, kind in called if self._confirms(one)]
        return min(confirmed, key=lambda one: URGENCY.index(one.kind), default=None)

    def _waited(self, t: float, resource: WatchedResource) -> float:
        """Seconds since the first look that called for an interrupt: a part of the lead time is over."""
        return t - self._pending_since.get(resource.usage.resource, t)

    def _confirms(self, context: DecisionContext) -> bool:
        """An earlier sample, and each since, called for an interrupt too; otherwise this one is the first."""
        waited = context.t - self._pending_since.setdefault(context.resource.usage.resource, context.t)
        return waited > 0.0 and waited >= context.confirmation_seconds

    def _expire_opportunity(self, t: float, begun: float, kind: str) -> None:
        """Drop an opportunity that was not used, unless the trainer's own save that is due then is still awaited."""
        awaited = kind == "boundary" and self._checkpoints.seconds_until_own_save(t) is not None
        if not awaited or t - begun > OPPORTUNITY_SHARE * (self._ledger.generation_seconds(t) or 0.0):
            self._opportunity = None

    def plan(self, t: float, resource: WatchedResource, lead: float) -> PlannedInterrupt:
        """When the forecast of this resource would lead to an interrupt, if all goes on as it says."""
        return plan_interrupt(self._context(t, resource, lead), self._checkpoints)

    def explain(self, t: float, resource: WatchedResource, lead: float) -> dict[str, Any]:
        """Whether the forecast of this resource calls for an interrupt now, and the numbers behind it, JSON-ready."""
        context, outlook = self._context(t, resource, lead), resource.outlook
        found = {
            "resource": resource.usage.resource,
            "reason": None if context is None else self._reason(context),
            "verdict": outlook.verdict.value,
            "is_growth": reaches_limit(outlook.verdict, outlook.forecast),
        }
        if context is None:
            return found
        rates = {"rate": resource.burst.rate(context.limit.headroom_bytes), "climb_rate": resource.climb.rate}
        return found | context.numbers() | rates

    def _context(self, t: float, resource: WatchedResource, lead: float) -> DecisionContext | None:
        """None without a limit or a forecast."""
        limit, forecast = resource.usage.limit, resource.outlook.forecast
        if limit is None or forecast is None:
            return None
        interval = self.lead_time.sample_interval_seconds
        return DecisionContext(self._policy, self._ledger, t, resource, limit, forecast, lead, interval)

    def _reason(self, context: DecisionContext) -> str | None:
        """Why the forecast of its resource calls for an interrupt now; None: it does not."""
        if not reaches_limit(context.resource.outlook.verdict, context.forecast) or not context.is_believed:
            return None
        if not context.is_last_chance():
            return self._opportunity_reason(context)
        if not context.could_fill_room(context.lead) or self._awaits_own_save(context):
            return None
        return "saved" if self._is_just_saved and self._checkpoints.saves_on_signal is False else "time"

    def _awaits_own_save(self, context: DecisionContext) -> bool:
        """An interrupt saves nothing, and the trainer's next own save comes in time.

        Right after a save nothing is lost now, so the next one must come before the early end of the forecast, and the
        interrupt after it. Later an interrupt would lose the work since that save: the next one need only be likely.
        """
        saves = self._checkpoints
        due = saves.seconds_until_own_save(context.t) if saves.saves_on_signal is False else None
        if due is None:
            return False
        if self._is_just_saved:
            reaction = DELIVERY_SECONDS + self._policy.confirmation_seconds + self.lead_time.sample_interval_seconds
            comes = not may_reach_limit_within(context.forecast, due + reaction)
        else:
            comes = context.forecast.eta_seconds is None or context.forecast.eta_seconds > due
        self.awaited_save_seconds = due if comes else None
        return comes

    def _opportunity_reason(self, context: DecisionContext) -> str | None:
        """At a boundary or after a save: the next step does not fit, so this is the last good time."""
        if self._opportunity is None or not context.checkpoint_fits_in_memory():
            return None
        (begun, kind), saves, lead = self._opportunity, self._checkpoints, context.lead
        step = saves.own_save_interval_seconds if kind == "saved" else None
        step = step if step is not None else self._ledger.generation_seconds(context.t)
        if step is None:
            return None
        due = saves.seconds_until_own_save(context.t)
        if kind == "boundary" and due is not None and not may_reach_limit_within(context.forecast, due + lead):
            return None  # the trainer saves by itself before: that is the better time
        left, worth_share = max(0.0, step - (context.t - begun)), WORTH_SHARE
        if self._checkpoints.saves_on_signal is False and due is not None:
            left, worth_share = due, 1.0  # less than all until its own save is worth nothing
        risk = context.resource.outlook.time_to_limit
        if next_step_fits(context.forecast, left, lead, worth_share):
            return None
        if risk is not None and risk.p_checkpoint_fails(left, context.checkpoint_cost) < OPPORTUNITY_PROBABILITY:
            return None
        return kind if context.could_fill_room(left + lead) else None
