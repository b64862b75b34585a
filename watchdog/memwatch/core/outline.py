"""What stands above and below the level within a generation: its usual means and highs, part by part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import mul

from memwatch.core.growth import Model
from memwatch.core.rhythm import USUAL
from memwatch.core.shapes import SLOTS, Shape, median, quantile, rise_above, variance
from memwatch.core.trend import Fit

HIGH_QUANTILE = 0.75  # of the highs that the usual generations had in a part
LEAST_SCATTER = 0.04  # of the range of a generation: no two are more alike than that, as far as ...
FEW = 8  # ... so few can tell; less where there are more, by the root of their number
LATELY = 24  # latest generations that say how high one may go, if there are ...
MANY = 12  # ... so many of them, but not in ...
MANY_SHARE = 0.6  # ... full: what was earlier counts for less
LATE_PARTS = 2  # by which the open generation may differ from the usual ones
SWELL_LEVELS = 6  # that tell whether what stands on them grows with them ...
SWELL_SHARE = 0.6  # ... if a share of them explains it so well: squared deviations, against those from a constant


@dataclass(frozen=True, slots=True)
class Outline:
    """Bytes above the level's line in SLOTS equal parts of a generation; a single part where there are none."""

    means: tuple[float, ...]
    highs: tuple[float, ...]
    scatter: float  # standard deviation of a generation's highest
    most: float = math.inf  # that the highest was ever above the level
    base: float = 0.0  # the level that all this is in proportion to; 0: it stays as it is when the level grows
    seen: tuple[tuple[float, ...], ...] = ()  # highs of each of the latest generations, part by part ...
    noise: float = 0.0  # ... and the standard deviation of what they stand upon, bytes
    top: float = field(init=False, default=math.inf)  # the highest of those seen
    spread: float = field(init=False, default=0.0)  # variance of the highest of each

    def __post_init__(self) -> None:
        if self.seen:
            tops = [max(one) for one in self.seen]
            object.__setattr__(self, "top", max(tops))
            object.__setattr__(self, "spread", variance(tops))

    @property
    def range(self) -> float:
        """Bytes from the lowest mean to the highest high."""
        return max(self.highs) - min(self.means)

    def level_under(self, limit: float, above: float) -> float:
        """The level at which what now stands so many bytes above it meets the limit."""
        return limit / (1.0 + above / self.base) if self.base > 0.0 else limit - above

    def whole(self) -> Outline:
        """The same as a single part: where a generation is cannot be told."""
        seen = tuple((max(one),) for one in self.seen)
        return replace(self, means=(min(self.means),), highs=(max(self.highs),), seen=seen)

    def aside(self, above: float, part: float) -> float:
        """How far memory is off, when it is so many bytes above the line after so much of a generation.

        A generation may be late or early by some parts; what one of them explains is no deviation.
        """
        slot = int(part * len(self.means))
        near = range(max(0, slot - LATE_PARTS), min(len(self.means), slot + LATE_PARTS + 1))
        low, high = min(self.means[k] for k in near), max(self.highs[k] for k in near)
        return above - high if above > high else min(0.0, above - low)

    def parts(self) -> list[tuple[float, float]]:
        """(middle of the part, its high), highest first."""
        size = len(self.highs)
        return sorted((((k + 0.5) / size, high) for k, high in enumerate(self.highs)), key=lambda part: -part[1])


FLAT = Outline((0.0,), (0.0,), 0.0)


def outline(shapes: Sequence[Shape], levels: Sequence[float], fitted: Fit | None) -> Outline:
    """Of the latest USUAL of these generations with their levels, less the growth within each.

    It is taken above the trend where that is steadier than above each generation's own level: teeth that do not
    follow the generations move a level down when they move its peak up.
    """
    if not shapes:
        return FLAT
    excesses = _heights(shapes, levels)
    lately = excesses[-LATELY:]
    recent, own, slopes = shapes[-LATELY:], list(levels[-LATELY:]), [0.0] * len(lately)
    usual, bases = recent[-USUAL:], own[-USUAL:]
    if fitted is not None:
        best = fitted.best
        slopes = [best.slope_at(max(s.ordinal + 0.5, best.x - best.span)) for s in recent]
        bases = _steadier(usual, bases, best)
    stands, noise = own, 0.0 if fitted is None else fitted.noise
    if fitted is not None and len(recent) >= MANY:
        stands, noise = _surer(recent, own, fitted)
    seen = [_above(s.highs, *rest) for s, *rest in zip(recent, stands, slopes, strict=True)]
    above = [_above(s.highs, *rest) for s, *rest in zip(usual, bases, slopes[-USUAL:], strict=True)]
    beside = [_above(s.means, *rest) for s, *rest in zip(usual, bases, slopes[-USUAL:], strict=True)]
    now = 0.0
    if fitted is not None and min(bases) > 0.0 < fitted.best.level and _swell(levels, excesses):
        now = fitted.best.level
        above, beside = _times(now, bases, above), _times(now, bases, beside)
        seen = _times(now, stands, seen)
    tops = [max(one) for one in above]
    highest, scatter = median(tops), rise_above(_heights(usual, bases))
    if now:
        scatter = rise_above(tops)
    elif len(lately) >= MANY:
        scatter = max(scatter, MANY_SHARE * rise_above(lately))
    highs = [min(highest, quantile([one[k] for one in above], HIGH_QUANTILE)) for k in range(SLOTS)]
    places = [float(one.index(top)) for one, top in zip(above, tops, strict=True)]
    highs[int(median(places))] = highest
    means = tuple(median([one[k] for one in beside]) for k in range(SLOTS))
    return Outline(
        means,
        tuple(highs),
        max(scatter, LEAST_SCATTER * (highest - min(means)) * min(1.0, math.sqrt(FEW / len(lately)))),
        most=max(tops if now or len(lately) < MANY else [*tops, *lately]),
        base=now,
        seen=tuple(tuple(one) for one in seen),
        noise=noise,
    )


def _times(now: float, bases: Sequence[float], many: Sequence[Sequence[float]]) -> list[list[float]]:
    """Each as it would be above the level of now."""
    return [[now / base * v for v in one] for base, one in zip(bases, many, strict=True)]


def _surer(shapes: Sequence[Shape], levels: list[float], fitted: Fit) -> tuple[list[float], float]:
    """What the highs seen stand upon, and its noise: each one's own level, or the trend, if that tells them better."""
    trend = _along(shapes, levels, fitted.best)
    if trend is None:
        return levels, fitted.noise
    own = variance(_heights(shapes, levels)) + fitted.noise**2
    along = variance(_heights(shapes, trend))
    return (trend, fitted.noise / math.sqrt(len(shapes))) if along < own else (levels, fitted.noise)


def _steadier(shapes: Sequence[Shape], levels: list[float], best: Model) -> list[float]:
    """What the highs stand upon: each generation's own level, or the trend."""
    trend = _along(shapes, levels, best)
    if trend is None:
        return levels
    return trend if rise_above(_heights(shapes, trend)) < rise_above(_heights(shapes, levels)) else levels


def _along(shapes: Sequence[Shape], levels: Sequence[float], best: Model) -> list[float] | None:
    """The trend at each generation, moved to their levels; None where it does not reach back to the first."""
    if shapes[0].ordinal + 0.5 < best.x - best.span - 1.0:
        return None
    trend = [best.at(s.ordinal + 0.5) for s in shapes]
    aside = median([level - base for level, base in zip(levels, trend, strict=True)])
    return [base + aside for base in trend]


def _heights(shapes: Sequence[Shape], bases: Sequence[float]) -> list[float]:
    """How far each generation's peak stands above its base."""
    return [s.peak - base for s, base in zip(shapes, bases, strict=True)]


def _swell(levels: Sequence[float], excesses: Sequence[float]) -> bool:
    """What stands above the levels is in proportion to them: noise that is a share of what is in use."""
    if len(levels) < SWELL_LEVELS or min(levels) <= 0.0:
        return False
    usual = sum(excesses) / len(excesses)
    share = sum(map(mul, levels, excesses)) / sum(map(mul, levels, levels))
    off: float = sum((excess - usual) ** 2 for excess in excesses)
    off_share: float = sum((excess - share * level) ** 2 for level, excess in zip(levels, excesses, strict=True))
    return off_share < SWELL_SHARE * off


def _above(values: Sequence[float], base: float, slope: float) -> list[float]:
    """The values of a generation above the line through its middle."""
    return [value - base - slope * ((k + 0.5) / SLOTS - 0.5) for k, value in enumerate(values)]
