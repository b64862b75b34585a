"""The watched trainer as a process: whether it runs, why a signal would not reach it, and the evidence of its end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from memwatch.actions.signal_sender import ExitStatus, PidfdSignaller
from memwatch.core.cause_of_death import (
    ExitEvidence,
    KernelRecord,
    explain_exit,
    is_consequence,
    last_lines,
    survival_reason,
)
from memwatch.core.checkpoint_timing import ECHO_SECONDS
from memwatch.core.events import (
    Attached,
    CheckpointSeen,
    Event,
    GenerationSeen,
    LastCheckpoint,
    Notice,
    OutOfMemorySeen,
    Sampled,
    Signalled,
    Signalling,
)
from memwatch.core.measurements import CgroupLevel, CgroupMemory, HostMemory, Target, TmpfsMemory
from memwatch.core.snapshot import Snapshot, WatchState
from memwatch.core.text_and_units import format_bytes
from memwatch.errors import SourceError
from memwatch.sources.checkpoint_watch import CheckpointWatch
from memwatch.sources.memory.cgroup import CgroupReader
from memwatch.sources.memory.kernel_oom_log import KmsgReader, OomKill

# A shell ends within this time after the kernel has killed its child. The kernel's log has a clock of its own, which
# may differ by this share of the uptime.
OOM_KILL_SECONDS, UPTIME_DRIFT = 5.0, 1e-4
REAPED_WITHIN_SECONDS = 0.5  # how long a parent takes, at most, until its child's status can be read for good
STATUS_POLL_SECONDS = 0.02
SAVES_KEPT = 5  # latest checkpoints, one of which is on disk at the end (chosen)
_AFTER_SIGNAL_STATES = (WatchState.INTERRUPTING, WatchState.SAVED, WatchState.ESCALATED)


class WatchedTrainer:
    """Observes every event that the engine is fed and, as a sink, every state, so as to explain the trainer's end."""

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
        systemd_status: Callable[[int, str], int | None] = lambda pid, cgroup: None,
        log_end: Callable[[], str] = lambda: "",
        passed_on: Callable[[], tuple[float, str] | None] = lambda: None,
    ) -> None:
        """`tree_parents` returns the parent PID of each descendant, including those that ended shortly before.

        `child_status`, given if the trainer is memwatch's own child, waits for its end and returns its status, -N for
        signal N; `systemd_status` asks systemd for that of the main process of the service with this cgroup. `log_end`
        returns the end of its log, `passed_on` the latest signal that memwatch was sent and passed on to its child.
        """
        self._signaller, self._tree_parents, self._cgroup = signaller, tree_parents, cgroup
        self._kmsg, self._checkpoints, self._child_status = kmsg, checkpoints, child_status
        self._systemd_status, self._log_end, self._passed_on = systemd_status, log_end, passed_on
        self._pid = signaller.target.pid
        self._was_alive = False  # after the kernel's log was opened: an earlier kill is not in what is read of it
        self._survived_kills: int | None = None  # the cgroup's count of OOM kills while the trainer was alive
        self._kills_at_end: int | None = None
        self._memory: CgroupMemory | None = None  # the latest reading
        self._host: HostMemory | None = None
        # by name: the latest reading, and the most taken between two samples
        self._tmpfs: dict[str, tuple[TmpfsMemory, int]] = {}
        self._signals: list[Signalled] = []  # of this interrupt episode
        self._unconfirmed: Signalling | None = None  # a signal whose outcome is not known yet
        self._saved: deque[tuple[CheckpointSeen, float | None]] = deque(maxlen=SAVES_KEPT)  # with the generation then
        self._has_saved_since = False  # the latest was reported after the first signal; their times may be equal
        self._generation: GenerationSeen | None = None  # under way
        self._signalled_in: GenerationSeen | None = None  # under way at the first signal of this episode
        self._log_oom: OutOfMemorySeen | None = None
        self._log_oom_survived = ""  # what shows that the trainer continued after `_log_oom`
        self._attached: Target | None = None  # the process that the events are about

    def observe_event(self, event: Event) -> None:
        if isinstance(event, Sampled):
            self._observe_sample(event)
        elif isinstance(event, Signalling | Signalled):
            self._observe_signal(event)
        elif isinstance(event, CheckpointSeen):
            if event.state == "saved":
                self._saved.append((event, None if self._generation is None else self._generation.index))
                self._has_saved_since = self._first_signal_t is not None and not event.before_signal
            if not event.path:
                self._checkpoints.add_logged(event.evidence)
        elif isinstance(event, OutOfMemorySeen):
            if self._log_oom is None or self._log_oom_survived or not is_consequence(event, self._log_oom):
                self._log_oom, self._log_oom_survived = event, ""
        elif isinstance(event, GenerationSeen):
            self._generation = event
            if self._log_oom is not None and event.at == "start" and not event.before_watch:
                self._log_oom_survived = f"{event.unit} {event.index:g} followed"
        elif isinstance(event, Attached) and event.target != self._attached:
            self._attached, self._log_oom = event.target, None  # that one was of an earlier process of the run
            self._tmpfs.clear()
            self._generation = None

    def resume_after_restart(self, now: float, before: Snapshot) -> None:
        """Continue an interrupt episode of an earlier memwatch: the checkpoint that it requested may be complete."""
        if before.state in _AFTER_SIGNAL_STATES and self._first_signal_t is not None:
            self._checkpoints.resume_after_signal(now, self._first_signal_t)

    def on_loop_iteration(self) -> bool:
        """Have the state published while an episode may have ended without a notice."""
        return self._checkpoints.urgent or bool(self._signals) or self._unconfirmed is not None

    def wants_snapshot(self) -> bool:
        return False

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        """Watch checkpoint files closely while a signal is possible, and forget the signals of a finished episode."""
        self._checkpoints.urgent = snapshot.state is not WatchState.WATCHING
        if snapshot.state not in _AFTER_SIGNAL_STATES:
            self._signals.clear()
            self._unconfirmed = None

    def on_watch_end(self, snapshot: Snapshot) -> None: ...

    def has_exited(self) -> bool:
        if not self._signaller.gone():
            return False
        if self._kills_at_end is None:  # counted at once: systemd removes the cgroup of a dead unit
            self._kills_at_end = self._cgroup.oom_kills()[0]
        return True

    def unreachable_reason(self) -> str | None:
        """Return why no signal would reach it; None when one would."""
        if self._signaller.may_signal():
            return None
        return (
            self._signaller.problem or "no permission to signal it: run memwatch as the trainer's user or with CAP_KILL"
        )

    def collect_exit_events(self, t: float, before: Snapshot) -> Sequence[Event]:
        """Return what its end brought to light, Exited last; `before` is the state in which it ended."""
        status = self._exit_status()
        was_killed = status is not None and status.signal not in (None, "SIGINT")
        found = self._checkpoints.checkpoints_at_exit(t, killed=was_killed)
        for event in found:
            self.observe_event(event)
        evidence = self._evidence(t, status, in_episode=before.state in _AFTER_SIGNAL_STATES)
        return [*found, explain_exit(t, replace(evidence, outlived_signal=self._outlived_signal(before)))]

    def _outlived_signal(self, before: Snapshot) -> str:
        """Return what shows that it went on after the first signal until its last generation; empty: nothing does."""
        then, index, last = self._signalled_in, before.generation, before.last_generation
        if then is None or index is None or last is None or not then.index < index >= last:
            return ""
        return f"after the signal in {then.unit} {then.index:g} it went on to its last {then.unit}, {last:g}"

    def _observe_signal(self, event: Signalling | Signalled) -> None:
        if self._first_signal_t is None:
            self._signalled_in = self._generation
        self._has_saved_since = self._has_saved_since and self._first_signal_t is not None
        if isinstance(event, Signalling):
            self._unconfirmed = event
        else:
            self._unconfirmed = None
            self._signals.append(event)

    def _observe_sample(self, event: Sampled) -> None:
        cgroup = event.sample.cgroup
        is_live = event.sample.tree is not None or cgroup is not None  # the history keeps only the usages of a sample
        self._was_alive = self._was_alive or (is_live and not self._signaller.dying())
        self._host = event.sample.host or self._host
        for tmpfs in event.sample.tmpfs:
            before, most_taken = self._tmpfs.get(tmpfs.resource, (tmpfs, 0))
            self._tmpfs[tmpfs.resource] = tmpfs, max(most_taken, tmpfs.used_bytes - before.used_bytes)
        if cgroup is not None:
            self._memory = cgroup
            if cgroup.oom_kills != self._survived_kills and not self._signaller.dying():
                self._survived_kills = cgroup.oom_kills

    @property
    def _first_signal_t(self) -> float | None:
        """When the first signal of this episode was sent, or may have been."""
        unconfirmed_t = None if self._unconfirmed is None else self._unconfirmed.t
        return next((signalled.t for signalled in self._signals if not signalled.error), unconfirmed_t)

    # --- the evidence of its end ---

    def _exit_status(self) -> ExitStatus | None:
        if self._child_status is not None:
            return ExitStatus.from_returncode(self._child_status())
        deadline = time.monotonic() + REAPED_WITHIN_SECONDS
        while (status := self._signaller.exit_status()) is None and time.monotonic() < deadline:
            time.sleep(STATUS_POLL_SECONDS)
        if status is None and self._memory is not None and self._memory.levels:
            code = self._systemd_status(self._pid, self._memory.levels[0].path)  # it reaped it before memwatch looked
            status = ExitStatus.from_returncode(code) if code is not None else None
        return status

    def _last_checkpoint(self, t: float, worked_until_t: float) -> LastCheckpoint | None:
        """The latest complete checkpoint that is on disk still."""
        there = [one for one in self._saved if not one[0].path or self._checkpoints.is_on_disk(one[0].path)]
        if not there:
            return None
        latest_t = max(event.t - event.still_seconds for event, _ in there)
        in_files = [one for one in there if one[0].path and latest_t - one[0].t + one[0].still_seconds <= ECHO_SECONDS]
        event, index = max(in_files or there, key=lambda one: one[0].t - one[0].still_seconds)
        complete_t, now = event.t - event.still_seconds, self._generation
        lost = max(0.0, now.index - index) if now is not None and index is not None else None
        unit = "generation" if now is None else now.unit
        lost_seconds, age_seconds = (round(max(0.0, end_t - complete_t), 3) for end_t in (worked_until_t, t))
        return LastCheckpoint(event.evidence, event.path, age_seconds, lost_seconds, index, lost, unit)

    def _evidence(self, t: float, status: ExitStatus | None, *, in_episode: bool) -> ExitEvidence:
        signals = self._signals if in_episode else []
        signal_t = self._first_signal_t if in_episode else None
        saved, evidence_after_signal = self._saved[-1][0] if self._saved else None, None
        if saved is not None and signal_t is not None and self._has_saved_since and saved.t >= signal_t:
            evidence_after_signal = saved.evidence
        delivered_t = max((sent.t for sent in signals if not sent.error and not sent.dry_run), default=signal_t)
        levels = self._memory.levels if self._memory is not None else ()
        headrooms = [level.limit_bytes - level.charged_bytes for level in levels if level.limit_bytes is not None]
        kills, log = self._kernel_kills(), self._log_end()
        return ExitEvidence(
            exit_code=status.exit_code if status else None,
            exit_signal=status.signal if status else None,
            signalled=signals[-1] if signals else None,
            unconfirmed_signal=self._unconfirmed if in_episode else None,
            escalated=len({signalled.signal for signalled in signals if not signalled.error}) > 1,
            checkpoint_after_signal=evidence_after_signal,
            checkpoint=self._last_checkpoint(t, t if delivered_t is None else delivered_t),
            save_seconds=max((event.seconds or 0.0 for event, _ in self._saved), default=0.0),
            oom_kills_delta=self._last_oom_kills(),
            cgroup_owned=self._memory is not None and self._memory.owned,
            kernel_record=self._kernel_record(kills, levels) if kills else None,
            kernel_log_read=kills is not None and self._was_alive,
            log_oom=self._log_oom,
            survived_oom_reason=self._log_oom_survival_reason(log, status),
            log_tail=last_lines(log),
            passed_on=self._passed_on(),
            cgroup_headroom_bytes=min(headrooms, default=None),
            host_headroom_bytes=self._host.available_bytes if self._host else None,
            tmpfs=tuple(self._tmpfs.values()),
        )

    def _log_oom_survival_reason(self, log: str, status: ExitStatus | None) -> str:
        """Return why what the log says of memory did not end the trainer; empty when it may have."""
        if self._log_oom_survived or self._log_oom is None:
            return self._log_oom_survived
        exit_code, signal = (status.exit_code, status.signal) if status is not None else (None, None)
        return survival_reason(log, self._log_oom, exit_code, signal)

    def _last_oom_kills(self) -> int | None:
        """Return how many kills in its cgroup it is not known to have survived; None when they cannot be counted."""
        survived = self._survived_kills
        counts = [count for count in (self._kills_at_end, self._cgroup.oom_kills()[0]) if count is not None]
        return None if not counts or survived is None else max(counts) - survived

    def _kernel_kills(self) -> Sequence[OomKill] | None:
        """Return the kills in the kernel's log since the attach; None when it cannot be read."""
        try:
            return self._kmsg.read_new_kills(0.0) if self._kmsg else None
        except SourceError:
            return None

    def _kernel_record(self, kills: Sequence[OomKill], levels: Sequence[CgroupLevel]) -> KernelRecord | None:
        """Return the latest kill that explains most: of the trainer, else in its tree, else in its cgroups or host."""
        parents, cgroups = self._tree_parents(), {level.path for level in levels}
        tree = {self._pid, *parents}
        related = [kill for kill in kills if kill.pid in tree or kill.memcg is None or kill.memcg in cgroups]
        if not related:
            return None
        kill = sorted(related, key=lambda kill: (kill.pid == self._pid, kill.pid in tree))[-1]
        uptime = time.clock_gettime(time.CLOCK_MONOTONIC)
        is_recent = uptime - kill.uptime_seconds <= OOM_KILL_SECONDS + UPTIME_DRIFT * uptime
        where = f"at the limit of cgroup {kill.memcg}" if kill.memcg else "host out of memory"
        return KernelRecord(
            pid=kill.pid,
            constraint="memcg" if kill.constraint == "memcg" else "global",
            line=f"OOM killer killed {kill.pid} ({kill.comm}), {format_bytes(kill.rss_bytes)} resident, {where}",
            of_trainer=kill.pid == self._pid,
            of_child=parents.get(kill.pid) == self._pid and is_recent,
        )
