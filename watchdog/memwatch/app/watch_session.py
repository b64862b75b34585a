"""What a watch belongs to: what outlives it when others follow, who may end it, what comes after its trainer's end.

What faces people and machines for as long as memwatch runs, whatever it watches: HTTP, lines, the live view.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, TextIO

from memwatch.app.engine_settings import EngineSettings
from memwatch.app.launched_trainer import FORWARDED_SIGNALS
from memwatch.config.settings import Config
from memwatch.core.engine.engine import Engine
from memwatch.core.engine.status_sentence import to_json_line
from memwatch.core.events import Event
from memwatch.core.interfaces import Clock, EventSource, Sink
from memwatch.core.snapshot import Snapshot
from memwatch.errors import ConfigError
from memwatch.outputs.http.client_access import CERTIFICATE, PASSWORD, TLS
from memwatch.outputs.http.server import WebServer
from memwatch.outputs.sd_notify import journal_priority, reaches_journal
from memwatch.outputs.terminal.event_lines import JsonLines, PlainLines, wants_live_view
from memwatch.outputs.text.exit_summary import render_summary
from memwatch.system.clock import STOP_SIGNALS, Sleeper, SystemClock

if TYPE_CHECKING:
    from memwatch.outputs.http.client_access import AccessPolicyReloader
    from memwatch.outputs.terminal.live_view import LiveView


class Frontend:
    """The HTTP server, if any, and one of: JSON lines, lines for people, the live view."""

    def __init__(self, config: Config, clock: Clock, people: TextIO, *, may_draw: bool) -> None:
        """`may_draw`: a live view, where `people` is a terminal. ConfigError when a place to listen at is not free."""
        self._remarks: list[str | None] = []
        self.live_view: LiveView | None = None
        self._clock, self._people, self._may_draw, self._listen = clock, people, may_draw, config.listen
        self.web = self._serve(config)
        self.lines = self._lines(config)

    def pop_remarks(self) -> list[str]:
        """What there is to say of it, once."""
        told, self._remarks = list(filter(None, self._remarks)), []
        return told

    @property
    def sinks(self) -> list[Sink]:
        """All of it."""
        return [self.lines] if self.web is None else [self.web, self.lines]

    def reconfigure(self, config: Config) -> None:
        """Go on as another configuration says; ConfigError, and all is as it was. The HTTP server stays where it is."""
        before = self.web
        if before is not None and config.listen == self._listen:
            before.access_policy = make_access_policy(config)
        else:
            self.web = self._serve(config)
            if before is not None:
                before.stop()
        self._listen, self.lines = config.listen, self._lines(config)

    def close(self) -> None:
        """Stop answering."""
        if self.web is not None:
            self.web.stop()

    def _lines(self, config: Config) -> Sink:
        if config.json:
            return JsonLines(sys.stdout, to_json_line)
        if self._may_draw and wants_live_view(self._people, os.environ):
            from memwatch.outputs.terminal.live_view import LiveView

            self.live_view = LiveView(self._people, self._clock, "" if self.web is None else self.web.url)
            return self.live_view
        priority = journal_priority if reaches_journal(self._people, os.environ) else None
        return PlainLines(self._people, config.verbose, journal_priority=priority)

    def _serve(self, config: Config) -> WebServer | None:
        address = config.listen_address
        if address is None:
            return None
        guard = make_access_policy(config)
        try:
            web = WebServer(*address, self._clock, guard)
        except ConfigError as error:
            if config.listen != Config().listen:
                raise
            self._remarks.append(f"nothing is served: {error}; choose a port with --listen")
            return None
        web.start()
        self._remarks = [f"metrics and status: {web.url}", exposure_warning(web)]
        return web


def make_access_policy(config: Config) -> AccessPolicyReloader | None:
    """Who may ask what is served, None: anybody; ConfigError where that file cannot be used."""
    if config.web_config is None:
        return None
    from memwatch.config import web_config
    from memwatch.outputs.http.client_access import AccessPolicyReloader

    return AccessPolicyReloader(partial(web_config.load_web_config, Path(config.web_config)))


def exposure_warning(web: WebServer) -> str | None:
    """What others may see of this watch, or of its passwords; None: nothing."""
    if web.is_local:
        return None
    if not web.requirements & {PASSWORD, CERTIFICATE}:
        return (
            f"anybody who reaches {web.url} sees the trainer's command and memory: --web-config FILE keeps others out"
        )
    if TLS not in web.requirements:
        return f"passwords reach {web.url} in clear: tls_server_config in the file of --web-config encrypts them"
    return None


class WatchSession:
    """Of a watch that stands alone. `runner` and `service` have stations whose watches follow each other."""

    def __init__(
        self,
        config: Config,
        people: TextIO | None = None,
        *,
        may_draw: bool = True,
        once: bool = False,
        forward: Callable[[int], None] | None = None,
        clock: SystemClock | None = None,
    ) -> None:
        """`people`: where they read, default stdout; `may_draw`: a live view, if that is a terminal.

        `once`: a screen is printed; nothing is kept, served or sent. `forward`: takes the signals that memwatch gets;
        without it they end the watch. ConfigError when a place to listen at is not free.
        """
        self.config, self.clock = config, clock or SystemClock()
        self.output = people or sys.stdout
        self.once = once
        self.frontend = None if once else Frontend(config, self.clock, self.output, may_draw=may_draw)
        self._forward, self._stopped = forward, False

    def close(self) -> None:
        """Nothing is served any more."""
        if self.frontend is not None:
            self.frontend.close()

    def engine(self) -> Engine:
        """That of the next watch."""
        return EngineSettings.from_config(self.config).make_engine()

    # --- during a watch ---

    def on_watch_ready(self, engine: Engine) -> None:
        """Nothing hinders the watch of this engine any more: the one before may go."""

    @property
    def sinks(self) -> Sequence[Sink]:
        """Outputs that outlive it."""
        return () if self.frontend is None else self.frontend.sinks

    @property
    def sources(self) -> Sequence[EventSource]:
        """What is to be polled besides its own."""
        return ()

    @property
    def signals(self) -> Sequence[Signals]:
        """What `heard` is to be told of."""
        return STOP_SIGNALS if self._forward is None else FORWARDED_SIGNALS

    def fileno(self) -> int | None:
        """Readable when somebody has asked for the state."""
        return None if self._web is None else self._web.fileno()

    def on_signal(self, number: int) -> None:
        """A signal has come."""
        if self._forward is None:
            self._stopped = True
        else:
            self._forward(number)

    def should_stop(self) -> bool:
        """The watch is to end, though its trainer runs on."""
        return self._stopped

    def sleep(self, sleep: Callable[[float], bool], seconds: float) -> bool:
        """`sleep` so long; whether it was ended early."""
        return sleep(seconds)

    @property
    def _web(self) -> WebServer | None:
        return None if self.frontend is None else self.frontend.web

    # --- after it ---

    def on_exit(self, end: Snapshot) -> Sequence[Event]:
        """What the trainer's end leads to."""
        return ()

    def print_summary(self, end: Snapshot) -> None:
        """Tell people how it ended."""
        if not self.config.json:
            with suppress(OSError):  # its reader or its terminal is gone; the exit code still tells
                print(render_summary(end), file=self.output, flush=True)

    def linger(self, sleeper: Sleeper) -> None:
        """The trainer has ended: for a while, who asks now and then learns how."""
        if self._web is not None:
            sleeper.sleep_until_signal(self.config.daemon.linger_seconds)
