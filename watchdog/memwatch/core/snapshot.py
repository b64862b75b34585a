"""What the engine knows, as all outputs read it. Units are those of `core.model`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from memwatch.core.events import Exited, Notice
from memwatch.core.examination import Diagnosis
from memwatch.core.measurements import RunIdentity, Sample, Target, Usage


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
class TimelineStep:
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
    timeline: tuple[TimelineStep, ...] = ()  # of the whole watch
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


class WatchState(str, Enum):
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
