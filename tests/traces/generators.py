"""Seeded memory traces of trainers, each with its truth. Levels in bytes, times in seconds, the same for the same seed.

A trace is a load, then generations: `level(x)` is the memory at x generations after the first marker, `above(g, part)`
what stands on it within generation g. Sampling, jitter of the clock and noise are added by `_sampled`.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

GB = 10**9
INTERVAL = 2.0


@dataclass(frozen=True, slots=True)
class Row:
    """One sample as a replay has it."""

    t: float
    used: int
    limit: int | None
    generation: int | None
    total: int | None


@dataclass(frozen=True, slots=True)
class Truth:
    """What is known about a trace because it was made."""

    kind: str
    oom_t: float | None  # first sample at or above the limit
    oom_generation: int | None
    growth_per_generation: float  # at the end, bytes
    begins_t: tuple[float, ...]  # of each generation
    restart_t: float | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Rows up to the first one that meets the limit, and the truth."""

    rows: tuple[Row, ...]
    truth: Truth


@dataclass(frozen=True, slots=True)
class Course:
    """How a trace is made."""

    kind: str
    level: Callable[[float], float]
    above: Callable[[int, float], float] = lambda g, part: 0.0
    growth: float = 0.0
    limit: int | None = 100 * GB
    generations: int = 30
    total: int | None = None
    first_index: int = 0
    seconds: Callable[[int], float] = lambda g: 60.0
    noise: float = 0.002  # relative, of each sample
    load_seconds: float = 20.0
    markers: bool = True
    markers_until: int | None = None  # generation from which on the log is silent
    interval: float = INTERVAL

    def begins(self) -> tuple[float, ...]:
        """Start of each generation, and the end of the last."""
        begins = [self.load_seconds]
        for g in range(self.generations):
            begins.append(begins[-1] + self.seconds(g))
        return tuple(begins)

    def index(self, generation: int | None) -> int | None:
        """What the log says within a generation; None where it is silent."""
        if generation is None or not self.markers:
            return None
        told = generation if self.markers_until is None else min(generation, self.markers_until)
        return told + self.first_index

    def used(self, begins: tuple[float, ...], t: float) -> float:
        """Memory at t, without noise."""
        g = generation_at(begins, t)
        if g is None:
            return self.level(0.0) * max(0.01, t / self.load_seconds)
        part = (t - begins[g]) / (begins[g + 1] - begins[g])
        return self.level(g + part) + self.above(g, part)


def linear_leak(seed: int = 0, base: float = 20 * GB, growth: float = 5 * GB, **more: object) -> Trace:
    """The same growth in each generation, to the limit."""
    return _sampled(_course("linear_leak", lambda x: base + growth * x, growth=growth, **more), seed)


def stable(seed: int = 0, base: float = 40 * GB, **more: object) -> Trace:
    """No growth; half of each generation stands a tenth higher."""
    shape = {"above": lambda g, part: 0.1 * base * (0.3 < part < 0.8)}
    return _sampled(_course("stable", lambda x: base, **{**shape, **more}), seed)


def stable_near_limit(seed: int = 0, **more: object) -> Trace:
    """Flat at 97 % of the limit."""
    return _sampled(_course("stable_near_limit", lambda x: 97.0 * GB, **more), seed)


def noise(seed: int = 0, relative: float = 0.06, **more: object) -> Trace:
    """No growth under heavy noise of each sample."""
    return _sampled(_course("noise", lambda x: 50.0 * GB, **{"noise": relative, **more}), seed)


def straight_fill(seed: int = 0, full_at: float = 8.0, **more: object) -> Trace:
    """A buffer that fills in a straight line, then is full."""
    return _sampled(_course("straight_fill", lambda x: (20 + 50 * min(x, full_at) / full_at) * GB, **more), seed)


def exponential_fill(seed: int = 0, scale: float = 4.0, **more: object) -> Trace:
    """A fill that slows down on its way to a plateau."""
    return _sampled(_course("exponential_fill", lambda x: (70 - 50 * math.exp(-x / scale)) * GB, **more), seed)


def gc_sawtooth(seed: int = 0, growth: float = 2 * GB, tooth: float = 12 * GB, **more: object) -> Trace:
    """A leak below garbage that is collected every 1.7 generations."""

    def above(g: int, part: float) -> float:
        return tooth * ((g + part) / 1.7 % 1.0)

    options: dict[str, object] = {"generations": 50, **more}
    return _sampled(_course("gc_sawtooth", lambda x: 25 * GB + growth * x, above=above, growth=growth, **options), seed)


def late_leak(seed: int = 0, begins: float = 12.0, growth: float = 4 * GB, **more: object) -> Trace:
    """Flat, then a leak."""

    def level(x: float) -> float:
        return 40 * GB + growth * max(0.0, x - begins)

    return _sampled(_course("late_leak", level, growth=growth, **{"generations": 40, **more}), seed)


def plateau_then_leak(seed: int = 0, begins: float = 16.0, growth: float = 3 * GB, **more: object) -> Trace:
    """A fill, its plateau, then a leak."""

    def level(x: float) -> float:
        return (60 - 35 * math.exp(-x / 3)) * GB + growth * max(0.0, x - begins)

    return _sampled(_course("plateau_then_leak", level, growth=growth, **{"generations": 45, **more}), seed)


def checkpoint_peaks(
    seed: int = 0, every: int = 4, peak: float = 20 * GB, growth: float = 1 * GB, **more: object
) -> Trace:
    """A slow leak with a high peak at the end of each k-th generation."""

    def above(g: int, part: float) -> float:
        return peak * (part > 0.9 and g % every == every - 1)

    options: dict[str, object] = {"generations": 70, **more}

    def level(x: float) -> float:
        return 41 * GB + growth * x

    return _sampled(_course("checkpoint_peaks", level, above=above, growth=growth, **options), seed)


def restart(seed: int = 0, after: int = 8, back: int = 2, growth: float = 6 * GB) -> Trace:
    """A leak; the trainer is stopped after some generations, resumes two generations back and leaks on."""
    first = linear_leak(seed, growth=growth, limit=100 * GB, generations=after)
    again = linear_leak(seed + 1, growth=growth, limit=100 * GB, first_index=after - back, generations=40)
    shift = first.rows[-1].t + 30.0
    rows = [Row(r.t + shift, r.used, r.limit, r.generation, r.total) for r in again.rows]
    truth = again.truth
    assert truth.oom_t is not None
    begins = (*first.truth.begins_t, *(t + shift for t in truth.begins_t))
    told = Truth("restart", truth.oom_t + shift, truth.oom_generation, growth, begins, shift)
    return Trace((*first.rows, *rows), told)


ALL: tuple[Callable[[int], Trace], ...] = (
    linear_leak,
    stable,
    stable_near_limit,
    noise,
    straight_fill,
    exponential_fill,
    gc_sawtooth,
    late_leak,
    plateau_then_leak,
    checkpoint_peaks,
    restart,
)


def _course(kind: str, level: Callable[[float], float], **options: object) -> Course:
    return Course(kind, level, **options)  # type: ignore[arg-type]


def _sampled(course: Course, seed: int) -> Trace:
    rng = random.Random(f"{course.kind} {seed}")
    begins = course.begins()
    rows: list[Row] = []
    for t in _times(rng, begins[-1], course.interval):
        used = round(course.used(begins, t) * (1.0 + course.noise * rng.gauss(0.0, 1.0)))
        g = generation_at(begins, t)
        index = course.index(g)
        rows.append(Row(t, max(used, 0), course.limit, index, course.total))
        if course.limit is not None and used >= course.limit:
            return Trace(tuple(rows), Truth(course.kind, t, index, course.growth, begins[: (g or 0) + 1]))
    return Trace(tuple(rows), Truth(course.kind, None, None, course.growth, begins[:-1]))


def _times(rng: random.Random, end_t: float, interval: float) -> Iterator[float]:
    t = 0.0
    while t < end_t:
        yield round(t, 3)
        t += interval * rng.uniform(0.9, 1.1)


def generation_at(begins: tuple[float, ...], t: float) -> int | None:
    """How many generations were over at t; None before the first."""
    begun = bisect_right(begins, t)
    return min(begun, len(begins) - 1) - 1 if begun else None
