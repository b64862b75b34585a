"""The HTTP server: one thread that accepts, and a few that answer from the latest snapshot (routes)."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING

from memwatch.core.events import Notice
from memwatch.core.interfaces import Clock
from memwatch.core.snapshot import Snapshot
from memwatch.errors import ConfigError, SourceError
from memwatch.outputs.http.client_access import TLS
from memwatch.outputs.http.published_state import PublishedState

if TYPE_CHECKING:
    from memwatch.outputs.http.client_access import AccessPolicy, AccessPolicyReloader

MOST_CLIENTS = 8  # clients that are answered at the same time; for one more the slowest is cut off (chosen)
MIN_CLIENT_SECONDS = 0.5  # no client is cut off for another before this; the other then gets a 503 (chosen)
CLIENT_SECONDS = 10.0  # time in which a client must ask and read its answer (chosen)
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"


class WebServer:
    """A sink that serves /metrics, /status.json, /-/healthy and /-/ready."""

    name = "web"

    def __init__(
        self,
        address: str,
        port: int,
        clock: Clock,
        guard: AccessPolicyReloader | None = None,
        client_seconds: float = CLIENT_SECONDS,
    ) -> None:
        """Binds now, so that a port in use is reported at the start; port 0 means any free one. Raises ConfigError.

        `guard` knows who may ask; without one, anybody who can reach the port.
        """
        self.board = PublishedState(clock)
        self.access_policy, self._client_seconds = guard, client_seconds  # the guard may be replaced at any time
        self._listener = _listen(address, port)
        self._clients: dict[socket.socket, float] = {}  # time.monotonic() at which each client came
        self._leaving: set[socket.socket] = set()  # cut off for another, but their threads have not ended
        self._lock = threading.Lock()  # guards both
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="memwatch-web", daemon=True)
        self._threadless = False  # the thread could not be started yet

    @property
    def url(self) -> str:
        """`http://127.0.0.1:9877/`; https with TLS."""
        host, port = self._listener.getsockname()[:2]
        scheme = "https" if TLS in self.requirements else "http"
        return f"{scheme}://[{host}]:{port}/" if ":" in host else f"{scheme}://{host}:{port}/"

    @property
    def requirements(self) -> frozenset[str]:
        """What is asked of a client: of TLS, PASSWORD, CERTIFICATE."""
        guard = self.access_policy
        return frozenset() if guard is None else guard.requirements

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return ip_address(self._listener.getsockname()[0].partition("%")[0]).is_loopback

    def start(self) -> None:
        """Begins to answer. If no thread can be started, `publish` reports it and each iteration tries again."""
        try:
            self._thread.start()
        except RuntimeError:  # the pids cgroup, or the user's limit of processes, is used up
            self._threadless = True
        else:
            self._threadless = False

    def fileno(self) -> int:
        """Readable when a client has asked for the state."""
        return self.board.request_fd

    def on_loop_iteration(self) -> bool:
        """Notes that the loop iterates; returns whether a client has asked for the state."""
        if self._threadless:
            self.start()
        self.board.record_iteration()
        return self.board.consume_request()

    def wants_snapshot(self) -> bool:
        return self.board.consume_request()

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        """Shows this state from now on; then SourceError if nobody is answered, or the access files cannot be read."""
        self.board.publish(snapshot, notices)
        if self._threadless:
            raise SourceError(
                "HTTP requests are not answered: no thread can be started", "raise pids.max, or ulimit -u"
            )
        guard = self.access_policy
        if guard is not None and guard.problem:
            raise SourceError(guard.problem)

    def on_watch_end(self, snapshot: Snapshot) -> None:
        """Shows how the watch ended, until `stop` or another watch."""
        self.board.publish(snapshot, ())
        self.board.is_finished = True

    def stop(self) -> None:
        """Stops answering; returns within a second, whatever the clients do."""
        self._closing.set()
        _cut(self._listener)  # wakes accept()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)
        self._listener.close()
        self._cut_clients(older_than=0.0)

    def _accept(self) -> None:
        while not self._closing.is_set():
            self._listener.settimeout(1.0 if self._clients else None)  # wakes up only to cut slow clients off
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                self._cut_clients(self._client_seconds)
                continue
            except OSError as error:
                if self._closing.wait(0.1) or error.errno not in _PASSING:
                    return
                continue
            self._cut_clients(self._client_seconds)
            self._admit(client)

    def _admit(self, client: socket.socket) -> None:
        client.settimeout(self._client_seconds)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # TLS writes in pieces: the last waited for 40 ms
        if len(self._clients) >= MOST_CLIENTS and not self._make_way():
            self._turn_away(client)
            return
        with self._lock:
            self._clients[client] = time.monotonic()
        try:
            threading.Thread(target=self._answer, args=(client,), name="memwatch-web-client", daemon=True).start()
        except RuntimeError:  # no more threads: the pids cgroup is at its limit
            self._forget(client)
            self._turn_away(client)

    def _answer(self, client: socket.socket) -> None:
        from memwatch.outputs.http import routes

        connection = client
        try:
            access = self._access()
            connection = self._opened(client, access)
            routes.answer(connection, self.board, access)
        except OSError:  # the client went away or was too slow
            pass
        finally:
            self._forget(client)
            if connection is not client:
                connection.close()  # before the client sees the end: until then OpenSSL would resume its session
            _cut(client)
            client.close()

    def _access(self) -> AccessPolicy | None:
        """The policy for this client; wakes the loop when the policy's files begin to fail, or work again."""
        guard = self.access_policy
        if guard is None:
            return None
        problem = guard.problem
        access = guard.current_policy()
        if guard.problem != problem:
            self.board.request_snapshot()
        return access

    def _opened(self, client: socket.socket, access: AccessPolicy | None) -> socket.socket:
        try:
            return client if access is None else access.open(client)
        except OSError:
            self.board.counts["handshake_failed"] += 1
            raise

    def _turn_away(self, client: socket.socket) -> None:
        """Without a thread there is no TLS handshake, so a TLS connection just ends."""
        if TLS not in self.requirements:
            _send_busy(client)
        client.close()

    def _forget(self, client: socket.socket) -> None:
        with self._lock:
            self._clients.pop(client, None)
            self._leaving.discard(client)

    def _make_way(self) -> bool:
        """Cuts off the client that connected first, if it had time enough to ask and read its answer."""
        with self._lock:
            oldest = min(self._clients, key=self._clients.__getitem__, default=None)
            if oldest is None:
                return True
            came = self._clients[oldest]
            if time.monotonic() - came < MIN_CLIENT_SECONDS or len(self._leaving) >= MOST_CLIENTS:
                return False
            del self._clients[oldest]
            self._leaving.add(oldest)
            _cut(oldest)  # its thread, which waits for it, ends
        return True

    def _cut_clients(self, older_than: float) -> None:
        """Ends clients that send one byte a second, which the timeout of a single read or write does not."""
        if not self._clients:
            return
        deadline = time.monotonic() - older_than
        with self._lock:
            late = [client for client, since in self._clients.items() if since <= deadline]
        for client in late:
            _cut(client)


# accept(2): these pass; anything else means that the listener itself is gone.
_PASSING = {errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EPROTO, errno.EINTR}


def _listen(address: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:  # getaddrinfo would take it modulo 65536
        raise ConfigError(f"port {port} is not between 0 and 65535", "use --listen 127.0.0.1:9877")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(f"cannot listen on {address!r}: {error}", "use --listen 127.0.0.1:9877") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(16)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {address}:{port}: {error.strerror or error}", _hint(error)) from error
    return listener


def _hint(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another memwatch may run here: choose another port with --listen ADDR:PORT, or --listen none"
    if error.errno == errno.EACCES:
        return "ports below 1024 need root: choose a higher one with --listen ADDR:PORT"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address: use --listen 127.0.0.1:9877, or 0.0.0.0 for all"
    return "choose another place with --listen ADDR:PORT, or --listen none"


def _send_busy(client: socket.socket) -> None:
    try:
        client.setblocking(False)
        client.send(BUSY)
    except OSError:
        pass


def _cut(connection: socket.socket) -> None:
    """Ends a connection while another thread reads it."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # it has ended already
        pass
