"""Notifications to systemd (ready, alive, status: sd_notify), and the priority of a line in the journal."""

from __future__ import annotations

import math
import os
import socket
import stat
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TextIO

from memwatch.core.events import Notice
from memwatch.core.snapshot import Snapshot

MAX_STATUS_BYTES = 1000  # (chosen)
STATUS_SECONDS = 5.0  # time between two statuses that differ only in figures (chosen)
SEND_TIMEOUT_SECONDS = 1.0  # for a message that must not be lost, if systemd is busy (chosen)
ERROR, WARNING, INFORMATION = 3, 4, 6  # syslog(3)
ERRORS = ("failed", "escalated")
WARNINGS = ("warn", "interrupt", "out_of_memory", "breach", "finding", "source_failed", "unarmed", "gave_up")


class SystemdNotifier:
    """A sink that notifies systemd, if systemd listens.

    It removes systemd's variables from `environ`, so that no child of memwatch sends notifications in its name.
    """

    name = "systemd"

    def __init__(
        self, environ: MutableMapping[str, str], pid: int | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._monotonic = monotonic
        self._status = ""
        self._pinged_t = self._status_t = -math.inf
        self._holds_back = False  # whether a status came too soon after the last
        self._socket = _connected(environ.pop("NOTIFY_SOCKET", ""))
        # Half of what systemd allows, as sd_watchdog_enabled(3) advises; infinite if it expects no pings.
        self.ping_seconds = _watchdog_seconds(environ, os.getpid() if pid is None else pid) / 2

    def ready(self) -> None:
        """Reports that the service has started or reloaded."""
        self._send("READY=1", SEND_TIMEOUT_SECONDS)

    def reloading(self) -> None:
        """Reports that the configuration is read again; `ready` follows."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send(f"RELOADING=1\nMONOTONIC_USEC={now_us}", SEND_TIMEOUT_SECONDS)

    def status(self, text: str) -> None:
        """Reports in a line what the service does."""
        self._send(f"STATUS={text}")

    def stopping(self) -> None:
        """Reports that the service stops; nothing is sent afterwards."""
        self._send("STOPPING=1", SEND_TIMEOUT_SECONDS)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ping(self) -> None:
        now = self._monotonic()
        if self.ping_seconds < math.inf and now - self._pinged_t >= self.ping_seconds / 2:
            self._pinged_t = now
            self._send("WATCHDOG=1")

    def on_loop_iteration(self) -> bool:
        """Sends a sign of life; returns whether a status that was held back is due."""
        self.ping()
        return self._holds_back and self._monotonic() - self._status_t >= STATUS_SECONDS

    def wants_snapshot(self) -> bool:
        return False

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        now = self._monotonic()
        is_urgent = any(journal_priority(notice) < INFORMATION for notice in notices)
        is_new = snapshot.sentence != self._status
        is_due = is_urgent or now - self._status_t >= STATUS_SECONDS
        self._holds_back = is_new and not is_due
        if is_new and is_due:
            self._status, self._status_t = snapshot.sentence, now
            line = " ".join(self._status.split()).encode("utf-8", "replace")[:MAX_STATUS_BYTES]
            self._send(f"STATUS={line.decode('utf-8', 'ignore')}")

    def on_watch_end(self, snapshot: Snapshot) -> None:
        """Sends nothing, as the service goes on."""

    def _send(self, message: str, timeout_seconds: float = 0.0) -> None:
        if self._socket is None:
            return
        try:
            self._socket.settimeout(timeout_seconds)
            self._socket.send(message.encode())
        except OSError:  # systemd does not listen, or is too busy: the next sign of life will reach it
            pass


def _connected(address: str) -> socket.socket | None:
    """Connects to a path or, if it begins with @, to an abstract name: sd_notify(3)."""
    if address[:1] not in ("/", "@"):
        return None
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        made.connect("\0" + address[1:] if address[0] == "@" else address)
    except OSError:
        made.close()
        return None
    return made


def _watchdog_seconds(environ: MutableMapping[str, str], pid: int) -> float:
    """How long systemd waits for a sign of life of this process; infinite if it does not wait."""
    limit_us, for_pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", str(pid))
    return int(limit_us) / 1e6 if limit_us.isdecimal() and int(limit_us) and for_pid == str(pid) else math.inf


def reaches_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether the journal reads the stream directly: JOURNAL_STREAM in systemd.exec(5)."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return stat.S_ISSOCK(found.st_mode) and environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def journal_priority(notice: Notice) -> int:
    if notice.event in ERRORS:
        return ERROR
    return WARNING if notice.event in WARNINGS else INFORMATION
