"""Starts the examinations and snapshots of a watch, each in a short-lived process of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memwatch.core.events import Diagnose, Diagnosed, Event, SnapshotTaken
from memwatch.core.examination import Examination
from memwatch.core.measurements import Target
from memwatch.system.python_workers import Task

SNAPSHOT_SECONDS = 300.0  # After this time the process is killed (chosen).
_EXAMINATION_CODE = "from memwatch.app.examination_worker import serve; serve()"
_SNAPSHOT_CODE = "from memwatch.cli.examination_commands import serve; serve()"


@dataclass(frozen=True, slots=True)
class ExaminationRequest:
    """The request to an `examination_worker`."""

    target: Target
    asked: Diagnose
    uptime: float  # of the machine in seconds, at the time of the request


class ExaminationLauncher:
    """Runs one examination at a time, and one recording beside it. An event source that reports their outcomes."""

    name = "diagnosis"

    def __init__(self, target: Target, code: str = _EXAMINATION_CODE) -> None:
        self._target, self._code = target, code
        self._running: dict[bool, tuple[Diagnose, Task[Examination]]] = {}  # by whether it is a recording

    def start_examination(self, asked: Diagnose) -> None:
        """Start it, unless one of its kind is running; that no process can be started is reported as its outcome."""
        is_recording = asked.record_seconds > 0.0
        if is_recording in self._running:
            return
        request = ExaminationRequest(self._target, asked, time.clock_gettime(time.CLOCK_BOOTTIME))
        recorded_t = asked.t + asked.record_seconds
        self._running[is_recording] = (
            asked,
            Task(self._code, request, Examination, name="the examination", seconds=asked.kill_seconds, now=recorded_t),
        )

    def poll(self, now: float) -> Sequence[Event]:
        ended = []
        for is_recording, (asked, task) in list(self._running.items()):
            found = task.poll(now)
            if found is not None:
                del self._running[is_recording]
                found = Examination(census_reason=found, names_reason=found) if isinstance(found, str) else found
                ended.append(Diagnosed(now, asked, replace(found, cpu_seconds=round(task.cpu_seconds, 3))))
        return ended

    def close(self) -> None:
        for _, task in self._running.values():
            task.kill()
        self._running = {}


@dataclass(frozen=True, slots=True)
class ProcessSnapshotRequest:
    """The request to a process that saves a snapshot under `label`."""

    pid: int
    label: str


@dataclass(frozen=True, slots=True)
class ProcessSnapshotOutcome:
    """The answer to a ProcessSnapshotRequest."""

    path: str = ""
    reason: str = ""  # why nothing was saved


class ProcessSnapshotLauncher:
    """Takes one snapshot at a time. An event source that reports where it was saved."""

    name = "snapshot"

    def __init__(self, pid: int, code: str = _SNAPSHOT_CODE) -> None:
        self._pid, self._code = pid, code
        self._label = ""
        self._task: Task[ProcessSnapshotOutcome] | None = None

    def start_process_snapshot(self) -> None:
        """Take a snapshot now, unless one is being taken; its label is the time of day."""
        if self._task is not None:
            return
        self._label = time.strftime("%Y-%m-%d %H:%M:%S")
        request, now = ProcessSnapshotRequest(self._pid, self._label), time.monotonic()
        self._task = Task(self._code, request, ProcessSnapshotOutcome, name="it", seconds=SNAPSHOT_SECONDS, now=now)

    def poll(self, now: float) -> Sequence[Event]:
        outcome = self._task.poll(time.monotonic()) if self._task is not None else None
        if outcome is None:
            return []
        self._task = None
        outcome = ProcessSnapshotOutcome(reason=outcome) if isinstance(outcome, str) else outcome
        return [SnapshotTaken(now, self._label, outcome.path, outcome.reason)]

    def close(self) -> None:
        if self._task is not None:
            self._task.kill()
            self._task = None
