from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.measurements import (
    CgroupLevel,
    CgroupMemory,
    GpuMemory,
    HostMemory,
    Limit,
    SchedulerLimit,
    TmpfsMemory,
    TreeMemory,
    Usage,
)
from memwatch.core.memory_accounting import accounting_method, job_bytes, usages

GB = 10**9
TREE = TreeMemory(processes=1, rss_bytes=20 * GB, used_bytes=20 * GB, accounting="rss")
HOST = HostMemory(total_bytes=2000 * GB, available_bytes=1900 * GB, swap_free_bytes=0)
POD = CgroupLevel("/pod/job", 30 * GB, 5 * GB, 175 * GB)
CGROUP = CgroupMemory(version=2, levels=(POD, CgroupLevel("/pod", 60 * GB, 6 * GB, None)), owned=True)
GPU = GpuMemory("gpu0", "GPU-1", "H200", 10 * GB, 30 * GB, 140 * GB, "exact")


def only(tree=TREE, cgroup=None, host=None, limit=None):
    (usage,) = usages(tree, cgroup, host, (), limit)
    return usage


def test_a_pod_on_a_large_host_is_judged_by_the_pod():
    usage = only(cgroup=CGROUP, host=HOST)
    assert (usage.limit.origin, usage.limit.bytes) == ("cgroup /pod/job", 175 * GB)
    assert usage.limit.headroom_bytes == (175 - 25) * GB


def test_page_cache_is_no_use_of_the_job():
    assert only(cgroup=CGROUP).used_bytes == 25 * GB


def test_an_own_cgroup_without_a_limit_is_no_measure_of_the_job():
    """A session's cgroup holds what earlier programs left behind, in tmpfs and in the kernel."""
    free = replace(CGROUP, levels=tuple(replace(level, limit_bytes=None) for level in CGROUP.levels))
    assert (only(cgroup=free, host=HOST).used_bytes, accounting_method(TREE, free)) == (20 * GB, "rss")
    assert job_bytes(None, free) == 25 * GB, "better than nothing"


def test_a_cgroup_that_is_shared_is_forecast_by_its_own_use():
    """What others take of it is a part of the growth: use and limit are of the same cgroup."""
    shared = replace(CGROUP, owned=False)
    usage = only(cgroup=shared, host=HOST)
    assert (usage.used_bytes, usage.limit.headroom_bytes) == (25 * GB, 150 * GB)
    assert accounting_method(TREE, shared, (), usage.limit) == "cgroup"


def test_where_another_limit_is_nearer_a_shared_cgroup_does_not_say_what_the_job_uses():
    shared = replace(CGROUP, owned=False)
    for usage in (only(cgroup=shared, host=replace(HOST, available_bytes=3 * GB)), only(cgroup=shared, limit=21 * GB)):
        assert usage.used_bytes == 20 * GB
        assert accounting_method(TREE, shared, (), usage.limit) == "rss"


def test_at_each_level_the_use_is_that_of_the_level_whose_limit_is_the_nearest():
    above = CgroupLevel("/pod", 198 * GB, 8 * GB, 200 * GB)  # with other containers
    usage = only(cgroup=replace(CGROUP, levels=(POD, above)))
    assert (usage.limit.origin, usage.used_bytes, usage.limit.headroom_bytes) == ("cgroup /pod", 190 * GB, 10 * GB)


def test_an_ancestor_that_is_nearly_full_binds_before_the_looser_own_level():
    tight = CgroupLevel("/pod", 198 * GB, 8 * GB, 200 * GB)
    usage = only(cgroup=replace(CGROUP, levels=(POD, tight)))
    assert (usage.limit.origin, usage.limit.headroom_bytes) == ("cgroup /pod", 10 * GB)


def test_the_host_binds_when_others_have_eaten_it():
    usage = only(cgroup=CGROUP, host=replace(HOST, available_bytes=3 * GB))
    assert (usage.limit.origin, usage.limit.bytes, usage.limit.headroom_bytes) == ("host", 2000 * GB, 3 * GB)


def test_a_scheduler_limit_binds_where_no_cgroup_has_it():
    slurm = SchedulerLimit("Slurm", 40 * GB)

    def limit_with(cgroup):
        (usage,) = usages(TREE, cgroup, HOST, (), None, scheduler=slurm)
        return usage.limit

    assert limit_with(None) == Limit(40 * GB, "Slurm", 20 * GB)
    assert limit_with(CGROUP) == Limit(40 * GB, "Slurm", 15 * GB), "a cgroup of 175 GB does not enforce 40 GB"
    for enforced in (40 * GB, 30 * GB):
        own = replace(CGROUP, levels=(replace(POD, limit_bytes=enforced),))
        assert limit_with(own).origin == "cgroup /pod/job"


def test_a_tmpfs_counts_by_its_peak():
    shm = TmpfsMemory("/dev/shm", used_bytes=20, peak_bytes=60, total_bytes=64)
    *_, usage = usages(TREE, None, HOST, (GPU,), None, tmpfs=(shm,))
    assert usage == Usage("/dev/shm", 60, Limit(64, "/dev/shm", 4))


def test_rlimits_are_measured_against_what_they_bound():
    tree = replace(TREE, virtual_bytes=90 * GB, rlimit_as_bytes=100 * GB, data_bytes=95 * GB, rlimit_data_bytes=99 * GB)
    usage = only(tree=tree, host=HOST)
    assert (usage.limit.origin, usage.limit.headroom_bytes) == ("rlimit_data", 4 * GB)
    usage = only(tree=replace(tree, rlimit_data_bytes=None), host=HOST)
    assert (usage.limit.origin, usage.limit.headroom_bytes) == ("rlimit_as", 10 * GB)


def test_the_users_limit_is_against_what_the_job_uses():
    usage = only(cgroup=CGROUP, host=HOST, limit=26 * GB)
    assert (usage.limit.origin, usage.limit.bytes, usage.limit.headroom_bytes) == ("--limit", 26 * GB, 1 * GB)


def test_an_exceeded_limit_has_negative_headroom():
    assert only(limit=15 * GB).limit.headroom_bytes == -5 * GB


def test_without_any_bound_the_limit_is_unknown():
    assert only().limit is None


def test_what_cannot_be_told_is_left_out():
    assert usages(None, replace(CGROUP, owned=False), HOST, (), 5 * GB) == ()
    assert usages(None, None, HOST, (), None) == ()
    assert accounting_method(None, None) is None


def test_it_says_how_the_use_was_measured():
    assert accounting_method(TREE, CGROUP) == "cgroup"
    assert accounting_method(replace(TREE, accounting="pss"), replace(CGROUP, owned=False)) == "pss"
    assert job_bytes(None, CGROUP) == 25 * GB


def test_a_gpus_headroom_is_the_devices_and_its_use_the_trainers():
    (usage,) = usages(None, None, None, (GPU,), None)
    assert (usage.resource, usage.used_bytes) == ("gpu0", 10 * GB)
    assert (usage.limit.bytes, usage.limit.origin, usage.limit.headroom_bytes) == (140 * GB, "gpu0", 110 * GB)


def test_a_gpu_without_attribution_is_taken_whole():
    (usage,) = usages(None, None, None, (replace(GPU, used_bytes=None, attribution="device"),), None)
    assert usage.used_bytes == 30 * GB


def test_a_unified_or_silent_gpu_is_no_pool_of_its_own():
    silent = replace(GPU, used_bytes=None, device_used_bytes=None, attribution="unavailable")
    assert usages(None, None, None, (replace(GPU, attribution="unified"), silent), None) == ()
    (usage,) = usages(None, None, None, (replace(GPU, total_bytes=None),), None)
    assert usage.limit is None


UNIFIED = replace(GPU, attribution="unified", total_bytes=None, device_used_bytes=None)


def pool(host, tree=TREE, cgroup=None, limit=None, gpu=UNIFIED):
    (usage,) = usages(tree, cgroup, host, (gpu,), limit)
    return usage


def test_a_gpu_that_shares_the_hosts_memory_counts_in_its_pool():
    usage = pool(replace(HOST, total_bytes=128 * GB, available_bytes=90 * GB))
    assert (usage.resource, usage.used_bytes, usage.limit.origin) == ("host", 30 * GB, "host")
    assert usage.limit.headroom_bytes == 90 * GB
    assert pool(HOST, limit=50 * GB).limit.headroom_bytes == 20 * GB, "one's own limit is on all of it"


def test_memory_that_both_count_is_not_counted_twice():
    """Managed memory is in RSS, and in what NVML says: 24 GB are in use, 20 of them in the process's own count."""
    assert pool(replace(HOST, total_bytes=128 * GB, available_bytes=104 * GB)).used_bytes == 24 * GB
    assert pool(replace(HOST, total_bytes=128 * GB, available_bytes=128 * GB)).used_bytes == 20 * GB
    assert pool(None).used_bytes == 20 * GB, "unknown"


def test_a_cgroup_bounds_no_memory_that_a_driver_allocates():
    tight = replace(CGROUP, levels=(replace(POD, limit_bytes=60 * GB),))
    usage = pool(HOST, cgroup=tight)
    assert (usage.used_bytes, usage.limit.origin, usage.limit.headroom_bytes) == (25 * GB, "cgroup /pod/job", 35 * GB)


def test_a_gpu_in_the_pool_is_another_way_of_counting():
    assert accounting_method(TREE, None, (UNIFIED,)) == "rss+gpu"
    assert accounting_method(TREE, CGROUP, (GPU,)) == "cgroup"


sizes = st.integers(0, 2**50)
maybe = st.none() | sizes
levels = st.builds(CgroupLevel, st.just("/a"), sizes, sizes, maybe)
cgroups = st.builds(CgroupMemory, st.just(2), st.lists(levels, max_size=4).map(tuple), st.booleans())
trees = st.builds(TreeMemory, st.just(1), sizes, sizes, st.just("rss"), rlimit_as_bytes=maybe, virtual_bytes=maybe)


@given(trees, st.none() | cgroups, st.none() | st.builds(HostMemory, sizes, sizes, sizes), maybe)
def test_no_bound_has_less_headroom_than_the_one_that_is_named(tree, cgroup, host, limit):
    (usage,) = usages(tree, cgroup, host, (), limit)
    rooms = [
        x.limit_bytes - x.usage_bytes + x.reclaimable_bytes
        for x in (cgroup.levels if cgroup else ())
        if x.limit_bytes is not None
    ]
    rooms += [host.available_bytes] if host else []
    rooms += [limit - usage.used_bytes] if limit is not None else []
    if tree.rlimit_as_bytes is not None and tree.virtual_bytes is not None:
        rooms.append(tree.rlimit_as_bytes - tree.virtual_bytes)
    assert usage.used_bytes >= 0
    assert (usage.limit.headroom_bytes if usage.limit else None) == min(rooms, default=None)


@given(trees, cgroups, sizes, st.integers(1, 2**40))
def test_a_tighter_limit_never_gives_more_room(tree, cgroup, limit, less):
    (loose,) = usages(tree, cgroup, None, (), limit + less)
    (tight,) = usages(tree, cgroup, None, (), limit)
    assert tight.limit.headroom_bytes <= loose.limit.headroom_bytes
