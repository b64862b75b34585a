"""Which processes descend from the trainer: PIDs given since the last look, now and then the whole tree."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection

from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.kernel_files import HeldValue, read_whole
from memwatch.sources.procfs import parse_last_pid, read_children, read_stat, read_tasks

_SHARE = 0.001  # of a core that looking may take: after a look of 1 ms the next comes a second later
_FILE_SECONDS = 15e-6  # of CPU that a file takes where nothing else runs; the time itself is trebled on a busy machine
_WHOLE_SECONDS = 60.0  # between walks of the whole tree that nothing seems to call for
_MOST_NEW = 64  # PIDs that are looked at one by one
_THREAD_GROUP = re.compile(rb"^Tgid:\s+([0-9]+)$", re.MULTILINE)


class DescendantFinder:
    """Finds processes below a root that are not known yet.

    /proc/loadavg says which PID was given last: nothing is looked at while that stays. A process whose parent has died
    before it was seen is found by nobody.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc, self._own = proc, os.getpid()
        self._loadavg = HeldValue(f"{proc}/loadavg", parse_last_pid, 256)
        self._last_pid: int | None = None
        self._files = 0  # read in the latest look
        self._absent: list[int] = []  # given, but not seen yet: one that is just being forked
        self._next_t = self._whole_t = float("-inf")

    def find_new(self, now: float, known: Collection[int]) -> dict[int, int]:
        """PID -> parent of those not in `known`, parents first. SourceError when /proc cannot be read at all."""
        last_pid = self._read_last_pid()
        quiet = last_pid is not None and last_pid == self._last_pid and not self._absent
        if now < self._next_t or (quiet and now < self._whole_t):
            return {}
        self._files = 0
        given = None if last_pid is None or self._last_pid is None else last_pid - self._last_pid
        if given is None or not 0 <= given <= _MOST_NEW or now >= self._whole_t:
            found = self._walk(known)
            self._whole_t, self._absent = now + _WHOLE_SECONDS, []
        else:
            found = self._among_new(last_pid or 0, given, known)
        self._last_pid = last_pid
        self._next_t = now + self._files * _FILE_SECONDS / _SHARE
        return found

    def force_full_walk(self) -> None:
        """The next look walks the whole tree: some of it could not be looked at."""
        self._next_t = self._whole_t = float("-inf")

    def close(self) -> None:
        """Close the held file."""
        self._loadavg.close()

    def _read_last_pid(self) -> int | None:
        try:
            return self._loadavg.read()
        except SourceError:  # some containers write their own loadavg: walk each time
            return None

    def _among_new(self, last_pid: int, given: int, known: Collection[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        candidates = [*self._absent, *range(last_pid - given + 1, last_pid + 1)]
        self._files += len(candidates)
        again, self._absent = set(self._absent), []
        for pid in candidates:
            try:
                parent = read_stat(pid, self._proc).parent_pid
                if (parent in known or parent in found) and self._is_process(pid, known):
                    found[pid] = parent
            except TargetGoneError:
                if pid not in again:
                    self._absent.append(pid)
            except SourceError:
                continue
        return found

    def _is_process(self, pid: int, known: Collection[int]) -> bool:
        """No thread, which /proc shows by its own number, too, nor memwatch itself."""
        if pid in known or pid == self._own:
            return False
        group = _THREAD_GROUP.search(read_whole(f"{self._proc}/{pid}/status"))
        return group is None or int(group[1]) == pid

    def _walk(self, known: Collection[int]) -> dict[int, int]:
        """All below the root and below those known, memwatch itself left out."""
        found: dict[int, int] = {}
        queue = list(known)
        one = queue[0]
        listed = os.path.exists(f"{self._proc}/{one}/task/{one}/children")  # noqa: PTH110
        children_of = self._children_of if listed else self._scan_for_children()
        while queue:
            parent = queue.pop()
            for pid in children_of(parent):
                if pid not in found and pid not in known and pid != self._own:
                    found[pid] = parent
                    queue.append(pid)
        return found

    def _children_of(self, pid: int) -> list[int]:
        tasks = read_tasks(pid, self._proc)
        self._files += 1 + len(tasks)
        return read_children(pid, self._proc, tasks)

    def _scan_for_children(self) -> Callable[[int], list[int]]:
        """Children by the parent of each process in /proc: some kernels have no children files."""
        children: dict[int, list[int]] = {}
        for entry in os.listdir(self._proc):  # noqa: PTH208
            if entry.isdigit():
                self._files += 1
                try:
                    parent = read_stat(int(entry), self._proc).parent_pid
                except SourceError:
                    continue
                children.setdefault(parent, []).append(int(entry))
        return lambda pid: children.get(pid, [])
