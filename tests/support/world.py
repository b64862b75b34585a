"""A machine that is simulated, and one trainer on it; in it the real loop runs, with real files and a real history.

What is not real: the clock, which a sleep moves; what is read of memory; the way of a signal; how the trainer ended.
What is read is what the trainer has at that moment, looks are taken when the engine wants them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from memwatch.actions.signal_sender import ExitStatus
from memwatch.app.engine_settings import EngineSettings
from memwatch.app.interrupter import Interrupter
from memwatch.app.sampler import Sampler
from memwatch.app.trainer_process import WatchedTrainer
from memwatch.app.watch_loop import WatchLoop
from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import NO_DIAGNOSIS, Engine
from memwatch.core.events import Attached, Event, Exited, Notice
from memwatch.core.interfaces import EventSource, Sink
from memwatch.core.measurements import CgroupLevel, CgroupMemory, HostMemory, Limit, Target, TreeMemory
from memwatch.errors import TargetGoneError
from memwatch.history import stored_runs
from memwatch.history.event_store import HistoryStore
from memwatch.outputs.terminal.plain_and_json_lines import PlainLines
from memwatch.sources.checkpoint_watch import CheckpointWatch
from memwatch.sources.log.log_source import LogSource
from memwatch.sources.memory.kernel_oom_log import OomKill
from support.presets import packaged_presets
from support.trainee import Bounds, Files, Life, Log, Manners, Process

T0 = 1_700_000_000.0
CGROUP = "/job"
CACHE_SHARE = 0.03  # of what is used: page cache in the cgroup, which the kernel gives back
HOST_FACTOR = 4  # times the limit of a cgroup: what its host has
LOOP_SECONDS = 0.001  # that a turn of the loop takes at least
PAUSE_SECONDS = 30.0  # between two processes of a run
COMMAND = "python main.py"


class HandClock:
    """Time as it is set."""

    def __init__(self, t: float = 0.0) -> None:
        self.t = t

    def now(self) -> float:
        return self.t

    def advance_to(self, t: float) -> None:
        self.t = max(self.t, t)


@dataclass(frozen=True, slots=True)
class Scene:
    """Who is watched, in what, and how."""

    lives: tuple[Life, ...]  # of its processes; each but the first goes on from where the one before it had saved
    manners: Manners
    bounds: Bounds
    interval: float = 1.0
    policy: Policy = field(default_factory=Policy)
    dry_run: bool = False
    thresholds: bool = False  # the kernel wakes memwatch at levels of memory, as with cgroups of version 1
    one_engine: bool = True  # for all processes, as `memwatch run` has it; False: one each, which is fed the past
    rotate_bytes: int | None = None  # of the log
    rotate_by_copy: bool = False
    history_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """One process and its watch, to the end."""

    process: Process
    exited: Exited
    events: tuple[Event, ...]  # that the engine was fed, without looks at memory
    notices: tuple[Notice, ...]
    looks: int

    def told(self, event: str) -> list[Notice]:
        """The notices of that name."""
        return [one for one in self.notices if one.event == event]


# --- what is faked --------------------------------------------------------------------------------------------------


class Kernel:
    """What it tells of one process: memory, kills, its end; the only way to signal it."""

    problem = ""

    def __init__(self, clock: HandClock, process: Process) -> None:
        self._clock, self.process = clock, process
        self.target = Target("boot", process.pid, process.pid)
        self._is_told = False

    # --- the way to it, and its end: as actions.signal_sender.PidfdSignaller ---

    def send_signal(self, signal_name: str) -> None:
        if self.gone():
            raise TargetGoneError("it has ended")
        self.process.hear(self._clock.t, signal_name)

    def may_signal(self) -> bool:
        return True

    def gone(self) -> bool:
        return self._clock.t >= self.process.end_t

    def dying(self) -> bool:
        return self.gone()

    def exit_status(self) -> ExitStatus | None:
        return self.process.status(self._clock.t)

    # --- its memory ---

    def tree(self, now: float) -> TreeMemory:
        if now >= self.process.end_t:
            raise TargetGoneError("it has no memory")
        used = int(self.process.used(now))
        return TreeMemory(1, used, used, "rss")

    def cgroup(self, now: float) -> CgroupMemory:
        used, limit = int(self.process.used(now)), self._limit
        taken = used + (int(self.process.others(now)) if limit is not None else 0)
        cache = int(CACHE_SHARE * taken)
        levels = (CgroupLevel(CGROUP, taken + cache, cache, limit), CgroupLevel("/", taken + cache, cache, None))
        return CgroupMemory(2, levels, owned=limit is not None, swap_bytes=0, oom_kills=self.oom_kills()[0])

    def host(self, now: float) -> HostMemory:
        bounds, taken = self.process.bounds, int(self.process.used(now) + self.process.others(now))
        total = HOST_FACTOR * bounds.limit if bounds.by_cgroup else bounds.limit
        return HostMemory(total, total - taken, 0)

    @property
    def _limit(self) -> int | None:
        return self.process.bounds.limit if self.process.bounds.by_cgroup else None

    # --- whom it killed: as sources.memory.cgroup.CgroupReader and sources.memory.kernel_oom_log.KmsgReader ---

    @property
    def _has_killed(self) -> bool:
        return self.gone() and self.process.is_killed_by_kernel

    def oom_kills(self) -> tuple[int | None, int | None]:
        return int(self._has_killed), None

    def read_new_kills(self, now: float) -> tuple[OomKill, ...]:
        """Its log."""
        if not self._has_killed or self._is_told:
            return ()
        self._is_told = True
        where = ("memcg", CGROUP) if self._limit is not None else ("host", None)
        return (OomKill(now - T0, self.process.pid, "python", *where, self.process.bounds.limit, 0, 0),)


@dataclass(frozen=True, slots=True)
class Reading:
    """One of the kernel's figures as a reader of memory (interfaces.Reader)."""

    name: str
    read_memory: Callable[[float], object]

    def close(self) -> None: ...


class Thresholds:
    """Levels of headroom that end a sleep; none where the kernel has no such thing."""

    def __init__(self, clock: HandClock, process: Process, are_there: bool) -> None:
        self._clock, self._process, self._are_there = clock, process, are_there
        self._rooms: Sequence[int] = ()
        self._rung = False

    def set_thresholds(self, cgroup: CgroupMemory | None, limit: Limit, headrooms: Sequence[int]) -> None:
        if self._are_there:
            self._rooms = headrooms

    def consume_wakeup(self) -> bool:
        rung, self._rung = self._rung, False
        return rung

    def rings_at(self, until: float) -> float | None:
        """The first moment before `until` at which memory rises above one of them."""
        t, step = self._clock.t, self._process.life.course.step
        room = self._room(t)
        while self._rooms and t < until:
            t = min(t + step, until)
            left = self._room(t)
            if any(left <= level < room for level in self._rooms):
                self._rung = True
                return t
            room = left
        return None

    def _room(self, t: float) -> float:
        return self._process.bounds.limit - self._process.used(t) - self._process.others(t)


@dataclass(slots=True)
class Journal:
    """The history, beside which what went into it is kept."""

    store: HistoryStore
    events: list[Event] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    looks: int = 0

    @property
    def failure(self) -> str | None:
        return self.store.failure

    @property
    def loss(self) -> str | None:
        return self.store.loss

    def append(self, events: Sequence[Event], notices: Sequence[Notice], wait_seconds: float = 0.0) -> None:
        others = [event for event in events if type(event).__name__ != "Sampled"]
        self.looks += len(events) - len(others)
        self.events += others
        self.notices += notices
        self.store.append(events, notices, wait_seconds)


# --- the machine ----------------------------------------------------------------------------------------------------


class World:
    """A machine with a trainer, and memwatch beside it, which keeps its history in `folder`."""

    def __init__(self, folder: Path, scene: Scene, lines: TextIO, sinks: Iterable[Sink] = ()) -> None:
        """`lines`: where memwatch prints what it has to tell; `sinks` are shown it, too."""
        self.scene, self.clock = scene, HandClock(T0)
        self.history = folder / "history.db"
        self.log = folder / "run" / "main.log"
        self._proc = folder / "proc"
        self.log.parent.mkdir()
        self._sinks = (PlainLines(lines), *sinks)
        self._settings = EngineSettings(scene.policy, NO_DIAGNOSIS)
        self._engine: Engine | None = None

    def run(self) -> Iterator[Watched]:
        """Each process of the run, watched to its end; a process that completes the run is the last."""
        first = 0
        log = Log(self.log, self.scene.rotate_bytes, self.scene.rotate_by_copy)
        for number, life in enumerate(self.scene.lives):
            resumed = life.resumed(first, self.scene.manners.total) if number else life
            process = self._start(number, resumed, log)
            watched = self._watch(process)
            yield watched
            first = int(process.generations)
            if process.status(self.clock.t) == ExitStatus(0, None) and not process.is_saved:
                break
            self.clock.t += PAUSE_SECONDS
        log.close()

    def _start(self, number: int, life: Life, log: Log) -> Process:
        pid = 5_000_000 + number  # beyond all that a kernel gives out
        files = Files(self.log.parent, self._proc / str(pid))
        return Process(pid, self.clock.t, life, self.scene.manners, self.scene.bounds, log, files, T0)

    def _watch(self, process: Process) -> Watched:
        with ExitStack() as held:
            kernel = Kernel(self.clock, process)
            waker = Thresholds(self.clock, process, self.scene.thresholds)
            store = HistoryStore.open(self.history, self._proc, self.scene.history_bytes, self.clock.now)
            held.callback(store.close)
            journal = Journal(store)
            attached = self._attach(kernel, store)
            daemon = self._assemble(kernel, waker, journal, held)
            exited = daemon.run(attached, lambda seconds: self._sleep(seconds, kernel, waker), lambda: False)
            assert exited is not None
            return Watched(process, exited, tuple(journal.events), tuple(journal.notices), journal.looks)

    def _attach(self, kernel: Kernel, store: HistoryStore) -> Attached:
        """As app.Watch does it: the run that it belongs to, an engine that knows its past."""
        attached = Attached(self.clock.t, kernel.target, COMMAND)
        opening = store.open_run("main.py", attached, attached.t, str(self.log.parent), str(self.log))
        if self._engine is not None and self.scene.one_engine:
            return Attached(attached.t, kernel.target, COMMAND, opening.run_id)
        self._engine = self._settings.make_engine()
        store.record_engine(self._settings.to_record(), attached.t)
        if opening.resumed:
            for event in stored_runs.events_to_replay(self.history, opening.run_id):
                self._engine.feed(event)
        return Attached(attached.t, kernel.target, COMMAND, opening.run_id)

    def _assemble(self, kernel: Kernel, waker: Thresholds, journal: Journal, held: ExitStack) -> WatchLoop:
        assert self._engine is not None
        process, clock = kernel.process, self.clock
        checkpoints = CheckpointWatch(process.pid, (), str(self.log.parent), str(self._proc), cpu_clock=lambda: 0.0)
        held.callback(checkpoints.close)
        sources: list[EventSource] = [checkpoints]
        source = None
        if process.manners.style is not None:
            is_first = process.life.first == 0
            source = LogSource(self.log, packaged_presets(), catch_up=not is_first, cpu_seconds=lambda: 0.0)
            held.callback(source.close)
            sources.insert(0, source)
        trainer = WatchedTrainer(
            signaller=kernel,  # type: ignore[arg-type]
            tree_parents=dict,
            cgroup=kernel,  # type: ignore[arg-type]
            kmsg=kernel if process.bounds.kernel_log else None,  # type: ignore[arg-type]
            checkpoints=checkpoints,
            log_end=source.read_last_text if source is not None else str,
        )
        interrupter = Interrupter(
            kernel,
            lambda: "SIGINT",
            unreachable=trainer.unreachable_reason,
            on_sent=lambda before_ns: checkpoints.discard_before_signal(clock.t, before_ns),
            dry_run=self.scene.dry_run,
        )
        readers = (Reading("procfs", kernel.tree), Reading("cgroup", kernel.cgroup), Reading("meminfo", kernel.host))
        return WatchLoop(
            clock=clock,
            engine=self._engine,
            read_sample=Sampler(*readers, None, None).sample,  # type: ignore[arg-type]
            trainer=trainer,
            interrupter=interrupter,
            sources=sources,
            sinks=[trainer, *self._sinks],
            recorder=journal,
            waker=waker,
            interval=lambda: self.scene.interval,
        )

    def _sleep(self, seconds: float, kernel: Kernel, waker: Thresholds) -> bool:
        """Until then, or until the trainer ends or memory rises to a level that was asked for."""
        until = min(self.clock.t + max(seconds, LOOP_SECONDS), kernel.process.end_t)
        rung_t = waker.rings_at(until)
        self.clock.t = max(self.clock.t, until if rung_t is None else rung_t)
        kernel.process.advance(self.clock.t)
        return rung_t is not None or kernel.gone()
