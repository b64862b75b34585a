"""`memwatch top`: the live view of a watch that runs elsewhere, read from its status endpoint over HTTP or TLS."""

from __future__ import annotations

import base64
import copy
import http.client
import os
import select
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from memwatch.app.load_and_replay_run import find_run, load_run
from memwatch.cli.watch_serve_markers import config_from_flags, print_snapshot
from memwatch.config.settings import Config
from memwatch.core.snapshot import Snapshot
from memwatch.core.text_and_units import printable
from memwatch.errors import AttachError, ConfigError, ExitCode, MemwatchError, SourceError
from memwatch.outputs.node.node_status import HEADS, NodeStatus, cells
from memwatch.outputs.status_json import STATUS_SCHEMA_VERSION, snapshot_shape
from memwatch.outputs.terminal.command_progress import ProgressBar
from memwatch.outputs.terminal.keyboard import Keyboard
from memwatch.outputs.terminal.live_view_layout import SEVERITY_STYLES
from memwatch.outputs.terminal.live_view_terminal import LiveView
from memwatch.outputs.terminal.row_picker import RowStyle, choose_row, print_rows
from memwatch.system import json_and_yaml
from memwatch.system.clock import SystemClock

READ_TIMEOUT_SECONDS = 5.0  # without another byte of the response
RESPONSE_TIMEOUT_SECONDS = 20.0  # for the whole response
# A status with 200 generations and every optional part is 1 MiB. Parsed, it takes some twenty times as much.
MAX_RESPONSE_BYTES = 8 << 20
REFRESH_SECONDS = 1.0
TOP_KEYS = {
    "q": "quit: the watch goes on",
    "p": "pause: the view stands still",
    "d": "details: what grows, who holds it, which lines raise it",
    "h": "help",
}
_EXAMPLE = "as in: memwatch top http://127.0.0.1:9877"
_NO_ANSWER_HINT = (
    "no memwatch watches there: --listen sets its address; memwatch last shows how the latest run here ended"
)
_UNKNOWN_END = "memwatch there has ended; on its machine, memwatch last shows how the run stands"
_CERTIFICATE_HINT = "it may require a client certificate: --cert FILE --key FILE"
_HINTS = {  # by a part of the error
    "http 400": "it may require TLS: write https://",
    "http 401": "write https://NAME@HOST:PORT, and the password in a file: --password-file FILE, or $MEMWATCH_PASSWORD",
    "http 429": "it gets too many requests, or too many wrong passwords: wait a few seconds",
    "CERTIFICATE_VERIFY_FAILED": "--ca-file FILE names the CA of its certificate, which must be for this address",
    "CERTIFICATE_REQUIRED": "it requires a client certificate: --cert FILE --key FILE",
    "EOF OCCURRED": _CERTIFICATE_HINT,
    "HANDSHAKE_FAILURE": _CERTIFICATE_HINT,
    "WRONG_VERSION_NUMBER": "it may not use TLS: write http://",
}


def top(flags: Mapping[str, Any]) -> int:
    """`memwatch top [URL]`: show the live view until `q` or Ctrl-C; with --once or --json print the present state."""
    client = StatusClient(_url(flags), _password(flags), flags.get("ca_file"), flags.get("cert"), flags.get("key"))
    status = client.fetch_status()
    if "once" in flags or "json" in flags:
        _print_once(status, "json" in flags)
    elif not sys.stdout.isatty():
        raise ConfigError("stdout is not a terminal", "memwatch top -1 prints one screen")
    elif isinstance(status, Snapshot):
        _show_live(client, status, partial(_end_in_history, config_from_flags(flags)))
    else:
        _choose_and_show(client, status, partial(_end_in_history, config_from_flags(flags)))
    return ExitCode.ENDED


def _print_once(status: Snapshot | NodeStatus, as_json: bool) -> None:
    if isinstance(status, Snapshot):
        print_snapshot(status, sys.stdout, as_json)
    elif as_json:
        print(json_and_yaml.to_shown_json(status))
    else:
        print_rows(status.title, HEADS, [cells(row) for row in status.trainers], partial(_severity_style, status))


def _choose_and_show(client: StatusClient, status: NodeStatus, find_end: Callable[[Snapshot], Snapshot | None]) -> None:
    """Show the trainers of a node, and the view of one after the other that is chosen."""
    latest = [status]

    def read_rows() -> list[tuple[str, ...]]:
        with suppress(AttachError):  # the node does not answer now: what it said last stays
            found = client.fetch_status()
            latest[0] = found if isinstance(found, NodeStatus) else latest[0]
        return [cells(row) for row in latest[0].trainers]

    while True:
        title = f"{status.title}: a key shows one, q leaves"
        try:
            chosen = choose_row(title, HEADS, read_rows, lambda index: _severity_style(latest[0], index))
        except SourceError as error:  # stdin is not a terminal
            raise ConfigError("no key can arrive here", "memwatch top -1 prints the list") from error
        if chosen is None:
            return
        one = client.of(latest[0].trainers[chosen].url)
        with suppress(AttachError):  # it has ended long ago
            shown = one.fetch_status()
            if isinstance(shown, Snapshot):
                _show_live(one, shown, find_end)


def _severity_style(status: NodeStatus, index: int) -> RowStyle:
    """Return the colour of a trainer, by its place in the list."""
    return SEVERITY_STYLES[status.trainers[index].severity]


def _url(flags: Mapping[str, Any]) -> str:
    """Return the URL of the command line, else the one where a watch with this configuration would listen."""
    url: str = flags.get("url", "")
    if url:
        return url if "://" in url else f"http://{url}"
    address = config_from_flags(flags).listen_address
    if address is None:
        raise ConfigError("no address is named", _EXAMPLE)
    host, port = address
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _password(flags: Mapping[str, Any]) -> str:
    file = flags.get("password_file")
    if file is None:
        return os.environ.get("MEMWATCH_PASSWORD", "")
    try:
        return Path(file).read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{file}: {reason}", "name a file that can be read with --password-file") from error


class StatusClient:
    """Reads the status of the memwatch at one address, over HTTP or TLS."""

    def __init__(
        self,
        url: str,
        password: str = "",
        ca_file: str | None = None,
        cert: str | None = None,
        key: str | None = None,
        *,
        response_seconds: float = RESPONSE_TIMEOUT_SECONDS,
    ) -> None:
        """`url` is `http://HOST:PORT` or https, with `NAME@` or `NAME:PASSWORD@` before the host; files are PEM.

        ConfigError when the address or a file cannot be used.
        """
        try:
            parts = urlsplit(url)
            parts.port  # noqa: B018 - ValueError when it is not a number
        except ValueError as error:
            raise ConfigError(f"not the address of a memwatch: {error}", _EXAMPLE) from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url}: not the address of a memwatch", _EXAMPLE)
        self.url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")  # without the password
        self._request = urllib.request.Request(f"{self.url}/status.json")  # noqa: S310 - the scheme was checked
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '') or password}"
            header = f"Basic {base64.b64encode(pair.encode()).decode()}"
            self._request.add_unredirected_header("Authorization", header)  # not sent along a redirection
        self._opener = _opener(_context(ca_file, cert, key), response_seconds)

    def of(self, path: str) -> StatusClient:
        """Return a client for the pages below this one's, with the same access."""
        other = copy.copy(self)
        other.url = f"{self.url}/{path.rstrip('/')}"
        other._request = copy.copy(self._request)
        other._request.full_url = f"{other.url}/status.json"
        return other

    def fetch_snapshot(self) -> Snapshot:
        """Return the present snapshot of one watch; errors as of `fetch_status`."""
        status = self.fetch_status()
        if not isinstance(status, Snapshot):
            raise AttachError(f"{self.url} watches a node", f"as in: memwatch top {self.url}/trainers/PID")
        return status

    def fetch_status(self) -> Snapshot | NodeStatus:
        """Return the present state of a watch, or of a node; AttachError, with a hint, without a valid response."""
        try:
            with self._opener.open(self._request, timeout=READ_TIMEOUT_SECONDS) as response:
                body = response.read(MAX_RESPONSE_BYTES)
        except urllib.error.HTTPError as error:
            error.close()
            hint = _HINTS.get(f"http {error.code}", _NO_ANSWER_HINT)
            raise AttachError(f"{self.url} answers {error.code} {printable(error.reason, 100)}", hint) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            hint = next((hint for sign, hint in _HINTS.items() if sign in str(reason).upper()), _NO_ANSWER_HINT)
            text = printable((reason.strerror if isinstance(reason, OSError) else None) or str(reason), 200)
            raise AttachError(f"no answer from {self.url}: {text[:1].lower()}{text[1:]}", hint) from error
        return _parse_status(self.url, body)


def _opener(context: ssl.SSLContext, response_seconds: float) -> urllib.request.OpenerDirector:
    """Return an opener for http and https alone (a redirection leads nowhere else) that bounds each response."""

    class DeadlineSocket:
        """A mixin that bounds the time of a whole response, however slowly its bytes arrive."""

        deadline: float | None = None

        def recv_into(self, *args: Any) -> int:
            now = time.monotonic()
            self.deadline = now + response_seconds if self.deadline is None else self.deadline
            if now > self.deadline:
                raise TimeoutError(f"its answer takes longer than {response_seconds:g} s")
            count: int = super().recv_into(*args)  # type: ignore[misc]
            return count

    class PlainSocket(DeadlineSocket, socket.socket):
        pass

    class TlsSocket(DeadlineSocket, ssl.SSLSocket):
        pass

    class Connection(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            plain = PlainSocket(fileno=self.sock.detach())
            plain.settimeout(self.timeout)
            self.sock = plain

    class Handler(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Connection, req)

    context.sslsocket_class = TlsSocket
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        Handler(),
        urllib.request.HTTPSHandler(context=context),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _context(ca_file: str | None, cert: str | None, key: str | None) -> ssl.SSLContext:
    named = ", ".join(filter(None, (ca_file, cert, key)))
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if cert is not None or key is not None:
            context.load_cert_chain(cert or str(key), key)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        hint = "files in PEM are needed: --ca-file with the CA of its certificate, --cert and --key with yours"
        raise ConfigError(f"{named}: {reason}", hint) from error
    return context


def _parse_status(url: str, body: bytes) -> Snapshot | NodeStatus:
    found: Snapshot | NodeStatus | None = None
    try:
        shown = json_and_yaml.from_json(body, dict)
        if shown["schema"] == STATUS_SCHEMA_VERSION:
            is_node = "trainers" in shown
            found = (
                json_and_yaml.from_data(shown, NodeStatus)
                if is_node
                else json_and_yaml.from_data(snapshot_shape(shown), Snapshot)
            )
    except (ValueError, KeyError, TypeError) as error:
        raise AttachError(f"{url} answers, but not with a status of memwatch: {printable(str(error), 200)}") from error
    if found is None:
        raise AttachError(f"the memwatch at {url} is of another version", "use the memwatch that is installed there")
    return found


def _show_live(client: StatusClient, first: Snapshot, find_end: Callable[[Snapshot], Snapshot | None]) -> None:
    reader, quit_pressed = _Reader(client, first, find_end), threading.Event()
    view = LiveView(sys.stdout, SystemClock(), client.url)
    with ExitStack() as stack:
        stack.callback(view.restore)
        stack.callback(reader.close)
        keyboard = None
        with suppress(SourceError):  # stdin is not a terminal: Ctrl-C ends the view
            keyboard = Keyboard(sys.stdin, lambda key: quit_pressed.set() if key == "q" else view.press(key))
            stack.callback(keyboard.close)
            view.keys = TOP_KEYS
        reader.start()
        while not quit_pressed.is_set():
            view.footer = reader.problem or client.url
            view.publish(reader.snapshot, ())
            select.select([] if keyboard is None else [keyboard], [], [], REFRESH_SECONDS / 4)
            if keyboard is not None:
                keyboard.poll(time.time())


def _end_in_history(config: Config, shown: Snapshot) -> Snapshot | None:
    """How the run that was shown has ended, if the history of this machine has it."""
    path = config.history_path(os.environ)
    if path is None or not path.exists():
        return None
    try:
        loaded = load_run(path, find_run(path, shown.run_id), config, ProgressBar("", is_wanted=False))
    except MemwatchError:
        return None
    return loaded.end if loaded.end.exited is not None else None


class _Reader(threading.Thread):
    """Fetches snapshots beside the view, which answers keys while a response is late.

    When there is none any more, `find_end` is asked for how the run that was shown has ended.
    """

    def __init__(self, client: StatusClient, first: Snapshot, find_end: Callable[[Snapshot], Snapshot | None]) -> None:
        super().__init__(daemon=True)
        self._client, self._closed, self._find_end = client, threading.Event(), find_end
        self.snapshot, self.problem = first, ""

    def run(self) -> None:
        while not self._closed.wait(REFRESH_SECONDS):
            try:
                self.snapshot, self.problem = self._client.fetch_snapshot(), ""
            except AttachError as error:
                if not self.problem and self.snapshot.exited is None:
                    self.snapshot = self._find_end(self.snapshot) or self.snapshot
                self.problem = str(error) if self.snapshot.exited is not None else f"{error}; {_UNKNOWN_END}"

    def close(self) -> None:
        self._closed.set()
