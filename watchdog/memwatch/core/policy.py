"""From a forecast to a decision: when to warn, when to interrupt, and the guard against bursts."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from memwatch.core.model import Forecast, Verdict

DELIVERY_SECONDS = 1.0  # from the decision to the trainer's handler: a Python handler waits for its C call to return
MARGIN_SHARE = 0.25  # checkpoints vary: so much is added to what one is taken to need ...
MARGIN_SECONDS = 2.0  # ... and at least this
LATE_FACTOR = 2.0  # the low end of a wide forecast alone does not interrupt: its middle must be within twice the need
SPARE_SHARE = 0.03  # ... or, in a long run without generations, within this share of the time it has run
POINT_GENERATIONS = 5  # complete ones before a boundary is judged: until then a fill looks like a leak
STARTUP_LEADS = 10.0  # without generations, growth is believed that was watched for so many lead times ...
STARTUP_SHARE = 0.05  # ... and has left less than this share of the limit: programs fill memory quickly as they start
SETTLED_LEADS = 40.0  # ... or for so many
CLEAR_FACTOR = 1.5  # a warning is withdrawn when the end is this much beyond the horizon (hysteresis)
HOLD_SECONDS = 30.0  # a warning is given, or withdrawn, when there has been reason to for so long ...
HOLD_SHARE = 0.1  # ... or for this share of the time that is left
BURST_LOOKS = 3  # readings that a burst is measured over: fewer, and one noisy reading is a burst
CEILING_SECONDS = 10.0  # a burst is growth beyond what was in use before this long ago
RISES_KEPT = 16  # periods whose highest climb is remembered: a checkpoint's peak may come every ten generations
PERIOD_SECONDS = 600.0  # a period is a generation, but no longer than this ...
PERIOD_FLOOR_SECONDS = 20.0  # ... and no shorter: within it a climb cannot be told from the next
RISE_FACTOR = 1.25  # a climb up to so much higher than any remembered is like them
NOISE_LOOKS = 64  # readings that ordinary unrest is averaged over
NOISE_FACTOR = 3.0  # growth within so many times of it is unrest
REACTION_SECONDS = 2.0  # a burst is seen, seen again, and told to the trainer
EXHAUSTED_SHARE = 0.005  # headroom under this share of the limit, still shrinking, is none: even a write is cut short
PACE_LOOKS = 4.0  # readings wanted while the headroom is used up at the fastest rate seen
PACE_FLOOR_SECONDS = 0.05  # 20 Hz: what a reading costs allows no more
PACE_IDLE_SECONDS = 3600.0  # nothing grows

_GROWING = (Verdict.GROWING, Verdict.LEAK)


@dataclass(frozen=True, slots=True)
class Policy:
    """What a user may set. Seconds and shares of the limit."""

    act: bool = True  # False: warn only
    checkpoint_seconds: float | None = None  # None: as measured, else a quarter of a generation
    warn_horizon_seconds: float = 3600.0
    warn_horizon_generations: float = 3.0
    headroom_guard: float = 0.02  # share of the limit within which a burst is acted upon whatever the forecast says
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


def threatens(verdict: Verdict, forecast: Forecast | None, finishing: bool = False) -> bool:
    """The resource grows to its limit, and the run does not end before (or may, where `finishing`)."""
    if forecast is None or forecast.eta_seconds is None or (forecast.finishes is True and not finishing):
        return False
    return verdict in _GROWING


def runs_out_within(forecast: Forecast, need_seconds: float, watched_seconds: float = 0.0) -> bool:
    """The limit may be met within `need_seconds`: the last moment, to be judged by the early end of the forecast.

    Without generations there is no better moment to wait for, and little of the `watched_seconds` of work to lose.
    """
    if forecast.eta_seconds is None:
        return False
    spare = SPARE_SHARE * watched_seconds if forecast.generation is None else 0.0
    return _low(forecast) < need_seconds and forecast.eta_seconds < max(LATE_FACTOR * need_seconds, spare)


def next_step_fits(forecast: Forecast, step_seconds: float, lead: float) -> bool:
    """Another generation fits, and a checkpoint after it.

    Judged between the early end and the middle of the forecast, nearer to the middle: a boundary too early costs a
    generation, one too late still leaves the last moment within the next.
    """
    if forecast.eta_seconds is None:
        return True
    return (_low(forecast) + 2 * forecast.eta_seconds) / 3 >= step_seconds + lead


def _low(forecast: Forecast) -> float:
    mid = forecast.eta_seconds or 0.0
    return mid if forecast.eta_low_seconds is None else forecast.eta_low_seconds


def knows_generations(complete: int) -> bool:
    """Enough complete generations to judge whether one more fits."""
    return complete >= POINT_GENERATIONS


def believable(forecast: Forecast, watched_seconds: float, lead: float, headroom_bytes: int, limit_bytes: int) -> bool:
    """The forecast rests on generations, or on growth that is no mere start-up."""
    if forecast.generation is not None:
        return True
    if watched_seconds >= SETTLED_LEADS * lead:
        return True
    return watched_seconds >= STARTUP_LEADS * lead and headroom_bytes <= STARTUP_SHARE * limit_bytes


def warns(policy: Policy, verdict: Verdict, forecast: Forecast | None, step_seconds: float | None) -> bool:
    """The end is near enough to tell people."""
    if not threatens(verdict, forecast) or forecast is None or forecast.eta_seconds is None:
        return False
    return forecast.eta_seconds <= horizon_seconds(policy, step_seconds)


def outlasts(forecast: Forecast | None, last_generation: float | None) -> bool:
    """The run's last generation comes before the one in which the limit is most likely met."""
    if forecast is None or forecast.generation is None or last_generation is None:
        return False
    return math.floor(forecast.generation) > last_generation


def clears(policy: Policy, verdict: Verdict, forecast: Forecast | None, step_seconds: float | None) -> bool:
    """The end is no longer near: what was warned of has passed."""
    if not threatens(verdict, forecast) or forecast is None or forecast.eta_seconds is None:
        return True
    return forecast.eta_seconds > CLEAR_FACTOR * horizon_seconds(policy, step_seconds)


def hold_seconds(forecast: Forecast | None) -> float:
    """How long the reason for a warning, or for withdrawing it, must have stood."""
    if forecast is None or forecast.eta_seconds is None:
        return HOLD_SECONDS
    return min(HOLD_SECONDS, HOLD_SHARE * forecast.eta_seconds)


def horizon_seconds(policy: Policy, step_seconds: float | None) -> float:
    """How far ahead people are warned: the longer of the two horizons."""
    by_generations = policy.warn_horizon_generations * step_seconds if step_seconds is not None else 0.0
    return max(policy.warn_horizon_seconds, by_generations)


def pace_seconds(headroom_bytes: int | None, peak_rate: float) -> float:
    """How soon the next reading should be taken, at most."""
    if headroom_bytes is None or peak_rate <= 0:
        return PACE_IDLE_SECONDS
    wanted = max(headroom_bytes, 0) / (PACE_LOOKS * peak_rate)
    return min(max(wanted, PACE_FLOOR_SECONDS), PACE_IDLE_SECONDS)


class Burst:
    """Watches one resource for growth beyond all that it used before, too fast for any forecast.

    A saw-tooth that comes near the limit and returns stays under the ceiling that it made itself; a steady use of
    95-98 % has no growth beyond its unrest.
    """

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()
        self._seen = 0
        self._ceiling: int | None = None  # of all readings but the latest; the first one while there are no others
        self._unrest = 0.0
        self._rises: deque[int] = deque([0], maxlen=RISES_KEPT)  # the highest climb of each of the latest periods
        self._period_t: float | None = None

    def observe(self, t: float, used_bytes: int) -> None:
        """A reading."""
        looks = self._looks
        if looks:
            self._learn_unrest(abs(used_bytes - looks[-1][1]))
        looks.append((t, used_bytes))
        while len(looks) > BURST_LOOKS and looks[0][0] < t - 2 * CEILING_SECONDS:
            self._learn_rise(*looks.popleft())
        settled = [used for at, used in looks if at < t - CEILING_SECONDS]
        self._ceiling = max(settled, default=used_bytes) if self._ceiling is None else max(self._ceiling, *settled, 0)
        if self._period_t is None or t - self._period_t > PERIOD_SECONDS:
            self.begin_period(t)

    def begin_period(self, t: float) -> None:
        """A generation begins (or so much time has passed): climbs of long ago are forgotten."""
        if self._period_t is not None and t - self._period_t < PERIOD_FLOOR_SECONDS:
            return
        self._period_t = t
        self._rises.append(0)

    def _learn_rise(self, t: float, used_bytes: int) -> None:
        """What the climb that began at this reading came to; those under way are not among them."""
        top = max((used for at, used in self._looks if at <= t + CEILING_SECONDS), default=used_bytes)
        self._rises[-1] = max(self._rises[-1], top - used_bytes)

    def _learn_unrest(self, change: int) -> None:
        # a single jump counts as four times the usual at most, or one burst would hide the next
        bounded = min(float(change), 4 * self._unrest) if self._unrest > 0 else float(change)
        self._seen = min(self._seen + 1, NOISE_LOOKS)
        self._unrest += (bounded - self._unrest) / self._seen

    @property
    def rate(self) -> float:
        """Growth in bytes/s over the last three readings; 0 with fewer."""
        if len(self._looks) < BURST_LOOKS:
            return 0.0
        (t0, used0), (t1, used1) = self._looks[-BURST_LOOKS], self._looks[-1]
        return (used1 - used0) / (t1 - t0) if t1 > t0 else 0.0

    def threatens(self, headroom_bytes: int, limit_bytes: int, guard: float, lead: float) -> bool:
        """The room that is left would be gone before a checkpoint is complete."""
        rate, used = self.rate, self._looks[-1][1] if self._looks else 0
        beyond = used - (self._ceiling or 0)
        if rate <= 0 or beyond <= max(NOISE_FACTOR * self._unrest, 0.001 * limit_bytes):
            return False
        if self._tops_out(headroom_bytes):
            return False
        zone = max(guard * limit_bytes, rate * REACTION_SECONDS)
        return headroom_bytes <= zone and headroom_bytes / rate < lead

    def _tops_out(self, headroom_bytes: int) -> bool:
        """The climb is like one of those before, and such a climb ends below the limit."""
        since = self._looks[-1][0] - CEILING_SECONDS
        climb = self._looks[-1][1] - min(used for at, used in self._looks if at >= since)
        known = min((rise for rise in self._rises if climb <= RISE_FACTOR * rise), default=None)
        return known is not None and headroom_bytes > known - climb

    def exhausts(self, headroom_bytes: int, limit_bytes: int) -> bool:
        """Nothing is left to wait for: the limit is met within seconds."""
        if self.rate <= 0:
            return False
        nearly = headroom_bytes < EXHAUSTED_SHARE * limit_bytes
        return nearly or headroom_bytes < self.rate * REACTION_SECONDS
