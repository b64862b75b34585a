"""What the memory of a trainer does, in pieces that add up: what stays, what stands on it for a while, and noise.

Levels are bytes, times seconds. `x` counts generations since the first marker: 3.25 is a quarter into the fourth.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

GB = 10**9

Curve = Callable[[float], float]  # since its begin, in generations or hours -> bytes
Above = Callable[[int, float, float], float]  # generation, part of it, seconds since the first marker -> bytes


# --- what stays -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory that is not given back."""

    curve: Curve
    since: float = 0.0  # generations, or hours
    hourly: bool = False  # it goes with time, not with generations
    warp: Curve = lambda x: x  # where in a generation it happens, and how unevenly from one to the next
    stairs: tuple[float, ...] = ()  # heights at which it stops, as an allocator that takes whole blocks does

    def at(self, x: float, t: float) -> float:
        """Bytes at x generations, t seconds."""
        if self.hourly:
            grown = self.curve(max(0.0, t / 3600 - self.since))
        else:
            grown = self.curve(max(0.0, self.warp(x) - self.warp(self.since)))
        if not self.stairs:
            return grown
        step = bisect_right(self.stairs, grown)
        return self.stairs[step - 1] if step else 0.0

    def smooth(self, x: float, t: float) -> float:
        """The same without steps and unevenness: what the growth per generation truly is."""
        return self.curve(max(0.0, (t / 3600 if self.hourly else x) - self.since))


def straight(growth: float) -> Curve:
    """The same in each generation (or hour)."""
    return lambda u: growth * u


def quadratic(size: float, at: float) -> Curve:
    """Ever faster: `size` after `at` generations, starting at a third of its mean pace."""
    return lambda u: size * (u / at + 2 * (u / at) ** 2) / 3


def exponential(size: float, at: float, doublings: float) -> Curve:
    """Doubles so many times on its way to `size` after `at` generations."""
    rate = doublings * math.log(2) / at
    return lambda u: size * math.expm1(rate * u) / math.expm1(rate * at)


def logarithmic(size: float, at: float, scale: float) -> Curve:
    """Ever slower, without an end."""
    return lambda u: size * math.log1p(u / scale) / math.log1p(at / scale)


def power(size: float, at: float, exponent: float) -> Curve:
    """As u to a power below 1: ever slower, without an end."""
    return lambda u: size * (u / at) ** exponent


def straight_fill(size: float, full_at: float) -> Curve:
    """A buffer that fills in a straight line, then is full."""
    return lambda u: size * min(u / full_at, 1.0)


def exponential_fill(size: float, scale: float) -> Curve:
    """A fill that slows down on its way to a plateau."""
    return lambda u: -size * math.expm1(-u / scale)


def two_speed_fill(size: float, bend_at: float, bend_share: float, full_at: float) -> Curve:
    """A fill that is fast up to a share of its size, then slow, then full."""

    def curve(u: float) -> float:
        if u <= bend_at:
            return size * bend_share * u / bend_at
        return size * (bend_share + (1 - bend_share) * min((u - bend_at) / (full_at - bend_at), 1.0))

    return curve


def jump(size: float) -> Curve:
    """All at once, within a twentieth of a generation."""
    return lambda u: size * min(u / 0.05, 1.0)


def in_phase(begin: float, end: float) -> Curve:
    """A warp: growth happens only between these parts of each generation."""

    def warp(x: float) -> float:
        g = math.floor(x)
        return g + min(max((x - g - begin) / (end - begin), 0.0), 1.0)

    return warp


def uneven(factors: Sequence[float]) -> Curve:
    """A warp: generation g grows factors[g] times as much as usual."""
    sums = [0.0, *accumulate(factors)]

    def warp(x: float) -> float:
        g = min(max(int(x), 0), len(factors) - 1)
        return sums[g] + (x - g) * factors[g]

    return warp


# --- what stands on it ----------------------------------------------------------------------------------------------


def shape(corners: Sequence[tuple[float, float]], scales: Sequence[float] = (1.0,)) -> Above:
    """Straight lines between (part of the generation, bytes); generation g is scales[g] as high."""
    parts = [part for part, _ in corners]

    def above(g: int, part: float, t: float) -> float:
        i = bisect_right(parts, part)
        if i in (0, len(corners)):
            height = corners[min(i, len(corners) - 1)][1]
        else:
            (a, low), (b, high) = corners[i - 1], corners[i]
            height = low + (high - low) * (part - a) / (b - a)
        return height * scales[g % len(scales)]

    return above


def peaks(height: float, every: int = 1, begin: float = 0.92, end: float = 1.0, ramp: float = 0.0) -> Above:
    """So high between two parts of each k-th generation, reached within `ramp` of a generation."""

    def above(g: int, part: float, t: float) -> float:
        if g % every != every - 1 or not begin <= part < end:
            return 0.0
        return height * (min(1.0, (part - begin) / ramp) if ramp > 0 else 1.0)

    return above


def teeth(size: float, period: float, offset: float = 0.0) -> Above:
    """Garbage that is collected every `period` generations."""
    return lambda g, part, t: size * (((g + part) / period + offset) % 1.0)


def workers(each: float, counts: Sequence[int], begin: float = 0.1, end: float = 0.75, ramp: float = 0.05) -> Above:
    """Processes that come and go in each generation, counts[g] of them."""

    def above(g: int, part: float, t: float) -> float:
        if not begin <= part <= end:
            return 0.0
        return each * counts[g % len(counts)] * min(1.0, (part - begin) / ramp)

    return above


def waves(size: float, period_seconds: float, offset: float = 0.0) -> Above:
    """The load of a day: between 0 and `size`."""
    return lambda g, part, t: size * (0.5 + 0.5 * math.sin(2 * math.pi * (t / period_seconds + offset)))


def recycled(size: float, period_seconds: float, offset: float = 0.0) -> Above:
    """Grows until its workers are recycled, every so many seconds."""
    return lambda g, part, t: size * ((t / period_seconds + offset) % 1.0)


def burst(size: float, begin_t: float, seconds: float) -> Above:
    """Once, from nothing to `size` (and beyond) within seconds."""
    return lambda g, part, t: size * max(0.0, t - begin_t) / seconds


# --- noise and the whole --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Noise:
    """Relative, and the program's: two readings of the same moment are the same."""

    values: tuple[float, ...] = (0.0,)
    slot_seconds: float = 1.0

    def at(self, t: float) -> float:
        """At t seconds."""
        return self.values[int(t / self.slot_seconds) % len(self.values)]


def noise(
    rng: random.Random, relative: float, slot_seconds: float, memory: float = 0.0, most: float = 3.0, count: int = 4001
) -> Noise:
    """Gaussian with a relative deviation, `memory` of the one before, cut at `most` deviations."""
    values, value = [], 0.0
    for _ in range(count):
        value = memory * value + math.sqrt(1 - memory**2) * rng.gauss(0.0, 1.0)
        values.append(relative * min(max(value, -most), most))
    return Noise(tuple(values), slot_seconds)


@dataclass(frozen=True, slots=True)
class Program:
    """One process: a load, then generations."""

    base: float
    lengths: tuple[float, ...]  # of its generations
    growth: tuple[Growth, ...] = ()
    above: tuple[Above, ...] = ()
    noise: Noise = Noise()
    load_seconds: float = 20.0
    begins: tuple[float, ...] = field(init=False)  # of each generation, and the end of the last

    def __post_init__(self) -> None:
        object.__setattr__(self, "begins", tuple(accumulate(self.lengths, initial=self.load_seconds)))

    @property
    def end_t(self) -> float:
        """When its last generation is over."""
        return self.begins[-1]

    def generation(self, t: float) -> int | None:
        """Which one is under way at t; None before the first."""
        return generation_at(self.begins, t)

    def x(self, t: float) -> float:
        """Generations at t; below 0 during the load."""
        g = self.generation(t)
        if g is None:
            return t / self.load_seconds - 1.0
        return g + (t - self.begins[g]) / self.lengths[g]

    def t(self, x: float) -> float:
        """When x generations are over."""
        g = min(max(math.floor(x), 0), len(self.lengths) - 1)
        return self.begins[g] + (x - g) * self.lengths[g]

    def level(self, t: float) -> float:
        """Memory at t, without noise."""
        g = self.generation(t)
        if g is None:  # most of a load is read quickly
            return self.base * (1 - math.exp(-4 * (t / self.load_seconds + 0.01))) / (1 - math.exp(-4.04))
        part, since = (t - self.begins[g]) / self.lengths[g], t - self.load_seconds
        stays = sum(growth.at(g + part, since) for growth in self.growth)
        return self.base + stays + sum(above(g, part, since) for above in self.above)

    def used(self, t: float) -> float:
        """Memory at t."""
        return max(0.0, self.level(t) * (1.0 + self.noise.at(t)))

    def slope(self, x: float) -> float:
        """True growth over the generation that ends at x, bytes."""
        now, before = self.t(x) - self.load_seconds, self.t(max(0.0, x - 1)) - self.load_seconds
        return sum(g.smooth(x, now) - g.smooth(max(0.0, x - 1), before) for g in self.growth)


def generation_at(begins: Sequence[float], t: float) -> int | None:
    """How many generations were over at t; None before the first."""
    begun = bisect_right(begins, t)
    return min(begun, len(begins) - 1) - 1 if begun else None


def times(rng: random.Random, end_t: float, interval: float, jitter: float = 0.04) -> Iterable[float]:
    """When a watch looks: every `interval`, give or take a share of it."""
    t = 0.0
    while t < end_t:
        yield round(t, 3)
        t += interval * rng.uniform(1 - jitter, 1 + jitter)
