"""`memwatch top`: the live view of a watch that runs elsewhere, from its status endpoint. It only reads."""

from __future__ import annotations

import select
import sys
import threading
import time
from contextlib import ExitStack, suppress
from functools import partial

from memwatch.app.composition import show_once
from memwatch.cli.top import Endpoint
from memwatch.core.snapshot import Snapshot
from memwatch.errors import (
    AttachError,
    ConfigError,
    ExitCode,
    SourceError,
)
from memwatch.outputs.terminal.keyboard import Keyboard
from memwatch.outputs.terminal.live_view import LiveView
from memwatch.system.clock import SystemClock

PERIOD_SECONDS = 1.0
KEYS = {
    "q": "quit: the watch goes on",
    "p": "pause: the view stands still",
    "d": "details: what grows, who holds it, which lines raise it",
    "h": "help",
}


def top(endpoint: Endpoint, once: bool, as_json: bool) -> int:
    """Show it until `q` or Ctrl-C; or `once`, and end."""
    found = endpoint.read()
    if once or as_json:
        show_once(found, sys.stdout, as_json)
        return ExitCode.ENDED
    if not sys.stdout.isatty():
        raise ConfigError("stdout is no terminal", "memwatch top -1 prints one screen")
    _show(endpoint, found)
    return ExitCode.ENDED


def _show(endpoint: Endpoint, found: Snapshot) -> None:
    reader, is_over = _Reader(endpoint, found), threading.Event()
    view = LiveView(sys.stdout, SystemClock(), endpoint.url)
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
            view.footer = reader.problem or endpoint.url
            view.publish(reader.found, ())
            select.select([] if keyboard is None else [keyboard], [], [], PERIOD_SECONDS / 4)
            if keyboard is not None:
                keyboard.poll(time.time())


class _Reader(threading.Thread):
    """Asks again and again, beside the view: an answer that hangs stops no key."""

    def __init__(self, endpoint: Endpoint, found: Snapshot) -> None:
        super().__init__(daemon=True)
        self._endpoint, self._over = endpoint, threading.Event()
        self.found, self.problem = found, ""

    def run(self) -> None:
        while not self._over.wait(PERIOD_SECONDS):
            try:
                self.found, self.problem = self._endpoint.read(), ""
            except AttachError as error:
                self.problem = str(error)

    def close(self) -> None:
        self._over.set()
