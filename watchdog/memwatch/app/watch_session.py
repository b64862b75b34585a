"""What a watch belongs to: what outlives it when others follow, who may end it, what comes after its trainer's end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from signal import Signals
from typing import TextIO

from memwatch.app.launched_trainer import FORWARDED
from memwatch.app.zz_front import Front
from memwatch.app.zz_judge import Settings
from memwatch.config.settings import Config
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Event
from memwatch.core.interfaces import EventSource, Sink
from memwatch.core.snapshot import Snapshot
from memwatch.outputs.http.server import WebServer
from memwatch.outputs.text.exit_summary import render
from memwatch.system.clock import STOPPING, Sleeper, SystemClock


class Station:
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
        self.people = people or sys.stdout
        self.once = once
        self.front = None if once else Front(config, self.clock, self.people, may_draw=may_draw)
        self._forward, self._stopped = forward, False

    def close(self) -> None:
        """Nothing is served any more."""
        if self.front is not None:
            self.front.close()

    def engine(self) -> Engine:
        """That of the next watch."""
        return Settings.of(self.config).engine()

    # --- during a watch ---

    def begins(self, engine: Engine) -> None:
        """Nothing hinders the watch of this engine any more: the one before may go."""

    @property
    def sinks(self) -> Sequence[Sink]:
        """Outputs that outlive it."""
        return () if self.front is None else self.front.sinks

    @property
    def sources(self) -> Sequence[EventSource]:
        """What is to be polled besides its own."""
        return ()

    @property
    def signals(self) -> Sequence[Signals]:
        """What `heard` is to be told of."""
        return STOPPING if self._forward is None else FORWARDED

    def fileno(self) -> int | None:
        """Readable when somebody has asked for the state."""
        return None if self._web is None else self._web.fileno()

    def heard(self, number: int) -> None:
        """A signal has come."""
        if self._forward is None:
            self._stopped = True
        else:
            self._forward(number)

    def leaves(self) -> bool:
        """The watch is to end, though its trainer runs on."""
        return self._stopped

    def sleep(self, sleep: Callable[[float], bool], seconds: float) -> bool:
        """`sleep` so long; whether it was ended early."""
        return sleep(seconds)

    @property
    def _web(self) -> WebServer | None:
        return None if self.front is None else self.front.web

    # --- after it ---

    def sequel(self, end: Snapshot) -> Sequence[Event]:
        """What the trainer's end leads to."""
        return ()

    def conclude(self, end: Snapshot) -> None:
        """Tell people how it ended."""
        if not self.config.json:
            with suppress(OSError):  # its reader or its terminal is gone; the exit code still tells
                print(render(end), file=self.people, flush=True)

    def rest(self, sleeper: Sleeper) -> None:
        """The trainer has ended: for a while, who asks now and then learns how."""
        if self._web is not None:
            sleeper.rest(self.config.daemon.linger_seconds)
