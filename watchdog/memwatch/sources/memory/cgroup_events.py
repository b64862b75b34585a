"""What ends a sleep between two looks: the kernel tells that memory has crossed a level, or that it has become scarce.

All of it only wakes: what is decided, the look decides. Where none of it can be had (no right to write to the cgroup,
version 2 without pressure information) looks are paced by growth alone.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from memwatch.core.measurements import CgroupMemory, Limit
from memwatch.errors import SourceError
from memwatch.sources.kernel_files import parse_count

TOLERANCE = 0.05  # of the headroom that a level stands for: armed anew when off by more, rung again when left by more
PRESSURE = (
    b"some 100000 2000000\0"  # stalled for 0.1 s within 2 s: without CAP_SYS_RESOURCE whole 2 s alone are allowed
)
_WRITE = os.O_WRONLY | os.O_CLOEXEC


@dataclass(slots=True)
class _Threshold:
    """A level of memory.usage_in_bytes that an eventfd tells of."""

    fd: int
    bytes: int
    slack_bytes: int
    is_muted: bool = False  # rung, and memory has not left it yet

    def covers(self, level: int) -> bool:
        """It stands for this level as well as one of its own would."""
        return abs(self.bytes - level) <= self.slack_bytes


class CgroupWaker:
    """Kernel events of one trainer's cgroup as one descriptor to poll.

    Version 1: thresholds of usage, through eventfds, and the OOM notification. Version 2: memory.events, which changes
    when a limit is met, and memory pressure (PSI), which without swap may come after the kill: nothing rests on it.
    """

    def __init__(self, directories: Callable[[], Sequence[str]]) -> None:
        """`directories` of the cgroup's levels, innermost first, as CgroupMemory.levels has them."""
        self._directories = directories
        self._epoll = select.epoll()
        self._directory: str | None = None
        self._thresholds: list[_Threshold] = []
        self._others: dict[int, str] = {}  # what else is polled, by descriptor
        self._control = self._usage = -1
        self.failure = ""  # why there are no thresholds

    def fileno(self) -> int:
        """Readable when there is something to look at."""
        return self._epoll.fileno()

    @property
    def armed(self) -> tuple[str, ...]:
        """What can wake now."""
        levels = ("cgroup thresholds",) if self._thresholds else ()
        return (*levels, *self._others.values())

    def consume_wakeup(self) -> bool:
        """Something did since the last call; it is quiet now."""
        rung = self._epoll.poll(0)
        for fd, _ in rung:
            if fd in self._others:
                self._quiet(fd)
            else:
                self._hear(next(one for one in self._thresholds if one.fd == fd))
        return bool(rung)

    def set_thresholds(
        self, cgroup: CgroupMemory | None, limit: Limit, headrooms: Sequence[int], hurried: bool
    ) -> None:
        """Watch for these headrooms from now on.

        Arming a level takes the kernel 5 ms (it waits for a grace period), and no CPU: one is armed anew in a call,
        none when `hurried`, all at the first.
        """
        directory = self._choose(cgroup, limit)
        if directory != self._directory:
            self._open(directory, cgroup.version if cgroup is not None else 0)
        usage = self._read_usage()
        if usage is None:
            return
        self._listen(usage)
        if self._thresholds and hurried:
            return
        end = usage + limit.headroom_bytes  # where the room is used up
        levels = [end - room for room in headrooms if end > room]
        if len(levels) != len(self._thresholds) or not all(map(_Threshold.covers, self._thresholds, levels)):
            slacks = [int(TOLERANCE * (end - level)) for level in levels]
            self._renew(list(zip(levels, slacks, strict=True)), 1 if self._thresholds else len(levels))

    def close(self) -> None:
        """Give all back."""
        self._open(None, 0)
        self._epoll.close()

    # --- which cgroup

    def _choose(self, cgroup: CgroupMemory | None, limit: Limit) -> str | None:
        """The folder of the level whose bound is met first; of the innermost where no cgroup's is: it grows, too."""
        directories = self._directories()
        if cgroup is None or not directories:
            return None
        levels = zip(directories, cgroup.levels, strict=False)
        bound = (directory for directory, level in levels if limit.origin == f"cgroup {level.path}")
        return next(bound, directories[0])

    def _read_usage(self) -> int | None:
        """What the level uses now; None where it has no thresholds. Read here: of a level without a limit it ages."""
        if self._control < 0:
            return None
        try:
            return parse_count(os.pread(self._usage, 64, 0).strip())
        except (OSError, SourceError) as error:
            self.failure = f"its use cannot be read: {error}"
            return None

    def _open(self, directory: str | None, version: int) -> None:
        for fd in (*(one.fd for one in self._thresholds), *self._others, self._control, self._usage):
            if fd >= 0:
                os.close(fd)  # takes it out of the epoll, too
        self._thresholds, self._others, self._control, self._usage = [], {}, -1, -1
        self._directory, self.failure = directory, ""
        if directory is None:
            return
        if version == 1:
            self._open_control(directory)
        else:
            self.failure = "cgroup version 2 has no thresholds"
            self._add(f"{directory}/memory.events", "memory.events")
            self._add_pressure(f"{directory}/memory.pressure")

    def _open_control(self, directory: str) -> None:
        try:
            self._control = os.open(f"{directory}/cgroup.event_control", _WRITE)
            self._usage = os.open(f"{directory}/memory.usage_in_bytes", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.failure = f"{error.filename}: {error.strerror}"
            return
        with suppress(OSError):
            oom = os.open(f"{directory}/memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._watch(self._notified(oom), "OOM notification")
            finally:
                os.close(oom)

    # --- levels

    def _notified(self, file: int, level: int | None = None) -> int:
        """An eventfd that the kernel writes to; OSError when it will not."""
        fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            os.write(self._control, f"{fd} {file}{'' if level is None else f' {level}'}".encode())
        except OSError:
            os.close(fd)
            raise
        return fd

    def _renew(self, wanted: Sequence[tuple[int, int]], most: int) -> None:
        """Keep what is near enough to a level that is wanted, arm what is missing; the rest goes once nothing is."""
        spare, kept, missing = self._thresholds, list[_Threshold](), list[tuple[int, int]]()
        for level, slack in wanted:
            near = next((one for one in spare if one not in kept and one.covers(level)), None)
            if near is None:
                missing.append((level, slack))
            else:
                kept.append(near)
        try:
            for level, slack in missing[:most]:
                kept.append(self._threshold(level, slack))  # one by one: what is armed can ring, whatever fails next
        except OSError as error:
            self.failure = f"no threshold: {error.strerror}"
            os.close(self._control)
            self._control = -1
        rest = [one for one in spare if one not in kept]
        if len(missing) > most:  # until all are there an old one is better than none
            kept, rest = kept + rest, []
        for one in rest:
            os.close(one.fd)
        self._thresholds = sorted(kept, key=lambda one: one.bytes)

    def _threshold(self, level: int, slack: int) -> _Threshold:
        fd = self._notified(self._usage, level)
        try:
            self._epoll.register(fd, select.EPOLLIN)
        except OSError:
            os.close(fd)
            raise
        return _Threshold(fd, level, slack)

    def _hear(self, one: _Threshold) -> None:
        """It rings at each crossing, up and down: one that memory hovers at is left alone until memory has left it."""
        self._quiet(one.fd)
        self._epoll.unregister(one.fd)
        one.is_muted = True

    def _listen(self, usage: int) -> None:
        for one in self._thresholds:
            if one.is_muted and not one.covers(usage):
                self._quiet(one.fd)
                self._epoll.register(one.fd, select.EPOLLIN)
                one.is_muted = False

    # --- the rest

    def _add(self, path: str, name: str) -> None:
        with suppress(OSError):
            self._watch(os.open(path, os.O_RDONLY | os.O_CLOEXEC), name, select.EPOLLPRI)

    def _add_pressure(self, path: str) -> None:
        with suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(fd, PRESSURE)
            except OSError:
                os.close(fd)
                raise
            self._watch(fd, "memory pressure", select.EPOLLPRI)

    def _watch(self, fd: int, name: str, mask: int = select.EPOLLIN) -> None:
        self._others[fd] = name
        self._epoll.register(fd, mask)
        self._quiet(fd)

    @staticmethod
    def _quiet(fd: int) -> None:
        """Take what it has to say: an eventfd's count, or the content whose change was told."""
        with suppress(OSError):
            os.lseek(fd, 0, os.SEEK_SET)
        with suppress(OSError):
            os.read(fd, 4096)
