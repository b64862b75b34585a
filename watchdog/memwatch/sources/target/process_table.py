"""The processes of this machine by their command lines, and which of them belong together as one program.

The only module that imports psutil, and only to search: that costs 4 MiB, which a watch by --pid does not pay.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

from memwatch.core.text_and_units import printable
from memwatch.errors import AttachError
from memwatch.sources.target.target_facts import is_torchrun, read_argv
from memwatch.system.clock import CpuTimeExceededError, run_with_cpu_limit

_MATCH_SECONDS = 1.0  # of CPU for all command lines: a simple regex takes 1 us for each
# Programs that start the trainer, and have its command line at the end of their own.
_WRAPPER = re.compile(
    r"sh|bash|dash|zsh|ksh|fish|sudo|su|doas|env|nohup|setsid|timeout|nice|ionice|taskset|numactl|stdbuf|"
    r"time|xvfb-run|uv|poetry|pipenv|pdm|hatch|conda|mamba|micromamba|srun|mpirun|mpiexec|tmux|screen|"
    r"script|docker|strace|systemd-run|make"
)


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process with a command line."""

    pid: int
    parent: int
    argv: tuple[str, ...]
    rss_bytes: int
    shared_bytes: int = 0  # of it: of files and shared memory

    @property
    def command(self) -> str:
        """The command line in one string, to which --match is applied."""
        return " ".join(self.argv)


def read_programs(root: str) -> dict[int, ProcessInfo]:
    """Return the processes with a command line by PID: without memwatch's own, and the programs that started this one.

    Those (a shell, sudo) have the regex in their command line, too.
    """
    found = {one.pid: one for one in _processes(root)}
    own = {pid for pid, one in found.items() if _is_memwatch(one.argv)} | {os.getpid()} | ancestors(os.getpid(), found)
    return {pid: one for pid, one in found.items() if pid not in own}


def _processes(root: str) -> Iterator[ProcessInfo]:
    """Yield every process with a command line, so neither kernel threads nor zombies."""
    import psutil

    psutil.PROCFS_PATH = root
    for pid in psutil.pids():
        argv = tuple(read_argv(pid, root))  # psutil splits some command lines at blanks
        if argv:
            with suppress(psutil.Error, OSError):  # it has ended meanwhile, or is hidden
                process = psutil.Process(pid)
                memory = process.memory_info()
                yield ProcessInfo(pid, process.ppid(), argv, memory.rss, memory.shared)


def preload_search() -> None:
    """Import what a search needs, so that the first one takes no longer than those that follow."""
    import psutil  # noqa: F401


def ancestors(pid: int, processes: Mapping[int, ProcessInfo]) -> set[int]:
    """Return the PIDs above `pid`, as far as they are known."""
    found = set[int]()
    while pid in processes and (pid := processes[pid].parent) not in found:  # they may form a circle
        found.add(pid)
    return found


def families(tops: Iterable[int], processes: Mapping[int, ProcessInfo]) -> dict[int, list[ProcessInfo]]:
    """Return each of these PIDs with its process and those below it."""
    found: dict[int, list[ProcessInfo]] = {pid: [] for pid in tops}
    for process in processes.values():
        if (top := nearest_ancestor(process.pid, found, processes)) is not None:
            found[top].append(process)
    return found


def nearest_ancestor(pid: int, wanted: Container[int], processes: Mapping[int, ProcessInfo]) -> int | None:
    """Return `pid` or its nearest ancestor that is wanted."""
    seen = set[int]()
    while pid in processes and pid not in wanted and pid not in seen:  # they may form a circle
        seen.add(pid)
        pid = processes[pid].parent
    return pid if pid in wanted else None


def matching_processes(pattern: re.Pattern[str], processes: Iterable[ProcessInfo]) -> list[ProcessInfo]:
    """Return those whose command line matches; AttachError when the user's regex takes too long."""
    try:
        return run_with_cpu_limit(_MATCH_SECONDS, lambda: [p for p in processes if pattern.search(p.command)])
    except CpuTimeExceededError:
        text = f"--match {printable(pattern.pattern)!r} takes more than {_MATCH_SECONDS:g} s for the processes here"
        hint = "Leave out repetitions of repetitions, as in (a+)+, or name a part of the command."
        raise AttachError(text, hint) from None


def _is_memwatch(argv: tuple[str, ...]) -> bool:
    """`memwatch ...`, `python .../bin/memwatch ...`, `python -m memwatch ...`, `python -c 'from memwatch...'`."""
    words = [argv[0], *(word for word in argv[1:4] if not word.startswith("-"))]
    return any(PurePath(word).name == "memwatch" or word.startswith("from memwatch.") for word in words[:2])


def family_tops(matching: Mapping[int, ProcessInfo], processes: Mapping[int, ProcessInfo]) -> list[ProcessInfo]:
    """Return the topmost process of each family, below the shells and runners that only started it.

    Forked DataLoader workers have the same command line as the trainer, torchrun's ranks most of it.
    """
    below: dict[int, list[ProcessInfo]] = {}
    tops = []
    for process in matching.values():
        above = nearest_ancestor(process.parent, matching, processes)
        if above is None:
            tops.append(process)
        else:
            below.setdefault(above, []).append(process)
    trainers = []
    while tops:
        top = tops.pop()
        if top.pid in below and _is_wrapper(top, below[top.pid]):
            tops += below[top.pid]
        else:
            trainers.append(top)
    return sorted(trainers, key=lambda process: process.pid)


def _is_wrapper(process: ProcessInfo, started: list[ProcessInfo]) -> bool:
    """Whether it only starts another program, whose command line its own contains."""
    if is_torchrun(process.argv):
        return False
    if _WRAPPER.fullmatch(PurePath(process.argv[0]).name.lstrip("-")):
        return True
    return all(child.command != process.command and child.command in process.command for child in started)


def is_python(process: ProcessInfo, root: str) -> bool:
    try:
        program: PurePath = Path(f"{root}/{process.pid}/exe").readlink()
    except OSError:  # of another user
        program = PurePath(process.argv[0])
    return program.name.startswith(("python", "pypy"))


def there_are_gpus() -> bool:
    """Whether this machine has NVIDIA devices."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def open_gpus(pid: int, root: str) -> tuple[int, ...]:
    """The NVIDIA devices that the process has open; none where that may not be read."""
    found = set[int]()
    with suppress(OSError):
        for descriptor in Path(f"{root}/{pid}/fd").iterdir():
            with suppress(OSError):
                device = str(descriptor.readlink()).partition("/dev/nvidia")[2]
                if device.isdecimal():
                    found.add(int(device))
    return tuple(found)


def age_seconds(pid: int) -> float | None:
    """Return the seconds since the process was started; None for one that has ended."""
    import psutil

    try:
        return max(0.0, time.time() - float(psutil.Process(pid).create_time()))
    except (psutil.Error, OSError):
        return None
