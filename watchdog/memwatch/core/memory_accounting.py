"""From the parts of a sample to the pools that can run out: what is used, and which bound is met first.

How much memory a tree of processes uses when its pages are shared: each page counted once, at its first holder.

Forked processes start with all pages of their parent, so a sum of RSS counts those once per worker. Processes have an
order, parents before their children, and a page is its own of the first that holds it. The tree is the sum of that:

    all pages of the trainer, all anonymous pages of every other program, and of a fork those that no elder one holds

What is cheap to read (statm) does not say which pages are shared. A random sample of a fork's pages does (a "visit").
Between visits its own pages follow statm, and what statm does not show, inherited pages that are copied when they are
written to, goes on as fast as the latest visits found. A tree says how far that went: "rss" (one process, exact),
"pages" (pages of most others were sampled) or "anon+shmem" (they could not be: copied pages are not seen).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

from memwatch.core.measurements import HOST, CgroupMemory, GpuMemory, HostMemory, Limit, TreeMemory, Usage


def usages(
    tree: TreeMemory | None,
    cgroup: CgroupMemory | None,
    host: HostMemory | None,
    gpus: Sequence[GpuMemory],
    limit_bytes: int | None,
) -> tuple[Usage, ...]:
    """Main memory first, then each GPU with memory of its own; a pool whose use is unknown is left out.

    `limit_bytes` is the user's own limit on what the job uses. Of several bounds that with the least headroom counts.
    """
    pools = []
    used = job_bytes(tree, cgroup)
    if used is not None:
        shared = used + unified_bytes(used, host, gpus)
        bound = min(_bounds(shared, tree, cgroup, host, limit_bytes), key=itemgetter(2), default=None)
        limit = None if bound is None else Limit(*bound)
        alone = limit is not None and limit.origin.startswith(("cgroup", "rlimit"))  # these bound no driver's memory
        pools.append(Usage(HOST, used if alone else shared, limit))
    pools += (usage for gpu in gpus if (usage := gpu_usage(gpu)) is not None)
    return tuple(pools)


def job_bytes(tree: TreeMemory | None, cgroup: CgroupMemory | None) -> int | None:
    """What the job uses: by its cgroup when that is its own and has a limit, else by its process tree."""
    if accounting_method(tree, cgroup) == "cgroup" and cgroup is not None:
        return max(0, cgroup.levels[0].charged_bytes)
    return tree.used_bytes if tree else None


def accounting_method(
    tree: TreeMemory | None, cgroup: CgroupMemory | None, gpus: Sequence[GpuMemory] = ()
) -> str | None:
    """How the use came about: "cgroup" or as TreeMemory says, "+gpu" with main memory that GPUs hold; None: unknown."""
    held = "+gpu" if gpus and any(gpu.attribution == "unified" and gpu.used_bytes for gpu in gpus) else ""
    if cgroup is not None and (cgroup.counts_job or (tree is None and cgroup.owned)):
        return f"cgroup{held}"
    return f"{tree.accounting}{held}" if tree else None


def unified_bytes(used_bytes: int, host: HostMemory | None, gpus: Sequence[GpuMemory]) -> int:
    """What the trainer's GPUs hold of main memory beside the `used_bytes` that the kernel counts as its own.

    Such a GPU has no memory but the host's, and its driver's allocations are in no RSS. On a GB10 NVML's sum by process
    and the processes' own memory together are what the host has in use (github.com/Syllo/nvtop/issues/449). Never more
    than the host has in use beside `used_bytes`: memory that both count is not counted twice.
    """
    if host is None or not gpus:
        return 0
    told = sum(gpu.used_bytes or 0 for gpu in gpus if gpu.attribution == "unified")
    return max(0, min(told, host.total_bytes - host.available_bytes - used_bytes))


def _bounds(
    used_bytes: int, tree: TreeMemory | None, cgroup: CgroupMemory | None, host: HostMemory | None, own: int | None
) -> Iterator[tuple[int, str, int]]:
    """Of each limit its bytes, origin and headroom."""
    for level in cgroup.levels if cgroup else ():
        if level.limit_bytes is not None:
            headroom = level.limit_bytes - level.charged_bytes
            yield level.limit_bytes, f"cgroup {level.path}", headroom
    if host is not None:
        yield host.total_bytes, "host", host.available_bytes
    if tree is not None:
        for origin, bound, taken in (
            ("rlimit_as", tree.rlimit_as_bytes, tree.virtual_bytes),
            ("rlimit_data", tree.rlimit_data_bytes, tree.data_bytes),
        ):
            if bound is not None and taken is not None:
                yield bound, origin, bound - taken
    if own is not None:
        yield own, "--limit", own - used_bytes


def gpu_usage(gpu: GpuMemory) -> Usage | None:
    """None when it is the host's memory ("unified") or nothing is known of it."""
    used = gpu.device_used_bytes if gpu.used_bytes is None else gpu.used_bytes
    if gpu.attribution == "unified" or used is None:
        return None
    if gpu.total_bytes is None or gpu.device_used_bytes is None:
        return Usage(gpu.resource, used, None)
    return Usage(gpu.resource, used, Limit(gpu.total_bytes, gpu.resource, gpu.total_bytes - gpu.device_used_bytes))


_COW_FLOOR_BYTES = 64 << 20  # below, nobody minds
_FEW = 8  # changes, or those of half the forks, that are too few to tell whether all are alike
_AT_ONCE_BYTES = 4 << 20  # a fork of a Python process copies 1 to 3 MB as soon as it runs
_SPREAD = 1.5  # times the square of their errors
UNSEEN_RUNS = (
    0.5  # runs that may be unlike all that were seen: no exception in a sample does not prove that there is none
)


@dataclass(frozen=True, slots=True)
class Share:
    """A share of resident pages, told from a sample of them."""

    value: float
    error: float  # its standard error
    pages: int = 0  # resident ones that it rests on


@dataclass(frozen=True, slots=True)
class PageSample:
    """What a sample of a process's pages said of it, and what its statm said then."""

    t: float
    anon_bytes: int
    shared_bytes: int
    own_bytes: int  # of anon_bytes
    error_bytes: int
    shared_share: float  # of its file and shmem pages that are its own


@dataclass(frozen=True, slots=True)
class CopiedPages:
    """What became a fork's own between two visits without a change of statm."""

    bytes: int
    seconds: float
    error_bytes: int

    @property
    def rate(self) -> float:
        """Bytes/s."""
        return self.bytes / self.seconds


@dataclass(slots=True)
class ProcessMemory:
    """One process of the tree, by its latest cheap reading."""

    anon_bytes: int = 0
    shared_bytes: int = 0  # file and shmem pages
    inherited_bytes: int = 0  # anonymous memory that came with the fork; 0 for a program of its own
    eldest: bool = False  # of all that are forks of each other: its anonymous pages are all its own
    met_late: bool = False  # it was there before the watch and may have copied pages already
    page_sample: PageSample | None = None
    change: CopiedPages | None = None  # between its two latest visits
    copy_bytes_per_second: float = 0.0  # bytes/s that it copies, as far as visits tell
    copying_until: float = 0.0  # the time until when this is drawn on

    @property
    def rss_bytes(self) -> int:
        """Resident memory."""
        return self.anon_bytes + self.shared_bytes

    @property
    def grown_bytes(self) -> int:
        """Anonymous memory since the fork."""
        return max(0, self.anon_bytes - self.inherited_bytes)

    def own_bytes(self, t: float) -> int:
        """Its own anonymous pages at `t`, as far as known."""
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
    """The memory of a tree, each page once."""

    anon_bytes: int
    shared_bytes: int
    cow_bytes: int = 0  # inherited pages that were copied since, as far as visits have seen
    cow_bytes_per_second: float = 0.0
    error_bytes: int = 0  # standard error of all the samples together
    rss_bytes: int = 0  # what the sum of RSS would say, shared pages counted again and again

    @property
    def used_bytes(self) -> int:
        """All of it."""
        return self.anon_bytes + self.shared_bytes


def tree_totals(root: ProcessMemory, others: Sequence[ProcessMemory], t: float) -> TreeTotals:
    """The tree at `t`. Of those not yet visited, what the visited ones suggest."""
    forks = [member for member in others if not member.eldest]
    seen = [(member, member.own_bytes(t), visit) for member in forks if (visit := member.page_sample)]
    new = [member for member in forks if member.page_sample is None]
    known = root.anon_bytes + sum(member.anon_bytes for member in others if member.eldest)
    known += sum(own for _, own, _ in seen)
    copies = [max(0, own - member.grown_bytes) for member, own, _ in seen]
    presumed = _presumed_bytes(new, copies)
    cow, known = sum(copies) + presumed, known + presumed
    # new ones hold at least what they inherited, be it that the others have given it back
    inherited = max((min(member.inherited_bytes, member.anon_bytes) for member in new), default=0)
    return TreeTotals(
        anon_bytes=max(known, inherited) + sum(member.grown_bytes for member in new),
        shared_bytes=_shared_bytes(root, others),
        cow_bytes=cow,
        cow_bytes_per_second=sum(member.copy_bytes_per_second for member, _, _ in seen if member.copying_until >= t),
        error_bytes=math.isqrt(sum(visit.error_bytes**2 for _, _, visit in seen)),
        rss_bytes=root.rss_bytes + sum(member.anon_bytes + member.shared_bytes for member in others),
    )


def _presumed_bytes(new: Sequence[ProcessMemory], copies: Sequence[int]) -> int:
    """Copies of forks not yet visited, by those of the others: on average, or the little that each makes at once."""
    if not new or not copies:
        return 0
    average = sum(copies) // len(copies)
    at_once = min(average, _AT_ONCE_BYTES)
    return sum(min(average if one.met_late else at_once, one.anon_bytes - one.grown_bytes) for one in new)


def _shared_bytes(root: ProcessMemory, others: Sequence[ProcessMemory]) -> int:
    """What visits found of each process's own, but not less than the one that maps most."""
    own = sum(int(member.shared_bytes * member.page_sample.shared_share) for member in others if member.page_sample)
    return max(root.shared_bytes + own, max((member.shared_bytes for member in others), default=0))


def copied(before: PageSample, after: PageSample) -> CopiedPages:
    """What a later visit found beyond the growth of statm."""
    grown = after.own_bytes - before.own_bytes - (after.anon_bytes - before.anon_bytes)
    return CopiedPages(grown, after.t - before.t, math.isqrt(before.error_bytes**2 + after.error_bytes**2))


def update_copy_rates(forks: Collection[ProcessMemory]) -> float:
    """Set how fast each fork is taken to go on copying; the sum, in bytes/s.

    All alike where their changes differ no more than chance may have it: a rate that each alone could not show is seen
    in all together. Otherwise each as it did. A rate is believed the less the more of it may be chance.
    """
    changes = [member.change for member in forks if member.change is not None]
    seconds = sum(change.seconds for change in changes)
    common = CopiedPages(sum(change.bytes for change in changes), seconds, _together(changes))
    alike = len(changes) > min(_FEW, len(forks) / 2) and _alike(changes, common.rate)
    for member in forks:
        change = common if alike else member.change
        member.copy_bytes_per_second = (
            _believed(change) if change is not None and member.page_sample is not None else 0.0
        )
        if member.page_sample is not None and member.copy_bytes_per_second:
            span = member.change.seconds if member.change is not None else seconds / len(changes)
            member.copying_until = member.page_sample.t + 2 * span
    return sum(member.copy_bytes_per_second for member in forks)


def _together(changes: Collection[CopiedPages]) -> int:
    return math.isqrt(sum(change.error_bytes**2 for change in changes))


def _alike(changes: Collection[CopiedPages], rate: float) -> bool:
    return sum((change.bytes - rate * change.seconds) ** 2 for change in changes) <= _SPREAD * _together(changes) ** 2


def _believed(change: CopiedPages) -> float:
    if change.bytes <= change.error_bytes:
        return 0.0
    return change.rate * (1 - (change.error_bytes / change.bytes) ** 2)


def sampled_share(own: Sequence[float], present: Sequence[int], of_runs: int) -> Share:
    """Own pages among the resident ones, from runs of pages taken at equal distances of `of_runs`.

    A ratio, so that pages that are not resident do no harm. Its error comes from neighbouring runs, which is right for
    pages written at random as for one written stretch (successive differences: Wolter, Introduction to Variance
    Estimation, 8.2); what no run has met may still be as much as one run.
    """
    runs, pages = len(own), sum(present)
    if not pages:
        return Share(0.0, 1.0)
    share = sum(own) / pages
    rest = [mine - share * there for mine, there in zip(own, present, strict=True)]
    steps = sum((a - b) ** 2 for a, b in pairwise(rest))
    left_out = 1 - runs / of_runs
    variance = steps / 2 * runs / max(1, runs - 1) * left_out
    met = sum(1 for there in present if there)
    return Share(share, max(math.sqrt(variance) / pages, UNSEEN_RUNS * left_out / met), pages)


def is_copy_on_write_material(cow_bytes: int, used_bytes: int, growth_bytes: int) -> bool:
    """Whether copied pages are a material part of the memory and of its growth since the watch began."""
    return cow_bytes >= max(_COW_FLOOR_BYTES, used_bytes / 20, growth_bytes / 4)
