"""When the trainer will be interrupted if memory goes on as forecast: the rule, asked of the times to come."""

from __future__ import annotations

import math

from memwatch.core.checkpoint_timing import CheckpointTracker
from memwatch.core.decision.interrupt_rule import LIKELIER, DecisionContext
from memwatch.core.decision.policy import WORTH_SHARE, reaches_limit
from memwatch.core.decision.warning import run_ends_first
from memwatch.core.snapshot import PlannedInterrupt, Verdict


def plan_interrupt(context: DecisionContext | None, checkpoints: CheckpointTracker) -> PlannedInterrupt:
    """Seconds until the interrupt, and the generation; or why there will be none. A context of None: no forecast."""
    if context is None:
        return PlannedInterrupt(None, None, "no limit or no forecast is known yet")
    outlook, eta = context.resource.outlook, context.forecast.eta_seconds
    ends_first = run_ends_first(context.forecast, context.ledger.last_generation)
    if eta is None or ends_first or not reaches_limit(outlook.verdict, context.forecast):
        return PlannedInterrupt(None, None, _why_not(context))
    last = _seconds_until_last_chance(context, eta)
    seconds = min([last, *_opportunities(context, eta, checkpoints)])
    believed = _seconds_until_believed(context)
    if believed > seconds:  # too young a run: where it is not believed sooner, then when the end is all but there
        seconds = min(believed, max(seconds, eta - context.lead))
    return PlannedInterrupt(seconds, _generation(context, seconds, eta))


def _why_not(context: DecisionContext) -> str:
    if context.forecast.finishes is True and context.forecast.eta_seconds is not None:
        return "the run ends before the limit is reached"
    if run_ends_first(context.forecast, context.ledger.last_generation):
        return "the run probably ends before the limit is reached"
    if context.resource.outlook.verdict is Verdict.WARMING_UP:
        return "too little was seen yet"
    return "memory does not grow" if context.resource.outlook.verdict.stands_still else "the limit is not in sight"


def _shrunk(context: DecisionContext, eta: float, weight: float) -> float:
    """A time between the early end (weight 1) and the middle of the forecast, as a share of the middle."""
    low = context.forecast.eta_low_seconds
    return 1.0 if low is None or eta <= 0.0 else 1.0 - weight * (1.0 - low / eta)


def _seconds_until_last_chance(context: DecisionContext, eta: float) -> float:
    """Until only a checkpoint fits before the early end of the forecast, which comes nearer to the middle with it."""
    share = _shrunk(context, eta, 1.0)
    return max(0.0, eta - context.lead / share) if share > 0.0 else 0.0


def _opportunities(context: DecisionContext, eta: float, checkpoints: CheckpointTracker) -> list[float]:
    """Of the generation ends, and of the trainer's own saves: until the first after which another does not fit."""
    found, worth = [], WORTH_SHARE
    step, into = context.ledger.generation_seconds(context.t), context.ledger.seconds_in_generation(context.t)
    saves_on_signal = checkpoints.saves_on_signal is not False
    if step is not None and into is not None and saves_on_signal:
        found.append((max(0.0, step - into), step))
    interval, due = checkpoints.own_save_interval_seconds, checkpoints.seconds_until_own_save(context.t)
    if interval is not None and due is not None:
        found.append((due, interval))
        worth = WORTH_SHARE if saves_on_signal else 1.0
    share = _shrunk(context, eta, 1 / 3)
    times = []
    for first, every in found:
        earliest = eta - (worth * every + context.lead) / share if share > 0.0 else 0.0
        times.append(first + max(0, math.ceil((earliest - first) / every)) * every)
    return times


def _seconds_until_believed(context: DecisionContext) -> float:
    """Until it is likelier than not that the limit is reached, if growth goes on meanwhile; infinity for never."""
    risk, eta = context.resource.outlook.time_to_limit, context.forecast.eta_seconds
    if context.is_believed or risk is None or eta is None:
        return 0.0
    if risk.p_never >= 1.0 - LIKELIER:
        return math.inf
    seen, whole = context.growth_seen_seconds, context.growth_seen_seconds + eta + risk.cycle_seconds
    return max(0.0, LIKELIER * whole / (1.0 - risk.p_never) - seen)


def _generation(context: DecisionContext, seconds: float, eta: float) -> float | None:
    """The generation under way then, counted from now to that of the limit."""
    index, end = context.ledger.index, context.forecast.generation
    into, step = context.ledger.seconds_in_generation(context.t), context.ledger.generation_seconds(context.t)
    if index is None or end is None or eta <= 0.0:
        return None
    per_second = context.ledger.index_step / step if step else 0.0
    # many come between two polls of the log, at unknown times; or the forecast has another pace than the latest ones
    if into is None or step is None or abs(index + (into + eta) * per_second - end) > 1.0 + context.ledger.index_step:
        return math.floor(index + (end - index) * min(1.0, seconds / eta))
    return min(index + math.floor((into + seconds) * per_second + 1e-9), end)
