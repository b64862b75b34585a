"""The counters of a log, and the choice of the primary one, whose values are the run's generations."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

from memwatch.core.events import Event, GenerationSeen
from memwatch.sources.log.line_text import LineText
from memwatch.sources.log.unit_mentions import UNIT_PRIORITY, UNNAMED_UNIT

MAX_PENDING_EVENTS = 4096  # of a counter that is not primary yet; with more, the older half is dropped
INCREMENTS_TO_OUTRANK = 5  # after which a counter can be primary although a greater unit was named (chosen)
# Changes of a counter since the primary one was selected, beside twice the primary's, that make it an inner loop.
INNER_LOOP_MOVES = 64
# Increments of a counter of the same unit, while the primary one stands, after which it is the clock (chosen).
STANDING_MOVES = 8
SAME_CLOCK_INCREMENTS = 8  # of a counter without a name for each value of a named one that is where it is (chosen)
MIN_OF_EACH_KIND = 2  # increments by each of two kinds of lines, after which both show one counter (chosen)
MAX_TOTAL_CHANGES = 3  # increases of a total printed with the index, after which it is none: it is a second count
# Of what is printed into a file, that Python keeps before it writes: 4 or 8 KiB by the file's blocks, twice that either
# way where other lines are among it (docs.python.org/3/library/io.html#io.DEFAULT_BUFFER_SIZE; 3.14: 128 KiB).
BUFFERED_BYTES = (2048, 16_384)
MAX_ERRATIC_DECREMENTS = 1000  # decrements to a value above the first, after which a counter is ruled out

OTHER_UNIT_PRIORITY = 5  # of a noun that is none of the known units
UNNAMED_PRIORITY = 1
_USER_PRIORITY = 1000  # added to the priority of a counter from a user's preset


class LocatedEvent(NamedTuple):
    """An event, with the byte and the line of the log that it was read from."""

    byte: int
    line: int
    event: Event


class Progression:
    """How a number has changed from line to line: this, not its name, tells whether and what it counts."""

    __slots__ = (
        "decrements",
        "first",
        "increments",
        "is_rounded",
        "is_uneven",
        "last",
        "restarts",
        "step",
        "steps_differ",
        "values",
    )

    def __init__(self) -> None:
        self.first: float | None = None
        self.last: float | None = None
        self.step = 0.0  # of its increments; the first may be another: 1, 100, 200
        self.values = self.increments = self.decrements = 0
        self.restarts = 0  # decrements to its first value or below, as of an inner loop
        self.steps_differ = False  # two of its increments differ, without a restart before
        self.is_uneven = False  # as steps_differ, without the first increment
        self.is_rounded = False  # it is printed as 1K: how far apart its values are is not known

    @property
    def erratic_decrements(self) -> int:
        """Decrements to a value above its first."""
        return self.decrements - self.restarts

    def move(self, value: float) -> None:
        if self.first is None or self.last is None:
            self.first = value
        elif value > self.last:
            is_exact = not self.restarts and not self.is_rounded
            differs = is_exact and self.increments > 0 and self.step != value - self.last
            self.is_uneven |= differs and self.increments > 1
            self.steps_differ |= differs
            self.step = self.step if self.increments > 1 else value - self.last
            self.increments += 1
        elif value < self.last:
            self.decrements += 1
            self.restarts += value <= self.first
        self.last, self.values = value, self.values + 1


class LogCounter(Progression):
    """One counter: how its value has changed, and its events until it is selected as the primary one."""

    def __init__(
        self, name: str, unit: str, weight: int, required_increments: int, priority: int | None = None
    ) -> None:
        super().__init__()
        self.name, self.unit = name, unit
        self.family = name  # shared by similar counters: of each process, of each length of a bar
        self.kinds = Counter[str]()  # of a unit in all lines: increments by the families of those that count it
        self.priority = (UNIT_PRIORITY.get(unit, OTHER_UNIT_PRIORITY) if priority is None else priority, weight)
        self.required_increments = required_increments  # before it can be the primary counter
        self.pending_events: list[LocatedEvent] = []
        self._released: float | None = None  # the latest index that was reported
        self.total: int | None = None
        self.needs_constant_step = False  # it is ruled out when two increments differ
        self.is_ruled_out = False
        self.may_be_setting = False  # `epochs: 5`: until it moves it says nothing
        self.is_inner_loop = False
        self.was_selected = False  # as the primary counter, now or before
        self._total_changes, self._total_restarts = 0, 0  # totals that it has passed; restarts before the latest total
        self._sum_with_left = 0  # see total_of_left
        self._told_again: tuple[float, float] | None = None  # see total_told_again: the latest index, and how far apart
        self.has_ended = False  # it is at its total: what comes after it is something else
        self.is_training = False  # a bar that says so: no preparation
        self._at = ""
        self._repeats = False
        self._lines = (0, 0)  # of the log, with its first and its latest value
        self._restart_lines = (0, 0)  # with which it restarted last, and before that
        self._standing = (0, 0)  # see replaces: changes of the primary counter, own changes when that changed last
        self._baseline = (-1, 0, 0)  # see moves_far_more_often: number of the selection, its changes, own changes
        self._left_at = -1  # own changes when another one replaced it
        self._began_beside = ("", 0)  # see came_at_once: the other counter, and its changes then
        self.late_family = ""  # that of the counter that tells late where this one was
        # See repeats: own changes that were compared, and those at which it was where another of its unit was.
        self._compared_moves = self._compared = 0
        self._agreed = Counter[str]()

    def add_value(
        self, line: LineText, position: int, index: float, total: int | None, at: str, *, redrawn: bool = False
    ) -> bool:
        """Add a value; False when it only repeats the latest one, as a bar does that is `redrawn` again and again.

        What is printed again as the end of a unit stands within it: `at` is `progress` from then on.
        """
        if index == self.last and (redrawn or at == self._at or self._repeats):
            if not redrawn and at == "end":
                self._mark_repeated()
            return False
        at = "progress" if self._repeats else at
        restarts = self.restarts
        self.move(index)
        if self.restarts > restarts:
            self._restart_lines = line.number, self._restart_lines[0]
        self.is_ruled_out |= self.needs_constant_step and self.steps_differ
        erratic = self.erratic_decrements > MAX_ERRATIC_DECREMENTS + self.increments // 4
        self.is_ruled_out |= erratic and not self.was_selected
        self._at = at
        self._lines = self._lines[0] or line.number, line.number
        total = self._checked_total(index, total)
        redrawn_line = self._lines[0] == self._lines[1]  # `Reading camera 251/251`
        self.has_ended |= redrawn_line and index == total and self.priority[0] <= OTHER_UNIT_PRIORITY
        if self.is_inner_loop and not self.was_selected:
            return True
        self.pending_events.append(
            LocatedEvent(line.byte_of(position), line.number, GenerationSeen(line.t, index, total, self.unit, at))
        )
        if len(self.pending_events) > MAX_PENDING_EVENTS:
            del self.pending_events[: MAX_PENDING_EVENTS // 2]
        return True

    def take_over(self, other: LogCounter) -> None:
        """Go on from where `other` is, with what it has counted and not told yet."""
        self.first, self.last, self.step, self.values = other.first, other.last, other.step, other.values
        self.increments, self.steps_differ, self.is_uneven = other.increments, other.steps_differ, other.is_uneven
        self.total, self._lines = other.total, other._lines
        self.pending_events = [with_event_fields(located, at="start") for located in other.pending_events]

    def total_of_left(self, index: int, left: int) -> int | None:
        """Return the total, given how many are left at this index: where the one before came to the same."""
        before, self._sum_with_left = self._sum_with_left, index + left
        return before if before == self._sum_with_left else None

    def total_told_again(self, index: float, again: int, total: int) -> int | None:
        """Return the total behind a second index, where the two have gone up together: `Epoch 3 (3/200)`.

        Of `Epoch 3 (12/200)`, the second one is the batch.
        """
        before, apart = self._told_again, again - index
        if before is None and abs(apart) <= 1:
            self._told_again = index, apart
        elif before is None or before[1] != apart:
            self._told_again = index, math.nan
        return total if before is not None and before[1] == apart and index > before[0] else None

    def _checked_total(self, index: float, total: int | None) -> int | None:
        """Return `total` unless the index has passed it, or some that it was printed with: then it was none."""
        if self.total is not None and index > self.total and self._total_restarts < self.restarts:
            self.total = None  # that of what was counted before
        self._total_changes += self.total is not None and index > self.total
        if self._total_changes >= MAX_TOTAL_CHANGES or (total or self.total or index) < index:
            self._total_changes, self.total = MAX_TOTAL_CHANGES, None
            return None
        self.total, self._total_restarts = total or self.total, self.restarts if total else self._total_restarts
        return total

    @property
    def is_ready(self) -> bool:
        """It has changed enough, and regularly enough, to be the primary counter; and since it was replaced."""
        if self.increments < self.required_increments or self.first is None or self._moves == self._left_at:
            return False
        if self.kinds and sum(increments >= MIN_OF_EACH_KIND for increments in self.kinds.values()) < 2:
            return False
        if self.total == 1 and self.priority[0] < _USER_PRIORITY:
            return False  # `Epoch 1/1`: what is inside it is the clock
        return self.erratic_decrements <= self.increments // 4 and not self.is_ruled_out and not self.is_inner_loop

    def is_outer_loop_of(self, inner: LogCounter) -> bool:
        """Whether `inner` restarts each time that this counter increments."""
        if self.decrements or self.increments >= inner.increments:
            return False
        if self._lines[1] < inner._restart_lines[1]:  # It had stopped by then.
            return False
        if inner.priority[0] >= _USER_PRIORITY or (self.unit == inner.unit and self.repeats(inner)):
            return False
        known = self.priority[0] > OTHER_UNIT_PRIORITY
        required = 1 if known else 2  # more evidence is required of a unit that is not known
        in_step = abs(self.increments - inner.restarts) <= 1
        several_each = known and 2 <= self.increments <= inner.restarts  # several restarts within one increment
        return min(self.increments, inner.restarts) >= required and (in_step or several_each)

    def repeats(self, other: LogCounter) -> bool:
        """Whether it tells again where `other` of its unit is: `Epoch 5 saved` beside `Epoch 5/40`."""
        agrees = self.agrees_with(other, self.step or 1.0)
        if self._moves != self._compared_moves:
            self._compared_moves, self._compared = self._moves, self._compared + 1
            self._agreed[other.family] += agrees
        return agrees or 2 * self._agreed[other.family] > self._compared

    @property
    def state(self) -> tuple[object, ...]:
        """A value that changes whenever the counter does."""
        return self.increments, self.decrements, self.last, self._at, self._repeats

    @property
    def _moves(self) -> int:
        return self.increments + self.decrements

    @property
    def was_left(self) -> bool:
        return self._left_at >= 0

    def leave(self) -> None:
        """It stood while another one went on, which is the primary counter now."""
        self._left_at = self._moves

    def moves_far_more_often(self, primary: LogCounter, selection: int) -> bool:
        """Whether it has changed far more often than `primary` since that was selected, the `selection`-th."""
        moves, primary_moves = self._moves, primary._moves
        if self._baseline[0] != selection:
            self._baseline = (selection, primary_moves, moves)
        return moves - self._baseline[2] >= INNER_LOOP_MOVES + 2 * (primary_moves - self._baseline[1])

    def is_in_line_of(self, other: LogCounter) -> bool:
        return self._lines[1] == other._lines[1]

    def agrees_with(self, other: LogCounter, apart: float = 1.0) -> bool:
        """Whether it is where `other` is."""
        return self.last is not None and other.last is not None and abs(self.last - other.last) <= apart

    def is_same_clock_as(self, named: LogCounter) -> bool:
        """Whether this counter moves far more often than `named`, and agrees with it.

        `[ITER 7000] evaluating` now and then, beside a bar that is drawn at 7000 of 30000.
        """
        if self is named or self.decrements or named.decrements:
            return False
        if named.increments and self.last == named.last and named.step >= 2.0 * self.step > 0.0:
            return True  # `gen[50]: a sample`, `gen[100]: a sample` of a training that tells each tenth step
        step = ((self.last or 0.0) - (self.first or 0.0)) / max(self.increments, 1)
        if named.increments >= STANDING_MOVES and self.agrees_with(named, 2.0 * step) and named.came_at_once(self):
            return True
        return self.increments >= SAME_CLOCK_INCREMENTS * named.values and self.agrees_with(named, step)

    def came_at_once(self, clock: LogCounter) -> bool:
        """Whether all its values came while `clock` stood, as those do that Python keeps until a buffer is full.

        As many as get to where the clock is then fill that buffer.
        """
        if not self._began_beside[0] and self.increments <= MIN_OF_EACH_KIND:
            self._began_beside = clock.family, clock._moves
        counted = (self.last or 0.0) - (self.first or 0.0)
        if self._began_beside != (clock.family, clock._moves) or not self.pending_events or counted <= 0.0:
            return False
        read_bytes = self.pending_events[-1].byte - self.pending_events[0].byte
        least, most = BUFFERED_BYTES
        return least <= read_bytes * ((clock.last or 0.0) - (clock.first or 0.0)) / counted <= most

    def replaces(self, primary: LogCounter) -> bool:
        """Whether `primary` has ended, or stands while this one, which may count the same, goes on beyond it.

        A bar that was full before anything else was printed was a preparation, unless what comes after it is shorter,
        or shows where the bar was.
        """
        if primary.family in self.kinds:
            return True
        moves = primary._moves
        if self._standing[0] != moves:
            self._standing = (moves, self.increments)
        if self.last is None or primary.last is None:
            return False
        if primary.has_ended and not self.agrees_with(primary, primary.step):
            longer = self._lines[0] != self._lines[1] or (self.total or 0) > (primary.total or 0) or self.is_training
            return primary._lines[0] == primary._lines[1] <= self._lines[0] and longer
        if self.is_steadier_than(primary):
            return True
        is_alike = self.unit == primary.unit or primary.name == self.name == "counter"
        goes_on = is_alike and self.last > primary.last
        if not goes_on and not self.may_follow(primary):
            return False
        return self.increments - self._standing[1] >= (STANDING_MOVES if goes_on else INNER_LOOP_MOVES)

    def may_follow(self, primary: LogCounter) -> bool:
        """Whether it may count the next part of a run: `pretrain | step=999`, and then `train | step=0`.

        An inner loop counts something else, or begins again.
        """
        return self.unit == primary.unit and self.priority[0] > OTHER_UNIT_PRIORITY and not self.decrements

    def is_steadier_than(self, other: LogCounter) -> bool:
        """Whether it goes up evenly, unlike `other` in the same line: `step:400 ep:40`, `step:600 ep:61`."""
        known = self.priority[0] > OTHER_UNIT_PRIORITY and other.priority[0] < _USER_PRIORITY
        known &= self.family not in other.kinds
        is_even = not self.steps_differ and not self.decrements
        has_holes = other.is_uneven and not (other.decrements and self.family == other.family)
        return known and self.is_in_line_of(other) and has_holes and is_even

    def release_events(self) -> list[LocatedEvent]:
        """Return the pending events for the report, and forget them."""
        events, self.pending_events = self.pending_events, []
        self._released = self.last if events else self._released
        return events

    def drop_reported(self, before: LogCounter) -> None:
        """Drop the pending events of an index that the counter before has reported."""
        reported, events = before._released, self.pending_events
        if reported is not None:
            self.pending_events = [
                e for e in events if isinstance(e.event, GenerationSeen) and e.event.index > reported
            ]

    def mark_inner_loop(self) -> None:
        self.is_inner_loop = True
        self.pending_events.clear()

    @property
    def is_unnamed(self) -> bool:
        """The log has no word for what it counts, or one letter."""
        return (self.unit == UNNAMED_UNIT or len(self.unit) == 1) and self.priority[0] < OTHER_UNIT_PRIORITY

    def rename(self, unit: str, priority: tuple[int, int] | None = None) -> None:
        """Count `unit` from now on, and in the pending events."""
        self.unit = unit
        self.priority = priority or (UNIT_PRIORITY.get(unit, OTHER_UNIT_PRIORITY), self.priority[1])
        self.pending_events = [with_event_fields(located, unit=unit) for located in self.pending_events]

    def _mark_repeated(self) -> None:
        if not self._repeats:
            self._repeats, self._at = True, "progress"
            self.pending_events = [with_event_fields(located, at="progress") for located in self.pending_events]


class PrimaryCounterSelector:
    """Selects the primary counter among all counters of a log."""

    def __init__(self) -> None:
        self.selected: LogCounter | None = None
        self.changes = 0
        self._decrements_before = 0

    def update(self, counters: list[LogCounter]) -> bool:
        """Select again; True when the primary counter is another one, or none any more."""
        changed = self.selected is not None and self.selected.is_ruled_out
        if changed:
            self.selected = None
            self.changes += 1
        ready = [s for s in counters if s.is_ready and (s is self.selected or self.selected is None or not s.has_ended)]
        best = _outermost(max(ready, key=lambda s: (s.priority, s.increments), default=None), ready)
        if best is not None and (same := self._same_clock(best, ready)):
            same.rename(best.unit if same.is_unnamed else same.unit, (best.priority[0], best.priority[1] + 1))
            same.late_family = best.family
            best = same
        if self.selected is not None and best is not None and best.priority[0] <= self.selected.priority[0]:
            best = next((s for s in ready if s is not self.selected and s.replaces(self.selected)), best)
        if best is None or best is self.selected or self._keeps_selected(best) or _must_wait(best, counters):
            return changed
        if self._shows_what_was(best):
            return changed
        goes_on = self._goes_on_with(best)
        if self.selected is not None and (self.selected.has_ended or best.is_steadier_than(self.selected)):
            self.selected.is_ruled_out = True
            for twin in counters if self.selected.has_ended else ():  # of the same lines, by their shape
                twin.is_ruled_out |= twin is not best and twin.total == self.selected.total
        elif self.selected is not None and best.replaces(self.selected):
            self.selected.leave()
        self.selected = best
        best.was_selected = True
        self.changes += not goes_on
        self._decrements_before = best.decrements
        return True

    def _same_clock(self, best: LogCounter, ready: list[LogCounter]) -> LogCounter | None:
        """Return a counter that moves far more often than `best`; or that replaced it once, and is where `best` is."""
        now = self.selected
        if now is not None and now is not best and best.was_left and now.agrees_with(best, now.step):
            return now
        return next((counter for counter in ready if counter.is_same_clock_as(best)), None)

    def _shows_what_was(self, other: LogCounter) -> bool:
        """Whether the selected counter is a bar that moves, and `other` may tell late where that was."""
        now = self.selected
        if now is None or now.name != "bar" or now.total is None:
            return False
        if (other.last or 0.0) > (now.last or 0.0) + (now.step or 1.0):  # a bar counts from 0
            return False
        if now.late_family == other.family:
            return True
        may_be = now.is_unnamed and not now.has_ended and not now.decrements and now.increments >= STANDING_MOVES
        return may_be and other.came_at_once(now)

    def _goes_on_with(self, best: LogCounter) -> bool:
        """Whether `best` is the same clock as before, printed by another process or in more lines from now on."""
        now = self.selected
        if now is None or now.last is None or now.has_ended or not best.replaces(now):
            return False
        if best.family != now.family and now.family not in best.kinds:
            return False
        best.drop_reported(now)
        return True

    def _keeps_selected(self, other: LogCounter) -> bool:
        """Keep the selected counter: `other` has no greater unit, or the selected one is no inner loop."""
        now = self.selected
        if now is None or now.is_inner_loop or other.replaces(now):
            return False
        if other.priority[0] <= now.priority[0]:
            return other.priority <= now.priority or other.priority[0] > OTHER_UNIT_PRIORITY
        went_back = now.decrements > self._decrements_before
        # `[epoch: 3, iter: 1,200`: the greater unit of one line is the outer loop
        return (
            not other.is_in_line_of(now)
            and other.priority[0] < _USER_PRIORITY
            and now.priority[0] >= UNIT_PRIORITY["episode"]
            and not went_back
        )


def user_priority(unit: str) -> int:
    """The priority of a counter from a user's preset, above all that memwatch finds by itself."""
    return _USER_PRIORITY + UNIT_PRIORITY.get(unit, OTHER_UNIT_PRIORITY)


def _outermost(counter: LogCounter | None, ready: list[LogCounter]) -> LogCounter | None:
    """Return the outermost loop around `counter` that is ready, whatever their units are; or `counter` itself."""
    while counter is not None:
        inner = counter
        counter = next((s for s in ready if not s.is_inner_loop and s.is_outer_loop_of(inner)), None)
        if counter is None:
            return inner
        inner.is_inner_loop = True
    return None


def _must_wait(counter: LogCounter, counters: list[LogCounter]) -> bool:
    """Whether a greater unit was named, and `counter` has too few increments to outrank it."""
    return counter.increments < INCREMENTS_TO_OUTRANK and any(
        c.pending_events
        and (c.increments or not c.may_be_setting)
        and not c.is_ruled_out
        and not c.is_inner_loop
        and c.priority[0] > counter.priority[0]
        for c in counters
    )


def with_event_fields(located: LocatedEvent, **fields: Any) -> LocatedEvent:
    return located._replace(event=replace(located.event, **fields))
