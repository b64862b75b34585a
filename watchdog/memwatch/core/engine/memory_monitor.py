"""Follows the resources of one run sample by sample, and warns or interrupts where a decision says so."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from memwatch.core.checkpoint_timing import CheckpointTracker
from memwatch.core.decision.decision_maker import DecisionMaker
from memwatch.core.decision.emergency_interrupt import is_exhausting
from memwatch.core.decision.interrupt_episode import Episode, EpisodeStage
from memwatch.core.decision.interrupt_rule import InterruptDecision
from memwatch.core.decision.policy import Policy
from memwatch.core.engine import notices
from memwatch.core.engine.resource_state import MonitoredResource
from memwatch.core.engine.severity import resource_severity
from memwatch.core.events import Action, HookRan, Interrupt, SampleBatch, Signalled, Signalling
from memwatch.core.forecast.outlook import ForecasterProtocol, Outlook
from memwatch.core.generation_ledger import Boundary, GenerationLedger
from memwatch.core.leaks.growth_attribution import NeighbourGrowthTracker
from memwatch.core.measurements import HOST, OWN_LIMIT, CgroupMemory, Limit, Sample, TreeMemory, Usage, is_tmpfs
from memwatch.core.memory_accounting import gpu_usage, is_copy_on_write_material
from memwatch.core.snapshot import Gauge, NeighbourGrowth, PlannedInterrupt, ResourceView, WatchState


class ResourceMonitor:
    """The resources of the trainer, their latest sample, and the interrupt that may follow.

    Reads the ledger, the checkpoints and the gauges that the engine keeps, and calls `act` with each action.
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
        self._decision_maker = DecisionMaker(policy, ledger, checkpoints)
        self._resources: dict[str, MonitoredResource] = {}
        self._sampled_resources: set[str] = set()  # those of which this process has a sample
        self.process_started_t = math.inf
        self._accounting: str | None = None  # of the latest sample
        self._copy_on_write_reported = False
        self.neighbours = NeighbourGrowthTracker()  # of this process
        self._is_deferred = False  # an interrupt waits for a checkpoint that is being written
        self._is_save_awaited = False  # an interrupt waits for the trainer's own save
        self.sample: Sample | None = None  # the latest; None after the end
        self.sample_t: float | None = None
        self.usages: tuple[Usage, ...] = ()  # of the latest sample; after the end, of the last that had any

    # --- the run ---

    def begin_attempt(self, t: float) -> None:
        """Another process goes on with the run."""
        self._episode = Episode(self._policy)
        self._sampled_resources.clear()
        self._decision_maker.reset()
        self._is_deferred = self._copy_on_write_reported = False
        self.sample = self.sample_t = None
        self.usages = ()
        self.neighbours.begin_attempt()
        for resource in self._resources.values():
            resource.begin_attempt(t)

    def resume(self, t: float) -> None:
        """memwatch itself was started again."""
        self._emit_all(self._episode.resume(t))
        self._decision_maker.reset()

    def end(self) -> None:
        """The trainer is gone."""
        self._decision_maker.reset()
        self.sample = None

    def forget_generations(self) -> None:
        """Another counter numbers the generations from now on; the count so far was not one of generations."""
        self._decision_maker.reset()
        for resource in self._resources.values():
            resource.forecaster.forget_generations()

    def begin_generation(self, boundary: Boundary) -> None:
        for resource in self._resources.values():
            if boundary.partial:
                resource.forecaster.begin_generation(None, boundary.index)
            else:
                resource.begin_generation(boundary.t, boundary.index)
        self._decision_maker.add_opportunity(boundary.t, "boundary")

    def set_signal_handling(self, handled: bool | None) -> None:
        """Whether the trainer's code gets a chance to save when it is interrupted; None: not known."""
        self._checkpoints.saves_on_signal = handled

    def invalidate_outlooks(self) -> None:
        """Something has happened that may change an outlook."""
        for resource in self._resources.values():
            resource.invalidate_outlook()

    def checkpoint_started(self) -> None:
        for resource in self._resources.values():
            resource.checkpoint_started()

    def checkpoint_completed(self, t: float, is_whole: bool) -> float | None:
        """Return the seconds since the signal that requested it; None without one. `is_whole`: its start was seen."""
        for resource in self._resources.values():
            resource.checkpoint_completed(is_whole)
        self._decision_maker.add_opportunity(t, "saved")
        self._is_deferred = False
        return self._episode.saved(t)

    def signalling(self, t: float, event: Signalling) -> None:
        self._episode.signalling(t, event)

    def signalled(self, t: float, event: Signalled) -> None:
        self._emit_all(self._episode.signalled(t, event))

    def hook_ran(self, t: float, event: HookRan) -> None:
        is_writing = self._checkpoints.is_writing(t, self.checkpoint_estimate(t)[0])
        self._emit_all(self._episode.hook_ran(t, event, is_writing))

    def _emit_all(self, actions: Sequence[Action]) -> None:
        for action in actions:
            self._emit(action)

    @property
    def neighbour_growth(self) -> NeighbourGrowth | None:
        """Growth of main memory that is not of the trainer's own tree."""
        return self._resources[HOST].neighbour_growth if HOST in self._resources else None

    def know_growth(self, is_no_leak: bool) -> None:
        """Findings say what makes main memory grow, and whether the program is made to do so."""
        if HOST in self._resources:
            self._resources[HOST].growth_is_no_leak = is_no_leak

    # --- samples ---

    def process_sample(self, t: float, sample: Sample, decide: bool) -> None:
        """Follow a sample; `decide`: there is a trainer to interrupt, and somebody to warn."""
        self._decision_maker.lead_time.add_sample_times((t,))
        self.sample, self.sample_t, self.usages = sample, t, sample.usages
        if sample.gpus:
            self.usages += tuple(self._gpus_without_reading(sample))
        if sample.accounting != self._accounting and HOST in self._resources:
            self._resources[HOST].reset_limit()
        self._accounting = sample.accounting
        # what it has on a GPU later is new
        started_t = t if self._sampled_resources else self.process_started_t
        resources = [self._add_usage(t, usage, started_t) for usage in sample.usages]
        self._report_copy_on_write(t, sample.tree)
        if self._can_change_nothing(t, resources):
            return
        checkpoint_seconds, _ = self.checkpoint_estimate(t)
        is_writing = self._checkpoints.is_writing(t, checkpoint_seconds)
        self._is_deferred = self._is_deferred and is_writing
        self._emit_all(self._episode.check_deadlines(t, checkpoint_seconds, is_writing))
        if resources and decide:
            self._decide(t, resources, self._decision_maker.lead_time.lead_seconds(checkpoint_seconds), is_writing)

    def _gpus_without_reading(self, sample: Sample) -> Iterator[Usage]:
        """The latest usage of each GPU that was not read for this sample."""
        fresh = {usage.resource for usage in sample.usages}
        for gpu in sample.gpus:
            if gpu.resource in self._resources and gpu.resource not in fresh and gpu_usage(gpu) is not None:
                yield self._resources[gpu.resource].usage

    def _add_usage(self, t: float, usage: Usage, started_t: float) -> MonitoredResource:
        name = usage.resource
        if name not in self._resources:
            neighbours = self.neighbours if name == HOST else None
            self._resources[name] = MonitoredResource(usage, self._new_forecaster, t, neighbours, started_t=started_t)
            self._sampled_resources.add(name)
        elif name not in self._sampled_resources:
            self._resources[name].begin_process(usage.used_bytes, t, started_t)
            self._sampled_resources.add(name)
        self._ledger.add_samples((t,), name, (usage.used_bytes,))
        resource = self._resources[name]
        resource.add_sample(t, usage)
        return resource

    def _report_copy_on_write(self, t: float, tree: TreeMemory | None) -> None:
        resource = self._resources.get(HOST)
        if self._copy_on_write_reported or resource is None or tree is None or not tree.cow_bytes:
            return
        used = resource.usage.used_bytes
        if is_copy_on_write_material(tree.cow_bytes, used, used - resource.first_bytes):
            self._copy_on_write_reported = True
            self._emit(notices.cow(t, tree))

    def _decide(self, t: float, resources: Sequence[MonitoredResource], lead: float, is_writing: bool) -> None:
        """Check for an emergency first: nothing else delays its signal."""
        may_begin = self._episode.may_begin(t)
        if not may_begin:
            self._decision_maker.reset()
        else:
            # A tmpfs fills within milliseconds and is emptied again: what rises at once is no sign.
            lasting = [resource for resource in resources if not is_tmpfs(resource.usage.resource)]
            emergency = self._decision_maker.check_emergency(t, lasting, lead)
            if emergency is not None and self._begin_interrupt(t, emergency, is_writing):
                return
        if not self._decision_maker.needs_outlook and all(resource.is_outlook_valid for resource in resources):
            return
        self._update_outlooks(t, resources)
        decision = self._decision_maker.decide(t, resources, lead) if may_begin else None
        self._report_awaited_save(t)
        if decision is not None:
            self._begin_interrupt(t, decision, is_writing)

    def _report_awaited_save(self, t: float) -> None:
        """Say it once for each wait that an interrupt waits for the trainer's own save."""
        seconds = self._decision_maker.awaited_save_seconds
        if seconds is not None and not self._is_save_awaited:
            self._emit(notices.interrupt_awaits_save(t, seconds))
        self._is_save_awaited = seconds is not None

    def _update_outlooks(self, t: float, resources: Sequence[MonitoredResource]) -> None:
        """Renew the outlooks, and report changes."""
        ledger, gauges = self._ledger, tuple(self._gauges.values())
        step, without_markers, last = ledger.generation_seconds(t), ledger.has_no_markers(t), ledger.last_generation
        for resource in resources:
            resource.update_outlook(t, last, gauges)
            if resource.mark_reported_if_changed(t, without_markers):
                self._emit(notices.forecast(t, ledger, resource, self._planned(resource)))
            if resource.update_warning(t, self._policy, step):
                planned = self._planned(resource)
                self._emit(notices.warning(t, ledger, resource, planned, policy=self._policy, step_seconds=step))

    def _planned(self, resource: MonitoredResource) -> PlannedInterrupt:
        """When the latest outlook would lead to an interrupt, counted from the latest sample."""
        if not self._policy.act:
            return PlannedInterrupt(None, None, "acting is off")
        outlook_t, age = resource.outlook_times
        lead = self._decision_maker.lead_time.lead_seconds(self.checkpoint_estimate(outlook_t)[0])
        return self._decision_maker.plan(outlook_t, resource, lead).after(age)

    # --- samples that can change nothing ---

    def _can_change_nothing(self, t: float, resources: Sequence[MonitoredResource]) -> bool:
        """Whether the latest sample of these resources can change nothing."""
        if not self._is_idle:
            return False
        for resource in resources:
            if t >= resource.outlook_valid_until or not self._is_safe(resource, resource.usage):
                return False
        return True

    @property
    def _is_idle(self) -> bool:
        """Nothing is under way or considered: only memory itself may change anything."""
        is_busy = self._is_deferred or self._has_episode
        return not (is_busy or self._decision_maker.needs_outlook or self._decision_maker.is_pending)

    def fast_forward(self, batch: SampleBatch, first: int, last: int, decide_from_t: float) -> int:
        """Add the samples from `first` to before `last` that can change nothing, all at once; the index of the next.

        The samples before `decide_from_t` are added whatever they show. A replay takes several times as long without
        this, and decides the same.
        """
        if self._has_episode:
            return first
        resources = self._continued_resources(batch)
        if not resources:
            return first
        end = bisect_left(batch.times, decide_from_t, first)
        if self._is_idle:
            end = max(end, self._first_that_matters(batch, resources, first))
        end = min(end, last)
        if end > first:
            self._add_batch(batch, resources, slice(first, end))
        return end

    def _continued_resources(self, batch: SampleBatch) -> list[MonitoredResource]:
        """The resources of the batch; none when the batch does not continue the latest sample of each."""
        names = [series.resource for series in batch.series]
        if batch.accounting != self._accounting or not self._sampled_resources.issuperset(names):
            return []
        resources = [self._resources[name] for name in names]
        continued = (series.continues(one.usage) for one, series in zip(resources, batch.series, strict=True))
        return resources if all(continued) else []

    def _first_that_matters(self, batch: SampleBatch, resources: Sequence[MonitoredResource], first: int) -> int:
        """The index of the first sample, from `first` on, that may change something."""
        end = bisect_left(batch.times, min(resource.outlook_valid_until for resource in resources), first)
        for resource, series in zip(resources, batch.series, strict=True):
            if series.limit_used is not None:
                end = next((i for i in range(first, end) if not self._is_safe(resource, series.usage_at(i))), end)
                continue
            below = self._safe_below(resource, resource.usage)  # the same for all samples of the series
            if end > first and max(series.used[first:end]) >= below:
                end = next(i for i in range(first, end) if series.used[i] >= below)
        return end

    def _is_safe(self, resource: MonitoredResource, usage: Usage) -> bool:
        return usage.used_bytes < self._safe_below(resource, usage)

    def _safe_below(self, resource: MonitoredResource, usage: Usage) -> float:
        """Bytes in use below which the outlook stays valid and no growth is an emergency."""
        return min(resource.outlook_valid_below(usage), self._decision_maker.safe_below_bytes(resource, usage))

    def _add_batch(self, batch: SampleBatch, resources: Sequence[MonitoredResource], part: slice) -> None:
        times, latest = batch.times[part], batch.event_at(part.stop - 1).sample
        self._decision_maker.lead_time.add_sample_times(times)
        self.sample, self.sample_t, self.usages = latest, times[-1], latest.usages
        for resource, series, usage in zip(resources, batch.series, latest.usages, strict=True):
            used = series.used[part]
            self._ledger.add_samples(times, series.resource, used)
            resource.add_samples(times, used, used if series.limit_used is None else series.limit_used[part], usage)

    def explain(self, t: float) -> list[dict[str, Any]]:
        """What the decision stands on at the latest sample, of each resource; see `DecisionMaker.explain`."""
        lead = self._decision_maker.lead_time.lead_seconds(self.checkpoint_estimate(t)[0])
        resources = [self._resources[usage.resource] for usage in self.usages]
        for resource in resources:
            resource.update_outlook(t, self._ledger.last_generation, tuple(self._gauges.values()))
        return [self._decision_maker.explain(t, resource, lead) for resource in resources]

    # --- acting ---

    def _begin_interrupt(self, t: float, decision: InterruptDecision, is_writing: bool) -> bool:
        """Interrupt, unless a checkpoint is being written and there is time to wait for it; True: it has begun."""
        resource = self._resources[decision.usage.resource]
        limit, age = resource.usage.limit, t - resource.first_t
        if limit is not None and limit.origin == OWN_LIMIT and age < self._policy.own_limit_grace_seconds:
            return False
        estimate = self.checkpoint_estimate(t)
        lead = self._decision_maker.lead_time.lead_seconds(estimate[0])
        evidence = notices.interrupt_evidence(self._policy, resource, decision, lead, estimate)
        if is_writing and not is_exhausting(resource):
            if not self._is_deferred:
                self._is_deferred = True
                self._emit(notices.interrupt_deferred(t, self._ledger, resource, evidence))
            return False
        reason = notices.interrupt_reason(self._ledger, resource, decision, estimate, self._checkpoints.saves_on_signal)
        self._decision_maker.reset()
        self._is_deferred = False
        if self._policy.act:
            self._emit(notices.interrupt(t, self._ledger, resource, reason, evidence))
            request = Interrupt(t, decision.usage.resource, reason, emergency=decision.kind == "emergency")
            self._emit_all(self._episode.begin(request))
        else:
            self._episode.start_cooldown(t)
            self._emit(notices.no_interrupt(t, self._ledger, resource, reason, evidence))
        return True

    # --- the state ---

    def checkpoint_estimate(self, t: float) -> tuple[float, str]:
        """Seconds that a checkpoint is expected to take, and the origin of the estimate."""
        return self._decision_maker.lead_time.checkpoint_estimate(t)

    @property
    def state(self) -> WatchState:
        """The state of the watch while a trainer runs."""
        if self._episode.state is not None:
            return self._episode.state
        return WatchState.WARNED if any(one.warned for one in self._resources.values()) else WatchState.WATCHING

    def views(self, armed: bool) -> tuple[ResourceView, ...]:
        """Each resource at its latest sample; `armed`: an interrupt would reach the trainer."""
        return tuple([self._view(usage, armed) for usage in self.usages])

    def _view(self, usage: Usage, armed: bool) -> ResourceView:
        resource, ledger = self._resources[usage.resource], self._ledger
        outlook, planned = resource.current_outlook, self._planned(resource)
        severity = resource_severity(
            usage,
            outlook,
            warned=resource.warned,
            planned=planned if armed else None,
            last_generation=ledger.last_generation,
            generation_seconds=ledger.generation_seconds(self.sample_t or 0.0),
        )
        return ResourceView(
            usage,
            resource.first_bytes,
            resource.peak,
            outlook.verdict,
            outlook.trend,
            outlook.forecast,
            ledger.rows(usage.resource),
            resource.timeline.steps(),
            resource.warned,
            outlook.drivers,
            resource.neighbour_growth,
            outlook.others_per_second,
            outlook.needed,
            planned,
            severity,
        )

    @property
    def _has_episode(self) -> bool:
        return self._episode.stage is not EpisodeStage.IDLE

    @property
    def is_deciding(self) -> bool:
        return self._decision_maker.is_pending or self._has_episode

    @property
    def host_outlook(self) -> Outlook | None:
        """That of main memory as it is now; None before its first sample."""
        resource = self._resources.get(HOST)
        return None if resource is None else resource.current_outlook

    @property
    def stands_still(self) -> bool:
        """Whether no resource grows, as far as is known; unknown at first, and not so during a warning."""
        resources = self._resources.values()
        is_calm = self.state is WatchState.WATCHING and bool(resources)
        return is_calm and all(resource.current_outlook.verdict.stands_still for resource in resources)

    @property
    def next_sample_within_seconds(self) -> float:
        if self._has_episode:  # Nothing is left to decide.
            return 1.0
        # Batches pass through a tmpfs within milliseconds: at the pace of that there would be 200 samples a second.
        paced = (usage.resource for usage in self.usages if not is_tmpfs(usage.resource))
        return self._decision_maker.next_sample_seconds(self._resources[name] for name in paced)

    def wake_thresholds(self) -> tuple[CgroupMemory | None, Limit, tuple[int, ...]] | None:
        usage = next((usage for usage in self.usages if usage.resource == HOST), None)
        if usage is None or usage.limit is None or self.sample is None:
            return None
        return self.sample.cgroup, usage.limit, self._decision_maker.wake_thresholds(self._resources[HOST])
