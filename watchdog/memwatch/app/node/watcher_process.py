"""The process that watches one trainer of a node: a fork of the supervisor, which it does not outlive."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from memwatch.app.composition import TrainerWatch
from memwatch.app.engine_settings import EngineSettings
from memwatch.app.node.pace import MAX_INTERVAL_SECONDS, NodeBoard, SharedPace
from memwatch.app.watch_session import Frontend, StopOnSignal, WatchSession
from memwatch.config.settings import NONE, Config, NodeConfig, TargetConfig
from memwatch.errors import ExitCode, MemwatchError, NoTrainerError, TargetGoneError
from memwatch.outputs.node.state_channel import StateReporter
from memwatch.sources.target.find_trainers import FoundTrainer
from memwatch.sources.target.target_facts import read_target_facts
from memwatch.system.clock import STOP_SIGNALS, SystemClock


@dataclass(frozen=True, slots=True)
class WatcherSetup:
    """What the supervisor gives to each watcher."""

    board: NodeBoard
    states_address: str  # where states are asked for
    supervisor_fd: int  # readable once the supervisor has ended
    signals: Sequence[int]  # that the supervisor handles, and a watcher by itself
    closed: Sequence[int]  # descriptors that are the supervisor's alone


def start_watcher(found: FoundTrainer, config: Config, setup: WatcherSetup, slot: int) -> int:
    """Fork a watcher; return its PID, in the supervisor alone. OSError when there can be none."""
    pid = os.fork()
    if pid:
        return pid
    code = int(ExitCode.INTERNAL)
    try:
        reset_after_fork(setup.signals, setup.closed)
        code = _watch(found, config, setup, slot)
    except MemwatchError as error:
        print(f"memwatch: PID {found.target.pid}: {error}", file=sys.stderr, flush=True)
        code = int(error.exit_code)
    except BaseException:  # the fork must not go on as a second supervisor
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def reset_after_fork(signals: Sequence[int], closed: Sequence[int]) -> None:
    """Forget the supervisor's handlers and descriptors, in a fork of it."""
    signal.set_wakeup_fd(-1)
    for number in signals:
        signal.signal(number, signal.SIG_DFL)
    for descriptor in closed:
        os.close(descriptor)


def watcher_config(config: Config, found: FoundTrainer) -> Config:
    """The configuration of one watch: its trainer, and its rule's policy."""
    is_observed = found.rule.policy == "observe"
    return replace(
        config,
        target=TargetConfig(pid=found.target.pid),
        node=NodeConfig(),
        listen=NONE,
        policy=replace(config.policy, act=config.policy.act and not is_observed),
        daemon=replace(config.daemon, lock_memory=False),  # locked pages are not shared
    )


class _UntilSupervisorEnds(StopOnSignal):
    """The lifecycle of a watch that ends by a signal, and with the supervisor."""

    def __init__(self, supervisor_fd: int) -> None:
        super().__init__(linger_seconds=0.0)
        self._supervisor = select.poll()
        self._supervisor.register(supervisor_fd, select.POLLIN)

    def should_stop(self) -> bool:
        return super().should_stop() or bool(self._supervisor.poll(0))


def _watch(found: FoundTrainer, config: Config, setup: WatcherSetup, slot: int) -> int:
    own = watcher_config(config, found)
    clock = SystemClock()
    checkpoint = own.policy.checkpoint_seconds
    most = MAX_INTERVAL_SECONDS if checkpoint is None else min(MAX_INTERVAL_SECONDS, checkpoint)
    pace = SharedPace(setup.board, slot, own.memory.interval_seconds, most)
    reporter = StateReporter(
        setup.states_address, found.target.pid, found.rule.policy, found.workload, lambda: pace.interval
    )
    session = WatchSession(
        own,
        clock,
        EngineSettings.from_config(own).make_engine(),
        sys.stdout,
        Frontend(own, clock, sys.stdout, allow_live_view=False, watched_pid=found.target.pid),
        sinks=(reporter,),
        signals=STOP_SIGNALS,
        prints_summary=False,
        descriptors=(reporter.fileno(), setup.supervisor_fd),
        examination_budget=setup.board,
        pace=pace,
    )
    try:
        with (
            closing(reporter),
            TrainerWatch(session, _UntilSupervisorEnds(setup.supervisor_fd), read_target_facts(found.target)) as watch,
        ):
            exited = watch.run()
    except (NoTrainerError, TargetGoneError):  # it has ended just now
        return ExitCode.ENDED
    return ExitCode.STOPPED if exited is None else ExitCode.ENDED
