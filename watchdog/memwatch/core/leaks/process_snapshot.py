"""The snapshot of a trainer that `memwatch snapshot` keeps, and the difference between two of them."""

from __future__ import annotations

from collections import Counter
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
    """A figure in both snapshots; None: it is not known there."""

    name: str
    before: int | None
    after: int | None

    @property
    def change(self) -> int | None:
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True)
class TypeChange:
    """The objects of one type in both snapshots."""

    type: str
    count: ValueChange
    bytes: ValueChange


@dataclass(frozen=True, slots=True)
class ProcessSnapshotDiff:
    """The figures that differ, the largest change first."""

    before: str  # labels
    after: str
    seconds: float
    same_process: bool
    memory: tuple[ValueChange, ...]  # bytes; the unchanged figures too
    kinds: tuple[ValueChange, ...]  # resident bytes of the trainer's own process, by the kind of memory
    types: tuple[TypeChange, ...]
    large: tuple[ValueChange, ...]  # bytes, by type and path
    holders: tuple[ValueChange, ...]  # objects, by type and path
    tracked: tuple[ValueChange, ...]  # bytes, by path
    threads: tuple[ValueChange, ...]  # threads, by the function that they are in


def diff_process_snapshots(before: ProcessSnapshot, after: ProcessSnapshot) -> ProcessSnapshotDiff:
    """Compare two snapshots, the earlier one first whatever their order."""
    if before.t > after.t:
        before, after = after, before
    first, last = before.found.census, after.found.census
    earlier, later = memory_figures(before.sample), memory_figures(after.sample)
    return ProcessSnapshotDiff(
        before=before.label,
        after=after.label,
        seconds=after.t - before.t,
        same_process=before.target == after.target,
        memory=tuple(ValueChange(name, earlier.get(name), later.get(name)) for name in earlier | later),
        kinds=_changed(_kinds(before), _kinds(after)),
        types=_types(first, last),
        large=_changed(_large(first), _large(last)),
        holders=_changed(_holders(first), _holders(last)),
        tracked=_changed(_tracked(first), _tracked(last)),
        threads=_changed(_functions(before), _functions(after)),
    )


def memory_figures(sample: Sample) -> dict[str, int | None]:
    """Return the figures of a sample in bytes, by the names that a reader knows."""
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
    sized = all(found.bytes is not None for found in (*before.types, *after.types))
    earlier, later = ({found.type: found for found in census.types} for census in (before, after))
    changes = []
    for name in earlier | later:
        pair = earlier.get(name), later.get(name)
        count = ValueChange(name, *(found.count if found else 0 for found in pair))
        size = ValueChange(name, *((found.bytes if found else 0) if sized else None for found in pair))
        if count.change or size.change:
            changes.append(TypeChange(name, count, size))
    return tuple(sorted(changes, key=lambda c: (-abs(c.bytes.change or 0), -abs(c.count.change or 0), c.type)))


def _kinds(snapshot: ProcessSnapshot) -> dict[str, int]:
    return {kind.kind: kind.resident_bytes for kind in snapshot.found.kinds or ()}


def _large(census: Census | None) -> dict[str, int]:
    found: Counter[str] = Counter()
    for large in census.large if census is not None else ():
        found[f"{large.type} {large.path}".strip()] += large.bytes
    return found


def _holders(census: Census | None) -> dict[str, int]:
    return {f"{path.type}: {path.path}": path.count for path in (census.holders if census is not None else ())}


def _tracked(census: Census | None) -> dict[str, int]:
    tracked = census.tracked if census is not None else ()
    return {size.path: size.bytes for size in tracked if size.bytes is not None}


def _functions(snapshot: ProcessSnapshot) -> dict[str, int]:
    """Count threads by the function that they are in."""
    innermost = (thread.frames[0] for thread in snapshot.found.threads or () if thread.frames)
    return Counter(f"{frame.function} ({frame.file}:{frame.line})" for frame in innermost)


def _changed(before: dict[str, int], after: dict[str, int]) -> tuple[ValueChange, ...]:
    figures = (ValueChange(name, before.get(name, 0), after.get(name, 0)) for name in {**before, **after})
    return tuple(sorted((f for f in figures if f.change), key=lambda f: (-abs(f.change or 0), f.name)))
