"""Reads a trainer's log as a source of events: the latest state of old lines, and each event of new ones."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from memwatch.core.events import (
    CheckpointSeen,
    Event,
    GaugeSeen,
    GenerationSeen,
    OutOfMemorySeen,
    PhaseSeen,
    SourceChanged,
    TotalSeen,
)
from memwatch.errors import SourceError
from memwatch.sources.log.log_tail import READ_BYTES, make_tail
from memwatch.sources.log.marker_parser import MarkerFinder
from memwatch.sources.log.marker_presets import Preset
from memwatch.sources.log.primary_counter import LocatedEvent

# Of a long log its beginning (totals, headers) and its end are read first.
HEAD_BYTES, TAIL_BYTES = 128 * 1024, 256 * 1024
# Next, its latest part is read, which takes 0.1 s of CPU, then all of it, unless that takes more CPU than this, which
# is enough for 1 GB.
RECENT_BYTES, MAX_CATCH_UP_CPU_SECONDS = 32 * 1024 * 1024, 3.5
LAST_TEXT_BYTES = 64 * 1024  # of its end, for the trainer's last messages
MAX_POLL_CPU_SECONDS = 0.035  # in one poll, so that samples of memory are not delayed
# The bytes of a read double from this minimum to READ_BYTES while parsing them takes less CPU than this.
_MIN_CHUNK_BYTES, _MAX_CHUNK_CPU_SECONDS = 16 * 1024, 0.003
_MAX_FAILURES = 4  # failed allocations that one poll returns


class LogSource:
    """Follows a trainer's log; of lines from before the first poll it returns only the latest state.

    The times of old lines are unknown: their last generation (marked so), total, phase, gauges and a checkpoint that
    is being written are returned as of now, their failed allocations are not. Of a long log, the beginning and the end
    are read first and its end is followed, while each poll catches up with a further part; what that corrects is
    returned then. `catch_up=False`: the log began with the trainer, so that all its lines are new. A log that was last
    written before the trainer began, at the Unix time `began_t`, is one that it appends to: of its old lines only a
    total is returned. `cpu_seconds` returns the CPU time used so far.
    """

    def __init__(
        self,
        path: Path | str,
        presets: Sequence[Preset] = (),
        name: str = "log",
        *,
        catch_up: bool = True,
        began_t: float = -math.inf,
        cpu_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        self.name, self.paths = name, [Path(path)]
        self._presets, self._cpu_seconds = presets, cpu_seconds
        self._live_pass = _LogPass(path, presets, cpu_seconds)
        self._to_catch_up = catch_up
        self._began_t, self._is_of_former_run = began_t, False  # what the old lines are of
        self._in_old_lines = False  # the live pass has not reached the new lines yet
        self._catch_up_pass: _LogPass | None = None
        self._catch_up_starts: list[int] = []  # where further catch-up passes begin, in bytes
        self._live_state: list[Event] = []  # the latest state by the live pass, and by the catch-up pass
        self._catch_up_state: list[Event] = []
        self._reported: list[Event] = []
        self._catch_up_cpu_seconds = 0.0
        self._reported_rules: set[str] = set()  # locations of the user's rules that were reported as disabled

    @property
    def finder(self) -> MarkerFinder:
        """The finder that knows the preset, the unit and the total of the log."""
        return self._live_pass.finder

    @property
    def unit(self) -> str | None:
        """The unit of the log's counter; None until one is found."""
        return self.finder.unit

    @property
    def catching_up(self) -> bool:
        """There are old lines left to read."""
        return self._to_catch_up or self._in_old_lines or self._catch_up_pass is not None

    def poll(self, now: float) -> Iterable[Event]:
        """Return the new events; SourceError when the log cannot be read, or its path leads elsewhere."""
        if self._to_catch_up:
            self._begin_catch_up()
        until_cpu = self._cpu_seconds() + MAX_POLL_CPU_SECONDS
        events = self._follow(now, until_cpu) + self._catch_up(now, until_cpu) + self._disabled_rule_events(now)
        error = self._live_pass.tail.path_error
        return events if error is None else _events_then_error(error, events)

    def read_last_text(self) -> str:
        """The last 64 KiB of the log; empty when it cannot be read."""
        try:
            return self._live_pass.tail.read_last_bytes(LAST_TEXT_BYTES).decode("utf-8", "replace")
        except (SourceError, OSError):
            return ""

    def await_end(self) -> None:
        """Wait a moment for what a trainer that has ended wrote last."""
        self._live_pass.tail.await_end()

    def close(self) -> None:
        self._live_pass.close()
        self._stop_catch_up()

    def _begin_catch_up(self) -> None:
        if self._live_pass.tail.old_bytes is not None:  # a pipe: what is old shows as it is read
            self._to_catch_up = False
            return
        try:
            size, written_t = self._live_pass.tail.size(), self._live_pass.tail.written_t()
        except SourceError:
            self._to_catch_up = self._live_pass.tail.path.exists()  # all lines of a log that does not exist yet are new
            raise
        self._to_catch_up = False
        self._in_old_lines, self._live_pass.old_bytes = size > 0, size
        self._is_of_former_run = written_t < self._began_t
        if self._live_pass.skip_before(size - TAIL_BYTES) and not self._is_of_former_run:
            self._catch_up_starts = [size - RECENT_BYTES, 0]
            self._begin_catch_up_pass()

    def _begin_catch_up_pass(self) -> None:
        self._catch_up_pass = None
        if self._catch_up_starts:
            start = self._catch_up_starts.pop(0)
            self._catch_up_pass = _LogPass(self._live_pass.tail.path, self._presets, self._cpu_seconds)
            self._catch_up_pass.tail.size()  # opens it now, while it is the same file
            if not self._catch_up_pass.skip_before(start):
                self._catch_up_starts.clear()

    def _follow(self, now: float, until_cpu: float) -> list[Event]:
        live, was_in_old_lines = self._live_pass, self._in_old_lines
        old, new = live.read_events(now, until_cpu)
        if not (old or new or was_in_old_lines):
            return []
        if self._is_of_former_run:
            old = [event for event in old if isinstance(event, TotalSeen)]
        self._live_state = _latest_state(self._live_state + old)
        self._in_old_lines = was_in_old_lines and live.tail.position < live.old_bytes
        if self._in_old_lines:
            return []
        events = (self._unreported(now) if was_in_old_lines else _latest_state(old)) + _thinned(new)
        self._live_state = _latest_state(self._live_state + new)
        self._reported = _latest_state(self._reported + events)
        return events

    def _catch_up(self, now: float, until_cpu: float) -> list[Event]:
        """Read a part of the old lines; at the end of the pass, return the state that was not reported yet."""
        catch_up, live = self._catch_up_pass, self._live_pass
        if catch_up is None or self._in_old_lines or self._cpu_seconds() >= until_cpu:
            return []
        begun = self._cpu_seconds()
        try:
            _, events = catch_up.read_events(now, until_cpu, live.tail.position)
            self._catch_up_state = _latest_state(self._catch_up_state + events)
        except SourceError:  # the live pass has the file open, or reports the error
            self._stop_catch_up()
        self._catch_up_cpu_seconds += self._cpu_seconds() - begun
        if catch_up.tail.restarts or live.tail.restarts or self._catch_up_cpu_seconds > MAX_CATCH_UP_CPU_SECONDS:
            self._stop_catch_up()  # the old lines are gone, or too many
        elif catch_up.tail.position >= live.tail.position:
            self._swap_passes(catch_up)
        else:
            return []
        events = self._unreported(now)
        self._reported = _latest_state(self._reported + events)
        return events

    def _swap_passes(self, catch_up: _LogPass) -> None:
        """Follow the log with the catch-up pass, which has reached the live pass's position and has seen more."""
        catch_up.old_bytes = catch_up.tail.position
        self._live_pass.close()
        self._live_pass, self._live_state, self._catch_up_state = catch_up, self._catch_up_state, []
        self._begin_catch_up_pass()

    def _unreported(self, now: float) -> list[Event]:
        """The state without what was reported, and without a generation that may have been long ago."""
        reported = [_dated(0.0, event) for event in self._reported]
        may_be_past = self._catch_up_pass is not None and not self._live_pass.has_latest_generation
        was_no_counter = self.finder.unit is None
        return [
            _dated(now, event)
            for event in self._live_state
            if _dated(0.0, event) not in reported
            and not (may_be_past and isinstance(event, (GenerationSeen, PhaseSeen)))
            and not (was_no_counter and isinstance(event, GenerationSeen))
        ]

    def _disabled_rule_events(self, now: float) -> list[Event]:
        """Report each of the user's rules that is too slow, once."""
        finders = [log_pass.finder for log_pass in (self._live_pass, self._catch_up_pass) if log_pass is not None]
        slow = {location: reason for finder in finders for location, reason in finder.disabled_rules.items()}
        new = [location for location in slow if location not in self._reported_rules]
        self._reported_rules.update(new)
        return [SourceChanged(now, f"rule {where}", False, f"{slow[where]}, and is set aside") for where in new]

    def _stop_catch_up(self) -> None:
        if self._catch_up_pass is not None:
            self._catch_up_pass.close()
        self._catch_up_pass, self._catch_up_starts = None, []


class _LogPass:
    """One pass through a log, with a finder of its own."""

    def __init__(self, path: Path | str, presets: Sequence[Preset], cpu_seconds: Callable[[], float]) -> None:
        self.finder = MarkerFinder(presets)
        self.tail = make_tail(path, self.finder.skippable_lines)
        self._gap = (0, 0)  # bytes between which lines are skipped
        self._last_generation = -1  # byte of the latest generation
        self.old_bytes = 0  # lines before this byte of the current file are old
        self._restarts = 0
        self._cpu_seconds = cpu_seconds
        self._chunk_bytes = _MIN_CHUNK_BYTES

    @property
    def has_latest_generation(self) -> bool:
        """Its latest generation lies after all lines that were skipped."""
        return self._last_generation >= self._gap[1]

    def skip_before(self, byte: int) -> bool:
        """Read the beginning, and then from `byte` on; False when that skips nothing."""
        self._gap = (HEAD_BYTES, byte) if byte > HEAD_BYTES else (0, 0)
        return byte > HEAD_BYTES

    def read_events(self, now: float, until_cpu: float, until: int = sys.maxsize) -> tuple[list[Event], list[Event]]:
        """Return the old and the new events up to the byte `until`, reading on until the CPU time `until_cpu`."""
        markers: list[LocatedEvent] = []
        while self._read_chunk(now, until, markers) and self._cpu_seconds() < until_cpu:
            pass
        if self.tail.restarts != self._restarts:
            self._restarts, self.old_bytes = self.tail.restarts, 0
        if self.tail.old_bytes is not None:
            self.old_bytes = self.tail.old_bytes
        if not markers:
            return [], []
        generations = [marker.byte for marker in markers if isinstance(marker.event, GenerationSeen)]
        self._last_generation = max([self._last_generation, *generations])
        old = [marker.event for marker in markers if marker.byte < self.old_bytes]
        return old, [marker.event for marker in markers if marker.byte >= self.old_bytes]

    def close(self) -> None:
        self.tail.close()

    def _read_chunk(self, now: float, until: int, markers: list[LocatedEvent]) -> bool:
        """Read a chunk and add its markers; True when there may be more to read."""
        before = self.tail.position
        if self._gap[0] <= before < self._gap[1]:
            self.tail.skip_to(self._gap[1])
            before = self.tail.position
        stop = self._gap[0] if before < self._gap[0] else until
        limit = min(self._chunk_bytes, stop - before)
        if limit <= 0:
            return False
        segments = self.tail.read_segments(now, limit)
        if self.tail.restarts != self._restarts:
            self._gap = (0, 0)
        if not segments:
            return False
        begun = self._cpu_seconds()
        for segment in segments:
            markers += self.finder.find_markers(segment.data, segment.byte, segment.line, now)
        slow = self._cpu_seconds() - begun > _MAX_CHUNK_CPU_SECONDS
        self._chunk_bytes = _MIN_CHUNK_BYTES if slow else min(2 * self._chunk_bytes, READ_BYTES)
        return self.tail.position - before == limit


def _events_then_error(error: SourceError, events: Sequence[Event]) -> Iterator[Event]:
    """Yield the events, which are valid all the same, and then raise the error."""
    yield from events
    raise SourceError(str(error), error.hint)  # a new one: raising one again and again would collect tracebacks


def _dated(t: float, event: Event) -> Event:
    """Return `event` as read at `t` and from before the watch."""
    if isinstance(event, GenerationSeen):
        return replace(event, t=t, before_watch=True, recount=False)
    if isinstance(event, CheckpointSeen):
        return replace(event, t=t, before_watch=True)
    return replace(event, t=t)


def _latest_state(events: Sequence[Event]) -> list[Event]:
    """Return the latest event of each kind that is still in force, in order."""
    state: dict[str, Event] = {}
    for event in events:
        if isinstance(event, GenerationSeen):
            state.pop("phase", None)  # it was a phase of the previous generation
        if isinstance(event, CheckpointSeen):
            event = replace(event, before_watch=True)  # noqa: PLW2901
        if isinstance(event, GenerationSeen):
            event = replace(event, before_watch=True, recount=False)  # noqa: PLW2901
        key = _KINDS.get(type(event), "")
        if isinstance(event, GaugeSeen):
            key += event.name
        state.pop(key, None)
        if key and not _has_ended(event):
            state[key] = event
    return list(state.values())


_KINDS: dict[type[Event], str] = {
    TotalSeen: "total",
    GenerationSeen: "generation",
    PhaseSeen: "phase",
    GaugeSeen: "gauge ",
    CheckpointSeen: "checkpoint",
}


def _has_ended(event: Event) -> bool:
    if isinstance(event, PhaseSeen):
        return event.at == "end"
    return isinstance(event, CheckpointSeen) and event.state != "writing"


def _thinned(events: Sequence[Event]) -> list[Event]:
    """Leave out gauges that a later event replaces, and all but the first failures."""
    last_gauge = {event.name: i for i, event in enumerate(events) if isinstance(event, GaugeSeen)}
    failures = [i for i, event in enumerate(events) if isinstance(event, OutOfMemorySeen)][_MAX_FAILURES:]
    dropped = set(failures)
    return [
        event
        for i, event in enumerate(events)
        if i not in dropped and not (isinstance(event, GaugeSeen) and last_gauge[event.name] != i)
    ]
