from __future__ import annotations

import gc
import math
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from memwatch.errors import TargetGoneError
from memwatch.sources.kernel_files import parse_field
from memwatch.sources.memory.process_tree import TreeReader
from memwatch.sources.memory.shared_page_sampling import PageSamplingBudget, SampledProcess
from support.fakeproc import FakeProc
from support.forest import forest, read_pss, whole_tree
from support.trainers import running

MB = 1 << 20
HOLD = "say('ready'); sys.stdin.read()\n"
GROW_THEN_FORK = """
say('ready')
sys.stdin.readline()
kept = b'x' * (40 * MB)
say('grown')
while sys.stdin.readline():
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    say('forked')
"""


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def reader(fake: FakeProc, pid: int = 10, **options) -> TreeReader:
    return TreeReader(pid, root=str(fake), **options)


NEVER = PageSamplingBudget(max_cpu_share=0.0)


# --- a fake tree


def test_one_process_is_its_rss(fake):
    fake.process(10, anon=90 * MB, shared=10 * MB, shmem=4 * MB, swap=2 * MB, comm="foo) Z ")
    memory = reader(fake).read_memory(0.0)
    assert (memory.processes, memory.accounting) == (1, "rss")
    assert memory.rss_bytes == memory.used_bytes == 100 * MB
    assert (memory.anon_bytes, memory.file_bytes, memory.shmem_bytes) == (90 * MB, 6 * MB, 4 * MB)
    assert memory.swap_bytes == 2 * MB
    assert memory.virtual_bytes == 100 * MB
    assert memory.data_bytes == 100 * MB - 8192


def test_a_zombie_is_gone(fake):
    fake.process(10, anon=MB)
    tree = reader(fake)
    tree.read_memory(0.0)
    fake.zombie(10)
    with pytest.raises(TargetGoneError):
        tree.read_memory(1.0)


def test_no_such_process(fake):
    with pytest.raises(TargetGoneError):
        reader(fake, 4711)


def test_grandchildren_are_found_and_forks_are_not_counted_twice(fake):
    fake.process(10, anon=200 * MB, children=(11, 12))
    fake.process(11, anon=200 * MB, parent=10, children=(13,))
    fake.process(12, anon=30 * MB, parent=10, layout=99)
    fake.process(13, anon=201 * MB, parent=11)
    tree = reader(fake, sampling_budget=NEVER)
    memory = tree.read_memory(0.0)
    assert tree.tree_pids() == {10, 11, 12, 13}
    assert memory.accounting == "anon+shmem"
    assert memory.used_bytes == (200 + 30 + 1) * MB


def test_a_fork_that_starts_another_program_counts_whole(fake):
    fake.process(10, anon=200 * MB, children=(11,))
    fake.process(11, anon=200 * MB, parent=10)
    tree = reader(fake, sampling_budget=NEVER)
    assert tree.read_memory(0.0).used_bytes == 200 * MB
    fake.process(11, anon=50 * MB, parent=10, layout=99)
    assert tree.read_memory(2.0).used_bytes == 250 * MB


def test_without_children_files_all_of_proc_is_scanned(fake):
    fake.process(10, anon=200 * MB, with_children_file=False)
    fake.process(11, anon=MB, parent=10, layout=9, with_children_file=False)
    fake.process(12, anon=MB, parent=11, layout=9, with_children_file=False)
    fake.process(20, anon=MB, parent=1, with_children_file=False)
    tree = reader(fake)
    tree.read_memory(0.0)
    assert tree.tree_pids() == {10, 11, 12}


def test_a_worker_whose_parent_died_stays_in_the_tree(fake):
    fake.process(10, anon=200 * MB, children=(11,))
    fake.process(11, anon=MB, parent=10, children=(12,), layout=9)
    fake.process(12, anon=70 * MB, parent=11, layout=8)
    tree = reader(fake)
    tree.read_memory(0.0)
    fake.process(10, anon=200 * MB)
    fake.zombie(11)
    fake.process(12, anon=70 * MB, layout=8)
    memory = tree.read_memory(2.0)
    assert 12 in tree.tree_pids()
    assert (memory.processes, memory.used_bytes) == (2, 270 * MB)


def test_the_tree_is_walked_only_when_something_was_forked(fake):
    fake.process(10, anon=MB)
    tree = reader(fake)
    tree.read_memory(0.0)
    fake.write("10/task/10/children", "11 ")  # not told by loadavg: nobody looks
    fake.write("11/statm", "1 1 0 1 0 1 0\n")
    tree.read_memory(2.0)
    assert tree.tree_pids() == {10}
    new = fake.forked + 1
    fake.process(new, anon=MB, parent=10)
    tree.read_memory(4.0)
    assert tree.tree_pids() == {10, new}
    tree.read_memory(70.0)
    assert tree.tree_pids() == {10, 11, new}


def test_a_thread_of_a_child_is_no_process(fake):
    fake.process(10, anon=MB, children=(11,))
    fake.process(11, anon=MB, parent=10)
    tree = reader(fake)
    tree.read_memory(0.0)
    new = fake.forked + 1
    fake.process(new, anon=MB, parent=10, group=11)
    tree.read_memory(1.0)
    assert tree.tree_pids() == {10, 11}


def test_a_process_that_is_just_being_forked_is_found_a_look_later(fake):
    fake.process(10, anon=MB)
    tree = reader(fake)
    tree.read_memory(0.0)
    fake.touch_last_pid()
    new = fake.forked
    tree.read_memory(1.0)
    fake.process(new, anon=MB, parent=10)
    fake.write("loadavg", f"0.06 0.02 0.00 1/110 {new}\n")
    tree.read_memory(2.0)
    assert tree.tree_pids() == {10, new}


def test_without_a_usable_loadavg_the_tree_is_walked_each_time(fake):
    fake.process(10, anon=MB)
    fake.write("loadavg", "none\n")
    tree = reader(fake)
    tree.read_memory(0.0)
    fake.process(11, anon=MB, parent=10)
    fake.process(10, anon=MB, children=(11,))
    fake.write("loadavg", "none\n")
    tree.read_memory(2.0)
    assert tree.tree_pids() == {10, 11}


def test_swap_of_forks_is_counted_once(fake):
    fake.process(10, anon=MB, swap=8 * MB, children=(11, 12))
    fake.process(11, anon=MB, swap=9 * MB, parent=10)
    fake.process(12, anon=MB, swap=5 * MB, parent=10, layout=3)
    assert reader(fake).read_memory(0.0).swap_bytes == 14 * MB


OWN, SHARED, FILE_OWN, FILE_SHARED, AWAY = b"\x81", b"\x80", b"\xa1", b"\xa0", b"\0"


def test_pages_of_a_fork_that_the_parent_does_not_hold_are_its_own_and_changes_are_followed(fake):
    fake.process(10, anon=200 * MB, children=(11,))
    fake.process(11, anon=200 * MB + 4096, parent=10)
    quarters = 64 * 50  # pages
    fake.pages(10, (4096, SHARED * quarters + AWAY * quarters + OWN * quarters + OWN * quarters, ""))
    fake.pages(11, (4096, SHARED * quarters + SHARED * quarters + OWN * quarters + AWAY * quarters, ""))
    tree = reader(fake)
    memory = tree.read_memory(0.0)
    assert memory.accounting == "pages"
    assert memory.used_bytes == pytest.approx((200 + 2 / 3 * 200) * MB, abs=2.5 * memory.error_bytes)
    assert memory.cow_bytes == pytest.approx(memory.used_bytes - 200 * MB, abs=8192)
    fake.process(11, anon=220 * MB + 4096, parent=10)
    assert tree.read_memory(0.1).used_bytes == memory.used_bytes + 20 * MB
    assert (memory.survey_cost.visits, memory.survey_cost.refused) == (1, 0)


def test_of_several_forks_the_eldest_has_what_the_parent_gave_back(fake):
    fake.process(10, anon=0, shared=MB, children=(11, 12))
    for pid in (11, 12):
        fake.process(pid, anon=100 * MB, parent=10)
        fake.pages(pid, (4096, SHARED * 6400 + AWAY * 6400, ""))
    fake.pages(10, (4096, AWAY * 12800, ""))
    assert reader(fake).read_memory(0.0).used_bytes == 101 * MB


def test_a_segment_is_counted_once_wherever_it_is_mapped(fake):
    fake.process(10, anon=10 * MB, children=(11, 12))
    for pid, first in ((11, 4096), (12, 1 << 20)):
        fake.process(pid, anon=10 * MB, shared=64 * MB, parent=10, layout=pid)
        fake.pages(pid, (first, FILE_SHARED * 12800 + FILE_OWN * 3200, "4711"))
    fake.pages(10)
    memory = reader(fake).read_memory(0.0)
    assert memory.used_bytes == pytest.approx((3 * 10 + 64 + 64 / 5) * MB, rel=0.05)
    assert memory.anon_bytes == 30 * MB


def test_visits_stop_when_their_share_of_time_is_spent(fake):
    fake.process(10, anon=MB, children=tuple(range(11, 31)))
    for pid in range(11, 31):
        fake.process(pid, anon=MB + 4096, parent=10)
        fake.pages(pid, (4096, SHARED * 256, ""))
    tree = reader(fake, sampling_budget=PageSamplingBudget(min_cpu_share=1e-6, cpu_share_per_gib=0.0))
    costs = [tree.read_memory(float(second)).survey_cost for second in range(20)]
    assert [cost.visits for cost in costs] == [1] * 20
    assert costs[0].cpu_seconds > 0


@pytest.mark.parametrize("broken", ["maps", "pagemap"])
def test_a_process_that_may_not_be_visited_is_counted_with_the_reason_and_does_no_harm(fake, broken):
    fake.process(10, anon=MB, children=(11,))
    fake.process(11, anon=MB + 4096, parent=10)
    fake.pages(11, (4096, SHARED * 256, ""))
    (fake.root / "11" / broken).unlink()
    (fake.root / "11" / broken).mkdir()
    memory = reader(fake).read_memory(0.0)
    assert (memory.accounting, memory.survey_cost.refused) == ("anon+shmem", 1)
    assert memory.reason.startswith(f"{fake}/11/{broken}: ")
    assert (memory.error_bytes, memory.cow_bytes) == (None, None)


def test_a_kernel_without_pagemap_says_so(fake):
    fake.process(10, anon=MB, children=(11,))
    fake.process(11, anon=MB + 4096, parent=10)
    assert "CONFIG_PROC_PAGE_MONITOR" in reader(fake).read_memory(0.0).reason


def test_what_shares_its_parents_memory_until_it_starts_another_program_has_none_of_its_own(fake):
    """As after vfork: the kernel shows the pages of both as those of one."""
    fake.process(10, anon=200 * MB)
    fake.pages(10, (4096, OWN * 12800, ""))
    fake.write("loadavg", "none\n")
    tree = reader(fake)
    tree.read_memory(0.0)
    fake.process(10, anon=200 * MB, children=(11,))
    fake.process(11, anon=200 * MB, parent=10)
    fake.pages(11, (4096, OWN * 12800, ""))
    assert [tree.read_memory(t).used_bytes for t in (1.0, 1.1, 2.0, 4.0)] == [200 * MB] * 4
    fake.process(11, anon=190 * MB, parent=10)  # no vfork: it has a memory of its own, and has copied all
    tree.read_memory(5.0)
    assert tree.read_memory(6.0).used_bytes == 390 * MB


# --- real processes


def test_parents_are_remembered_of_those_that_ended_lately():
    ends = "child = subprocess.Popen(['sleep', '60'])\nsay('ready')\nsys.stdin.readline()\nchild.kill()\nchild.wait()\n"
    with running("import subprocess\n" + ends + "say('reaped')\nsys.stdin.read()\n") as program:
        tree = TreeReader(program.pid)
        tree.read_memory(0.0)
        [child] = tree.tree_pids() - {program.pid}
        program.step()
        tree.read_memory(60.0)
        assert tree.tree_pids() == {program.pid}
        assert tree.parent_pids() == {child: program.pid}
        tree.close()


def test_a_reaped_process_is_gone_whoever_has_its_pid_now():
    with running(HOLD) as program:
        tree = TreeReader(program.pid)
        assert tree.read_memory(0.0).rss_bytes > MB
        program.kill()
        with pytest.raises(TargetGoneError):
            tree.read_memory(1.0)
        tree.close()


def test_an_unreaped_process_is_gone_too():
    child = subprocess.Popen(["sleep", "0"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(TargetGoneError):
        TreeReader(child.pid).read_memory(0.0)
    child.wait()


def test_rlimits_are_read_and_what_they_bound_is_near_the_kernels_own_count():
    with running("import resource\nresource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))\n" + HOLD) as program:
        tree = TreeReader(program.pid)
        memory = tree.read_memory(0.0)
        tree.close()
        status = Path(f"/proc/{program.pid}/status").read_bytes()
    assert (memory.rlimit_as_bytes, memory.rlimit_data_bytes) == (None, 1 << 30)
    assert memory.data_bytes == parse_field(status, b"VmData:", b" kB\n", 1024)
    assert memory.virtual_bytes == parse_field(status, b"VmSize:", b" kB\n", 1024)


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
        tree = TreeReader(program.pid, sampling_budget=NEVER)
        memory = tree.read_memory(0.0)
        truth = read_pss(whole_tree(program.pid))[0]
        tree.close()
    assert memory.processes == 17
    assert memory.used_bytes == pytest.approx(truth, rel=0.12)  # their own 24 MB came before they were first seen


def test_the_largest_children_are_named_with_what_each_holds_itself():
    code = """
kept = b'x' * (60 * MB)
for megabytes in (5, 30):
    if os.fork() == 0:
        own = b'y' * (megabytes * MB)
        say('ready')
        time.sleep(600)
time.sleep(600)
"""
    with running(code, lines=2) as program:
        tree = TreeReader(program.pid)
        for _ in range(3):
            memory = tree.read_memory(time.monotonic())
        children = [pid for pid in whole_tree(program.pid) if pid != program.pid]
        name = Path(f"/proc/{program.pid}/comm").read_text().strip()
        tree.close()
    assert {one.pid for one in memory.largest} == set(children)
    assert {one.name for one in memory.largest} == {name}
    assert [one.bytes / MB for one in memory.largest] == [pytest.approx(31, abs=3), pytest.approx(6, abs=3)]


def test_forked_workers_that_write_to_what_they_inherited():
    with running(FORKS.format(touch=20), lines=17) as program:
        for _ in range(16):
            program.step()
        tree = TreeReader(program.pid)
        memory = [tree.read_memory(float(second)) for second in range(6)][-1]
        truth = read_pss(whole_tree(program.pid))[0]
        tree.close()
    assert truth > 500 * MB
    assert memory.used_bytes == pytest.approx(truth, rel=0.03)
    assert memory.cow_bytes == pytest.approx(320 * MB, rel=0.1)


def test_workers_come_and_go():
    # PSS leaves 5 MB of the interpreter out where another Python runs on the machine: this tree is large beside that
    code = """
x = bytearray(b'x') * (200 * MB)
for count in (4, 0, 8):
    pids = []
    for _ in range(count):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            y = bytearray(b'y') * (20 * MB)
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
                memory = tree.read_memory(step * 20.0 + second)
            assert memory.used_bytes == pytest.approx(read_pss(whole_tree(program.pid))[0], rel=0.08)
            seen.append((memory.processes, memory.accounting))
            if step < 2:
                program.step()
        tree.close()
    assert seen == [(5, "pages"), (1, "rss"), (9, "pages")]


def test_nothing_is_kept_of_workers_that_have_ended():
    with forest() as trainer:
        trainer.do("x = heap(50)")
        tree = TreeReader(trainer.pid)
        for second in range(0, 600, 10):  # a turn of those that were visited is rarely due, where others always come
            trainer.do("fork(1)")
            tree.read_memory(float(second))
            tree.read_memory(second + 1.0)
            trainer.do("end(1)")
            assert tree.read_memory(second + 2.0).processes == 1
        members = [one for one in gc.get_objects() if isinstance(one, SampledProcess) and one.has_exited]
        tree.close()
    assert not members


def test_what_a_lasting_worker_copies_is_seen_though_others_come_and_go_all_the_time():
    with forest() as trainer:
        trainer.do("x = heap(100); fork(1)")
        tree = TreeReader(trainer.pid)
        for second in range(0, 900, 5):
            if second == 600:
                trainer.do("tell('touch(x, range(12800))', 0, 1)")
            trainer.do("fork(1)")
            tree.read_memory(float(second))
            trainer.do("end(1)")
            memory = tree.read_memory(second + 1.0)
            if second < 600:
                assert (memory.cow_bytes or 0) < 5 * MB
        tree.close()
    assert memory.cow_bytes == pytest.approx(50 * MB, rel=0.15)


def test_a_worker_that_nobody_reaps_is_not_visited():
    with forest() as trainer:
        trainer.do("x = heap(50); fork(3)")
        tree = TreeReader(trainer.pid)
        for look in range(5):
            tree.read_memory(float(look))
        visits = tree.read_memory(5.0).survey_cost.visits
        trainer.do("os.kill(workers[1][0], 9); time.sleep(0.3)")
        for look in range(1, 20):
            memory = tree.read_memory(5.0 + 60.0 * look)
        assert memory.processes == 3
        assert memory.survey_cost.visits > visits
        tree.close()


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
        tree = TreeReader(program.pid, sampling_budget=NEVER)
        used = tree.read_memory(0.0).used_bytes
        truth = read_pss(whole_tree(program.pid))[0]
        tree.close()
    assert used == pytest.approx(truth, rel=0.08)


def test_a_look_at_one_process_costs_little():
    tree = TreeReader(os.getpid())
    tree.read_memory(0.0)
    best = math.inf
    for _ in range(20):
        began = time.thread_time()
        for tick in range(20):
            tree.read_memory(0.5 + tick / 100)
        best = min(best, (time.thread_time() - began) / 20)
    tree.close()
    assert best < 20e-6, f"{best * 1e6:.0f} us"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_sees_the_tree_but_not_its_pages():
    with running(FORKS.format(touch=0), lines=17) as program:
        told_by, tell = os.pipe()
        if (child := os.fork()) == 0:
            try:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
                memory = TreeReader(program.pid).read_memory(0.0)
                os.write(tell, f"{memory.accounting} {memory.processes} {memory.reason}".encode())
            finally:
                os._exit(0)
        os.close(tell)
        os.waitpid(child, 0)
        told = os.read(told_by, 4096).decode()
        os.close(told_by)
    assert told.startswith("anon+shmem 17 /proc/")
    assert "permission denied" in told


@contextmanager
def descriptors(free: int) -> Iterator[None]:
    """So many more may be opened by this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    unused = (number for number in range(before[0]) if not os.path.lexists(f"/proc/self/fd/{number}"))
    most = next(islice(unused, free, None))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_without_a_free_descriptor_it_reads_on_and_keeps_the_details_that_it_has():
    limits = "import resource\nresource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))\n"
    with running(limits + GROW_THEN_FORK) as program:
        tree = TreeReader(program.pid)
        before = tree.read_memory(0.0)
        assert before.stale == ""
        with descriptors(free=0):
            program.step()
            told = [tree.read_memory(float(t)) for t in range(1, 200)]
            program.step()
            told += [tree.read_memory(float(t)) for t in range(200, 300)]
        assert all(one.used_bytes > before.used_bytes + 30 * MB for one in told), "memory is read at each look"
        assert {one.rlimit_data_bytes for one in told} == {1 << 30} and {one.processes for one in told} == {1}
        stale = [one.stale for one in told]
        begun = stale.index(next(filter(None, stale)))
        assert begun < 20 and all("Too many open files" in one for one in stale[begun:]), "told from then on"
        assert len(set(stale[begun + 1 :])) == 1, "with one reason"
        after = [tree.read_memory(300.0 + t) for t in range(3)][-1]
        assert (after.stale, after.processes) == ("", 2), "what was missed is found"
        tree.close()


def test_processes_for_which_no_descriptor_is_left_are_told():
    with running(GROW_THEN_FORK) as program:
        tree = TreeReader(program.pid)
        tree.read_memory(0.0)
        assert [program.step() for _ in range(5)][1:] == [["forked"]] * 4
        with descriptors(free=2):
            few = tree.read_memory(100.0)
            assert 1 < few.processes < 5 and "Too many open files" in few.stale
        many = tree.read_memory(200.0)
        assert (many.processes, many.stale) == (5, "")
        tree.close()


def test_no_descriptor_is_left():
    def held() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = held()
    with running(HOLD) as program:
        inside = held()
        tree = TreeReader(program.pid)
        tree.read_memory(0.0)
        tree.close()
        assert held() == inside
    assert held() == before
