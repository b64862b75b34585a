"""The trainer and its descendants: who they are, and how much memory they use together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import partial

from memwatch.core.model import TreeMemory
from memwatch.core.sharing import tree_bytes
from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.procfs import (
    Status,
    parse_last_pid,
    parse_limits,
    parse_statm,
    parse_status,
    read_children,
    read_stat,
)
from memwatch.sources.pss import Measurable, PssBudget, PssMeter
from memwatch.sources.reading import HeldFile, read_whole

_WALK_SECONDS = 1.0
_WALK_SHARE = 0.002  # of a core that following the tree may take; a large tree is walked less often


class _Process(Measurable):
    """One process of the tree. The held statm binds it to its identity: a recycled PID is not read by it."""

    __slots__ = ("_held", "layout", "size_bytes", "stack_and_data_bytes", "status")

    def __init__(self, root: str, pid: int) -> None:
        super().__init__(pid)
        self._held = HeldFile(f"{root}/{pid}/statm", 256)
        self.layout: tuple[int, int] | None = None
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
            pss_cost=self._meter.cost,
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
        families: dict[tuple[int, int] | None, int] = {}
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

    def _layout(self, pid: int) -> tuple[int, int] | None:
        return read_stat(pid, self._proc).layout

    def _descendants(self) -> dict[int, int]:
        """PID -> parent of all below the trainer and below those already known, memwatch itself left out."""
        children_of = partial(read_children, root=self._proc) if self._has_children_files else self._scan_for_children()
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

    def _scan_for_children(self) -> Callable[[int], list[int]]:
        """Children by the parent of each process in /proc: some kernels have no children files."""
        children: dict[int, list[int]] = {}
        for entry in os.listdir(self._proc):  # noqa: PTH208
            if entry.isdigit():
                try:
                    parent = read_stat(int(entry), self._proc).parent
                except SourceError:
                    continue
                children.setdefault(parent, []).append(int(entry))
        return lambda pid: children.get(pid, [])
