"""Marks that the trainer sends by itself (`memwatch.marking`): exact generations, phases, levels and saves."""

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
from memwatch.core.text_and_units import printable
from memwatch.marking import MOST_BYTES, address
from memwatch.system.socket_peer import peer_uid

MOST_MARKS = 512  # of a process in one poll: one that marks each of its steps
NAME_LENGTH, PATH_LENGTH = 40, 300  # characters
MOST_NUMBER = 2.0**53
MOST_SENDERS = 64  # processes that mark: ranks, workers


class ProgressMarks:
    """A source of events: the marks of one process and those below it. `clock`: the name of the marked clock."""

    name = "marks"

    def __init__(self, pid: int, *, uid: int | None = None) -> None:
        """Listen for the marks of a process of user `uid`; OSError when another memwatch has its address."""
        self.clock = ""
        self._uid, self._polled_t = uid, -math.inf
        self._senders: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            self._listener.bind(address(pid))
            self._listener.listen(MOST_SENDERS)
        except OSError:
            self._listener.close()
            raise

    def poll(self, now: float) -> Iterable[Event]:
        begun_t, self._polled_t = self._polled_t, now
        self._admit()
        return [event for raw in self._received() for event in self._events(raw, begun_t, now)]

    def close(self) -> None:
        for one in (self._listener, *self._senders):
            one.close()

    def _admit(self) -> None:
        """Connections of the trainer's user and of root: others could stop a run by what they say."""
        while len(self._senders) < MOST_SENDERS:
            try:
                sender, _ = self._listener.accept()
            except OSError:  # there are no more
                return
            if peer_uid(sender) in (0, os.getuid(), self._uid):
                sender.setblocking(False)
                self._senders.append(sender)
            else:
                sender.close()

    def _received(self) -> Iterator[bytes]:
        for sender in tuple(self._senders):
            for _ in range(MOST_MARKS):
                try:
                    raw = sender.recv(MOST_BYTES + 1)
                except BlockingIOError:
                    break
                except OSError:
                    raw = b""
                if not raw:  # it has ended
                    self._senders.remove(sender)
                    sender.close()
                    break
                yield raw

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
                    yield GenerationSeen(t, value, total, unit=name, origin="the program's marks")
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
