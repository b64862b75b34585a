"""What the pages are made from: the latest snapshot, which the watch publishes and the HTTP threads read."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memwatch.core.events import Notice
from memwatch.core.interfaces import Clock
from memwatch.core.snapshot import Snapshot

if TYPE_CHECKING:
    from memwatch.outputs.metrics.collector import MetricsCollector

FRESH_SECONDS = 0.1  # a newer state is shown again, so that many clients do not wake the loop many times (chosen)
ANSWER_SECONDS = 0.05  # time that a page waits for the loop to publish (chosen)

# Names of the counters: iterations of the loop, notices by event, bugs in pages, refused requests and handshakes.
COUNTED = (
    *("tick", "warn", "interrupt", "saved", "escalated", "hook", "hook_failed"),
    *("finding", "breach", "source_failed"),
    *("page_failed", "refused", "handshake_failed"),
)


class PublishedState:
    """What the pages show: references that the daemon's thread replaces and all other threads only read."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.snapshot: Snapshot | None = None
        self.turned_t: float | None = None  # when the loop last iterated
        self.is_finished = False  # the watch has ended, so the loop no longer iterates
        self.counts = dict.fromkeys(COUNTED, 0)
        self.exposition: MetricsCollector | None = None  # made by the first scrape
        self.drawn: tuple[Snapshot | None, bytes] | None = None  # the page that was rendered last, and its state
        # Signalled to ask for the state; never closed, as a client may still signal it.
        self.request_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._asked = False  # whether it was signalled: most iterations need no system call
        self._posted_t = -math.inf
        self._posted = threading.Event()
        self._stuck = False  # the loop did not answer the last client that waited: none waits until it does

    def record_iteration(self) -> None:
        """Notes that the loop has iterated."""
        self.turned_t, self.is_finished = self.clock.now(), False
        self.counts["tick"] += 1

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        """Replaces what the pages show."""
        self.snapshot = snapshot
        self.turned_t = self._posted_t = self.clock.now()
        for notice in notices:
            if notice.event in self.counts:
                self.counts[notice.event] += 1
        self._stuck = False
        self._posted.set()

    def consume_request(self) -> bool:
        """Whether a client has asked for the state since the last call."""
        if not self._asked:
            return False
        self._asked = False
        try:
            return os.eventfd_read(self.request_fd) > 0
        except BlockingIOError:
            return False

    def request_snapshot(self) -> None:
        """Asks the loop to publish its state."""
        self._asked = True
        os.eventfd_write(self.request_fd, 1)
        self._asked = True  # again, as the loop may just have answered another client

    def fresh_snapshot(self) -> Snapshot | None:
        """The state now; the latest that was published if the loop is busy for longer than a moment, or stuck."""
        if self.clock.now() - self._posted_t >= FRESH_SECONDS:
            self._posted.clear()
            self.request_snapshot()
            self._stuck = self._stuck or not self._posted.wait(ANSWER_SECONDS)
        return self.snapshot
