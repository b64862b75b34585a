"""Reader of the trainer's memory cgroup, version 1 or 2, and of every visible level above it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from memwatch.core.measurements import CgroupLevel, CgroupMemory
from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.kernel_files import HeldFile, HeldValue, parse_count, parse_field, read_whole
from memwatch.sources.memory.cgroup_neighbours import NeighbourReader
from memwatch.sources.procfs import read_stat

# Seconds between readings of the use of levels without a limit, and between checks for a new limit or a move while
# no level has one. The latter lets every other sample of one a second skip the cgroup.
_UNLIMITED_USE_SECONDS, _NO_LIMIT_SECONDS = 10.0, 1.5
_NO_LIMIT = 2**60  # bytes; version 1 writes 9223372036854771712 when there is no limit


# inactive_file 100732928
# total_inactive_file 100732928
def parse_reclaimable_cache(raw: bytes) -> int:
    """Return the bytes of reclaimable file pages in memory.stat; SourceError without such a line."""
    inactive, active = parse_field(raw, b"total_inactive_file "), parse_field(raw, b"total_active_file ")
    if inactive is None:  # version 2; in version 1 only the total_ lines include the levels below
        inactive, active = parse_field(raw, b"inactive_file "), parse_field(raw, b"active_file ")
    if inactive is None:
        raise SourceError("memory.stat has no inactive_file")
    return inactive + (active or 0)


# 9223372036854771712
# max
def parse_limit(raw: bytes) -> int | None:
    """Parse a limit in bytes, None for no limit; SourceError when it is neither."""
    text = raw.strip()
    if text == b"max":
        return None
    limit = parse_count(text)
    return limit if limit < _NO_LIMIT else None


# 104857600
def parse_usage(raw: bytes) -> int:
    """Parse a use in bytes; SourceError when it is no number."""
    return parse_count(raw.strip())


# oom_kill_disable 0
# under_oom 0
# oom_kill 1
def parse_oom_kills(raw: bytes) -> int | None:
    """Parse memory.oom_control, memory.events or memory.events.local; None before Linux 4.13, which has no count."""
    return parse_field(raw, b"oom_kill ")


class _CgroupDirectory:
    """The memory files of one level of the cgroup hierarchy, held open."""

    def __init__(self, version: int, directory: str, path: str) -> None:
        self.path, self.directory = path, directory
        names = ("memory.usage_in_bytes", "memory.limit_in_bytes") if version == 1 else ("memory.current", "memory.max")
        self._usage = HeldValue(f"{directory}/{names[0]}", parse_usage, 64)
        self._limit = HeldValue(f"{directory}/{names[1]}", parse_limit, 64)
        self._stat = HeldValue(f"{directory}/memory.stat", _MemoryStat, 16384)
        self.stat = _MemoryStat(b"inactive_file 0\n")  # as of the latest reading
        self._latest: CgroupLevel | None = None

    def has_limit(self) -> bool:
        return self._limit.read_value() is not None

    def read_level(self, wanted: bool, same_limits: bool = False) -> CgroupLevel:
        """Return the level's use and limit; the use may be seconds old when it has no limit and is not `wanted`.

        `same_limits`: no limit has changed since the last call, so a missing limit is not read again.
        """
        latest = self._latest
        was_unlimited = latest is not None and latest.limit_bytes is None
        limit = None if was_unlimited and same_limits and not wanted else self._limit.read_value()
        if latest is not None and was_unlimited and limit is None and not wanted:
            return latest
        usage = self._usage.read_value()
        self.stat = self._stat.read_value()
        cache = min(self.stat.page_cache, usage)
        self._latest = CgroupLevel(self.path, usage, cache, limit)
        return self._latest

    def close(self) -> None:
        self._usage.close()
        self._limit.close()
        self._stat.close()


class _MemoryStat:
    """The figures of memory.stat in bytes; SourceError when the page cache is missing."""

    __slots__ = ("hierarchical_limit", "page_cache", "swap")

    def __init__(self, raw: bytes) -> None:
        self.page_cache = parse_reclaimable_cache(raw)
        self.hierarchical_limit = parse_field(raw, b"hierarchical_memory_limit ")
        self.swap = parse_field(raw, b"total_swap ")


class CgroupReader:
    """Reads the memory cgroup of a process, also after the process was moved; limits are read at each sample.

    While no level has a limit, no decision depends on it: a move or a new limit is noticed within 2 s, and the use is
    up to 10 s old.
    """

    name = "cgroup"

    def __init__(self, pid: int, root: str = "/proc", neighbours: NeighbourReader | None = None) -> None:
        self._pid, self._proc = pid, root
        self._neighbours = neighbours or NeighbourReader(pid, lambda: (pid,), root)
        self._membership = HeldFile(f"{root}/{pid}/cgroup", 16384)
        self._membership_raw: bytes | None = None
        self._version = 0
        self._levels: list[_CgroupDirectory] = []
        self._kill_counters: list[HeldValue[int | None]] = []
        self._swap: HeldValue[int] | None = None
        self._next_full_t = self._next_read_t = float("-inf")
        self._tightest: int | None = None
        self._unlimited: CgroupMemory | None = None  # the latest result, when no level had a limit

    def read_memory(self, now: float) -> CgroupMemory:
        """Read all levels, innermost first; SourceError when none can be read, TargetGoneError after the exit."""
        if self._unlimited is not None and now < self._next_read_t:
            return self._unlimited
        self._next_read_t = now + _NO_LIMIT_SECONDS
        raw = self._membership.read_bytes()
        if raw != self._membership_raw or not self._levels:
            if read_stat(self._pid, self._proc).is_exiting:  # it appears in the v1 root then; its counters are kept
                raise TargetGoneError(f"process {self._pid} has ended")
            self._close_levels()
            self._locate(raw)
            self._membership_raw = raw
        try:
            return self._read_levels_and_kills(now)
        except SourceError as error:
            self._close_levels()
            if isinstance(error, TargetGoneError):  # the cgroup was removed, not the process
                raise SourceError(str(error)) from error
            raise

    def level_directories(self) -> tuple[str, ...]:
        """The directories of the levels of the latest reading, innermost first."""
        return tuple(level.directory for level in self._levels)

    def oom_kills(self) -> tuple[int | None, int | None]:
        """Count OOM kills in the innermost level, and including the levels below it; None where unknown.

        It also works after the process has exited.
        """
        counts: list[int | None] = []
        for counter in self._kill_counters:
            try:
                counts.append(counter.read_value())
            except SourceError:
                counts.append(None)
        return (counts[0] if counts else None, counts[1] if len(counts) > 1 else None)

    def close(self) -> None:
        self._membership.close()
        self._close_levels()

    def _read_levels_and_kills(self, now: float) -> CgroupMemory:
        kills, hierarchy = self.oom_kills()
        latest = self._unlimited
        if latest is not None and now < self._next_full_t and not any(level.has_limit() for level in self._levels):
            if (latest.oom_kills, latest.hierarchy_oom_kills) != (kills, hierarchy):
                latest = self._unlimited = replace(latest, oom_kills=kills, hierarchy_oom_kills=hierarchy)
            return latest
        levels = self._read_levels(now)
        limited = any(level.limit_bytes is not None for level in levels)
        owned = self._neighbours.check_owned(now, list(zip(self.level_directories(), levels, strict=False)))
        swap = self._levels[0].stat.swap if self._swap is None else self._swap.read_value()
        memory = CgroupMemory(self._version, levels, owned, swap, kills, hierarchy)
        self._unlimited = None if limited else memory
        return memory

    def _read_levels(self, now: float) -> tuple[CgroupLevel, ...]:
        slow = now >= self._next_full_t
        if slow:
            self._next_full_t = now + _UNLIMITED_USE_SECONDS
        innermost = self._levels[0].read_level(wanted=True)
        tightest = self._levels[0].stat.hierarchical_limit  # of all levels, which version 1 has in memory.stat
        same = tightest is not None and tightest == self._tightest
        self._tightest = tightest
        levels = (innermost, *(level.read_level(slow, same) for level in self._levels[1:]))
        return (*levels, *self._hidden_level(levels))

    def _hidden_level(self, levels: tuple[CgroupLevel, ...]) -> tuple[CgroupLevel, ...]:
        """A tighter limit above the visible levels, as only version 1 reports it; its use is at least the topmost's."""
        limit = self._levels[0].stat.hierarchical_limit
        if limit is None or limit >= min(
            (level.limit_bytes for level in levels if level.limit_bytes is not None), default=_NO_LIMIT
        ):
            return ()
        top = levels[-1]
        return (CgroupLevel(f"above {top.path}", top.usage_bytes, top.reclaimable_bytes, limit),)

    # --- finding the cgroup

    def _locate(self, raw: bytes) -> None:
        membership = parse_proc_cgroup(raw)
        for process, prefix in (("self", ""), (str(self._pid), f"{self._proc}/{self._pid}/root")):
            with suppress(SourceError):
                mounts = parse_mountinfo(read_whole(f"{self._proc}/{process}/mountinfo"))
                if (found := locate(membership, mounts, prefix)) is not None:
                    directory, top = found
                    break
        else:
            raise SourceError(
                f"memory cgroup {_shown(membership.path)} is not mounted where memwatch can see it",
                "for another container's, run memwatch as its user with all its capabilities, or with CAP_SYS_PTRACE; "
                "in one's own, mount /sys/fs/cgroup read-only; or pass --limit",
            )
        self._version = membership.version
        self._levels = list(_levels(membership, directory, top))
        if not self._levels:
            raise SourceError(
                f"cgroup {_shown(membership.path)} has no memory controller", "enable it, or pass --limit"
            )
        # memory.events adds the kills of the levels below.
        names = ("memory.oom_control",) if self._version == 1 else ("memory.events.local", "memory.events")
        self._kill_counters = [HeldValue(f"{directory}/{name}", parse_oom_kills) for name in names]
        self._neighbours.begin_cgroup(directory)
        swap = f"{directory}/memory.swap.current"
        self._swap = HeldValue(swap, parse_usage, 64) if os.path.exists(swap) else None  # noqa: PTH110

    def _close_levels(self) -> None:
        for level in self._levels:
            level.close()
        for counter in self._kill_counters:
            counter.close()
        if self._swap is not None:
            self._swap.close()
        self._levels, self._kill_counters, self._swap = [], [], None
        self._next_full_t, self._unlimited = float("-inf"), None


def _levels(membership: Membership, innermost: str, top: str) -> Iterator[_CgroupDirectory]:
    """The levels that account for memory, innermost first; above a v1 level without use_hierarchy there are none."""
    version, path, directory = membership.version, membership.path, innermost
    usage = "memory.usage_in_bytes" if version == 1 else "memory.current"
    while True:
        if os.path.exists(f"{directory}/{usage}"):  # noqa: PTH110
            if version == 1 and directory != innermost and not _is_hierarchical(directory):
                return
            yield _CgroupDirectory(version, directory, _shown(path))
        if directory == top:
            return
        directory = directory.rpartition("/")[0]
        path = path.rpartition("/")[0] or "/"


def _is_hierarchical(directory: str) -> bool:
    try:
        return read_whole(f"{directory}/memory.use_hierarchy").strip() != b"0"
    except SourceError:
        return True


def _shown(path: str) -> str:
    """Return the path as text that every output can write."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else "?" for char in text)


# --- finding its directory --------------------------------------------------------------------------------------------

_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


@dataclass(frozen=True, slots=True)
class Membership:
    """The cgroup that accounts for a process's memory."""

    version: int  # 1 or 2
    path: str  # from the root of the reader's cgroup namespace


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted cgroup hierarchy that may account for memory."""

    version: int
    root: str  # the cgroup at the mount point; not "/" in containers without a cgroup namespace
    point: str


# 4:memory:/docker/98b345b146fd
# 0::/
def parse_proc_cgroup(raw: bytes) -> Membership:
    """Prefer the v1 memory controller to the v2 hierarchy, as in hybrid setups; SourceError when there is neither."""
    unified = None
    for line in raw.split(b"\n"):
        number, _, rest = line.partition(b":")
        controllers, colon, path = rest.partition(b":")
        if not colon or not path.startswith(b"/"):
            continue
        if b"memory" in controllers.split(b","):
            return Membership(1, os.fsdecode(path))
        if number == b"0" and not controllers:
            unified = Membership(2, os.fsdecode(path))
    if unified is None:
        raise SourceError("the process is in no memory cgroup", "the kernel was built or started without one")
    return unified


# 35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
# 41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
def parse_mountinfo(raw: bytes) -> tuple[Mount, ...]:
    """Return the mounted v1 memory and v2 hierarchies, in the order of mounting; other lines are skipped."""
    mounts = []
    for line in raw.split(b"\n"):
        before, _, after = line.partition(b" - ")
        fields, kind = before.split(b" "), after.split(b" ")
        if len(fields) < 6 or len(kind) < 3:
            continue
        root, point = (os.fsdecode(_OCTAL.sub(lambda m: bytes([int(m[1], 8)]), field)) for field in fields[3:5])
        if kind[0] == b"cgroup" and b"memory" in kind[2].split(b","):
            mounts.append(Mount(1, root, point))
        elif kind[0] == b"cgroup2":
            mounts.append(Mount(2, root, point))
    return tuple(mounts)


def locate(membership: Membership, mounts: Sequence[Mount], prefix: str = "") -> tuple[str, str] | None:
    """Return the directories of the cgroup and of its topmost visible level, in the first mount that shows it, or None.

    `prefix` is put before each mount point: /proc/PID/root for another mount namespace.
    """
    for mount in mounts:
        below = _below(membership.path, mount.root)
        if mount.version != membership.version or below is None:
            continue
        top = prefix + mount.point
        directory = "/".join([top, *below])
        if os.path.isdir(directory):  # noqa: PTH112
            return directory, top
    return None


def _below(path: str, root: str) -> list[str] | None:
    """The names that lead from the cgroup `root` down to `path`; None when it is not below `root`."""
    names, above = ([name for name in where.split("/") if name] for where in (path, root))
    rest = names[len(above) :]
    return rest if names[: len(above)] == above and ".." not in rest else None
