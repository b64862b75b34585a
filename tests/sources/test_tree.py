from __future__ import annotations

import math
import os
import subprocess
import time
from pathlib import Path

import pytest

from memwatch.errors import TargetGoneError
from memwatch.sources.procfs import parse_status
from memwatch.sources.pss import PssBudget, parse_smaps_rollup
from memwatch.sources.tree import TreeReader
from support.fakeproc import FakeProc
from support.trainers import running

MB = 1 << 20
HOLD = "say('ready'); sys.stdin.read()\n"


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def reader(fake: FakeProc, pid: int = 10, **options) -> TreeReader:
    return TreeReader(pid, root=str(fake), **options)


def pss_sum(pids) -> int:
    return sum(parse_smaps_rollup(Path(f"/proc/{pid}/smaps_rollup").read_bytes(), 0).pss_bytes for pid in pids)


# --- a fake tree


def test_one_process_is_its_rss(fake):
    fake.process(10, anon=90 * MB, shared=10 * MB, shmem=4 * MB, swap=2 * MB, comm="foo) Z ")
    memory = reader(fake).read(0.0)
    assert (memory.processes, memory.accounting) == (1, "rss")
    assert memory.rss_bytes == memory.used_bytes == 100 * MB
    assert (memory.anon_bytes, memory.file_bytes, memory.shmem_bytes) == (90 * MB, 6 * MB, 4 * MB)
    assert memory.swap_bytes == 2 * MB
    assert memory.virtual_bytes == 100 * MB
    assert memory.data_bytes == 100 * MB - 8192


def test_a_zombie_is_gone(fake):
    fake.process(10, anon=MB)
    tree = reader(fake)
    tree.read(0.0)
    fake.zombie(10)
    with pytest.raises(TargetGoneError):
        tree.read(1.0)


def test_no_such_process(fake):
    with pytest.raises(TargetGoneError):
        reader(fake, 4711)


def test_grandchildren_are_found_and_forks_are_not_counted_twice(fake):
    fake.process(10, anon=200 * MB, children=(11, 12))
    fake.process(11, anon=200 * MB, parent=10, children=(13,))
    fake.process(12, anon=30 * MB, parent=10, layout=99)
    fake.process(13, anon=201 * MB, parent=11)
    tree = reader(fake, calibrate=lambda: False)
    memory = tree.read(0.0)
    assert tree.root_pids() == {10, 11, 12, 13}
    assert memory.accounting == "anon+shmem"
    assert memory.used_bytes == (200 + 30 + 1) * MB


def test_a_fork_that_starts_another_program_counts_whole(fake):
    fake.process(10, anon=200 * MB, children=(11,))
    fake.process(11, anon=200 * MB, parent=10)
    tree = reader(fake, calibrate=lambda: False)
    assert tree.read(0.0).used_bytes == 200 * MB
    fake.process(11, anon=50 * MB, parent=10, layout=99)
    assert tree.read(2.0).used_bytes == 250 * MB


def test_without_children_files_all_of_proc_is_scanned(fake):
    fake.process(10, anon=200 * MB, with_children_file=False)
    fake.process(11, anon=MB, parent=10, layout=9, with_children_file=False)
    fake.process(12, anon=MB, parent=11, layout=9, with_children_file=False)
    fake.process(20, anon=MB, parent=1, with_children_file=False)
    tree = reader(fake)
    tree.read(0.0)
    assert tree.root_pids() == {10, 11, 12}


def test_a_worker_whose_parent_died_stays_in_the_tree(fake):
    fake.process(10, anon=200 * MB, children=(11,))
    fake.process(11, anon=MB, parent=10, children=(12,), layout=9)
    fake.process(12, anon=70 * MB, parent=11, layout=8)
    tree = reader(fake)
    tree.read(0.0)
    fake.process(10, anon=200 * MB)
    fake.zombie(11)
    fake.process(12, anon=70 * MB, layout=8)
    memory = tree.read(2.0)
    assert 12 in tree.root_pids()
    assert (memory.processes, memory.used_bytes) == (2, 270 * MB)


def test_the_tree_is_walked_only_when_something_was_forked(fake):
    fake.process(10, anon=MB)
    tree = reader(fake)
    tree.read(0.0)
    fake.write("10/task/10/children", "11 ")  # not told by loadavg: nobody looks
    fake.write("11/statm", "1 1 0 1 0 1 0\n")
    tree.read(2.0)
    assert tree.root_pids() == {10}
    fake.process(11, anon=MB, parent=10)
    tree.read(4.0)
    assert tree.root_pids() == {10, 11}


def test_without_a_usable_loadavg_the_tree_is_walked_each_time(fake):
    fake.process(10, anon=MB)
    fake.write("loadavg", "none\n")
    tree = reader(fake)
    tree.read(0.0)
    fake.process(11, anon=MB, parent=10)
    fake.process(10, anon=MB, children=(11,))
    fake.write("loadavg", "none\n")
    tree.read(2.0)
    assert tree.root_pids() == {10, 11}


def test_swap_of_forks_is_counted_once(fake):
    fake.process(10, anon=MB, swap=8 * MB, children=(11, 12))
    fake.process(11, anon=MB, swap=9 * MB, parent=10)
    fake.process(12, anon=MB, swap=5 * MB, parent=10, layout=3)
    assert reader(fake).read(0.0).swap_bytes == 14 * MB


def test_measured_forks_make_the_sum_of_pss_and_changes_are_followed(fake):
    fake.process(10, anon=200 * MB, children=(11,))
    fake.process(11, anon=200 * MB, parent=10)
    fake.rollup(10, rss=200 * MB, pss=150 * MB, uss=100 * MB)
    fake.rollup(11, rss=200 * MB, pss=150 * MB, uss=100 * MB)  # half of it was written to since the fork
    tree = reader(fake)
    memory = tree.read(0.0)
    assert (memory.accounting, memory.used_bytes) == ("pss", 300 * MB)
    fake.process(11, anon=220 * MB, parent=10)
    assert tree.read(1.0).used_bytes == 320 * MB
    cost = tree.read(1.0).pss_cost
    assert (cost.reads, cost.passes) == (2, 1)


def test_a_process_too_large_is_never_stalled(fake):
    fake.process(10, anon=3000 * MB, children=(11,))
    fake.process(11, anon=100 * MB, parent=10, layout=3)
    fake.rollup(10, rss=3000 * MB, pss=1 * MB, uss=1 * MB)
    fake.rollup(11, rss=100 * MB, pss=100 * MB, uss=90 * MB)
    tree = reader(fake)
    memory = tree.read(0.0)
    assert (memory.pss_cost.refused, memory.pss_cost.reads) == (1, 1)
    assert (memory.accounting, memory.used_bytes) == ("rss+uss", 3100 * MB)


def test_measuring_stops_when_its_share_of_time_is_spent(fake):
    fake.process(10, anon=MB, children=(11,))
    fake.process(11, anon=MB, parent=10)
    for pid in (10, 11):
        fake.rollup(pid, rss=MB, pss=MB, uss=MB)
    tree = reader(fake, pss_budget=PssBudget(cpu_share=1e-9, every_seconds=0.0))
    cost = [tree.read(float(second)).pss_cost for second in range(20)][-1]
    assert cost.passes == 1
    assert cost.cpu_seconds > 0


def test_nothing_is_measured_when_the_cgroup_knows(fake):
    fake.process(10, anon=MB, children=(11,))
    fake.process(11, anon=MB, parent=10)
    fake.rollup(11, rss=MB, pss=MB, uss=MB)
    tree = reader(fake, calibrate=lambda: False)
    memory = tree.read(0.0)
    assert (memory.accounting, memory.pss_cost.reads) == ("anon+shmem", 0)


def test_an_unreadable_rollup_is_counted_and_does_no_harm(fake):
    fake.process(10, anon=MB, children=(11,))
    fake.process(11, anon=MB, parent=10)
    fake.rollup(10, rss=MB, pss=MB, uss=MB)
    fake.write("11/smaps_rollup", "nonsense")
    tree = reader(fake)
    memory = tree.read(0.0)
    assert (memory.accounting, memory.pss_cost.refused) == ("anon+shmem", 1)


# --- real processes


def test_a_reaped_process_is_gone_whoever_has_its_pid_now():
    with running(HOLD) as program:
        tree = TreeReader(program.pid)
        assert tree.read(0.0).rss_bytes > MB
        program.kill()
        with pytest.raises(TargetGoneError):
            tree.read(1.0)
        tree.close()


def test_an_unreaped_process_is_gone_too():
    child = subprocess.Popen(["sleep", "0"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(TargetGoneError):
        TreeReader(child.pid).read(0.0)
    child.wait()


def test_rlimits_are_read_and_what_they_bound_is_near_the_kernels_own_count():
    with running("import resource\nresource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))\n" + HOLD) as program:
        tree = TreeReader(program.pid)
        memory = tree.read(0.0)
        tree.close()
        status = parse_status(Path(f"/proc/{program.pid}/status").read_bytes())
    assert (memory.rlimit_as_bytes, memory.rlimit_data_bytes) == (None, 1 << 30)
    assert memory.data_bytes == status.data_bytes
    assert memory.virtual_bytes == status.size_bytes


FORKS = """
x = bytearray(os.urandom(1)) * (200 * MB)
for i in range(16):
    if os.fork() == 0:
        own = bytearray(b'x') * (i % 4 * MB)
        say('worker')
        sys.stdin.readline()
        touch = {touch} * MB
        x[:touch] = b'y' * touch
        say('touched')
        time.sleep(600)
say('ready')
time.sleep(600)
"""


def test_forked_workers_without_any_measurement():
    with running(FORKS.format(touch=0), lines=17) as program:
        tree = TreeReader(program.pid, calibrate=lambda: False)
        memory = tree.read(0.0)
        truth = pss_sum(tree.root_pids())
        tree.close()
    assert memory.processes == 17
    assert memory.used_bytes == pytest.approx(truth, rel=0.12)  # their own 24 MB came before they were first seen


def test_forked_workers_that_write_to_what_they_inherited():
    with running(FORKS.format(touch=20), lines=17) as program:
        for _ in range(16):
            program.step()
        tree = TreeReader(program.pid)
        memory = [tree.read(float(second)) for second in range(6)][-1]
        truth = pss_sum(tree.root_pids())
        tree.close()
    assert truth > 500 * MB
    assert memory.used_bytes == pytest.approx(truth, rel=0.02)
    assert memory.pss_cost.passes == 1
    assert 0 < memory.pss_cost.largest_stall_seconds < 0.2


def test_workers_come_and_go():
    code = """
x = bytearray(b'x') * (100 * MB)
for count in (4, 0, 8):
    pids = []
    for _ in range(count):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            y = bytearray(b'y') * (10 * MB)
            os.write(w, b'.')
            time.sleep(600)
        os.read(r, 1)
        pids.append(pid)
    say('round')
    sys.stdin.readline()
    for pid in pids:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
"""
    with running(code) as program:
        tree = TreeReader(program.pid)
        seen = []
        for step in range(3):
            for second in range(3):
                memory = tree.read(step * 20.0 + second)
            assert memory.used_bytes == pytest.approx(pss_sum(tree.root_pids()), rel=0.08)
            seen.append((memory.processes, memory.accounting))
            if step < 2:
                program.step()
        tree.close()
    assert seen == [(5, "pss"), (1, "rss"), (9, "pss")]


def test_spawned_workers_without_any_measurement():
    code = """
import subprocess
own = 'y = bytearray(b"y") * (40 << 20); import os, time; os.write(1, b"worker" + bytes([10])); time.sleep(600)'
x = bytearray(b'x') * (50 * MB)
for _ in range(3):
    subprocess.Popen([sys.executable, '-c', own])
say('ready')
time.sleep(600)
"""
    with running(code, lines=4) as program:
        tree = TreeReader(program.pid, calibrate=lambda: False)
        used = tree.read(0.0).used_bytes
        truth = pss_sum(tree.root_pids())
        tree.close()
    assert used == pytest.approx(truth, rel=0.08)


def test_a_tick_of_one_process_costs_little():
    tree = TreeReader(os.getpid())
    tree.read(0.0)
    best = math.inf
    for _ in range(20):
        began = time.thread_time()
        for tick in range(20):
            tree.read(0.5 + tick / 100)
        best = min(best, (time.thread_time() - began) / 20)
    tree.close()
    assert best < 60e-6, f"{best * 1e6:.0f} us"


def test_no_descriptor_is_left():
    def held() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = held()
    with running(HOLD) as program:
        inside = held()
        tree = TreeReader(program.pid)
        tree.read(0.0)
        tree.close()
        assert held() == inside
    assert held() == before
