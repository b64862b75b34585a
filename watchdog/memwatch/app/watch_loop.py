"""The one loop: look, tell the engine, do what it asks, keep and show what came of it.

Which sources and outputs fail: each failure, its new reason and its recovery are told once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from memwatch.core.engine.engine import Engine
from memwatch.core.events import (
    ArmedChanged,
    Attached,
    Diagnose,
    Escalate,
    Event,
    Exited,
    Interrupt,
    Notice,
    Sampled,
    Signalling,
    SourceChanged,
)
from memwatch.core.interfaces import Clock, EventSource, Sink, Waker
from memwatch.core.measurements import Sample, UnavailableSource
from memwatch.core.snapshot import Snapshot
from memwatch.errors import MemwatchError, TargetGoneError


class FailureTracker:
    """What is known to fail, and why."""

    def __init__(self) -> None:
        self._failing: dict[str, str] = {}

    def update(self, now: float, source: str, reason: str | None) -> Iterable[SourceChanged]:
        """The change, if it is one, now that `source` works (no reason) or does not."""
        if self._failing.get(source) == reason:
            return
        if reason is None:
            del self._failing[source]
        else:
            self._failing[source] = reason
        yield SourceChanged(now, source, reason is None, reason or "")


REPORT_NO_MEMORY_AFTER_SECONDS = 2.0  # a process without memory that has not ended by then is worth telling
RENEW_THRESHOLDS_SECONDS = (
    10.0  # between two looks at what arms memwatch: the kernel's levels, the permission to signal
)
MIN_INTERVAL_TO_RENEW_SECONDS = 0.25  # looks closer than this leave no time to arm levels
MAX_UNWRITTEN_SECONDS = 1.0  # what a kill may cost: samples that come alone are on disk after so long, many at once
ONCE_LOOKS, ONCE_SECONDS = 4, 0.25  # where one screen is all that is wanted
MAX_FINAL_READS = 64  # of a log, a bounded piece each, after the trainer's end ...
FINAL_EMPTY_READS = (
    2  # ... until so many find nothing: of a log that was rotated just then, the first ends the old file ...
)
RARE_SECONDS = 1.0  # ... and the next, as of so much later, looks for the new one


class SampleSource(Protocol):
    """One look at memory."""

    def sample(self, now: float) -> Sample:
        """Everything that can be read now; TargetGoneError when the trainer has no memory left."""


class EventRecorder(Protocol):
    """What outlives memwatch."""

    @property
    def failure(self) -> str | None:
        """Why nothing is kept at present."""

    @property
    def loss(self) -> str | None:
        """That something will never be kept, since it waited for too long."""

    def append(self, events: Sequence[Event], notices: Sequence[Notice], wait_seconds: float = 0.0) -> None:
        """Keep them; a disk that fails shows in `failure`. Samples that come alone may wait so long for the next.

        It waits for the disk for a moment, and for a disk that lags behind only where Signalling is among them.
        """


class Trainer(Protocol):
    """The process that is watched."""

    def has_exited(self) -> bool:
        """It has ended."""

    def collect_exit_events(self, t: float, before: Snapshot) -> Sequence[Event]:
        """What its end brought to light, Exited last; `before` is the state in which the end was met."""

    def observe_event(self, event: Event) -> None:
        """Every event that the engine is fed, too."""


class InterruptExecutor(Protocol):
    """What the engine decides, carried out."""

    def unreachable_reason(self) -> str | None:
        """Why no interrupt would reach the trainer; None when one would."""

    def execute(self, action: Interrupt | Escalate, announce: Callable[[Signalling], None]) -> Sequence[Event]:
        """Carry it out, without waiting for anything; what came of it. `announce` is told what will be done, before."""

    def wait_for_hook(self, stopped: Callable[[], bool]) -> Sequence[Event]:
        """The trainer has ended: what is still under way is waited for, in bounded time."""


@dataclass(slots=True)
class _Iteration:
    """What the engine was fed, and what there is to tell."""

    fed: list[Event] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    _kept: tuple[int, int] = (0, 0)  # of both

    def to_keep(self) -> tuple[list[Event], list[Notice]]:
        """What has come since this was asked before."""
        (fed, told), self._kept = self._kept, (len(self.fed), len(self.notices))
        return self.fed[fed:], self.notices[told:]


class WatchLoop:
    """Watches one trainer to its end. Everything it works with is handed to it."""

    def __init__(
        self,
        *,
        clock: Clock,
        engine: Engine,
        sampler: SampleSource,
        trainer: Trainer,
        interrupter: InterruptExecutor,
        diagnose: Callable[[Diagnose], None] = lambda _: None,
        sources: Sequence[EventSource] = (),
        keys: EventSource | None = None,
        sinks: Sequence[Sink] = (),
        journal: EventRecorder | None = None,
        waker: Waker | None = None,
        sequel: Callable[[Snapshot], Sequence[Event]] = lambda _: (),
        interval: float = 1.0,
    ) -> None:
        self._clock, self._engine, self._sampler = clock, engine, sampler
        self._trainer, self._interrupter = trainer, interrupter
        self._diagnose = diagnose
        self._keys = (keys,) if keys is not None else ()  # what somebody waits in front of: asked whenever it may be
        self._sources, self._sinks, self._journal, self._waker = (*sources, *self._keys), sinks, journal, waker
        self._sequel = sequel  # what the trainer's end leads to
        self._health = FailureTracker()
        self._interval = interval
        self._unread: set[str] = set()
        self._powerless: str | None = ""  # as last told; "" before
        self._wreck_t: float | None = None  # since when the trainer has had no memory
        self._due_t = float("-inf")  # of the next tick
        self._arm_t = self._powers_t = float("-inf")  # when levels are armed anew, and the permission is asked for
        self._pace = 0.0  # seconds to the next look, at most, as of the last
        self._waiting: list[Event] = []  # what the last turn's showing brought about

    def run(self, attached: Attached, sleep: Callable[[float], bool], stopped: Callable[[], bool]) -> Exited | None:
        """Watch until the trainer ends (how it did) or memwatch is told to stop (None).

        `sleep` ends early when the trainer does or the waker rings; it tells whether it had a reason to.
        """
        woken = True
        self._process_events([attached])
        while not stopped():
            if woken and self._trainer.has_exited():
                return self._finish(stopped)
            if self._clock.now() >= self._due_t:
                self.tick()
            elif any(sink.wants_snapshot() for sink in self._sinks):
                self._show(())
            else:
                self.sample_memory()
            self._renew_wake_thresholds(self._pace, woken)
            woken = sleep(min(self._pace, self._due_t - self._clock.now()))
            if woken and (pressed := list(self._poll(self._clock.now(), self._keys))):
                self._process_events(pressed)
        self._close()
        return None

    def run_briefly(self, attached: Attached, sleep: Callable[[float], bool]) -> None:
        """A few looks, close to each other: what moves shows in the second, a long log is read in parts."""
        self._process_events([attached])
        for _ in range(ONCE_LOOKS):
            self.tick()
            sleep(ONCE_SECONDS)
        self._close()

    def tick(self) -> None:
        """One look at everything."""
        now = self._clock.now()
        self._due_t = now + self._interval
        self._process_events([*self._poll_armed(now), *self._poll(now, self._sources), *self._read_sample(now)])

    def sample_memory(self) -> None:
        """One look at memory, between two ticks, and at all else when it may be decisive; shown when that tells."""
        now = self._clock.now()
        heard = self._poll(now, self._sources) if self._engine.is_deciding else ()
        notices = self._feed_all([*heard, *self._read_sample(now)])
        if notices:
            self._show(notices)

    def _renew_wake_thresholds(self, pace: float, woken: bool) -> None:
        """Let the kernel end the sleep that follows; what it looks out for is renewed now and then, or when it rang."""
        if self._waker is None or not ((woken and self._waker.consume_wakeup()) or self._clock.now() >= self._arm_t):
            return
        self._arm_t = self._clock.now() + RENEW_THRESHOLDS_SECONDS
        wanted = self._engine.wake_thresholds()
        if wanted is not None:
            self._waker.set_thresholds(*wanted, hurried=pace < MIN_INTERVAL_TO_RENEW_SECONDS)

    def _poll_armed(self, now: float) -> Iterable[Event]:
        """Tell once whether a signal would be sent and reach the trainer, and each change."""
        if now < self._powers_t:
            return
        self._powers_t = now + RENEW_THRESHOLDS_SECONDS
        reason = self._interrupter.unreachable_reason()
        if reason != self._powerless and not self._trainer.has_exited():
            self._powerless = reason
            yield ArmedChanged(now, reason is None, reason or "")

    def _finish(self, stopped: Callable[[], bool]) -> Exited:
        """Read what the trainer wrote last, then conclude."""
        now = self._clock.now()
        silent = 0
        for _ in range(MAX_FINAL_READS):
            events = list(self._poll(now + silent * RARE_SECONDS, self._sources))
            self._process_events(events)
            silent = 0 if events else silent + 1
            if silent >= FINAL_EMPTY_READS:
                break
        *found, exited = self._trainer.collect_exit_events(now, self._engine.snapshot())
        self._process_events([*found, exited])
        if late := self._interrupter.wait_for_hook(stopped):
            self._process_events(late)
        if decided := self._sequel(self._engine.snapshot()):
            self._process_events(decided)
        self._close()
        assert isinstance(exited, Exited)  # noqa: S101 - the Protocol says so, the type cannot
        return exited

    def _poll(self, now: float, sources: Iterable[EventSource]) -> Iterable[Event]:
        for source in sources:
            try:
                yield from source.poll(now)
            except MemwatchError as error:
                yield from self._health.update(now, source.name, str(error))
            else:
                yield from self._health.update(now, source.name, None)

    def _read_sample(self, now: float) -> Iterable[Event]:
        try:
            sample = self._sampler.sample(now)
        except TargetGoneError as error:  # its memory goes a moment before the process does
            self._wreck_t = now if self._wreck_t is None else self._wreck_t
            if now - self._wreck_t < REPORT_NO_MEMORY_AFTER_SECONDS:
                return
            sample = Sample((), unread=(UnavailableSource("procfs", str(error)),))
        else:
            self._wreck_t = None
        if self._trainer.has_exited():  # it ended meanwhile: what was read is the wreck
            return
        failed = {unread.source: unread.reason for unread in sample.unread if not unread.absent}
        for name in failed.keys() | self._unread:
            yield from self._health.update(now, name, failed.get(name))
        self._unread = set(failed)
        yield Sampled(now, sample)

    def _process_events(self, events: Iterable[Event]) -> None:
        """Feed the engine, act, keep, and show what came of it to those who want to see it."""
        waiting, self._waiting = self._waiting, []
        notices = self._feed_all((*waiting, *events))
        wanted = [sink.on_loop_iteration() for sink in self._sinks]  # each is told
        if notices or any(wanted):
            self._show(notices)

    def _feed_all(self, events: Iterable[Event]) -> list[Notice]:
        """Feed the engine, act, keep; what there is to tell."""
        turn = _Iteration()
        for event in events:
            self._feed(event, turn)
        self._pace = self._engine.next_sample_within_seconds
        if self._journal is not None and turn.fed:
            self._journal.append(*turn.to_keep(), self._patience())
            for name, trouble in (("history", self._journal.failure), ("backlog", self._journal.loss)):
                for event in self._health.update(turn.fed[-1].t, name, trouble):
                    self._feed(event, turn)
        return turn.notices

    def _patience(self) -> float:
        """Seconds that samples may wait for the next look: none is lost that is older than the constant says."""
        return max(0.0, MAX_UNWRITTEN_SECONDS - min(self._pace, self._interval))

    def _show(self, notices: Sequence[Notice]) -> None:
        """To every sink; one that fails is told of with the next turn, by the others."""
        snapshot = self._engine.snapshot()
        for sink in self._sinks:
            try:
                sink.publish(snapshot, notices)
            except (MemwatchError, OSError) as error:
                self._waiting += self._health.update(snapshot.t, sink.name, str(error))
            else:
                self._waiting += self._health.update(snapshot.t, sink.name, None)

    def _feed(self, event: Event, turn: _Iteration) -> None:
        turn.fed.append(event)
        self._trainer.observe_event(event)
        actions = self._engine.feed(event)
        turn.notices += (action for action in actions if isinstance(action, Notice))
        for action in actions:
            if isinstance(action, Diagnose):
                self._diagnose(action)
            elif not isinstance(action, Notice):
                for outcome in self._interrupter.execute(action, lambda planned: self._announce(planned, turn)):
                    self._feed(outcome, turn)

    def _announce(self, planned: Signalling, turn: _Iteration) -> None:
        """What will be done is on disk before it is, with all that led to it: killed between, memwatch knows."""
        self._feed(planned, turn)
        if self._journal is not None:
            self._journal.append(*turn.to_keep())

    def _close(self) -> None:
        snapshot = self._engine.snapshot()
        for sink in self._sinks:
            with suppress(MemwatchError, OSError):  # it was told while it mattered
                sink.on_watch_end(snapshot)
