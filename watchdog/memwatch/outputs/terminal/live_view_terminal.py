"""The live view on a terminal: draws the lines of each frame that have changed, and reacts to keys.

rich provides styles and controls. A terminal that accepts nothing (Ctrl-S, a hung ssh) must never delay the watch:
writes do not block, and what the terminal does not accept is dropped and drawn again later.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from rich.console import Console
from rich.control import Control
from rich.text import Text

from memwatch.core.events import Notice
from memwatch.core.interfaces import Clock
from memwatch.core.snapshot import Snapshot
from memwatch.outputs.terminal.keyboard import DOWN, END, HOME, PAGE_DOWN, PAGE_UP, UP
from memwatch.outputs.terminal.live_view_layout import (
    Mode,
    ScreenLine,
    Viewport,
    ViewStatus,
    last_first_line,
    render_frame,
)

FRAME_SECONDS = 0.25  # between two frames (chosen)
PAUSE = "p"
PRINTED_SIZE = (100, 46)  # columns and lines of a frame that is printed to a file (chosen)
_MODES = {"d": Mode.DETAILS, "h": Mode.HELP, "?": Mode.HELP}


class LiveView:
    """A sink that draws the snapshot on the terminal's alternate screen, and restores the terminal at the end."""

    name = "terminal"

    def __init__(
        self,
        stream: TextIO,
        clock: Clock,
        footer: str = "",
        local_time: Callable[[float], time.struct_time] = time.localtime,
    ) -> None:
        """`stream` is a terminal; `footer` is shown in the last line, e.g. the address of the HTTP server."""
        self.footer = footer
        self.keys: Mapping[str, str] = {}  # what each key does, shown in the last line
        self._mode, self._first_line = Mode.OVERVIEW, 0
        self._is_requested = False
        self._paused: Snapshot | None = None  # the snapshot at which the view is paused
        self._tty = _Tty(stream)
        self._canvas = io.StringIO()  # rich writes here, and _Tty from here to the terminal
        self._console = Console(file=self._canvas, force_terminal=True, highlight=False, markup=False, emoji=False)
        self._clock = clock
        self._local_time = local_time
        self._drawn: list[ScreenLine] = []  # the lines on the screen
        self._size = (0, 0)
        self._latest: Snapshot | None = None
        self._next_t = 0.0
        self._open = self._closed = False

    def on_loop_iteration(self) -> bool:
        return not self._closed and self._clock.now() >= self._next_t

    def wants_snapshot(self) -> bool:
        """Whether a key has changed the view."""
        return self._is_requested and not self._closed

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        now = self._clock.now()
        if not self._closed and (now >= self._next_t or notices):
            self._next_t, self._is_requested = now + FRAME_SECONDS, False
            self._latest = snapshot
            self._draw(self._paused or snapshot)

    def on_watch_end(self, snapshot: Snapshot) -> None:
        self.restore()

    def restore(self) -> None:
        """Leaves the alternate screen and shows the cursor; a second call does nothing."""
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
        """`d` and `h` switch to another view and back to the overview; `p` pauses the view, not the watch.

        In the details arrows, PageUp and PageDown scroll.
        """
        if key in _MODES:
            self._mode, self._first_line = Mode.OVERVIEW if self._mode is _MODES[key] else _MODES[key], 0
        elif key == PAUSE:
            self._paused = self._latest if self._paused is None else None
        elif self._mode is Mode.DETAILS:
            self._scroll(key)
        self._next_t, self._is_requested = 0.0, True

    def _scroll(self, key: str) -> None:
        snapshot = self._paused or self._latest
        if snapshot is None:
            return
        page = max(1, self._size[1] - 2)
        steps = {UP: -1, DOWN: 1, PAGE_UP: -page, PAGE_DOWN: page, " ": page, HOME: -(10**6), END: 10**6}
        last = last_first_line(snapshot, self._viewport(), self._status())
        self._first_line = max(0, min(last, min(self._first_line, last) + steps.get(key, 0)))

    def _viewport(self) -> Viewport:
        return Viewport(*self._tty.size(), ascii_only=self._tty.ascii_only, local_time=self._local_time)

    def _status(self) -> ViewStatus:
        return ViewStatus(self._mode, self.keys, self.footer, self._paused is not None, self._first_line)

    def _draw(self, snapshot: Snapshot) -> None:
        if not self._open:
            atexit.register(self.restore)
            self._open = True
            self._console.set_alt_screen(True)
            self._console.show_cursor(False)
        viewport = self._viewport()
        size = viewport.width, viewport.height
        if size != self._size or not self._drawn:
            self._console.control(Control.clear())
            self._drawn, self._size = [], size
        lines = render_frame(snapshot, viewport, self._status())
        for y, line in enumerate(lines):
            if y >= len(self._drawn) or self._drawn[y] != line:
                self._console.update_screen_lines([line], 0, y)
        self._drawn = lines if self._send() else []

    def _send(self, patience_seconds: float = 0.0) -> bool:
        text = self._canvas.getvalue()
        self._canvas.seek(0)
        self._canvas.truncate()
        return self._tty.send(text, patience_seconds)


def print_screen(stream: TextIO, snapshot: Snapshot) -> None:
    """Prints a single frame of the terminal's size, or of PRINTED_SIZE if `stream` is not a terminal."""
    width, height = os.get_terminal_size(stream.fileno()) if stream.isatty() else PRINTED_SIZE
    viewport = Viewport(width, height - 1, ascii_only=not (stream.encoding or "utf-8").lower().startswith("utf"))
    console = Console(file=stream, highlight=False, markup=False, emoji=False, width=width)
    lines = [
        Text.assemble(*((segment.text, segment.style or "") for segment in line))
        for line in render_frame(snapshot, viewport)
    ]
    for line in lines:
        line.rstrip()
    while lines and not lines[-1].plain:
        lines.pop()
    for line in lines:
        console.print(line, soft_wrap=True)


class _Tty:
    """The terminal behind a stream, as an open file description of our own: O_NONBLOCK affects nobody else."""

    def __init__(self, stream: TextIO) -> None:
        self._encoding = stream.encoding or "utf-8"
        self._cut = False  # the last text was not written completely
        try:  # through /proc, since ttyname() knows no terminal of another mount namespace (docker exec -it)
            self._fd = os.open(f"/proc/self/fd/{stream.fileno()}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:  # after su the terminal belongs to another user: share the descriptor
            self._fd = os.dup(stream.fileno())
        self.ascii_only = not self._encoding.lower().startswith("utf")

    def size(self) -> tuple[int, int]:
        """Columns and lines; 80 x 24 if the terminal does not say."""
        try:
            width, height = os.get_terminal_size(self._fd)
        except OSError:
            return 80, 24
        return width or 80, height or 24

    def send(self, text: str, patience_seconds: float) -> bool:
        """Writes the text; returns whether the terminal accepted all of it."""
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
