"""A sink that hands records of the watch to a process of its own, which may be slow, hang or crash."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from memwatch.core.events import Notice
from memwatch.core.snapshot import Snapshot
from memwatch.errors import SourceError
from memwatch.system import json_and_yaml
from memwatch.system.python_workers import Worker

MAX_QUEUED_RECORDS = 1000  # if more are waiting, the oldest are dropped (chosen)
MESSAGE_BYTES = 64 << 10  # of all records in a message; a socket takes three times as much
SLOW_SECONDS = 60.0  # without a reply, until that is reported: a package may load slowly on a busy machine (chosen)
HUNG_SECONDS = 600.0  # without a reply, until the process is replaced (chosen)
MOST_CRASHES = 3  # of processes that had the same records, until these are dropped (chosen)
EXIT_POLL_SECONDS = 0.02  # between two checks of processes that are ending (chosen)
_CODE = "from memwatch.outputs.trackers.tracker_worker import serve; serve()"


class RecordSelector(Protocol):
    """Selects the records that are handed on."""

    def is_due(self) -> bool:
        """Whether a record is due even without a notice."""

    def records(self, snapshot: Snapshot, notices: Sequence[Notice]) -> Iterable[Mapping[str, object]]:
        """The records of a state and its notices, ready for JSON."""


@dataclass(frozen=True, slots=True)
class TrackerWorkerSpec:
    """The first message: which tracker the process writes to."""

    kind: str  # "wandb", "mlflow", "tensorboard", "notify"
    run: str  # identifies the run; it stays the same after a restart if a history is kept
    command: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrackerWorkerReply:
    """The reply to each message."""

    accepted: bool  # the records are written; otherwise another process is handed them again
    complaint: str = ""  # what is wrong, even if they are written


class TrackerProxy:
    """Hands records to one process, a message at a time, and replaces it when it ends or hangs. No call waits."""

    def __init__(
        self,
        spec: TrackerWorkerSpec,
        selector: RecordSelector,
        *,
        together: int = 100,
        code: str = _CODE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`together` is the maximum number of records in a message."""
        self.name = spec.kind
        self._spec, self._selector, self._together, self._monotonic = spec, selector, together, monotonic
        self._waiting: deque[bytes] = deque()
        self._in_flight: list[bytes] = []  # the records of the message that has no reply yet
        self._worker = Worker(code, "its process")
        self._crashes = self.dropped = 0
        self._failure = self._reported = ""
        self._closing = False

    # --- as the loop sees it ---

    def on_loop_iteration(self) -> bool:
        """Continue; return True when a record is due, or the process has begun to fail or works again."""
        self._continue()
        return self._selector.is_due() or self.failure != self._reported

    def wants_snapshot(self) -> bool:
        return False

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        """Hand on the records of this state. SourceError while the process fails."""
        for record in self._selector.records(snapshot, notices):
            self.enqueue(record)
        self._continue()
        self._reported = self.failure
        if self._reported:
            raise SourceError(self._reported)

    def on_watch_end(self, snapshot: Snapshot) -> None:
        """No more records follow: `finish_all` waits for those that are queued."""
        self._closing = True

    @property
    def failure(self) -> str:
        """Why no records are handed on; empty while they are."""
        if self._worker.waiting_seconds(self._monotonic()) > SLOW_SECONDS:
            return f"its process has not answered for {SLOW_SECONDS:g} s"
        return self._failure

    @property
    def idle(self) -> bool:
        """Whether all records are handed on and the process owes no reply."""
        return self._worker.is_running and self._worker.asked_t is None and not self._waiting

    def enqueue(self, record: Mapping[str, object]) -> None:
        """Hand on one record as soon as the process accepts it."""
        data = json_and_yaml.to_json(record)
        if len(data) > MESSAGE_BYTES:
            self.dropped += 1
            return
        if len(self._waiting) >= MAX_QUEUED_RECORDS:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(data)

    # --- the process ---

    def _continue(self) -> None:
        now, worker = self._monotonic(), self._worker
        worker.reap(now)
        try:
            if not worker.is_running:
                self._start(now)
            elif (reply := worker.receive(TrackerWorkerReply)) is not None:
                self._handle_reply(now, reply)
            else:
                worker.end_if_hung(now, HUNG_SECONDS)
            if worker.is_running and worker.asked_t is None and self._waiting:
                self._send_records(now)
        except SourceError as error:
            self._crashes += bool(self._in_flight)
            self._fail(now, str(error))

    def _start(self, now: float) -> None:
        if now < self._worker.next_start_t or (self._closing and not self._waiting):
            return
        try:
            self._worker.start(self._spec, asked_t=now)
        except OSError as error:
            self._fail(now, f"no process can be started: {error}")

    def _handle_reply(self, now: float, reply: TrackerWorkerReply) -> None:
        if not reply.accepted:
            self._fail(now, reply.complaint)
        elif self._in_flight:
            self._in_flight, self._crashes, self._failure = [], 0, reply.complaint
            self._worker.reset_pause()
        elif not self._waiting:  # it has started; with records waiting, it has yet to accept them
            self._failure = reply.complaint

    def _send_records(self, now: float) -> None:
        size, most = 0, 0
        for record in islice(self._waiting, self._together):
            size += len(record) + 1
            if size > MESSAGE_BYTES and most:
                break
            most += 1
        self._in_flight = [self._waiting.popleft() for _ in range(most)]
        self._worker.send(b"\n".join(self._in_flight), asked_t=now)

    def _fail(self, now: float, reason: str) -> None:
        """Hand the same records to another process, after a pause."""
        self._worker.replace(now)
        if self._crashes >= MOST_CRASHES:
            self.dropped += len(self._in_flight)
            self._crashes = 0
        else:
            self._waiting.extendleft(reversed(self._in_flight))
        self._in_flight = []
        self._failure = reason + (f"; {self.dropped} records were dropped" if self.dropped else "")

    # --- the end ---

    def try_finish(self) -> bool:
        """Return whether all records are handed on and the process has ended."""
        if not self.idle and (self._worker.is_running or self._waiting):
            self._continue()
        now = self._monotonic()
        if self.idle:
            self._worker.stop(now, grace_seconds=math.inf)
        return not (self._worker.is_running or self._waiting or self._worker.reap(now))

    def kill(self) -> None:
        self._worker.close(grace_seconds=0.0, killed_seconds=0.1)


def wait_until_idle(proxy: TrackerProxy, seconds: float) -> None:
    """Wait, `seconds` at most, until all records are handed on or the process fails."""
    deadline = time.monotonic() + seconds
    while not (proxy.on_loop_iteration() or proxy.idle) and time.monotonic() < deadline:
        time.sleep(EXIT_POLL_SECONDS)


def finish_all(proxies: Sequence[TrackerProxy], seconds: Callable[[], float]) -> None:
    """Let all of them hand on their records and end, within `seconds()`, which may change meanwhile; then kill them."""
    begun = time.monotonic()
    left = list(proxies)
    while left and time.monotonic() < begun + seconds():
        left = [proxy for proxy in left if not proxy.try_finish()]
        time.sleep(EXIT_POLL_SECONDS)
    for proxy in proxies:
        proxy.kill()
