"""The commands that read the history, on real files: report, compare, export."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from memwatch.cli.main import main
from memwatch.core.events import Attached, Cause, Exited, GenerationSeen, Notice
from memwatch.core.measurements import Target
from memwatch.history.event_store import HistoryStore
from memwatch.sources.target.target_facts import identify
from support.examinations import examined
from support.recorded import Recording, record
from support.watch import sampled

GB, T0 = 10**9, 1_700_000_000.0


def watched(path: Path, command: str, growth: int) -> str:
    """A run of five generations of 100 s, of which each holds ever more; its ID."""
    store = HistoryStore.open(path)
    attached = Attached(T0, Target("boot", 4_000_000, len(command)), command)
    run_id = store.open_run(command, attached, T0, "/w", "/w/a.log").run_id
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
    assert lines[0] == "ended: killed by the kernel's OOM killer at the cgroup's limit"
    assert lines[1] == "  evidence: memory.events oom_kill 0 -> 1"
    assert lines[2] == "LEAK FOUND: +2.0 GB/generation since generation 1"
    assert any("python second.py" in line for line in lines)
    assert any("held by Trainer.kept[i]" in line for line in lines)
    assert sum(line.strip().startswith("generation ") and " GB" in line for line in lines) == 5, "each examination"


def test_last_tells_how_it_ended_and_what_to_do_without_the_tables(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["last", str(history)]) == 0
    lines = capsys.readouterr().out.splitlines()
    run_id = lines[0].split()[1].rstrip(",")
    assert lines[2] == "ended: killed by the kernel's OOM killer at the cgroup's limit"
    assert f"next: memwatch report {history} --run {run_id} -o report.html, for the whole run as a page" in lines
    assert not any("examined in" in line for line in lines)
    assert main(["last", str(history), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["severity"] == "ended_badly"


def test_a_run_can_be_named_and_what_was_expected_of_it_is_checked(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = watched(tmp_path / "other.db", "python other.py", GB)
    (tmp_path / "memwatch.yaml").write_text("expectations: ['growth < 0.5GB/generation', 'Record == 500']\n")
    options = ["--run", run_id, "--config", str(tmp_path / "memwatch.yaml"), "--json"]
    assert main(["report", str(tmp_path / "other.db"), *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["diagnosis"]["findings"][0]["cause"] == "unbounded_container"
    broken, last = found["expectations"]
    assert broken["breaches"] >= 3 and last["met"]


def test_what_is_no_history_or_no_run_is_told(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path / "none.db")]) == 2
    assert main(["report", __file__]) == 2
    assert main(["report", str(history), "--run", "x"]) == 2
    HistoryStore.open(tmp_path / "empty.db").close()
    assert main(["report", str(tmp_path / "empty.db")]) == 2
    complaints = capsys.readouterr().err
    for part in ("there is none yet", "not a database", "no run x", "no run at all"):
        assert part in complaints
    assert not (tmp_path / "none.db").exists()


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(one) for one in arguments]) == 0
    return capsys.readouterr().out


def test_which_runs_there_are(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, "report", history, "--list").splitlines()
    assert [line.split("  ")[-1] for line in lines] == ["python second.py", "python first.py"]
    assert "9 m 55 s" in lines[0]


def test_the_generations_as_csv(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(told(capsys, "report", history, "--csv"))))
    assert [row["generation"] for row in rows] == ["1.0", "2.0", "3.0", "4.0", "5.0"]
    assert rows[1]["resource"] == "host" and int(rows[1]["delta_bytes"]) == pytest.approx(2 * GB, rel=0.1)


def test_all_of_it_as_json(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(capsys, "report", history, "--json"))
    assert found["ending"][0].startswith("ended: killed by the kernel's OOM killer")
    assert [one["census"]["types"][0]["count"] for one in found["examinations"]] == [100, 200, 300, 400, 500]
    assert found["resources"][0]["peak"] > 9 * GB


@pytest.mark.parametrize(
    ("name", "begins"),
    [("a.html", "<!doctype html>"), ("a.txt", "ended: killed"), ("a.json", '{"schema"'), ("a.csv", "resource,attempt")],
)
def test_a_file_gets_what_its_name_says(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, begins: str
) -> None:
    assert told(capsys, "report", history, "-o", tmp_path / name) == f"written: {tmp_path / name}\n"
    assert (tmp_path / name).read_text().startswith(begins)


def test_a_file_of_another_kind_is_refused_at_once(history: Path, tmp_path: Path) -> None:
    assert main(["report", str(history), "-o", str(tmp_path / "a.pdf")]) == 2
    assert main(["compare", str(history), str(history), "-o", str(tmp_path / "a.csv")]) == 2
    assert main(["report", str(history), "--csv", "--text"]) == 2
    assert not list(tmp_path.glob("a.*"))


def test_the_page_has_pictures_and_runs_nothing(history: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert main(["report", str(history), "-o", str(path)]) == 0
    page = path.read_text()
    assert "<svg" in page and "<script" not in page and "python second.py" in page


# --- an end that nobody saw -----------------------------------------------------------------------------------------


def cut_off(path: Path, target: Target) -> None:
    store = HistoryStore.open(path)
    attached = Attached(T0, target, "python main.py")
    store.open_run("x", attached, T0)
    store.append([attached, sampled(T0, GB, 2 * GB)], [])
    store.close()


def test_a_record_that_breaks_off_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut_off(tmp_path / "h.db", Target("boot", 4_000_000, 1))
    text = told(capsys, "report", tmp_path / "h.db")
    assert "The record ends before the trainer did" in text and "runs on" not in text
    assert "How it ended is not known" in json.loads(told(capsys, "report", tmp_path / "h.db", "--json"))["ending"][0]


def test_a_trainer_that_still_runs_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(["sleep", "60"]) as trainer:
        cut_off(tmp_path / "h.db", identify(trainer.pid))
        assert "The trainer runs on." in told(capsys, "report", tmp_path / "h.db")
        trainer.kill()


# --- compare --------------------------------------------------------------------------------------------------------


def test_two_runs_side_by_side(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (line.split()[0] for line in reversed(told(capsys, "report", history, "--list").splitlines()))
    lines = told(capsys, "compare", first, second, "--history", history).splitlines()
    assert lines[0] == "B grows 100% more per generation (+1.0 GB -> +2.0 GB)."
    rows = {line[:34].strip(): line[34:] for line in lines[2:] if line[:34].strip()}
    assert rows["command"].split() == ["python", "first.py", "python", "second.py"]
    assert rows["growth by generation"].split() == ["1.0", "GB", "2.0", "GB", "+100%"]
    found = json.loads(told(capsys, "compare", first, second, "--history", history, "--json"))
    growth = next(row for row in found["rows"] if row["what"] == "growth by generation")
    assert growth["b_figure"] == pytest.approx(2 * growth["a_figure"], rel=0.05) and found["b"]["run_id"] == second


def test_files_are_compared_by_their_latest_runs(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched(tmp_path / "other.db", "python other.py", GB)
    told_text = told(capsys, "compare", history, tmp_path / "other.db")
    assert "python other.py" in told_text.splitlines()[3]
    assert main(["compare", str(history), "no-such-run", "--history", str(history)]) == 2
    assert "no run no-such-run" in capsys.readouterr().err


def restarted(path: Path) -> str:
    """One run, of which the first process leaked and died, and the second, mended, did not; its ID."""
    store, run_id = HistoryStore.open(path), ""
    for attempt, growth in enumerate((2 * GB, GB // 10)):
        t0 = T0 + 1000 * attempt
        attached = Attached(t0, Target("boot", 4_000_000 + attempt, 1), f"python main.py --try {attempt}")
        run_id = store.open_run("the same", attached, t0).run_id
        store.append([attached], [Notice(t0, "attached", "watching", {"attempt": attempt})])
        for index in range(1, 6):
            t = t0 + 100 * index
            store.append([GenerationSeen(t, index, 5)], [])
            for second in range(0, 100, 5):
                store.append([sampled(t + second, GB + index * growth + second * growth // 100, 100 * GB)], [])
        cause = Cause.COMPLETED if attempt else Cause.OOM_CGROUP
        store.append([Exited(t0 + 600, cause, ("seen",), None, None)], [])
    store.close()
    return run_id


def test_processes_of_one_run_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.db"
    run_id = restarted(path)
    listed = told(capsys, "report", path, "--list").splitlines()
    assert listed[1].strip() == f"its processes: {run_id}@1, {run_id}@2"
    found = json.loads(told(capsys, "compare", f"{run_id}@1", f"{run_id}@2", "--history", path, "--json"))
    rows = {row["what"]: row for row in found["rows"]}
    assert (rows["command"]["a"], rows["command"]["b"]) == ("python main.py --try 0", "python main.py --try 1")
    assert "OOM killer" in rows["how it ended"]["a"] and rows["how it ended"]["b"] == "ended: completed"
    assert rows["growth by generation"]["a_figure"] > 10 * rows["growth by generation"]["b_figure"]
    first = json.loads(told(capsys, "report", path, "--run", f"{run_id}@1", "--json"))
    assert first["target"]["command"] == "python main.py --try 0" and len(first["events"]) == 1
    both = json.loads(told(capsys, "report", path, "--run", run_id, "--json"))
    assert both["attempt"] == 1 and len(both["events"]) == 2
    for wrong in ("@3", "@0", "@x"):
        assert main(["report", str(path), "--run", run_id + wrong]) == 2
    assert "it has 2" in capsys.readouterr().err


# --- export ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_an_exported_run_is_replayed_as_it_was_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    record(tmp_path / "h.db", Recording(gpus=1, killed_in=14, limit=160 * GB, acts=True))
    told(capsys, "export", tmp_path / "h.db", "-o", tmp_path / name)
    replayed = [json.loads(line) for line in told(capsys, "replay", tmp_path / name, "--json").splitlines()]
    found = json.loads(told(capsys, "report", tmp_path / "h.db", "--json"))

    def outlooks(events: list[dict[str, Any]]) -> list[tuple[str, object]]:
        telling = {"forecast": "verdict", "warn": "verdict", "interrupt": "kind", "generation": "delta"}
        return [(one["event"], one[telling[one["event"]]]) for one in events if one["event"] in telling]

    said = outlooks(found["events"])
    assert len(said) > 30 and "interrupt" in {kind for kind, _ in said} & {kind for kind, _ in outlooks(replayed)}
    assert outlooks(replayed)[:20] == said[:20]


def test_an_export_goes_to_stdout(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(told(capsys, "export", history))))
    assert (rows[0]["t"], rows[0]["rss"], rows[0]["gen"], rows[0]["gpu_used"]) == ("100.0", str(2 * GB), "1.0", "")
    assert main(["export", str(history), "-o", "/nowhere/a.csv"]) == 2
