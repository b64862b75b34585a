"""Reads how full each tmpfs is that the trainer can fill: /dev/shm first of all, where a full one means SIGBUS.

Mounts are those of the trainer's own mount namespace, so that a container's 64 MB count and not the host's gigabytes.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from memwatch.core.measurements import TmpfsMemory
from memwatch.core.text_and_units import printable
from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.kernel_files import read_whole
from memwatch.sources.procfs import read_stat

SHARED_MEMORY = ("/dev/shm", "/run/shm")  # noqa: S108 - what shm_open() uses, today and on old Debians
_MOUNTS_SECONDS = 60.0  # between two looks at the mounts and at the open files, which take 1 ms (chosen)
_MAX_PROCESSES, _MAX_FILES = 32, 256  # whose open files are looked at, and how many of each: a bound on that time
_MAPS_BYTES = 1 << 20  # of /proc/PID/maps that are looked at: 10,000 mappings
# A tmpfs is no resource of the run while nobody writes to it: not before its use has changed by this share of its size
# since the attach, unless it is half full then (chosen).
_MOVED_SHARE, _FULL_SHARE = 0.01, 0.5
# Batches pass through /dev/shm within milliseconds, so that single samples of it are noise, and what must fit is its
# peak: the most within these seconds counts, and one that differs by less than this share of the size is the same.
# Of simulated DataLoaders with batches up to 94 % in epochs of 4 s, one in four was interrupted by single samples and
# none of six by peaks; leaks were interrupted 5 to 20 s before the end by both.
_PEAK_SECONDS, _SAME_SHARE = 600.0, 0.01
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")


@dataclass(frozen=True, slots=True)
class TmpfsMount:
    """One mounted tmpfs that can be written to."""

    device: int  # as in st_dev
    point: str


# 30 25 0:27 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=245760k
# 58 30 0:41 / /mnt/a\040b rw,nosuid shared:5 master:1 - tmpfs none rw,size=1024k,nr_inodes=16
def parse_tmpfs_mounts(raw: bytes) -> tuple[tuple[TmpfsMount, ...], tuple[str, ...]]:
    """Return the writable tmpfs mounts of /proc/PID/mountinfo, and all mount points.

    A mount that another covers at the same place, read-only ones and malformed lines are left out. Of one tmpfs that is
    mounted twice the first counts, /dev/shm before all.
    """
    points: dict[bytes, str] = {}  # of each mount, by its ID
    parents: list[tuple[bytes, str]] = []
    found: dict[bytes, TmpfsMount] = {}
    for line in raw.split(b"\n"):
        head, _, tail = line.partition(b" - ")
        fields, kind = head.split(b" "), tail.split(b" ")
        major, _, minor = fields[2].partition(b":") if len(fields) > 5 else (b"", b"", b"")
        if len(kind) < 3 or not (major.isdigit() and minor.isdigit() and len(major) < 8 and len(minor) < 8):
            continue
        points[fields[0]] = point = os.fsdecode(_OCTAL.sub(lambda octal: bytes([int(octal[1], 8)]), fields[4]))
        parents.append((fields[1], point))
        if kind[0] == b"tmpfs" and b"rw" in fields[5].split(b",") and b"rw" in kind[2].split(b","):
            found[fields[0]] = TmpfsMount(os.makedev(int(major), int(minor)), point)
    for parent, point in parents:
        if points.get(parent) == point:  # it lies on top
            found.pop(parent, None)
    by_device: dict[int, TmpfsMount] = {}
    for mount in sorted(found.values(), key=lambda mount: mount.point not in SHARED_MEMORY):
        by_device.setdefault(mount.device, mount)
    return tuple(by_device.values()), tuple(points.values())


def used_of(found: os.statvfs_result) -> tuple[int, int]:
    """Return the bytes in use and in all, 0 without a limit; of bytes and inodes those that are fuller count."""
    total = found.f_blocks * found.f_frsize
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    if found.f_files:
        used = max(used, total * (found.f_files - found.f_ffree) // found.f_files)
    return used, total


def mounts_of_paths(points: Iterable[str], paths: Iterable[str]) -> set[str]:
    """Return the mount points that `paths` lie on: for each the longest that contains it."""
    known, found = set(points), set()
    for path in paths:
        while path not in known and path.startswith("/") and path != "/":
            path = path.rpartition("/")[0] or "/"  # noqa: PLW2901
        found.add(path)
    return found


class _Peak:
    """The most that was in use within _PEAK_SECONDS."""

    def __init__(self) -> None:
        self._tops: deque[tuple[float, int]] = deque()  # samples that none after them exceeds: the highest first
        self._peak_bytes = -1

    def add_sample(self, now: float, used_bytes: int, total_bytes: int) -> int:
        """Return the bytes of the peak with this sample."""
        tops = self._tops
        while tops and tops[-1][1] <= used_bytes:
            tops.pop()
        tops.append((now, used_bytes))
        while tops[0][0] < now - _PEAK_SECONDS:
            tops.popleft()
        if self._peak_bytes < 0 or abs(tops[0][1] - self._peak_bytes) > _SAME_SHARE * total_bytes:
            self._peak_bytes = tops[0][1]
        return self._peak_bytes


class TmpfsReader:
    """Reads each tmpfs that the trainer can fill, from the first sample on that shows it in use.

    /dev/shm always counts; another one does while the trainer or a descendant has a file open or mapped in it, or its
    working directory or TMPDIR there. One without a limit of its own (size=0) is bounded by main memory alone.
    """

    name = "tmpfs"

    def __init__(
        self,
        pid: int,
        tree_pids: Callable[[], Collection[int]],
        environ: Mapping[str, str],
        root: str = "/proc",
    ) -> None:
        self._pid, self._tree_pids, self._proc = pid, tree_pids, root
        self._tmpdir = environ.get("TMPDIR", "")
        self._next_mounts_t = float("-inf")
        self._paths: dict[TmpfsMount, str] = {}  # where each mount can be reached from here
        self._first: dict[str, float] = {}  # by mount point, the share in use at its first reading
        self._peaks: dict[str, _Peak] = {}  # of those in use
        self._failure: SourceError | None = None  # of the latest look at the mounts

    def read_memory(self, now: float) -> tuple[TmpfsMemory, ...]:
        """Read each tmpfs; TargetGoneError after the exit, SourceError when the mounts or none of them can be read."""
        if now >= self._next_mounts_t:
            self._next_mounts_t, self._failure = now + _MOUNTS_SECONDS, None
            try:
                self._paths = self._find()
            except SourceError as error:
                if read_stat(self._pid, self._proc).is_exiting:  # a zombie has no mounts: EINVAL
                    raise TargetGoneError(f"process {self._pid} has ended") from error
                self._failure = error
        if self._failure is not None:
            raise SourceError(str(self._failure), self._failure.hint)
        return tuple(self._read_all(now))

    def close(self) -> None:
        """Nothing stays open: a held descriptor would keep a container's tmpfs from being unmounted."""

    def _read_all(self, now: float) -> Iterator[TmpfsMemory]:
        for mount, path in tuple(self._paths.items()):
            point = mount.point
            try:
                is_there, found = _is_at(mount, path), os.statvfs(path)
            except OSError:  # the trainer ends
                is_there = False
            if not is_there:  # it was unmounted
                del self._paths[mount]
                continue
            used, total = used_of(found)
            if total and self._is_in_use(point, used / total):
                peak = self._peaks.setdefault(point, _Peak())
                yield TmpfsMemory(printable(point, 120), used, peak.add_sample(now, used, total), total)

    def _is_in_use(self, point: str, share: float) -> bool:
        first = self._first.setdefault(point, share)
        return point in self._peaks or abs(share - first) >= _MOVED_SHARE or share >= _FULL_SHARE

    # --- which ---

    def _find(self) -> dict[TmpfsMount, str]:
        mounts, points = parse_tmpfs_mounts(read_whole(f"{self._proc}/{self._pid}/mountinfo"))
        wanted = {mount for mount in mounts if mount.point in SHARED_MEMORY}
        if len(wanted) < len(mounts):
            used = mounts_of_paths(points, self._used_paths())
            maps = self._maps()
            wanted |= {mount for mount in mounts if mount.point in used or _device_column(mount.device) in maps}
        found = {mount: self._reachable(mount) for mount in mounts if mount in wanted}
        if found and not any(found.values()):
            raise SourceError(
                f"{printable(next(iter(found)).point)} of process {self._pid} cannot be reached",
                "run memwatch as the trainer's user or as root",
            )
        return {mount: path for mount, path in found.items() if path is not None}

    def _reachable(self, mount: TmpfsMount) -> str | None:
        """Return a path to the mount: by the trainer's root, or in memwatch's own namespace where it is the same."""
        for path in (f"{self._proc}/{self._pid}/root{mount.point}", mount.point):
            with suppress(OSError):
                if _is_at(mount, path):
                    return path
        return None

    def _used_paths(self) -> Iterator[str]:
        """Where the tree's working directories, open files and TMPDIR are; links are read but never followed."""
        yield self._tmpdir
        for pid in islice({self._pid: None, **dict.fromkeys(self._tree_pids())}, _MAX_PROCESSES):
            base = f"{self._proc}/{pid}"
            links = [f"{base}/cwd"]
            with suppress(OSError), os.scandir(f"{base}/fd") as files:
                links += [file.path for file in islice(files, _MAX_FILES)]
            for link in links:
                with suppress(OSError):
                    yield os.readlink(link)  # noqa: PTH115

    def _maps(self) -> bytes:
        with suppress(SourceError):
            return read_whole(f"{self._proc}/{self._pid}/maps", _MAPS_BYTES)
        return b""


def _is_at(mount: TmpfsMount, path: str) -> bool:
    """Whether the mount, and not what lies below it, is at this path now."""
    return os.stat(path).st_dev == mount.device  # noqa: PTH116


# 7f1c2a000000-7f1c2b000000 rw-s 00000000 00:1b 42      /dev/shm/psm_2f1c
def _device_column(device: int) -> bytes:
    return b" %02x:%02x " % (os.major(device), os.minor(device))
