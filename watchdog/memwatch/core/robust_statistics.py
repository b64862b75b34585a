"""Means, medians, quantiles, standard deviations and the least-squares line of short sequences.

Each fit computes hundreds of these; the standard library's `statistics` takes 20 to 80 times as long for a mean or a
variance, which it sums exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

TO_STANDARD = 1.4826  # The standard deviation of normal values divided by their median absolute deviation.

NORMAL_95 = 1.645  # standard deviations of a normal distribution: 5 % lies above them


def mean(values: Sequence[float]) -> float:  # of at least one value
    return sum(values) / len(values)


def trimmed_mean(values: Sequence[float], trim: float = 0.2) -> float:
    """Return the mean without the lowest and highest `trim` of the values."""
    ordered = sorted(values)
    cut = int(len(ordered) * trim)
    return mean(ordered[cut : len(ordered) - cut])


def median(values: Sequence[float], default: float = 0.0) -> float:
    """Return the middle value; `default` for no values."""
    ordered = sorted(values)
    if not ordered:
        return default
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else 0.5 * (ordered[middle - 1] + ordered[middle])


def upper_semideviation(values: Sequence[float]) -> float:
    """Estimate the standard deviation from the values above the median alone; 0 for fewer than three values."""
    if len(values) < 3:
        return 0.0
    middle = median(values)
    return math.sqrt(2.0 * sum((v - middle) ** 2 for v in values if v > middle) / len(values))


def variance(values: Sequence[float]) -> float:
    """Return the sample variance of at least one value; 0 for one value."""
    middle = mean(values)
    off = [value - middle for value in values]
    squares: float = sum(map(mul, off, off))
    return squares / max(1, len(values) - 1)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile `share` of at least one value, interpolated linearly between neighbours."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def robust_sd_about(values: Sequence[float], middle: float) -> float:
    """Estimate the standard deviation around `middle` from the median distance to it; 0 for no values."""
    return TO_STANDARD * median([abs(value - middle) for value in values])


def robust_sd(values: Sequence[float]) -> float:
    """Estimate the standard deviation from the median absolute deviation; 0 for fewer than three values."""
    return robust_sd_about(values, median(values)) if len(values) > 2 else 0.0


class StraightLine(NamedTuple):
    """A least-squares line through points of equal weight."""

    slope: float  # y per x; 0 where all x are the same
    x_sum_of_squares: float  # of x around its mean
    residuals: list[float]  # y minus the line at each point

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
    """Fit the line to at least one point."""
    mean_x, mean_y = mean(x), mean(y)
    centred = [value - mean_x for value in x]
    sxx: float = sum(map(mul, centred, centred))
    sxy: float = sum(map(mul, centred, y))
    slope = sxy / sxx if sxx > 0.0 else 0.0
    return StraightLine(slope, sxx, [value - mean_y - slope * at for at, value in zip(centred, y, strict=True)])
