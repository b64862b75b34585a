"""Bounds that no cgroup has: a small /dev/shm of a container, and Slurm's limit, on real trainers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.mainjob import Folder, Memwatch, memwatch

pytestmark = pytest.mark.integration

QUIET = ("--json", "--listen", "none", "--history", "none", "--interval", "0.1", "--checkpoint-time", "0.5")
SHM_BYTES = 60 << 20
# Words before a command that run it with a /dev/shm of 60 MiB, as in a container; root alone may.
SMALL_SHM = (
    *("unshare", "-m", "--propagation", "private", "sh", "-c"),
    'mount -t tmpfs -o size=60m tmpfs /dev/shm && exec "$0" "$@"',
)
# Keeps a segment of 5 MB in each epoch, as batches that are passed between processes and kept.
KEEPS = """
import sys, time
from multiprocessing import shared_memory, resource_tracker
kept = []
for epoch in range(1, 41):
    print(f"Epoch {epoch}/40", flush=True)
    one = shared_memory.SharedMemory(create=True, size=5_000_000)
    resource_tracker.unregister(one._name, "shared_memory")
    kept.append(one)
    for i in range(0, len(one.buf), 4096):
        one.buf[i] = 1
    time.sleep(1.0)
"""
# Fills /dev/shm to 95-99 % with batches and takes them out again, some hundred times in each epoch.
PASSES_ON = """
import os, random, time
for epoch in range(1, 9):
    print(f"Epoch {epoch}/8", flush=True)
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        for name in "ab":
            with open(f"/dev/shm/{name}", "wb") as batch:
                batch.write(bytes(int((60 << 20) * random.uniform(0.475, 0.495))))
        time.sleep(random.uniform(0, 0.02))
        os.remove("/dev/shm/a")
        time.sleep(random.uniform(0, 0.02))
        os.remove("/dev/shm/b")
"""
# Starts a command as slurmstepd does: below a process of this name, and told of its memory.
STEPD = """
import os, subprocess, sys
open("/proc/self/comm", "w").write("slurmstepd")
os.environ.update({"SLURM_MEM_PER_CPU": "100", "SLURM_CPUS_ON_NODE": "2"})
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def small_shm() -> tuple[str, ...]:
    if subprocess.run([*SMALL_SHM, "true"], check=False, capture_output=True).returncode:
        pytest.skip("takes root, for a /dev/shm in a mount namespace")
    return SMALL_SHM


def watched(folder: Folder, code: str, *options: str, before: tuple[str, ...]) -> tuple[Memwatch, int]:
    """memwatch after it has run `code`, and its exit code."""
    program = ("--", sys.executable, "-u", "-c", code)
    with memwatch(folder, "run", *QUIET, *options, *program, before=before) as watch:
        return watch, watch.wait()


def test_shared_memory_that_is_kept_is_interrupted_before_it_is_full(
    folder: Folder, small_shm: tuple[str, ...]
) -> None:
    watch, _ = watched(folder, KEEPS, before=small_shm)
    [interrupt] = watch.named("interrupt")
    told = {key: interrupt[key] for key in ("resource", "limit", "limit_origin")}
    assert told == {"resource": "/dev/shm", "limit": SHM_BYTES, "limit_origin": "/dev/shm"}
    assert 0 < interrupt["headroom"] < SHM_BYTES / 2 and 11 <= interrupt["oom_gen"] <= 14, watch.said()
    assert watch.named("exited")[0]["cause"] == "interrupted_unsaved"


def test_a_full_shared_memory_is_the_cause_of_a_bus_error(folder: Folder, small_shm: tuple[str, ...]) -> None:
    watch, status = watched(folder, KEEPS, "--dry-run", before=small_shm)
    [exited] = watch.named("exited")
    assert (exited["cause"], exited["signal"], status) == ("tmpfs_full", "SIGBUS", 128 + 7), watch.said()
    assert exited["evidence"][0].startswith("/dev/shm was full (62.9 MB): 6"), exited
    ends = [one["oom_gen"] for one in watch.named("forecast") if one["resource"] == "/dev/shm" and one["oom_gen"]]
    assert 12 <= ends[-1] <= 13, "it holds twelve segments"


def test_a_full_shared_memory_is_the_cause_of_an_error_that_names_no_file(
    folder: Folder, small_shm: tuple[str, ...]
) -> None:
    code = (
        "import multiprocessing, os, time\nwith open('/dev/shm/kept', 'wb') as kept:\n"
        "    try:\n        while kept.write(bytes(1 << 16)): kept.flush()\n    except OSError: pass\n"
        "    time.sleep(1.0)\n    multiprocessing.Lock()"
    )
    watch, status = watched(folder, code, before=small_shm)
    [exited] = watch.named("exited")
    assert (exited["cause"], status) == ("tmpfs_full", 1), watch.said()
    assert exited["evidence"][0].startswith("/dev/shm was full (62.9 MB): "), exited


def test_batches_that_fill_shared_memory_again_and_again_are_healthy(
    folder: Folder, small_shm: tuple[str, ...]
) -> None:
    watch, status = watched(folder, PASSES_ON, before=small_shm)
    assert (watch.named("warn"), watch.named("interrupt"), status) == ([], [], 0), watch.said()
    assert any(one["resource"] == "/dev/shm" for one in watch.named("forecast")), watch.said()


@pytest.mark.skipif(Path("/sys/fs/cgroup/memory.max").exists(), reason="a cgroup that may have a limit of its own")
def test_slurms_limit_binds_where_no_cgroup_enforces_it(folder: Folder) -> None:
    words = "slurmstepd: error: Job 9046 exceeded memory limit (220200960 > 209715200), being killed"
    code = f"import os, time\ntime.sleep(1)\nprint({words!r}, flush=True)\nos.kill(os.getpid(), 9)"
    watch, status = watched(folder, code, before=(sys.executable, "-c", STEPD))
    forecast = watch.named("forecast")[-1]
    assert (forecast["limit_origin"], forecast["limit"]) == ("Slurm", 200 << 20), watch.said()
    [exited] = watch.named("exited")
    assert (exited["cause"], exited["evidence"][0][:40], status) == (
        "oom_scheduler",
        "killed by Slurm at its limit of 209.7 MB",
        128 + 9,
    ), watch.said()
