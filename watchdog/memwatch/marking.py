"""Tells a watching memwatch where this program is: the one module for use in a trainer. It needs Python 3.8 alone.

    from memwatch import mark

    for epoch in range(1, 26):
        mark(epoch=epoch, total=25)             # epoch 3 of 25 begins
        mark(phase="train", buffer=(448, 5000))  # a phase of it, a level and its capacity
        mark(saving="ckpt.pt"); save(); mark(saved="ckpt.pt")

The first number that is marked is the clock. A mark is a datagram to whoever watches this process or one above it; it
never blocks and never fails, and takes some 20 us where nobody listens.
"""

from __future__ import annotations

import json
import os
import socket
import time

MOST_ABOVE = 8  # processes above this one that may be the one that is watched: torchrun, a shell
MOST_BYTES = 4096
_sender: socket.socket | None = None
_family: list[int] = []  # this process and those above it, as it began


def mark(**what: object) -> bool:
    """Mark a number (`epoch=3`), a number with its capacity, `total`, `phase`, `saving` or `saved`; whether it went."""
    try:
        return _send(what, _here())
    except (OSError, TypeError, ValueError):  # a trainer must not end because of what it says
        return False


def mark_process(pid: int, what: dict[str, object]) -> bool:
    """Mark for another process."""
    return _send(what, [pid])


def address(pid: int) -> str:
    """Where the watch of a process listens: abstract, so that no file is left."""
    return f"\0memwatch-marks-{pid}"


def _here() -> list[int]:
    if not _family or _family[0] != os.getpid():  # also in a forked worker
        _family[:] = [os.getpid()]
        while len(_family) <= MOST_ABOVE and _family[-1] > 1:
            with open(f"/proc/{_family[-1]}/stat", "rb") as file:
                _family.append(int(file.read().rpartition(b")")[2].split()[1]))
    return _family


def _send(what: dict[str, object], pids: list[int]) -> bool:
    """To the first of the processes that is watched."""
    global _sender  # noqa: PLW0603 - one socket for all marks
    message = json.dumps({**what, "t": time.time()}).encode()
    if _sender is None:
        _sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        _sender.setblocking(False)
    for pid in pids:
        try:
            _sender.sendto(message, address(pid))
        except OSError:  # nobody listens there, or is too busy
            continue
        return True
    return False
