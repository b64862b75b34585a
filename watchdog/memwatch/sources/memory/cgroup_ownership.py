"""Checks whether a cgroup holds the trainer's job alone, or also processes that do not belong to it."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Collection

from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.kernel_files import parse_count, read_whole, unreadable
from memwatch.sources.procfs import parse_statm

_STRANGERS_BYTES = 32 << 20  # RSS that other processes, such as a shell, may have together in an owned cgroup
_CHECK_SECONDS, _CONFIRM_SECONDS = 10.0, 2.0  # between checks; before the first finding of strangers is confirmed
# A cgroup that was removed meanwhile, and a threaded one, which has no processes of its own.
_EMPTY_ERRNOS = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)
_MAX_DOUBLINGS = 3  # of the time between checks, while strangers stay or while no level has a limit


# 10788
# 10789
def parse_procs(raw: bytes) -> tuple[int, ...]:
    """Parse PIDs, of which 0 is a process outside the reader's PID namespace; SourceError when one is no number."""
    return tuple(parse_count(line) for line in raw.split())


class CgroupOwnership:
    """Tells whether all processes in a cgroup and below it belong to the trainer's tree or are memwatch itself.

    Others, such as a shell, may have 32 MiB of RSS together. An owned cgroup must fail two checks before it counts as
    shared: the stranger may be a worker that the tree reader has not found yet.
    """

    def __init__(self, directory: str, tree_pids: Callable[[], Collection[int]], root: str = "/proc") -> None:
        self._directory, self._tree_pids, self._proc = directory, tree_pids, root
        self._owned = self._matters = False
        self._consecutive_strangers = 0  # checks in a row
        self._next_check_t = -math.inf

    def check_owned(self, now: float, matters: bool) -> bool:
        """Return the latest finding; checked again every 10 to 80 s, and at once when it begins to matter."""
        begins, self._matters = matters and not self._matters, matters
        if now >= self._next_check_t or begins:
            self._next_check_t = now + self._update()
        return self._owned

    def _update(self) -> float:
        """Check, and return the seconds until the next check; an unreadable cgroup keeps the previous finding."""
        longest = _CHECK_SECONDS * (1 << _MAX_DOUBLINGS)
        try:
            has_strangers = self._has_strangers()
        except SourceError:
            return _CHECK_SECONDS if self._matters else longest
        if not has_strangers:
            self._owned, self._consecutive_strangers = True, 0
            return _CHECK_SECONDS if self._matters else longest
        self._consecutive_strangers += 1
        if self._owned and self._consecutive_strangers < 2:
            return _CONFIRM_SECONDS
        self._owned = False
        return (
            _CHECK_SECONDS * (1 << min(self._consecutive_strangers - 1, _MAX_DOUBLINGS)) if self._matters else longest
        )

    def _has_strangers(self) -> bool:
        """SourceError when a cgroup cannot be read, for example because no descriptor is left."""
        ours = {os.getpid(), *self._tree_pids()}
        room = _STRANGERS_BYTES
        for directory, _, _ in os.walk(self._directory, onerror=_refuse):
            try:
                pids = parse_procs(read_whole(f"{directory}/cgroup.procs"))
            except SourceError as error:
                if getattr(error.__cause__, "errno", None) in _EMPTY_ERRNOS:
                    continue
                raise
            for pid in pids:
                if pid not in ours:
                    room -= self._stranger_rss_bytes(pid)
                if room < 0:
                    return True
        return False

    def _stranger_rss_bytes(self, pid: int) -> int:
        """RSS of a process in bytes; one that cannot be read counts as too large, one that has exited as nothing."""
        if pid == 0:
            return _STRANGERS_BYTES + 1
        try:
            return parse_statm(read_whole(f"{self._proc}/{pid}/statm")).resident_bytes
        except TargetGoneError:
            return 0
        except SourceError:
            return _STRANGERS_BYTES + 1


def _refuse(error: OSError) -> None:
    if error.errno not in _EMPTY_ERRNOS:
        raise unreadable(str(error.filename), error) from error
