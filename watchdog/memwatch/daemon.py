"""The one loop: look, tell the engine, do what it asks, keep and show what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from memwatch.core.engine import Engine
from memwatch.core.model import (
    Attached,
    Escalate,
    Event,
    Exited,
    Interrupt,
    Notice,
    Sample,
    Sampled,
    Signalled,
    Snapshot,
    SourceChanged,
    Unread,
)
from memwatch.errors import MemwatchError, TargetGoneError
from memwatch.interfaces import Clock, EventSource, Signaller, Sink

WRECK_SECONDS = 2.0  # a process without memory that has not ended by then is worth telling
LAST_READS = 64  # of a log, a bounded piece each, after the trainer's end


class Samples(Protocol):
    """One look at memory."""

    def sample(self, now: float) -> Sample:
        """Everything that can be read now; TargetGoneError when the trainer has no memory left."""


class Journal(Protocol):
    """What outlives memwatch."""

    @property
    def failure(self) -> str | None:
        """Why nothing is kept at present."""

    def append(self, events: Sequence[Event], notices: Sequence[Notice]) -> None:
        """Keep them; a disk that fails shows in `failure`."""


class Trainer(Protocol):
    """The process that is watched."""

    def gone(self) -> bool:
        """It has ended."""

    def ending(self, t: float, before: Snapshot) -> Sequence[Event]:
        """What its end brought to light, Exited last; `before` is the state in which the end was met."""

    def observe(self, event: Event) -> None:
        """Every event that the engine is fed, too."""


class Daemon:
    """Watches one trainer to its end. Everything it works with is handed to it."""

    def __init__(
        self,
        *,
        clock: Clock,
        engine: Engine,
        sampler: Samples,
        trainer: Trainer,
        signaller: Signaller,
        choose_signal: Callable[[], str],
        sources: Sequence[EventSource] = (),
        sinks: Sequence[Sink] = (),
        journal: Journal | None = None,
        interval: float = 1.0,
        dry_run: bool = False,
    ) -> None:
        self._clock, self._engine, self._sampler = clock, engine, sampler
        self._trainer, self._signaller, self._choose_signal = trainer, signaller, choose_signal
        self._sources, self._sinks, self._journal = sources, sinks, journal
        self._interval, self._dry_run = interval, dry_run
        self._failing: dict[str, str] = {}
        self._unread: set[str] = set()
        self._wreck_t: float | None = None  # since when the trainer has had no memory
        self._waiting: list[Event] = []  # what the last turn's showing brought about

    def run(self, attached: Attached, sleep: Callable[[float], None], stopped: Callable[[], bool]) -> Exited | None:
        """Watch until the trainer ends (how it did) or memwatch is told to stop (None)."""
        self._turn([attached])
        while not stopped():
            if self._trainer.gone():
                return self._finish()
            sleep(min(self._interval, self.tick().pace_seconds))
        self._close()
        return None

    def tick(self) -> Snapshot:
        """One look at everything; the state after it."""
        now = self._clock.now()
        return self._turn([*self._poll(now), *self._look(now)])

    def _finish(self) -> Exited:
        """Read what the trainer wrote last, then conclude."""
        now = self._clock.now()
        for _ in range(LAST_READS):
            events = list(self._poll(now))
            self._turn(events)
            if not events:
                break
        *found, exited = self._trainer.ending(now, self._engine.snapshot())
        self._turn([*found, exited])
        self._close()
        assert isinstance(exited, Exited)  # noqa: S101 - the Protocol says so, the type cannot
        return exited

    def _poll(self, now: float) -> Iterable[Event]:
        for source in self._sources:
            try:
                yield from source.poll(now)
            except MemwatchError as error:
                yield from self._health(now, source.name, str(error))
            else:
                yield from self._health(now, source.name, None)

    def _look(self, now: float) -> Iterable[Event]:
        try:
            sample = self._sampler.sample(now)
        except TargetGoneError as error:  # its memory goes a moment before the process does
            self._wreck_t = now if self._wreck_t is None else self._wreck_t
            if now - self._wreck_t < WRECK_SECONDS:
                return
            sample = Sample((), unread=(Unread("procfs", str(error)),))
        else:
            self._wreck_t = None
        if self._trainer.gone():  # it ended meanwhile: what was read is the wreck
            return
        failed = {unread.source: unread.reason for unread in sample.unread if not unread.absent}
        for name in failed.keys() | self._unread:
            yield from self._health(now, name, failed.get(name))
        self._unread = set(failed)
        yield Sampled(now, sample)

    def _health(self, now: float, source: str, reason: str | None) -> Iterable[SourceChanged]:
        """Tell a source's failure, its new reason or its recovery once."""
        if self._failing.get(source) == reason:
            return
        if reason is None:
            del self._failing[source]
        else:
            self._failing[source] = reason
        yield SourceChanged(now, source, reason is None, reason or "")

    def _turn(self, events: Sequence[Event]) -> Snapshot:
        """Feed the engine, act, keep, show; what was shown."""
        fed: list[Event] = []
        notices: list[Notice] = []
        waiting, self._waiting = self._waiting, []
        for event in (*waiting, *events):
            self._feed(event, fed, notices)
        if self._journal is not None and fed:
            self._journal.append(fed, notices)
            for event in self._health(fed[-1].t, "history", self._journal.failure):
                self._feed(event, fed, notices)
        return self._show(notices)

    def _show(self, notices: Sequence[Notice]) -> Snapshot:
        """To every sink; one that fails is told of with the next turn, by the others."""
        snapshot = self._engine.snapshot()
        for sink in self._sinks:
            try:
                sink.publish(snapshot, notices)
            except (MemwatchError, OSError) as error:
                self._waiting += self._health(snapshot.t, sink.name, str(error))
            else:
                self._waiting += self._health(snapshot.t, sink.name, None)
        return snapshot

    def _feed(self, event: Event, fed: list[Event], notices: list[Notice]) -> None:
        fed.append(event)
        self._trainer.observe(event)
        for action in self._engine.feed(event):
            if isinstance(action, Notice):
                notices.append(action)
            else:
                self._feed(self._signal(action), fed, notices)

    def _signal(self, action: Interrupt | Escalate) -> Signalled:
        name = action.signal if isinstance(action, Escalate) else "SIGINT"
        try:
            name = action.signal if isinstance(action, Escalate) else self._choose_signal()
            if not self._dry_run:
                self._signaller.send(name)
        except MemwatchError as error:
            return Signalled(action.t, name, error=str(error))
        return Signalled(action.t, name, dry_run=self._dry_run)

    def _close(self) -> None:
        snapshot = self._engine.snapshot()
        for sink in self._sinks:
            with suppress(MemwatchError, OSError):  # it was told while it mattered
                sink.close(snapshot)
