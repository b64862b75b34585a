"""What a soak asks of a series of readings: whether it is flat, and how fast it rises."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from support.measure import median

Points = Sequence[tuple[float, float]]  # (seconds, value), in order of time


def after(points: Points, seconds: float) -> Points:
    """What comes after a warm-up."""
    return [(t, value) for t, value in points if t >= seconds]


def windows(points: Points, seconds: float) -> list[list[float]]:
    """Values by stretch of time, from the first point on; a last one that is less than half as long is left out."""
    found: dict[int, list[float]] = {}
    for t, value in points:
        found.setdefault(int((t - points[0][0]) / seconds), []).append(value)
    last = int((points[-1][0] - points[0][0]) / seconds) if points else 0
    if found and (points[-1][0] - points[0][0]) % seconds < seconds / 2 and len(found) > 1:
        found.pop(last)
    return list(found.values())


def spread(points: Points, seconds: float) -> float:
    """Between the highest and the lowest of the medians of all windows."""
    medians = [median(values) for values in windows(points, seconds)]
    return max(medians) - min(medians)


def growth(points: Points) -> float:
    """What a straight line through all rises by from the first to the last."""
    mid_t, mid = fmean(t for t, _ in points), fmean(value for _, value in points)
    across = sum((t - mid_t) ** 2 for t, _ in points)
    slope = sum((t - mid_t) * (value - mid) for t, value in points) / across if across else 0.0
    return slope * (points[-1][0] - points[0][0])


def floor_rise(points: Points, seconds: float) -> float:
    """By how much the least of the last window is above the least of the first: what is never given back raises it."""
    found = windows(points, seconds)
    return min(found[-1]) - min(found[0])
