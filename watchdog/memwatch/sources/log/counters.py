"""Counters seen in a log, and the choice which of them is the clock of the run."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

from memwatch.core.events import Event, GenerationSeen
from memwatch.core.text_and_units import TERMINAL_ESCAPE

KEPT_HITS = 4096  # of a counter that is not chosen yet; the oldest are dropped
INCREMENTS_TO_OUTRANK = 5  # how often a counter must go up to be chosen although a greater unit was named once ...
INNER_LOOP_MOVES = (
    64  # how often a lesser counter must have moved, and twice as often as the clock, to be no clock for good
)
MAX_ERRATIC_DECREMENTS = 1000  # how often one may go down to anywhere before it is given up
INCREMENTS_TO_OUTRANK_UNNAMED = 20  # ... and one that only moves as a counter would, although any unit was named

# What counts, by the greatest first: an epoch within a generation is the inner loop.
UNIT_PRIORITY = {
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
OTHER_UNIT_PRIORITY = 5
UNNAMED_PRIORITY = 1
UNNAMED_UNIT = "step"  # the unit of a number without any word
_OF_USER = 1000

_NOISE = re.compile(TERMINAL_ESCAPE.pattern + "|[\x00-\x08\x0e-\x1f\x7f]+")
_HAS_NOISE = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")


class LocatedEvent(NamedTuple):
    """An event, and where in the log its text stands."""

    byte: int
    line: int
    event: Event


class LineText:
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
        self.text, self.lower = text, _lower(text)

    def part(self, start: int, end: int | None = None) -> LineText:
        """The characters from `start` to `end`, which still know where they came from."""
        part = object.__new__(LineText)
        part._byte, part._whole, part._noisy, part._start = self._byte, self._whole, self._noisy, self._start + start
        part.line, part.t = self.line, self.t
        part.text = self.text[start:end]
        part.lower = self.lower[start:end]
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


def _lower(text: str) -> str:
    """In lower case, each character at its place (a few of them have none or two)."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


class LogCounter:
    """One counter: its hits until it is chosen, and how it moved."""

    __slots__ = (
        "_at",
        "_erratic",
        "_mark",
        "_repeats",
        "_step",
        "chosen",
        "dead",
        "decrements",
        "even",
        "family",
        "first",
        "hits",
        "increments",
        "inner",
        "last",
        "name",
        "priority",
        "required_increments",
        "restarts",
        "total",
        "unit",
    )

    def __init__(self, name: str, unit: str, weight: int, needs: int, priority: int | None = None) -> None:
        self.name, self.unit = name, unit
        self.family = name  # several that look the same: of each process, of each length of a bar
        self.priority = (UNIT_PRIORITY.get(unit, OTHER_UNIT_PRIORITY) if priority is None else priority, weight)
        self.required_increments = needs  # how often it must have gone up before it can be chosen
        self.hits: list[LocatedEvent] = []
        self.first: float | None = None
        self.last: float | None = None
        self.total: int | None = None
        self.increments = self.decrements = 0
        self.restarts = 0  # how often it went down to where it began: it counts within something
        self.even = False  # it must go up by the same step each time
        self.dead = False
        self.inner = False  # a loop within the clock
        self.chosen = False  # the clock, now or once
        self._erratic = 0  # how often it went down to somewhere else
        self._step = 0.0
        self._at = ""
        self._repeats = False
        self._mark = (-1, 0, 0)  # the clock when this was first seen beside it, its moves and own moves then

    def add_value(self, piece: LineText, position: int, index: float, total: int | None, at: str) -> bool:
        """Count `index`; False when it only repeats what was said last."""
        at = "progress" if self._repeats else at
        if index == self.last and at == self._at:
            return False
        self._move(index)
        self._at = at
        self.total = total or self.total
        if self.inner and not self.chosen:
            return True
        self.hits.append(
            LocatedEvent(piece.byte_of(position), piece.line, GenerationSeen(piece.t, index, total, self.unit, at))
        )
        if len(self.hits) > KEPT_HITS:
            del self.hits[: KEPT_HITS // 2]
        return True

    def _move(self, index: float) -> None:
        if self.first is None or self.last is None:
            self.first = index
        elif index > self.last:
            self.increments += 1
            self.dead |= self.even and self._step not in (0, index - self.last)
            self._step = self._step or index - self.last
        elif index < self.last:
            self.decrements += 1
            self.restarts += index <= self.first
            self._erratic += index > self.first
            self.dead |= self._erratic > MAX_ERRATIC_DECREMENTS + self.increments // 4 and not self.chosen
        self.last = index

    def at_first(self, index: float, at: str) -> str:
        """`at` where this is the first that is seen of `index`; what was said before, where it is drawn again."""
        return self._at if index == self.last else at

    @property
    def ready(self) -> bool:
        """It has shown enough to be the clock."""
        if self.increments < self.required_increments or self.first is None:
            return False
        return self._erratic <= self.increments // 4 and not self.dead and not self.inner

    def encloses(self, inner: LogCounter) -> bool:
        """`inner` starts anew each time that it goes up."""
        if (
            self.decrements
            or inner.unit == self.unit
            or inner.priority[0] >= _OF_USER
            or self.increments >= inner.increments
        ):
            return False
        known = self.priority[0] > OTHER_UNIT_PRIORITY
        seen = 1 if known else 2  # of what is no known unit, more must be seen
        in_step = abs(self.increments - inner.restarts) <= 1
        between = known and 2 <= self.increments <= inner.restarts  # `inner` starts anew several times in each
        return min(self.increments, inner.restarts) >= seen and (in_step or between)

    @property
    def state(self) -> tuple[object, ...]:
        """All that changes when it counts."""
        return self.increments, self.decrements, self.last, self._at, self._repeats

    def outruns(self, clock: LogCounter, changes: int) -> bool:
        """Since `clock` was chosen (as the `changes`-th) this one moved far more often."""
        moves, of_clock = self.increments + self.decrements, clock.increments + clock.decrements
        if self._mark[0] != changes:
            self._mark = (changes, of_clock, moves)
        return moves - self._mark[2] >= INNER_LOOP_MOVES + 2 * (of_clock - self._mark[1])

    def mark_inner_loop(self) -> None:
        """It is no clock."""
        self.inner = True
        self.hits.clear()

    @property
    def nameless(self) -> bool:
        """Nothing said what it counts."""
        return self.unit == UNNAMED_UNIT and self.priority[0] < OTHER_UNIT_PRIORITY

    def rename(self, unit: str, priority: tuple[int, int] | None = None) -> None:
        """It turned out to count `unit`."""
        self.unit = unit
        self.priority = priority or (UNIT_PRIORITY.get(unit, OTHER_UNIT_PRIORITY), self.priority[1])
        self.hits = [changed(hit, unit=unit) for hit in self.hits]

    def repeat(self) -> bool:
        """The same index was printed again: it is not only printed when a unit ends. False, for nothing moved."""
        if not self._repeats:
            self._repeats, self._at = True, "progress"
            self.hits = [changed(hit, at="progress") for hit in self.hits]
        return False


class PrimaryCounterSelector:
    """The counter that is the clock, out of all that were seen."""

    def __init__(self) -> None:
        self.selected: LogCounter | None = None
        self.changes = 0
        self._downs_before = 0

    def update(self, streams: list[LogCounter]) -> bool:
        """Choose again; True when the clock is another than before, or none any more."""
        changed = self.selected is not None and self.selected.dead
        if changed:
            self.selected = None
            self.changes += 1
        ready = [s for s in streams if s.ready]
        best = _outermost(max(ready, key=lambda s: s.priority, default=None), ready)
        if best is None or best is self.selected or self._keeps(best) or _held_back(best, streams):
            return changed
        self.selected = best
        best.chosen = True
        self.changes += 1
        self._downs_before = best.decrements
        return True

    def _keeps(self, other: LogCounter) -> bool:
        """The present clock stays: nothing greater, or no sign that it is an inner loop of the other."""
        now = self.selected
        if now is None or now.inner:
            return False
        if other.priority[0] <= now.priority[0]:
            return other.priority <= now.priority or other.priority[0] > OTHER_UNIT_PRIORITY
        went_back = now.decrements > self._downs_before
        return other.priority[0] < _OF_USER and now.priority[0] >= UNIT_PRIORITY["episode"] and not went_back


def user_priority(unit: str) -> int:
    """Above all that memwatch finds by itself."""
    return _OF_USER + UNIT_PRIORITY.get(unit, OTHER_UNIT_PRIORITY)


def _outermost(stream: LogCounter | None, ready: list[LogCounter]) -> LogCounter | None:
    """`stream`, or the loop that it turns within, whatever the two are called."""
    while stream is not None:
        inner = stream
        stream = next((s for s in ready if not s.inner and s.encloses(inner)), None)
        if stream is None:
            return inner
        inner.inner = True
    return None


def _held_back(stream: LogCounter, streams: list[LogCounter]) -> bool:
    greater = any(s.hits and not s.dead and not s.inner and s.priority[0] > stream.priority[0] for s in streams)
    return greater and stream.increments < (
        INCREMENTS_TO_OUTRANK_UNNAMED if stream.priority[0] < OTHER_UNIT_PRIORITY else INCREMENTS_TO_OUTRANK
    )


def changed(hit: LocatedEvent, **fields: Any) -> LocatedEvent:
    """The same hit with other fields of its event."""
    return hit._replace(event=replace(hit.event, **fields))
