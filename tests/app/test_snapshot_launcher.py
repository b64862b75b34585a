"""Snapshots that are asked for while a watch goes on: a process of their own, a file, and an event."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memwatch.app.examination_launcher import ProcessSnapshotLauncher
from memwatch.cli import examination_commands
from memwatch.core.events import SnapshotTaken
from support.processes import running

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


def outcome(one: ProcessSnapshotLauncher) -> SnapshotTaken:
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
        event = outcome(one)
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
            event = outcome(one)
    assert event.path == "" and reason in event.reason


def test_one_that_goes_on_ends_with_the_watch() -> None:
    one = ProcessSnapshotLauncher(1, code="import time; time.sleep(600)")
    one.start_process_snapshot()
    assert one.poll(1.0) == []
    one.close()
    assert one.poll(2.0) == []
