"""A sink that hands what the watch says to a process of its own, which may be slow, hang or end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from memwatch.core.events import Notice
from memwatch.core.snapshot import Snapshot
from memwatch.errors import SourceError
from memwatch.system import serialization
from memwatch.system.child_process import Worker

MAX_QUEUED_RECORDS = 1000  # records; of more the oldest are dropped
MESSAGE_BYTES = 64 << 10  # of several records; a socket takes three times as much
MAX_REPLY_BYTES = 64 << 10
SLOW_SECONDS = 60.0  # without an answer, before that is told: packages may take long to load on a busy machine ...
HUNG_SECONDS = 600.0  # ... and before the process is replaced
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 600.0  # before another process is started; twice as long each time
MOST_CRASHES = 3  # over the same records, before they are dropped
EXIT_POLL_SECONDS = 0.02  # between two looks at processes that are to end
_CODE = "from memwatch.outputs.trackers.tracker_worker import serve; serve()"


class RecordSelector(Protocol):
    """What is worth handing on."""

    def is_due(self) -> bool:
        """Something will be, though there may be nothing to tell."""

    def records(self, snapshot: Snapshot, notices: Sequence[Notice]) -> Iterable[Mapping[str, object]]:
        """What follows from a state and what there is to tell of it, JSON-ready."""


@dataclass(frozen=True, slots=True)
class TrackerWorkerSpec:
    """The first message: what the other process is to be."""

    kind: str  # "wandb", "tensorboard", "notify"
    run: str  # names the run: the same after a restart, where a history is kept
    command: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrackerWorkerReply:
    """To each message."""

    accepted: bool  # the records are where they should be; else they are handed on again, to another process
    complaint: str = ""  # what is wrong


class TrackerProxy:
    """Keeps one process fed, one message at a time, and replaces it when it ends or hangs. No call waits."""

    def __init__(
        self,
        order: TrackerWorkerSpec,
        digest: RecordSelector,
        *,
        together: int = 100,
        code: str = _CODE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`together`: records in one message, at most."""
        self.name = order.kind
        self._order, self._digest, self._together = serialization.to_json(order), digest, together
        self._code, self._monotonic = code, monotonic
        self._waiting: deque[bytes] = deque()
        self._in_flight: list[bytes] = []  # in the message that is not answered yet
        self._peer: Worker | None = None
        self._asked_t: float | None = None  # since when it owes an answer
        self._former: list[Worker] = []  # killed, and may not have ended
        self._next_t, self._pause = float("-inf"), FIRST_PAUSE_SECONDS
        self._crashes = self.dropped = 0
        self._failure = self._told = ""
        self._closing = False

    # --- as the loop sees it ---

    def on_loop_iteration(self) -> bool:
        """Go on; the state is wanted when something is due, or the other process began to fail or works again."""
        self._go_on()
        return self._digest.is_due() or self.failure != self._told

    def wants_snapshot(self) -> bool:
        """Nobody can ask."""
        return False

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        """Hand on what is worth it. SourceError while the other process fails."""
        for record in self._digest.records(snapshot, notices):
            self.enqueue(record)
        self._go_on()
        self._told = self.failure
        if self._told:
            raise SourceError(self._told)

    def on_watch_end(self, snapshot: Snapshot) -> None:
        """Nothing more will be told: `finish` waits for what is on its way."""
        self._closing = True

    @property
    def failure(self) -> str:
        """Why nothing is handed on; empty: it is."""
        if self._asked_t is not None and self._monotonic() - self._asked_t > SLOW_SECONDS:
            return f"its process has not answered for {SLOW_SECONDS:g} s"
        return self._failure

    @property
    def idle(self) -> bool:
        """All is handed on, and the other process owes no answer."""
        return self._peer is not None and self._asked_t is None and not self._waiting

    def enqueue(self, record: Mapping[str, object]) -> None:
        """Hand on one record as soon as may be."""
        data = serialization.to_json(record)
        if len(data) > MESSAGE_BYTES:
            self.dropped += 1
            return
        if len(self._waiting) >= MAX_QUEUED_RECORDS:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(data)

    # --- the other process ---

    def _go_on(self) -> None:
        now = self._monotonic()
        self._former = [peer for peer in self._former if not peer.has_exited()]
        if self._peer is None:
            self._start(now)
        elif (message := self._peer.receive(MAX_REPLY_BYTES)) is not None:
            self._handle_reply(now, self._peer, message)
        elif self._asked_t is not None and now - self._asked_t > HUNG_SECONDS:
            self._fail(now, f"its process did not answer for {HUNG_SECONDS:g} s and was ended", crashed=True)
        if self._peer is not None and self._asked_t is None and self._waiting:
            self._hand_on(now, self._peer)

    def _start(self, now: float) -> None:
        if now < self._next_t or (self._closing and not self._waiting):
            return
        try:
            self._peer, self._asked_t = Worker(self._code, self._order), now
        except OSError as error:
            self._fail(now, f"no process can be started: {error}")

    def _handle_reply(self, now: float, peer: Worker, message: bytes) -> None:
        if not message:
            self._fail(now, f"its process {peer.exit_text()}", crashed=True)
            return
        try:
            answer = serialization.from_json(message, TrackerWorkerReply)
        except serialization.SerializationError as error:  # a package of somebody's wrote where the answers go
            self._fail(now, f"its process answers what is no answer: {error}", crashed=True)
            return
        if not answer.accepted:
            self._fail(now, answer.complaint)
            return
        self._asked_t = None
        if self._in_flight:
            self._in_flight, self._crashes, self._pause = [], 0, FIRST_PAUSE_SECONDS
            self._failure = answer.complaint
        elif not self._waiting:  # it has begun; whether it takes what waits is still to be seen
            self._failure = answer.complaint

    def _hand_on(self, now: float, peer: Worker) -> None:
        size, most = 0, 0
        for record in islice(self._waiting, self._together):
            size += len(record) + 1
            if size > MESSAGE_BYTES and most:
                break
            most += 1
        self._in_flight = [self._waiting.popleft() for _ in range(most)]
        self._asked_t = now
        try:
            peer.send(b"\n".join(self._in_flight))
        except OSError:
            self._fail(now, f"its process {peer.exit_text()}", crashed=True)

    def _fail(self, now: float, reason: str, crashed: bool = False) -> None:
        """Another process will be handed the same records, after a pause that grows."""
        if self._peer is not None:
            self._peer.kill()
            self._former.append(self._peer)
        if crashed and self._in_flight:
            self._crashes += 1
        if self._crashes >= MOST_CRASHES:
            self.dropped += len(self._in_flight)
            self._in_flight, self._crashes = [], 0
        self._waiting.extendleft(reversed(self._in_flight))
        self._in_flight, self._peer, self._asked_t = [], None, None
        self._next_t, self._pause = now + self._pause, min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        self._failure = reason + (f"; {self.dropped} records were dropped" if self.dropped else "")

    # --- the end ---

    def try_finish(self) -> bool:
        """All is handed on that was told, and the other process has ended."""
        if (self._peer is not None and not self.idle) or (self._peer is None and self._waiting):
            self._go_on()
        if self._peer is None:
            return not self._waiting
        if self.idle:
            self._peer.close_channel()
        return self.idle and self._peer.has_exited()

    def kill(self) -> None:
        """End the other process, whatever it does."""
        if self._peer is not None:
            self._peer.kill()
            self._former.append(self._peer)
            self._peer = None
        for peer in self._former:
            peer.has_exited(0.1)


def wait_until_idle(relay: TrackerProxy, seconds: float) -> None:
    """Wait until all is handed on, or cannot be."""
    deadline = time.monotonic() + seconds
    while not (relay.on_loop_iteration() or relay.idle) and time.monotonic() < deadline:
        time.sleep(EXIT_POLL_SECONDS)


def finish_all(relays: Sequence[TrackerProxy], seconds: Callable[[], float]) -> None:
    """Let all of them hand on what waits, and end; those that take longer are ended. `seconds` may change meanwhile."""
    begun = time.monotonic()
    left = list(relays)
    while left and time.monotonic() < begun + seconds():
        left = [relay for relay in left if not relay.try_finish()]
        time.sleep(EXIT_POLL_SECONDS)
    for relay in relays:
        relay.kill()
