"""The watch loop: samples memory, feeds the engine, carries out its actions, records the events, publishes the state.

A source or an output that fails does not end the loop: its failure, each new reason and its recovery are reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from memwatch.app.interrupter import Interrupter
from memwatch.app.trainer_process import WatchedTrainer
from memwatch.core.engine.engine import Engine
from memwatch.core.events import ArmedChanged, Attached, Event, Exited, Notice, Sampled, Signalling, SourceChanged
from memwatch.core.examination import Diagnose
from memwatch.core.interfaces import Clock, EventSource, Sink, Waker
from memwatch.core.measurements import Sample, UnavailableSource
from memwatch.core.snapshot import Snapshot
from memwatch.errors import MemwatchError, TargetGoneError
from memwatch.history.event_store import HistoryStore

# A process loses its memory a moment before it ends. One that has neither memory nor ended by then is reported.
REPORT_NO_MEMORY_AFTER_SECONDS = 2.0
# How often the wake thresholds are renewed and the permission to signal is checked.
RENEW_THRESHOLDS_SECONDS = 10.0
# Samples are written together and reach the disk within this time; a SIGKILL of memwatch loses at most these.
MAX_UNWRITTEN_SECONDS = 1.0
# `memwatch -1` takes a few samples: a trend of this second shows, and a long log is read in several parts.
BRIEF_SAMPLES, BRIEF_INTERVAL_SECONDS = 4, 0.25
# After the trainer's end its log is read, a bounded piece at a time, until two reads find nothing. Of a log that was
# rotated just then the first empty read ends the old file; the second one looks for the new file, which a log source
# does once a second.
MAX_FINAL_READS, FINAL_EMPTY_READS, NEW_FILE_CHECK_SECONDS = 64, 2, 1.0


class FailureTracker:
    """Knows which sources and outputs fail at present, and why."""

    def __init__(self) -> None:
        self._failing: dict[str, str] = {}

    def update(self, now: float, source: str, reason: str | None) -> Iterable[SourceChanged]:
        """Yield an event when the state of `source` changes; a `reason` of None means that it works."""
        if self._failing.get(source) == reason:
            return
        if reason is None:
            del self._failing[source]
        else:
            self._failing[source] = reason
        yield SourceChanged(now, source, reason is None, reason or "")

    def poll(self, now: float, sources: Iterable[EventSource]) -> Iterable[Event]:
        """Yield the new events of each source, and whether it began to fail or recovered."""
        for source in sources:
            try:
                yield from source.poll(now)
            except MemwatchError as error:
                yield from self.update(now, source.name, str(error))
            else:
                yield from self.update(now, source.name, None)


@dataclass(slots=True)
class _Iteration:
    """The events and the notices of one iteration of the loop."""

    events: list[Event] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    _recorded: tuple[int, int] = (0, 0)  # how many events and notices are recorded

    def pop_unrecorded(self) -> tuple[list[Event], list[Notice]]:
        (events, notices), self._recorded = self._recorded, (len(self.events), len(self.notices))
        return self.events[events:], self.notices[notices:]


class WatchLoop:
    """Watches one trainer to its end."""

    def __init__(
        self,
        *,
        clock: Clock,
        engine: Engine,
        read_sample: Callable[[float], Sample],
        trainer: WatchedTrainer,
        interrupter: Interrupter,
        diagnose: Callable[[Diagnose], None] = lambda _: None,
        sources: Sequence[EventSource] = (),
        keys: EventSource | None = None,
        sinks: Sequence[Sink] = (),
        recorder: HistoryStore | None = None,
        waker: Waker | None = None,
        await_log_end: Callable[[], None] = lambda: None,
        on_exit: Callable[[Snapshot], Sequence[Event]] = lambda _: (),
        interval: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """`read_sample` raises TargetGoneError when the trainer has no memory left.

        `keys` reports what a person types, and is polled after each early wakeup. `on_exit` returns the events that the
        trainer's end leads to. `interval` is asked before each tick how long after it the next one is due.
        """
        self._clock, self._engine, self._read_sample = clock, engine, read_sample
        self._trainer, self._interrupter, self._diagnose = trainer, interrupter, diagnose
        self._keys = () if keys is None else (keys,)
        self._sources, self._sinks, self._recorder, self._waker = (*sources, *self._keys), sinks, recorder, waker
        self._await_log_end, self._on_exit, self._next_interval = await_log_end, on_exit, interval
        self._interval = 0.0
        self._failures = FailureTracker()
        self._unread: set[str] = set()  # names of the sources that failed in the latest sample
        self._unreachable: str | None = ""  # as last reported; "" before the first report
        self._no_memory_since: float | None = None
        self._tick_t = self._thresholds_t = self._armed_t = float("-inf")  # when each is due
        self._sample_within = 0.0  # seconds until the engine wants the next sample, at most
        self._sink_changes: list[Event] = []  # sinks that began to fail or recovered; fed in the next iteration

    def run(self, attached: Attached, sleep: Callable[[float], bool], stopped: Callable[[], bool]) -> Exited | None:
        """Watch until the trainer ends, and return how it ended; None when `stopped` returns True before.

        `sleep` returns True when it ends early: the trainer ended, memory reached a wake threshold, a key was pressed.
        """
        woken = True
        self._process_events([attached])
        while not stopped():
            if woken and self._trainer.has_exited():
                return self._finish(stopped)
            if self._clock.now() >= self._tick_t:
                self.tick()
            elif any(sink.wants_snapshot() for sink in self._sinks):
                self._publish(())
            else:
                self.sample_memory()
            self._renew_wake_thresholds(woken)
            woken = sleep(min(self._sample_within, self._tick_t - self._clock.now()))
            if woken and (pressed := list(self._failures.poll(self._clock.now(), self._keys))):
                self._process_events(pressed)
        self._close()
        return None

    def run_briefly(self, attached: Attached, sleep: Callable[[float], bool]) -> None:
        """Take a few samples, as `memwatch -1` needs them."""
        self._process_events([attached])
        for _ in range(BRIEF_SAMPLES):
            self.tick()
            sleep(BRIEF_INTERVAL_SECONDS)
        self._close()

    def tick(self) -> None:
        """Poll every source, sample memory, publish."""
        now, self._interval = self._clock.now(), self._next_interval()
        self._tick_t = now + self._interval
        self._process_events([*self._poll_armed(now), *self._failures.poll(now, self._sources), *self._sampled(now)])

    def sample_memory(self) -> None:
        """Sample memory between two ticks; poll the sources only while a decision is near; publish only notices."""
        now = self._clock.now()
        polled = self._failures.poll(now, self._sources) if self._engine.is_deciding else ()
        notices = self._feed_all([*polled, *self._sampled(now)])
        if notices:
            self._publish(notices)

    def _renew_wake_thresholds(self, woken: bool) -> None:
        """Ask the kernel to end the next sleep when memory rises; renew that every 10 s and after each such wakeup."""
        if self._waker is None:
            return
        if not (woken and self._waker.consume_wakeup()) and self._clock.now() < self._thresholds_t:
            return
        self._thresholds_t = self._clock.now() + RENEW_THRESHOLDS_SECONDS
        wanted = self._engine.wake_thresholds()
        if wanted is not None:
            self._waker.set_thresholds(*wanted)

    def _poll_armed(self, now: float) -> Iterable[Event]:
        """Report whether a signal would be sent and reach the trainer: at first, and whenever that changes."""
        if now < self._armed_t:
            return
        self._armed_t = now + RENEW_THRESHOLDS_SECONDS
        reason = self._interrupter.unreachable_reason()
        if reason != self._unreachable and not self._trainer.has_exited():
            self._unreachable = reason
            yield ArmedChanged(now, reason is None, reason or "")

    def _finish(self, stopped: Callable[[], bool]) -> Exited:
        """Read what the trainer wrote last, then explain its end."""
        self._await_log_end()
        now, empty_reads = self._clock.now(), 0
        for _ in range(MAX_FINAL_READS):
            events = list(self._failures.poll(now + empty_reads * NEW_FILE_CHECK_SECONDS, self._sources))
            self._process_events(events)
            empty_reads = 0 if events else empty_reads + 1
            if empty_reads >= FINAL_EMPTY_READS:
                break
        *found, exited = self._trainer.collect_exit_events(now, self._engine.snapshot())
        self._process_events([*found, exited])
        if late := self._interrupter.wait_for_hook(stopped):
            self._process_events(late)
        if decided := self._on_exit(self._engine.snapshot()):
            self._process_events(decided)
        self._close()
        assert isinstance(exited, Exited)  # noqa: S101 - collect_exit_events says so, its type cannot
        return exited

    def _sampled(self, now: float) -> Iterable[Event]:
        try:
            sample = self._read_sample(now)
        except TargetGoneError as error:
            self._no_memory_since = now if self._no_memory_since is None else self._no_memory_since
            if now - self._no_memory_since < REPORT_NO_MEMORY_AFTER_SECONDS:
                return
            sample = Sample((), unread=(UnavailableSource("procfs", str(error)),))
        else:
            self._no_memory_since = None
        if self._trainer.has_exited():  # it ended meanwhile: the sample is of a dying process
            return
        failed = {unread.source: unread.reason for unread in sample.unread if not unread.absent}
        for name in failed.keys() | self._unread:
            yield from self._failures.update(now, name, failed.get(name))
        self._unread = set(failed)
        yield Sampled(now, sample)

    def _process_events(self, events: Iterable[Event]) -> None:
        """Feed the events, and publish the state where there are notices or a sink asks for it."""
        changes, self._sink_changes = self._sink_changes, []
        notices = self._feed_all((*changes, *events))
        wanted = [sink.on_loop_iteration() for sink in self._sinks]  # a list: each sink has to be called
        if notices or any(wanted):
            self._publish(notices)

    def _feed_all(self, events: Iterable[Event]) -> list[Notice]:
        """Feed the engine, carry out its actions, record the events; return the notices."""
        iteration = _Iteration()
        for event in events:
            self._feed(event, iteration)
        self._sample_within = self._engine.next_sample_within_seconds
        if self._recorder is not None and iteration.events:
            wait_seconds = max(0.0, MAX_UNWRITTEN_SECONDS - min(self._sample_within, self._interval))
            self._recorder.append(*iteration.pop_unrecorded(), wait_seconds)
            for name, reason in (("history", self._recorder.failure), ("backlog", self._recorder.loss)):
                for event in self._failures.update(iteration.events[-1].t, name, reason):
                    self._feed(event, iteration)
        return iteration.notices

    def _publish(self, notices: Sequence[Notice]) -> None:
        """Publish to every sink; the next iteration reports a failed one through the others."""
        snapshot = self._engine.snapshot()
        for sink in self._sinks:
            try:
                sink.publish(snapshot, notices)
            except (MemwatchError, OSError) as error:
                self._sink_changes += self._failures.update(snapshot.t, sink.name, str(error))
            else:
                self._sink_changes += self._failures.update(snapshot.t, sink.name, None)

    def _feed(self, event: Event, iteration: _Iteration) -> None:
        iteration.events.append(event)
        self._trainer.observe_event(event)
        actions = self._engine.feed(event)
        iteration.notices += (action for action in actions if isinstance(action, Notice))
        for action in actions:
            if isinstance(action, Diagnose):
                self._diagnose(action)
            elif not isinstance(action, Notice):
                for outcome in self._interrupter.execute(action, lambda planned: self._announce(planned, iteration)):
                    self._feed(outcome, iteration)

    def _announce(self, planned: Signalling, iteration: _Iteration) -> None:
        """Record a signal before it is sent: after a crash in between, a restarted memwatch knows it may be sent."""
        self._feed(planned, iteration)
        if self._recorder is not None:
            self._recorder.append(*iteration.pop_unrecorded())

    def _close(self) -> None:
        snapshot = self._engine.snapshot()
        for sink in self._sinks:
            with suppress(MemwatchError, OSError):  # its failure was reported during the watch
                sink.on_watch_end(snapshot)
