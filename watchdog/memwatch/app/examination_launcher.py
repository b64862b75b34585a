"""Examinations and snapshots that are asked for during a watch, each in a short-lived process of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from memwatch.core.events import Diagnose, Diagnosed, Event, SnapshotTaken
from memwatch.core.examination import Examination
from memwatch.core.measurements import Target
from memwatch.system.python_workers import Task

EXAMINATION_SECONDS = 180.0  # until an examination is ended: it has the lowest priority and may wait long for a core
SNAPSHOT_SECONDS = 300.0  # until a snapshot is ended
_EXAMINATION_CODE = "from memwatch.app.examination_worker import serve; serve()"
_SNAPSHOT_CODE = "from memwatch.cli.examination_commands import serve; serve()"


@dataclass(frozen=True, slots=True)
class ExaminationRequest:
    """What is to be examined, and within which bounds."""

    target: Target
    types: tuple[str, ...]  # whose holders are reported
    paths: tuple[str, ...]  # attributes whose size is reported
    memory_bytes: int  # that the examination may use
    uptime: float  # of the machine in seconds, when the examination was asked for
    record_seconds: float = 0.0


class ExaminationLauncher:
    """One examination at a time, and beside it one recording. A source of events: what was found."""

    name = "diagnosis"

    def __init__(self, target: Target, code: str = _EXAMINATION_CODE) -> None:
        self._target, self._code = target, code
        self._running: dict[bool, tuple[Diagnose, Task[Examination]]] = {}  # by whether it is a recording

    def start_examination(self, asked: Diagnose) -> None:
        """Start it, unless one of its kind is running; if no process can be started, that is its outcome."""
        is_recording = asked.record_seconds > 0.0
        if is_recording in self._running:
            return
        bounds = asked.memory_bytes, time.clock_gettime(time.CLOCK_BOOTTIME), asked.record_seconds
        request = ExaminationRequest(self._target, asked.types, asked.paths, *bounds)
        recorded_t = asked.t + asked.record_seconds
        self._running[is_recording] = (
            asked,
            Task(self._code, request, Examination, name="the examination", seconds=EXAMINATION_SECONDS, now=recorded_t),
        )

    def poll(self, now: float) -> Sequence[Event]:
        """Return what has been found since the last call."""
        ended = []
        for is_recording, (asked, task) in list(self._running.items()):
            found = task.poll(now)
            if found is not None:
                del self._running[is_recording]
                found = Examination(census_reason=found) if isinstance(found, str) else found
                ended.append(Diagnosed(now, asked, found))
        return ended

    def close(self) -> None:
        """End those that are running."""
        for _, task in self._running.values():
            task.kill()
        self._running = {}


@dataclass(frozen=True, slots=True)
class ProcessSnapshotRequest:
    """The process of which a snapshot is to be saved, and how it is to be called."""

    pid: int
    label: str


@dataclass(frozen=True, slots=True)
class ProcessSnapshotOutcome:
    """Where it is saved."""

    path: str = ""
    reason: str = ""  # why it is not saved


class ProcessSnapshotLauncher:
    """One snapshot at a time. A source of events: where it was saved."""

    name = "snapshot"

    def __init__(self, pid: int, code: str = _SNAPSHOT_CODE) -> None:
        self._pid, self._code = pid, code
        self._running: tuple[str, Task[ProcessSnapshotOutcome]] | None = None

    def start_process_snapshot(self) -> None:
        """Take one now, unless one is being taken; its label is the time of day."""
        if self._running is None:
            label = time.strftime("%Y-%m-%d %H:%M:%S")
            request, now = ProcessSnapshotRequest(self._pid, label), time.monotonic()
            self._running = (
                label,
                Task(self._code, request, ProcessSnapshotOutcome, name="it", seconds=SNAPSHOT_SECONDS, now=now),
            )

    def poll(self, now: float) -> Sequence[Event]:
        """Return the outcome, once."""
        if self._running is None:
            return []
        label, task = self._running
        outcome = task.poll(time.monotonic())
        if outcome is None:
            return []
        self._running = None
        outcome = ProcessSnapshotOutcome(reason=outcome) if isinstance(outcome, str) else outcome
        return [SnapshotTaken(now, label, outcome.path, outcome.reason)]

    def close(self) -> None:
        """End the one that is running."""
        if self._running is not None:
            self._running[1].kill()
            self._running = None
