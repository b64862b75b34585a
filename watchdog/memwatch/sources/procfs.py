"""The trainer and its descendants, and the host's memory, from /proc."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from memwatch.core.model import HostMemory, TreeMemory
from memwatch.core.sharing import tree_bytes
from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.pss import Measurable, PssBudget, PssMeter, PssStats
from memwatch.sources.reading import HeldFile, number, read_whole, unreadable

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PF_EXITING = 0x4
_WALK_SECONDS = 1.0
_WALK_SHARE = 0.002  # of a core that following the tree may take; a large tree is walked less often
_STATUS_LINE = re.compile(rb"^(RssFile|RssShmem|VmSwap|VmStk|VmSize|VmData):\s+([0-9]+) kB$", re.MULTILINE)
_MEMINFO_LINE = re.compile(rb"^(MemTotal|MemAvailable|SwapFree):\s+([0-9]+) kB$", re.MULTILINE)
_LIMIT_LINE = re.compile(rb"^Max (data size|address space)\s+(unlimited|[0-9]+)\s", re.MULTILINE)


# --- parsers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Statm:
    """/proc/PID/statm in bytes. All zero: a zombie or a kernel thread."""

    size_bytes: int
    resident_bytes: int
    shared_bytes: int  # file and shmem pages
    data_bytes: int  # data and stack


# 1251 1024 787 193 0 270 0
def parse_statm(raw: bytes) -> Statm:
    """SourceError unless there are six counts of pages."""
    fields = raw.split()
    if len(fields) < 6:
        raise SourceError(f"statm has {len(fields)} fields: {raw[:40]!r}")
    size, resident, shared, data = (number(fields[i], _PAGE) for i in (0, 1, 2, 5))
    return Statm(size, resident, min(shared, resident), data)


@dataclass(frozen=True, slots=True)
class Stat:
    """What is needed of /proc/PID/stat."""

    state: str
    parent_pid: int
    is_ending: bool  # it has begun to exit
    layout: tuple[int, int]  # where code and stack begin: random for each program started, the same in its forks


# 12442 (python) R 12439 12439 3981 0 -1 4194304 1143 0 8 0 1 9 0 0 20 0 1 0 154310 13279232 2411 18446744073709551615
#   94448022212608 94448022212949 140728689691280 0 0 0 0 16781312 2 0 0 0 17 1 ...  (one line; a name may hold `) Z `)
def parse_stat(raw: bytes) -> Stat:
    """SourceError unless state, parent and layout are there."""
    fields = raw[raw.rfind(b")") + 1 :].split()
    try:
        wanted = [fields[i] for i in (1, 6, 23, 25)]
        state = fields[0].decode("ascii")
    except (IndexError, UnicodeDecodeError) as error:
        raise SourceError(f"stat cannot be read: {raw[:40]!r}") from error
    if not all(field.isdigit() and len(field) <= 20 for field in wanted):
        raise SourceError(f"stat has no numbers: {raw[:40]!r}")
    parent, flags, code, stack = map(int, wanted)
    return Stat(state, parent, bool(flags & _PF_EXITING), (code, stack))


@dataclass(frozen=True, slots=True)
class Status:
    """The memory lines of /proc/PID/status; None where the kernel writes none."""

    file_bytes: int | None
    shmem_bytes: int | None
    swap_bytes: int | None
    stack_bytes: int | None
    size_bytes: int | None
    data_bytes: int | None


# RssFile:	    1616 kB
# RssShmem:	       0 kB
# VmSwap:	       0 kB
def parse_status(raw: bytes) -> Status:
    """SourceError only when a line has a number that memory cannot have."""
    fields = {name: number(value, 1024) for name, value in _STATUS_LINE.findall(raw)}
    names = (b"RssFile", b"RssShmem", b"VmSwap", b"VmStk", b"VmSize", b"VmData")
    return Status(*(fields.get(name) for name in names))


# Max data size             unlimited            unlimited            bytes
# Max address space         4294967296           unlimited            bytes
def parse_limits(raw: bytes) -> tuple[int | None, int | None]:
    """The soft RLIMIT_AS and RLIMIT_DATA in bytes, None where unlimited."""
    soft = {name: value for name, value in _LIMIT_LINE.findall(raw) if value != b"unlimited"}
    space, data = soft.get(b"address space"), soft.get(b"data size")
    return space and _bound(space), data and _bound(data)


def _bound(raw: bytes) -> int | None:
    """A limit that memory can reach; RLIM_INFINITY and its like are none."""
    return int(raw) if len(raw) <= 19 and int(raw) < 2**62 else None


# 10788 10789 10790
def parse_children(raw: bytes) -> tuple[int, ...]:
    """PIDs; SourceError when one is not a PID."""
    return tuple(number(field) for field in raw.split())


# 0.06 0.02 0.00 1/110 7950
def parse_last_pid(raw: bytes) -> int:
    """The PID that /proc/loadavg says was given last: as long as it stays, nothing was forked."""
    fields = raw.split()
    if len(fields) != 5:
        raise SourceError(f"loadavg has {len(fields)} fields")
    return number(fields[4])


# MemTotal:       24684092 kB
# MemAvailable:   24266276 kB
# SwapFree:              0 kB
def parse_meminfo(raw: bytes) -> HostMemory:
    """SourceError when a line is missing."""
    fields = {name: number(value, 1024) for name, value in _MEMINFO_LINE.findall(raw)}
    try:
        return HostMemory(fields[b"MemTotal"], fields[b"MemAvailable"], fields[b"SwapFree"])
    except KeyError as error:
        raise SourceError(f"meminfo has no {error.args[0].decode()}") from error


# --- the host -----------------------------------------------------------------------------------------------------


class HostReader:
    """/proc/meminfo."""

    name = "meminfo"

    def __init__(self, root: str = "/proc") -> None:
        self._meminfo = HeldFile(f"{root}/meminfo")

    def read(self, now: float) -> HostMemory:
        """The host's memory; SourceError when it cannot be read."""
        return parse_meminfo(self._meminfo.read())

    def close(self) -> None:
        """Close the held file."""
        self._meminfo.close()


# --- the tree -----------------------------------------------------------------------------------------------------


class _Process(Measurable):
    """One process of the tree. The held statm binds it to its identity: a recycled PID is not read by it."""

    __slots__ = ("_held", "layout", "size_bytes", "stack_and_data_bytes", "status")

    def __init__(self, root: str, pid: int) -> None:
        super().__init__(pid)
        self._held = HeldFile(f"{root}/{pid}/statm", 256)
        self.layout = (0, 0)
        self.status: Status | None = None
        try:
            self.update()
        except SourceError:  # it ended between the opening and the reading
            self.close()
            raise

    def update(self) -> None:
        """Read statm; TargetGoneError once the process is no more."""
        statm = parse_statm(self._held.read())
        self.size_bytes = statm.size_bytes
        self.anon_bytes = statm.resident_bytes - statm.shared_bytes
        self.shared_bytes = statm.shared_bytes
        self.stack_and_data_bytes = statm.data_bytes

    @property
    def shmem_bytes(self) -> int:
        """As of the latest status; none of it is known before."""
        return (self.status.shmem_bytes or 0) if self.status else 0

    @property
    def stack_bytes(self) -> int:
        """As of the latest status; statm counts it as data."""
        return (self.status.stack_bytes or 0) if self.status else 0

    def close(self) -> None:
        self._held.close()


class TreeReader:
    """The memory of a process and all its descendants: statm each time, the shape of the tree and details less often.

    A descendant whose parent has died stays in the tree, it still holds the job's memory. Forks are told from programs
    of their own by their address layout. `calibrate` is asked before shared pages are measured (core.sharing says what
    is known without); pass one that says no while the job's cgroup gives its memory anyhow.
    """

    name = "procfs"

    def __init__(
        self,
        pid: int,
        root: str = "/proc",
        detail_every_s: float = 10.0,
        pss_budget: PssBudget | None = None,
        calibrate: Callable[[], bool] = lambda: True,
    ) -> None:
        """TargetGoneError when there is no such process."""
        self._proc, self._detail_every_s, self._calibrate = root, detail_every_s, calibrate
        self._root = _Process(root, pid)
        self._others: dict[int, _Process] = {}
        self._loadavg = HeldFile(f"{root}/loadavg", 256)
        self._meter = PssMeter(root, pss_budget)
        self._last_pid: int | None = None
        self._walk_t = self._detail_t = float("-inf")
        self._rlimits: tuple[int | None, int | None] = (None, None)
        self._has_children_files = os.path.exists(f"{root}/{pid}/task/{pid}/children")  # noqa: PTH110

    @property
    def stats(self) -> PssStats:
        """What measuring shared pages has cost."""
        return self._meter.stats

    def root_pids(self) -> frozenset[int]:
        """The PIDs of the tree, the trainer's own among them, as of the last read."""
        return frozenset((self._root.pid, *self._others))

    def read(self, now: float) -> TreeMemory:
        """The tree's memory; TargetGoneError when the trainer is gone or a zombie, else SourceError."""
        self._root.update()
        if self._root.size_bytes == 0:
            raise TargetGoneError(f"process {self._root.pid} has no memory: it has ended")
        for process in list(self._others.values()):
            self._refresh(process)
        detailed = now >= self._detail_t
        if now >= self._walk_t:
            self._follow(now, detailed)
        if detailed:
            self._read_details()
            self._detail_t = now + self._detail_every_s
        others = [process for process in self._others.values() if process.size_bytes]
        if not others:
            self._meter.forget()
        elif self._calibrate():
            self._meter.advance(now, self._root, others)
        return self._record(others)

    def close(self) -> None:
        """Close all held files."""
        self._loadavg.close()
        for process in (self._root, *self._others.values()):
            process.close()
        self._others.clear()

    def _refresh(self, process: _Process) -> None:
        try:
            process.update()
        except TargetGoneError:
            process.close()
            del self._others[process.pid]

    def _record(self, others: list[_Process]) -> TreeMemory:
        root, members = self._root, (self._root, *others)
        used = tree_bytes(root, others, self._meter.aside_bytes)
        shmem = max(process.shmem_bytes for process in members)
        file = max(0, max(process.shared_bytes for process in members) - shmem)
        return TreeMemory(
            processes=len(members),
            rss_bytes=root.rss_bytes,
            used_bytes=used,
            accounting=self._accounting(others),
            anon_bytes=max(0, used - file - shmem),
            file_bytes=file,
            shmem_bytes=shmem,
            swap_bytes=self._swap(members),
            virtual_bytes=root.size_bytes,
            data_bytes=max(0, root.stack_and_data_bytes - root.stack_bytes),
            rlimit_as_bytes=self._rlimits[0],
            rlimit_data_bytes=self._rlimits[1],
        )

    def _accounting(self, others: list[_Process]) -> str:
        if not others:
            return "rss"
        measured = sum(process.measured is not None for process in others)
        if self._meter.aside_bytes is None or 2 * measured < len(others):
            return "anon+shmem"
        return "pss" if self._meter.root_measured else "rss+uss"

    def _swap(self, members: Iterable[_Process]) -> int | None:
        """Swap of each family of forks counted once, by its largest member."""
        families: dict[tuple[int, int], int] = {}
        for process in members:
            if process.status is not None and process.status.swap_bytes is not None:
                families[process.layout] = max(families.get(process.layout, 0), process.status.swap_bytes)
        return sum(families.values()) if families else None

    def _read_details(self) -> None:
        base = f"{self._proc}/{self._root.pid}"
        self._rlimits = parse_limits(read_whole(f"{base}/limits"))
        for process in (self._root, *self._others.values()):
            try:
                process.status = parse_status(read_whole(f"{self._proc}/{process.pid}/status"))
            except TargetGoneError:
                process.status = None

    # --- the shape of the tree

    def _follow(self, now: float, whole: bool) -> None:
        """Find new processes, unless nothing was forked anywhere since the last walk."""
        last_pid = self._read_last_pid()
        if last_pid is not None and last_pid == self._last_pid and not whole:
            return
        self._last_pid = last_pid
        began = time.thread_time()
        parents = self._descendants()
        self._root.layout = self._layout(self._root.pid)
        for pid, parent in parents.items():
            self._admit(pid, self._others.get(parent, self._root))
        self._walk_t = now + max(_WALK_SECONDS, (time.thread_time() - began) / _WALK_SHARE)

    def _read_last_pid(self) -> int | None:
        try:
            return parse_last_pid(self._loadavg.read())
        except SourceError:  # some containers write their own loadavg: walk each time
            return None

    def _admit(self, pid: int, parent: _Process) -> None:
        """Take a process into the tree, or notice that one has started a program of its own."""
        process = self._others.get(pid)
        try:
            layout = self._layout(pid)
            if process is None:
                process = self._others[pid] = _Process(self._proc, pid)
                if layout == parent.layout:
                    process.inherited_bytes = min(process.anon_bytes, parent.anon_bytes)
            elif layout != process.layout:
                process.inherited_bytes, process.measured = 0, None
            process.layout = layout
            process.fork_of_root = layout == self._root.layout
        except TargetGoneError:
            return

    def _layout(self, pid: int) -> tuple[int, int]:
        return parse_stat(read_whole(f"{self._proc}/{pid}/stat")).layout

    def _descendants(self) -> dict[int, int]:
        """PID -> parent of all below the trainer and below those already known, memwatch itself left out."""
        children_of = self._children_from_tasks if self._has_children_files else self._children_from_scan()
        found: dict[int, int] = {}
        queue = [self._root.pid, *self._others]
        own = os.getpid()
        while queue:
            parent = queue.pop()
            for pid in children_of(parent):
                if pid not in found and pid not in (own, self._root.pid):
                    found[pid] = parent
                    if pid not in self._others:
                        queue.append(pid)
        return dict.fromkeys(self._others, self._root.pid) | found

    def _children_from_tasks(self, pid: int) -> list[int]:
        """Children by /proc/PID/task/*/children, which a kernel without CONFIG_PROC_CHILDREN does not have."""
        base = f"{self._proc}/{pid}/task"
        children: list[int] = []
        try:
            tasks = os.listdir(base)  # noqa: PTH208
        except OSError as error:
            if isinstance(named := unreadable(base, error), TargetGoneError):
                return children
            raise named from error
        for task in tasks:
            try:
                children += parse_children(read_whole(f"{base}/{task}/children"))
            except TargetGoneError:
                continue
        return children

    def _children_from_scan(self) -> Callable[[int], list[int]]:
        """Children by the parent of each process in /proc."""
        children: dict[int, list[int]] = {}
        for entry in os.listdir(self._proc):  # noqa: PTH208
            if entry.isdigit():
                try:
                    parent = parse_stat(read_whole(f"{self._proc}/{entry}/stat")).parent_pid
                except SourceError:
                    continue
                children.setdefault(parent, []).append(int(entry))
        return lambda pid: children.get(pid, [])
