"""`memwatch serve`: waits for its trainer, watches it to its end, waits for the next; its configuration may change."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence

from memwatch.app import composition
from memwatch.app.engine_settings import EngineSettings
from memwatch.app.watch_loop import FailureTracker
from memwatch.app.watch_session import AfterExit, Frontend, WatchSession, sleep_in_slices
from memwatch.config.reload import FILE_CHECK_SECONDS, ReloadableConfig
from memwatch.core.engine import notices
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Awaiting, Event, Notice
from memwatch.core.snapshot import Snapshot
from memwatch.errors import AttachError, ConfigError, ExitCode, NoTrainerError, SourceError, TargetGoneError
from memwatch.outputs.sd_notify import SystemdNotifier
from memwatch.sources.target.process_identity import TargetFacts
from memwatch.system.clock import STOP_SIGNALS, Sleeper, SystemClock

MAX_SEARCH_CPU_SHARE = 0.02  # of a core, spent on looking for a trainer


class Service:
    """One watch after the other, and what they have in common; the lifecycle of each watch."""

    def __init__(
        self,
        live: ReloadableConfig,
        systemd: SystemdNotifier,
        clock: SystemClock | None = None,
        make_sleeper: Callable[..., Sleeper] = Sleeper,
    ) -> None:
        """ConfigError when an address to listen at is not free."""
        self._live, self._systemd, self._config = live, systemd, live.config
        self._clock, self._make_sleeper = clock or SystemClock(), make_sleeper
        self._frontend = Frontend(self._config, self._clock, sys.stdout, may_draw=False)
        self._engine = self._new_engine()  # of the latest watch
        self._failures = FailureTracker()
        self._surviving_processes = frozenset[tuple[int, int]]()
        self._slice_seconds = min(systemd.ping_seconds, FILE_CHECK_SECONDS)
        self._stopped = False

    def close(self) -> None:
        self._frontend.close()

    def serve(self) -> int:
        """Serve until a signal ends it; the exit code."""
        with Sleeper((), STOP_SIGNALS, self.on_signal):  # between two watches, too, a signal is handled
            self._report_frontend_remarks()
            self._systemd.ready()
            while not self._stopped:
                self._adopt_config()
                facts = self._wait()
                if facts is not None:
                    self._watch(facts)
                    _free_previous_watch()
            self._systemd.stopping()
        return ExitCode.ENDED

    # --- the lifecycle of a watch ---

    def should_stop(self) -> bool:
        """True when a signal or a changed configuration ends the watch.

        Asked often, also within long waits: systemd gets its watchdog ping here, and the configuration is checked.
        """
        self._systemd.ping()
        live = self._live
        if live.should_reload(self._clock.now()):
            self._systemd.reloading()
            if live.reload() and live.pending is None:
                self._note("the configuration was read again: nothing has changed")
            if live.pending is None:
                self._systemd.ready()
        return self._stopped or live.pending is not None

    def on_signal(self, number: int) -> None:
        """SIGHUP: the configuration is read again; any other signal ends the service."""
        if number == signal.SIGHUP:
            self._live.request_reload()
        else:
            self._stopped = True

    def on_exit(self, end: Snapshot) -> AfterExit:
        """The state at the end is served until the next trainer is there."""
        return AfterExit()

    def _new_engine(self) -> Engine:
        return EngineSettings.from_config(self._config).make_engine()

    def _session(self) -> WatchSession:
        return WatchSession(
            self._config,
            self._clock,
            self._new_engine(),
            sys.stdout,
            self._frontend,
            sources=(self._live,),
            sinks=(self._systemd,),
            prints_summary=False,  # the journal has it
            sleep_slice_seconds=self._slice_seconds,
            make_sleeper=self._make_sleeper,
        )

    # --- one after the other ---

    def _wait(self) -> TargetFacts | None:
        """The trainer, once it is there; None when something else is to be done first."""
        due_t, web = self._clock.now(), self._frontend.web
        with self._make_sleeper([] if web is None else [web.fileno()], STOP_SIGNALS, self.on_signal) as sleeper:
            while not self.should_stop():
                events: list[Event] = []
                if self._clock.now() >= due_t:
                    before = _cpu_seconds()
                    facts = self._find(events)
                    if facts is not None:
                        return facts
                    took = _cpu_seconds() - before
                    due_t = self._clock.now() + max(self._config.daemon.wait_seconds, took / MAX_SEARCH_CPU_SHARE)
                self._show([*self._health_of_config(), *events])
                sleep_in_slices(
                    sleeper.sleep,
                    min(due_t - self._clock.now(), FILE_CHECK_SECONDS),
                    slice_seconds=self._slice_seconds,
                    should_stop=self.should_stop,
                    clock=self._clock,
                )
        return None

    def _find(self, events: list[Event]) -> TargetFacts | None:
        """The trainer; else `events` say why there is none."""
        try:
            return composition.find_target(self._config, self._surviving_processes)
        except (AttachError, SourceError) as error:
            events += self._unfound(error)
        return None

    def _unfound(self, error: Exception) -> Iterable[Event]:
        """That there is none yet is how it should be; anything else is a failure."""
        now, reason = self._clock.now(), str(error).partition("\n")[0].rstrip(":")
        is_none = isinstance(error, (NoTrainerError, TargetGoneError))
        yield from self._failures.update(now, "target", None if is_none else reason)
        yield Awaiting(now, reason)

    def _watch(self, facts: TargetFacts) -> None:
        session = self._session()
        try:
            with composition.TrainerWatch(session, self, facts) as watching:
                self._engine = session.engine  # from here on it is shown: two engines of long runs would take some MiB
                _free_previous_watch()
                watching.run()
        except (AttachError, ConfigError) as error:  # the trainer has just ended; a preset was broken meanwhile
            self._show(self._unfound(error))
        else:
            self._surviving_processes = watching.surviving_processes

    def _health_of_config(self) -> Iterable[Event]:
        now, live = self._clock.now(), self._live
        try:
            live.poll(now)
        except SourceError as error:
            return self._failures.update(now, live.name, str(error))
        return self._failures.update(now, live.name, None)

    def _show(self, events: Iterable[Event]) -> None:
        """Publish what has changed while no watch does."""
        self._publish([notice for event in events for notice in self._engine.feed(event) if isinstance(notice, Notice)])

    def _publish(self, new_notices: Sequence[Notice]) -> None:
        sinks = (*self._frontend.sinks, self._systemd)
        wanted = [sink.on_loop_iteration() for sink in sinks]  # each is asked
        if new_notices or any(wanted):
            for sink in sinks:
                sink.publish(self._engine.snapshot(), new_notices)

    def _report_frontend_remarks(self) -> None:
        for remark in self._frontend.pop_remarks():
            self._note(remark)

    def _note(self, remark: str) -> None:
        self._publish([notices.note(self._clock.now(), remark)])

    # --- another configuration ---

    def _adopt_config(self) -> None:
        """Put a changed configuration in force."""
        live, pending = self._live, self._live.pending
        if pending is None:
            return
        try:
            self._frontend.reconfigure(pending)
        except ConfigError as error:
            live.reject_pending(error)
        else:
            live.apply_pending()
            self._config = live.config
            self._note("the configuration was read again, and is in force")
            self._report_frontend_remarks()
        self._systemd.ready()


def _free_previous_watch() -> None:
    """What a watch has left is free from here on, and takes no room beside the next one."""
    gc.unfreeze()
    gc.collect()


def _cpu_seconds() -> float:
    """That memwatch and its children that have ended took: systemctl is one."""
    return sum(os.times()[:4])
