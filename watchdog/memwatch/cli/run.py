"""`memwatch run`: starts a trainer, watches it to its end and, if an option asks for it, starts it again."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from memwatch.actions.signal_sender import ExitStatus
from memwatch.app.composition import TrainerWatch, check_extras, configured_presets
from memwatch.app.engine_settings import EngineSettings
from memwatch.app.interrupter import check_hook
from memwatch.app.launched_trainer import (
    FORWARDED_SIGNALS,
    TERMINATING_SIGNALS,
    LaunchedTrainer,
    OutputLine,
    Passthrough,
    new_run_log_path,
    say,
    shell_status,
)
from memwatch.app.watch_session import Frontend, WatchSession, make_access_policy
from memwatch.cli.watch_serve_markers import config_from_flags
from memwatch.config.settings import Config
from memwatch.core import restart_policy
from memwatch.core.cause_of_death import ExitEvidence, explain_exit
from memwatch.core.engine.engine import Engine
from memwatch.core.engine.status_sentence import to_json_line
from memwatch.core.events import Cause, Event, GaveUp, Notice, Restarting
from memwatch.core.measurements import Limit
from memwatch.core.snapshot import Snapshot
from memwatch.errors import AttachError, ConfigError, MemwatchError, SourceError
from memwatch.sources.log.log_choice import require_files
from memwatch.sources.target.target_facts import command_line, read_started_target_facts, require_own_proc
from memwatch.system.clock import Sleeper, SystemClock, signal_handlers

MAX_RESTARTS = 1_000_000


def run(command: Sequence[str], flags: Mapping[str, Any], announce: Callable[[int], None] = lambda _: None) -> int:
    """`memwatch run -- ...`: start a trainer, watch it, and return its own exit status.

    `announce` is called with the PID of each trainer.
    """
    max_restarts, resume_command = _max_restarts(flags), _resume_command(command, flags)
    config = config_from_flags(flags)
    require_files(config.log.paths)
    configured_presets(config)  # this and the following checks refuse what cannot work before the trainer is started
    make_access_policy(config)
    check_hook(config, os.environ, command)
    check_extras(config)
    require_own_proc()
    clock = SystemClock()
    line = OutputLine()
    within = (lambda: line.is_open) if _is_one_place(1, 2) else None
    frontend = Frontend(config, clock, sys.stderr, allow_live_view=False, is_within_line=within)
    with closing(frontend):
        engine = EngineSettings.from_config(config).make_engine()
        session = WatchSession(config, clock, engine, sys.stderr, frontend, signals=FORWARDED_SIGNALS)
        return _TrainerRun(session, command, max_restarts, resume_command, announce=announce, line=line).run_to_end()


def _is_one_place(output: int, other: int) -> bool:
    """Whether two descriptors lead to the same terminal, pipe or file."""
    try:
        return os.path.sameopenfile(output, other)
    except OSError:
        return False


def _max_restarts(flags: Mapping[str, Any]) -> int | None:
    """Return None for as many as make progress."""
    text = flags.get("max_restarts")
    if text is not None and not (text.isdecimal() and 1 <= int(text) <= MAX_RESTARTS):
        raise ConfigError(f"--max-restarts {text}: not a number of restarts", f"give 1 to {MAX_RESTARTS}")
    return None if text is None else int(text)


def _resume_command(command: Sequence[str], flags: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the command that starts the trainer again after it saved; None when it is not to be started again."""
    text = flags.get("resume_with")
    if text is None:
        return tuple(command) if "max_restarts" in flags else None
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"--resume-with {text}: {error}", "quote it as for a shell") from error
    if not words or shutil.which(words[0]) is None:
        hint = "as in: memwatch run --resume-with 'python main.py --resume' -- python main.py"
        raise ConfigError(f"--resume-with {text}: no such command", hint)
    return words


class _TrainerRun:
    """Runs the trainers of a run, one after the other, with one engine, and is the lifecycle of each watch."""

    def __init__(
        self,
        session: WatchSession,
        command: Sequence[str],
        max_restarts: int | None,
        resume_command: tuple[str, ...] | None,
        *,
        announce: Callable[[int], None],
        line: OutputLine,
    ) -> None:
        self._session, self._config, self._clock = session, session.config, session.clock
        self.linger_seconds, self.end_page_seconds = session.config.daemon.linger_seconds, 0.0
        self._command, self._resume_command, self._max_restarts = tuple(command), resume_command, max_restarts
        self._announce, self._line = announce, line
        self._argv: tuple[str, ...] = ()  # of the first trainer, by which the history identifies the run
        self._child: LaunchedTrainer | None = None
        self._early_signals: list[int] = []  # terminating signals that arrived while no trainer ran
        self._began_t = 0.0
        self._ends: list[restart_policy.AttemptEnd] = []
        self._restarting: Restarting | None = None

    def run_to_end(self) -> int:
        """Return the exit status of the last trainer."""
        with signal_handlers(FORWARDED_SIGNALS, self.on_signal):
            while True:
                child = self._start()
                self._watch(child)
                self._child = None
                if self._restarting is None:
                    break
                if child.end_requested:
                    say("asked to end by a signal: the trainer is not started again")
                    break
                self._command = self._resume_command or self._command
            return shell_status(child.wait())

    def _start(self) -> LaunchedTrainer:
        child = LaunchedTrainer(self._command, new_run_log_path(os.environ))
        self._announce(child.pid)
        self._began_t, self._child, self._restarting = self._clock.now(), child, None
        for number in self._early_signals:
            child.forward_signal(number)
        return child

    def should_stop(self) -> bool:
        return False

    def on_signal(self, number: int) -> None:
        if self._child is not None:
            self._child.forward_signal(number)
        elif number in TERMINATING_SIGNALS:
            self._early_signals.append(number)

    def _watch(self, child: LaunchedTrainer) -> None:
        """Watch the trainer to its end and copy its output to memwatch's. It runs on whatever fails in memwatch."""
        passthrough = child.passthrough = Passthrough(child.log, 2 if self._config.json else 1, self._line)
        try:
            facts = read_started_target_facts(child.pid)
            self._argv = self._argv or facts.argv
            facts = replace(facts, argv=self._argv)  # the same run, whatever it is resumed with
            with TrainerWatch(self._session, self, facts, child) as trainer_watch:
                trainer_watch.run()
            self._await_restart(child)
        except (AttachError, SourceError):
            _report_early_exit(self._config, child.wait())
        except MemwatchError as error:
            say(f"{error}: the trainer runs on unwatched")
        except Exception:  # a bug in memwatch must not end the trainer
            say(f"{traceback.format_exc()}this is a bug in memwatch; the trainer runs on unwatched")
        finally:
            child.wait()
            passthrough.close()

    def on_exit(self, end: Snapshot) -> Sequence[Event]:
        """Decide whether to start another trainer, by all ends so far and this one."""
        decided: Restarting | GaveUp | None = None
        if self._resume_command is not None and self._child is not None and end.exited is not None:
            is_ours = end.exited.cause in (Cause.SAVED, Cause.UNSAVED)
            saved = is_ours and self._is_resumable(end) and not self._child.end_requested
            ran_seconds, progress = end.t - self._began_t, self._session.engine.attempt_progress
            self._ends.append(restart_policy.AttemptEnd(end.t, ran_seconds, saved, progress, _tightest_limit(end)))
            resume_command = command_line(self._resume_command)
            decided = restart_policy.decide_restart(self._max_restarts, self._ends, resume_command)
        self._restarting = decided if isinstance(decided, Restarting) else None
        self.linger_seconds = self._config.daemon.linger_seconds if self._restarting is None else 0.0
        return () if decided is None else (decided,)

    def _is_resumable(self, end: Snapshot) -> bool:
        """Whether there is a checkpoint of this trainer process to go on from."""
        exited = end.exited
        if exited is None or exited.cause is Cause.SAVED:
            return exited is not None
        return exited.checkpoint is not None and exited.t - exited.checkpoint.age_seconds >= self._began_t

    def _await_restart(self, child: LaunchedTrainer) -> None:
        """Wait until the next trainer is due; the outputs show the end of this one meanwhile."""
        if self._restarting is None:
            return
        due_t = self._restarting.t + self._restarting.after_seconds
        with Sleeper((), FORWARDED_SIGNALS, self.on_signal) as sleeper:
            while (left := due_t - self._clock.now()) > 0 and not child.end_requested:
                sleeper.sleep_until_signal(left)


def _tightest_limit(end: Snapshot) -> Limit | None:
    """Return the limit of which the smallest share is left."""
    limits = [view.usage.limit for view in end.resources if view.usage.limit is not None]
    return min(limits, key=lambda limit: limit.headroom_bytes / limit.bytes, default=None)


def _report_early_exit(config: Config, status: int) -> None:
    """Report a trainer that ended before it could be watched, by its exit status."""
    ended = ExitStatus.from_returncode(status)
    evidence = ExitEvidence(exit_code=ended.exit_code, exit_signal=ended.signal)
    engine = Engine(config.policy)
    for action in engine.feed(explain_exit(SystemClock().now(), evidence)):
        if isinstance(action, Notice) and config.json:
            print(to_json_line(action), flush=True)
        elif isinstance(action, Notice):
            say(f"it ended before it could be watched: {action.text}")
