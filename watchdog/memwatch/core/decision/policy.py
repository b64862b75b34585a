"""The user's settings, and the rules by which a forecast leads to an interrupt, one function each."""

from __future__ import annotations

from dataclasses import dataclass

from memwatch.core.snapshot import Forecast, Verdict

DELIVERY_SECONDS = 1.0  # from the decision to the trainer's handler: a Python handler waits for its C call to return
MARGIN_SHARE = 0.25  # checkpoints vary: so much is added to what one is taken to need ...
MARGIN_SECONDS = 2.0  # ... and at least this
OPPORTUNITY_PROBABILITY = 0.25  # that a checkpoint after the next step fails: with less, the step is waited for
ESTABLISHED_GENERATIONS = 5  # complete ones: until then a buffer that fills looks like a leak
LOADING_LEADS = 10.0  # lead times: programs load; what grows within the first so many may end with that
WORTH_SHARE = 1 / 3  # of a generation: when less of the next one fits, acting at its beginning is better
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
    confirmation_seconds: float = 1.0  # a later reading must still say so before a signal is sent
    own_limit_grace_seconds: float = 10.0  # of a watch, without a signal because of a limit that the user has typed
    cooldown_seconds: float = 600.0  # from the end of an episode until the next may begin
    save_timeout_seconds: float | None = None  # until SIGTERM; None: 4 checkpoint times, at least 60 s
    kill: bool = False  # SIGKILL when SIGTERM has had no effect either
    kill_after_seconds: float = 60.0

    def save_timeout(self, checkpoint_seconds: float) -> float:
        if self.save_timeout_seconds is not None:
            return self.save_timeout_seconds
        return max(60.0, 4 * checkpoint_seconds)


def reaches_limit(verdict: Verdict, forecast: Forecast | None, finishing: bool = False) -> bool:
    """The resource grows to its limit, and the run does not end before (or may do so, where `finishing`)."""
    if forecast is None or forecast.eta_seconds is None or (forecast.finishes is True and not finishing):
        return False
    return verdict in _GROWING


def may_reach_limit_within(forecast: Forecast, need_seconds: float) -> bool:
    """The limit may be reached within `need_seconds`, by the early end of the forecast."""
    return forecast.eta_seconds is not None and _low(forecast) < need_seconds


def next_step_fits(forecast: Forecast, step_seconds: float, lead: float, worth_share: float = WORTH_SHARE) -> bool:
    """Enough of another generation fits, and a checkpoint after it.

    The time taken is between the early end and the middle of the forecast, nearer to the middle: acting at a boundary
    too early costs a generation, and after one too late there is still the last chance within the next.
    `worth_share`: how much of a generation is enough.
    """
    if forecast.eta_seconds is None:
        return True
    return (_low(forecast) + 2 * forecast.eta_seconds) / 3 >= worth_share * step_seconds + lead


def _low(forecast: Forecast) -> float:
    mid = forecast.eta_seconds or 0.0
    return mid if forecast.eta_low_seconds is None else forecast.eta_low_seconds


def pace_seconds(headroom_bytes: int | None, peak_rate: float) -> float:
    if headroom_bytes is None or peak_rate <= 0:
        return PACE_IDLE_SECONDS
    wanted = max(headroom_bytes, 0) / (PACE_LOOKS * peak_rate)
    return min(max(wanted, PACE_FLOOR_SECONDS), PACE_IDLE_SECONDS)
