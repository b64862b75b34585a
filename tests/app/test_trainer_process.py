"""What is at hand when the trainer ends: the evidence is put together from events, counters and the kernel's log."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from memwatch.actions.signal_sender import ExitStatus
from memwatch.app.trainer_process import UPTIME_DRIFT, WatchedTrainer
from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import (
    Attached,
    Cause,
    CheckpointSeen,
    Event,
    Exited,
    GenerationSeen,
    LastCheckpoint,
    OutOfMemorySeen,
    Sampled,
    Signalled,
    Signalling,
)
from memwatch.core.measurements import CgroupLevel, CgroupMemory, HostMemory, Sample
from memwatch.core.snapshot import Snapshot, WatchState
from memwatch.errors import SourceError
from memwatch.sources.memory.kernel_oom_log import OomKill
from support.watch import GB, TARGET

KILLED, DONE = ExitStatus(None, "SIGKILL"), ExitStatus(0, None)
KILL = OomKill(1.0, TARGET.pid, "python", "memcg", "/job", 4 * GB, 0, 0)


class World:
    """The signaller, the cgroup, the kernel's log, and the checkpoints, as a test sets them."""

    def __init__(self) -> None:
        self.target, self.dead, self.status = TARGET, False, KILLED
        self.killed_now = False
        self.counter: int | None = 0
        self.kills: list[OomKill] = []
        self.kmsg_error: SourceError | None = None
        self.files: list[CheckpointSeen] = []
        self.removed: set[str] = set()
        self.urgent = False
        self.killed: bool | None = None
        self.calls: list[str] = []

    def gone(self) -> bool:
        return self.dead

    def dying(self) -> bool:
        return self.killed_now

    def exit_status(self) -> ExitStatus | None:
        return self.status

    def oom_kills(self) -> tuple[int | None, int | None]:
        return self.counter, self.counter

    def read_new_kills(self, now: float) -> tuple[OomKill, ...]:
        if self.kmsg_error is not None:
            raise self.kmsg_error
        return tuple(self.kills)

    def is_on_disk(self, path: str) -> bool:
        return path not in self.removed

    def add_logged(self, line: str) -> None: ...

    def checkpoints_at_exit(self, now: float, *, killed: bool) -> list[CheckpointSeen]:
        self.killed = killed
        return self.files

    def resume_after_signal(self, now: float, asked_t: float) -> None:
        self.calls.append(f"resumed at {now}, asked at {asked_t}")

    def discard_before_signal(self, now: float, sent_ns: int) -> None:
        assert abs(time.time_ns() - sent_ns) < 60e9
        self.calls.append("looked")

    def send_signal(self, signal_name: str) -> None:
        self.calls.append(signal_name)


class Bench:
    def __init__(self, **options: Any) -> None:
        self.world = world = World()
        self.trainer = WatchedTrainer(
            signaller=world,  # type: ignore[arg-type]
            tree_parents=lambda: {101: TARGET.pid, 102: 101},
            cgroup=world,  # type: ignore[arg-type]
            kmsg=world,  # type: ignore[arg-type]
            checkpoints=world,  # type: ignore[arg-type]
            **options,
        )

    def look(self, t: float, kills: int | None = 0, owned: bool = True, used: int = 9 * GB) -> None:
        level = CgroupLevel("/job", used, 0, 10 * GB)
        cgroup = CgroupMemory(2, (level,), owned, None, kills, kills)
        self.trainer.observe_event(Sampled(t, Sample((), cgroup=cgroup, host=HostMemory(64 * GB, 32 * GB, 0))))

    def end(self, t: float = 10.0, state: WatchState = WatchState.WATCHING) -> Exited:
        """The end, as the daemon meets it."""
        self.world.dead = True
        assert self.trainer.has_exited()
        *_, exited = self.trainer.collect_exit_events(t, in_state(state))
        assert isinstance(exited, Exited)
        return exited


def in_state(state: WatchState) -> Snapshot:
    return replace(Engine(Policy()).snapshot(), state=state)


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    for t in range(10):
        bench.look(float(t))
    return bench


# --- the log --------------------------------------------------------------------------------------------------------

FAILED_ALLOCATION = OutOfMemorySeen(9.5, "MemoryError", "MemoryError")


def test_a_generation_after_a_failed_allocation_shows_that_it_was_survived(bench: Bench) -> None:
    bench.world.status = ExitStatus(1, None)
    bench.trainer.observe_event(FAILED_ALLOCATION)
    bench.trainer.observe_event(GenerationSeen(9.6, 7))
    exited = bench.end()
    assert exited.cause is Cause.FAILED
    assert exited.evidence[-1] == "the trainer survived it: generation 7 followed"


def test_a_failed_allocation_of_the_attempt_before_is_not_this_end(bench: Bench) -> None:
    bench.world.status = ExitStatus(1, None)
    before = replace(TARGET, pid=TARGET.pid - 1)
    for event in (Attached(9.4, before, "a"), FAILED_ALLOCATION, Attached(9.6, TARGET, "a")):
        bench.trainer.observe_event(event)
    assert bench.end().cause is Cause.FAILED


def test_the_end_of_the_log_says_what_came_after_a_failed_allocation() -> None:
    bench = Bench(log_end=lambda: "MemoryError\nWARNING skipping the batch\n")
    bench.world.status = ExitStatus(1, None)
    bench.trainer.observe_event(FAILED_ALLOCATION)
    assert bench.end().cause is Cause.FAILED


# --- the kernel -----------------------------------------------------------------------------------------------------


def test_a_counter_that_rose_is_an_oom_kill_in_its_own_cgroup(bench: Bench) -> None:
    bench.world.counter = 1
    assert bench.end().cause is Cause.OOM_CGROUP


def test_the_counter_is_read_the_moment_the_end_is_seen_as_the_cgroup_may_go_with_it(bench: Bench) -> None:
    bench.world.counter, bench.world.dead = 1, True
    assert bench.trainer.has_exited()
    bench.world.counter = None  # systemd has removed it
    assert bench.end().cause is Cause.OOM_CGROUP


def test_a_counter_that_rises_a_moment_later_counts_too(bench: Bench) -> None:
    bench.world.dead = True
    assert bench.trainer.has_exited()
    bench.world.counter = 1
    assert bench.end().cause is Cause.OOM_CGROUP


def test_a_kill_of_long_ago_is_not_this_end(bench: Bench) -> None:
    bench.look(10.0, kills=1)  # a worker's
    bench.world.counter = 1
    exited = bench.end(t=60.0)
    assert exited.cause is Cause.SIGNALLED
    assert "no trace of the OOM killer: the oom_kill counter did not rise" in exited.evidence


def test_a_kill_that_a_look_sees_is_anothers_when_the_trainer_lives_and_its_own_when_it_dies(bench: Bench) -> None:
    bench.look(9.8, kills=1)
    bench.world.counter = 1
    assert bench.end().cause is Cause.SIGNALLED
    bench.world.killed_now = True
    bench.look(9.9, kills=2)
    bench.world.counter = 2
    assert bench.end().cause is Cause.OOM_CGROUP


@pytest.mark.parametrize(
    ("pid", "seconds", "cause"),
    [(101, 1.0, Cause.OOM_CGROUP), (101, 60.0, Cause.FAILED), (102, 1.0, Cause.FAILED), (999, 1.0, Cause.FAILED)],
    ids=["child", "long-ago", "grandchild", "neighbour"],
)
def test_the_137_of_a_shell_is_an_oom_kill_when_the_kernel_has_just_killed_its_child(
    bench: Bench, pid: int, seconds: float, cause: Cause
) -> None:
    bench.world.status = ExitStatus(137, None)
    uptime = time.clock_gettime(time.CLOCK_MONOTONIC)
    bench.world.kills = [replace(KILL, pid=pid, uptime_seconds=uptime * (1 - UPTIME_DRIFT) - seconds)]
    assert bench.end().cause is cause


def test_a_sigkill_from_before_the_first_look_may_be_the_kernels_whose_log_was_opened_too_late() -> None:
    bench = Bench()
    bench.world.counter = None
    assert bench.end().cause is Cause.UNKNOWN
    bench.look(1.0, kills=None)
    assert bench.end().cause is Cause.SIGNALLED


def test_room_is_compared_in_bytes_a_small_cgroup_is_full_long_before_the_host(bench: Bench) -> None:
    bench.look(9.9, used=GB // 10)  # 99 % of it are free, and half of the host
    bench.world.counter, bench.world.kmsg_error = 1, SourceError("permission denied")
    assert bench.end().cause is Cause.OOM_CGROUP


def test_in_a_shared_cgroup_the_counter_may_be_a_neighbours() -> None:
    bench = Bench()
    bench.look(1.0, owned=False)
    bench.world.counter = 1
    assert bench.end().cause is Cause.UNKNOWN


@pytest.mark.parametrize(
    ("kill", "cause"),
    [
        (KILL, Cause.OOM_CGROUP),
        (replace(KILL, constraint="host", memcg=None), Cause.OOM_HOST),
        (replace(KILL, pid=101), Cause.SIGNALLED),  # a worker of its tree
        (replace(KILL, pid=999), Cause.SIGNALLED),  # a neighbour in the same cgroup
        (replace(KILL, pid=999, memcg="/elsewhere"), Cause.SIGNALLED),
    ],
    ids=["its-own", "host", "worker", "neighbour", "elsewhere"],
)
def test_the_kernels_record_says_who_was_killed(bench: Bench, kill: OomKill, cause: Cause) -> None:
    bench.world.kills = [kill]
    assert bench.end().cause is cause


def test_of_many_kills_its_own_is_the_one_that_counts(bench: Bench) -> None:
    bench.world.kills = [replace(KILL, pid=999), KILL, replace(KILL, pid=101)]
    exited = bench.end()
    assert exited.cause is Cause.OOM_CGROUP
    assert f"killed {TARGET.pid} (python), 4.0 GB resident, at the limit of cgroup /job" in exited.evidence[0]


def test_a_kernel_log_that_cannot_be_read_leaves_the_counter(bench: Bench) -> None:
    bench.world.kmsg_error, bench.world.counter = SourceError("permission denied"), 1
    assert bench.end().cause is Cause.OOM_CGROUP


# --- our signals ----------------------------------------------------------------------------------------------------


def test_saved_is_what_became_complete_after_the_signal(bench: Bench) -> None:
    bench.world.status = ExitStatus(130, None)
    bench.trainer.observe_event(CheckpointSeen(-8.0, "saved", "log: long before"))
    bench.trainer.observe_event(Signalled(8.5, "SIGINT"))
    assert bench.end(state=WatchState.INTERRUPTING).cause is Cause.UNSAVED
    bench.trainer.observe_event(CheckpointSeen(9.0, "saved", "log: after"))
    exited = bench.end(state=WatchState.SAVED)
    assert exited.cause is Cause.SAVED and "log: after" in exited.evidence[0]


def test_a_checkpoint_found_after_the_end_is_evidence_and_told(bench: Bench) -> None:
    bench.world.status = DONE
    bench.trainer.observe_event(Signalled(8.5, "SIGINT"))
    bench.world.files = [CheckpointSeen(10.0, "saved", "file: a.pt, whole")]
    found, exited = bench.trainer.collect_exit_events(10.0, in_state(WatchState.INTERRUPTING))
    assert found is bench.world.files[0]
    assert isinstance(exited, Exited) and exited.cause is Cause.SAVED


def test_a_checkpoint_that_was_told_just_before_the_signal_of_the_same_look_is_its_own(bench: Bench) -> None:
    bench.world.status = KILLED
    bench.trainer.observe_event(GenerationSeen(8.0, 6))
    bench.trainer.observe_event(CheckpointSeen(8.5, "saved", "file: a.pt", still_seconds=0.3, path="/runs/a.pt"))
    bench.trainer.observe_event(Signalled(8.5, "SIGINT"))
    exited = bench.end(state=WatchState.INTERRUPTING)
    assert exited.cause is Cause.SAVED and "its own checkpoint was complete" in exited.evidence[0]
    assert exited.checkpoint == LastCheckpoint("file: a.pt", "/runs/a.pt", pytest.approx(1.8), pytest.approx(0.3), 6, 0)


def test_what_counts_is_what_is_on_disk_at_the_end(bench: Bench) -> None:
    bench.world.status = KILLED
    bench.trainer.observe_event(GenerationSeen(1.0, 2, unit="epoch"))
    bench.trainer.observe_event(CheckpointSeen(-30.0, "saved", "file: a.pt", path="/runs/a.pt"))
    bench.trainer.observe_event(GenerationSeen(1.0, 4, unit="epoch"))
    bench.trainer.observe_event(CheckpointSeen(8.0, "saved", "file: b.pt", path="/runs/b.pt"))
    bench.trainer.observe_event(Signalled(8.5, "SIGINT"))
    bench.world.removed.add("/runs/b.pt")
    exited = bench.end(state=WatchState.INTERRUPTING)
    assert exited.cause is Cause.UNSAVED
    assert exited.checkpoint == LastCheckpoint("file: a.pt", "/runs/a.pt", 40.0, 38.5, 2, 2, "epoch")
    bench.world.removed.add("/runs/a.pt")
    assert bench.end(state=WatchState.INTERRUPTING).checkpoint is None


@pytest.mark.parametrize(
    "signalled", [Signalled(8.5, "SIGINT", dry_run=True), Signalled(8.5, "SIGINT", error="not permitted")]
)
def test_a_signal_that_was_not_sent_has_no_part_in_the_end(bench: Bench, signalled: Signalled) -> None:
    bench.trainer.observe_event(signalled)
    bench.world.status = DONE
    assert bench.end(state=WatchState.INTERRUPTING).cause is Cause.COMPLETED


def test_a_signal_of_an_episode_that_is_over_has_no_part_in_the_end(bench: Bench) -> None:
    bench.trainer.observe_event(Signalled(1.0, "SIGINT"))
    bench.trainer.publish(in_state(WatchState.INTERRUPTING), ())
    assert bench.world.urgent, "checkpoint files are looked at closely"
    bench.trainer.publish(in_state(WatchState.WATCHING), ())
    bench.world.status = DONE
    assert not bench.world.urgent
    assert bench.end().cause is Cause.COMPLETED


def test_a_memwatch_that_is_started_again_looks_for_the_checkpoint_that_it_has_asked_for(bench: Bench) -> None:
    bench.trainer.resume_after_restart(9.0, in_state(WatchState.INTERRUPTING))
    assert bench.world.calls == [], "nothing was sent"
    bench.trainer.observe_event(Signalled(8.5, "SIGINT"))
    bench.trainer.resume_after_restart(9.0, in_state(WatchState.WATCHING))
    assert bench.world.calls == [], "that is over"
    bench.trainer.resume_after_restart(9.0, in_state(WatchState.INTERRUPTING))
    assert bench.world.calls == ["resumed at 9.0, asked at 8.5"]


def test_a_signal_that_may_have_been_sent_is_told_as_that(bench: Bench) -> None:
    bench.trainer.observe_event(CheckpointSeen(8.0, "saved", "log: before"))
    bench.trainer.observe_event(Signalling(8.5, "SIGINT"))
    bench.trainer.resume_after_restart(9.0, in_state(WatchState.INTERRUPTING))
    assert bench.world.calls == ["resumed at 9.0, asked at 8.5"]
    bench.world.status = ExitStatus(3, None)
    assert bench.end(state=WatchState.INTERRUPTING).cause is Cause.UNKNOWN
    bench.trainer.observe_event(CheckpointSeen(9.0, "saved", "log: after"))
    exited = bench.end(state=WatchState.SAVED)
    assert exited.cause is Cause.SAVED and "which may have been sent: log: after" in exited.evidence[0]
    bench.trainer.publish(in_state(WatchState.WATCHING), ())
    assert bench.end().cause is Cause.FAILED, "of an episode that is over"


def test_of_a_signal_that_was_sent_everything_is_known(bench: Bench) -> None:
    bench.trainer.observe_event(Signalling(8.5, "SIGINT"))
    bench.trainer.observe_event(CheckpointSeen(8.5, "saved", "file: as it was sent"))
    bench.trainer.observe_event(Signalled(8.5, "SIGINT"))
    bench.world.status = ExitStatus(3, None)
    exited = bench.end(state=WatchState.SAVED)
    assert exited.cause is Cause.SAVED and "not known" not in " ".join(exited.evidence)


def test_a_file_that_a_kill_cut_off_is_no_checkpoint_and_one_that_sigint_closed_may_be(bench: Bench) -> None:
    bench.end()
    assert bench.world.killed is True
    bench.world.status = ExitStatus(None, "SIGINT")
    bench.end()
    assert bench.world.killed is False


# --- by itself ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "expected"), [(0, (0, None)), (3, (3, None)), (-9, (None, "SIGKILL"))])
def test_memwatchs_own_child_has_a_status_for_sure(status: int, expected: tuple[int | None, str | None]) -> None:
    bench = Bench(child_status=lambda: status)
    bench.look(1.0)
    exited = bench.end()
    assert (exited.exit_code, exited.signal) == expected


def test_a_signal_without_a_name_is_a_number() -> None:
    exited = Bench(child_status=lambda: -40).end()
    assert exited.signal == "signal 40" and exited.cause is Cause.SIGNALLED


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        (OutOfMemorySeen(9.5, "MemoryError", "MemoryError"), Cause.MEMORY_ERROR),
        (OutOfMemorySeen(9.5, "CUDA out of memory", "CUDA out of memory. Tried"), Cause.CUDA_OOM),
    ],
)
def test_the_logs_last_words(bench: Bench, event: Event, cause: Cause) -> None:
    bench.world.status = ExitStatus(1, None)
    bench.trainer.observe_event(event)
    assert bench.end().cause is cause


def test_a_status_that_systemd_reaped_first_is_asked_of_it() -> None:
    bench = Bench(systemd_status=lambda pid, cgroup: 130 if (pid, cgroup) == (TARGET.pid, "/job") else None)
    bench.look(1.0)
    bench.world.status = None  # type: ignore[assignment]
    assert bench.end().exit_code == 130


def test_with_nothing_known_nothing_is_claimed() -> None:
    bench = Bench()
    bench.world.status = None  # type: ignore[assignment]
    bench.world.counter = None
    exited = bench.end()
    assert exited.cause is Cause.UNKNOWN
    assert exited.evidence[0] == "its exit status could not be read"
