"""The state that the watch publishes, and the answer to an HTTP request from it: metrics, status, page or health.

http.server would read requests too, but it imports the e-mail parser and TLS.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

import memwatch
from memwatch.core.events import Notice
from memwatch.core.examination import StackGrowth
from memwatch.core.interfaces import Clock
from memwatch.core.snapshot import EarlierRun, Snapshot, WatchState
from memwatch.core.text_and_units import format_duration
from memwatch.outputs.http.client_access import AccessPolicy
from memwatch.outputs.status_json import snapshot_to_dict
from memwatch.outputs.text import profile_formats

if TYPE_CHECKING:
    from memwatch.outputs.metrics.collector import MetricsCollector

FRESH_SECONDS = 0.1  # a younger state is shown as it is, so that many clients do not wake the loop often (chosen)
ANSWER_SECONDS = 0.05  # time that a page waits for the loop to publish (chosen)
MAX_HEAD_BYTES = 65536  # of the request line and all headers together (chosen)
LOOP_STALL_SECONDS = 30.0  # a loop that has not iterated for this long, or five of its intervals, is unhealthy (chosen)
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) (/[!-~]*) HTTP/([0-9])\.([0-9])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~\t\x80-\xff]*)")


class Site(Protocol):
    """What answers HTTP requests: the state of one watch, or those of a node."""

    counts: Counter[str]

    def find_route(self, path: str) -> Route | None:
        """Return what answers requests for this path."""


class ShownWatch:
    """What the pages of one watch show: references that one thread replaces and all others only read."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.snapshot: Snapshot | None = None
        self.last_iteration_t: float | None = None  # of the loop
        self.is_finished = False  # the watch has ended, so the loop no longer iterates
        # Notices by event, and "tick", "page_failed", "refused", "handshake_failed".
        self.counts: Counter[str] = Counter()
        self.earlier_runs: Sequence[EarlierRun] = ()  # of the same program
        self.metrics_collector: MetricsCollector | None = None  # made by the first scrape
        self.rendered_page: tuple[Snapshot | None, bytes] | None = None  # the last page, and the state that it shows

    def fresh_snapshot(self) -> Snapshot | None:
        """The state now."""
        return self.snapshot

    def latest_iteration_t(self) -> float | None:
        return self.last_iteration_t

    def find_route(self, path: str) -> Route | None:
        return partial(ROUTES[path], self) if path in ROUTES else None


class PublishedState(ShownWatch):
    """The state that the watch of this process publishes."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        # Signalled to request the state; never closed, as a client may still signal it.
        self.request_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_requested = False  # whether it was signalled: most iterations need no system call
        self._published_t = -math.inf
        self._has_published = threading.Event()
        self._is_stuck = False  # the loop did not answer the last client that waited: none waits until it does

    def record_iteration(self) -> None:
        self.last_iteration_t, self.is_finished = self.clock.now(), False
        self.counts["tick"] += 1

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        self.snapshot = snapshot
        self.last_iteration_t = self._published_t = self.clock.now()
        for notice in notices:
            self.counts[notice.event] += 1
        self._is_stuck = False
        self._has_published.set()

    def consume_request(self) -> bool:
        """Whether a client has requested the state since the last call."""
        if not self._is_requested:
            return False
        self._is_requested = False
        try:
            return os.eventfd_read(self.request_fd) > 0
        except BlockingIOError:
            return False

    def request_snapshot(self) -> None:
        self._is_requested = True
        os.eventfd_write(self.request_fd, 1)
        self._is_requested = True  # again, as the loop may just have answered another client

    def fresh_snapshot(self) -> Snapshot | None:
        """The state now; if the loop is busy for longer than ANSWER_SECONDS, or stuck, the last one published."""
        if self.clock.now() - self._published_t >= FRESH_SECONDS:
            self._has_published.clear()
            self.request_snapshot()
            self._is_stuck = self._is_stuck or not self._has_published.wait(ANSWER_SECONDS)
        return self.snapshot


class RequestError(ValueError):
    """A request that cannot be answered; `code` is the HTTP status."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


Route = Callable[[str], "HttpResponse"]  # takes what the client accepts


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a request that memwatch uses."""

    method: str
    path: str  # without the query; percent-encoding is not decoded
    accept: str  # all Accept headers, joined
    authorization: str = ""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One answer, before its status line and standard headers are written."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    code: int = 200
    headers: str = ""  # complete lines, for this answer only


def read_request(client: socket.socket) -> Request | None:
    """Reads one request; None if the client closes without sending one. RequestError; OSError if it is too slow."""
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
    first, *rest = head.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise RequestError(400, "not a request line")
    if line[3] != b"1":
        raise RequestError(505, "only HTTP/1 is supported")
    headers: dict[bytes, list[bytes]] = {b"accept": [], b"authorization": []}
    for one in rest:
        header = _HEADER.fullmatch(one)
        if header is None:
            raise RequestError(400, "not a header")
        headers.setdefault(header[1].lower(), []).append(header[2])
    accept, authorization = (b", ".join(headers[name]).decode("latin-1") for name in (b"accept", b"authorization"))
    return Request(line[1].decode(), line[2].partition(b"?")[0].decode(), accept, authorization)


def answer(client: socket.socket, site: Site, access: AccessPolicy) -> None:
    """Reads one request and answers it under `access`; OSError when the client is gone or too slow."""
    has_body = True
    try:
        request = read_request(client)
        if request is None:
            return
        response = _respond(site, request, access)
        has_body = request.method != "HEAD"
    except RequestError as error:
        response = HttpResponse(f"{error}\n".encode(), code=error.code)
    # Each connection carries one answer: idle clients would soon occupy all eight threads.
    head = (
        f"HTTP/1.1 {response.code} {HTTPStatus(response.code).phrase}\r\n"
        f"Server: memwatch/{memwatch.__version__}\r\n"
        f"Date: {time.strftime('%a, %d %b %Y %H:%M:%S GMT', time.gmtime())}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        f"Connection: close\r\n{response.headers}{access.headers}\r\n"
    )
    client.sendall(head.encode() + (response.body if has_body else b""))


def _respond(site: Site, request: Request, access: AccessPolicy) -> HttpResponse:
    refusal = access.refusal(request.authorization)
    if refusal is not None:
        site.counts["refused"] += 1
        return HttpResponse(refusal.text.encode(), code=refusal.code, headers=refusal.headers)
    if request.method not in ("GET", "HEAD"):
        return HttpResponse(b"only GET and HEAD\n", code=405, headers="Allow: GET, HEAD\r\n")
    route = site.find_route(request.path)
    if route is None:
        return HttpResponse(b"not found\n", code=404)
    try:
        return route(request.accept)
    except Exception as error:  # a bug in memwatch: reported to the client and counted
        site.counts["page_failed"] += 1
        text = f"internal error: {type(error).__name__}: {error}\n"
        return HttpResponse(text.encode("utf-8", "replace"), code=500)


def healthy(shown: ShownWatch, accept: str = "") -> HttpResponse:
    """Whether memwatch's loop is running."""
    last_t, snapshot = shown.latest_iteration_t(), shown.snapshot
    if snapshot is None or last_t is None:
        return HttpResponse(b"starting\n")
    silent_seconds = shown.clock.now() - last_t
    if not shown.is_finished and silent_seconds > max(LOOP_STALL_SECONDS, 5 * snapshot.pace_seconds):
        text = f"stalled: nothing new for {format_duration(silent_seconds)}\n"
        return HttpResponse(text.encode(), code=503)
    return HttpResponse(b"ok\n")


def ready(shown: ShownWatch, accept: str = "") -> HttpResponse:
    """Whether the trainer's memory has been read, or memwatch waits for a trainer."""
    snapshot = shown.fresh_snapshot()
    if snapshot is not None and snapshot.state is WatchState.WAITING:
        return HttpResponse(b"waiting for a trainer\n")
    if snapshot is None or (snapshot.sample_t is None and snapshot.exited is None):
        return HttpResponse(b"no sample yet\n", code=503)
    return HttpResponse(b"ready\n")


def status_json(shown: ShownWatch, accept: str = "") -> HttpResponse:
    snapshot = shown.fresh_snapshot()
    if snapshot is None:
        return HttpResponse(b'{"error": "no sample yet"}\n', "application/json", 503)
    return HttpResponse(json.dumps(snapshot_to_dict(snapshot), allow_nan=False).encode() + b"\n", "application/json")


def metrics(shown: ShownWatch, accept: str = "") -> HttpResponse:
    if shown.metrics_collector is None:
        from memwatch.outputs.metrics.collector import MetricsCollector  # with prometheus_client: 8 MiB

        shown.metrics_collector = MetricsCollector(shown.fresh_snapshot, shown.counts, shown.clock)
    return HttpResponse(*shown.metrics_collector.render(accept))


def growth_folded(shown: ShownWatch, accept: str = "") -> HttpResponse:
    """The code that raised memory in the latest recordings, as folded stacks."""
    return HttpResponse(profile_formats.folded(_growth(shown)[1]).encode("utf-8", "replace"))


def growth_speedscope(shown: ShownWatch, accept: str = "") -> HttpResponse:
    """The same code as a profile for speedscope."""
    command, growth = _growth(shown)
    return HttpResponse(profile_formats.speedscope(growth, command).encode("utf-8", "replace"), "application/json")


def _growth(shown: ShownWatch) -> tuple[str, tuple[StackGrowth, ...]]:
    """The trainer's command, and the growth attributed to its code."""
    snapshot = shown.fresh_snapshot()
    if snapshot is None or snapshot.diagnosis is None:
        return "", ()
    return snapshot.command, snapshot.diagnosis.credits


def index(shown: ShownWatch, accept: str = "") -> HttpResponse:
    """The state of the watch as a page; rendered once per state (10 ms), however many clients ask."""
    from memwatch.outputs.html import status_page  # imports the charts: 1.6 MiB

    snapshot, rendered = shown.fresh_snapshot(), shown.rendered_page
    if rendered is None or rendered[0] is not snapshot:
        links = [path for path in ROUTES if path != "/"]
        shown.rendered_page = rendered = (
            snapshot,
            status_page.render_home_page(snapshot, links, earlier=shown.earlier_runs).encode("utf-8", "replace"),
        )
    return HttpResponse(rendered[1], "text/html; charset=utf-8")


ROUTES: dict[str, Callable[[ShownWatch, str], HttpResponse]] = {
    "/": index,
    "/metrics": metrics,
    "/status.json": status_json,
    "/growth.folded": growth_folded,
    "/growth.speedscope.json": growth_speedscope,
    "/-/healthy": healthy,
    "/-/ready": ready,
}
