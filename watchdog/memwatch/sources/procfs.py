"""Parsers and readers of the /proc files of one process, and of /proc/meminfo."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from memwatch.core.measurements import HostMemory
from memwatch.core.proc_stat import ProcStat, parse_stat
from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.kernel_files import BYTE_COUNT_BOUND, HeldFile, parse_count, parse_field, read_whole, unreadable

_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATUS_LINE = re.compile(rb"^(RssShmem|VmSwap|VmStk):\s+([0-9]+) kB$", re.MULTILINE)
THREAD_GROUP = re.compile(rb"^Tgid:\s+([0-9]+)$", re.MULTILINE)  # in /proc/TID/status: the PID of the thread's process
_MEMINFO = (b"MemTotal:", b"MemAvailable:", b"SwapFree:")
_MAX_LINEAGE = 64  # processes: a bound against what changes meanwhile
_LIMIT_LINE = re.compile(rb"^Max (data size|address space)\s+(unlimited|[0-9]+)\s", re.MULTILINE)


class Statm(NamedTuple):
    """/proc/PID/statm in bytes; a zombie and a kernel thread have zeros everywhere."""

    size_bytes: int
    resident_bytes: int
    shared_bytes: int  # pages of files and of shared memory
    data_bytes: int  # data and stack together


# 1251 1024 787 193 0 270 0
def parse_statm(raw: bytes) -> Statm:
    """Parse a statm line, which counts in pages; SourceError unless there are six counts."""
    fields = raw.split(None, 6)
    if len(fields) < 6:
        raise SourceError(f"statm has {len(fields)} fields: {raw[:40]!r}")
    try:  # not by parse_count(), which takes longer: each sample does this for each process
        size, resident, shared, data = int(fields[0]), int(fields[1]), int(fields[2]), int(fields[5])
    except ValueError as error:
        raise SourceError(f"not counts of pages: {raw[:40]!r}") from error
    if min(size, resident, shared, data) < 0 or max(size, resident, shared, data) >= BYTE_COUNT_BOUND // _PAGE:
        raise SourceError(f"not counts of pages: {raw[:40]!r}")
    return Statm(size * _PAGE, resident * _PAGE, min(shared, resident) * _PAGE, data * _PAGE)


@dataclass(frozen=True, slots=True)
class ProcStatus:
    """The name and memory lines of /proc/PID/status, in bytes; a line that the kernel does not write is None."""

    shmem_bytes: int | None
    swap_bytes: int | None
    stack_bytes: int | None
    name: str = ""


# Name:	python3
# RssShmem:	       0 kB
# VmSwap:	       0 kB
def parse_status(raw: bytes) -> ProcStatus:
    """Parse the memory lines; SourceError when one has a number that memory cannot have."""
    fields = {name: parse_count(value, 1024) for name, value in _STATUS_LINE.findall(raw)}
    name = raw.partition(b"\n")[0].removeprefix(b"Name:").strip().decode(errors="replace")
    return ProcStatus(fields.get(b"RssShmem"), fields.get(b"VmSwap"), fields.get(b"VmStk"), name)


# Max data size             unlimited            unlimited            bytes
# Max address space         4294967296           unlimited            bytes
def parse_limits(raw: bytes) -> tuple[int | None, int | None]:
    """Return the soft RLIMIT_AS and RLIMIT_DATA in bytes, None where unlimited."""
    soft: dict[bytes, int] = {}
    for name, value in _LIMIT_LINE.findall(raw):
        if value.isdigit() and len(value) <= 19 and int(value) < 2**62:  # memory can reach it: not RLIM_INFINITY
            soft[name] = int(value)
    return soft.get(b"address space"), soft.get(b"data size")


# 10788 10789 10790
def parse_pids(raw: bytes) -> tuple[int, ...]:
    """Parse PIDs, one a line in cgroup.procs; SourceError when one is not a number."""
    return tuple([parse_count(field) for field in raw.split()])


# 0.06 0.02 0.00 1/110 7950
def parse_last_pid(raw: bytes) -> int:
    """The PID that the kernel assigned last, from /proc/loadavg; while it stays the same, nothing was forked."""
    fields = raw.split()
    if len(fields) != 5:
        raise SourceError(f"loadavg has {len(fields)} fields")
    return parse_count(fields[4])


# MemTotal:       24684092 kB
# MemAvailable:   24266276 kB
# SwapFree:              0 kB
def parse_meminfo(raw: bytes) -> HostMemory:
    """Parse the host's memory, which the file has in kB, to bytes; SourceError when a line is missing."""
    total, available, swap = [parse_field(raw, name, b" kB\n", 1024) for name in _MEMINFO]
    if total is None or available is None or swap is None:
        raise SourceError("meminfo lacks one of MemTotal, MemAvailable and SwapFree")
    return HostMemory(total, available, swap)


def read_stat(pid: int, root: str = "/proc") -> ProcStat:
    """TargetGoneError when there is no such process, SourceError when it cannot be read."""
    path = f"{root}/{pid}/stat"
    try:
        return parse_stat(read_whole(path))
    except TargetGoneError as error:
        raise TargetGoneError(f"no process {pid}") from error
    except ValueError as error:
        raise SourceError(f"{path}: {error}") from error


def read_lineage(pid: int, root: str = "/proc") -> Iterator[ProcStat]:
    """Yield a process, its parent, the parent of that and so on, as far as they can be read."""
    for _ in range(_MAX_LINEAGE):
        try:
            found = read_stat(pid, root)
        except SourceError:
            return
        yield found
        pid = found.parent_pid


def read_tasks(pid: int, root: str = "/proc") -> list[str]:
    """The IDs of all threads of a process; none when it has exited."""
    path = f"{root}/{pid}/task"
    try:
        return os.listdir(path)  # noqa: PTH208 - only the names are needed; making a Path of each takes longer than the rest
    except (ProcessLookupError, FileNotFoundError):
        return []
    except OSError as error:
        raise unreadable(path, error) from error


def read_children(pid: int, root: str = "/proc", tasks: Iterable[str] | None = None) -> list[int]:
    """The children of `tasks`, by default of all threads; none after an exit or without CONFIG_PROC_CHILDREN."""
    children: list[int] = []
    for task in read_tasks(pid, root) if tasks is None else tasks:
        try:
            children += parse_pids(read_whole(f"{root}/{pid}/task/{task}/children"))
        except TargetGoneError:
            continue
    return children


class HostReader:
    """Reads the host's memory from /proc/meminfo."""

    name = "meminfo"

    def __init__(self, root: str = "/proc") -> None:
        self._meminfo = HeldFile(f"{root}/meminfo")

    def read_memory(self, now: float) -> HostMemory:
        return parse_meminfo(self._meminfo.read_bytes())

    def close(self) -> None:
        self._meminfo.close()
