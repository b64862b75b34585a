"""Curves, and curves upon a line, fitted to a stretch of levels by least squares."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import mul

from memwatch.core.growth import Curve

MIN_POINTS = 5  # of a curve that saturates
MIN_OTHER = 6  # of another; one more upon a line
LEAST = {"saturating": MIN_POINTS, "accelerating": 9}
FORMS: tuple[tuple[str, tuple[float, ...]], ...] = (  # the rates that are tried first
    ("saturating", tuple(0.6 * 1.6**i for i in range(7))),
    ("accelerating", (0.7, 1.2, 2.0, 3.0)),
    ("power", (0.4, 0.52, 0.68, 0.88)),
    ("power", (1.5, 2.0, 3.0)),
    ("logarithmic", (1.0, 3.0, 10.0, 40.0)),
)
UPON_LINE: tuple[tuple[str, tuple[float, ...]], ...] = (("saturating", (4.0, 7.0, 12.0, 20.0)), ("power", (2.0,)))


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
    def kind(self) -> str:
        """Of the growth: that of the curve, "accelerating" for a power above 1, "fill and leak" upon a line."""
        if self.curve.kind == "power" and self.curve.rate > 1.0:
            return "accelerating"
        return "fill and leak" if self.drift else self.curve.kind

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
    points, stretch = len(u), _Stretch(w, u, y)
    for kind, rates in FORMS:
        if points >= LEAST.get(kind, MIN_OTHER):
            yield from _refined(stretch.alone, kind, rates)
    for kind, rates in UPON_LINE:
        if points > MIN_OTHER:
            yield from _refined(stretch.upon_line, kind, rates)


def _refined(fitted: Callable[[Curve], Bend | None], kind: str, rates: Sequence[float]) -> Iterator[Bend]:
    """The curve at each of the rates, and where between them a parabola through the misfits is lowest."""
    found = [fitted(Curve(kind, rate)) for rate in rates]
    yield from filter(None, found)
    misfits = [math.inf if bend is None else bend.rss for bend in found]
    i = misfits.index(min(misfits))
    if not 0 < i < len(rates) - 1 or math.isinf(max(misfits[i - 1 : i + 2])):
        return
    before, after = math.log(rates[i] / rates[i - 1]), math.log(rates[i + 1] / rates[i])
    steeper, flatter = (misfits[i - 1] - misfits[i]) * after, (misfits[i + 1] - misfits[i]) * before
    if steeper + flatter > 0.0:
        off = 0.5 * (steeper * after - flatter * before) / (steeper + flatter)
        between = fitted(Curve(kind, rates[i] * math.exp(off)))
        if between is not None:
            yield between


class _Stretch:
    def __init__(self, w: Sequence[float], u: Sequence[float], y: Sequence[float]) -> None:
        self.w, self.u = w, u
        self.levels, self.line = _Column(w, y), _Column(w, u)
        self.along_line = self.line.with_(self.levels)

    def _form(self, curve: Curve) -> _Column:
        return _Column(self.w, [curve.value(v) for v in self.u])

    def alone(self, curve: Curve) -> Bend | None:
        """The curve by least squares; None unless it rises."""
        form = self._form(curve)
        along = form.with_(self.levels)
        if form.spread <= 1e-12 or along <= 0.0:
            return None
        gain = along / form.spread
        return self._bend(curve, form, gain, 0.0, self.levels.spread - gain * along)

    def upon_line(self, curve: Curve) -> Bend | None:
        """The curve and a line by least squares; None unless both rise."""
        form = self._form(curve)
        both = form.with_(self.line)
        determinant = form.spread * self.line.spread - both * both
        if determinant <= 1e-9 * form.spread * self.line.spread:
            return None
        along = form.with_(self.levels)
        gain = (along * self.line.spread - self.along_line * both) / determinant
        drift = (self.along_line * form.spread - along * both) / determinant
        if gain <= 0.0 or drift <= 0.0:
            return None
        return self._bend(curve, form, gain, drift, self.levels.spread - gain * along - drift * self.along_line)

    def _bend(self, curve: Curve, form: _Column, gain: float, drift: float, rss: float) -> Bend:
        rss = max(0.0, rss)
        scatter = math.sqrt(max(1.0, rss / max(1, len(self.u) - 3)))
        error = scatter * (1.0 / math.sqrt(self.line.spread) if drift else curve.slope(1.0) / math.sqrt(form.spread))
        end = self.levels.mean + gain * (curve.value(1.0) - form.mean) + drift * (1.0 - self.line.mean)
        return Bend(curve, gain, drift, end, gain * curve.slope(1.0) + drift, error, rss)
