"""Estimates a process's resident memory by kind (heap, files, stacks ...) from /proc/PID/maps and a sample of pagemap.

smaps has exact figures, but holds the process's mmap lock while it counts all pages of a mapping (15 to 23 ms per GiB).
A sample is right within a few percent and holds the lock for 2 us at a time.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing

from memwatch.core.examination import MemoryKind
from memwatch.errors import SourceError
from memwatch.sources.kernel_files import read_whole
from memwatch.sources.memory.pagemap import PAGE_BITS, PagemapFile, PageRuns

HEAP, ANONYMOUS, STACKS = "heap", "anonymous", "stacks"
SHARED, FILES, GPU_DRIVER = "shared memory", "files", "gpu driver"
PAGE_BYTES = 1 << PAGE_BITS
_MAX_RUNS = 1024  # read of each kind, in 3 ms
_MAPS_BYTES = 1 << 22  # about 40,000 mappings; further ones are left out
_MAX_STACK_BYTES = 64 << 20  # a larger mapping above a guard page is no thread's stack
# 7f79be400000-7f79de400000 rw-p 00000000 00:00 0
# 7f8d8a2c1000-7f8d8a417000 r-xp 00026000 fe:00 1052                       /usr/lib/x86_64-linux-gnu/libc.so.6
_LINE = re.compile(rb"^([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([r-][w-][x-][ps]) \S+ \S+ [0-9]+ *(.*)$", re.MULTILINE)
_SHARED = (b"/dev/shm/", b"/SYSV", b"/memfd:", b"/dev/zero", b"/anon_hugepage")
_GPU = (b"/dev/nvidia", b"/dev/dri/", b"/dev/kfd")


def read_memory_kinds(pid: int, root: str = "/proc") -> tuple[MemoryKind, ...]:
    """Estimate each kind of memory, the largest first; TargetGoneError, or SourceError without the permission."""
    ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for kind, first, count in parse_memory_kinds(read_whole(f"{root}/{pid}/maps", _MAPS_BYTES)):
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
