"""What stands above and below the level within a generation: its usual means and highs, part by part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

from memwatch.core.forecast.generation_tracker import USUAL_GENERATIONS
from memwatch.core.forecast.growth_models import GrowthModel
from memwatch.core.forecast.piecewise_trend import TrendFit
from memwatch.core.forecast.sample_summaries import SLOTS, GenerationSummary
from memwatch.core.robust_statistics import mean, median, quantile, straight_line, upper_semideviation, variance

HIGH_QUANTILE = 0.75  # of the highs that the usual generations had in a part
PROFILE_GENERATIONS = 24  # latest generations that say how high one may go
MANY = 12  # of them, from which on they say it together
LATE_PARTS = 2  # by which the open generation may differ from the usual ones
SWELL_LEVELS = 6  # that tell whether what stands on them grows with them
SWELL_OWN_LEVELS = 3  # of the growth under way, the fewest with which it may contradict the earlier ones
SWELL_PRIOR = -1.4  # log odds that it does, before they are looked at: one in five
OUTLYING = 3.7  # median deviations: a level that is farther off does not tell
MOST_DOUBT = 0.5  # of its share


@dataclass(frozen=True, slots=True)
class ProfileScaling:
    """How what stands above the level grows with it."""

    share: float = 0.0  # of it that is in proportion to the level; the rest stays as it is
    error: float = 0.0  # its standard error
    level: float = 0.0  # bytes, at which it is as high as it is told

    def level_under(self, limit: float, above: float) -> float:
        """The level at which what now stands so many bytes above it meets the limit."""
        if self.share <= 0.0:
            return limit - above
        return (limit - above * (1.0 - self.share)) / (1.0 + self.share * above / self.level)

    def top_over(self, level: float, above: float) -> float:
        """How high what now stands so many bytes above the level reaches over another level."""
        if self.share <= 0.0:
            return level + above
        return level + above * (1.0 - self.share + self.share * level / self.level)

    def doubt(self, limit: float, above: float) -> float:
        """Standard error of the level at which that meets the limit, bytes."""
        return self.error * above * max(0.0, (limit - above) / self.level - 1.0) if self.level > 0.0 else 0.0

    def factor(self, level: float) -> float:
        """How much higher what stood above that level would stand now."""
        return 1.0 + self.share * (self.level / level - 1.0) if self.share > 0.0 else 1.0


ADDITIVE = ProfileScaling()
_PLACES = tuple([(k + 0.5) / SLOTS - 0.5 for k in range(SLOTS)])  # of the slots, from the middle of a generation


@dataclass(frozen=True, slots=True)
class GenerationProfile:
    """Bytes above the level's line in SLOTS equal parts of a generation; a single part where there are none."""

    means: tuple[float, ...]
    slot_maxima: tuple[float, ...]
    peak_sd: float  # standard deviation of a generation's highest
    record: float = math.inf  # that the highest was ever above the level
    scaling: ProfileScaling = ADDITIVE
    past_slot_maxima: tuple[tuple[float, ...], ...] = ()  # highs of each of the latest generations, part by part ...
    noise: float = 0.0  # ... and the standard deviation of what they stand upon, bytes
    mean_sd: float = 0.0  # standard deviation of a part's mean around the usual one, bytes
    range: float = field(init=False)  # bytes from the lowest mean to the highest high
    reach: float = field(init=False)  # bytes from the lowest mean to the highest of those seen
    top: float = field(init=False, default=math.inf)  # the highest of those seen
    spread: float = field(init=False, default=0.0)  # variance of the highest of each

    def __post_init__(self) -> None:
        lowest = min(self.means)
        object.__setattr__(self, "range", max(self.slot_maxima) - lowest)
        if self.past_slot_maxima:
            tops = [max(one) for one in self.past_slot_maxima]
            object.__setattr__(self, "top", max(tops))
            object.__setattr__(self, "spread", variance(tops))
        object.__setattr__(self, "reach", self.top - lowest)

    def whole(self) -> GenerationProfile:
        """The same as a single part: where a generation is cannot be told."""
        seen = tuple([(max(one),) for one in self.past_slot_maxima])
        return replace(self, means=(min(self.means),), slot_maxima=(max(self.slot_maxima),), past_slot_maxima=seen)

    def residual(self, above: float, part: float) -> float:
        """How far memory is off, when it is so many bytes above the line after so much of a generation.

        A generation may be late or early by some parts; what one of them explains is no deviation.
        """
        slot = int(part * len(self.means))
        near = range(max(0, slot - LATE_PARTS), min(len(self.means), slot + LATE_PARTS + 1))
        low, high = min(self.means[k] for k in near), max(self.slot_maxima[k] for k in near)
        return above - high if above > high else min(0.0, above - low)

    def parts(self) -> list[tuple[float, float]]:
        """(middle of the part, its high), highest first."""
        size = len(self.slot_maxima)
        return sorted((((k + 0.5) / size, high) for k, high in enumerate(self.slot_maxima)), key=lambda part: -part[1])


FLAT_PROFILE = GenerationProfile((0.0,), (0.0,), 0.0)


def fit_profile(
    shapes: Sequence[GenerationSummary], levels: Sequence[float], fitted: TrendFit | None
) -> GenerationProfile:
    """Of the latest USUAL of these generations with their levels, less the growth within each.

    It is taken above the trend where that is steadier than above each generation's own level: cycles that do not
    follow the generations move a level down when they move its peak up.
    """
    if not shapes:
        return FLAT_PROFILE
    excesses = _heights(shapes, levels)
    recent, own = shapes[-PROFILE_GENERATIONS:], list(levels[-PROFILE_GENERATIONS:])
    slopes = [0.0] * len(recent)
    usual, bases = recent[-USUAL_GENERATIONS:], own[-USUAL_GENERATIONS:]
    if fitted is not None:
        best = fitted.best
        starts = [max(s.ordinal, best.x - best.span) for s in recent]
        slopes = [best.level_at(start + 1.0) - best.level_at(start) for start in starts]
        bases = _steadier(usual, bases, best)
    stands, noise = own, 0.0 if fitted is None else fitted.noise
    if fitted is not None and len(recent) >= MANY:
        stands, noise = _surer(recent, own, fitted)
    swell = ADDITIVE
    if fitted is not None and min(*bases, *stands) > 0.0:
        swell = _swell(levels, excesses, fitted.best.level)
        begun = fitted.best.x - fitted.best.span
        same = [i for i, shape in enumerate(shapes) if shape.ordinal + 1.0 > begun]  # of the growth under way
        heights, scaled = [excesses[i] for i in same], [swell.factor(levels[i]) * excesses[i] for i in same]
        if len(same) >= SWELL_OWN_LEVELS and _relative_variance(heights) < _relative_variance(scaled):
            swell = ADDITIVE  # it contradicts what was before it
    lines = list(zip(bases, slopes[-USUAL_GENERATIONS:], map(swell.factor, bases), strict=True))
    above = [_above(s.slot_maxima, *line) for s, line in zip(usual, lines, strict=True)]
    beside = [_above(s.slot_means, *line) for s, line in zip(usual, lines, strict=True)]
    lines = list(zip(stands, slopes, map(swell.factor, stands), strict=True))
    seen = [_above(s.slot_maxima, *line) for s, line in zip(recent, lines, strict=True)]
    lately = [swell.factor(level) * excess for level, excess in zip(own, excesses[-PROFILE_GENERATIONS:], strict=True)]
    tops = [max(one) for one in above]
    highest = median(tops)
    scatter = upper_semideviation(
        [swell.factor(base) * high for base, high in zip(bases, _heights(usual, bases), strict=True)]
    )
    highs = [min(highest, quantile([one[k] for one in above], HIGH_QUANTILE)) for k in range(SLOTS)]
    places = [float(one.index(top)) for one, top in zip(above, tops, strict=True)]
    highs[int(median(places))] = highest
    means = tuple([median([one[k] for one in beside]) for k in range(SLOTS)])
    return GenerationProfile(
        means,
        tuple(highs),
        scatter,
        record=max(tops if len(lately) < MANY else [*tops, *lately]),
        scaling=swell,
        past_slot_maxima=tuple([tuple(one) for one in seen]),
        noise=noise,
        mean_sd=math.sqrt(mean([(one[k] - means[k]) ** 2 for one in beside for k in range(SLOTS)])),
    )


def _surer(shapes: Sequence[GenerationSummary], levels: list[float], fitted: TrendFit) -> tuple[list[float], float]:
    """What the highs seen stand upon, and its noise: each one's own level, or the trend, if that tells them better."""
    trend = _along(shapes, levels, fitted.best)
    if trend is None:
        return levels, fitted.noise
    own = variance(_heights(shapes, levels)) + fitted.noise**2
    along = variance(_heights(shapes, trend))
    return (trend, fitted.noise / math.sqrt(len(shapes))) if along < own else (levels, fitted.noise)


def _steadier(shapes: Sequence[GenerationSummary], levels: list[float], best: GrowthModel) -> list[float]:
    """What the highs stand upon: each generation's own level, or the trend."""
    trend = _along(shapes, levels, best)
    if trend is None:
        return levels
    along, own = upper_semideviation(_heights(shapes, trend)), upper_semideviation(_heights(shapes, levels))
    return trend if along < own else levels


def _along(shapes: Sequence[GenerationSummary], levels: Sequence[float], best: GrowthModel) -> list[float] | None:
    """The trend at each generation, moved to their levels; None where it does not reach back to the first."""
    if shapes[0].ordinal + 0.5 < best.x - best.span - 1.0:
        return None
    trend = [best.level_at(s.ordinal + 0.5) for s in shapes]
    aside = median([level - base for level, base in zip(levels, trend, strict=True)])
    return [base + aside for base in trend]


def _heights(shapes: Sequence[GenerationSummary], bases: Sequence[float]) -> list[float]:
    return [s.peak - base for s, base in zip(shapes, bases, strict=True)]


def _swell(levels: Sequence[float], excesses: Sequence[float], now: float) -> ProfileScaling:
    """How much of what stands above the levels grows with them, as noise does that is a share of what is in use."""
    if len(levels) < SWELL_LEVELS or min(levels) <= 0.0 or now <= 0.0:
        return ADDITIVE
    line = straight_line(levels, excesses)
    usual = OUTLYING * median([abs(off) for off in line.residuals])
    calm = [abs(off) <= usual for off in line.residuals]
    if SWELL_LEVELS <= sum(calm) < len(levels):
        levels, excesses = list(compress(levels, calm)), list(compress(excesses, calm))
        line = straight_line(levels, excesses)
    level, excess, n = mean(levels), mean(excesses), len(levels)
    if excess <= 0.0 or line.x_sum_of_squares <= 1e-6 * level * level:
        return ADDITIVE
    share, error = min(1.0, max(0.0, line.slope * level / excess)), line.slope_se * level / excess
    clear = 0.5 * (n * math.log1p((share / max(error, 1e-9)) ** 2 / (n - 2)) - math.log(n)) + SWELL_PRIOR
    belief = 1.0 / (1.0 + math.exp(-max(-50.0, min(50.0, clear))))
    doubt = math.hypot(error, share * math.sqrt(belief * (1.0 - belief)))
    return ProfileScaling(share * belief, min(MOST_DOUBT, doubt), now)


def _relative_variance(values: Sequence[float]) -> float:
    middle = mean(values)
    return variance(values) / middle**2 if middle else 0.0


def _above(values: Sequence[float], base: float, slope: float, factor: float) -> list[float]:
    """The values of a generation above the line through its middle, times a factor."""
    return [factor * (value - base - slope * place) for value, place in zip(values, _PLACES, strict=True)]
