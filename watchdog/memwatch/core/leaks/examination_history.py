"""What examinations showed, one after the other, and what has risen from each to the next."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import mul

from memwatch.core.events import Diagnose, Diagnosed
from memwatch.core.examination import Census, ExaminationRow, Finding, Growth
from memwatch.core.robust_statistics import median

MAX_ROW_NAMES = 8  # types, and attributes, that are told of at each of them
FIRST_RECORDS_KEPT, LATEST_RECORDS_KEPT = 2, 8  # examinations that are kept
STEPS_LEAST = 2  # examinations one after the other in which something rose, before it is said to grow
MAX_RATE_RATIO = 4.0  # a rise that is so many times less or more than the usual one is none of the same
UNEXPLAINED = 0.4  # of the squares of an attribute's growth, at most, that memory's growth in a phase leaves open ...
CLEARLY = 0.6  # ... and of what that in any other phase does
STRETCHES, READINGS = 40, 256  # between two examinations, and of memory, that are kept
COMPARABLE_REASONS = ("generation", "time")  # reasons of the examinations that are compared: they come at like moments
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class ExaminationRecord:
    """One examination with a census, by name."""

    t: float  # at which the heap was read
    reason: str
    generation: float | None
    phase: str | None  # that had begun
    position: float  # the generation in which the heap was read; hours since the watch began, where there are none
    used_bytes: int | None  # of main memory: as that generation began, where generations are compared
    least_bytes: int  # of it, while this went on; 0: not known
    most_bytes: int
    counts: Mapping[str, int]  # objects, by type
    sizes: Mapping[str, int]  # bytes of them, by type
    containers: Mapping[str, int]  # bytes, by attribute
    items: Mapping[str, tuple[int, int | None]]  # how many there are and may be, by attribute
    tracked: Mapping[str, str]  # attributes in full, by what they were asked for as
    path_counts: Mapping[tuple[str, str], int]  # objects, by type and way
    filled: Mapping[str, tuple[int, int]]  # arrays: bytes in memory, and all; by path
    kinds: Mapping[str, int]  # resident bytes, by kind of memory
    with_graph: int | None
    gpu_bytes: int | None  # used on all GPUs
    on_gpu: int  # bytes of torch's storages there
    cow_bytes: int  # copied by forked workers, so far

    @property
    def heap_bytes(self) -> int:
        """Of all Python objects."""
        return sum(self.sizes.values())


@dataclass(frozen=True, slots=True)
class ExaminationInterval:
    """From one examination to the next."""

    memory: Mapping[str, float]  # bytes that it grew by, by phase
    grown: Mapping[str, int]  # bytes that an attribute grew by


@dataclass(frozen=True, slots=True)
class FreedObjects:
    """What Python's objects left from one examination to the next."""

    since: float  # the place of the former
    units: float  # from there to the latter; 0 within a generation
    bytes: int
    kept_bytes: int  # that memory did not fall by


class ExaminationHistory:
    """The examinations of one process."""

    def __init__(self, began_t: float, wanted: Iterable[str] = ()) -> None:
        """`wanted`: the paths of attributes that somebody wants to know of."""
        self._began_t, self._wanted = began_t, frozenset(wanted)
        self.records: list[ExaminationRecord] = []  # oldest first: the first few, and the latest
        self._readings: deque[tuple[float, str, int]] = deque(maxlen=READINGS)  # time, phase, main memory in use
        self._begun: deque[tuple[float, float, int]] = deque(maxlen=READINGS)  # time, generation, main memory in use
        self._stretches: deque[ExaminationInterval] = deque(maxlen=STRETCHES)
        self._gone: deque[FreedObjects] = deque(maxlen=STRETCHES)

    def add_phase_reading(self, t: float, phase: str, used_bytes: int) -> None:
        """Main memory when a phase began ("": none), while an examination goes on, and once after it."""
        self._readings.append((t, phase, used_bytes))

    def begin_generation(self, t: float, generation: float, used_bytes: int) -> None:
        """A generation has begun, with so much main memory in use."""
        self._begun.append((t, generation, used_bytes))

    def add(self, event: Diagnosed) -> bool:
        """An examination has ended: whether it is one of `shown` now.

        One without all sizes is not compared: what it lacks would look like a fall.
        """
        census = event.found.census
        if census is None or not census.complete or any(one.bytes is None for one in census.types):
            return False
        shown = self._read(event, census)
        if self.records:
            self._stretches.append(self._stretch(self.records[-1], shown))
            self._leave(self.records[-1], shown)
        self.records.append(shown)
        if len(self.records) > FIRST_RECORDS_KEPT + LATEST_RECORDS_KEPT:
            del self.records[FIRST_RECORDS_KEPT]
        return True

    def _read(self, event: Diagnosed, census: Census) -> ExaminationRecord:
        asked = event.asked
        sized = [one for one in (*census.tracked, *census.containers) if one.bytes is not None]
        used = [used for t, _, used in self._readings if t >= asked.t]
        used += [asked.used_bytes] if asked.used_bytes is not None else []
        read_t = asked.t + event.found.after_seconds
        place, level = self._beginning(asked, read_t)
        ways: Counter[tuple[str, str]] = Counter()
        for one in census.holders:
            ways[one.type, one.path] += one.count
        return ExaminationRecord(
            t=read_t,
            reason=asked.reason,
            generation=asked.generation,
            phase=asked.phase,
            position=place,
            used_bytes=level if asked.reason in COMPARABLE_REASONS else asked.used_bytes,
            least_bytes=min(used, default=0),
            most_bytes=max(used, default=0),
            counts={one.type: one.count for one in census.types},
            sizes={one.type: one.bytes or 0 for one in census.types},
            containers={one.full or one.path: one.bytes or 0 for one in sized},
            items={one.full or one.path: (one.items, one.capacity) for one in sized if one.items is not None},
            tracked={one.path: one.full or one.path for one in census.tracked},
            path_counts=ways,
            filled={
                one.path: (one.resident_bytes, one.bytes) for one in census.large if one.resident_bytes is not None
            },
            kinds={one.kind: one.resident_bytes for one in event.found.kinds or ()},
            with_graph=census.tensors_with_graph,
            gpu_bytes=asked.gpu_bytes,
            on_gpu=sum(one.bytes for one in census.storages if one.device.startswith("cuda")),
            cow_bytes=asked.cow_bytes,
        )

    def _beginning(self, asked: Diagnose, read_t: float) -> tuple[float, int | None]:
        """The place at which the heap was read, and main memory in use as that began."""
        if asked.generation is None:
            return (asked.t - self._began_t) / HOUR, asked.used_bytes
        earlier = ((generation, used) for t, generation, used in reversed(self._begun) if t <= read_t)
        return next(earlier, (asked.generation, asked.used_bytes))

    def _leave(self, before: ExaminationRecord, after: ExaminationRecord) -> None:
        """Memory may have been read before objects went: what is kept is told at the least."""
        if before.used_bytes is None or after.used_bytes is None:
            return
        size = before.heap_bytes - after.heap_bytes
        if size > 0:
            kept = size - max(0, before.most_bytes - after.least_bytes)
            self._gone.append(FreedObjects(before.position, after.position - before.position, size, kept))

    def _stretch(self, before: ExaminationRecord, after: ExaminationRecord) -> ExaminationInterval:
        """From one examination to the next."""
        memory: dict[str, float] = defaultdict(float)
        for (t, phase, used), (next_t, _, later) in pairwise(self._readings):
            inside = min(next_t, after.t) - max(t, before.t)
            if inside > 0.0:
                memory[phase] += (later - used) * inside / (next_t - t)
        told = before.containers.keys() & after.containers.keys()  # of another one the size at that moment is not known
        return ExaminationInterval(memory, {name: after.containers[name] - before.containers[name] for name in told})

    def phase_of(self, path: str) -> str | None:
        """The phase in which memory grows as the attribute does; None where examinations do not tell them apart."""
        stretches = [one for one in self._stretches if path in one.grown]
        grown = [one.grown[path] for one in stretches]
        phases = sorted({phase for one in stretches for phase in one.memory if phase})
        off = sorted((_left(grown, [one.memory.get(phase, 0) for one in stretches]), phase) for phase in phases)
        if not off or off[0][0] > UNEXPLAINED * sum(value**2 for value in grown):
            return None
        return off[0][1] if len(off) == 1 or off[0][0] < CLEARLY * off[1][0] else None

    def rows(
        self, findings: Sequence[Finding], containers: Sequence[Growth], types: Sequence[Growth]
    ) -> tuple[ExaminationRow, ...]:
        """All examinations that are kept, with attributes and types that grow, those that were found first."""
        paths = [*(one.growth.name for one in findings), *(one.name for one in containers)]
        names = [*(one.type for one in findings if one.type), *(one.name for one in types)]
        paths, names = ([*dict.fromkeys(known)][:MAX_ROW_NAMES] for known in (paths, names))
        return tuple(
            ExaminationRow(
                t=one.t,
                reason=one.reason,
                generation=one.generation,
                phase=one.phase,
                used_bytes=one.used_bytes,
                python_bytes=one.heap_bytes,
                objects=sum(one.counts.values()),
                counts={name: one.counts.get(name, 0) for name in names},
                sizes={name: one.containers[name] for name in paths if name in one.containers},
            )
            for one in self.records
        )

    @property
    def comparable(self) -> list[ExaminationRecord]:
        """Those that are compared: at like moments, of one axis."""
        usable = [one for one in self.records if one.reason in COMPARABLE_REASONS]
        return [one for one in usable if one.reason == usable[-1].reason]

    @property
    def has_seen_within(self) -> bool:
        """Examinations were made within a generation, where objects are that are gone at its end, and after that."""
        stride, pairs = self.stride, pairwise(self.records)
        return any(
            one.reason not in COMPARABLE_REASONS and later.position - one.position <= stride for one, later in pairs
        )

    @property
    def freed_within_generation(self) -> list[FreedObjects]:
        """What objects left within a generation: over several, what memory grew by hides whether it was kept."""
        stride = self.stride
        return [one for one in self._gone if one.units <= stride]

    @property
    def stride(self) -> float:
        """From one generation to the next, as the program counts: 1, or thousands where it counts steps."""
        if not self.comparable or self.comparable[-1].generation is None:
            return 1.0
        places = [one.position for one in self.comparable]
        return min((b - a for a, b in pairwise(places) if b > a), default=1.0)

    def memory_growth(self) -> Growth | None:
        """The growth of all memory in use."""
        return self._growth("memory", lambda one: one.used_bytes)

    def python_heap_growth(self) -> Growth | None:
        """The growth of all Python objects together."""
        return self._growth("heap", lambda one: one.heap_bytes)

    def graph_tensor_growth(self) -> Growth | None:
        """Tensors that keep the graph of their making."""
        return self._growth("tensors", lambda one: one.with_graph)

    def gpu_growth(self) -> Growth | None:
        """The growth of what is used on all GPUs."""
        return self._growth("gpu", lambda one: one.gpu_bytes)

    def gpu_tensor_growth(self) -> Growth | None:
        """The growth of torch's tensors there."""
        return self._growth("cuda", lambda one: one.on_gpu)

    def record_at(self, place: float) -> ExaminationRecord:
        """Of those that are compared, the one at a place where something began to grow."""
        return next(one for one in reversed(self.comparable) if one.position == place)

    def growing_attributes(self) -> list[Growth]:
        """Attributes that hold more and more bytes; one that was not told of held too little for that."""
        return self._risen(lambda one: one.containers)

    def held_since(self, place: float) -> int:
        """What an attribute holds more of than at that place, at the most: it may have risen in one step alone."""
        first, latest = self.record_at(place).containers, self.comparable[-1].containers
        return max((size - first[path] for path, size in latest.items() if path in first), default=0)

    def tracked(self) -> list[Growth]:
        """Attributes that somebody wants to know of, whether they grow or not; without those that are not there."""
        found = []
        for asked, name in self.comparable[-1].tracked.items() if self.comparable else ():
            points = [(one.position, one.containers[name]) for one in self.comparable if name in one.containers]
            if asked in self._wanted and points:
                (first_x, first), (x, latest) = points[0], points[-1]
                flat = Growth(name, first, latest, (latest - first) / (x - first_x) if x > first_x else 0.0, first_x, 0)
                found.append(trailing_growth(name, points) or flat)
        return found

    def filling_arrays(self) -> list[Growth]:
        """Arrays of which more and more is in memory."""
        return self._risen(lambda one: {path: resident for path, (resident, _) in one.filled.items()})

    def types_growing_in_count(self) -> list[Growth]:
        """Types that there are more and more objects of."""
        return self._risen(lambda one: one.counts)

    def types_growing_in_bytes(self) -> list[Growth]:
        """Types whose objects take more and more bytes."""
        return self._risen(lambda one: one.sizes)

    def kinds(self) -> list[Growth]:
        """Kinds of memory that grow."""
        return self._risen(lambda one: one.kinds)

    def _risen(self, named: Callable[[ExaminationRecord], Mapping[str, int]]) -> list[Growth]:
        spaced = self.comparable
        found = []
        for name in named(spaced[-1]) if spaced else ():
            growth = trailing_growth(name, [(one.position, named(one).get(name, 0)) for one in spaced])
            if growth is not None:
                found.append(growth)
        return sorted(found, key=lambda one: -one.per_unit)

    def _growth(self, name: str, value: Callable[[ExaminationRecord], int | None]) -> Growth | None:
        return trailing_growth(
            name, [(one.position, known) for one in self.comparable if (known := value(one)) is not None]
        )


def trailing_growth(name: str, points: Sequence[tuple[float, int]]) -> Growth | None:
    """The growth at the end of a series (places in order, values): it rose in each step, by amounts that are alike."""
    points = list(dict(points).items())  # of one place, the latest
    rates: list[float] = []
    for (x, before), (later_x, after) in pairwise(reversed(points)):
        rate = (before - after) / (x - later_x) if x > later_x else 0.0
        usual = median(rates, default=rate)
        if rate <= 0.0 or not usual / MAX_RATE_RATIO <= rate <= usual * MAX_RATE_RATIO:
            break
        rates.append(rate)
    if len(rates) < STEPS_LEAST:
        return None
    (first_x, first), (latest_x, latest) = points[-1 - len(rates)], points[-1]
    return Growth(name, first, latest, (latest - first) / (latest_x - first_x), first_x, len(rates))


def _left(values: Sequence[int], x: Sequence[float]) -> float:
    """The sum of squares that a line through the origin leaves."""
    square = sum(map(mul, x, x))
    slope = max(0.0, sum(map(mul, x, values)) / square) if square else 0.0
    return sum((value - slope * at) ** 2 for value, at in zip(values, x, strict=True))
