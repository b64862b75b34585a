"""The supervisor of `memwatch serve` with rules: finds the trainers of the node, and keeps a watcher running for each.

It reads no log, no memory and no heap of theirs: what is hostile or hangs does so in a watcher.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from memwatch.app.composition import check_extras, configured_presets
from memwatch.app.engine_settings import EngineSettings
from memwatch.app.node.pace import MAX_INTERVAL_SECONDS, NodeBoard
from memwatch.app.node.watcher_process import WatcherSetup, reset_after_fork, start_watcher
from memwatch.app.watch_session import Frontend, make_access_policy, open_web_server
from memwatch.config.reload import FILE_CHECK_SECONDS, ReloadableConfig
from memwatch.config.settings import NONE, Config
from memwatch.core.engine import notices
from memwatch.core.measurements import Target
from memwatch.errors import AttachError, ConfigError, ExitCode, SourceError
from memwatch.outputs.http.server import WebServer
from memwatch.outputs.node.node_site import NodeSite
from memwatch.outputs.node.state_channel import StateReceiver
from memwatch.outputs.systemd_notify import SystemdNotifier
from memwatch.sources.log.marker_parser import MarkerFinder
from memwatch.sources.target.find_trainers import FoundTrainer, TrainerFinder
from memwatch.sources.target.process_table import preload_search
from memwatch.system.clock import STOP_SIGNALS, Sleeper, SystemClock

SIGNALS = (*STOP_SIGNALS, signal.SIGCHLD)
MAX_SEARCH_CPU_SHARE = 0.005  # of a core: on a node with many processes they are searched more rarely (chosen)
HUNG_SECONDS = 60.0 + 3 * MAX_INTERVAL_SECONDS  # without an iteration, after which a watcher is replaced (chosen)
WEB_RETRY_SECONDS = 2.0  # between two starts of the process that answers HTTP (chosen)
MAX_RETRY_SECONDS = 300.0  # between two starts of a watcher that fails each time (chosen)
STOP_SECONDS = 3.0  # for the watchers to end, before they are killed: systemd allows 5 (chosen)


def check_node_config(config: Config) -> Config:
    """Return `config` if the trainers of a node can be watched with it; ConfigError otherwise."""
    if config.target.is_named:
        raise ConfigError("a trainer is named, besides the rules of node.trainers", "keep one of the two")
    if config.log.paths:
        raise ConfigError("one log cannot be that of all trainers", "leave --log out: each trainer's own is found")
    configured_presets(config)
    make_access_policy(config)
    check_extras(config)
    return config


@dataclass(slots=True)
class _Watcher:
    """A watcher process, or the failure of one."""

    found: FoundTrainer
    pid: int
    slot: int
    failures: int = 0  # in a row
    retry_t: float = 0.0  # when it is started again, as time.monotonic()
    started_t: float = field(default_factory=time.monotonic)


class NodeService:
    """Watches all trainers of this node until a signal stops it."""

    def __init__(self, live: ReloadableConfig, systemd: SystemdNotifier) -> None:
        """Listen; ConfigError when the address is not free."""
        self._live, self._systemd, self._config = live, systemd, live.config
        self._clock = SystemClock()
        self._watchers: dict[Target, _Watcher] = {}
        self._web_pid, self._web_retry_t = 0, 0.0
        self._problem = ""  # of the latest search
        self._stopped = False
        self._alive = os.pipe2(os.O_CLOEXEC)  # its writing end is the supervisor's alone: its end is seen by all
        self._open()

    def _open(self) -> None:
        """Open all that depends on the configuration."""
        config = self._config
        self._board = NodeBoard(config.node.most_trainers, config.node.cpu_share)
        self._board.beat()
        self._finder = TrainerFinder(config.node.trainers)
        ended_seconds = config.daemon.end_page_seconds
        site = NodeSite(self._clock, config.node.labels, ended_seconds, self._board.last_beat)
        self._web, remarks = open_web_server(config, self._clock, site)
        self._site = site
        self._states = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._states.bind("")  # a name that the kernel chooses, and that leaves no file: unix(7), autobind
        self._states.listen(min(config.node.most_trainers, socket.SOMAXCONN))
        unserved = replace(config, listen=NONE)
        self._lines = Frontend(unserved, self._clock, sys.stdout, allow_live_view=False).lines
        self._no_watch = EngineSettings.from_config(config).make_engine().snapshot()  # lines are published with a state
        self._note(*filter(None, remarks))

    def serve(self) -> int:
        """Serve until a signal ends it, and return the exit code."""
        preload_search()
        MarkerFinder(configured_presets(self._config))  # what it compiles is kept, and shared by the forks
        gc.collect()
        gc.freeze()  # forks share what they do not write to: a collection would write to each object
        search_t = 0.0
        with Sleeper((), SIGNALS, self._on_signal) as sleeper:
            self._start_web()
            self._systemd.ready()  # it listens: who asks before the process runs waits a moment
            while not self._stopped:
                self._board.beat()
                self._systemd.ping()
                self._reap()
                self._start_web()
                self._reload()
                if time.monotonic() >= search_t:
                    before = time.process_time()
                    self._search()
                    search_seconds = (time.process_time() - before) / MAX_SEARCH_CPU_SHARE
                    search_t = time.monotonic() + max(self._config.daemon.wait_seconds, search_seconds)
                wait = min(search_t - time.monotonic(), FILE_CHECK_SECONDS, self._systemd.ping_seconds / 2)
                sleeper.sleep(wait)
            self._systemd.stopping()
            self._stop_all()
        return ExitCode.ENDED

    def close(self) -> None:
        """Close what is open; the watchers have ended, or end when they see it."""
        os.close(self._alive[1])
        self._states.close()
        if self._web is not None:
            self._web.stop()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._live.request_reload()
        elif number != signal.SIGCHLD:
            self._stopped = True

    # --- trainers and their watchers ---

    def _search(self) -> None:
        try:
            found, problem = self._finder.find(), ""
        except AttachError as error:
            found, problem = [one.found for one in self._watchers.values()], str(error)
        if problem and problem != self._problem:
            self._note(problem)
        self._problem = problem
        here = {one.target: one for one in found}
        for target in [target for target, watcher in self._watchers.items() if not watcher.pid and target not in here]:
            del self._watchers[target]
        now = time.monotonic()
        for target, one in here.items():
            watcher = self._watchers.get(target)
            if watcher is None or (not watcher.pid and now >= watcher.retry_t):
                self._start(one, watcher.failures if watcher is not None else 0)
        for watcher in self._watchers.values():
            if watcher.pid and now - self._board.last_beat(watcher.slot) > HUNG_SECONDS:
                self._note(f"PID {watcher.found.target.pid}: its watcher hangs, and is replaced")
                _kill(watcher.pid, signal.SIGKILL)
        self._systemd.status(self._summary())

    def _start(self, found: FoundTrainer, failures: int) -> None:
        if not self._board.free:
            self._note_once_full(found)
            return
        slot = self._board.free.pop()
        self._board.beat(slot)
        self._board.watches += 1
        own = [self._alive[1], self._states.fileno(), *([] if self._web is None else [self._web.listener_fd])]
        setup = WatcherSetup(self._board, self._states.getsockname(), self._alive[0], SIGNALS, own)
        try:
            pid = start_watcher(found, self._config, setup, slot)
        except OSError as error:  # no more processes
            self._release(slot)
            self._note(f"PID {found.target.pid} is not watched: {error.strerror}; raise pids.max, or ulimit -u")
            return
        self._watchers[found.target] = _Watcher(found, pid, slot, failures)
        if not failures:
            does = "watched" if found.rule.policy == "watch" else "observed, and never signalled"
            self._note(f"PID {found.target.pid} is {does}: {found.command}")

    def _release(self, slot: int) -> None:
        self._board.free.append(slot)
        self._board.watches -= 1

    def _note_once_full(self, found: FoundTrainer) -> None:
        """Remember the trainer as one that fails for long, so that it is reported once in a while."""
        self._watchers[found.target] = _Watcher(found, 0, 0, retry_t=time.monotonic() + MAX_RETRY_SECONDS)
        self._note(f"PID {found.target.pid} is not watched: node.most_trainers is {self._config.node.most_trainers}")

    def _reap(self) -> None:
        """Collect the children that have ended."""
        for pid, code in _ended_children():
            if pid == self._web_pid:
                self._note(f"the process that answers HTTP has ended ({code}), and is started again")
                self._web_pid = 0
                continue
            watcher = next((one for one in self._watchers.values() if one.pid == pid), None)
            if watcher is None:
                continue
            self._release(watcher.slot)
            watcher.pid = 0
            if code in (ExitCode.ENDED, ExitCode.STOPPED):
                watcher.failures, watcher.retry_t = 0, float("inf") if code == ExitCode.ENDED else 0.0
            else:
                lived_long = time.monotonic() - watcher.started_t > MAX_RETRY_SECONDS
                watcher.failures = 1 if lived_long else watcher.failures + 1
                wait = min(2.0**watcher.failures, MAX_RETRY_SECONDS)
                watcher.retry_t = time.monotonic() + wait
                trainer = watcher.found.target.pid
                self._note(f"PID {trainer}: its watcher has failed ({code}), and is started again in {wait:.0f} s")

    def _summary(self) -> str:
        count = self._board.watches
        return f"watching {count} trainer{'' if count == 1 else 's'}"

    def _stop_all(self) -> None:
        """End the watchers and the web process; their trainers go on."""
        pids = [watcher.pid for watcher in self._watchers.values() if watcher.pid]
        for pid in (*pids, self._web_pid):
            _kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        left = {*pids, self._web_pid} - {0}
        while left and time.monotonic() < deadline:
            left -= {pid for pid, _ in _ended_children()}
            time.sleep(0.02)
        for pid in left:
            _kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._watchers, self._web_pid = {}, 0

    # --- the process that answers HTTP ---

    def _start_web(self) -> None:
        """Start it where it is wanted and does not run; one that fails is started again every WEB_RETRY_SECONDS."""
        if self._web is None or self._web_pid or time.monotonic() < self._web_retry_t:
            return
        self._web_retry_t = time.monotonic() + WEB_RETRY_SECONDS
        try:
            pid = os.fork()
        except OSError:  # no more processes
            return
        if pid == 0:
            try:
                reset_after_fork(SIGNALS, self._alive[1:])
                _answer(self._web, self._site, self._states, until=self._alive[0])
            finally:
                os._exit(0)
        self._web_pid = pid

    # --- the configuration ---

    def _reload(self) -> None:
        live = self._live
        if not live.should_reload(self._clock.now()):
            return
        self._systemd.reloading()
        if live.reload() and live.pending is None:
            self._note("the configuration was read again: nothing has changed")
        elif live.pending is not None:
            self._adopt(live.pending)
        try:
            live.poll(self._clock.now())
        except SourceError as error:  # the file cannot be used
            self._note(str(error))
        self._systemd.ready()

    def _adopt(self, pending: Config) -> None:
        """Begin anew with this configuration: each watch goes on from what the history has of it."""
        self._stop_all()
        self._states.close()
        if self._web is not None:
            self._web.stop()
        before, self._config = self._config, pending
        try:
            self._open()
        except ConfigError as error:
            self._live.reject_pending(error)
            self._config = before
            self._open()
        else:
            self._live.apply_pending()
            self._note("the configuration was read again, and is in force")
        self._web_retry_t = 0.0
        self._start_web()

    def _note(self, *remarks: str) -> None:
        now = self._clock.now()
        self._lines.publish(self._no_watch, [notices.note(now, remark) for remark in remarks])


def _answer(web: WebServer, site: NodeSite, states: socket.socket, until: int) -> None:
    """The process that answers HTTP: receives the states until the descriptor `until` is at its end."""
    receiver = StateReceiver(states, site.receive, site.forget)
    site.refresh = receiver.refresh
    web.start()
    receiver.run(until)


def _ended_children() -> Iterator[tuple[int, int]]:
    """Yield PID and exit status (the number of a signal, negative) of the children that have ended."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid, os.waitstatus_to_exitcode(status)


def _kill(pid: int, number: int) -> None:
    """Signal a child that has not been collected; none for PID 0."""
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
