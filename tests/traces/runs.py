"""A run of a trainer, as recorded: one process or several, a limit, what the log tells, what the recording loses."""

from __future__ import annotations

import csv
import io
import math
import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from traces.programs import Program, times

HEADER = ("t", "rss", "limit", "gen", "phase", "total_gens", "gpu_used", "gpu_limit")
GAUGE_HEADER = ("driver", "driver_capacity")
PAUSE_SECONDS = 30.0  # from the end of a process to the begin of the next


class Nature(Enum):
    """What memory does for a while, as a label calls it."""

    STABLE = "stable"
    NOISY = "noisy"
    FILL = "fill"  # of itself it ends below the limit
    CREEP = "creep"
    FILL_OOM = "fill_oom"
    LEAK = "leak"
    AGING = "aging"
    BURST = "burst"

    @property
    def kills(self) -> bool:
        """It goes on to the limit, if there is time enough."""
        return self in {Nature.FILL_OOM, Nature.LEAK, Nature.AGING, Nature.BURST}


@dataclass(frozen=True, slots=True)
class Chapter:
    """From `since` generations of the last process on."""

    since: float
    nature: Nature


@dataclass(frozen=True, slots=True)
class Markers:
    """What the log says of generations. Generations as they are, not as the log counts them."""

    told: bool = True
    since: int = 0
    until: int | None = None  # from then on the log is silent ...
    stays: bool = True  # ... and its last word stands, or nothing does
    phases: tuple[tuple[float, str], ...] = ()  # (begin as part of a generation, name)

    def index(self, generation: int | None) -> int | None:
        """Which one the log names within a generation."""
        if generation is None or not self.told or generation < self.since:
            return None
        if self.until is None or generation < self.until:
            return generation
        return self.until - 1 if self.stays else None

    def phase(self, generation: int, part: float) -> str:
        """Its name, or nothing."""
        if self.index(generation) != generation:
            return ""
        i = bisect_right(self.phases, (part, "\uffff"))
        return self.phases[i - 1][1] if i else ""


@dataclass(frozen=True, slots=True)
class Faults:
    """What a recording lacks."""

    jitter: float = 0.02  # share of the interval
    gaps: tuple[tuple[float, float], ...] = ()  # (from, to), shares of the whole time
    empty: float = 0.0  # share of the cells
    backward: float = 0.0  # share of the rows whose time is a little before the last one's


@dataclass(frozen=True, slots=True)
class Gauge:
    """A figure of the log that drives memory."""

    capacity: float
    per_generation: float

    def value(self, x: float) -> float:
        """How full."""
        return float(int(min(max(0.0, self.per_generation * x), self.capacity)))


@dataclass(frozen=True)
class Run:
    """All that is known of a run because it was made.

    It dies within the `recurs` generations before `dies_at` of its last process, or else stays below `share` of the
    limit: the limit follows.
    """

    programs: tuple[Program, ...]
    interval: float
    story: tuple[Chapter, ...]
    dies_at: float | None = None
    recurs: float = 1.0  # generations after which its peaks come again, higher
    share: float = 0.9
    visible: float = 0.0  # generation of the last process at which the end is foreseeable
    settled: float = 0.0  # ... and from which on nothing unforeseeable happens (a changed limit, other lengths)
    first_index: int = 0
    resumes: tuple[int, ...] = (0,)  # generation at which each process begins
    total: int | None = None
    markers: Markers = Markers()
    resource: str = "host"
    other: Program | None = None  # the memory of the other resource
    other_share: float = 0.5
    factors: tuple[tuple[float, float], ...] = ()  # (generation, factor of the limit from then on)
    limit_since: float = -1.0  # generation from which on the limit is known
    gauge: Gauge | None = None
    faults: Faults = Faults()
    checkpoint_seconds: float = 1.0
    checkpoint_bytes: float = 0.0
    saves: bool = False  # it saves by itself as each generation ends
    savable: bool = True
    seed: str = ""

    @cached_property
    def starts(self) -> tuple[float, ...]:
        """When each process begins."""
        starts = [0.0]
        for program in self.programs[:-1]:
            starts.append(starts[-1] + program.end_t + PAUSE_SECONDS)
        return tuple(starts)

    @property
    def last(self) -> Program:
        """The process in which it ends."""
        return self.programs[-1]

    def t(self, x: float) -> float:
        """When x generations of the last process are over."""
        return self.starts[-1] + self.last.t(x)

    def factor(self, t: float) -> float:
        """What the limit is multiplied with."""
        x = self.last.x(t - self.starts[-1])
        known = [factor for at, factor in self.factors if at <= x]
        return known[-1] if known else 1.0

    @cached_property
    def looks(self) -> tuple[tuple[float, int], ...]:
        """When a recording looks, and at which process: up to the end of the last one."""
        rng = random.Random(f"looks {self.seed}")
        return tuple(
            (start + t, i)
            for i, (start, program) in enumerate(zip(self.starts, self.programs, strict=True))
            for t in times(rng, program.end_t, self.interval, self.faults.jitter)
        )

    @cached_property
    def used(self) -> tuple[int, ...]:
        """Bytes at each look."""
        return tuple(round(self.programs[i].used(t - self.starts[i])) for t, i in self.looks)

    @cached_property
    def unit_limit(self) -> float:
        """The limit before its factors: what is met at `dies_at`, or never."""
        if self.dies_at is None:
            return self._most(math.inf) / self.share
        most = self._most(self.t(self.dies_at))
        before = self._most(self.t(max(0.0, self.dies_at - self.recurs)))
        # somewhere in what the last period adds: a limit knows nothing of where a peak ends
        return most - (most - before) * random.Random(f"limit {self.seed}").uniform(0.0, 0.95)

    def _most(self, until_t: float) -> float:
        return max(used / self.factor(t) for (t, _), used in zip(self.looks, self.used, strict=True) if t <= until_t)

    def limit(self, t: float) -> int:
        """Bytes."""
        return int(self.unit_limit * self.factor(t))

    @cached_property
    def death(self) -> int | None:
        """The first look at which the limit is met."""
        pairs = enumerate(zip(self.looks, self.used, strict=True))
        return next((i for i, ((t, _), used) in pairs if used >= self.limit(t)), None)

    def shown_limit(self, t: float) -> int | None:
        """What a watch can know of it."""
        return self.limit(t) if self.last.x(t - self.starts[-1]) >= self.limit_since else None

    def marker(self, t: float, process: int) -> tuple[int | None, str]:
        """What the log has told last, at t: index, phase."""
        program = self.programs[process]
        x = program.x(t - self.starts[process])
        g = program.generation(t - self.starts[process])
        named = self.markers.index(g)
        if named is None or g is None:
            return None, ""
        return named + self.resumes[process] + self.first_index, self.markers.phase(g, x - g)


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a trace, of the resource that matters and the other one; None: an empty cell."""

    t: float
    used: int | None
    limit: int | None
    generation: int | None
    phase: str
    total: int | None
    other: int | None = None
    other_limit: int | None = None
    driver: float | None = None
    capacity: float | None = None


def records(run: Run) -> Iterator[Record]:
    """What is recorded, up to the first sample that meets the limit."""
    rng = random.Random(f"faults {run.seed}")
    end_t = run.looks[-1][0]
    other_limit = _other_limit(run)
    for i, ((t, process), used) in enumerate(zip(run.looks, run.used, strict=True)):
        last = i == run.death
        if not last and any(a <= t / end_t < b for a, b in run.faults.gaps):
            continue
        yield _record(run, rng, t, process, used, other_limit, last)
        if last:
            return


def _record(
    run: Run, rng: random.Random, t: float, process: int, used: int, other_limit: int | None, last: bool
) -> Record:
    def lost() -> bool:
        return rng.random() < run.faults.empty and not last

    index, phase = run.marker(t, process)
    if rng.random() < run.faults.backward and not last:
        t = max(0.0, t - 1.5 * run.interval)
    told = index is not None and not lost()
    x = run.last.x(t - run.starts[-1])
    gauge = run.gauge if told else None
    return Record(
        round(t, 3),
        None if lost() else used,
        None if lost() else run.shown_limit(t),
        index if told else None,
        phase if told else "",
        run.total if told else None,
        None if run.other is None else round(run.other.used(t)),
        other_limit,
        gauge.value(x) if gauge else None,
        gauge.capacity if gauge else None,
    )


def _other_limit(run: Run) -> int | None:
    if run.other is None:
        return None
    return int(max(run.other.used(t) for t, _ in run.looks) / run.other_share)


def to_csv(run: Run) -> str:
    """The trace as a text, in the format of `memwatch replay`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER + (GAUGE_HEADER if run.gauge else ()))
    for record in records(run):
        mine, others = (record.used, record.limit), (record.other, record.other_limit)
        host, gpu = (mine, others) if run.resource == "host" else (others, mine)
        told = (record.generation, record.phase, record.total)
        drives = (record.driver, record.capacity) if run.gauge else ()
        line = [f"{record.t:.3f}", *host, *told, *gpu, *drives]
        writer.writerow("" if cell is None else cell for cell in line)
    return text.getvalue()
