"""What the HTTP server answers, for each path."""

from __future__ import annotations

import html
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

import memwatch
from memwatch.core.units import format_duration
from memwatch.outputs.status import status
from memwatch.outputs.web import Board

STALL_SECONDS = 30.0  # a loop that has not published for so long, or for five of its own paces, is not healthy
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    """One answer."""

    body: bytes
    kind: str = TEXT
    code: HTTPStatus = HTTPStatus.OK


def answer(client: socket.socket, board: Board) -> None:
    """Read one request and answer it; OSError when the client is gone or too slow."""
    _Handler(client, board)


def healthy(board: Board, accept: str = "") -> Page:
    """Whether memwatch's loop turns."""
    snapshot, published_t = board.snapshot, board.published_t
    if snapshot is None or published_t is None:
        return Page(b"starting\n")
    silent = board.clock.now() - published_t
    if snapshot.up and silent > max(STALL_SECONDS, 5 * snapshot.pace_seconds):
        text = f"stalled: nothing new for {format_duration(silent)}\n"
        return Page(text.encode(), code=HTTPStatus.SERVICE_UNAVAILABLE)
    return Page(b"ok\n")


def ready(board: Board, accept: str = "") -> Page:
    """Whether the trainer's memory has been seen."""
    snapshot = board.snapshot
    if snapshot is None or (snapshot.sample_t is None and snapshot.exited is None):
        return Page(b"no sample yet\n", code=HTTPStatus.SERVICE_UNAVAILABLE)
    return Page(b"ready\n")


def status_json(board: Board, accept: str = "") -> Page:
    """The snapshot as JSON."""
    snapshot = board.snapshot
    if snapshot is None:
        return Page(b'{"error": "no sample yet"}\n', "application/json", HTTPStatus.SERVICE_UNAVAILABLE)
    return Page(json.dumps(status(snapshot), allow_nan=False).encode() + b"\n", "application/json")


def metrics(board: Board, accept: str = "") -> Page:
    """The snapshot for Prometheus."""
    from memwatch.outputs.prometheus import Exposition

    if board.exposition is None:
        board.exposition = Exposition(lambda: board.snapshot, board.counts, board.clock)
    body, kind = board.exposition.render(accept)
    return Page(body, kind)


def index(board: Board, accept: str = "") -> Page:
    """The sentence, and the ways on."""
    sentence = html.escape(board.snapshot.sentence if board.snapshot else "no sample yet")
    links = "".join(f'<li><a href="{path}">{path}</a>' for path in PAGES if path != "/")
    body = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>memwatch</title>'
        f"<h1>memwatch</h1><p>{sentence}</p><ul>{links}</ul></html>\n"
    )
    return Page(body.encode("utf-8", "replace"), "text/html; charset=utf-8")


PAGES: dict[str, Callable[[Board, str], Page]] = {
    "/": index,
    "/metrics": metrics,
    "/status.json": status_json,
    "/-/healthy": healthy,
    "/-/ready": ready,
}


class _Handler(BaseHTTPRequestHandler):
    """One request on one connection; the base class parses it and bounds its size."""

    protocol_version = "HTTP/1.1"

    def __init__(self, client: socket.socket, board: Board) -> None:
        self._board = board
        super().__init__(client, ("", 0), None)  # type: ignore[arg-type]  # no socketserver behind it

    def version_string(self) -> str:
        return f"memwatch/{memwatch.__version__}"

    def log_message(self, format: str, *args: object) -> None:
        """No access log: stderr belongs to the watch."""

    def do_GET(self) -> None:
        self._send(self._page())

    def _page(self) -> Page:
        page = PAGES.get(self.path.partition("?")[0])
        if page is None:
            return Page(b"not found\n", code=HTTPStatus.NOT_FOUND)
        try:
            return page(self._board, ", ".join(self.headers.get_all("Accept", ())))
        except Exception as error:  # a bug in a page: told to who asks and counted, not thrown at the terminal
            self._board.counts["page_failed"] += 1
            text = f"internal error: {type(error).__name__}: {error}\n"
            return Page(text.encode("utf-8", "replace"), code=HTTPStatus.INTERNAL_SERVER_ERROR)

    def do_HEAD(self) -> None:
        self.do_GET()

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.command not in ("GET", "HEAD"):
            self._send(Page(b"only GET and HEAD\n", code=HTTPStatus.METHOD_NOT_ALLOWED))
            return False
        return True

    def _send(self, page: Page) -> None:
        self.close_connection = True  # eight threads are soon held by idle keep-alive clients
        self.send_response(page.code)
        self.send_header("Content-Type", page.kind)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Connection", "close")
        if page.code == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)
