"""A log as a source of events, and the look at a whole log at once for `memwatch markers`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memwatch.core.model import (
    CheckpointSeen,
    Event,
    GaugeSeen,
    GenerationSeen,
    OutOfMemorySeen,
    PhaseSeen,
    TotalSeen,
)
from memwatch.core.text import printable
from memwatch.errors import SourceError
from memwatch.sources.logtail import READ_BYTES, LogTail
from memwatch.sources.markers import MarkerFinder
from memwatch.sources.presets import Preset
from memwatch.sources.streams import Hit

HEAD_BYTES = 256 * 1024  # of a log that is long already: what its beginning says (totals, headers) ...
TAIL_BYTES = 1024 * 1024  # ... and its latest state
_FAILURES_TOLD = 4  # failed allocations that one poll tells


class LogSource:
    """Follow a trainer's log. What was there before the first poll is told as its latest state only.

    When old lines came is not known: of them only the last generation (marked so), the total, the phase, the
    gauges and a checkpoint that is being written are told, all as of now. Old failed allocations are not.
    `catch_up=False`: the log began with the trainer, so that all its lines are news.
    """

    def __init__(
        self, path: Path | str, presets: Sequence[Preset] = (), name: str = "log", catch_up: bool = True
    ) -> None:
        self.name = name
        self.finder = MarkerFinder(presets)
        self._tail = LogTail(path)
        self._catch_up = catch_up
        self._old_bytes = 0  # lines before this byte of the present file are old
        self._restarts = 0

    def poll(self, now: float) -> list[Event]:
        """What the log said since the last call; SourceError when it cannot be read."""
        if self._catch_up:
            return self._read_old(now)
        hits = self._read(now)
        if self._tail.restarts != self._restarts:
            self._restarts, self._old_bytes = self._tail.restarts, 0
        old = [hit.event for hit in hits if hit.byte < self._old_bytes]
        new = [hit.event for hit in hits if hit.byte >= self._old_bytes]
        return _latest(old) + _thinned(new)

    def close(self) -> None:
        """Give the file back."""
        self._tail.close()

    def _read(self, now: float, limit: int = READ_BYTES) -> list[Hit]:
        feed = self.finder.feed
        return [hit for piece in self._tail.read(now, limit) for hit in feed(piece.data, piece.byte, piece.line, now)]

    def _read_old(self, now: float) -> list[Event]:
        """The state that the beginning and the end of what is there leave; the middle of a long log is left out."""
        try:
            self._old_bytes = size = self._tail.size()
        except SourceError:
            self._catch_up = self._tail.path.exists()  # what is not there yet will be news when it comes
            raise
        self._catch_up = False
        state = _latest(_events(self._read(now, HEAD_BYTES)))
        if size > HEAD_BYTES + TAIL_BYTES:
            self._tail.skip_to(size - TAIL_BYTES)
        while (before := self._tail.position) < size:
            state = _latest(state + _events(self._read(now, HEAD_BYTES)))
            if self._tail.position <= before:
                break
        return state


def _events(hits: Iterable[Hit]) -> list[Event]:
    return [hit.event for hit in hits]


def _latest(events: Sequence[Event]) -> list[Event]:
    """The state that these events leave behind, in the order in which it came about."""
    state: dict[str, Event] = {}
    for event in events:
        if isinstance(event, GenerationSeen):
            state.pop("phase", None)  # it was one of the generation before
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


@dataclass(frozen=True, slots=True)
class Scan:
    """All that is found in a whole log."""

    path: str
    preset: str | None
    unit: str | None
    total: int | None
    markers: tuple[Hit, ...]  # GenerationSeen, one for each index in a row
    phases: tuple[Hit, ...]
    gauges: tuple[Hit, ...]
    checkpoints: tuple[Hit, ...]
    failures: tuple[Hit, ...]


def scan(path: Path | str, presets: Sequence[Preset] = ()) -> Scan:
    """Read a whole log; SourceError when it cannot be read."""
    tail, finder = LogTail(path), MarkerFinder(presets)
    markers: list[Hit] = []
    others: list[Hit] = []
    changes = 0
    try:
        for piece in _pieces(tail):
            hits = finder.feed(piece.data, piece.byte, piece.line, 0.0)
            if finder.changes != changes:  # what was counted before was not the clock
                changes = finder.changes
                markers.clear()
            for hit in hits:
                (markers if isinstance(hit.event, GenerationSeen) else others).append(hit)
    finally:
        tail.close()

    def of(*kinds: type[Event]) -> tuple[Hit, ...]:
        return tuple(hit for hit in others if isinstance(hit.event, kinds))

    return Scan(
        str(path),
        finder.preset,
        finder.unit,
        finder.total,
        tuple(_each_once(markers)),
        of(PhaseSeen),
        of(GaugeSeen),
        of(CheckpointSeen),
        of(OutOfMemorySeen),
    )


def scan_json(found: Scan) -> dict[str, Any]:
    """The one object that `memwatch markers --json` prints."""
    return {
        "preset": found.preset,
        "unit": found.unit,
        "total": found.total,
        "markers": [_row(hit, "index", "total", "at") for hit in found.markers],
        "phases": [_row(hit, "phase", "at") for hit in found.phases],
        "gauges": [_row(hit, "name", "value", "capacity") for hit in found.gauges],
        "checkpoints": [_row(hit, "state", "evidence") for hit in found.checkpoints],
        "failures": [_row(hit, "kind") | {"text": getattr(hit.event, "line", "")} for hit in found.failures],
    }


def render(found: Scan, rows: int = 5) -> str:
    """A summary for people: first and last markers, phases, gauges, checkpoints."""
    lines = [_headline(found)]
    for title, hits in (
        ("markers", found.markers),
        ("phases", found.phases),
        ("gauges", found.gauges),
        ("checkpoints", found.checkpoints),
        ("failed allocations", found.failures),
    ):
        if hits:
            lines += ["", f"{title} ({len(hits)})", *_table(hits, rows)]
    return "\n".join(lines)


def _pieces(tail: LogTail) -> Iterable[Any]:
    size = tail.size()
    while tail.position < size:
        before = tail.position
        yield from tail.read(0.0)
        if tail.position <= before:
            break
    yield from tail.rest()


def _each_once(hits: Sequence[Hit]) -> Iterable[Hit]:
    last: float | None = None
    for hit in hits:
        index = hit.event.index if isinstance(hit.event, GenerationSeen) else None
        if index != last:
            yield hit
        last = index


def _row(hit: Hit, *names: str) -> dict[str, Any]:
    return {name: getattr(hit.event, name) for name in names} | {"byte": hit.byte, "line": hit.line}


def _headline(found: Scan) -> str:
    if not found.markers:
        return f"{printable(found.path)}: no markers found; a preset of your own (YAML) can name them"
    total = f" of {found.total}" if found.total is not None else ", total not printed"
    last = found.markers[-1].event
    index = f"{last.index:g}" if isinstance(last, GenerationSeen) else ""
    return f"{printable(found.path)}: {found.unit} {index}{total} (preset: {found.preset})"


def _table(hits: Sequence[Hit], rows: int) -> list[str]:
    shown = list(hits) if len(hits) <= 2 * rows else [*hits[:rows], None, *hits[-rows:]]
    return ["    ..." if hit is None else f"  line {hit.line:>7}  {_words(hit.event)}" for hit in shown]


def _words(event: Event) -> str:
    match event:
        case GenerationSeen():
            return f"{event.unit} {event.index:g}" + (f" of {event.total}" if event.total else "") + f" ({event.at})"
        case PhaseSeen():
            return f"{event.phase} ({event.at})"
        case GaugeSeen():
            return f"{event.name}: {event.value:,g}" + (f" of {event.capacity:,g}" if event.capacity else "")
        case CheckpointSeen():
            return f"{event.state}: {event.evidence.removeprefix('log: ')}"
        case OutOfMemorySeen():
            return f"{event.kind}: {event.line}"
        case _:
            return type(event).__name__
