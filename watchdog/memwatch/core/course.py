"""The course of a run: its growth models, and what usually stands above the level that they extrapolate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from memwatch.core.rhythm import USUAL, Rhythm, deviation
from memwatch.core.shapes import SLOTS, Bins, Shape, median
from memwatch.core.trend import Fit, Model, Past, Point, fit

BLOCKS = 16  # equal stretches of time that stand for generations where there are no markers
BLOCKS_IN_PIECE = 4  # blocks of a line
OWN_GENERATIONS = 3  # from which on the growth of a process is its own, not that of the process before it


@dataclass(frozen=True, slots=True)
class Course:
    """x counts generations, or seconds since the first sample where there are no markers."""

    fit: Fit | None
    seconds: float  # of one unit of x
    highs: tuple[tuple[float, float], ...]  # (part of a generation, usual bytes above the level there), highest first
    scatter: float  # standard deviation of the highest of them
    by_generation: bool


def by_generation(rhythm: Rhythm, t: float, prior: Model | None) -> Course:
    """The course over generations; `prior` is the growth, by single generation, of the process before a restart."""
    points = rhythm.points(t)
    fitted = fit(points)
    if prior is not None and points and len(rhythm.shapes) < OWN_GENERATIONS:
        fitted = _continued(prior.in_units(rhythm.bundle), points)
    usual = rhythm.usual()
    calm = [s for s in usual if not rhythm.peaks.is_rare(s)] or usual
    highs, scatter = _highs(calm, fitted) if calm else (((0.0, 0.0),), 0.0)
    return Course(fitted, rhythm.seconds or 1.0, highs, scatter, True)


def _continued(prior: Model, points: Sequence[Point]) -> Fit:
    last = points[-1]
    model = replace(prior.shifted(last.x, last.level), first=0, points=len(points), weight=1.0)
    return Fit((model,), 0.1 * abs(model.slope), Past(), 1.0, 0.5)


def _highs(usual: Sequence[Shape], fitted: Fit | None) -> tuple[tuple[tuple[float, float], ...], float]:
    """Bytes above the level in each slot, less the growth within the generation, and the scatter of the highest.

    They are taken above the trend where that is steadier than above each generation's own level: teeth that do not
    follow the generations move a level down when they move its peak up.
    """
    bases = [s.level for s in usual]
    scatter = deviation([s.peak_excess for s in usual])
    slopes = [0.0] * len(usual)
    if fitted is not None:
        best = fitted.best
        slopes = [best.slope_at(max(s.ordinal, best.x - best.span)) for s in usual]
        if usual[0].ordinal >= best.x - best.span - 1.0:
            trend = [best.at(s.ordinal) for s in usual]
            around = deviation([max(s.highs) - base for s, base in zip(usual, trend, strict=True)])
            if around < scatter:
                bases, scatter = trend, around
    above = [_above(*one) for one in zip(usual, bases, slopes, strict=True)]
    highs = [median([one[k] for one in above]) for k in range(SLOTS)]
    tops = [s.highs.index(max(s.highs)) for s in usual]
    top = int(median([float(k) for k in tops]))
    highs[top] = max(highs[top], median([one[k] for one, k in zip(above, tops, strict=True)]))
    parts = (((k + 0.5) / SLOTS, high) for k, high in enumerate(highs))
    return tuple(sorted(parts, key=lambda part: -part[1])), scatter


def _above(shape: Shape, base: float, slope: float) -> list[float]:
    """The highs of a generation above the line through its middle."""
    return [high - base - slope * ((k + 0.5) / SLOTS - 0.5) for k, high in enumerate(shape.highs)]


def by_time(bins: Bins) -> Course:
    """The course over blocks of time, for a run without markers."""
    items = bins.items
    first_t, now_t = items[0].start_t, items[-1].end_t
    size = max(1, round(len(items) / BLOCKS))
    blocks = [items[max(0, end - size) : end] for end in range(len(items), 0, -size)][::-1]
    points, above = [], []
    for block in blocks:
        level = sum(b.total for b in block) / sum(b.count for b in block)
        points.append(Point(0.5 * (block[0].start_t + block[-1].end_t) - first_t, level))
        above.append(max(b.high for b in block) - level)
    fitted = fit(points, BLOCKS_IN_PIECE)
    slope, x = 0.0, now_t - first_t
    if fitted is not None:
        slope = max(0.0, fitted.best.slope)
        fitted = replace(fitted, models=tuple(m.shifted(x, m.at(x)) for m in fitted.models))
    usual = above[-USUAL:]
    high = max(0.0, median(usual) - 0.5 * slope * x / len(blocks))
    return Course(fitted, 1.0, ((0.0, high),), deviation(usual), False)
