"""What a decision is made of, and what it says: the resource as the rules see it, and the order to interrupt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from memwatch.core.decision.burst_detector import BurstDetector, RampDetector
from memwatch.core.forecast.outlook import Outlook
from memwatch.core.measurements import Usage


class WatchedResource(Protocol):
    """One resource of the trainer. Bytes, and bytes per second."""

    usage: Usage  # at the latest sample
    outlook: Outlook  # the latest; it may be older than the sample
    peak: int  # the highest use by this process
    first_bytes: int  # in use at its first sample, ...
    first_t: float  # ... and when that was

    @property
    def limit_used_bytes(self) -> int:
        """What is gone of the limit, by anybody."""

    @property
    def burst(self) -> BurstDetector: ...
    @property
    def ramp(self) -> RampDetector: ...
    @property
    def fastest(self) -> float:
        """How fast the headroom has recently shrunk, at most."""

    @property
    def p_never(self) -> float:
        """The probability that the limit is never reached."""

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
