"""`memwatch serve`: waits for its trainer, watches it to its end, waits for the next; its configuration may change."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterable, Sequence

from memwatch.app import composition
from memwatch.app.watch_loop import FailureTracker
from memwatch.app.watch_session import WatchSession
from memwatch.config.reload import FILE_CHECK_SECONDS, ReloadableConfig
from memwatch.core.engine import notices as news
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Awaiting, Event, Notice
from memwatch.core.interfaces import EventSource, Sink
from memwatch.core.snapshot import Snapshot
from memwatch.errors import AttachError, ConfigError, ExitCode, NoTrainerError, SourceError, TargetGoneError
from memwatch.outputs.sd_notify import SystemdNotifier
from memwatch.sources.target.process_identity import TargetFacts
from memwatch.system.clock import Sleeper, SystemClock

MAX_SEARCH_CPU_SHARE = 0.02  # of a core, spent on looking for a trainer


class Service(WatchSession):
    """One watch after the other, and what they have in common."""

    def __init__(self, live: ReloadableConfig, systemd: SystemdNotifier, clock: SystemClock | None = None) -> None:
        """ConfigError when a place to listen at is not free."""
        super().__init__(live.config, may_draw=False, clock=clock)
        self._live, self._systemd = live, systemd
        self._latest = self.engine()
        self._health = FailureTracker()
        self._left_behind = frozenset[tuple[int, int]]()

    def serve(self) -> int:
        """Serve until a signal ends it; the exit code."""
        with Sleeper((), self.signals, self.on_signal):  # between two watches, too, a signal is heard
            self._report_frontend_remarks()
            self._systemd.ready()
            while not self._stopped:
                self._adopt()
                facts = self._wait()
                if facts is not None:
                    self._watch(facts)
                    _give_back()
            self._systemd.stopping()
        return ExitCode.ENDED

    # --- as a station ---

    @property
    def sinks(self) -> Sequence[Sink]:
        """Systemd is told, too."""
        return (*super().sinks, self._systemd)

    @property
    def sources(self) -> Sequence[EventSource]:
        """The configuration: it fails while it cannot be read."""
        return (self._live,)

    def on_watch_ready(self, engine: Engine) -> None:
        """It is what is shown from here on. Two at a time, of long runs, would take some MiB."""
        self._latest = engine
        _give_back()

    def on_signal(self, number: int) -> None:
        """SIGHUP: the configuration is read again; any other ends it."""
        if number == signal.SIGHUP:
            self._live.request_reload()
        else:
            self._stopped = True

    def should_stop(self) -> bool:
        """Told to stop, or to go on in another way.

        Whatever takes long asks this meanwhile: systemd gets a sign of life, and the configuration a look.
        """
        self._systemd.ping()
        live = self._live
        if live.should_reload(self.clock.now()):
            self._systemd.reloading()
            if live.reload() and live.pending is None:
                self._note("the configuration was read again: nothing has changed")
            if live.pending is None:
                self._systemd.ready()
        return self._stopped or live.pending is not None

    def sleep(self, sleep: Callable[[float], bool], seconds: float) -> bool:
        """In parts, so that `leaves` is asked often enough."""
        end = self.clock.now() + seconds
        most = min(self._systemd.ping_seconds, FILE_CHECK_SECONDS)
        while True:
            left = end - self.clock.now()
            if sleep(min(left, most)) or self.should_stop():
                return True
            if left <= most:
                return False

    def print_summary(self, end: Snapshot) -> None:
        """The journal has it."""

    def linger(self, sleeper: Sleeper) -> None:
        """The state at the end is served until the next trainer is there."""

    # --- one after the other ---

    def _wait(self) -> TargetFacts | None:
        """The trainer, once it is there; None when something else is to be done first."""
        due_t, web = self.clock.now(), self.fileno()
        with Sleeper([] if web is None else [web], self.signals, self.on_signal) as sleeper:
            while not self.should_stop():
                events: list[Event] = []
                if self.clock.now() >= due_t:
                    before = _cpu_seconds()
                    facts = self._find(events)
                    if facts is not None:
                        return facts
                    took = _cpu_seconds() - before
                    due_t = self.clock.now() + max(self.config.daemon.wait_seconds, took / MAX_SEARCH_CPU_SHARE)
                self._turn([*self._health_of_config(), *events])
                self.sleep(sleeper.sleep, min(due_t - self.clock.now(), FILE_CHECK_SECONDS))
        return None

    def _find(self, events: list[Event]) -> TargetFacts | None:
        """The trainer; else `events` say why there is none."""
        try:
            return composition.find_target(self.config, self._left_behind)
        except (AttachError, SourceError) as error:
            events += self._unfound(error)
        return None

    def _unfound(self, error: Exception) -> Iterable[Event]:
        """That there is none yet is how it should be; anything else is a failure."""
        now, reason = self.clock.now(), str(error).partition("\n")[0].rstrip(":")
        is_none = isinstance(error, (NoTrainerError, TargetGoneError))
        yield from self._health.update(now, "target", None if is_none else reason)
        yield Awaiting(now, reason)

    def _watch(self, facts: TargetFacts) -> None:
        watch = composition.TrainerWatch(self, facts)
        try:
            watch.run()
        except (AttachError, ConfigError) as error:  # it has just ended; a preset was broken meanwhile
            self._turn(self._unfound(error))
        else:
            self._left_behind = watch.surviving_processes

    def _health_of_config(self) -> Iterable[Event]:
        now, live = self.clock.now(), self._live
        try:
            live.poll(now)
        except SourceError as error:
            return self._health.update(now, live.name, str(error))
        return self._health.update(now, live.name, None)

    def _turn(self, events: Iterable[Event]) -> None:
        """Show what has changed while no watch does."""
        self._publish([said for event in events for said in self._latest.feed(event) if isinstance(said, Notice)])

    def _publish(self, notices: Sequence[Notice]) -> None:
        wanted = [sink.on_loop_iteration() for sink in self.sinks]  # each is told
        if notices or any(wanted):
            for sink in self.sinks:
                sink.publish(self._latest.snapshot(), notices)

    def _report_frontend_remarks(self) -> None:
        for remark in self.frontend.pop_remarks() if self.frontend is not None else ():
            self._note(remark)

    def _note(self, remark: str) -> None:
        self._publish([news.note(self.clock.now(), remark)])

    # --- another configuration ---

    def _adopt(self) -> None:
        """What has changed is in force from here on."""
        live, fresh = self._live, self._live.pending
        if fresh is None:
            return
        try:
            if self.frontend is not None:
                self.frontend.reconfigure(fresh)
        except ConfigError as error:
            live.reject_pending(error)
        else:
            live.apply_pending()
            self.config = live.config
            self._note("the configuration was read again, and is in force")
            self._report_frontend_remarks()
        self._systemd.ready()


def _give_back() -> None:
    """What a watch has left is free from here on, and takes no room beside the next one."""
    gc.unfreeze()
    gc.collect()


def _cpu_seconds() -> float:
    """That memwatch and its children that have ended took: systemctl is one."""
    return sum(os.times()[:4])
