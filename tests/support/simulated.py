"""All of the daemon on a real tree of processes, by a clock that a bench moves: days pass in minutes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from memwatch.app.composition import make_readers
from memwatch.app.interrupter import Interrupter
from memwatch.app.watch_loop import WatchLoop
from memwatch.config.settings import Config
from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Attached, Event
from memwatch.core.snapshot import Snapshot
from memwatch.history.event_store import HistoryStore
from memwatch.outputs.http.routes import metrics
from memwatch.outputs.http.server import WebServer
from memwatch.outputs.terminal.plain_and_json_lines import PlainLines
from memwatch.sources.target.target_facts import identify, read_target_facts

SCRAPE_TICKS = 60


class _Hand:
    t = 1_000_000_000.0

    def now(self) -> float:
        return self.t


class _Alive:
    """A trainer that never ends."""

    def has_exited(self) -> bool:
        return False

    def observe_event(self, event: Event) -> None: ...

    def collect_exit_events(self, t: float, before: Snapshot) -> Sequence[Event]:
        raise AssertionError("it does not end")

    def send_signal(self, name: str) -> None:
        raise AssertionError("a dry run")


@contextmanager
def ticks(pid: int, folder: Path) -> Iterator[Iterator[None]]:
    """Looks at the tree of `pid`, a second apart, with history, plain output, and a scrape each minute."""
    with ExitStack() as stack:
        facts, clock = read_target_facts(identify(pid)), _Hand()
        engine, readers = Engine(Policy()), make_readers(Config(), facts, stack)
        store, web = HistoryStore.open(folder / "history.db"), WebServer("127.0.0.1", 0, clock)
        stack.callback(store.close)
        stack.callback(web.stop)
        attached = Attached(clock.t, facts.target, facts.command)
        store.open_run("bench", attached, clock.t)
        engine.feed(attached)
        daemon = WatchLoop(
            clock=clock,
            engine=engine,
            read_sample=readers.sampler.sample,
            trainer=_Alive(),
            interrupter=Interrupter(_Alive(), lambda: "SIGINT", dry_run=True),
            sinks=[web, PlainLines(stack.enter_context(open(os.devnull, "w")))],
            recorder=store,
        )
        yield _passing(daemon, web, clock)


def _passing(daemon: WatchLoop, web: WebServer, clock: _Hand) -> Iterator[None]:
    while True:
        for _ in range(SCRAPE_TICKS):
            clock.t += 1.0
            daemon.tick()
            yield
        metrics(web.published)
