"""Everything that is found in a whole log, for `memwatch markers`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from memwatch.core.events import CheckpointSeen, Event, GaugeSeen, GenerationSeen, OutOfMemorySeen, PhaseSeen
from memwatch.core.text_and_units import printable
from memwatch.sources.log.log_tail import LogSegment, LogTail, PipeTail, make_tail
from memwatch.sources.log.marker_parser import MarkerFinder
from memwatch.sources.log.marker_presets import Preset
from memwatch.sources.log.primary_counter import LocatedEvent

# Each kind of event by its name in the JSON, with its title for people and the fields that are shown.
_KINDS: dict[str, tuple[type[Event], str, tuple[str, ...]]] = {
    "markers": (GenerationSeen, "markers", ("index", "total", "at")),
    "phases": (PhaseSeen, "phases", ("phase", "at")),
    "gauges": (GaugeSeen, "gauges", ("name", "value", "capacity")),
    "checkpoints": (CheckpointSeen, "checkpoints", ("state", "evidence")),
    "failures": (OutOfMemorySeen, "failed allocations", ("kind", "line")),
}


@dataclass(frozen=True, slots=True)
class LogScan:
    """All that is found in a whole log."""

    path: str
    preset: str | None
    unit: str | None
    total: int | None
    events: dict[str, list[LocatedEvent]]  # by kind; of the markers one for each index in a row
    disabled_rules: dict[str, str]  # rules of the user's own that take too long -> how long

    @property
    def markers(self) -> list[LocatedEvent]:
        return self.events["markers"]


def scan_log(path: Path | str, presets: Sequence[Preset] = ()) -> LogScan:
    """Read a whole log; SourceError when it cannot be read. `-` is standard input."""
    finder = MarkerFinder(presets)
    tail = make_tail(path, finder.skippable_lines)
    hits: list[LocatedEvent] = []
    changes = 0
    try:
        for piece in _all_segments(tail):
            found = finder.find_markers(piece.data, piece.byte, piece.line, 0.0)
            if finder.counter_changes != changes:  # what was counted before was not the clock
                changes = finder.counter_changes
                hits = [hit for hit in hits if not isinstance(hit.event, GenerationSeen)]
            hits += found
    finally:
        tail.close()
    events = {name: [hit for hit in hits if isinstance(hit.event, kind)] for name, (kind, *_) in _KINDS.items()}
    events["markers"] = [
        next(same) for _, same in groupby(events["markers"], lambda hit: getattr(hit.event, "index", None))
    ]
    return LogScan(str(path), finder.preset, finder.unit, finder.total, events, dict(finder.disabled_rules))


def scan_json(found: LogScan) -> dict[str, Any]:
    """The one object that `memwatch markers --json` prints."""
    return {
        "preset": found.preset,
        "unit": found.unit,
        "total": found.total,
        **{name: [_row(hit, fields) for hit in found.events[name]] for name, (_, _, fields) in _KINDS.items()},
        "set_aside": [{"rule": place, "reason": reason} for place, reason in found.disabled_rules.items()],
    }


def format_scan(found: LogScan, rows: int = 5) -> str:
    """A summary for people: first and last markers, phases, gauges, checkpoints."""
    lines = [_headline(found)]
    for name, (_, title, _) in _KINDS.items():
        if hits := found.events[name]:
            lines += ["", f"{title} ({len(hits)})", *_table(hits, rows)]
    lines += [f"rule {printable(place)} was set aside: {reason}" for place, reason in found.disabled_rules.items()]
    return "\n".join(lines)


def _all_segments(tail: LogTail) -> Iterable[LogSegment]:
    if isinstance(tail, PipeTail):
        yield from tail.all_segments()
    size = tail.size()
    while tail.position < size:
        before = tail.position
        yield from tail.read_segments(0.0)
        if tail.position <= before:
            break
    yield from tail.flush()


def _row(hit: LocatedEvent, fields: Sequence[str]) -> dict[str, Any]:
    row = {"text" if field == "line" else field: getattr(hit.event, field) for field in fields}
    return row | {"byte": hit.byte, "line": hit.line}


def _headline(found: LogScan) -> str:
    if not found.markers:
        return f"{printable(found.path)}: no markers found; a preset of your own (YAML) can name them"
    total = f" of {found.total}" if found.total is not None else ", total not printed"
    last = found.markers[-1].event
    index = f"{last.index:g}" if isinstance(last, GenerationSeen) else ""
    return f"{printable(found.path)}: {found.unit} {index}{total} (preset: {found.preset})"


def _table(hits: Sequence[LocatedEvent], rows: int) -> list[str]:
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
