"""What stands above and below the level within a generation: its usual means and highs, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memwatch.core.shapes import SLOTS, Shape, median, quantile, rise_above
from memwatch.core.trend import Fit

HIGH_QUANTILE = 0.75  # of the highs that the usual generations had in a part
LEAST_SCATTER = 0.04  # of the range of a generation: no two are more alike than that
ROVING_PARTS = 2.0  # usual distance of the highest part from the middle one of them
LATE_PARTS = 2  # by which the open generation may differ from the usual ones


@dataclass(frozen=True, slots=True)
class Outline:
    """Bytes above the level's line in SLOTS equal parts of a generation; a single part where there are none."""

    means: tuple[float, ...]
    highs: tuple[float, ...]
    scatter: float  # standard deviation of a generation's highest
    flutter: float = 0.0  # and of the high in one part
    roves: bool = False  # the highest comes now in this part, now in that

    @property
    def range(self) -> float:
        """Bytes from the lowest mean to the highest high."""
        return max(self.highs) - min(self.means)

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


def outline(usual: Sequence[Shape], levels: Sequence[float], fitted: Fit | None) -> Outline:
    """Of the usual generations with their levels, less the growth within each.

    It is taken above the trend where that is steadier than above each generation's own level: teeth that do not
    follow the generations move a level down when they move its peak up.
    """
    if not usual:
        return FLAT
    bases = list(levels)
    scatter = rise_above([s.peak - level for s, level in zip(usual, levels, strict=True)])
    slopes = [0.0] * len(usual)
    if fitted is not None:
        best = fitted.best
        slopes = [best.slope_at(max(s.ordinal + 0.5, best.x - best.span)) for s in usual]
        if usual[0].ordinal + 0.5 >= best.x - best.span - 1.0:
            trend = [best.at(s.ordinal + 0.5) for s in usual]
            aside = median([level - base for level, base in zip(levels, trend, strict=True)])
            trend = [base + aside for base in trend]
            around = rise_above([s.peak - base for s, base in zip(usual, trend, strict=True)])
            if around < scatter:
                bases, scatter = trend, around
    above = [_above(s.highs, *rest) for s, *rest in zip(usual, bases, slopes, strict=True)]
    beside = [_above(s.means, *rest) for s, *rest in zip(usual, bases, slopes, strict=True)]
    highest = median([max(one) for one in above])
    highs = [min(highest, quantile([one[k] for one in above], HIGH_QUANTILE)) for k in range(SLOTS)]
    tops = [float(one.index(max(one))) for one in above]
    highs[int(median(tops))] = highest
    roves = median([abs(top - median(tops)) for top in tops]) >= ROVING_PARTS
    means = tuple(median([one[k] for one in beside]) for k in range(SLOTS))
    in_parts = median([rise_above([one[k] for one in above]) for k in range(SLOTS)])
    return Outline(means, tuple(highs), max(scatter, LEAST_SCATTER * (highest - min(means))), in_parts, roves)


def _above(values: Sequence[float], base: float, slope: float) -> list[float]:
    """The values of a generation above the line through its middle."""
    return [value - base - slope * ((k + 0.5) / SLOTS - 0.5) for k, value in enumerate(values)]
