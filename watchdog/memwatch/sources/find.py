"""Which process is meant: --pid, --pidfile or --match -> exactly one PID, or an error that lists the candidates."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from memwatch.core.text import printable
from memwatch.core.units import format_bytes, format_duration
from memwatch.errors import AttachError, ConfigError, SourceError
from memwatch.sources.procfs import parse_statm, read_stat
from memwatch.sources.reading import read_whole
from memwatch.sources.target import is_torchrun, read_argv

_LISTED = 8
_PIDFILE_BYTES = 4096
# Programs that start a trainer with its command line among their own words; the trainer is below them.
_WRAPPER = re.compile(
    r"sh|bash|dash|zsh|ksh|fish|sudo|su|doas|env|nohup|setsid|timeout|nice|ionice|taskset|numactl|stdbuf|"
    r"time|xvfb-run|uv|poetry|pipenv|pdm|hatch|conda|mamba|micromamba|srun|mpirun|mpiexec|tmux|screen|"
    r"script|docker|strace|systemd-run|make"
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process with its command line."""

    pid: int
    parent: int
    argv: tuple[str, ...]
    start_ticks: int
    rss_bytes: int

    @property
    def command(self) -> str:
        """Its words, joined by blanks: what --match is applied to."""
        return " ".join(self.argv)


def find(*, pid: int | None = None, pidfile: str | None = None, match: str | None = None, root: str = "/proc") -> int:
    """The PID that exactly one of the three names; AttachError otherwise, ConfigError for a broken regex."""
    if sum(given is not None for given in (pid, pidfile, match)) != 1:
        raise ConfigError("which process?", "Give exactly one of --pid PID, --pidfile FILE and --match REGEX.")
    if pid is not None:
        return pid
    return _from_pidfile(pidfile) if pidfile is not None else _from_match(match or "", root)


def _from_pidfile(path: str) -> int:
    hint = "A PID file holds the process ID in decimal on its first line."
    try:
        with open(path, "rb") as file:
            lines = file.read(_PIDFILE_BYTES).splitlines()
    except OSError as error:
        raise AttachError(
            f"PID file {path}: {error.strerror}", "Is the trainer started, and does it write it?"
        ) from error
    first = lines[0].strip() if lines else b""
    if not first:
        raise AttachError(f"PID file {path} is empty", hint)
    if not re.fullmatch(rb"[0-9]{1,10}", first):
        raise AttachError(f"PID file {path} holds {printable(first.decode('utf-8', 'replace'), 40)!r}, no PID", hint)
    return int(first)


def _from_match(regex: str, root: str) -> int:
    try:
        pattern = re.compile(regex)
    except re.error as error:
        raise ConfigError(
            f"--match {regex!r} is not a regular expression: {error}", "Escape . ( [ * with \\."
        ) from error
    everyone = {process.pid: process for process in _processes(root)}
    for own in _own_family(everyone):
        del everyone[own]
    matching = {pid: process for pid, process in everyone.items() if pattern.search(process.command)}
    roots = _trainers(matching, everyone)
    if len(roots) == 1:
        return roots[0].pid
    if roots:
        text = f"--match {regex!r} fits {len(roots)} processes:\n{_table(roots, root)}"
        raise AttachError(text, "Make the regex fit one of them, or use --pid.")
    raise AttachError(f"--match {regex!r} fits no process", _closest(regex, everyone.values(), root))


def _processes(root: str) -> Iterable[Candidate]:
    """Every process that has a command line (no kernel threads, no zombies)."""
    for name in (entry.name for entry in Path(root).iterdir()):
        argv = tuple(read_argv(int(name), root)) if name.isdigit() else ()
        if not argv:
            continue
        try:
            found = read_stat(int(name), root)
            rss = parse_statm(read_whole(f"{root}/{name}/statm")).resident_bytes
        except SourceError:
            continue  # it ended meanwhile
        yield Candidate(found.pid, found.parent, argv, found.start_ticks, rss)


def _own_family(everyone: Mapping[int, Candidate]) -> set[int]:
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


def _trainers(matching: Mapping[int, Candidate], everyone: Mapping[int, Candidate]) -> list[Candidate]:
    """One process for each family: its top, below the shells and runners that only started it.

    Forked DataLoader workers have the very command line of the trainer, torchrun's ranks have most of it.
    """
    below: dict[int, list[Candidate]] = {}
    tops = []
    for process in matching.values():
        above = _nearest(process, matching, everyone)
        if above is None:
            tops.append(process)
        else:
            below.setdefault(above, []).append(process)
    trainers = []
    while tops:
        top = tops.pop()
        if top.pid in below and _wraps(top, below[top.pid]):
            tops += below[top.pid]
        else:
            trainers.append(top)
    return sorted(trainers, key=lambda process: process.pid)


def _nearest(process: Candidate, matching: Mapping[int, Candidate], everyone: Mapping[int, Candidate]) -> int | None:
    """The closest ancestor that matches too."""
    pid = process.parent
    while pid in everyone and pid not in matching:
        pid = everyone[pid].parent
    return pid if pid in matching else None


def _wraps(process: Candidate, started: list[Candidate]) -> bool:
    """It only starts another program, whose command line is within its own."""
    if is_torchrun(process.argv):
        return False
    if _WRAPPER.fullmatch(PurePath(process.argv[0]).name.lstrip("-")):
        return True
    return all(child.command != process.command and child.command in process.command for child in started)


def _table(processes: Iterable[Candidate], root: str) -> str:
    biggest = sorted(processes, key=lambda process: -process.rss_bytes)
    uptime = _uptime_seconds(root)
    ticks = os.sysconf("SC_CLK_TCK")
    lines = [
        f"  pid {process.pid}  rss {format_bytes(process.rss_bytes)}  "
        f"started {_ago(uptime, process.start_ticks / ticks)}  {printable(process.command, 160)}"
        for process in biggest[:_LISTED]
    ]
    return "\n".join(lines + ([f"  and {len(biggest) - _LISTED} more"] if len(biggest) > _LISTED else []))


def _ago(uptime: float | None, started: float) -> str:
    return f"{format_duration(uptime - started)} ago" if uptime is not None else "at an unknown time"


def _uptime_seconds(root: str) -> float | None:
    try:
        return float(read_whole(f"{root}/uptime").split()[0])
    except (SourceError, ValueError, IndexError):
        return None


def _closest(regex: str, processes: Iterable[Candidate], root: str) -> str:
    """Those that fit when case does not count, else those with a word of the regex, else the big Python processes."""
    everyone = list(processes)
    words = [word.lower() for word in re.findall(r"\w{4,}", regex)]
    loose = re.compile(regex, re.IGNORECASE)
    for why, near in (
        ("These differ in case only", [p for p in everyone if loose.search(p.command)]),
        ("These have a part of it", [p for p in everyone if any(word in p.command.lower() for word in words)]),
        ("Python processes", [p for p in everyone if PurePath(p.argv[0]).name.startswith("python")]),
    ):
        if near:
            return f"{why}:\n{_table(near, root)}"
    return "Is the trainer started, and on this machine?"
