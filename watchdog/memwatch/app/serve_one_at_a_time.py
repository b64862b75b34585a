"""`memwatch serve` of one trainer: waits for it, watches it, waits for the next; reloads its configuration."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence

from memwatch.app.composition import TrainerWatch, check_extras, configured_presets, find_target
from memwatch.app.engine_settings import EngineSettings
from memwatch.app.watch_loop import FailureTracker
from memwatch.app.watch_session import Frontend, WatchSession, make_access_policy, sleep_in_slices
from memwatch.config.reload import FILE_CHECK_SECONDS, ReloadableConfig
from memwatch.config.settings import Config
from memwatch.core.engine import notices
from memwatch.core.events import Awaiting, Event, Notice
from memwatch.core.snapshot import Snapshot
from memwatch.errors import AttachError, ConfigError, ExitCode, NoTrainerError, SourceError, TargetGoneError
from memwatch.outputs.systemd_notify import SystemdNotifier
from memwatch.sources.log.log_choice import require_files
from memwatch.sources.target.find_process import OPTIONS
from memwatch.sources.target.process_table import preload_search
from memwatch.sources.target.target_facts import TargetFacts
from memwatch.system.clock import STOP_SIGNALS, Sleeper, SystemClock

MAX_SEARCH_CPU_SHARE = 0.02  # of a core, for the search for a trainer: a large /proc is searched more rarely


def check_config(config: Config) -> Config:
    """Return `config` if one trainer after the other can be watched with it; ConfigError otherwise."""
    if config.target.pid is not None:
        raise ConfigError("a PID does not come again", "name the trainer by --pidfile, --match, --unit or --cgroup")
    if not config.target.is_named:
        raise ConfigError("no trainer is named", f"give one of {OPTIONS}, or a key of target in the file of --config")
    require_files(config.log.paths)
    configured_presets(config)
    make_access_policy(config)
    check_extras(config)
    return config


class Service:
    """Runs one watch after the other, and is the lifecycle of each of them."""

    linger_seconds = end_page_seconds = 0.0  # the HTTP server stays open in any case

    def __init__(
        self,
        live: ReloadableConfig,
        systemd: SystemdNotifier,
        clock: SystemClock | None = None,
        make_sleeper: Callable[..., Sleeper] = Sleeper,
    ) -> None:
        """Listen; ConfigError when the address is not free."""
        self._live, self._systemd, self._config = live, systemd, live.config
        self._clock, self._make_sleeper = clock or SystemClock(), make_sleeper
        self._frontend = Frontend(self._config, self._clock, sys.stdout, allow_live_view=False)
        self._engine = EngineSettings.from_config(self._config).make_engine()  # of the latest watch
        self._failures = FailureTracker()
        self._surviving_processes = frozenset[tuple[int, int]]()
        self._slice_seconds = min(systemd.ping_seconds, FILE_CHECK_SECONDS)
        self._stopped = False

    def close(self) -> None:
        self._frontend.close()

    def serve(self) -> int:
        """Serve until a signal ends it, and return the exit code."""
        with Sleeper((), STOP_SIGNALS, self.on_signal):  # signals between two watches are handled, too
            if self._config.target.pidfile is None:
                preload_search()  # its CPU time would make the pause after the first search long: MAX_SEARCH_CPU_SHARE
            self._note(*self._frontend.pop_remarks())
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
        """Whether a signal or a changed configuration ends the watch.

        This is called often, also within long waits, so systemd's watchdog is pinged and the file is checked here.
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
        if number == signal.SIGHUP:
            self._live.request_reload()
        else:
            self._stopped = True

    def on_exit(self, end: Snapshot) -> Sequence[Event]:
        return ()

    # --- one watch after the other ---

    def _wait(self) -> TargetFacts | None:
        """Return the trainer once it is there; None when the service is to stop or to adopt a configuration."""
        due_t, web = self._clock.now(), self._frontend.web
        with self._make_sleeper([] if web is None else [web.fileno()], STOP_SIGNALS, self.on_signal) as sleeper:
            while not self.should_stop():
                events: Iterable[Event] = ()
                if self._clock.now() >= due_t:
                    before = _cpu_seconds()
                    try:
                        return find_target(self._config, self._surviving_processes)
                    except (AttachError, SourceError) as error:
                        events = list(self._not_found(error))
                    search_seconds = (_cpu_seconds() - before) / MAX_SEARCH_CPU_SHARE
                    due_t = self._clock.now() + max(self._config.daemon.wait_seconds, search_seconds)
                self._feed([*self._failures.poll(self._clock.now(), (self._live,)), *events])
                sleep_in_slices(
                    sleeper.sleep,
                    min(due_t - self._clock.now(), FILE_CHECK_SECONDS),
                    slice_seconds=self._slice_seconds,
                    should_stop=self.should_stop,
                    clock=self._clock,
                )
        return None

    def _not_found(self, error: Exception) -> Iterable[Event]:
        """Yield events for a failed search: an absent trainer is normal, all else a failure of the source `target`."""
        now, reason = self._clock.now(), str(error).partition("\n")[0].rstrip(":")
        is_normal = isinstance(error, (NoTrainerError, TargetGoneError))
        yield from self._failures.update(now, "target", None if is_normal else reason)
        yield Awaiting(now, reason)

    def _watch(self, facts: TargetFacts) -> None:
        session = WatchSession(
            self._config,
            self._clock,
            EngineSettings.from_config(self._config).make_engine(),
            sys.stdout,
            self._frontend,
            sources=(self._live,),
            sinks=(self._systemd,),
            prints_summary=False,  # the journal has the end already
            sleep_slice_seconds=self._slice_seconds,
            make_sleeper=self._make_sleeper,
        )
        try:
            with TrainerWatch(session, self, facts) as watch:
                self._engine = session.engine  # replaces the previous one now: two engines of long runs take some MiB
                _free_previous_watch()
                watch.run()
        except (AttachError, ConfigError) as error:  # the trainer has just ended, or a preset file was broken meanwhile
            self._feed(self._not_found(error))
        else:
            self._surviving_processes = watch.surviving_processes

    def _feed(self, events: Iterable[Event]) -> None:
        """Feed the engine and publish its notices, as a watch would."""
        self._publish([notice for event in events for notice in self._engine.feed(event) if isinstance(notice, Notice)])

    def _publish(self, new: Sequence[Notice]) -> None:
        sinks = (*self._frontend.sinks, self._systemd)
        wanted = [sink.on_loop_iteration() for sink in sinks]  # a list: each sink has to be called
        if new or any(wanted):
            for sink in sinks:
                sink.publish(self._engine.snapshot(), new)

    def _note(self, *remarks: str) -> None:
        for remark in remarks:
            self._publish([notices.note(self._clock.now(), remark)])

    def _adopt_config(self) -> None:
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
            self._note("the configuration was read again, and is in force", *self._frontend.pop_remarks())
        self._systemd.ready()


def _free_previous_watch() -> None:
    """Free the memory of the previous watch before the next one takes its own."""
    gc.unfreeze()
    gc.collect()


def _cpu_seconds() -> float:
    """Return the CPU time of memwatch and of its children that have ended, such as systemctl."""
    return sum(os.times()[:4])
