"""From a forecast to a decision: when to warn, when to interrupt."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from memwatch.core.snapshot import Forecast, Verdict

DELIVERY_SECONDS = 1.0  # from the decision to the trainer's handler: a Python handler waits for its C call to return
MARGIN_SHARE = 0.25  # checkpoints vary: so much is added to what one is taken to need ...
MARGIN_SECONDS = 2.0  # ... and at least this
STAKE_LEADS = 20.0  # a young run is worth so many lead times
SILENT_STAKE = 2.0  # times what is at stake without generations: blocks of time tell the odds less surely
OPPORTUNITY_PROBABILITY = 0.25  # that a step does not fit after all, before the moment at its beginning is taken
ESTABLISHED_GENERATIONS = 5  # complete ones before a boundary is judged: until then a fill looks like a leak
STARTUP_LEADS = 10.0  # without generations, growth is believed that was watched for so many lead times ...
STARTUP_SHARE = 0.05  # ... and has left less than this share of the limit: programs fill memory quickly as they start
SETTLED_LEADS = 40.0  # ... or for so many
WAITS = (1 / 16, 0.25, 0.5, 1.0, 2.0)  # of a generation: how long an interrupt may wait
NEVER_FACTOR = 2.0  # times the odds that the limit is never met: so much more is a wait worth
WORTH_SHARE = 1 / 3  # of a generation: when less of the next one fits, its beginning is the better moment
CLEAR_FACTOR = 1.5  # a warning is withdrawn when the end is this much beyond the horizon (hysteresis)
HOLD_SECONDS = 30.0  # a warning is given, or withdrawn, when there has been reason to for so long ...
HOLD_SHARE = 0.1  # ... or for this share of the time that is left
PACE_LOOKS = 4.0  # readings wanted while the headroom is used up at the fastest rate seen
PACE_FLOOR_SECONDS = 0.005  # 200 Hz: at 40 GiB/s memory grows by 0.2 GiB between two readings
PACE_IDLE_SECONDS = 3600.0  # nothing grows

_GROWING = (Verdict.GROWING, Verdict.LEAK)


@dataclass(frozen=True, slots=True)
class Policy:
    """What a user may set. Seconds and shares of the limit."""

    act: bool = True  # False: warn only
    checkpoint_seconds: float | None = None  # None: as measured, else a quarter of a generation
    warn_horizon_seconds: float = 3600.0
    warn_horizon_generations: float = 3.0
    confidence: float = 0.99  # that the next peak and a checkpoint fit: with less, waiting is weighed against acting
    headroom_guard: float = 0.05  # share of the limit within which a burst is acted upon whatever the forecast says
    second_look_seconds: float = 1.0  # a later reading must still say so before a signal is sent
    cooldown_seconds: float = 600.0  # from the end of an episode until the next may begin
    save_timeout_seconds: float | None = None  # until SIGTERM; None: 4 checkpoint times, at least 60 s
    kill: bool = False  # SIGKILL when SIGTERM has had no effect either
    kill_after_seconds: float = 60.0

    def save_timeout(self, checkpoint_seconds: float) -> float:
        """How long after the signal evidence of a checkpoint is waited for."""
        if self.save_timeout_seconds is not None:
            return self.save_timeout_seconds
        return max(60.0, 4 * checkpoint_seconds)


def lead_seconds(checkpoint_seconds: float, look_seconds: float) -> float:
    """From the first look that says so until the checkpoint is complete, with margins."""
    margin = max(MARGIN_SECONDS, MARGIN_SHARE * checkpoint_seconds)
    return checkpoint_seconds + margin + DELIVERY_SECONDS + look_seconds


def reaches_limit(verdict: Verdict, forecast: Forecast | None, finishing: bool = False) -> bool:
    """The resource grows to its limit, and the run does not end before (or may, where `finishing`)."""
    if forecast is None or forecast.eta_seconds is None or (forecast.finishes is True and not finishing):
        return False
    return verdict in _GROWING


def may_reach_limit_within(forecast: Forecast, need_seconds: float) -> bool:
    """The limit may be met within `need_seconds`, as the early end of the forecast has it."""
    return forecast.eta_seconds is not None and _low(forecast) < need_seconds


def exceeds_accepted_risk(odds: float, confidence: float) -> bool:
    """Waiting is not as safe as is asked for."""
    return odds > 1.0 - confidence


@dataclass(frozen=True, slots=True)
class Stakes:
    """What waiting may lose, and what it may gain."""

    work_at_risk_seconds: float  # lost with the run
    work_remaining_seconds: float  # that the run would still work until the limit is met
    p_never: float = 0.0  # probability that it is not met at all


def is_overdue(odds: float, stakes: Stakes) -> bool:
    """What the run would still do is worth less than what it may lose.

    `odds`: probability that the limit is met before a checkpoint that is asked for now is complete.
    """
    return odds * stakes.work_at_risk_seconds > stakes.work_remaining_seconds


def waiting_costs_more(too_late: Callable[[float], float], waits: Iterable[float], stakes: Stakes) -> bool:
    """Waiting costs more than acting, for whatever time of `waits`.

    `too_late`: probability that no checkpoint is complete that is asked for after so many seconds, and the work lost.
    Acting gives up what would have been done in the wait; where the limit may never be met, that is worth more.
    """
    now, worth = too_late(0.0), 1.0 + NEVER_FACTOR * stakes.p_never
    return all((too_late(wait) - now) * stakes.work_at_risk_seconds >= worth * wait for wait in waits)


def next_step_fits(forecast: Forecast, step_seconds: float, lead: float) -> bool:
    """Enough of another generation fits, and a checkpoint after it.

    Judged between the early end and the middle of the forecast, nearer to the middle: a boundary too early costs a
    generation, one too late still leaves the last moment within the next.
    """
    if forecast.eta_seconds is None:
        return True
    return (_low(forecast) + 2 * forecast.eta_seconds) / 3 >= WORTH_SHARE * step_seconds + lead


def _low(forecast: Forecast) -> float:
    mid = forecast.eta_seconds or 0.0
    return mid if forecast.eta_low_seconds is None else forecast.eta_low_seconds


def is_past_startup(watched_seconds: float, lead: float) -> bool:
    """Without generations: so long was watched that growth is no mere start-up."""
    return watched_seconds >= SETTLED_LEADS * lead


def is_credible(forecast: Forecast, watched_seconds: float, lead: float, headroom_bytes: int, limit_bytes: int) -> bool:
    """The forecast rests on generations, or on growth that is no mere start-up."""
    if forecast.generation is not None:
        return True
    if is_past_startup(watched_seconds, lead):
        return True
    return watched_seconds >= STARTUP_LEADS * lead and headroom_bytes <= STARTUP_SHARE * limit_bytes


def should_warn(policy: Policy, verdict: Verdict, forecast: Forecast | None, step_seconds: float | None) -> bool:
    """The end is near enough to tell people."""
    if not reaches_limit(verdict, forecast) or forecast is None or forecast.eta_seconds is None:
        return False
    return forecast.eta_seconds <= warning_horizon_seconds(policy, step_seconds)


def seconds_until_warning(
    policy: Policy, verdict: Verdict, forecast: Forecast | None, step_seconds: float | None
) -> float:
    """Seconds until the end is near enough, if nothing changes; infinite when it will not be."""
    if not reaches_limit(verdict, forecast) or forecast is None or forecast.eta_seconds is None:
        return math.inf
    return forecast.eta_seconds - warning_horizon_seconds(policy, step_seconds)


def run_ends_first(forecast: Forecast | None, last_generation: float | None) -> bool:
    """The run's last generation comes before the one in which the limit is most likely met."""
    if forecast is None or forecast.generation is None or last_generation is None:
        return False
    return math.floor(forecast.generation) > last_generation


def should_withdraw_warning(
    policy: Policy, verdict: Verdict, forecast: Forecast | None, step_seconds: float | None
) -> bool:
    """The end is no longer near: what was warned of has passed."""
    if not reaches_limit(verdict, forecast) or forecast is None or forecast.eta_seconds is None:
        return True
    return forecast.eta_seconds > CLEAR_FACTOR * warning_horizon_seconds(policy, step_seconds)


def warning_hold_seconds(forecast: Forecast | None) -> float:
    """How long the reason for a warning, or for withdrawing it, must have stood."""
    if forecast is None or forecast.eta_seconds is None:
        return HOLD_SECONDS
    return min(HOLD_SECONDS, HOLD_SHARE * forecast.eta_seconds)


def warning_horizon_seconds(policy: Policy, step_seconds: float | None) -> float:
    """How far ahead people are warned: the longer of the two horizons."""
    by_generations = policy.warn_horizon_generations * step_seconds if step_seconds is not None else 0.0
    return max(policy.warn_horizon_seconds, by_generations)


def pace_seconds(headroom_bytes: int | None, peak_rate: float) -> float:
    """How soon the next reading should be taken, at most."""
    if headroom_bytes is None or peak_rate <= 0:
        return PACE_IDLE_SECONDS
    wanted = max(headroom_bytes, 0) / (PACE_LOOKS * peak_rate)
    return min(max(wanted, PACE_FLOOR_SECONDS), PACE_IDLE_SECONDS)
