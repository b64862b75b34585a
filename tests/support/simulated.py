"""All of the daemon on a real tree of processes, by a clock that a bench moves: days pass in minutes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from memwatch.app import make_readers
from memwatch.config import Config
from memwatch.core.engine import Engine
from memwatch.core.events import Attached, Event
from memwatch.core.policy import Policy
from memwatch.core.snapshot import Snapshot
from memwatch.daemon import Daemon
from memwatch.history.store import HistoryStore
from memwatch.interrupter import Interrupter
from memwatch.outputs.pages import metrics
from memwatch.outputs.plain import PlainLines
from memwatch.outputs.web import WebServer
from memwatch.sources.target import describe, identify

SCRAPE_TICKS = 60


class _Hand:
    t = 1_000_000_000.0

    def now(self) -> float:
        return self.t


class _Alive:
    """A trainer that never ends."""

    def gone(self) -> bool:
        return False

    def observe(self, event: Event) -> None: ...

    def ending(self, t: float, before: Snapshot) -> Sequence[Event]:
        raise AssertionError("it does not end")

    def send(self, name: str) -> None:
        raise AssertionError("a dry run")


@contextmanager
def ticks(pid: int, folder: Path) -> Iterator[Iterator[None]]:
    """Looks at the tree of `pid`, a second apart, with history, plain output, and a scrape each minute."""
    with ExitStack() as stack:
        facts, clock = describe(identify(pid)), _Hand()
        engine, readers = Engine(Policy()), make_readers(Config(), facts, stack)
        store, web = HistoryStore.open(folder / "history.db"), WebServer("127.0.0.1", 0, clock)
        stack.callback(store.close)
        stack.callback(web.stop)
        attached = Attached(clock.t, facts.target, facts.command)
        store.begin("bench", attached, clock.t)
        engine.feed(attached)
        daemon = Daemon(
            clock=clock,
            engine=engine,
            sampler=readers.sampler,
            trainer=_Alive(),
            interrupter=Interrupter(_Alive(), lambda: "SIGINT", dry_run=True),
            sinks=[web, PlainLines(stack.enter_context(open(os.devnull, "w")))],
            journal=store,
        )
        yield _passing(daemon, web, clock)


def _passing(daemon: Daemon, web: WebServer, clock: _Hand) -> Iterator[None]:
    while True:
        for _ in range(SCRAPE_TICKS):
            clock.t += 1.0
            daemon.tick()
            yield
        metrics(web.board)
