"""Plain kinds of runs: leaks, fills, peaks, teeth, noise. A Draw in, a Run out; those that leak die of it."""

from __future__ import annotations

import math

from traces import programs as p
from traces.draw import PHASES, STEEP_TOP, Draw, settling
from traces.programs import Growth
from traces.runs import Gauge, Nature, Run

# --- leaks ----------------------------------------------------------------------------------------------------------


def linear(d: Draw) -> Run:
    """The same growth in each generation, continuous or in one phase."""
    n, base = d.pace(), d.uniform(0.15, 0.7) * d.unit
    leak = Growth(p.straight((d.unit - base) / n), warp=d.warp())
    return d.run(d.program(base, (leak,)), (0, Nature.LEAK), dies_at=n - d.uniform(0.05, 0.95), visible=d.rough())


def late(d: Draw) -> Run:
    """Flat, then a leak."""
    n, base = d.pace(16, 50), d.uniform(0.3, 0.8) * d.unit
    since = d.uniform(0.25, 0.55) * n
    leak = Growth(p.straight((d.unit - base) / (n - since)), since, warp=d.warp())
    story = ((0, Nature.STABLE), (since, Nature.LEAK))
    return d.run(d.program(base, (leak,)), *story, dies_at=n - d.uniform(0.05, 0.95), visible=since + 1)


def phase_leak(d: Draw) -> Run:
    """A leak in one phase of the generation, flat in the others."""
    n, base = d.pace(samples=16.0), d.uniform(0.15, 0.7) * d.unit
    begin, end = d.uniform(0.1, 0.35), d.uniform(0.45, 0.75)
    names = d.rng.choice(PHASES[:1] + PHASES[3:])
    d.phases = tuple(zip((0.0, begin, end), names, strict=True))
    leak = Growth(p.straight((d.unit - base) / n), warp=p.in_phase(begin, end))
    return d.run(d.program(base, (leak,)), (0, Nature.LEAK), dies_at=n - d.uniform(0.05, 0.95), visible=d.rough())


def accelerating(d: Draw, curve: str) -> Run:
    """A leak that grows ever faster."""
    n, base = d.pace(12, 45), d.uniform(0.2, 0.6) * d.unit
    size = d.unit - base
    faster = p.quadratic(size, n) if curve == "quadratic" else p.exponential(size, n, d.uniform(1.5, 4.0))
    program = d.program(base, (Growth(faster, warp=d.warp()),))
    return d.run(program, (0, Nature.LEAK), dies_at=n - d.uniform(0.05, 0.95), visible=0.3 * n)


def decelerating(d: Draw, curve: str) -> Run:
    """A leak that grows ever slower and never stops."""
    n, base = d.pace(14, 45), d.uniform(0.2, 0.5) * d.unit
    size = d.unit - base
    if curve == "log":
        slower = p.logarithmic(size, n, d.uniform(0.1, 0.4) * n)
    else:
        slower = p.power(size, n, d.uniform(0.5, 0.8))
    program = d.program(base, (Growth(slower, warp=d.warp()),), (d.shape(0.08),), d.noise(0.0002, 0.01))
    return d.run(program, (0, Nature.FILL_OOM), dies_at=n - d.uniform(0.05, 0.95), visible=0.3 * n)


def leak_beneath_fill(d: Draw) -> Run:
    """A buffer fills while something leaks."""
    n, base = d.pace(14, 45), d.uniform(0.15, 0.3) * d.unit
    scale, fill = d.uniform(0.08, 0.2) * n, d.uniform(0.2, 0.4) * d.unit
    leak = Growth(p.straight((d.unit - base - fill) / n), warp=d.warp())
    story = ((0, Nature.FILL_OOM), (4 * scale, Nature.LEAK))
    program = d.program(base, (Growth(p.exponential_fill(fill, scale)), leak))
    return d.run(program, *story, dies_at=n - d.uniform(0.05, 0.95), visible=3 * scale)


def plateau_then_leak(d: Draw) -> Run:
    """A fill, its plateau, then a leak."""
    n, base = d.pace(22, 55), d.uniform(0.15, 0.3) * d.unit
    fill, scale = d.uniform(0.2, 0.4) * d.unit, max(1.5, d.uniform(0.05, 0.09) * n)
    since = d.uniform(0.45, 0.6) * n
    leak = Growth(p.straight((d.unit - base - fill) / (n - since)), since, warp=d.warp())
    story = ((0, Nature.FILL), (since, Nature.LEAK))
    program = d.program(base, (Growth(p.exponential_fill(fill, scale)), leak))
    return d.run(program, *story, dies_at=n - d.uniform(0.05, 0.95), visible=since + 1)


def finishes(d: Draw) -> Run:
    """A true leak that ends below the limit, because the run ends: the log says when."""
    n, base = d.pace(12, 60), d.uniform(0.3, 0.7) * d.unit
    leak = Growth(p.straight((d.unit - base) / n), warp=d.warp())
    program = d.program(base, (leak,), (d.shape(0.06),), d.noise(0.0002, 0.006))
    return d.run(program, (0, Nature.LEAK), share=d.uniform(0.7, 0.95), total=n)


# --- fills ----------------------------------------------------------------------------------------------------------


def fill(d: Draw, kind: str) -> Run:
    """A buffer that fills and fits."""
    n, base = d.pace(14, 50), d.uniform(0.15, 0.5) * d.unit
    size, top = d.unit - base, 0.98
    full_at = d.uniform(0.25, 0.5) * n
    if kind == "straight":
        curve = p.straight_fill(size, full_at)
        top = 1 / (1 + 3 * size / full_at / d.unit)  # straight to its last moment: only room tells that it fits
    elif kind == "exponential":
        curve = p.exponential_fill(size, max(1.8, full_at / 3))
    else:
        bend, part = d.uniform(0.2, 0.4) * full_at, d.uniform(0.5, 0.75)
        curve = p.two_speed_fill(size, bend, part, full_at)
        top = 1 / (1 + 3 * size * (1 - part) / (full_at - bend) / d.unit)
    program = d.program(base, (Growth(curve),), (d.shape(0.08),), d.noise(0.0002, 0.01))
    share = min(d.share(), top)
    if kind == "exponential":
        return d.run(program, (0, Nature.FILL), share=share)
    return d.run(program, (0, Nature.FILL_OOM), (full_at, Nature.FILL), share=share)  # until then it may be a leak


def fill_oom(d: Draw) -> Run:
    """A buffer that can never fit, and meets the limit on its way."""
    n, base = d.pace(12, 40), d.uniform(0.15, 0.4) * d.unit
    size, kind = d.unit - base, d.rng.choice(("straight", "exponential", "two speeds"))
    over = d.uniform(1.15, 2.0)
    if kind == "straight":
        curve = p.straight_fill(over * size, over * n)
    elif kind == "exponential":  # meets the limit where 1 / over of it is full
        curve = p.exponential_fill(over * size, n / -math.log(1 - 1 / over))
    else:
        bend = d.uniform(0.15, 0.3)
        part = d.uniform(bend + 0.15, 0.7) / over
        curve = p.two_speed_fill(over * size, bend * n, part, n * (bend + (1 - bend) * (1 - part) / (1 / over - part)))
    program = d.program(base, (Growth(curve),), (d.shape(0.08),), d.noise(0.0002, 0.01))
    return d.run(program, (0, Nature.FILL_OOM), dies_at=n - d.uniform(0.05, 0.95), visible=0.4 * n)


def creep(d: Draw) -> Run:
    """Fragmentation: a slow growth that decays."""
    n = d.pace(15, 60)
    size = d.uniform(0.03, 0.12) * d.unit
    curve = p.logarithmic(size, n, d.uniform(0.05, 0.2) * n)
    program = d.program(d.unit - size, (Growth(curve),), (d.shape(0.08),), d.noise(0.0002, 0.006))
    return d.run(program, (0, Nature.CREEP), share=d.share(0.985))


def gauge(d: Draw, leaks: bool) -> Run:
    """A buffer that the log tells of, filling in a straight line; its capacity fits or does not."""
    n, base = d.pace(12, 45), d.uniform(0.1, 0.35) * d.unit
    full_at = n / d.uniform(0.5, 0.85) if leaks else d.uniform(0.5, 0.85) * n
    size = (d.unit - base) * (full_at / n if leaks else 1.0)
    capacity = float(round(d.log(1e4, 1e6)))
    told = Gauge(capacity, capacity / full_at)
    program = d.program(base, (Growth(p.straight_fill(size, full_at)),), (d.shape(0.05),), d.noise(0.0002, 0.008))
    if leaks:
        at = n - d.uniform(0.05, 0.95)
        return d.run(program, (0, Nature.FILL_OOM), dies_at=at, visible=d.rough(), gauge=told)
    story = ((0, Nature.FILL), (full_at, Nature.FILL))
    return d.run(program, *story, share=d.uniform(0.7, 0.95), gauge=told)


# --- jumps, peaks, teeth, workers, noise ----------------------------------------------------------------------------


def jumps(d: Draw, leaks: bool) -> Run:
    """A jump in one of the first generations, then flat; or a leak."""
    n, at = d.pace(12, 45), d.uniform(0.6, 3.4)
    size = d.uniform(0.15, 0.45) * d.unit
    if not leaks:
        program = d.program(d.unit - size, (Growth(p.jump(size), at),), (d.shape(0.08),))
        return d.run(program, (0, Nature.STABLE), (at, Nature.STABLE), share=d.share(STEEP_TOP))
    base = d.uniform(0.2, 0.35) * d.unit
    leak = Growth(p.straight((d.unit - base - size) / n), warp=d.warp())
    program = d.program(base, (Growth(p.jump(size), at), leak))
    return d.run(program, (0, Nature.LEAK), dies_at=n - d.uniform(0.05, 0.95), visible=math.ceil(at) + 0.5)


def inner_peaks(d: Draw, leaks: bool) -> Run:
    """A high, short peak inside each generation, that its end does not show."""
    n = d.pace(12, 45, samples=25.0)
    begin = d.uniform(0.15, 0.7)
    height = d.uniform(0.1, 0.4) * d.unit
    peak = p.peaks(height, begin=begin, end=begin + d.uniform(0.1, 0.25), ramp=d.uniform(0.01, 0.08))
    above = (peak, d.shape(0.05))
    if leaks:
        base = d.uniform(0.2, 0.75) * (d.unit - height)
        leak = Growth(p.straight((d.unit - height - base) / n), warp=d.warp())
        program = d.program(base, (leak,), above)
        return d.run(program, (0, Nature.LEAK), dies_at=n - 0.02, visible=d.rough())
    growth, size, nature, share = settling(d, STEEP_TOP)
    return d.run(d.program(d.unit - height - size, growth, above), (0, nature), share=share)


def kth_peaks(d: Draw, leaks: bool) -> Run:
    """A peak (checkpoint, validation) in each k-th generation."""
    every = d.rng.randint(2, 8)
    n = d.pace(5 * every, max(9 * every, 30), samples=20.0)
    height, begin = d.uniform(0.08, 0.35) * d.unit, d.uniform(0.6, 0.88)
    peak = p.peaks(height, every, begin, begin + d.uniform(0.06, 0.12), d.uniform(0.005, 0.03))
    above = (peak, d.shape(0.05))
    if leaks:
        base = d.uniform(0.3, 0.8) * (d.unit - height)
        leak = Growth(p.straight((d.unit - height - base) / n), warp=d.warp())
        program = d.program(base, (leak,), above)
        return d.run(
            program,
            (0, Nature.LEAK),
            dies_at=n - d.uniform(0.0, 0.9),
            recurs=float(every),
            visible=2.0 * every,
            checkpoint_bytes=height,
        )
    growth, size, nature, share = settling(d, STEEP_TOP)
    return d.run(d.program(d.unit - height - size, growth, above), (0, nature), share=share)


def gc_teeth(d: Draw, leaks: bool) -> Run:
    """Garbage of 30-120 % of what is in use, collected in step with the generations or not."""
    period = d.rng.choice((0.5, 1.0, 2.0)) if d.chance(0.35) else d.uniform(0.4, 3.2)
    n = d.pace(max(14, math.ceil(8 * period)), 45, samples=12.0)
    share = d.uniform(0.3, 1.2)
    offset = 0.0 if period in {0.5, 1.0, 2.0} else d.uniform(0.0, 1.0)
    if leaks:
        live = d.uniform(0.3, 0.6) * d.unit / (1 + share)
        leak = Growth(p.straight((d.unit - live * (1 + share)) / n), warp=d.warp())
        program = d.program(live, (leak,), (p.teeth(share * live, period, offset), d.shape(0.03)))
        seen = max(2 * period, d.rough())
        return d.run(program, (0, Nature.LEAK), dies_at=n - d.uniform(0.0, 0.9), recurs=max(1.0, period), visible=seen)
    live = d.unit / (1 + share)
    program = d.program(live, (), (p.teeth(share * live, period, offset), d.shape(0.03)))
    return d.run(program, (0, Nature.NOISY), share=d.share(0.98))


def data_workers(d: Draw, leaks: bool) -> Run:
    """DataLoader workers that come and go in each generation, not always as many."""
    n, most = d.pace(12, 45, samples=14.0), d.rng.randint(2, 8)
    each = d.uniform(0.1, 0.35) * d.unit / most
    counts = [d.rng.randint(most - (1 if most < 5 else 2), most) for _ in range(800)]
    counts[1] = most  # nobody can know of more workers than were ever seen
    begin, end = d.uniform(0.05, 0.2), d.uniform(0.6, 0.85)
    above = (p.workers(each, counts, begin, end, d.uniform(0.01, 0.06)), d.shape(0.03))
    if leaks:
        base = d.uniform(0.3, 0.75) * (d.unit - each * most)
        leak = Growth(p.straight((d.unit - each * most - base) / n), warp=d.warp())
        program = d.program(base, (leak,), above)
        return d.run(program, (0, Nature.LEAK), dies_at=n - d.uniform(0.0, 0.9), visible=max(2.0, d.rough()))
    growth, size, nature, share = settling(d, STEEP_TOP)
    return d.run(d.program(d.unit - each * most - size, growth, above), (0, nature), share=share)


def heavy_noise(d: Draw, leaks: bool) -> Run:
    """Noise of 3-12 % on each sample."""
    n = d.pace(14, 45, samples=20.0)
    noise = d.noise(0.03, 0.12, memory=d.uniform(0.0, 0.5), most=2.0)
    if leaks:
        base = d.uniform(0.2, 0.5) * d.unit
        leak = Growth(p.straight((d.unit - base) / n), warp=d.warp())
        program = d.program(base, (leak,), noise=noise)
        return d.run(program, (0, Nature.LEAK), dies_at=n - d.uniform(0.0, 0.9), visible=0.2 * n)
    program = d.program(d.unit, (), (d.shape(0.06),), noise)
    return d.run(program, (0, Nature.NOISY), share=d.share(0.98))


def near_limit(d: Draw, leaks: bool) -> Run:
    """Hours at 95-98 % of the limit; or a leak that is too small to see from one generation to the next."""
    n = d.pace(20, 60, seconds=(60.0, 1200.0))
    noise = d.noise(0.0003, 0.0015)
    swing = p.waves(d.uniform(0.0, 0.006) * d.unit, d.uniform(0.3, 7.0) * d.seconds, d.uniform(0.0, 1.0))
    if leaks:
        base = d.uniform(0.7, 0.88) * d.unit
        program = d.program(base, (Growth(p.straight((d.unit - base) / n), warp=d.warp()),), (swing,), noise)
        return d.run(program, (0, Nature.LEAK), dies_at=n - d.uniform(0.0, 0.9), visible=0.1 * n)
    return d.run(d.program(d.unit, (), (swing,), noise), (0, Nature.STABLE), share=d.uniform(0.95, 0.985))
