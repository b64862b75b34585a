"""Everything that is found in a whole log, for `memwatch markers`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memwatch.core.events import CheckpointSeen, Event, GaugeSeen, GenerationSeen, OutOfMemorySeen, PhaseSeen
from memwatch.core.text_and_units import printable
from memwatch.sources.log.log_tail import LogSegment, LogTail, PipeTail, make_tail
from memwatch.sources.log.marker_parser import MarkerFinder
from memwatch.sources.log.marker_presets import Preset
from memwatch.sources.log.primary_counter import LocatedEvent


@dataclass(frozen=True, slots=True)
class LogScan:
    """All that is found in a whole log."""

    path: str
    preset: str | None
    unit: str | None
    total: int | None
    markers: tuple[LocatedEvent, ...]  # GenerationSeen, one for each index in a row
    phases: tuple[LocatedEvent, ...]
    gauges: tuple[LocatedEvent, ...]
    checkpoints: tuple[LocatedEvent, ...]
    failures: tuple[LocatedEvent, ...]
    disabled_rules: tuple[tuple[str, str], ...]  # rules of the user's own that take too long, and how long


def scan_log(path: Path | str, presets: Sequence[Preset] = ()) -> LogScan:
    """Read a whole log; SourceError when it cannot be read. `-` is standard input."""
    finder = MarkerFinder(presets)
    tail = make_tail(path, finder.skippable_lines)
    markers: list[LocatedEvent] = []
    others: list[LocatedEvent] = []
    changes = 0
    try:
        for piece in _all_segments(tail):
            hits = finder.find_markers(piece.data, piece.byte, piece.line, 0.0)
            if finder.counter_changes != changes:  # what was counted before was not the clock
                changes = finder.counter_changes
                markers.clear()
            for hit in hits:
                (markers if isinstance(hit.event, GenerationSeen) else others).append(hit)
    finally:
        tail.close()

    def of(*kinds: type[Event]) -> tuple[LocatedEvent, ...]:
        return tuple(hit for hit in others if isinstance(hit.event, kinds))

    return LogScan(
        str(path),
        finder.preset,
        finder.unit,
        finder.total,
        tuple(_without_repeats(markers)),
        of(PhaseSeen),
        of(GaugeSeen),
        of(CheckpointSeen),
        of(OutOfMemorySeen),
        tuple(finder.disabled_rules.items()),
    )


def scan_json(found: LogScan) -> dict[str, Any]:
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
        "set_aside": [{"rule": place, "reason": reason} for place, reason in found.disabled_rules],
    }


def format_scan(found: LogScan, rows: int = 5) -> str:
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
    lines += [f"rule {printable(place)} was set aside: {reason}" for place, reason in found.disabled_rules]
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


def _without_repeats(hits: Sequence[LocatedEvent]) -> Iterable[LocatedEvent]:
    last: float | None = None
    for hit in hits:
        index = hit.event.index if isinstance(hit.event, GenerationSeen) else None
        if index != last:
            yield hit
        last = index


def _row(hit: LocatedEvent, *names: str) -> dict[str, Any]:
    return {name: getattr(hit.event, name) for name in names} | {"byte": hit.byte, "line": hit.line}


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
