"""Counters seen in a log, and the choice which of them is the clock of the run."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from memwatch.core.model import Event, GenerationSeen
from memwatch.core.text import TERMINAL_ESCAPE

KEPT_HITS = 4096  # of a counter that is not chosen yet; the oldest are dropped
HELD_BACK = 5  # how often a counter must go up to be chosen although a greater unit was named once

# What counts, by the greatest first: an epoch within a generation is the inner loop.
PRIORITY = {
    "generation": 60,
    "trial": 55,
    "epoch": 50,
    "iteration": 40,
    "round": 40,
    "update": 35,
    "episode": 30,
    "timestep": 20,
    "step": 20,
    "batch": 10,
}
OTHER_UNIT = 5
UNNAMED = 1
_OF_USER = 1000

_NOISE = re.compile(TERMINAL_ESCAPE.pattern + "|[\x00-\x08\x0e-\x1f\x7f]+")
_HAS_NOISE = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")


class Hit(NamedTuple):
    """An event, and where in the log its text stands."""

    byte: int
    line: int
    event: Event


class Piece:
    """Text of a segment without terminal escapes, which knows the byte that each of its characters came from."""

    __slots__ = ("_byte", "_noisy", "_start", "_whole", "line", "lower", "t", "text")

    def __init__(self, raw: bytes, byte: int, line: int, t: float) -> None:
        text = raw.decode("utf-8", "surrogateescape")
        self._whole = text
        self._noisy = _HAS_NOISE.search(raw) is not None
        if self._noisy:
            text = _NOISE.sub("", text)
        self._byte, self._start = byte, 0
        self.line, self.t = line, t
        self.text, self.lower = text, text.lower()

    def part(self, start: int, end: int | None = None) -> Piece:
        """The characters from `start` to `end`, which still know where they came from."""
        part = object.__new__(Piece)
        part._byte, part._whole, part._noisy, part._start = self._byte, self._whole, self._noisy, self._start + start
        part.line, part.t = self.line, self.t
        part.text = self.text[start:end]
        part.lower = part.text.lower()
        return part

    def byte_of(self, position: int) -> int:
        """Offset in the file of the character at `position`."""
        position += self._start
        if self._noisy:
            for noise in _NOISE.finditer(self._whole):
                if noise.start() > position:
                    break
                position += noise.end() - noise.start()
        return self._byte + len(self._whole[:position].encode("utf-8", "surrogateescape"))


class Stream:
    """One counter: its hits until it is chosen, and how it moved."""

    __slots__ = (
        "_at",
        "_repeats",
        "dead",
        "downs",
        "first",
        "hits",
        "last",
        "name",
        "needs",
        "priority",
        "total",
        "unit",
        "ups",
    )

    def __init__(self, name: str, unit: str, weight: int, needs: int, priority: int | None = None) -> None:
        self.name, self.unit = name, unit
        self.priority = (PRIORITY.get(unit, OTHER_UNIT) if priority is None else priority, weight)
        self.needs = needs  # how often it must have gone up before it can be chosen
        self.hits: list[Hit] = []
        self.first: float | None = None
        self.last: float | None = None
        self.total: int | None = None
        self.ups = self.downs = 0
        self.dead = False
        self._at = ""
        self._repeats = False

    def add(self, piece: Piece, position: int, index: float, total: int | None, at: str) -> bool:
        """Count `index`; False when it only repeats what was said last."""
        at = "progress" if self._repeats else at
        if index == self.last and at == self._at:
            return False
        if self.last is None:
            self.first = index
        self.ups += self.last is not None and index > self.last
        self.downs += self.last is not None and index < self.last
        self.last, self._at = index, at
        self.total = total or self.total
        self.hits.append(Hit(piece.byte_of(position), piece.line, GenerationSeen(piece.t, index, total, self.unit, at)))
        if len(self.hits) > KEPT_HITS:
            del self.hits[: KEPT_HITS // 2]
        return True

    @property
    def ready(self) -> bool:
        """It has shown enough to be the clock."""
        return bool(self.first is not None and self.ups >= self.needs and not self.dead)

    def rename(self, unit: str) -> None:
        """It turned out to count `unit`."""
        self.unit, self.priority = unit, (PRIORITY.get(unit, OTHER_UNIT), self.priority[1])
        self.hits = [_changed(hit, unit=unit) for hit in self.hits]

    def repeat(self) -> bool:
        """The same index was printed again: it is not only printed when a unit ends. False, for nothing moved."""
        if not self._repeats:
            self._repeats, self._at = True, "progress"
            self.hits = [_changed(hit, at="progress") for hit in self.hits]
        return False


class Choice:
    """The counter that is the clock, out of all that were seen."""

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.changes = 0
        self._downs_before = 0

    def update(self, streams: list[Stream]) -> bool:
        """Choose again; True when the clock is another than before, or none any more."""
        changed = self.stream is not None and self.stream.dead
        if changed:
            self.stream = None
            self.changes += 1
        best = max((s for s in streams if s.ready), key=lambda s: s.priority, default=None)
        if best is None or best is self.stream or self._keeps(best) or _held_back(best, streams):
            return changed
        self.stream = best
        self.changes += 1
        self._downs_before = best.downs
        return True

    def _keeps(self, other: Stream) -> bool:
        """The present clock stays: nothing greater, or no sign that it is an inner loop of the other."""
        now = self.stream
        if now is None:
            return False
        if other.priority[0] <= now.priority[0]:
            return other.priority <= now.priority or other.priority[0] > OTHER_UNIT
        went_back = now.downs > self._downs_before
        return other.priority[0] < _OF_USER and now.priority[0] >= PRIORITY["episode"] and not went_back


def user_priority(unit: str) -> int:
    """Above all that memwatch finds by itself."""
    return _OF_USER + PRIORITY.get(unit, OTHER_UNIT)


def _held_back(stream: Stream, streams: list[Stream]) -> bool:
    greater = any(s.hits and not s.dead and s.priority[0] > stream.priority[0] for s in streams)
    return greater and stream.ups < HELD_BACK


def _changed(hit: Hit, **fields: str) -> Hit:
    return hit._replace(event=replace(hit.event, **fields))  # type: ignore[arg-type]
