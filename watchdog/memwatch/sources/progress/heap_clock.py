"""Progress by the trainer's memory: finds what counts there, and reads it from outside at each tick."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator

from memwatch.core.events import Event, GenerationSeen, SourceChanged
from memwatch.errors import SourceError
from memwatch.sources.log.unit_mentions import UNIT_PRIORITY
from memwatch.sources.progress.counter_places import CounterPlace, FoundPlaces, PlaceReader, SearchRequest
from memwatch.system.python_workers import Task

FIRST_SEARCH_SECONDS = 5.0  # after the beginning of the watch: a program that is younger still imports (chosen)
# Between two searches while there is no clock: each is twice as long as the one before (chosen). A search takes 0.2 s
# of CPU (measured), most of it Python's start: the last pause makes that less than 0.1 % of a core.
PAUSES_SECONDS = (5.0, 300.0)
STANDS_FACTOR, STANDS_SECONDS = 5.0, 30.0  # a clock that has not moved for so many of its longest pauses may be gone
TASK_CPU_SECONDS = 0.25  # of one search (measured)
TASK_SECONDS = 30.0  # then the process is killed: it has a low priority and may wait for a core
MIN_SEEN_SECONDS = 5.0  # of a place without a fall, before it is the clock: an inner loop starts again (chosen)
RISES, RISES_UNNAMED = 2, 5  # that a place needs, and one without a unit's name or of an inner loop's unit (chosen)
# Between two words of a clock that moves faster (chosen): near the limit there are ten ticks a second, and generations
# of a tenth of a second would show the noise of memory alone.
TELL_SECONDS = 0.9
MOST_READ = 12  # places that are read at each tick, so that this takes 0.1 ms (measured: 6 us each)
_CODE = "from memwatch.sources.progress.counter_search import serve; serve()"


class _Watched:
    """A place, and how its number has changed."""

    def __init__(self, place: CounterPlace, since_t: float) -> None:
        self.place, self.value, self.since_t = place, place.value, since_t
        self.rises = self.falls = 0
        self.changed_t, self.longest_seconds = -math.inf, 0.0  # and the longest time between two changes
        self.is_gone = False

    def move(self, value: float | None, now: float) -> bool:
        """Note the present number; True when it has changed. None: the place is gone."""
        self.is_gone = value is None
        if value is None or value == self.value:
            return False
        if self.changed_t > -math.inf:
            self.longest_seconds = max(self.longest_seconds, now - self.changed_t)
        self.rises += value > self.value
        self.falls += value < self.value
        if value < self.value:
            self.since_t = now
        self.value, self.changed_t = value, now
        return True

    def counts(self, now: float) -> bool:
        """Whether it may be the clock: it has only gone up, often enough for what it is."""
        if self.is_gone or self.falls > self.rises // 4 or now - self.since_t < MIN_SEEN_SECONDS:
            return False
        return self.rises >= self._required_rises

    @property
    def _required_rises(self) -> int:
        is_outer = UNIT_PRIORITY.get(self.place.unit, 0) >= UNIT_PRIORITY["episode"]
        if self.place.known and (is_outer or self.place.at == "end"):
            return 0
        return RISES if is_outer else RISES_UNNAMED

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """The highest is the clock: what counts for certain, then what has an end, then the outermost."""
        return self.place.known and self._required_rises == 0, self.place.total is not None, -self.place.level


class HeapClock:
    """A source of events: the program's own count of its progress. `clock`: the place that is it; None: none yet."""

    name = "progress"

    def __init__(
        self,
        pid: int,
        may_take: Callable[[float], bool] | None = None,
        code: str = _CODE,
        member_pids: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """`may_take` takes CPU seconds from the budget of several watches, if there is one; False: there are none now.

        `member_pids` are as in the request.
        """
        self._pid, self._may_take, self._code, self._member_pids = pid, may_take, code, member_pids
        self._task: Task[FoundPlaces] | None = None
        self._reader: PlaceReader | None = None
        self._due_t, self._pause_seconds = math.inf, PAUSES_SECONDS[0]
        self._began_t: float | None = None
        self._reason = ""
        self.watched: list[_Watched] = []
        self.clock: _Watched | None = None
        self._told_t = -math.inf  # when `poll` returned the clock's number last
        self._is_moved = False  # the clock has moved since

    def poll(self, now: float) -> Iterator[Event]:
        yield from self.search(now)
        before = self.clock
        moved = self.read(now)
        clock = self.clock
        self._is_moved |= clock in moved
        if clock is not None and (clock is not before or (self._is_moved and now - self._told_t >= TELL_SECONDS)):
            self._told_t, self._is_moved = now, False
            yield self._seen(clock, now, recount=before is not None and clock is not before)
        self._plan_search(now)

    def close(self) -> None:
        if self._task is not None:
            self._task.kill()
            self._task = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # --- the search ---

    def search(self, now: float) -> Iterator[Event]:
        """Take what a search has found, and begin one that is due."""
        if self._began_t is None:
            self._began_t, self._due_t = now, now + FIRST_SEARCH_SECONDS
        if self._task is not None:
            found = self._task.poll(now)
            if found is not None:
                self._task = None
                yield from self._take(now, FoundPlaces(reason=found) if isinstance(found, str) else found)
        elif now >= self._due_t:
            self._due_t = now + self._pause_seconds
            self._pause_seconds = min(2.0 * self._pause_seconds, PAUSES_SECONDS[1])
            if self._may_take is None or self._may_take(TASK_CPU_SECONDS):
                request = SearchRequest(self._pid, tuple(self._member_pids()))
                self._task = Task(self._code, request, FoundPlaces, name="the search", seconds=TASK_SECONDS, now=now)

    def _take(self, now: float, found: FoundPlaces) -> Iterator[Event]:
        if found.reason and found.reason != self._reason and not self.watched:
            yield SourceChanged(now, self.name, False, found.reason)
        self._reason = found.reason
        if not found.places:
            return
        if self._reader is not None:
            self._reader.close()
        try:
            self._reader = PlaceReader(found)
        except SourceError as error:
            self._reader, self.watched, self.clock = None, [], None
            yield SourceChanged(now, self.name, False, f"{error}")
            return
        before = {one.place.name: one for one in self.watched}
        self.watched = []
        for place in found.places[:MOST_READ]:
            known = before.pop(place.name, None)
            if known is None:
                known = _Watched(place, now)
            known.place, known.is_gone = place, False
            self.watched.append(known)
        if self.clock is not None and self.clock not in self.watched:
            self.clock.is_gone = True

    def _plan_search(self, now: float) -> None:
        """Search again soon when the clock is gone, or stands for long; not while it runs."""
        clock = self.clock
        if clock is None or self._task is not None or not self.watched:
            return
        if clock.is_gone:
            self._due_t = min(self._due_t, now + self._pause_seconds)
            return
        stands_s = now - max(clock.changed_t, clock.since_t)
        if stands_s <= max(STANDS_SECONDS, STANDS_FACTOR * clock.longest_seconds):
            if clock.place.total is not None:  # else there may be a better one
                self._due_t, self._pause_seconds = math.inf, PAUSES_SECONDS[0]
        elif math.isinf(self._due_t):
            self._due_t = now

    # --- the clock ---

    def read(self, now: float) -> list[_Watched]:
        """Read the places, and choose the clock; return those whose number has changed."""
        moved = [one for one in self.watched if one.move(self._value(one.place), now)]
        self._choose(now)
        return moved

    def _value(self, place: CounterPlace) -> float | None:
        return self._reader.value(place) if self._reader is not None else None

    def _choose(self, now: float) -> None:
        """Choose the best place; the clock stays while it counts, or has only just ended, unless another has an end."""
        best = max((one for one in self.watched if one.counts(now)), key=lambda one: one.rank, default=None)
        present = self.clock
        if best is None or best is present:
            return
        if present is not None:
            counts = present.counts(now) or now - present.changed_t < STANDS_SECONDS
            if best.rank[:2] < present.rank[:2] or (counts and best.rank[:2] == present.rank[:2]):
                return
        self.clock = best

    def _seen(self, clock: _Watched, now: float, *, recount: bool) -> GenerationSeen:
        place, value = clock.place, clock.value
        is_end = place.total is not None and value <= place.total and not self._is_within_loop(place)
        total = place.total if is_end else None
        return GenerationSeen(
            now, value, total, place.unit, place.at, recount=recount, origin=place.name, first=place.first
        )

    def _is_within_loop(self, place: CounterPlace) -> bool:
        """Whether a loop around it, which may be too slow to be the clock yet, goes on after this count's end."""
        return any(
            one.place.is_loop
            and one.place.level < place.level
            and not one.is_gone
            and one.place.total is not None
            and one.value + 1 < one.place.total
            for one in self.watched
        )
