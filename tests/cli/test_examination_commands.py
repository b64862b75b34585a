"""`memwatch snapshot` and `memwatch diff`, on real processes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import running

GROWS = """
import sys

class Loss:
    pass

class Trainer:
    def __init__(self):
        self.losses, self.replay = [], []

def evaluate(trainer):
    for _ in sys.stdin:
        trainer.losses += [Loss() for _ in range(500)]
        trainer.replay.append(bytearray(b"x" * (40 << 20)))
        print("grown", flush=True)

trainer = Trainer()
print("ready", flush=True)
evaluate(trainer)
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}


def memwatch(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memwatch", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_what_has_grown_between_two_snapshots_is_told(env: dict[str, str], tmp_path: Path) -> None:
    with running([sys.executable, "-c", GROWS]) as trainer:
        taken = ["snapshot", "--pid", str(trainer.pid), "--track", "Trainer.replay"]
        first = memwatch(env, *taken, "--label", "Debug checkpoint 1")
        trainer.stdin.write("\n")
        trainer.stdin.flush()
        assert trainer.stdout.readline() == "grown\n"
        second = memwatch(env, *taken, "--label", "after", "-o", str(tmp_path / "after.json"), "--json")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    kept = Path(first.stdout.rsplit("saved: ", 1)[1].strip())
    assert kept.parent == tmp_path / "state/memwatch/snapshots" and "debug-checkpoint-1" in kept.name
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert "evaluate (<string>" in first.stdout and "tracked" in first.stdout
    assert json.loads(second.stdout) == json.loads((tmp_path / "after.json").read_text())

    table = memwatch(env, "diff", "Debug checkpoint 1", str(tmp_path / "after.json"))
    told = json.loads(memwatch(env, "diff", str(tmp_path / "after.json"), "Debug checkpoint 1", "--json").stdout)
    assert told["before"] == "Debug checkpoint 1" and told["same_process"] is True and told["seconds"] > 0
    memory = {one["name"]: one["after"] - one["before"] for one in told["memory"] if one["after"] is not None}
    assert memory["rss of the trainer"] == pytest.approx(40 << 20, rel=0.2)
    kinds = {one["name"]: one["after"] - one["before"] for one in told["kinds"]}
    assert max(kinds, key=lambda kind: kinds[kind]) == "anonymous"
    types = {one["type"]: one for one in told["types"]}
    assert types["__main__.Loss"]["count"] == {"name": "__main__.Loss", "before": 0, "after": 500}
    assert told["types"][0]["type"] == "bytearray"
    assert [one["name"] for one in told["large"]] == ["bytearray __main__.Trainer.replay[i]"]
    held = {one["name"]: one["after"] for one in told["holders"]}
    assert held["__main__.Loss: __main__.Trainer.losses[i]"] == 500
    (tracked,) = told["tracked"]
    assert tracked["name"] == "Trainer.replay" and tracked["after"] - tracked["before"] >= 40 << 20
    assert "+41.9 MB" in table.stdout and "__main__.Trainer.losses[i]" in table.stdout


def test_what_is_no_python_is_kept_without_its_objects(env: dict[str, str]) -> None:
    with running(["sh", "-c", "echo ready; exec sleep 60"]) as process:
        told = memwatch(env, "snapshot", "--pid", str(process.pid), "--label", "sleep")
    assert told.returncode == 0
    assert "no census: " in told.stdout and "no stacks: " in told.stdout and "rss of the trainer" in told.stdout


def test_what_is_there_is_not_written_over(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with running([sys.executable, "-c", GROWS]) as trainer:
        told = memwatch(env, "snapshot", "--pid", str(trainer.pid), "-o", str(tmp_path / "mine"))
    assert told.returncode == 2 and "name another file" in told.stderr
    assert (tmp_path / "mine").read_text() == "precious"


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b"[" * 10_000])
def test_a_file_that_is_no_snapshot_is_refused(env: dict[str, str], tmp_path: Path, content: bytes) -> None:
    (tmp_path / "some.json").write_bytes(content)
    told = memwatch(env, "diff", str(tmp_path / "some.json"), str(tmp_path / "some.json"))
    assert told.returncode == 2 and "no snapshot" in told.stderr


def test_a_label_that_nothing_has_is_told(env: dict[str, str]) -> None:
    told = memwatch(env, "diff", "one", "other")
    assert told.returncode == 2 and "'one'" in told.stderr and "--label" in told.stderr
