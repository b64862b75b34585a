"""How the state of each watch reaches the process that answers HTTP for the node.

A watch connects to a Unix socket. A byte from there asks for its state, which follows as its length and msgpack. A
watch that ticks rarely sends it with each tick, and every one does at its end. Where nobody answers, a watch goes on
and connects again later.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from memwatch.core.events import Notice
from memwatch.core.snapshot import Snapshot
from memwatch.core.trainer_rules import PolicyName, Workload
from memwatch.system.json_and_yaml import SerializationError, from_msgpack, to_msgpack
from memwatch.system.socket_peer import peer_uid

RECONNECT_SECONDS = 5.0  # between two attempts of a watch (chosen)
SEND_SECONDS = 1.0  # for a state to be taken, before the watch gives up the connection (chosen)
ANSWER_SECONDS = 1.0  # for all watches to answer, before those that have not are shown as they were (chosen)
FRESH_SECONDS = 0.5  # a younger state is not asked for anew (chosen)
PUSH_SECONDS = (
    5.0  # a watch that ticks as rarely sends each state unasked: to be woken costs more than to send (measured)
)
PUSH_SLACK_SECONDS = 5.0  # that such a state may be late, before it is asked for (chosen)
MAX_STATE_BYTES = 16 << 20  # of one state; a snapshot has 30 kB (measured), with findings some 100 kB
_LENGTH = struct.Struct("!I")
_ASK = b"?"


@dataclass(frozen=True, slots=True)
class TrainerState:
    """A watch's state, as it is sent."""

    pid: int  # the trainer's
    policy: PolicyName
    workload: Workload
    snapshot: Snapshot
    counts: dict[str, int] = field(default_factory=dict)  # of its events
    is_finished: bool = False  # the watch has ended
    fresh_seconds: float = 0.0  # until the watch has sent the next one by itself; 0: it waits to be asked


class StateReporter:
    """A sink that sends the state of its watch when it is asked. Its descriptor stays the same when it reconnects."""

    name = "node"

    def __init__(
        self, address: str, pid: int, policy: PolicyName, workload: Workload, interval: Callable[[], float]
    ) -> None:
        """`interval` returns the time between two ticks of the watch, in seconds."""
        self._address, self._pid, self._policy, self._workload = address, pid, policy, workload
        self._interval = interval
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connected, self._is_wanted = False, False
        self._try_t = 0.0  # when to connect again
        self.counts: Counter[str] = Counter()
        self._disconnect()

    def fileno(self) -> int:
        """Readable when the state is asked for."""
        return self._socket.fileno()

    def on_loop_iteration(self) -> bool:
        self.counts["tick"] += 1
        if self._connected and self._interval() >= PUSH_SECONDS:
            self._is_wanted = True
        return self.wants_snapshot()

    def wants_snapshot(self) -> bool:
        if not self._connected:
            self._connect()
        else:
            try:
                if self._socket.recv(64, socket.MSG_DONTWAIT):
                    self._is_wanted = True
                else:
                    self._disconnect()
            except BlockingIOError:
                pass
            except OSError:
                self._disconnect()
        return self._is_wanted

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        for notice in notices:
            self.counts[notice.event] += 1
        if self._is_wanted:
            self._send(snapshot)

    def on_watch_end(self, snapshot: Snapshot) -> None:
        self._send(snapshot, is_finished=True)

    def close(self) -> None:
        self._socket.close()

    def _connect(self) -> None:
        now = time.monotonic()
        if now < self._try_t:
            return
        self._try_t = now + RECONNECT_SECONDS
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(SEND_SECONDS), 0))
            try:
                made.connect(self._address)
            except OSError:
                return
            os.dup2(made.fileno(), self._socket.fileno(), inheritable=False)
        self._connected = self._is_wanted = True

    def _disconnect(self) -> None:
        """Put something in the descriptor's place that is never readable: whoever polls it does not have to know."""
        silent = os.eventfd(0, os.EFD_CLOEXEC)
        os.dup2(silent, self._socket.fileno(), inheritable=False)
        os.close(silent)
        self._connected = self._is_wanted = False

    def _send(self, snapshot: Snapshot, is_finished: bool = False) -> None:
        if not self._connected:
            return
        interval, counts = self._interval(), dict(self.counts)
        fresh_seconds = interval + PUSH_SLACK_SECONDS if interval >= PUSH_SECONDS else 0.0
        state = TrainerState(
            self._pid, self._policy, self._workload, snapshot, counts, is_finished, fresh_seconds=fresh_seconds
        )
        data = to_msgpack(state)
        try:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
            self._is_wanted = False
        except OSError:
            self._disconnect()


class StateReceiver:
    """Receives the states of all watches, in the thread that calls `run`; other threads have them asked for."""

    def __init__(
        self, listener: socket.socket, receive: Callable[[TrainerState], None], forget: Callable[[int], None]
    ) -> None:
        """`receive` is called with each state, `forget` with the trainer's PID when a watch is gone; both by `run`."""
        self._listener, self._receive, self._forget = listener, receive, forget
        self._received = threading.Condition()
        self._connections: dict[int, _Connection] = {}  # by descriptor

    def run(self, until: int) -> None:
        """Receive until the descriptor `until` is readable, or at its end."""
        poll = select.poll()
        self._listener.setblocking(False)
        for descriptor in (until, self._listener.fileno()):
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == until:
                    self._close()
                    return
                if descriptor != self._listener.fileno():
                    self._read(descriptor, poll)
                    continue
                with suppress(OSError):
                    client, _ = self._listener.accept()
                    if peer_uid(client) != os.getuid():
                        client.close()
                        continue
                    client.setblocking(False)
                    poll.register(client.fileno(), select.POLLIN)
                    with self._received:
                        self._connections[client.fileno()] = _Connection(client)

    def refresh(self, pids: Iterable[int] | None = None) -> None:
        """Have the states of these trainers sent anew, by default of all; return when they have come, or are late."""
        wanted = None if pids is None else set(pids)
        now = time.monotonic()
        with self._received:
            asked = [
                one
                for one in self._connections.values()
                if (wanted is None or one.pid in wanted or not one.pid) and now >= one.stale_t
            ]
            for one in asked:
                with suppress(OSError):  # it has gone, or does not read
                    one.socket.send(_ASK, socket.MSG_DONTWAIT)
            self._received.wait_for(lambda: all(one.received_t >= now or one.gone for one in asked), ANSWER_SECONDS)

    def _close(self) -> None:
        with self._received:
            for connection in self._connections.values():
                connection.gone = True
                connection.socket.close()
            self._received.notify_all()

    def _read(self, descriptor: int, poll: select.poll) -> None:
        connection = self._connections[descriptor]
        try:
            states = connection.read()
        except (OSError, SerializationError):  # the watch has ended, or is none of this version
            poll.unregister(descriptor)
            with self._received:
                del self._connections[descriptor]
                connection.gone = True
                self._received.notify_all()
            connection.socket.close()
            self._forget(connection.pid)
            return
        for state in states:
            self._receive(state)
            with self._received:
                connection.pid, connection.received_t = state.pid, time.monotonic()
                connection.stale_t = connection.received_t + max(FRESH_SECONDS, state.fresh_seconds)
                self._received.notify_all()


class _Connection:
    """One watch's, and what has arrived of its next state."""

    def __init__(self, client: socket.socket) -> None:
        self.socket, self.gone = client, False
        self.pid, self.received_t, self.stale_t = 0, float("-inf"), float("-inf")
        self._data = bytearray()

    def read(self) -> list[TrainerState]:
        """Return the states that are complete; OSError at the end, SerializationError for what is no state."""
        part = self.socket.recv(1 << 20)
        if not part:
            raise ConnectionResetError
        self._data += part
        found = []
        while len(self._data) >= _LENGTH.size:
            [length] = _LENGTH.unpack_from(self._data)
            if length > MAX_STATE_BYTES:
                raise SerializationError("too long")
            if len(self._data) < _LENGTH.size + length:
                break
            found.append(from_msgpack(bytes(self._data[_LENGTH.size : _LENGTH.size + length]), TrainerState))
            del self._data[: _LENGTH.size + length]
        return found
