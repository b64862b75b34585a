"""What faces people and machines for as long as memwatch runs, whatever it watches: HTTP, lines, the live view."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from memwatch.config.settings import Config
from memwatch.core.engine.status_sentence import to_json_line
from memwatch.core.interfaces import Clock, Sink
from memwatch.errors import ConfigError
from memwatch.outputs.http.server import (
    CERTIFICATE,
    PASSWORD,
    TLS,
    WebServer,
)
from memwatch.outputs.sd_notify import journal_priority, reaches_journal
from memwatch.outputs.terminal.event_lines import JsonLines, PlainLines, wants_live_view

if TYPE_CHECKING:
    from memwatch.outputs.http.client_access import Guard
    from memwatch.outputs.terminal.live_view import LiveView


class Front:
    """The HTTP server, if any, and one of: JSON lines, lines for people, the live view."""

    def __init__(self, config: Config, clock: Clock, people: TextIO, *, may_draw: bool) -> None:
        """`may_draw`: a live view, where `people` is a terminal. ConfigError when a place to listen at is not free."""
        self._remarks: list[str | None] = []
        self.view: LiveView | None = None
        self._clock, self._people, self._may_draw, self._listen = clock, people, may_draw, config.listen
        self.web = self._serve(config)
        self.lines = self._lines(config)

    def news(self) -> list[str]:
        """What there is to say of it, once."""
        told, self._remarks = list(filter(None, self._remarks)), []
        return told

    @property
    def sinks(self) -> list[Sink]:
        """All of it."""
        return [self.lines] if self.web is None else [self.web, self.lines]

    def adopt(self, config: Config) -> None:
        """Go on as another configuration says; ConfigError, and all is as it was. The HTTP server stays where it is."""
        before = self.web
        if before is not None and config.listen == self._listen:
            before.guard = make_guard(config)
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

            self.view = LiveView(self._people, self._clock, "" if self.web is None else self.web.url)
            return self.view
        priority = journal_priority if reaches_journal(self._people, os.environ) else None
        return PlainLines(self._people, config.verbose, journal_priority=priority)

    def _serve(self, config: Config) -> WebServer | None:
        address = config.listen_address
        if address is None:
            return None
        guard = make_guard(config)
        try:
            web = WebServer(*address, self._clock, guard)
        except ConfigError as error:
            if config.listen != Config().listen:
                raise
            self._remarks.append(f"nothing is served: {error}; choose a port with --listen")
            return None
        web.start()
        self._remarks = [f"metrics and status: {web.url}", exposure(web)]
        return web


def make_guard(config: Config) -> Guard | None:
    """Who may ask what is served, None: anybody; ConfigError where that file cannot be used."""
    if config.web_config is None:
        return None
    from memwatch.config import web_config
    from memwatch.outputs.http.client_access import Guard

    return Guard(partial(web_config.load, Path(config.web_config)))


def exposure(web: WebServer) -> str | None:
    """What others may see of this watch, or of its passwords; None: nothing."""
    if web.is_local:
        return None
    if not web.asks & {PASSWORD, CERTIFICATE}:
        return (
            f"anybody who reaches {web.url} sees the trainer's command and memory: --web-config FILE keeps others out"
        )
    if TLS not in web.asks:
        return f"passwords reach {web.url} in clear: tls_server_config in the file of --web-config encrypts them"
    return None
