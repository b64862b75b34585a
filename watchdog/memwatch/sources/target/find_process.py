"""Finds the trainer by PID, PID file, command line, unit or cgroup: one PID, or an error with the candidates.

And lists the processes that may be one.
"""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from memwatch.core.text_and_units import format_bytes, format_duration, printable
from memwatch.core.trainer_rules import TrainerRule, Workload
from memwatch.errors import AttachError, ConfigError, NoTrainerError, SourceError
from memwatch.sources.kernel_files import read_whole
from memwatch.sources.procfs import read_stat
from memwatch.sources.target.process_table import (
    ProcessInfo,
    age_seconds,
    families,
    family_tops,
    is_python,
    matching_processes,
    nearest_ancestor,
    open_gpus,
    read_programs,
    there_are_gpus,
)
from memwatch.sources.target.systemd_unit import read_unit
from memwatch.sources.target.target_facts import read_cgroups

OPTIONS = "--pid PID, --pidfile FILE, --match REGEX, --unit NAME and --cgroup PATH"
_MAX_LISTED = 8  # processes in an error
_PIDFILE_BYTES = 4096
_STALE_SECONDS = 5.0  # tolerance between a file's time and a process's start: the clock may have been set meanwhile


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
    processes = read_programs(root)
    gpus = {pid: open_gpus(pid, root) for pid in processes} if there_are_gpus() else {}
    candidates = {pid: one for pid, one in processes.items() if gpus.get(pid) or is_python(one, root)}
    tops = {one.pid: one for one in family_tops(candidates, processes)}
    found = []
    for pid, family in families(tops, processes).items():
        used = sum(one.rss_bytes - one.shared_bytes for one in family) + max(one.shared_bytes for one in family)
        devices = {gpu for one in family for gpu in gpus.get(one.pid, ())}
        found.append(RunningTrainer(pid, tops[pid].command, used, age_seconds(pid), tuple(sorted(devices))))
    return sorted(found, key=lambda one: (not one.gpus, -one.used_bytes))


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
    programs = read_programs(root)
    processes = {pid: one for pid, one in programs.items() if not _is_excluded(pid, excluded, root)}
    scope, name = list(processes.values()), ""
    if unit is not None:
        scope, name = _of_unit(unit, processes, root), f"unit {unit}"
    elif cgroup is not None:
        scope, name = _of_cgroup(cgroup, processes, root), f"cgroup {cgroup}"
    matching = {process.pid: process for process in matching_processes(pattern, scope)}
    trainers = family_tops(matching, processes)
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
    return [process for process in processes.values() if nearest_ancestor(process.pid, {unit.main_pid}, processes)]


def _of_cgroup(pattern: str, processes: Mapping[int, ProcessInfo], root: str) -> list[ProcessInfo]:
    """Those in or below a cgroup that matches, in any hierarchy: the names are the same."""
    rule = TrainerRule(cgroup=pattern)
    return [one for one in processes.values() if rule.fits_place(read_cgroups(one.pid, root), Workload())]


def _is_excluded(pid: int, excluded: Collection[tuple[int, int]], root: str) -> bool:
    """psutil derives the start time from a clock that may be set; the kernel's count of ticks never changes."""
    if not any(pid == other for other, _ in excluded):
        return False
    try:
        return (pid, read_stat(pid, root).start_ticks) in excluded
    except SourceError:  # it has ended meanwhile
        return True


def _table(processes: Iterable[ProcessInfo]) -> str:
    biggest = sorted(processes, key=lambda process: -process.rss_bytes)
    lines = [
        f"  pid {process.pid}  rss {format_bytes(process.rss_bytes)}  "
        f"started {_started_ago(process.pid)}  {printable(process.command, 160)}"
        for process in biggest[:_MAX_LISTED]
    ]
    return "\n".join(lines + ([f"  and {len(biggest) - _MAX_LISTED} more"] if len(biggest) > _MAX_LISTED else []))


def _started_ago(pid: int) -> str:
    age = age_seconds(pid)
    return "at an unknown time" if age is None else f"{format_duration(age)} ago"


def _suggest(regex: str, processes: Iterable[ProcessInfo]) -> str:
    """List those that match in another case, else those with a word of the regex, else the Python processes."""
    candidates = list(processes)
    words = [word.lower() for word in re.findall(r"\w{4,}", regex)]
    for title, found in (
        ("These differ in case only", matching_processes(re.compile(regex, re.IGNORECASE), candidates)),
        ("These have a part of it", [p for p in candidates if any(word in p.command.lower() for word in words)]),
        ("Python processes", [p for p in candidates if PurePath(p.argv[0]).name.startswith("python")]),
    ):
        if found:
            return f"{title}:\n{_table(found)}"
    return "Is the trainer started, and on this machine?"
