"""The attributes of a program that hold more and more: what that is, how fast, and what counts it.

Levels of the log that memory goes along with: how much a unit takes, and where that ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from memwatch.core.engine.status_sentence import main_less
from memwatch.core.examination import ARRAYS, Driver, Growth
from memwatch.core.leaks.examination_history import Evidence, Shown
from memwatch.core.robust_statistics import straight_line, variance
from memwatch.core.snapshot import Gauge

KEPT = 256  # readings of a gauge; of more, every other one goes
LEAST = 4  # different levels, before anything is said
EXPLAINED = 0.9  # of the variance of memory


class Drivers:
    """Each gauge of the log with the memory in use at that time."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[float, int]]] = {}

    def observe(self, gauge: Gauge, used_bytes: int) -> None:
        """A level, and main memory a moment later."""
        seen = self._seen.setdefault(gauge.name, [])
        if seen and seen[-1][0] == gauge.value:
            return
        seen.append((gauge.value, used_bytes))
        if len(seen) > KEPT:
            del seen[::2]

    def explain(self, gauges: Iterable[Gauge], headroom_bytes: int | None) -> list[Driver]:
        """Those that explain the growth of memory, the one that explains the most first."""
        found = []
        for gauge in gauges:
            slope, r2 = _line(self._seen.get(gauge.name, ()))
            if slope > 0.0 and r2 >= EXPLAINED:
                found.append(driver(gauge, slope, r2, headroom_bytes))
        return sorted(found, key=lambda one: -one.r2)


def driver(
    level: Gauge,
    bytes_per_unit: float,
    r2: float,
    headroom_bytes: int | None,
    *,
    path: str = "",
    held_bytes: int | None = None,
) -> Driver:
    """A level that takes so much a unit: all that the attribute at `path` holds now, where that is known."""
    base = held_bytes if held_bytes is not None else bytes_per_unit * level.value
    ahead = None if level.capacity is None else max(0.0, level.capacity - level.value)
    full = None if ahead is None else int(base + bytes_per_unit * ahead)
    limit = None if headroom_bytes is None else level.value + max(0, headroom_bytes) / bytes_per_unit
    return Driver(level.name, level.value, level.capacity, bytes_per_unit, r2, path, full, limit)


def _line(seen: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Bytes a unit and the share of the variance that they explain; 0 of too few levels."""
    if len({value for value, _ in seen}) < LEAST:
        return 0.0, 0.0
    levels, sizes = zip(*seen, strict=True)
    line, whole = straight_line(levels, sizes), variance(sizes) * (len(sizes) - 1)
    return (line.slope, 1.0 - sum(off**2 for off in line.off) / whole) if whole > 0.0 else (0.0, 0.0)


ARRAYS_MOST = 4  # that are followed as they fill, the largest
MATERIAL = 0.05  # of the growth of memory: what grows by less is not worth telling
IN_STEP = 0.1  # a gauge and a number of items that differ by less count the same

_BUFFER = re.compile(r"buffer|replay|memory|queue|cache|storage|pool|transitions|experience", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known beside the examinations."""

    unit: str  # "generation" as the log calls it, or "hour"
    headroom_bytes: int | None
    threshold_bytes: float  # in a unit: what grows by less is no leak
    phase: str | None  # in which memory grows the most
    gauges: Mapping[str, Gauge] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Holding:
    """An attribute that holds more and more, and what that is."""

    growth: Growth  # bytes
    share: float  # of the growth of memory
    phase: str | None
    type: str  # of what it holds; empty: not known
    way: str  # from the attribute to that
    before: int | None  # objects of that type, when the growth began
    after: int | None
    per_unit: float  # more of them in a unit
    elsewhere: int  # of them that another attribute holds, too
    driver: Driver | None  # what counts its items

    @property
    def name(self) -> str:
        """Of the attribute, as people say it: ReplayBuffer.items."""
        return main_less(self.growth.name)


def holdings(evidence: Evidence, situation: Situation, memory: Growth) -> Iterator[Holding]:
    """Those whose growth is worth telling, given that of all memory; none within another."""
    latest, worth = evidence.spaced[-1], worth_telling(situation, memory)
    wanted = {one.name for one in evidence.tracked() if one.steps and one.per_unit >= situation.threshold_bytes}
    grown = _told_once(evidence.containers(), latest)
    grown = [one for one in grown if one.per_unit >= worth or one.name in wanted]
    counted = _counted(evidence, situation, grown)
    for growth in grown:
        first = next(one for one in evidence.spaced if one.place == growth.since)
        type_, way = _content(growth.name, first, latest)
        before, after = _counts(type_, way, first), _counts(type_, way, latest)
        risen = 0 if before is None or after is None else after - before
        same_type = (count for (one, other), count in latest.ways.items() if one == type_ and other != way)
        yield Holding(
            growth=growth,
            share=min(1.0, growth.per_unit / memory.per_unit),
            phase=evidence.phase_of(growth.name) or (situation.phase if len(grown) == 1 else None),
            type=type_,
            way=way,
            before=before,
            after=after,
            per_unit=risen / (latest.place - growth.since),
            elsewhere=max(same_type, default=0),
            driver=counted.get(growth.name) or _bounded(growth, first, latest, situation),
        )


def worth_telling(situation: Situation, memory: Growth) -> float:
    """Growth in a unit, in bytes: with less, what grows is not told."""
    return max(situation.threshold_bytes, MATERIAL * memory.per_unit)


def _told_once(grown: Sequence[Growth], latest: Shown) -> list[Growth]:
    """Of attributes one of which holds the other: the list, not what its members hold; the buffer's own, not its name.

    And none under two names.
    """
    names = [one.name for one in grown]
    inner = {name for name in names if any(other.endswith(f".{name.partition('[')[0]}") for other in names)}
    for type_, way in latest.ways:
        for name in names:
            held = {other for other in names if other != name and other.startswith(f"{type_}.")}
            if way == name and held:
                inner.add(name)
            elif way.startswith(f"{name}["):
                inner |= held
    return [one for one in grown if one.name not in inner]


def _content(path: str, first: Shown, latest: Shown) -> tuple[str, str]:
    """The type that an attribute holds ever more of, and the way to it: a class of the program before arrays."""
    risen = {
        (type_, way): count - first.ways.get((type_, way), 0)
        for (type_, way), count in latest.ways.items()
        if way.startswith(path) and way[len(path) : len(path) + 1] in ("", "[", "{", ".")
    }
    known = [key for key, count in risen.items() if count > 0]
    own = [(type_, way) for type_, way in known if type_ not in ARRAYS and "." in type_]
    if own:  # the nearest to the attribute
        return min(own, key=lambda key: (len(key[1]), -risen[key]))
    return max(known, key=lambda key: ("." in key[0], risen[key]), default=("", path))  # arrays before a dict of them


def _counts(type_: str, way: str, shown: Shown) -> int | None:
    """How many objects of a type there are; of arrays, which are everywhere, those on the way."""
    if not type_:
        return None
    return shown.ways.get((type_, way), 0) if type_ in ARRAYS else shown.counts.get(type_, 0)


# --- what counts the items ------------------------------------------------------------------------------------------


def _counted(evidence: Evidence, situation: Situation, grown: Sequence[Growth]) -> dict[str, Driver]:
    """By attribute, the gauge of the log that counts its items: each gauge counts those of one."""
    found: dict[str, Driver] = {}
    latest = evidence.spaced[-1]
    for gauge in situation.gauges.values():
        in_step = [one for one in grown if _is_in_step(one.name, evidence, gauge)]
        if in_step:
            one = max(in_step, key=lambda one: (_common_words(one.name, gauge.name), one.per_unit))
            level = Gauge(gauge.name, latest.items[one.name][0], gauge.capacity, gauge.t)
            found[one.name] = _fills(one.name, level, latest, situation)
    return found


def _is_in_step(path: str, evidence: Evidence, gauge: Gauge) -> bool:
    """The gauge, as the log told it last, and the items that there are now: some were added since."""
    before, latest = evidence.spaced[-2:]
    (count, _), (earlier, _) = latest.items.get(path, (0, None)), before.items.get(path, (0, None))
    slack = IN_STEP * gauge.value
    return gauge.value > 0 and -slack <= count - gauge.value <= slack + max(0, count - earlier)


def _common_words(path: str, name: str) -> int:
    words = {word.lower() for word in _WORD.findall(path)}
    return len(words & {word.lower() for word in re.findall(r"\w+", name)})


def _bounded(growth: Growth, first: Shown, latest: Shown, situation: Situation) -> Driver | None:
    """An attribute that is called a buffer, and that a capacity stands beside."""
    level, (before, _) = _level(growth.name, latest), first.items.get(growth.name, (0, None))
    return None if level is None or level.value <= before else _fills(growth.name, level, latest, situation)


def _level(path: str, shown: Shown) -> Gauge | None:
    items, capacity = shown.items.get(path, (0, None))
    if capacity is None or not 0 < items <= capacity or not _BUFFER.search(path):
        return None
    return Gauge(f"items of {main_less(path)}", items, capacity, shown.t, seldom=True)


def levels(shown: Shown) -> Iterator[Gauge]:
    """What fills up to a capacity that is known: buffers by their items, arrays by how much of them is in memory."""
    yield from (level for path in shown.items if (level := _level(path, shown)) is not None)
    largest = sorted(shown.filled.items(), key=lambda item: -item[1][1])[:ARRAYS_MOST]
    for path, (there, size) in largest:
        if there:
            yield Gauge(f"memory of {main_less(path)}", there, size, shown.t, seldom=True)


def _fills(path: str, level: Gauge, latest: Shown, situation: Situation) -> Driver:
    size = latest.containers[path]
    return driver(level, size / max(1.0, level.value), 1.0, situation.headroom_bytes, path=path, held_bytes=size)
