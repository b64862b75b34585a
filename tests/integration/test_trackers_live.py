"""wandb, mlflow, tensorboard and apprise, fed by a real watch: what they wrote is read by their own readers."""

from __future__ import annotations

import os
import signal
import statistics
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from memwatch.errors import ExitCode
from support.mainjob import EXAMPLE, MB, Memwatch, memwatch, trainer, until
from support.stopwatch import Stopwatch
from support.tracked import MADE, TrackedFolder, children, inbox, lives, read, series

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

QUIET = ("--listen", "none", "--json")
OFTEN = ("--interval", "0.1")
ALL = """
tensorboard: {dir: tb}
wandb: {project: tests, mode: offline}
mlflow: {experiment: tests, tracking_uri: mlruns}
"""
# counts from the number in the file `begin` on once there is a file `go`, and ends when there is a file `end`
COUNTER = """
import os, time
while not os.path.exists("go"):
    time.sleep(0.02)
i = int(open("begin").read())
kept = []
while not os.path.exists("end"):
    print(f"Generation {i} / 900", flush=True)
    kept.append(bytearray(1 << 20))
    i += 1
    time.sleep(0.4)
"""


@pytest.fixture
def folder(tmp_path: Path) -> TrackedFolder:
    if not MADE.exists():
        pytest.skip("needs wandb, mlflow, tensorboard and apprise: make tools")
    return TrackedFolder(tmp_path)


def watch_counter(folder: TrackedFolder, pid: int, name: str = "memwatch") -> Memwatch:
    arguments = ("--pid", str(pid), "--config", str(folder.config), "--log", str(folder.log), *OFTEN, *QUIET)
    watch = Memwatch(folder, *arguments, name=name)
    until(lambda: watch.named("attached"))
    (folder.path / "go").touch()
    return watch


def trackers_of(watch: Memwatch) -> dict[int, str]:
    """The processes of trackers, and those that they have started; not examinations."""
    found = children(watch.process.pid)
    return {pid: command for pid, command in found.items() if "tracker_worker" in command or "wandb-core" in command}


def shown(pid: int) -> bytes:
    """What others may see of a process; nothing of one that has ended, as examinations and those that failed do."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def counter(folder: TrackedFolder) -> list[str]:
    (folder.path / "go").unlink(missing_ok=True)
    path = folder.path / "counter.py"
    path.write_text(COUNTER)
    return [sys.executable, str(path)]


# --- from end to end ------------------------------------------------------------------------------------------------


def test_a_run_from_beginning_to_end_is_in_all_of_them(folder: TrackedFolder) -> None:
    with inbox() as received:
        address = f"json://user:hunter2@127.0.0.1:{received.port}/hook-token"
        examined = "track: [ReplayBuffer.items]\ndiagnosis: {cpu_share: 0.25}\n"
        folder.config.write_text(f"{ALL}notify: {{urls: ['{address}']}}\n{examined}")
        example = [sys.executable, str(EXAMPLE), "--checkpoints", str(folder.checkpoints)]
        options = [*("--generations", "8"), *("--seconds", "1"), *("--leak", "history")]
        with memwatch(folder, "run", "--config", str(folder.config), *QUIET, "--", *example, *options) as watch:
            assert watch.wait(90) == 0, watch.said()
        folder.wait_for_trackers()
        assert received.titles() == ["the trainer has ended"]
        assert f"run {watch.named('attached')[0]['run_id']}" in received.messages[0]["message"]
    ended = {one["gen"]: one for one in watch.named("generation")}
    assert len(ended) >= 6

    [events] = folder.event_folders()
    assert series(events, "memory/host/used_mb") == [
        (gen, pytest.approx(one["end"] / 1e6, rel=1e-6)) for gen, one in ended.items()
    ]
    whole = [gen for gen, one in ended.items() if not one["partial"]]
    assert [step for step, _ in series(events, "memory/host/delta_mb")] == whole
    sizes = series(events, "memory/ReplayBuffer.items/size_mb")
    assert sizes and sizes[-1][1] > 1.0
    assert [step for step, _ in series(events, "memory/ReplayBuffer.items/growth_mb_per_epoch")] == [
        s for s, _ in sizes
    ]

    for tag in ("memory/host/used_mb", "memory/host/delta_mb", "memory/ReplayBuffer.items/size_mb"):
        same = [(step, pytest.approx(value, rel=1e-6)) for step, value in series(events, tag)]
        assert series(folder.path / "mlruns", tag) == same

    [file] = folder.wandb_files()
    logged = read(file)
    assert logged["id"] == f"memwatch-{watch.named('attached')[0]['run_id']}"
    assert logged["axes"] == {"memory/*": "generation", "memory_by_minute/*": "minute"}
    rows = [row for row in logged["rows"] if "memory/host/used_mb" in row]
    assert [(row["generation"], row["memory/host/used_mb"]) for row in rows] == [
        (gen, pytest.approx(one["end"] / 1e6)) for gen, one in ended.items()
    ]
    name = "memory/ReplayBuffer.items/size_mb"
    assert [(row["generation"], row[name]) for row in logged["rows"] if name in row] == [
        (gen, pytest.approx(size, rel=1e-6)) for gen, size in sizes
    ]
    assert watch.named("source_failed") == []
    files = [path for path in folder.path.rglob("*") if path.is_file() and path != folder.config]
    assert not [path for path in files if b"hunter2" in path.read_bytes()]


def test_what_happens_to_a_leak_reaches_people_in_order(folder: TrackedFolder) -> None:
    with inbox() as received, trainer(folder, "--leak", "buffer", "--seconds", "2.1") as run:
        (folder.path / "urls").write_text(f"# ours\n\njson://127.0.0.1:{received.port}\n")
        folder.config.write_text("notify: {file: urls}\n")
        options = ["--interval", "0.1", "--checkpoint-time", "0.5", "--limit", f"{330 * MB}B"]
        arguments = ["--pid", str(run.pid), "--config", str(folder.config), *options, *QUIET]
        with memwatch(folder, *arguments) as watch:
            assert watch.wait(90) == ExitCode.SAVED, watch.said()
        first = received.titles().index("interrupting the trainer")
        assert set(received.titles()[:first]) <= {"memory will run out"}
        assert received.titles()[first + 1 :] == ["checkpoint saved", "the trainer has ended"]
    [note] = [one["text"] for one in watch.named("note") if "chmod 600" in one["text"]]
    assert "urls may be read by other users" in note


# --- again and again ------------------------------------------------------------------------------------------------


def test_killed_and_started_again_it_goes_on_in_the_same_run_and_nothing_is_there_twice(folder: TrackedFolder) -> None:
    folder.config.write_text(ALL)
    (folder.path / "begin").write_text("1")
    with trainer(folder, program=counter(folder)) as run:
        first = watch_counter(folder, run.pid, "first")
        until(lambda: len(first.named("generation")) > 5 and folder.wandb_files())
        theirs = trackers_of(first)
        assert len(theirs) == 4, "each of the three, and wandb's own"
        first.kill()
        until(lambda: not any(map(lives, theirs)), 10.0)
        second = watch_counter(folder, run.pid, "second")
        until(lambda: len(second.named("generation")) > 4)
        (folder.path / "end").touch()
        assert second.wait() == 0, second.said()
    folder.wait_for_trackers()
    [events] = folder.event_folders()
    steps = [step for step, _ in series(events, "memory/host/used_mb")]
    assert steps == sorted(set(steps)), "each once"
    assert {one["gen"] for one in second.named("generation")} <= set(steps)
    parts = [read(file) for file in folder.wandb_files()]
    assert len(parts) == 2 and parts[0]["id"] == parts[1]["id"]
    assert len({row["generation"] for part in parts for row in part["rows"]}) == sum(len(p["rows"]) for p in parts)


def test_a_trainer_that_begins_again_further_back_goes_on_in_the_same_run(folder: TrackedFolder) -> None:
    folder.config.write_text(ALL)
    for name, begin, past in (("first", 1, 6), ("second", 4, 5)):
        (folder.path / "begin").write_text(str(begin))
        folder.log.unlink(missing_ok=True)  # it begins its log anew, too
        with trainer(folder, program=counter(folder)) as run:
            watch = watch_counter(folder, run.pid, name)
            until(lambda watch=watch, past=past: len(watch.named("generation")) > past)
            run.kill()
            watch.wait()
            folder.wait_for_trackers()
    assert watch.named("attached")[0]["attempt"] == 1
    [events] = folder.event_folders()
    [(again, _), *_] = [one for one in series(events, "memory/attempt") if one[1] == 1.0]
    steps = [step for step, _ in series(events, "memory/host/used_mb")]
    assert steps == sorted(set(steps)) and steps[0] < again, "what came again stands for the former"
    attempts: dict[int, list[int]] = {}
    for row in (row for file in folder.wandb_files() for row in read(file)["rows"]):
        attempts.setdefault(row["generation"], []).append(row["memory/attempt"])
    # On a busy machine two generations may end between two samples: then the earlier one has no row.
    assert [0, 1] in attempts.values(), "wandb has both"
    assert all(found in ([0], [0, 1], [1]) for found in attempts.values()), "each attempt once"


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_trackers_that_hang_delay_no_look_and_not_the_end(folder: TrackedFolder) -> None:
    with inbox() as received:
        folder.config.write_text(f"{ALL}notify: {{urls: ['json://127.0.0.1:{received.port}'], events: [attached]}}\n")
        (folder.path / "begin").write_text("1")
        with trainer(folder, program=counter(folder)) as run:
            watch = watch_counter(folder, run.pid)
            until(lambda: received.messages and folder.wandb_files() and folder.event_folders())
            theirs = trackers_of(watch)
            own = [pid for pid, command in theirs.items() if "wandb-core" not in command]
            assert len(own) == 4
            for pid in own:
                os.kill(pid, signal.SIGSTOP)
            seen = len(watch.named("generation"))
            until(lambda: len(watch.named("generation")) > seen + 12)
            times = [one["t"] for one in watch.named("generation")[seen:]]
            gaps = [b - a for a, b in pairwise(times)]
            assert statistics.median(gaps) < 0.6, "generations of 0.4 s"
            begun = Stopwatch()
            watch.process.send_signal(signal.SIGTERM)
            assert watch.wait() == ExitCode.STOPPED
            assert begun.undisturbed_seconds < 2.0 + 1.0
        until(lambda: not any(map(lives, theirs)), 10.0)


def test_an_address_that_does_not_answer_is_told_once_without_its_secret(
    folder: TrackedFolder,
) -> None:
    (folder.path / "begin").write_text("1")
    with inbox() as received, trainer(folder, program=counter(folder)) as run:
        received.status = 500
        folder.config.write_text(
            f"notify: {{urls: ['json://u:hunter2@127.0.0.1:{received.port}'], events: [attached]}}\n"
        )
        watch = watch_counter(folder, run.pid)
        until(lambda: len(received.messages) >= 3)
        assert [one["reason"] for one in watch.named("source_failed")] == ["not reached: notify.urls[0] (JSON)"]
        seen: list[bytes] = []
        worker = b"tracker_worker"
        until(lambda: seen.extend(map(shown, children(watch.process.pid))) or any(worker in one for one in seen))
        assert not any(b"hunter2" in one for one in seen)
        received.status = 200
        until(lambda: watch.named("source_recovered"))
        (folder.path / "end").touch()
        assert watch.wait() == 0, watch.said()
    assert b"hunter2" not in folder.history.read_bytes() and "hunter2" not in watch.said()
    assert set(received.titles()) == {"watching"}


def test_what_cannot_be_begun_is_told_and_tried_again(folder: TrackedFolder) -> None:
    (folder.path / "begin").write_text("1")
    (folder.path / "tb").write_text("a file, where a folder should be")
    folder.config.write_text("tensorboard: {dir: tb}\n")
    with trainer(folder, program=counter(folder)) as run:
        watch = watch_counter(folder, run.pid)
        until(lambda: watch.named("source_failed"))
        [failed] = watch.named("source_failed")
        assert failed["source"] == "tensorboard" and "NotADirectoryError" in failed["reason"]
        (folder.path / "tb").unlink()
        until(lambda: watch.named("source_recovered"))
        until(lambda: len(watch.named("generation")) > 5)
        (folder.path / "end").touch()
        assert watch.wait() == 0, watch.said()
    folder.wait_for_trackers()
    [events] = folder.event_folders()
    generations = [one["gen"] for one in watch.named("generation")]
    assert [step for step, _ in series(events, "memory/host/used_mb")] == generations


def test_wandb_without_a_key_says_so(folder: TrackedFolder) -> None:
    (folder.path / "begin").write_text("1")
    folder.config.write_text("wandb: {project: tests, mode: online}\n")
    with trainer(folder, program=counter(folder)) as run:
        watch = watch_counter(folder, run.pid)
        until(lambda: watch.named("source_failed"))
        assert "key" in watch.named("source_failed")[0]["reason"]
        watch.kill()


# --- what it costs --------------------------------------------------------------------------------------------------


def test_in_memwatch_itself_trackers_cost_little(folder: TrackedFolder) -> None:
    (folder.path / "begin").write_text("1")
    found = {}
    with trainer(folder, program=counter(folder)) as run:
        for name, text in (("without", ""), ("with", ALL)):
            folder.config.write_text(text)
            watch = watch_counter(folder, run.pid, name)
            until(lambda watch=watch: len(watch.named("generation")) > 20)
            status = Path(f"/proc/{watch.process.pid}/status").read_text()
            rss_kib, threads = (int(status.split(f"{key}:")[1].split()[0]) for key in ("VmRSS", "Threads"))
            files = len(list(Path(f"/proc/{watch.process.pid}/fd").iterdir()))
            found[name] = rss_kib, threads, files
            watch.kill()
    (rss, threads, files), (more_rss, more_threads, more_files) = found["without"], found["with"]
    print(f"RSS {rss} KiB without, {more_rss} KiB with trackers; {more_files - files} more descriptors")
    assert more_rss - rss < 2048 and more_threads == threads and more_files - files <= 4, "an examination may go on"
