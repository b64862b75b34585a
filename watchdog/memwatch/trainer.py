"""The trainer as the daemon holds it: whether it lives, the way to signal it, and how it ended."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from memwatch.actions.checkpoint import CheckpointWatch
from memwatch.actions.signals import ExitStatus, PidfdSignaller
from memwatch.core.autopsy import Evidence, KernelRecord, conclude
from memwatch.core.events import CheckpointSeen, Event, Notice, OutOfMemorySeen, Sampled, Signalled
from memwatch.core.model import CgroupLevel, CgroupMemory, HostMemory
from memwatch.core.snapshot import Snapshot, State
from memwatch.core.units import format_bytes
from memwatch.errors import SourceError
from memwatch.sources.cgroup import CgroupReader
from memwatch.sources.kmsg import KmsgReader, OomKill
from memwatch.supervisor import signal_name

OOM_KILL_SECONDS = 5.0  # a kill is seen in the cgroup's counter no longer before the end than this
REAPED_WITHIN_SECONDS = 0.5  # a parent takes this long, at most, before its child's status can be read for good
STATUS_LOOK_SECONDS = 0.02
_OURS = (State.INTERRUPTING, State.SAVED, State.ESCALATED)


class WatchedTrainer:
    """Sees every event that the engine is fed and, as a sink, every state: the evidence is at hand at the end."""

    name = "trainer"

    def __init__(
        self,
        *,
        signaller: PidfdSignaller,
        tree_pids: Callable[[], frozenset[int]],
        cgroup: CgroupReader,
        kmsg: KmsgReader | None,
        checkpoints: CheckpointWatch,
        child_status: Callable[[], int] | None = None,
    ) -> None:
        """`child_status`: for memwatch's own child, waits for its end and gives its status, -N for signal N."""
        self._signaller, self._tree_pids, self._cgroup = signaller, tree_pids, cgroup
        self._kmsg, self._checkpoints, self._child_status = kmsg, checkpoints, child_status
        self._pid = signaller.target.pid
        self._oom_kills: deque[tuple[float, int | None]] = deque(maxlen=8)  # (since, count), newest last
        self._kills_at_end: int | None = None
        self._memory: CgroupMemory | None = None  # as last read
        self._host: HostMemory | None = None
        self._signals: list[Signalled] = []
        self._checkpoint: CheckpointSeen | None = None
        self._has_saved_since = False  # the checkpoint was told after the first signal: both may be of one moment
        self._log_oom: OutOfMemorySeen | None = None

    def observe(self, event: Event) -> None:
        """Keep what the autopsy will ask for."""
        if isinstance(event, Sampled):
            self._observe_sample(event)
        elif isinstance(event, Signalled):
            self._has_saved_since = self._has_saved_since and self._is_asked
            self._signals.append(event)
        elif isinstance(event, CheckpointSeen):
            if event.state == "saved":
                self._checkpoint, self._has_saved_since = event, self._is_asked
        elif isinstance(event, OutOfMemorySeen):
            self._log_oom = event

    @property
    def _is_asked(self) -> bool:
        """A signal was sent."""
        return any(not one.error for one in self._signals)

    def turn(self) -> bool:
        """What begins is told, and then shown; that it is over is not."""
        return self._checkpoints.urgent or bool(self._signals)

    def asked(self) -> bool:
        """Nobody can ask."""
        return False

    def publish(self, snapshot: Snapshot, notices: Sequence[Notice]) -> None:
        """Look at checkpoint files closely while a signal is possible; signals of an episode that is over are past."""
        self._checkpoints.urgent = snapshot.state is not State.WATCHING
        if snapshot.state not in _OURS:
            self._signals.clear()

    def close(self, snapshot: Snapshot) -> None:
        """As a sink: nothing is held."""

    def gone(self) -> bool:
        """It has ended. The kills are counted the moment that is seen: systemd removes a dead unit's cgroup at once."""
        if not self._signaller.gone():
            return False
        if self._kills_at_end is None:
            self._kills_at_end = self._cgroup.oom_kills()[0]
        return True

    def unreachable(self) -> str | None:
        """Why no signal would reach it; None when one would."""
        if self._signaller.may_signal():
            return None
        return (
            self._signaller.problem or "no permission to signal it: run memwatch as the trainer's user or with CAP_KILL"
        )

    def ending(self, t: float, before: Snapshot) -> Sequence[Event]:
        """What its end brought to light, the conclusion last; `before` is the state in which the end was met."""
        status = self._status()
        found = self._checkpoints.after_exit(t, killed=status is not None and status.signal not in (None, "SIGINT"))
        for event in found:
            self.observe(event)
        return [*found, conclude(t, self._evidence(t, status, before.state in _OURS))]

    def _observe_sample(self, event: Sampled) -> None:
        cgroup = event.sample.cgroup
        self._host = event.sample.host or self._host
        if cgroup is not None:
            self._memory = cgroup
            if not self._oom_kills or self._oom_kills[-1][1] != cgroup.oom_kills:
                self._oom_kills.append((event.t, cgroup.oom_kills))

    def _status(self) -> ExitStatus | None:
        if self._child_status is not None:
            return _of_child(self._child_status())
        deadline = time.monotonic() + REAPED_WITHIN_SECONDS
        while (status := self._signaller.exit_status()) is None and time.monotonic() < deadline:
            time.sleep(STATUS_LOOK_SECONDS)
        return status

    def _evidence(self, t: float, status: ExitStatus | None, in_episode: bool) -> Evidence:
        sent = self._signals if in_episode else []
        saved = self._checkpoint
        after = saved is not None and in_episode and self._has_saved_since
        return Evidence(
            exit_code=status.exit_code if status else None,
            exit_signal=status.signal if status else None,
            signalled=sent[-1] if sent else None,
            escalated=len({one.signal for one in sent if not one.error}) > 1,
            checkpoint=saved.evidence if saved is not None and after else None,
            saved=saved,
            oom_kills_delta=self._oom_kills_since(t - OOM_KILL_SECONDS),
            cgroup_owned=self._memory is not None and self._memory.owned,
            kernel_record=self._kernel_record(),
            log_oom=self._log_oom,
            cgroup_headroom_fraction=_least_room(self._levels),
            host_headroom_fraction=self._host.available_bytes / self._host.total_bytes if self._host else None,
        )

    @property
    def _levels(self) -> tuple[CgroupLevel, ...]:
        return self._memory.levels if self._memory is not None else ()

    def _oom_kills_since(self, t: float) -> int | None:
        earlier = [count for since, count in self._oom_kills if since <= t]
        before = earlier[-1] if earlier else self._oom_kills[0][1] if self._oom_kills else None
        counts = [count for count in (self._kills_at_end, self._cgroup.oom_kills()[0]) if count is not None]
        return None if not counts or before is None else max(counts) - before

    def _kernel_record(self) -> KernelRecord | None:
        try:
            kills = self._kmsg.read(0.0) if self._kmsg else ()
        except SourceError:
            return None
        tree, cgroups = self._tree_pids() | {self._pid}, {level.path for level in self._levels}
        near = [kill for kill in kills if kill.pid in tree or kill.memcg is None or kill.memcg in cgroups]
        ranked = sorted(near, key=lambda kill: (kill.pid == self._pid, kill.pid in tree))
        return self._record(ranked[-1], tree) if ranked else None

    def _record(self, kill: OomKill, tree: frozenset[int]) -> KernelRecord:
        where = f"at the limit of cgroup {kill.memcg}" if kill.memcg else "host out of memory"
        return KernelRecord(
            pid=kill.pid,
            constraint="memcg" if kill.constraint == "memcg" else "global",
            line=f"OOM killer killed {kill.pid} ({kill.comm}), {format_bytes(kill.rss_bytes)} resident, {where}",
            of_trainer=kill.pid == self._pid,
            of_tree=kill.pid in tree,
        )


def _least_room(levels: Sequence[CgroupLevel]) -> float | None:
    """The share of its limit that the fullest had left; None without limits."""
    rooms = [1 - level.charged_bytes / level.limit_bytes for level in levels if level.limit_bytes]
    return min(rooms, default=None)


def _of_child(status: int) -> ExitStatus:
    return ExitStatus(status, None) if status >= 0 else ExitStatus(None, signal_name(-status))
