"""The Protocols between the folders of the package: clock, sources, outputs, waker, signaller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from memwatch.core.events import Event, Notice
from memwatch.core.measurements import CgroupMemory, Limit
from memwatch.core.snapshot import Snapshot

T_co = TypeVar("T_co", covariant=True)


class Clock(Protocol):
    """The clock of the daemon."""

    def now(self) -> float:
        """Return seconds: Unix time at the daemon's start, monotonic from there."""


class Reader(Protocol[T_co]):
    """A source that is read for its present state, once per loop iteration."""

    name: str

    def read_memory(self, now: float) -> T_co:
        """Return the present state; SourceError (TargetGoneError) when it cannot be read."""

    def close(self) -> None: ...


class EventSource(Protocol):
    """A source that reports the events since the last call."""

    name: str

    def poll(self, now: float) -> Iterable[Event]:
        """Return new events; SourceError when the source cannot be read, perhaps after some of them."""

    def close(self) -> None: ...


class Sink(Protocol):
    """An output. It must return within milliseconds and never raise for reasons of its own medium."""

    name: str

    def on_loop_iteration(self) -> bool:
        """The loop has run once more; return True to have the state published even without a notice."""

    def wants_snapshot(self) -> bool:
        """Whether somebody waits for the state between two iterations; True once for each request."""

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        """Publish the present state and the notices since the last call."""

    def on_watch_end(self, snapshot: Snapshot) -> None:
        """The watch is over; `snapshot` is final."""


class Waker(Protocol):
    """Ends a sleep when memory has to be sampled before the next sample is due."""

    def set_thresholds(self, cgroup: CgroupMemory | None, limit: Limit, headrooms: Sequence[int]) -> None:
        """Wake up at these headrooms (bytes), as soon as that is prepared; it returns at once."""

    def consume_wakeup(self) -> bool:
        """Whether it has ended a sleep since the last call."""


class Signaller(Protocol):
    """The only way to signal the trainer."""

    def send_signal(self, signal_name: str) -> None:
        """Send e.g. SIGINT to the trainer's process alone; TargetGoneError or SourceError if not delivered."""
