"""The trainer's memory cgroup, version 1 or 2, and every level above it that can be seen."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from memwatch.core.measurements import CgroupLevel, CgroupMemory
from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.kernel_files import HeldFile, HeldValue, parse_count, parse_field, read_whole
from memwatch.sources.memory.cgroup_mounts import CgroupLocation, locate, parse_mountinfo, parse_proc_cgroup
from memwatch.sources.memory.cgroup_ownership import CgroupOwnership
from memwatch.sources.procfs import read_stat

_SLOW_SECONDS = 10.0  # between readings of what binds nobody
_IDLE_SECONDS = 1.5  # between looks for a limit, or a move, while there is no limit: every other second
_NO_LIMIT = 2**60  # v1 writes 9223372036854771712 for none


# --- parsers ------------------------------------------------------------------------------------------------------


# inactive_file 100732928
# total_inactive_file 100732928
def parse_reclaimable_cache(raw: bytes) -> int:
    """Bytes of page cache in memory.stat that the kernel gives back; SourceError when it tells none."""
    inactive, active = parse_field(raw, b"total_inactive_file "), parse_field(raw, b"total_active_file ")
    if inactive is None:  # version 2; version 1 counts the levels below only in its total_ lines
        inactive, active = parse_field(raw, b"inactive_file "), parse_field(raw, b"active_file ")
    if inactive is None:
        raise SourceError("memory.stat has no inactive_file")
    return inactive + (active or 0)


# 9223372036854771712
# max
def parse_limit(raw: bytes) -> int | None:
    """Bytes, None for no limit; SourceError when it is neither."""
    text = raw.strip()
    if text == b"max":
        return None
    limit = parse_count(text)
    return limit if limit < _NO_LIMIT else None


# 104857600
def parse_usage(raw: bytes) -> int:
    """Bytes, or SourceError."""
    return parse_count(raw.strip())


# oom_kill_disable 0
# under_oom 0
# oom_kill 1
def parse_oom_kills(raw: bytes) -> int | None:
    """The count in memory.oom_control, memory.events or memory.events.local; None before Linux 4.13."""
    return parse_field(raw, b"oom_kill ")


# --- one level ----------------------------------------------------------------------------------------------------


class _Level:
    """One cgroup directory."""

    def __init__(self, version: int, directory: str, path: str) -> None:
        self.path, self.directory = path, directory
        names = ("memory.usage_in_bytes", "memory.limit_in_bytes") if version == 1 else ("memory.current", "memory.max")
        self._usage = HeldValue(f"{directory}/{names[0]}", parse_usage, 64)
        self._limit = HeldValue(f"{directory}/{names[1]}", parse_limit, 64)
        self._counts = HeldValue(f"{directory}/memory.stat", _MemoryStat, 16384)
        self.counts = _MemoryStat(b"inactive_file 0\n")  # as last read
        self._latest: CgroupLevel | None = None

    def has_limit(self) -> bool:
        """As its file says now."""
        return self._limit.read() is not None

    def read(self, wanted: bool, same_limits: bool = False) -> CgroupLevel:
        """The level now. Without a limit its use matters to nobody and may be some seconds old, unless `wanted`.

        With the `same_limits` as at the last read it has none if it had none.
        """
        latest = self._latest
        was_unlimited = latest is not None and latest.limit_bytes is None
        limit = None if was_unlimited and same_limits and not wanted else self._limit.read()
        if latest is not None and was_unlimited and limit is None and not wanted:
            return latest
        usage = self._usage.read()
        self.counts = self._counts.read()
        cache = min(self.counts.page_cache, usage)
        self._latest = CgroupLevel(self.path, usage, cache, limit)
        return self._latest

    def close(self) -> None:
        """Close what is held."""
        self._usage.close()
        self._limit.close()
        self._counts.close()


class _MemoryStat:
    """What memory.stat says; SourceError when it tells no page cache."""

    __slots__ = ("hierarchical_limit", "page_cache", "swap")

    def __init__(self, raw: bytes) -> None:
        self.page_cache = parse_reclaimable_cache(raw)
        self.hierarchical_limit = parse_field(raw, b"hierarchical_memory_limit ")
        self.swap = parse_field(raw, b"total_swap ")


# --- all of them --------------------------------------------------------------------------------------------------


class CgroupReader:
    """The memory cgroup of a process, followed when the process is moved; limits are read anew each time.

    While no level has a limit nothing rests on it: a move or a limit is seen within 2 s, its use is up to 10 s old.
    """

    name = "cgroup"

    def __init__(self, pid: int, root: str = "/proc", tree_pids: Callable[[], Collection[int]] | None = None) -> None:
        self._pid, self._proc, self._tree_pids = pid, root, tree_pids or (lambda: (pid,))
        self._membership = HeldFile(f"{root}/{pid}/cgroup", 16384)
        self._membership_raw: bytes | None = None
        self._version = 0
        self._levels: list[_Level] = []
        self._events: list[HeldValue[int | None]] = []
        self._swap: HeldValue[int] | None = None
        self._slow_t = self._idle_t = float("-inf")
        self._tightest: int | None = None
        self._ownership: CgroupOwnership | None = None
        self._unlimited: CgroupMemory | None = None  # the latest, when no level had a limit

    def read(self, now: float) -> CgroupMemory:
        """All levels, innermost first; SourceError when no memory cgroup can be read, TargetGoneError after the end."""
        if self._unlimited is not None and now < self._idle_t:
            return self._unlimited
        self._idle_t = now + _IDLE_SECONDS
        raw = self._membership.read()
        if raw != self._membership_raw or not self._levels:
            self._refuse_ending()
            self._release()
            self._find(raw)
            self._membership_raw = raw
        try:
            return self._read(now)
        except SourceError as error:
            self._release()
            if isinstance(error, TargetGoneError):  # the cgroup was removed, not the process
                raise SourceError(str(error)) from error
            raise

    def level_directories(self) -> tuple[str, ...]:
        """Where the levels of the last read are, innermost first."""
        return tuple(level.directory for level in self._levels)

    def oom_kills(self) -> tuple[int | None, int | None]:
        """Kills in the innermost level, and with those below it; also once the process is gone. None: unknown."""
        counts = [self._count(held) for held in self._events]
        return (counts[0] if counts else None, counts[1] if len(counts) > 1 else None)

    def close(self) -> None:
        """Close all held files."""
        self._membership.close()
        self._release()

    def _read(self, now: float) -> CgroupMemory:
        kills, hierarchy = self.oom_kills()
        latest = self._unlimited
        if latest is not None and now < self._slow_t and not any(level.has_limit() for level in self._levels):
            if (latest.oom_kills, latest.hierarchy_oom_kills) != (kills, hierarchy):
                latest = self._unlimited = replace(latest, oom_kills=kills, hierarchy_oom_kills=hierarchy)
            return latest
        levels = self._read_levels(now)
        limited = any(level.limit_bytes is not None for level in levels)
        owned = self._ownership is not None and self._ownership.check_owned(now, matters=limited)
        swap = self._levels[0].counts.swap if self._swap is None else self._swap.read()
        memory = CgroupMemory(self._version, levels, owned, swap, kills, hierarchy)
        self._unlimited = None if limited else memory
        return memory

    def _read_levels(self, now: float) -> tuple[CgroupLevel, ...]:
        slow = now >= self._slow_t
        if slow:
            self._slow_t = now + _SLOW_SECONDS
        innermost = self._levels[0].read(wanted=True)
        tightest = self._levels[0].counts.hierarchical_limit  # of all levels, as v1 tells with the rest
        same = tightest is not None and tightest == self._tightest
        self._tightest = tightest
        levels = (innermost, *(level.read(slow, same) for level in self._levels[1:]))
        return (*levels, *self._hidden_level(levels))

    def _hidden_level(self, levels: tuple[CgroupLevel, ...]) -> tuple[CgroupLevel, ...]:
        """A tighter limit above what can be seen, as v1 alone tells; its use is at least that of the topmost seen."""
        limit = self._levels[0].counts.hierarchical_limit
        if limit is None or limit >= min(
            (level.limit_bytes for level in levels if level.limit_bytes is not None), default=_NO_LIMIT
        ):
            return ()
        top = levels[-1]
        return (CgroupLevel(f"above {top.path}", top.usage_bytes, top.reclaimable_bytes, limit),)

    # --- finding it

    def _refuse_ending(self) -> None:
        """A process that is ending shows as in the v1 root: that is no move, and its counters are still wanted."""
        if read_stat(self._pid, self._proc).is_exiting:
            raise TargetGoneError(f"process {self._pid} has ended")

    def _find(self, raw: bytes) -> None:
        membership = parse_proc_cgroup(raw)
        place = None
        for process, prefix in (("self", ""), (str(self._pid), f"{self._proc}/{self._pid}/root")):
            try:
                mounts = parse_mountinfo(read_whole(f"{self._proc}/{process}/mountinfo"))
            except SourceError:
                continue
            place = place or locate(membership, mounts, prefix)
        if place is None:
            raise SourceError(
                f"memory cgroup {_shown(membership.path)} is not mounted where memwatch can see it",
                "for another container's, run memwatch as its user with all its capabilities, or with CAP_SYS_PTRACE; "
                "in one's own, mount /sys/fs/cgroup read-only; or pass --limit",
            )
        self._version = membership.version
        self._levels = list(_levels(membership.version, place))
        if not self._levels:
            raise SourceError(f"cgroup {_shown(place.path)} has no memory controller", "enable it, or pass --limit")
        self._hold_counters(place.directory)
        self._ownership = CgroupOwnership(place.directory, self._tree_pids, self._proc)

    def _hold_counters(self, directory: str) -> None:
        """v1 counts in memory.oom_control; v2 in memory.events, and without the levels below in memory.events.local."""
        names = ("memory.oom_control",) if self._version == 1 else ("memory.events.local", "memory.events")
        self._events = [HeldValue(f"{directory}/{name}", parse_oom_kills) for name in names]
        swap = f"{directory}/memory.swap.current"
        self._swap = HeldValue(swap, parse_usage, 64) if os.path.exists(swap) else None  # noqa: PTH110

    def _release(self) -> None:
        for level in self._levels:
            level.close()
        for counter in self._events:
            counter.close()
        if self._swap is not None:
            self._swap.close()
        self._levels, self._events, self._swap = [], [], None
        self._slow_t, self._unlimited = float("-inf"), None

    @staticmethod
    def _count(held: HeldValue[int | None]) -> int | None:
        try:
            return held.read()
        except SourceError:
            return None


def _levels(version: int, place: CgroupLocation) -> Iterator[_Level]:
    """From the innermost that accounts for memory to the top; above a v1 level without hierarchy nothing binds."""
    directory, path = place.directory, place.path
    usage = "memory.usage_in_bytes" if version == 1 else "memory.current"
    while True:
        if os.path.exists(f"{directory}/{usage}"):  # noqa: PTH110
            if version == 1 and directory != place.directory and not _is_hierarchical(directory):
                return
            yield _Level(version, directory, _shown(path))
        if directory == place.top:
            return
        directory = directory.rpartition("/")[0]
        path = path.rpartition("/")[0] or "/"


def _is_hierarchical(directory: str) -> bool:
    try:
        return read_whole(f"{directory}/memory.use_hierarchy").strip() != b"0"
    except SourceError:
        return True


def _shown(path: str) -> str:
    """The path as text that every output can write."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else "?" for char in text)
