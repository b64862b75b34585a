"""`memwatch top`: the live view of a watch that runs elsewhere, from its status endpoint. It only reads."""

from __future__ import annotations

import http.client
import select
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from functools import partial

from memwatch import wire
from memwatch.app import show_once
from memwatch.clock import SystemClock
from memwatch.core.model import Snapshot
from memwatch.core.text import printable
from memwatch.errors import AttachError, ConfigError, ExitCode, SourceError
from memwatch.outputs.status import SCHEMA, snapshot_shape
from memwatch.outputs.terminal import LiveView
from memwatch.sources.keyboard import Keyboard

PERIOD_SECONDS = 1.0
PATIENCE_SECONDS = 5.0  # with an answer
MOST_BYTES = 64 << 20
KEYS = {
    "q": "quit: the watch goes on",
    "p": "pause: the view stands still",
    "d": "details: what grows, who holds it, which lines raise it",
    "h": "help",
}


def read_status(url: str) -> Snapshot:
    """The snapshot of the memwatch that listens at `url` (http://HOST:PORT/); AttachError, with a hint, without one."""
    hint = "is a memwatch watching there? `--listen` tells where it listens; its journal says: metrics and status"
    try:
        with urllib.request.urlopen(_address(url), timeout=PATIENCE_SECONDS) as answer:  # noqa: S310 - _address looks
            body = answer.read(MOST_BYTES)
    except urllib.error.HTTPError as error:
        error.close()
        raise AttachError(f"{url} answers {error.code} {error.reason}", hint) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise AttachError(f"no answer from {url}: {printable(str(reason), 200)}", hint) from error
    return _snapshot(url, body)


def _address(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url}: no address of a memwatch", "as in: memwatch top http://127.0.0.1:9877")
    return f"{url.rstrip('/')}/status.json"


def _snapshot(url: str, body: bytes) -> Snapshot:
    try:
        shown = wire.from_json(body, dict)
        known = shown["schema"] == SCHEMA
        found = wire.from_data(snapshot_shape(shown), Snapshot) if known else None
    except (wire.ShapeError, KeyError, TypeError) as error:
        raise AttachError(f"{url} answers, but not with a status of memwatch: {printable(str(error), 200)}") from error
    if found is None:
        raise AttachError(f"the memwatch at {url} is of another version", "use the memwatch that is installed there")
    return found


def top(url: str, once: bool, as_json: bool) -> int:
    """Show it until `q` or Ctrl-C; or `once`, and end."""
    found = read_status(url)
    if once or as_json:
        show_once(found, sys.stdout, as_json)
        return ExitCode.ENDED
    if not sys.stdout.isatty():
        raise ConfigError("stdout is no terminal", "memwatch top -1 prints one screen")
    _show(url, found)
    return ExitCode.ENDED


def _show(url: str, found: Snapshot) -> None:
    reader, is_over = _Reader(url, found), threading.Event()
    view = LiveView(sys.stdout, SystemClock(), url)
    with ExitStack() as held:
        held.callback(view.restore)
        held.callback(reader.close)
        keyboard = None
        actions = {"q": is_over.set}
        with suppress(SourceError):  # stdin is no terminal: Ctrl-C ends it
            keyboard = Keyboard(sys.stdin, lambda key: actions.get(key, partial(view.press, key))())
            held.callback(keyboard.close)
            view.keys = KEYS
        reader.start()
        while not is_over.is_set():
            view.footer = reader.problem or url
            view.publish(reader.found, ())
            select.select([] if keyboard is None else [keyboard], [], [], PERIOD_SECONDS / 4)
            if keyboard is not None:
                keyboard.poll(time.time())


class _Reader(threading.Thread):
    """Asks again and again, beside the view: an answer that hangs stops no key."""

    def __init__(self, url: str, found: Snapshot) -> None:
        super().__init__(daemon=True)
        self._url, self._over = url, threading.Event()
        self.found, self.problem = found, ""

    def run(self) -> None:
        while not self._over.wait(PERIOD_SECONDS):
            try:
                self.found, self.problem = read_status(self._url), ""
            except AttachError as error:
                self.problem = str(error)

    def close(self) -> None:
        self._over.set()
