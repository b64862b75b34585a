"""The one loop: look, tell the engine, do what it asks, keep and show what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    SourceChanged,
)
from memwatch.errors import MemwatchError
from memwatch.interfaces import Clock, EventSource, Signaller, Sink


class Samples(Protocol):
    """One look at memory."""

    def sample(self, now: float) -> Sample:
        """Everything that can be read now; it never raises."""


class Journal(Protocol):
    """What outlives memwatch."""

    failure: str | None

    def append(self, events: Sequence[Event], notices: Sequence[Notice]) -> None:
        """Keep them; a disk that fails shows in `failure`."""


class Trainer(Protocol):
    """The process that is watched."""

    def gone(self) -> bool:
        """It has ended."""

    def ending(self, t: float) -> Exited:
        """How it ended, with the evidence."""


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
        signal_name: str,
        sources: Sequence[EventSource] = (),
        sinks: Sequence[Sink] = (),
        journal: Journal | None = None,
        witnesses: Sequence[Callable[[Event], None]] = (),
        interval: float = 1.0,
        dry_run: bool = False,
    ) -> None:
        self._clock, self._engine, self._sampler = clock, engine, sampler
        self._trainer, self._signaller, self._signal_name = trainer, signaller, signal_name
        self._sources, self._sinks, self._journal, self._witnesses = sources, sinks, journal, witnesses
        self._interval, self._dry_run = interval, dry_run
        self._failing: dict[str, str] = {}

    def run(self, attached: Attached, sleep: Callable[[float], None], stopped: Callable[[], bool]) -> Exited | None:
        """Watch until the trainer ends (how it did) or memwatch is told to stop (None)."""
        self._turn([attached])
        while not stopped():
            if self._trainer.gone():
                return self._finish()
            self.tick()
            sleep(min(self._interval, self._engine.snapshot().pace_seconds))
        self._close()
        return None

    def tick(self) -> None:
        """One look at everything."""
        now = self._clock.now()
        self._turn([*self._poll(now), *self._look(now)])

    def _finish(self) -> Exited:
        """Read what the trainer wrote last, then conclude."""
        now = self._clock.now()
        self._turn(list(self._poll(now)))
        exited = self._trainer.ending(now)
        self._turn([exited])
        self._close()
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
        sample = self._sampler.sample(now)
        failed = {unread.source: unread.reason for unread in sample.unread}
        for name in failed.keys() | (self._failing.keys() & {"tree", "cgroup", "host", "nvml"}):
            yield from self._health(now, name, failed.get(name))
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

    def _turn(self, events: Sequence[Event]) -> None:
        """Feed the engine, act, keep, show."""
        fed: list[Event] = []
        notices: list[Notice] = []
        for event in events:
            self._feed(event, fed, notices)
        if self._journal is not None and fed:
            self._journal.append(fed, notices)
            for event in self._health(fed[-1].t, "history", self._journal.failure):
                self._feed(event, fed, notices)
        snapshot = self._engine.snapshot()
        for sink in self._sinks:
            sink.publish(snapshot, notices)

    def _feed(self, event: Event, fed: list[Event], notices: list[Notice]) -> None:
        fed.append(event)
        for witness in self._witnesses:
            witness(event)
        for action in self._engine.feed(event):
            if isinstance(action, Notice):
                notices.append(action)
            else:
                self._feed(self._signal(action), fed, notices)

    def _signal(self, action: Interrupt | Escalate) -> Signalled:
        name = action.signal if isinstance(action, Escalate) else self._signal_name
        if self._dry_run:
            return Signalled(action.t, name, dry_run=True)
        try:
            self._signaller.send(name)
        except MemwatchError as error:
            return Signalled(action.t, name, error=str(error))
        return Signalled(action.t, name)

    def _close(self) -> None:
        snapshot = self._engine.snapshot()
        for sink in self._sinks:
            sink.close(snapshot)
