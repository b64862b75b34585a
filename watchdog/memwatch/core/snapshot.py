"""The engine's state as all outputs read it. Units are those of `core.measurements`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from memwatch.core.events import Exited, Notice
from memwatch.core.examination import Diagnosis, GrowthDriver
from memwatch.core.measurements import Neighbour, Neighbours, RunIdentity, Sample, SignalHandling, Target, Usage


class Verdict(str, Enum):
    """The classification of a resource's growth."""

    WARMING_UP = "warming_up"
    STABLE = "stable"
    PLATEAU = "plateau"
    GROWING = "growing"
    LEAK = "leak"

    @property
    def stands_still(self) -> bool:
        return self in (Verdict.STABLE, Verdict.PLATEAU)


class Severity(str, Enum):
    """How a run stands, from its forecast; in order, from what needs nobody to what needs somebody now."""

    FITS = "fits"
    WATCHING = "watching"  # too little is known, or growth has no end that is known
    WILL_NOT_FIT = "will_not_fit"
    ABOUT_TO_INTERRUPT = "about_to_interrupt"  # within a generation
    INTERRUPTING = "interrupting"
    ENDED_WELL = "ended_well"  # it completed
    ENDED_BADLY = "ended_badly"


@dataclass(frozen=True, slots=True)
class Trend:
    """Growth of a resource, with the model that was chosen for it."""

    model: str  # "linear", "saturating", "flat" ...
    growth_per_second: float  # bytes/s, now
    growth_per_generation: float | None  # bytes, None without markers
    confidence: float  # 0..1, how well the model explains the samples
    weight: float = 1.0  # 0..1, of this model among those that were compared
    points: int = 0  # latest generations (or equal intervals of time, without markers) that it was fitted to
    since_generation: float | None = None  # the first of them, as the program counts


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a resource reaches its limit. None in eta_seconds: not in sight."""

    eta_seconds: float | None
    eta_low_seconds: float | None  # 5th percentile
    eta_high_seconds: float | None  # 95th percentile; None: the limit may never be reached
    generation: float | None = None  # in which it is reached, as the program counts
    generation_low: float | None = None
    generation_high: float | None = None
    finishes: bool | None = None  # the run reaches its last generation first; None when the total is unknown

    def after(self, seconds: float) -> Forecast:
        """Return the same forecast, as it reads `seconds` later."""
        times = (self.eta_seconds, self.eta_low_seconds, self.eta_high_seconds)
        eta, low, high = (None if t is None else max(0.0, t - seconds) for t in times)
        return Forecast(eta, low, high, self.generation, self.generation_low, self.generation_high, self.finishes)


@dataclass(frozen=True, slots=True)
class MemoryNeeded:
    """The most memory that the run uses until it ends, bytes; with a limit below this it does not finish."""

    bytes: int
    low_bytes: int  # 5th percentile
    high_bytes: int | None  # 95th percentile; None: growth may go on without an end


@dataclass(frozen=True, slots=True)
class PlannedInterrupt:
    """When the trainer will be interrupted because of a resource, if all goes on as forecast."""

    seconds: float | None  # None: it will not be
    generation: float | None  # that is under way then; None: not known
    reason: str = ""  # why it will not be

    def after(self, seconds: float) -> PlannedInterrupt:
        """Return the same plan, as it reads `seconds` later."""
        left = None if self.seconds is None else max(0.0, self.seconds - seconds)
        return PlannedInterrupt(left, self.generation, self.reason)


@dataclass(frozen=True, slots=True)
class NeighbourGrowth:
    """Growth of the memory beside the trainer's own tree, in bytes/s."""

    others_per_second: float  # of processes that are not of its job
    members_per_second: float  # of processes of its job that are no descendants
    largest_other: Neighbour | None  # the one that grows the most; None: none of the largest few grows
    largest_member: Neighbour | None

    @property
    def per_second(self) -> float:
        return max(0.0, self.others_per_second) + max(0.0, self.members_per_second)

    @property
    def whose(self) -> str:
        """`others: ray::worker (pid 123)`, or `workers that are no children: ...`."""
        if self.members_per_second > self.others_per_second:
            who, largest = "workers that are no children", self.largest_member
        else:
            who, largest = "others", self.largest_other
        return who if largest is None else f"{who}: {largest.name} (pid {largest.pid})"


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One phase within a generation."""

    phase: str
    start_t: float
    end_t: float | None
    delta_bytes: int
    peak_bytes: int
    end_bytes: int = 0  # at its end, or now
    unclear_bytes: int = 0  # of delta_bytes: up to the first reading, which may be of the phase before


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
    partial: bool = False  # the watch began or ended within it: its delta is not that of a whole generation

    @property
    def delta_bytes(self) -> int:
        return self.end_bytes - self.start_bytes


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """The range of memory in use during an interval of the watch."""

    t: float  # its start
    seconds: float
    least_bytes: int
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
    timeline: tuple[TimelineStep, ...] = ()  # of the whole watch
    warned: bool = False  # a warning says that the limit is near
    drivers: tuple[GrowthDriver, ...] = ()  # the gauge that explains its growth, if one does
    neighbour_growth: NeighbourGrowth | None = None  # of it; None: there are no neighbours, or it is not known yet
    others_per_second: float = 0.0  # bytes of the limit that others take, where that decides when it is reached
    needed: MemoryNeeded | None = None  # None: no end of its growth is known
    planned: PlannedInterrupt | None = None  # None: of a memwatch before it had one
    severity: Severity = Severity.WATCHING


@dataclass(frozen=True, slots=True)
class Gauge:
    """The latest value of a log gauge, or the fill level of a buffer in the trainer's heap."""

    name: str
    value: float
    capacity: float | None
    t: float
    seldom: bool = False  # measured by examinations only
    in_bytes: bool = False  # it counts bytes, not items
    unit_bytes: float | None = None  # that one item holds, as it was measured; None: not known


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """Whether a source works; `reason` says why not."""

    source: str
    ok: bool
    reason: str
    since_t: float


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expectation of the user, and its outcome so far."""

    text: str
    met: bool | None = None  # at the latest check; None: it was not checked yet
    breaches: int = 0  # checks that failed
    first: str = ""  # the value at the first of them
    latest: str = ""  # the value at the latest check


class WatchState(str, Enum):
    """The state of a watch."""

    WATCHING = "watching"
    WARNED = "warned"
    INTERRUPTING = "interrupting"  # signal sent, waiting for the checkpoint
    SAVED = "saved"  # the checkpoint was seen
    ESCALATED = "escalated"
    ENDED = "ended"
    WAITING = "waiting"  # for a trainer


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """Another run of the same program in the history."""

    run_id: str
    begun_t: float
    seconds: float  # that it was watched
    cause: str  # how it ended, a `Cause`; empty while it goes on, and where nobody saw its end


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole published state: the only thing that outputs read."""

    t: float
    sentence: str
    state: WatchState
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
    checkpoint_seconds: float  # estimated duration of a checkpoint
    checkpoint_origin: str  # of that estimate: "configured", "measured", "assumed"
    pace_seconds: float  # the longest time until the next sample
    unarmed: str | None  # why no interrupt would reach the trainer now; None: it would
    exited: Exited | None
    warn_horizon_seconds: float | None = None  # a limit within this is warned of; None: a memwatch before it had one
    run: RunIdentity | None = None  # None: of a memwatch before it had one
    signal_handling: SignalHandling | None = None  # None: not looked at
    neighbours: Neighbours | None = None  # beside the trainer's tree in its cgroup; None: there are none
    severity: Severity = Severity.WATCHING
    generation_origin: str = ""  # what tells the generation where that is not the log
    run_end_t: float | None = None  # when the run's last generation ends at the present pace; None: not known
    last_generation: float | None = None  # of the run, as the program counts; None: not known
    is_examining: bool = False  # the trainer is examined now, or will be as soon as the budget permits

    @property
    def up(self) -> bool:
        """Whether the trainer runs."""
        return self.target is not None and self.exited is None

    @property
    def planned(self) -> PlannedInterrupt | None:
        """The plan that interrupts first; where none does, the plan of the first resource, which says why."""
        plans = [view.planned for view in self.resources if view.planned is not None]
        return min(plans, key=lambda plan: math.inf if plan.seconds is None else plan.seconds, default=None)
