"""The log of a trainer whose stdout is no file is found, with real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from memwatch.sources.target.find_log import find_logs
from memwatch.sources.target.target_facts import TargetFacts, identify, read_target_facts

CONTAINER = "9c0f" * 16


@contextmanager
def trainer(folder: Path, code: str = "", pipe: str = "", environ: Mapping[str, str] | None = None) -> Iterator[int]:
    """Its PID. It runs `code` and waits, in a session of its own, its stdout piped to the command `pipe` of a shell."""
    ready = folder.parent / f"{folder.name}.ready"
    code = f"{code}\nimport os, time\nopen({str(ready)!r}, 'w').write(str(os.getpid()))\nwhile True: time.sleep(60)"
    command = [sys.executable, "-c", code]
    if pipe:
        command = ["sh", "-c", f'"$0" "$@" | {pipe}', *command]
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **(environ or {})},
    ) as process:
        try:
            deadline = time.monotonic() + 30
            while not (ready.exists() and ready.read_text()):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield int(ready.read_text())
        finally:
            os.killpg(process.pid, 9)
            ready.unlink(missing_ok=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def facts_of(pid: int) -> TargetFacts:
    return read_target_facts(identify(pid))


def found(pid: int) -> list[Path]:
    return find_logs(facts_of(pid))


def later(path: Path, text: str = "epoch,step\n0,9\n", seconds: float = 0.0) -> Path:
    """A file that is written after the trainer began."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (time.time() + seconds, time.time() + seconds))
    return path


def test_nothing_is_found_where_nothing_is(folder: Path) -> None:
    (folder / "main.log").write_text("Epoch 1/3\n")  # nobody has it open
    with trainer(folder) as pid:
        assert found(pid) == []


def test_what_reads_its_pipe_writes_its_log(folder: Path) -> None:
    with trainer(folder, pipe="tee train.txt >/dev/null") as pid:
        deadline = time.monotonic() + 10
        while not (folder / "train.txt").exists():
            assert time.monotonic() < deadline
        assert found(pid) == [folder / "train.txt"]
    with trainer(folder, "open('own.log', 'w')", pipe="cat > filtered") as pid:
        assert found(pid) == [folder / "filtered"]


def test_what_reads_its_pipe_complains_elsewhere(folder: Path) -> None:
    with trainer(folder, pipe="cat 2>cat.log >/dev/null") as pid:
        deadline = time.monotonic() + 10
        while not (folder / "cat.log").exists():
            assert time.monotonic() < deadline
        assert found(pid) == []


def test_a_model_that_is_written_as_text_is_no_log(folder: Path) -> None:
    with trainer(folder, "files = [open('model-800.txt', 'w'), open('train.txt', 'w')]", pipe="cat >/dev/null") as pid:
        assert found(pid) == [folder / "train.txt"]


def test_its_stderr_and_the_logs_that_it_or_a_child_holds_open_are_found(folder: Path) -> None:
    code = """
import os, subprocess, sys
os.dup2(os.open("errors", os.O_WRONLY | os.O_CREAT), 2)
own, data = open("train.log", "a"), open("data.bin", "w")
read = open("train.log")
child = subprocess.Popen([sys.executable, "-c", "import time; f = open('worker.log', 'a'); time.sleep(60)"])
while not os.path.exists("worker.log"): pass
"""
    with trainer(folder, code) as pid:
        assert found(pid) == [folder / "errors", folder / "train.log", folder / "worker.log"]
    assert (folder / "data.bin").exists(), "which is no log"


def test_a_containers_log_is_found_by_its_id(folder: Path, tmp_path: Path) -> None:
    with trainer(folder) as pid:
        facts = facts_of(pid)
    proc = tmp_path / "proc" / str(pid)
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text(f"0::/system.slice/docker-{CONTAINER}.scope\n")
    docker = later(tmp_path / "var/lib/docker/containers" / CONTAINER / f"{CONTAINER}-json.log", "{}\n")
    kubernetes = later(tmp_path / "var/log/containers" / f"pod_default_main-{CONTAINER}.log", "{}\n")
    assert find_logs(facts, str(tmp_path / "proc"), str(tmp_path)) == [docker, kubernetes]


def test_slurms_output_file_is_found(folder: Path, tmp_path: Path) -> None:
    for environ, name in (
        ({"SLURM_JOB_ID": "71"}, "slurm-71.out"),
        ({"SLURM_JOB_ID": "72", "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "3"}, "slurm-70_3.out"),
    ):
        later(tmp_path / name)
        with trainer(folder, environ={**environ, "SLURM_SUBMIT_DIR": str(tmp_path)}) as pid:
            assert found(pid) == [tmp_path / name]


def test_what_is_written_in_its_folder_since_it_began_is_found(folder: Path) -> None:
    later(folder / "lightning_logs/version_0/metrics.csv", seconds=-600)  # of an earlier run
    with trainer(folder) as pid:
        events = [later(folder / f"runs/events.out.tfevents.{i}.host") for i in range(2)]
        assert found(pid) == [], "two are written: they may be of two trainers"
        later(folder / "out/checkpoint-500/trainer_state.json", seconds=-0.5)
        state = later(folder / "out/checkpoint-1000/trainer_state.json")
        assert found(pid) == [state]
        other = later(folder / "other/trainer_state.json")
        assert found(pid) == [], "of two trainers, too"
        other.unlink()
        events[0].unlink()
        assert found(pid) == [events[1], state], "the former has more steps"
        shutil.rmtree(folder / "out")
        own = [later(folder / f"{part}/events.out.tfevents.9.host.{pid}.0", "x" * i) for i, part in enumerate("abc")]
        assert found(pid) == [own[2]], "the largest of its own"
        metrics = later(folder / "lightning_logs/version_1/metrics.csv")
        assert found(pid) == [metrics, own[2]]
        output = later(folder / "wandb/run-20260101_000000-abc/files/output.log", "Epoch 1/3\n")
        assert found(pid) == [output, own[2]]
        later(folder / "wandb/run-20260101_000001-def/files/output.log", "Epoch 1/3\n")  # of another trainer
        assert found(pid) == [metrics, own[2]]
        assert find_logs(replace(facts_of(pid), uid=4711)) == [], "another user's"


def test_a_search_is_cheap(folder: Path) -> None:
    for number in range(3000):
        (folder / f"{number}.png").touch()
    with trainer(folder) as pid:
        facts, before = facts_of(pid), time.thread_time()
        find_logs(facts)
        assert time.thread_time() - before < 0.05
