from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.cause_of_death import LITTLE_WORK_SECONDS, ExitEvidence, KernelRecord, explain_exit
from memwatch.core.events import Cause, LastCheckpoint, OutOfMemorySeen, Signalled, Signalling
from memwatch.core.measurements import TmpfsMemory

T = 1000.0
INT = Signalled(990.0, "SIGINT")
HOOK = Signalled(990.0, "SIGINT", hook="scancel 7", instead=True)
UNSURE = Signalling(995.0, "SIGINT")
MEMCG = KernelRecord(7, "memcg", "Memory cgroup out of memory: Killed process 7 (python)", True, True)
GLOBAL = KernelRecord(7, "global", "Out of memory: Killed process 7 (python)", True, True)
NEIGHBOUR = KernelRecord(8, "memcg", "Memory cgroup out of memory: Killed process 8 (java)", False, False)
WORKER = KernelRecord(9, "memcg", "Memory cgroup out of memory: Killed process 9 (python)", False, True)
MEMORY_ERROR = OutOfMemorySeen(998.0, "MemoryError", "MemoryError: Unable to allocate 3 GiB")
CUDA = OutOfMemorySeen(998.0, "CUDA out of memory", "torch.cuda.OutOfMemoryError: CUDA out of memory.")
KILLED = OutOfMemorySeen(998.0, "worker killed", "DataLoader worker (pid 9) is killed by signal: Killed.")
MONITOR = OutOfMemorySeen(998.0, "killed by a memory monitor", "systemd-oomd killed 12 process(es) in this unit.")
TPU = OutOfMemorySeen(998.0, "accelerator out of memory", "RESOURCE_EXHAUSTED: Error allocating device buffer")
CONTAINER = OutOfMemorySeen(998.0, "killed at the container's limit", "Reason: OOMKilled")
LONG_AGO = OutOfMemorySeen(100.0, "CUDA out of memory", "retrying with half the batch")
OWN = {"oom_kills_delta": 1, "cgroup_owned": True, "cgroup_headroom_bytes": 10**6, "host_headroom_bytes": 10**10}
SHARED = {**OWN, "cgroup_owned": False}

SHM_LINE = "RuntimeError: DataLoader worker (pid 31207) is killed by signal: Bus error. ... out of shared memory."
SHM = OutOfMemorySeen(998.0, "shared memory full", SHM_LINE)
SLURM_LINE = "slurmstepd: error: Job 9046 exceeded memory limit (734003200 > 536870912), being killed"
SLURM = OutOfMemorySeen(998.0, "Slurm memory limit", SLURM_LINE)
TIME_LIMIT = (
    "slurmstepd: error: *** JOB 8678 ON c07 CANCELLED AT 2021-05-11T12:06:17 DUE TO TIME LIMIT ***",
    "srun: x",
)
NO_SPACE = ("    sl = self._semlock = _multiprocessing.SemLock(", "OSError: [Errno 28] No space left on device")
MB = 10**6


def shm(used: int, most_taken: int = 0):
    """/dev/shm of 64 MB at the last sample."""
    return {"tmpfs": ((TmpfsMemory("/dev/shm", used, 64 * MB, 64 * MB), most_taken),)}


TABLE = [
    ("clean end", {"exit_code": 0}, Cause.COMPLETED),
    ("error", {"exit_code": 1}, Cause.FAILED),
    ("nothing known", {}, Cause.UNKNOWN),
    ("saved, status 130", {"exit_code": 130, "signalled": INT, "checkpoint_after_signal": "file: a.pt"}, Cause.SAVED),
    ("saved, status 0", {"exit_code": 0, "signalled": INT, "checkpoint_after_signal": "file: a.pt"}, Cause.SAVED),
    ("saved, status unknown", {"signalled": INT, "checkpoint_after_signal": "log: saved"}, Cause.SAVED),
    (
        "saved, OOM anyway",
        {"exit_signal": "SIGKILL", "signalled": INT, "checkpoint_after_signal": "x", "kernel_record": MEMCG},
        Cause.SAVED,
    ),
    ("interrupted, status 0, nothing saved", {"exit_code": 0, "signalled": INT}, Cause.UNSAVED),
    ("interrupted, status 130", {"exit_code": 130, "signalled": INT}, Cause.UNSAVED),
    ("interrupted, died of it", {"exit_signal": "SIGINT", "signalled": INT}, Cause.UNSAVED),
    ("interrupted, crashed", {"exit_signal": "SIGSEGV", "signalled": INT}, Cause.UNSAVED),
    ("interrupted, MemoryError", {"exit_code": 1, "signalled": INT, "log_oom": MEMORY_ERROR}, Cause.UNSAVED),
    ("too late: OOM first", {"exit_signal": "SIGKILL", "signalled": INT, "kernel_record": MEMCG}, Cause.OOM_CGROUP),
    ("too late, by counter", {"exit_signal": "SIGKILL", "signalled": INT, **OWN}, Cause.OOM_CGROUP),
    (
        "saved after the hook, killed by a job manager",
        {"exit_signal": "SIGKILL", "signalled": HOOK, "checkpoint_after_signal": "x"},
        Cause.SAVED,
    ),
    ("nothing saved after the hook", {"exit_signal": "SIGINT", "signalled": HOOK}, Cause.UNSAVED),
    (
        "escalated",
        {"exit_signal": "SIGTERM", "signalled": Signalled(995.0, "SIGTERM"), "escalated": True},
        Cause.UNSAVED,
    ),
    (
        "escalated, a checkpoint even so",
        {"exit_code": 0, "signalled": Signalled(995.0, "SIGTERM"), "escalated": True, "checkpoint_after_signal": "x"},
        Cause.SAVED,
    ),
    (
        "our own SIGKILL, the counter rose",
        {"exit_signal": "SIGKILL", "signalled": Signalled(995.0, "SIGKILL"), "escalated": True, **OWN},
        Cause.UNSAVED,
    ),
    (
        "dry run, ended by itself",
        {"exit_code": 0, "signalled": Signalled(990.0, "SIGINT", dry_run=True)},
        Cause.COMPLETED,
    ),
    ("not delivered", {"exit_code": 1, "signalled": Signalled(990.0, "SIGINT", error="EPERM")}, Cause.FAILED),
    (
        "perhaps interrupted, saved",
        {"exit_code": 1, "unconfirmed_signal": UNSURE, "checkpoint_after_signal": "x"},
        Cause.SAVED,
    ),
    ("perhaps interrupted, ended by it", {"exit_signal": "SIGINT", "unconfirmed_signal": UNSURE}, Cause.UNSAVED),
    ("perhaps interrupted, status of it", {"exit_code": 130, "unconfirmed_signal": UNSURE}, Cause.UNSAVED),
    ("perhaps interrupted, status 0", {"exit_code": 0, "unconfirmed_signal": UNSURE}, Cause.UNKNOWN),
    (
        "perhaps interrupted, failed",
        {"exit_code": 1, "unconfirmed_signal": UNSURE, "log_oom": MEMORY_ERROR},
        Cause.UNKNOWN,
    ),
    ("perhaps interrupted, SIGSEGV", {"exit_signal": "SIGSEGV", "unconfirmed_signal": UNSURE}, Cause.UNKNOWN),
    ("perhaps interrupted, OOM", {"exit_signal": "SIGKILL", "unconfirmed_signal": UNSURE, **OWN}, Cause.OOM_CGROUP),
    (
        "interrupted, perhaps escalated",
        {"exit_signal": "SIGTERM", "signalled": INT, "unconfirmed_signal": Signalling(995.0, "SIGTERM")},
        Cause.UNSAVED,
    ),
    ("kernel record, memcg", {"exit_signal": "SIGKILL", "kernel_record": MEMCG}, Cause.OOM_CGROUP),
    ("kernel record, global", {"exit_signal": "SIGKILL", "kernel_record": GLOBAL}, Cause.OOM_HOST),
    ("kernel record, status unknown", {"kernel_record": MEMCG}, Cause.OOM_CGROUP),
    ("kernel record, but it exited", {"exit_code": 0, "kernel_record": MEMCG}, Cause.COMPLETED),
    ("kernel record of a neighbour", {"exit_signal": "SIGKILL", "kernel_record": NEIGHBOUR, **SHARED}, Cause.SIGNALLED),
    ("neighbour, status unknown", {"kernel_record": NEIGHBOUR, **SHARED}, Cause.UNKNOWN),
    ("a worker was killed, it failed", {"exit_code": 1, "kernel_record": WORKER, **OWN}, Cause.OOM_CGROUP),
    ("a worker was killed, it went on", {"exit_code": 0, "kernel_record": WORKER, **OWN}, Cause.COMPLETED),
    ("a worker was killed, as the log says", {"exit_code": 1, "log_oom": KILLED}, Cause.WORKER_KILLED),
    ("the same, and the counter rose", {"exit_code": 1, "log_oom": KILLED, **OWN}, Cause.OOM_CGROUP),
    ("a monitor killed a task", {"exit_code": 1, "log_oom": MONITOR}, Cause.OOM_MONITOR),
    ("a monitor killed it", {"exit_signal": "SIGTERM", "log_oom": MONITOR}, Cause.OOM_MONITOR),
    ("an accelerator", {"exit_code": 1, "log_oom": TPU}, Cause.ACCELERATOR_OOM),
    ("a container", {"exit_code": 137, "log_oom": CONTAINER}, Cause.OOM_CGROUP),
    ("a shell whose child was killed", {"exit_code": 137, "kernel_record": WORKER, **OWN}, Cause.OOM_CGROUP),
    ("137 without a record", {"exit_code": 137}, Cause.FAILED),
    ("a shell's SIGTERM", {"exit_code": 143}, Cause.SIGNALLED),
    ("a status of its own", {"exit_code": 155}, Cause.FAILED),
    ("counter, own cgroup", {"exit_signal": "SIGKILL", **OWN}, Cause.OOM_CGROUP),
    ("counter, own cgroup, status unknown", OWN, Cause.OOM_CGROUP),
    (
        "counter, own cgroup without limit",
        {**OWN, "exit_signal": "SIGKILL", "cgroup_headroom_bytes": None},
        Cause.OOM_HOST,
    ),
    ("counter, the host had less", {**OWN, "exit_signal": "SIGKILL", "host_headroom_bytes": 1000}, Cause.OOM_HOST),
    ("counter, but it exited", {"exit_code": 0, **OWN}, Cause.COMPLETED),
    ("counter, shared cgroup", {"exit_signal": "SIGKILL", **SHARED}, Cause.UNKNOWN),
    ("SIGKILL, no trace", {"exit_signal": "SIGKILL", "oom_kills_delta": 0, "cgroup_owned": True}, Cause.SIGNALLED),
    ("SIGKILL, nothing read", {"exit_signal": "SIGKILL"}, Cause.UNKNOWN),
    ("SIGKILL, no record", {"exit_signal": "SIGKILL", "kernel_log_read": True}, Cause.SIGNALLED),
    ("segmentation fault", {"exit_signal": "SIGSEGV"}, Cause.SIGNALLED),
    ("Ctrl-C, status 130", {"exit_code": 130, "passed_on": (990.0, "SIGINT")}, Cause.SIGNALLED),
    ("Ctrl-C, it saved and ended well", {"exit_code": 0, "passed_on": (990.0, "SIGINT")}, Cause.SIGNALLED),
    ("SIGTERM long before an error", {"exit_code": 1, "passed_on": (100.0, "SIGTERM")}, Cause.FAILED),
    ("Ctrl-C after ours", {"exit_code": 130, "signalled": INT, "passed_on": (995.0, "SIGINT")}, Cause.UNSAVED),
    ("it went on to its end", {"exit_code": 0, "signalled": INT, "outlived_signal": "to epoch 9"}, Cause.COMPLETED),
    ("it went on, and failed", {"exit_code": 1, "signalled": INT, "outlived_signal": "to epoch 9"}, Cause.UNSAVED),
    ("somebody's SIGINT", {"exit_code": 130}, Cause.SIGNALLED),
    ("MemoryError", {"exit_code": 1, "log_oom": MEMORY_ERROR}, Cause.MEMORY_ERROR),
    ("MemoryError, status unknown", {"log_oom": MEMORY_ERROR}, Cause.MEMORY_ERROR),
    ("bad_alloc aborts", {"exit_signal": "SIGABRT", "log_oom": MEMORY_ERROR}, Cause.MEMORY_ERROR),
    ("CUDA OOM", {"exit_code": 1, "log_oom": CUDA}, Cause.CUDA_OOM),
    ("CUDA OOM, survived", {"exit_code": 0, "log_oom": CUDA}, Cause.COMPLETED),
    (
        "CUDA OOM, outlived",
        {"exit_code": 1, "log_oom": CUDA, "survived_oom_reason": "generation 4 followed"},
        Cause.FAILED,
    ),
    ("CUDA OOM, long ago", {"exit_code": 1, "log_oom": LONG_AGO}, Cause.FAILED),
    ("a full tmpfs", {"exit_signal": "SIGBUS", **shm(60 * MB)}, Cause.TMPFS_FULL),
    ("a full tmpfs, the child of a shell", {"exit_code": 135, **shm(60 * MB)}, Cause.TMPFS_FULL),
    ("a full tmpfs, by its leaps", {"exit_signal": "SIGBUS", **shm(38 * MB, 38 * MB)}, Cause.TMPFS_FULL),
    ("a full tmpfs, too late", {"exit_signal": "SIGBUS", "signalled": INT, **shm(60 * MB)}, Cause.TMPFS_FULL),
    ("SIGBUS with room", {"exit_signal": "SIGBUS", **shm(30 * MB, 5 * MB)}, Cause.SIGNALLED),
    ("SIGBUS, nothing known", {"exit_signal": "SIGBUS"}, Cause.SIGNALLED),
    ("a full tmpfs, another signal", {"exit_signal": "SIGSEGV", **shm(64 * MB)}, Cause.SIGNALLED),
    ("no space, a full tmpfs", {"exit_code": 1, "log_tail": NO_SPACE, **shm(63 * MB)}, Cause.TMPFS_FULL),
    ("no space, a tmpfs with room", {"exit_code": 1, "log_tail": NO_SPACE, **shm(30 * MB, 5 * MB)}, Cause.FAILED),
    ("another error, a full tmpfs", {"exit_code": 1, "log_tail": ("ValueError: x",), **shm(63 * MB)}, Cause.FAILED),
    ("no space, after ours", {"exit_code": 1, "log_tail": NO_SPACE, "signalled": INT, **shm(63 * MB)}, Cause.UNSAVED),
    ("shared memory full, as the log says", {"exit_code": 1, "log_oom": SHM}, Cause.TMPFS_FULL),
    ("Slurm's time limit", {"exit_signal": "SIGTERM", "log_tail": TIME_LIMIT}, Cause.ENDED_BY_SCHEDULER),
    (
        "Slurm's time limit, passed on",
        {"exit_code": 1, "log_tail": TIME_LIMIT, "passed_on": (990.0, "SIGTERM")},
        Cause.ENDED_BY_SCHEDULER,
    ),
    ("a time limit, but it ended well", {"exit_code": 0, "log_tail": TIME_LIMIT}, Cause.COMPLETED),
    (
        "PBS, its walltime",
        {"exit_code": 271, "log_tail": ("=>> PBS: job killed: walltime 3642 exceeded limit 3600",)},
        Cause.ENDED_BY_SCHEDULER,
    ),
    ("Slurm", {"exit_signal": "SIGKILL", "log_oom": SLURM, "oom_kills_delta": 0}, Cause.OOM_SCHEDULER),
    ("Slurm, the child of a shell", {"exit_code": 137, "log_oom": SLURM}, Cause.OOM_SCHEDULER),
    (
        "Slurm, by SIGTERM that was passed on",
        {"exit_signal": "SIGTERM", "log_oom": SLURM, "passed_on": (990.0, "SIGTERM")},
        Cause.OOM_SCHEDULER,
    ),
    (
        "a failed allocation, then SIGTERM that was passed on",
        {"exit_signal": "SIGTERM", "log_oom": MEMORY_ERROR, "passed_on": (990.0, "SIGTERM")},
        Cause.SIGNALLED,
    ),
    ("Slurm, by SIGTERM", {"exit_signal": "SIGTERM", "log_oom": SLURM}, Cause.OOM_SCHEDULER),
    ("Slurm, after ours", {"exit_signal": "SIGKILL", "signalled": INT, "log_oom": SLURM}, Cause.UNSAVED),
    ("Slurm, but ours ended it", {"exit_signal": "SIGINT", "signalled": INT, "log_oom": SLURM}, Cause.UNSAVED),
    (
        "Slurm, and the kernel's record",
        {"exit_signal": "SIGKILL", "kernel_record": MEMCG, "log_oom": SLURM},
        Cause.OOM_CGROUP,
    ),
    ("Slurm, of a step that was survived", {"exit_code": 0, "log_oom": SLURM}, Cause.COMPLETED),
    ("CUDA OOM, then killed", {"exit_signal": "SIGKILL", "log_oom": CUDA, "oom_kills_delta": 0}, Cause.SIGNALLED),
]


@pytest.mark.parametrize(("facts", "cause"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_table(facts, cause):
    ended = explain_exit(T, ExitEvidence(**facts))
    assert ended.cause is cause
    assert ended.evidence
    assert (ended.t, ended.exit_code, ended.signal) == (T, facts.get("exit_code"), facts.get("exit_signal"))


def test_the_table_meets_every_cause():
    assert {row[2] for row in TABLE} == set(Cause)


@pytest.mark.parametrize(
    ("kind", "line", "told"),
    [
        ("Slurm memory limit", SLURM_LINE, "killed by Slurm at its limit of 536.9 MB"),
        ("Slurm memory limit", "... Step 7.0 exceeded memory limit (4312596 > 4194304), being killed", "of 4.3 GB"),
        ("Slurm memory limit", "slurmstepd: error: Exceeded job memory limit", "by Slurm at its memory limit"),
        (
            "PBS memory limit",
            "=>> PBS: job killed: mem 8650752kb exceeded limit 8388608kb",
            "by PBS at its limit of 8.6 GB",
        ),
    ],
    ids=["bytes", "KiB, before Slurm 18.08", "no figure", "PBS"],
)
def test_a_schedulers_limit_is_told(kind, line, told):
    evidence = ExitEvidence(exit_signal="SIGKILL", log_oom=OutOfMemorySeen(999.0, kind, line))
    assert told in explain_exit(T, evidence).evidence[0]


def test_a_full_tmpfs_is_named_with_its_size_and_what_was_in_it():
    told = explain_exit(T, ExitEvidence(exit_signal="SIGBUS", **shm(60 * MB))).evidence[0]
    assert told == "/dev/shm was full (64.0 MB): 60.0 MB of it at the last sample; ended by SIGBUS"


def test_the_reader_gets_every_fact():
    lines = explain_exit(
        T, ExitEvidence(exit_signal="SIGKILL", signalled=INT, kernel_record=MEMCG, log_oom=MEMORY_ERROR, **OWN)
    ).evidence
    assert lines[0].startswith("kernel: Memory cgroup out of memory")
    assert len(set(lines)) == len(lines)
    text = "\n".join(lines)
    for part in ("ended by SIGKILL", "sent SIGINT 10.0 s before the end", "own cgroup rose by 1", "Unable to allocate"):
        assert part in text


def test_who_was_stopped_by_others_has_saved_and_memwatch_had_no_part_in_it():
    ended = explain_exit(T, ExitEvidence(exit_signal="SIGINT", checkpoint=own_checkpoint(4.0)))
    assert ended.cause is Cause.SIGNALLED
    assert ended.evidence == (
        "ended by SIGINT",
        "its latest checkpoint was complete 4 s before the end: file: a.pt",
    )


def test_a_hook_is_named_in_place_of_the_signal():
    lines = explain_exit(T, ExitEvidence(exit_code=0, signalled=HOOK, checkpoint_after_signal="file: a.pt")).evidence
    assert lines[0] == "checkpoint complete after the hook scancel 7: file: a.pt"
    assert "memwatch started the hook scancel 7 10.0 s before the end" in lines


@pytest.mark.parametrize(
    ("facts", "first"),
    [
        (
            {"checkpoint_after_signal": "file: a.pt"},
            "checkpoint complete after SIGINT, which may have been sent: file: a.pt",
        ),
        (
            {"exit_signal": "SIGINT"},
            "ended by SIGINT, as SIGINT does, which may have been sent; no checkpoint was seen",
        ),
        ({"exit_code": 3}, "exit status 3; whether SIGINT came before it is not known"),
    ],
)
def test_what_is_not_known_of_a_signal_is_said(facts, first):
    lines = explain_exit(T, ExitEvidence(unconfirmed_signal=UNSURE, **facts)).evidence
    assert lines[0] == first
    assert "memwatch was about to send SIGINT 5.0 s before the end; whether it did is not known" in lines


def test_no_checkpoint_is_said():
    assert (
        explain_exit(T, ExitEvidence(exit_code=0, signalled=INT)).evidence[0] == "no checkpoint was seen after SIGINT"
    )


def own_checkpoint(seconds: float) -> LastCheckpoint:
    """Of generation 7 of 9, complete so many seconds before the end."""
    return LastCheckpoint("file: a.pt", "/runs/a.pt", seconds, seconds, 7, 2)


@pytest.mark.parametrize("escalated", [False, True])
def test_an_own_checkpoint_just_before_the_signal_is_as_good_as_one_after_it(escalated):
    ended = explain_exit(
        T, ExitEvidence(exit_code=130, signalled=INT, escalated=escalated, checkpoint=own_checkpoint(3.0))
    )
    assert ended.cause is Cause.SAVED and ended.checkpoint == own_checkpoint(3.0)
    assert ended.evidence[0] == "its own checkpoint was complete 3 s before SIGINT: file: a.pt"


@pytest.mark.parametrize(("save_seconds", "cause"), [(0.0, Cause.UNSAVED), (60.0, Cause.SAVED)])
def test_no_more_work_than_a_save_takes_is_lost_or_it_is_said_how_much(save_seconds, cause):
    evidence = ExitEvidence(exit_code=130, signalled=INT, checkpoint=own_checkpoint(45.0), save_seconds=save_seconds)
    ended = explain_exit(T, evidence)
    assert ended.cause is cause
    if cause is Cause.UNSAVED:
        lost = "2 generations, 45 s of work lost since its last checkpoint in generation 7"
        assert ended.evidence[0] == f"no checkpoint was seen after SIGINT; {lost}"
        assert ended.evidence[-1] == "its latest checkpoint was complete 45 s before the end: file: a.pt"


@pytest.mark.parametrize(("exit_code", "cause"), [(130, Cause.SAVED), (3, Cause.UNKNOWN)])
def test_a_signal_that_may_have_been_sent_just_after_its_own_checkpoint(exit_code, cause):
    evidence = ExitEvidence(exit_code=exit_code, unconfirmed_signal=UNSURE, checkpoint=own_checkpoint(3.0))
    assert explain_exit(T, evidence).cause is cause


names = st.sampled_from(["SIGINT", "SIGTERM", "SIGKILL", "SIGABRT", "signal 40"])
evidences = st.builds(
    ExitEvidence,
    exit_code=st.none() | st.integers(0, 255),
    exit_signal=st.none() | names,
    signalled=st.none()
    | st.builds(Signalled, st.floats(0, 2000), names, st.booleans(), st.sampled_from(["", "EPERM"])),
    unconfirmed_signal=st.none() | st.builds(Signalling, st.floats(0, 2000), names),
    escalated=st.booleans(),
    checkpoint_after_signal=st.none() | st.text(max_size=5),
    checkpoint=st.none() | st.floats(0, 2000).map(own_checkpoint),
    save_seconds=st.floats(0, 100),
    oom_kills_delta=st.none() | st.integers(-2, 3),
    cgroup_owned=st.booleans(),
    kernel_record=st.none() | st.sampled_from([MEMCG, GLOBAL, NEIGHBOUR, WORKER]),
    log_oom=st.none() | st.sampled_from([MEMORY_ERROR, CUDA, LONG_AGO]),
    kernel_log_read=st.booleans(),
    cgroup_headroom_bytes=st.none() | st.integers(-(2**20), 2**40),
    host_headroom_bytes=st.none() | st.integers(0, 2**40),
)


@given(evidences)
def test_laws(evidence):
    ended = explain_exit(T, evidence)
    assert ended.evidence
    assert all(isinstance(line, str) and line for line in ended.evidence)
    record = evidence.kernel_record
    if ended.cause in (Cause.OOM_CGROUP, Cause.OOM_HOST):
        assert (record is not None and (record.of_trainer or record.of_child)) or (
            evidence.cgroup_owned and evidence.oom_kills_delta > 0
        )
    if ended.cause in (Cause.SAVED, Cause.UNSAVED):
        assert evidence.delivered_signal or evidence.unconfirmed_signal
    if ended.cause is Cause.SAVED:
        last = evidence.checkpoint
        little = max(LITTLE_WORK_SECONDS, evidence.save_seconds)
        assert evidence.checkpoint_after_signal or (last is not None and last.lost_seconds <= little)
    if ended.cause is Cause.COMPLETED:
        assert evidence.exit_code == 0


def test_evidence_defaults_to_nothing_known():
    assert all(not getattr(ExitEvidence(), field.name) for field in fields(ExitEvidence))
