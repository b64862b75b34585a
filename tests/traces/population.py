"""A seeded population of runs, healthy and leaking, ten kinds of each: what a watch must tell apart.

Every figure is drawn: levels, limits' distance, noise, lengths of generations, saves, what the log says. Limit: 100 GB.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from traces.generators import GB, Course

LIMIT = 100 * GB
HEALTHY_TOP = 0.985 * LIMIT  # no healthy run goes beyond


@dataclass(frozen=True, slots=True)
class Run:
    """One trainer, in one process or (after a restart) several."""

    processes: tuple[Course, ...]
    checkpoint_seconds: float  # what a clean checkpoint really takes
    saves: bool  # it saves by itself as each generation ends


def near_limit(rng: random.Random, leaks: bool) -> Course:
    """Hours at 95-98 % of the limit."""
    level = rng.uniform(0.95, 0.975) * LIMIT
    swing, beat = rng.uniform(0.0, 0.004) * LIMIT, rng.uniform(0.3, 7.0)
    growth = rng.uniform(0.3, 1.0) * GB if leaks else 0.0
    base = 0.72 * LIMIT if leaks else level
    return _course(
        rng,
        lambda x: base + growth * x + swing * math.sin(beat * x),
        growth,
        noise=rng.uniform(0.0005, 0.002),
        generations=100,
        seconds=rng.uniform(90, 180),
        interval=5.0,
    )


def gc_teeth(rng: random.Random, leaks: bool) -> Course:
    """A saw-tooth of 30-120 % of what is really in use, in no step with the generations."""
    share, period = rng.uniform(0.3, 1.2), rng.uniform(0.4, 3.0)
    base = (0.45 if leaks else rng.uniform(0.7, 0.95)) * HEALTHY_TOP / (1 + share)
    growth = rng.uniform(0.4, 2.0) * GB if leaks else 0.0
    return _course(
        rng,
        lambda x: base + growth * x,
        growth,
        above=lambda g, part: share * base * ((g + part) / period % 1.0),
        generations=150 if leaks else 40,
    )


def checkpoint_peaks(rng: random.Random, leaks: bool) -> Course:
    """A peak at the end of each k-th generation."""
    every, peak = rng.randint(2, 9), rng.uniform(0.05, 0.3) * LIMIT
    growth = rng.uniform(0.4, 3.0) * GB if leaks else 0.0
    seen = 4 * every * growth  # what nobody has seen nobody can foresee
    base = rng.uniform(0.3, 0.9) * max(HEALTHY_TOP - peak - seen, 0.2 * LIMIT)
    return _course(
        rng,
        lambda x: base + growth * x,
        growth,
        above=lambda g, part: peak * (part > 0.92 and g % every == every - 1),
        generations=250 if leaks else 60,
    )


def workers(rng: random.Random, leaks: bool) -> Course:
    """DataLoader workers that come and go in each generation, not always as many."""
    each, most = rng.uniform(0.01, 0.04) * LIMIT, rng.randint(2, 8)
    counts = [rng.randint(max(1, most - 2), most) for _ in range(400)]
    base = rng.uniform(0.2, 0.9) * (HEALTHY_TOP - each * most)
    growth = rng.uniform(0.4, 3.0) * GB if leaks else 0.0

    def above(g: int, part: float) -> float:
        if part < 0.1 or part > 0.75:
            return 0.0
        return each * counts[g % 400] * min(1.0, (part - 0.1) / 0.05)

    return _course(rng, lambda x: base + growth * x, growth, above=above, generations=250 if leaks else 40)


def fast(rng: random.Random, leaks: bool) -> Course:
    """Generations of half a second."""
    base, shape = rng.uniform(0.2, 0.6) * LIMIT, rng.uniform(0.0, 0.2) * LIMIT
    growth = rng.uniform(0.02, 0.15) * GB if leaks else 0.0
    scale = rng.uniform(50, 300)  # generations that a healthy one takes to fill up

    def level(x: float) -> float:
        return base + growth * x if leaks else base + (0.8 * LIMIT - base) * (1 - math.exp(-x / scale))

    return _course(
        rng,
        level,
        growth,
        above=lambda g, part: shape * (0.3 < part < 0.6),
        generations=4000 if leaks else 1200,
        seconds=rng.uniform(0.3, 0.7),
        interval=1.0,
    )


def slow(rng: random.Random, leaks: bool) -> Course:
    """Generations of an hour."""
    base = rng.uniform(0.2, 0.6) * LIMIT
    growth = rng.uniform(2, 9) * GB if leaks else 0.0
    teeth = rng.uniform(0.0, 0.3) * LIMIT
    return _course(
        rng,
        lambda x: base + growth * x,
        growth,
        above=lambda g, part: teeth * (part * 7 % 1.0),
        generations=40 if leaks else 14,
        seconds=rng.uniform(3000, 4200),
        interval=60.0,
    )


def fill(rng: random.Random, leaks: bool) -> Course:
    """A buffer that fills: up to 85-95 % of the limit, or one that can never fit."""
    base, full_at = rng.uniform(0.1, 0.3) * LIMIT, rng.uniform(5, 25)
    top = rng.uniform(1.15, 2.0) * LIMIT if leaks else rng.uniform(0.85, 0.95) * LIMIT
    straight = rng.random() < 0.5

    def level(x: float) -> float:
        part = min(x / full_at, 1.0) if straight else 1.0 - math.exp(-3.0 * x / full_at)
        return base + (top - base) * part

    return _course(rng, level, (top - base) / full_at, generations=60, noise=rng.uniform(0.0005, 0.003))


def restart(rng: random.Random, leaks: bool) -> tuple[Course, ...]:
    """The process of a run is replaced, and begins low again."""
    base, growth = rng.uniform(0.15, 0.4) * LIMIT, rng.uniform(2, 6) * GB if leaks else 0.0
    after, scale = rng.randint(4, 10), rng.uniform(2, 5)

    def level(x: float) -> float:
        return base + growth * x if leaks else base + (0.9 * LIMIT - base) * (1 - math.exp(-x / scale))

    first = _course(rng, level, growth, generations=after)
    total = first.total and 60 + after
    return replace(first, total=total), replace(
        first, total=total, generations=60, first_index=first.first_index + after - 2
    )


def markers_lost(rng: random.Random, leaks: bool) -> Course:
    """The log falls silent midway."""
    course = rng.choice((checkpoint_peaks, workers, fill, gc_teeth))(rng, leaks)
    return replace(course, markers_until=rng.randint(6, 20), total=None)


def no_markers(rng: random.Random, leaks: bool) -> Course:
    """No log at all."""
    course = rng.choice((checkpoint_peaks, workers, near_limit, gc_teeth))(rng, leaks)
    return replace(course, markers=False, total=None)


KINDS: tuple[Callable[[random.Random, bool], Course | tuple[Course, ...]], ...] = (
    near_limit,
    gc_teeth,
    checkpoint_peaks,
    workers,
    fast,
    slow,
    fill,
    restart,
    markers_lost,
    no_markers,
)


def run(kind: Callable[[random.Random, bool], Course | tuple[Course, ...]], leaks: bool, seed: int) -> Run:
    """The same run for the same seed."""
    rng = random.Random(f"{kind.__name__} {leaks} {seed}")
    made = kind(rng, leaks)
    processes = made if isinstance(made, tuple) else (made,)
    usual = processes[0].seconds(0)
    takes = min(max(rng.uniform(0.03, 0.2) * usual, 0.5), 300.0)
    return Run(processes, takes, saves=processes[0].markers and rng.random() < 0.4)


def _course(
    rng: random.Random,
    level: Callable[[float], float],
    growth: float,
    *,
    generations: int,
    seconds: float | None = None,
    **more: object,
) -> Course:
    usual = seconds if seconds is not None else rng.uniform(20, 90)
    lengths = [usual * rng.uniform(0.92, 1.08) for _ in range(500)]
    first = rng.randint(0, 1)
    return Course(
        "run",
        level,
        growth=growth,
        limit=LIMIT,
        generations=generations,
        total=generations + first if rng.random() < 0.5 else None,
        first_index=first,
        seconds=lambda g: lengths[g % 500],
        load_seconds=min(20.0, 0.3 * usual) if usual > 5 else 3.0,
        **{"noise": rng.uniform(0.0005, 0.004), "interval": 2.0, **more},  # type: ignore[arg-type]
    )
