"""Marks that the trainer sends by itself (`memwatch.marking`): exact generations, phases, levels and saves.

Where there are marks, they are the clock, and the log's counter is left out.
"""

from __future__ import annotations

import json
import math
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from memwatch.core.events import (
    CheckpointSeen,
    Event,
    GaugeSeen,
    GenerationSeen,
    PhaseSeen,
    SourceChanged,
    TotalSeen,
)
from memwatch.core.interfaces import EventSource
from memwatch.core.text_and_units import printable
from memwatch.marking import MOST_BYTES, address

MOST_MARKS = 512  # of one poll: a program that marks each of its steps
NAME_LENGTH, PATH_LENGTH = 40, 300  # characters
MOST_NUMBER = 2.0**53
_CREDENTIALS = socket.CMSG_SPACE(12)  # of SCM_CREDENTIALS: pid, uid, gid


class ProgressMarks:
    """A source of events: the marks of one process and those below it. `clock`: the name of the marked clock."""

    name = "marks"

    def __init__(self, pid: int, *, uid: int | None = None) -> None:
        """Listen for the marks of a process of user `uid`; OSError when another memwatch has its address."""
        self.clock = ""
        self._uid, self._polled_t = uid, -math.inf
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.bind(address(pid))
        except OSError:
            self._socket.close()
            raise

    def poll(self, now: float) -> Iterable[Event]:
        begun_t, self._polled_t = self._polled_t, now
        return [event for raw in self._received() for event in self._events(raw, begun_t, now)]

    def close(self) -> None:
        self._socket.close()

    def _received(self) -> Iterator[bytes]:
        for _ in range(MOST_MARKS):
            try:
                raw, ancillary, _, _ = self._socket.recvmsg(MOST_BYTES + 1, _CREDENTIALS)
            except OSError:  # there are no more
                return
            if self._is_allowed(ancillary):
                yield raw

    def _is_allowed(self, ancillary: Iterable[tuple[int, int, bytes]]) -> bool:
        """The sender is the trainer's user, or root: others could stop a run by what they say."""
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) >= 8:
                return int.from_bytes(data[4:8], "little") in (0, os.getuid(), self._uid)
        return False

    def _events(self, raw: bytes, begun_t: float, now: float) -> Iterator[Event]:
        told = parse_mark(raw)
        t = told.pop("t", None)
        t = min(max(t, begun_t), now) if isinstance(t, float) else now  # of the sender's clock, which may be another
        total = told.pop("total", None)
        total = int(total) if isinstance(total, float) and total > 0 else None
        for name, value in told.items():
            if name == "phase" and isinstance(value, str):
                yield PhaseSeen(t, value, "start")
            elif name in ("saving", "saved") and isinstance(value, str):
                state = "writing" if name == "saving" else "saved"
                yield CheckpointSeen(t, state, f"mark: {name} {value}", path=value if "/" in value else "")
            elif isinstance(value, tuple):
                yield GaugeSeen(t, name, *value)
            elif isinstance(value, float):
                if not self.clock:
                    self.clock = name
                    yield SourceChanged(now, self.name, True, f"the program marks its {name}s: they are the clock")
                if name == self.clock:
                    yield GenerationSeen(t, value, total, unit=name)
                    total = None
                else:
                    yield GaugeSeen(t, name, value)
        if total is not None and self.clock:
            yield TotalSeen(t, total)


def parse_mark(raw: bytes) -> dict[str, float | str | tuple[float, float]]:
    """Return the names and values of a mark that can be used: numbers, text, a number with its capacity."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    items = found.items() if isinstance(found, Mapping) else ()
    read = ((printable(name, NAME_LENGTH), _value(value)) for name, value in items)
    return {name: value for name, value in read if name and value is not None}


def _value(value: Any) -> float | str | tuple[float, float] | None:
    if isinstance(value, str):
        return printable(value, PATH_LENGTH) or None
    if isinstance(value, list) and len(value) == 2:
        level, capacity = map(_number, value)
        return None if level is None or capacity is None else (level, capacity)
    return _number(value)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < MOST_NUMBER and math.isfinite(value) else None


class MarksBeforeLog:
    """A source of events: the marks, and of the log what these do not tell."""

    def __init__(self, marks: ProgressMarks, log: EventSource) -> None:
        self.name, self._marks, self._log = log.name, marks, log
        self._log_counts = False  # the log's counter has been the clock

    def poll(self, now: float) -> Iterator[Event]:
        for event in self._marks.poll(now):
            if isinstance(event, GenerationSeen) and self._log_counts:
                self._log_counts = False
                yield GenerationSeen(event.t, event.index, event.total, event.unit, recount=True)
            else:
                yield event
        for event in self._log.poll(now):
            if self._marks.clock and isinstance(event, GenerationSeen | TotalSeen | PhaseSeen):
                continue
            self._log_counts |= isinstance(event, GenerationSeen)
            yield event

    def close(self) -> None:
        self._marks.close()
        self._log.close()
