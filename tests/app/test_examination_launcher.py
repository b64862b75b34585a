"""Examinations and snapshots in processes of their own: of a real trainer, and when it, they or their memory end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from memwatch.app.examination_launcher import IDLE_SECONDS, ExaminationLauncher, ProcessSnapshotLauncher
from memwatch.cli import examination_commands
from memwatch.core.events import Diagnosed, SnapshotTaken
from memwatch.core.examination import Diagnose, Examination
from memwatch.core.leaks.growth_attribution import by_line
from memwatch.sources.target.target_facts import identify
from support.processes import running
from support.pythons import needed_python

TRAINER = """
import sys, time
class Loss:
    def __init__(self):
        self.inputs = bytearray(1 << 20)
class Trainer:
    def __init__(self):
        self.capacity, self.buffer = 50, [Loss() for _ in range(20)]
trainer = Trainer()
print("ready", flush=True)
sys.stdin.read()
"""
MANY = """
import gc, os, signal, sys
gc.disable()
class {name}: pass
kept, room = [{name}() for _ in range(100_000)], bytearray({megabytes} << 20)
signal.signal(signal.SIGUSR1, lambda *_: os.execv(sys.argv[1], sys.argv[1:]))
signal.signal(signal.SIGUSR2, lambda *_: os._exit(0))
print("ready", flush=True)
sys.stdin.read()
"""
NEXT = MANY.format(name="Late", megabytes=1)
MOMENTS = (0.1, 0.25, 0.4, 0.8)  # seconds: from before the examination's first read to its last
ASKED = Diagnose(0.0, "generation", 3.0, "train", 10**9, 1 << 28, paths=("__main__.Trainer.capacity", "no path"))


@contextmanager
def examiner(pid: int, **options: str) -> Iterator[ExaminationLauncher]:
    one = ExaminationLauncher(identify(pid), **options)
    try:
        yield one
    finally:
        one.close()


def outcome(
    one: ExaminationLauncher, asked: Diagnose = ASKED, meanwhile: Callable[[], object] = lambda: None
) -> Diagnosed:
    one.start_examination(asked)
    meanwhile()
    event = next_outcome(one)
    assert event.asked == asked
    return event


def next_outcome(one: ExaminationLauncher) -> Diagnosed:
    for _ in range(3000):
        if found := one.poll(1.0):
            (event,) = found
            assert isinstance(event, Diagnosed)
            return event
        time.sleep(0.02)
    raise AssertionError("no outcome within a minute")


def test_what_a_trainer_holds_is_found_and_nothing_is_left_behind():
    before = {entry.name for entry in Path("/proc/self/fd").iterdir()}
    with running([sys.executable, "-c", TRAINER]) as trainer, examiner(trainer.pid) as one:
        found = outcome(one, replace(ASKED, paths=(*ASKED.paths, "Trainer.buffer"))).found
        assert found.census is not None, found.census_reason
        assert {kind.kind for kind in found.kinds or ()} >= {"heap", "files", "stacks"}
        assert next(kind for kind in found.census.types if kind.type == "__main__.Loss").count == 20
        (container,) = [held for held in found.census.containers if held.path == "__main__.Trainer.buffer"]
        assert container.items == 20 and container.bytes > 20 << 20
        tracked = {held.path: held for held in found.census.tracked}
        assert tracked["Trainer.buffer"].bytes == container.bytes
        assert (
            tracked["Trainer.buffer"].full == container.full == "__main__.Trainer.buffer" and "no path" not in tracked
        )
        assert 0 < found.cpu_seconds < 20 and found.after_seconds > 0
        assert one.poll(2.0) == []
    assert {entry.name for entry in Path("/proc/self/fd").iterdir()} == before


def test_it_gives_way_to_everybody_else_and_is_killed_first(tmp_path: Path):
    code = (
        "import os; from memwatch.system.process_priority import lower_priority; lower_priority(); "
        f"open({str(tmp_path / 'how')!r}, 'w').write(f'{{os.nice(0)}} ' + open('/proc/self/oom_score_adj').read())"
    )
    with examiner(os.getppid(), code=code) as one:
        assert outcome(one).found.census_reason == "the examination ended with status 0"
    assert (tmp_path / "how").read_text().split() == ["8", "1000"]


def test_a_trainer_that_ends_meanwhile_is_no_failure():
    with running([sys.executable, "-c", TRAINER]) as trainer, examiner(trainer.pid) as one:
        found = outcome(one, meanwhile=trainer.kill).found
    assert found.census is None and found.census_reason


@pytest.mark.parametrize("after", MOMENTS)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGUSR2])
def test_a_trainer_that_ends_midway_is_told_whole_or_not_at_all(how: signal.Signals, after: float):
    code = MANY.format(name="Early", megabytes=1)
    with running([sys.executable, "-c", code]) as trainer, examiner(trainer.pid) as one:
        found = outcome(one, meanwhile=lambda: (time.sleep(after), trainer.send_signal(how))).found
    if found.census is None:
        assert "ended" in found.census_reason
    else:
        assert objects(found) == {"__main__.Early": 100_000}


@pytest.mark.parametrize("after", MOMENTS)
@pytest.mark.parametrize("program", ["sleep", "3.9", "3.11"])
def test_of_a_trainer_that_executes_another_program_one_of_the_two_is_told(program: str, after: float):
    words = ["/bin/sleep", "60"] if program == "sleep" else [*needed_python(program).command, "-c", NEXT]
    code = MANY.format(name="Early", megabytes=100)
    with running([sys.executable, "-c", code, *words]) as trainer, examiner(trainer.pid) as one:
        found = outcome(one, meanwhile=lambda: (time.sleep(after), trainer.send_signal(signal.SIGUSR1))).found
    resident = sum(kind.resident_bytes for kind in found.kinds or ())
    if found.census is None:
        assert found.census_reason and "internal" not in found.census_reason
    elif "__main__.Early" in objects(found):
        assert objects(found) == {"__main__.Early": 100_000} and resident > 100 << 20
    else:
        assert set(objects(found)) <= {"__main__.Late"} and resident < 100 << 20


def objects(found: Examination) -> dict[str, int]:
    """Of the program's own classes."""
    return {one.type: one.count for one in found.census.types if one.type.startswith("__main__.")}


@pytest.mark.parametrize(("python", "seed"), [("3.9", 1), ("3.11", 2), ("3.13", 3)])
def test_forged_objects_are_borne_within_time_and_memory(python: str, seed: int):
    room = 64 << 20
    program = [*needed_python(python).program("forged.py"), str(seed)]
    with running(program) as trainer, examiner(trainer.pid) as one:
        found = outcome(one, replace(ASKED, memory_bytes=room, types=("list",), paths=("Real.value",))).found
        (pid,) = one._workers["examination"].pids
        status = Path(f"/proc/{pid}/status").read_text()
    assert "internal" not in found.census_reason and "status" not in found.census_reason
    assert found.census is not None or found.census_reason
    assert found.census is None or objects(found)["__main__.Real"] >= 1000
    most = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:"))
    assert most < room + (48 << 20), "what a Python takes that does nothing, besides"


def test_a_trainer_of_which_nothing_can_be_read_is_told_with_the_reason():
    with running(["/bin/sh", "-c", "echo ready; read line"]) as shell, examiner(shell.pid) as one:
        found = outcome(one).found
    assert found.census is None and "Python" in found.census_reason and found.kinds


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import sys; sys.exit(3)", "ended with status 3"),
        ("print('[1, 2')", "ended with status 0"),
        ("import os; os.kill(os.getpid(), 9)", "ended by signal 9"),
    ],
)
def test_one_that_fails_is_told_and_the_next_may_begin(code: str, reason: str):
    with examiner(os.getppid(), code=code) as one:
        assert reason in outcome(one).found.census_reason
        assert reason in outcome(one).found.census_reason


def test_one_that_hangs_is_ended():
    with examiner(os.getppid(), code="import time; time.sleep(600)") as one:
        one.start_examination(ASKED)
        one.start_examination(ASKED)  # one at a time
        assert one.poll(ASKED.kill_seconds) == []
        (event,) = one.poll(ASKED.kill_seconds + 1)
        assert isinstance(event, Diagnosed) and "did not answer for 180 s" in event.found.census_reason
        assert one.poll(ASKED.kill_seconds + 2) == []


def test_a_look_at_names_is_answered_while_a_whole_heap_is_read():
    with running([sys.executable, "-c", TRAINER]) as trainer, examiner(trainer.pid) as one:
        one.start_examination(replace(ASKED, cpu_seconds=0.05, cpu_later=((4.0, 3.0),)))  # It pauses at once.
        looked = outcome(one, replace(ASKED, whole_objects=0))
        assert looked.found.census is None and looked.found.names is not None
        assert next_outcome(one).found.census is not None


def test_one_process_answers_one_after_another_until_none_asks():
    with running([sys.executable, "-c", TRAINER]) as trainer, examiner(trainer.pid) as one:
        first, looked = outcome(one), replace(ASKED, whole_objects=0)
        (pid,) = one._workers["examination"].pids
        second = outcome(one, looked)
        assert one._workers["examination"].pids == {pid} and second.found.names is not None
        assert 0.0 < second.found.cpu_seconds < 0.7 * first.found.cpu_seconds
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
        assert outcome(one, looked).found.names is not None and one._workers["examination"].pids != {pid}
        one.poll(1.0 + 2 * IDLE_SECONDS)
        assert not one._workers["examination"].is_running


def test_a_room_that_is_too_small_for_all_leaves_the_counts_or_says_so():
    with running([sys.executable, "-c", TRAINER]) as trainer, examiner(trainer.pid) as one:
        found = outcome(one, Diagnose(0.0, "warn", None, None, None, 1 << 20)).found
    assert found.census is None and "diagnosis.memory" in found.census_reason


BUSY = """
import time
from memwatch.app.examination_worker import throttled
from memwatch.core.leaks import examination_cpu_budget
examination_cpu_budget.WINDOW_SECONDS = 2.0
began, spent = time.monotonic(), time.process_time()
with throttled({at_once}, {later}):
    while time.monotonic() - began < 3.8:
        sum(range(1000))
print(time.process_time() - spent)
"""


@pytest.mark.parametrize(("at_once", "later"), [(0.3, []), (0.0, [(1.0, 0.3)]), (0.1, [(0.5, 0.1), (1.5, 0.1)])])
def test_one_that_exceeds_its_cpu_time_goes_on_when_there_is_more(at_once: float, later: list) -> None:
    """Here 0.3 s in each window of 2 s, of which two begin."""
    busy = [sys.executable, "-c", BUSY.format(at_once=at_once, later=later)]
    ended = subprocess.run(busy, capture_output=True, text=True, check=True, timeout=60)
    assert 0.4 <= float(ended.stdout) <= 2 * (0.3 + 0.1)


def test_the_cpu_time_of_one_that_is_killed_counts_too() -> None:
    busy = "import os, time\nwhile time.process_time() < 0.5: pass\nos.kill(os.getpid(), 9)"
    with examiner(os.getppid(), code=busy) as one:
        assert outcome(one).found.cpu_seconds == pytest.approx(0.5, abs=0.2)


def test_a_look_at_names_leaves_the_heap_unread() -> None:
    with running([sys.executable, "-c", TRAINER]) as trainer, examiner(trainer.pid) as one:
        found = outcome(one, replace(ASKED, whole_objects=0, cpu_seconds=1.0)).found
    assert found.census is None and found.names is not None, found.names_reason
    (kept,) = [size for size in found.names.containers if size.path == "__main__.Trainer.buffer"]
    assert (kept.items, kept.capacity) == (20, 50) and kept.bytes is not None and kept.bytes > 20 << 20


RISES = """
import sys, time
print("ready", flush=True)
kept = []
def keep():
    for _ in range(100):  # so slowly that it is seen beside other work, too
        kept.append(bytearray(4096))
        sum(range(2000))
while True:
    keep()
    time.sleep(0.02)
"""


def test_growth_is_recorded_beside_an_examination():
    with running([sys.executable, "-c", RISES]) as trainer, examiner(trainer.pid) as one:
        one.start_examination(replace(ASKED, reason="rise", record_seconds=6.0))
        one.start_examination(ASKED)
        ended: list[Diagnosed] = []
        end = time.monotonic() + 60
        while len(ended) < 2:
            ended += one.poll(1.0)
            assert time.monotonic() < end
            time.sleep(0.02)
    examined, recorded = sorted(ended, key=lambda event: event.asked.record_seconds)
    assert examined.found.census is not None and examined.found.profile is None
    assert recorded.found.census is None and recorded.found.profile is not None, recorded.found.profile_reason
    assert by_line(recorded.found.profile.credits)[0].frame.function == "keep"


def test_what_cannot_be_recorded_is_told_with_the_reason():
    with running(["sh", "-c", "echo ready; exec sleep 60"]) as trainer, examiner(trainer.pid) as one:
        found = outcome(one, replace(ASKED, record_seconds=1.0)).found
    assert found.profile is None and "CPython" in found.profile_reason


# --- snapshots ------------------------------------------------------------------------------------------------------

WAIT_SECONDS = 60.0
HOLDS = (
    "class Thing: pass\nkept = [Thing() for _ in range(500)]\nprint('ready', flush=True)\nimport time; time.sleep(60)"
)


@contextmanager
def snapshotter(pid: int, **options: str) -> Iterator[ProcessSnapshotLauncher]:
    one = ProcessSnapshotLauncher(pid, **options)
    try:
        yield one
    finally:
        one.close()


def snapshot_outcome(one: ProcessSnapshotLauncher) -> SnapshotTaken:
    one.start_process_snapshot()
    one.start_process_snapshot()  # a second one waits for nobody
    end = time.monotonic() + WAIT_SECONDS
    while not (events := one.poll(5.0)):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert one.poll(6.0) == []
    (event,) = events
    assert isinstance(event, SnapshotTaken) and event.t == 5.0
    return event


def test_what_the_trainer_holds_is_kept_and_said_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with running([sys.executable, "-c", HOLDS]) as trainer, snapshotter(trainer.pid) as one:
        event = snapshot_outcome(one)
    assert event.reason == "" and Path(event.path).is_relative_to(tmp_path)
    found = examination_commands.load_process_snapshot(event.label, {"XDG_STATE_HOME": str(tmp_path)})
    counts = {each.type: each.count for each in found.found.census.types}
    assert counts["__main__.Thing"] == 500


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit(3)", "it ended with status 3"),
        ("print('no JSON')", "it ended with status 0"),
        ("from memwatch.cli.examination_commands import serve; serve()", "no process"),
    ],
)
def test_what_hinders_it_is_said(code: str, reason: str) -> None:
    with running(["sh", "-c", "echo ready; read line"]) as gone:
        gone.kill()
        gone.wait()
        with snapshotter(gone.pid, code=code) as one:
            event = snapshot_outcome(one)
    assert event.path == "" and reason in event.reason


def test_one_that_goes_on_ends_with_the_watch() -> None:
    one = ProcessSnapshotLauncher(1, code="import time; time.sleep(600)")
    one.start_process_snapshot()
    assert one.poll(1.0) == []
    one.close()
    assert one.poll(2.0) == []
