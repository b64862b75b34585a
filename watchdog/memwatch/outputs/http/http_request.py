"""One HTTP/1 request without a body, read from a socket; strict, and bounded in size.

http.server would read the same, but imports the e-mail parser and TLS.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

MAX_HEAD_BYTES = 65536  # the request line and all headers together

_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) (/[!-~]*) HTTP/([0-9])\.([0-9])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~\t\x80-\xff]*)")


class RequestError(ValueError):
    """A request that cannot be answered; `code` is the HTTP status."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Request:
    """A request without its body."""

    method: str
    path: str  # without the query; percent signs as they came
    accept: str  # all Accept headers, joined
    authorization: str = ""


def read_request(client: socket.socket) -> Request | None:
    """Reads the next request; None if the client has gone without one. OSError if it is too slow, else RequestError."""
    head, end = bytearray(), -1
    while end < 0:
        if len(head) >= MAX_HEAD_BYTES:
            raise RequestError(431, "the request is too long")
        part = client.recv(MAX_HEAD_BYTES - len(head))
        if not part:
            if head:
                raise RequestError(400, "the request is cut off")
            return None
        head += part
        end = head.find(b"\r\n\r\n", max(0, len(head) - len(part) - 3))
    return parse_request(bytes(head[:end]))


def parse_request(head: bytes) -> Request:
    """Parses the request line and the headers, which CR LF separates; RequestError."""
    line, *rest = head.split(b"\r\n")
    asked = _LINE.fullmatch(line)
    if asked is None:
        raise RequestError(400, "not a request line")
    if asked[3] != b"1":
        raise RequestError(505, "HTTP/1 alone is spoken here")
    headers: dict[bytes, list[bytes]] = {}
    for one in rest:
        header = _HEADER.fullmatch(one)
        if header is None:
            raise RequestError(400, "not a header")
        headers.setdefault(header[1].lower(), []).append(header[2])
    accept, authorization = (
        b", ".join(headers.get(name, ())).decode("latin-1") for name in (b"accept", b"authorization")
    )
    return Request(asked[1].decode(), asked[2].partition(b"?")[0].decode(), accept, authorization)
