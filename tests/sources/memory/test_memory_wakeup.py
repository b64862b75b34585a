"""What ends a sleep: real thresholds of a real cgroup, crossed by a real process; version 2 by files that stand in."""

from __future__ import annotations

import os
import random
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from memwatch.core.measurements import CgroupLevel, CgroupMemory, Limit
from memwatch.sources.memory.cgroup import CgroupReader
from memwatch.sources.memory.memory_wakeup import CgroupWaker
from support.processes import python, running
from support.trainers import memory_cgroup

CONTROLLER = Path("/sys/fs/cgroup/memory")
MIB = 1 << 20
LIMIT = 512 * MIB
GUARD = 64 * MIB

# holds as many MiB as each line of its input says
HOLDER = """
import mmap, sys
area = mmap.mmap(-1, 512 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held = 0
print("ready", flush=True)
for line in sys.stdin:
    wanted = int(line)
    for at in range(held, wanted):
        area[at << 20 : (at + 1) << 20] = bytes(1 << 20)
    if wanted < held:
        area.madvise(mmap.MADV_DONTNEED, wanted << 20, (held - wanted) << 20)
    held = wanted
    print(held, flush=True)
"""


def may_make_cgroups() -> bool:
    return os.geteuid() == 0 and (CONTROLLER / "memory.limit_in_bytes").exists()


class Held:
    """A process in a cgroup of its own, and what wakes for it."""

    def __init__(self, reader: CgroupReader, holder: object) -> None:
        self.reader, self.holder = reader, holder
        self.descriptors = len(list(Path("/proc/self/fd").iterdir()))
        self.wakes = CgroupWaker(reader.level_directories)

    def hold(self, mib: int) -> None:
        self.holder.stdin.write(f"{mib}\n")
        self.holder.stdin.flush()
        assert self.holder.stdout.readline() == f"{mib}\n"

    def arm(self, *headrooms: int, waits: bool = True) -> None:
        cgroup = self.reader.read_memory(time.monotonic())
        level = cgroup.levels[0]
        headroom = level.limit_bytes - level.usage_bytes + level.reclaimable_bytes
        self.wakes.set_thresholds(cgroup, Limit(LIMIT, f"cgroup {level.path}", headroom), headrooms)
        if waits:
            self.wakes.wait_until_armed()


@pytest.fixture
def held() -> Iterator[Held]:
    if not may_make_cgroups():
        pytest.skip("needs root and a memory controller of cgroup version 1")
    with memory_cgroup("memwatch-wakes", LIMIT) as group, running(python(HOLDER)) as holder:
        (group / "cgroup.procs").write_text(str(holder.pid))
        reader = CgroupReader(holder.pid)
        one = Held(reader, holder)
        yield one
        one.wakes.close()
        reader.close()


def test_memory_that_crosses_a_level_rings_once(held: Held) -> None:
    held.arm(GUARD)
    assert not held.wakes.consume_wakeup()
    held.hold(200)
    assert not held.wakes.consume_wakeup(), "far from it"
    held.hold(470)
    assert select.select([held.wakes], [], [], 5)[0], "the sleep ends"
    assert held.wakes.consume_wakeup() and not held.wakes.consume_wakeup()


def test_the_guard_is_met_to_the_megabyte_though_there_is_page_cache(held: Held, tmp_path: Path) -> None:
    held.hold(100)
    held.arm(GUARD)
    (threshold,) = held.wakes._thresholds
    cgroup = held.reader.read_memory(0.0)
    level = cgroup.levels[0]
    assert threshold.bytes == pytest.approx(LIMIT - GUARD + level.reclaimable_bytes, abs=MIB)


def test_a_level_that_memory_hovers_at_rings_no_more_until_memory_has_left_it(held: Held) -> None:
    held.arm(GUARD)
    for mib in (470, 430, 470, 430):
        held.hold(mib)
    assert held.wakes.consume_wakeup()
    for mib in (460, 440, 460):
        held.hold(mib)
        assert not held.wakes.consume_wakeup(), "not before a look has seen where memory is"
    held.hold(300)
    held.arm(GUARD)
    held.hold(470)
    assert held.wakes.consume_wakeup(), "it went far away and came again"


def test_levels_follow_what_is_wanted_and_the_old_ones_stay_until_the_new_ones_are_armed(held: Held) -> None:
    def levels() -> list[int]:
        return sorted((LIMIT - one.bytes) // MIB for one in held.wakes._thresholds)

    held.arm(400 * MIB, 300 * MIB, GUARD)
    first = levels()
    assert len(first) == 3
    held.arm(402 * MIB, 301 * MIB, GUARD)
    assert levels() == first, "near enough"
    held.arm(200 * MIB, 100 * MIB, GUARD, waits=False)
    assert set(first) <= set(levels()), "an old one is better than none"
    held.wakes.wait_until_armed()
    assert len(levels()) == 3 and levels()[0] == first[0]


def test_what_was_armed_since_the_last_call_rings(held: Held) -> None:
    held.arm(GUARD, waits=False)
    held.wakes._arming.join()
    held.hold(470)
    assert select.select([held.wakes], [], [], 5)[0] and held.wakes.consume_wakeup()


def test_it_waits_for_no_watch_that_arms_as_well(held: Held) -> None:
    """Each threshold of a cgroup takes the kernel a grace period, one after another."""
    others = [CgroupWaker(held.reader.level_directories) for _ in range(4)]
    held.arm(GUARD)
    mine, held.wakes, longest = held.wakes, others[0], 0.0
    for _ in range(20):
        for held.wakes in (*others, mine):
            began = time.monotonic()
            held.arm(*(room * MIB for room in random.sample(range(40, 500), 3)), waits=False)
            longest = max(longest, time.monotonic() - began)
    held.wakes.wait_until_armed()
    assert len(mine._thresholds) == 3 and mine.failure == ""
    began = time.monotonic()
    for one in others:
        one.close()
    assert max(longest, time.monotonic() - began) < 0.1


def test_the_kernel_tells_of_its_own_limit(held: Held) -> None:
    held.arm()
    assert held.wakes.armed == ("OOM notification",)
    with pytest.raises(AssertionError):
        held.hold(512)
    assert held.wakes.consume_wakeup()


def test_all_is_given_back(held: Held) -> None:
    held.arm(GUARD, 2 * GUARD)
    held.arm(GUARD)
    held.arm(3 * GUARD, 4 * GUARD, waits=False)
    arming = held.wakes._arming
    held.wakes.close()
    held.reader.close()
    arming.join()
    assert len(list(Path("/proc/self/fd").iterdir())) == held.descriptors


LEVEL = CgroupMemory(2, (CgroupLevel("/job", 100 * MIB, 0, LIMIT),), owned=True)
BOUND = Limit(LIMIT, "cgroup /job", LIMIT - 100 * MIB)


def test_where_nothing_can_be_had_it_says_so_and_looks_are_paced_by_growth(tmp_path: Path) -> None:
    wakes = CgroupWaker(lambda: (str(tmp_path),))
    wakes.set_thresholds(LEVEL, BOUND, (GUARD,))
    assert wakes.armed == () and "thresholds" in wakes.failure and not wakes.consume_wakeup()
    one = CgroupMemory(1, LEVEL.levels, owned=True)
    wakes.close()
    wakes = CgroupWaker(lambda: (str(tmp_path),))
    wakes.set_thresholds(one, BOUND, (GUARD,))
    assert wakes.armed == () and "cgroup.event_control" in wakes.failure
    wakes.close()


def test_without_a_cgroup_there_is_nothing_to_wait_for() -> None:
    wakes = CgroupWaker(lambda: ())
    wakes.set_thresholds(None, BOUND, (GUARD,))
    assert wakes.armed == () and not wakes.consume_wakeup()
    wakes.close()
