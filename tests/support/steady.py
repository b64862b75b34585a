"""A forecaster that costs and keeps nothing, for what is measured of all the rest."""

from __future__ import annotations

from collections.abc import Sequence

from memwatch.core.forecast.outlook import NOBODY, Outlook, UseByOthers
from memwatch.core.snapshot import Forecast, Gauge, Trend, Verdict


class Steady:
    """Always the same growth, with the limit far away."""

    rate = 1e6  # bytes a second, at most
    says = Outlook(Verdict.GROWING, Trend("linear", 1.0, 1.0, 1.0), Forecast(1e9, 0.9e9, 1.1e9))

    def add_samples(self, times: Sequence[float], used: Sequence[int]) -> None: ...

    def begin_generation(self, t: float | None, index: float) -> None: ...

    def forget_generations(self) -> None: ...

    def restart(self, t: float) -> None: ...

    def peak_rate(self) -> float:
        return self.rate

    def outlook(
        self,
        t: float,
        limit_bytes: int | None,
        headroom_bytes: int | None,
        last_generation: float | None,
        gauges: Sequence[Gauge] = (),
        *,
        save_bytes: float = 0.0,
        others: UseByOthers = NOBODY,
    ) -> Outlook:
        return self.says
