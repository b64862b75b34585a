"""The runs of the suite: what a trainer's memory does, and in which circumstances, every figure drawn from a seed.

What memory does is drawn as for the corpus of traces (`traces.kinds`), by seeds of its own, with generations of a
minute to twenty (`slow teeth`: one or two hours); the circumstances are added here. Of a healthy run nobody could say
that it must die: where its total alone tells that it ends in time, the log tells it; a first climb within seconds ends
at 92 % of the limit (`traces.draw.STEEP_TOP`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from memwatch.core.decision.policy import Policy
from support.trainee import NOBODY, Bounds, Course, Life, Manners
from support.world import Scene
from traces import families, kinds
from traces import programs as p
from traces.draw import STEEP_TOP, Draw
from traces.programs import Growth, Program
from traces.runs import Nature, Run

MOST_LOOKS = 400
SILENT_SHARE = 0.12  # of the runs have no log
DEAF_SHARE = 0.02
WITH_TOTAL, WITHOUT_TOTAL = ("evolutionary", "keras"), ("sklearn", "deap", "skorch")
MOST_SILENT_SAVE = 20.0  # of a trainer of which nothing is known, 30 s are assumed ...
MOST_UNTOLD_SAVE = 480.0  # ... and 600 s at most of one that tells its generations
OTHERS_SWING = 0.01


@dataclass(frozen=True, slots=True)
class Case:
    """One run."""

    family: str
    seed: int
    kind: str
    scene: Scene
    sign_x: float  # generations of a process that dies, at which the growth that kills it begins
    is_burst: bool = False

    @property
    def name(self) -> str:
        """To ask for it again."""
        return f"{self.family}:{self.seed}"


class Pace(Draw):
    """Draws generations of minutes, and looks that are seconds apart."""

    def pace(
        self, least: int = 9, most: int = 45, seconds: tuple[float, float] = (60.0, 1200.0), samples: float = 8.0
    ) -> int:
        self.seconds = self.log(*seconds)
        wanted = max(samples, min(self.log(max(samples, 16.0), 160.0), MOST_LOOKS / least))
        self.interval = min(max(self.seconds / wanted, 0.5), 30.0)
        fit = int(MOST_LOOKS * self.interval / self.seconds)
        self.n = self.rng.randint(least, max(least, min(most, fit)))
        return self.n


# --- what memory does -----------------------------------------------------------------------------------------------


def _blocks(d: Draw, size: float) -> tuple[float, ...]:
    """Heights of an allocator's stairs, in blocks of about that size."""
    heights, top = [], 0.0
    for _ in range(400):
        top += size * d.uniform(0.8, 1.2)
        heights.append(top)
    return tuple(heights)


def stairs(d: Draw, leaks: bool) -> Run:
    """Memory that is taken in blocks: on and on, or until all is there."""
    n, base = d.pace(14, 45), d.uniform(0.2, 0.6) * d.unit
    size = d.unit - base
    if leaks:
        growth = Growth(p.straight(size / n), stairs=_blocks(d, d.uniform(0.3, 2.5) * size / n))
        program = d.program(base, (growth,), (d.shape(0.06),), d.noise(0.0001, 0.004))
        return d.run(program, (0, Nature.LEAK), dies_at=n - d.uniform(0.05, 0.95), recurs=3.0, visible=0.2 * n)
    scale = max(1.8, d.uniform(0.06, 0.12) * n)
    growth = Growth(p.exponential_fill(size, scale), stairs=_blocks(d, d.uniform(0.015, 0.05) * d.unit))
    program = d.program(base, (growth,), (d.shape(0.06),), d.noise(0.0001, 0.004))
    return d.run(program, (0, Nature.FILL), share=d.share(STEEP_TOP))


def ends_in_time(d: Draw) -> Run:
    """A leak that would need three generations more and is not told how many there are."""
    run = kinds.finishes(d)
    return replace(run, total=None, share=min(run.share, 1.0 - 3.5 / len(run.last.lengths)))


def leaks_again(d: Draw) -> Run:
    """Each process of the run leaks as the one before it."""
    run = kinds.linear(d)
    count = d.rng.randint(2, 3)
    return replace(run, programs=run.programs * count, resumes=(0,) * count)


def rare_peaks(d: Draw) -> Run:
    """The first of them may come when all is there that they stand upon: a first climb within seconds."""
    run = kinds.kth_peaks(d, leaks=False)
    return replace(run, share=min(run.share, STEEP_TOP))


Kind = Callable[[Draw], Run]
LEAKING: dict[str, dict[str, Kind]] = {
    "linear": {
        "linear": kinds.linear,
        "late": kinds.late,
        "in one phase": kinds.phase_leak,
        "faster and faster": partial(kinds.accelerating, curve="quadratic"),
        "near the limit": partial(kinds.near_limit, leaks=True),
        "longer generations": partial(families.changing_lengths, leaks="generation"),
    },
    "stepped": {"stairs": partial(stairs, leaks=True), "a jump first": partial(kinds.jumps, leaks=True)},
    "bursty": {
        "peaks": partial(kinds.inner_peaks, leaks=True),
        "rare peaks": partial(kinds.kth_peaks, leaks=True),
        "workers": partial(kinds.data_workers, leaks=True),
        "a burst": partial(families.bursts, savable=True),
        "a fast burst": partial(families.bursts, savable=False),
    },
    "sawtooth": {"teeth": partial(kinds.gc_teeth, leaks=True), "slow teeth": partial(families.slow, leaks=True)},
    "plateau": {
        "a fill that does not fit": kinds.fill_oom,
        "beneath a fill": kinds.leak_beneath_fill,
        "after a plateau": kinds.plateau_then_leak,
        "slower and slower": partial(kinds.decelerating, curve="power"),
    },
    "resume": {"leaks again": leaks_again, "preempted": partial(families.restarts, leaks=True)},
}
HEALTHY: dict[str, dict[str, Kind]] = {
    "linear": {
        "ends in time, told": kinds.finishes,
        "ends in time, untold": ends_in_time,
        "too slow": kinds.creep,
        "near the limit": partial(kinds.near_limit, leaks=False),
        "longer generations": partial(families.changing_lengths, leaks="none"),
    },
    "stepped": {"stairs that end": partial(stairs, leaks=False), "a jump": partial(kinds.jumps, leaks=False)},
    "bursty": {
        "peaks": partial(kinds.inner_peaks, leaks=False),
        "rare peaks": rare_peaks,
        "workers": partial(kinds.data_workers, leaks=False),
        "noise": partial(kinds.heavy_noise, leaks=False),
    },
    "sawtooth": {"teeth": partial(kinds.gc_teeth, leaks=False), "slow teeth": partial(families.slow, leaks=False)},
    "plateau": {
        "a straight fill": partial(kinds.fill, kind="straight"),
        "a fill": partial(kinds.fill, kind="exponential"),
        "a fill at two speeds": partial(kinds.fill, kind="two speeds"),
    },
    "resume": {"preempted": partial(families.restarts, leaks=False)},
}
FAMILIES = {
    **{f"{name}_leak": kinds_of for name, kinds_of in LEAKING.items()},
    **{f"{name}_healthy": kinds_of for name, kinds_of in HEALTHY.items()},
}
AGAIN = "leaks again"


# --- in which circumstances -----------------------------------------------------------------------------------------


def draw(family: str, seed: int) -> Case:
    """The same run for the same seed."""
    name = f"trust {family} {seed}"
    d = Pace(random.Random(name), name)
    kind = d.rng.choice(sorted(FAMILIES[family]))
    run = FAMILIES[family][kind](d)
    manners = _manners(d, run)
    courses = [_course(run, program, manners) for program in run.programs]
    by_cgroup = d.chance(0.6)
    others = NOBODY if by_cgroup else _others(d, courses)
    limit = int(_limit(d, run, courses, others))
    manners = replace(manners, deaf_to=1 if run.dies_at is not None and d.chance(DEAF_SHARE) else 0)
    scene = Scene(
        lives=tuple(_lives(run, kind, courses)),
        manners=manners,
        bounds=Bounds(limit, by_cgroup, others, kernel_log=d.chance(0.5)),
        interval=run.interval,
        policy=Policy(checkpoint_seconds=_told_seconds(d, run, manners)),
        thresholds=by_cgroup and d.chance(0.3),
        one_engine=d.chance(0.5),
        rotate_bytes=round(d.log(500, 5000)) if d.chance(0.3) else None,
        rotate_by_copy=d.chance(0.5),
    )
    last = run.story[-1]
    return Case(family, seed, kind, scene, last.since, last.nature is Nature.BURST)


def _manners(d: Draw, run: Run) -> Manners:
    """How it prints and saves. A generation is at least five thirds of a save of its own, a save longer than a look."""
    is_burst = run.story[-1].nature is Nature.BURST
    silent = d.chance(SILENT_SHARE) and not is_burst
    seconds, lasts = max(run.checkpoint_seconds, 1.1 * run.interval), min(run.last.lengths)
    every = 0 if is_burst else d.rng.choice((0, 0, 0, 1, 1, 2, 5))
    if every and d.chance(0.4):
        seconds = max(seconds, d.uniform(0.1, 0.6) * lasts)  # slow, but seen
    seconds = min(seconds, MOST_SILENT_SAVE if silent else MOST_UNTOLD_SAVE)
    every = every if seconds <= 0.6 * lasts else 0
    share = d.log(0.02, 0.1) if every and d.chance(0.3) else d.log(0.0003, 0.003)
    style = None if silent else d.rng.choice(WITHOUT_TOTAL if run.total is None else WITH_TOTAL)
    return Manners(
        style=style,
        total=run.total,
        first_index=run.first_index,
        save_seconds=seconds,
        save_bytes=share * d.unit,
        saves_every=every,
        witness="file" if silent else d.rng.choice(("log", "log", "file", "both")),
        safe_seconds=d.log(0.02, 3.0) if not is_burst else 0.05,
    )


def _told_seconds(d: Draw, run: Run, manners: Manners) -> float | None:
    """What the user says that a checkpoint takes; None: it is to be seen, or assumed."""
    is_burst = run.story[-1].nature is Nature.BURST
    return manners.save_seconds if is_burst or d.chance(0.4) else None


def _course(run: Run, program: Program, manners: Manners) -> Course:
    """The memory of a process that nobody stops, its own saves on top of what the program does."""
    step = run.interval
    levels = [program.used(i * step) for i in range(int(program.end_t / step) + 2)]
    return manners.with_saves(Life(Course(step, levels), program.begins)).course


def _others(d: Draw, courses: Iterable[Course]) -> Course:
    """What else runs on the host: nothing, or a load that comes and goes; in none of it a trend."""
    lasts = 3 * sum(course.step * len(course.levels) for course in courses)
    level = d.uniform(0.05, 1.0) * d.unit
    swing = d.uniform(0.0, OTHERS_SWING) * d.unit
    points = [level + d.uniform(-swing, swing) for _ in range(400)]
    return Course(lasts / len(points), points)


def _limit(d: Draw, run: Run, courses: list[Course], others: Course) -> float:
    """What is met at `dies_at`, or never, as runs.Run.unit_limit has it, of all that is taken."""

    def most(course: Course, until: float) -> float:
        taken = [level + others.at(i * course.step) for i, level in enumerate(course.levels)]
        return max(taken[: max(1, int(until / course.step))])

    if run.dies_at is None:
        highest = max(others.levels)  # whenever it comes
        return max(max(course.levels) for course in courses) / run.share + highest
    last, program = courses[-1], run.last
    high, low = (most(last, program.t(max(0.0, run.dies_at - back))) for back in (0.0, run.recurs))
    return high - (high - low) * d.uniform(0.0, 0.95)


def _lives(run: Run, kind: str, courses: list[Course]) -> Iterable[Life]:
    for i, (program, course) in enumerate(zip(run.programs, courses, strict=True)):
        preempted = i + 1 < len(courses) and kind != AGAIN
        yield Life(course, program.begins, killed_t=program.end_t - 0.001 if preempted else None)
