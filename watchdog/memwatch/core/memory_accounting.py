"""From the parts of a sample to the pools that can run out: what is used, and which bound is met first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from memwatch.core.measurements import (
    HOST,
    CgroupMemory,
    GpuMemory,
    HostMemory,
    Limit,
    TreeMemory,
    Usage,
)


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
    if accounting(tree, cgroup) == "cgroup" and cgroup is not None:
        return max(0, cgroup.levels[0].charged_bytes)
    return tree.used_bytes if tree else None


def accounting(tree: TreeMemory | None, cgroup: CgroupMemory | None, gpus: Sequence[GpuMemory] = ()) -> str | None:
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
