"""Plain, seeded traces for unit tests: one idea each, round figures, the same for the same seed. Bytes and seconds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from traces import programs as p
from traces.programs import GB, Above, Growth, Program

__all__ = ["ALL", "GB", "Row", "Trace", "Truth"]


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
class Setting:
    """What a test may want otherwise."""

    limit: int | None = 100 * GB
    generations: int = 30
    total: int | None = None
    first_index: int = 0
    seconds: Callable[[int], float] = lambda g: 60.0
    noise: float = 0.002  # relative, of each sample
    load_seconds: float = 20.0
    markers: bool = True
    interval: float = 2.0


def linear_leak(seed: int = 0, base: float = 20 * GB, growth: float = 5 * GB, **more: Any) -> Trace:
    """The same growth in each generation, to the limit."""
    return _trace("linear_leak", seed, base, (Growth(p.straight(growth)),), **more)


def stable(seed: int = 0, base: float = 40 * GB, **more: Any) -> Trace:
    """No growth; half of each generation stands a tenth higher."""
    return _trace("stable", seed, base, above=(p.peaks(0.1 * base, begin=0.3, end=0.8),), **more)


def stable_near_limit(seed: int = 0, **more: Any) -> Trace:
    """Flat at 97 % of the limit."""
    return _trace("stable_near_limit", seed, 97 * GB, **more)


def noise(seed: int = 0, relative: float = 0.06, **more: Any) -> Trace:
    """No growth under heavy noise of each sample."""
    return _trace("noise", seed, 50 * GB, **{"noise": relative, **more})


def straight_fill(seed: int = 0, full_at: float = 8.0, **more: Any) -> Trace:
    """A buffer that fills in a straight line, then is full."""
    return _trace("straight_fill", seed, 20 * GB, (Growth(p.straight_fill(50 * GB, full_at)),), **more)


def exponential_fill(seed: int = 0, scale: float = 4.0, **more: Any) -> Trace:
    """A fill that slows down on its way to a plateau."""
    return _trace("exponential_fill", seed, 20 * GB, (Growth(p.exponential_fill(50 * GB, scale)),), **more)


def gc_sawtooth(seed: int = 0, growth: float = 2 * GB, tooth: float = 12 * GB, **more: Any) -> Trace:
    """A leak below garbage that is collected every 1.7 generations."""
    grown, above = (Growth(p.straight(growth)),), (p.teeth(tooth, 1.7),)
    return _trace("gc_sawtooth", seed, 25 * GB, grown, above, **{"generations": 50, **more})


def late_leak(seed: int = 0, begins: float = 12.0, growth: float = 4 * GB, **more: Any) -> Trace:
    """Flat, then a leak."""
    return _trace("late_leak", seed, 40 * GB, (Growth(p.straight(growth), begins),), **{"generations": 40, **more})


def plateau_then_leak(seed: int = 0, begins: float = 16.0, growth: float = 3 * GB, **more: Any) -> Trace:
    """A fill, its plateau, then a leak."""
    grown = (Growth(p.exponential_fill(35 * GB, 3.0)), Growth(p.straight(growth), begins))
    return _trace("plateau_then_leak", seed, 25 * GB, grown, **{"generations": 45, **more})


def checkpoint_peaks(
    seed: int = 0, every: int = 4, peak: float = 20 * GB, growth: float = 1 * GB, **more: Any
) -> Trace:
    """A slow leak with a high peak at the end of each k-th generation."""
    grown, above = (Growth(p.straight(growth)),), (p.peaks(peak, every, begin=0.9),)
    return _trace("checkpoint_peaks", seed, 41 * GB, grown, above, **{"generations": 70, **more})


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


def _trace(
    kind: str,
    seed: int,
    base: float,
    growth: tuple[Growth, ...] = (),
    above: tuple[Above, ...] = (),
    **options: Any,
) -> Trace:
    setting = Setting(**options)
    rng = random.Random(f"{kind} {seed}")
    program = Program(
        base,
        tuple(setting.seconds(g) for g in range(setting.generations)),
        growth,
        above,
        p.noise(rng, setting.noise, setting.interval),
        setting.load_seconds,
    )
    return _sampled(kind, rng, program, setting)


def _sampled(kind: str, rng: random.Random, program: Program, setting: Setting) -> Trace:
    rows: list[Row] = []
    slope = program.slope(len(program.lengths))
    for t in p.times(rng, program.end_t, setting.interval, 0.1):
        g = program.generation(t)
        index = None if g is None or not setting.markers else g + setting.first_index
        used = round(program.used(t))
        rows.append(Row(t, used, setting.limit, index, setting.total))
        if setting.limit is not None and used >= setting.limit:
            return Trace(tuple(rows), Truth(kind, t, index, slope, program.begins[: (g or 0) + 1]))
    return Trace(tuple(rows), Truth(kind, None, None, slope, program.begins[:-1]))
