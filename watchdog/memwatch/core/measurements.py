"""The records of the watched process and of its memory. `core.events` has the events, `core.snapshot` the state.

All records are frozen. Times (`t`) are float seconds of the daemon's clock (Unix time at its start, then monotonic;
a trace's own seconds in a replay). Memory is int bytes. Unknown is None, never 0 or -1.
"""

from __future__ import annotations

from dataclasses import dataclass

OWN_LIMIT = "--limit"  # the origin of the user's own
HOST = "host"  # the resource name of main memory; GPUs are "gpu0", "gpu1" ..., a tmpfs is named by its mount point


def is_tmpfs(resource: str) -> bool:
    """Whether a resource is a tmpfs, such as "/dev/shm"."""
    return resource.startswith("/")


@dataclass(frozen=True, slots=True)
class Target:
    """The identity of a process: a PID alone is recycled, these three together never are."""

    boot_id: str
    pid: int
    start_ticks: int  # field 22 of /proc/PID/stat, clock ticks since boot


@dataclass(frozen=True, slots=True)
class SignalHandling:
    """Whether the trainer's code gets a chance to save when the signal of an interrupt comes."""

    signal: str  # "SIGINT"
    handled: bool | None  # None: not known
    where: str = ""  # what handles it: "save_on_signal (train.py:88)", with the line of the function or of the clause
    reason: str = ""  # why it is not handled, or not known


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Which part of which run is watched; Prometheus joins the nodes of a job by it."""

    run_id: str  # the same on every node of a job; empty: not known
    node: str
    rank: int | None = None  # of the trainer itself; None: it is no rank, or an agent with ranks below it
    nodes: int | None = None  # of the run; None: not known
    user: str = ""  # who runs the trainer; empty: not known


@dataclass(frozen=True, slots=True)
class PageSamplingCost:
    """The cost of distinguishing shared pages from own ones, so far."""

    visits: int = 0  # of processes
    refused: int = 0  # visits that were not permitted
    pages: int = 0  # that were sampled
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Memory of one rank: the process that its agent started, and all below it."""

    rank: int  # among all of the run
    local_rank: int  # on this node
    pid: int
    used_bytes: int
    pids: tuple[int, ...]  # of all its processes


@dataclass(frozen=True, slots=True)
class ChildMemory:
    """A process of the trainer's tree beside the trainer itself."""

    pid: int
    name: str  # the kernel's, as `ps` shows it, from anywhere
    bytes: int  # of its own: pages that it shares with the trainer since a fork count for the trainer


@dataclass(frozen=True, slots=True)
class TreeMemory:
    """Memory of the trainer and its descendants, shared pages counted once."""

    processes: int
    rss_bytes: int  # the trainer's own process, as top shows it
    used_bytes: int  # the whole tree
    accounting: str  # how used_bytes was found: "rss" (one process), "pages", "anon+shmem" (core.memory_accounting)
    anon_bytes: int | None = None  # of the whole tree, as the next two
    file_bytes: int | None = None
    shmem_bytes: int | None = None
    swap_bytes: int | None = None
    virtual_bytes: int | None = None  # VmSize of the trainer's process, which RLIMIT_AS bounds
    data_bytes: int | None = None  # VmData of the trainer's process, which RLIMIT_DATA bounds
    rlimit_as_bytes: int | None = None
    rlimit_data_bytes: int | None = None
    error_bytes: int | None = None  # standard error of used_bytes where pages were sampled
    cow_bytes: int | None = None  # inherited pages that were copied since the fork; None: not known
    cow_bytes_per_second: float | None = None
    reason: str = ""  # why pages could not be sampled; empty: they were
    stale: str = ""  # why details (limits, swap, processes) are those of an earlier sample; empty: they are not
    survey_cost: PageSamplingCost = PageSamplingCost()
    ranks: tuple[RankMemory, ...] = ()  # below an agent such as torchrun, by rank
    member_processes: int = 0  # of `processes`: of the same job, but no descendants of the trainer
    member_bytes: int | None = None  # of used_bytes: theirs; None: there are none
    largest: tuple[ChildMemory, ...] = ()  # the few that hold the most, the largest first


@dataclass(frozen=True, slots=True)
class CgroupLevel:
    """One memory cgroup on the way from the trainer's own up to the root."""

    path: str  # as in /proc/PID/cgroup, "/" for the root
    usage_bytes: int
    reclaimable_bytes: int  # page cache that the kernel gives back before it kills: inactive_file + active_file
    limit_bytes: int | None  # None: no limit at this level

    @property
    def charged_bytes(self) -> int:
        """The usage that the kernel cannot reclaim: all but the page cache."""
        return self.usage_bytes - self.reclaimable_bytes


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """The trainer's memory cgroup, innermost level first."""

    version: int  # 1 or 2
    levels: tuple[CgroupLevel, ...]
    owned: bool  # every process in the innermost level belongs to the trainer's tree
    swap_bytes: int | None = None
    oom_kills: int | None = None  # of the innermost level, since it was made
    hierarchy_oom_kills: int | None = None  # including the levels below it

    @property
    def counts_job(self) -> bool:
        """Whether its usage is that of the job: it is the job's own, and there is a limit at some level.

        A session's cgroup without a limit also holds memory left behind by earlier programs, which reaches no bound.
        """
        return self.owned and any(level.limit_bytes is not None for level in self.levels)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A process beside the trainer's own tree that uses memory of its cgroup."""

    pid: int
    name: str  # printable
    bytes: int  # its anonymous memory
    member: str = ""  # why it belongs to the trainer's job: "fork", "environment" ...; empty: it does not


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The processes beside the trainer's own tree in the cgroup whose limit is the nearest."""

    cgroup: str  # its path
    others_bytes: int  # anonymous memory of the processes that are not of the trainer's job
    others: int  # how many these are
    members_bytes: int  # the same of those that belong to its job, but are no descendants
    members: int
    largest: tuple[Neighbour, ...] = ()  # the largest few, the largest first


@dataclass(frozen=True, slots=True)
class HostMemory:
    """/proc/meminfo."""

    total_bytes: int
    available_bytes: int
    swap_free_bytes: int


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """One GPU (or MIG instance) that the trainer uses."""

    resource: str  # "gpu0" ...: the index that NVML gives the device
    uuid: str
    name: str
    used_bytes: int | None  # the trainer's own share; None when it cannot be separated
    device_used_bytes: int | None  # allocated on the device by anybody
    total_bytes: int | None
    attribution: str  # "exact", "nspid", "device", "unified" or "unavailable"
    reason: str = ""  # why a figure is None, where that is known
    pids: tuple[int, ...] = ()  # of the trainer's processes that are known to use it


@dataclass(frozen=True, slots=True)
class TmpfsMemory:
    """One tmpfs that the trainer can fill, such as /dev/shm, with everybody's files in it.

    An inode counts as its share of the bytes where inodes run out first.
    """

    resource: str  # its mount point, printable
    used_bytes: int
    peak_bytes: int  # the most in use within the latest minutes: batches come and go, and their peak must fit
    total_bytes: int  # its limit, by the mount option size=


@dataclass(frozen=True, slots=True)
class SchedulerLimit:
    """The memory that a batch scheduler allows the job on this node, as it told the job."""

    scheduler: str  # "Slurm"
    bytes: int


@dataclass(frozen=True, slots=True)
class Limit:
    """The bound that a resource reaches first, and the headroom below it."""

    bytes: int  # the bound itself, as its owner set it
    origin: str  # "cgroup /a/b", "host", "rlimit_as", "rlimit_data", "--limit", "Slurm", "gpu0", "/dev/shm", "trace"
    headroom_bytes: int  # that can still be allocated; negative when the bound is exceeded


@dataclass(frozen=True, slots=True)
class Usage:
    """One pool of memory that can run out, as the trainer uses it."""

    resource: str
    used_bytes: int
    limit: Limit | None  # None: unknown at this time


@dataclass(frozen=True, slots=True)
class UnavailableSource:
    """A source that could not be read this time, and why."""

    source: str
    reason: str
    absent: bool = False  # it does not exist on this machine, which is normal


@dataclass(frozen=True, slots=True)
class Sample:
    """All readings of the trainer's memory at one time. Usages and accounting are derived from the others.

    A GPU is among the `usages` only with a new reading, and among the `gpus` with its latest.
    """

    usages: tuple[Usage, ...]
    tree: TreeMemory | None = None
    cgroup: CgroupMemory | None = None
    host: HostMemory | None = None
    gpus: tuple[GpuMemory, ...] = ()
    unread: tuple[UnavailableSource, ...] = ()
    accounting: str | None = None  # how the use of main memory was found (core.memory_accounting); None: not known
    tmpfs: tuple[TmpfsMemory, ...] = ()
