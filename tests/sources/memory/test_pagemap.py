"""What maps and pagemap say of real processes, and how they are cut into runs."""

from __future__ import annotations

import mmap
import os
import random
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.memory.pagemap import (
    ANON_OWN,
    ANON_SHARED,
    ANONYMOUS,
    FILE_SHARED,
    FILES,
    GPU_DRIVER,
    HEAP,
    HUGE,
    PAGES_PER_RUN,
    SHARED,
    STACKS,
    ZERO,
    PagemapFile,
    PageRuns,
    mask,
    parse_maps,
    parse_memory_kinds,
    read_address_space,
    read_memory_kinds,
)
from memwatch.sources.procfs import read_children
from support.forest import forest
from support.processes import running

MAPS = b"""55d0a000-55d0b000 r--p 00000000 fe:00 31   /usr/bin/a b
55d0b000-55d0c000 rw-p 00001000 fe:00 31   /usr/bin/a b
55d0c000-55d0e000 rw-p 00000000 00:00 0    [heap]
7f000000-7f100000 ---p 00000000 00:00 0
7f200000-7f300000 rw-s 00002000 00:01 77   /dev/shm/x (deleted)
nonsense
"""


def test_maps():
    space = parse_maps(MAPS)
    assert space.anon.ranges == [(0x55D0B, 3)]
    assert [(m.key, m.first, m.count, m.offset) for m in space.files] == [
        ((b"00:01", b"77"), 0x7F200, 0x100, 2),
        ((b"fe:00", b"31"), 0x55D0A, 1, 0),
        ((b"fe:00", b"31"), 0x55D0B, 1, 1),
    ]
    assert len(space.by_file[b"fe:00", b"31"]) == 2


@given(st.binary() | st.lists(st.sampled_from([*MAPS.split(), b"\n", b"-", b"ffffffffffffffff"])).map(b" ".join))
def test_any_bytes_are_mappings_or_none(raw):
    space = parse_maps(raw)
    assert all(count > 0 for _, count in space.anon.ranges)


@given(
    st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 200)), min_size=1), st.integers(1, 64), st.floats(0, 0.999)
)
def test_a_sample_is_of_different_runs_that_lie_within_their_ranges(ranges, wanted, start):
    runs = PageRuns(ranges)
    taken = list(runs.sample(wanted, start))
    assert len(taken) == min(wanted, runs.total)
    for page_range, first, count in taken:
        begin, length = ranges[page_range]
        assert begin <= first and first + count <= begin + length and 0 < count <= PAGES_PER_RUN
    every = list(runs.sample(runs.total, 0.0))
    assert sum(count for _, _, count in every) == sum(count for _, count in ranges)


def kinds_of(pid: int, megabytes: int) -> tuple[PagemapFile, int, bytes]:
    """The pages of the largest mapping."""
    first, count = max(read_address_space(pid).anon.ranges, key=lambda item: item[1])
    pages = PagemapFile(pid)
    assert count >= megabytes * 256
    return (
        pages,
        first,
        b"".join(
            pages.read_page_kinds(first + i, min(PAGES_PER_RUN, count - i)) for i in range(0, count, PAGES_PER_RUN)
        ),
    )


def test_pages_that_a_fork_has_written_to_are_its_own():
    with forest() as trainer:
        trainer.do("x = heap(64); fork(1); tell('touch(x, range(4000))')")
        worker = read_children(trainer.pid)[0]
        pages, _, kinds = kinds_of(worker, 64)
        assert kinds.count(ANON_OWN) == pytest.approx(4000, abs=150)
        assert kinds.count(ANON_SHARED) == pytest.approx(64 * 256 - 4000, abs=300)
        pages.close()


def test_huge_and_zero_pages_are_told():
    huge = mmap.mmap(-1, 32 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    huge.madvise(mmap.MADV_HUGEPAGE)
    for i in range(0, 16 << 20, 4096):
        huge[i] = 1
    huge.madvise(mmap.MADV_NOHUGEPAGE, 16 << 20, 16 << 20)
    for i in range(16 << 20, 32 << 20, 4096):
        assert huge[i] == 0  # read alone: the kernel's page of zeros
    pages = PagemapFile(os.getpid())
    ranges = read_address_space(os.getpid()).anon.ranges
    runs = [
        (first + i, PAGES_PER_RUN) for first, count in ranges for i in range(0, count - PAGES_PER_RUN, PAGES_PER_RUN)
    ]
    zeros = sum(pages.scan_category(ZERO, *run).bit_count() for run in runs)
    whole = sum(pages.scan_category(HUGE, *run).bit_count() for run in runs)
    pages.close()
    huge.close()
    if not zeros:
        pytest.skip("PAGEMAP_SCAN came with Linux 6.7")
    assert zeros >= 4000
    assert whole == 0 or whole >= 512


def test_shared_memory_is_told_from_anonymous():
    with forest() as trainer:
        name = f"memwatch-test-{trainer.pid}"
        trainer.do(f"a = shared('{name}', 8); touch(a, range(2048)); fork(1); tell('touch(a, range(2048))')")
        space, pages = read_address_space(trainer.pid), PagemapFile(trainer.pid)
        largest = max(space.files, key=lambda mapping: mapping.count)
        start = largest.first + random.randrange(1024)
        assert mask(pages.read_page_kinds(start, PAGES_PER_RUN), FILE_SHARED).bit_count() == PAGES_PER_RUN
        pages.close()


def test_who_is_gone_is_gone(tmp_path):
    with pytest.raises(TargetGoneError):
        PagemapFile(4711, str(tmp_path))
    (tmp_path / "4711").mkdir()
    (tmp_path / "4711" / "statm").write_text("1 1 1 1 0 1 0")
    with pytest.raises(SourceError, match="CONFIG_PROC_PAGE_MONITOR"):
        PagemapFile(4711, str(tmp_path))


def test_mappings_that_are_known_are_not_parsed_again(tmp_path):
    folder = tmp_path / "77"
    folder.mkdir()
    (folder / "maps").write_bytes(MAPS)
    known = read_address_space(77, str(tmp_path))
    assert read_address_space(77, str(tmp_path), (None, known)) is known
    (folder / "maps").write_bytes(MAPS.replace(b"7f300000", b"7f310000"))
    changed = read_address_space(77, str(tmp_path), (None, known))
    assert changed.files[0].count == 0x110


# --- resident memory by kind ------------------------------------------------------------------------------------------

HOLDS = """
import ctypes, mmap, threading, time
blocks = [bytes(1 << 12) for _ in range(2000)]
array = bytearray(b"x" * (200 << 20))
sparse = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for i in range(0, 1 << 28, 1 << 12):
    sparse[i] = 1
shared = mmap.mmap(-1, 60 << 20)
shared.write(b"y" * (60 << 20))
threading.Thread(target=lambda: (print("ready", flush=True), time.sleep(60)), daemon=True).start()
time.sleep(60)
"""


def resident(pid: int) -> Counter[str]:
    """By kind, as smaps has it."""
    found: Counter[str] = Counter()
    kind = ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            path = [*line.split(None, 5), ""][5]
            kind = (
                HEAP
                if path == "[heap]"
                else SHARED
                if path.startswith("/dev/zero")
                else FILES
                if path[:1] == "/"
                else ANONYMOUS
            )
        elif line.startswith("Rss:"):
            found[kind] += int(line.split()[1]) << 10
    return found


def test_each_kind_is_what_smaps_says() -> None:
    with running([sys.executable, "-c", HOLDS]) as process:
        told = {one.kind: one for one in read_memory_kinds(process.pid)}
        true = resident(process.pid)
    for kind in (HEAP, FILES):
        assert told[kind].resident_bytes == pytest.approx(true[kind], rel=0.05, abs=1 << 20), kind
    assert told[SHARED].resident_bytes == true[SHARED] == 60 << 20 and told[SHARED].error_bytes == 0
    anonymous = told[ANONYMOUS]  # 256 MB of the 1 GB that is sparse, and an array: a sample
    assert abs(anonymous.resident_bytes - true[ANONYMOUS]) < 4 * anonymous.error_bytes + (1 << 20)
    assert 0 < anonymous.error_bytes < 0.1 * anonymous.resident_bytes
    assert STACKS in told and told[STACKS].resident_bytes < 4 << 20
    assert next(iter(told)) == ANONYMOUS


def test_a_process_that_is_gone() -> None:
    with pytest.raises(TargetGoneError):
        read_memory_kinds(2**22 + 1)


def test_drivers_shared_memory_and_guarded_stacks_are_told_apart() -> None:
    raw = b"""\
10000-20000 ---p 00000000 00:00 0
20000-30000 rw-p 00000000 00:00 0
40000-50000 rw-p 00000000 00:00 0                          [anon: GWP-ASan]
50000-60000 rw-s 00000000 00:05 77                         /dev/nvidia-uvm
60000-70000 rw-s 00000000 00:05 78                         /dev/shm/torch_77 (deleted)
70000-80000 rw-s 00000000 00:01 79                         /SYSV00000000 (deleted)
80000-90000 rw-p 00000000 00:00 0                          [stack]
90000-a0000 r-xp 00000000 fe:00 80                         /usr/lib/a b.so
"""
    kinds = [kind for kind, _, _ in parse_memory_kinds(raw)]
    assert kinds == [STACKS, ANONYMOUS, GPU_DRIVER, SHARED, SHARED, STACKS, FILES]


@given(st.binary() | st.text("0123456789abcdef-rwxps \n/[]", max_size=300).map(str.encode))
def test_any_maps_are_read(raw: bytes) -> None:
    assert all(first >= 0 and count >= 0 for _, first, count in parse_memory_kinds(raw))


def test_without_pagemap_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/maps").write_bytes(b"10000-20000 rw-p 00000000 00:00 0\n")
    (tmp_path / "7/statm").write_text("1 1 1 1 1 1 1\n")
    with pytest.raises(SourceError):
        read_memory_kinds(7, str(tmp_path))
