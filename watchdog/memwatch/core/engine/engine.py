"""Turns events into actions: the live state of a watch, and the snapshot that outputs read. It reads no clock."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import ChainMap, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from memwatch.core import events
from memwatch.core.checkpoint_timing import CheckpointTracker
from memwatch.core.decision.policy import Policy
from memwatch.core.decision.warning import warning_horizon_seconds
from memwatch.core.engine import notices
from memwatch.core.engine.diagnostician import Diagnostician
from memwatch.core.engine.memory_monitor import ResourceMonitor
from memwatch.core.engine.severity import watch_severity
from memwatch.core.engine.status_sentence import status_sentence
from memwatch.core.events import Action, Event, Notice, SampleBatch, begin_t
from memwatch.core.expectations import ExpectationCheck, Expectations
from memwatch.core.forecast.forecaster import Forecaster
from memwatch.core.forecast.outlook import ForecasterProtocol
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.leaks.examination_schedule import DiagnosisPolicy
from memwatch.core.measurements import CgroupMemory, Limit, RunIdentity, SignalHandling, Target
from memwatch.core.restart_policy import AttemptProgress
from memwatch.core.snapshot import Expectation, Gauge, PhaseRow, ResourceView, Snapshot, SourceHealth, WatchState

NOTICES_KEPT = 50  # Latest notices in the snapshot (chosen).
FREQUENT = ("marker", "phase", "forecast", "examined", "not_examined")  # Left out: there may be thousands.
GAUGES_KEPT = 16  # A log that invents names must not fill memory (chosen).
PHASE_SECONDS = 1.0  # A shorter phase is not reported (chosen).
SAVE = "save"  # The unit of a log without markers whose trainer saves again and again.
NO_DIAGNOSIS = DiagnosisPolicy(enabled=False)  # For recordings: there is no process to examine.


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
        self._exited: events.Exited | None = None
        self._signal_handling: SignalHandling | None = None
        self._awaiting: str | None = None  # why no trainer is watched
        self._ledger = GenerationLedger()
        self._checkpoints = CheckpointTracker()
        self._own_saves = 0  # checkpoints of this attempt without a signal by memwatch
        self._gauges: dict[str, Gauge] = {}
        self._expectations = Expectations(expectations)
        heap_gauges: dict[str, Gauge] = {}
        self._monitor = ResourceMonitor(
            policy,
            forecaster,
            ledger=self._ledger,
            checkpoints=self._checkpoints,
            gauges=ChainMap(self._gauges, heap_gauges),
            act=self._emit,
        )
        self._diagnostician = Diagnostician(
            diagnosis,
            self._monitor,
            ledger=self._ledger,
            gauges=self._gauges,
            heap_gauges=heap_gauges,
            act=self._emit,
            counts_types=self._expectations.count_types,
        )
        self._sources: dict[str, SourceHealth] = {}
        self._unreachable_reason: str | None = "it is not known yet whether a signal would reach it"
        self._notices: deque[Notice] = deque(maxlen=NOTICES_KEPT)
        self._handlers = self._event_handlers()

    def _event_handlers(self) -> dict[type, Callable[[float, Any], None]]:
        return {
            events.Attached: self._attached,
            events.Awaiting: self._awaiting_trainer,
            events.Sampled: self._sampled,
            events.NeighboursSeen: self._neighbours_seen,
            events.GenerationSeen: self._generation_seen,
            events.TotalSeen: self._total_seen,
            events.PhaseSeen: self._phase_seen,
            events.GaugeSeen: self._gauge_seen,
            events.CheckpointSeen: self._checkpoint_seen,
            events.OutOfMemorySeen: lambda t, event: self._emit(notices.out_of_memory(t, event)),
            events.SourceChanged: self._source_changed,
            events.ArmedChanged: self._armed_changed,
            events.SignalHandlingSeen: self._signal_handling_seen,
            events.Signalling: self._monitor.signalling,
            events.Signalled: self._signalled,
            events.HookRan: self._hook_ran,
            events.ExaminationAsked: lambda t, event: self._diagnostician.schedule.request_examination("request"),
            events.SnapshotTaken: lambda t, event: self._emit(notices.snapshot(t, event)),
            events.Diagnosed: self._diagnosed,
            events.Exited: self._trainer_exited,
            events.Restarting: lambda t, event: self._emit(notices.restarting(t, event)),
            events.GaveUp: lambda t, event: self._emit(notices.gave_up(t, event)),
        }

    def feed(self, event: Event) -> list[Action]:
        """Process one event; return the actions that follow from it, in order. A clock that goes back is held still."""
        self._t = max(self._t, event.t)
        self._out = []
        self._handlers[type(event)](self._t, event)
        return self._out

    def fast_forward(self, batch: SampleBatch, first: int, decide_from_t: float = -math.inf) -> int:
        """Add the samples from `first` on that can change nothing; return the index of the next, which is to be fed.

        The state is the same as if each of them had been fed. The samples before `decide_from_t` are added whatever
        they show: decisions may come later for it, and nothing else changes.
        """
        if self._exited is not None or self._target is None or batch.times[first] < self._t:
            return first
        last = bisect_left(batch.times, self._diagnostician.next_sample_t, first)
        if last == first:
            return first
        end = self._monitor.fast_forward(batch, first, last, decide_from_t)
        if end > first:
            self._t = batch.times[end - 1]
        return end

    def feed_until(self, items: Iterable[Event | SampleBatch], t: float) -> None:
        """Feed recorded events up to a time. Only `explain` shows what the latest of them led to."""
        for item in items:
            if begin_t(item) > t:
                return
            for event in self.events_to_feed(item.until(t) if isinstance(item, SampleBatch) else item):
                self.feed(event)

    def events_to_feed(self, item: Event | SampleBatch, decision_seconds: float = 0.0) -> Iterator[Event]:
        """The event, or the samples of a batch that may change something: feed each before asking for the next.

        Samples within `decision_seconds` of the one fed last are not returned but added, whatever they show. That saves
        time where decisions do not matter.
        """
        if not isinstance(item, SampleBatch):
            yield item
            return
        i, count, fed_t = 0, len(item.times), -math.inf
        while i < count and (i := self.fast_forward(item, i, fed_t + decision_seconds)) < count:
            fed_t = item.times[i]
            yield item.event_at(i)
            i += 1

    def explain(self) -> list[dict[str, Any]]:
        """What the decision to interrupt stands on at the latest sample: the numbers of each resource, JSON-ready.

        `reason` is that of an interrupt which the latest event has led to, or the one that the forecast gives now.
        """
        begun = [one.fields for one in self._out if isinstance(one, Notice) and one.event == "interrupt"]
        kinds = {one["resource"]: one["kind"] for one in begun}
        return [one | {"reason": kinds.get(one["resource"], one["reason"])} for one in self._monitor.explain(self._t)]

    def _emit(self, action: Action) -> None:
        self._out.append(action)
        if isinstance(action, Notice) and action.event not in FREQUENT:
            self._notices.append(action)
            if action.event == "warn":
                self._diagnostician.schedule.request_examination("warn")

    # --- the trainer ---

    def _attached(self, t: float, event: events.Attached) -> None:
        is_same = event.target == self._target and self._exited is None
        successor = self._target is not None and event.target != self._target
        self._target, self._exited, self._awaiting = event.target, None, None
        self._sources.clear()  # This watch may be able to read sources that the last one could not.
        self._command, self._run_id = event.command, event.run_id or self._run_id
        self._run = event.run or self._run
        self._diagnostician.begin_attempt(t, anew=successor or self._started_t is None)
        if self._started_t is None:
            self._started_t = t
        if successor:
            self._ledger.begin_attempt(t)
            self._checkpoints.begin_attempt()
            self._own_saves, self._signal_handling = 0, None
            self._monitor.set_signal_handling(None)
            self._gauges.clear()
            self._monitor.begin_attempt(t)
        if not is_same:
            self._monitor.process_started_t = t - event.age_seconds
        how = "watching again" if is_same else "the run goes on in a new process" if successor else "watching"
        self._emit(notices.attached(t, event, how, self._ledger.attempt, self._run_id))
        if is_same:
            self._monitor.resume(t)
        for remark in event.remarks:
            self._emit(notices.note(t, remark))

    def _awaiting_trainer(self, t: float, event: events.Awaiting) -> None:
        if event.reason != self._awaiting:
            self._awaiting = event.reason
            self._emit(notices.waiting(t, event))

    def _trainer_exited(self, t: float, event: events.Exited) -> None:
        self._exited = event
        self._ledger.end_attempt(t)
        self._monitor.end()
        self._emit(notices.exited(t, event))

    # --- the log ---

    def _generation_seen(self, t: float, event: events.GenerationSeen) -> None:
        if self._exited is not None:
            return
        if self._ledger.index is not None and (event.recount or event.unit != self._ledger.unit):
            self._monitor.forget_generations()
            self._diagnostician.forget_generations(t)
        phase = self._ledger.phase
        boundary = self._ledger.add_marker(min(t, event.t), event)  # A marker that was read late keeps its own time.
        if boundary is None:
            return
        self._emit(notices.marker(t, event, self._ledger.total))
        self._monitor.begin_generation(boundary)
        self._diagnostician.begin_generation(t, boundary.partial)
        for resource, row in boundary.closed.items():
            if row.phases and row.phases[-1].phase == phase:  # else it has ended before, and was reported
                self._report_phase(t, row.index, resource, row.phases[-1])
            self._emit(notices.generation(t, self._ledger.unit, resource, row))
            self._report_breaches(t, self._expectations.update_generations(resource, self._ledger.closed(resource)))

    def _report_breaches(self, t: float, breached: Iterable[Expectation]) -> None:
        for expectation in breached:
            self._emit(notices.breach(t, expectation))

    def _total_seen(self, t: float, event: events.TotalSeen) -> None:
        self._ledger.total = event.total
        self._monitor.invalidate_outlooks()

    def _phase_seen(self, t: float, event: events.PhaseSeen) -> None:
        before = self._ledger.phase
        for resource, row in self._ledger.add_phase_marker(t, event).items():
            self._report_phase(t, self._ledger.index, resource, row)
        self._diagnostician.phase_changed(before)

    def _report_phase(self, t: float, index: float | None, resource: str, row: PhaseRow) -> None:
        if index is not None and row.end_t is not None and row.end_t - row.start_t > PHASE_SECONDS:
            self._emit(notices.phase(t, self._ledger.unit, index, resource, row))

    def _gauge_seen(self, t: float, event: events.GaugeSeen) -> None:
        known = self._gauges.get(event.name)
        if known is None and len(self._gauges) >= GAUGES_KEPT:
            return
        capacity = known.capacity if known is not None and event.capacity is None else event.capacity
        self._gauges[event.name] = Gauge(event.name, event.value, capacity, t)
        self._monitor.invalidate_outlooks()

    def _checkpoint_seen(self, t: float, event: events.CheckpointSeen) -> None:
        witness = event.evidence.split(":", 1)[0]
        if event.state == "writing":
            known = self._checkpoints.is_writing(t, self._monitor.checkpoint_estimate(t)[0])
            self._checkpoints.record_writing(t, witness, event.evidence, event.before_watch)
            if not known and not self._checkpoints.is_writing_duplicate:
                self._monitor.checkpoint_started()
                self._emit(notices.checkpoint(t, event, None))
            return
        if event.state == "dropped":
            self._checkpoints.record_dropped()
            return
        complete_t = t - event.still_seconds
        if self._checkpoints.is_duplicate(complete_t, witness):
            if event.seconds is not None:
                self._checkpoints.record_duration(event.seconds)
            return
        earlier = self._checkpoints.saved_t
        took = self._checkpoints.record_saved(complete_t, witness, event.seconds, event.evidence)
        self._emit(notices.checkpoint(t, event, took))
        if event.before_signal or self._monitor.state in (WatchState.WATCHING, WatchState.WARNED):
            self._own_saves += 1
            self._count_save(t, earlier)
        if event.before_signal:
            return
        since_signal = self._monitor.checkpoint_completed(t, is_whole=took is not None)
        if since_signal is not None:
            self._checkpoints.record_duration(since_signal)
            self._emit(notices.saved(t, event, since_signal))

    def _count_save(self, t: float, earlier: float | None) -> None:
        """While the log names no generations, the trainer's own saves are its clock, from the second on."""
        if self._ledger.index is None:
            if self._own_saves < 2 or earlier is None:
                return
            self._generation_seen(t, events.GenerationSeen(earlier, self._own_saves - 1, unit=SAVE))
        if self._ledger.unit == SAVE:
            self._generation_seen(t, events.GenerationSeen(t, self._own_saves, unit=SAVE))

    def _source_changed(self, t: float, event: events.SourceChanged) -> None:
        known = self._sources.get(event.source)
        self._sources[event.source] = SourceHealth(event.source, event.ok, event.reason, t)
        if event.ok != (known is None or known.ok):
            self._emit(notices.source(t, event))
        elif event.ok and event.reason:  # it reads another thing from now on
            self._emit(notices.note(t, f"{event.source}: {event.reason}"))

    def _armed_changed(self, t: float, event: events.ArmedChanged) -> None:
        self._unreachable_reason = None if event.armed else event.reason
        self._emit(notices.armed(t, event))

    def _signal_handling_seen(self, t: float, event: events.SignalHandlingSeen) -> None:
        if event.handling != self._signal_handling:
            self._signal_handling = event.handling
            self._monitor.set_signal_handling(event.handling.handled)
            self._emit(notices.signal_handling(t, event))

    def _signalled(self, t: float, event: events.Signalled) -> None:
        self._emit(notices.signalled(t, event))
        self._monitor.signalled(t, event)

    def _hook_ran(self, t: float, event: events.HookRan) -> None:
        self._emit(notices.hook(t, event))
        self._monitor.hook_ran(t, event)

    # --- memory and examinations ---

    def _sampled(self, t: float, event: events.Sampled) -> None:
        if self._exited is None:
            self._monitor.process_sample(t, event.sample, decide=self._target is not None)
            self._diagnostician.process_sample(t, event.sample)

    def _neighbours_seen(self, t: float, event: events.NeighboursSeen) -> None:
        if self._exited is None:
            if self._monitor.neighbours.latest is None:
                self._emit(notices.neighbours(t, event.neighbours))
            self._monitor.neighbours.add(t, event.neighbours)

    def _diagnosed(self, t: float, event: events.Diagnosed) -> None:
        self._diagnostician.examination_ended(t, event)
        if (diagnosis := self._diagnostician.diagnosis) is not None and diagnosis.findings:
            self._monitor.know_growth(is_no_leak=not any(one.is_leak for one in diagnosis.findings))
        self._monitor.invalidate_outlooks()
        if (census := event.found.census) is not None:
            counts = {row.type: row.count for row in census.types}
            self._report_breaches(t, self._expectations.update_type_counts(counts))

    # --- the state ---

    def snapshot(self) -> Snapshot:
        """The state after the last event. Immutable; closed ledger rows are shared, not copied."""
        ledger, monitor = self._ledger, self._monitor
        unarmed, state = self._unarmed(), self._state()
        views = monitor.views(armed=unarmed is None)
        checkpoint_seconds, origin = monitor.checkpoint_estimate(self._t)
        return Snapshot(
            t=self._t,
            sentence=self._sentence(views, state, armed=unarmed is None),
            state=state,
            target=self._target,
            command=self._command,
            run_id=self._run_id,
            attempt=ledger.attempt,
            started_t=self._started_t,
            unit=ledger.unit,
            generation=ledger.shown_index,
            total=ledger.total,
            phase=ledger.phase,
            sample=monitor.sample,
            sample_t=monitor.sample_t,
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
            unarmed=unarmed,
            exited=self._exited,
            warn_horizon_seconds=warning_horizon_seconds(self._policy, ledger.generation_seconds(self._t)),
            run=self._run,
            signal_handling=self._signal_handling,
            neighbours=monitor.neighbours.latest,
            severity=watch_severity(state, self._exited, (view.severity for view in views)),
            generation_origin=ledger.origin,
            run_end_t=None if self._exited is not None else ledger.run_end_t(self._t),
            last_generation=ledger.last_generation,
            is_examining=self._exited is None and self._diagnostician.schedule.is_expected,
        )

    def _state(self) -> WatchState:
        if self._exited is not None:
            return WatchState.ENDED
        return WatchState.WAITING if self._awaiting is not None else self._monitor.state

    def _sentence(self, views: Sequence[ResourceView], state: WatchState, armed: bool) -> str:
        ledger = self._ledger
        phases = {v.usage.resource: phase for v in views if (phase := ledger.leading_phase(v.usage.resource))}
        unread = self._monitor.sample.unread if self._monitor.sample else ()
        missing = self._awaiting or "; ".join(f"{each.source}: {each.reason}" for each in unread if not each.absent)
        return status_sentence(
            views,
            ledger.unit,
            ledger.last_generation,
            phases,
            state=state,
            exited=self._exited,
            missing=missing,
            holders=self._diagnostician.holders,
            armed=armed,
        )

    def _unarmed(self) -> str | None:
        """Why no interrupt would reach the trainer now."""
        if self._target is None or self._exited is not None:
            return "no trainer runs"
        if not self._policy.act:
            return "policy.act is false"
        if self._unreachable_reason is not None:
            return self._unreachable_reason
        if not any(usage.limit is not None for usage in self._monitor.usages):
            return "its memory or its limit is not known"
        return None

    @property
    def never_attached(self) -> bool:
        return self._started_t is None

    @property
    def attempt_progress(self) -> AttemptProgress:
        ledger = self._ledger
        index = None if ledger.unit == SAVE else ledger.index  # Saves of each process are counted anew.
        return AttemptProgress(ledger.unit, index, ledger.total, self._own_saves)

    @property
    def is_deciding(self) -> bool:
        """An interrupt is considered or under way, so it matters now whether a checkpoint is being written."""
        return self._monitor.is_deciding

    @property
    def next_sample_within_seconds(self) -> float:
        """How soon the next sample should be taken, at most."""
        return self._monitor.next_sample_within_seconds

    def wake_thresholds(self) -> tuple[CgroupMemory | None, Limit, tuple[int, ...]] | None:
        """The cgroup and the limit of main memory as last read, and headrooms (bytes) at which to sample at once."""
        return self._monitor.wake_thresholds()
