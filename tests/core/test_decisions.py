"""The whole engine over a population of runs: the healthy ones are left alone, the leaking ones are saved."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from memwatch.core.engine import Engine
from memwatch.core.model import (
    Attached,
    CheckpointSeen,
    Event,
    GenerationSeen,
    Interrupt,
    Limit,
    Notice,
    Sample,
    Sampled,
    Signalled,
    Target,
    Usage,
)
from memwatch.core.policy import Policy
from traces.generators import Course, generation_at
from traces.population import HEALTHY_TOP, KINDS, LIMIT, Run, run

SEEDS = range(3)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run."""

    interrupt_t: float | None
    kind: str
    oom_t: float | None  # when it would have met its limit
    start_t: float  # of the process that was interrupted or died
    checkpoint_seconds: float

    @property
    def saved(self) -> bool:
        """The checkpoint was complete before the limit."""
        if self.oom_t is None or self.interrupt_t is None:
            return False
        return self.interrupt_t + self.checkpoint_seconds < self.oom_t

    @property
    def waste(self) -> float:
        """Share of the process's life that was given away."""
        assert self.oom_t is not None and self.interrupt_t is not None
        return (self.oom_t - self.checkpoint_seconds - self.interrupt_t) / (self.oom_t - self.start_t)


class Watch:
    """The daemon's loop over a course: it looks as often as the engine wants, never less often than its interval."""

    def __init__(self, run: Run, seed: int, leaks: bool) -> None:
        self.run, self.leaks = run, leaks
        self.rng = random.Random(seed)
        self.noise = [self.rng.gauss(0.0, 1.0) for _ in range(1009)]
        self.engine = Engine(Policy())
        self.interrupted: tuple[float, str] | None = None

    def feed(self, event: Event) -> None:
        for action in self.engine.feed(event):
            if isinstance(action, Notice) and action.event == "interrupt":
                self.interrupted = event.t, action.fields["kind"]
            if isinstance(action, Interrupt):
                self.feed(Signalled(event.t, "SIGINT", dry_run=True))

    def used(self, course: Course, begins: tuple[float, ...], t: float) -> float:
        """Noise is that of the program, not of the readings: two at the same time are the same."""
        used = course.used(begins, t) * (1.0 + course.noise * self.noise[int(t / course.interval) % 1009])
        return used if self.leaks else min(used, HEALTHY_TOP)

    def look(self, course: Course, begins: tuple[float, ...], start_t: float, t: float, told: int | None) -> int | None:
        """One tick; the last generation told."""
        index = course.index(generation_at(begins, t))
        if index is not None and index != told:
            if self.run.saves and told is not None:
                self.feed(CheckpointSeen(start_t + t, "saved", "log: saved"))
            self.feed(GenerationSeen(start_t + t, index, course.total))
        used = int(self.used(course, begins, t))
        self.feed(Sampled(start_t + t, Sample((Usage("host", used, Limit(LIMIT, "trace", LIMIT - used)),))))
        return index

    def watch(self) -> Outcome:
        """To the interrupt, the limit, or the end."""
        start_t = 0.0
        for pid, course in enumerate(self.run.processes, 2):
            begins = course.begins()
            oom_t = (
                next((t for t in meets(begins) if self.used(course, begins, t) >= LIMIT), None) if self.leaks else None
            )
            self.feed(Attached(start_t, Target("boot", pid, 0), "python main.py"))
            t, told = 0.0, None
            while t < (begins[-1] if oom_t is None else oom_t) and self.interrupted is None:
                told = self.look(course, begins, start_t, t, told)
                t += min(course.interval, self.engine.snapshot().pace_seconds) * self.rng.uniform(0.95, 1.05)
            if oom_t is not None or self.interrupted is not None:
                break
            start_t += begins[-1] + 30.0
        at, kind = self.interrupted or (None, "")
        return Outcome(at, kind, None if oom_t is None else start_t + oom_t, start_t, self.run.checkpoint_seconds)


def meets(begins: tuple[float, ...]) -> list[float]:
    """Times at which the limit is looked for: forty in each generation."""
    return [a + (b - a) * k / 40 for a, b in pairwise(begins) for k in range(40)]


@cache
def outcome(kind: int, leaks: bool, seed: int) -> Outcome:
    return Watch(run(KINDS[kind], leaks, seed), seed, leaks).watch()


def test_no_healthy_run_is_interrupted():
    false = [
        (KINDS[k].__name__, seed, o.kind)
        for k in range(len(KINDS))
        for seed in SEEDS
        if (o := outcome(k, False, seed)).kind
    ]
    assert false == []


def test_leaking_runs_are_saved_and_little_is_given_away():
    leaking = [outcome(k, True, seed) for k in range(len(KINDS)) for seed in SEEDS]
    assert all(o.oom_t is not None for o in leaking)
    saved = [o for o in leaking if o.saved]
    assert len(saved) >= 0.95 * len(leaking)
    assert sum(o.waste for o in saved) / len(saved) <= 0.07
