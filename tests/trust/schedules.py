"""What a small trainer holds, step by step, drawn by family: whether it meets its limit is known beforehand. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

STEPS = 4  # of a generation, as of tests/programs/resuming.py
OWN_MB = 12.0  # of the interpreter, at most
BEYOND = 1.2  # times the limit that a leak would come to
SAFE_SHARE = 0.94  # of the limit that a healthy run comes to, at most
RUN_SECONDS = (
    20.0,
    30.0,
)  # a leak takes at least half of it: three times what a checkpoint is allowed with its margins
Level = Callable[[float], float]  # MB at a generation, from 0.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run. `levels`: MB in each step."""

    family: str
    leaks: bool
    limit_mb: int
    generations: int
    seconds: float  # of a generation
    save_seconds: float
    levels: tuple[float, ...]

    @property
    def meets_limit(self) -> bool:
        """Without memwatch it would be killed."""
        return max(self.levels) > self.limit_mb


def draw(family: str, leaks: bool, chance: random.Random) -> Schedule:
    """A run of this family."""
    limit, seconds = chance.randint(150, 300), chance.uniform(0.2, 0.5)
    generations = math.ceil(chance.uniform(*RUN_SECONDS) / seconds)
    course = FAMILIES[family](chance, leaks, generations, limit)
    noise = [chance.gauss(0, 0.002 * limit) for _ in range(generations * STEPS)]
    raw = [max(1.0, course(i / STEPS) + noise[i]) for i in range(generations * STEPS)]
    most = limit * BEYOND if leaks else limit * SAFE_SHARE - OWN_MB
    levels = tuple(min(level, most) for level in raw)
    return Schedule(family, leaks, limit, generations, seconds, chance.uniform(0.1, 0.5), levels)


def _leak(chance: random.Random, leaks: bool, generations: int, limit: float) -> tuple[float, float]:
    """MB at the beginning, and MB a generation: the limit is met at 55 to 85 % of the run, or 82 to 92 % of it left."""
    base = limit * chance.uniform(0.2, 0.35)
    if leaks:
        return base, (limit - base) / (generations * chance.uniform(0.55, 0.85))
    return base, (limit * chance.uniform(0.72, 0.85) - base) / generations


def linear(chance: random.Random, leaks: bool, generations: int, limit: float) -> Level:
    base, slope = _leak(chance, leaks, generations, limit)
    return lambda g: base + slope * g


def stepped(chance: random.Random, leaks: bool, generations: int, limit: float) -> Level:
    """A jump every few generations; healthy: one or two in all."""
    base, slope = _leak(chance, leaks, generations, limit)
    if leaks:
        every = chance.randint(2, 4)
        return lambda g: base + slope * every * (g // every)
    jumps = sorted(chance.uniform(0.15, 0.8) * generations for _ in range(chance.randint(1, 2)))
    size = limit * chance.uniform(0.1, 0.5) / len(jumps)
    return lambda g: base + size * sum(g >= at for at in jumps)


def bursty(chance: random.Random, leaks: bool, generations: int, limit: float) -> Level:
    """Each generation has a peak in its third step."""
    base, slope = _leak(chance, leaks, generations, limit)
    peak = limit * chance.uniform(0.08, 0.2)
    growth = slope if leaks else 0.0
    return lambda g: base + growth * g + (peak if round((g % 1) * STEPS) == 2 else 0.0)


def sawtooth(chance: random.Random, leaks: bool, generations: int, limit: float) -> Level:
    """Rises for some generations and falls back, to a floor that rises too in a leak."""
    base, slope = _leak(chance, leaks, generations, limit)
    tooth, height = chance.randint(3, 6), limit * chance.uniform(0.1, 0.25)
    if leaks:
        return lambda g: base + slope * tooth * (g // tooth) + height * (g % tooth) / tooth
    top = limit * chance.uniform(0.75, 0.92)
    return lambda g: top - height * (1 - (g % tooth) / tooth)


def plateau(chance: random.Random, leaks: bool, generations: int, limit: float) -> Level:
    """Still for a third of the run, and then a leak; healthy: fills at its start and stays near the limit."""
    base, slope = _leak(chance, leaks, generations, limit)
    if leaks:
        since = generations * chance.uniform(0.2, 0.35)
        return lambda g: base + 1.6 * slope * max(0.0, g - since)
    top, pace = limit * chance.uniform(0.78, 0.94), chance.uniform(0.3, 1.0)
    return lambda g: top - (top - base) * math.exp(-g / pace)


FAMILIES: Mapping[str, Callable[[random.Random, bool, int, float], Level]] = {
    family.__name__: family for family in (linear, stepped, bursty, sawtooth, plateau)
}
RESUME = "resume"  # a leak, interrupted, started again, and so on to its end
NAMES: Sequence[str] = (*FAMILIES, RESUME)
