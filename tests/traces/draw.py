"""What the figures of a run are drawn from: its pace, its levels, the shape of its generations, its noise."""

from __future__ import annotations

import math
import random

from traces import programs as p
from traces.programs import Above, Curve, Growth, Program
from traces.runs import Chapter, Faults, Markers, Nature, Run

MOST_ROWS = 2400
STEEP_TOP = (
    0.92  # of the limit: a healthy first climb within seconds goes no higher, or nobody could tell it from a burst
)
PHASES = (
    ("evaluate_population", "train_population", "evolve_population"),
    ("rollout", "train"),
    ("train", "validate"),
    ("train", "validate", "checkpoint"),
)


class Draw:
    """What a family draws from: a pace first, then sizes, then the run."""

    def __init__(self, rng: random.Random, name: str) -> None:
        self.rng, self.name = rng, name
        self.unit = 10 ** rng.uniform(8.7, 11.0)  # bytes: about the highest level of the run
        self.seconds = self.interval = 1.0
        self.n = 10
        cuts = sorted(rng.uniform(0.1, 0.9) for _ in range(2))
        names = rng.choice(PHASES)
        begins = (0.0, *cuts)[: len(names)]
        self.phases = tuple(zip(begins, names, strict=True)) if rng.random() < 0.6 else ()

    def uniform(self, low: float, high: float) -> float:
        """Evenly from low to high."""
        return self.rng.uniform(low, high)

    def log(self, low: float, high: float) -> float:
        """Evenly in its logarithm."""
        return math.exp(self.rng.uniform(math.log(low), math.log(high)))

    def chance(self, share: float) -> bool:
        """True so often."""
        return self.rng.random() < share

    def pace(
        self, least: int = 9, most: int = 45, seconds: tuple[float, float] = (8.0, 7200.0), samples: float = 8.0
    ) -> int:
        """How long generations are, how often a sample is taken, and how many generations there are."""
        self.seconds = self.log(*seconds)
        wanted = self.log(samples, 200) if self.chance(0.85) or samples > 8 else self.uniform(2, 5)
        wanted = min(wanted, MOST_ROWS / least)
        self.interval = min(max(self.seconds / wanted, 0.2), 60.0)
        fit = int(MOST_ROWS * self.interval / self.seconds)
        self.n = self.rng.randint(least, max(least, min(most, fit)))
        return self.n

    def lengths(self, count: int, usual: float | None = None) -> tuple[float, ...]:
        """Of so many generations."""
        spread = self.uniform(0.002, 0.08)
        return tuple((usual or self.seconds) * self.rng.uniform(1 - spread, 1 + spread) for _ in range(count))

    def warp(self) -> Curve:
        """Where in its generations a program grows, and how unevenly."""
        warp: Curve = lambda x: x  # noqa: E731
        if self.chance(0.35):
            begin = self.uniform(0.0, 0.6)
            warp = p.in_phase(begin, begin + self.uniform(0.1, 0.4))
        if not self.chance(0.6):
            return warp
        spread = self.uniform(0.01, 0.06) if self.chance(0.75) else self.uniform(0.06, 0.2)
        bumpy = p.uneven([max(0.2, self.rng.gauss(1.0, spread)) for _ in range(800)])
        return lambda x: bumpy(warp(x))

    def shape(self, most: float = 0.15) -> Above:
        """What a generation looks like: up to a share of the unit above its base."""
        cuts = sorted(self.uniform(0.05, 0.95) for _ in range(self.rng.randint(1, 3)))
        height = self.uniform(0.0, most) * self.unit
        corners, level = [(0.0, 0.0)], 0.0
        for cut in cuts:
            corners.append((cut, level))
            level = height * self.uniform(0.0, 1.0)
            corners.append((min(cut + self.uniform(0.01, 0.06), 0.985), level))
        corners.append((1.0, 0.0 if self.chance(0.6) else level))
        spread = self.uniform(0.0, 0.05)
        return p.shape(sorted(corners), [self.uniform(1 - spread, 1 + spread) for _ in range(97)])

    def noise(self, low: float = 0.0001, high: float = 0.01, memory: float | None = None, most: float = 3.0) -> p.Noise:
        """Relative, with some memory."""
        known = self.uniform(0.0, 0.8) if memory is None else memory
        return p.noise(self.rng, self.log(low, high), self.interval, known, most)

    def program(
        self,
        base: float,
        growth: tuple[Growth, ...] = (),
        above: tuple[Above, ...] | None = None,
        noise: p.Noise | None = None,
        lengths: tuple[float, ...] | None = None,
    ) -> Program:
        """One process; by default with a shape, a little noise, and generations enough."""
        load = min(max(self.seconds * self.uniform(0.1, 1.0), 3 * self.interval, 2.0), 300.0 + 3 * self.interval)
        above = (self.shape(),) if above is None else above
        return Program(
            base, lengths or self.lengths(self.n + 1), growth, above, self.noise() if noise is None else noise, load
        )

    def run(self, program: Program | tuple[Program, ...], *story: tuple[float, Nature], **more: object) -> Run:
        """The run of one process or several; `dies_at` or `share` among what more is known."""
        programs = program if isinstance(program, tuple) else (program,)
        dies_at = more.get("dies_at")
        if dies_at is None:  # it ends with its last generation
            last = replace_lengths(programs[-1], self.n)
            programs = (*programs[:-1], last)
        lived = len(programs[-1].lengths) if dies_at is None else self.n * self.uniform(1.35, 2.2) + 3
        before = more.get("resumes", (0,))[-1]  # type: ignore[index]
        known: dict[str, object] = {
            "share": self.share(),
            "first_index": self.rng.randint(0, 1),
            "total": int(lived) + before if self.chance(0.55) else None,
            "markers": Markers(phases=self.phases),
            "faults": Faults(jitter=self.uniform(0.0, 0.04)),
            "checkpoint_seconds": self.checkpoint(),
            "saves": self.chance(0.3),
            "seed": f"{self.name} {self.rng.random()}",
        }
        told = tuple(Chapter(since, nature) for since, nature in story)
        return Run(programs, self.interval, told, **{**known, **more})  # type: ignore[arg-type]

    def checkpoint(self) -> float:
        """What a clean one takes: 1-20 % of a generation, and no less than a process needs to write at all."""
        return max(self.seconds * self.log(0.01, 0.2), self.uniform(0.3, 1.5))

    def share(self, most: float = 0.975) -> float:
        """How near a healthy run comes to its limit."""
        return self.uniform(most - 0.06, most) if self.chance(0.7) else self.uniform(0.35, 0.9)

    def rough(self) -> float:
        """The generation at which a leak can be foreseen that began at 0."""
        return 0.0 if self.n >= 12 else 1.0


def replace_lengths(program: Program, count: int) -> Program:
    """The same program with so many generations at most."""
    return Program(
        program.base, program.lengths[:count], program.growth, program.above, program.noise, program.load_seconds
    )


def settling(d: Draw, top: float) -> tuple[tuple[Growth, ...], float, Nature, float]:
    """What a healthy program does beneath its peaks: nothing, or a small fill that lifts them nearer to the limit.

    Growth, its size, what it is called, and the share of the limit that the run may reach.
    """
    if d.chance(0.5):
        return (), 0.0, Nature.STABLE, d.share(top)
    size = d.uniform(0.03, 0.06) * d.unit
    return (
        (Growth(p.exponential_fill(size, d.uniform(0.08, 0.2) * d.n)),),
        size,
        Nature.FILL,
        d.share(min(0.975, top + 0.05)),
    )
