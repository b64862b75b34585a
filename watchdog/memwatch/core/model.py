"""The nouns: every record that flows between sources, engine, history and outputs.

All records are frozen. Times (`t`) are float seconds of the daemon's clock (Unix time at its start, then monotonic;
a trace's own seconds in a replay). Memory is int bytes. Unknown is None, never 0 or -1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from memwatch.core.examination import Diagnosis, Examination

HOST = "host"  # the resource name of main memory; GPUs are "gpu0", "gpu1" ...


# --- who is watched -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """The identity of a process: a PID alone is recycled, these three together never are."""

    boot_id: str
    pid: int
    start_ticks: int  # field 22 of /proc/PID/stat, clock ticks since boot


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Which part of which run is watched: what Prometheus joins the nodes of a job by."""

    run_id: str  # the same on every node of a job; empty: not known
    node: str
    rank: int | None = None  # of the trainer itself; None: it is no rank, or an agent with ranks below it
    nodes: int | None = None  # that the run has; None: nothing says so


# --- what is measured ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SurveyCost:
    """What telling shared pages from own ones has cost memwatch so far."""

    visits: int = 0
    refused: int = 0  # visits that were not permitted
    pages: int = 0  # looked at
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
class TreeMemory:
    """Memory of the trainer and its descendants, shared pages counted once."""

    processes: int
    rss_bytes: int  # the trainer's own process, as top shows it
    used_bytes: int  # the whole tree
    accounting: str  # how used_bytes came about: "rss" (one process), "pages", "anon+shmem" (see core.sharing)
    anon_bytes: int | None = None  # of the whole tree, as the next two
    file_bytes: int | None = None
    shmem_bytes: int | None = None
    swap_bytes: int | None = None
    virtual_bytes: int | None = None  # VmSize of the trainer's process, what RLIMIT_AS bounds
    data_bytes: int | None = None  # VmData of the trainer's process, what RLIMIT_DATA bounds
    rlimit_as_bytes: int | None = None
    rlimit_data_bytes: int | None = None
    error_bytes: int | None = None  # standard error of used_bytes where pages were sampled
    cow_bytes: int | None = None  # inherited pages that were copied since the fork; None: nobody could look
    cow_bytes_per_second: float | None = None
    reason: str = ""  # why pages could not be sampled, where that is so
    survey_cost: SurveyCost = SurveyCost()
    ranks: tuple[RankMemory, ...] = ()  # below an agent such as torchrun, by rank


@dataclass(frozen=True, slots=True)
class CgroupLevel:
    """One memory cgroup on the way from the trainer's own up to the root."""

    path: str  # as in /proc/PID/cgroup, "/" for the root
    usage_bytes: int
    reclaimable_bytes: int  # page cache that the kernel gives back before it kills: inactive_file + active_file
    limit_bytes: int | None  # None: no limit at this level

    @property
    def charged_bytes(self) -> int:
        """What the kernel cannot give back: the usage without the page cache."""
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
        """Its usage is what the job uses: it is the job's own and somebody set a limit, at any level.

        A session's cgroup without a limit also holds what earlier programs left behind, which concerns no bound.
        """
        return self.owned and any(level.limit_bytes is not None for level in self.levels)


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
    used_bytes: int | None  # the trainer's own share; None when it cannot be told apart
    device_used_bytes: int | None  # all that is allocated on the device, by anybody
    total_bytes: int | None
    attribution: str  # "exact", "nspid", "device", "unified" or "unavailable"
    reason: str = ""  # why a figure is None, where that is known
    pids: tuple[int, ...] = ()  # of the trainer's processes that are known to use it


@dataclass(frozen=True, slots=True)
class Limit:
    """The bound that a resource meets first, and the room that is left below it."""

    bytes: int  # the bound itself, as its owner set it
    origin: str  # "cgroup /a/b", "host", "rlimit_as", "rlimit_data", "--limit", "gpu0", "trace"
    headroom_bytes: int  # what can still be allocated before it is met; negative when it is exceeded


@dataclass(frozen=True, slots=True)
class Usage:
    """One pool of memory that can run out, as the trainer uses it."""

    resource: str
    used_bytes: int
    limit: Limit | None  # None: unknown at this time


@dataclass(frozen=True, slots=True)
class Unread:
    """A source that gave nothing this time, and why."""

    source: str
    reason: str
    absent: bool = False  # it does not exist on this machine, which is normal


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything that one look at the trainer's memory gave. `usages` is derived from the rest (core.accounting).

    A GPU is among the `usages` when its reading is a new one, and among the `gpus` until there is another.
    """

    usages: tuple[Usage, ...]
    tree: TreeMemory | None = None
    cgroup: CgroupMemory | None = None
    host: HostMemory | None = None
    gpus: tuple[GpuMemory, ...] = ()
    unread: tuple[Unread, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnose:
    """Examine the trainer, in a process that gives way to all others. An action; its outcome is told with it."""

    t: float
    reason: str  # "generation", "phase", "middle" (of a generation), "time", "warn", "request", "rise"
    generation: float | None  # under way, as the program counts
    phase: str | None  # under way
    used_bytes: int | None  # of main memory
    memory_bytes: int  # that the examination may take
    types: tuple[str, ...] = ()  # of which it is to tell who holds their objects, besides those it chooses itself
    paths: tuple[str, ...] = ()  # of which it is to tell the size, besides those that it finds itself
    gpu_bytes: int | None = None  # of all GPUs, used by the trainer; None: there is none, or it is not known
    record_seconds: float = 0.0  # follow memory for so long, to see which code raises it, and do nothing else
    cow_bytes: int = 0  # copied by forked workers, so far


# --- events: all that the engine is told --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attached:
    """A watch begins: the first trainer process of a run, or its successor after a restart."""

    t: float
    target: Target
    command: str  # printable, escaped
    run_id: str = ""
    remarks: tuple[str, ...] = ()  # what the user should know of this watch, a line each
    run: RunIdentity | None = None  # None: stored by a memwatch that did not look


@dataclass(frozen=True, slots=True)
class Sampled:
    """One look at memory."""

    t: float
    sample: Sample


@dataclass(frozen=True, slots=True)
class Series:
    """Readings of one pool, one after the other, under one limit."""

    resource: str
    used: Sequence[int]  # bytes
    limit_bytes: int | None
    origin: str
    taken: Sequence[int] | None = None  # of the limit, by anybody; None: nobody else takes any

    def usage(self, i: int) -> Usage:
        """The reading of this index."""
        used, limit = self.used[i], self.limit_bytes
        if limit is None:
            return Usage(self.resource, used, None)
        taken = used if self.taken is None else self.taken[i]
        return Usage(self.resource, used, Limit(limit, self.origin, limit - taken))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Recorded looks at memory one after the other, between which nothing else was told."""

    times: Sequence[float]  # seconds, in order
    pools: tuple[Series, ...]  # each of as many readings

    def sampled(self, i: int) -> Sampled:
        """The look of this index."""
        return Sampled(self.times[i], Sample(tuple(series.usage(i) for series in self.pools)))


@dataclass(frozen=True, slots=True)
class GenerationSeen:
    """The log names a generation (epoch, iteration ...). `index` counts as the program counts."""

    t: float
    index: float
    total: int | None = None
    unit: str = "generation"
    at: str = "start"  # "start": the work of `index` begins; "end": it has ended; "progress": it is under way
    before_watch: bool = False  # the marker was there before the watch: when it was printed is not known


@dataclass(frozen=True, slots=True)
class TotalSeen:
    """The log says how many generations there will be, apart from any marker."""

    t: float
    total: int


@dataclass(frozen=True, slots=True)
class PhaseSeen:
    """The log names a phase within a generation; at "end" the phase is over and none is known until the next."""

    t: float
    phase: str
    at: str = "start"


@dataclass(frozen=True, slots=True)
class GaugeSeen:
    """The log prints a level, such as `Replay Buffer: 15,680 / 50,000`."""

    t: float
    name: str
    value: float
    capacity: float | None = None


@dataclass(frozen=True, slots=True)
class CheckpointSeen:
    """A checkpoint is being written, or is complete; from the log or from the file system."""

    t: float
    state: str  # "writing" or "saved"
    evidence: str  # "log: Checkpoint saved: ckpt.pt", "file: /runs/ckpt.pt, 12.1 MB, still for 2.0 s"
    seconds: float | None = None  # that writing it took, where its witness saw that


@dataclass(frozen=True, slots=True)
class OutOfMemorySeen:
    """The log shows that an allocation failed."""

    t: float
    kind: str  # "MemoryError" or "CUDA out of memory"
    line: str


@dataclass(frozen=True, slots=True)
class SourceChanged:
    """A source began to fail or works again (told once per change)."""

    t: float
    source: str
    ok: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Awaiting:
    """There is no trainer to watch, and why (told when it begins to be so, and once per change)."""

    t: float
    reason: str


@dataclass(frozen=True, slots=True)
class ArmedChanged:
    """A signal would reach the trainer from now on, or would not, and why (told at the attach, and once per change)."""

    t: float
    armed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Signalled:
    """memwatch sent (or, in a dry run, would have sent) a signal to the trainer, started the hook, or both."""

    t: float
    signal: str  # "SIGINT"
    dry_run: bool = False
    error: str = ""  # why it could not be sent
    hook: str = ""  # the command that was started with it
    instead: bool = False  # the hook took its place, and no signal was sent


@dataclass(frozen=True, slots=True)
class HookRan:
    """The hook has ended, was ended, or could not be started."""

    t: float
    command: str  # printable
    status: int | None  # with which it ended; None: not by itself
    seconds: float  # that it took
    error: str = ""  # what went wrong: "status 3"; empty: nothing, or it fell to the signal that it brought about
    output: str = ""  # its first line, printable


class Cause(str, Enum):
    """How a trainer ended. Never a guess: UNKNOWN where the evidence does not say."""

    COMPLETED = "completed"  # ended by itself, status 0
    FAILED = "failed"  # ended by itself, another status
    SAVED = "interrupted_saved"  # memwatch interrupted it and a clean checkpoint was seen
    UNSAVED = "interrupted_unsaved"  # memwatch interrupted it, and it ended without such evidence or was escalated
    OOM_CGROUP = "oom_cgroup"  # the kernel's OOM killer, at a cgroup's limit
    OOM_HOST = "oom_host"  # the kernel's OOM killer, host out of memory
    MEMORY_ERROR = "memory_error"  # Python's MemoryError ended it
    CUDA_OOM = "cuda_oom"  # a GPU allocation failed and ended it
    SIGNALLED = "signalled"  # another signal, not ours
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ExaminationAsked:
    """Somebody wants to know now what the trainer holds."""

    t: float


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """What the trainer holds was kept in a file, because somebody asked for it; or it could not be."""

    t: float
    label: str
    path: str
    reason: str = ""  # why there is none


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """An examination that was asked for has ended."""

    t: float
    asked: Diagnose
    found: Examination


@dataclass(frozen=True, slots=True)
class Exited:
    """The trainer is gone."""

    t: float
    cause: Cause
    evidence: tuple[str, ...] = ()
    exit_code: int | None = None
    signal: str | None = None


@dataclass(frozen=True, slots=True)
class Restarting:
    """The trainer that was interrupted and saved will be started again."""

    t: float
    number: int  # of the restart, from 1
    most: int | None  # restarts that are allowed; None: as many as gain something
    after_seconds: float
    command: str  # printable


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The trainer that was interrupted and saved is not started again."""

    t: float
    restarts: int  # so far
    reason: str


Event = (
    Attached
    | Sampled
    | GenerationSeen
    | TotalSeen
    | PhaseSeen
    | GaugeSeen
    | CheckpointSeen
    | OutOfMemorySeen
    | SourceChanged
    | Awaiting
    | ArmedChanged
    | Signalled
    | HookRan
    | ExaminationAsked
    | SnapshotTaken
    | Diagnosed
    | Exited
    | Restarting
    | GaveUp
)


# --- actions: all that the engine asks for ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell people and machines, once. `fields` are JSON-ready and use replay's names."""

    t: float
    event: str  # attached, marker, generation, forecast, warn, interrupt, held, saved, escalated, source_failed ...
    text: str  # one line for people
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Interrupt the trainer now: by the first signal of its signal plan, by the hook, or both."""

    t: float
    resource: str
    reason: str
    emergency: bool = False
    by_signal: bool = False  # by the signal alone: the hook has had its turn


@dataclass(frozen=True, slots=True)
class Escalate:
    """The interrupt had no effect in time: send this stronger signal."""

    t: float
    signal: str  # "SIGTERM" or "SIGKILL"
    reason: str


Action = Notice | Interrupt | Escalate | Diagnose


# --- what the engine knows ----------------------------------------------------------------------------------------


class Verdict(str, Enum):
    """What the growth of a resource looks like."""

    WARMING_UP = "warming_up"
    STABLE = "stable"
    PLATEAU = "plateau"
    GROWING = "growing"
    LEAK = "leak"


@dataclass(frozen=True, slots=True)
class Trend:
    """Growth of a resource, with the model that was chosen for it."""

    model: str  # "linear", "saturating", "flat" ...
    growth_per_second: float  # bytes/s, now
    growth_per_generation: float | None  # bytes, None without markers
    confidence: float  # 0..1, how well the model explains the samples
    weight: float = 1.0  # 0..1, how much it is believed among the models that were compared
    points: int = 0  # generations (or equal stretches of time, without markers) that it rests on: the latest
    since_generation: float | None = None  # the first of them, as the program counts


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a resource meets its limit. None in eta_seconds: not in sight."""

    eta_seconds: float | None
    eta_low_seconds: float | None  # 5 % of the outcomes are earlier
    eta_high_seconds: float | None  # 5 % are later; None: it may never happen
    generation: float | None = None  # in which it falls, as the program counts
    generation_low: float | None = None
    generation_high: float | None = None
    finishes: bool | None = None  # the run reaches its last generation first; None when the total is unknown

    def after(self, seconds: float) -> Forecast:
        """The same, so much later."""
        times = (self.eta_seconds, self.eta_low_seconds, self.eta_high_seconds)
        eta, low, high = (None if t is None else max(0.0, t - seconds) for t in times)
        return Forecast(eta, low, high, self.generation, self.generation_low, self.generation_high, self.finishes)


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One phase within a generation."""

    phase: str
    start_t: float
    end_t: float | None
    delta_bytes: int
    peak_bytes: int
    end_bytes: int = 0  # at its end, or now


@dataclass(frozen=True, slots=True)
class GenerationRow:
    """One generation of the ledger, for one resource. An open one has end_t None and its figures up to now."""

    index: float
    attempt: int  # 0 for the first trainer process of the run, then 1 ...
    start_t: float
    end_t: float | None
    start_bytes: int
    end_bytes: int
    peak_bytes: int
    phases: tuple[PhaseRow, ...] = ()
    partial: bool = False  # the watch saw only a part of it (began or ended within it): its delta is not a generation's

    @property
    def delta_bytes(self) -> int:
        """Growth from the start of the generation to its end (or to now)."""
        return self.end_bytes - self.start_bytes


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a watch."""

    t: float  # at which it began
    seconds: float
    least_bytes: int  # in use
    most_bytes: int


@dataclass(frozen=True, slots=True)
class ResourceView:
    """All that is known of one resource."""

    usage: Usage
    baseline_bytes: int  # first reading of this attempt
    peak_bytes: int
    verdict: Verdict
    trend: Trend | None
    forecast: Forecast | None
    generations: tuple[GenerationRow, ...]  # oldest first; the last may be open
    timeline: tuple[Step, ...] = ()  # of the whole watch
    warned: bool = False  # people are told that the limit is near


@dataclass(frozen=True, slots=True)
class Gauge:
    """The latest value of a log gauge, or of what fills up in the trainer's heap."""

    name: str
    value: float
    capacity: float | None
    t: float
    seldom: bool = False  # told at examinations alone


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """Whether a source works; `reason` says why not."""

    source: str
    ok: bool
    reason: str
    since_t: float


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the user expects of the run, and what came of it."""

    text: str
    met: bool | None = None  # at the latest look; None: there was none yet
    breaches: int = 0  # looks at which it was not
    first: str = ""  # what was seen at the first of them
    latest: str = ""  # what was seen at the latest look


class State(str, Enum):
    """Where the engine stands between watching and the end."""

    WATCHING = "watching"
    WARNED = "warned"
    INTERRUPTING = "interrupting"  # signal sent, waiting for the checkpoint
    SAVED = "saved"  # the checkpoint was seen
    ESCALATED = "escalated"
    ENDED = "ended"
    WAITING = "waiting"  # for a trainer


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The one thing that outputs read. Immutable."""

    t: float
    sentence: str
    state: State
    target: Target | None
    command: str
    run_id: str
    attempt: int
    started_t: float | None
    unit: str
    generation: float | None
    total: int | None
    phase: str | None
    sample: Sample | None
    sample_t: float | None
    resources: tuple[ResourceView, ...]
    gauges: tuple[Gauge, ...]
    sources: tuple[SourceHealth, ...]
    notices: tuple[Notice, ...]  # the latest, oldest first
    diagnosis: Diagnosis | None  # None: the trainer was not examined
    expectations: tuple[Expectation, ...]
    checkpoint_t: float | None  # last complete checkpoint
    checkpoint_seconds: float  # what a checkpoint is taken to need
    checkpoint_origin: str  # "configured", "measured", "assumed"
    pace_seconds: float  # how soon the next sample should be taken, at most
    unarmed: str | None  # why no interrupt would reach the trainer now; None: it would
    exited: Exited | None
    warn_horizon_seconds: float | None = None  # how far ahead people are told; None: another memwatch did not say
    run: RunIdentity | None = None  # None: another memwatch did not say

    @property
    def up(self) -> bool:
        """The trainer runs."""
        return self.target is not None and self.exited is None
