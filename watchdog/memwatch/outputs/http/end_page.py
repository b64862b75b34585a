"""The page after the end: a process of its own goes on to answer HTTP, so that memwatch itself exits at once.

It shows the last state to whoever comes late, and gives its port to the next memwatch of the same user, which asks for
it over an abstract Unix socket: that is of the same network namespace as the port, and leaves no file.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from contextlib import suppress

from memwatch.outputs.http.server import WebServer
from memwatch.system.clock import STOP_SIGNALS
from memwatch.system.process_priority import prefer_oom_kill
from memwatch.system.socket_peer import peer_uid

GIVE_WAY_SECONDS = 2.0  # for an end page to leave its port (chosen; it takes some milliseconds)


def leave_end_page(web: WebServer, seconds: float) -> int | None:
    """Start the process, which ends by itself after so long; return its PID, None if it cannot be started."""
    try:
        asked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        asked.bind(_name(web.port))
        asked.listen(1)
        pid = os.fork()
    except OSError:
        return None
    if pid == 0:
        try:
            _answer_until_asked(web, asked, seconds)
        finally:
            os._exit(0)
    asked.close()
    web.hand_over()
    return pid


def take_over_port(port: int) -> bool:
    """Ask the end page of an earlier watch of this user to leave the port; whether there was one, and it left."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(GIVE_WAY_SECONDS)
        try:
            connection.connect(_name(port))
            return connection.recv(1) == b""  # its end closes the connection, after the port
        except OSError:
            return False


def _name(port: int) -> str:
    return f"\0memwatch-end-page-{port}"


def _answer_until_asked(web: WebServer, asked: socket.socket, seconds: float) -> None:
    """The process: no terminal, no descriptor of memwatch's but the two sockets, no thread but those that answer."""
    signal.set_wakeup_fd(-1)
    for one in STOP_SIGNALS:
        signal.signal(one, signal.SIG_DFL)
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    kept = {0, 1, 2, web.listener_fd, asked.fileno()}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - no Path for each
        if int(name) not in kept:
            with suppress(OSError):
                os.close(int(name))
    web.restart_in_fork()
    prefer_oom_kill(os.getpid())
    os.chdir("/")
    poll = select.poll()
    poll.register(asked, select.POLLIN)
    while poll.poll(seconds * 1000):
        connection, _ = asked.accept()
        if peer_uid(connection) in (0, os.getuid()):
            web.stop()
            return
        connection.close()
