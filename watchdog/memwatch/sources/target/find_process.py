"""Finds the process that is meant by PID, PID file, command line, unit or cgroup: one PID, or an error with candidates.

The only module that imports psutil, and only to search: that costs 4 MiB, which a watch by --pid does not pay.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath

from memwatch.core.text_and_units import format_bytes, format_duration, printable
from memwatch.errors import AttachError, ConfigError, NoTrainerError, SourceError
from memwatch.sources.kernel_files import read_whole
from memwatch.sources.procfs import read_stat
from memwatch.sources.target.process_identity import is_torchrun, read_argv
from memwatch.sources.target.systemd_unit import read_unit
from memwatch.system.cpu_time_limit import CpuTimeExceededError, run_with_cpu_limit

OPTIONS = "--pid PID, --pidfile FILE, --match REGEX, --unit NAME and --cgroup PATH"
_MAX_LISTED = 8
_PIDFILE_BYTES = 4096
_MATCH_SECONDS = 1.0  # of CPU that --match may take for all command lines: a plain one takes 1 us each
_STALE_SECONDS = 5.0  # a clock that was set meanwhile moves the time of a file
# Programs that start a trainer with its command line among their own words; the trainer is below them.
_WRAPPER = re.compile(
    r"sh|bash|dash|zsh|ksh|fish|sudo|su|doas|env|nohup|setsid|timeout|nice|ionice|taskset|numactl|stdbuf|"
    r"time|xvfb-run|uv|poetry|pipenv|pdm|hatch|conda|mamba|micromamba|srun|mpirun|mpiexec|tmux|screen|"
    r"script|docker|strace|systemd-run|make"
)


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process with its command line."""

    pid: int
    parent: int
    argv: tuple[str, ...]
    rss_bytes: int

    @property
    def command(self) -> str:
        """Its words, joined by blanks: --match is applied to this."""
        return " ".join(self.argv)


def find_trainer_pid(
    *,
    pid: int | None = None,
    pidfile: str | None = None,
    match: str | None = None,
    unit: str | None = None,
    cgroup: str | None = None,
    apart: Collection[tuple[int, int]] = (),
    root: str = "/proc",
) -> int:
    """The PID that is named in one of these ways; `match` beside `unit` or `cgroup` chooses among their processes.

    Never one of `apart`: (PID, start time in ticks). NoTrainerError when there is none, AttachError when several fit,
    ConfigError for a broken regex and for ways that exclude each other.
    """
    alone, scopes = (pid, pidfile), (unit, cgroup)
    ways = sum(given is not None for given in (*alone, *scopes))
    if ways > 1 or (match is not None and any(given is not None for given in alone)) or not (ways or match):
        raise ConfigError("which process?", f"Give one of {OPTIONS}; --match also beside the last two.")
    if pid is not None:
        return pid
    if pidfile is not None:
        return _from_pidfile(pidfile, root)
    name, among = _scope(unit, cgroup)
    return _from_processes(name, among, match, frozenset(apart), root)


def _from_pidfile(path: str, root: str) -> int:
    hint = "A PID file holds the process ID in decimal on its first line."
    try:
        with open(path, "rb") as file:
            lines = file.read(_PIDFILE_BYTES).splitlines()
            age = time.time() - os.fstat(file.fileno()).st_mtime
    except OSError as error:
        raise NoTrainerError(
            f"PID file {path}: {error.strerror}", "Is the trainer started, and does it write it?"
        ) from error
    first = lines[0].strip() if lines else b""
    if not first:
        raise NoTrainerError(f"PID file {path} is empty", hint)
    if not re.fullmatch(rb"[0-9]{1,10}", first):
        raise AttachError(f"PID file {path} holds {printable(first.decode('utf-8', 'replace'), 40)!r}, no PID", hint)
    _require_fresh_pidfile(path, int(first), age, root)
    return int(first)


def _require_fresh_pidfile(path: str, pid: int, age: float, root: str) -> None:
    """The PID of a trainer that is long gone may be a stranger's by now: one that began after the file was written."""
    try:
        began = read_stat(pid, root).start_ticks / os.sysconf("SC_CLK_TCK")
        uptime = float(read_whole(f"{root}/uptime").split()[0])
    except (SourceError, ValueError, IndexError):
        return  # the next reader of this process reports what is wrong with it
    late = age - (uptime - began)
    if late > _STALE_SECONDS:
        text = f"PID file {path} is of an earlier process: {pid} began {format_duration(late)} after it was written"
        raise NoTrainerError(text, "Write it anew when the trainer starts; touch it if it is right all the same.")


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """The processes of this machine but for memwatch and what it was started through, by PID."""

    processes: Mapping[int, ProcessInfo]
    root: str


def _scope(unit: str | None, cgroup: str | None) -> tuple[str, Callable[[ProcessTable], Iterable[int]]]:
    """How people call what was named, and the PIDs among everyone that belong to it."""
    if unit is not None:
        return f"unit {unit}", lambda everyone: _of_unit(unit, everyone)
    if cgroup is not None:
        return f"cgroup {cgroup}", lambda everyone: _of_cgroup(cgroup, everyone)
    return "", lambda everyone: everyone.processes


def _of_unit(name: str, everyone: ProcessTable) -> Iterable[int]:
    """A service's main process and what is below it; all of a scope, or of a slice."""
    unit = read_unit(name)
    if not unit.main_pid:
        return _of_cgroup(glob.escape(unit.cgroup), everyone) if unit.cgroup else ()
    found = {unit.main_pid}
    return [pid for pid in everyone.processes if _is_below(pid, found, everyone.processes)]


def _of_cgroup(pattern: str, everyone: ProcessTable) -> Iterable[int]:
    """Those in a cgroup that fits, or in one below it. Any hierarchy will do: their names are the same."""
    inside = f"/{pattern.strip('/')}/*"
    for pid in everyone.processes:
        try:
            lines = read_whole(f"{everyone.root}/{pid}/cgroup").splitlines()
        except SourceError:
            continue  # it ended meanwhile
        paths = (os.fsdecode(line.split(b":", 2)[-1]) for line in lines)
        if any(fnmatch.fnmatchcase(f"{path}/", inside) for path in paths):
            yield pid


def _is_below(pid: int, found: set[int], processes: Mapping[int, ProcessInfo]) -> bool:
    """It is one of `found`, or a descendant; those on the way are added."""
    way = []
    while pid not in found and pid in processes:
        way.append(pid)
        pid = processes[pid].parent
    if pid in found:
        found.update(way)
    return pid in found


def _from_processes(
    name: str,
    among: Callable[[ProcessTable], Iterable[int]],
    regex: str | None,
    apart: frozenset[tuple[int, int]],
    root: str,
) -> int:
    try:
        pattern = re.compile(regex or "")
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"--match {regex!r} is not a regular expression: {error}", "Escape . ( [ * with \\."
        ) from error
    processes = {process.pid: process for process in _processes(root) if not _is_apart(process.pid, apart, root)}
    for own in _memwatch_pids(processes):
        del processes[own]
    scope = [processes[pid] for pid in among(ProcessTable(processes, root)) if pid in processes]
    matching = {process.pid: process for process in _matching(pattern, scope)}
    roots = _family_tops(matching, processes)
    said = " of ".join(filter(None, [f"--match '{printable(regex)}'" if regex is not None else "", name]))
    if len(roots) == 1:
        return roots[0].pid
    if roots:
        fix = (
            "Make the regex fit one of them, or use --pid."
            if regex is not None
            else "Choose one of them by --match REGEX besides."
        )
        raise AttachError(f"{said} fits {len(roots)} processes:\n{_table(roots)}", fix)
    hint = _suggest(regex, scope) if regex is not None else "Is it started, and on this machine?"
    raise NoTrainerError(f"{said} fits no process" if regex is not None else f"{said} has no process", hint)


def _matching(pattern: re.Pattern[str], processes: Iterable[ProcessInfo]) -> list[ProcessInfo]:
    """Those whose command line fits; AttachError where the user's regex takes too long for them."""
    try:
        return run_with_cpu_limit(_MATCH_SECONDS, lambda: [p for p in processes if pattern.search(p.command)])
    except CpuTimeExceededError:
        text = f"--match {printable(pattern.pattern)!r} takes more than {_MATCH_SECONDS:g} s for the processes here"
        raise AttachError(
            text, "Leave out repetitions of repetitions, as in (a+)+, or name a part of the command."
        ) from None


def _processes(root: str) -> Iterator[ProcessInfo]:
    """Every process that has a command line (no kernel threads, no zombies)."""
    import psutil

    psutil.PROCFS_PATH = root
    for pid in psutil.pids():
        argv = tuple(read_argv(pid, root))  # psutil splits some command lines at blanks
        if argv:
            with suppress(psutil.Error, OSError):  # it has ended meanwhile, or is hidden
                process = psutil.Process(pid)
                yield ProcessInfo(pid, process.ppid(), argv, process.memory_info().rss)


def _is_apart(pid: int, apart: frozenset[tuple[int, int]], root: str) -> bool:
    """psutil derives the start time from a clock that may be set; the kernel's count of ticks never changes."""
    if not any(pid == other for other, _ in apart):
        return False
    try:
        return (pid, read_stat(pid, root).start_ticks) in apart
    except SourceError:  # it has ended meanwhile
        return True


def _memwatch_pids(everyone: Mapping[int, ProcessInfo]) -> set[int]:
    """memwatch, whatever it was started through (a shell, sudo), and every other memwatch: all hold the regex."""
    own = {process.pid for process in everyone.values() if _is_memwatch(process.argv)}
    pid = os.getpid()
    while pid in everyone:
        own.add(pid)
        pid = everyone[pid].parent
    return own


def _is_memwatch(argv: tuple[str, ...]) -> bool:
    """`memwatch ...`, `python .../bin/memwatch ...`, `python -m memwatch ...`."""
    words = [argv[0], *(word for word in argv[1:4] if not word.startswith("-"))]
    return any(PurePath(word).name == "memwatch" for word in words[:2])


def _family_tops(matching: Mapping[int, ProcessInfo], everyone: Mapping[int, ProcessInfo]) -> list[ProcessInfo]:
    """One process for each family: its top, below the shells and runners that only started it.

    Forked DataLoader workers have the very command line of the trainer, torchrun's ranks have most of it.
    """
    below: dict[int, list[ProcessInfo]] = {}
    tops = []
    for process in matching.values():
        above = _nearest_matching_ancestor(process, matching, everyone)
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


def _nearest_matching_ancestor(
    process: ProcessInfo, matching: Mapping[int, ProcessInfo], everyone: Mapping[int, ProcessInfo]
) -> int | None:
    """The closest ancestor that matches too."""
    pid = process.parent
    while pid in everyone and pid not in matching:
        pid = everyone[pid].parent
    return pid if pid in matching else None


def _is_wrapper(process: ProcessInfo, started: list[ProcessInfo]) -> bool:
    """It only starts another program, whose command line is within its own."""
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
    import psutil

    try:
        return f"{format_duration(time.time() - psutil.Process(pid).create_time())} ago"
    except (psutil.Error, OSError):
        return "at an unknown time"


def _suggest(regex: str, processes: Iterable[ProcessInfo]) -> str:
    """Those that fit when case does not count, else those with a word of the regex, else the big Python processes."""
    everyone = list(processes)
    words = [word.lower() for word in re.findall(r"\w{4,}", regex)]
    loose = re.compile(regex, re.IGNORECASE)
    alike = _matching(loose, everyone)
    for why, near in (
        ("These differ in case only", alike),
        ("These have a part of it", [p for p in everyone if any(word in p.command.lower() for word in words)]),
        ("Python processes", [p for p in everyone if PurePath(p.argv[0]).name.startswith("python")]),
    ):
        if near:
            return f"{why}:\n{_table(near)}"
    return "Is the trainer started, and on this machine?"
