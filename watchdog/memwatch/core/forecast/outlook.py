"""What the forecast of one resource says, and what may be asked of a forecaster: all that the rest of memwatch uses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from memwatch.core.examination import GrowthDriver
from memwatch.core.snapshot import Forecast, Gauge, MemoryNeeded, Trend, Verdict

LIMIT_CHANGE_SHARE = 0.01  # of the headroom: a limit that moves by less is the same


@dataclass(frozen=True, slots=True)
class CheckpointCost:
    """What a checkpoint takes."""

    seconds: float  # until it is complete
    bytes: float = 0.0  # of memory meanwhile


@dataclass(frozen=True, slots=True)
class GrowthRate:
    """Growth that is to be expected, and its standard error: bytes a second."""

    per_second: float
    error: float


@dataclass(frozen=True, slots=True)
class UseByOthers:
    """What others take of the limit."""

    deviation: float = 0.0  # standard deviation around its trend, bytes
    growth: GrowthRate | None = None  # None: it does not grow


NOBODY = UseByOthers()


class TimeToLimitProtocol(Protocol):
    """When the limit is reached, as probabilities. Seconds count from the time that the outlook was asked for."""

    @property
    def cycle_seconds(self) -> float:
        """The length of a generation, or of the blocks of time that stand for generations."""

    @property
    def level_seconds(self) -> float:
        """From one level of the growth to the next: a cycle, or less where few generations were seen yet."""

    @property
    def p_never(self) -> float:
        """The probability that the limit is never reached."""

    def p_exceed(self, seconds: float) -> float:
        """The probability that the limit is reached within so many seconds, before the run ends."""

    def p_checkpoint_fails(self, delay: float, cost: CheckpointCost) -> float:
        """The probability that a checkpoint that is requested after `delay` seconds, or later, cannot complete."""

    def expected_time_to_limit(self, after: float, cap: float) -> float:
        """Expected seconds from `after` until the limit, none counted as more than `cap`."""

    def usual_headroom(self, seconds: float) -> float:
        """Bytes left where memory is as high as ever in this part of a generation and the `seconds` after it.

        Infinite where memory is not known part by part, or the limit is far away.
        """


class GrowthEvidence:
    """What the samples show of the growth, asked of a forecaster right after its outlook; here: nothing was seen."""

    def greatest_rise_bytes(self, seconds: float, since_t: float) -> float:
        """Bytes by which memory rose within so many seconds, at most, since a time."""
        return 0.0

    def growth_ahead(self) -> GrowthRate:
        """Over the next generation, or block of time."""
        return GrowthRate(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class GrowthOfAll(GrowthEvidence):
    """What the trainer and others take of one limit."""

    trainer: GrowthEvidence
    others: GrowthEvidence

    def greatest_rise_bytes(self, seconds: float, since_t: float) -> float:
        """At most: both may have risen at the same time."""
        return sum(one.greatest_rise_bytes(seconds, since_t) for one in (self.trainer, self.others))


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known of one resource: how it grows, and when it reaches its limit."""

    verdict: Verdict
    trend: Trend | None
    forecast: Forecast | None
    time_to_limit: TimeToLimitProtocol | None = None  # None: too little was seen, or the limit is reached
    valid_until: float = -math.inf  # before this time another outlook would say the same ...
    valid_below_bytes: float = -math.inf  # ... as long as less than so many bytes are in use
    growth: GrowthEvidence = field(default=GrowthEvidence(), compare=False, repr=False)
    drivers: tuple[GrowthDriver, ...] = ()  # the gauge that explains the growth, if one does
    growth_seen_seconds: float = 0.0  # from the first level of the growth to the last
    others_per_second: float = 0.0  # bytes of the limit that others take, where that decides when it is reached
    needed: MemoryNeeded | None = None  # to finish; None: no end of its growth is known

    @property
    def fits_when_full(self) -> bool:
        """What grows is a buffer that ends below the limit."""
        return any(driver.fits is True for driver in self.drivers)

    @property
    def may_fit_when_full(self) -> bool:
        """What grows is a buffer of which it is not known yet on which side of the limit it ends."""
        return any(driver.fits is None and driver.full_range is not None for driver in self.drivers)


WARMING_UP = Outlook(Verdict.WARMING_UP, None, None)


class ForecasterProtocol(Protocol):
    """What the engine needs of a forecaster."""

    def add_samples(self, times: Sequence[float], used: Sequence[int]) -> None: ...
    def begin_generation(self, t: float | None, index: float) -> None: ...
    def forget_generations(self) -> None: ...
    def restart(self, t: float) -> None: ...
    def peak_rate(self) -> float: ...
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
    ) -> Outlook: ...
