"""Curves, and curves upon a line, fitted to a stretch of levels by least squares."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import mul

from memwatch.core.growth import Curve

MIN_POINTS = 5  # of a curve that saturates
MIN_OTHER = 6  # of another; one more upon a line
LEAST = {"saturating": MIN_POINTS, "accelerating": 9}
CURVES = (
    *(Curve("saturating", 0.6 * 1.45**i) for i in range(9)),
    *(Curve("accelerating", rate) for rate in (0.7, 1.2, 2.0, 3.0)),
    *(Curve("power", exponent) for exponent in (0.4, 0.55, 0.7, 0.85, 1.5, 2.0, 3.0)),
    *(Curve("logarithmic", rate) for rate in (3.0, 10.0, 40.0)),
)
FILLS = tuple(Curve("saturating", rate) for rate in (4.0, 7.0, 12.0, 20.0))  # upon a line


@dataclass(frozen=True, slots=True)
class Bend:
    """A curve through a stretch: y = const + gain * curve(u) + drift * u, u from 0 to 1."""

    curve: Curve
    gain: float
    drift: float  # 0 without a line under it
    end: float  # y at u = 1
    slope: float  # dy/du at u = 1
    slope_error: float  # standard error
    rss: float  # weighted squared residuals

    @property
    def extra(self) -> int:
        """Parameters beyond those of a line."""
        return 2 if self.drift else 1


class _Column:
    """A regressor: centred, with its weighted sums."""

    def __init__(self, w: Sequence[float], values: Sequence[float]) -> None:
        self.mean = sum(map(mul, w, values)) / sum(w)
        self.off = [v - self.mean for v in values]
        self.weighted = list(map(mul, w, self.off))
        self.spread = sum(map(mul, self.weighted, self.off))

    def with_(self, other: _Column) -> float:
        """Weighted sum of products."""
        total: float = sum(map(mul, self.weighted, other.off))
        return total


def bends(w: Sequence[float], u: Sequence[float], y: Sequence[float]) -> Iterator[Bend]:
    """Every rising curve through the points (u from 0 to 1, y in noise units, weights w), alone and upon a line."""
    points = len(u)
    if points < MIN_POINTS:
        return
    levels, line = _Column(w, y), _Column(w, u)
    for curve in CURVES:
        if points < LEAST.get(curve.kind, MIN_OTHER):
            continue
        form = _Column(w, [curve.value(v) for v in u])
        if form.spread <= 1e-12:
            continue
        along = form.with_(levels)
        if along > 0.0:
            gain = along / form.spread
            yield _bend(points, curve, form, gain, 0.0, levels, line, levels.spread - gain * along)
    if points <= MIN_OTHER:
        return
    along_line = line.with_(levels)
    for curve in FILLS:
        form = _Column(w, [curve.value(v) for v in u])
        both = form.with_(line)
        determinant = form.spread * line.spread - both * both
        if determinant <= 1e-9 * form.spread * line.spread:
            continue
        along = form.with_(levels)
        gain = (along * line.spread - along_line * both) / determinant
        drift = (along_line * form.spread - along * both) / determinant
        if gain > 0.0 and drift > 0.0:
            rss = levels.spread - gain * along - drift * along_line
            yield _bend(points, curve, form, gain, drift, levels, line, rss)


def _bend(  # noqa: PLR0917
    points: int, curve: Curve, form: _Column, gain: float, drift: float, levels: _Column, line: _Column, rss: float
) -> Bend:
    rss = max(0.0, rss)
    scatter = math.sqrt(max(1.0, rss / max(1, points - 3)))
    error = scatter * (1.0 / math.sqrt(line.spread) if drift else curve.slope(1.0) / math.sqrt(form.spread))
    end = levels.mean + gain * (curve.value(1.0) - form.mean) + drift * (1.0 - line.mean)
    return Bend(curve, gain, drift, end, gain * curve.slope(1.0) + drift, error, rss)
