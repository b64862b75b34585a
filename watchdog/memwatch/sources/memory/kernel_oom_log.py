"""The kernel's own account of whom its OOM killer killed, and at which limit: /dev/kmsg."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from memwatch.errors import SourceError
from memwatch.sources.kernel_files import parse_count, unreadable

_FIRST_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in include/linux/proc_ns.h
_MOST_RECORDS = 4096  # a read; the rest waits for the next
_LONGEST = 2048  # the kernel's own bound (PRINTK_MESSAGE_MAX): the patterns take long for more
_CONTEXT = re.compile(
    rb"oom-kill:constraint=CONSTRAINT_([A-Z_]+),.*?"
    rb"(?:,oom_memcg=(?P<oom>.*?))?(?:,task_memcg=(?P<task>.*?))?,task=.*,pid=(?P<pid>[0-9]+),uid=[0-9]+$"
)
_KILLED = re.compile(
    rb"(?P<memcg>Memory cgroup out of memory|Out of memory)?.*Killed process (?P<pid>[0-9]+) \((?P<comm>.*)\),? ?"
    rb"total-vm:(?P<vm>[0-9]+)kB, anon-rss:(?P<anon>[0-9]+)kB, file-rss:(?P<file>[0-9]+)kB"
    rb"(?:, shmem-rss:(?P<shmem>[0-9]+)kB)?"
)
_CONSTRAINTS = {b"MEMCG": "memcg", b"NONE": "host", b"CPUSET": "cpuset", b"MEMORY_POLICY": "mempolicy"}


@dataclass(frozen=True, slots=True)
class OomKill:
    """One process killed by the kernel for want of memory."""

    uptime_seconds: float  # the kernel's time stamp
    pid: int  # as the first PID namespace counts, which need not be ours
    comm: str
    constraint: str | None  # "memcg", "host", "cpuset" or "mempolicy"; None when the kernel did not say
    memcg: str | None  # the cgroup whose limit was met
    task_memcg: str | None  # the cgroup that the process was in
    anon_bytes: int
    file_bytes: int
    shmem_bytes: int
    virtual_bytes: int

    @property
    def rss_bytes(self) -> int:
        """What it had in memory."""
        return self.anon_bytes + self.file_bytes + self.shmem_bytes


@dataclass(frozen=True, slots=True)
class OomContext:
    """The line before the kill: why, and where."""

    pid: int
    constraint: str | None
    memcg: str | None
    task_memcg: str | None


def require_kernel_pid_namespace(root: str = "/proc") -> None:
    """SourceError where PIDs are not those that the kernel's log has: whom it names cannot be told there."""
    try:
        namespace = os.readlink(f"{root}/self/ns/pid")  # noqa: PTH115
    except OSError as error:
        raise unreadable(f"{root}/self/ns/pid", error) from error
    if namespace != _FIRST_NAMESPACE:
        raise SourceError("it has other PIDs than this container")


class KmsgReader:
    """OOM kills from attach on. Each record is read once, without ever waiting."""

    name = "kmsg"

    def __init__(self, path: str = "/dev/kmsg") -> None:
        """SourceError when the kernel's log may not be read (kernel.dmesg_restrict, or a container without it)."""
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            raise unreadable(path, error) from error
        self._path = path
        self._context: OomContext | None = None  # said, and not yet followed by its kill

    def read_new_kills(self, now: float) -> tuple[OomKill, ...]:
        """The kills since the last read; SourceError when the log cannot be read."""
        kills = []
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(self._fd, 8192)
            except BrokenPipeError:  # records were overwritten before they were read; the next read goes on after them
                continue
            except BlockingIOError:
                break
            except OSError as error:
                raise unreadable(self._path, error) from error
            if not record:
                break
            kill = self._take(record)
            if kill is not None:
                kills.append(kill)
        return tuple(kills)

    def close(self) -> None:
        """Close the log."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take(self, record: bytes) -> OomKill | None:
        try:
            found = parse_record(record, self._context)
        except SourceError:  # a line like the kernel's, with numbers that are none
            return None
        if isinstance(found, OomContext):
            self._context = found
            return None
        return found


# 6,812,949115464,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job,
#   task_memcg=/job,task=python,pid=10788,uid=0
# 3,813,949115489,-;Memory cgroup out of memory: Killed process 10788 (python) total-vm:217316kB, anon-rss:50944kB,
#   file-rss:5780kB, shmem-rss:0kB, UID:0 pgtables:168kB oom_score_adj:0    (each one line)
def parse_record(raw: bytes, context: OomContext | None = None) -> OomContext | OomKill | None:
    """One record of the kernel's log: an OOM kill, the context that comes before it, or None for all else.

    `context` is the one read last. Records that programs wrote (any facility but the kernel's) are not believed.
    SourceError for impossible numbers.
    """
    head, _, text = raw.partition(b";")
    fields = head.split(b",")
    if len(fields) < 3 or not fields[0].isdigit() or parse_count(fields[0]) >= 8:
        return None
    line = text.partition(b"\n")[0][:_LONGEST]
    if match := _CONTEXT.search(line):
        constraint = _CONSTRAINTS.get(match[1])
        return OomContext(parse_count(match["pid"]), constraint, _shown(match["oom"]), _shown(match["task"]))
    match = _KILLED.match(line)
    if match is None:
        return None
    pid = parse_count(match["pid"])
    if context is None or context.pid != pid:
        context = OomContext(pid, _constraint(match["memcg"]), None, None)
    sizes = (parse_count(match[part] or b"0", 1024) for part in ("anon", "file", "shmem", "vm"))
    comm = _shown(match["comm"]) or ""
    uptime = parse_count(fields[2]) / 1e6
    return OomKill(uptime, pid, comm, context.constraint, context.memcg, context.task_memcg, *sizes)


def _constraint(opening: bytes | None) -> str | None:
    """What the opening words of the kill say by themselves (kernels before 5.0 write no context line)."""
    return {b"Memory cgroup out of memory": "memcg", b"Out of memory": "host"}.get(opening or b"")


def _shown(raw: bytes | None) -> str | None:
    """Printable text; the kernel itself escapes control characters in its log."""
    return raw.decode("utf-8", "backslashreplace") if raw else None
