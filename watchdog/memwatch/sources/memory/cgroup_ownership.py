"""Whose a cgroup is: the trainer's job's alone, or strangers' too."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Collection

from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.kernel_files import parse_count, read_whole, unreadable
from memwatch.sources.procfs import parse_statm

_STRANGERS_BYTES = 32 << 20  # RSS of others, such as a shell, that does not make a cgroup somebody else's
_LOOK_SECONDS, _SECOND_LOOK_SECONDS = 10.0, 2.0
_NOBODY_IN_IT = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)  # removed meanwhile; threads alone, of the one above
_DOUBLINGS = 3  # of the time between looks while strangers stay, or no limit makes it matter


# 10788
# 10789
def parse_procs(raw: bytes) -> tuple[int, ...]:
    """PIDs; 0 stands for a process outside the reader's PID namespace. SourceError when one is not a PID."""
    return tuple(parse_count(line) for line in raw.split())


class CgroupOwnership:
    """The job owns a cgroup when all processes in it, and below it, are of the trainer's tree or memwatch itself.

    Others (a shell) may have 32 MiB RSS together. Strangers must be seen twice before it is taken back: one may be a
    worker that the tree has not met yet.
    """

    def __init__(self, directory: str, tree_pids: Callable[[], Collection[int]], root: str = "/proc") -> None:
        self._directory, self._tree_pids, self._proc = directory, tree_pids, root
        self._owned = self._matters = False
        self._seen = 0  # looks in a row that met strangers
        self._due_t = -math.inf

    def check_owned(self, now: float, matters: bool) -> bool:
        """Whether it is owned: asked anew every 10 to 80 s, and at once when it begins to matter."""
        begins, self._matters = matters and not self._matters, matters
        if now >= self._due_t or begins:
            self._due_t = now + self._ask()
        return self._owned

    def _ask(self) -> float:
        """Seconds until the next time. Where it cannot be told, it is as it was."""
        longest = _LOOK_SECONDS * (1 << _DOUBLINGS)
        try:
            has_strangers = self._has_strangers()
        except SourceError:
            return _LOOK_SECONDS if self._matters else longest
        if not has_strangers:
            self._owned, self._seen = True, 0
            return _LOOK_SECONDS if self._matters else longest
        self._seen += 1
        if self._owned and self._seen < 2:
            return _SECOND_LOOK_SECONDS
        self._owned = False
        return _LOOK_SECONDS * (1 << min(self._seen - 1, _DOUBLINGS)) if self._matters else longest

    def _has_strangers(self) -> bool:
        """SourceError when some cgroup could not be looked into: no descriptor is left, say."""
        ours = {os.getpid(), *self._tree_pids()}
        room = _STRANGERS_BYTES
        for directory, _, _ in os.walk(self._directory, onerror=_refuse):
            try:
                pids = parse_procs(read_whole(f"{directory}/cgroup.procs"))
            except SourceError as error:
                if getattr(error.__cause__, "errno", None) in _NOBODY_IN_IT:
                    continue
                raise
            for pid in pids:
                if pid not in ours:
                    room -= self._resident(pid)
                if room < 0:
                    return True
        return False

    def _resident(self, pid: int) -> int:
        """RSS of a stranger; one that cannot be looked at counts as large, one that has ended as nothing."""
        if pid == 0:
            return _STRANGERS_BYTES + 1
        try:
            return parse_statm(read_whole(f"{self._proc}/{pid}/statm")).resident_bytes
        except TargetGoneError:
            return 0
        except SourceError:
            return _STRANGERS_BYTES + 1


def _refuse(error: OSError) -> None:
    if error.errno not in _NOBODY_IN_IT:
        raise unreadable(str(error.filename), error) from error
