"""The examinations of a process in order, and the growth of their figures from one to the next."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter, mul

from memwatch.core.events import Diagnosed
from memwatch.core.examination import LOCAL_VARIABLE_PREFIX, Census, Diagnose, ExaminationRow, Finding, Growth
from memwatch.core.robust_statistics import median

MAX_ROW_NAMES = 8  # Types, and attributes, in each row of the table of examinations (chosen for its width).
FIRST_RECORDS_KEPT, LATEST_RECORDS_KEPT = 2, 8  # Examinations that are kept: a bound on memory.
INTERVALS_KEPT, READINGS_KEPT = 40, 256  # Intervals between examinations, and readings of memory: bounds on memory.
MIN_STEPS = 2  # A figure grows when it rose in at least so many examinations in a row (chosen).
MAX_RATE_RATIO = 4.0  # A rise that differs from the median by more than this factor ends the growth (chosen).
# Growth that was just seen, and is below this share of its mean now, may end soon (chosen: by halves, it does).
SLOWED = 0.5
MAX_UNEXPLAINED = 0.4  # Share of an attribute's squared growth that its phase may leave unexplained (chosen).
PHASE_ODDS = 20.0  # How much likelier the named phase is than any other (chosen: an error in twenty).
POSITION_SECONDS = 2.0  # A log and a heap are each read once a second or so: their moments differ by up to this much.
AT_START = 0.2  # An examination within this share of a generation counts for its start (chosen).
COMPARABLE_REASONS = ("generation", "time")  # Examinations for these reasons come at like points and are compared.
HOUR = 3600.0
FILLS_SHARE = 2.0  # Arrays fill if so many times more comes into memory than is added to their sizes (chosen).
SHORT_SECONDS = 60.0  # Growth in so long is what a threshold is for where generations are shorter (chosen).
_SIZED, _COUNTED = attrgetter("position"), attrgetter("counted_position")  # of a record: where its figures stand


@dataclass(frozen=True, slots=True)
class ExaminationRecord:
    """One examination with a census, its figures by name."""

    t: float  # at which the heap was read
    reason: str
    generation: float | None
    phase: str | None  # under way
    position: float  # the generation in which sizes were read; without generations hours since the watch began
    counted_position: float  # the same when the objects were counted: a throttled examination takes minutes
    used_bytes: int | None  # of main memory, when the heap was read
    least_bytes: int  # of main memory during the examination; 0: not known
    most_bytes: int
    counts: Mapping[str, int]  # objects, by type
    sizes: Mapping[str, int]  # bytes of them, by type
    containers: Mapping[str, int]  # bytes, by attribute
    container_counts: Mapping[str, int]  # how many there are, by attribute
    items: Mapping[str, tuple[int, int | None]]  # number and capacity, by attribute
    tracked: Mapping[str, str]  # attributes in full, by the paths that the user gave
    path_counts: Mapping[tuple[str, str], int]  # objects, by type and path
    filled: Mapping[str, tuple[int, int]]  # arrays: resident and all bytes, by path
    kinds: Mapping[str, int]  # resident bytes, by kind of memory
    with_graph: int | None  # tensors that keep their autograd graph
    graph_paths: tuple[str, ...]  # names that lead to such a tensor
    graph_depths: Mapping[str, int]  # nodes on the longest way through the graph, by the name that leads to the tensor
    collector_enabled: bool | None  # the garbage collector runs by itself; None: not known
    gpu_bytes: int | None  # used on all GPUs
    on_gpu: int  # bytes of torch's storages there
    asked_bytes: int | None  # of main memory, when the examination was asked for
    cow_bytes: int  # copied by forked workers until then

    @property
    def heap_bytes(self) -> int:
        """Bytes of all Python objects."""
        return sum(self.sizes.values())

    @property
    def resident_bytes(self) -> int:
        """Resident bytes of this process alone, of all kinds; 0: not known."""
        return sum(self.kinds.values())


@dataclass(frozen=True, slots=True)
class ExaminationInterval:
    """Growth between two examinations."""

    memory: Mapping[tuple[str, ...], float]  # bytes by which memory grew, by the phases of which one was under way
    grown: Mapping[str, int]  # bytes by which an attribute grew


@dataclass(frozen=True, slots=True)
class FreedObjects:
    """Python objects that were freed between two examinations."""

    since: float  # position of the former
    units: float  # from there to the latter; 0 within a generation
    bytes: int
    kept_bytes: int  # of these, at least, by which memory did not fall


class ExaminationHistory:
    """The examinations of one process."""

    def __init__(
        self, began_t: float, wanted: Iterable[str] = (), *, of_names: bool = False, of_worker: bool = False
    ) -> None:
        """`wanted`: the paths of attributes that the user tracks; `of_names`: each record is of what names lead to;
        `of_worker`: the process is a worker, and its own memory counts, not that of the job.
        """
        self._of_worker = of_worker
        self._began_t, self._wanted = began_t, frozenset(wanted)
        self._compares_all = of_names  # what names hold is not what comes and goes within a generation
        self.required_rises = MIN_STEPS  # in a row, before a figure grows
        self.records: list[ExaminationRecord] = []  # oldest first: the first few, and the latest
        # Main memory as a phase begins and during examinations: time, phases, bytes; and when a generation begins.
        self._readings: deque[tuple[float, tuple[str, ...], int]] = deque(maxlen=READINGS_KEPT)
        self._generation_starts: deque[tuple[float, float]] = deque(maxlen=READINGS_KEPT)
        self._intervals: deque[ExaminationInterval] = deque(maxlen=INTERVALS_KEPT)
        self._freed: deque[FreedObjects] = deque(maxlen=INTERVALS_KEPT)

    def add_phase_reading(self, t: float, used_bytes: int, *phases: str) -> None:
        """Add main memory as a phase begins, during an examination, or once after it.

        `phases` are those until the next reading: none, one, or where it changes all that it may be.
        """
        self._readings.append((t, phases, used_bytes))

    def begin_generation(self, t: float, generation: float) -> None:
        """A generation begins at this time: not one that had begun before the watch."""
        self._generation_starts.append((t, generation))
        if len(self._generation_starts) == 2 and self.records:
            self._correct_first_positions()

    def add(self, event: Diagnosed, of_names: bool = False) -> bool:
        """Add a record of an examination's census of the heap, or of names; False when it cannot be compared.

        An incomplete census, or one without all sizes, is not: a missing figure would look like a fall. Nor are names
        that were read before those of the latest look: with a whole heap, which has taken longer than looks beside it.
        """
        found = event.found
        census, after_seconds = (
            (found.names, found.names_after_seconds) if of_names else (found.census, found.after_seconds)
        )
        if census is None or not census.complete or any(found.bytes is None for found in census.types):
            return False
        record = self._record(event, census, event.asked.t + after_seconds)
        if of_names and self.records and record.t < self.latest_t:
            return False
        if self.records:
            before = self.records[-1]
            self._intervals.append(self._interval(before, record))
            freed = before.heap_bytes - record.heap_bytes
            if freed > 0 and before.used_bytes is not None and record.used_bytes is not None:
                # A lower bound, because memory may have been read before the objects were freed.
                kept = freed - max(0, before.most_bytes - record.least_bytes)
                self._freed.append(FreedObjects(before.position, record.position - before.position, freed, kept))
        self.records.append(record)
        if len(self.records) > FIRST_RECORDS_KEPT + LATEST_RECORDS_KEPT:
            del self.records[FIRST_RECORDS_KEPT]
        return True

    def _record(self, event: Diagnosed, census: Census, ended_t: float) -> ExaminationRecord:
        asked, read_t = event.asked, ended_t
        if not self._of_worker:  # its memory was read at the end
            read_t -= census.measuring_seconds
        sized = [attribute for attribute in (*census.tracked, *census.containers) if attribute.bytes is not None]
        used = [used for t, _, used in self._readings if t >= asked.t]
        used += [asked.used_bytes] if asked.used_bytes is not None else []
        filled: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for large in census.large:
            if large.resident_bytes is not None and large.path:
                filled[large.path] += large.resident_bytes
                sizes[large.path] += large.bytes
        path_counts: Counter[tuple[str, str]] = Counter()
        for holder in census.holders:
            path_counts[holder.type, holder.path] += holder.count
        kinds = {kind.kind: kind.resident_bytes for kind in event.found.kinds or ()}
        own = sum(kinds.values()) or None
        if self._of_worker:
            used = [] if own is None else [own]
        return ExaminationRecord(
            t=read_t,
            reason=asked.reason,
            generation=asked.generation,
            phase=asked.phase,
            position=self._position(asked, read_t),
            counted_position=self._position(asked, ended_t - census.sizing_seconds),
            used_bytes=own if self._of_worker else self._used_at(asked, read_t),
            least_bytes=min(used, default=0),
            most_bytes=max(used, default=0),
            counts={found.type: found.count for found in census.types},
            sizes={found.type: found.bytes or 0 for found in census.types},
            containers={found.full or found.path: found.bytes or 0 for found in sized},
            container_counts={found.full or found.path: found.objects for found in sized},
            items={
                found.full or found.path: (found.items, found.capacity) for found in sized if found.items is not None
            },
            tracked={found.path: found.full or found.path for found in census.tracked},
            path_counts=path_counts,
            filled={path: (there, sizes[path]) for path, there in filled.items()},
            kinds=kinds,
            with_graph=census.tensors_with_graph,
            graph_paths=census.graph_paths,
            graph_depths={found.path: found.nodes for found in census.graph_depths},
            collector_enabled=census.collector_enabled,
            gpu_bytes=asked.gpu_bytes,
            on_gpu=sum(storage.bytes for storage in census.storages if storage.device.startswith("cuda")),
            asked_bytes=own if self._of_worker else asked.used_bytes,
            cow_bytes=0 if self._of_worker else asked.cow_bytes,
        )

    def _position(self, asked: Diagnose, read_t: float) -> float:
        """Return the position at which the heap was read, with the part of the generation that was over."""
        if asked.generation is None:
            return (read_t - self._began_t) / HOUR
        starts = [start for start in self._generation_starts if start[0] <= read_t]
        if not starts:
            return asked.generation
        (t, generation), (before_t, before) = starts[-1], starts[-2] if len(starts) > 1 else starts[-1]
        is_exact = self._compares_all or asked.reason in COMPARABLE_REASONS
        if not is_exact or t <= before_t or generation <= before:
            return generation
        return _position_within(generation, generation - before, (read_t - t) / (t - before_t))

    def _correct_first_positions(self) -> None:
        """Correct positions within a first generation that had begun before the watch, by how long the next took."""
        (began, index), (ended, following) = self._generation_starts
        if not (began < ended and index < following):
            return
        per_second = (following - index) / (ended - began)
        for i, record in enumerate(self.records):
            if record.generation is None or not (record.t < began and record.generation < index):
                continue
            step = index - record.generation
            over = 1.0 - per_second * (began - record.t) / step
            position = _position_within(record.generation, step, over)
            counted = position - (record.position - record.counted_position)
            self.records[i] = replace(record, position=position, counted_position=counted)

    def _used_at(self, asked: Diagnose, read_t: float) -> int | None:
        """Return main memory when the heap was read: between two samples, on the line through them."""
        known = sorted((t, used) for t, _, used in self._readings if t > asked.t)
        if asked.used_bytes is None:
            return next((used for t, used in known if t >= read_t), None)
        t, used = asked.t, asked.used_bytes
        for later_t, later in known:
            if later_t >= read_t:
                return used + int((later - used) * (read_t - t) / (later_t - t))
            t, used = later_t, later
        return used

    def _interval(self, before: ExaminationRecord, after: ExaminationRecord) -> ExaminationInterval:
        memory: dict[tuple[str, ...], float] = defaultdict(float)
        for (t, phases, used), (next_t, _, later) in pairwise(self._readings):
            inside = min(next_t, after.t) - max(t, before.t)
            if inside > 0.0:
                memory[phases] += (later - used) * inside / (next_t - t)
        both = before.containers.keys() & after.containers.keys()  # An unlisted attribute has an unknown size.
        return ExaminationInterval(memory, {name: after.containers[name] - before.containers[name] for name in both})

    def phase_of(self, path: str) -> str | None:
        """Return the phase whose growth of memory fits that of the attribute best; None where no phase clearly does.

        Memory may grow so close to a change of phases that either may be meant: `evolve or evaluate`.
        """
        intervals = [interval for interval in self._intervals if path in interval.grown]
        grown = [interval.grown[path] for interval in intervals]
        labels = sorted({phases for interval in intervals for phases in interval.memory if phases})
        unexplained = {
            phases: _residual_squares(grown, [i.memory.get(phases, 0.0) for i in intervals]) for phases in labels
        }
        best = min(unexplained, key=unexplained.__getitem__, default=())
        if not best or unexplained[best] > MAX_UNEXPLAINED * sum(value**2 for value in grown):
            return None
        # of normal residuals, with a degree of freedom for the slope
        at_most = unexplained[best] * PHASE_ODDS ** (2.0 / max(1, len(grown) - 1))
        likely = [phases for phases in labels if unexplained[phases] <= at_most]
        return " or ".join([phase for phase in best if all(phase in phases for phases in likely)]) or None

    def rows(
        self, findings: Sequence[Finding], containers: Sequence[Growth], types: Sequence[Growth]
    ) -> tuple[ExaminationRow, ...]:
        """Return a row for each record, with the attributes and types that grow, those of findings first."""
        paths = [*(finding.growth.name for finding in findings), *(growth.name for growth in containers)]
        names = [*(finding.type for finding in findings if finding.type), *(growth.name for growth in types)]
        paths, names = ([*dict.fromkeys(known)][:MAX_ROW_NAMES] for known in (paths, names))
        return tuple(
            ExaminationRow(
                t=record.t,
                reason=record.reason,
                generation=record.generation,
                phase=record.phase,
                used_bytes=record.used_bytes,
                python_bytes=record.heap_bytes,
                objects=sum(record.counts.values()),
                counts={name: record.counts.get(name, 0) for name in names},
                sizes={name: record.containers[name] for name in paths if name in record.containers},
            )
            for record in self.records
        )

    @property
    def comparable(self) -> list[ExaminationRecord]:
        """The records at like points, by generation or by time."""
        if self._compares_all and self.records and self.records[-1].generation is not None:
            # one of each generation: within one, memory may grow in one phase and stand in another
            by_generation = {int(one.generation): one for one in self.records if one.generation is not None}
            return list(by_generation.values())
        usable = [record for record in self.records if record.reason in COMPARABLE_REASONS]
        return [record for record in usable if record.reason == usable[-1].reason]

    @property
    def has_seen_within(self) -> bool:
        """Whether an examination within a generation, where temporary objects are alive, was followed by another."""
        stride, pairs = self.stride, pairwise(self.records)
        return any(a.reason not in COMPARABLE_REASONS and b.position - a.position <= stride for a, b in pairs)

    @property
    def freed_within_generation(self) -> list[FreedObjects]:
        """Objects freed within a generation: over several, growth hides whether memory fell with them."""
        stride = self.stride
        return [freed for freed in self._freed if freed.units <= stride]

    @property
    def stride(self) -> float:
        """The least difference of two generations: 1, or thousands where the program counts steps."""
        if not self.comparable or self.comparable[-1].generation is None:
            return 1.0
        generations = [record.generation for record in self.comparable if record.generation is not None]
        return min((b - a for a, b in pairwise(generations) if b > a), default=1.0)

    def per_unit(self, threshold_bytes: float) -> float:
        """Return what a threshold for a generation (or hour), or a longer SHORT_SECONDS, comes to per unit."""
        records = self.comparable
        units = records[-1].position - records[0].position if records else 0.0
        seconds = (records[-1].t - records[0].t) / units if units > 0.0 else math.inf
        return threshold_bytes * min(1.0 / self.stride, seconds / SHORT_SECONDS)

    def record_at(self, position: float) -> ExaminationRecord:
        return next(record for record in reversed(self.comparable) if record.position == position)

    def seconds_per_unit(self, since: float) -> float:
        """Return how long a generation (or hour) took from an examination at the position `since` to the latest."""
        first, latest = self.record_at(since), self.comparable[-1]
        return (latest.t - first.t) / (latest.position - first.position)

    @property
    def _slack(self) -> float:
        """By how much a position may be wrong, in units: where these take seconds, that is a unit or two."""
        records = self.comparable
        units = records[-1].position - records[0].position if records else 0.0
        return POSITION_SECONDS / ((records[-1].t - records[0].t) / units) if units > 0.0 else 0.0

    def risen_paths(self, type_: str) -> dict[str, int]:
        """Return by how much the objects of a type became more, by the paths to them.

        That is between the first and the latest examination that has looked for these; none where one alone has.
        """
        counts = [{p: n for (kind, p), n in record.path_counts.items() if kind == type_} for record in self.comparable]
        known = [paths for paths in counts if paths]
        return {path: n - known[0].get(path, 0) for path, n in known[-1].items()} if len(known) > 1 else {}

    def held_since(self, position: float) -> int:
        """Return the most bytes by which an attribute grew since a position, even if in one step only."""
        first, latest = self.record_at(position).containers, self.comparable[-1].containers
        return max((size - first[path] for path, size in latest.items() if path in first), default=0)

    def has_halved(self, name: str) -> bool:
        """Whether an attribute was once less than half of what it was before: it is emptied, or made anew.

        A local variable that is not there takes nothing; of another name, nothing is known.
        """
        absent = 0 if name.startswith(LOCAL_VARIABLE_PREFIX) else None
        sizes = (record.containers.get(name, absent) for record in self.records)
        return any(2 * after < before for before, after in pairwise(size for size in sizes if size is not None))

    def tracked(self) -> list[Growth]:
        """Return the attributes that the user tracks and that exist, whether they grow or not."""
        found = []
        for asked, name in self.comparable[-1].tracked.items() if self.comparable else ():
            points = [
                (record.position, record.containers[name]) for record in self.comparable if name in record.containers
            ]
            if asked in self._wanted and points:
                (first_x, first), (x, latest) = points[0], points[-1]
                flat = Growth(name, first, latest, (latest - first) / (x - first_x) if x > first_x else 0.0, first_x, 0)
                found.append(trailing_growth(name, points, self._slack, self.required_rises) or flat)
        return found

    @property
    def latest_t(self) -> float:
        return self.records[-1].t if self.records else -math.inf

    def memory_growth(self) -> Growth | None:
        """Return the growth of main memory; None where it was only just seen, and slows: as a program's start ends.

        An allocator rests between two rises: where memory rose several times, one look without a rise is not its end.
        """
        used = [(_SIZED(record), record.used_bytes) for record in self.comparable if record.used_bytes is not None]
        found = trailing_growth("memory", used, self._slack, self.required_rises)
        if found is None:
            found = trailing_growth("memory", [*used[:-2], *used[-1:]], self._slack, self.required_rises)
            return found if found is not None and found.steps > MIN_STEPS else None
        if found.steps > MIN_STEPS:
            return found
        before, latest = self.comparable[-2:]
        if before.used_bytes is None or latest.used_bytes is None or latest.position <= before.position:
            return found
        rate = (latest.used_bytes - before.used_bytes) / (latest.position - before.position)
        return found if rate >= SLOWED * found.per_unit else None

    def growth(
        self,
        name: str,
        value: Callable[[ExaminationRecord], int | None],
        position: Callable[[ExaminationRecord], float] = _SIZED,
    ) -> Growth | None:
        """Return the growth of a single figure, which gets this name; None where it does not grow."""
        points = ((position(record), value(record)) for record in self.comparable)
        known = [(x, figure) for x, figure in points if figure is not None]
        return trailing_growth(name, known, self._slack, self.required_rises)

    def heap_growth(self) -> Growth | None:
        """Return the growth of the bytes of all Python objects."""
        return self._since_record(self.growth("heap", lambda record: record.heap_bytes, _COUNTED))

    def _since_record(self, growth: Growth | None) -> Growth | None:
        """Return growth by the positions at which objects were counted, with the position of the record it is since."""
        if growth is None:
            return None
        return replace(
            growth, since=next(one.position for one in self.comparable if one.counted_position == growth.since)
        )

    # --- growth of named figures, the fastest first ---

    def growing_attributes(self) -> list[Growth]:
        if not self._compares_all:
            return self.growing(lambda record: record.containers)
        item_bytes = self._item_bytes()

        def sizes(record: ExaminationRecord) -> dict[str, int]:
            counted = item_bytes.keys() & record.items.keys() & record.containers.keys()
            return {**record.containers, **{path: int(record.items[path][0] * item_bytes[path]) for path in counted}}

        return self.growing(sizes)

    def _item_bytes(self) -> dict[str, float]:
        """Return how large an item of each container is whose items become more.

        Each look estimates that from other items: the median of all tells growth better than each by itself.
        """
        counts, sizes = defaultdict[str, list[int]](list), defaultdict[str, list[float]](list)
        for record in self.comparable:
            for path, (items, _) in record.items.items():
                if items and path in record.containers:
                    counts[path].append(items)
                    sizes[path].append(record.containers[path] / items)
        return {path: median(sizes[path]) for path, found in counts.items() if found[-1] > found[0]}

    def filling_arrays(self) -> list[Growth]:
        """Return the arrays of which more is in memory, not because there are more or larger ones."""
        found = self.growing(lambda record: {path: resident for path, (resident, _) in record.filled.items()})
        allocated = [(growth, self._allocated_since(growth)) for growth in found]
        return [growth for growth, added in allocated if growth.risen >= FILLS_SHARE * added]

    def _allocated_since(self, growth: Growth) -> int:
        """Return the bytes by which the arrays at a path became larger since their growth began."""
        before = self.record_at(growth.since).filled.get(growth.name, (0, 0))
        return self.comparable[-1].filled[growth.name][1] - before[1]

    def types_growing_in_count(self) -> list[Growth]:
        return self._growing_types(lambda record: record.counts)

    def types_growing_in_size(self) -> list[Growth]:
        return self._growing_types(lambda record: record.sizes)

    def _growing_types(self, named: Callable[[ExaminationRecord], Mapping[str, int]]) -> list[Growth]:
        return list(filter(None, map(self._since_record, self.growing(named, _COUNTED))))

    def deepening_graphs(self) -> list[Growth]:
        """Return by how many steps graphs became deeper, at whatever point of a generation they were read."""
        known = [(_SIZED(record), record.graph_depths) for record in self.records]
        latest = self.records[-1].graph_depths if self.records else {}
        found = (trailing_growth(path, _figures(path, known), self._slack) for path in latest)
        return [growth for growth in found if growth is not None]

    def growing_kinds(self) -> list[Growth]:
        return self.growing(lambda record: record.kinds)

    def growing(
        self,
        named: Callable[[ExaminationRecord], Mapping[str, int]],
        position: Callable[[ExaminationRecord], float] = _SIZED,
    ) -> list[Growth]:
        """Return the growth of the figures that a record names."""
        known, slack = [(position(record), named(record)) for record in self.comparable], self._slack
        if len(known) <= self.required_rises:
            return []
        found, ((before_x, before), (x, latest)) = [], known[-2:]
        for name, value in latest.items():
            if x > before_x and value <= before.get(name, -1):
                continue  # most of thousands of names, soon
            points = _figures(name, known)
            if (growth := trailing_growth(name, points, slack, self.required_rises)) is not None:
                found.append(growth)
        return sorted(found, key=lambda growth: -growth.per_unit)


def _figures(name: str, known: Sequence[tuple[float, Mapping[str, int]]]) -> list[tuple[float, int]]:
    """Return the positions and values of a named figure.

    It counts as 0 before it is first seen; where it is missing later, it was not found, and is not known, nor whether
    it was there before. A local variable that is missing is not there, and begins anew when it comes: its function has
    ended.
    """
    if name.startswith(LOCAL_VARIABLE_PREFIX):
        begun = max((i + 1 for i, (_, figures) in enumerate(known) if name not in figures), default=0)
        return [(position, figures[name]) for position, figures in known[begun:]]
    first = next(i for i, (_, figures) in enumerate(known) if name in figures)
    seen = [(position, figures[name]) for position, figures in known[first:] if name in figures]
    unseen = [(position, 0) for position, _ in known[:first]]
    return [*unseen, *seen] if len(seen) == len(known) - first else seen


def _position_within(generation: float, step: float, over: float) -> float:
    """Return the position in a generation of which this share is over; `step`: from there to the next."""
    over = min(0.99, over)
    return generation if over < AT_START else round(generation + over * step, 2)


def trailing_growth(
    name: str, points: Sequence[tuple[float, int]], slack: float = 0.0, required_rises: int = MIN_STEPS
) -> Growth | None:
    """Return the growth at the end of a series of (position, value): consecutive rises at rates that are alike.

    `slack`: by how much the distance of two positions may be wrong; so close together, values may be equal.
    """
    points = list(dict(points).items())  # the latest value at each position
    rates: list[float] = []
    start = (0.0, 0)
    for (x, after), (before_x, before) in pairwise(reversed(points)):
        distance, rise = x - before_x, after - before
        if distance <= 0.0 or rise < 0 or (rise == 0 and not (rates and distance <= slack)):
            break
        usual = median(rates, default=rise / distance)
        highest = rise / (distance - slack) if distance > slack else math.inf
        if rise / (distance + slack) > usual * MAX_RATE_RATIO or highest < usual / MAX_RATE_RATIO:
            break
        if rise > 0:
            rates.append(rise / distance)
            start = before_x, before
    if len(rates) < required_rises:
        return None
    (first_x, first), (latest_x, latest) = start, points[-1]
    return Growth(name, first, latest, (latest - first) / (latest_x - first_x), first_x, len(rates))


def _residual_squares(values: Sequence[int], x: Sequence[float]) -> float:
    """Return the residual sum of squares of a line through the origin with a slope of at least 0."""
    square = sum(map(mul, x, x))
    slope = max(0.0, sum(map(mul, x, values)) / square) if square else 0.0
    return sum((value - slope * at) ** 2 for value, at in zip(values, x, strict=True))
