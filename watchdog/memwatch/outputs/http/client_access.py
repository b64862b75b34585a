"""Who may use the HTTP server: TLS, passwords and a rate limit, read again when one of their files changes."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memwatch.errors import ConfigError, MemwatchError

if TYPE_CHECKING:
    from memwatch.outputs.http.password_hashes import Passwords
    from memwatch.outputs.http.tls import TlsContext

TLS, PASSWORD, CERTIFICATE = "TLS", "a password", "a client certificate"  # what a client may need, as messages say it
RELOAD_CHECK_SECONDS = 1.0  # between two checks of the files: a renewed certificate takes effect that late (chosen)

Stamp = tuple[int, ...]  # identifies a file and its content


def stamp(status: os.stat_result) -> Stamp:
    """A value that changes with the file: no program can set back the time of the last status change."""
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a request that is refused."""

    code: int
    text: str
    headers: str  # complete lines


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """What each client needs; by default nothing."""

    tls: TlsContext | None = None
    passwords: Passwords | None = None
    limit: RateLimit | None = None
    headers: str = ""  # complete lines, sent with every answer
    files: Mapping[str, Stamp] = field(default_factory=dict)  # by path, the files that this was read from

    @property
    def requirements(self) -> frozenset[str]:
        """Those of TLS, PASSWORD and CERTIFICATE that a client needs."""
        has_certificates = self.tls is not None and self.tls.asks_certificate
        needed = {TLS: self.tls is not None, PASSWORD: self.passwords is not None, CERTIFICATE: has_certificates}
        return frozenset(name for name, is_needed in needed.items() if is_needed)

    def open(self, client: socket.socket) -> socket.socket:
        """Returns the connection to use, which is closed in addition to `client`; OSError if TLS fails."""
        return client if self.tls is None else self.tls.secure(client)

    def refusal(self, authorization: str) -> Refusal | None:
        """Returns the refusal of a request with this Authorization header; None if it is admitted."""
        if self.limit is not None and not self.limit.allows():
            return Refusal(429, "too many requests\n", "Retry-After: 1\r\n")
        if self.passwords is None:
            return None
        admitted = self.passwords.verify(authorization)
        if admitted is None:
            return Refusal(429, "too many passwords to check\n", "Retry-After: 5\r\n")
        return None if admitted else Refusal(401, "unauthorized\n", 'WWW-Authenticate: Basic realm="memwatch"\r\n')


class RateLimit:
    """A token bucket: one request per interval, and a burst after a pause."""

    def __init__(self, interval_seconds: float, burst: int, now: Callable[[], float] = time.monotonic) -> None:
        self._interval_seconds, self._burst, self._now = interval_seconds, burst, now
        self._lock = threading.Lock()
        self._tokens, self._t = float(burst), now()

    def allows(self) -> bool:
        """Whether one more request may be answered now, which then counts."""
        with self._lock:
            now = self._now()
            self._tokens = min(self._burst, self._tokens + (now - self._t) / self._interval_seconds)
            self._t = now
            if self._tokens < 1.0:
                return False
            self._tokens -= 1.0
            return True


class AccessPolicyReloader:
    """Keeps the access policy up to date. Files that are broken, or require less than before, change nothing."""

    def __init__(self, load: Callable[[], AccessPolicy], now: Callable[[], float] = time.monotonic) -> None:
        """`load` reads the files, now and whenever they change; it raises ConfigError."""
        self._load, self._now = load, now
        self._access = load()
        self._lock = threading.Lock()  # one thread checks the files; a hanging file system blocks no other
        self._next_check_t = now() + RELOAD_CHECK_SECONDS
        self.problem = ""  # why the files as they are now are not in force

    @property
    def requirements(self) -> frozenset[str]:
        return self._access.requirements

    def current_policy(self) -> AccessPolicy:
        """The policy for a client that connects now."""
        if self._lock.acquire(blocking=False):
            try:
                self._check_files()
            finally:
                self._lock.release()
        return self._access

    def _check_files(self) -> None:
        if self._now() < self._next_check_t:
            return
        self._next_check_t = self._now() + RELOAD_CHECK_SECONDS
        try:
            if _have_changed(self._access.files):
                access = self._load()
                # A file that is just being written is empty for a moment, and an empty one admits everybody.
                lost = sorted(self._access.requirements - access.requirements)
                if lost:
                    file = next(iter(access.files))
                    raise ConfigError(f"{file} no longer requires {', '.join(lost)}: restart memwatch to allow that")
                self._access = access
            self.problem = ""
        except (MemwatchError, OSError) as error:
            self.problem = f"{error}; the previous settings stay in force"


def _have_changed(files: Mapping[str, Stamp]) -> bool:
    for path, seen in files.items():
        try:
            if stamp(os.stat(path)) != seen:  # noqa: PTH116 - at each connection: no Path is made for it
                return True
        except OSError:
            return True
    return False
