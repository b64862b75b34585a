"""What is said of a few numbers at once: middles, deviations, a straight line.

Each fit asks for hundreds of these; the standard library's `statistics` takes 20 to 80 times as long for a mean or a
variance, which it sums exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

TO_STANDARD = 1.4826  # from a median deviation, where the values are normal


def mean(values: Sequence[float]) -> float:
    """Of at least one value."""
    return sum(values) / len(values)


def trimmed_mean(values: Sequence[float], trim: float = 0.2) -> float:
    """Mean without the lowest and highest `trim` of the values."""
    ordered = sorted(values)
    cut = int(len(ordered) * trim)
    kept = ordered[cut : len(ordered) - cut]
    return mean(kept)


def median(values: Sequence[float], default: float = 0.0) -> float:
    """The middle value; `default` of none."""
    ordered = sorted(values)
    if not ordered:
        return default
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else 0.5 * (ordered[middle - 1] + ordered[middle])


def upper_semideviation(values: Sequence[float]) -> float:
    """Root mean square distance of the values above the median, as a standard deviation; 0 of fewer than three."""
    if len(values) < 3:
        return 0.0
    middle = median(values)
    return math.sqrt(2.0 * sum((v - middle) ** 2 for v in values if v > middle) / len(values))


def variance(values: Sequence[float]) -> float:
    """Of a sample of at least one value; 0 of one."""
    middle = mean(values)
    off = [value - middle for value in values]
    squares: float = sum(map(mul, off, off))
    return squares / max(1, len(values) - 1)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share of at least one value lies, between two of them on the line."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def robust_sd_about(values: Sequence[float], middle: float) -> float:
    """Standard deviation around a middle, as the median distance from it tells; 0 of none."""
    return TO_STANDARD * median([abs(value - middle) for value in values])


def robust_sd(values: Sequence[float]) -> float:
    """Robust standard deviation; 0 of fewer than three."""
    return robust_sd_about(values, median(values)) if len(values) > 2 else 0.0


class StraightLine(NamedTuple):
    """A least-squares line."""

    slope: float  # y per x; 0 where all x are the same
    x_sum_of_squares: float  # sum of the squares of x around their mean
    residuals: list[float]  # y above the line at each point

    @property
    def residual_sd(self) -> float:
        """Standard deviation of three points or more around the line."""
        squares: float = sum(map(mul, self.residuals, self.residuals))
        return math.sqrt(squares / (len(self.residuals) - 2))

    @property
    def slope_se(self) -> float:
        """Standard error of the slope of three points or more."""
        return self.residual_sd / math.sqrt(self.x_sum_of_squares) if self.x_sum_of_squares > 0.0 else 0.0


def straight_line(x: Sequence[float], y: Sequence[float]) -> StraightLine:
    """The line through points of equal weight, one at least."""
    middle, height = mean(x), mean(y)
    places = [at - middle for at in x]
    spread: float = sum(map(mul, places, places))
    along: float = sum(map(mul, places, y))
    slope = along / spread if spread > 0.0 else 0.0
    return StraightLine(slope, spread, [value - height - slope * at for at, value in zip(places, y, strict=True)])
