"""Events in, actions out: the live state of a watch, and the snapshot that outputs read. No clock."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import ChainMap, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from memwatch.core.checkpoint_timing import CheckpointTracker
from memwatch.core.decision.policy import Policy, warning_horizon_seconds
from memwatch.core.engine import notices
from memwatch.core.engine import status_sentence as words
from memwatch.core.engine.diagnostician import Diagnostician
from memwatch.core.engine.monitored_resource import ForecasterProtocol
from memwatch.core.engine.resource_monitor import ResourceMonitor
from memwatch.core.events import (
    Action,
    ArmedChanged,
    Attached,
    Awaiting,
    CheckpointSeen,
    Diagnosed,
    Event,
    ExaminationAsked,
    Exited,
    GaugeSeen,
    GaveUp,
    GenerationSeen,
    HookRan,
    Notice,
    OutOfMemorySeen,
    PhaseSeen,
    Restarting,
    SampleBatch,
    Sampled,
    Signalled,
    Signalling,
    SnapshotTaken,
    SourceChanged,
    TotalSeen,
)
from memwatch.core.expectations import ExpectationCheck, Expectations
from memwatch.core.forecast.forecaster import Forecaster
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.leaks.examination_schedule import DiagnosisPolicy
from memwatch.core.measurements import CgroupMemory, Limit, RunIdentity, Target
from memwatch.core.restart_policy import AttemptProgress
from memwatch.core.snapshot import Expectation, Gauge, PhaseRow, ResourceView, Snapshot, SourceHealth, WatchState

NOTICES_KEPT = 50  # in the snapshot
FREQUENT = ("marker", "phase", "forecast", "examined", "not_examined")  # which come by the thousand: not among them
GAUGES_KEPT = 16
PHASE_SECONDS = 1.0  # a phase that is longer is told of when it ends
NO_DIAGNOSIS = DiagnosisPolicy(enabled=False)  # of a recording: there is nothing to examine


class Engine:
    """Owns the state of one run. Deterministic: the same events give the same actions and the same snapshot."""

    def __init__(
        self,
        policy: Policy,
        forecaster: Callable[[], ForecasterProtocol] = Forecaster,
        diagnosis: DiagnosisPolicy = NO_DIAGNOSIS,
        expectations: Iterable[ExpectationCheck] = (),
    ) -> None:
        self._policy = policy
        self._t = 0.0
        self._out: list[Action] = []
        self._target: Target | None = None
        self._command = self._run_id = ""
        self._run: RunIdentity | None = None
        self._started_t: float | None = None
        self._exited: Exited | None = None
        self._awaiting: str | None = None  # why there is no trainer
        self._ledger = GenerationLedger()
        self._checkpoints = CheckpointTracker()
        self._own_saves = 0  # checkpoints of this attempt that no signal of memwatch's brought about
        self._gauges: dict[str, Gauge] = {}
        self._diagnostician = Diagnostician(diagnosis, ledger=self._ledger, gauges=self._gauges, act=self._emit)
        self._looks = ResourceMonitor(
            policy,
            forecaster,
            ledger=self._ledger,
            checkpoints=self._checkpoints,
            gauges=ChainMap(self._gauges, self._diagnostician.heap_gauges),
            act=self._emit,
        )
        self._expectations = Expectations(expectations)
        self._sources: dict[str, SourceHealth] = {}
        self._unreachable_reason: str | None = "nothing is known of the way to signal it"
        self._notices: deque[Notice] = deque(maxlen=NOTICES_KEPT)
        self._handlers: dict[type, Callable[[float, Any], None]] = {
            Attached: self._attached,
            Awaiting: self._awaits,
            Sampled: self._sampled,
            GenerationSeen: self._generation_seen,
            TotalSeen: self._total_seen,
            PhaseSeen: self._phase_seen,
            GaugeSeen: self._gauge_seen,
            CheckpointSeen: self._checkpoint_seen,
            OutOfMemorySeen: self._out_of_memory_seen,
            SourceChanged: self._source_changed,
            ArmedChanged: self._armed_changed,
            Signalling: self._looks.signalling,
            Signalled: self._signalled,
            HookRan: self._hook_ran,
            ExaminationAsked: lambda t, event: self._diagnostician.schedule.request_examination("request"),
            SnapshotTaken: lambda t, event: self._emit(notices.snapshot(t, event)),
            Diagnosed: self._diagnosed,
            Exited: self._has_exited,
            Restarting: lambda t, event: self._emit(notices.restarting(t, event)),
            GaveUp: lambda t, event: self._emit(notices.gave_up(t, event)),
        }

    def feed(self, event: Event) -> list[Action]:
        """Take one event; the actions that follow from it, in order. A clock that goes back is held still."""
        self._t = max(self._t, event.t)
        self._out = []
        self._handlers[type(event)](self._t, event)
        return self._out

    def fast_forward(self, stretch: SampleBatch, first: int, judged_from_t: float = -math.inf) -> int:
        """Take the looks from `first` on that can show nothing new; the index of the next, which is to be fed.

        They leave behind what feeding each of them would. So are those before `judged_from_t`, whatever they show:
        only a decision may come later.
        """
        if self._exited is not None or self._target is None or stretch.times[first] < self._t:
            return first
        last = bisect_left(stretch.times, self._diagnostician.next_sample_t, first)
        end = self._looks.fast_forward(stretch, first, last, judged_from_t) if last > first else first
        if end > first:
            self._t = stretch.times[end - 1]
        return end

    def events_to_feed(self, told: Event | SampleBatch, judged_seconds: float = 0.0) -> Iterator[Event]:
        """What of it may show something new, to be fed as it comes; the rest is taken.

        `judged_seconds`: so much apart are looks that are judged, where decisions are not what it is fed for.
        """
        if not isinstance(told, SampleBatch):
            yield told
            return
        i, count, judged_t = 0, len(told.times), -math.inf
        while i < count and (i := self.fast_forward(told, i, judged_t + judged_seconds)) < count:
            judged_t = told.times[i]
            yield told.event_at(i)
            i += 1

    def _emit(self, action: Action) -> None:
        self._out.append(action)
        if isinstance(action, Notice) and action.event not in FREQUENT:
            self._notices.append(action)
            if action.event == "warn":
                self._diagnostician.schedule.request_examination("warn")

    # --- who is watched ---

    def _attached(self, t: float, event: Attached) -> None:
        again = event.target == self._target and self._exited is None
        successor = self._target is not None and event.target != self._target
        self._target, self._exited, self._awaiting = event.target, None, None
        self._sources.clear()  # what an earlier watch could not read is for this one to find out
        self._command, self._run_id = event.command, event.run_id or self._run_id
        self._run = event.run or self._run
        self._diagnostician.begin_attempt(t, anew=successor or self._started_t is None)
        if self._started_t is None:
            self._started_t = t
        if successor:
            self._begin_attempt(t)
        how = "watching again" if again else "the run goes on in a new process" if successor else "watching"
        self._emit(notices.attached(t, event, how, self._ledger.attempt, self._run_id))
        if again:
            self._looks.resume(t)
        for remark in event.remarks:
            self._emit(notices.note(t, remark))

    def _awaits(self, t: float, event: Awaiting) -> None:
        if event.reason != self._awaiting:
            self._awaiting = event.reason
            self._emit(notices.waiting(t, event))

    def _begin_attempt(self, t: float) -> None:
        self._ledger.begin_attempt(t, self._ledger.attempt + 1)
        self._checkpoints.begin_attempt()
        self._own_saves = 0
        self._looks.begin_attempt(t)

    def _has_exited(self, t: float, event: Exited) -> None:
        self._exited = event
        self._ledger.end_attempt(t)
        self._looks.end()
        self._emit(notices.exited(t, event))

    # --- what the log says ---

    def _generation_seen(self, t: float, event: GenerationSeen) -> None:
        if self._exited is not None:
            return
        recounts = self._ledger.index is not None and event.unit != self._ledger.unit
        if recounts:
            self._looks.forget_generations()
        boundary = self._ledger.add_marker(min(t, event.t), event)  # a marker that was told late has its own time
        if boundary is None:
            return
        self._emit(notices.marker(t, event, self._ledger.total))
        self._looks.begin_generation(boundary)
        self._diagnostician.begin_generation(t)
        for resource, row in boundary.closed.items():
            if row.phases and row.phases[-1].end_t == boundary.t:
                self._tell_phase(t, row.index, resource, row.phases[-1])
            self._emit(notices.generation(t, self._ledger.unit, resource, row))
            self._tell_breaches(t, self._expectations.update_generations(resource, self._ledger.closed(resource)))

    def _tell_breaches(self, t: float, broken: Iterable[Expectation]) -> None:
        for one in broken:
            self._emit(notices.breach(t, one))

    def _total_seen(self, t: float, event: TotalSeen) -> None:
        self._ledger.total = event.total
        self._looks.invalidate_outlooks()

    def _phase_seen(self, t: float, event: PhaseSeen) -> None:
        for resource, row in self._ledger.add_phase_marker(t, event).items():
            self._tell_phase(t, self._ledger.index, resource, row)
        self._diagnostician.phase_changed()

    def _tell_phase(self, t: float, index: float | None, resource: str, row: PhaseRow) -> None:
        """One that has ended; what takes a second or less is no phase to people."""
        if index is not None and row.end_t is not None and row.end_t - row.start_t > PHASE_SECONDS:
            self._emit(notices.phase(t, self._ledger.unit, index, resource, row))

    def _gauge_seen(self, t: float, event: GaugeSeen) -> None:
        known = self._gauges.get(event.name)
        if known is None and len(self._gauges) >= GAUGES_KEPT:
            return
        capacity = known.capacity if known is not None and event.capacity is None else event.capacity
        self._gauges[event.name] = Gauge(event.name, event.value, capacity, t)
        self._diagnostician.gauge_updated(event.name)
        self._looks.invalidate_outlooks()

    def _checkpoint_seen(self, t: float, event: CheckpointSeen) -> None:
        if event.state == "writing":
            known = self._checkpoints.is_writing(t, self._looks.checkpoint_estimate(t)[0])
            self._checkpoints.record_writing(t, event.evidence.split(":", 1)[0], event.evidence, event.before_watch)
            if not known and not self._checkpoints.is_writing_duplicate:
                self._looks.checkpoint_started()
                self._emit(notices.checkpoint(t, event, None))
            return
        witness = event.evidence.split(":", 1)[0]
        if self._checkpoints.is_duplicate(t, witness):
            return
        took = self._checkpoints.record_saved(t, witness, event.seconds, event.evidence)
        self._emit(notices.checkpoint(t, event, took))
        self._own_saves += self._looks.state in (WatchState.WATCHING, WatchState.WARNED)
        since_signal = self._looks.checkpoint_completed(t, is_whole=took is not None)
        if since_signal is not None:
            self._checkpoints.record_duration(since_signal)
            self._emit(notices.saved(t, event, since_signal))

    def _out_of_memory_seen(self, t: float, event: OutOfMemorySeen) -> None:
        self._emit(notices.out_of_memory(t, event))

    def _source_changed(self, t: float, event: SourceChanged) -> None:
        known = self._sources.get(event.source)
        self._sources[event.source] = SourceHealth(event.source, event.ok, event.reason, t)
        if event.ok != (known is None or known.ok):
            self._emit(notices.source(t, event))

    def _armed_changed(self, t: float, event: ArmedChanged) -> None:
        self._unreachable_reason = None if event.armed else event.reason
        self._emit(notices.armed(t, event))

    def _signalled(self, t: float, event: Signalled) -> None:
        self._emit(notices.signalled(t, event))
        self._looks.signalled(t, event)

    def _hook_ran(self, t: float, event: HookRan) -> None:
        self._emit(notices.hook(t, event))
        self._looks.hook_ran(t, event)

    # --- what memory says ---

    def _sampled(self, t: float, event: Sampled) -> None:
        if self._exited is None:
            self._looks.process_sample(t, event.sample, judge=self._target is not None)
            self._diagnostician.process_sample(t, event.sample)

    # --- what examinations say ---

    def _diagnosed(self, t: float, event: Diagnosed) -> None:
        self._diagnostician.examination_ended(t, event)
        self._looks.invalidate_outlooks()
        if (census := event.found.census) is not None:
            self._tell_breaches(t, self._expectations.update_type_counts({one.type: one.count for one in census.types}))

    # --- what is known ---

    def snapshot(self) -> Snapshot:
        """The state after the last event. Immutable; closed ledger rows are shared, not copied."""
        ledger, looks = self._ledger, self._looks
        views = looks.views()
        state = self._state()
        checkpoint_seconds, origin = looks.checkpoint_estimate(self._t)
        return Snapshot(
            t=self._t,
            sentence=self._sentence(views, state),
            state=state,
            target=self._target,
            command=self._command,
            run_id=self._run_id,
            attempt=ledger.attempt,
            started_t=self._started_t,
            unit=ledger.unit,
            generation=ledger.index,
            total=ledger.total,
            phase=ledger.phase,
            sample=looks.sample,
            sample_t=looks.sample_t,
            resources=views,
            gauges=tuple(self._gauges.values()),
            sources=tuple(self._sources.values()),
            notices=tuple(self._notices),
            diagnosis=self._diagnostician.diagnosis,
            expectations=self._expectations.known,
            checkpoint_t=self._checkpoints.saved_t,
            checkpoint_seconds=checkpoint_seconds,
            checkpoint_origin=origin,
            pace_seconds=self.next_sample_within_seconds,
            unarmed=self._unarmed(),
            exited=self._exited,
            warn_horizon_seconds=warning_horizon_seconds(self._policy, ledger.generation_seconds(self._t)),
            run=self._run,
        )

    def _state(self) -> WatchState:
        if self._exited is not None:
            return WatchState.ENDED
        return WatchState.WAITING if self._awaiting is not None else self._looks.state

    def _sentence(self, views: Sequence[ResourceView], state: WatchState) -> str:
        ledger = self._ledger
        phases = {v.usage.resource: phase for v in views if (phase := ledger.leading_phase(v.usage.resource))}
        unread = self._looks.sample.unread if self._looks.sample else ()
        missing = self._awaiting or "; ".join(f"{one.source}: {one.reason}" for one in unread if not one.absent)
        return words.status_sentence(
            views,
            ledger.unit,
            ledger.last_generation,
            phases,
            state=state,
            exited=self._exited,
            missing=missing,
            holders=self._diagnostician.holders,
        )

    def _unarmed(self) -> str | None:
        """Why no interrupt would reach the trainer now."""
        if self._target is None or self._exited is not None:
            return "no trainer runs"
        if not self._policy.act:
            return "policy.act is false"
        if self._unreachable_reason is not None:
            return self._unreachable_reason
        if not any(usage.limit is not None for usage in self._looks.usages):
            return "its memory, or the limit of it, is not known"
        return None

    @property
    def never_attached(self) -> bool:
        """Nothing was watched yet."""
        return self._started_t is None

    @property
    def attempt_progress(self) -> AttemptProgress:
        """How far this attempt has come."""
        ledger = self._ledger
        return AttemptProgress(ledger.unit, ledger.index, ledger.total, self._own_saves)

    @property
    def is_deciding(self) -> bool:
        """An interrupt is considered, or under way: whether a checkpoint is being written matters now."""
        return self._looks.is_deciding

    @property
    def next_sample_within_seconds(self) -> float:
        """How soon the next sample should be taken, at most."""
        return self._looks.next_sample_within_seconds

    def wake_thresholds(self) -> tuple[CgroupMemory | None, Limit, tuple[int, ...]] | None:
        """The cgroup and the limit of main memory as last read, and bytes of headroom at which a look is wanted."""
        return self._looks.wake_thresholds()
