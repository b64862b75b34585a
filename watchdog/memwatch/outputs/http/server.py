"""The HTTP server: one thread that accepts clients, and a few that answer them from the latest snapshot."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address

from memwatch.core.events import Notice
from memwatch.core.interfaces import Clock
from memwatch.core.snapshot import Snapshot
from memwatch.errors import ConfigError, SourceError
from memwatch.outputs.http import routes
from memwatch.outputs.http.client_access import TLS, AccessPolicy, AccessPolicyReloader
from memwatch.outputs.http.routes import PublishedState, Site

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
        access_policy: AccessPolicyReloader | None = None,
        client_seconds: float = CLIENT_SECONDS,
        *,
        site: Site | None = None,
    ) -> None:
        """Binds now, so that a port in use is reported at the start; port 0 means any free one. Raises ConfigError.

        Without an `access_policy`, which may be replaced at any time, everybody who can reach the port is answered. It
        shows `site`; by default what is published to it.
        """
        self.access_policy = access_policy or AccessPolicyReloader(AccessPolicy)
        self._client_seconds, self._site = client_seconds, site
        self._listener = _listen(address, port)
        self._begin(clock)

    def _begin(self, clock: Clock) -> None:
        self.published = PublishedState(clock)
        self._clients: dict[socket.socket, float] = {}  # time.monotonic() at which each client connected
        self._leaving: set[socket.socket] = set()  # cut off for another, but their threads have not ended
        self._lock = threading.Lock()  # guards both
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="memwatch-web", daemon=True)
        self._needs_thread = False  # the thread could not be started yet
        self._is_handed_over = False  # a forked process answers

    @property
    def url(self) -> str:
        """`http://127.0.0.1:9877/`; https with TLS."""
        host, port = self._listener.getsockname()[:2]
        scheme = "https" if TLS in self.requirements else "http"
        return f"{scheme}://[{host}]:{port}/" if ":" in host else f"{scheme}://{host}:{port}/"

    @property
    def requirements(self) -> frozenset[str]:
        """Those of TLS, PASSWORD and CERTIFICATE that a client needs."""
        return self.access_policy.requirements

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return ip_address(self._listener.getsockname()[0].partition("%")[0]).is_loopback

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def listener_fd(self) -> int:
        return self._listener.fileno()

    def restart_in_fork(self) -> None:
        """Goes on in a forked process, which has none of the threads: shows the last state, as the loop has ended."""
        before = self.published
        self._begin(before.clock)
        self.published.counts.update(before.counts)
        if before.snapshot is not None:
            self.on_watch_end(before.snapshot)
        self.start()

    def hand_over(self) -> None:
        """A forked process answers from now on: `stop` leaves the port to it."""
        self._is_handed_over = True

    def start(self) -> None:
        """Begins to answer. If no thread can be started, `publish` reports it and each iteration tries again."""
        try:
            self._thread.start()
            self._needs_thread = False
        except RuntimeError:  # the pids cgroup, or the user's limit of processes, is used up
            self._needs_thread = True

    def fileno(self) -> int:
        """Readable when a client has requested the state."""
        return self.published.request_fd

    def on_loop_iteration(self) -> bool:
        """Notes that the loop iterates; returns whether a client has requested the state."""
        if self._needs_thread:
            self.start()
        self.published.record_iteration()
        return self.published.consume_request()

    def wants_snapshot(self) -> bool:
        return self.published.consume_request()

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        """Shows this state from now on; then SourceError if nobody is answered, or the access files cannot be read."""
        self.published.publish(snapshot, notices)
        if self._needs_thread:
            raise SourceError(
                "HTTP requests are not answered: no thread can be started", "raise pids.max, or ulimit -u"
            )
        if self.access_policy.problem:
            raise SourceError(self.access_policy.problem)

    def on_watch_end(self, snapshot: Snapshot) -> None:
        """Shows how the watch ended, until `stop` or another watch."""
        self.published.publish(snapshot, ())
        self.published.is_finished = True

    def stop(self) -> None:
        """Stops answering; returns within a second, whatever the clients do."""
        self._closing.set()
        if self._is_handed_over:
            return
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
        connection = client
        try:
            access = self._current_policy()
            try:
                connection = access.open(client)
            except OSError:
                self.published.counts["handshake_failed"] += 1
                raise
            routes.answer(connection, self._site or self.published, access)
        except OSError:  # the client went away or was too slow
            pass
        finally:
            self._forget(client)
            if connection is not client:
                connection.close()  # before the client sees the end: until then OpenSSL would resume its session
            _cut(client)
            client.close()

    def _current_policy(self) -> AccessPolicy:
        """The policy for this client; wakes the loop when the policy's files begin to fail, or work again."""
        reloader = self.access_policy
        problem = reloader.problem
        access = reloader.current_policy()
        if reloader.problem != problem:
            self.published.request_snapshot()
        return access

    def _turn_away(self, client: socket.socket) -> None:
        """Without a thread there is no TLS handshake, so a TLS connection just ends."""
        if TLS not in self.requirements:
            with suppress(OSError):
                client.setblocking(False)
                client.send(BUSY)
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
            if time.monotonic() - self._clients[oldest] < MIN_CLIENT_SECONDS or len(self._leaving) >= MOST_CLIENTS:
                return False
            del self._clients[oldest]
            self._leaving.add(oldest)
            _cut(oldest)  # its thread, which waits for it, ends
        return True

    def _cut_clients(self, older_than: float) -> None:
        """Ends clients that send one byte a second, which the timeout of a single read or write does not."""
        deadline = time.monotonic() - older_than
        with self._lock:
            late = [client for client, since in self._clients.items() if since <= deadline]
        for client in late:
            _cut(client)


# accept(2): these pass; anything else means that the listener itself is gone.
_PASSING = {errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EPROTO, errno.EINTR}
_LISTEN_HINTS = {
    errno.EADDRINUSE: "another memwatch may run here: choose another port with --listen ADDR:PORT, or --listen none",
    errno.EACCES: "ports below 1024 need root: choose a higher one with --listen ADDR:PORT",
    errno.EADDRNOTAVAIL: "this machine has no such address: use --listen 127.0.0.1:9877, or 0.0.0.0 for all",
}


def _listen(address: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:  # getaddrinfo would take it modulo 65536
        raise ConfigError(f"port {port} is not between 0 and 65535", "use --listen 127.0.0.1:9877")
    # As bytes: of text, even plain ASCII, getaddrinfo imports the codec of international names (a megabyte).
    host = address.encode() if address.isascii() else address
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
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
        hint = _LISTEN_HINTS.get(error.errno or 0, "choose another place with --listen ADDR:PORT, or --listen none")
        raise ConfigError(f"cannot listen on {address}:{port}: {error.strerror or error}", hint) from error
    return listener


def _cut(connection: socket.socket) -> None:
    """Ends a connection while another thread reads it."""
    with suppress(OSError):  # it has ended already
        connection.shutdown(socket.SHUT_RDWR)
