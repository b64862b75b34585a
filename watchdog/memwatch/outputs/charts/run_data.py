"""The data that charts show: samples, phases, markers, notices and the last state of a run, and the range to show.

Everything is a sample of the run or a field of a notice; nothing is estimated a second time. Times are seconds since
the first event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memwatch.core.events import Attached, Diagnosed, Event, Notice, PhaseSeen, SampleBatch, Sampled
from memwatch.core.measurements import HOST
from memwatch.core.snapshot import ResourceView, Snapshot

FORECAST_EVENTS = ("forecast", "warn", "cleared", "deferred", "interrupt")  # other notices repeat the latest of these
# A GPU is left out if its memory changes by less than this share of its limit and no notice is about it (chosen).
MOVING_SHARE = 0.02
AHEAD_MOST = 2.5  # a forecast farther ahead than this multiple of the watched time is not shown (chosen)
AHEAD_ELSE = 1.0  # multiple of the watched time that is shown ahead instead (chosen)
MAX_LIMIT_TO_PEAK_RATIO = 8.0  # a limit above this multiple of the peak is shown only if it is in sight (chosen)

Point = tuple[float, float]


class MemorySeries:
    """The samples of one resource."""

    def __init__(self) -> None:
        self.by_process: list[list[Point]] = []  # the samples of each process: t, bytes
        self.limits: list[tuple[float, int | None]] = []  # each limit: since when, bytes
        self.limit_reached: list[Point] = []  # the first sample of each process at or above its limit
        self._is_reached = False  # whether this process has reached its limit

    def begin_process(self) -> None:
        self.by_process.append([])
        self._is_reached = False

    def add_samples(self, points: Sequence[Point], limit: int | None) -> None:
        """Adds consecutive samples (t, bytes) under the same limit."""
        if not self.limits or self.limits[-1][1] != limit:
            self.limits.append((points[0][0], limit))
        if not self.by_process:
            self.begin_process()
        self.by_process[-1] += points
        if limit is not None and not self._is_reached:
            reached = next((point for point in points if point[1] >= limit), None)
            if reached is not None:
                self._is_reached = True
                self.limit_reached.append(reached)

    @property
    def peak(self) -> float:
        return max(used for samples in self.by_process for _, used in samples)

    @property
    def is_moving(self) -> bool:
        """Whether there is more to see than a flat line."""
        scale = max([self.peak, *(limit for _, limit in self.limits if limit)])
        return self.peak - min(used for samples in self.by_process for _, used in samples) >= MOVING_SHARE * scale


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
    builder = RunDataBuilder()
    for event in events:
        builder.add_event(event)
    return builder.build(notices, end)


class RunDataBuilder:
    """Collects events one after the other."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._now = 0.0
        self._memory: defaultdict[str, MemorySeries] = defaultdict(MemorySeries)
        self._phases: list[tuple[float, float, str]] = []
        self._examined: list[tuple[float, Diagnosed]] = []
        self._is_in_phase = False  # whether the last of the phases has not ended

    def add_event(self, event: Event | SampleBatch) -> None:
        if isinstance(event, SampleBatch):
            times = [self._advance(t) for t in event.times]
            for series in event.series:
                self._memory[series.resource].add_samples(
                    list(zip(times, series.used, strict=True)), series.limit_bytes
                )
            return
        now = self._advance(event.t)
        if isinstance(event, Sampled):
            for usage in event.sample.usages:
                limit = None if usage.limit is None else usage.limit.bytes
                self._memory[usage.resource].add_samples([(now, usage.used_bytes)], limit)
        elif isinstance(event, Attached):
            self._is_in_phase = False
            for memory in self._memory.values():
                memory.begin_process()
        elif isinstance(event, Diagnosed):
            if event.found.census is not None:
                self._examined.append((now, event))
        elif isinstance(event, PhaseSeen):
            self._is_in_phase = event.at == "start"
            if self._is_in_phase:
                self._phases.append((now, now, event.phase))

    def _advance(self, t: float) -> float:
        """Advances the time, in seconds since the first event; an open phase lasts until then."""
        self._start = t if self._start is None else self._start
        self._now = max(self._now, t - self._start)
        if self._is_in_phase:
            begun, _, phase = self._phases[-1]
            self._phases[-1] = (begun, self._now, phase)
        return self._now

    def build(self, notices: Sequence[Notice], end: Snapshot) -> RunData:
        """Returns the data of the run, with the notices about it and the state at its end."""
        start = self._start or 0.0
        timed = tuple(TimedNotice(one.t - start, one) for one in notices)
        acted = [one["resource"] for one in timed if one.event in ("interrupt", "warn")]
        first = next((one["resource"] for one in timed if one.event == "interrupt"), HOST)
        shown = {name: one for name, one in self._memory.items() if name == HOST or name in acted or one.is_moving}
        ordered = sorted((shown or self._memory).items(), key=lambda item: (item[0] != first, item[0] != HOST, item[0]))
        return RunData(dict(ordered), tuple(self._phases), timed, tuple(self._examined), end, start, self._now)


# --- the chart of a running watch ------------------------------------------------------------------------------------


def visible_limit_bytes(view: ResourceView) -> int | None:
    """Bytes in use at which the limit is reached; None if that is unknown, or too far above to be shown."""
    limit = view.usage.limit
    if limit is None:
        return None
    is_in_sight = view.forecast is not None and view.forecast.eta_seconds is not None
    end = view.usage.used_bytes + limit.headroom_bytes  # headroom counts what others use of the limit, too
    return end if is_in_sight or end < MAX_LIMIT_TO_PEAK_RATIO * view.peak_bytes else None


def chart_end_t(view: ResourceView, began: float, now: float, run_end_t: float | None = None) -> float:
    """Returns the time at the right end: as far ahead as the forecast or the run reaches, unless that is too far."""
    forecast = view.forecast
    etas = (forecast.eta_seconds, forecast.eta_high_seconds) if forecast is not None else ()
    ahead = max((eta for eta in etas if eta is not None), default=0.0)
    if run_end_t is not None:
        ahead = min(ahead, run_end_t - now) if ahead > 0.0 else run_end_t - now
    watched = now - began
    return now + (1.02 * ahead if ahead <= AHEAD_MOST * watched else AHEAD_ELSE * watched)
