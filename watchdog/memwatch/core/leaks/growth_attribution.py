"""The attributes of a program that hold more and more: what that is, how fast, and what counts it.

Levels of the log that memory goes along with: how much a unit takes, and where that ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from memwatch.core.examination import ARRAY_TYPES, Growth, GrowthDriver
from memwatch.core.leaks.examination_history import ExaminationHistory, ExaminationRecord
from memwatch.core.robust_statistics import straight_line, variance
from memwatch.core.snapshot import Gauge
from memwatch.core.text_and_units import without_main_module

READINGS_PER_GAUGE = 256  # readings of a gauge; of more, every other one goes
MIN_DISTINCT_VALUES = 4  # different levels, before anything is said
MIN_R_SQUARED = 0.9  # of the variance of memory


class GaugeRegression:
    """Each gauge of the log with the memory in use at that time."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[float, int]]] = {}

    def add_reading(self, gauge: Gauge, used_bytes: int) -> None:
        """A level, and main memory a moment later."""
        seen = self._seen.setdefault(gauge.name, [])
        if seen and seen[-1][0] == gauge.value:
            return
        seen.append((gauge.value, used_bytes))
        if len(seen) > READINGS_PER_GAUGE:
            del seen[::2]

    def explain(self, gauges: Iterable[Gauge], headroom_bytes: int | None) -> list[GrowthDriver]:
        """Those that explain the growth of memory, the one that explains the most first."""
        found = []
        for gauge in gauges:
            slope, r2 = _line(self._seen.get(gauge.name, ()))
            if slope > 0.0 and r2 >= MIN_R_SQUARED:
                found.append(make_driver(gauge, slope, r2, headroom_bytes))
        return sorted(found, key=lambda one: -one.r2)


def make_driver(
    level: Gauge,
    bytes_per_unit: float,
    r2: float,
    headroom_bytes: int | None,
    *,
    path: str = "",
    held_bytes: int | None = None,
) -> GrowthDriver:
    """A level that takes so much a unit: all that the attribute at `path` holds now, where that is known."""
    base = held_bytes if held_bytes is not None else bytes_per_unit * level.value
    ahead = None if level.capacity is None else max(0.0, level.capacity - level.value)
    full = None if ahead is None else int(base + bytes_per_unit * ahead)
    limit = None if headroom_bytes is None else level.value + max(0, headroom_bytes) / bytes_per_unit
    return GrowthDriver(level.name, level.value, level.capacity, bytes_per_unit, r2, path, full, limit)


def _line(seen: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Bytes a unit and the share of the variance that they explain; 0 of too few levels."""
    if len({value for value, _ in seen}) < MIN_DISTINCT_VALUES:
        return 0.0, 0.0
    levels, sizes = zip(*seen, strict=True)
    line, whole = straight_line(levels, sizes), variance(sizes) * (len(sizes) - 1)
    return (line.slope, 1.0 - sum(off**2 for off in line.residuals) / whole) if whole > 0.0 else (0.0, 0.0)


ARRAYS_MOST = 4  # that are followed as they fill, the largest
MIN_GROWTH_SHARE = 0.05  # of the growth of memory: what grows by less is not worth telling
IN_STEP = 0.1  # a gauge and a number of items that differ by less count the same

_BUFFER = re.compile(r"buffer|replay|memory|queue|cache|storage|pool|transitions|experience", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True, slots=True)
class DiagnosisContext:
    """What is known beside the examinations."""

    unit: str  # "generation" as the log calls it, or "hour"
    headroom_bytes: int | None
    threshold_bytes: float  # in a unit: what grows by less is no leak
    phase: str | None  # in which memory grows the most
    gauges: Mapping[str, Gauge] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttributeGrowth:
    """An attribute that holds more and more, and what that is."""

    growth: Growth  # bytes
    share: float  # of the growth of memory
    phase: str | None
    type: str  # of what it holds; empty: not known
    reference_path: str  # from the attribute to that
    before: int | None  # objects of that type, when the growth began
    after: int | None
    per_unit: float  # more of them in a unit
    elsewhere: int  # of them that another attribute holds, too
    driver: GrowthDriver | None  # what counts its items

    @property
    def name(self) -> str:
        """Of the attribute, as people say it: ReplayBuffer.items."""
        return without_main_module(self.growth.name)


def attribute_growths(
    evidence: ExaminationHistory, situation: DiagnosisContext, memory: Growth
) -> Iterator[AttributeGrowth]:
    """Those whose growth is worth telling, given that of all memory; none within another."""
    latest, worth = evidence.comparable[-1], min_reported_growth(situation, memory)
    wanted = {one.name for one in evidence.tracked() if one.steps and one.per_unit >= situation.threshold_bytes}
    grown = _without_nested(evidence.growing_attributes(), latest)
    grown = [one for one in grown if one.per_unit >= worth or one.name in wanted]
    counted = _counted(evidence, situation, grown)
    for growth in grown:
        first = next(one for one in evidence.comparable if one.position == growth.since)
        type_, way = _content(growth.name, first, latest)
        before, after = _counts(type_, way, first), _counts(type_, way, latest)
        risen = 0 if before is None or after is None else after - before
        same_type = (count for (one, other), count in latest.path_counts.items() if one == type_ and other != way)
        yield AttributeGrowth(
            growth=growth,
            share=min(1.0, growth.per_unit / memory.per_unit),
            phase=evidence.phase_of(growth.name) or (situation.phase if len(grown) == 1 else None),
            type=type_,
            reference_path=way,
            before=before,
            after=after,
            per_unit=risen / (latest.position - growth.since),
            elsewhere=max(same_type, default=0),
            driver=counted.get(growth.name) or _bounded(growth, first, latest, situation),
        )


def min_reported_growth(situation: DiagnosisContext, memory: Growth) -> float:
    """Growth in a unit, in bytes: with less, what grows is not told."""
    return max(situation.threshold_bytes, MIN_GROWTH_SHARE * memory.per_unit)


def _without_nested(grown: Sequence[Growth], latest: ExaminationRecord) -> list[Growth]:
    """Of attributes one of which holds the other: the list, not what its members hold; the buffer's own, not its name.

    And none under two names.
    """
    names = [one.name for one in grown]
    inner = {name for name in names if any(other.endswith(f".{name.partition('[')[0]}") for other in names)}
    for type_, way in latest.path_counts:
        for name in names:
            held = {other for other in names if other != name and other.startswith(f"{type_}.")}
            if way == name and held:
                inner.add(name)
            elif way.startswith(f"{name}["):
                inner |= held
    return [one for one in grown if one.name not in inner]


def _content(path: str, first: ExaminationRecord, latest: ExaminationRecord) -> tuple[str, str]:
    """The type that an attribute holds ever more of, and the way to it: a class of the program before arrays."""
    risen = {
        (type_, way): count - first.path_counts.get((type_, way), 0)
        for (type_, way), count in latest.path_counts.items()
        if way.startswith(path) and way[len(path) : len(path) + 1] in ("", "[", "{", ".")
    }
    known = [key for key, count in risen.items() if count > 0]
    own = [(type_, way) for type_, way in known if type_ not in ARRAY_TYPES and "." in type_]
    if own:  # the nearest to the attribute
        return min(own, key=lambda key: (len(key[1]), -risen[key]))
    return max(known, key=lambda key: ("." in key[0], risen[key]), default=("", path))  # arrays before a dict of them


def _counts(type_: str, way: str, shown: ExaminationRecord) -> int | None:
    """How many objects of a type there are; of arrays, which are everywhere, those on the way."""
    if not type_:
        return None
    return shown.path_counts.get((type_, way), 0) if type_ in ARRAY_TYPES else shown.counts.get(type_, 0)


# --- what counts the items ------------------------------------------------------------------------------------------


def _counted(
    evidence: ExaminationHistory, situation: DiagnosisContext, grown: Sequence[Growth]
) -> dict[str, GrowthDriver]:
    """By attribute, the gauge of the log that counts its items: each gauge counts those of one."""
    found: dict[str, GrowthDriver] = {}
    latest = evidence.comparable[-1]
    for gauge in situation.gauges.values():
        in_step = [one for one in grown if _is_in_step(one.name, evidence, gauge)]
        if in_step:
            one = max(in_step, key=lambda one: (_common_words(one.name, gauge.name), one.per_unit))
            level = Gauge(gauge.name, latest.items[one.name][0], gauge.capacity, gauge.t)
            found[one.name] = _fills(one.name, level, latest, situation)
    return found


def _is_in_step(path: str, evidence: ExaminationHistory, gauge: Gauge) -> bool:
    """The gauge, as the log told it last, and the items that there are now: some were added since."""
    before, latest = evidence.comparable[-2:]
    (count, _), (earlier, _) = latest.items.get(path, (0, None)), before.items.get(path, (0, None))
    slack = IN_STEP * gauge.value
    return gauge.value > 0 and -slack <= count - gauge.value <= slack + max(0, count - earlier)


def _common_words(path: str, name: str) -> int:
    words = {word.lower() for word in _WORD.findall(path)}
    return len(words & {word.lower() for word in re.findall(r"\w+", name)})


def _bounded(
    growth: Growth, first: ExaminationRecord, latest: ExaminationRecord, situation: DiagnosisContext
) -> GrowthDriver | None:
    """An attribute that is called a buffer, and that a capacity stands beside."""
    level, (before, _) = _level(growth.name, latest), first.items.get(growth.name, (0, None))
    return None if level is None or level.value <= before else _fills(growth.name, level, latest, situation)


def _level(path: str, shown: ExaminationRecord) -> Gauge | None:
    items, capacity = shown.items.get(path, (0, None))
    if capacity is None or not 0 < items <= capacity or not _BUFFER.search(path):
        return None
    return Gauge(f"items of {without_main_module(path)}", items, capacity, shown.t, seldom=True)


def fill_gauges(shown: ExaminationRecord) -> Iterator[Gauge]:
    """What fills up to a capacity that is known: buffers by their items, arrays by how much of them is in memory."""
    yield from (level for path in shown.items if (level := _level(path, shown)) is not None)
    largest = sorted(shown.filled.items(), key=lambda item: -item[1][1])[:ARRAYS_MOST]
    for path, (there, size) in largest:
        if there:
            yield Gauge(f"memory of {without_main_module(path)}", there, size, shown.t, seldom=True)


def _fills(path: str, level: Gauge, latest: ExaminationRecord, situation: DiagnosisContext) -> GrowthDriver:
    size = latest.containers[path]
    return make_driver(level, size / max(1.0, level.value), 1.0, situation.headroom_bytes, path=path, held_bytes=size)
