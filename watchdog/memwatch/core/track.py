"""One resource as the engine follows it: its forecaster, its latest outlook, and what has been told of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from memwatch.core.burst import Burst, Ramp
from memwatch.core.forecast import Outlook
from memwatch.core.model import Gauge, Usage, Verdict
from memwatch.core.policy import Policy, clears, hold_seconds, outlasts, warns

FORECAST_SHARE = 0.02  # of the time observed: the pace of forecast notices where no generation gives one
FORECAST_FLOOR_SECONDS = 5.0
ETA_CHANGE = 0.10  # a forecast that moved by this share is news


class ForecasterLike(Protocol):
    """What the engine needs of a forecaster."""

    def observe(self, t: float, used_bytes: int) -> None: ...  # noqa: D102
    def begin_generation(self, t: float, index: float) -> None: ...  # noqa: D102
    def recount(self) -> None: ...  # noqa: D102
    def restart(self, t: float) -> None: ...  # noqa: D102
    def outlook(  # noqa: D102
        self,
        t: float,
        limit_bytes: int | None,
        headroom_bytes: int | None,
        last_generation: float | None,
        gauges: Sequence[Gauge] = (),
    ) -> Outlook: ...
    def peak_rate(self) -> float: ...  # noqa: D102
    def rise(self, seconds: float) -> float: ...  # noqa: D102
    def high(self, seconds: float) -> float: ...  # noqa: D102
    @property
    def reach_bytes(self) -> float: ...  # noqa: D102


class Track:
    """One resource of the trainer, over all its processes."""

    def __init__(self, usage: Usage, forecaster: ForecasterLike, t: float) -> None:
        self.forecaster = forecaster
        self.usage = usage
        self.begin(usage.used_bytes, t)

    def restart(self, t: float) -> None:
        """Its process is gone; the next reading is another's."""
        self.forecaster.restart(t)
        self.begin(self.usage.used_bytes, t)

    def begin(self, used_bytes: int, t: float) -> None:
        """A process begins with this reading."""
        self.first_t = t
        self.baseline = self.peak = used_bytes
        self.burst = Burst()
        self.ramp = Ramp()
        self.outlook = Outlook(Verdict.WARMING_UP, None, None)
        self.warned = False
        self._last_generation: float | None = None
        self._turned_t: float | None = None  # since when the opposite of `warned` holds
        self._told: tuple[float, float | None, Verdict] | None = None  # t, eta, verdict of the last forecast notice

    def observe(self, t: float, usage: Usage) -> None:
        """A reading."""
        self.usage = usage
        self.peak = max(self.peak, usage.used_bytes)
        self.forecaster.observe(t, usage.used_bytes)
        self.burst.observe(t, usage.used_bytes)
        self.ramp.observe(t, usage.used_bytes)

    def begin_generation(self, t: float, index: float) -> None:
        """A marker: what the next look gives is news."""
        self.forecaster.begin_generation(t, index)
        self.burst.begin_period(t)
        self._told = None

    def look(self, t: float, last_generation: float | None, gauges: Sequence[Gauge]) -> None:
        """Renew the outlook."""
        self._last_generation = last_generation
        limit = self.usage.limit
        limit_bytes = None if limit is None else limit.bytes
        headroom_bytes = None if limit is None else limit.headroom_bytes
        self.outlook = self.forecaster.outlook(t, limit_bytes, headroom_bytes, last_generation, gauges)

    def take_news(self, t: float, without_markers: bool) -> bool:
        """The outlook is worth a notice now; asked once a look, and taken as told when it is."""
        if not self._is_news(t, without_markers):
            return False
        self._told = (t, self._eta, self.outlook.verdict)
        return True

    @property
    def _eta(self) -> float | None:
        return self.outlook.forecast.eta_seconds if self.outlook.forecast is not None else None

    def _is_news(self, t: float, without_markers: bool) -> bool:
        if self._told is None:
            return True
        told_t, told_eta, told_verdict = self._told
        since, eta = t - told_t, self._eta
        if self.outlook.verdict is not told_verdict:
            return True
        if since < FORECAST_FLOOR_SECONDS:
            return False
        if (eta is None) != (told_eta is None):
            return True
        if eta is not None and told_eta is not None:
            expected = told_eta - since
            if abs(eta - expected) > ETA_CHANGE * max(abs(expected), FORECAST_FLOOR_SECONDS):
                return True
        return without_markers and since >= FORECAST_SHARE * (t - self.first_t)

    def turn(self, t: float, policy: Policy, step_seconds: float | None) -> bool:
        """Begin or end the warning when there has been reason to for long enough; True: `warned` has just changed."""
        verdict, forecast = self.outlook.verdict, self.outlook.forecast
        if outlasts(forecast, self._last_generation):
            reason = self.warned
        else:
            reason = (clears if self.warned else warns)(policy, verdict, forecast, step_seconds)
        if not reason:
            self._turned_t = None
            return False
        if self._turned_t is None:
            self._turned_t = t
        if t - self._turned_t < hold_seconds(forecast):
            return False
        self.warned, self._turned_t = not self.warned, None
        return True
