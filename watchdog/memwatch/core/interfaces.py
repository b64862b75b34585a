"""The seams between rooms: Protocols only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from memwatch.core.events import Event, Notice
from memwatch.core.measurements import CgroupMemory, Limit
from memwatch.core.snapshot import Snapshot

T_co = TypeVar("T_co", covariant=True)


class Clock(Protocol):
    """Time as the daemon sees it."""

    def now(self) -> float:
        """Seconds; Unix time at the daemon's start, monotonic from there."""


class Reader(Protocol[T_co]):
    """A source that is read for its present state, once a tick."""

    name: str

    def read(self, now: float) -> T_co:
        """The present state; SourceError (TargetGoneError) when it cannot be read."""

    def close(self) -> None:
        """Give back what is held."""


class EventSource(Protocol):
    """A source that tells what happened since it was last asked."""

    name: str

    def poll(self, now: float) -> Iterable[Event]:
        """What is new; SourceError when it cannot be read, also after what could be."""

    def close(self) -> None:
        """Give back what is held."""


class Sink(Protocol):
    """An output. It must return within milliseconds and never raise for reasons of its own medium."""

    name: str

    def on_loop_iteration(self) -> bool:
        """The loop has turned; True: publish its state, though there may be nothing to tell."""

    def wants_snapshot(self) -> bool:
        """Somebody waits for the state, between two turns; told once."""

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        """The state now, and what there is to tell since the last call."""

    def on_watch_end(self, snapshot: Snapshot) -> None:
        """The watch is over; `snapshot` is final."""


class Waker(Protocol):
    """What ends a sleep when memory needs a look before the next is due."""

    def set_thresholds(
        self, cgroup: CgroupMemory | None, limit: Limit, headrooms: Sequence[int], hurried: bool
    ) -> None:
        """Look out for these headrooms, in bytes; what takes long waits for a call that is not `hurried`."""

    def consume_wakeup(self) -> bool:
        """It has ended a sleep since the last call."""


class Signaller(Protocol):
    """The only way to signal the trainer."""

    def send_signal(self, signal_name: str) -> None:
        """Send e.g. SIGINT to the trainer's process alone; TargetGoneError or SourceError if not delivered."""
