"""Events in, actions out: all live state of a watch, and the snapshot that outputs read. No clock."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from memwatch.core import news
from memwatch.core import sentence as words
from memwatch.core.accounting import accounting, gpu_usage
from memwatch.core.checkpoints import Checkpoints
from memwatch.core.decision import Decider
from memwatch.core.emergency import Emergencies
from memwatch.core.episode import Episode, Stage
from memwatch.core.forecast import Forecaster
from memwatch.core.generations import Boundary, Ledger
from memwatch.core.lead import Lead
from memwatch.core.levels import look_headrooms
from memwatch.core.model import (
    HOST,
    Action,
    ArmedChanged,
    Attached,
    CgroupMemory,
    CheckpointSeen,
    Event,
    Exited,
    Gauge,
    GaugeSeen,
    GenerationSeen,
    Interrupt,
    Limit,
    Notice,
    OutOfMemorySeen,
    PhaseSeen,
    ResourceView,
    Sample,
    Sampled,
    Signalled,
    Snapshot,
    SourceChanged,
    SourceHealth,
    State,
    Stretch,
    Target,
    TotalSeen,
    TreeMemory,
    Usage,
)
from memwatch.core.policy import PACE_FLOOR_SECONDS, PACE_IDLE_SECONDS, Policy, pace_seconds
from memwatch.core.sharing import cow_matters
from memwatch.core.track import Decision, ForecasterLike, Track

NOTICES_KEPT = 50  # in the snapshot; markers and forecasts, which come by the thousand, are not among them
GAUGES_KEPT = 16


class Engine:
    """Owns the state of one run. Deterministic: the same events give the same actions and the same snapshot."""

    def __init__(self, policy: Policy, forecaster: Callable[[], ForecasterLike] = Forecaster) -> None:
        self._policy = policy
        self._new_forecaster = forecaster
        self._t = 0.0
        self._out: list[Action] = []
        self._target: Target | None = None
        self._command = self._run_id = ""
        self._started_t: float | None = None
        self._exited: Exited | None = None
        self._ledger = Ledger()
        self._checkpoints = Checkpoints()
        self._episode = Episode(policy)
        self._lead = Lead(policy, self._ledger, self._checkpoints)
        self._emergencies = Emergencies(policy, self._ledger)
        self._decider = Decider(policy, self._ledger, self._checkpoints)
        self._tracks: dict[str, Track] = {}
        self._fresh: set[str] = set()  # resources that this process has been read for
        self._sample: Sample | None = None
        self._usages: tuple[Usage, ...] = ()  # of the latest sample; after the end, of the last that had any
        self._sample_t: float | None = None
        self._accounting: str | None = None
        self._cow_told = False
        self._held = False
        self._gauges: dict[str, Gauge] = {}
        self._sources: dict[str, SourceHealth] = {}
        self._powerless: str | None = "nothing is known of the way to signal it"
        self._notices: deque[Notice] = deque(maxlen=NOTICES_KEPT)
        self._handlers: dict[type, Callable[[float, Any], None]] = {
            Attached: self._attached,
            Sampled: self._sampled,
            GenerationSeen: self._generation_seen,
            TotalSeen: self._total_seen,
            PhaseSeen: self._phase_seen,
            GaugeSeen: self._gauge_seen,
            CheckpointSeen: self._checkpoint_seen,
            OutOfMemorySeen: self._out_of_memory_seen,
            SourceChanged: self._source_changed,
            ArmedChanged: self._armed_changed,
            Signalled: self._signalled,
            Exited: self._has_exited,
        }

    def feed(self, event: Event) -> list[Action]:
        """Take one event; the actions that follow from it, in order. A clock that goes back is held still."""
        self._t = max(self._t, event.t)
        self._out = []
        self._handlers[type(event)](self._t, event)
        return self._out

    # --- telling ---

    def _tell(self, notice: Notice) -> None:
        self._out.append(notice)
        if notice.event not in ("marker", "forecast"):
            self._notices.append(notice)

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Notice):
                self._tell(action)
            else:
                self._out.append(action)

    # --- who is watched ---

    def _attached(self, t: float, event: Attached) -> None:
        again = event.target == self._target and self._exited is None
        successor = self._target is not None and event.target != self._target
        self._target, self._exited = event.target, None
        self._command, self._run_id = event.command, event.run_id or self._run_id
        if self._started_t is None:
            self._started_t = t
        if successor:
            self._begin_attempt(t)
        elif again:
            self._episode.resume()
            self._drop()
        how = "watching again" if again else "the run goes on in a new process" if successor else "watching"
        self._tell(news.attached(t, event, how, self._ledger.attempt, self._run_id))
        for remark in event.remarks:
            self._tell(news.note(t, remark))

    def _begin_attempt(self, t: float) -> None:
        self._ledger.attach(t, self._ledger.attempt + 1)
        self._checkpoints.restart()
        self._episode = Episode(self._policy)
        self._fresh.clear()
        self._drop()
        self._held = self._cow_told = False
        self._sample = self._sample_t = None
        self._usages = ()
        for track in self._tracks.values():
            track.restart(t)

    def _has_exited(self, t: float, event: Exited) -> None:
        self._exited = event
        self._ledger.end(t)
        self._drop()
        self._sample = None
        self._tell(news.exited(t, event))

    # --- what the log says ---

    def _generation_seen(self, t: float, event: GenerationSeen) -> None:
        if self._exited is not None:
            return
        recounts = self._ledger.index is not None and event.unit != self._ledger.unit
        if recounts:
            self._drop()
            for track in self._tracks.values():
                track.forecaster.recount()
        boundary = self._ledger.mark(min(t, event.t), event)  # a marker that was told late has its own time
        if boundary is None:
            return
        self._tell(news.marker(t, event, self._ledger.total))
        self._cross(boundary)

    def _cross(self, boundary: Boundary) -> None:
        if not boundary.partial:
            for track in self._tracks.values():
                track.begin_generation(boundary.t, boundary.index)
        for resource, row in boundary.closed.items():
            self._tell(news.generation(self._t, self._ledger.unit, resource, row))
        self._decider.good_moment(boundary.t, "boundary")

    def _total_seen(self, t: float, event: TotalSeen) -> None:
        self._ledger.total = event.total
        self._stir()

    def _phase_seen(self, t: float, event: PhaseSeen) -> None:
        self._ledger.mark_phase(t, event)

    def _gauge_seen(self, t: float, event: GaugeSeen) -> None:
        known = self._gauges.get(event.name)
        if known is None and len(self._gauges) >= GAUGES_KEPT:
            return
        capacity = known.capacity if known is not None and event.capacity is None else event.capacity
        self._gauges[event.name] = Gauge(event.name, event.value, capacity, t)
        self._stir()

    def _stir(self) -> None:
        for track in self._tracks.values():
            track.stir()

    def _checkpoint_seen(self, t: float, event: CheckpointSeen) -> None:
        if event.state == "writing":
            known = self._checkpoints.is_writing(t, self._lead.checkpoint(t)[0])
            self._checkpoints.writing(t, event.evidence.split(":", 1)[0])
            if not known:
                self._tell(news.checkpoint(t, event, None))
            return
        witness = event.evidence.split(":", 1)[0]
        if self._checkpoints.is_echo(t, witness):
            return
        took = self._checkpoints.saved(t, witness, event.seconds)
        self._tell(news.checkpoint(t, event, took))
        self._decider.good_moment(t, "saved")
        self._held = False
        since_signal = self._episode.saved(t)
        if since_signal is not None:
            self._checkpoints.measured(since_signal)
            self._tell(news.saved(t, event, since_signal))

    def _out_of_memory_seen(self, t: float, event: OutOfMemorySeen) -> None:
        self._tell(news.out_of_memory(t, event))

    def _source_changed(self, t: float, event: SourceChanged) -> None:
        known = self._sources.get(event.source)
        self._sources[event.source] = SourceHealth(event.source, event.ok, event.reason, t)
        if event.ok != (known is None or known.ok):
            self._tell(news.source(t, event))

    def _armed_changed(self, t: float, event: ArmedChanged) -> None:
        self._powerless = None if event.armed else event.reason
        self._tell(news.armed(t, event))

    def _signalled(self, t: float, event: Signalled) -> None:
        self._tell(news.signalled(t, event))
        self._act(self._episode.signalled(t, event))

    # --- what memory says ---

    def _sampled(self, t: float, event: Sampled) -> None:
        if self._exited is not None:
            return
        self._lead.sampled((t,))
        self._sample, self._sample_t = event.sample, t
        self._usages = event.sample.usages
        if event.sample.gpus:
            self._usages += tuple(self._standing(event.sample))
        how = accounting(event.sample.tree, event.sample.cgroup, event.sample.gpus)
        if how != self._accounting and HOST in self._tracks:
            self._tracks[HOST].recount()
        self._accounting = how
        for usage in event.sample.usages:
            self._observe(t, usage)
        self._look_for_copies(t, event.sample.tree)
        tracks = [self._tracks[usage.resource] for usage in event.sample.usages]
        if self._is_idle and all(self._is_calm(t, track) for track in tracks):
            return
        checkpoint_seconds, _ = self._lead.checkpoint(t)
        writing = self._writing(t, checkpoint_seconds)
        self._act(self._episode.tick(t, checkpoint_seconds, writing))
        if tracks and self._target is not None:
            self._look(t, tracks, self._lead.seconds(checkpoint_seconds), writing)

    @property
    def _is_idle(self) -> bool:
        """Nothing is under way or considered: what memory does is all that may be news."""
        return not (self._held or self._decider.waits or self.is_deciding) and self._episode.stage is Stage.IDLE

    def _is_calm(self, t: float, track: Track) -> bool:
        return track.is_calm(t) and track.usage.used_bytes < self._emergencies.far_below(track.usage)

    def skim(self, stretch: Stretch, first: int) -> int:
        """Take the looks from `first` on that can show nothing new; the index of the next, which is to be fed.

        They leave behind what feeding each of them would.
        """
        tracks = self._calm_tracks(stretch, first)
        if not tracks:
            return first
        end = bisect_left(stretch.times, min(track.calm[0] for track in tracks), first)
        for track, series in zip(tracks, stretch.pools, strict=True):
            below = min(track.calm[1], self._emergencies.far_below(track.usage))
            if end > first and max(series.used[first:end]) >= below:
                end = next(i for i in range(first, end) if series.used[i] >= below)
        if end > first:
            self._skim(stretch, tracks, slice(first, end))
        return end

    def _calm_tracks(self, stretch: Stretch, first: int) -> list[Track]:
        """Of its pools; none while a look is wanted whatever they show, or when they do not go on as before."""
        if self._exited is not None or self._target is None or not self._is_idle or stretch.times[first] < self._t:
            return []
        if any(series.resource not in self._fresh for series in stretch.pools):
            return []
        tracks = [self._tracks[series.resource] for series in stretch.pools]
        as_before = (
            track.usage == series.usage(track.usage.used_bytes)
            for track, series in zip(tracks, stretch.pools, strict=True)
        )
        return tracks if all(as_before) else []

    def _skim(self, stretch: Stretch, tracks: Sequence[Track], part: slice) -> None:
        times, sampled = stretch.times[part], stretch.sampled(part.stop - 1)
        self._t = self._sample_t = times[-1]
        self._sample, self._usages = sampled.sample, sampled.sample.usages
        self._lead.sampled(times)
        for track, series, usage in zip(tracks, stretch.pools, self._usages, strict=True):
            used = series.used[part]
            self._ledger.sample(times, series.resource, used)
            track.skim(times, used, usage)

    def _standing(self, sample: Sample) -> Iterator[Usage]:
        """Of GPUs whose reading is that of an earlier sample."""
        fresh = {usage.resource for usage in sample.usages}
        for gpu in sample.gpus:
            if gpu.resource in self._tracks and gpu.resource not in fresh and gpu_usage(gpu) is not None:
                yield self._tracks[gpu.resource].usage

    def _observe(self, t: float, usage: Usage) -> None:
        track = self._tracks.get(usage.resource)
        if track is None:
            track = self._tracks[usage.resource] = Track(usage, self._new_forecaster(), t)
        elif usage.resource not in self._fresh:
            track.begin(usage.used_bytes, t)
        self._fresh.add(usage.resource)
        self._ledger.sample((t,), usage.resource, (usage.used_bytes,))
        track.observe(t, usage)

    def _look_for_copies(self, t: float, tree: TreeMemory | None) -> None:
        """Say once that pages are copied on write."""
        track = self._tracks.get(HOST)
        if self._cow_told or track is None or tree is None or not tree.cow_bytes:
            return
        used = track.usage.used_bytes
        if cow_matters(tree.cow_bytes, used, used - track.baseline):
            self._cow_told = True
            self._tell(news.cow(t, tree))

    def _look(self, t: float, tracks: Sequence[Track], lead: float, writing: bool) -> None:
        """Judge a reading: an emergency first, and nothing else delays its signal."""
        may_begin = self._episode.may_begin(t)
        if not may_begin:
            self._drop()
        else:
            burst = self._emergencies.judge(t, tracks, lead)
            if burst is not None and self._begin(t, burst, writing):
                return
        if not self._decider.waits and all(track.is_calm(t) for track in tracks):
            return
        self._renew(t, tracks)
        decision = self._decider.decide(t, tracks, lead, self._lead.gap) if may_begin else None
        if decision is not None:
            self._begin(t, decision, writing)

    def _renew(self, t: float, tracks: Sequence[Track]) -> None:
        """The outlooks, and what there is to tell of them."""
        ledger, gauges = self._ledger, tuple(self._gauges.values())
        step, silent, last = ledger.step_seconds(t), ledger.silent(t), ledger.last_generation
        for track in tracks:
            track.look(t, last, gauges)
            if track.take_news(t, silent):
                self._tell(news.forecast(t, ledger, track))
            if track.turn(t, self._policy, step):
                self._tell(news.warning(t, ledger, track))

    # --- acting ---

    def _drop(self) -> None:
        """No interrupt can begin now."""
        self._emergencies.drop()
        self._decider.drop()

    def _begin(self, t: float, decision: Decision, writing: bool) -> bool:
        """Interrupt, unless a checkpoint is being written that can be waited for."""
        if writing and not self._exhausts(decision.track):
            self._hold(t, decision.track)
            return False
        self._interrupt(t, decision)
        return True

    @staticmethod
    def _exhausts(track: Track) -> bool:
        limit = track.usage.limit
        return limit is not None and track.burst.exhausts(limit.headroom_bytes, limit.bytes)

    def _writing(self, t: float, lead: float) -> bool:
        writing = self._checkpoints.is_writing(t, lead)
        self._held = self._held and writing
        return writing

    def _hold(self, t: float, track: Track) -> None:
        if not self._held:
            self._held = True
            self._tell(news.held(t, self._ledger, track))

    def _interrupt(self, t: float, decision: Decision) -> None:
        track, ledger = decision.track, self._ledger
        reason = news.reason(ledger, decision, *self._lead.checkpoint(t))
        self._drop()
        self._held = False
        if not self._policy.act:
            self._episode.skip(t)
            self._tell(news.no_interrupt(t, ledger, track, reason))
            return
        self._tell(news.interrupt(t, ledger, track, decision.kind, reason))
        emergency = decision.kind == "emergency"
        self._act(self._episode.begin(Interrupt(t, track.usage.resource, reason, emergency)))

    # --- what is known ---

    def snapshot(self) -> Snapshot:
        """The state after the last event. Immutable; closed ledger rows are shared, not copied."""
        ledger = self._ledger
        views = tuple(self._view(usage) for usage in self._usages)
        state = self._state()
        checkpoint_seconds, origin = self._lead.checkpoint(self._t)
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
            sample=self._sample,
            sample_t=self._sample_t,
            resources=views,
            gauges=tuple(self._gauges.values()),
            sources=tuple(self._sources.values()),
            notices=tuple(self._notices),
            checkpoint_t=self._checkpoints.saved_t,
            checkpoint_seconds=checkpoint_seconds,
            checkpoint_origin=origin,
            pace_seconds=self.pace_seconds,
            unarmed=self._unarmed(),
            exited=self._exited,
        )

    def _sentence(self, views: Sequence[ResourceView], state: State) -> str:
        ledger = self._ledger
        phases = {v.usage.resource: phase for v in views if (phase := ledger.leading_phase(v.usage.resource))}
        unread = self._sample.unread if self._sample else ()
        missing = "; ".join(f"{one.source}: {one.reason}" for one in unread if not one.absent)
        return words.sentence(
            views, ledger.unit, ledger.last_generation, phases, state=state, exited=self._exited, missing=missing
        )

    def _state(self) -> State:
        if self._exited is not None:
            return State.ENDED
        if self._episode.state is not None:
            return self._episode.state
        return State.WARNED if any(track.warned for track in self._tracks.values()) else State.WATCHING

    def _view(self, usage: Usage) -> ResourceView:
        track = self._tracks[usage.resource]
        outlook = track.outlook_now
        return ResourceView(
            usage,
            track.baseline,
            track.peak,
            outlook.verdict,
            outlook.trend,
            outlook.forecast,
            self._ledger.rows(usage.resource),
        )

    def _unarmed(self) -> str | None:
        """Why no interrupt would reach the trainer now."""
        if self._target is None or self._exited is not None:
            return "no trainer runs"
        if not self._policy.act:
            return "policy.act is false"
        if self._powerless is not None:
            return self._powerless
        if not any(usage.limit is not None for usage in self._usages):
            return "its memory, or the limit of it, is not known"
        return None

    @property
    def is_deciding(self) -> bool:
        """An interrupt is considered: whether a checkpoint is being written matters now."""
        return self._decider.pending or self._emergencies.wait_seconds is not None

    @property
    def pace_seconds(self) -> float:
        """How soon the next sample should be taken, at most."""
        if self._episode.stage is not Stage.IDLE:  # what there was to do is done
            return 1.0
        paces = [
            pace_seconds(usage.limit.headroom_bytes, self._tracks[usage.resource].fastest)
            for usage in self._usages
            if usage.limit is not None
        ]
        if self._decider.pending:
            paces.append(self._policy.second_look_seconds)
        if self._emergencies.wait_seconds is not None:
            paces.append(self._emergencies.wait_seconds)
        return max(min(paces, default=PACE_IDLE_SECONDS), PACE_FLOOR_SECONDS)

    def look_headrooms(self) -> tuple[CgroupMemory | None, Limit, tuple[int, ...]] | None:
        """The cgroup and the limit of main memory as last read, and bytes of headroom at which a look is wanted."""
        usage = next((usage for usage in self._usages if usage.resource == HOST), None)
        if usage is None or usage.limit is None or self._sample is None:
            return None
        rooms = look_headrooms(usage.limit, usage.used_bytes, self._tracks[HOST].peak, self._policy.headroom_guard)
        return self._sample.cgroup, usage.limit, rooms
