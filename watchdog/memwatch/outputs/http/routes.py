"""One HTTP request and its answer: reading it, and what each path shows (metrics, status, the page, health).

http.server would read the same, but imports the e-mail parser and TLS.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import memwatch
from memwatch.core.examination import StackGrowth
from memwatch.core.snapshot import WatchState
from memwatch.core.text_and_units import format_duration
from memwatch.outputs.http.published_state import PublishedState
from memwatch.outputs.status_json import snapshot_to_dict
from memwatch.outputs.text import profile_formats

if TYPE_CHECKING:
    from memwatch.outputs.http.client_access import AccessPolicy

MAX_HEAD_BYTES = 65536  # the request line and all headers together
LOOP_STALL_SECONDS = 30.0  # a loop that has not iterated for this long, or five of its intervals, is unhealthy (chosen)
PLAIN_TEXT_CONTENT_TYPE = "text/plain; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}

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


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One answer, before its status line and standard headers are written."""

    body: bytes
    kind: str = PLAIN_TEXT_CONTENT_TYPE
    code: int = 200
    headers: str = ""  # complete lines, for this answer only


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


def answer(client: socket.socket, board: PublishedState, access: AccessPolicy | None = None) -> None:
    """Reads one request and answers it under `access`; OSError when the client is gone or too slow."""
    headers = "" if access is None else access.headers
    try:
        request = read_request(client)
    except RequestError as error:
        client.sendall(_response(HttpResponse(f"{error}\n".encode(), code=error.code), headers))
        return
    if request is None:
        return
    page = _admitted(board, request, access)
    client.sendall(_response(page, headers, body=request.method != "HEAD"))


def _admitted(board: PublishedState, request: Request, access: AccessPolicy | None) -> HttpResponse:
    refusal = None if access is None else access.refusal(request.authorization)
    if refusal is not None:
        board.counts["refused"] += 1
        return HttpResponse(refusal.text.encode(), code=refusal.code, headers=refusal.headers)
    if request.method not in ("GET", "HEAD"):
        return HttpResponse(b"only GET and HEAD\n", code=405, headers="Allow: GET, HEAD\r\n")
    return _page(board, request.path, request.accept)


def healthy(board: PublishedState, accept: str = "") -> HttpResponse:
    """Whether memwatch's loop is running."""
    snapshot, turned_t = board.snapshot, board.turned_t
    if snapshot is None or turned_t is None:
        return HttpResponse(b"starting\n")
    silent = board.clock.now() - turned_t
    if not board.is_finished and silent > max(LOOP_STALL_SECONDS, 5 * snapshot.pace_seconds):
        text = f"stalled: nothing new for {format_duration(silent)}\n"
        return HttpResponse(text.encode(), code=503)
    return HttpResponse(b"ok\n")


def ready(board: PublishedState, accept: str = "") -> HttpResponse:
    """Whether the trainer's memory has been read, or memwatch waits for a trainer."""
    snapshot = board.fresh_snapshot()
    if snapshot is not None and snapshot.state is WatchState.WAITING:
        return HttpResponse(b"waiting for a trainer\n")
    if snapshot is None or (snapshot.sample_t is None and snapshot.exited is None):
        return HttpResponse(b"no sample yet\n", code=503)
    return HttpResponse(b"ready\n")


def status_json(board: PublishedState, accept: str = "") -> HttpResponse:
    snapshot = board.fresh_snapshot()
    if snapshot is None:
        return HttpResponse(b'{"error": "no sample yet"}\n', "application/json", 503)
    return HttpResponse(json.dumps(snapshot_to_dict(snapshot), allow_nan=False).encode() + b"\n", "application/json")


def metrics(board: PublishedState, accept: str = "") -> HttpResponse:
    if board.exposition is None:
        from memwatch.outputs.metrics.collector import MetricsCollector  # with prometheus_client: 8 MiB

        board.exposition = MetricsCollector(board.fresh_snapshot, board.counts, board.clock)
    body, kind = board.exposition.render(accept)
    return HttpResponse(body, kind)


def growth_folded(board: PublishedState, accept: str = "") -> HttpResponse:
    """The code that raised memory in the latest recordings, as folded stacks."""
    return HttpResponse(profile_formats.folded(_recorded(board)[1]).encode("utf-8", "replace"))


def growth_speedscope(board: PublishedState, accept: str = "") -> HttpResponse:
    """The same for speedscope."""
    command, credits = _recorded(board)
    return HttpResponse(profile_formats.speedscope(credits, command).encode("utf-8", "replace"), "application/json")


def _recorded(board: PublishedState) -> tuple[str, tuple[StackGrowth, ...]]:
    """The trainer's command, and the growth attributed to its code."""
    snapshot = board.fresh_snapshot()
    if snapshot is None or snapshot.diagnosis is None:
        return "", ()
    return snapshot.command, snapshot.diagnosis.credits


def index(board: PublishedState, accept: str = "") -> HttpResponse:
    """The state of the watch as a page; rendered once per state (10 ms), however many clients ask."""
    from memwatch.outputs.html import status_page  # imports the charts: 1.6 MiB, for pages only

    snapshot, drawn = board.fresh_snapshot(), board.drawn
    if drawn is None or drawn[0] is not snapshot:
        links = [path for path in ROUTES if path != "/"]
        board.drawn = drawn = snapshot, status_page.render_home_page(snapshot, links).encode("utf-8", "replace")
    return HttpResponse(drawn[1], "text/html; charset=utf-8")


ROUTES: dict[str, Callable[[PublishedState, str], HttpResponse]] = {
    "/": index,
    "/metrics": metrics,
    "/status.json": status_json,
    "/growth.folded": growth_folded,
    "/growth.speedscope.json": growth_speedscope,
    "/-/healthy": healthy,
    "/-/ready": ready,
}


def _page(board: PublishedState, path: str, accept: str) -> HttpResponse:
    page = ROUTES.get(path)
    if page is None:
        return HttpResponse(b"not found\n", code=404)
    try:
        return page(board, accept)
    except Exception as error:  # a bug in a page: reported to the client and counted
        board.counts["page_failed"] += 1
        text = f"internal error: {type(error).__name__}: {error}\n"
        return HttpResponse(text.encode("utf-8", "replace"), code=500)


def _response(page: HttpResponse, headers: str = "", body: bool = True) -> bytes:
    """Each connection carries one answer: idle clients would soon occupy all eight threads."""
    head = (
        f"HTTP/1.1 {page.code} {_REASONS[page.code]}\r\n"
        f"Server: memwatch/{memwatch.__version__}\r\n"
        f"Date: {time.strftime('%a, %d %b %Y %H:%M:%S GMT', time.gmtime())}\r\n"
        f"Content-Type: {page.kind}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        f"Connection: close\r\n{page.headers}{headers}\r\n"
    )
    return head.encode() + (page.body if body else b"")
