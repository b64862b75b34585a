"""When people are warned that the limit is near, and when the warning is withdrawn."""

from __future__ import annotations

import math

from memwatch.core.decision.policy import Policy, reaches_limit
from memwatch.core.forecast.outlook import Outlook
from memwatch.core.snapshot import Forecast, Verdict

CLEAR_FACTOR = 1.5  # times the horizon: a warning is withdrawn when the end is farther off than this (hysteresis)
HOLD_SECONDS = 30.0  # a warning is given, or withdrawn, when there has been reason to for so long ...
HOLD_SHARE = 0.1  # ... or for this share of the time that is left
MAX_DOUBLINGS = 6  # of the time for a withdrawal, one for each time that the warning came back: half an hour (chosen)


class LimitWarning:
    """The warning of one resource. It changes only when there has been reason to for long enough."""

    def __init__(self) -> None:
        self.is_given = False
        self.next_check_t = math.inf  # before this time the same outlook changes nothing
        self._reason_t: float | None = None  # since when there has been reason to change
        self.held_seconds = 0.0  # for so long there had been reason before the latest change
        self._withdrawals = 0

    def update(
        self, t: float, policy: Policy, outlook: Outlook, last_generation: float | None, step_seconds: float | None
    ) -> bool:
        """Give or withdraw the warning; True: it has just changed. `step_seconds` is the length of a generation."""
        verdict, forecast = outlook.verdict, outlook.forecast
        self.next_check_t = math.inf
        if run_ends_first(forecast, last_generation) or (outlook.may_fit_when_full and not self.is_given):
            has_reason = self.is_given
        elif self.is_given:
            has_reason = should_withdraw_warning(policy, verdict, forecast, step_seconds)
        else:
            has_reason = _seconds_until_reason(policy, outlook, step_seconds) <= 0.0
        if not has_reason:
            self._reason_t = None
            if not self.is_given:
                self.next_check_t = t + _seconds_until_reason(policy, outlook, step_seconds)
            return False
        if self._reason_t is None:
            self._reason_t = t
        hold_seconds = warning_hold_seconds(forecast)
        if self.is_given:  # Where memory grows in steps, each flat part looks like the end of growth.
            hold_seconds *= 2 ** min(self._withdrawals, MAX_DOUBLINGS)
        if t - self._reason_t < hold_seconds:
            self.next_check_t = self._reason_t + hold_seconds
            return False
        self._withdrawals += self.is_given
        self.held_seconds = hold_seconds
        self.is_given, self._reason_t = not self.is_given, None
        return True


def _seconds_until_reason(policy: Policy, outlook: Outlook, step_seconds: float | None) -> float:
    """Seconds until there is reason to warn, if nothing changes.

    What grows within a generation may end with it: until a few are over, it is to have lasted for a generation more
    than is left.
    """
    risk, wait = outlook.time_to_limit, seconds_until_warning(policy, outlook.verdict, outlook.forecast, step_seconds)
    if risk is None or risk.level_seconds >= risk.cycle_seconds:
        return wait
    missing = _eta_seconds(outlook.verdict, outlook.forecast) + risk.cycle_seconds - outlook.growth_seen_seconds
    return max(wait, 0.5 * missing)


def seconds_until_warning(
    policy: Policy, verdict: Verdict, forecast: Forecast | None, step_seconds: float | None
) -> float:
    """Seconds until the limit is within the horizon, if nothing changes; infinite when it will not be."""
    return _eta_seconds(verdict, forecast) - warning_horizon_seconds(policy, step_seconds)


def should_withdraw_warning(
    policy: Policy, verdict: Verdict, forecast: Forecast | None, step_seconds: float | None
) -> bool:
    """The limit is no longer near."""
    return _eta_seconds(verdict, forecast) > CLEAR_FACTOR * warning_horizon_seconds(policy, step_seconds)


def _eta_seconds(verdict: Verdict, forecast: Forecast | None) -> float:
    if forecast is None or forecast.eta_seconds is None or not reaches_limit(verdict, forecast):
        return math.inf
    return forecast.eta_seconds


def warning_horizon_seconds(policy: Policy, step_seconds: float | None) -> float:
    """How far ahead people are warned: the longer of the two horizons of the policy."""
    by_generations = policy.warn_horizon_generations * step_seconds if step_seconds is not None else 0.0
    return max(policy.warn_horizon_seconds, by_generations)


def warning_hold_seconds(forecast: Forecast | None) -> float:
    """How long the reason to give or to withdraw a warning must have lasted."""
    if forecast is None or forecast.eta_seconds is None:
        return HOLD_SECONDS
    return min(HOLD_SECONDS, HOLD_SHARE * forecast.eta_seconds)


def run_ends_first(forecast: Forecast | None, last_generation: float | None) -> bool:
    """The run's last generation comes before the one in which the limit is most likely reached."""
    if forecast is None or forecast.generation is None or last_generation is None:
        return False
    return math.floor(forecast.generation) > last_generation
