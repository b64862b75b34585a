from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from memwatch.core.measurements import RunIdentity, SchedulerLimit
from memwatch.core.proc_stat import parse_stat
from memwatch.errors import AttachError, TargetGoneError
from memwatch.sources.target.target_facts import (
    identify,
    identify_run,
    is_interactive,
    is_same_process,
    is_torchrun,
    is_wrapper,
    read_argv,
    read_environ,
    read_scheduler_limit,
    read_started_target_facts,
    read_target_facts,
    read_torchrun_ranks,
    read_wrapped,
    require_own_proc,
    scheduler_limit,
)
from support.processes import READY, WAIT, python, running, stranger

# --- identity


def test_a_process_may_name_itself_like_a_zombie():
    code = "open('/proc/self/comm', 'w').write('foo) Z '); " + WAIT
    with running(python(code)) as child:
        target = identify(child.pid)
        assert parse_stat(Path(f"/proc/{child.pid}/stat").read_bytes()).name == "foo) Z "
        assert is_same_process(target)


def test_identity_is_boot_pid_and_start():
    with running(python(WAIT)) as child:
        target = identify(child.pid)
        assert target == identify(child.pid)
        assert target.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert is_same_process(target)
    assert not is_same_process(target)
    with pytest.raises(AttachError, match=f"no process {child.pid}"):
        identify(child.pid)


@pytest.mark.parametrize(
    ("pid", "message"),
    [
        (0, "not a process ID"),
        (-3, "not a process ID"),
        (1, "PID 1"),
        (os.getpid(), "memwatch itself"),
        (2**31, "no pro"),
    ],
    ids=["zero", "negative", "init", "itself", "too large"],
)
def test_refused_by_number(pid, message):
    with pytest.raises(AttachError, match=message) as raised:
        identify(pid)
    assert raised.value.hint


def test_a_proc_of_other_processes_is_refused(tmp_path):
    require_own_proc()
    (tmp_path / "self").symlink_to("4711")
    for root in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(AttachError, match="memwatch's own PID namespace") as raised:
            require_own_proc(str(root))
        assert "mount -t proc" in raised.value.hint


def test_a_process_that_was_started_just_now_has_its_command_line():
    for _ in range(100):  # read at once, some of them are within their exec
        child = subprocess.Popen(["sleep", "60"])
        try:
            assert read_started_target_facts(child.pid).argv == ("sleep", "60")
        finally:
            child.kill()
            child.wait()


def test_kernel_threads_are_refused():
    if not Path("/proc/2/stat").exists() or not parse_stat(Path("/proc/2/stat").read_bytes()).kernel_thread:
        pytest.skip("a container: its /proc shows no kernel threads")
    with pytest.raises(AttachError, match="kernel thread"):
        identify(2)


def test_a_zombie_is_refused():
    with stranger(READY) as process:
        while not (found := parse_stat(Path(f"/proc/{process.pid}/stat").read_bytes())).dead:
            pass
        with pytest.raises(AttachError, match="zombie") as raised:
            identify(process.pid)
        assert str(found.parent_pid) in raised.value.hint
        process.reap()


def test_a_thread_is_refused_and_its_process_named():
    code = (
        "import threading, time; t = threading.Thread(target=time.sleep, args=(60,), daemon=True); t.start(); "
        "print(t.native_id, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(python(code), stdout=subprocess.PIPE, text=True)
    try:
        thread = int(process.stdout.readline())
        with pytest.raises(AttachError, match="is a thread of") as raised:
            identify(thread)
        assert f"--pid {process.pid}" in raised.value.hint
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_an_unreadable_process_is_an_attach_error(tmp_path):
    (tmp_path / "77").mkdir()
    (tmp_path / "77/stat").write_text("nonsense")
    with pytest.raises(AttachError, match="cannot be read"):
        identify(77, str(tmp_path))


# --- facts


def test_facts_of_a_real_process(tmp_path):
    log = tmp_path / "main.log"
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "0,1"}
    with log.open("w") as out:
        child = subprocess.Popen(python(WAIT, "a\x1b[31mb", "c d"), stdout=out, cwd=tmp_path, env=environ)
        try:
            while not log.read_text():
                pass
            facts = read_target_facts(identify(child.pid))
        finally:
            child.kill()
            child.wait()
    assert facts.argv[-2:] == ("a\x1b[31mb", "c d")
    assert "\x1b" not in facts.command
    assert facts.command.startswith(Path(sys.executable).name + " ")
    assert (facts.cwd, facts.uid, facts.is_torchrun) == (str(tmp_path), os.getuid(), False)
    assert (facts.stdout_path, facts.stdout_reason) == (str(log), "")
    assert facts.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert b"SigCgt" in facts.status
    with pytest.raises(TargetGoneError):
        read_target_facts(facts.target)


def test_stdout_that_is_no_file_says_why(tmp_path):
    with running(python(WAIT)) as child:
        facts = read_target_facts(identify(child.pid))
    assert facts.stdout_path is None
    assert "pipe" in facts.stdout_reason


def test_a_deleted_stdout_says_so(tmp_path):
    log = tmp_path / "main.log"
    with log.open("w") as out:
        child = subprocess.Popen(python(WAIT), stdout=out)
        try:
            log.unlink()
            facts = read_target_facts(identify(child.pid))
        finally:
            child.kill()
            child.wait()
    assert facts.stdout_path is None
    assert "deleted" in facts.stdout_reason


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_what_is_not_permitted_is_none():
    with running(python(WAIT)) as child:
        watcher = os.fork()
        if watcher == 0:
            code = 9
            try:
                os.setuid(65534)
                facts = read_target_facts(identify(child.pid))
                unknown = (facts.environ, facts.cwd, facts.stdout_path)
                code = 0 if unknown == (None,) * 3 and "permitted" in facts.stdout_reason else 8
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(watcher, 0)[1]) == 0


# --- torchrun


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["torchrun", "--nproc_per_node=4", "train.py"], True),
        (["/usr/bin/python3", "/usr/local/bin/torchrun", "train.py"], True),
        (["python", "-m", "torch.distributed.run", "--standalone", "train.py"], True),
        (["python", "-u", "-m", "torch.distributed.launch", "train.py"], True),
        (["python", "/site-packages/torch/distributed/run.py", "train.py"], True),
        (["python", "-u", "train.py", "torchrun"], False),
        (["python", "train.py", "-m", "torch.distributed.run"], False),
        (["python", "run.py"], False),
        ([], False),
    ],
)
def test_torchrun_is_known_by_its_command_line(argv, expected):
    assert is_torchrun(argv) is expected


def test_ranks_are_the_children_with_a_local_rank():
    code = (
        "import os, subprocess, sys, time\n"
        "def start(**env): return subprocess.Popen([sys.executable, '-S', '-c', "
        "'import time; print(1, flush=True); time.sleep(60)'], stdout=subprocess.PIPE, env={**os.environ, **env})\n"
        "all = [start(LOCAL_RANK='1', RANK='5'), start(LOCAL_RANK='0', RANK='4'), start(OTHER='1')]\n"
        "for one in all: one.stdout.readline()\n"
        "print(all[1].pid, all[0].pid, flush=True); sys.stdin.readline()\n"
        "for one in all: one.kill(); one.wait()"
    )
    agent = subprocess.Popen(python(code), stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    try:
        expected = list(map(int, agent.stdout.readline().split()))
        ranks = read_torchrun_ranks(identify(agent.pid))
    finally:
        agent.communicate("\n")
    assert [rank.pid for rank in ranks] == expected


def test_nothing_is_held():
    before = len(list(Path("/proc/self/fd").iterdir()))
    with running(python(WAIT)) as child:
        read_target_facts(identify(child.pid))
        assert len(list(Path("/proc/self/fd").iterdir())) == before + 2  # the two pipes to the child


# --- what its launcher set --------------------------------------------------------------------------------------------

SLURM = {"SLURM_JOB_ID": "4711", "SLURMD_NODENAME": "gpu-07", "SLURM_PROCID": "1", "SLURM_JOB_NUM_NODES": "2"}
RANK = {"TORCHELASTIC_RUN_ID": "abc", "RANK": "5", "LOCAL_RANK": "1", "GROUP_WORLD_SIZE": "2"}


def found(environ: Mapping[str, str], *argv: str, agent: bool = False) -> RunIdentity:
    return identify_run(environ, argv, agent=agent, host="host-a", run_id="20260101-1")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, RunIdentity("20260101-1", "host-a")),
        (SLURM, RunIdentity("4711", "gpu-07", 1, 2)),
        (RANK, RunIdentity("abc", "host-a", 5, 2)),
        ({**SLURM, **RANK}, RunIdentity("abc", "gpu-07", 5, 2)),
        ({**SLURM, **RANK, "TORCHELASTIC_RUN_ID": "none"}, RunIdentity("4711", "gpu-07", 5, 2)),
        ({"OMPI_COMM_WORLD_RANK": "0"}, RunIdentity("20260101-1", "host-a", 0)),
        ({"PMI_RANK": "3", "PBS_JOBID": "7.head"}, RunIdentity("7.head", "host-a", 3)),
        (
            {"MEMWATCH_RUN_ID": "job", "MEMWATCH_NODE": "n", "MEMWATCH_RANK": "2", **SLURM},
            RunIdentity("job", "n", 2, 2),
        ),
        ({"RANK": "many", "SLURM_NNODES": "-1", "SLURMD_NODENAME": ""}, RunIdentity("20260101-1", "host-a")),
        ({"SLURM_JOB_ID": "4\x1b[31m7"}, RunIdentity("47", "host-a")),
    ],
)
def test_of_a_trainer(environ: Mapping[str, str], expected: RunIdentity) -> None:
    assert found(environ) == expected


@pytest.mark.parametrize(
    ("options", "environ", "run_id", "nodes"),
    [
        (("--rdzv-id=x7", "--nnodes", "2"), {}, "x7", 2),
        (("--rdzv_id", "x7", "--nnodes=1:4"), {}, "x7", None),
        (("--rdzv-id=none",), SLURM, "4711", 2),
        ((), {"PET_RDZV_ID": "p", "PET_NNODES": "4"}, "p", 4),
        (("--standalone",), {}, "20260101-1", None),
    ],
)
def test_of_an_agent_that_has_no_rank(
    options: tuple[str, ...], environ: Mapping[str, str], run_id: str, nodes: int | None
) -> None:
    told = found({**environ, "RANK": "3"}, "torchrun", *options, "train.py", agent=True)
    assert (told.run_id, told.rank, told.nodes) == (run_id, None, nodes)
    assert found({"RANK": "3"}, "python", *options, agent=False).rank == 3, "its own options are nobody's"


# --- the scheduler's limit


@pytest.mark.parametrize(
    ("environ", "mebibytes"),
    [
        ({"SLURM_MEM_PER_NODE": "4096"}, 4096),
        ({"SLURM_MEM_PER_CPU": "2000", "SLURM_CPUS_ON_NODE": "4"}, 8000),
        ({"SLURM_MEM_PER_GPU": "16384", "SLURM_GPUS_ON_NODE": "2"}, 32768),
        ({"SLURM_MEM_PER_NODE": "0", "SLURM_MEM_PER_CPU": "2000", "SLURM_CPUS_ON_NODE": "4"}, None),
        ({"SLURM_MEM_PER_CPU": "2000"}, None),
        ({"SLURM_MEM_PER_NODE": "4G"}, None),
        ({"SLURM_MEM_PER_NODE": "-1"}, None),
        ({"SLURM_JOB_ID": "7"}, None),
    ],
    ids=["node", "cpu", "gpu", "0 is unlimited", "no count", "a unit", "negative", "not told"],
)
def test_slurm_tells_its_limit_in_mebibytes(environ, mebibytes):
    assert scheduler_limit(environ) == (None if mebibytes is None else SchedulerLimit("Slurm", mebibytes << 20))


def test_only_below_slurmstepd_are_slurms_variables_of_this_job():
    told = {**os.environ, "SLURM_MEM_PER_NODE": "512"}
    named = "open('/proc/self/comm', 'w').write('slurmstepd'); "
    child = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    below = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    for code, limit in ((named + below, SchedulerLimit("Slurm", 512 << 20)), (below, None)):
        with subprocess.Popen(
            python(code), stdout=subprocess.PIPE, text=True, env=told, start_new_session=True
        ) as step:
            try:
                pid = int(step.stdout.readline())
                assert read_scheduler_limit(pid, read_environ(pid)) == limit
            finally:
                os.killpg(step.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("/bin/bash", "train.sh"), True),
        (("-zsh",), True),
        (("/opt/uv", "run", "train.py"), True),
        (("python3", "/opt/conda/bin/conda", "run", "python", "a.py"), True),
        (("python3", "train.py"), False),
        (("python3", "-u", "make"), False),
        ((), False),
    ],
)
def test_programs_that_run_another_below_them(argv: tuple[str, ...], expected: bool) -> None:
    assert is_wrapper(argv) is expected


def test_what_a_shell_runs_is_the_process_with_the_most_memory() -> None:
    held = "import time; held = bytearray(60_000_000); print(1, flush=True); time.sleep(60)"
    with running(
        ("sh", "-c", f"cd . && sh -c \"{sys.executable} -c '{held}' | tee /dev/stderr; true\"; true")
    ) as shell:
        found = read_wrapped(identify(shell.pid))
        assert found is not None and "bytearray" in " ".join(read_argv(found.pid))
        assert read_wrapped(found) is None, "it is no shell"
        os.kill(found.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "/run/kernel-9.json"], True),
        (["/opt/conda/bin/python", "-m", "colab_kernel_launcher", "-f", "k.json"], True),
        (["/usr/bin/python3.12"], True),
        (["/usr/bin/ipython"], True),
        (["/usr/bin/python3", "/usr/bin/ipython"], True),
        (["python", "train.py", "--data", "my_ipython_logs"], False),
        (["python", "-m", "train"], False),
        (["./train"], False),
        ([], False),
    ],
)
def test_a_notebooks_kernel_and_a_prompt_are_told_from_programs(argv: list[str], expected: bool) -> None:
    assert is_interactive(argv) is expected
