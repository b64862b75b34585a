"""`memwatch demo`: the main job from beginning to end, on the example trainer, under a real limit.

A real memory limit for a child process, the strictest that this user may set: what the demo runs under.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from memwatch.app.composition import TrainerWatch
from memwatch.app.launched_trainer import FORWARDED_SIGNALS, LaunchedTrainer, forward_signals
from memwatch.app.watch_session import ForwardSignals, open_session
from memwatch.config.settings import Config
from memwatch.core.events import Cause, Exited
from memwatch.core.text_and_units import format_bytes
from memwatch.errors import AttachError, ConfigError, ExitCode, SourceError
from memwatch.sources.target.target_facts import read_argv, read_started_target_facts
from memwatch.system import package_data

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Confinement:
    """How to start a command so that the limit holds for it."""

    description: str
    prefix: tuple[str, ...] = ()  # words before the command
    before_exec: Callable[[], None] | None = None  # in the child, before it becomes the command
    close: Callable[[], None] = field(default=lambda: None)  # when the child has ended


def confine(limit_bytes: int) -> Confinement:
    """A memory cgroup if one can be made, else a systemd user scope, else RLIMIT_DATA."""
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
        with suppress(OSError):  # no swap accounting here: no swap to forbid either, or it cannot be forbidden
            swap.write_text(str(limit_bytes) if version_1.exists() else "0")
    except OSError:  # no memory controller below this group
        group.rmdir()
        return None
    processes = str(group / "cgroup.procs")

    def enter() -> None:
        with open(processes, "w") as file:
            file.write(str(os.getpid()))

    if not _works((), enter):  # a group below may not take processes
        _remove(group)
        return None
    return Confinement(f"memory cgroup {group.name}, {format_bytes(limit_bytes)}", (), enter, lambda: _remove(group))


def _works(prefix: tuple[str, ...], before_exec: Callable[[], None] | None = None) -> bool:
    """A command can be started so."""
    try:
        command = (*prefix, "true")
        tried = subprocess.run(command, capture_output=True, timeout=5, check=False, preexec_fn=before_exec)
    except (OSError, subprocess.SubprocessError):  # the latter: before_exec failed, or it took too long
        return False
    return tried.returncode == 0


def _remove(group: Path) -> None:
    for _ in range(50):  # the kernel lets go of a dead process's group a moment later
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)
        else:
            return


def _scope(limit_bytes: int) -> Confinement | None:
    if shutil.which("systemd-run") is None:
        return None
    bounds = ("-p", f"MemoryMax={limit_bytes}", "-p", "MemorySwapMax=0")
    prefix = ("systemd-run", "--user", "--scope", "--quiet", *bounds)
    return Confinement(f"systemd scope, {format_bytes(limit_bytes)}", prefix) if _works(prefix) else None


def _rlimit(limit_bytes: int) -> Confinement:
    def enter() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))

    return Confinement(f"RLIMIT_DATA, {format_bytes(limit_bytes)}", (), enter)


LIMIT_BYTES = 512_000_000
GENERATIONS = "20"  # alone the leaking trainer dies at the 14th or 15th; what is left of them fits when it is mended
LEAKING = ("--leak", "buffer", "--seconds", "2.5", "--generations", GENERATIONS)
MENDED = ("--leak", "none", "--seconds", "1.5", "--generations", GENERATIONS, "--resume")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
PREFIX_SECONDS = 5.0  # that the words before a confined command take to become the command


def run_demo(config: Config) -> int:
    """Watch the leaking trainer to its interrupt, then the mended one, resumed, to its end."""
    if importlib.util.find_spec("numpy") is None:
        raise ConfigError("the example trainer needs numpy", "pip install 'memwatch[demo]'")
    memory = replace(config.memory, interval_seconds=min(0.25, config.memory.interval_seconds))
    with _folder() as folder, _confined() as confinement:
        shutil.copy(package_data.example_trainer(), folder / "evolve.py")
        config = replace(config, memory=memory, history=config.history or str(folder / "history.db"))
        try:
            return _demonstrate(config, folder, confinement)
        except KeyboardInterrupt:
            _say(config, "", "Stopped. Nothing is left behind.")
            return ExitCode.STOPPED


def _demonstrate(config: Config, folder: Path, confinement: Confinement) -> int:
    _say(
        config,
        f"An evolutionary trainer whose replay buffer can never fit, under a real limit ({confinement.description}).",
        f"Alone it dies at about generation 14 of {GENERATIONS}. While it runs, its log is {folder / 'leaking.log'}",
    )
    exited = _watch(config, folder, "leaking", LEAKING, confinement)
    if config.dry_run:
        _say(config, "", "Nothing was signalled (--dry-run): this is how it ends without memwatch.")
        return ExitCode.ENDED
    if exited is None or exited.cause is not Cause.SAVED:
        return _failed(config, "The leaking trainer was not interrupted and saved: see the evidence above.", folder)
    limit = format_bytes(LIMIT_BYTES)
    _say(config, "", f"Saved before {limit} were full. The buffer is mended, the trainer resumes under the same limit.")
    exited = _watch(config, folder, "resumed", MENDED, confinement)
    if exited is None or exited.cause is not Cause.COMPLETED:
        return _failed(config, "The resumed trainer did not end well: see above.", folder)
    _say(config, "", f"It ran to its last generation, {GENERATIONS} of {GENERATIONS}.")
    return ExitCode.ENDED


def _failed(config: Config, what: str, folder: Path) -> int:
    """Say so, with the last words of the trainer, which go with its folder."""
    logs = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)
    words = logs[-1].read_text(errors="replace").splitlines()[-8:] if logs else []
    _say(config, "", what, *(f"  {word}" for word in words))
    return ExitCode.FAILED


def _watch(config: Config, folder: Path, name: str, options: Sequence[str], confinement: Confinement) -> Exited | None:
    """How the trainer ended; None when it ended before it could be watched."""
    command = (*confinement.prefix, sys.executable, "evolve.py", *options)
    child = LaunchedTrainer(command, folder / f"{name}.log", ONE_THREAD, confinement.before_exec, folder)
    try:
        with forward_signals(child.forward_signal):
            _await_command(child.pid, confinement)
            facts = read_started_target_facts(child.pid)
            lifecycle = ForwardSignals(child.forward_signal, config.daemon.linger_seconds)
            with (
                open_session(config, FORWARDED_SIGNALS) as session,
                TrainerWatch(session, lifecycle, facts, child) as watching,
            ):
                exited = watching.run()
    except (AttachError, SourceError):
        exited = None
    finally:
        child.terminate()
    if child.end_requested:  # by a Ctrl-C, for one: it ends both
        raise KeyboardInterrupt
    return exited


def _await_command(pid: int, confinement: Confinement) -> None:
    """systemd-run enters its scope and becomes the command only then: before, its cgroup is not the trainer's."""
    deadline = time.monotonic() + PREFIX_SECONDS
    while confinement.prefix and read_argv(pid)[:1] in ([], [confinement.prefix[0]]) and time.monotonic() < deadline:
        time.sleep(0.02)


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder of the demo's own, removed at the end; a TERM is an end like any other."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    folder = Path(tempfile.mkdtemp(prefix="memwatch-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _confined() -> Iterator[Confinement]:
    confinement = confine(LIMIT_BYTES)
    try:
        yield confinement
    finally:
        confinement.close()


def _say(config: Config, *lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr if config.json else sys.stdout, flush=True)
