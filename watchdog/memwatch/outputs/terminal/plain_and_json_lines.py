"""Lines for pipes and files: a line for people per change of state, or every notice as a JSON line."""

from __future__ import annotations

import math
import os
import select
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TextIO

from memwatch.core.engine.status_sentence import to_text_line
from memwatch.core.events import Notice
from memwatch.core.snapshot import Snapshot, Verdict
from memwatch.outputs.text.formatting import ROUTINE_EVENTS

MAX_QUEUED_LINES = 1000  # lines that wait for a slow reader; further ones are dropped (chosen)
# Time between two forecasts that are not urgent. With the urgent ones, a watch prints less than 1 kB per hour.
MAX_FORECAST_INTERVAL_SECONDS = 1200.0
PATIENT_SHARE = 0.5  # early in a watch, the time between them is this share of the time watched so far (chosen)
URGENT = 3  # a forecast of this severity or more is reported at once
_YELLOW, _RED, _GREEN, _RESET = "\x1b[33m", "\x1b[31m", "\x1b[32m", "\x1b[0m"
_COLOURS = {
    **dict.fromkeys(("warn", "deferred", "finding", "breach", "unarmed", "source_failed"), _YELLOW),
    **dict.fromkeys(("interrupt", "signalled", "escalated", "failed", "out_of_memory", "hook_failed"), _RED),
    "saved": _GREEN,
}
_SEVERITY = {  # `stable` and `plateau` are equal: memory does not grow
    Verdict.WARMING_UP.value: 0,
    Verdict.STABLE.value: 1,
    Verdict.PLATEAU.value: 1,
    Verdict.GROWING.value: 2,
    Verdict.LEAK.value: 4,
}


class _LineSink:
    """Writes lines to a stream that may be slow or closed, without blocking the watch.

    Lines that a full pipe or a stopped terminal does not accept wait here; new ones are dropped when too many wait.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._encoding = stream.encoding or "utf-8"
        self._waiting: deque[bytes] = deque()
        self._is_gone = False
        self._room: select.poll | None = None  # reports that the file takes PIPE_BUF more bytes; None without a file
        with suppress(OSError, ValueError):  # io.UnsupportedOperation is both
            fd = stream.fileno()
            self._room = select.poll()
            self._room.register(fd, select.POLLOUT)

    def on_loop_iteration(self) -> bool:
        self._send()
        return False

    def wants_snapshot(self) -> bool:
        return False

    def on_watch_end(self, snapshot: Snapshot) -> None:
        self._send(patience_seconds=1.0)

    def _put(self, line: str) -> None:
        if not self._is_gone and len(self._waiting) < MAX_QUEUED_LINES:
            self._waiting.append(f"{line}\n".encode(self._encoding, "replace"))

    def _send(self, patience_seconds: float = 0.0) -> None:
        try:
            while self._waiting and (self._room is None or self._room.poll(patience_seconds * 1000)):
                line = self._waiting.popleft()
                if rest := line[self._write(line) :]:
                    self._waiting.appendleft(rest)
        except (OSError, ValueError):  # BrokenPipeError, ENOSPC; ValueError: the stream is closed
            self._is_gone = True
            self._waiting.clear()

    def _write(self, line: bytes) -> int:
        """Returns how many bytes were written: PIPE_BUF at most, which never blocks where poll() reported room."""
        if self._room is None:
            self._stream.write(line.decode(self._encoding))
            return len(line)
        return os.write(self._stream.fileno(), line[: select.PIPE_BUF])


class PlainLines(_LineSink):
    """A sink that prints `12:03:44 warn         OOM at generation 13 of 25 ...`, one line for each change of state.

    With `journal_priority` a line begins with that, as `<4>`, and has no time, as journald adds it.
    """

    name = "plain"

    def __init__(
        self,
        stream: TextIO,
        verbose: bool = False,
        *,
        local_time: Callable[[float], time.struct_time] = time.localtime,
        journal_priority: Callable[[Notice], int] | None = None,
        label: str = "",
        is_coloured: bool = False,
        is_within_line: Callable[[], bool] = lambda: False,
    ) -> None:
        """`label` stands before each text. `is_within_line`: another program has printed a line that has not ended."""
        super().__init__(stream)
        self._label, self._is_coloured, self._is_within_line = label, is_coloured, is_within_line
        self._is_news = (lambda _: True) if verbose else NoticeFilter()
        self._local_time, self._priority = local_time, journal_priority

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        for notice in notices:
            if self._is_news(notice):
                if self._priority is None:
                    prefix = time.strftime("%H:%M:%S ", self._local_time(notice.t))
                else:
                    prefix = f"<{self._priority(notice)}>"
                line = f"{prefix}{self._label}{to_text_line(notice)}"
                colour = _COLOURS.get(notice.event, "") if self._is_coloured else ""
                begin = "\n" if self._is_within_line() else ""
                self._put(f"{begin}{colour}{line}{_RESET if colour else ''}")
        self._send()


class JsonLines(_LineSink):
    """A sink that prints every notice as one JSON object per line, made by `encode`."""

    name = "json"

    def __init__(self, stream: TextIO, encode: Callable[[Notice], str]) -> None:
        super().__init__(stream)
        self._encode = encode

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        for notice in notices:
            self._put(self._encode(notice))
        self._send()


class NoticeFilter:
    """Selects the notices that are news, as opposed to the routine of every healthy run.

    Every generation renews the forecast, and noise changes the verdict of a healthy run. A forecast that is more severe
    than the last one reported is reported at once if the OOM is in sight. Others are reported at most three times an
    hour, and more often early in a watch.
    """

    def __init__(self) -> None:
        self._reported_severity: dict[str, int] = {}  # by resource, of the forecast that was reported last
        self._begun_t = -math.inf  # when the watch began
        self._routine_t = -math.inf  # when a forecast that was not urgent was reported last

    def __call__(self, notice: Notice) -> bool:
        """Whether to report the notice, which then counts as reported."""
        if notice.event in ROUTINE_EVENTS:
            return False
        if notice.event == "attached":
            self._begun_t = notice.t
            self._reported_severity.clear()  # of another process
        if "verdict" not in notice.fields:
            return True
        resource, severity = str(notice.fields.get("resource")), _severity(notice.fields)
        if notice.event == "forecast" and not self._is_due(notice.t, severity, self._reported_severity.get(resource)):
            return False
        self._reported_severity[resource] = severity
        return True

    def _is_due(self, t: float, severity: int, reported: int | None) -> bool:
        if reported is None or (severity > reported and (reported == 0 or severity >= URGENT)):
            return True
        pause = min(MAX_FORECAST_INTERVAL_SECONDS, PATIENT_SHARE * (t - self._begun_t))
        if severity == reported or 0.0 <= t - self._routine_t < pause:
            return False
        self._routine_t = t
        return True


def _severity(fields: Mapping[str, Any]) -> int:
    """Severity of a forecast by its verdict, and by whether the limit will be reached before the run ends."""
    verdict = str(fields["verdict"])  # that of an old history may be unknown
    is_oom_in_sight = fields.get("eta_s") is not None and not fields.get("finishes")
    return URGENT if verdict == Verdict.GROWING.value and is_oom_in_sight else _SEVERITY.get(verdict, 0)


def wants_live_view(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether `stream` is a terminal on which the live view can be drawn."""
    return stream.isatty() and environ.get("TERM", "") not in ("", "dumb")
