"""The composition root: builds a running watch from a configuration and a trainer."""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from memwatch.actions.signal_sender import ChildrenSignaller, PidfdSignaller, SignalPlan, choose_signal
from memwatch.app.engine_settings import EngineSettings
from memwatch.app.examination_launcher import ExaminationLauncher, ProcessSnapshotLauncher
from memwatch.app.interrupter import Interrupter, InterruptLock, make_hook, resolve_run_identity
from memwatch.app.launched_trainer import LaunchedTrainer
from memwatch.app.sampler import Sampler
from memwatch.app.signal_handling_check import SignalHandlingCheck
from memwatch.app.trainer_process import WatchedTrainer
from memwatch.app.watch_loop import WatchLoop
from memwatch.app.watch_session import Lifecycle, WatchSession, sleep_in_slices
from memwatch.config.settings import DEFAULT_PROFILE, Config
from memwatch.core.events import Attached, Exited
from memwatch.core.interfaces import Clock, EventSource, Signaller, Sink
from memwatch.core.measurements import OWN_LIMIT, Target
from memwatch.core.text_and_units import format_bytes, format_duration, printable
from memwatch.errors import ConfigError, HistoryError, NoTrainerError, SourceError
from memwatch.history import stored_runs
from memwatch.history.event_store import HistoryStore
from memwatch.history.run_identity import run_key
from memwatch.outputs.end_announcement import announce_end
from memwatch.outputs.http.end_page import leave_end_page
from memwatch.outputs.http.server import WebServer
from memwatch.outputs.systemd_notify import reaches_journal
from memwatch.outputs.terminal.keyboard import Keyboard
from memwatch.outputs.text.exit_summary import render_summary
from memwatch.sources.checkpoint_watch import CheckpointWatch
from memwatch.sources.gpu.gpu_reader import GpuReader
from memwatch.sources.kernel_files import HeldFile
from memwatch.sources.log.log_choice import ChosenLog, is_coarse_log, is_pattern, named_logs, open_log, require_one_log
from memwatch.sources.log.log_source import LogSource
from memwatch.sources.log.marker_presets import Preset, load_presets
from memwatch.sources.memory.cgroup import CgroupReader
from memwatch.sources.memory.cgroup_neighbours import NeighbourReader
from memwatch.sources.memory.kernel_oom_log import KmsgReader, require_kernel_pid_namespace
from memwatch.sources.memory.memory_peek import MemoryPeek
from memwatch.sources.memory.memory_wakeup import CgroupWaker
from memwatch.sources.memory.process_tree import TreeReader
from memwatch.sources.memory.shared_page_sampling import PageSamplingBudget
from memwatch.sources.memory.tmpfs import TmpfsReader
from memwatch.sources.procfs import HostReader, read_stat
from memwatch.sources.progress.clocks import Clocks
from memwatch.sources.progress.heap_clock import HeapClock
from memwatch.sources.progress.marks import ProgressMarks
from memwatch.sources.target.find_log import SEARCH_SECONDS, find_logs
from memwatch.sources.target.find_process import OPTIONS, find_trainer_pid
from memwatch.sources.target.systemd_unit import read_exit_status
from memwatch.sources.target.target_facts import (
    TargetFacts,
    identify,
    is_interactive,
    is_same_process,
    read_argv,
    read_scheduler_limit,
    read_target_facts,
    read_torchrun_ranks,
    read_wrapped,
    require_own_proc,
)
from memwatch.system import json_and_yaml, package_data, private_files, process_priority
from memwatch.system.clock import Sleeper, process_age_seconds, process_start_t

if TYPE_CHECKING:
    from memwatch.outputs.terminal.live_view_terminal import LiveView
    from memwatch.outputs.trackers.tracker_proxy import TrackerProxy

# Allocations between two collections of the youngest generation. There is hardly any cyclic garbage, and with CPython's
# default (700) the search for it takes 6 % of memwatch's CPU time.
GC_THRESHOLD = 5000
# Seconds between two full collections of 1 ms each: without any, CPython's free lists grow by megabytes in weeks.
FULL_GC_SECONDS = 3600.0
FULL_GC_EVENTS = 250  # events between two full collections while a run is restored from the history
MIN_SLEEP_FOR_GC_SECONDS = 0.02  # a full collection waits for a sleep that is at least this long
WATCH_KEYS = {
    "q": "quit: memwatch ends, the trainer runs on",
    "p": "pause: the view stands still, the watch goes on",
    "c": "census: the trainer's memory is examined now",
    "s": "snapshot: what it holds now is kept, for memwatch diff",
    "d": "details: what grows, who holds it, which lines raise it",
    "h": "help",
}  # of the live view
TRACKER_SECONDS_AFTER_STOP = 1.0  # for trackers to send their queued records when memwatch is asked to stop
TRACKER_SECONDS_AFTER_EXIT = 10.0  # the same when the trainer has ended
GPU_DEADLINE_SECONDS = 2.0  # a driver that does not answer within this time is reported
_MAX_READS = 3  # of a trainer that begins another program while it is looked at


class TrainerWatch:
    """Watches one trainer to its end.

    Entering opens everything that may fail (AttachError, ConfigError), so that an earlier watch is given up only when
    `run` can succeed.
    """

    def __init__(
        self, session: WatchSession, lifecycle: Lifecycle, facts: TargetFacts, child: LaunchedTrainer | None = None
    ) -> None:
        """`child` is the trainer if memwatch started it."""
        self._session, self._lifecycle, self._facts, self._child = session, lifecycle, facts, child
        self._config, self._clock, self._engine = session.config, session.clock, session.engine
        self.surviving_processes = frozenset[tuple[int, int]]()  # (PID, start) of processes that outlived the trainer
        self._remarks: list[str | None] = []  # reported when the watch begins
        self._sources: list[EventSource] = []
        self._keyboard: Keyboard | None = None
        self._quit = False  # a key asked for the end of the watch
        self._has_exited = False

    def __enter__(self) -> TrainerWatch:
        config, facts, pid = self._config, self._facts, self._facts.target.pid
        if config.daemon.lock_memory:
            process_priority.lock_memory()
        if config.daemon.realtime:
            self._remarks.append(process_priority.raise_priority())
        with ExitStack() as stack:
            _allow_descriptors(stack)
            self._signaller = stack.enter_context(closing(PidfdSignaller(facts.target, is_same_process)))
            self._status = stack.enter_context(closing(HeldFile(f"/proc/{pid}/status", 8192)))
            pace = self._session.pace
            watches = (lambda: 1) if pace is None else pace.watches
            self._readers = make_readers(config, facts, stack, watches=watches)
            self._log = self._open_log()
            self._sources.append(stack.enter_context(closing(self._clocks(self._log))))
            waker = CgroupWaker(self._readers.cgroup.level_directories, only_limiting=pace is not None)
            self._waker = stack.enter_context(closing(waker))
            members, own = self._readers.tree.parent_pids, self._own_files()
            checkpoints = CheckpointWatch(
                pid, config.checkpoint.globs, facts.cwd, argv=facts.argv, excluded=own, member_pids=members
            )
            self._checkpoints = stack.enter_context(closing(checkpoints))
            self._trainer = WatchedTrainer(
                signaller=self._signaller,
                tree_parents=self._readers.tree.parent_pids,
                cgroup=self._readers.cgroup,
                kmsg=self._open_kernel_log(stack),
                checkpoints=checkpoints,
                child_status=self._child.wait if self._child is not None else None,
                passed_on=lambda: self._child.passed_on if self._child is not None else None,
                systemd_status=read_exit_status,
                log_end=self._log.read_last_text,
            )
            budget = self._session.examination_budget
            examinations = ExaminationLauncher(facts.target, budget=budget, member_pids=self._readers.tree.adopted_pids)
            self._examinations = stack.enter_context(closing(examinations))
            self._sources += [checkpoints, self._examinations, self._readers.neighbours, *self._session.sources]
            is_below = self._signals_ranks or facts.is_wrapper
            if not (self._session.is_brief or is_below or config.actions.hook_replaces_signal):
                check = SignalHandlingCheck(facts.target, self._signal_plan, budget=budget)
                self._sources.append(stack.enter_context(closing(check)))
            self._require_room()
            self._add_remarks()
            self._store, attached = self._open_history(stack)
            environ = facts.environ or {}
            run = resolve_run_identity(config, environ, facts.argv, attached.run_id, facts.uid)
            self._attached = replace(attached, run=run)
            self._hook = make_hook(config, environ, run, self._clock.now)
            if self._hook is not None:
                self._sources.append(stack.enter_context(closing(self._hook)))
            self._stack = stack.pop_all()
        return self

    def _require_room(self) -> None:
        """ConfigError when more is in use than the limit allows that a person has given: it may be mistyped.

        Not where no signal would follow, and not for a process that was watched before: it has passed the limit since.
        """
        config, memory = self._config, self._config.memory
        is_harmless = config.dry_run or not config.policy.act or self._session.is_brief
        if not self._session.is_typed or memory.limit is None or memory.force_limit or is_harmless:
            return
        path = config.history_path(os.environ)
        if path is not None and path.exists() and stored_runs.run_id_of(path, self._facts.target):
            return
        for usage in self._readers.sampler.sample(self._clock.now()).usages:
            limit = usage.limit
            if limit is not None and limit.origin == OWN_LIMIT and limit.headroom_bytes < 0:
                used = format_bytes(usage.used_bytes)
                grace = format_duration(config.policy.own_limit_grace_seconds)
                hint = f"a limit for what comes is above; --force-limit uses this one, and interrupts after {grace}"
                raise ConfigError(f"{OWN_LIMIT} {memory.limit} is below the {used} in use now", hint)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self) -> Exited | None:
        """Watch, and return how the trainer ended; None when memwatch is asked to stop, and after a brief watch."""
        if self._attached.run_id and self._engine.never_attached:
            self._restore()
        loop, attached = self._assemble()
        session = self._session
        if session.pace is None:  # else the supervisor has frozen what it shares with the other watches
            gc.unfreeze()
        gc.collect()  # frees the rest of an earlier watch
        gc.freeze()  # a full collection takes 8 ms for all that is loaded: later ones leave it out
        gc.set_threshold(GC_THRESHOLD)
        descriptors = [self._waker.fileno()]
        if not self._signaller.problem:
            descriptors.append(self._signaller.fileno())
        descriptors += [source.fileno() for source in (session.web, self._keyboard) if source is not None]
        descriptors += session.descriptors
        with session.make_sleeper(descriptors, session.signals, self._lifecycle.on_signal) as sleeper:
            sleep = with_periodic_gc(
                partial(
                    sleep_in_slices,
                    partial(sleep_requesting_gpus, sleeper, self._readers.gpus, self._clock),
                    slice_seconds=session.sleep_slice_seconds,
                    should_stop=self._lifecycle.should_stop,
                    clock=self._clock,
                ),
                self._clock,
            )
            if session.pace is not None:
                peek = self._stack.enter_context(closing(MemoryPeek(self._facts.target.pid)))
                sleep = session.pace.with_peeks(sleep, peek, self._aimed_at_headroom)
            if session.is_brief:
                loop.run_briefly(attached, sleep)
                return None
            exited = loop.run(attached, sleep, self._should_stop)
            if exited is not None:
                self._has_exited = True
                self.surviving_processes = frozenset(_running(self._readers.tree.tree_pids()))
            self._report_end()
            self._stack.close()
            if exited is not None and session.web is not None and self._lifecycle.linger_seconds > 0.0:
                sleeper.sleep_until_signal(self._lifecycle.linger_seconds)
            if exited is not None and session.web is not None and self._lifecycle.end_page_seconds > 0.0:
                self._leave_end_page(session.web, self._lifecycle.end_page_seconds)
        return exited

    def _aimed_at_headroom(self, peek: MemoryPeek) -> float | None:
        """Have `peek` read the trainer's cgroup, if it is its own; return the headroom as last read, None without."""
        known = self._engine.wake_thresholds()
        if known is None:
            return None
        cgroup, limit, _ = known
        peek.read_cgroup(self._readers.cgroup.level_directories()[0] if cgroup is not None and cgroup.owned else None)
        return limit.headroom_bytes

    def _report_end(self) -> None:
        """Print the summary, and announce the end where others look for it."""
        end, path = self._engine.snapshot(), self._config.history_path(os.environ)
        history = None if path is None else self._config.history or ""
        in_journal = reaches_journal(self._session.output, os.environ)
        announce_end(end, os.environ, in_journal=in_journal, history=history)
        if self._session.prints_summary and not self._config.json:
            with suppress(OSError):  # the reader or the terminal is gone; the exit code still says how it ended
                text = render_summary(end, history=history, with_examinations=False)
                print(text, file=self._session.output, flush=True)

    def _leave_end_page(self, web: WebServer, seconds: float) -> None:
        pid = leave_end_page(web, seconds)
        if pid is not None and not self._config.json:
            stays = f"How it ended stays at {web.url} for {format_duration(seconds)} (pid {pid})."
            with suppress(OSError):
                print(stays, file=self._session.output, flush=True)

    def _should_stop(self) -> bool:
        return self._quit or self._lifecycle.should_stop()

    def _tracker_seconds(self) -> float:
        is_stopped = not self._has_exited or self._should_stop()
        return TRACKER_SECONDS_AFTER_STOP if is_stopped else TRACKER_SECONDS_AFTER_EXIT

    def _assemble(self) -> tuple[WatchLoop, Attached]:
        session, interval_seconds = self._session, self._config.memory.interval_seconds
        stack, frontend = self._stack, session.frontend
        snapshotter = stack.enter_context(closing(ProcessSnapshotLauncher(self._facts.target.pid)))
        sinks: list[Sink] = [self._trainer]
        if frontend is not None:
            self._remarks += frontend.pop_remarks()
            if frontend.live_view is not None:
                self._open_keyboard(frontend.live_view, snapshotter)
            sinks += frontend.sinks
        sinks += [*session.sinks, *self._tracker_proxies(stack)]
        if self._keyboard is not None:
            stack.callback(self._keyboard.close)
            self._sources.append(snapshotter)
        signaller: Signaller = self._signaller
        if self._signals_ranks:
            signaller = ChildrenSignaller(lambda: read_torchrun_ranks(self._facts.target), is_same_process)
        elif self._facts.is_wrapper:
            signaller = ChildrenSignaller(lambda: [self._signalled], is_same_process)
        lock = stack.enter_context(closing(InterruptLock(self._facts.target, self._facts.uid)))
        acts = self._config.policy.act and not self._session.is_brief
        loop = WatchLoop(
            clock=self._clock,
            engine=self._engine,
            read_sample=self._readers.sampler.sample,
            trainer=self._trainer,
            interrupter=Interrupter(
                signaller,
                self._choose_signal,
                unreachable=self._trainer.unreachable_reason,
                refusal=lock.refusal if acts else lambda: None,
                on_sent=lambda before_ns: self._checkpoints.discard_before_signal(self._clock.now(), before_ns),
                hook=self._hook,
                hook_replaces_signal=self._config.actions.hook_replaces_signal,
                state=self._engine.snapshot,
                dry_run=self._config.dry_run,
            ),
            diagnose=self._examinations.start_examination,
            sources=self._sources,
            keys=self._keyboard,
            sinks=sinks,
            recorder=self._store,
            waker=self._waker,
            await_log_end=self._await_last_output,
            on_exit=self._lifecycle.on_exit,
            interval=session.pace.next_interval if session.pace is not None else lambda: interval_seconds,
        )
        return loop, replace(self._attached, remarks=tuple(filter(None, self._remarks)))

    def _await_last_output(self) -> None:
        """So that its last words, a traceback say, stand before what memwatch says of the end."""
        self._log.await_end()
        if self._child is not None and self._child.passthrough is not None:
            self._child.passthrough.catch_up()

    def _open_keyboard(self, view: LiveView, snapshotter: ProcessSnapshotLauncher) -> None:
        def press(key: str) -> None:
            if key == "q":
                self._quit = True
            elif key == "s":
                snapshotter.start_process_snapshot()
            else:
                view.press(key)

        with suppress(SourceError):  # stdin is not a terminal: its input is not for memwatch
            self._keyboard = Keyboard(sys.stdin, press)
            view.keys = WATCH_KEYS

    def _own_files(self) -> list[str]:
        """The logs and memwatch's own history: no checkpoints of the trainer's."""
        history = self._config.history_path(os.environ)
        ends = ("", "-wal", "-shm", "-journal")
        own = [] if history is None else [f"{os.path.realpath(history)}{end}" for end in ends]
        return [*own, *(os.path.realpath(path) for path in self._log.paths)]

    def _open_log(self) -> LogSource | ChosenLog:
        named, presets = self._config.log.paths, configured_presets(self._config)
        began_t = process_start_t(self._facts.target.start_ticks)
        require_one_log(named)
        if not named and self._child is not None:
            return LogSource(self._child.log, presets, catch_up=False)
        if len(named) == 1 and not is_pattern(named[0]) and not is_coarse_log(named[0]):
            return LogSource(named[0], presets, began_t=began_t)
        opened = partial(open_log, presets=presets, began_t=began_t)
        if named:
            shown = ", ".join(named)
            log = ChosenLog(partial(named_logs, named), opened, missing=f"log {shown}: there is no such file (yet)")
            if log.path is not None:
                self._remarks.append(f"following {log.path}, of {len(log.paths)} that {shown} stands for")
            return log
        facts = self._facts
        if facts.stdout_path is not None:
            self._remarks.append(f"no --log: following the trainer's own output, {facts.stdout_path}")
            return LogSource(facts.stdout_path, presets, began_t=began_t)
        log = ChosenLog(partial(find_logs, facts), opened, search_seconds=SEARCH_SECONDS)
        if log.path is not None:
            others = f", one of {len(log.paths)} that were found" if len(log.paths) > 1 else ""
            self._remarks.append(f"no --log ({facts.stdout_reason}): following {printable(str(log.path))}{others}")
        else:
            self._remarks.append(
                f"no log ({facts.stdout_reason}): growth is measured by time alone; name one with --log"
            )
        return log

    def _clocks(self, log: LogSource | ChosenLog) -> EventSource:
        """What tells progress: what the trainer marks by itself, its log, and the counters in its memory."""
        marks = heap = None
        try:
            marks = ProgressMarks(self._facts.target.pid, uid=self._facts.uid)
        except OSError:  # two may watch: this one goes by the log
            self._remarks.append("another memwatch watches this process too, and gets its marks")
        diagnosis, budget = self._config.diagnosis, self._session.examination_budget
        if diagnosis.enabled and diagnosis.progress and not self._session.is_brief:
            may_take = None if budget is None else budget.take
            heap = HeapClock(self._facts.target.pid, may_take, member_pids=self._readers.tree.adopted_pids)
        is_alone = self._session.pace is None  # beside many others, memory is searched only where no log tells

        def is_coarse() -> bool:
            return isinstance(log, ChosenLog) and log.is_coarse

        return Clocks(log, marks, heap, has_log=bool(log.paths), compares=is_alone, is_coarse=is_coarse)

    @property
    def _signals_ranks(self) -> bool:
        return self._facts.is_torchrun and self._config.signals.torchrun == "ranks"

    def _signal_plan(self) -> SignalPlan:
        """Choose the signal, at attach and again before it is sent: a trainer may install its handler late."""
        try:
            is_below = self._facts.is_wrapper and (signalled := self._signalled) != self._facts.target
            status = Path(f"/proc/{signalled.pid}/status").read_bytes() if is_below else self._status.read_bytes()
        except (OSError, SourceError):
            status = self._facts.status
        return choose_signal(status, self._config.signals.wanted)

    @property
    def _signalled(self) -> Target:
        """The process that a signal goes to: what a shell in the trainer's place runs now, else that process."""
        return read_wrapped(self._facts.target) or self._facts.target

    def _add_remarks(self) -> None:
        """Add remarks on how the trainer will be interrupted, and on what hides or bounds its checkpoints."""
        plan = self._signal_plan()
        if self._child is None and (plan.ignored or not plan.handled):
            self._remarks.append(plan.reason)
        if self._config.profile != DEFAULT_PROFILE or not self._config.policy.act:
            self._remarks.append(describe_interrupt_plan(self._config))
        try:
            self._checkpoints.poll(self._clock.now())
        except SourceError as error:
            self._remarks.append(f"{error}: a checkpoint shows in the log and in folders alone. {error.hint}")
        if self._signals_ranks:
            self._remarks.append(
                "each rank of torchrun is signalled; when one ends with an error, it stops the others within 30 s"
            )
        elif self._facts.is_torchrun:
            self._remarks.append(
                "torchrun is signalled, which kills its ranks 30 s later: a checkpoint must fit into that"
            )

    def _choose_signal(self) -> str:
        plan = self._signal_plan()
        if plan.signal is None:
            raise SourceError(plan.reason)
        return plan.signal

    def _open_kernel_log(self, stack: ExitStack) -> KmsgReader | None:
        try:
            require_kernel_pid_namespace()
            return stack.enter_context(closing(KmsgReader()))
        except SourceError as error:
            self._remarks.append(f"the kernel's log cannot be read ({error}): OOM kills show in cgroup counters only")
            return None

    def _open_history(self, stack: ExitStack) -> tuple[HistoryStore | None, Attached]:
        """Open the store; return it with the event that begins this watch and names the run."""
        facts = self._facts
        age = 0.0 if is_interactive(facts.argv) else round(process_age_seconds(facts.target.start_ticks), 3)
        attached = Attached(self._clock.now(), facts.target, facts.command, age_seconds=age)
        path = self._config.history_path(os.environ)
        if path is None:
            return None, attached
        if self._session.is_brief:
            return None, replace(attached, run_id=stored_runs.run_id_of(path, facts.target) if path.exists() else "")
        try:
            if not self._config.history:
                private_files.ensure_private_dir(path.parent)
            store = HistoryStore.open(path, most_bytes=self._config.history_bytes, now=self._clock.now)
        except (HistoryError, OSError) as error:
            self._remarks.append(f"no history is kept: {error}")
            return None, attached
        stack.callback(store.close)
        self._remarks.append(store.corruption_notice)
        named = self._config.log.paths or ((facts.stdout_path or "",) if self._child is None else ())
        cwd, log_name = facts.cwd or "", " ".join(named)
        key = run_key(facts.argv, cwd, log_name or None, facts.uid or 0)
        run_id = store.open_run(key, attached, attached.t, cwd, log_name).run_id
        if self._session.web is not None:
            self._session.web.published.earlier_runs = stored_runs.earlier_runs(path, run_id, facts.command)
        if self._engine.never_attached:
            store.record_engine(EngineSettings.from_config(self._config).to_record(), attached.t)
        return store, replace(attached, run_id=run_id)

    def _restore(self) -> None:
        """Feed the run's stored events to the engine, without carrying out its actions, to restore its state."""
        path = self._config.history_path(os.environ)
        assert path is not None  # noqa: S101 - the run was found there
        gc.freeze()  # without it each collection below takes 8 ms for the modules that are loaded
        try:
            for number, event in enumerate(stored_runs.events_to_replay(path, self._attached.run_id), 1):
                self._engine.feed(event)
                self._trainer.observe_event(event)
                if number % FULL_GC_EVENTS == 0:
                    gc.collect()
        except HistoryError as error:
            self._remarks.append(str(error))
        self._clock.advance_to(self._engine.snapshot().t)
        self._trainer.resume_after_restart(self._clock.now(), self._engine.snapshot())
        self._attached = replace(self._attached, t=self._clock.now())

    def _tracker_proxies(self, stack: ExitStack) -> list[TrackerProxy]:
        if self._session.is_brief or not self._config.enabled_extras:
            return []
        from memwatch.app import tracker_setup
        from memwatch.outputs.trackers import tracker_proxy

        self._remarks += tracker_setup.config_warnings(self._config)
        proxies = tracker_setup.make_proxies(self._config, self._attached.run_id, self._facts.command)
        stack.callback(tracker_proxy.finish_all, proxies, self._tracker_seconds)
        return proxies


def sleep_requesting_gpus(sleeper: Sleeper, gpus: GpuReader | None, clock: Clock, seconds: float) -> bool:
    """Sleep until the next sample, and request the GPUs' memory shortly before it, so that the answer is in time."""
    if gpus is not None:
        gpus.request_before_sample(clock.now(), seconds)
    return sleeper.sleep(seconds)


def with_periodic_gc(sleep: Callable[[float], bool], clock: Clock) -> Callable[[float], bool]:
    """Return a sleep that is preceded by a full collection once an hour.

    CPython keeps up to 2,000 freed tuples of each length on free lists. A tuple that is made from an iterator is not
    taken from there but goes there when it is freed, so the lists fill up until a full collection clears them.
    """
    due_t = clock.now() + FULL_GC_SECONDS

    def collect_and_sleep(seconds: float) -> bool:
        nonlocal due_t
        if seconds >= MIN_SLEEP_FOR_GC_SECONDS and clock.now() >= due_t:
            gc.collect()
            due_t = clock.now() + FULL_GC_SECONDS
        return sleep(seconds)

    return collect_and_sleep


@dataclass(frozen=True, slots=True)
class Readers:
    """The readers of one trainer's memory."""

    tree: TreeReader
    cgroup: CgroupReader
    neighbours: NeighbourReader
    gpus: GpuReader | None
    sampler: Sampler


def make_readers(
    config: Config,
    facts: TargetFacts,
    stack: ExitStack,
    gpu_patience_seconds: float = 0.0,
    watches: Callable[[], int] = lambda: 1,
) -> Readers:
    """Open the readers of a trainer, which `stack` closes.

    `gpu_patience_seconds` is how long a reading waits for the GPU driver; a loop uses the answer at its next sample.
    `watches` is how many watches this memwatch has on this node.
    """
    pid = facts.target.pid
    budget = PageSamplingBudget() if config.memory.sample_shared_pages else PageSamplingBudget(max_cpu_share=0.0)
    tree = TreeReader(pid, sampling_budget=budget)
    gpus: GpuReader | None = None
    if config.gpu.enabled:
        gpus = GpuReader(
            tree.tree_pids,
            facts.environ or {},
            patience_s=gpu_patience_seconds,
            deadline_s=max(GPU_DEADLINE_SECONDS, gpu_patience_seconds),
        )
    neighbours = NeighbourReader(
        pid,
        lambda: tree.tree_pids() | (gpus.pids if gpus is not None else frozenset()),
        adopt=tree.adopt,
        adopted_pids=tree.adopted_pids,
        watches=watches,
    )
    cgroup = CgroupReader(pid, neighbours=neighbours)
    gpus_expected = config.gpu.enabled is True  # not "auto"
    environ = facts.environ or {}
    sampler = Sampler(
        tree,
        cgroup,
        HostReader(),
        gpus,
        config.memory.limit_bytes,
        tmpfs=TmpfsReader(pid, tree.tree_pids, environ),
        scheduler=read_scheduler_limit(pid, environ),
        gpus_expected=gpus_expected,
    )
    stack.callback(sampler.close)
    return Readers(tree, cgroup, neighbours, gpus, sampler)


def find_target(config: Config, excluded: Collection[tuple[int, int]] = ()) -> TargetFacts:
    """Return the trainer that the configuration names; AttachError when there is not exactly one.

    Processes in `excluded`, (PID, start time in ticks), are ignored.
    """
    if not config.target.is_named:
        raise ConfigError("no trainer is named", f"give one of {OPTIONS}; or use memwatch run")
    require_own_proc()
    find_pid = partial(find_trainer_pid, **asdict(config.target), excluded=excluded)
    for _ in range(_MAX_READS):
        facts = read_target_facts(identify(find_pid()))
        # The PID may have been given to another meanwhile, or the process have begun another program (exec).
        is_same = find_pid() == facts.target.pid and is_same_process(facts.target)
        if is_same and tuple(read_argv(facts.target.pid)) == facts.argv:
            return facts
    raise NoTrainerError(f"process {facts.target.pid} has ended just now", "Is the trainer started again?")


def describe_interrupt_plan(config: Config) -> str:
    """Say whether and how a watch will interrupt its trainer."""
    profile = "" if config.profile == DEFAULT_PROFILE else f"profile {config.profile}: "
    if config.dry_run or not config.policy.act:
        return f"{profile}never signals, as {'dry_run' if config.dry_run else 'policy.act'} says"
    return f"{profile}interrupts with {' or '.join(config.signals.wanted)}"


def configured_presets(config: Config) -> tuple[Preset, ...]:
    """Return the user's marker presets, then memwatch's own; ConfigError for a broken one."""
    own: list[tuple[str, object]] = []
    for number, preset in enumerate(config.log.presets):
        if isinstance(preset, str):
            path = Path(preset)
            files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
            own += [(str(file), json_and_yaml.load_yaml(_read_preset(file), str(file))) for file in files]
        else:
            own.append((f"log.presets[{number}]", preset))
    presets = (*load_presets(own, user=True), *_packaged_presets())
    wanted = config.log.markers
    names = sorted(preset.name for preset in presets if not preset.applies_to_all_logs)
    if wanted is not None and wanted not in names:
        raise ConfigError(f"log.markers: no preset is called {wanted!r}", f"there are: {', '.join(names)}")
    return tuple(preset for preset in presets if preset.applies_to_all_logs or wanted in (None, preset.name))


@cache
def _packaged_presets() -> tuple[Preset, ...]:
    """Return memwatch's own presets, cached: reading them takes 200 kB, which `serve` would need for each watch."""
    return load_presets(package_data.marker_presets().items())


def check_extras(config: Config) -> None:
    """Raise ConfigError when a tracker is configured that cannot work, such as one that is not installed."""
    if config.enabled_extras:
        from memwatch.app.tracker_setup import check

        check(config)


def _running(pids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield (PID, start time in ticks) of the processes that still run."""
    for pid in pids:
        with suppress(SourceError):
            found = read_stat(pid)
            if not found.dead:
                yield pid, found.start_ticks


def _allow_descriptors(stack: ExitStack) -> None:
    """Raise the limit of open files until `stack` closes: the watch holds one for each process of the tree."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))  # a later trainer inherits the limit


def _read_preset(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}", "log.presets names preset files, or folders of them") from error
