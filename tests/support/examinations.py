"""Examinations as the engine is told of them, in a few words."""

from __future__ import annotations

from collections.abc import Mapping

from memwatch.core.events import Diagnosed
from memwatch.core.examination import (
    AttributeSize,
    Census,
    DeviceStorageTotals,
    Diagnose,
    Examination,
    LargeObject,
    MemoryKind,
    ReferencePath,
    TypeCount,
)

SECONDS = 100.0  # of a generation


def examined(
    generation: float | None,
    *,
    t: float | None = None,
    reason: str = "generation",
    used: int | None = None,
    counts: Mapping[str, int] | None = None,
    sizes: Mapping[str, int] | None = None,
    containers: Mapping[str, int] | None = None,
    container_counts: Mapping[str, int] | None = None,
    items: Mapping[str, tuple[int, int | None]] | None = None,
    ways: Mapping[tuple[str, str], int] | None = None,
    filled: Mapping[str, tuple[int, int]] | None = None,
    kinds: Mapping[str, int] | None = None,
    gpu: int | None = None,
    cuda: int = 0,
    cow: int = 0,
) -> Diagnosed:
    """One that was asked for at the beginning of a generation, which lasts 100 s where no time is given."""
    counts, sizes, items = counts or {}, sizes or {}, items or {}
    t = t if t is not None else SECONDS * (generation or 0)
    census = Census(
        python="3.11.7",
        seconds=1.0,
        complete=True,
        disturbed=False,
        types=tuple(TypeCount(name, counts.get(name, 0), sizes.get(name, 0), True) for name in {**counts, **sizes}),
        large=tuple(LargeObject("numpy.ndarray", size, path, there) for path, (there, size) in (filled or {}).items()),
        storages=(DeviceStorageTotals("cuda:0", 1, cuda), DeviceStorageTotals("cpu", 1, 5)) if cuda else (),
        holders=tuple(ReferencePath(name, path, count, count) for (name, path), count in (ways or {}).items()),
        containers=tuple(
            AttributeSize(path, (container_counts or {}).get(path, 1), size, *items.get(path, (None, None)))
            for path, size in (containers or {}).items()
        ),
    )
    memory = tuple(MemoryKind(kind, size, size, 0) for kind, size in (kinds or {}).items())
    asked = Diagnose(t, reason, generation, None, used, 1 << 28, gpu_bytes=gpu, cow_bytes=cow)
    return Diagnosed(t, asked, Examination(census, memory, cpu_seconds=1.0))
