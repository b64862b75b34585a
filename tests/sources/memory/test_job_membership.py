from __future__ import annotations

from pathlib import Path

import pytest

from memwatch.core.proc_stat import ProcStat
from memwatch.sources.memory.cgroup_neighbours import JobMembership, is_job_cgroup, shares_job
from memwatch.sources.procfs import read_stat
from support.fakeproc import FakeProc

TRAINER, SHELL, OTHER = 100, 50, 200
POD = "/kubepods/pod7"
BEGAN, LATER, BEFORE = 1000, 2000, 10


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    """A trainer that a shell started: in the shell's session, in a process group of its own; its program is 7."""
    fake = FakeProc(tmp_path / "proc")
    fake.process(1, start=0, parent=0, layout=1)
    fake.process(SHELL, start=BEFORE, session=SHELL, process_group=SHELL, layout=2)
    fake.process(TRAINER, start=BEGAN, parent=SHELL, session=SHELL, process_group=TRAINER)
    return fake


def found(fake: FakeProc, *pids: int) -> list[ProcStat]:
    return [read_stat(pid, str(fake)) for pid in pids]


def members(fake: FakeProc, *pids: int, cgroup: str = POD, tree=(TRAINER,), all_known: bool = True) -> dict[int, str]:
    return JobMembership(TRAINER, str(fake)).find_members(found(fake, *pids), tree, cgroup, all_known=all_known)


def other(fake: FakeProc, pid: int = OTHER, **changes) -> None:
    """A process that its parent left, in a session of its own, of another program than the trainer's."""
    settings = {"start": LATER, "session": 190, "process_group": pid, "layout": 9, **changes}
    fake.process(pid, **settings)


def test_an_orphan_in_the_jobs_own_cgroup_is_a_member(fake):
    other(fake)
    assert members(fake, OTHER) == {OTHER: "cgroup"}
    assert members(fake, OTHER, SHELL) == {OTHER: "cgroup"}, "the trainer's shell began before it"


def test_where_others_ran_before_the_trainer_the_cgroup_says_nothing(fake):
    other(fake)
    other(fake, 201, start=BEFORE)
    assert members(fake, OTHER, 201) == {}
    assert members(fake, OTHER, all_known=False) == {}, "nor where one cannot be read"


@pytest.mark.parametrize(
    ("path", "may_be_a_jobs"),
    [
        ("/user.slice/user-1000.slice/session-3.scope", False),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-7a.scope", False),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/run-r7a.scope", True),  # systemd-run --user --scope
        ("/system.slice/train.service", True),
        ("/slurm/uid_1000/job_42/step_0/task_0", True),
        ("/docker/98b345b146fd", True),
        ("/", True),  # of a container
    ],
)
def test_a_login_sessions_cgroup_holds_the_users_browser_too(fake, path, may_be_a_jobs):
    other(fake)
    assert is_job_cgroup(path) is may_be_a_jobs
    assert (OTHER in members(fake, OTHER, cgroup=path)) is may_be_a_jobs


@pytest.mark.parametrize(
    "started",
    [
        {"parent": SHELL, "session": SHELL},  # by the script that started the trainer: another training of a sweep
        {"parent": SHELL, "session": OTHER},  # by a server that is the trainer's parent, too: another notebook
        {"parent": 199, "session": OTHER},  # by a process that is no member
        {"terminal": 34816},  # by a person, in a terminal of their own
        {"start": BEFORE},
        {"start": BEGAN},
    ],
)
def test_what_others_start_is_not_the_jobs(fake, started):
    other(fake, **started)
    assert members(fake, OTHER) == {}


def test_a_daemon_that_the_trainer_forked_is_a_member_wherever_it_is(fake):
    session = "/user.slice/user-1000.slice/session-3.scope"
    other(fake, layout=7)
    assert members(fake, OTHER, cgroup=session) == {OTHER: "fork"}
    fake.process(SHELL, start=BEFORE, layout=7)
    other(fake, layout=7, parent=SHELL)
    assert members(fake, OTHER, SHELL, cgroup=session) == {}, "a rank beside it, forked by the same launcher"


def test_a_process_of_a_session_or_group_that_the_trainer_leads_is_a_member(fake):
    session = "/user.slice/user-1000.slice/session-3.scope"
    other(fake, process_group=TRAINER, parent=198)
    assert members(fake, OTHER, cgroup=session) == {OTHER: "session"}
    other(fake, session=101, parent=198)
    assert members(fake, OTHER, cgroup=session, tree=(TRAINER, 101)) == {OTHER: "session"}, "which a child leads"


@pytest.mark.parametrize("terminal", [0, 34816])
@pytest.mark.parametrize("groups", [(SHELL, SHELL), (TRAINER, OTHER)], ids=["of a script", "of a shell"])
def test_a_session_or_group_that_the_trainer_does_not_lead_is_its_users(fake, terminal, groups):
    """That of a terminal, of a runner that starts one command after the other, or of a script that has ended."""
    session, (own, others) = "/user.slice/user-1000.slice/session-3.scope", groups
    fake.process(TRAINER, start=BEGAN, parent=SHELL, session=SHELL, process_group=own, terminal=terminal)
    other(fake, session=SHELL, process_group=others, terminal=terminal)  # (another.py &)
    assert members(fake, OTHER, cgroup=session) == {}


def test_a_worker_that_the_tree_has_not_found_yet_is_left_to_it(fake):
    other(fake, parent=TRAINER, process_group=TRAINER)
    other(fake, 201, parent=OTHER, process_group=TRAINER)
    assert members(fake, OTHER, 201) == {}


def test_a_process_with_the_jobs_environment_is_a_member_whenever_it_began(fake):
    session = "/user.slice/user-1000.slice/session-3.scope"
    job = {"RAY_ADDRESS": "10.0.0.1:6379", "HOME": "/root"}
    fake.process(TRAINER, start=BEGAN, parent=SHELL, environ=job)
    other(fake, start=BEFORE, environ={**job, "RAY_JOB_ID": "01000000"})
    other(fake, 201, environ={"HOME": "/root"})
    other(fake, 202)  # its environment cannot be read
    assert members(fake, OTHER, 201, 202, cgroup=session) == {OTHER: "environment"}


@pytest.mark.parametrize(
    ("own", "theirs", "same"),
    [
        ({"SLURM_JOB_ID": "42"}, {"SLURM_JOB_ID": "42"}, True),
        ({"SLURM_JOB_ID": "42"}, {"SLURM_JOB_ID": "43"}, False),
        ({"SLURM_JOB_ID": "42", "RANK": "0"}, {"SLURM_JOB_ID": "42", "RANK": "1"}, False),  # a trainer of its own
        ({"SLURM_JOB_ID": "42", "RANK": "0"}, {"SLURM_JOB_ID": "42", "RANK": "0"}, True),
        ({"MASTER_ADDR": "a", "MASTER_PORT": "1"}, {"MASTER_ADDR": "a", "MASTER_PORT": "1"}, True),
        ({"MASTER_ADDR": "a", "MASTER_PORT": "1"}, {"MASTER_ADDR": "a", "MASTER_PORT": "2"}, False),
        ({"MASTER_ADDR": "a"}, {"MASTER_ADDR": "a"}, False),
        ({"RAY_ADDRESS": "a", "RAY_JOB_ID": "1"}, {"RAY_ADDRESS": "a", "RAY_JOB_ID": "2"}, False),  # one cluster
        ({}, {"SLURM_JOB_ID": "42"}, False),
    ],
)
def test_the_same_job_is_named_and_no_other(own, theirs, same):
    assert shares_job(own, theirs) is same


def test_an_environment_is_read_once(fake):
    fake.process(TRAINER, start=BEGAN, parent=SHELL, environ={"PBS_JOBID": "7"})
    other(fake, environ={"PBS_JOBID": "8"})
    membership = JobMembership(TRAINER, str(fake))

    def look() -> dict[int, str]:
        return membership.find_members(found(fake, OTHER), (TRAINER,), "/user.slice/a", all_known=True)

    assert look() == {}
    first = membership.files_read
    (fake.root / str(OTHER) / "environ").unlink()
    assert look() == {}
    assert membership.files_read == first - 1
    other(fake, start=LATER + 1, environ={"PBS_JOBID": "7"})  # another process has the PID
    assert look() == {OTHER: "environment"}


def open_log(fake: FakeProc, pid: int, name: str, session: str = "session_7") -> None:
    """As Ray does: the file need not exist."""
    folder = fake.root / str(pid) / "fd"
    folder.mkdir(exist_ok=True)
    (folder / "3").symlink_to(f"/tmp/ray/{session}/logs/{name}")


def test_a_worker_that_a_raylet_started_is_of_the_drivers_job(fake):
    worker = {"RAY_RAYLET_PID": "60", "RAY_JOB_ID": "ffffffff"}
    open_log(fake, TRAINER, "python-core-driver-01000000ffff_100.log")
    other(fake, parent=60, environ=worker)
    open_log(fake, OTHER, "raylet.out")
    other(fake, 201, parent=60, environ=worker)
    open_log(fake, 201, "raylet.out", "session_8")  # of another cluster
    other(fake, 202, parent=60, environ=worker, start=BEFORE)  # of an earlier driver
    open_log(fake, 202, "raylet.out")
    other(fake, 203, parent=60, environ={"RAY_RAYLET_PID": "60"})  # an agent
    open_log(fake, 203, "raylet.out")
    assert members(fake, OTHER, 201, 202, 203, cgroup="/user.slice/a") == {OTHER: "environment"}


def test_a_program_that_drives_no_session_has_no_such_workers(fake):
    open_log(fake, TRAINER, "dashboard.log")
    other(fake, parent=60, environ={"RAY_RAYLET_PID": "60", "RAY_JOB_ID": "ffffffff"})
    open_log(fake, OTHER, "raylet.out")
    assert members(fake, OTHER) == {}


def test_torchruns_default_id_names_no_job(fake):
    fake.process(TRAINER, start=BEGAN, parent=SHELL, environ={"TORCHELASTIC_RUN_ID": "none"})
    other(fake, start=BEFORE, environ={"TORCHELASTIC_RUN_ID": "none"})
    assert members(fake, OTHER) == {}
