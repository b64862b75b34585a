"""When a course meets its limit: every model and its errors, weighed into a middle and an interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memwatch.core.course import Course
from memwatch.core.peaks import Peaks
from memwatch.core.shapes import SLOTS
from memwatch.core.trend import Model

ERRORS = ((-1.65, 0.1), (-0.9, 0.24), (0.0, 0.32), (0.9, 0.24), (1.65, 0.1))  # standard errors and their weights
TIME_ERROR = 0.05  # of the time ahead, at the least, to either side


@dataclass(frozen=True, slots=True)
class Meeting:
    """The x at which the limit is met, with the bounds of 90 %; infinity for never."""

    low: float
    middle: float
    high: float


def meeting(course: Course, now_x: float, limit: float, peaks: Peaks | None, unevenness: float) -> Meeting:
    """When the course meets `limit` bytes; `unevenness` is the deviation of a generation's length, as a share."""
    outcomes = sorted(_outcomes(course, now_x, limit, peaks))
    low, middle, high = (_quantile(outcomes, share) for share in (0.05, 0.5, 0.95))

    def aside(x: float) -> float:
        ahead = max(0.0, x - now_x)
        slot = 1.0 / SLOTS if course.by_generation else 0.0
        return math.hypot(TIME_ERROR * ahead, 1.64 * unevenness * math.sqrt(ahead), slot) if math.isfinite(x) else 0.0

    return Meeting(max(now_x, low - aside(low)), middle, high + aside(high))


def _outcomes(course: Course, now_x: float, limit: float, peaks: Peaks | None) -> Iterator[tuple[float, float]]:
    """(x at which the limit is met, weight) of every model and of its errors."""
    for model in course.fit.models if course.fit is not None else ():
        if model.kind == "flat":
            yield math.inf, model.weight
            continue
        for errors, weight in ERRORS:
            x = _first(course, model, errors, now_x, limit - errors * course.scatter, peaks)
            yield max(x, now_x), model.weight * weight


def _first(  # noqa: PLR0917
    course: Course, model: Model, errors: float, now_x: float, limit: float, peaks: Peaks | None
) -> float:
    """The first x from now on at which any part of a generation meets the limit.

    The level stands for the middle of its generation: within it the growth goes on. The highs come highest first, so
    that the level which each allows is met later and later.
    """
    if not course.by_generation:
        return min(model.when(limit - above, errors) for _, above in course.highs)
    first = math.inf
    for part, above in course.highs:
        met = max(model.when(limit - above, errors) + 0.5, now_x)
        if met >= first or met == math.inf:
            break
        first = min(first, math.ceil(met - part - 1e-9) + part)
    return first if peaks is None else min(first, peaks.meets(model, limit, now_x, errors))


def _quantile(outcomes: Sequence[tuple[float, float]], share: float) -> float:
    """The smallest outcome that with those before it has at least this share of the weight."""
    total = sum(weight for _, weight in outcomes)
    reached = 0.0
    for x, weight in outcomes:
        reached += weight
        if reached >= share * total - 1e-12:
            return x
    return math.inf
