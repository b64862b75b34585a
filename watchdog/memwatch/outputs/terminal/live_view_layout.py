"""The screen of the live view: a snapshot as lines of segments that fit any terminal.

All text from outside passes `printable` first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style

from memwatch.core.engine.status_sentence import finding_text
from memwatch.core.measurements import HOST, GpuMemory, Neighbours, Sample, Usage
from memwatch.core.snapshot import GenerationRow, ResourceView, Severity, Snapshot, WatchState
from memwatch.core.text_and_units import format_bytes, format_duration, printable, replace_unprintable
from memwatch.outputs.terminal import braille_chart
from memwatch.outputs.text import diagnosis_text
from memwatch.outputs.text.formatting import (
    ROUTINE_EVENTS,
    format_gauge_value,
    format_index,
    format_progress,
    format_verdict,
    largest_phases,
    phase_delta,
    phase_heads,
)

MAX_SCREEN_GENERATIONS = 12  # rows of the table
FEWEST_EVENTS = 3  # lines that the table leaves to the events
BELOW_CHART = (6, 8)  # lines that must remain below a chart, and below a chart of more than its smallest height
FINDING_SHARES = (0.3, 0.1)  # of the lines of a screen, for the largest finding and the next one (chosen)
METER = 6  # cells of a small bar within a line of text
CHART_ROWS = (6, 16)  # rows of a chart, at least and at most
HELP = (
    "The bars show how much of its limit each resource uses. The chart shows memory since the watch began; right of "
    "`now` is the forecast, as expected and at the earliest and latest, up to the limit. Below it are the latest "
    "generations: how memory changed in each, and in its phases.",
    "A larger terminal shows more, and `memwatch report` shows everything.",
)

PLAIN, DIM, BOLD = Style.null(), Style(dim=True), Style(bold=True)
GOOD, WARN, BAD = Style(color="green"), Style(color="yellow"), Style(color="red", bold=True)
ACCENT = Style(color="cyan")
_CHART_STYLES = {
    braille_chart.MEMORY: ACCENT,
    braille_chart.FORECAST: Style(color="magenta"),
    braille_chart.FORECAST_EDGE: Style(color="magenta", dim=True),
    braille_chart.LIMIT: Style(color="red"),
    braille_chart.AXIS: DIM,
}
SEVERITY_STYLES = {
    Severity.FITS: GOOD,
    Severity.WATCHING: PLAIN,
    Severity.WILL_NOT_FIT: WARN,
    Severity.ABOUT_TO_INTERRUPT: BAD,
    Severity.INTERRUPTING: BAD,
    Severity.ENDED_WELL: GOOD,
    Severity.ENDED_BADLY: BAD,
}

_EVENT_STYLES = {
    **dict.fromkeys(("warn", "deferred", "source_failed", "breach"), WARN),
    **dict.fromkeys(("interrupt", "finding", "escalated", "hook_failed", "gave_up"), BAD),
    "saved": GOOD,
}

ScreenLine = list[Segment]


@dataclass(frozen=True, slots=True)
class Viewport:
    """The size and the characters that a frame must fit."""

    width: int
    height: int
    ascii_only: bool = False
    local_time: Callable[[float], time.struct_time] = time.localtime

    @property
    def blocks(self) -> tuple[str, str]:
        """The full and the empty cell of a bar."""
        return ("#", "-") if self.ascii_only else ("█", "░")

    def clock(self, t: float) -> str:
        """`12:03:44`, local time."""
        return time.strftime("%H:%M:%S", self.local_time(t))

    def join(self, parts: Sequence[str], room: int) -> str:
        """`a · b · c`, as many as fit; the first that does not fit is shortened or left out."""
        text = ""
        for part in parts:
            dot = (" - " if self.ascii_only else " · ") if text else ""
            left = room - cell_len(text + dot)
            if cell_len(part) <= left:
                text += dot + part
                continue
            return text + dot + printable(part, left) if left >= 16 else text
        return text


class Mode(Enum):
    """Which view is shown."""

    OVERVIEW = "overview"
    DETAILS = "details"
    HELP = "help"


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """The state of the view itself."""

    mode: Mode = Mode.OVERVIEW
    keys: Mapping[str, str] = field(default_factory=dict)  # what each key does
    footer: str = ""  # the address of the HTTP server
    is_paused: bool = False
    first_line: int = 0  # of the details: those before it have been scrolled away


def render_frame(snapshot: Snapshot, viewport: Viewport, status: ViewStatus = ViewStatus()) -> list[ScreenLine]:
    """Returns the whole screen: exactly `viewport.height` lines of exactly `viewport.width` cells."""
    bottom = list(_bottom(status, viewport))
    room = viewport.height - len(bottom)
    if status.mode is Mode.HELP:
        body = _help(status, viewport)
    elif status.mode is Mode.DETAILS:
        body = _scrolled(_details(snapshot, viewport), room, status.first_line)
    else:
        body = _overview(snapshot, viewport, room)
    filling: list[ScreenLine] = [[]] * (room - len(body))
    return [_fit(line, viewport) for line in [*body[:room], *filling, *bottom][: viewport.height]]


def last_first_line(snapshot: Snapshot, viewport: Viewport, status: ViewStatus) -> int:
    """How far the details can be scrolled."""
    return max(0, len(_details(snapshot, viewport)) - (viewport.height - len(list(_bottom(status, viewport)))))


def _scrolled(lines: list[ScreenLine], room: int, first: int) -> list[ScreenLine]:
    """The part of the lines that fits; where it is not all of them, the last line says which part."""
    if len(lines) <= room:
        return lines
    first = min(first, len(lines) - room + 1)
    where = f"lines {first + 1}-{first + room - 1} of {len(lines)}: arrows, PageUp, PageDown"
    return [*lines[first : first + room - 1], [Segment(where, DIM)]]


def _bottom(status: ViewStatus, viewport: Viewport) -> Iterator[ScreenLine]:
    keys = "  ".join(f"{key} {what.partition(':')[0]}" for key, what in status.keys.items())
    parts = ["PAUSED" if status.is_paused else "", keys, printable(status.footer.rstrip("/"))]
    if any(parts):
        style = WARN if status.is_paused else DIM
        yield [Segment(viewport.join([part for part in parts if part], viewport.width), style)]


def _help(status: ViewStatus, viewport: Viewport) -> list[ScreenLine]:
    keys: list[ScreenLine] = [[Segment(f"  {key}  ", ACCENT), Segment(what)] for key, what in status.keys.items()]
    text = [line for part in HELP for line in (*_wrap(part, viewport.width), "")]
    return [[Segment("memwatch", BOLD)], [], *keys, [], *([Segment(line)] for line in text)]


def _overview(snapshot: Snapshot, viewport: Viewport, height: int) -> list[ScreenLine]:
    top = [
        _title(snapshot, viewport),
        *_sentence(snapshot, viewport),
        *_findings(snapshot, viewport),
        [],
        *_bars(snapshot, viewport),
        _progress(snapshot, viewport),
        *_gauges(snapshot),
        *_problems(snapshot),
    ]
    room = height - len(top)
    drawn = _chart(snapshot, viewport, room)
    table = _table(snapshot, viewport, room - len(drawn) - FEWEST_EVENTS - 1)
    between: list[ScreenLine] = [[]] if table and not drawn else []
    above = [*top, *drawn, *between, *table]
    return [*above, *_events(snapshot, viewport, height - len(above))]


def _chart(snapshot: Snapshot, viewport: Viewport, room: int) -> list[ScreenLine]:
    """Memory over the watch with its forecast; nothing if it would be too flat to read."""
    least, most = CHART_ROWS
    if not snapshot.resources or room < least + BELOW_CHART[0]:
        return []
    rows = min(most, least + max(0, room - least - BELOW_CHART[1]) // 2)
    lines = braille_chart.braille_chart(
        snapshot.resources[0], snapshot.t, viewport.width, rows, viewport.ascii_only, run_end_t=snapshot.run_end_t
    )
    return [[Segment(text, _CHART_STYLES[role]) for role, text in line] for line in lines]


def _details(snapshot: Snapshot, viewport: Viewport) -> list[ScreenLine]:
    known = snapshot.diagnosis
    lines = [_title(snapshot, viewport), *_sentence(snapshot, viewport), []]
    if known is None:
        return [*lines, [Segment("the trainer was not examined yet, so the causes of growth are not known")]]
    for line in diagnosis_text.headlines(known):
        style, indent = (PLAIN, "  ") if line.startswith(" ") else (ACCENT, "")
        lines += ([Segment(indent + part, style)] for part in _wrap(line, viewport.width - len(indent)))
    return [*lines, *([Segment(line)] for line in diagnosis_text.diagnosis_tables(known))]


def _fit(line: Iterable[Segment], viewport: Viewport) -> ScreenLine:
    """Cuts or fills `line` to the width; what the terminal cannot show, as the status may have it, is replaced."""
    shown = [Segment(replace_unprintable(segment.text), segment.style) for segment in line]
    if viewport.ascii_only:
        shown = [Segment(one.text.replace("…", "~").encode("ascii", "replace").decode(), one.style) for one in shown]
    return Segment.adjust_line_length(shown, viewport.width)


def _title(snapshot: Snapshot, viewport: Viewport) -> ScreenLine:
    pid = f" pid {snapshot.target.pid}" if snapshot.target else ""
    since = "" if snapshot.started_t is None else f"watched {format_duration(snapshot.t - snapshot.started_t)}  "
    right = f"  {since}{viewport.clock(snapshot.t)}"
    room = viewport.width - len("memwatch") - len(pid) - len(right) - 2
    command = set_cell_size(printable(snapshot.command, max(8, room)), max(0, room))
    return [Segment("memwatch", BOLD), Segment(pid, ACCENT), Segment(f"  {command}"), Segment(right, DIM)]


def _sentence(snapshot: Snapshot, viewport: Viewport) -> list[ScreenLine]:
    """The forecast in at most four lines; after the end, how the trainer ended."""
    style, text = SEVERITY_STYLES[snapshot.severity], snapshot.sentence
    if snapshot.exited is not None:
        evidence = "; ".join(snapshot.exited.evidence)
        text += f": {evidence}" if evidence else ""
    return [[Segment(line, style)] for line in _wrap(printable(text, 600), viewport.width)[:4]]


def _findings(snapshot: Snapshot, viewport: Viewport) -> Iterator[ScreenLine]:
    """Yields the largest cause of growth that was found with its remedy, and the next one, as far as there is room."""
    if snapshot.diagnosis is not None and snapshot.exited is None:
        for one, share in zip(snapshot.diagnosis.findings, FINDING_SHARES, strict=False):
            text = printable(finding_text(one, snapshot.diagnosis.unit), 600)
            lines = _cut(_wrap(text, viewport.width), max(2, round(share * viewport.height)), viewport)
            yield from ([Segment(line, ACCENT)] for line in lines)


def _cut(lines: list[str], most: int, viewport: Viewport) -> list[str]:
    """At most so many lines; the last one says that there is more."""
    if len(lines) <= most:
        return lines
    more = " ... (d: all)"
    return [*lines[: most - 1], printable(lines[most - 1], viewport.width - len(more)) + more]


def _wrap(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".lstrip()
        if cell_len(joined) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


def _bars(snapshot: Snapshot, viewport: Viewport) -> list[ScreenLine]:
    cards = {gpu.resource: gpu for gpu in snapshot.sample.gpus} if snapshot.sample else {}
    views = list(snapshot.resources)
    most = max(2, viewport.height // 3)
    brief = 2 * len(views) > most  # many GPUs: their bars only, the fullest first
    if len(views) > most:
        views[1:] = sorted(views[1:], key=lambda view: -_share(view.usage))[: most - 1]
    bars = [list(_bar(view, cards.get(view.usage.resource), snapshot.unit, viewport)) for view in views]
    if bars and views[0].usage.resource == HOST:
        bars[0] += _levels(snapshot.sample, viewport)
        bars[0] += _neighbours(snapshot.neighbours, viewport)
    return [line for bar in bars for line in (bar[:1] if brief else bar)]


def _bar(view: ResourceView, card: GpuMemory | None, unit: str, viewport: Viewport) -> Iterator[ScreenLine]:
    usage, limit = view.usage, view.usage.limit
    figures = f" {format_bytes(usage.used_bytes):>9}"
    if limit is not None:
        figures += f" of {format_bytes(limit.bytes)} {_share(usage):>4.0%}"
    name = printable(usage.resource, 16)
    room = viewport.width - max(6, len(name) + 1) - 32
    full, empty = viewport.blocks
    filled = 0 if limit is None else min(room, round(_share(usage) * room))
    style = ACCENT if view.severity is Severity.WATCHING else SEVERITY_STYLES[view.severity]
    yield [
        Segment(f"{name:<6}" if len(name) < 6 else f"{name} ", BOLD),
        Segment(full * filled, style),
        Segment(empty * (room - filled), DIM),
        Segment(figures),
    ]
    parts = [format_verdict(view, unit)]
    parts += ["no known limit"] if limit is None else [f"{format_bytes(limit.headroom_bytes)} left"]
    if card is not None:
        parts.append(f"{printable(card.name, 30)}, {card.attribution}")
    elif limit is not None:
        parts.append(f"limit: {printable(limit.origin, 60)}")
    parts.append(f"peak {format_bytes(view.peak_bytes)}")
    yield [Segment(f"{'':6}"), Segment(viewport.join(parts, viewport.width - 6), DIM)]


def _levels(sample: Sample | None, viewport: Viewport) -> Iterator[ScreenLine]:
    """The parts of main memory: the trainer's tree, each cgroup that has a limit, and the host."""
    if sample is None:
        return
    parts = []
    if (tree := sample.tree) is not None:
        strange = f", {tree.member_processes} no children" if tree.member_processes else ""
        count = f" in {tree.processes} processes{strange}" if tree.processes > 1 else ""
        parts.append(f"tree {format_bytes(tree.used_bytes)}{count}")
    bounded = [(one, one.limit_bytes) for one in (sample.cgroup.levels if sample.cgroup else ()) if one.limit_bytes]
    for level, limit in bounded[:2]:
        name = "cgroup" if len(bounded) == 1 else f"cgroup {printable(level.path, 30)}"
        parts.append(_meter(name, level.charged_bytes, limit, viewport))
    if (host := sample.host) is not None:
        parts.append(_meter("host", host.total_bytes - host.available_bytes, host.total_bytes, viewport))
    if len(parts) > 1:
        yield [Segment(f"{'':6}"), Segment(viewport.join(parts, viewport.width - 6), DIM)]
    if tree is not None and tree.largest:
        named = [f"{printable(child.name, 40)} (pid {child.pid}) {format_bytes(child.bytes)}" for child in tree.largest]
        named[0] = f"children {named[0]}"
        yield [Segment(f"{'':6}"), Segment(viewport.join(named, viewport.width - 6), DIM)]


def _neighbours(known: Neighbours | None, viewport: Viewport) -> Iterator[ScreenLine]:
    """`not the trainer's 95.0 MB: ray::Worker (pid 123) 90.0 MB`: the others in its cgroup, the largest by name."""
    if known is None or not known.others_bytes:
        return
    named = [each for each in known.largest if not each.member]
    parts = [f"{printable(each.name, 40)} (pid {each.pid}) {format_bytes(each.bytes)}" for each in named]
    parts[:1] = [f"not the trainer's {format_bytes(known.others_bytes)}: {parts[0]}"] if parts else []
    yield [Segment(f"{'':6}"), Segment(viewport.join(parts, viewport.width - 6), DIM)]


def _meter(name: str, used: int, limit: int, viewport: Viewport) -> str:
    """`cgroup ████░░ 68% of 175.0 GB`."""
    full, empty = viewport.blocks
    filled = min(METER, max(0, round(METER * used / limit)))
    return f"{name} {full * filled}{empty * (METER - filled)} {used / limit:.0%} of {format_bytes(limit)}"


def _share(usage: Usage) -> float:
    return usage.used_bytes / usage.limit.bytes if usage.limit and usage.limit.bytes > 0 else 0.0


def _progress(snapshot: Snapshot, viewport: Viewport) -> ScreenLine:
    """`generation 7 of 25 · evaluate · warned · checkpoint 5 m ago, takes 12 s (measured)`."""
    parts = [part for part in (format_progress(snapshot), printable(snapshot.phase or "", 30)) if part]
    parts = parts or ["no markers in the log yet: time alone"]
    if snapshot.is_examining:
        parts.insert(0, "examining")
    if snapshot.state is not WatchState.WATCHING:
        parts.append(snapshot.state.value)
    seen = snapshot.checkpoint_t
    ago = "no checkpoint seen" if seen is None else f"checkpoint {format_duration(snapshot.t - seen)} ago"
    origin = f" ({snapshot.checkpoint_origin})" if viewport.width >= 100 else ""
    parts.append(f"{ago}, takes {format_duration(snapshot.checkpoint_seconds)}{origin}")
    return [Segment(viewport.join(parts, viewport.width))]


def _gauges(snapshot: Snapshot) -> Iterator[ScreenLine]:
    shown = []
    for gauge in snapshot.gauges[:8]:
        capacity = "" if gauge.capacity is None else f" / {format_gauge_value(gauge.capacity)}"
        shown.append(f"{printable(gauge.name, 30)} {format_gauge_value(gauge.value)}{capacity}")
    if shown:
        yield [Segment("   ".join(shown), ACCENT)]


def _problems(snapshot: Snapshot) -> Iterator[ScreenLine]:
    """Sources that do not work, on one line, since most are normal (no NVIDIA driver)."""
    broken = [f"{source.source}: {printable(source.reason, 80)}" for source in snapshot.sources if not source.ok]
    if broken:
        yield [Segment("without " + "; ".join(broken), DIM)]


def _table(snapshot: Snapshot, viewport: Viewport, room: int) -> list[ScreenLine]:
    """The newest generations of the first resource that has some, under a head; nothing if it does not fit."""
    view = next((view for view in snapshot.resources if view.generations), None)
    if view is None or room < 2:
        return []
    rows = view.generations[-min(MAX_SCREEN_GENERATIONS, room - 1) :]
    phases = largest_phases(rows, (viewport.width - 56) // 10)
    unit = "gen" if snapshot.unit == "generation" else snapshot.unit
    names = ["time", "start", "end", "change", "peak", *phase_heads(phases)]
    head = _right(unit, 6) + "".join(_right(name, 10) for name in names)
    return [[Segment(head, DIM)], *(_row(row, phases) for row in rows)]


def _right(text: str, width: int) -> str:
    """Cuts `text` and aligns it to the right of `width` cells, of which the first stays free."""
    shown = printable(text, width - 1)
    cells = min(cell_len(shown), width - 1)  # a CJK character takes two
    return " " * (width - cells) + set_cell_size(shown, cells)


def _row(row: GenerationRow, phases: Sequence[str]) -> ScreenLine:
    took = "now" if row.end_t is None else format_duration(row.end_t - row.start_t)
    levels = f"{took:>10}{format_bytes(row.start_bytes):>10}{format_bytes(row.end_bytes):>10}"
    deltas = [phase_delta(row, phase) for phase in phases]
    parts = "".join(f"{'' if delta is None else format_bytes(delta, signed=True):>10}" for delta in deltas)
    return [
        Segment(f"{format_index(row.index):>6}{levels}", BOLD if row.end_t is None else PLAIN),
        Segment(f"{format_bytes(row.delta_bytes, signed=True):>10}", WARN if row.delta_bytes > 0 else GOOD),
        Segment(f"{format_bytes(row.peak_bytes):>10}"),
        Segment(parts, DIM),
    ]


def _events(snapshot: Snapshot, viewport: Viewport, room: int) -> list[ScreenLine]:
    if room < 2 or not snapshot.notices:
        return []
    lines: list[ScreenLine] = [[]]
    shown = [notice for notice in snapshot.notices if notice.event not in ROUTINE_EVENTS]  # the rest is on the screen
    for notice in shown[-(room - 1) :]:
        style = _EVENT_STYLES.get(notice.event, ACCENT)
        text = printable(notice.text, max(20, viewport.width - 20))
        lines.append(
            [Segment(f"{viewport.clock(notice.t)} ", DIM), Segment(f"{notice.event:<10} ", style), Segment(text)]
        )
    return lines
