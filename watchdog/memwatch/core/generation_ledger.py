"""The ledger of memory: one row for each generation of each resource, with its phases."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from memwatch.core.events import GenerationSeen, PhaseSeen
from memwatch.core.robust_statistics import median
from memwatch.core.snapshot import GenerationRow, PhaseRow

KEEP_FIRST = 50  # Rows that are kept from the beginning of a run, for the first lines of the table (chosen).
KEEP_LAST = 1000  # Latest rows that are kept: a run of 10**6 generations stays under half a megabyte.
MAX_PHASES = 16  # Distinct names that are kept per generation: a log that invents names must not fill memory.
RECENT_GENERATIONS = 10  # Latest complete generations in which a phase has most of the growth (chosen).
RECENT_MARKERS = 6  # Latest markers from which the usual length of a generation is computed (chosen).
TOLD_ENDS, MIN_TOLD_ENDS = 8, 3  # Readings of the time left that are kept, and that an estimate needs (chosen).
MOVING_SHARE = 0.5  # An end that moves by this share of the time that passes is an epoch's, not the run's (chosen).
PASSED_FACTOR, PASSED_SECONDS = 1.5, 10.0  # So is one that the run outlasts by so much of the time left (chosen).
LEADING_SHARE = 0.6  # A phase that surely has this share of the recent growth leads it (chosen).
MARKER_OVERDUE_FACTOR = 3.0  # A marker that is late by this many durations is lost, not slow (chosen) ...
MARKER_OVERDUE_SECONDS = 30.0  # ... but only after this many seconds more (chosen).


@dataclass(slots=True)
class _OpenPhase:
    start_t: float
    enter_bytes: int
    peak_bytes: int
    end_t: float | None = None
    end_bytes: int | None = None
    delta_bytes: int = 0
    unclear_bytes: int = 0
    is_sampled: bool = False  # since it was entered

    def add_samples(self, first: int, peak: int) -> None:
        self.peak_bytes = max(self.peak_bytes, peak)
        if not self.is_sampled:
            self.is_sampled = True
            self.unclear_bytes += first - self.enter_bytes

    def row(self, name: str, used_bytes: int) -> PhaseRow:
        delta = self.delta_bytes + (used_bytes - self.enter_bytes if self.end_t is None else 0)
        end_bytes = self.end_bytes or used_bytes
        return PhaseRow(name, self.start_t, self.end_t, delta, self.peak_bytes, end_bytes, self.unclear_bytes)


@dataclass(slots=True)
class _OpenRow:
    start_t: float
    start_bytes: int
    used_bytes: int
    peak_bytes: int
    partial: bool
    sampled: bool = False
    phases: dict[str, _OpenPhase] = field(default_factory=dict)

    def enter(self, name: str, t: float) -> None:
        phase = self.phases.get(name)
        if phase is not None:
            phase.enter_bytes, phase.end_t, phase.end_bytes, phase.is_sampled = self.used_bytes, None, None, False
        elif len(self.phases) < MAX_PHASES:
            self.phases[name] = _OpenPhase(t, self.used_bytes, self.used_bytes)

    def leave(self, name: str, t: float) -> PhaseRow | None:
        """End a phase and return its row; None when it was not under way."""
        phase = self.phases.get(name)
        if phase is None or phase.end_t is not None:
            return None
        phase.delta_bytes += self.used_bytes - phase.enter_bytes
        phase.end_t, phase.end_bytes = t, self.used_bytes
        if phase.start_t == t:  # It began and ended in the same instant: it is the tail of the generation before.
            del self.phases[name]
            return None
        return phase.row(name, self.used_bytes)

    def row(self, index: float, attempt: int, end_t: float | None, partial: bool = False) -> GenerationRow:
        phases = tuple([phase.row(name, self.used_bytes) for name, phase in self.phases.items()])
        sizes = self.start_bytes, self.used_bytes, self.peak_bytes
        return GenerationRow(index, attempt, self.start_t, end_t, *sizes, phases, self.partial or partial)


@dataclass(slots=True)
class _Account:
    """The rows of one resource: the closed ones, with the phase that has most of their latest growth; the open one."""

    open: _OpenRow | None = None
    used_bytes: int | None = None
    used_t: float = float("-inf")
    closed: tuple[GenerationRow, ...] = ()
    leading_phase: str | None = None

    def keep(self, row: GenerationRow) -> None:
        rows = (*self.closed, row)
        if len(rows) > KEEP_FIRST + KEEP_LAST:
            rows = rows[:KEEP_FIRST] + rows[-KEEP_LAST:]
        self.closed = rows
        self.update_leading_phase(row.attempt)

    def drop_attempt(self, attempt: int) -> None:
        self.closed = tuple([row for row in self.closed if row.attempt != attempt])
        self.update_leading_phase(attempt)

    def update_leading_phase(self, attempt: int) -> None:
        """Compute it from the latest complete generations of this attempt."""
        rows = [row for row in self.closed[-RECENT_GENERATIONS:] if row.attempt == attempt and not row.partial]
        self.leading_phase = _leading_phase(rows, self.leading_phase)


_NO_ACCOUNT = _Account()  # the account of a resource without readings


class _ToldEnd:
    """Where the run ends, by the time that its log says is left, where it says no total.

    An end that moves on as time passes, or that the run outlasts, is the end of an epoch, and does not count.
    """

    def __init__(self) -> None:
        self._readings: deque[tuple[float, float, float]] = deque(maxlen=TOLD_ENDS)  # time, index, time of the end
        self._passed_t = math.inf  # If the run goes on after this, the time left is that of an epoch.

    def add(self, t: float, index: float, seconds: float) -> None:
        if t > self._passed_t:
            self._passed_t = -math.inf
            self._readings.clear()
            return
        self._passed_t = min(self._passed_t, t + PASSED_FACTOR * seconds + PASSED_SECONDS)
        if self._readings and (self._readings[-1][0] == t or self._readings[-1][1] == index):
            self._readings.pop()
        self._readings.append((t, index, t + seconds))

    @property
    def last_generation(self) -> float | None:
        """The index that the recent pace leads to: the highest of several, rounded up to two digits; None: unknown."""
        if len(self._readings) < MIN_TOLD_ENDS:
            return None
        (first_t, first, _), (latest_t, latest, _) = self._readings[0], self._readings[-1]
        ends, passed = [end for _, _, end in self._readings], latest_t - first_t
        if max(ends) - min(ends) > MOVING_SHARE * passed:
            return None
        pace = (latest - first) / passed
        highest = max(index + pace * (end - t) for t, index, end in self._readings)
        digit = 10.0 ** max(0, math.floor(math.log10(max(1.0, highest))) - 1)
        return max(latest, math.ceil(highest / digit) * digit)


@dataclass(frozen=True, slots=True)
class Boundary:
    """The beginning of a generation."""

    t: float
    index: float
    closed: dict[str, GenerationRow]  # by resource, the rows that ended with it; empty at the first marker
    partial: bool = False  # it began before the watch


class GenerationLedger:
    """Makes rows from markers, phases and readings; it has no clock.

    It keeps the first KEEP_FIRST and the latest KEEP_LAST closed rows of each resource. A generation that passes
    between two readings leaves no row, because nothing was measured in it. A phase that comes several times in a
    generation is one row, with its deltas added up. `index` is the generation under way, None before the first marker
    of this attempt.
    """

    def __init__(self) -> None:
        self.attempt = 0
        self.index: float | None = None
        self.total: int | None = None
        self.unit, self.origin = "generation", ""
        self.phase: str | None = None
        self._accounts: defaultdict[str, _Account] = defaultdict(_Account)
        self._starts: deque[tuple[float, float]] = deque(maxlen=RECENT_MARKERS)  # of the latest generations, and index
        self._begin_t = 0.0
        self.complete_generations = 0  # of this attempt
        self._zero_based = False
        self._marker_kind = "start"
        self._told_end = _ToldEnd()

    def begin_attempt(self, t: float) -> None:
        """Begin with a new trainer process: open rows end as partial, the count starts again, closed rows stay."""
        self.end_attempt(t)
        self.attempt += 1
        self.index = self.phase = None
        self._forget_pace()
        self.complete_generations = 0
        for account in self._accounts.values():
            account.used_bytes = None
            account.update_leading_phase(self.attempt)

    def end_attempt(self, t: float) -> None:
        """The trainer is gone: close the open rows as partial."""
        for account in self._accounts.values():
            if account.open is not None and account.open.sampled and self.index is not None:
                account.keep(account.open.row(self.index, self.attempt, t, partial=True))
            account.open = None

    def add_samples(self, times: Sequence[float], resource: str, used: Sequence[int]) -> None:
        """Add readings of one resource in order of time, in seconds and bytes."""
        account = self._accounts[resource]
        if account.open is None:
            late = self.index is None or times[0] > self._begin_t
            account.open = _OpenRow(times[0], used[0], used[0], used[0], partial=late)
            if self.phase is not None:
                account.open.enter(self.phase, times[0])
        account.used_bytes, account.used_t = used[-1], times[-1]
        row, peak = account.open, max(used)
        row.used_bytes, row.sampled, row.peak_bytes = used[-1], True, max(row.peak_bytes, peak)
        phase = row.phases.get(self.phase) if self.phase is not None else None
        if phase is not None:
            phase.add_samples(used[0], peak)

    def add_marker(self, t: float, seen: GenerationSeen) -> Boundary | None:
        """Add a marker of the log; return the boundary that it makes, or None when it repeats a known one.

        A start marker begins its row; an end marker closes row `index` and begins the next, and the first one closes
        the (partial) row that began with the watch; a progress marker begins its row when it first appears. An index
        that is lower than the last begins the count again.
        """
        if seen.recount or (self._starts and seen.unit != self.unit):
            self._recount(seen.unit)
        t = max(t, self._begin_t) if self.index is not None else t
        self.unit, self.origin, self._marker_kind = seen.unit, seen.origin, seen.at
        if seen.total is not None:
            self.total = seen.total
        if seen.remaining_seconds is not None and not seen.before_watch:
            self._told_end.add(t, seen.index, seen.remaining_seconds)
        begins = seen.index
        if seen.at == "end" and float(begins).is_integer():  # A fraction (epoch 0.5) is a position and stays as it is.
            begins += 1
        if begins == self.index:
            return None
        if self.index is None and not self._starts:
            self._zero_based = self._zero_based or seen.index == 0 or seen.first == 0
        goes_back = self.index is not None and begins < self.index
        if goes_back:
            self._forget_pace()
        closes = seen.index if seen.at == "end" and not goes_back else self.index
        boundary = Boundary(t, begins, self._close(t, closes, partial=goes_back), seen.before_watch)
        self.complete_generations += any(not row.partial for row in boundary.closed.values())
        self._begin(t, begins, seen.before_watch)
        return boundary

    def _recount(self, unit: str) -> None:
        """Start again with another counter: those of this attempt so far were no generations."""
        self.unit, self.index, self.total, self.complete_generations, self._zero_based = unit, None, None, 0, False
        self._forget_pace()
        for account in self._accounts.values():
            account.open = None
            account.drop_attempt(self.attempt)

    def _forget_pace(self) -> None:
        self._starts.clear()
        self._told_end = _ToldEnd()

    def _close(self, t: float, index: float | None, partial: bool) -> dict[str, GenerationRow]:
        closed = {}
        for resource, account in self._accounts.items():
            if account.open is None or not account.open.sampled or index is None:
                continue
            if self.phase is not None:
                account.open.leave(self.phase, t)
            row = account.open.row(index, self.attempt, t, partial)
            account.keep(row)
            closed[resource] = row
        return closed

    def _begin(self, t: float, index: float, partial: bool) -> None:
        self.index, self._begin_t = index, t
        if not partial:
            self._starts.append((t, index))
        for account in self._accounts.values():
            account.open = None
            if account.used_bytes is not None:
                used = account.used_bytes
                account.open = _OpenRow(t, used, used, used, partial=partial or t < account.used_t)
                if self.phase is not None:
                    account.open.enter(self.phase, t)

    def add_phase_marker(self, t: float, seen: PhaseSeen) -> dict[str, PhaseRow]:
        """Begin a phase (which ends the one before) or end it; return the phase that has ended, by resource."""
        ended: dict[str, PhaseRow] = {}
        if seen.at != "end" and seen.phase == self.phase:
            return ended
        for resource, account in self._accounts.items():
            if account.open is None:
                continue
            if self.phase is not None and (row := account.open.leave(self.phase, t)) is not None:
                ended[resource] = row
            if seen.at != "end":
                account.open.enter(seen.phase, t)
        self.phase = seen.phase if seen.at != "end" else None
        return ended

    def closed(self, resource: str) -> tuple[GenerationRow, ...]:
        return self._account(resource).closed

    def rows(self, resource: str) -> tuple[GenerationRow, ...]:
        """The closed rows of a resource, oldest first, and the open one, unless the run's last generation is over."""
        account = self._account(resource)
        if account.open is None or self.index is None or self.index != self.shown_index:
            return account.closed
        return (*account.closed, account.open.row(self.index, self.attempt, None))

    @property
    def last_generation(self) -> float | None:
        """The index of the run's last generation, as the program counts.

        None when no total is known, or the count has passed it: then it was the total of something else.
        """
        if self.total is None:
            return self._told_end.last_generation
        last = float(self.total - 1 if self._zero_based or self._marker_kind == "progress" else self.total)
        return None if self.index is not None and self.index > last + 1 else last

    @property
    def shown_index(self) -> float | None:
        """The index for people: after the end of the last generation it is that of the last."""
        last = self.last_generation
        return self.index if self.index is None or last is None else min(self.index, last)

    def run_end_t(self, now: float) -> float | None:
        """Return when the last generation ends at the usual pace; None where that or the total is not known."""
        last, usual = self.last_generation, self.generation_seconds(now)
        if last is None or usual is None or self.index is None:
            return None
        return max(now, self._starts[-1][0] + (last + 1.0 - self.index) * usual / self.index_step)

    def generation_seconds(self, now: float) -> float | None:
        """Return the usual seconds between the latest markers; None before two, or when the next is long overdue.

        That is a mean, for their times are those of samples, without what differs from the median by a factor of two.
        """
        seconds = [b - a for (a, _), (b, _) in pairwise(self._starts)]
        middle = median(seconds)
        near = [one for one in seconds if middle <= 2.0 * one <= 4.0 * middle]
        usual = sum(near) / len(near) if near else 0.0
        if usual <= 0.0 or now - self._starts[-1][0] > MARKER_OVERDUE_FACTOR * usual + MARKER_OVERDUE_SECONDS:
            return None
        return usual

    def seconds_in_generation(self, now: float) -> float | None:
        """Return the seconds since the latest marker whose time is known; None before one."""
        return max(0.0, now - self._starts[-1][0]) if self._starts else None

    @property
    def index_step(self) -> float:
        """By how much the index rises from marker to marker: 20 where the log tells each twentieth iteration."""
        return median([b - a for (_, a), (_, b) in pairwise(self._starts)], default=1.0)

    def has_no_markers(self, now: float) -> bool:
        """Whether no marker has been seen yet, or the markers have stopped."""
        return self.index is None or (len(self._starts) >= 2 and self.generation_seconds(now) is None)

    def latest_reading(self, resource: str) -> tuple[float, int] | None:
        """Return its time and bytes; None before one."""
        account = self._account(resource)
        return None if account.used_bytes is None else (account.used_t, account.used_bytes)

    def leading_phase(self, resource: str) -> str | None:
        """Return the phase that surely has 60 % or more of the recent growth, and goes on to have the most; None: none.

        How memory changed between the line in the log and the reading after it may be of the phase before.
        """
        return self._account(resource).leading_phase

    def _account(self, resource: str) -> _Account:
        return self._accounts.get(resource, _NO_ACCOUNT)


# --- figures of the latest complete generations -----------------------------------------------------------------------


def _leading_phase(rows: Sequence[GenerationRow], led: str | None) -> str | None:
    """`led` is the one that led before: one that hovers about the share is not told on and off."""
    rows = rows[-5:]
    grown = sum(row.delta_bytes for row in rows)
    if grown <= 0:
        return None
    by_phase = Counter[str]()
    for row in rows:
        for phase in row.phases:
            by_phase[phase.phase] += phase.delta_bytes - phase.unclear_bytes
    name = max(by_phase, key=by_phase.__getitem__, default=None)
    return name if name is not None and (name == led or by_phase[name] >= LEADING_SHARE * grown) else None
