"""`memwatch serve`: waits for its trainer, watches it to its end, waits for the next; its configuration may change."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence

from memwatch import app
from memwatch.clock import STOPPING, Sleeper, SystemClock
from memwatch.core import news
from memwatch.core.engine import Engine
from memwatch.core.model import Awaiting, Event, Notice
from memwatch.errors import AttachError, ConfigError, ExitCode, NoTrainerError, SourceError, TargetGoneError
from memwatch.front import Front
from memwatch.health import Health
from memwatch.interfaces import EventSource, Sink
from memwatch.live_config import LOOK_SECONDS, LiveConfig
from memwatch.outputs.systemd import Systemd
from memwatch.sources.target import TargetFacts

MOST_SHARE = 0.02  # of a core, spent on looking for a trainer


class Service:
    """One watch after the other. It is what they have in common (app.Station)."""

    def __init__(self, settings: LiveConfig, systemd: Systemd) -> None:
        """ConfigError when a place to listen at is not free."""
        self._settings, self._systemd = settings, systemd
        self._clock = SystemClock()
        self._front = Front(settings.config, self._clock, sys.stdout, may_draw=False)
        self._engine = Engine(settings.config.policy)  # of the latest watch
        self._health = Health()
        self._left_behind = frozenset[tuple[int, int]]()
        self._stopped = False

    def run(self) -> int:
        """Serve until a signal ends it; the exit code."""
        try:
            with Sleeper((), STOPPING, self.heard):  # between two watches, too, a signal is heard
                self._tell_remarks()
                self._systemd.ready()
                while not self._stopped:
                    self._adopt()
                    facts = self._wait()
                    if facts is not None:
                        self._watch(facts)
                self._systemd.stopping()
        finally:
            self._front.close()
        return ExitCode.ENDED

    # --- what the watches have in common ---

    @property
    def sinks(self) -> Sequence[Sink]:
        """As app.Station."""
        return (*self._front.sinks, self._systemd)

    @property
    def sources(self) -> Sequence[EventSource]:
        """As app.Station."""
        return (self._settings,)

    def fileno(self) -> int | None:
        """As app.Station."""
        return None if self._front.web is None else self._front.web.fileno()

    def heard(self, number: int) -> None:
        """SIGHUP: the configuration is read again; any other ends it."""
        if number == signal.SIGHUP:
            self._settings.ask()
        else:
            self._stopped = True

    def leaves(self) -> bool:
        """As app.Station; this is where the configuration is read again."""
        settings = self._settings
        if settings.is_due(self._clock.now()):
            self._systemd.reloading()
            if settings.read() and settings.fresh is None:
                self._note("the configuration was read again: nothing has changed")
            if settings.fresh is None:
                self._systemd.ready()
        return self._stopped or settings.fresh is not None

    def sleeping(self, sleep: Callable[[float], bool], seconds: float) -> bool:
        """As app.Station: systemd gets its signs of life, and the configuration a look."""
        end = self._clock.now() + seconds
        most = min(self._systemd.ping_seconds, LOOK_SECONDS)
        while True:
            self._systemd.ping()
            left = end - self._clock.now()
            if sleep(min(left, most)) or self.leaves():
                return True
            if left <= most:
                return False

    # --- one after the other ---

    def _wait(self) -> TargetFacts | None:
        """The trainer, once it is there; None when something else is to be done first."""
        due_t, web = self._clock.now(), self.fileno()
        with Sleeper([] if web is None else [web], STOPPING, self.heard) as sleeper:
            while not self.leaves():
                events: list[Event] = []
                if self._clock.now() >= due_t:
                    before = _cpu_seconds()
                    facts = self._find(events)
                    if facts is not None:
                        return facts
                    took = _cpu_seconds() - before
                    due_t = self._clock.now() + max(self._settings.config.daemon.wait_seconds, took / MOST_SHARE)
                self._turn([*self._health_of_settings(), *events])
                self.sleeping(sleeper.sleep, min(due_t - self._clock.now(), LOOK_SECONDS))
        return None

    def _find(self, events: list[Event]) -> TargetFacts | None:
        """The trainer; else `events` say why there is none."""
        try:
            return app.find_target(self._settings.config, self._left_behind)
        except (AttachError, SourceError) as error:
            events += self._unfound(error)
        return None

    def _unfound(self, error: Exception) -> Iterable[Event]:
        """That there is none yet is how it should be; anything else is a failure."""
        now, reason = self._clock.now(), str(error).partition("\n")[0].rstrip(":")
        is_none = isinstance(error, (NoTrainerError, TargetGoneError))
        yield from self._health.told(now, "target", None if is_none else reason)
        yield Awaiting(now, reason)

    def _watch(self, facts: TargetFacts) -> None:
        watch = app.Watch(self._settings.config, facts, station=self)
        before, self._engine = self._engine, watch.engine
        try:
            watch.run()
        except (AttachError, ConfigError) as error:  # it has just ended; a preset was broken meanwhile
            self._engine = before
            self._turn(self._unfound(error))
        else:
            self._left_behind = watch.left_behind

    def _health_of_settings(self) -> Iterable[Event]:
        now, settings = self._clock.now(), self._settings
        try:
            settings.poll(now)
        except SourceError as error:
            return self._health.told(now, settings.name, str(error))
        return self._health.told(now, settings.name, None)

    def _turn(self, events: Iterable[Event]) -> None:
        """Show what has changed while no watch does."""
        self._tell([said for event in events for said in self._engine.feed(event) if isinstance(said, Notice)])

    def _tell(self, notices: Sequence[Notice]) -> None:
        wanted = [sink.turn() for sink in self.sinks]  # each is told
        if notices or any(wanted):
            for sink in self.sinks:
                sink.publish(self._engine.snapshot(), notices)

    def _tell_remarks(self) -> None:
        for remark in filter(None, self._front.remarks):
            self._note(remark)

    def _note(self, remark: str) -> None:
        self._tell([news.note(self._clock.now(), remark)])

    # --- another configuration ---

    def _adopt(self) -> None:
        """What has changed is in force from here on."""
        settings = self._settings
        fresh, old = settings.fresh, settings.config
        if fresh is None:
            return
        try:
            self._front.adopt(fresh)
        except ConfigError as error:
            settings.refuse(error)
        else:
            settings.adopt()
            self._note("the configuration was read again, and is in force")
            if fresh.listen != old.listen:
                self._tell_remarks()
        self._systemd.ready()


def _cpu_seconds() -> float:
    """That memwatch and its children that have ended took: systemctl is one."""
    return sum(os.times()[:4])
