"""The trainer as the daemon holds it: whether it lives, the way to signal it, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from memwatch.actions.signal_sender import ExitStatus, PidfdSignaller
from memwatch.app.launched_trainer import signal_name
from memwatch.core.cause_of_death import ExitEvidence, KernelRecord, explain_exit, survival_reason
from memwatch.core.events import (
    Attached,
    CheckpointSeen,
    Event,
    GenerationSeen,
    Notice,
    OutOfMemorySeen,
    Sampled,
    Signalled,
    Signalling,
)
from memwatch.core.measurements import CgroupLevel, CgroupMemory, HostMemory, Target
from memwatch.core.snapshot import Snapshot, WatchState
from memwatch.core.text_and_units import format_bytes
from memwatch.errors import SourceError
from memwatch.sources.checkpoint_watch import CheckpointWatch
from memwatch.sources.memory.cgroup import CgroupReader
from memwatch.sources.memory.kernel_oom_log import KmsgReader, OomKill

OOM_KILL_SECONDS = 5.0  # a shell ends no later after the kernel has killed its child than this ...
UPTIME_DRIFT = 1e-4  # ... and such a share of the uptime: the kernel's log has a clock of its own
REAPED_WITHIN_SECONDS = 0.5  # a parent takes this long, at most, before its child's status can be read for good
STATUS_LOOK_SECONDS = 0.02
_AFTER_SIGNAL_STATES = (WatchState.INTERRUPTING, WatchState.SAVED, WatchState.ESCALATED)


class WatchedTrainer:
    """Sees every event that the engine is fed and, as a sink, every state: the evidence is at hand at the end."""

    name = "trainer"

    def __init__(
        self,
        *,
        signaller: PidfdSignaller,
        tree_parents: Callable[[], Mapping[int, int]],
        cgroup: CgroupReader,
        kmsg: KmsgReader | None,
        checkpoints: CheckpointWatch,
        child_status: Callable[[], int] | None = None,
        log_end: Callable[[], str] = lambda: "",
    ) -> None:
        """`tree_parents`: of its descendants, those that ended lately among them.

        `child_status`: for memwatch's own child, waits for its end and gives its status, -N for signal N.

        `log_end`: the last that its log says.
        """
        self._signaller, self._tree_parents, self._cgroup = signaller, tree_parents, cgroup
        self._kmsg, self._checkpoints, self._child_status = kmsg, checkpoints, child_status
        self._log_end = log_end
        self._pid = signaller.target.pid
        self._lived = False  # after the kernel's log was opened: a kill before that is not read
        self._survived_kills: int | None = None  # in its cgroup, that were others'
        self._kills_at_end: int | None = None
        self._memory: CgroupMemory | None = None  # as last read
        self._host: HostMemory | None = None
        self._signals: list[Signalled] = []
        self._unsure: Signalling | None = None  # what came of it is not told
        self._checkpoint: CheckpointSeen | None = None
        self._has_saved_since = False  # the checkpoint was told after the first signal: both may be of one moment
        self._log_oom: OutOfMemorySeen | None = None
        self._outlived = ""  # what shows that it went on after that
        self._attached: Target | None = None  # whom the events are about

    def observe_event(self, event: Event) -> None:
        """Keep what the autopsy will ask for."""
        if isinstance(event, Sampled):
            self._observe_sample(event)
        elif isinstance(event, Signalling | Signalled):
            self._observe_signal(event)
        elif isinstance(event, CheckpointSeen):
            if event.state == "saved":
                self._checkpoint, self._has_saved_since = event, self._asked_t is not None
        elif isinstance(event, OutOfMemorySeen):
            self._log_oom, self._outlived = event, ""
        elif isinstance(event, GenerationSeen):
            self._observe_generation(event)
        elif isinstance(event, Attached) and event.target != self._attached:
            self._attached, self._log_oom = event.target, None  # that was of an attempt that is over

    def resume_after_restart(self, now: float, before: Snapshot) -> None:
        """memwatch was started again; `before` is what it knew. A checkpoint that it has asked for may be complete."""
        begun = self._asked_t
        if before.state in _AFTER_SIGNAL_STATES and begun is not None:
            self._checkpoints.resume_after_signal(now, begun)

    def on_loop_iteration(self) -> bool:
        """What begins is told, and then shown; that it is over is not."""
        return self._checkpoints.urgent or bool(self._signals) or self._unsure is not None

    def wants_snapshot(self) -> bool:
        """Nobody can ask."""
        return False

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        """Look at checkpoint files closely while a signal is possible; signals of an episode that is over are past."""
        self._checkpoints.urgent = snapshot.state is not WatchState.WATCHING
        if snapshot.state not in _AFTER_SIGNAL_STATES:
            self._signals.clear()
            self._unsure = None

    def on_watch_end(self, snapshot: Snapshot) -> None:
        """As a sink: nothing is held."""

    def has_exited(self) -> bool:
        """It has ended. The kills are counted the moment that is seen: systemd removes a dead unit's cgroup at once."""
        if not self._signaller.gone():
            return False
        if self._kills_at_end is None:
            self._kills_at_end = self._cgroup.oom_kills()[0]
        return True

    def unreachable_reason(self) -> str | None:
        """Why no signal would reach it; None when one would."""
        if self._signaller.may_signal():
            return None
        return (
            self._signaller.problem or "no permission to signal it: run memwatch as the trainer's user or with CAP_KILL"
        )

    def collect_exit_events(self, t: float, before: Snapshot) -> Sequence[Event]:
        """What its end brought to light, the conclusion last; `before` is the state in which the end was met."""
        status = self._status()
        found = self._checkpoints.checkpoints_at_exit(
            t, killed=status is not None and status.signal not in (None, "SIGINT")
        )
        for event in found:
            self.observe_event(event)
        return [*found, explain_exit(t, self._evidence(t, status, before.state in _AFTER_SIGNAL_STATES))]

    def _observe_signal(self, event: Signalling | Signalled) -> None:
        self._has_saved_since = self._has_saved_since and self._asked_t is not None
        if isinstance(event, Signalling):
            self._unsure = event
        else:
            self._unsure = None
            self._signals.append(event)

    def _observe_generation(self, event: GenerationSeen) -> None:
        """A generation that begins shows that a failed allocation before it was survived."""
        if self._log_oom is not None and event.at == "start" and not event.before_watch:
            self._outlived = f"{event.unit} {event.index:g} followed"

    def _observe_sample(self, event: Sampled) -> None:
        cgroup = event.sample.cgroup
        live = event.sample.tree is not None or cgroup is not None  # of a past one only usages are kept
        self._lived = self._lived or (live and not self._signaller.dying())
        self._host = event.sample.host or self._host
        if cgroup is not None:
            self._memory = cgroup
            if cgroup.oom_kills != self._survived_kills and not self._signaller.dying():
                self._survived_kills = cgroup.oom_kills

    def _status(self) -> ExitStatus | None:
        if self._child_status is not None:
            return _of_child(self._child_status())
        deadline = time.monotonic() + REAPED_WITHIN_SECONDS
        while (status := self._signaller.exit_status()) is None and time.monotonic() < deadline:
            time.sleep(STATUS_LOOK_SECONDS)
        return status

    def _evidence(self, t: float, status: ExitStatus | None, in_episode: bool) -> ExitEvidence:
        sent = self._signals if in_episode else []
        begun = self._asked_t if in_episode else None
        saved = self._checkpoint
        kills = self._kernel_kills()
        after = saved is not None and begun is not None and self._has_saved_since and saved.t >= begun
        return ExitEvidence(
            exit_code=status.exit_code if status else None,
            exit_signal=status.signal if status else None,
            signalled=sent[-1] if sent else None,
            unconfirmed_signal=self._unsure if in_episode else None,
            escalated=len({one.signal for one in sent if not one.error}) > 1,
            checkpoint_after_signal=saved.evidence if saved is not None and after else None,
            saved=saved,
            oom_kills_delta=self._last_oom_kills(),
            cgroup_owned=self._memory is not None and self._memory.owned,
            kernel_record=self._kernel_record(kills) if kills else None,
            kernel_log_read=kills is not None and self._lived,
            log_oom=self._log_oom,
            survived_oom_reason=self._how_outlived(status),
            cgroup_headroom_bytes=_least_room(self._levels),
            host_headroom_bytes=self._host.available_bytes if self._host else None,
        )

    @property
    def _asked_t(self) -> float | None:
        """When the first signal of this episode was sent, or may have been."""
        unsure = None if self._unsure is None else self._unsure.t
        return next((one.t for one in self._signals if not one.error), unsure)

    def _how_outlived(self, status: ExitStatus | None) -> str:
        """Why the failed allocation that the log told of last is not what ended it; empty: it may be."""
        if self._outlived or self._log_oom is None:
            return self._outlived
        code, signal = (status.exit_code, status.signal) if status is not None else (None, None)
        return survival_reason(self._log_end(), self._log_oom.line, code, signal)

    @property
    def _levels(self) -> tuple[CgroupLevel, ...]:
        return self._memory.levels if self._memory is not None else ()

    def _last_oom_kills(self) -> int | None:
        """Kills in its cgroup that it was not seen to survive; None: not known."""
        before = self._survived_kills
        counts = [count for count in (self._kills_at_end, self._cgroup.oom_kills()[0]) if count is not None]
        return None if not counts or before is None else max(counts) - before

    def _kernel_kills(self) -> Sequence[OomKill] | None:
        """Of the kernel's log since the attach; None: it cannot be read."""
        try:
            return self._kmsg.read_new_kills(0.0) if self._kmsg else None
        except SourceError:
            return None

    def _kernel_record(self, kills: Sequence[OomKill]) -> KernelRecord | None:
        """The one that tells most of this end."""
        parents, cgroups = self._tree_parents(), {level.path for level in self._levels}
        tree = {self._pid, *parents}
        near = [kill for kill in kills if kill.pid in tree or kill.memcg is None or kill.memcg in cgroups]
        ranked = sorted(near, key=lambda kill: (kill.pid == self._pid, kill.pid in tree))
        return self._record(ranked[-1], parents) if ranked else None

    def _record(self, kill: OomKill, parents: Mapping[int, int]) -> KernelRecord:
        uptime = time.clock_gettime(time.CLOCK_MONOTONIC)
        late = uptime - kill.uptime_seconds > OOM_KILL_SECONDS + UPTIME_DRIFT * uptime
        where = f"at the limit of cgroup {kill.memcg}" if kill.memcg else "host out of memory"
        return KernelRecord(
            pid=kill.pid,
            constraint="memcg" if kill.constraint == "memcg" else "global",
            line=f"OOM killer killed {kill.pid} ({kill.comm}), {format_bytes(kill.rss_bytes)} resident, {where}",
            of_trainer=kill.pid == self._pid,
            of_child=parents.get(kill.pid) == self._pid and not late,
        )


def _least_room(levels: Sequence[CgroupLevel]) -> int | None:
    """Bytes that the fullest had left; None without limits."""
    rooms = [level.limit_bytes - level.charged_bytes for level in levels if level.limit_bytes is not None]
    return min(rooms, default=None)


def _of_child(status: int) -> ExitStatus:
    return ExitStatus(status, None) if status >= 0 else ExitStatus(None, signal_name(-status))
