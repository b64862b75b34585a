"""The latest snapshot, which the watch publishes and the HTTP threads read."""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memwatch.core.events import Notice
from memwatch.core.interfaces import Clock
from memwatch.core.snapshot import Snapshot

if TYPE_CHECKING:
    from memwatch.outputs.metrics.collector import MetricsCollector

FRESH_SECONDS = 0.1  # a younger state is shown as it is, so that many clients do not wake the loop often (chosen)
ANSWER_SECONDS = 0.05  # time that a page waits for the loop to publish (chosen)


class PublishedState:
    """What the pages show: references that the watch's thread replaces and all other threads only read."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.snapshot: Snapshot | None = None
        self.last_iteration_t: float | None = None  # of the loop
        self.is_finished = False  # the watch has ended, so the loop no longer iterates
        # Notices by event, and "tick", "page_failed", "refused", "handshake_failed".
        self.counts: Counter[str] = Counter()
        self.metrics_collector: MetricsCollector | None = None  # made by the first scrape
        self.rendered_page: tuple[Snapshot | None, bytes] | None = None  # the last page, and the state that it shows
        # Signalled to request the state; never closed, as a client may still signal it.
        self.request_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_requested = False  # whether it was signalled: most iterations need no system call
        self._published_t = -math.inf
        self._has_published = threading.Event()
        self._is_stuck = False  # the loop did not answer the last client that waited: none waits until it does

    def record_iteration(self) -> None:
        """Notes that the loop has iterated."""
        self.last_iteration_t, self.is_finished = self.clock.now(), False
        self.counts["tick"] += 1

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        """Replaces the state that the pages show."""
        self.snapshot = snapshot
        self.last_iteration_t = self._published_t = self.clock.now()
        for notice in notices:
            self.counts[notice.event] += 1
        self._is_stuck = False
        self._has_published.set()

    def consume_request(self) -> bool:
        """Whether a client has requested the state since the last call."""
        if not self._is_requested:
            return False
        self._is_requested = False
        try:
            return os.eventfd_read(self.request_fd) > 0
        except BlockingIOError:
            return False

    def request_snapshot(self) -> None:
        """Requests that the loop publish its state."""
        self._is_requested = True
        os.eventfd_write(self.request_fd, 1)
        self._is_requested = True  # again, as the loop may just have answered another client

    def fresh_snapshot(self) -> Snapshot | None:
        """The state now; if the loop is busy for longer than ANSWER_SECONDS, or stuck, the last one published."""
        if self.clock.now() - self._published_t >= FRESH_SECONDS:
            self._has_published.clear()
            self.request_snapshot()
            self._is_stuck = self._is_stuck or not self._has_published.wait(ANSWER_SECONDS)
        return self.snapshot
