"""`memwatch demo`: the example trainer under a real memory limit, interrupted, saved, fixed and resumed."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memwatch.app.composition import TrainerWatch, check_extras
from memwatch.app.launched_trainer import FORWARDED_SIGNALS, LaunchedTrainer
from memwatch.app.watch_session import ForwardSignals, open_session
from memwatch.cli.watch_serve_markers import config_from_flags
from memwatch.config.settings import Config
from memwatch.core.events import Cause, Exited
from memwatch.core.text_and_units import format_bytes
from memwatch.errors import AttachError, ExitCode, SourceError
from memwatch.sources.target.target_facts import read_argv, read_started_target_facts
from memwatch.system import package_data
from memwatch.system.clock import signal_handlers

LIMIT_BYTES = 512_000_000
GENERATIONS = "20"  # unwatched, the leaking trainer dies in the 14th or 15th
LEAKING = ("--leak", "buffer", "--seconds", "2.5", "--generations", GENERATIONS)
FIXED = ("--leak", "none", "--seconds", "1.5", "--generations", GENERATIONS, "--resume")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
SAMPLE_SECONDS = 0.25  # the longest time between samples
LAST_LOG_LINES = 8  # of the trainer, shown when the demo fails


def demo(flags: Mapping[str, Any]) -> int:
    """`memwatch demo`: watch the leaking trainer to its interrupt, then the fixed one, resumed, to its end."""
    config = config_from_flags(flags)
    check_extras(config)
    memory = replace(config.memory, interval_seconds=min(SAMPLE_SECONDS, config.memory.interval_seconds))
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends the demo as Ctrl-C does
    temporary_folder = TemporaryDirectory(prefix="memwatch-demo-", ignore_cleanup_errors=True)
    try:
        with temporary_folder as name, closing(confine(LIMIT_BYTES)) as confinement:
            folder = Path(name)
            shutil.copy(package_data.example_trainer(), folder / "evolve.py")
            config = replace(config, memory=memory, history=config.history or str(folder / "history.db"))
            return _demonstrate(config, folder, confinement)
    except KeyboardInterrupt:
        _say(config, "", "Stopped. Nothing is left behind.")
        return ExitCode.STOPPED
    finally:
        signal.signal(signal.SIGTERM, handler)


def _demonstrate(config: Config, folder: Path, confinement: Confinement) -> int:
    _say(
        config,
        f"An evolutionary trainer whose replay buffer can never fit, under a real limit ({confinement.description}).",
        f"Unwatched, it dies at about generation 14 of {GENERATIONS}. Until then its log is {folder / 'leaking.log'}",
    )
    exited = _watch(config, folder, "leaking", LEAKING, confinement)
    if config.dry_run:
        _say(config, "", "No signal was sent (--dry-run): this is how it ends without memwatch.")
        return ExitCode.ENDED
    if exited is None or exited.cause is not Cause.SAVED:
        return _fail(config, "The leaking trainer was not interrupted and saved: see the evidence above.", folder)
    limit = format_bytes(LIMIT_BYTES)
    _say(config, "", f"Saved before {limit} were full. Its leak is fixed, and it resumes under the same limit.")
    exited = _watch(config, folder, "resumed", FIXED, confinement)
    if exited is None or exited.cause is not Cause.COMPLETED:
        return _fail(config, "The resumed trainer did not complete: see above.", folder)
    _say(config, "", f"It ran to its last generation, {GENERATIONS} of {GENERATIONS}.")
    return ExitCode.ENDED


def _say(config: Config, *lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr if config.json else sys.stdout, flush=True)


def _fail(config: Config, message: str, folder: Path) -> int:
    """Print the message and the last lines of the trainer's log, which is deleted with its folder."""
    logs = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)
    lines = logs[-1].read_text(errors="replace").splitlines()[-LAST_LOG_LINES:] if logs else []
    _say(config, "", message, *(f"  {line}" for line in lines))
    return ExitCode.FAILED


def _watch(config: Config, folder: Path, name: str, options: Sequence[str], confinement: Confinement) -> Exited | None:
    """Start and watch a trainer, and return how it ended; None when it ended before it could be watched."""
    command = (*confinement.prefix, sys.executable, "evolve.py", *options)
    child = LaunchedTrainer(command, folder / f"{name}.log", ONE_THREAD, confinement.before_exec, folder)
    lifecycle = ForwardSignals(child.forward_signal, config.daemon.linger_seconds)
    try:
        with signal_handlers(FORWARDED_SIGNALS, child.forward_signal):
            _await_command(child.pid, confinement)
            facts = read_started_target_facts(child.pid)
            with (
                open_session(config, FORWARDED_SIGNALS) as session,
                TrainerWatch(session, lifecycle, facts, child) as trainer_watch,
            ):
                exited = trainer_watch.run()
    except (AttachError, SourceError):
        exited = None
    finally:
        child.terminate()
    if child.end_requested:  # as by a Ctrl-C, which ends the demo too
        raise KeyboardInterrupt
    return exited


# --- a real memory limit for a child process ------------------------------------------------------------------------

CGROUPS = Path("/sys/fs/cgroup")
PREFIX_SECONDS = 5.0  # the longest time until `systemd-run` becomes the command that it starts


@dataclass(frozen=True, slots=True)
class Confinement:
    """How to start a command so that the limit holds for it."""

    description: str
    prefix: tuple[str, ...] = ()  # words before the command
    before_exec: Callable[[], None] | None = None  # called in the child, before it becomes the command
    close: Callable[[], None] = field(default=lambda: None)  # to be called when the child has ended


def confine(limit_bytes: int) -> Confinement:
    """The strictest limit that this user can set: a memory cgroup, else a systemd user scope, else RLIMIT_DATA."""
    return _cgroup(limit_bytes) or _scope(limit_bytes) or _rlimit(limit_bytes)


def _cgroup(limit_bytes: int) -> Confinement | None:
    version_1 = CGROUPS / "memory" / "memory.limit_in_bytes"
    parent = version_1.parent if version_1.exists() else CGROUPS
    group = parent / f"memwatch-demo-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        return None
    limit = group / ("memory.limit_in_bytes" if version_1.exists() else "memory.max")
    swap = group / ("memory.memsw.limit_in_bytes" if version_1.exists() else "memory.swap.max")
    try:
        limit.write_text(str(limit_bytes))
        with suppress(OSError):  # without swap accounting there is no swap to forbid, or it cannot be forbidden
            swap.write_text(str(limit_bytes) if version_1.exists() else "0")
    except OSError:  # there is no memory controller below this group
        group.rmdir()
        return None
    processes = str(group / "cgroup.procs")

    def enter() -> None:
        with open(processes, "w") as file:
            file.write(str(os.getpid()))

    if not _can_start((), enter):  # a group below this one may not take processes
        _remove(group)
        return None
    return Confinement(f"memory cgroup {group.name}, {format_bytes(limit_bytes)}", (), enter, lambda: _remove(group))


def _remove(group: Path) -> None:
    for _ in range(50):  # the kernel releases the group of a dead process a moment later
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)


def _scope(limit_bytes: int) -> Confinement | None:
    bounds = ("-p", f"MemoryMax={limit_bytes}", "-p", "MemorySwapMax=0")
    prefix = ("systemd-run", "--user", "--scope", "--quiet", *bounds)
    return Confinement(f"systemd scope, {format_bytes(limit_bytes)}", prefix) if _can_start(prefix) else None


def _rlimit(limit_bytes: int) -> Confinement:
    def enter() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))

    return Confinement(f"RLIMIT_DATA, {format_bytes(limit_bytes)}", (), enter)


def _can_start(prefix: tuple[str, ...], before_exec: Callable[[], None] | None = None) -> bool:
    try:
        command = (*prefix, "true")
        tried = subprocess.run(command, capture_output=True, timeout=5, check=False, preexec_fn=before_exec)
    except (OSError, subprocess.SubprocessError):  # the latter: before_exec failed, or the command took too long
        return False
    return tried.returncode == 0


def _await_command(pid: int, confinement: Confinement) -> None:
    """Wait until systemd-run has become the command: until then its cgroup is not the trainer's."""
    deadline = time.monotonic() + PREFIX_SECONDS
    while confinement.prefix and read_argv(pid)[:1] in ([], [confinement.prefix[0]]) and time.monotonic() < deadline:
        time.sleep(0.02)
