"""The data that charts show: samples, phases, markers, notices and the last state of a run, and the range to show.

Everything is a sample of the run or a field of a notice; nothing is estimated a second time. Times are seconds since
the first event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memwatch.core.events import Attached, Diagnosed, Event, Notice, PhaseSeen, SampleBatch, Sampled
from memwatch.core.measurements import HOST
from memwatch.core.snapshot import ResourceView, Snapshot

FORECAST_EVENTS = ("forecast", "warn", "cleared", "held", "interrupt")  # other notices repeat the latest of these
# A GPU is left out if its memory changes by less than this share of its limit and no notice is about it (chosen).
MOVES = 0.02
AHEAD_MOST = 2.5  # a forecast farther ahead than this multiple of the watched time is not shown (chosen)
AHEAD_ELSE = 1.0  # multiple of the watched time that is shown ahead instead (chosen)
MAX_LIMIT_TO_PEAK_RATIO = 8.0  # a limit above this multiple of the peak is shown only if it is in sight (chosen)

Point = tuple[float, float]


class MemorySeries:
    """The samples of one resource, process by process."""

    def __init__(self) -> None:
        self.runs: list[list[Point]] = []  # the samples of each process: t, bytes
        self.limits: list[tuple[float, int | None]] = []  # each limit: since when, bytes
        self.limit_reached: list[Point] = []  # the first sample of each process at or above its limit
        self._has_met = False  # whether this process has reached its limit

    def begin(self) -> None:
        """Starts another process: its samples are not joined to those before."""
        self.runs.append([])
        self._has_met = False

    def add_samples(self, points: Sequence[Point], limit: int | None) -> None:
        """Adds consecutive samples (t, bytes) under the same limit."""
        if not self.limits or self.limits[-1][1] != limit:
            self.limits.append((points[0][0], limit))
        if not self.runs:
            self.begin()
        self.runs[-1] += points
        if limit is not None and not self._has_met:
            met = next((point for point in points if point[1] >= limit), None)
            if met is not None:
                self._has_met = True
                self.limit_reached.append(met)

    @property
    def peak(self) -> float:
        return max(used for run in self.runs for _, used in run)

    @property
    def moves(self) -> bool:
        """Whether there is more to see than a flat line."""
        whole = max([self.peak, *(limit for _, limit in self.limits if limit)])
        return self.peak - min(used for run in self.runs for _, used in run) >= MOVES * whole


@dataclass(frozen=True, slots=True)
class TimedNotice:
    """A notice, and its time in seconds since the first event."""

    t: float
    notice: Notice

    def __getitem__(self, name: str) -> Any:
        """Returns a field of the notice; None if there is none of that name."""
        return self.notice.fields.get(name)

    @property
    def event(self) -> str:
        return self.notice.event


@dataclass(frozen=True, slots=True)
class RunData:
    """A run: its samples, its phases, and the notices about it."""

    memory: Mapping[str, MemorySeries]  # by resource, first the one that was interrupted for; empty without samples
    phases: tuple[tuple[float, float, str], ...]  # from, to, name
    timed_notices: tuple[TimedNotice, ...]
    examined: tuple[tuple[float, Diagnosed], ...]  # the examinations with a census, and when they ended
    end: Snapshot
    start_t: float  # time of the first event, on the clock of the watch
    end_t: float

    def notices_of(self, resource: str, *events: str) -> list[TimedNotice]:
        return [one for one in self.timed_notices if one.event in events and one["resource"] == resource]

    @property
    def notices(self) -> list[Notice]:
        """All notices, on the clock of the watch."""
        return [one.notice for one in self.timed_notices]

    @property
    def restarts(self) -> list[float]:
        """When each process but the first was attached to."""
        return [one.t for one in self.timed_notices if one.event == "attached" and one["attempt"]]

    def process_start_t(self, t: float) -> float:
        """When the process that ran at `t` was attached to."""
        return max((start for start in self.restarts if start <= t), default=0.0)

    def first_interrupts(self, resource: str) -> list[TimedNotice]:
        """The first interrupt of each process. The later ones exist only in a replay."""
        first: dict[float, TimedNotice] = {}
        for one in self.notices_of(resource, "interrupt"):
            first.setdefault(self.process_start_t(one.t), one)
        return list(first.values())

    @property
    def markers(self) -> list[Point]:
        """When each generation was named, as (t, generation)."""
        return [(one.t, one["gen"]) for one in self.timed_notices if one.event == "marker" and one["gen"] is not None]


def build_run_data(events: Iterable[Event | SampleBatch], notices: Sequence[Notice], end: Snapshot) -> RunData:
    """Builds the data of a run from its events, all notices about them, and the state after the last."""
    tape = RunDataBuilder()
    for event in events:
        tape.add_event(event)
    return tape.build(notices, end)


class RunDataBuilder:
    """Collects events one after the other."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._now = 0.0
        self._memory: dict[str, MemorySeries] = {}
        self._phases: list[tuple[float, float, str]] = []
        self._examined: list[tuple[float, Diagnosed]] = []
        self._open: int | None = None  # index of the phase that has not ended

    def add_event(self, told: Event | SampleBatch) -> None:
        if isinstance(told, SampleBatch):
            times = [self._pass(t) for t in told.times]
            for pool in told.series:
                self._at(pool.resource).add_samples(list(zip(times, pool.used, strict=True)), pool.limit_bytes)
            return
        now = self._pass(told.t)
        if isinstance(told, Sampled):
            for usage in told.sample.usages:
                limit = None if usage.limit is None else usage.limit.bytes
                self._at(usage.resource).add_samples([(now, usage.used_bytes)], limit)
        elif isinstance(told, Attached):
            self._open = None
            for known in self._memory.values():
                known.begin()
        elif isinstance(told, Diagnosed):
            if told.found.census is not None:
                self._examined.append((now, told))
        elif isinstance(told, PhaseSeen):
            self._open = len(self._phases) if told.at == "start" else None
            if self._open is not None:
                self._phases.append((now, now, told.phase))

    def _pass(self, t: float) -> float:
        """Advances the time, in seconds since the first event; an open phase lasts until then."""
        self._start = t if self._start is None else self._start
        self._now = max(self._now, t - self._start)
        if self._open is not None:
            begun, _, phase = self._phases[self._open]
            self._phases[self._open] = (begun, self._now, phase)
        return self._now

    def _at(self, resource: str) -> MemorySeries:
        return self._memory.setdefault(resource, MemorySeries())

    def build(self, notices: Sequence[Notice], end: Snapshot) -> RunData:
        """Returns the data of the run, with the notices about it and the state at its end."""
        start = self._start or 0.0
        said = tuple(TimedNotice(one.t - start, one) for one in notices)
        acted = [one["resource"] for one in said if one.event in ("interrupt", "warn")]
        first = next((one["resource"] for one in said if one.event == "interrupt"), HOST)
        shown = {name: one for name, one in self._memory.items() if name == HOST or name in acted or one.moves}
        ordered = sorted((shown or self._memory).items(), key=lambda item: (item[0] != first, item[0] != HOST, item[0]))
        return RunData(dict(ordered), tuple(self._phases), said, tuple(self._examined), end, start, self._now)


# --- the chart of a running watch ------------------------------------------------------------------------------------


def visible_limit_bytes(view: ResourceView) -> int | None:
    """Bytes in use at which the limit is reached; None if that is unknown, or too far above to be shown."""
    limit = view.usage.limit
    if limit is None:
        return None
    is_in_sight = view.forecast is not None and view.forecast.eta_seconds is not None
    end = view.usage.used_bytes + limit.headroom_bytes  # headroom counts what others use of the limit, too
    return end if is_in_sight or end < MAX_LIMIT_TO_PEAK_RATIO * view.peak_bytes else None


def chart_end_t(view: ResourceView, began: float, now: float) -> float:
    """The right end of the chart: as far ahead as the forecast goes, unless that is too far."""
    forecast = view.forecast
    etas = (forecast.eta_seconds, forecast.eta_high_seconds) if forecast is not None else ()
    ahead = max((eta for eta in etas if eta is not None), default=0.0)
    watched = now - began
    return now + (1.02 * ahead if ahead <= AHEAD_MOST * watched else AHEAD_ELSE * watched)
