"""One clock from what tells progress: the program's marks, else its log, else the counters in its memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from memwatch.core.events import Event, GenerationSeen, PhaseSeen, SourceChanged, TotalSeen
from memwatch.core.interfaces import EventSource
from memwatch.sources.progress.heap_clock import HeapClock
from memwatch.sources.progress.marks import ProgressMarks

LOG_SECONDS = 30.0  # A log without a marker for so long after the watch began is no clock for now (chosen).
# Markers of the log after which a counter that kept step with them is the same clock; so many where several may pass
# between two looks and the counter's name is not that of the log's unit, since counters of a similar pace drift apart
# slowly; and so many after which memwatch says that none keeps step (chosen).
MIN_AGREED, MIN_AGREED_FAST, MIN_DIFFERENT = 3, 10, 20
_JITTER = 1.0  # between the log and memory: a marker is printed a moment before or after the count
LOG_STANDS_RISES = 5  # of the count in memory, after which what the log told before the watch is old (chosen)
CHECK_SECONDS = 300.0  # After the watch began, memory is read for so long beside another clock (chosen).


class _Comparison:
    """How a place in memory has moved beside the log's counter."""

    def __init__(self) -> None:
        self.agreed = 0
        self.offset: float | None = None

    def add(self, index: float, value: float, jitter: float) -> None:
        """Add both numbers, whose distance may change by `jitter` because they are not read at the same moment."""
        offset = value - index
        keeps = self.offset is not None and abs(offset - self.offset) <= jitter
        self.agreed = self.agreed + 1 if keeps else 0
        self.offset = self.offset if keeps else offset


class _LogCheck:
    """Compares the log's counter with those in memory: the one that keeps step with it knows the total, too."""

    def __init__(self) -> None:
        self.has_told = False
        self._compare("")

    def _compare(self, unit: str) -> None:
        """Begin to compare the log's counter of this unit."""
        self.unit, self.markers = unit, 0
        self.latest: float | None = None
        self.places: dict[tuple[str, int], _Comparison] = {}  # several objects of a class may count

    def add(self, heap: HeapClock, event: GenerationSeen, total: int | None, now: float) -> Iterator[Event]:
        """Add the latest marker of a poll; `total`: as the log has told it."""
        if self.has_told or event.before_watch or event.index == self.latest or not heap.watched:
            return
        if event.unit != self.unit:
            self._compare(event.unit)
        jitter = max(_JITTER, event.index - self.latest) if self.latest is not None else _JITTER
        self.markers, self.latest = self.markers + 1, event.index
        for one in heap.watched:
            comparison = self.places.setdefault((one.place.name, one.place.start), _Comparison())
            comparison.add(event.index, one.value, jitter)
            is_namesake = one.place.known and one.place.unit == event.unit
            enough = MIN_AGREED if jitter <= _JITTER or is_namesake else MIN_AGREED_FAST
            if comparison.agreed >= enough and one.rises >= enough - 1:
                self.has_told = True
                yield SourceChanged(now, heap.name, True, f"the log's {event.unit} is {one.place.name} in memory")
                end = one.place.total
                if total is None and end is not None and end >= event.index:
                    yield TotalSeen(now, end)
                return
        clock = heap.clock
        if self.markers >= MIN_DIFFERENT and clock is not None and clock.place.unit == event.unit:
            self.has_told = True
            counts = f"{clock.place.name} in memory is {clock.value:.10g}"
            yield SourceChanged(
                now, heap.name, True, f"the log says {event.unit} {event.index:.10g}, {counts}: the log's is used"
            )


class Clocks:
    """A source of events: the marks, and what these do not tell of the log, and of memory what neither tells."""

    def __init__(
        self,
        log: EventSource,
        marks: ProgressMarks | None,
        heap: HeapClock | None,
        *,
        has_log: bool,
        compares: bool = True,
        is_coarse: Callable[[], bool] = lambda: False,
    ) -> None:
        """`has_log`: there is one, which may have a marker yet. `compares`: the log is compared with memory.

        `is_coarse`: the log is one that memory is preferred to, such as TensorBoard's.
        """
        self._compares, self._is_coarse = compares, is_coarse
        self.name, self._log, self._marks, self._heap = log.name, log, marks, heap
        self._has_log, self._log_moves = has_log, False
        self._clock = ""  # the name of the source that was the clock last
        self._began_t: float | None = None
        self._total: int | None = None  # that the log has told
        self._check = _LogCheck()
        self._of_heap: list[Event] = []  # what memory's reading has told beside the count, and was not passed on yet
        self._heap_count: GenerationSeen | None = None  # that it told last, as above

    def poll(self, now: float) -> Iterator[Event]:
        self._began_t = now if self._began_t is None else self._began_t
        if self._marks is not None:
            for event in self._marks.poll(now):
                yield self._as_clock("marks", event)
        is_marked = self._marks is not None and bool(self._marks.clock)
        watched_s = now - self._began_t
        of_heap: list[Event] = []
        is_coarse = self._is_coarse()
        is_heap_first = self._clock in ("", "heap") or not self._log_moves or is_coarse
        if self._heap is not None and not is_marked:
            if is_heap_first and (self._compares or not self._has_log or watched_s >= LOG_SECONDS):
                of_heap = list(self._heap.poll(now))
            elif self._compares and watched_s < CHECK_SECONDS and not self._check.has_told:
                of_heap = list(self._heap.search(now))
        latest = None
        is_unneeded = is_marked or (is_coarse and self._heap is not None and self._heap.clock is not None)
        for event in self._log.poll(now):
            if is_unneeded and isinstance(event, GenerationSeen | TotalSeen | PhaseSeen):
                continue
            if isinstance(event, GenerationSeen | TotalSeen):
                self._total = event.total if event.total is not None else self._total
                latest = event if isinstance(event, GenerationSeen) else latest
                self._log_moves |= latest is not None and not latest.before_watch
            yield self._as_clock("log", event)
        if latest is not None and self._heap is not None and self._compares and not self._check.has_told:
            if not is_heap_first:
                self._heap.read(now)
            yield from self._check.add(self._heap, latest, self._total, now)
        for event in of_heap:
            if isinstance(event, GenerationSeen):
                self._heap_count = event
            else:
                self._of_heap.append(event)
        if self._is_heap_clock(watched_s):  # what fails there is no news while the log tells all
            yield from (replace(event, t=now) for event in self._of_heap)
            self._of_heap.clear()
            if self._heap_count is not None:
                yield self._as_clock("heap", replace(self._heap_count, t=now))
                self._heap_count = None

    def close(self) -> None:
        for one in (self._marks, self._log, self._heap):
            if one is not None:
                one.close()

    def _is_heap_clock(self, watched_s: float) -> bool:
        """Whether memory is the clock: the log has told none in time, or has stood while the count went on."""
        is_coarse = self._is_coarse()
        if self._has_log and not is_coarse and watched_s < LOG_SECONDS:
            return False
        if self._clock in ("", "heap") or is_coarse:
            return True
        known = self._heap.clock if self._heap is not None else None
        return not self._log_moves and self._clock == "log" and known is not None and known.rises >= LOG_STANDS_RISES

    def _as_clock(self, name: str, event: Event) -> Event:
        """The event, as the begin of a new count where another source was the clock before."""
        if not isinstance(event, GenerationSeen):
            return event
        is_new = self._clock not in ("", name)
        self._clock = name
        return replace(event, recount=True) if is_new else event
