"""Memory along a gauge, from its second reading on: bytes a unit with an interval, and the memory when it is full."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memwatch.core.robust_statistics import NORMAL_95, mean, median, variance

READINGS = 32  # of a gauge that are compared, spread over all: some 500 pairs, a millisecond
WITHOUT_START = 3  # readings from which on the estimate does not use the first, which may hold a program's start
PRIOR_READINGS = 2  # readings that the noise which is expected of them counts for, beside what they show themselves
# Student's t for 1, 2 ... degrees of freedom: 5 % lies above it
T_95 = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81, 1.80, 1.78)


@dataclass(frozen=True, slots=True)
class UnitGrowth:
    """Bytes that memory grows by with one unit of a gauge: the estimate and the interval of 90 %."""

    bytes: float
    low: float
    high: float
    r2: float  # share of the variance of memory that the gauge explains; 1 for two readings
    readings: int

    @property
    def error(self) -> float:
        """Standard error of the estimate, as wide as the interval."""
        return (self.high - self.low) / (2.0 * NORMAL_95)


def fit_unit_growth(values: Sequence[float], used: Sequence[float], noise: float) -> UnitGrowth | None:
    """Fit memory in bytes to the values of a gauge, both of the same moments; None of fewer than two values.

    `noise` is the deviation of memory that is expected at such a moment. The first reading may hold a program's
    start: the interval is that with it and that without it, and from three readings on the estimate does not use it.
    While fewer than three are left without it, no misfit can show that a start lasts longer: all may be the start's.
    """
    step = max(1, math.ceil(len(values) / READINGS))
    x, y = values[::-step][::-1], used[::-step][::-1]
    whole = _robust_line(x, y, noise)
    if whole is None:
        return None
    later = _robust_line(x[1:], y[1:], noise)
    both = [whole] if later is None else [later, whole]
    low = 0.0 if both[0].readings < WITHOUT_START else math.inf
    low, high = min(low, *(one.low for one in both)), max(one.high for one in both)
    return UnitGrowth(both[0].bytes, low, high, max(one.r2 for one in both), whole.readings)


def _robust_line(x: Sequence[float], y: Sequence[float], noise: float) -> UnitGrowth | None:
    """Theil and Sen's line; its error from its residuals and from the noise that is expected."""
    n = len(x)
    slopes = [(y[j] - y[i]) / (x[j] - x[i]) for i in range(n) for j in range(i + 1, n) if x[j] != x[i]]
    if not slopes:
        return None
    slope, middle = median(slopes), mean(x)
    base = median([level - slope * at for at, level in zip(x, y, strict=True)])
    squares = sum((level - slope * at - base) ** 2 for at, level in zip(x, y, strict=True))
    deviation = math.sqrt((squares + PRIOR_READINGS * noise**2) / n)
    half = _student(n) * deviation / math.sqrt(sum((at - middle) ** 2 for at in x))
    total = variance(y) * (n - 1)
    return UnitGrowth(slope, slope - half, slope + half, 1.0 - squares / total if total > 0.0 else 0.0, n)


def _student(freedom: int) -> float:
    return T_95[freedom - 1] if freedom <= len(T_95) else NORMAL_95 + 1.6 / freedom
