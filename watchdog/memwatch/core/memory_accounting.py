"""Computes from the readings of a sample the memory in use, shared pages counted once, and the nearest limit.

A forked process starts with all pages of its parent, so a sum of RSS counts those pages once per worker. Here processes
are ordered, parents before their children, and a page belongs to the first process that holds it. The tree uses

    all pages of the trainer, all anonymous pages of every other program, and the pages of a fork that no elder has

statm is cheap to read but does not say which pages are shared; a random sample of a fork's pages does (a "visit").
Between two visits a fork's own pages follow statm. Inherited pages that are copied on write do not show in statm: they
are assumed to grow at the rate of the latest visits. `accounting` says what was possible: "rss" (one process, exact),
"pages" (pages of most other processes were sampled) or "anon+shmem" (they could not be: copied pages are missing).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import TypeGuard

from memwatch.core.measurements import (
    HOST,
    OWN_LIMIT,
    CgroupMemory,
    GpuMemory,
    HostMemory,
    Limit,
    SchedulerLimit,
    TmpfsMemory,
    TreeMemory,
    Usage,
)


def usages(
    tree: TreeMemory | None,
    cgroup: CgroupMemory | None,
    host: HostMemory | None,
    gpus: Sequence[GpuMemory],
    limit_bytes: int | None,
    *,
    tmpfs: Sequence[TmpfsMemory] = (),
    scheduler: SchedulerLimit | None = None,
) -> tuple[Usage, ...]:
    """Return the use of main memory, then of each GPU with memory of its own, then of each tmpfs, where it is known.

    `limit_bytes` is the user's own limit on the job, `scheduler` the batch scheduler's. Of several limits the one with
    the least headroom counts.
    """
    pools = []
    used = job_bytes(tree, cgroup)
    if used is not None:
        shared = used + unified_bytes(used, host, gpus)
        bounds = [*_bounds(shared, tree, cgroup, host, limit_bytes), *_scheduler_bound(shared, cgroup, scheduler)]
        bound = min(bounds, key=itemgetter(2), default=None)
        limit = None if bound is None else Limit(*bound)
        if is_cgroups(limit):  # what others take of the cgroup is a part of the use that reaches its limit
            shared = max(0, limit.bytes - limit.headroom_bytes)
        elif limit is not None and limit.origin.startswith("rlimit"):
            shared = used  # GPUs are not counted by it
        pools.append(Usage(HOST, shared, limit))
    pools += (usage for gpu in gpus if (usage := gpu_usage(gpu)) is not None)
    pools += map(tmpfs_usage, tmpfs)
    return tuple(pools)


def is_cgroups(limit: Limit | None) -> TypeGuard[Limit]:
    """Whether the limit is a cgroup's, so that the use is all that is charged to that cgroup, whoever takes it."""
    return limit is not None and limit.origin.startswith("cgroup")


def job_bytes(tree: TreeMemory | None, cgroup: CgroupMemory | None) -> int | None:
    """Return the memory of the job: of its cgroup when that is its own and has a limit, else of its process tree."""
    if accounting_method(tree, cgroup) == "cgroup" and cgroup is not None:
        return max(0, cgroup.levels[0].charged_bytes)
    return tree.used_bytes if tree else None


def accounting_method(
    tree: TreeMemory | None,
    cgroup: CgroupMemory | None,
    gpus: Sequence[GpuMemory] = (),
    limit: Limit | None = None,
) -> str | None:
    """Name how the use was found: "cgroup", or TreeMemory's, with "+gpu" if GPUs hold main memory; None: unknown.

    `limit` is the one that binds.
    """
    unified = "+gpu" if gpus and any(gpu.attribution == "unified" and gpu.used_bytes for gpu in gpus) else ""
    if tree is not None and is_cgroups(limit):
        return f"cgroup{unified}"
    if cgroup is not None and (cgroup.counts_job or (tree is None and cgroup.owned)):
        return f"cgroup{unified}"
    return f"{tree.accounting}{unified}" if tree else None


def unified_bytes(used_bytes: int, host: HostMemory | None, gpus: Sequence[GpuMemory]) -> int:
    """Return the main memory that the trainer's GPUs hold beside the `used_bytes` that the kernel counts for it.

    Such a GPU has no memory but the host's, and its driver's allocations are in no RSS. On a GB10 the host's use is the
    sum of NVML's figures by process and the processes' own memory (github.com/Syllo/nvtop/issues/449). The result is
    bounded by the host's use beside `used_bytes`, so memory that both count is not counted twice.
    """
    if host is None or not gpus:
        return 0
    held = sum(gpu.used_bytes or 0 for gpu in gpus if gpu.attribution == "unified")
    return max(0, min(held, host.total_bytes - host.available_bytes - used_bytes))


def _bounds(
    used_bytes: int, tree: TreeMemory | None, cgroup: CgroupMemory | None, host: HostMemory | None, own: int | None
) -> Iterator[tuple[int, str, int]]:
    """Yield the bytes, origin and headroom of each limit."""
    for level in cgroup.levels if cgroup else ():
        if level.limit_bytes is not None:
            yield level.limit_bytes, f"cgroup {level.path}", level.limit_bytes - level.charged_bytes
    if host is not None:
        yield host.total_bytes, "host", host.available_bytes
    if tree is not None and tree.rlimit_as_bytes is not None and tree.virtual_bytes is not None:
        yield tree.rlimit_as_bytes, "rlimit_as", tree.rlimit_as_bytes - tree.virtual_bytes
    if tree is not None and tree.rlimit_data_bytes is not None and tree.data_bytes is not None:
        yield tree.rlimit_data_bytes, "rlimit_data", tree.rlimit_data_bytes - tree.data_bytes
    if own is not None:
        yield own, OWN_LIMIT, own - used_bytes


def _scheduler_bound(
    used_bytes: int, cgroup: CgroupMemory | None, scheduler: SchedulerLimit | None
) -> Iterator[tuple[int, str, int]]:
    """Yield the scheduler's limit as _bounds does, unless a cgroup enforces it and counts what it counts."""
    limits = [level.limit_bytes for level in cgroup.levels if level.limit_bytes is not None] if cgroup else []
    if scheduler is not None and all(limit > scheduler.bytes for limit in limits):
        yield scheduler.bytes, scheduler.scheduler, scheduler.bytes - used_bytes


def tmpfs_usage(tmpfs: TmpfsMemory) -> Usage:
    """Return the use of a tmpfs by its peak: that is what grows with what is kept in it, and what its limit bounds."""
    limit = Limit(tmpfs.total_bytes, tmpfs.resource, tmpfs.total_bytes - tmpfs.peak_bytes)
    return Usage(tmpfs.resource, tmpfs.peak_bytes, limit)


def gpu_usage(gpu: GpuMemory) -> Usage | None:
    """Return the use of a GPU; None when its memory is the host's ("unified") or nothing is known of it."""
    used = gpu.device_used_bytes if gpu.used_bytes is None else gpu.used_bytes
    if gpu.attribution == "unified" or used is None:
        return None
    if gpu.total_bytes is None or gpu.device_used_bytes is None:
        return Usage(gpu.resource, used, None)
    return Usage(gpu.resource, used, Limit(gpu.total_bytes, gpu.resource, gpu.total_bytes - gpu.device_used_bytes))


# --- shared pages -----------------------------------------------------------------------------------------------------

_COW_FLOOR_BYTES = 64 << 20  # Fewer copied bytes are never reported as material (chosen).
_FEW = 8  # More changes than this, or than half the forks, are needed to test whether all forks copy alike (chosen).
_AT_ONCE_BYTES = 4 << 20  # A fork of a Python process copies 1 to 3 MB as soon as it runs (measured).
_SPREAD = 1.5  # Forks copy alike while their squared deviations stay below this many times the expected ones (chosen).
UNSEEN_RUNS = 0.5  # Runs of pages that may differ from all sampled runs, however alike those are (chosen).


@dataclass(frozen=True, slots=True)
class Share:
    """A share of resident pages, estimated from a sample of them."""

    value: float
    error: float  # its standard error
    pages: int = 0  # resident pages in the sample


@dataclass(frozen=True, slots=True)
class PageSample:
    """The result of one visit to a process: its statm and the sample of its pages."""

    t: float
    anon_bytes: int
    shared_bytes: int
    own_bytes: int  # of anon_bytes
    error_bytes: int
    shared_share: float  # of its file and shmem pages that are its own


@dataclass(frozen=True, slots=True)
class CopiedPages:
    """Pages that became a fork's own between two visits without a change of statm."""

    bytes: int
    seconds: float
    error_bytes: int

    @property
    def rate(self) -> float:  # bytes/s
        return self.bytes / self.seconds


@dataclass(slots=True, eq=False)  # two processes with the same figures are two
class ProcessMemory:
    """One process of the tree, by its latest statm and visit."""

    anon_bytes: int = 0
    shared_bytes: int = 0  # file and shmem pages
    inherited_bytes: int = 0  # anonymous memory at the fork; 0 for a program of its own
    eldest: bool = False  # the first of processes forked from each other: its anonymous pages are all its own
    predates_watch: bool = False  # it was there before the watch and may have copied pages already
    page_sample: PageSample | None = None
    change: CopiedPages | None = None  # between its two latest visits
    copy_bytes_per_second: float = 0.0  # the rate at which it copies pages, by its visits
    copying_until: float = 0.0  # the time until which this rate is assumed

    @property
    def rss_bytes(self) -> int:
        return self.anon_bytes + self.shared_bytes

    @property
    def grown_bytes(self) -> int:
        """Growth of anonymous memory since the fork."""
        return max(0, self.anon_bytes - self.inherited_bytes)

    def own_bytes(self, t: float) -> int:
        """Estimate the bytes of its own anonymous pages at `t`."""
        if self.eldest:
            return self.anon_bytes
        visit = self.page_sample
        if visit is None:
            return self.grown_bytes
        own = visit.own_bytes + self.anon_bytes - visit.anon_bytes
        if self.copy_bytes_per_second:
            own += int(self.copy_bytes_per_second * (min(t, self.copying_until) - visit.t))
        return min(max(own, 0), self.anon_bytes)


@dataclass(frozen=True, slots=True)
class TreeTotals:
    """The memory of a tree, each page counted once."""

    anon_bytes: int
    shared_bytes: int
    cow_bytes: int = 0  # inherited pages that were copied since the fork, by the visits
    cow_bytes_per_second: float = 0.0
    error_bytes: int = 0  # standard error of all the samples together
    rss_bytes: int = 0  # the sum of RSS, which counts a shared page in every process

    @property
    def used_bytes(self) -> int:
        return self.anon_bytes + self.shared_bytes


def tree_totals(root: ProcessMemory, others: Sequence[ProcessMemory], t: float) -> TreeTotals:
    """Sum up the tree at `t`; forks that were not visited yet are estimated from those that were."""
    forks = [member for member in others if not member.eldest]
    visited = [(member, member.own_bytes(t), visit) for member in forks if (visit := member.page_sample)]
    new = [member for member in forks if member.page_sample is None]
    known = root.anon_bytes + sum(member.anon_bytes for member in others if member.eldest)
    known += sum(own for _, own, _ in visited)
    copies = [max(0, own - member.grown_bytes) for member, own, _ in visited]
    presumed = _presumed_bytes(new, copies)
    # New forks hold at least the pages that they inherited, even if the other processes have freed those.
    inherited = max((min(member.inherited_bytes, member.anon_bytes) for member in new), default=0)
    return TreeTotals(
        anon_bytes=max(known + presumed, inherited) + sum(member.grown_bytes for member in new),
        shared_bytes=_shared_bytes(root, others),
        cow_bytes=sum(copies) + presumed,
        cow_bytes_per_second=sum(member.copy_bytes_per_second for member, _, _ in visited if member.copying_until >= t),
        error_bytes=math.isqrt(sum(visit.error_bytes**2 for _, _, visit in visited)),
        rss_bytes=root.rss_bytes + sum(member.anon_bytes + member.shared_bytes for member in others),
    )


def _presumed_bytes(new: Sequence[ProcessMemory], copies: Sequence[int]) -> int:
    """Estimate the copied bytes of unvisited forks: the others' average, for a young one _AT_ONCE_BYTES at most."""
    if not new or not copies:
        return 0
    average = sum(copies) // len(copies)
    at_once = min(average, _AT_ONCE_BYTES)
    return sum(min(average if fork.predates_watch else at_once, fork.anon_bytes - fork.grown_bytes) for fork in new)


def _shared_bytes(root: ProcessMemory, others: Sequence[ProcessMemory]) -> int:
    """Sum up each process's own share of file and shmem pages; at least the pages of the process that maps most."""
    own = sum(int(member.shared_bytes * member.page_sample.shared_share) for member in others if member.page_sample)
    return max(root.shared_bytes + own, max((member.shared_bytes for member in others), default=0))


def copied(before: PageSample, after: PageSample) -> CopiedPages:
    """Return the growth of own pages between two visits beyond the growth of statm."""
    grown = after.own_bytes - before.own_bytes - (after.anon_bytes - before.anon_bytes)
    return CopiedPages(grown, after.t - before.t, math.isqrt(before.error_bytes**2 + after.error_bytes**2))


def update_copy_rates(forks: Collection[ProcessMemory]) -> float:
    """Set the rate at which each fork is assumed to go on copying; return their sum, in bytes/s.

    Forks get a common rate where their changes differ no more than by chance, because a rate that is within the error
    of each alone may be significant for all together. Otherwise each has its own. Rates shrink with their error.
    """
    changes = [member.change for member in forks if member.change is not None]
    seconds, error = sum(change.seconds for change in changes), math.isqrt(sum(c.error_bytes**2 for c in changes))
    common = CopiedPages(sum(change.bytes for change in changes), seconds, error)
    alike = len(changes) > min(_FEW, len(forks) / 2) and (
        sum((change.bytes - common.rate * change.seconds) ** 2 for change in changes) <= _SPREAD * error**2
    )
    for member in forks:
        change, visit = common if alike else member.change, member.page_sample
        member.copy_bytes_per_second = _shrunk_rate(change) if change is not None and visit is not None else 0.0
        if visit is not None and member.copy_bytes_per_second:
            span = member.change.seconds if member.change is not None else seconds / len(changes)
            member.copying_until = visit.t + 2 * span
    return sum(member.copy_bytes_per_second for member in forks)


def _shrunk_rate(change: CopiedPages) -> float:
    if change.bytes <= change.error_bytes:
        return 0.0
    return change.rate * (1 - (change.error_bytes / change.bytes) ** 2)


def sampled_share(own: Sequence[float], present: Sequence[int], of_runs: int) -> Share:
    """Estimate the share of own pages among resident ones, from runs of pages at equal distances among `of_runs`.

    It is a ratio, so pages that are not resident do not distort it. Its error comes from successive differences
    (Wolter, Introduction to Variance Estimation, 8.2), which holds for pages written at random as well as for one
    contiguous range; UNSEEN_RUNS bounds it from below.
    """
    runs, pages = len(own), sum(present)
    if not pages:
        return Share(0.0, 1.0)
    share = sum(own) / pages
    residuals = [mine - share * there for mine, there in zip(own, present, strict=True)]
    differences = sum((a - b) ** 2 for a, b in pairwise(residuals))
    unsampled = 1 - runs / of_runs
    variance = differences / 2 * runs / max(1, runs - 1) * unsampled
    nonempty = sum(1 for there in present if there)
    return Share(share, max(math.sqrt(variance) / pages, UNSEEN_RUNS * unsampled / nonempty), pages)


def is_copy_on_write_material(cow_bytes: int, used_bytes: int, growth_bytes: int) -> bool:
    """Whether copied pages are a material part of the memory and of its growth since the watch began."""
    return cow_bytes >= max(_COW_FLOOR_BYTES, used_bytes / 20, growth_bytes / 4)
