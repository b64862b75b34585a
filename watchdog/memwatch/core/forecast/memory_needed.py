"""What a run needs to finish: the most memory that it will have used by its end, from the same models as the limit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

from memwatch.core.forecast.fitted_model import FittedModel
from memwatch.core.forecast.growth_models import GrowthModel
from memwatch.core.forecast.time_to_limit import ERRORS, MORE, QUANTILES, first_of_many
from memwatch.core.snapshot import MemoryNeeded

MOST_BYTES = 2.0**60  # no machine has more: what leads there has no end
AHEAD_ERROR = 0.1  # of the growth ahead: standard error, at the least (on traces half-way; 0.02 holds a sixth less)


def memory_needed(fitted: FittedModel, end_x: float, most_bytes: float) -> MemoryNeeded | None:
    """The most that will be used until the place `end_x`, infinity where no end is known; `most_bytes` were so far.

    None where growth has no end that is known, or too little was seen.
    """
    if not fitted.components:
        return None
    low, middle, high = _quantiles(_tops(fitted, end_x), QUANTILES)
    if math.isinf(middle):
        return None
    low, middle, high = (max(most_bytes, value) for value in (low, middle, high))
    return MemoryNeeded(int(middle), int(low), int(high) if math.isfinite(high) else None)


def _tops(fitted: FittedModel, end_x: float) -> Iterator[tuple[float, float]]:
    """The highest use by the end, by every model and its errors, and the weight of each."""
    profile = fitted.profile
    part, usual_top = profile.parts()[0]
    place = end_x - 1.0 + part if fitted.by_generation else end_x
    peak = fitted.periodic_peak
    is_peak_due = peak is not None and peak.first_from(fitted.schedule.now_x) <= end_x
    above = max(usual_top, peak.excess) if peak is not None and is_peak_due else usual_top
    for component in fitted.components:
        unrest = math.hypot(profile.peak_sd, component.fit.noise)
        for model in component.fit.models:
            weight = component.weight * model.weight
            level = _level(model, component.regressor.x_at(place))
            if math.isinf(level):
                yield math.inf, weight
                continue
            usual = profile.scaling.top_over(level, above)
            growth = max(model.slope, 0.0) * component.regressor.pace * fitted.period
            met_by, left = first_of_many(unrest, growth, max(0.0, end_x - fitted.schedule.now_x) / fitted.period)
            doubt = profile.scaling.doubt(usual, above)
            left = math.hypot(left, doubt)
            most = profile.record - usual_top + MORE * unrest + 1.65 * doubt
            ahead = max(0.0, level - model.level)
            relative = math.hypot(AHEAD_ERROR, model.slope_error / model.slope) if model.slope > 0.0 else 0.0
            by_slope = relative * ahead
            both = math.hypot(by_slope, left) or 1.0
            for errors, share in ERRORS:
                beside = min(met_by + errors * left * (left / both), most)
                yield usual + beside + errors * by_slope * (by_slope / both), weight * share


def _level(model: GrowthModel, x: float) -> float:
    """The level at x, or where growth ends before it; infinity where it goes on without an end."""
    if model.kind == "flat" or x <= model.x:
        return model.level
    if math.isinf(x):
        ends = model.kind == "saturating" and model.linear_term == 0.0
        return model.level_at(model.x + 1e3 * model.span) if ends else math.inf
    level = model.level_at(x)
    return level if level < MOST_BYTES else math.inf


def _quantiles(weighted: Iterable[tuple[float, float]], shares: Iterable[float]) -> list[float]:
    """Quantiles of weighted values; between two values on the line through the middles of their weights."""
    ordered = sorted(weighted)
    values, weights = [value for value, _ in ordered], [weight for _, weight in ordered]
    total = sum(weights)
    middles = [(end - 0.5 * weight) / total for end, weight in zip(accumulate(weights), weights, strict=True)]
    return [_interpolated(values, middles, share) for share in shares]


def _interpolated(values: list[float], at: list[float], share: float) -> float:
    if share <= at[0]:
        return values[0]
    for (a, low), (b, high) in pairwise(zip(at, values, strict=True)):
        if share <= b:
            return high if math.isinf(high) or b == a else low + (high - low) * (share - a) / (b - a)
    return values[-1]
