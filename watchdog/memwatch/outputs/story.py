"""What pictures tell of a run: its samples, phases and markers, what was said of them and when, and how it ended.

Everything is a sample of the run or a field of a notice; nothing is estimated a second time. Times are seconds since
the first event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memwatch.core.model import HOST, Attached, Diagnosed, Event, Notice, PhaseSeen, Sampled, Snapshot, Usage

OUTLOOKS = ("forecast", "warn", "cleared", "held", "interrupt")  # the other notices repeat what these said last
MOVES = 0.02  # a GPU whose memory moves by less than this share of its limit, and that nothing is said of, is left out

Point = tuple[float, float]


class Memory:
    """The samples of one resource, process by process."""

    def __init__(self) -> None:
        self.runs: list[list[Point]] = []  # of each process: t, bytes
        self.limits: list[tuple[float, int | None]] = []  # since when, bytes
        self.met: list[Point] = []  # of each process the first sample at its limit or above
        self._has_met = False  # this process

    def begin(self) -> None:
        """Another process: what follows is not joined to what was."""
        self.runs.append([])
        self._has_met = False

    def take(self, t: float, usage: Usage) -> None:
        """One sample."""
        limit = None if usage.limit is None else usage.limit.bytes
        if not self.limits or self.limits[-1][1] != limit:
            self.limits.append((t, limit))
        if not self.runs:
            self.begin()
        self.runs[-1].append((t, usage.used_bytes))
        if limit is not None and usage.used_bytes >= limit and not self._has_met:
            self._has_met = True
            self.met.append((t, usage.used_bytes))

    @property
    def peak(self) -> float:
        """The highest sample."""
        return max(used for run in self.runs for _, used in run)

    @property
    def moves(self) -> bool:
        """There is more to see than a flat line."""
        whole = max([self.peak, *(limit for _, limit in self.limits if limit)])
        return self.peak - min(used for run in self.runs for _, used in run) >= MOVES * whole


@dataclass(frozen=True, slots=True)
class Said:
    """One notice, at seconds since the first event."""

    t: float
    notice: Notice

    def __getitem__(self, name: str) -> Any:
        """A field of the notice, None where it has none of that name."""
        return self.notice.fields.get(name)

    @property
    def event(self) -> str:
        """What kind it is."""
        return self.notice.event


@dataclass(frozen=True, slots=True)
class Story:
    """A run and what was said of it."""

    memory: Mapping[str, Memory]  # by resource, first the one that was acted on; empty without samples
    phases: tuple[tuple[float, float, str], ...]  # from, to, name
    said: tuple[Said, ...]
    examined: tuple[tuple[float, Diagnosed], ...]  # when, and what was found: those with a census
    end: Snapshot
    start_t: float  # of the first event, on the clock of the watch
    end_t: float

    def of(self, resource: str, *events: str) -> list[Said]:
        """What was said of a resource in notices of these kinds."""
        return [one for one in self.said if one.event in events and one["resource"] == resource]

    @property
    def restarts(self) -> list[float]:
        """When another process took over."""
        return [one.t for one in self.said if one.event == "attached" and one["attempt"]]

    def began(self, t: float) -> float:
        """When the process of that time did."""
        return max((start for start in self.restarts if start <= t), default=0.0)

    def decisions(self, resource: str) -> list[Said]:
        """The first interrupt of each process. In truth it would have been the last: those after it are a replay's."""
        first: dict[float, Said] = {}
        for one in self.of(resource, "interrupt"):
            first.setdefault(self.began(one.t), one)
        return list(first.values())

    @property
    def markers(self) -> list[Point]:
        """When which generation was named."""
        return [(one.t, one["gen"]) for one in self.said if one.event == "marker" and one["gen"] is not None]


def tell(events: Iterable[Event], notices: Sequence[Notice], end: Snapshot) -> Story:
    """The story of these events, of all notices that came of them, and of the state after the last."""
    tape = _Tape()
    for event in events:
        tape.take(event)
    start, now = tape.start or 0.0, tape.now
    said = tuple(Said(one.t - start, one) for one in notices)
    acted = [one["resource"] for one in said if one.event in ("interrupt", "warn")]
    first = next((one["resource"] for one in said if one.event == "interrupt"), HOST)
    shown = {name: one for name, one in tape.memory.items() if name == HOST or name in acted or one.moves}
    ordered = sorted((shown or tape.memory).items(), key=lambda item: (item[0] != first, item[0] != HOST, item[0]))
    return Story(dict(ordered), tuple(tape.phases), said, tuple(tape.examined), end, start, now)


class _Tape:
    """Takes events one after the other."""

    def __init__(self) -> None:
        self.start: float | None = None
        self.now = 0.0
        self.memory: dict[str, Memory] = {}
        self.phases: list[tuple[float, float, str]] = []
        self.examined: list[tuple[float, Diagnosed]] = []
        self._open: int | None = None  # the phase that has not ended

    def take(self, event: Event) -> None:
        self.start = event.t if self.start is None else self.start
        self.now = max(self.now, event.t - self.start)
        if self._open is not None:
            begun, _, phase = self.phases[self._open]
            self.phases[self._open] = (begun, self.now, phase)
        if isinstance(event, Sampled):
            for usage in event.sample.usages:
                self.memory.setdefault(usage.resource, Memory()).take(self.now, usage)
        elif isinstance(event, Attached):
            self._open = None
            for known in self.memory.values():
                known.begin()
        elif isinstance(event, Diagnosed):
            if event.found.census is not None:
                self.examined.append((self.now, event))
        elif isinstance(event, PhaseSeen):
            self._open = len(self.phases) if event.at == "start" else None
            if self._open is not None:
                self.phases.append((self.now, self.now, event.phase))
