"""Reads from /proc/PID/maps and /proc/PID/pagemap which pages are resident, and which a process has to itself.

A sample of its pages also estimates a process's memory by kind (heap, files, stacks ...), right within a few percent.
Reading pagemap holds the process's mmap lock for 2 MiB of addresses at most: 2 us for a run of 32 pages. Reading
smaps_rollup holds it for the whole address space, 15 to 23 ms per GiB. Both need the permission to ptrace.
"""

from __future__ import annotations

import fcntl
import math
import os
import random
import re
import struct
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from heapq import nlargest
from itertools import accumulate

from memwatch.core.examination import MemoryKind
from memwatch.errors import SourceError
from memwatch.sources.kernel_files import read_whole, unreadable

PAGES_PER_RUN = 32  # pages read at once: a read takes 1.1 us and 0.04 us per page, so this costs twice one page

PAGE_BITS = os.sysconf("SC_PAGE_SIZE").bit_length() - 1
_ENTRY_BYTES = 8
_MAPPING = re.compile(
    rb"^([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([r-][w-][x-])([ps]) ([0-9a-f]{1,16}) ([0-9a-f]+:[0-9a-f]+) ([0-9]+)",
    re.MULTILINE,
)
_MAPS_BYTES = 1 << 19  # about 6,000 mappings in 8 ms; further ones are assumed to be like these
_MAX_ANON, _MAX_FILES = 512, 64  # mappings kept, the largest ones: a tree may have 200 processes

# Bits of the highest byte of an entry (Documentation/admin-guide/mm/pagemap.rst): 0x80 present, 0x20 file page or
# shared memory, 0x01 mapped by no other process. The kernel shows them without CAP_SYS_ADMIN, too.
_EXCLUSIVE, _FILE, _PRESENT = 0x01, 0x20, 0x80
_KIND_BITS = _PRESENT | _FILE | _EXCLUSIVE
ANON_OWN, ANON_SHARED = _PRESENT | _EXCLUSIVE, _PRESENT
FILE_OWN, FILE_SHARED = _PRESENT | _FILE | _EXCLUSIVE, _PRESENT | _FILE
_KINDS = bytes(byte & _KIND_BITS if byte & _PRESENT else 0 for byte in range(256))
_MASKS = {kind: bytes(byte == kind for byte in range(256)) for kind in (ANON_OWN, ANON_SHARED, FILE_OWN, FILE_SHARED)}
_FILE_MASK = bytes(byte in (FILE_OWN, FILE_SHARED) for byte in range(256))

# The PAGEMAP_SCAN ioctl of linux/fs.h, since Linux 6.7.
_PAGEMAP_SCAN = 0xC0606610
_SCAN_ARGUMENT = struct.Struct("=12Q")
ZERO, HUGE = 1 << 5, 1 << 6

FileKey = tuple[bytes, bytes]  # device and inode


@dataclass(frozen=True, slots=True)
class FileMapping:
    """Pages of a file or of shared memory in an address space."""

    key: FileKey
    first: int  # page number of its address
    count: int
    offset: int  # page of the file that is mapped first


class PageRuns:
    """Ranges of pages, divided into runs from which a sample is taken."""

    __slots__ = ("_ends", "ranges", "total")

    def __init__(self, ranges: list[tuple[int, int]]) -> None:
        self.ranges = ranges
        self._ends = list(accumulate(-(-count // PAGES_PER_RUN) for _, count in ranges))
        self.total = self._ends[-1] if self._ends else 0

    def sample(self, wanted: int, start: float | None = None) -> Iterator[tuple[int, int, int]]:
        """Yield (index of the range, first page, pages) of `wanted` runs at equal distances, or of all.

        `start` from 0 to 1 places the first run within the first distance, by default at random.
        """
        if wanted >= self.total:
            wanted, start = self.total, 0.0
        elif start is None:
            start = random.random()  # noqa: S311 - nothing secret
        i = begin = 0
        for page_range, (end, (first, count)) in enumerate(zip(self._ends, self.ranges, strict=True)):
            while i < wanted and (run := int((start + i) * self.total / wanted)) < end:
                skipped = (run - begin) * PAGES_PER_RUN
                yield page_range, first + skipped, min(PAGES_PER_RUN, count - skipped)
                i += 1
            begin = end


@dataclass(frozen=True, slots=True)
class AddressSpace:
    """The mappings of a process from which pages are sampled."""

    mappings: int  # number of all that were read
    anon: PageRuns
    files: tuple[FileMapping, ...]
    file_runs: PageRuns  # of `files`, in the same order
    by_file: dict[FileKey, tuple[FileMapping, ...]]
    digest: int  # hash of the text that was parsed


# 7f79be400000-7f79de400000 rw-p 00000000 00:00 0
# 7f8d8a2c1000-7f8d8a417000 r-xp 00026000 fe:00 1052                       /usr/lib/x86_64-linux-gnu/libc.so.6
def parse_maps(raw: bytes) -> AddressSpace:
    """Parse the mappings that may hold pages; unreadable lines and inaccessible mappings are left out."""
    anon: list[tuple[int, int]] = []
    files: list[FileMapping] = []
    mappings = _MAPPING.findall(raw)
    for start, end, rights, way, offset, device, inode in mappings:
        first = int(start, 16) >> PAGE_BITS
        count = (int(end, 16) >> PAGE_BITS) - first
        if rights == b"---" or count <= 0 or first >= 1 << 60:
            continue
        if inode != b"0":
            files.append(FileMapping((device, inode), first, count, int(offset, 16) >> PAGE_BITS))
        if way == b"p" and (inode == b"0" or rights[1:2] == b"w"):
            if anon and sum(anon[-1]) == first:
                anon[-1] = (anon[-1][0], anon[-1][1] + count)
            else:
                anon.append((first, count))
    anon = sorted(nlargest(_MAX_ANON, anon, key=lambda page_range: page_range[1]))
    kept = tuple(nlargest(_MAX_FILES, files, key=lambda mapping: mapping.count))
    by_file: dict[FileKey, tuple[FileMapping, ...]] = {}
    for mapping in kept:
        by_file[mapping.key] = (*by_file.get(mapping.key, ()), mapping)
    file_runs = PageRuns([(mapping.first, mapping.count) for mapping in kept])
    return AddressSpace(len(mappings), PageRuns(anon), kept, file_runs, by_file, hash(raw))


def read_address_space(pid: int, root: str = "/proc", known: Iterable[AddressSpace | None] = ()) -> AddressSpace:
    """Read the mappings of a process, reusing one of `known` if it is the same; TargetGoneError or SourceError.

    Parsing takes three times as long as reading, and forks often have the same mappings.
    """
    raw = read_whole(f"{root}/{pid}/maps", _MAPS_BYTES)
    digest = hash(raw)
    same = next((space for space in known if space is not None and space.digest == digest), None)
    return same or parse_maps(raw)


class PagemapFile:
    """An open /proc/PID/pagemap, which keeps the process's address space alive, but not its memory."""

    __slots__ = ("_fd", "_path", "reads", "scans")

    def __init__(self, pid: int, root: str = "/proc") -> None:
        self._path = f"{root}/{pid}/pagemap"
        self.reads = self.scans = 0
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and os.path.exists(f"{root}/{pid}/statm"):  # noqa: PTH110
                raise SourceError(f"{self._path}: not in this kernel (CONFIG_PROC_PAGE_MONITOR)") from error
            raise unreadable(self._path, error) from error

    def read_page_kinds(self, first: int, count: int) -> bytes:
        """Return a byte per page: ANON_OWN, ANON_SHARED, FILE_OWN, FILE_SHARED, or 0 for one that is not resident."""
        self.reads += 1
        try:
            raw = os.pread(self._fd, count * _ENTRY_BYTES, first * _ENTRY_BYTES)
        except OSError as error:
            raise unreadable(self._path, error) from error
        return raw[_ENTRY_BYTES - 1 :: _ENTRY_BYTES].translate(_KINDS).ljust(count, b"\0")

    def scan_category(self, category: int, first: int, count: int) -> int:
        """Return which of `count` pages are ZERO or HUGE, as a mask (see `mask`); none before Linux 6.7."""
        self.scans += 1
        regions = array("Q", bytes(count * 3 * _ENTRY_BYTES))  # start, end, categories of each
        address, end = first << PAGE_BITS, (first + count) << PAGE_BITS
        ask = (_SCAN_ARGUMENT.size, 0, address, end, 0, regions.buffer_info()[0], count, 0, 0, category, 0, category)
        try:
            found = fcntl.ioctl(self._fd, _PAGEMAP_SCAN, bytearray(_SCAN_ARGUMENT.pack(*ask)))
        except OSError:
            return 0
        marks = bytearray(count)
        for start, stop in zip(regions[: 3 * found : 3], regions[1 : 3 * found : 3], strict=True):
            pages = slice((start - address) >> PAGE_BITS, (stop - address) >> PAGE_BITS)
            marks[pages] = b"\1" * (pages.stop - pages.start)
        return int.from_bytes(marks, "little")

    def close(self) -> None:
        os.close(self._fd)


def mask(kinds: bytes, kind: int) -> int:
    """Return the pages of a kind as an integer in which bit 8 * i stands for page i."""
    return int.from_bytes(kinds.translate(_MASKS[kind]), "little")


def file_mask(kinds: bytes) -> int:
    """Return the resident pages of files and of shared memory, as `mask` does."""
    return int.from_bytes(kinds.translate(_FILE_MASK), "little")


# --- resident memory by kind ------------------------------------------------------------------------------------------

HEAP, ANONYMOUS, STACKS = "heap", "anonymous", "stacks"
SHARED, FILES, GPU_DRIVER = "shared memory", "files", "gpu driver"
PAGE_BYTES = 1 << PAGE_BITS
_MAX_RUNS = 1024  # read of each kind, in 3 ms
_MAPS_BYTES_BY_KIND = 1 << 22  # about 40,000 mappings; further ones are left out
_MAX_STACK_BYTES = 64 << 20  # a larger mapping above a guard page is no thread's stack
# As _MAPPING, with the path and without what it does not need.
_LINE = re.compile(rb"^([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([r-][w-][x-][ps]) \S+ \S+ [0-9]+ *(.*)$", re.MULTILINE)
_SHARED = (b"/dev/shm/", b"/SYSV", b"/memfd:", b"/dev/zero", b"/anon_hugepage")
_GPU = (b"/dev/nvidia", b"/dev/dri/", b"/dev/kfd")


def read_memory_kinds(pid: int, root: str = "/proc") -> tuple[MemoryKind, ...]:
    """Estimate each kind of memory, the largest first; TargetGoneError, or SourceError without the permission."""
    ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for kind, first, count in parse_memory_kinds(read_whole(f"{root}/{pid}/maps", _MAPS_BYTES_BY_KIND)):
        ranges[kind].append((first, count))
    with closing(PagemapFile(pid, root)) as pages:
        found = [_estimate(kind, some, pages) for kind, some in ranges.items()]
    return tuple(sorted(found, key=lambda kind: -kind.resident_bytes))


def read_resident(pages: PagemapFile, address: int, size: int) -> int | None:
    """Estimate how many of `size` bytes from `address` on are resident; None when pagemap cannot be read."""
    first, end = address >> PAGE_BITS, (address + size + PAGE_BYTES - 1) >> PAGE_BITS
    try:
        return min(size, _estimate("", [(first, end - first)], pages, 0.5).resident_bytes)
    except SourceError:
        return None


def parse_memory_kinds(raw: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield kind, first page and number of pages of each accessible mapping."""
    guard_end = 0
    for low, high, rights, path in _LINE.findall(raw):
        start, end = int(low, 16), int(high, 16)
        if rights.startswith(b"---"):
            guard_end = end
        elif start < end <= 1 << 63:
            is_stack = start == guard_end and not path and end - start <= _MAX_STACK_BYTES
            yield STACKS if is_stack else _kind(path), start >> PAGE_BITS, (end - start) >> PAGE_BITS


def _kind(path: bytes) -> str:
    if path == b"[heap]":
        return HEAP
    if path.startswith(b"[stack"):
        return STACKS
    if path.startswith(_SHARED):
        return SHARED
    if path.startswith(_GPU):
        return GPU_DRIVER
    return FILES if path.startswith(b"/") else ANONYMOUS


def _estimate(kind: str, ranges: list[tuple[int, int]], pages: PagemapFile, start: float | None = None) -> MemoryKind:
    """Estimate the resident part of `ranges`, from runs of pages at equal distances."""
    runs, mapped = PageRuns(ranges), sum(count for _, count in ranges)
    shares, read, resident = [], 0, 0
    for _, first, count in runs.sample(_MAX_RUNS, start):
        there = count - pages.read_page_kinds(first, count).count(0)
        shares.append(there / count)
        read += count
        resident += there
    share = resident / read if read else 0.0
    unread = 1 - len(shares) / runs.total
    spread = sum((one - share) ** 2 for one in shares) / max(1, len(shares) - 1)
    error = math.sqrt(spread * unread / len(shares)) if shares else 0.0
    return MemoryKind(kind, mapped * PAGE_BYTES, int(share * mapped) * PAGE_BYTES, int(error * mapped) * PAGE_BYTES)
