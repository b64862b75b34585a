"""The corpus: families of runs, healthy and dying, every figure of them drawn from a seed.

Seeds below HELD_OUT are for tuning; those from HELD_OUT on are held out, to be scored and not to be looked at.
What a run does next can be known from its past: a healthy one that rises to the limit for the first time within
seconds, or straight and without a sign of its end, is not among them. Bursts that nobody can survive are labelled so.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from traces import kinds
from traces import programs as p
from traces.draw import MOST_ROWS, Draw, replace_lengths
from traces.programs import Growth, Program
from traces.runs import Markers, Nature, Run

HELD_OUT = 11_000


# --- time -----------------------------------------------------------------------------------------------------------


def changing_lengths(d: Draw, leaks: str) -> Run:
    """Generations whose length changes tenfold; nothing leaks, or so much a generation, or so much an hour."""
    n = d.pace(18, 36, seconds=(5.0, 1500.0))
    at, factor = d.rng.randint(int(0.3 * n), int(0.5 * n)), d.rng.choice((10.0, 0.1))
    after = n + 1 - at
    d.interval = min(max(d.seconds * (at + factor * after) / MOST_ROWS, d.seconds * min(1.0, factor) / 12, 0.2), 60.0)
    lengths = (*d.lengths(at), *d.lengths(after, factor * d.seconds))
    if leaks == "none":
        base = d.uniform(0.5, 0.8) * d.unit
        growth = Growth(p.exponential_fill(d.unit - base, max(1.8, d.uniform(0.06, 0.12) * n)))
        program = d.program(base, (growth,), (d.shape(0.08),), lengths=lengths)
        return d.run(program, (0, Nature.FILL), share=d.share(0.97))
    base = d.uniform(0.3, 0.6) * d.unit
    hours = sum(lengths[:n]) / 3600
    per_hour = Growth(p.straight((d.unit - base) / hours), hourly=True)
    per_generation = Growth(p.straight((d.unit - base) / n), warp=d.warp())
    program = d.program(base, (per_hour if leaks == "hour" else per_generation,), (d.shape(0.06),), lengths=lengths)
    dies_at = n - d.uniform(0.05, 0.95)
    more = {"settled": at + 1.0, "checkpoint_seconds": max(min(1.0, factor) * d.checkpoint(), 0.3)}
    return d.run(program, (0, Nature.LEAK), dies_at=dies_at, visible=at + 1.0, **more)


def fast(d: Draw, leaks: bool) -> Run:
    """Generations of half a second to two and a half, by the hundred."""
    n = d.pace(240, 800, seconds=(0.5, 2.5))
    if leaks:
        base = d.uniform(0.2, 0.6) * d.unit
        program = d.program(base, (Growth(p.straight((d.unit - base) / n), warp=d.warp()),))
        return d.run(program, (0, Nature.LEAK), dies_at=n - d.uniform(0.0, 0.9), visible=0.05 * n)
    base = d.uniform(0.3, 0.7) * d.unit
    program = d.program(base, (Growth(p.exponential_fill(d.unit - base, d.uniform(0.08, 0.15) * n)),))
    return d.run(program, (0, Nature.FILL), share=d.share(0.97))


def slow(d: Draw, leaks: bool) -> Run:
    """Generations of an hour or two, with collections within."""
    n = d.pace(10, 20, seconds=(3000.0, 7200.0))
    size = d.uniform(0.03, 0.25) * d.unit
    above = (p.teeth(size, 1 / d.rng.randint(3, 9)), d.shape(0.05))
    if leaks:
        base = d.uniform(0.3, 0.6) * (d.unit - size)
        program = d.program(base, (Growth(p.straight((d.unit - size - base) / n), warp=d.warp()),), above)
        return d.run(program, (0, Nature.LEAK), dies_at=n - d.uniform(0.0, 0.9), visible=d.rough())
    return d.run(d.program(d.unit - size, (), above), (0, Nature.STABLE), share=d.share(0.98))


def restarts(d: Draw, leaks: bool) -> Run:
    """The process is replaced once or twice and resumes a little back; memory begins low again."""
    n = d.pace(12, 32)
    base = d.uniform(0.15, 0.4) * d.unit
    if leaks:
        growth = Growth(p.straight((d.unit - base) / n), warp=d.warp())
    else:
        growth = Growth(p.exponential_fill(d.unit - base, max(1.8, d.uniform(0.08, 0.15) * n)))
    program = d.program(base, (growth,), (d.shape(0.08),), d.noise(0.0002, 0.006))
    lives, resumes = [], [0]
    for _ in range(d.rng.randint(1, 2)):
        lived = d.rng.randint(5, max(6, int(0.6 * n)))
        lives.append(replace_lengths(program, lived))
        resumes.append(resumes[-1] + lived - d.rng.randint(1, 2))
    programs = (*lives, program)
    if leaks:
        dies_at = n - d.uniform(0.05, 0.95)
        return d.run(programs, (0, Nature.LEAK), dies_at=dies_at, resumes=tuple(resumes))
    return d.run(programs, (0, Nature.FILL), share=d.share(0.97), resumes=tuple(resumes))


# --- what the log and the recording lack ----------------------------------------------------------------------------


def some(d: Draw, leaks: bool, *but: str) -> Run:
    """One of the plain kinds."""
    healthy: dict[str, Callable[[Draw], Run]] = {
        "near_limit": partial(kinds.near_limit, leaks=False),
        "teeth": partial(kinds.gc_teeth, leaks=False),
        "peaks": partial(kinds.kth_peaks, leaks=False),
        "workers": partial(kinds.data_workers, leaks=False),
        "fill": partial(kinds.fill, kind="exponential"),
        "noise": partial(kinds.heavy_noise, leaks=False),
    }
    dying: dict[str, Callable[[Draw], Run]] = {
        "linear": kinds.linear,
        "teeth": partial(kinds.gc_teeth, leaks=True),
        "peaks": partial(kinds.kth_peaks, leaks=True),
        "workers": partial(kinds.data_workers, leaks=True),
        "late": kinds.late,
        "fill": kinds.fill_oom,
    }
    plain = {name: kind for name, kind in (dying if leaks else healthy).items() if name not in but}
    return plain[d.rng.choice(sorted(plain))](d)


def no_markers(d: Draw, leaks: bool) -> Run:
    """No log at all."""
    run = some(d, leaks)
    seen = max(run.visible, 0.3 * (run.dies_at or 0.0))
    return replace(run, markers=Markers(told=False), total=None, visible=seen)


def late_markers(d: Draw, leaks: bool) -> Run:
    """The log begins to count after some generations."""
    run = some(d, leaks, "peaks")
    since = d.rng.randint(3, max(4, d.n // 3))
    return replace(run, markers=Markers(since=since, phases=d.phases), visible=max(run.visible, float(since)))


def lost_markers(d: Draw, leaks: bool) -> Run:
    """The log falls silent midway."""
    run = some(d, leaks, "late")
    until = d.rng.randint(max(5, d.n // 4), max(6, int(0.6 * d.n)))
    return replace(run, markers=Markers(until=until, stays=d.chance(0.5), phases=d.phases), total=None)


def gaps(d: Draw, leaks: bool) -> Run:
    """Minutes without samples, and empty cells."""
    run = some(d, leaks)
    most = 0.75 if leaks else 0.95
    begins = [d.uniform(0.15, most - 0.08) for _ in range(d.rng.randint(1, 4))]
    missing = tuple((begin, begin + d.uniform(0.01, 0.06)) for begin in begins)
    return replace(run, faults=replace(run.faults, gaps=missing, empty=d.uniform(0.01, 0.15)))


def jitter(d: Draw, leaks: bool) -> Run:
    """A clock that is uneven and sometimes goes back a little."""
    run = some(d, leaks)
    return replace(run, faults=replace(run.faults, jitter=d.uniform(0.2, 0.8), backward=d.uniform(0.002, 0.02)))


# --- limits ---------------------------------------------------------------------------------------------------------


def limit_raised(d: Draw, leaks: bool) -> Run:
    """The limit is raised midway; a leak meets the new one too."""
    factor = d.uniform(1.3, 1.8)
    if not leaks:
        run = kinds.fill(d, "exponential")
        return replace(run, factors=((d.uniform(0.3, 0.6) * d.n, factor),), share=min(run.share, 0.85))
    n, base = d.pace(16, 45), d.uniform(0.15, 0.25) * d.unit
    growth = (d.unit - base) / n
    at = (0.8 * d.unit / factor - base) / growth
    program = d.program(base, (Growth(p.straight(growth), warp=d.warp()),), (d.shape(0.06),))
    story = (0, Nature.LEAK)
    return d.run(program, story, dies_at=n - d.uniform(0.05, 0.95), settled=at, factors=((at, factor),))


def limit_lowered(d: Draw, leaks: bool) -> Run:
    """The limit is lowered midway; the run still fits, or its leak has less time."""
    factor = d.uniform(0.55, 0.85)
    if not leaks:
        run = some(d, False)
        return replace(run, factors=((d.uniform(0.3, 0.6) * d.n, factor),), share=min(run.share, 0.97))
    n, base = d.pace(16, 45), d.uniform(0.15, 0.4) * d.unit
    at = d.uniform(0.3, 0.5) * n
    program = d.program(base, (Growth(p.straight((d.unit - base) / n), warp=d.warp()),), (d.shape(0.06),))
    return d.run(program, (0, Nature.LEAK), dies_at=n - d.uniform(0.05, 0.95), settled=at, factors=((at, factor),))


def limit_unknown(d: Draw, leaks: bool) -> Run:
    """Nobody knows the limit at first."""
    run = some(d, leaks)
    since = d.uniform(0.1, 0.4) * d.n
    return replace(run, limit_since=since, settled=max(run.settled, since))


# --- bursts ---------------------------------------------------------------------------------------------------------


def bursts(d: Draw, savable: bool) -> Run:
    """An ordinary run whose memory rises to the limit within seconds; a checkpoint still fits, or does not.

    A savable one fits into the last twentieth of the limit, where healthy first climbs do not come (STEEP_TOP).
    """
    d.seconds, d.n = d.uniform(15.0, 60.0), d.rng.randint(7, 14)
    ordinary = d.uniform(0.75, 0.9)
    seconds = d.uniform(25.0, 50.0) if savable else d.uniform(1.0, 6.0)
    d.interval = min(max(d.seconds * d.n / MOST_ROWS, 0.2), 0.5)
    last_part = seconds * 0.05 / (1 - ordinary)
    checkpoint = (last_part - 2.5) * d.uniform(0.15, 0.6) if savable else seconds * d.uniform(1.5, 4.0)
    begin = d.uniform(d.n - 1.8, d.n - 1.2)
    shape = d.shape(0.08)
    quiet = d.program(ordinary * d.unit - 0.08 * d.unit, (), (shape,), d.noise(0.0005, 0.003))
    since = quiet.t(begin) - quiet.load_seconds
    program = replace(quiet, above=(shape, p.burst((1.0 - ordinary) * d.unit, since, seconds)))
    dies_at = min(program.x(quiet.t(begin) + seconds), d.n + 0.9)
    return d.run(
        program,
        (0, Nature.STABLE),
        (begin, Nature.BURST),
        dies_at=dies_at,
        recurs=0.0,
        visible=begin,
        checkpoint_seconds=max(checkpoint, 0.2),
        savable=savable,
        saves=False,
    )


# --- GPUs -----------------------------------------------------------------------------------------------------------


def host_beside(d: Draw) -> Program:
    """A healthy host program, for the generations that were drawn."""
    base = d.uniform(0.3, 0.7) * d.unit
    growth = (Growth(p.exponential_fill(0.3 * base, 0.1 * d.n)),) if d.chance(0.5) else ()
    return Program(base, d.lengths(d.n + 1), growth, (d.shape(0.1),), d.noise(), d.seconds)


def gpu(d: Draw, **more: object) -> dict[str, object]:
    """What a run on a GPU has beside."""
    return {"resource": "gpu0", "other": host_beside(d), "other_share": d.uniform(0.4, 0.93), **more}


def gpu_leak(d: Draw) -> Run:
    """A leak on the GPU, under a healthy host."""
    n, base = d.pace(12, 45), d.uniform(0.2, 0.5) * d.unit
    since = d.uniform(0.1, 0.3) * n if d.chance(0.5) else 0.0
    leak = Growth(p.straight((d.unit - base) / (n - since)), since, warp=d.warp())
    program = d.program(base, (leak,), (d.shape(0.25),), p.Noise())
    story = ((0, Nature.STABLE), (since, Nature.LEAK)) if since else ((0, Nature.LEAK),)
    return d.run(program, *story, dies_at=n - d.uniform(0.05, 0.95), visible=max(since, d.rough()), **gpu(d))


def gpu_staircase(d: Draw, leaks: bool) -> Run:
    """An allocator that takes whole blocks: it levels off, or goes on."""
    n, base = d.pace(20, 50), d.uniform(0.2, 0.4) * d.unit
    size = d.unit - base
    blocks = [d.uniform(0.015, 0.035) * d.unit for _ in range(120)]
    stairs = tuple(sum(blocks[: i + 1]) for i in range(len(blocks)))
    if leaks:
        growth = Growth(p.straight(size / n), stairs=stairs)
        program = d.program(base, (growth,), (), p.Noise())
        return d.run(program, (0, Nature.LEAK), dies_at=n + 0.9, visible=0.15 * n, **gpu(d))
    growth = Growth(p.exponential_fill(size, max(1.8, d.uniform(0.06, 0.12) * n)), stairs=stairs)
    program = d.program(base, (growth,), (), p.Noise())
    return d.run(program, (0, Nature.FILL), share=d.uniform(0.6, 0.93), **gpu(d))


# --- servers: no generations, much noise ----------------------------------------------------------------------------


def server(d: Draw, kind: str) -> Run:
    """A server without a log: waves of load, leaks with resets, ageing."""
    n = d.pace(20, 36, seconds=(1200.0, 4800.0), samples=50.0)
    noise = d.noise(0.004, 0.03, memory=d.uniform(0.2, 0.7), most=2.5)
    silent = {"markers": Markers(told=False), "total": None}
    period = d.uniform(0.12, 0.2) * n * d.seconds
    swing = p.waves(d.uniform(0.05, 0.15) * d.unit, period, d.uniform(0.2, 0.3))
    if kind == "waves":
        return d.run(
            d.program(0.8 * d.unit, (), (swing,), noise), (0, Nature.NOISY), share=d.uniform(0.5, 0.9), **silent
        )
    if kind == "recycled":
        resets = p.recycled(d.uniform(0.2, 0.5) * d.unit, period)
        more = {"share": d.uniform(0.5, 0.8), "settled": 0.45 * n, **silent}
        return d.run(d.program(0.5 * d.unit, (), (resets,), noise), (0, Nature.NOISY), **more)
    base = d.uniform(0.2, 0.45) * d.unit
    if kind == "leak":
        resets = p.recycled(d.uniform(0.05, 0.15) * d.unit, d.uniform(0.03, 0.08) * n * d.seconds)
        curve, nature, above = p.straight((d.unit - base) / n), Nature.LEAK, [swing, resets]
    else:
        curve, nature, above = p.power(d.unit - base, n, d.uniform(0.5, 0.8)), Nature.AGING, [swing]
    program = d.program(base, (Growth(curve),), tuple(above), noise)
    if kind == "ageing":
        return d.run(program, (0, nature), share=d.uniform(0.3, 0.55), **silent)
    more = {"recurs": period / d.seconds, "visible": 0.3 * n, **silent}
    return d.run(program, (0, nature), dies_at=n - d.uniform(0.0, 0.9), **more)


# --- all of them ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Family:
    """A name, and how a run of it is drawn."""

    name: str
    make: Callable[[Draw], Run]
    dies: bool

    def run(self, seed: int) -> Run:
        """The same run for the same seed."""
        rng = random.Random(f"{self.name} {seed}")
        return self.make(Draw(rng, f"{self.name} {seed}"))


def _family(name: str, dies: bool, make: Callable[..., Run], **options: object) -> Family:
    return Family(name, partial(make, **options), dies)


def _both(name: str, make: Callable[..., Run]) -> tuple[Family, Family]:
    return _family(name, False, make, leaks=False), _family(f"{name}_leak", True, make, leaks=True)


_ALL: tuple[Family, ...] = (
    _family("linear", True, kinds.linear),
    _family("late", True, kinds.late),
    _family("phase_leak", True, kinds.phase_leak),
    _family("quadratic", True, kinds.accelerating, curve="quadratic"),
    _family("exponential", True, kinds.accelerating, curve="exponential"),
    _family("logarithmic", True, kinds.decelerating, curve="log"),
    _family("power", True, kinds.decelerating, curve="power"),
    _family("leak_beneath_fill", True, kinds.leak_beneath_fill),
    _family("plateau_then_leak", True, kinds.plateau_then_leak),
    _family("finishes", False, kinds.finishes),
    _family("fill_straight", False, kinds.fill, kind="straight"),
    _family("fill_exponential", False, kinds.fill, kind="exponential"),
    _family("fill_two_speeds", False, kinds.fill, kind="two speeds"),
    _family("fill_oom", True, kinds.fill_oom),
    _family("creep", False, kinds.creep),
    *_both("gauge", kinds.gauge),
    *_both("jump", kinds.jumps),
    *_both("inner_peaks", kinds.inner_peaks),
    *_both("kth_peaks", kinds.kth_peaks),
    *_both("gc_teeth", kinds.gc_teeth),
    *_both("workers", kinds.data_workers),
    *_both("noise", kinds.heavy_noise),
    *_both("near_limit", kinds.near_limit),
    _family("lengths", False, changing_lengths, leaks="none"),
    _family("lengths_leak", True, changing_lengths, leaks="generation"),
    _family("lengths_leak_hourly", True, changing_lengths, leaks="hour"),
    *_both("fast", fast),
    *_both("slow", slow),
    *_both("restart", restarts),
    *_both("no_markers", no_markers),
    *_both("late_markers", late_markers),
    *_both("lost_markers", lost_markers),
    *_both("gaps", gaps),
    *_both("jitter", jitter),
    *_both("limit_raised", limit_raised),
    *_both("limit_lowered", limit_lowered),
    *_both("limit_unknown", limit_unknown),
    _family("burst", True, bursts, savable=True),
    _family("burst_unsavable", True, bursts, savable=False),
    _family("gpu_leak", True, gpu_leak),
    *_both("gpu_staircase", gpu_staircase),
    _family("server_waves", False, server, kind="waves"),
    _family("server_recycled", False, server, kind="recycled"),
    _family("server_ageing", False, server, kind="ageing"),
    _family("server_leak", True, server, kind="leak"),
    _family("server_ageing_oom", True, server, kind="ageing_oom"),
)
FAMILIES: dict[str, Family] = {family.name: family for family in _ALL}
