"""The events that the engine receives and the actions that it requests. Units are those of `core.measurements`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from memwatch.core.examination import Diagnose, Examination
from memwatch.core.measurements import Limit, Neighbours, RunIdentity, Sample, SignalHandling, Target, Usage

# --- actions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Notice:
    """A message for people and machines, once. `fields` are JSON-ready and use replay's names."""

    t: float
    event: str  # attached, marker, generation, forecast, warn, interrupt, deferred, saved, escalated, source_failed ...
    text: str  # one line for people
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Interrupt the trainer now: by the first signal of its signal plan, by the hook, or both."""

    t: float
    resource: str
    reason: str
    emergency: bool = False
    by_signal: bool = False  # by the signal alone: the hook was tried before


@dataclass(frozen=True, slots=True)
class Escalate:
    """The interrupt had no effect in time: send this stronger signal."""

    t: float
    signal: str  # "SIGTERM" or "SIGKILL"
    reason: str


Action = Notice | Interrupt | Escalate | Diagnose


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attached:
    """A watch begins: the first trainer process of a run, or its successor after a restart."""

    t: float
    target: Target
    command: str  # printable, escaped
    run_id: str = ""
    remarks: tuple[str, ...] = ()  # for the user to know of this watch, a line each
    run: RunIdentity | None = None  # None: stored by a memwatch that did not record it
    age_seconds: float = 0.0  # for how long the process has run; 0: not known


@dataclass(frozen=True, slots=True)
class Sampled:
    """Memory was sampled."""

    t: float
    sample: Sample


@dataclass(frozen=True, slots=True)
class NeighboursSeen:
    """Processes beside the trainer's own tree use memory of its cgroup (reported when it has changed)."""

    t: float
    neighbours: Neighbours


@dataclass(frozen=True, slots=True)
class GenerationSeen:
    """The log or the program's memory names a generation (epoch, iteration ...). `index` is as the program counts."""

    t: float
    index: float
    total: int | None = None
    unit: str = "generation"
    at: str = "start"  # "start": the work of `index` begins; "end": it has ended; "progress": it is under way
    before_watch: bool = False  # the marker was printed before the watch, at an unknown time
    recount: bool = False  # another counter is the clock from here on: what was counted before were no generations
    remaining_seconds: float | None = None  # of the run, as its line says where it says no total
    origin: str = ""  # what tells it where that is not the log: "TrainerState.global_step"
    first: float | None = None  # the number of the run's first generation, where it is known: 0 or 1


@dataclass(frozen=True, slots=True)
class TotalSeen:
    """The log says how many generations there will be, in a line without a marker."""

    t: float
    total: int


@dataclass(frozen=True, slots=True)
class PhaseSeen:
    """The log names a phase within a generation; after its "end" no phase is known until the next."""

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
    state: str  # "writing", "saved", or "dropped": what was being written is no checkpoint
    evidence: str  # "log: Checkpoint saved: ckpt.pt", "file: /runs/ckpt.pt, 12.1 MB, still for 2.0 s"
    seconds: float | None = None  # that writing took; None: not known
    before_watch: bool = False  # it was begun before the watch, at an unknown time
    still_seconds: float = 0.0  # for which it has been complete
    path: str = ""  # of its largest file; empty: not known
    before_signal: bool = False  # it was complete before memwatch's signal was sent, though it is reported after it


@dataclass(frozen=True, slots=True)
class OutOfMemorySeen:
    """The log shows that an allocation failed, or that a scheduler kills at its limit."""

    t: float
    kind: str  # "MemoryError", "CUDA out of memory", "shared memory full", "Slurm memory limit", "PBS memory limit"
    line: str


@dataclass(frozen=True, slots=True)
class SourceChanged:
    """A source began to fail, works again, or reads another thing, its `reason` (reported once per change)."""

    t: float
    source: str
    ok: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Awaiting:
    """There is no trainer to watch, and why (reported once per change)."""

    t: float
    reason: str


@dataclass(frozen=True, slots=True)
class ArmedChanged:
    """Whether a signal would reach the trainer, and why not (reported at the attach and once per change)."""

    t: float
    armed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SignalHandlingSeen:
    """It was looked up whether the trainer handles the signal of an interrupt; a later look may say otherwise."""

    t: float
    handling: SignalHandling


@dataclass(frozen=True, slots=True)
class Signalling:
    """A signal is about to be sent, or the hook to be started in its place; stored before that happens.

    Where no Signalled follows, memwatch ended in between, and it is not known whether the signal was sent.
    """

    t: float
    signal: str  # "SIGINT"
    hook: str = ""  # the command that replaces the signal
    instead: bool = False  # the hook replaces the signal, and none is sent

    @property
    def signal_or_hook(self) -> str:
        return _signal_or_hook(self)


@dataclass(frozen=True, slots=True)
class Signalled:
    """memwatch sent (or, in a dry run, would have sent) a signal to the trainer, started the hook, or both."""

    t: float
    signal: str  # "SIGINT"
    dry_run: bool = False
    error: str = ""  # why it could not be sent
    hook: str = ""  # the command that was started with it
    instead: bool = False  # the hook replaced the signal, and none was sent

    @property
    def signal_or_hook(self) -> str:
        return _signal_or_hook(self)


def _signal_or_hook(event: Signalling | Signalled) -> str:
    return f"the hook {event.hook}" if event.instead else event.signal


@dataclass(frozen=True, slots=True)
class HookRan:
    """The hook has ended, was ended, or could not be started."""

    t: float
    command: str  # printable
    status: int | None  # its exit status; None: it did not end by itself
    seconds: float  # that it took
    error: str = ""  # "status 3"; empty if it succeeded, or was killed by the signal that it sent itself
    output: str = ""  # its first line, printable


class Cause(str, Enum):
    """How a trainer ended. Never a guess: UNKNOWN where the evidence does not say."""

    COMPLETED = "completed"  # ended by itself, status 0
    FAILED = "failed"  # ended by itself, another status
    SAVED = "interrupted_saved"  # memwatch interrupted it, and a clean checkpoint was seen after or just before that
    UNSAVED = "interrupted_unsaved"  # memwatch interrupted it, and it ended without such evidence
    OOM_CGROUP = "oom_cgroup"  # the kernel's OOM killer, at a cgroup's limit
    OOM_HOST = "oom_host"  # the kernel's OOM killer, host out of memory
    OOM_SCHEDULER = "oom_scheduler"  # the batch scheduler, at the job's limit, as the log says
    TMPFS_FULL = "tmpfs_full"  # a full tmpfs, such as /dev/shm: SIGBUS, or as the log says
    MEMORY_ERROR = "memory_error"  # an allocation of main memory failed and ended it: MemoryError, bad_alloc
    CUDA_OOM = "cuda_oom"  # a GPU allocation failed and ended it
    ACCELERATOR_OOM = "accelerator_oom"  # the same on another accelerator: TPU, ROCm, Apple's, NPU
    OOM_MONITOR = "oom_monitor"  # a memory monitor killed it or a part of it: Ray's, systemd-oomd, earlyoom
    WORKER_KILLED = "worker_killed"  # one of its workers was killed, and it failed for that
    ENDED_BY_SCHEDULER = "ended_by_scheduler"  # at its time limit, preempted, or its node failed, as the log says
    SIGNALLED = "signalled"  # another signal, not ours
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ExaminationAsked:
    """A user asked for an examination of the trainer now."""

    t: float


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A snapshot of the trainer's heap, which a user asked for, was written to a file, or could not be."""

    t: float
    label: str
    path: str
    reason: str = ""  # why there is no file


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """An examination that was asked for has ended."""

    t: float
    asked: Diagnose
    found: Examination


@dataclass(frozen=True, slots=True)
class LastCheckpoint:
    """The latest complete checkpoint that is on disk when the trainer has ended, and the work that is lost without it.

    What was computed after it is lost: until memwatch's last signal, or else until the end.
    """

    evidence: str  # as of CheckpointSeen
    path: str  # of its largest file; empty: only the log tells of it
    age_seconds: float  # at the end
    lost_seconds: float
    generation: float | None = None  # that was under way when it was complete
    lost_generations: float | None = None
    unit: str = "generation"


@dataclass(frozen=True, slots=True)
class Exited:
    """The trainer is gone."""

    t: float
    cause: Cause
    evidence: tuple[str, ...] = ()
    exit_code: int | None = None
    signal: str | None = None
    checkpoint: LastCheckpoint | None = None  # None: there is none on disk that memwatch saw
    log_tail: tuple[str, ...] = ()  # the last lines of the log, printable; empty when it completed


@dataclass(frozen=True, slots=True)
class Restarting:
    """The trainer that was interrupted and saved will be started again."""

    t: float
    number: int  # of the restart, from 1
    most: int | None  # restarts that are allowed; None: any number, as long as each makes progress
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
    | NeighboursSeen
    | GenerationSeen
    | TotalSeen
    | PhaseSeen
    | GaugeSeen
    | CheckpointSeen
    | OutOfMemorySeen
    | SourceChanged
    | Awaiting
    | ArmedChanged
    | SignalHandlingSeen
    | Signalling
    | Signalled
    | HookRan
    | ExaminationAsked
    | SnapshotTaken
    | Diagnosed
    | Exited
    | Restarting
    | GaveUp
)


# --- recorded events --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UsageSeries:
    """Consecutive samples of one resource under one limit."""

    resource: str
    used: Sequence[int]  # bytes
    limit_bytes: int | None
    origin: str
    limit_used: Sequence[int] | None = None  # bytes of the limit that anybody uses; None: as `used`

    def usage_at(self, i: int) -> Usage:
        used, limit = self.used[i], self.limit_bytes
        if limit is None:
            return Usage(self.resource, used, None)
        taken = used if self.limit_used is None else self.limit_used[i]
        return Usage(self.resource, used, Limit(limit, self.origin, limit - taken))

    def continues(self, usage: Usage) -> bool:
        """Whether the usage has the same limit, and the series shows as much of its use as the usage does."""
        limit = usage.limit
        if limit is None or self.limit_bytes is None:
            return limit is None and self.limit_bytes is None
        shows_enough = self.limit_used is not None or limit.headroom_bytes == limit.bytes - usage.used_bytes
        return shows_enough and (limit.bytes, limit.origin) == (self.limit_bytes, self.origin)


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """Consecutive recorded samples, with no other event between them."""

    times: Sequence[float]  # seconds, in order
    series: tuple[UsageSeries, ...]  # each of as many samples
    accounting: str | None = None  # of all of them

    def until(self, t: float) -> SampleBatch:
        """The samples of up to that time; at least one of them must be."""
        count = bisect_right(self.times, t)
        series = [
            replace(one, used=one.used[:count], limit_used=None if one.limit_used is None else one.limit_used[:count])
            for one in self.series
        ]
        return replace(self, times=self.times[:count], series=tuple(series))

    def event_at(self, i: int) -> Sampled:
        usages = tuple([series.usage_at(i) for series in self.series])
        return Sampled(self.times[i], Sample(usages, accounting=self.accounting))


def begin_t(item: Event | SampleBatch) -> float:
    return item.times[0] if isinstance(item, SampleBatch) else item.t
