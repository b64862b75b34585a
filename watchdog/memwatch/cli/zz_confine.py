"""A real memory limit for a child process, the strictest that this user may set: what the demo runs under."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from memwatch.core.zz_units import format_bytes

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
