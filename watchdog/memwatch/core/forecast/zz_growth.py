"""Growth models: how a level goes on from its latest point, and when it reaches another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import expm1, log1p

EXACT = 1e-4  # of the way: so exactly is it found when a curve upon a line reaches a level
FARTHEST = 1e4  # times its own length: what a curve reaches later than this, it never reaches


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
        """Its derivative at u > 0."""
        if self.kind == "saturating":
            return self.rate * math.exp(-self.rate * u)
        if self.kind == "logarithmic":
            return self.rate / (1.0 + self.rate * max(u, 0.0))
        if self.kind == "power":
            return self.rate * math.pow(max(u, 1e-9), self.rate - 1.0)
        return self.rate * math.exp(min(self.rate * u, 500.0))


@dataclass(frozen=True, slots=True)
class Model:
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
    gain: float = 0.0  # bytes that the curve's form is multiplied by
    origin: float = 0.0  # x at which the curve begins
    drift: float = 0.0  # bytes per x of the line under the curve

    def at(self, x: float) -> float:
        """The level at x."""
        if self.curve is None:
            return self.level + self.slope * (x - self.x)
        bend = self.curve.value((x - self.origin) / self.span) - self.curve.value((self.x - self.origin) / self.span)
        return self.level + self.gain * bend + self.drift * (x - self.x)

    def slope_at(self, x: float) -> float:
        """Growth at x, bytes per x."""
        if self.curve is None:
            return self.slope
        return self.gain * self.curve.slope((x - self.origin) / self.span) / self.span + self.drift

    @property
    def ceiling(self) -> float | None:
        """The level that it tends to; None where there is none."""
        if self.curve is None or self.curve.kind != "saturating" or self.drift > 0.0:
            return None
        return self.at(self.x + 50.0 * self.span / self.curve.rate)

    def when(self, level: float, errors: float = 0.0) -> float:
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
        if self.drift == 0.0 and self.curve is not None:
            form = self.curve.value((self.x - self.origin) / self.span) + (level - self.level) / self.gain
            x = self.origin + self.span * self.curve.where(form)
            return x if x - self.x <= FARTHEST * self.span else math.inf
        low, high = self.x, self.x + self.span
        while self.at(high) < level:
            low, high = high, high + 2.0 * (high - low)
            if high - self.x > FARTHEST * self.span:
                return math.inf
        while high - low > EXACT * (high - self.x):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.at(middle) < level else (low, middle)
        return high

    def in_units(self, size: float) -> Model:
        """The same growth, counted in units of x that are `size` times as long."""
        return replace(
            self,
            x=self.x / size,
            slope=self.slope * size,
            slope_error=self.slope_error * size,
            span=self.span / size,
            origin=self.origin / size,
            drift=self.drift * size,
        )

    def moved(self, x: float) -> Model:
        """The same course, anchored at another x on its way."""
        return replace(self, x=x, level=self.at(x), slope=self.slope_at(x))

    def persistent(self) -> Model:
        """What of the growth a new process will have from its beginning on: the line, not the fill."""
        slope = self.slope if self.curve is None or self.curve.kind == "accelerating" else self.drift
        return replace(self, kind="linear" if slope > 0.0 else "flat", slope=slope, curve=None, gain=0.0, drift=0.0)

    def renewed(self, x: float, level: float) -> Model:
        """The same line through another place."""
        return replace(self, x=x, level=level)
