"""A log as a source of events: what was there before as the state that it leaves, what comes as it comes."""

from __future__ import annotations

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
from memwatch.sources.log.counters import LocatedEvent
from memwatch.sources.log.log_tail import READ_BYTES, LogTail
from memwatch.sources.log.marker_parser import MarkerFinder
from memwatch.sources.log.marker_presets import Preset

HEAD_BYTES = 128 * 1024  # of a log that is long already: what its beginning says (totals, headers) ...
TAIL_BYTES = 256 * 1024  # ... and its end, which are told of first
LAST_TEXT_BYTES = 64 * 1024  # of a log, in which its last words are
MAX_POLL_CPU_SECONDS = 0.035  # of CPU that one poll may take: memory is looked at in between
RECENT_BYTES = 32 * 1024 * 1024  # ... what is read next, 0.1 s of CPU; then all of it ...
MAX_CATCH_UP_CPU_SECONDS = 3.5  # ... unless it takes more CPU than this, which is enough for 1 GB
_SLOW_SECONDS = 0.003  # of CPU for one read: from there on so much is read at a time:
_LEAST_BYTES = 16 * 1024
_FAILURES_TOLD = 4  # failed allocations that one poll tells


class LogSource:
    """Follow a trainer's log. What was there before the first poll is told as its latest state only.

    When old lines came is not known: of them only the last generation (marked so), the total, the phase, the
    gauges and a checkpoint that is being written are told, all as of now. Old failed allocations are not.
    Of a long log the beginning and the end are told first, and its end is followed, while more and in the end all of
    it is read, a part in each poll; what is then found to be otherwise is told. `cpu_seconds` says what a poll took.
    `catch_up=False`: the log began with the trainer, so that all its lines are news.
    """

    def __init__(
        self,
        path: Path | str,
        presets: Sequence[Preset] = (),
        name: str = "log",
        *,
        catch_up: bool = True,
        cpu_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        self.name = name
        self._presets, self._cpu_seconds = presets, cpu_seconds
        self._follower = _LogPass(path, presets, cpu_seconds)
        self._to_catch_up = catch_up
        self._behind = False  # the follower is in the old lines
        self._reader: _LogPass | None = None  # reads more of them
        self._windows: list[int] = []  # from these bytes on it is still to be read, one after the other
        self._state: list[Event] = []  # that the follower's lines leave ...
        self._found: list[Event] = []  # ... and the reader's
        self._reported: list[Event] = []
        self._spent = 0.0  # of CPU, by readers
        self._set_aside: set[str] = set()  # rules of the user's own of which it was told

    @property
    def finder(self) -> MarkerFinder:
        """What was understood of the log."""
        return self._follower.finder

    @property
    def catching_up(self) -> bool:
        """There are old lines left to read."""
        return self._to_catch_up or self._behind or self._reader is not None

    def poll(self, now: float) -> Iterable[Event]:
        """What the log said since the last call; SourceError when it cannot be read, or its path leads elsewhere."""
        if self._to_catch_up:
            self._begin()
        end = self._cpu_seconds() + MAX_POLL_CPU_SECONDS
        events = self._follow(now, end) + self._read_more(now, end)
        events = [*events, *self._slow_rules(now)]
        displaced = self._follower.tail.path_error
        return events if displaced is None else _told_before(displaced, events)

    def read_last_text(self) -> str:
        """The last that the log says, as far as it can be read."""
        try:
            return self._follower.tail.last(LAST_TEXT_BYTES).decode("utf-8", "replace")
        except (SourceError, OSError):
            return ""

    def close(self) -> None:
        """Give the file back."""
        self._follower.close()
        self._stop_reading()

    def _begin(self) -> None:
        try:
            size = self._follower.tail.size()
        except SourceError:
            self._to_catch_up = self._follower.tail.path.exists()  # what is not there yet will be news when it comes
            raise
        self._to_catch_up = False
        self._behind, self._follower.old_bytes = size > 0, size
        if self._follower.leave_out_before(size - TAIL_BYTES):
            self._windows = [size - RECENT_BYTES, 0]
            self._begin_window()

    def _begin_window(self) -> None:
        """Read more of the old lines, if there are more."""
        self._reader = None
        if self._windows:
            start = self._windows.pop(0)
            self._reader = _LogPass(self._follower.tail.path, self._presets, self._cpu_seconds)
            self._reader.tail.size()  # opened now, it is the same file
            if not self._reader.leave_out_before(start):
                self._windows.clear()

    def _follow(self, now: float, end: float) -> list[Event]:
        follower, behind = self._follower, self._behind
        old, new = follower.read(now, end)
        if not (old or new or behind):
            return []
        self._state = _latest(self._state + old)
        self._behind = behind and follower.tail.position < follower.old_bytes
        if self._behind:
            return []
        events = (self._unreported(now) if behind else _latest(old)) + _thinned(new)
        self._state = _latest(self._state + new)
        self._reported = _latest(self._reported + events)
        return events

    def _read_more(self, now: float, end: float) -> list[Event]:
        """A part of what is old; when it is done, what it tells of the present state that is not told yet."""
        reader, follower = self._reader, self._follower
        if reader is None or self._behind or self._cpu_seconds() >= end:
            return []
        begun = self._cpu_seconds()
        try:
            self._found = _latest(self._found + reader.read(now, end, follower.tail.position)[1])
        except SourceError:  # the follower has it open still, or tells it
            self._stop_reading()
        self._spent += self._cpu_seconds() - begun
        if reader.tail.restarts or follower.tail.restarts or self._spent > MAX_CATCH_UP_CPU_SECONDS:
            self._stop_reading()  # what was old is gone, or too long
        elif reader.tail.position >= follower.tail.position:
            self._change_over(reader)
        else:
            return []
        events = self._unreported(now)
        self._reported = _latest(self._reported + events)
        return events

    def _change_over(self, reader: _LogPass) -> None:
        """The reader has come to where the follower is, and knows more: it goes on instead."""
        reader.old_bytes = reader.tail.position
        self._follower.close()
        self._follower, self._state, self._found = reader, self._found, []
        self._begin_window()

    def _unreported(self, now: float) -> list[Event]:
        """The present state, without what was told before, and without a generation that may have passed long ago."""
        told = [_as_of(0.0, event) for event in self._reported]
        unsure = self._reader is not None and not self._follower.saw_end
        given_up = self.finder.unit is None  # what was taken for a clock is none
        return [
            _as_of(now, event)
            for event in self._state
            if _as_of(0.0, event) not in told
            and not (unsure and isinstance(event, (GenerationSeen, PhaseSeen)))
            and not (given_up and isinstance(event, GenerationSeen))
        ]

    def _slow_rules(self, now: float) -> list[Event]:
        """Of each of the user's rules that takes too long, once."""
        finders = [follower.finder for follower in (self._follower, self._reader) if follower is not None]
        slow = {place: reason for finder in finders for place, reason in finder.disabled_rules.items()}
        fresh = [place for place in slow if place not in self._set_aside]
        self._set_aside.update(fresh)
        return [SourceChanged(now, f"rule {place}", False, f"{slow[place]}, and is set aside") for place in fresh]

    def _stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader, self._windows = None, []


class _LogPass:
    """One way through a log, with what is understood on it."""

    def __init__(self, path: Path | str, presets: Sequence[Preset], cpu_seconds: Callable[[], float]) -> None:
        self.finder = MarkerFinder(presets)
        self.tail = LogTail(path, self.finder.skippable_lines)
        self._gap = (0, 0)  # lines between these bytes are left out
        self._last_marker = -1
        self.old_bytes = 0  # lines before this byte of the present file are old
        self._restarts = 0
        self._cpu_seconds = cpu_seconds
        self._limit = _LEAST_BYTES

    @property
    def saw_end(self) -> bool:
        """The last generation that it saw is one of those after which nothing was left out."""
        return self._last_marker >= self._gap[1]

    def leave_out_before(self, byte: int) -> bool:
        """Read the beginning, and then from `byte` on; False where that leaves nothing out."""
        self._gap = (HEAD_BYTES, byte) if byte > HEAD_BYTES else (0, 0)
        return byte > HEAD_BYTES

    def read(self, now: float, end: float, until: int = sys.maxsize) -> tuple[list[Event], list[Event]]:
        """The old and the new events in what was written up to `until`, or as far as it comes until `end` (of CPU)."""
        hits: list[LocatedEvent] = []
        while self._read_piece(now, until, hits) and self._cpu_seconds() < end:
            pass
        if self.tail.restarts != self._restarts:
            self._restarts, self.old_bytes = self.tail.restarts, 0
        if not hits:
            return [], []
        marks = [hit.byte for hit in hits if isinstance(hit.event, GenerationSeen)]
        self._last_marker = max([self._last_marker, *marks])
        old = [hit.event for hit in hits if hit.byte < self.old_bytes]
        return old, [hit.event for hit in hits if hit.byte >= self.old_bytes]

    def close(self) -> None:
        """Give the file back."""
        self.tail.close()

    def _read_piece(self, now: float, until: int, hits: list[LocatedEvent]) -> bool:
        """Add the next hits; True when there may be more to read."""
        before = self.tail.position
        if self._gap[0] <= before < self._gap[1]:
            self.tail.skip_to(self._gap[1])
            before = self.tail.position
        stop = self._gap[0] if before < self._gap[0] else until
        limit = min(self._limit, stop - before)
        if limit <= 0:
            return False
        pieces = self.tail.read(now, limit)
        if self.tail.restarts != self._restarts:
            self._gap = (0, 0)
        if not pieces:
            return False
        begun = self._cpu_seconds()
        for piece in pieces:
            hits += self.finder.feed(piece.data, piece.byte, piece.line, now)
        slow = self._cpu_seconds() - begun > _SLOW_SECONDS
        self._limit = _LEAST_BYTES if slow else min(2 * self._limit, READ_BYTES)
        return self.tail.position - before == limit


def _told_before(trouble: SourceError, events: Sequence[Event]) -> Iterator[Event]:
    """Each event, and then the error: what is read counts all the same."""
    yield from events
    raise SourceError(str(trouble), trouble.hint)  # a new one: raised again, one would keep each frame that it left


def _as_of(t: float, event: Event) -> Event:
    """As if it had been read at `t`, before the watch."""
    if isinstance(event, GenerationSeen | CheckpointSeen):
        return replace(event, t=t, before_watch=True)
    return replace(event, t=t)


def _latest(events: Sequence[Event]) -> list[Event]:
    """The state that these events leave behind, in the order in which it came about."""
    state: dict[str, Event] = {}
    for event in events:
        if isinstance(event, GenerationSeen):
            state.pop("phase", None)  # it was one of the generation before
        if isinstance(event, GenerationSeen | CheckpointSeen):
            event = replace(event, before_watch=True)  # noqa: PLW2901
        key = _KINDS.get(type(event), "")
        if isinstance(event, GaugeSeen):
            key += event.name
        state.pop(key, None)
        if key and not _is_over(event):
            state[key] = event
    return list(state.values())


_KINDS: dict[type[Event], str] = {
    TotalSeen: "total",
    GenerationSeen: "generation",
    PhaseSeen: "phase",
    GaugeSeen: "gauge ",
    CheckpointSeen: "checkpoint",
}


def _is_over(event: Event) -> bool:
    if isinstance(event, PhaseSeen):
        return event.at == "end"
    return isinstance(event, CheckpointSeen) and event.state != "writing"


def _thinned(events: Sequence[Event]) -> list[Event]:
    """Without levels that a later one of the same poll replaces, and without a flood of failures."""
    last_gauge = {event.name: i for i, event in enumerate(events) if isinstance(event, GaugeSeen)}
    failures = [i for i, event in enumerate(events) if isinstance(event, OutOfMemorySeen)][_FAILURES_TOLD:]
    dropped = set(failures)
    return [
        event
        for i, event in enumerate(events)
        if i not in dropped and not (isinstance(event, GaugeSeen) and last_gauge[event.name] != i)
    ]
