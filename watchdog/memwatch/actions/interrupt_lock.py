"""Of several memwatch that watch one trainer, one may interrupt it: a second signal would end the save of the first."""

from __future__ import annotations

import os
import socket

from memwatch.core.measurements import Target
from memwatch.system.unix_sockets import peer_uid


class InterruptLock:
    """Held by the first that asks, until it ends. It is an abstract Unix socket, so that no file is left behind."""

    def __init__(self, target: Target, uid: int | None) -> None:
        """`uid`: the trainer's user, who may hold it too, as root may: others could keep a run from being saved."""
        self._address = f"\0memwatch-interrupts-{target.pid}-{target.start_ticks}"
        self._trusted = {0, os.geteuid(), uid}
        self._listener: socket.socket | None = None

    def refusal(self) -> str | None:
        """Return why this memwatch may not interrupt; None: it may, also where no lock can be had."""
        if self._listener is not None:
            return None
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.bind(self._address)
            listener.listen(1)
        except OSError:
            listener.close()
            return "another memwatch watches this trainer, and interrupts it" if self._is_held() else None
        self._listener = listener
        return None

    def _is_held(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as asking:
            try:
                asking.connect(self._address)
            except BlockingIOError:  # others ask, too
                return True
            except OSError:
                return False
            return peer_uid(asking) in self._trusted

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
