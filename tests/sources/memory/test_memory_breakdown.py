"""Kinds of memory beside smaps, of real processes."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.memory.memory_breakdown import (
    ANONYMOUS,
    FILES,
    GPU_DRIVER,
    HEAP,
    SHARED,
    STACKS,
    parse_memory_kinds,
    read_memory_kinds,
)
from support.processes import running

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
