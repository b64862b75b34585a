"""Finds the trainer by PID, PID file, command line, unit or cgroup: one PID, or an error with the candidates.

And lists the processes that may be one.

The only module that imports psutil, and only to search: that costs 4 MiB, which a watch by --pid does not pay.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import time
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

from memwatch.core.text_and_units import format_bytes, format_duration, printable
from memwatch.errors import AttachError, ConfigError, NoTrainerError, SourceError
from memwatch.sources.kernel_files import read_whole
from memwatch.sources.procfs import read_stat
from memwatch.sources.target.systemd_unit import read_unit
from memwatch.sources.target.target_facts import is_torchrun, read_argv
from memwatch.system.clock import CpuTimeExceededError, run_with_cpu_limit

OPTIONS = "--pid PID, --pidfile FILE, --match REGEX, --unit NAME and --cgroup PATH"
_MAX_LISTED = 8  # processes in an error
_PIDFILE_BYTES = 4096
_MATCH_SECONDS = 1.0  # of CPU for all command lines: a simple regex takes 1 us for each
_STALE_SECONDS = 5.0  # tolerance between a file's time and a process's start: the clock may have been set meanwhile
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


@dataclass(frozen=True, slots=True)
class RunningTrainer:
    """A process that may be a trainer: a Python program, or one that uses an NVIDIA GPU."""

    pid: int
    command: str
    used_bytes: int  # of it and its descendants, what these share counted for one of them
    age_seconds: float | None
    gpus: tuple[int, ...]  # minor numbers of the devices that it or a descendant has open


def find_trainer_pid(
    *,
    pid: int | None = None,
    pidfile: str | None = None,
    match: str | None = None,
    unit: str | None = None,
    cgroup: str | None = None,
    excluded: Collection[tuple[int, int]] = (),
    root: str = "/proc",
) -> int:
    """Find the PID by one of these options; `match` beside `unit` or `cgroup` chooses among their processes.

    Processes in `excluded`, by PID and start time in ticks, are ignored. NoTrainerError when there is none, AttachError
    when several match, ConfigError for an invalid regex and for options that exclude each other.
    """
    alone, scopes = (pid, pidfile), (unit, cgroup)
    ways = sum(given is not None for given in (*alone, *scopes))
    if ways > 1 or (match is not None and any(given is not None for given in alone)) or not (ways or match):
        raise ConfigError("which process?", f"Give one of {OPTIONS}; --match also beside the last two.")
    if pid is not None:
        return pid
    if pidfile is not None:
        return _from_pidfile(pidfile, root)
    return _from_processes(unit, cgroup, match, excluded, root)


def running_trainers(root: str = "/proc") -> list[RunningTrainer]:
    """List the processes that may be trainers, those that use the most memory first.

    Of a family (workers, ranks) it is the topmost; memwatch, and what started it, is none.
    """
    processes = {process.pid: process for process in _processes(root)}
    for own in _memwatch_pids(processes):
        del processes[own]
    gpus = {pid: _open_gpus(pid, root) for pid in processes} if any(Path("/dev").glob("nvidia[0-9]*")) else {}
    candidates = {pid: one for pid, one in processes.items() if gpus.get(pid) or _is_python(one, root)}
    tops = {one.pid: one for one in _family_tops(candidates, processes)}
    families: dict[int, list[ProcessInfo]] = {pid: [] for pid in tops}
    for process in processes.values():
        if (top := _nearest(process.pid, tops, processes)) is not None:
            families[top].append(process)
    found = []
    for pid, family in families.items():
        used = sum(one.rss_bytes - one.shared_bytes for one in family) + max(one.shared_bytes for one in family)
        devices = {gpu for one in family for gpu in gpus.get(one.pid, ())}
        found.append(RunningTrainer(pid, tops[pid].command, used, _age_seconds(pid), tuple(sorted(devices))))
    return sorted(found, key=lambda one: (not one.gpus, -one.used_bytes))


def _is_python(process: ProcessInfo, root: str) -> bool:
    try:
        program: PurePath = Path(f"{root}/{process.pid}/exe").readlink()
    except OSError:  # of another user
        program = PurePath(process.argv[0])
    return program.name.startswith(("python", "pypy"))


def _open_gpus(pid: int, root: str) -> tuple[int, ...]:
    """The NVIDIA devices that the process has open; none where that may not be read."""
    found = set[int]()
    with suppress(OSError):
        for descriptor in Path(f"{root}/{pid}/fd").iterdir():
            with suppress(OSError):
                device = str(descriptor.readlink()).partition("/dev/nvidia")[2]
                if device.isdecimal():
                    found.add(int(device))
    return tuple(found)


def preload_search() -> None:
    """Import what a search needs, so that the first one takes no longer than those that follow."""
    import psutil  # noqa: F401


def _from_pidfile(path: str, root: str) -> int:
    hint = "A PID file holds the process ID in decimal on its first line."
    try:
        with open(path, "rb") as file:
            lines = file.read(_PIDFILE_BYTES).splitlines()
            age = time.time() - os.fstat(file.fileno()).st_mtime
    except OSError as error:
        question = "Is the trainer started, and does it write it?"
        raise NoTrainerError(f"PID file {path}: {error.strerror}", question) from error
    first = lines[0].strip() if lines else b""
    if not first:
        raise NoTrainerError(f"PID file {path} is empty", hint)
    if not re.fullmatch(rb"[0-9]{1,10}", first):
        raise AttachError(f"PID file {path} holds {printable(first.decode('utf-8', 'replace'), 40)!r}, no PID", hint)
    _require_fresh_pidfile(path, int(first), age, root)
    return int(first)


def _require_fresh_pidfile(path: str, pid: int, age: float, root: str) -> None:
    """NoTrainerError when the process started after the file was written: the PID was reused."""
    try:
        began = read_stat(pid, root).start_ticks / os.sysconf("SC_CLK_TCK")
        uptime = float(read_whole(f"{root}/uptime").split()[0])
    except (SourceError, ValueError, IndexError):
        return  # the next reader of this process reports what is wrong with it
    late = age - (uptime - began)
    if late > _STALE_SECONDS:
        text = f"PID file {path} is of an earlier process: {pid} began {format_duration(late)} after it was written"
        raise NoTrainerError(text, "Write it anew when the trainer starts; touch it if it is right nevertheless.")


def _from_processes(
    unit: str | None, cgroup: str | None, regex: str | None, excluded: Collection[tuple[int, int]], root: str
) -> int:
    try:
        pattern = re.compile(regex or "")
    except (re.error, OverflowError, RecursionError) as error:
        text = f"--match {regex!r} is not a regular expression: {error}"
        raise ConfigError(text, "Escape . ( [ * with \\.") from error
    processes = {process.pid: process for process in _processes(root) if not _is_excluded(process.pid, excluded, root)}
    for own in _memwatch_pids(processes):
        del processes[own]
    scope, name = list(processes.values()), ""
    if unit is not None:
        scope, name = _of_unit(unit, processes, root), f"unit {unit}"
    elif cgroup is not None:
        scope, name = _of_cgroup(cgroup, processes, root), f"cgroup {cgroup}"
    matching = {process.pid: process for process in _matching(pattern, scope)}
    trainers = _family_tops(matching, processes)
    criteria = " of ".join(filter(None, [f"--match '{printable(regex)}'" if regex is not None else "", name]))
    if len(trainers) == 1:
        return trainers[0].pid
    if trainers:
        text = f"{criteria} fits {len(trainers)} processes:\n{_table(trainers)}"
        choose, narrow = "Choose one of them by --match REGEX besides.", "Make the regex fit one of them, or use --pid."
        raise AttachError(text, choose if regex is None else narrow)
    if regex is None:
        raise NoTrainerError(f"{criteria} has no process", "Is it started, and on this machine?")
    raise NoTrainerError(f"{criteria} fits no process", _suggest(regex, scope))


def _of_unit(name: str, processes: Mapping[int, ProcessInfo], root: str) -> list[ProcessInfo]:
    """A service's main process and its descendants; all processes of a scope or a slice."""
    unit = read_unit(name)
    if unit.main_pid is None:
        return _of_cgroup(glob.escape(unit.cgroup), processes, root)
    return [process for process in processes.values() if _nearest(process.pid, {unit.main_pid}, processes)]


def _of_cgroup(pattern: str, processes: Mapping[int, ProcessInfo], root: str) -> list[ProcessInfo]:
    """Those in or below a cgroup that matches, in any hierarchy: the names are the same."""
    inside = f"/{pattern.strip('/')}/*"
    found = []
    for process in processes.values():
        try:
            lines = read_whole(f"{root}/{process.pid}/cgroup").splitlines()
        except SourceError:
            continue  # it has exited meanwhile
        paths = (os.fsdecode(line.split(b":", 2)[-1]) for line in lines)
        if any(fnmatch.fnmatchcase(f"{path}/", inside) for path in paths):
            found.append(process)
    return found


def _nearest(pid: int, wanted: Container[int], processes: Mapping[int, ProcessInfo]) -> int | None:
    """Return `pid` or its nearest ancestor that is wanted."""
    seen = set[int]()
    while pid in processes and pid not in wanted and pid not in seen:  # they may form a circle
        seen.add(pid)
        pid = processes[pid].parent
    return pid if pid in wanted else None


def _matching(pattern: re.Pattern[str], processes: Iterable[ProcessInfo]) -> list[ProcessInfo]:
    """Return those whose command line matches; AttachError when the user's regex takes too long."""
    try:
        return run_with_cpu_limit(_MATCH_SECONDS, lambda: [p for p in processes if pattern.search(p.command)])
    except CpuTimeExceededError:
        text = f"--match {printable(pattern.pattern)!r} takes more than {_MATCH_SECONDS:g} s for the processes here"
        hint = "Leave out repetitions of repetitions, as in (a+)+, or name a part of the command."
        raise AttachError(text, hint) from None


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


def _is_excluded(pid: int, excluded: Collection[tuple[int, int]], root: str) -> bool:
    """psutil derives the start time from a clock that may be set; the kernel's count of ticks never changes."""
    if not any(pid == other for other, _ in excluded):
        return False
    try:
        return (pid, read_stat(pid, root).start_ticks) in excluded
    except SourceError:  # it has ended meanwhile
        return True


def _memwatch_pids(processes: Mapping[int, ProcessInfo]) -> set[int]:
    """Return every memwatch and the programs that started this one (a shell, sudo): all have the regex in argv."""
    own = {process.pid for process in processes.values() if _is_memwatch(process.argv)}
    pid = os.getpid()
    while pid in processes:
        own.add(pid)
        pid = processes[pid].parent
    return own


def _is_memwatch(argv: tuple[str, ...]) -> bool:
    """`memwatch ...`, `python .../bin/memwatch ...`, `python -m memwatch ...`."""
    words = [argv[0], *(word for word in argv[1:4] if not word.startswith("-"))]
    return any(PurePath(word).name == "memwatch" for word in words[:2])


def _family_tops(matching: Mapping[int, ProcessInfo], processes: Mapping[int, ProcessInfo]) -> list[ProcessInfo]:
    """Return the topmost process of each family, below the shells and runners that only started it.

    Forked DataLoader workers have the same command line as the trainer, torchrun's ranks most of it.
    """
    below: dict[int, list[ProcessInfo]] = {}
    tops = []
    for process in matching.values():
        above = _nearest(process.parent, matching, processes)
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


def _table(processes: Iterable[ProcessInfo]) -> str:
    biggest = sorted(processes, key=lambda process: -process.rss_bytes)
    lines = [
        f"  pid {process.pid}  rss {format_bytes(process.rss_bytes)}  "
        f"started {_started_ago(process.pid)}  {printable(process.command, 160)}"
        for process in biggest[:_MAX_LISTED]
    ]
    return "\n".join(lines + ([f"  and {len(biggest) - _MAX_LISTED} more"] if len(biggest) > _MAX_LISTED else []))


def _started_ago(pid: int) -> str:
    age = _age_seconds(pid)
    return "at an unknown time" if age is None else f"{format_duration(age)} ago"


def _age_seconds(pid: int) -> float | None:
    import psutil

    try:
        return max(0.0, time.time() - float(psutil.Process(pid).create_time()))
    except (psutil.Error, OSError):
        return None


def _suggest(regex: str, processes: Iterable[ProcessInfo]) -> str:
    """List those that match in another case, else those with a word of the regex, else the Python processes."""
    candidates = list(processes)
    words = [word.lower() for word in re.findall(r"\w{4,}", regex)]
    for title, found in (
        ("These differ in case only", _matching(re.compile(regex, re.IGNORECASE), candidates)),
        ("These have a part of it", [p for p in candidates if any(word in p.command.lower() for word in words)]),
        ("Python processes", [p for p in candidates if PurePath(p.argv[0]).name.startswith("python")]),
    ):
        if found:
            return f"{title}:\n{_table(found)}"
    return "Is the trainer started, and on this machine?"
