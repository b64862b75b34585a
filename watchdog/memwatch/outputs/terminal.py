"""The live view on a terminal.

A frame is a list of lines of segments; rich gives them their styles and controls, and only lines that changed are sent.
Everything foreign passes core.text.printable() first. A terminal that takes nothing (Ctrl-S, a hung ssh) must never
hold up the watch: it is written to without blocking, and what it does not take is dropped and drawn anew later.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.control import Control
from rich.segment import Segment
from rich.style import Style

from memwatch.core.model import (
    GenerationRow,
    GpuMemory,
    Notice,
    ResourceView,
    Snapshot,
    State,
    Usage,
    Verdict,
)
from memwatch.core.sentence import finding_text
from memwatch.core.text import printable
from memwatch.core.units import format_bytes, format_duration
from memwatch.interfaces import Clock
from memwatch.outputs import diagnosis
from memwatch.outputs.figures import (
    ROUTINE,
    format_index,
    format_level,
    format_progress,
    format_verdict,
    largest_phases,
    phase_delta,
    phase_heads,
)

FRAME_SECONDS = 0.25  # at most four frames a second
MOST_GENERATIONS = 12
FEWEST_EVENTS = 3
DETAILS = "d"  # the key that shows them
KEYS = ("c: examine now | d: details", "c: examine now | d: back")

PLAIN, DIM, BOLD = Style.null(), Style(dim=True), Style(bold=True)
GOOD, WARN, BAD = Style(color="green"), Style(color="yellow"), Style(color="red", bold=True)
ACCENT = Style(color="cyan")
_TONE = {Verdict.LEAK: BAD, Verdict.GROWING: WARN}

_EVENT_TONE = {
    "warn": WARN,
    "held": WARN,
    "source_failed": WARN,
    "interrupt": BAD,
    "finding": BAD,
    "breach": WARN,
    "escalated": BAD,
    "saved": GOOD,
}

Line = list[Segment]


class LiveView:
    """A sink that draws the snapshot on the terminal's alternate screen, and leaves the terminal as it was."""

    name = "terminal"

    def __init__(
        self,
        stream: TextIO,
        clock: Clock,
        footer: str = "",
        local_time: Callable[[float], time.struct_time] = time.localtime,
    ) -> None:
        """`stream` is a terminal; `footer` is shown in the last line, e.g. where the HTTP server listens."""
        self.has_keys = False  # what they do is told in the last line
        self._details = False
        self._tty = _Tty(stream)
        self._canvas = io.StringIO()  # rich draws here; _Tty carries it over
        self._console = Console(file=self._canvas, force_terminal=True, highlight=False, markup=False, emoji=False)
        self._clock = clock
        self._footer = footer
        self._local_time = local_time
        self._drawn: list[Line] = []  # what stands on the screen
        self._size = (0, 0)
        self._next_t = 0.0
        self._open = self._closed = False

    def turn(self) -> bool:
        """Whether a frame is due."""
        return not self._closed and self._clock.now() >= self._next_t

    def asked(self) -> bool:
        """Nobody can ask."""
        return False

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        """Draw, if the last frame is old enough or something has happened."""
        now = self._clock.now()
        if not self._closed and (now >= self._next_t or notices):
            self._next_t = now + FRAME_SECONDS
            self._draw(snapshot)

    def close(self, snapshot: Snapshot) -> None:
        """Give the terminal back."""
        self.restore()

    def restore(self) -> None:
        """Leave the alternate screen and show the cursor; nothing happens a second time."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.restore)
        if self._open:
            self._console.set_alt_screen(False)
            self._console.show_cursor(True)
            self._send(patience_seconds=1.0)
        self._tty.close()

    def press(self, key: str) -> None:
        """`d` shows what grows in detail, instead of generations and events, and back."""
        if key == DETAILS:
            self._details, self._next_t = not self._details, 0.0

    def _draw(self, snapshot: Snapshot) -> None:
        if not self._open:
            atexit.register(self.restore)
            self._open = True
            self._console.set_alt_screen(True)
            self._console.show_cursor(False)
        size = self._tty.size()
        if size != self._size or not self._drawn:
            self._console.control(Control.clear())
            self._drawn, self._size = [], size
        look = Look(*size, ascii_only=self._tty.ascii_only, local_time=self._local_time)
        keys = KEYS[self._details] if self.has_keys else ""
        lines = frame(snapshot, look, " | ".join(filter(None, (keys, self._footer))), self._details)
        for y, line in enumerate(lines):
            if y >= len(self._drawn) or self._drawn[y] != line:
                self._console.update_screen_lines([line], 0, y)
        self._drawn = lines if self._send() else []

    def _send(self, patience_seconds: float = 0.0) -> bool:
        text = self._canvas.getvalue()
        self._canvas.seek(0)
        self._canvas.truncate()
        return self._tty.send(text, patience_seconds)


class _Tty:
    """The terminal behind a stream, through an open file description of our own: O_NONBLOCK is ours alone."""

    def __init__(self, stream: TextIO) -> None:
        self._encoding = stream.encoding or "utf-8"
        self._fd = _reopen(stream.fileno())
        self._cut = False  # the last text was not taken whole
        self.ascii_only = not self._encoding.lower().startswith("utf")

    def size(self) -> tuple[int, int]:
        """Columns and lines; 80 x 24 where the terminal does not say."""
        try:
            width, height = os.get_terminal_size(self._fd)
        except OSError:
            return 80, 24
        return width or 80, height or 24

    def send(self, text: str, patience_seconds: float) -> bool:
        """Whether the terminal took all of it."""
        cancel = "\x18" if self._cut else ""  # CAN ends an escape sequence that was cut in the middle
        left = memoryview((cancel + text).encode(self._encoding, "replace"))
        try:
            while left:
                if not select.select([], [self._fd], [], patience_seconds)[1]:
                    break
                left = left[os.write(self._fd, left) :]
        except OSError:  # BlockingIOError: full; EIO: it has hung up
            pass
        self._cut = bool(left)
        return not self._cut

    def close(self) -> None:
        os.close(self._fd)


def _reopen(fd: int) -> int:
    """Through /proc, since ttyname() knows no terminal of another mount namespace (docker exec -it)."""
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:  # after su the terminal belongs to somebody else: share what was handed down
        return os.dup(fd)


@dataclass(frozen=True, slots=True)
class Look:
    """What a frame must fit."""

    width: int
    height: int
    ascii_only: bool = False
    local_time: Callable[[float], time.struct_time] = time.localtime

    def clock(self, t: float) -> str:
        """`12:03:44`, local time."""
        return time.strftime("%H:%M:%S", self.local_time(t))

    def join(self, parts: Sequence[str], room: int) -> str:
        """`a · b · c`, as many as fit; the first that does not is shortened or left out."""
        text = ""
        for part in parts:
            dot = (" - " if self.ascii_only else " · ") if text else ""
            left = room - cell_len(text + dot)
            if cell_len(part) <= left:
                text += dot + part
                continue
            return text + dot + printable(part, left) if left >= 16 else text
        return text


def frame(snapshot: Snapshot, look: Look, footer: str = "", details: bool = False) -> list[Line]:
    """The whole screen: exactly `look.height` lines of exactly `look.width` cells."""
    bottom = [[Segment(printable(footer), DIM)]] if footer else []
    room = look.height - len(bottom)
    body = (_in_detail(snapshot, look) if details else _overview(snapshot, look, room))[:room]
    body += [[] for _ in range(look.height - len(bottom) - len(body))]
    return [_fit(line, look.width) for line in [*body, *bottom][: look.height]]


def _overview(snapshot: Snapshot, look: Look, height: int) -> list[Line]:
    top = [
        _title(snapshot, look),
        *_sentence(snapshot, look),
        *_findings(snapshot, look),
        [],
        *_bars(snapshot, look),
        _progress(snapshot, look),
        *_gauges(snapshot),
        *_problems(snapshot),
    ]
    table = _table(snapshot, look, height - len(top) - FEWEST_EVENTS - 2)
    return [*top, *table, *_events(snapshot, look, height - len(top) - len(table))]


def _in_detail(snapshot: Snapshot, look: Look) -> list[Line]:
    """What examinations found."""
    known = snapshot.diagnosis
    if known is None:
        text = "nothing is known of what grows yet: the trainer was not examined"
        return [_title(snapshot, look), *_sentence(snapshot, look), [], [Segment(text)]]
    headlines = [[Segment(line, PLAIN if line.startswith(" ") else BAD)] for line in diagnosis.headlines(known)]
    tables = [[Segment(line)] for line in diagnosis.tables(known)]
    return [_title(snapshot, look), *_sentence(snapshot, look), [], *headlines, *tables]


def _fit(line: Iterable[Segment], width: int) -> Line:
    """`line` cut or filled to `width` cells."""
    fitted: Line = []
    left = width
    for segment in line:
        length = cell_len(segment.text)
        if length > left:
            fitted.append(Segment(set_cell_size(segment.text, left), segment.style))
            left = 0
            break
        fitted.append(segment)
        left -= length
    if left:
        fitted.append(Segment(" " * left))
    return fitted


def _title(snapshot: Snapshot, look: Look) -> Line:
    pid = f" pid {snapshot.target.pid}" if snapshot.target else ""
    since = "" if snapshot.started_t is None else f"watched {format_duration(snapshot.t - snapshot.started_t)}  "
    right = f"  {since}{look.clock(snapshot.t)}"
    room = look.width - len("memwatch") - len(pid) - len(right) - 2
    command = set_cell_size(printable(snapshot.command, max(8, room)), max(0, room))
    return [Segment("memwatch", BOLD), Segment(pid, ACCENT), Segment(f"  {command}"), Segment(right, DIM)]


def _sentence(snapshot: Snapshot, look: Look) -> list[Line]:
    """The forecast in at most three lines; after the end, how it ended."""
    worst = max((_TONE.get(view.verdict, GOOD) for view in snapshot.resources), key=_rank, default=PLAIN)
    text, style = snapshot.sentence, worst
    if snapshot.exited is not None:
        evidence = "; ".join(snapshot.exited.evidence)
        text += f": {evidence}" if evidence else ""
    elif snapshot.state in (State.INTERRUPTING, State.ESCALATED):
        style = BAD
    return [[Segment(line, style)] for line in _wrap(printable(text, 600), look.width)[:3]]


def _findings(snapshot: Snapshot, look: Look) -> Iterator[Line]:
    """The causes of growth that were found, in two lines each at most."""
    if snapshot.diagnosis is not None and snapshot.exited is None:
        for one in snapshot.diagnosis.findings[:2]:
            lines = _wrap(printable(finding_text(one, snapshot.diagnosis.unit), 600), look.width)
            yield from ([Segment(line, BAD)] for line in lines[:2])


def _rank(style: Style) -> int:
    return [PLAIN, GOOD, WARN, BAD].index(style)


def _wrap(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".lstrip()
        if cell_len(joined) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


def _bars(snapshot: Snapshot, look: Look) -> list[Line]:
    cards = {gpu.resource: gpu for gpu in snapshot.sample.gpus} if snapshot.sample else {}
    views = list(snapshot.resources)
    most = max(2, look.height // 3)
    brief = 2 * len(views) > most  # many GPUs: their bars only, the fullest first
    if len(views) > most:
        views[1:] = sorted(views[1:], key=lambda view: -_share(view.usage))[: most - 1]
    bars = [list(_bar(view, cards.get(view.usage.resource), snapshot.unit, look)) for view in views]
    return [line for bar in bars for line in (bar[:1] if brief else bar)]


def _bar(view: ResourceView, card: GpuMemory | None, unit: str, look: Look) -> Iterator[Line]:
    usage, limit = view.usage, view.usage.limit
    figures = f" {format_bytes(usage.used_bytes):>9}"
    if limit is not None:
        figures += f" of {format_bytes(limit.bytes)} {_share(usage):>4.0%}"
    room = look.width - 6 - 32
    full, empty = ("#", "-") if look.ascii_only else ("█", "░")
    filled = 0 if limit is None else min(room, round(_share(usage) * room))
    style = _TONE.get(view.verdict, GOOD) if _share(usage) < 0.9 else BAD
    yield [
        Segment(f"{usage.resource:<6}", BOLD),
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
    yield [Segment(f"{'':6}"), Segment(look.join(parts, look.width - 6), DIM)]


def _share(usage: Usage) -> float:
    return usage.used_bytes / usage.limit.bytes if usage.limit and usage.limit.bytes > 0 else 0.0


def _progress(snapshot: Snapshot, look: Look) -> Line:
    """`generation 7 of 25 · evaluate · warned · checkpoint 5 m ago, takes 12 s (measured)`."""
    parts = [part for part in (format_progress(snapshot), printable(snapshot.phase or "", 30)) if part]
    parts = parts or ["no markers in the log yet: time alone"]
    if snapshot.state is not State.WATCHING:
        parts.append(snapshot.state.value)
    seen = snapshot.checkpoint_t
    ago = "no checkpoint seen" if seen is None else f"checkpoint {format_duration(snapshot.t - seen)} ago"
    origin = f" ({snapshot.checkpoint_origin})" if look.width >= 100 else ""
    parts.append(f"{ago}, takes {format_duration(snapshot.checkpoint_seconds)}{origin}")
    return [Segment(look.join(parts, look.width))]


def _gauges(snapshot: Snapshot) -> Iterator[Line]:
    shown = []
    for gauge in snapshot.gauges[:8]:
        capacity = "" if gauge.capacity is None else f" / {format_level(gauge.capacity)}"
        shown.append(f"{printable(gauge.name, 30)} {format_level(gauge.value)}{capacity}")
    if shown:
        yield [Segment("   ".join(shown), ACCENT)]


def _problems(snapshot: Snapshot) -> Iterator[Line]:
    """Sources that do not work; on one line, since most are a normal state (no NVIDIA driver)."""
    broken = [f"{source.source}: {printable(source.reason, 80)}" for source in snapshot.sources if not source.ok]
    if broken:
        yield [Segment("without " + "; ".join(broken), DIM)]


def _table(snapshot: Snapshot, look: Look, room: int) -> list[Line]:
    """The newest generations of the first resource that has some, under a head; nothing where it does not fit."""
    view = next((view for view in snapshot.resources if view.generations), None)
    if view is None or room < 3:
        return []
    rows = view.generations[-min(MOST_GENERATIONS, room - 2) :]
    phases = largest_phases(rows, (look.width - 56) // 10)
    unit = "gen" if snapshot.unit == "generation" else snapshot.unit
    names = ["time", "start", "end", "change", "peak", *phase_heads(phases)]
    head = _right(unit, 6) + "".join(_right(name, 10) for name in names)
    return [[], [Segment(head, DIM)], *(_row(row, phases) for row in rows)]


def _right(text: str, width: int) -> str:
    """`text` cut and moved to the right of `width` cells, of which the first stays free."""
    shown = printable(text, width - 1)
    cells = min(cell_len(shown), width - 1)  # a CJK character takes two
    return " " * (width - cells) + set_cell_size(shown, cells)


def _row(row: GenerationRow, phases: Sequence[str]) -> Line:
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


def _events(snapshot: Snapshot, look: Look, room: int) -> list[Line]:
    if room < 2 or not snapshot.notices:
        return []
    lines: list[Line] = [[]]
    told = [notice for notice in snapshot.notices if notice.event not in ROUTINE]  # the screen shows them anyway
    for notice in told[-(room - 1) :]:
        tone = _EVENT_TONE.get(notice.event, ACCENT)
        text = printable(notice.text, max(20, look.width - 20))
        lines.append([Segment(f"{look.clock(notice.t)} ", DIM), Segment(f"{notice.event:<11}", tone), Segment(text)])
    return lines
