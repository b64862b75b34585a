"""Finds the trainer's descendants among the PIDs assigned since the last search, and now and then in a full walk."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import closing, suppress

from memwatch.core.examination import ProcessSize
from memwatch.core.text_and_units import printable
from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.kernel_files import HeldValue, parse_field, read_whole
from memwatch.sources.procfs import THREAD_GROUP, parse_last_pid, read_children, read_stat, read_tasks

_CPU_SHARE = 0.001  # fraction of a core for searching: after a search of 1 ms the next comes a second later
_FILE_SECONDS = 15e-6  # CPU seconds to read one file, measured on an idle machine; on a busy one it is three times that
_FULL_WALK_SECONDS = 60.0  # between full walks while no PID was assigned
_MAX_NEW_PIDS = 64  # new PIDs up to which they are checked one by one instead of by a full walk


def find_largest_processes(pid: int, member_pids: Collection[int] = ()) -> list[ProcessSize]:
    """Return process `pid`, and then its descendants and `member_pids`, the largest first; without those that ended."""
    found = list[ProcessSize]()
    with suppress(SourceError), closing(DescendantFinder()) as finder:
        for one in (pid, *finder.find_new(0.0, {pid, *member_pids}), *member_pids):
            with suppress(SourceError, OSError):
                status, stat = read_whole(f"/proc/{one}/status"), read_stat(one)
                anon = parse_field(status, b"RssAnon:", b" kB\n", 1024) or 0
                found.append(ProcessSize(one, stat.start_ticks, printable(stat.name), anon))
    return sorted(found, key=lambda each: (each.pid != pid, -each.anon_bytes))


class DescendantFinder:
    """Finds processes below a root that are not known yet.

    /proc/loadavg has the PID that was assigned last; while it stays the same, nothing is searched. A process whose
    parent exited before it was found stays unknown.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc, self._own_pid = proc, os.getpid()
        self._loadavg = HeldValue(f"{proc}/loadavg", parse_last_pid, 256)
        self._last_pid: int | None = None
        self._files_read = 0  # in the latest search
        self._not_yet_visible: list[int] = []  # assigned PIDs without a /proc entry yet: being forked
        self._next_t = self._full_walk_t = float("-inf")

    def find_new(self, now: float, known: Collection[int]) -> dict[int, int]:
        """Return PID -> parent of those not in `known`, parents first; SourceError when /proc cannot be read."""
        last_pid = self._read_last_pid()
        quiet = last_pid is not None and last_pid == self._last_pid and not self._not_yet_visible
        if now < self._next_t or (quiet and now < self._full_walk_t):
            return {}
        self._files_read = 0
        assigned = None if last_pid is None or self._last_pid is None else last_pid - self._last_pid
        if assigned is None or not 0 <= assigned <= _MAX_NEW_PIDS or now >= self._full_walk_t:
            found = self._walk(known)
            self._full_walk_t, self._not_yet_visible = now + _FULL_WALK_SECONDS, []
        else:
            found = self._find_among_new(last_pid or 0, assigned, known)
        self._last_pid = last_pid
        self._next_t = now + self._files_read * _FILE_SECONDS / _CPU_SHARE
        return found

    def force_full_walk(self) -> None:
        """Make the next search a full walk, after some of the tree could not be read."""
        self._next_t = self._full_walk_t = float("-inf")

    def close(self) -> None:
        self._loadavg.close()

    def _read_last_pid(self) -> int | None:
        try:
            return self._loadavg.read_value()
        except SourceError:  # some containers have their own loadavg: every search is a full walk
            return None

    def _find_among_new(self, last_pid: int, assigned: int, known: Collection[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        candidates = [*self._not_yet_visible, *range(last_pid - assigned + 1, last_pid + 1)]
        self._files_read += len(candidates)
        second_try, self._not_yet_visible = set(self._not_yet_visible), []
        for pid in candidates:
            try:
                parent = read_stat(pid, self._proc).parent_pid
                if (parent in known or parent in found) and self._is_process(pid, known):
                    found[pid] = parent
            except TargetGoneError:
                if pid not in second_try:
                    self._not_yet_visible.append(pid)
            except SourceError:
                continue
        return found

    def _is_process(self, pid: int, known: Collection[int]) -> bool:
        """Whether it is a new process: no thread, which also has a /proc/ID, and not memwatch itself."""
        if pid in known or pid == self._own_pid:
            return False
        group = THREAD_GROUP.search(read_whole(f"{self._proc}/{pid}/status"))
        return group is None or int(group[1]) == pid

    def _walk(self, known: Collection[int]) -> dict[int, int]:
        """Return all unknown processes below the known ones, without memwatch itself."""
        found: dict[int, int] = {}
        queue = list(known)
        has_children_files = os.path.exists(f"{self._proc}/{queue[0]}/task/{queue[0]}/children")  # noqa: PTH110
        children_of = self._children_of if has_children_files else self._scan_for_children()
        while queue:
            parent = queue.pop()
            for pid in children_of(parent):
                if pid not in found and pid not in known and pid != self._own_pid:
                    found[pid] = parent
                    queue.append(pid)
        return found

    def _children_of(self, pid: int) -> list[int]:
        tasks = read_tasks(pid, self._proc)
        self._files_read += 1 + len(tasks)
        return read_children(pid, self._proc, tasks)

    def _scan_for_children(self) -> Callable[[int], list[int]]:
        """Group all processes in /proc by their parent, for kernels without children files."""
        children: dict[int, list[int]] = {}
        for entry in os.listdir(self._proc):  # noqa: PTH208
            if entry.isdigit():
                self._files_read += 1
                try:
                    parent = read_stat(int(entry), self._proc).parent_pid
                except SourceError:
                    continue
                children.setdefault(parent, []).append(int(entry))
        return lambda pid: children.get(pid, [])
