"""A trainer at one moment, as `memwatch snapshot` keeps it, and what is different between two of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from memwatch.core.examination import Census, Examination
from memwatch.core.measurements import Sample, Target


@dataclass(frozen=True, slots=True)
class ProcessSnapshot:
    """A trainer at one moment."""

    label: str
    t: float
    target: Target
    command: str
    sample: Sample
    found: Examination


@dataclass(frozen=True, slots=True)
class ValueChange:
    """One figure in both; None: it is not known there."""

    name: str
    before: int | None
    after: int | None

    @property
    def change(self) -> int | None:
        """By how much it is larger later."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True)
class TypeChange:
    """The objects of one type in both."""

    type: str
    count: ValueChange
    bytes: ValueChange


@dataclass(frozen=True, slots=True)
class ProcessSnapshotDiff:
    """What is different, the largest change first; what is the same in both is left out."""

    before: str  # labels
    after: str
    seconds: float
    same_process: bool
    memory: tuple[ValueChange, ...]  # bytes; all of them, the same ones too
    kinds: tuple[ValueChange, ...]  # resident bytes of the trainer's own process, by the kind of memory
    types: tuple[TypeChange, ...]
    large: tuple[ValueChange, ...]  # bytes, by type and path
    holders: tuple[ValueChange, ...]  # objects, by type and path
    tracked: tuple[ValueChange, ...]  # bytes, by path
    threads: tuple[ValueChange, ...]  # threads, by the function that they are in


def diff_process_snapshots(before: ProcessSnapshot, after: ProcessSnapshot) -> ProcessSnapshotDiff:
    """From one to the other, in the order in which they were taken."""
    if before.t > after.t:
        before, after = after, before
    one, other = before.found.census, after.found.census
    return ProcessSnapshotDiff(
        before=before.label,
        after=after.label,
        seconds=after.t - before.t,
        same_process=before.target == after.target,
        memory=tuple(_figures(memory(before.sample), memory(after.sample))),
        kinds=_changed(_kinds(before), _kinds(after)),
        types=_types(one, other),
        large=_changed(_large(one), _large(other)),
        holders=_changed(_holders(one), _holders(other)),
        tracked=_changed(_tracked(one), _tracked(other)),
        threads=_changed(_places(before), _places(after)),
    )


def memory(sample: Sample) -> dict[str, int | None]:
    """The figures of a sample, in bytes, by what people call them."""
    found: dict[str, int | None] = {}
    if (tree := sample.tree) is not None:
        found |= {"tree": tree.used_bytes, "rss of the trainer": tree.rss_bytes, "anonymous": tree.anon_bytes}
        found |= {"files": tree.file_bytes, "shared memory": tree.shmem_bytes, "swap": tree.swap_bytes}
    if sample.cgroup is not None:
        found |= {f"cgroup {level.path}": level.usage_bytes for level in sample.cgroup.levels}
    for gpu in sample.gpus:
        found |= {gpu.resource: gpu.used_bytes, f"{gpu.resource}, all of the device": gpu.device_used_bytes}
    return found


def _types(before: Census | None, after: Census | None) -> tuple[TypeChange, ...]:
    if before is None or after is None:
        return ()
    sized = all(one.bytes is not None for one in (*before.types, *after.types))
    counts = [{one.type: one.count for one in census.types} for census in (before, after)]
    sizes = [{one.type: one.bytes or 0 for one in census.types} for census in (before, after)]
    changes = []
    for name in dict.fromkeys((*counts[0], *counts[1])):
        count = ValueChange(name, counts[0].get(name, 0), counts[1].get(name, 0))
        size = (
            ValueChange(name, sizes[0].get(name, 0), sizes[1].get(name, 0)) if sized else ValueChange(name, None, None)
        )
        if count.change or size.change:
            changes.append(TypeChange(name, count, size))
    return tuple(sorted(changes, key=lambda one: (-abs(one.bytes.change or 0), -abs(one.count.change or 0), one.type)))


def _kinds(inspection: ProcessSnapshot) -> Mapping[str, int]:
    return {one.kind: one.resident_bytes for one in inspection.found.kinds or ()}


def _large(census: Census | None) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for one in census.large if census is not None else ():
        found[f"{one.type} {one.path}".strip()] += one.bytes
    return found


def _holders(census: Census | None) -> Mapping[str, int]:
    held = census.holders if census is not None else ()
    return {f"{one.type}: {one.path}": one.count for one in held}


def _tracked(census: Census | None) -> Mapping[str, int]:
    tracked = census.tracked if census is not None else ()
    return {one.path: one.bytes for one in tracked if one.bytes is not None}


def _places(inspection: ProcessSnapshot) -> Mapping[str, int]:
    """How many threads are in which function."""
    return Counter(
        f"{thread.frames[0].function} ({thread.frames[0].file}:{thread.frames[0].line})"
        for thread in inspection.found.threads or ()
        if thread.frames
    )


def _figures(before: Mapping[str, int | None], after: Mapping[str, int | None]) -> Iterable[ValueChange]:
    return (ValueChange(name, before.get(name), after.get(name)) for name in dict.fromkeys((*before, *after)))


def _changed(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[ValueChange, ...]:
    figures = (ValueChange(name, before.get(name, 0), after.get(name, 0)) for name in dict.fromkeys((*before, *after)))
    return tuple(sorted((one for one in figures if one.change), key=lambda one: (-abs(one.change or 0), one.name)))
