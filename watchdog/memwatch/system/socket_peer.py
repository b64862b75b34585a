"""Who is at the other end of a connected Unix socket."""

from __future__ import annotations

import socket
import struct

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: SO_PEERCRED in unix(7)


def peer_uid(connection: socket.socket) -> int:
    """Return the user of the process that connected, as the kernel noted it then."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(raw)[1]
    return uid
