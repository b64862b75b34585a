"""Attributes growth of memory: to attributes of the program, with the gauges that count them, and to its code."""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from memwatch.core.examination import (
    ARRAY_TYPES,
    CYCLES_HOLDER_PREFIX,
    LRU_ITEM,
    TENSORS,
    Census,
    Growth,
    GrowthDriver,
    LargeObject,
    LineGrowth,
    StackFrame,
    StackGrowth,
)
from memwatch.core.leaks.examination_history import ExaminationHistory, ExaminationRecord
from memwatch.core.measurements import Neighbours
from memwatch.core.robust_statistics import straight_line
from memwatch.core.snapshot import Gauge, NeighbourGrowth
from memwatch.core.text_and_units import without_main_module

MAX_ARRAYS = 4  # Arrays, the largest, that are reported as they fill (chosen).
MIN_UNFILLED_BYTES = 1 << 20  # of an array that is said to fill (chosen)
MIN_GROWTH_SHARE = 0.05  # An attribute is reported from this share of the growth of memory on (chosen).
ALIKE = 0.5  # of the relative rise of bytes: objects that become more by less do not explain it (chosen)
MIN_RISE_OF_MEMORY = 0.25  # of the rise of an attribute: sizes by names are estimates, twice the truth and more (DEAP)
NONE = "NoneType"
IN_STEP = 0.1  # A gauge counts the items of an attribute if they differ by at most this share (chosen).

_BUFFER = re.compile(r"buffer|replay|memory|queue|cache|storage|pool|transitions|experience", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def _driver(
    level: Gauge, bytes_per_unit: float, r2: float, level_bytes: float, headroom_bytes: int | None, *, path: str = ""
) -> GrowthDriver:
    """Make a driver; `level_bytes`: memory that belongs to the level as it is now."""
    ahead = None if level.capacity is None else max(0.0, level.capacity - level.value)
    full = None if ahead is None else int(level_bytes + bytes_per_unit * ahead)
    limit = None if headroom_bytes is None else level.value + max(0, headroom_bytes) / bytes_per_unit
    return GrowthDriver(level.name, level.value, level.capacity, bytes_per_unit, r2, path, full, limit)


@dataclass(frozen=True, slots=True)
class DiagnosisContext:
    """The state of the watch beside its examinations."""

    unit: str  # "generation" as the log calls it, or "hour"
    headroom_bytes: int | None
    threshold_bytes: float  # per unit; less growth is no leak
    phase: str | None  # in which memory grows the most
    forecast_growth: float = 0.0  # of memory, bytes per unit; 0: not known
    gauges: Mapping[str, Gauge] = field(default_factory=dict)
    neighbours: NeighbourGrowth | None = None  # growth of main memory beside the trainer's own tree


@dataclass(frozen=True, slots=True)
class AttributeGrowth:
    """An attribute that grows, and the objects in it that become more."""

    growth: Growth  # bytes
    share: float  # of the growth of memory
    phase: str | None
    type: str  # of the objects that become more; empty: not known
    reference_path: str  # from the attribute to them
    before: int | None  # objects of that type, when the growth began
    after: int | None
    per_unit: float  # their growth in number per unit
    elsewhere: int  # of them that another attribute holds, too
    tensors_per_unit: float  # the growth in number of torch's tensors in it
    driver: GrowthDriver | None  # the level that counts its items
    gains_objects: bool  # more are in it; else the same ones became larger
    gains_items: bool  # it is a container that was there before, with more items
    was_full: bool  # since the growth began it has had as many items as it may have
    has_halved: bool  # at an earlier examination
    is_of_each_owner: bool  # more objects have one, none of them a larger one

    @property
    def name(self) -> str:
        """The attribute as users write it: ReplayBuffer.items."""
        return without_main_module(self.growth.name)


def attribute_growths(
    history: ExaminationHistory, context: DiagnosisContext, memory: Growth
) -> Iterator[AttributeGrowth]:
    """Yield the attributes whose growth is material or tracked, none nested in another, given that of all memory."""
    latest, least = history.comparable[-1], min_reported_growth(context, memory)
    wanted = {
        growth.name for growth in history.tracked() if growth.steps and growth.per_unit >= context.threshold_bytes
    }
    growths = _without_nested(history.growing_attributes(), latest)
    growths = [growth for growth in growths if growth.per_unit >= least or growth.name in wanted]
    growths = [growth for growth in growths if _is_within_memory(growth, history)]
    counted = _counted(history, context, growths)
    for growth in growths:
        first = next(record for record in history.comparable if record.position == growth.since)
        type_, path = _garbage(growth.name, latest) or _content(growth.name, first, latest)
        before, after = _count(type_, path, first), _count(type_, path, latest)
        risen = 0 if before is None or after is None else after - before
        level, (items_before, _) = _fill_level(growth.name, latest), first.items.get(growth.name, (0, None))
        items_after, capacity = latest.items.get(growth.name, (0, None))
        level = level if level is not None and level.value > items_before else _slots(growth.name, first, latest)
        yield AttributeGrowth(
            growth=growth,
            share=min(1.0, growth.per_unit / memory.per_unit),
            phase=history.phase_of(growth.name) or (context.phase if len(growths) == 1 else None),
            type=type_,
            reference_path=path,
            before=before,
            after=after,
            per_unit=risen / (latest.position - growth.since),
            elsewhere=max(
                (
                    n
                    for (kind, at), n in latest.path_counts.items()
                    if kind == type_ and at != path and not at.startswith(f"{type_}.")
                ),
                default=0,
            ),
            tensors_per_unit=(_tensors(growth.name, latest) - _tensors(growth.name, first))
            / (latest.position - growth.since),
            driver=counted.get(growth.name)
            or (None if level is None else _fill_driver(growth.name, level, latest, context)),
            gains_objects=_gains_objects(growth, first, latest),
            gains_items=items_after > items_before
            and (items_before > 0 or first.path_counts.get((type_, path), 0) > 0),
            was_full=capacity is not None and items_before >= capacity,
            has_halved=history.has_halved(growth.name),
            is_of_each_owner=_is_of_each_owner(growth.name, history.comparable),
        )


def min_reported_growth(context: DiagnosisContext, memory: Growth) -> float:
    """Return the bytes per unit from which growth is reported."""
    return max(context.threshold_bytes, MIN_GROWTH_SHARE * max(memory.per_unit, context.forecast_growth))


def _without_nested(growths: Sequence[Growth], latest: ExaminationRecord) -> list[Growth]:
    """Keep of nested attributes the list, not the fields of its members, and the buffer's own, not its owner's.

    An attribute with two names is kept once.
    """
    names = [growth.name for growth in growths]
    nested = {name for name in names if any(other.endswith(f".{name.partition('[')[0]}") for other in names)}
    for type_, path in latest.path_counts:
        for name in names:
            held = {other for other in names if other != name and other.startswith(f"{type_}.")}
            if path == name and held:
                nested.add(name)
            elif path.startswith(f"{name}["):
                nested |= held
    return [growth for growth in growths if growth.name not in nested]


def _garbage(attribute: str, latest: ExaminationRecord) -> tuple[str, str] | None:
    """Return the class whose attribute it is, where ever more of its objects are garbage in cycles, and their path."""
    owner = attribute.rpartition(".")[0]
    paths = [(type_, path) for type_, path in latest.path_counts if type_ == owner]
    return next((found for found in paths if found[1].startswith(CYCLES_HOLDER_PREFIX)), None)


def _content(attribute: str, first: ExaminationRecord, latest: ExaminationRecord) -> tuple[str, str]:
    """Return the type whose objects become more in an attribute, and the path to them.

    The program's classes come first, then arrays, then what takes the most.
    """
    risen = {
        (type_, path): count - first.path_counts.get((type_, path), 0)
        for (type_, path), count in latest.path_counts.items()
        if _is_in(path, attribute)
    }
    known = [key for key, count in risen.items() if count > 0 and key[0] != LRU_ITEM]
    own = [(type_, path) for type_, path in known if type_ not in ARRAY_TYPES and "." in type_]
    if own:  # The fewest steps win, of as many those that lead to the most bytes: these come first.
        return min(own, key=lambda key: sum(map(key[1].count, ".[{")))
    grown = {type_: latest.sizes.get(type_, 0) - first.sizes.get(type_, 0) for type_, _ in known}
    return max(known, key=lambda key: ("." in key[0], grown[key[0]], risen[key]), default=("", attribute))


def _gains_objects(growth: Growth, first: ExaminationRecord, latest: ExaminationRecord) -> bool:
    """Whether it holds more items or objects, about in proportion to its bytes; true where neither is known."""
    if not growth.before:
        return True
    bytes_risen = _relative_rise(growth.before, growth.after)
    items = (record.items.get(growth.name, (0, None))[0] for record in (first, latest))
    objects = (
        sum(n for (_, path), n in one.path_counts.items() if _is_in(path, growth.name)) for one in (first, latest)
    )
    inside = {type_ for type_, path in latest.path_counts if _is_in(path, growth.name) and "." in type_}
    deeper = (_relative_rise(first.counts.get(type_, 0), latest.counts.get(type_, 0)) for type_ in inside)
    return max(_relative_rise(*items), _relative_rise(*objects), *deeper, 0.0) >= ALIKE * bytes_risen


def _is_within_memory(growth: Growth, history: ExaminationHistory) -> bool:
    """Whether memory rose with it: else a name leads to what was there before, as a local variable to a population."""
    first, latest = history.record_at(growth.since).used_bytes, history.comparable[-1].used_bytes
    return first is None or latest is None or latest - first >= MIN_RISE_OF_MEMORY * growth.risen


def _is_of_each_owner(attribute: str, records: Sequence[ExaminationRecord]) -> bool:
    """Whether more objects have it, none of them a larger one: as the ticks of axes, where more axes are kept."""
    first, latest = next((one for one in records if attribute in one.container_counts), records[-1]), records[-1]
    if first.container_counts.get(attribute, 0) >= latest.container_counts.get(attribute, 0):
        return False
    before, after = (one.containers[attribute] / one.container_counts[attribute] for one in (first, latest))
    return after <= (1.0 + IN_STEP) * before


def _relative_rise(before: float, after: float) -> float:
    return (after - before) / before if before else math.inf


def _is_in(path: str, attribute: str) -> bool:
    return path.startswith(attribute) and path[len(attribute) : len(attribute) + 1] in ("", "[", "{", ".")


def _tensors(attribute: str, record: ExaminationRecord) -> int:
    found = record.path_counts.items()
    return sum(count for (type_, path), count in found if type_ in TENSORS and _is_in(path, attribute))


def _count(type_: str, path: str, record: ExaminationRecord) -> int | None:
    """Count the objects of a type; of arrays, which are everywhere, those at the path."""
    if not type_:
        return None
    return record.path_counts.get((type_, path), 0) if type_ in ARRAY_TYPES else record.counts.get(type_, 0)


# --- levels that count the items of an attribute ----------------------------------------------------------------------


def _counted(
    history: ExaminationHistory, context: DiagnosisContext, growths: Sequence[Growth]
) -> dict[str, GrowthDriver]:
    """Find by attribute the gauge of the log that counts its items; a gauge counts those of one attribute."""
    found: dict[str, GrowthDriver] = {}
    latest = history.comparable[-1]
    for gauge in context.gauges.values():
        if in_step := [growth for growth in growths if _is_in_step(growth.name, history, gauge)]:
            name = max(in_step, key=lambda growth: (_common_words(growth.name, gauge.name), growth.per_unit)).name
            level = Gauge(gauge.name, latest.items[name][0], gauge.capacity, gauge.t)
            found[name] = _fill_driver(name, level, latest, context)
    return found


def _is_in_step(path: str, history: ExaminationHistory, gauge: Gauge) -> bool:
    """Whether the gauge equals the number of items, some of which were added since the log printed it."""
    before, latest = history.comparable[-2:]
    (count, _), (earlier, _) = latest.items.get(path, (0, None)), before.items.get(path, (0, None))
    slack = IN_STEP * gauge.value
    return gauge.value > 0 and -slack <= count - gauge.value <= slack + max(0, count - earlier)


def _common_words(path: str, name: str) -> int:
    words = {word.lower() for word in _WORD.findall(path)}
    return len(words & {word.lower() for word in re.findall(r"\w+", name)})


def _fill_level(path: str, record: ExaminationRecord) -> Gauge | None:
    """Return the fill level of an attribute that has a capacity."""
    items, capacity = record.items.get(path, (0, None))
    if capacity is None or not 0 < items <= capacity:
        return None
    size = record.containers.get(path)
    unit_bytes = None if size is None else size / items
    name = f"items of {without_main_module(path)}"
    return Gauge(name, items, capacity, record.t, seldom=True, unit_bytes=unit_bytes)


def _slots(path: str, first: ExaminationRecord, latest: ExaminationRecord) -> Gauge | None:
    """Return how many items of a list (or dict) of constant length are there by now, as `[None] * 1000` has none."""
    (length, _), (length_before, _) = latest.items.get(path, (0, None)), first.items.get(path, (0, None))
    held = [
        sum(n for (type_, at), n in one.path_counts.items() if at in (f"{path}[i]", f"{path}[k]") and type_ != NONE)
        for one in (first, latest)
    ]
    if length != length_before or not held[0] < held[1] < length:
        return None
    name = f"items of {without_main_module(path)}"
    return Gauge(name, held[1], length, latest.t, seldom=True, unit_bytes=latest.containers[path] / held[1])


def fill_gauges(record: ExaminationRecord) -> Iterator[Gauge]:
    """Yield the fill levels of what is called a buffer, by its items, and of arrays, by their resident bytes."""
    called = filter(_BUFFER.search, record.items)
    yield from (level for path in called if (level := _fill_level(path, record)) is not None)
    for path, (resident, size) in sorted(record.filled.items(), key=lambda item: -item[1][1])[:MAX_ARRAYS]:
        if resident:
            yield Gauge(f"memory of {without_main_module(path)}", resident, size, record.t, seldom=True, in_bytes=True)


def unfilled(census: Census | None) -> Iterator[LargeObject]:
    """Yield the arrays of a census that are not all in memory."""
    for array in census.large if census is not None else ():
        if array.resident_bytes is not None and array.bytes - array.resident_bytes > MIN_UNFILLED_BYTES:
            yield array


def _fill_driver(path: str, level: Gauge, latest: ExaminationRecord, context: DiagnosisContext) -> GrowthDriver:
    size = latest.containers[path]
    return _driver(level, size / max(1.0, level.value), 1.0, size, context.headroom_bytes, path=path)


# --- lines of code ----------------------------------------------------------------------------------------------------


def merge_stacks(credits: Iterable[StackGrowth]) -> tuple[StackGrowth, ...]:
    """Add up the growth of equal stacks, the largest first."""
    sizes: Counter[tuple[StackFrame, ...]] = Counter()
    for credit in credits:
        sizes[credit.frames] += credit.bytes
    return tuple(StackGrowth(frames, size) for frames, size in sizes.most_common())


def by_line(credits: Iterable[StackGrowth]) -> tuple[LineGrowth, ...]:
    """Add up growth by line of the program, the largest first; growth without a stack is left out.

    Growth in a library's code counts for the line of the program that called it.
    """
    sizes: Counter[StackFrame] = Counter()
    for credit in credits:
        if credit.frames:
            sizes[next((frame for frame in credit.frames if not frame.installed), credit.frames[0])] += credit.bytes
    total = sum(sizes.values())
    return tuple(LineGrowth(frame, size, round(size / total, 4)) for frame, size in sizes.most_common() if size)


READINGS = (
    32  # Latest readings whose slope is the growth; they are 2 s apart at first, later 1/200 of the time (chosen).
)
MIN_READINGS = 3  # Fewer show no trend (chosen).


class NeighbourGrowthTracker:
    """Follows the readings of the neighbours of one trainer process."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, Neighbours]] = deque(maxlen=READINGS)

    def begin_attempt(self) -> None:
        self._readings.clear()

    @property
    def latest(self) -> Neighbours | None:
        return self._readings[-1][1] if self._readings else None

    def add(self, t: float, neighbours: Neighbours) -> None:
        latest = self.latest
        if latest is not None and latest.cgroup != neighbours.cgroup:  # the limit of another level is the nearest now
            self._readings.clear()
        self._readings.append((t, neighbours))

    def growth(self, counts_others: bool) -> NeighbourGrowth | None:
        """Return the growth, None before it is known; `counts_others`: the memory that is forecast is the cgroup's."""
        if len(self._readings) < MIN_READINGS:
            return None
        times = [t for t, _ in self._readings]
        others = straight_line(times, [each.others_bytes for _, each in self._readings]).slope
        members = straight_line(times, [each.members_bytes for _, each in self._readings]).slope
        before = {each.pid: each.bytes for each in self._readings[0][1].largest}
        grown = [(each.bytes - before.get(each.pid, 0), each) for each in self._readings[-1][1].largest]
        rising = [each for more, each in sorted(grown, key=lambda pair: -pair[0]) if more > 0]
        return NeighbourGrowth(
            others_per_second=others if counts_others else 0.0,
            members_per_second=members,
            largest_other=next((each for each in rising if not each.member), None) if counts_others else None,
            largest_member=next((each for each in rising if each.member), None),
        )
