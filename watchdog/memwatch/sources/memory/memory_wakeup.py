"""Kernel notifications of a cgroup that wake the watch loop early: memory thresholds, OOM, memory.events and PSI.

A notification only causes a sample, and the sample decides. Where none is available (no write access to the cgroup, or
version 2 without pressure information), growth alone sets the time between samples.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from memwatch.core.measurements import CgroupMemory, Limit
from memwatch.errors import SourceError
from memwatch.sources.kernel_files import parse_count

# Fraction of a threshold's headroom: a threshold further than this from the wanted use is armed anew, and one that has
# fired is armed again when the use is further than this from it.
TOLERANCE = 0.05
# A stall of 0.1 s within 2 s. Without CAP_SYS_RESOURCE the kernel only accepts windows that are multiples of 2 s.
PRESSURE = b"some 100000 2000000\0"
_WRITE = os.O_WRONLY | os.O_CLOEXEC


@dataclass(slots=True)
class _Threshold:
    """A value of memory.usage_in_bytes whose crossing makes an eventfd readable."""

    fd: int
    bytes: int
    slack_bytes: int
    is_muted: bool = False  # it has fired, and the use is still close to it

    def covers(self, usage_bytes: int) -> bool:
        """It is close enough to this use to need no threshold of its own."""
        return abs(self.bytes - usage_bytes) <= self.slack_bytes


def _register_eventfd(control: int, file: int, usage_bytes: int | None = None) -> int:
    """Create an eventfd that the kernel signals; OSError when the kernel refuses."""
    fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    try:
        os.write(control, f"{fd} {file}{'' if usage_bytes is None else f' {usage_bytes}'}".encode())
    except OSError:
        os.close(fd)
        raise
    return fd


class _Arming(threading.Thread):
    """Arms thresholds while the watch goes on.

    For each, the kernel waits for a grace period: 6 ms on an idle machine, and seconds where several watches of one
    cgroup do so at once.
    """

    def __init__(
        self,
        epoll: select.epoll,
        control: int,
        usage: int,
        wanted: Sequence[tuple[int, int]],
        replaced: Sequence[_Threshold],
    ) -> None:
        """Start it, with descriptors of its own; OSError without any left, RuntimeError without a thread."""
        super().__init__(name="thresholds", daemon=True)
        self.replaced = replaced  # what is of no use once all are armed
        self.failure: str | None = None
        self._epoll, self._wanted = epoll, wanted
        self._armed: list[_Threshold] = []
        self._lock = threading.Lock()  # guards _armed, _is_abandoned and the use of the epoll
        self._is_abandoned = False
        self._control, self._usage = os.dup(control), -1
        try:
            self._usage = os.dup(usage)
            self.start()
        except (OSError, RuntimeError):
            self._close()
            raise

    def run(self) -> None:
        try:
            for usage_bytes, slack_bytes in self._wanted:
                if not self._arm(usage_bytes, slack_bytes):
                    break
        except OSError as error:
            self.failure = error.strerror
        finally:
            self._close()

    def take_armed(self) -> list[_Threshold]:
        """Return those that were armed since the last call."""
        with self._lock:
            armed, self._armed = self._armed, []
        return armed

    def abandon(self) -> list[_Threshold]:
        """Arm no more, and return what is not taken yet; the epoll is not used from now on."""
        with self._lock:
            self._is_abandoned = True
        return self.take_armed()

    def _arm(self, usage_bytes: int, slack_bytes: int) -> bool:
        fd = _register_eventfd(self._control, self._usage, usage_bytes)
        with self._lock:
            try:
                if not self._is_abandoned:
                    self._epoll.register(fd, select.EPOLLIN)
                    self._armed.append(_Threshold(fd, usage_bytes, slack_bytes))
                    return True
            except OSError:
                os.close(fd)
                raise
        os.close(fd)
        return False

    def _close(self) -> None:
        for fd in (self._control, self._usage):
            if fd >= 0:
                os.close(fd)


class CgroupWaker:
    """Kernel notifications of one trainer's cgroup behind one descriptor.

    Version 1 has thresholds of use, through eventfds, and the OOM notification. Version 2 has memory.events, which
    changes when the limit is reached, and memory pressure (PSI), which without swap may come after the OOM kill.
    """

    def __init__(self, directories: Callable[[], Sequence[str]], *, only_limiting: bool = False) -> None:
        """`directories` returns those of the cgroup's levels, in the order of CgroupMemory.levels.

        With `only_limiting`, a cgroup that sets no limit and has others' processes wakes nobody: their memory moves.
        """
        self._directories, self._only_limiting = directories, only_limiting
        self._epoll = select.epoll()
        self._directory: str | None = None
        self._thresholds: list[_Threshold] = []
        self._event_files: dict[int, str] = {}  # by descriptor: the name of the other notification
        self._arming: _Arming | None = None
        self._control = self._usage = -1
        self.failure = ""  # why there are no thresholds

    def fileno(self) -> int:
        """The descriptor that becomes readable with a notification."""
        return self._epoll.fileno()

    @property
    def armed(self) -> tuple[str, ...]:
        """The kinds of notifications that are active."""
        thresholds = ("cgroup thresholds",) if self._thresholds else ()
        return (*thresholds, *self._event_files.values())

    def consume_wakeup(self) -> bool:
        """Return whether there was a notification since the last call, and clear it."""
        self._collect_armed()
        fired = self._epoll.poll(0)
        for fd, _ in fired:
            if fd in self._event_files:
                self._drain(fd)
            elif threshold := next((one for one in self._thresholds if one.fd == fd), None):
                self._mute(threshold)
        return bool(fired)

    def set_thresholds(self, cgroup: CgroupMemory | None, limit: Limit, headrooms: Sequence[int]) -> None:
        """Notify when the headroom falls to one of `headrooms`, in bytes; a thread arms what is missing for that."""
        directory = self._limiting_directory(cgroup, limit)
        if directory != self._directory:
            self._open_directory(directory, cgroup.version if cgroup is not None else 0)
        self._collect_armed()
        usage = self._read_usage()
        if usage is None:
            return
        self._unmute(usage)
        if self._arming is not None:
            return
        end = usage + limit.headroom_bytes  # the use at which no headroom is left
        levels = [end - room for room in headrooms if end > room]
        if len(levels) != len(self._thresholds) or not all(map(_Threshold.covers, self._thresholds, levels)):
            slacks = [int(TOLERANCE * (end - level)) for level in levels]
            self._rearm(list(zip(levels, slacks, strict=True)))

    def wait_until_armed(self) -> None:
        """Wait for the thread that arms thresholds, if there is one."""
        if self._arming is not None:
            self._arming.join()
            self._collect_armed()

    def close(self) -> None:
        self._open_directory(None, 0)
        self._epoll.close()

    # --- which cgroup

    def _limiting_directory(self, cgroup: CgroupMemory | None, limit: Limit) -> str | None:
        """Return the directory of the level that sets `limit`, of the innermost level when no level sets it."""
        directories = self._directories()
        if cgroup is None or not directories:
            return None
        levels = zip(directories, cgroup.levels, strict=False)
        bound = (directory for directory, level in levels if limit.origin == f"cgroup {level.path}")
        return next(bound, directories[0] if cgroup.owned or not self._only_limiting else None)

    def _read_usage(self) -> int | None:
        """Read the level's use in bytes, which a sample may have seconds late; None without thresholds."""
        if self._control < 0:
            return None
        try:
            return parse_count(os.pread(self._usage, 64, 0).strip())
        except (OSError, SourceError) as error:
            self.failure = f"its use cannot be read: {error}"
            return None

    def _open_directory(self, directory: str | None, version: int) -> None:
        if self._arming is not None:
            self._thresholds += self._arming.abandon()
            self._arming = None
        for fd in (*(threshold.fd for threshold in self._thresholds), *self._event_files, self._control, self._usage):
            if fd >= 0:
                os.close(fd)  # also removes it from the epoll
        self._thresholds, self._event_files, self._control, self._usage = [], {}, -1, -1
        self._directory, self.failure = directory, ""
        if directory is None:
            return
        if version == 1:
            self._open_thresholds(directory)
        else:
            self.failure = "cgroup version 2 has no thresholds"
            with suppress(OSError):
                events = os.open(f"{directory}/memory.events", os.O_RDONLY | os.O_CLOEXEC)
                self._watch(events, "memory.events", select.EPOLLPRI)
            self._watch_pressure(f"{directory}/memory.pressure")

    def _open_thresholds(self, directory: str) -> None:
        try:
            self._control = os.open(f"{directory}/cgroup.event_control", _WRITE)
            self._usage = os.open(f"{directory}/memory.usage_in_bytes", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.failure = f"{error.filename}: {error.strerror}"
            return
        with suppress(OSError):
            oom = os.open(f"{directory}/memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._watch(_register_eventfd(self._control, oom), "OOM notification")
            finally:
                os.close(oom)

    # --- thresholds

    def _rearm(self, wanted: Sequence[tuple[int, int]]) -> None:
        """Keep the thresholds that cover a wanted (use, slack) and arm the missing ones.

        The others stay until then: an old threshold is better than none.
        """
        kept, missing = list[_Threshold](), list[tuple[int, int]]()
        for usage, slack in wanted:
            covering = next((old for old in self._thresholds if old not in kept and old.covers(usage)), None)
            if covering is None:
                missing.append((usage, slack))
            else:
                kept.append(covering)
        unused = [old for old in self._thresholds if old not in kept]
        if not missing:
            self._forget(unused)
            return
        try:
            self._arming = _Arming(self._epoll, self._control, self._usage, missing, unused)
        except OSError as error:
            self._give_up(error.strerror)
        except RuntimeError:  # the pids cgroup, or the user's limit of processes, is used up
            self.failure = "no thread can be started to arm thresholds"

    def _collect_armed(self) -> None:
        """Take over what the thread has armed."""
        arming = self._arming
        if arming is None:
            return
        is_over = not arming.is_alive()
        self._thresholds = sorted([*self._thresholds, *arming.take_armed()], key=lambda one: one.bytes)
        if not is_over:
            return
        self._arming = None
        if arming.failure is None:
            self._forget(arming.replaced)
        else:
            self._give_up(arming.failure)

    def _forget(self, unused: Sequence[_Threshold]) -> None:
        for threshold in unused:
            os.close(threshold.fd)
        self._thresholds = [one for one in self._thresholds if one not in unused]

    def _give_up(self, reason: str | None) -> None:
        self.failure = f"no threshold: {reason}"
        os.close(self._control)
        self._control = -1

    def _mute(self, threshold: _Threshold) -> None:
        """Ignore a threshold that has fired until the use has left it: it fires at each crossing, up and down."""
        self._drain(threshold.fd)
        self._epoll.unregister(threshold.fd)
        threshold.is_muted = True

    def _unmute(self, usage: int) -> None:
        for threshold in self._thresholds:
            if threshold.is_muted and not threshold.covers(usage):
                self._drain(threshold.fd)
                self._epoll.register(threshold.fd, select.EPOLLIN)
                threshold.is_muted = False

    # --- other notifications

    def _watch_pressure(self, path: str) -> None:
        with suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(fd, PRESSURE)
            except OSError:
                os.close(fd)
                raise
            self._watch(fd, "memory pressure", select.EPOLLPRI)

    def _watch(self, fd: int, name: str, mask: int = select.EPOLLIN) -> None:
        self._event_files[fd] = name
        self._epoll.register(fd, mask)
        self._drain(fd)

    @staticmethod
    def _drain(fd: int) -> None:
        """Read the eventfd's count, or the content whose change was notified."""
        with suppress(OSError):
            os.lseek(fd, 0, os.SEEK_SET)
        with suppress(OSError):
            os.read(fd, 4096)
