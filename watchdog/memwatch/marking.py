"""Tells a watching memwatch where this program is: the one module for use in a trainer. It needs Python 3.8 alone.

    from memwatch import mark

    for epoch in range(1, 26):
        mark(epoch=epoch, total=25)             # epoch 3 of 25 begins
        mark(phase="train", buffer=(448, 5000))  # a phase of it, a level and its capacity
        mark(saving="ckpt.pt"); save(); mark(saved="ckpt.pt")

The first number that is marked is the clock. A mark goes to whoever watches this process or one above it; it never
blocks and never fails. It takes 15 us, and 1 us where nobody watches.
"""

from __future__ import annotations

import json
import os
import socket
import time

MOST_ABOVE = 8  # processes above this one that may be the one that is watched: torchrun, a shell
MOST_BYTES = 4096
RETRY_SECONDS = 1.0  # between two looks whether somebody watches
_held: dict[str, object] = {}  # what the watcher had no room for: it goes with the next mark
_connection: socket.socket | None = None
_owner = 0  # the process whose connection that is: a forked worker has its own
_next_t = 0.0  # when to look again whether somebody watches


def mark(**what: object) -> bool:
    """Mark a number (`epoch=3`), a number with its capacity, `total`, `phase`, `saving` or `saved`; whether it went."""
    try:
        if _owner != os.getpid():
            _begin(os.getpid())
        return _send_all({**_held, **what, "t": time.time()}) if _is_connected() else False
    except BrokenPipeError:  # the watcher has ended
        _begin(_owner)
    except (OSError, TypeError, ValueError, RecursionError):  # a trainer must not end because of what it says
        _held.clear()
    return False


def _begin(owner: int) -> None:
    global _connection, _next_t, _owner
    if _connection is not None:
        _connection.close()
    _owner, _connection, _next_t = owner, None, 0.0
    _held.clear()


def _is_connected() -> bool:
    global _connection, _next_t  # noqa: PLW0603
    if _connection is None and time.monotonic() >= _next_t:
        _next_t = time.monotonic() + RETRY_SECONDS
        _connection = connect(_above())
    return _connection is not None


def _send_all(what: dict[str, object]) -> bool:
    """Keep what there is no room for: the next mark takes it along."""
    _held.clear()
    if _connection is None or not _send(_connection, what):
        _held.update(what)
    return not _held


def mark_process(pid: int, what: dict[str, object]) -> bool:
    """Mark for another process."""
    connection = connect([pid])
    if connection is None:
        return False
    with connection:
        return _send(connection, {**what, "t": time.time()})


def address(pid: int) -> str:
    """Where the watch of a process listens: abstract, so that no file is left."""
    return f"\0memwatch-marks-{pid}"


def connect(pids: list[int]) -> socket.socket | None:
    """To the watch of the first of these processes that is watched."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.setblocking(False)
    for pid in pids:
        try:
            connection.connect(address(pid))
        except OSError:
            continue
        return connection
    connection.close()
    return None


def _above() -> list[int]:
    pids = [os.getpid()]
    while len(pids) <= MOST_ABOVE and pids[-1] > 1:
        with open(f"/proc/{pids[-1]}/stat", "rb") as file:
            pids.append(int(file.read().rpartition(b")")[2].split()[1]))
    return pids


def _send(connection: socket.socket, what: dict[str, object]) -> bool:
    message = json.dumps(what).encode()
    if len(message) > MOST_BYTES:
        raise ValueError("too long a mark")
    try:
        connection.send(message)
    except BlockingIOError:  # a watcher that is stopped, or hundreds of marks a second
        return False
    return True
