"""Forecasters by name: memwatch itself, and what people use today as baselines. A trace's path to lines as replay's."""

from __future__ import annotations

import csv
import gzip
import statistics
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from memwatch.config.load import load_config
from memwatch.core.decision.policy import Policy
from memwatch.history.trace_files import replay_notices

Line = dict[str, Any]
Forecaster = Callable[[Path, float | None], list[Line]]  # a trace, seconds that a checkpoint takes -> lines

RESOURCES = (("host", "rss", "limit"), ("gpu0", "gpu_used", "gpu_limit"))
WINDOW_SECONDS = 3600.0
MARGIN_SHARE, MARGIN_SECONDS = 0.25, 3.0  # what a sensible alert adds to the time of a checkpoint
UNKNOWN_CHECKPOINT_SECONDS = 60.0
LEAST_POINTS = 10  # of a line through samples
MOST_GENERATIONS = 30  # of a line through generation ends


def memwatch(path: Path, checkpoint_seconds: float | None) -> list[Line]:
    """The engine, as `memwatch replay --json` prints it."""
    return _replayed(path, Policy(checkpoint_seconds=checkpoint_seconds))


def profiled(path: Path, checkpoint_seconds: float | None, profile: str) -> list[Line]:
    """The same with `--profile`."""
    policy = load_config(flags={"profile": profile}).policy
    return _replayed(path, replace(policy, checkpoint_seconds=checkpoint_seconds))


def _replayed(path: Path, policy: Policy) -> list[Line]:
    return [{**notice.fields, "t": round(notice.t, 3)} for notice in replay_notices(path, policy)]


@dataclass(frozen=True, slots=True)
class Reading:
    """A resource at a time. Seconds, bytes."""

    t: float
    resource: str
    used: int
    limit: int
    generation: float | None


def readings(path: Path) -> Iterator[Reading]:
    """All that a baseline looks at."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        for cells in csv.DictReader(file):
            for resource, used, limit in RESOURCES:
                if cells.get(used) and cells.get(limit):
                    generation = float(cells["gen"]) if cells.get("gen") else None
                    t, bound = float(cells["t"]), int(float(cells[limit]))
                    yield Reading(t, resource, int(float(cells[used])), bound, generation)


def _line(reading: Reading, eta: float | None, act: bool, growth: float | None = None) -> Line:
    verdict = "growing" if eta is not None else "stable"
    told = {"eta_s": eta, "eta_lo_s": None, "eta_hi_s": None, "growth_per_gen": growth, "verdict": verdict}
    return {"t": reading.t, "resource": reading.resource, **told, "action": "interrupt" if act else None}


def _lead(checkpoint_seconds: float | None) -> float:
    needed = UNKNOWN_CHECKPOINT_SECONDS if checkpoint_seconds is None else checkpoint_seconds
    return needed + max(MARGIN_SECONDS, MARGIN_SHARE * needed)


def static(path: Path, checkpoint_seconds: float | None, share: float) -> list[Line]:
    """Interrupts at a share of the limit; knows no time."""
    return [_line(reading, None, reading.used >= share * reading.limit) for reading in readings(path)]


def predict_linear(path: Path, checkpoint_seconds: float | None) -> list[Line]:
    """As Prometheus has it: a least-squares line through the samples of the last hour."""
    windows = {resource: _Window() for resource, _, _ in RESOURCES}
    lines = []
    for reading in readings(path):
        window = windows[reading.resource]
        window.add(reading.t, reading.used)
        eta = window.meets(reading)
        lines.append(_line(reading, eta, eta is not None and eta <= _lead(checkpoint_seconds)))
    return lines


class _Window:
    """Sums of a sliding window, enough for a line."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()
        self._sums = [0.0] * 4  # of t, u, t*t, t*u; t in seconds, u in bytes since the first sample of all
        self._origin: tuple[float, float] | None = None

    def add(self, t: float, used: float) -> None:
        self._origin = self._origin or (t, used)
        self._count((t - self._origin[0], used - self._origin[1]), 1)
        while self._points[0][0] < t - self._origin[0] - WINDOW_SECONDS:
            self._count(self._points[0], -1)

    def _count(self, point: tuple[float, float], sign: int) -> None:
        t, u = point
        for i, value in enumerate((t, u, t * t, t * u)):
            self._sums[i] += sign * value
        if sign > 0:
            self._points.append(point)
        else:
            self._points.popleft()

    def meets(self, reading: Reading) -> float | None:
        """Seconds until the line is at the limit; None if it never is."""
        n, (t, u, tt, tu) = len(self._points), self._sums
        spread = n * tt - t * t
        if n < LEAST_POINTS or spread <= 0 or self._origin is None:
            return None
        slope = (n * tu - t * u) / spread
        if slope <= 0:
            return None
        level = (u - slope * t) / n + slope * (reading.t - self._origin[0]) + self._origin[1]
        return max(0.0, (reading.limit - level) / slope)


def theil_sen(path: Path, checkpoint_seconds: float | None) -> list[Line]:
    """The median of all slopes between generation ends; interrupts when the next generation does not fit."""
    ends = {resource: _Ends() for resource, _, _ in RESOURCES}
    lines = []
    for reading in readings(path):
        known = ends[reading.resource]
        if known.add(reading):
            eta, growth, length = known.outlook(reading)
            act = eta is not None and length is not None and eta < length + _lead(checkpoint_seconds)
            lines.append(_line(reading, eta, act, growth))
    return lines


class _Ends:
    """The last sample of each generation of the process."""

    def __init__(self) -> None:
        self._before: Reading | None = None
        self._ends: deque[tuple[float, float]] = deque(maxlen=MOST_GENERATIONS)  # t, used

    def add(self, reading: Reading) -> bool:
        """True when a generation ended before this reading."""
        before = self._before
        if reading.generation is None:
            return False
        self._before = reading
        if before is None or before.generation is None or before.generation == reading.generation:
            return False
        if reading.generation < before.generation:
            self._ends.clear()
            return False
        self._ends.append((before.t, before.used))
        return True

    def outlook(self, reading: Reading) -> tuple[float | None, float | None, float | None]:
        """Seconds to the limit, bytes per generation, seconds per generation."""
        if len(self._ends) < 3:
            return None, None, None
        pairs = combinations(enumerate(self._ends), 2)
        growth = statistics.median((b[1] - a[1]) / (j - i) for (i, a), (j, b) in pairs)
        length = (self._ends[-1][0] - self._ends[0][0]) / (len(self._ends) - 1)
        if growth <= 0 or length <= 0:
            return None, growth, length
        level = statistics.median(used - growth * i for i, (_, used) in enumerate(self._ends))
        level += growth * (len(self._ends) - 1)
        return max(0.0, (reading.limit - level) / growth * length), growth, length


FORECASTERS: dict[str, Forecaster] = {
    "memwatch": memwatch,
    "observe": lambda path, checkpoint_seconds: profiled(path, checkpoint_seconds, "observe"),
    "aggressive": lambda path, checkpoint_seconds: profiled(path, checkpoint_seconds, "aggressive"),
    "static90": lambda path, checkpoint_seconds: static(path, checkpoint_seconds, 0.90),
    "static95": lambda path, checkpoint_seconds: static(path, checkpoint_seconds, 0.95),
    "predict_linear": predict_linear,
    "theil_sen": theil_sen,
}
