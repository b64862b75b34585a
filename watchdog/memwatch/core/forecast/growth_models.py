"""Curves, and curves upon a line, fitted to a stretch of levels by least squares.

Growth models: how a level goes on from its latest point, and when it reaches another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import expm1, log1p
from operator import mul
from typing import NamedTuple

ROOT_TOLERANCE = 1e-4  # of the way: so exactly is it found when a curve upon a line reaches a level
HORIZON_LENGTHS = 1e4  # times its own length: what a curve reaches later than this, it never reaches


@dataclass(frozen=True, slots=True)
class Curve:
    """The form of a bend: 0 at u = 0, rising; u is 1 at the end of the stretch that it was fitted to."""

    kind: str  # "saturating", "logarithmic", "power" or "accelerating"
    rate: float  # e-foldings over the stretch; of a power, its exponent

    def value(self, u: float) -> float:
        """The form at u; before 0 as at 0, unless it goes on from there."""
        return self.values((max(u, 0.0) if self.kind in {"logarithmic", "power"} else u,))[0]

    def values(self, many: Sequence[float]) -> list[float]:
        """The form at each u >= 0."""
        rate = self.rate
        if self.kind == "saturating":
            return [-expm1(-rate * u) for u in many]
        if self.kind == "logarithmic":
            return [log1p(rate * u) for u in many]
        if self.kind == "power":
            return [u**rate for u in many]
        return [expm1(min(rate * u, 500.0)) for u in many]

    def where(self, value: float) -> float:
        """The u at which the form has a value >= 0; infinity for never."""
        if self.kind == "saturating":
            return -log1p(-value) / self.rate if value < 1.0 else math.inf
        if self.kind == "logarithmic":
            return expm1(value) / self.rate if value < 500.0 else math.inf
        if self.kind == "power":
            return math.pow(value, 1.0 / self.rate)
        return log1p(value) / self.rate

    def slope(self, u: float) -> float:
        if self.kind == "saturating":
            return self.rate * math.exp(-self.rate * u)
        if self.kind == "logarithmic":
            return self.rate / (1.0 + self.rate * max(u, 0.0))
        if self.kind == "power":
            return self.rate * math.pow(max(u, 1e-9), self.rate - 1.0)
        return self.rate * math.exp(min(self.rate * u, 500.0))


@dataclass(frozen=True, slots=True)
class GrowthModel:
    """One explanation of the latest piece of a series: a line, a curve, or a curve upon a line."""

    kind: str  # "flat", "linear", or of its bend: "saturating", "logarithmic", "power", "accelerating", "fill and leak"
    weight: float  # how much of the belief it has, 0..1
    cost: float  # misfit and price, in squared noise units
    first: int  # index of its first point
    points: int
    x: float  # where it is anchored: the last point
    level: float  # bytes there
    slope: float  # bytes per x there
    slope_error: float  # standard error
    span: float  # from its first point to its last, in units of x
    curve: Curve | None = None
    amplitude: float = 0.0  # bytes that the curve's form is multiplied by
    origin: float = 0.0  # x at which the curve begins
    linear_term: float = 0.0  # bytes per x of the line under the curve

    def level_at(self, x: float) -> float:
        if self.curve is None:
            return self.level + self.slope * (x - self.x)
        bend = self.curve.value((x - self.origin) / self.span) - self.curve.value((self.x - self.origin) / self.span)
        return self.level + self.amplitude * bend + self.linear_term * (x - self.x)

    def slope_at(self, x: float) -> float:
        """Growth at x, bytes per x."""
        if self.curve is None:
            return self.slope
        return self.amplitude * self.curve.slope((x - self.origin) / self.span) / self.span + self.linear_term

    def x_at_level(self, level: float, errors: float = 0.0) -> float:
        """The x at which the level is reached when growth is off by so many standard errors.

        Not before the last point; infinity for never.
        """
        ahead = level - self.level
        if ahead <= 0.0:
            return self.x
        slope = self.slope + errors * self.slope_error
        if slope <= 0.0 or self.slope <= 0.0:
            return self.x + ahead / slope if slope > 0.0 and self.curve is None else math.inf
        ahead *= self.slope / slope
        if self.curve is None:
            return self.x + ahead / self.slope
        return self._when_bent(self.level + ahead)

    def _when_bent(self, level: float) -> float:
        if self.linear_term == 0.0 and self.curve is not None:
            form = self.curve.value((self.x - self.origin) / self.span) + (level - self.level) / self.amplitude
            x = self.origin + self.span * self.curve.where(form)
            return x if x - self.x <= HORIZON_LENGTHS * self.span else math.inf
        low, high = self.x, self.x + self.span
        while self.level_at(high) < level:
            low, high = high, high + 2.0 * (high - low)
            if high - self.x > HORIZON_LENGTHS * self.span:
                return math.inf
        while high - low > ROOT_TOLERANCE * (high - self.x):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.level_at(middle) < level else (low, middle)
        return high

    def in_units(self, size: float) -> GrowthModel:
        """The same growth, counted in units of x that are `size` times as long."""
        return replace(
            self,
            x=self.x / size,
            slope=self.slope * size,
            slope_error=self.slope_error * size,
            span=self.span / size,
            origin=self.origin / size,
            linear_term=self.linear_term * size,
        )

    def steeper(self, slope: float, error: float, x: float) -> GrowthModel:
        """The same, with so many bytes per x more from x on, known with a standard error."""
        return replace(
            self,
            kind="linear" if self.kind == "flat" else self.kind,
            level=self.level - slope * (x - self.x),
            slope=self.slope + slope,
            slope_error=math.hypot(self.slope_error, error),
            linear_term=0.0 if self.curve is None else self.linear_term + slope,
        )

    def moved(self, x: float) -> GrowthModel:
        """The same curve, anchored at another x on its way."""
        return replace(self, x=x, level=self.level_at(x), slope=self.slope_at(x))

    def persistent(self) -> GrowthModel:
        """What of the growth a new process will have from its beginning on: the line, not the fill."""
        slope = self.slope if self.curve is None or self.curve.kind == "accelerating" else self.linear_term
        return replace(
            self, kind="linear" if slope > 0.0 else "flat", slope=slope, curve=None, amplitude=0.0, linear_term=0.0
        )


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
ROUNDING = 1e-9  # of the spread of the levels


@dataclass(frozen=True, slots=True)
class CurveFit:
    """A curve through a stretch: y = const + gain * curve(u) + drift * u, u from 0 to 1."""

    curve: Curve
    amplitude: float
    linear_term: float  # 0 without a line under it
    end: float  # y at u = 1
    slope: float  # dy/du at u = 1
    slope_error: float  # standard error
    rss: float  # weighted squared residuals

    @property
    def kind(self) -> str:
        """Of the growth: that of the curve, "accelerating" for a power above 1, "fill and leak" upon a line."""
        if self.curve.kind == "power" and self.curve.rate > 1.0:
            return "accelerating"
        return "fill and leak" if self.linear_term else self.curve.kind

    @property
    def extra(self) -> int:
        return 2 if self.linear_term else 1  # parameters beyond those of a line


def fit_curves(
    w: Sequence[float], u: Sequence[float], y: Sequence[float], most: float = math.inf
) -> Iterator[CurveFit]:
    """Every rising curve through the points (u from 0 to 1, y in noise units, weights w), alone and upon a line.

    None whose weighted squared residuals are more than `most`.
    """
    points, stretch = len(u), _Stretch(w, u, y)
    if stretch.least() > most + ROUNDING * stretch.levels_spread:
        return  # three times in four, for a twentieth of the work
    for kind, rates in FORMS:
        if points >= LEAST.get(kind, MIN_OTHER):
            yield from (stretch.bend(one) for one in _refined(stretch.alone, kind, rates) if one.rss <= most)
    for kind, rates in UPON_LINE:
        if points > MIN_OTHER:
            yield from (stretch.bend(one) for one in _refined(stretch.upon_line, kind, rates) if one.rss <= most)


class _Tried(NamedTuple):
    """A curve by least squares."""

    rss: float
    curve: Curve
    gain: float
    drift: float
    mean: float  # of the curve's values
    spread: float  # their weighted squares around it


def _refined(tried: Callable[[Curve], _Tried | None], kind: str, rates: Sequence[float]) -> Iterator[_Tried]:
    """The curve at each of the rates, and where between them a parabola through the misfits is lowest."""
    found = [tried(Curve(kind, rate)) for rate in rates]
    yield from filter(None, found)
    misfits = [math.inf if one is None else one.rss for one in found]
    i = misfits.index(min(misfits))
    if not 0 < i < len(rates) - 1 or math.isinf(max(misfits[i - 1 : i + 2])):
        return
    before, after = math.log(rates[i] / rates[i - 1]), math.log(rates[i + 1] / rates[i])
    steeper, flatter = (misfits[i - 1] - misfits[i]) * after, (misfits[i + 1] - misfits[i]) * before
    if steeper + flatter > 0.0:
        off = 0.5 * (steeper * after - flatter * before) / (steeper + flatter)
        between = tried(Curve(kind, rates[i] * math.exp(off)))
        if between is not None:
            yield between


class _Stretch:
    """Points, centred, with their weighted sums: the values of a curve need no centring then."""

    def __init__(self, w: Sequence[float], u: Sequence[float], y: Sequence[float]) -> None:
        self.w, self.u, self.weight = w, u, sum(w)
        self.level, self.middle = sum(map(mul, w, y)) / self.weight, sum(map(mul, w, u)) / self.weight
        levels, places = [v - self.level for v in y], [v - self.middle for v in u]
        self.levels, self.places = list(map(mul, w, levels)), list(map(mul, w, places))
        self.levels_spread: float = sum(map(mul, self.levels, levels))
        self.places_spread: float = sum(map(mul, self.places, places))
        self.growth: float = sum(map(mul, self.levels, places))

    def least(self) -> float:
        """Weighted squared residuals of the nearest sequence that never falls: no rising curve has less.

        Neighbours that fall are pooled until none does (Ayer and others, 1955).
        """
        pools: list[tuple[float, float]] = []  # weight, sum of the levels
        for pool in zip(self.w, self.levels, strict=True):
            heft, total = pool
            while pools and pools[-1][1] * heft >= total * pools[-1][0]:
                before = pools.pop()
                heft, total = heft + before[0], total + before[1]
            pools.append((heft, total))
        return self.levels_spread - sum(total * total / heft for heft, total in pools)

    def _sums(self, values: list[float]) -> tuple[float, float, float]:
        """Mean of a curve's values, their spread, and how they go along with the levels."""
        weighted = list(map(mul, self.w, values))
        mean = sum(weighted) / self.weight
        along: float = sum(map(mul, self.levels, values))
        return mean, max(0.0, sum(map(mul, weighted, values)) - self.weight * mean * mean), along

    def alone(self, curve: Curve) -> _Tried | None:
        """The curve by least squares; None unless it rises."""
        mean, spread, along = self._sums(curve.values(self.u))
        if spread <= 1e-12 or along <= 0.0:
            return None
        gain = along / spread
        return _Tried(max(0.0, self.levels_spread - gain * along), curve, gain, 0.0, mean, spread)

    def upon_line(self, curve: Curve) -> _Tried | None:
        """The curve and a line by least squares; None unless both rise."""
        values = curve.values(self.u)
        mean, spread, along = self._sums(values)
        both: float = sum(map(mul, self.places, values))
        determinant = spread * self.places_spread - both * both
        if determinant <= 1e-9 * spread * self.places_spread:
            return None
        gain = (along * self.places_spread - self.growth * both) / determinant
        drift = (self.growth * spread - along * both) / determinant
        if gain <= 0.0 or drift <= 0.0:
            return None
        rss = max(0.0, self.levels_spread - gain * along - drift * self.growth)
        return _Tried(rss, curve, gain, drift, mean, spread)

    def bend(self, tried: _Tried) -> CurveFit:
        rss, curve, gain, drift, mean, spread = tried
        scatter = math.sqrt(max(1.0, rss / max(1, len(self.u) - 3)))
        slope = curve.slope(1.0)
        error = scatter * (1.0 / math.sqrt(self.places_spread) if drift else slope / math.sqrt(spread))
        end = self.level + gain * (curve.value(1.0) - mean) + drift * (1.0 - self.middle)
        return CurveFit(curve, gain, drift, end, gain * slope + drift, error, rss)
