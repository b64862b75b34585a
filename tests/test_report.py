"""`memwatch report`: the summary of a run, from a real history file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memwatch.cli import main
from memwatch.core.model import Attached, Cause, Exited, GenerationSeen, Target
from memwatch.history.store import HistoryStore
from support.examinations import examined
from support.watch import sampled

GB, T0 = 10**9, 1_700_000_000.0


def watched(path: Path, command: str, growth: int) -> str:
    """A run of five generations of 100 s, of which each holds ever more; its ID."""
    store = HistoryStore.open(path)
    attached = Attached(T0, Target("boot", 4_000_000, len(command)), command)
    run_id = store.begin(command, attached, T0, "/w", "/w/a.log").run_id
    store.append([attached], [])
    for index in range(1, 6):
        t = T0 + 100 * index
        store.append([GenerationSeen(t, index, 5)], [])
        for second in range(0, 100, 5):
            store.append([sampled(t + second, index * growth + second * growth // 100, 100 * GB)], [])
        held = {"__main__.Trainer.kept": growth * index}
        ways = {("__main__.Record", "__main__.Trainer.kept[i]"): 100 * index}
        counts = {"__main__.Record": 100 * index}
        store.append([examined(index, t=t, used=index * growth, containers=held, ways=ways, counts=counts)], [])
    store.append([Exited(T0 + 600, Cause.OOM_CGROUP, ("memory.events oom_kill 0 -> 1",), None, "SIGKILL")], [])
    store.close()
    return run_id


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / "history.db"
    watched(path, "python first.py", GB)
    watched(path, "python second.py", 2 * GB)
    return path


def test_the_latest_run_is_told_as_at_its_end(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(history)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "LEAK FOUND: +2.0 GB/generation since generation 1"
    assert any("python second.py" in line for line in lines)
    assert any("held by Trainer.kept[i]" in line for line in lines)
    assert sum(line.strip().startswith("generation ") and " GB" in line for line in lines) == 5, "each examination"
    assert lines[-1] == "  evidence: memory.events oom_kill 0 -> 1"


def test_a_run_can_be_named_and_what_was_expected_of_it_is_checked(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = watched(tmp_path / "other.db", "python other.py", GB)
    (tmp_path / "memwatch.yaml").write_text("expectations: ['growth < 0.5GB/generation', 'Record == 500']\n")
    options = ["--run", run_id, "--config", str(tmp_path / "memwatch.yaml"), "--json"]
    assert main(["report", str(tmp_path / "other.db"), *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["diagnosis"]["findings"][0]["cause"] == "unbounded_container"
    broken, last = told["expectations"]
    assert broken["breaches"] >= 3 and last["met"]


def test_what_is_no_history_or_no_run_is_told(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path / "none.db")]) == 2
    assert main(["report", __file__]) == 2
    assert main(["report", str(history), "--run", "x"]) == 2
    HistoryStore.open(tmp_path / "empty.db").close()
    assert main(["report", str(tmp_path / "empty.db")]) == 2
    told = capsys.readouterr().err
    assert "unable to open" in told and "not a database" in told and "no run x" in told and "no run at all" in told
    assert not (tmp_path / "none.db").exists()
