"""Reads from /dev/kmsg which processes the kernel's OOM killer killed, and which limit they had reached."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from memwatch.errors import SourceError
from memwatch.sources.kernel_files import parse_count, unreadable

_FIRST_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in include/linux/proc_ns.h
_MAX_RECORDS = 4096  # read in one call; the rest waits for the next
_MAX_LINE_BYTES = 2048  # the kernel's own bound is PRINTK_MESSAGE_MAX; the patterns are slow on longer lines
_CONTEXT = re.compile(
    rb"oom-kill:constraint=CONSTRAINT_([A-Z_]+),.*?"
    rb"(?:,oom_memcg=(?P<oom>.*?))?(?:,task_memcg=.*?)?,task=.*,pid=(?P<pid>[0-9]+),uid=[0-9]+$"
)
_KILLED = re.compile(
    rb"(?P<memcg>Memory cgroup out of memory|Out of memory)?.*Killed process (?P<pid>[0-9]+) \((?P<comm>.*)\),? ?"
    rb"total-vm:[0-9]+kB, anon-rss:(?P<anon>[0-9]+)kB, file-rss:(?P<file>[0-9]+)kB"
    rb"(?:, shmem-rss:(?P<shmem>[0-9]+)kB)?"
)
# The first words of a kill: kernels before 5.0 write no context line.
_OPENINGS = {b"Memory cgroup out of memory": "memcg", b"Out of memory": "host"}
_CONSTRAINTS = {b"MEMCG": "memcg", b"NONE": "host", b"CPUSET": "cpuset", b"MEMORY_POLICY": "mempolicy"}


@dataclass(frozen=True, slots=True)
class OomKill:
    """One process that the OOM killer killed."""

    uptime_seconds: float  # the kernel's time stamp
    pid: int  # in the initial PID namespace
    comm: str
    constraint: str | None  # "memcg", "host", "cpuset" or "mempolicy"; None when the kernel did not say
    memcg: str | None  # the cgroup whose limit was reached
    anon_bytes: int
    file_bytes: int
    shmem_bytes: int

    @property
    def rss_bytes(self) -> int:
        return self.anon_bytes + self.file_bytes + self.shmem_bytes


@dataclass(frozen=True, slots=True)
class OomContext:
    """The line before a kill, which has its reason; fields as in OomKill."""

    pid: int
    constraint: str | None
    memcg: str | None


def require_kernel_pid_namespace(root: str = "/proc") -> None:
    """SourceError in another PID namespace than the kernel log's, where its PIDs mean nothing."""
    try:
        namespace = os.readlink(f"{root}/self/ns/pid")  # noqa: PTH115
    except OSError as error:
        raise unreadable(f"{root}/self/ns/pid", error) from error
    if namespace != _FIRST_NAMESPACE:
        raise SourceError("it has other PIDs than this container")


class KmsgReader:
    """Reads the OOM kills since its creation, each once and without blocking."""

    name = "kmsg"

    def __init__(self, path: str = "/dev/kmsg") -> None:
        """SourceError when the log may not be read: kernel.dmesg_restrict, or a container without it."""
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            raise unreadable(path, error) from error
        self._path = path
        self._context: OomContext | None = None  # read, and its kill not yet

    def read_new_kills(self, now: float) -> tuple[OomKill, ...]:
        """Return the kills since the last call; SourceError when the log cannot be read."""
        kills = []
        for _ in range(_MAX_RECORDS):
            try:
                record = os.read(self._fd, 8192)
            except BrokenPipeError:  # records were overwritten; the next read continues after them
                continue
            except BlockingIOError:
                break
            except OSError as error:
                raise unreadable(self._path, error) from error
            if not record:
                break
            try:
                found = parse_record(record, self._context)
            except SourceError:  # a line like the kernel's, but with impossible numbers
                continue
            if isinstance(found, OomContext):
                self._context = found
            elif found is not None:
                kills.append(found)
        return tuple(kills)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


# 6,812,949115464,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job,
#   task_memcg=/job,task=python,pid=10788,uid=0
# 3,813,949115489,-;Memory cgroup out of memory: Killed process 10788 (python) total-vm:217316kB, anon-rss:50944kB,
#   file-rss:5780kB, shmem-rss:0kB, UID:0 pgtables:168kB oom_score_adj:0    (each one line)
def parse_record(raw: bytes, context: OomContext | None = None) -> OomContext | OomKill | None:
    """Parse one record: an OOM kill, the context line that precedes it, or None for all else.

    `context` is the one read last. Records of programs, which have another facility than the kernel's, are ignored.
    SourceError for impossible numbers.
    """
    head, _, text = raw.partition(b";")
    fields = head.split(b",")
    if len(fields) < 3 or not fields[0].isdigit() or parse_count(fields[0]) >= 8:
        return None
    line = text.partition(b"\n")[0][:_MAX_LINE_BYTES]
    if match := _CONTEXT.search(line):
        return OomContext(parse_count(match["pid"]), _CONSTRAINTS.get(match[1]), _printable(match["oom"]))
    match = _KILLED.match(line)
    if match is None:
        return None
    pid = parse_count(match["pid"])
    if context is None or context.pid != pid:
        context = OomContext(pid, _OPENINGS.get(match["memcg"]), None)
    sizes = (parse_count(match[part] or b"0", 1024) for part in ("anon", "file", "shmem"))
    comm = _printable(match["comm"]) or ""
    return OomKill(parse_count(fields[2]) / 1e6, pid, comm, context.constraint, context.memcg, *sizes)


def _printable(raw: bytes | None) -> str | None:
    """Decode text in which the kernel has already escaped control characters."""
    return raw.decode("utf-8", "backslashreplace") if raw else None
