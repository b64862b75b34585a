"""Others in the trainer's real cgroup: the forecast goes by the cgroup's own use, and reports name what grows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from memwatch.app.load_and_replay_run import rejudge
from memwatch.history import stored_runs
from support.mainjob import Folder, memwatch, until
from support.trainers import memory_cgroup

pytestmark = [pytest.mark.integration, pytest.mark.paced, pytest.mark.cgroup]

RAY = Path(__file__).resolve().parents[3] / "shared" / "cases" / "d-ray-workers" / "driver.py"

NEIGHBOUR = """
import time
kept = []
for _ in range(600):
    kept.append(bytearray(b"x" * 1_200_000))
    time.sleep(0.1)
"""
FLAT = """
import time
held = [bytearray(1000) for _ in range(20_000)]
for epoch in range(1, 101):
    print(f"epoch {epoch}/100 loss {1 / epoch:.3f}", flush=True)
    time.sleep(0.5)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def cgroup() -> Iterator[Path]:
    try:
        with memory_cgroup("memwatch-neighbours", 260_000_000) as directory:
            yield directory
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")


@contextmanager
def started_in(cgroup: Path, folder: Folder, name: str, program: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of the folder in the cgroup, with its output in a log of its name; the cgroup is cleared at the end."""
    (folder.path / f"{name}.py").write_text(program)
    command = ["/bin/sh", "-c", f'echo $$ > {cgroup}/cgroup.procs; exec "$@"', "-", sys.executable, f"{name}.py"]
    with (folder.path / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder.path, start_new_session=True)
    try:
        yield process
    finally:
        for pid in (cgroup / "cgroup.procs").read_text().split():
            os.kill(int(pid), 9)
        process.wait()


def watched(folder: Folder, name: str, pid: int, *options: str) -> list[dict]:
    """What memwatch says of a program until its end."""
    until(lambda: (folder.path / f"{name}.log").read_bytes().count(b"\n"))
    arguments = ("--pid", str(pid), "--log", f"{name}.log", "--json", "--listen", "none", *options)
    with memwatch(folder, *arguments) as watch:
        watch.wait()
        return watch.events()


def named(events: Sequence[dict], event: str) -> list[dict]:
    return [one for one in events if one["event"] == event]


def test_a_neighbour_that_grows_is_named_and_the_trainer_is_not_blamed(folder: Folder, cgroup: Path) -> None:
    with (
        started_in(cgroup, folder, "serve", NEIGHBOUR) as other,
        started_in(cgroup, folder, "train", FLAT) as trainer,
    ):
        history = ("--history", str(folder.history))
        events = watched(folder, "train", trainer.pid, "--interval", "0.25", "--checkpoint-time", "1", *history)
    who = re.escape(f"{Path(sys.executable).name} serve.py (pid {other.pid})")
    (beside,) = named(events, "neighbours")
    assert re.search(rf"[0-9.]+ MB are not the trainer's job's: {who}", beside["text"])
    (interrupt,) = named(events, "interrupt")
    assert re.search(rf"grows [0-9.]+ MB/epoch, of it [0-9.]+ MB by others: {who}", interrupt["text"])
    assert interrupt["limit_origin"] == f"cgroup /{cgroup.name}"
    assert 5e6 < interrupt["growth_per_gen"] < 7e6, "12 MB a second, epochs of half a second"
    assert 0 < interrupt["headroom"] < 100e6
    findings = named(events, "finding")
    assert {one["cause"] for one in findings} <= {"others_grow"}, findings
    assert all("the trainer" in one["text"] and re.search(who, one["text"]) for one in findings)
    (exited,) = named(events, "exited")
    assert exited["signal"] != "SIGKILL", "in time"
    [run] = stored_runs.stored_runs(folder.history)
    assert [one.difference for one in rejudge(folder.history, run, lambda _: None)] == [None]


@pytest.mark.skipif(not RAY.exists(), reason="the public report is not here (../shared/cases)")
def test_a_worker_that_a_daemon_started_is_of_the_job(folder: Folder, cgroup: Path) -> None:
    with started_in(cgroup, folder, "driver", RAY.read_text()) as driver:
        events = watched(folder, "driver", driver.pid, "--history", "none")
    (beside,) = named(events, "neighbours")
    assert (beside["members"], beside["others"]) == (1, 0)
    forecasts = [one for one in named(events, "forecast") if one["oom_gen"] is not None]
    assert forecasts
    assert all(19 <= one["oom_gen"] <= 23 and 10e6 < one["growth_per_gen"] < 14e6 for one in forecasts), forecasts
    assert all("by workers that are no children: " in one["text"] for one in forecasts)
    findings = named(events, "finding")
    assert findings and all("in worker" in one["text"] for one in findings), findings
    used = [one["used"] for one in named(events, "forecast")]
    assert used == sorted(used), "it never falls to what the tree alone uses"
    (exited,) = named(events, "exited")
    assert exited["signal"] != "SIGKILL", "in time"
