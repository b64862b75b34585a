from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from memwatch.core.measurements import Neighbour, Neighbours
from memwatch.sources.memory.cgroup import CgroupReader
from memwatch.sources.memory.cgroup_neighbours import NeighbourReader, process_name
from memwatch.sources.memory.process_tree import TreeReader
from support.fakecgroup import MB, Hierarchy

TRAINER = 10


@pytest.fixture(params=[1, 2])
def both(tmp_path: Path, request) -> Hierarchy:
    return Hierarchy(tmp_path, request.param)


class Watch:
    """A tree, its cgroup and the neighbours, joined as the composition joins them."""

    def __init__(self, world: Hierarchy) -> None:
        root = str(world.proc)
        self.tree = TreeReader(TRAINER, root)
        self.neighbours = NeighbourReader(
            TRAINER, self.tree.tree_pids, root, adopt=self.tree.adopt, adopted_pids=self.tree.adopted_pids
        )
        self.cgroup = CgroupReader(TRAINER, root, self.neighbours)

    def look(self, t: float) -> Neighbours | None:
        """Take a sample; what is reported of the neighbours, None if nothing is."""
        self.tree.read_memory(t)
        self.owned = self.cgroup.read_memory(t).owned
        return next((event.neighbours for event in self.neighbours.poll(t)), None)


def test_others_are_counted_and_the_largest_are_named(both):
    both.group("/job", limit=900 * MB, procs=[TRAINER, 20, 21])
    both.join("/job")
    both.proc.process(20, anon=90 * MB, shared=10 * MB, argv=["/usr/bin/python3", "-u", "/srv/serve.py", "--port", "1"])
    both.proc.process(21, anon=2 * MB, comm="bash")
    watch = Watch(both)
    largest = (Neighbour(20, "python3 serve.py", 90 * MB), Neighbour(21, "bash", 2 * MB))
    assert watch.look(0.0) == Neighbours("/job", 92 * MB, 2, 0, 0, largest)
    assert not watch.owned
    assert watch.look(1.0) is None, "not at each sample"
    both.proc.process(20, anon=99 * MB)
    assert watch.look(2.0).others_bytes == 101 * MB
    both.group("/job", limit=900 * MB, procs=[TRAINER])
    assert watch.look(4.0) == Neighbours("/job", 0, 0, 0, 0), "they are gone"
    assert watch.look(30.0) is None, "nothing is reported of a trainer that is alone"


def test_a_shell_beside_the_trainer_is_not_worth_a_word(both):
    both.group("/job", limit=900 * MB, procs=[TRAINER, 20])
    both.join("/job")
    both.proc.process(20, anon=4 * MB)
    watch = Watch(both)
    assert watch.look(0.0) is None
    assert watch.owned


def test_others_that_come_are_looked_for_when_as_much_was_taken(both):
    both.group("/job", limit=900 * MB, usage=100 * MB, procs=[TRAINER])
    both.join("/job")
    watch = Watch(both)
    assert watch.look(0.0) is None
    both.group("/job", limit=900 * MB, usage=130 * MB, procs=[TRAINER, 20])
    both.proc.process(20, anon=90 * MB)
    assert watch.look(3.0) is None, "no more than a shell may have"
    both.group("/job", limit=900 * MB, usage=140 * MB, procs=[TRAINER, 20])
    assert watch.look(4.0).others_bytes == 90 * MB
    watch.look(1000.0)
    both.group("/job", limit=900 * MB, usage=300 * MB, procs=[TRAINER, 20])
    assert watch.look(1003.0) is None, "once known they are followed by the age of the watch: a week has few events"
    assert watch.look(1005.0) is not None


def test_memwatch_itself_and_its_children_are_nobody(both):
    both.group("/job", limit=900 * MB, procs=[TRAINER, os.getpid(), 20])
    both.join("/job")
    both.proc.process(os.getpid(), anon=60 * MB)
    both.proc.process(20, anon=90 * MB, parent=os.getpid())  # an examination
    watch = Watch(both)
    assert watch.look(0.0) is None
    assert watch.owned


def test_the_cgroup_whose_limit_is_the_nearest_is_searched(both):
    both.group("/pod", usage=800 * MB, limit=900 * MB, procs=[])
    both.group("/pod/job", usage=50 * MB, limit=500 * MB, procs=[TRAINER])
    both.group("/pod/side", usage=700 * MB, procs=[20])
    both.join("/pod/job")
    both.proc.process(20, anon=700 * MB)
    watch = Watch(both)
    assert watch.look(0.0) == Neighbours("/pod", 700 * MB, 1, 0, 0, (Neighbour(20, "python", 700 * MB),))
    assert watch.owned, "its own cgroup is its own all the same"
    both.group("/pod/job", usage=450 * MB, limit=500 * MB, procs=[TRAINER])
    assert watch.look(2.0) == Neighbours("/pod/job", 0, 0, 0, 0)


def test_a_worker_that_is_no_child_joins_the_tree_with_all_below_it(both):
    both.group("/job", limit=900 * MB, procs=[TRAINER, 20, 21])
    both.join("/job")
    both.proc.process(TRAINER, anon=10 * MB, start=100, session=9)
    both.proc.process(20, anon=50 * MB, start=200, session=19, layout=8, children=(21,))
    both.proc.process(21, anon=30 * MB, start=201, session=19, layout=9, parent=20)
    watch = Watch(both)
    seen = watch.look(0.0)
    assert (seen.members, seen.members_bytes, seen.others) == (1, 50 * MB, 1), "its child is found by the tree, next"
    assert [(each.pid, each.member) for each in seen.largest] == [(20, "cgroup"), (21, "")]
    tree = watch.tree.read_memory(1.0)
    assert (tree.processes, tree.used_bytes, tree.member_processes, tree.member_bytes) == (3, 90 * MB, 2, 80 * MB)
    seen = watch.look(2.0)
    assert (seen.members, seen.members_bytes, seen.others_bytes) == (2, 80 * MB, 0)
    assert [(each.pid, each.member) for each in seen.largest] == [(20, "cgroup"), (21, "member's child")]
    assert watch.owned


def test_without_a_limit_members_are_found_and_nothing_is_reported(both):
    both.group("/job", procs=[TRAINER, 20])
    both.join("/job")
    both.proc.process(TRAINER, anon=10 * MB, start=100, session=9)
    both.proc.process(20, anon=50 * MB, start=200, session=19, layout=8)
    watch = Watch(both)
    assert watch.look(0.0) is None
    assert watch.tree.read_memory(1.0).member_bytes == 50 * MB


def test_a_crowd_in_the_root_is_not_read(both, monkeypatch):
    """As before there was anybody to find: the search ends with the first who is too large."""
    crowd = range(1000, 2000)
    both.group("/", procs=[TRAINER, *crowd])
    both.join("/")
    for pid in crowd[:3]:
        both.proc.process(pid, anon=50 * MB, start=10_000)
    watch, read = Watch(both), []
    monkeypatch.setattr(NeighbourReader, "_read", lambda self, pid, inside, old=NeighbourReader._read: (
        read.append(pid), old(self, pid, inside))[1])  # fmt: skip
    assert [watch.look(t) for t in (0.0, 50.0, 79.0)] == [None] * 3
    assert read == [1000]


def test_a_crowd_below_a_limit_is_read_the_less_often_the_larger_it_is(both):
    crowd = range(1000, 2000)
    both.group("/job", limit=10**12, procs=[TRAINER, *crowd])
    both.join("/job")
    for pid in crowd:
        both.proc.process(pid, anon=MB)
    watch = Watch(both)
    times = [t for t in range(200) if watch.look(float(t)) is not None]
    assert all(55 <= later - t <= 70 for t, later in pairwise(times)), times


def test_neighbours_are_followed_in_proportion_to_the_time_watched(both):
    both.group("/job", limit=900 * MB, procs=[TRAINER, 20])
    both.join("/job")
    both.proc.process(20, anon=90 * MB)
    watch = Watch(both)
    times = [t for t in range(0, 4000, 2) if watch.look(float(t)) is not None]
    gaps = [(t, later - t) for t, later in pairwise(times)]
    assert all(gap == 2 for t, gap in gaps if t < 400)
    assert all(t / 200 <= gap <= t / 200 + 2 for t, gap in gaps if t >= 400)


@pytest.mark.parametrize(
    ("argv", "comm", "name"),
    [
        (["/opt/v/bin/python3.11", "-u", "/srv/train.py", "--lr", "1"], "python3", "python3.11 train.py"),
        (["python3", "-c", "import x"], "python3", "python3"),
        (["ray::Worker.step()"], "ray::Worker.ste", "ray::Worker.step()"),
        (["/usr/sbin/sshd", "-D"], "sshd", "sshd"),
        ([], "kworker\x1b[31m", "kworker"),
    ],
)
def test_a_process_is_named_as_its_user_knows_it(argv, comm, name):
    assert process_name(argv, comm) == name
