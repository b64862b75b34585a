"""Logs as they happen to a running watch: rotated, copied and truncated, late, found by itself, or none at all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from memwatch.errors import ExitCode
from support.mainjob import Folder, Memwatch, memwatch, trainer, until

pytestmark = pytest.mark.integration

QUIET = ("--listen", "none", "--interval", "0.1", "--json")

# Writes to run.log one line per line of its stdin: `rename` and `truncate` are logrotate's two ways.
WRITER = """
import os, shutil, sys
log = None
for line in sys.stdin:
    if line == "rename\\n":
        os.rename("run.log", "run.log.1"); log.close(); log = None
    elif line == "truncate\\n":
        shutil.copy("run.log", "run.log.1"); os.truncate("run.log", 0)
    else:
        log = log or open("run.log", "a", buffering=1)
        log.write(line)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


class Writer:
    """A trainer that logs what it is told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.pid = process, process.pid

    def say(self, *lines: str) -> None:
        assert self.process.stdin is not None
        for line in lines:
            self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


@contextmanager
def writer(folder: Folder) -> Iterator[Writer]:
    command = [sys.executable, "-c", WRITER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=folder.path, text=True
    ) as process:
        try:
            yield Writer(process)
        finally:
            process.kill()


def generations(watch: Memwatch) -> list[float]:
    """Those whose marker was seen."""
    return [one["gen"] for one in watch.named("marker") if "gen" in one]


@pytest.mark.parametrize("way", ["rename", "truncate"])
def test_every_marker_is_seen_once_through_rotations(folder: Folder, way: str) -> None:
    with writer(folder) as run:
        run.say("Generation 1 / 9")
        until((folder.path / "run.log").exists)
        with memwatch(folder, "--pid", str(run.pid), "--log", "run.log", *QUIET) as watch:
            until(lambda: 1 in generations(watch))  # what comes now is new
            for first in (2, 5, 8):
                run.say(f"Generation {first} / 9", f"Generation {first + 1} / 9")
                until(lambda first=first: first + 1 in generations(watch))
                run.say(way, f"Generation {first + 2} / 9" if first < 8 else "done")
                until(lambda first=first: first == 8 or first + 2 in generations(watch))
            run.process.stdin.close()
            assert watch.wait(10) == ExitCode.ENDED, watch.said()
    seen = generations(watch)
    assert seen[-8:] == [2, 3, 4, 5, 6, 7, 8, 9] and set(seen) <= set(range(1, 10)), watch.said()
    assert not watch.named("source_failed")


def test_what_was_written_right_before_a_rename_and_the_end_is_read(folder: Folder) -> None:
    with writer(folder) as run:
        run.say("Generation 1 / 9")
        until((folder.path / "run.log").exists)
        with memwatch(folder, "--pid", str(run.pid), "--log", "run.log", *QUIET, "--interval", "0.5") as watch:
            until(lambda: watch.named("attached"))
            run.say("Generation 2 / 9", "rename", "Generation 3 / 9", "Generation 4 / 9")
            run.process.stdin.close()
            assert watch.wait(10) == ExitCode.ENDED, watch.said()
    assert generations(watch)[-3:] == [2, 3, 4], watch.said()


def test_a_log_that_comes_late_is_a_failing_source_until_it_is_there(folder: Folder) -> None:
    with writer(folder) as run, memwatch(folder, "--pid", str(run.pid), "--log", "run.log", *QUIET) as watch:
        until(lambda: watch.named("source_failed"))
        [failed] = watch.named("source_failed")
        assert failed["source"] == "log" and "run.log" in failed["text"]
        run.say("Generation 1 / 9", "Generation 2 / 9")
        until(lambda: generations(watch) == [1, 2])
        assert [one["source"] for one in watch.named("source_recovered")] == ["log"]
        assert len(watch.named("source_failed")) == 1, "told once"


def test_a_pipe_in_the_place_of_the_log_is_told_once_and_blocks_nothing(folder: Folder) -> None:
    log = folder.path / "run.log"
    with writer(folder) as run:
        run.say("Generation 1 / 9")
        until(log.exists)
        with memwatch(folder, "--pid", str(run.pid), "--log", "run.log", *QUIET) as watch:
            until(lambda: 1 in generations(watch))
            log.rename(folder.path / "run.log.1")  # the trainer has it open
            os.mkfifo(log)
            until(lambda: watch.named("source_failed"))
            for generation in (2, 3, 4):
                run.say(f"Generation {generation} / 9")
                until(lambda generation=generation: generation in generations(watch))
            log.unlink()
            until(lambda: watch.named("source_recovered"))
            run.process.stdin.close()
            assert watch.wait(10) == ExitCode.ENDED, watch.said()
    [failed] = watch.named("source_failed")
    assert failed["source"] == "log" and "not a regular file; what was there before is read on" in failed["text"]


# --- from standard input ---


def test_a_log_on_standard_input_is_followed_and_its_end_is_told_once(folder: Folder) -> None:
    with writer(folder) as run:
        run.say("Generation 1 / 9", "Generation 2 / 9")
        until((folder.path / "run.log").exists)
        follow = ["tail", "-c", "+1", "-f", str(folder.path / "run.log")]
        with subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as tail:
            arguments = ("--pid", str(run.pid), "--log", "-", *QUIET)
            with memwatch(folder, *arguments, stdin=tail.stdout) as watch:
                assert tail.stdout is not None
                tail.stdout.close()
                until(lambda: generations(watch)[-1:] == [2])
                for generation in (3, 4, 5):
                    run.say(f"Generation {generation} / 9")
                    until(lambda generation=generation: generation in generations(watch))
                tail.kill()
                until(lambda: watch.named("source_failed"))
                [failed] = watch.named("source_failed")
                assert failed["source"] == "log" and "standard input has ended" in failed["text"]
                run.process.stdin.close()
                assert watch.wait(10) == ExitCode.ENDED, watch.said()
    assert len(watch.named("source_failed")) == 1
    assert [one["gen"] for one in watch.named("generation")][-2:] == [3, 4], "those whose begin was seen"


def test_the_last_lines_on_standard_input_explain_the_end(folder: Folder) -> None:
    code = """
import sys, time
print("Generation 1 / 9", flush=True)
sys.stdin.readline()
raise MemoryError
"""
    program = [sys.executable, "-c", code]
    late = ["sh", "-c", 'while read line; do sleep 0.1; echo "$line"; done']  # passes lines on after the end
    with (
        subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run,
        subprocess.Popen(late, stdin=run.stdout, stdout=subprocess.PIPE) as copier,
        memwatch(folder, "--pid", str(run.pid), "--log", "-", *QUIET, stdin=copier.stdout) as watch,
    ):
        for stream in (run.stdout, copier.stdout):
            assert stream is not None
            stream.close()
        until(lambda: generations(watch))
        assert run.stdin is not None
        run.stdin.write(b"go\n")
        run.stdin.close()
        assert watch.wait(20) == ExitCode.FAILED, watch.said()
    assert "MemoryError" in watch.named("exited")[0]["text"], watch.said()


def test_a_terminal_is_no_log(folder: Folder) -> None:
    parent, terminal = os.openpty()
    with writer(folder) as run, open(terminal, "rb", buffering=0) as stdin:
        with memwatch(folder, "--pid", str(run.pid), "--log", "-", *QUIET, stdin=stdin) as watch:
            assert watch.wait(10) == ExitCode.USAGE
        assert "standard input is a terminal" in watch.said() and "docker logs -f" in watch.said()
    os.close(parent)


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_markers_reads_standard_input(folder: Folder, kind: str) -> None:
    log = folder.path / "main.log"
    log.write_text(
        "".join(f"Epoch {epoch}/30\r\n 10%|#   | 1/10\r100%|####| 10/10\nloss: 0.5\n" for epoch in range(1, 20))
    )
    command = [sys.executable, "-m", "memwatch", "markers", "--json"]
    expected = subprocess.run([*command, str(log)], capture_output=True, check=True, env=folder.environ()).stdout
    with log.open("rb") as file:
        given = {"stdin": file} if kind == "file" else {"input": file.read()}
        read = subprocess.run([*command, "-"], capture_output=True, check=True, env=folder.environ(), **given).stdout
    assert read == expected and b'"markers"' in read


# --- one of several ---


def test_of_a_patterns_files_one_is_followed_and_that_is_said(folder: Folder) -> None:
    with writer(folder) as run:
        run.say("Generation 1 / 9")
        until((folder.path / "run.log").exists)
        (folder.path / "run2.log").write_text("Generation 8 / 9\n")
        with memwatch(folder, "--pid", str(run.pid), "--log", "run*.log", *QUIET) as watch:
            until(lambda: generations(watch) == [1])
            run.say("Generation 2 / 9")
            until(lambda: generations(watch) == [1, 2])
        notes = [note["text"] for note in watch.named("note")]
        assert "following run.log, of 2 that run*.log stands for" in notes
        with memwatch(folder, "--pid", str(run.pid), "--log", str(folder.path), *QUIET) as refused:
            assert refused.wait(10) == ExitCode.USAGE
        assert "is a folder" in refused.said() and "run2.log" in refused.said()


# --- without --log ---


def test_without_a_log_the_trainers_own_output_is_followed_and_that_is_said(folder: Folder) -> None:
    program = (
        sys.executable,
        "-uc",
        "import time\nfor g in range(9): print('Generation', g + 1, '/ 9'); time.sleep(0.3)",
    )
    with trainer(folder, program=program) as run, memwatch(folder, "--pid", str(run.pid), *QUIET) as watch:
        assert watch.wait(20) == ExitCode.ENDED, watch.said()
    assert any(f"following the trainer's own output, {folder.log}" in note["text"] for note in watch.named("note"))
    assert generations(watch)[-1] == 9


METRICS = """
import time
while not open("watched").read(): time.sleep(0.05)
for step in range(9):
    with open("metrics.csv", "a") as log:  # as Lightning's CSVLogger does
        if step == 0: log.write("epoch,step,loss\\n")
        log.write(f"{step},{10 * step + 9},0.{step}\\n")
    time.sleep(1)
"""


def test_a_log_in_its_folder_that_begins_after_the_watch_is_followed_and_that_is_told(folder: Folder) -> None:
    watched = folder.path / "watched"
    watched.touch()
    with (
        subprocess.Popen([sys.executable, "-c", METRICS], stdout=subprocess.DEVNULL, cwd=folder.path) as run,
        memwatch(folder, "--pid", str(run.pid), *QUIET) as watch,
    ):
        until(lambda: watch.named("attached"))
        watched.write_text("yes")
        assert watch.wait(30) == ExitCode.ENDED, watch.said()
    notes = [note["text"] for note in watch.named("note")]
    assert any("growth is measured by time alone" in note for note in notes)
    assert f"log: following {folder.path}/metrics.csv" in notes, watch.said()
    assert generations(watch)[-1] == 8 and watch.named("marker")[-1]["unit"] == "epoch", watch.said()


def test_what_tee_writes_is_followed_and_that_is_said(folder: Folder) -> None:
    code = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\n"
    code += "for g in range(12): print('Generation', g, '/ 12'); time.sleep(0.5)"
    pipeline = ["sh", "-c", '"$0" -uc "$1" | tee main.txt', sys.executable, code]
    pid = folder.path / "pid"
    with subprocess.Popen(pipeline, stdout=subprocess.DEVNULL, cwd=folder.path, start_new_session=True):
        until(lambda: pid.exists() and pid.read_text())
        with memwatch(folder, "--pid", pid.read_text(), *QUIET) as watch:
            assert watch.wait(20) == ExitCode.ENDED, watch.said()
    assert any(f"following {folder.path}/main.txt" in note["text"] for note in watch.named("note")), watch.said()
    assert generations(watch)[-1] == 11


def test_with_no_log_at_all_time_alone_is_enough_to_save_it(folder: Folder) -> None:
    leak = Path(__file__).parents[1] / "programs" / "leak.py"
    config = folder.path / "memwatch.yaml"
    config.write_text("policy: {confirmation_seconds: 0.2, checkpoint_seconds: 0.1}\n")
    command = [sys.executable, str(leak), "saves", "400", "1.5", "0.1", "120"]  # 120 MB, and 15 MB/s
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder.path) as run:
        try:
            assert run.stdout is not None and run.stdout.readline(), "it has begun"
            arguments = ("--pid", str(run.pid), *QUIET, "--limit", "220MB", "--config", str(config))
            with memwatch(folder, *arguments) as watch:
                assert watch.wait() == ExitCode.SAVED, watch.said()
        finally:
            run.kill()
    assert any("growth is measured by time alone" in note["text"] for note in watch.named("note")), watch.said()
    [interrupt] = watch.named("interrupt")
    assert 0 < interrupt["headroom"] < 50e6


STAGED = """
import sys, time
from pathlib import Path
while not Path("watched").exists():
    time.sleep(0.05)
for generation in range(4, 7) if "--resume" in sys.argv else range(1, 4):
    print("Generation", generation, "/ 6", flush=True)
    time.sleep(0.7)
sys.exit(0 if "--resume" in sys.argv else 3)
"""


def test_a_trainer_that_is_started_again_with_resume_goes_on_with_its_run(folder: Folder) -> None:
    attached = []
    for name, options in (("first", ()), ("second", ("--resume",))):
        arguments = ("--log", str(folder.log), *QUIET)
        with ExitStack() as held:
            run = held.enter_context(trainer(folder, program=(sys.executable, "-c", STAGED, *options)))
            watch = held.enter_context(memwatch(folder, "--pid", str(run.pid), *arguments, name=name))
            until(lambda watch=watch: watch.named("attached"))
            (folder.path / "watched").touch()
            assert watch.wait(20) == (ExitCode.ENDED if options else ExitCode.FAILED), watch.said()
        (folder.path / "watched").unlink()
        attached.append(watch.named("attached")[-1])
    assert [one["attempt"] for one in attached] == [0, 1]
    assert attached[0]["run_id"] == attached[1]["run_id"]
    assert generations(watch)[-1] == 6
