"""What a watch is given (configuration, clock, engine, outputs), and the lifecycle that ends it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Protocol, TextIO

from memwatch.app.engine_settings import EngineSettings
from memwatch.config.settings import Config
from memwatch.core.engine.engine import Engine
from memwatch.core.engine.status_sentence import to_json_line
from memwatch.core.events import Event
from memwatch.core.interfaces import Clock, EventSource, Sink
from memwatch.core.snapshot import Snapshot
from memwatch.errors import ConfigError
from memwatch.outputs.http.client_access import CERTIFICATE, PASSWORD, TLS, AccessPolicy, AccessPolicyReloader
from memwatch.outputs.http.end_page import take_over_port
from memwatch.outputs.http.routes import Site
from memwatch.outputs.http.server import WebServer
from memwatch.outputs.systemd_notify import journal_priority, reaches_journal
from memwatch.outputs.terminal.plain_and_json_lines import JsonLines, PlainLines, wants_live_view
from memwatch.sources.memory.memory_peek import MemoryPeek
from memwatch.system.clock import STOP_SIGNALS, Sleeper, SystemClock

if TYPE_CHECKING:
    from memwatch.outputs.terminal.live_view_terminal import LiveView


class Frontend:
    """The HTTP server, if any, and one of: JSON lines, plain lines, the live view."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        output: TextIO,
        *,
        allow_live_view: bool,
        watched_pid: int | None = None,
        is_within_line: Callable[[], bool] | None = None,
    ) -> None:
        """`output` is where plain lines or the live view go; ConfigError when the address to listen at is not free.

        With a `watched_pid` each line names it, as those of other watches stand between them. `is_within_line` is given
        where the trainer prints to the same place: it tells whether the trainer is within a line.
        """
        self._is_within_line = is_within_line
        self._remarks: list[str | None] = []
        self._watched_pid = watched_pid
        self.live_view: LiveView | None = None
        self._clock, self._output, self._allow_live_view = clock, output, allow_live_view
        self._listen = config.listen
        self.web = self._serve(config)
        self.lines = self._make_lines(config)

    def pop_remarks(self) -> list[str]:
        remarks, self._remarks = list(filter(None, self._remarks)), []
        return remarks

    @property
    def sinks(self) -> list[Sink]:
        return [self.lines] if self.web is None else [self.web, self.lines]

    def reconfigure(self, config: Config) -> None:
        """Apply another configuration, or raise ConfigError and change nothing. An unchanged address stays open."""
        previous = self.web
        if previous is not None and config.listen == self._listen:
            previous.access_policy = make_access_policy(config)
        else:
            self.web = self._serve(config)
            if previous is not None:
                previous.stop()
        self._listen, self.lines = config.listen, self._make_lines(config)

    def close(self) -> None:
        if self.web is not None:
            self.web.stop()

    def _make_lines(self, config: Config) -> Sink:
        if config.json:
            return JsonLines(sys.stdout, partial(to_json_line, pid=self._watched_pid))
        if self._allow_live_view and wants_live_view(self._output, os.environ):
            from memwatch.outputs.terminal.live_view_terminal import LiveView

            self.live_view = LiveView(self._output, self._clock, "" if self.web is None else self.web.url)
            return self.live_view
        priority = journal_priority if reaches_journal(self._output, os.environ) else None
        label = "" if self._watched_pid is None else f"[{self._watched_pid}] "
        label = label if self._is_within_line is None else "memwatch: "
        is_coloured = wants_live_view(self._output, os.environ) and not os.environ.get("NO_COLOR")
        return PlainLines(
            self._output,
            config.verbose,
            journal_priority=priority,
            label=label,
            is_coloured=is_coloured,
            is_within_line=self._is_within_line or (lambda: False),
        )

    def _serve(self, config: Config) -> WebServer | None:
        web, self._remarks = open_web_server(config, self._clock)
        if web is not None:
            web.start()
        return web


def open_web_server(
    config: Config, clock: Clock, site: Site | None = None
) -> tuple[WebServer | None, list[str | None]]:
    """Return a server that listens but has not started, and remarks on it; ConfigError when it cannot listen.

    There is no server if `listen` is none, or if another program has the default port.
    """
    address = config.listen_address
    if address is None:
        return None, []
    policy = make_access_policy(config)
    take_over_port(address[1])
    try:
        web = WebServer(*address, clock, policy, site=site)
    except ConfigError as error:
        if config.listen != Config().listen:
            raise
        return None, [f"nothing is served: {error}; choose a port with --listen"]
    return web, [f"metrics and status: {web.url}", exposure_warning(web)]


def make_access_policy(config: Config) -> AccessPolicyReloader:
    """Return who may use the HTTP server, by default anybody; ConfigError when the file of --web-config is unusable."""
    if config.web_config is None:
        return AccessPolicyReloader(AccessPolicy)
    from memwatch.config import web_config

    return AccessPolicyReloader(partial(web_config.load_web_config, Path(config.web_config)))


def exposure_warning(web: WebServer) -> str | None:
    """Return a warning when others can see this watch or its passwords."""
    if web.is_local:
        return None
    if not web.requirements & {PASSWORD, CERTIFICATE}:
        return (
            f"anybody who reaches {web.url} sees the trainer's command and memory: --web-config FILE keeps others out"
        )
    if TLS not in web.requirements:
        return f"passwords reach {web.url} in clear: tls_server_config in the file of --web-config encrypts them"
    return None


class Lifecycle(Protocol):
    """Decides when a watch ends and what follows it. A single watch and one of several differ only here."""

    linger_seconds: float  # the HTTP server still answers for so long after the exit, so that a late scrape sees it
    end_page_seconds: float  # and a process of its own for so long after that

    def should_stop(self) -> bool:
        """Whether the watch is to end although its trainer still runs."""

    def on_signal(self, number: int) -> None:
        """Called from a signal handler with each signal that memwatch gets."""

    def on_exit(self, end: Snapshot) -> Sequence[Event]:
        """Called once, when the trainer has ended; return events that are fed while the outputs are still open."""


class WatchPace(Protocol):
    """How often a watch samples, where it is one of many."""

    def next_interval(self) -> float:
        """Return the time until the next tick, in seconds."""

    def watches(self) -> int:
        """Return how many watches share it."""

    def with_peeks(
        self, sleep: Callable[[float], bool], peek: MemoryPeek, aim: Callable[[MemoryPeek], float | None]
    ) -> Callable[[float], bool]:
        """Return a sleep that ends early when memory has moved by much of the headroom, which `aim` returns (bytes)."""


class ExaminationBudget(Protocol):
    """CPU time for the examinations of several watches together."""

    def take(self, cpu_seconds: float) -> bool:
        """Take what an examination is expected to use; False, and nothing is taken, while there is none left."""

    def correct(self, cpu_seconds: float) -> None:
        """Note that it has used so much more than was expected; less where it is negative."""


@dataclass(frozen=True, slots=True)
class WatchSession:
    """What a watch is given; all of it outlives the watch."""

    config: Config
    clock: SystemClock
    engine: Engine  # a new one for each trainer; `memwatch run` keeps one for all trainers of the run
    output: TextIO  # where the summary is printed
    frontend: Frontend | None  # None: a brief watch, which stores, serves and sends nothing
    sources: tuple[EventSource, ...] = ()  # polled besides those of the watch
    sinks: tuple[Sink, ...] = ()  # published to besides the frontend's
    signals: Sequence[Signals] = STOP_SIGNALS  # passed to Lifecycle.on_signal
    prints_summary: bool = True
    is_typed: bool = False  # a person has given its options just now, and reads what is wrong with them
    sleep_slice_seconds: float = math.inf  # should_stop is asked at least this often, also within a long sleep
    make_sleeper: Callable[..., Sleeper] = Sleeper
    descriptors: tuple[int, ...] = ()  # that end a sleep when they become readable, besides those of the watch
    examination_budget: ExaminationBudget | None = None  # of several watches together, besides that of this one
    pace: WatchPace | None = None  # of a watch that shares its share of a core with others; None: a sample per interval

    @property
    def is_brief(self) -> bool:
        return self.frontend is None

    @property
    def web(self) -> WebServer | None:
        return None if self.frontend is None else self.frontend.web


def sleep_in_slices(
    sleep: Callable[[float], bool],
    seconds: float,
    *,
    slice_seconds: float,
    should_stop: Callable[[], bool],
    clock: Clock,
) -> bool:
    """Sleep, calling `should_stop` after each slice; return True when `sleep` ended early or the watch is to end."""
    if math.isinf(slice_seconds):
        return sleep(seconds)
    end_t = clock.now() + seconds
    while True:
        left = end_t - clock.now()
        if sleep(min(left, slice_seconds)) or should_stop():
            return True
        if left <= slice_seconds:
            return False


class StopOnSignal:
    """The lifecycle of a single watch: a signal ends it."""

    def __init__(self, linger_seconds: float, end_page_seconds: float = 0.0) -> None:
        self._stopped, self.linger_seconds, self.end_page_seconds = False, linger_seconds, end_page_seconds

    def should_stop(self) -> bool:
        return self._stopped

    def on_signal(self, number: int) -> None:
        self._stopped = True

    def on_exit(self, end: Snapshot) -> Sequence[Event]:
        return ()


class ForwardSignals(StopOnSignal):
    """The lifecycle of a watch of memwatch's own child: signals go to the child, whose end ends the watch."""

    def __init__(self, forward: Callable[[int], None], linger_seconds: float) -> None:
        super().__init__(linger_seconds)
        self._forward = forward

    def on_signal(self, number: int) -> None:
        self._forward(number)


@contextmanager
def open_session(config: Config, signals: Sequence[Signals] = STOP_SIGNALS) -> Iterator[WatchSession]:
    """Yield a session that prints to stdout, as lines or as the live view; ConfigError when its address is taken."""
    clock, engine = SystemClock(), EngineSettings.from_config(config).make_engine()
    with closing(Frontend(config, clock, sys.stdout, allow_live_view=True)) as frontend:
        yield WatchSession(config, clock, engine, sys.stdout, frontend, signals=signals, is_typed=True)
