"""All that memory says of one run: each look is followed, judged and acted upon."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

from memwatch.core.checkpoint_timing import CheckpointTracker
from memwatch.core.decision.emergency_interrupt import EmergencyDetector, wake_thresholds
from memwatch.core.decision.interrupt_episode import Episode, EpisodeStage
from memwatch.core.decision.interrupt_rule import InterruptDecider
from memwatch.core.decision.lead_time import LeadTimeEstimator
from memwatch.core.decision.policy import PACE_FLOOR_SECONDS, PACE_IDLE_SECONDS, Policy, pace_seconds
from memwatch.core.engine import notices
from memwatch.core.engine.monitored_resource import ForecasterProtocol, InterruptDecision, MonitoredResource
from memwatch.core.engine.notices import DecisionEvidence
from memwatch.core.events import Action, HookRan, Interrupt, SampleBatch, Signalled, Signalling, UsageSeries
from memwatch.core.generation_ledger import Boundary, GenerationLedger
from memwatch.core.measurements import HOST, CgroupMemory, Limit, Sample, TreeMemory, Usage
from memwatch.core.memory_accounting import gpu_usage, is_copy_on_write_material
from memwatch.core.snapshot import Gauge, ResourceView, WatchState


class ResourceMonitor:
    """The resources of the trainer, what was seen of them last, and the interrupt that may follow.

    Reads the ledger, the checkpoints and the gauges that the engine keeps; `act` is given what follows from a look.
    """

    def __init__(
        self,
        policy: Policy,
        forecaster: Callable[[], ForecasterProtocol],
        *,
        ledger: GenerationLedger,
        checkpoints: CheckpointTracker,
        gauges: Mapping[str, Gauge],
        act: Callable[[Action], None],
    ) -> None:
        self._policy, self._new_forecaster = policy, forecaster
        self._ledger, self._checkpoints, self._gauges, self._emit = ledger, checkpoints, gauges, act
        self._episode = Episode(policy)
        self._lead = LeadTimeEstimator(policy, ledger, checkpoints)
        self._emergencies = EmergencyDetector(policy, ledger)
        self._decider = InterruptDecider(policy, ledger, checkpoints)
        self._tracks: dict[str, MonitoredResource] = {}
        self._fresh: set[str] = set()  # resources that this process has been read for
        self._accounting: str | None = None
        self._cow_told = False
        self._deferred = False  # an interrupt waits for a checkpoint that is being written
        self.sample: Sample | None = None  # the latest; None after the end
        self.sample_t: float | None = None
        self.usages: tuple[Usage, ...] = ()  # of the latest sample; after the end, of the last that had any

    # --- the run ---

    def begin_attempt(self, t: float) -> None:
        """Another process goes on with the run."""
        self._episode = Episode(self._policy)
        self._fresh.clear()
        self._drop()
        self._deferred = self._cow_told = False
        self.sample = self.sample_t = None
        self.usages = ()
        for track in self._tracks.values():
            track.begin_attempt(t)

    def resume(self, t: float) -> None:
        """memwatch itself was started again."""
        self._emit_all(self._episode.resume(t))
        self._drop()

    def end(self) -> None:
        """The trainer is gone."""
        self._drop()
        self.sample = None

    def forget_generations(self) -> None:
        """Another counter is taken for the clock."""
        self._drop()
        for track in self._tracks.values():
            track.forecaster.forget_generations()

    def begin_generation(self, boundary: Boundary) -> None:
        """A generation has ended, and the next begun."""
        for track in self._tracks.values():
            if boundary.partial:
                track.forecaster.add_late_marker(boundary.index)
            else:
                track.begin_generation(boundary.t, boundary.index)
        self._decider.add_opportunity(boundary.t, "boundary")

    def invalidate_outlooks(self) -> None:
        """Something was told that an outlook may change with."""
        for track in self._tracks.values():
            track.invalidate_outlook()

    def checkpoint_started(self) -> None:
        """A checkpoint is being written."""
        for track in self._tracks.values():
            track.checkpoint_started()

    def checkpoint_completed(self, t: float, is_whole: bool) -> float | None:
        """A checkpoint is complete; seconds since the signal that it was asked for with.

        `is_whole`: it was seen from its begin on.
        """
        for track in self._tracks.values():
            track.checkpoint_completed(is_whole)
        self._decider.add_opportunity(t, "saved")
        self._deferred = False
        return self._episode.saved(t)

    def signalling(self, t: float, event: Signalling) -> None:
        """A signal is about to be sent."""
        self._episode.signalling(t, event)

    def signalled(self, t: float, event: Signalled) -> None:
        """A signal was sent, or could not be."""
        self._emit_all(self._episode.signalled(t, event))

    def hook_ran(self, t: float, event: HookRan) -> None:
        """The hook has ended."""
        writing = self._checkpoints.is_writing(t, self.checkpoint_estimate(t)[0])
        self._emit_all(self._episode.hook_ran(t, event, writing))

    def _emit_all(self, actions: Sequence[Action]) -> None:
        for action in actions:
            self._emit(action)

    # --- a look ---

    def process_sample(self, t: float, sample: Sample, judge: bool) -> None:
        """What was read at t; `judge`: there is a trainer to warn of and to interrupt."""
        self._lead.add_sample_times((t,))
        self.sample, self.sample_t, self.usages = sample, t, sample.usages
        if sample.gpus:
            self.usages += tuple(self._standing(sample))
        if sample.accounting != self._accounting and HOST in self._tracks:
            self._tracks[HOST].reset_burst_detection()
        self._accounting = sample.accounting
        for usage in sample.usages:
            self._observe(t, usage)
        self._look_for_copies(t, sample.tree)
        tracks = [self._tracks[usage.resource] for usage in sample.usages]
        if self._is_idle and all(self._is_quiescent(t, track) for track in tracks):
            return
        checkpoint_seconds, _ = self.checkpoint_estimate(t)
        writing = self._checkpoints.is_writing(t, checkpoint_seconds)
        self._deferred = self._deferred and writing
        self._emit_all(self._episode.check_deadlines(t, checkpoint_seconds, writing))
        if tracks and judge:
            self._judge(t, tracks, self._lead.lead_seconds(checkpoint_seconds), writing)

    @property
    def _is_idle(self) -> bool:
        """Nothing is under way or considered: what memory does is all that may be news."""
        return not (self._deferred or self._decider.wants_look or self.is_deciding)

    def _is_quiescent(self, t: float, track: MonitoredResource) -> bool:
        return t < track.quiescent_until and self._is_below_thresholds(track, track.usage)

    def _is_below_thresholds(self, track: MonitoredResource, usage: Usage) -> bool:
        """So little is in use that no look is needed before its time."""
        return usage.used_bytes < min(track.quiescent_below_bytes(usage), self._emergencies.safe_below_bytes(usage))

    def _standing(self, sample: Sample) -> Iterator[Usage]:
        """Of GPUs whose reading is that of an earlier sample."""
        fresh = {usage.resource for usage in sample.usages}
        for gpu in sample.gpus:
            if gpu.resource in self._tracks and gpu.resource not in fresh and gpu_usage(gpu) is not None:
                yield self._tracks[gpu.resource].usage

    def _observe(self, t: float, usage: Usage) -> None:
        track = self._tracks.get(usage.resource)
        if track is None:
            track = self._tracks[usage.resource] = MonitoredResource(usage, self._new_forecaster(), t)
        elif usage.resource not in self._fresh:
            track.begin_process(usage.used_bytes, t)
        self._fresh.add(usage.resource)
        self._ledger.add_samples((t,), usage.resource, (usage.used_bytes,))
        track.add_sample(t, usage)

    def _look_for_copies(self, t: float, tree: TreeMemory | None) -> None:
        """Say once that pages are copied on write."""
        track = self._tracks.get(HOST)
        if self._cow_told or track is None or tree is None or not tree.cow_bytes:
            return
        used = track.usage.used_bytes
        if is_copy_on_write_material(tree.cow_bytes, used, used - track.first_bytes):
            self._cow_told = True
            self._emit(notices.cow(t, tree))

    # --- many looks at once ---

    def fast_forward(self, stretch: SampleBatch, first: int, last: int, judged_from_t: float) -> int:
        """Take the looks from `first` to before `last` that can show nothing new; the index of the next.

        They leave behind what taking each of them would. So are those before `judged_from_t`, whatever they show.
        """
        if self._episode.stage is not EpisodeStage.IDLE:
            return first
        tracks = self._continued_resources(stretch)
        if not tracks:
            return first
        end = bisect_left(stretch.times, judged_from_t, first)
        if self._is_idle:
            end = max(end, self._quiescent_end(stretch, tracks, first))
        end = min(end, last)
        if end > first:
            self._fast_forward(stretch, tracks, slice(first, end))
        return end

    def _quiescent_end(self, stretch: SampleBatch, tracks: Sequence[MonitoredResource], first: int) -> int:
        """The first look from `first` on that may show something new."""
        end = bisect_left(stretch.times, min(track.quiescent_until for track in tracks), first)
        for track, series in zip(tracks, stretch.series, strict=True):
            end = self._end_below_thresholds(track, series, first, end)
        return end

    def _end_below_thresholds(self, track: MonitoredResource, series: UsageSeries, first: int, end: int) -> int:
        """The first reading from `first` on, before `end`, that wants a look."""
        if series.limit_used is not None:
            return next((i for i in range(first, end) if not self._is_below_thresholds(track, series.usage_at(i))), end)
        below = min(
            track.quiescent_below_bytes(track.usage), self._emergencies.safe_below_bytes(track.usage)
        )  # as for all of them
        if end > first and max(series.used[first:end]) >= below:
            end = next(i for i in range(first, end) if series.used[i] >= below)
        return end

    def _continued_resources(self, stretch: SampleBatch) -> list[MonitoredResource]:
        """Of its pools; none when they do not go on as before."""
        if stretch.accounting != self._accounting or any(one.resource not in self._fresh for one in stretch.series):
            return []
        tracks = [self._tracks[series.resource] for series in stretch.series]
        as_before = (_goes_on(track.usage, series) for track, series in zip(tracks, stretch.series, strict=True))
        return tracks if all(as_before) else []

    def _fast_forward(self, stretch: SampleBatch, tracks: Sequence[MonitoredResource], part: slice) -> None:
        times, sampled = stretch.times[part], stretch.event_at(part.stop - 1)
        self.sample, self.sample_t, self.usages = sampled.sample, times[-1], sampled.sample.usages
        self._lead.add_sample_times(times)
        for track, series, usage in zip(tracks, stretch.series, self.usages, strict=True):
            used = series.used[part]
            self._ledger.add_samples(times, series.resource, used)
            track.add_samples(times, used, used if series.limit_used is None else series.limit_used[part], usage)

    # --- judging it ---

    def _judge(self, t: float, tracks: Sequence[MonitoredResource], lead: float, writing: bool) -> None:
        """An emergency first, and nothing else delays its signal."""
        may_begin = self._episode.may_begin(t)
        if not may_begin:
            self._drop()
        else:
            burst = self._emergencies.decide(t, tracks, lead)
            if burst is not None and self._begin(t, burst, writing):
                return
        if not self._decider.wants_look and all(track.is_quiescent(t) for track in tracks):
            return
        self._renew(t, tracks)
        decision = self._decider.decide(t, tracks, lead, self._lead.sample_interval_seconds) if may_begin else None
        if decision is not None:
            self._begin(t, decision, writing)

    def _renew(self, t: float, tracks: Sequence[MonitoredResource]) -> None:
        """The outlooks, and what there is to tell of them."""
        ledger, gauges = self._ledger, tuple(self._gauges.values())
        step, silent, last = ledger.generation_seconds(t), ledger.has_no_markers(t), ledger.last_generation
        for track in tracks:
            track.update_outlook(t, last, gauges)
            if track.mark_reported_if_changed(t, silent):
                self._emit(notices.forecast(t, ledger, track))
            if track.update_warning(t, self._policy, step):
                self._emit(notices.warning(t, ledger, track, notices.warning_evidence(self._policy, track, step)))

    def _drop(self) -> None:
        """No interrupt can begin now."""
        self._emergencies.reset()
        self._decider.reset()

    # --- acting ---

    def _begin(self, t: float, decision: InterruptDecision, writing: bool) -> bool:
        """Interrupt, unless a checkpoint is being written that can be waited for."""
        if writing and not _exhausts(decision.resource):
            self._defer(t, decision)
            return False
        self._interrupt(t, decision)
        return True

    def _defer(self, t: float, decision: InterruptDecision) -> None:
        if not self._deferred:
            self._deferred = True
            self._emit(notices.interrupt_deferred(t, self._ledger, decision, self._basis(t, decision)))

    def _basis(self, t: float, decision: InterruptDecision) -> DecisionEvidence:
        takes = self.checkpoint_estimate(t)
        return notices.interrupt_evidence(self._policy, decision, self._lead.lead_seconds(takes[0]), takes)

    def _interrupt(self, t: float, decision: InterruptDecision) -> None:
        track, ledger = decision.resource, self._ledger
        reason, stood_on = (
            notices.interrupt_reason(ledger, decision, *self.checkpoint_estimate(t)),
            self._basis(t, decision),
        )
        self._drop()
        self._deferred = False
        if not self._policy.act:
            self._episode.skip(t)
            self._emit(notices.no_interrupt(t, ledger, decision, reason, stood_on))
            return
        self._emit(notices.interrupt(t, ledger, decision, reason, stood_on))
        emergency = decision.kind == "emergency"
        self._emit_all(self._episode.begin(Interrupt(t, track.usage.resource, reason, emergency)))

    # --- what is known ---

    def checkpoint_estimate(self, t: float) -> tuple[float, str]:
        """Seconds that a checkpoint is taken to need, and where that comes from."""
        return self._lead.checkpoint_estimate(t)

    @property
    def state(self) -> WatchState:
        """Of a trainer that runs."""
        if self._episode.state is not None:
            return self._episode.state
        return WatchState.WARNED if any(track.warned for track in self._tracks.values()) else WatchState.WATCHING

    def views(self) -> tuple[ResourceView, ...]:
        """Each resource as it stands at its latest reading."""
        return tuple([self._view(usage) for usage in self.usages])

    def _view(self, usage: Usage) -> ResourceView:
        track = self._tracks[usage.resource]
        outlook = track.current_outlook
        return ResourceView(
            usage,
            track.first_bytes,
            track.peak,
            outlook.verdict,
            outlook.trend,
            outlook.forecast,
            self._ledger.rows(usage.resource),
            track.timeline.steps(),
            track.warned,
        )

    @property
    def is_deciding(self) -> bool:
        """An interrupt is considered, or under way: whether a checkpoint is being written matters now."""
        considered = self._decider.pending or self._emergencies.next_sample_seconds is not None
        return considered or self._episode.stage is not EpisodeStage.IDLE

    @property
    def next_sample_within_seconds(self) -> float:
        """How soon the next sample should be taken, at most."""
        if self._episode.stage is not EpisodeStage.IDLE:  # what there was to do is done
            return 1.0
        paces = [
            pace_seconds(usage.limit.headroom_bytes, self._tracks[usage.resource].fastest)
            for usage in self.usages
            if usage.limit is not None
        ]
        if self._decider.pending:
            paces.append(self._policy.second_look_seconds)
        if self._emergencies.next_sample_seconds is not None:
            paces.append(self._emergencies.next_sample_seconds)
        return max(min(paces, default=PACE_IDLE_SECONDS), PACE_FLOOR_SECONDS)

    def wake_thresholds(self) -> tuple[CgroupMemory | None, Limit, tuple[int, ...]] | None:
        """The cgroup and the limit of main memory as last read, and bytes of headroom at which a look is wanted."""
        usage = next((usage for usage in self.usages if usage.resource == HOST), None)
        if usage is None or usage.limit is None or self.sample is None:
            return None
        rooms = wake_thresholds(usage.limit, usage.used_bytes, self._tracks[HOST].peak, self._policy.headroom_guard)
        return self.sample.cgroup, usage.limit, rooms


def _exhausts(track: MonitoredResource) -> bool:
    limit = track.usage.limit
    return limit is not None and track.burst.is_exhausting(limit.headroom_bytes, limit.bytes)


def _goes_on(usage: Usage, series: UsageSeries) -> bool:
    """The series is of the same limit, of which it tells what the usage told."""
    limit = usage.limit
    if limit is None or series.limit_bytes is None:
        return limit is None and series.limit_bytes is None
    tells_enough = series.limit_used is not None or limit.headroom_bytes == limit.bytes - usage.used_bytes
    return tells_enough and (limit.bytes, limit.origin) == (series.limit_bytes, series.origin)
