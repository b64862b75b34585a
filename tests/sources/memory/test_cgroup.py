from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memwatch.core.memory_accounting import usages
from memwatch.errors import SourceError, TargetGoneError
from memwatch.sources.memory import cgroup
from memwatch.sources.memory.cgroup import (
    CgroupReader,
    Membership,
    Mount,
    locate,
    parse_mountinfo,
    parse_proc_cgroup,
)
from memwatch.sources.memory.cgroup_neighbours import NeighbourReader
from memwatch.sources.memory.process_tree import TreeReader
from support.fakecgroup import MB, Hierarchy, oom_kills, stat
from support.fakeproc import FakeProc
from support.trainers import memory_cgroup, running

# --- parsers

NUMBER_PARSERS = [
    (cgroup.parse_reclaimable_cache, b"inactive_file 18446744073709551615\nactive_file 1\n"),
    (cgroup.parse_limit, b"max\n"),
    (cgroup.parse_usage, b"104857600\n"),
    (cgroup.parse_oom_kills, b"oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
]


def flat(value):
    if value is None:
        return []
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize(("parse", "real"), NUMBER_PARSERS)
def test_any_bytes_give_finite_numbers_or_a_named_error(parse, real):
    @given(st.binary() | st.lists(st.sampled_from([*real.split(), b"-1", b"nan", b"\n", b"max"])).map(b" ".join))
    @example(real)
    @example(b"")
    def check(raw):
        try:
            numbers = flat(parse(raw))
        except SourceError:
            return
        assert all(math.isfinite(number) and 0 <= number < 2**63 for number in numbers)

    check()


MOUNT_V1 = b"35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
MOUNT_V2 = b"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("parse", "real"), [(parse_proc_cgroup, b"4:memory:/a\n3:cpu:/b\n0::/c\n"), (parse_mountinfo, MOUNT_V1 + MOUNT_V2)]
)
def test_any_bytes_give_a_place_or_a_named_error(parse, real):
    pieces = [real[i : i + 3] for i in range(0, len(real), 3)] + [b"\\999", b"\\400", b"\xff", b"\n"]

    @given(st.binary() | st.lists(st.sampled_from(pieces)).map(b"".join))
    @example(real)
    def check(raw):
        try:
            parse(raw)
        except SourceError:
            pass

    check()


def test_the_memory_controller_of_a_hybrid_layout_is_v1():
    assert parse_proc_cgroup(b"5:cpu:/c\n4:hugetlb,memory:/a:b\n0::/u\n") == Membership(1, "/a:b")
    assert parse_proc_cgroup(b"3:name=systemd:/\n0::/user.slice/run\n") == Membership(2, "/user.slice/run")


def test_mounts_with_a_space_in_their_name():
    ext4 = b"1 2 0:1 / / rw - ext4 /dev/a rw\n"
    raw = ext4 + b"35 31 0:32 / /mnt/cg\\040memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
    assert parse_mountinfo(raw) == (Mount(1, "/", "/mnt/cg memory"),)


@pytest.mark.parametrize(
    ("path", "root", "below"),
    [
        ("/job", "/", "job"),  # on the host
        ("/", "/", ""),  # a container with a cgroup namespace of its own
        ("/docker/abc/job", "/docker/abc", "job"),  # one without: the mount shows only the container's part
        ("/../other", "/..", "other"),  # a neighbour, through a mount made outside the namespace
    ],
)
def test_paths_are_mapped_through_the_mounts_root(tmp_path, path, root, below):
    (tmp_path / below).mkdir(exist_ok=True)
    found = locate(Membership(2, path), [Mount(1, "/", "/"), Mount(2, root, str(tmp_path))])
    assert found is not None
    assert Path(found[0]) == tmp_path / below


@pytest.mark.parametrize(("path", "root"), [("/../other", "/"), ("/docker/abcd", "/docker/abc"), ("/", "/..")])
def test_a_cgroup_outside_the_mount_is_not_mistaken_for_one_inside(tmp_path, path, root):
    assert locate(Membership(2, path), [Mount(2, root, str(tmp_path))]) is None


# --- fake hierarchies


@pytest.fixture(params=[1, 2])
def both(tmp_path, request) -> Hierarchy:
    return Hierarchy(tmp_path, request.param)


@pytest.fixture
def v2(tmp_path) -> Hierarchy:
    return Hierarchy(tmp_path, 2)


@pytest.fixture
def v1(tmp_path) -> Hierarchy:
    return Hierarchy(tmp_path, 1)


def test_all_levels_up_to_the_root(both):
    both.group("/pod", usage=90 * MB, limit=200 * MB, cache=20 * MB)
    both.group("/pod/job", usage=80 * MB, limit=None, cache=10 * MB, procs=[10])
    both.join("/pod/job")
    memory = both.reader().read_memory(0.0)
    assert [(lv.path, lv.usage_bytes, lv.reclaimable_bytes, lv.limit_bytes) for lv in memory.levels] == [
        ("/pod/job", 80 * MB, 10 * MB, None),
        ("/pod", 90 * MB, 20 * MB, 200 * MB),
    ]
    assert (memory.version, memory.owned, memory.swap_bytes) == (both.version, True, 3 * MB)
    assert (memory.oom_kills, memory.hierarchy_oom_kills) == ((2, None) if both.version == 1 else (2, 5))


def test_limits_are_read_anew_each_time(both):
    both.group("/job", usage=80 * MB, limit=100 * MB, procs=[10])
    both.join("/job")
    reader = both.reader()
    assert reader.read_memory(0.0).levels[0].limit_bytes == 100 * MB
    both.group("/job", usage=80 * MB, limit=300 * MB, procs=[10])
    assert reader.read_memory(1.0).levels[0].limit_bytes == 300 * MB


def test_a_level_that_gets_a_limit_is_read_from_then_on(both):
    both.group("/pod", usage=90 * MB)
    both.group("/pod/job", usage=80 * MB, procs=[10])
    both.join("/pod/job")
    reader = both.reader()
    reader.read_memory(0.0)
    both.group("/pod", usage=99 * MB)
    both.group("/pod/job", usage=89 * MB, procs=[10], **oom_kills(both.version, 4))
    memory = reader.read_memory(2.0)
    assert [level.usage_bytes for level in memory.levels] == [80 * MB, 90 * MB], "they bound nobody"
    assert memory.oom_kills == 4, "kills are counted all the same"
    memory = reader.read_memory(10.0)
    assert [level.usage_bytes for level in memory.levels] == [89 * MB, 99 * MB]
    both.group("/pod", usage=99 * MB, limit=100 * MB)
    below = stat(MB, both.version, hierarchical=100 * MB)
    both.group("/pod/job", usage=80 * MB, procs=[10], **{"memory.stat": below})
    assert reader.read_memory(11.0) is memory, "it is looked for every other second"
    assert [level.usage_bytes for level in reader.read_memory(12.0).levels] == [80 * MB, 99 * MB]


def test_a_limit_of_a_level_above_that_does_not_bind_is_seen_within_ten_seconds(v1):
    v1.group("/pod", usage=90 * MB)
    v1.group("/pod/job", usage=80 * MB, limit=85 * MB, procs=[10])
    v1.join("/pod/job")
    reader = v1.reader()
    reader.read_memory(0.0)
    v1.group("/pod", usage=90 * MB, limit=500 * MB)
    assert reader.read_memory(1.0).levels[1].limit_bytes is None
    assert reader.read_memory(11.0).levels[1].limit_bytes == 500 * MB


def test_a_process_that_is_moved_is_followed(both):
    both.group("/a", usage=1 * MB, procs=[10])
    both.group("/b", usage=2 * MB, procs=[])
    both.join("/a")
    reader = both.reader()
    assert reader.read_memory(0.0).levels[0].path == "/a"
    both.join("/b")
    assert reader.read_memory(2.0).levels[0].usage_bytes == 2 * MB


def test_a_move_to_a_shared_cgroup_ends_the_ownership_at_once(both):
    both.group("/job", procs=[10])
    both.group("/shared", procs=[10, 0])
    both.join("/job")
    reader = both.reader()
    assert reader.read_memory(0.0).owned
    both.join("/shared")
    assert not reader.read_memory(2.0).owned


def test_a_job_shares_its_cgroup_with_a_large_stranger(both):
    both.group("/job", procs=[10, 11, 20])
    both.join("/job")
    both.proc.process(20, anon=50 * MB)
    assert both.reader(10, 11).read_memory(0.0).owned is False
    both.proc.process(20, anon=4 * MB)  # a shell
    assert both.reader(10, 11).read_memory(0.0).owned is True


def test_a_stranger_below_the_jobs_cgroup_counts(both):
    both.group("/job", procs=[10])
    both.group("/job/inner", procs=[20])
    both.join("/job")
    both.proc.process(20, anon=50 * MB)
    assert both.reader().read_memory(0.0).owned is False


def test_ownership_is_not_lost_to_a_worker_that_the_tree_has_not_met_yet(both):
    both.group("/job", limit=300 * MB, procs=[10])
    both.join("/job")
    tree = {10}
    reader = both.reader_of(lambda: tree)
    assert reader.read_memory(0.0).owned
    both.group("/job", limit=300 * MB, procs=[10, 11])
    both.proc.process(11, anon=50 * MB)
    assert reader.read_memory(11.0).owned
    tree.add(11)
    assert reader.read_memory(14.0).owned
    tree.remove(11)
    assert reader.read_memory(30.0).owned
    assert not reader.read_memory(33.0).owned


@pytest.mark.parametrize(("procs", "owned"), [([10, 11], False), ([10], True)])
def test_where_nobody_can_look_who_is_in_a_cgroup_it_belongs_to_whom_it_did(both, procs, owned):
    both.proc.process(11, anon=50 * MB)
    both.group("/job", limit=300 * MB, procs=procs)
    both.join("/job")
    reader = both.reader()
    assert reader.read_memory(0.0).owned is owned
    for path in both.top.rglob("cgroup.procs"):  # as where no descriptor is left
        path.unlink()
        path.mkdir()
    assert [reader.read_memory(t).owned for t in (100.0, 200.0, 300.0)] == [owned] * 3


def test_whose_a_cgroup_is_is_asked_the_less_often_the_less_it_matters(both):
    asked = []
    reader = both.reader_of(lambda: asked.append(True) or (10,))
    both.join("/job")

    def asked_in(seconds: range, limit: int | None, procs: Sequence[int]) -> list[int]:
        both.group("/job", limit=limit, procs=procs)
        at = []
        for second in seconds:
            asked.clear()
            reader.read_memory(float(second))
            at += [second] * len(asked)
        return at

    assert asked_in(range(100), None, [10]) == [0, 80], "nothing rests on it"
    assert asked_in(range(100, 125), 300 * MB, [10]) == [100, 110, 120], "a limit has come"
    assert asked_in(range(125, 400), 300 * MB, [10, 0]) == list(range(130, 400, 2)), "others stay"


def test_processes_from_outside_the_pid_namespace_are_strangers(both):
    both.group("/job", procs=[10, 0])
    both.join("/job")
    assert both.reader().read_memory(0.0).owned is False


def test_levels_where_v2_does_not_account_are_passed_over(v2):
    v2.group("/pod", usage=90 * MB, limit=200 * MB)
    (v2.top / "pod" / "leaf").mkdir()
    (v2.top / "pod" / "leaf" / "cgroup.procs").write_text("10\n")
    v2.join("/pod/leaf")
    assert [level.path for level in v2.reader().read_memory(0.0).levels] == ["/pod"]


def test_no_memory_controller_is_said(v2):
    v2.top.mkdir()
    v2.join("/")
    with pytest.raises(SourceError, match="no memory controller"):
        v2.reader().read_memory(0.0)


def test_an_invisible_cgroup_is_said(both):
    both.top.mkdir()
    both.join("/elsewhere")
    with pytest.raises(SourceError, match="not mounted") as caught:
        both.reader().read_memory(0.0)
    assert "--limit" in caught.value.hint


def test_a_tighter_limit_above_the_container_is_known_on_v1(v1):
    v1.group("/", usage=80 * MB, limit=500 * MB, procs=[10], **{"memory.stat": stat(MB, 1, hierarchical=100 * MB)})
    v1.join("/")
    memory = v1.reader().read_memory(0.0)
    assert [(lv.path, lv.limit_bytes) for lv in memory.levels] == [("/", 500 * MB), ("above /", 100 * MB)]
    (usage,) = usages(None, memory, None, (), None)
    assert usage.limit.headroom_bytes == 21 * MB


def test_above_a_v1_level_without_hierarchy_nothing_binds(v1):
    v1.group("/old", usage=9 * MB, limit=10 * MB, **{"memory.use_hierarchy": 0})
    v1.group("/old/job", usage=1 * MB, limit=50 * MB, procs=[10])
    v1.join("/old/job")
    assert [level.path for level in v1.reader().read_memory(0.0).levels] == ["/old/job"]


def test_a_neighbouring_container_is_read_through_the_trainers_own_mounts(tmp_path):
    fake = FakeProc(tmp_path / "proc")
    fake.process(10, anon=MB)
    fake.write("10/cgroup", "0::/../other\n")
    fake.write("self/mountinfo", "35 31 0:32 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    fake.write("10/mountinfo", "35 31 0:32 /../other /cg rw - cgroup2 cgroup2 rw\n")
    for name, content in {"memory.current": 5 * MB, "memory.max": 9 * MB, "memory.stat": stat(2 * MB)}.items():
        fake.write("/".join(("10", "root", "cg", name)), f"{content}\n")
    level = CgroupReader(10, root=str(fake)).read_memory(0.0).levels[0]
    assert (level.usage_bytes, level.limit_bytes) == (5 * MB, 9 * MB)


def test_nonsense_in_one_file_is_an_error_and_then_it_goes_on(both):
    both.group("/job", usage=5 * MB, limit=9 * MB, procs=[10])
    both.join("/job")
    reader = both.reader()
    reader.read_memory(0.0)
    both.group("/job", usage=-1, limit=9 * MB, procs=[10])
    with pytest.raises(SourceError, match="not a count of bytes"):
        reader.read_memory(1.0)
    both.group("/job", usage=6 * MB, procs=[10])
    assert reader.read_memory(2.0).levels[0].usage_bytes == 6 * MB


def test_a_hostile_name_is_shown_printable(both):
    both.group("/a\x1b[31m", usage=MB, procs=[10])
    both.join("/a\x1b[31m")
    assert both.reader().read_memory(0.0).levels[0].path == "/a?[31m"


# --- a real cgroup v1


@pytest.fixture
def real() -> Iterator[Path]:
    try:
        with memory_cgroup("memwatch-test", 300 * MB) as directory:
            yield directory
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")


ALLOCATE = "x = bytearray(b'x') * (60 * MB)\nsay('ready')\nsys.stdin.readline()\n"
MORE = "y = bytearray(b'y') * (40 * MB)\nsay('more')\nsys.stdin.readline()\n"


@pytest.mark.cgroup
def test_a_real_job_in_a_real_cgroup(real):
    with running(ALLOCATE + MORE, before=f"echo $$ > {real}/cgroup.procs") as program:
        tree = TreeReader(program.pid)
        reader = CgroupReader(program.pid, neighbours=NeighbourReader(program.pid, tree.tree_pids))
        memory = reader.read_memory(0.0)
        innermost = memory.levels[0]
        assert (innermost.path, innermost.limit_bytes, memory.owned) == (f"/{real.name}", 300 * MB, True)
        assert memory.levels[-1].path == "/"
        (before,) = usages(tree.read_memory(0.0), memory, None, (), None)
        assert before.limit.origin == f"cgroup /{real.name}"
        program.step()
        (after,) = usages(tree.read_memory(1.0), reader.read_memory(1.0), None, (), None)
        assert after.used_bytes - before.used_bytes == pytest.approx(40 * MB, rel=0.05)
        assert before.limit.headroom_bytes - after.limit.headroom_bytes == pytest.approx(40 * MB, rel=0.05)
        (real / "memory.limit_in_bytes").write_text(str(400 * MB))
        assert reader.read_memory(2.0).levels[0].limit_bytes == 400 * MB
        program.kill()
        with pytest.raises(TargetGoneError):
            reader.read_memory(3.0)
        reader.close()
        tree.close()


@pytest.mark.cgroup
def test_page_cache_is_reclaimable(real, tmp_path):
    code = f"open('{tmp_path}/data', 'wb').write(bytes(80 * MB))\nsay('ready')\nsys.stdin.readline()\n"
    with running(code, before=f"echo $$ > {real}/cgroup.procs") as program:
        reader = CgroupReader(program.pid)
        level = reader.read_memory(0.0).levels[0]
        reader.close()
    if level.reclaimable_bytes < 40 * MB:
        pytest.skip("files are kept in a file system without page cache here")
    assert level.usage_bytes - level.reclaimable_bytes < 60 * MB


@pytest.mark.cgroup
def test_the_kernels_kill_is_counted_also_after_the_end(real):
    with running(ALLOCATE + "z = bytearray(b'z') * (900 * MB)\n", before=f"echo $$ > {real}/cgroup.procs") as program:
        reader = CgroupReader(program.pid)
        assert reader.read_memory(0.0).oom_kills == 0
        assert program.process.stdin is not None
        program.process.stdin.write(b"\n")
        program.process.stdin.flush()
        os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(TargetGoneError):  # a zombie
            reader.read_memory(1.0)
        assert reader.oom_kills() == (1, None)
        program.kill()
        with pytest.raises(TargetGoneError):
            reader.read_memory(2.0)
        assert reader.oom_kills() == (1, None)
        reader.close()


@pytest.mark.cgroup
def test_a_move_between_real_cgroups_is_followed_and_the_removed_one_forgotten(real):
    inner = real / "inner"
    inner.mkdir()
    with running(ALLOCATE, before=f"echo $$ > {inner}/cgroup.procs") as program:
        reader = CgroupReader(program.pid)
        assert [level.path for level in reader.read_memory(0.0).levels][:2] == [f"/{real.name}/inner", f"/{real.name}"]
        (real / "cgroup.procs").write_text(str(program.pid))
        inner.rmdir()
        assert reader.read_memory(1.0).levels[0].path == f"/{real.name}"
        reader.close()


@pytest.mark.cgroup
def test_a_tick_costs_little(real):
    with running(ALLOCATE, before=f"echo $$ > {real}/cgroup.procs") as program:
        reader = CgroupReader(program.pid)
        reader.read_memory(0.0)
        best = math.inf
        for _ in range(10):
            began = time.thread_time()
            for tick in range(20):
                reader.read_memory(0.5 + tick / 100)
            best = min(best, (time.thread_time() - began) / 20)
        reader.close()
    assert best < 150e-6, f"{best * 1e6:.0f} us"
