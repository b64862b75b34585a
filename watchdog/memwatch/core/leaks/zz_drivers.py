"""Levels of the log that memory goes along with: how much a unit takes, and where that ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memwatch.core.examination import Driver
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
