"""Examinations that the engine asks for, each in a short-lived process of its own.

Snapshots that are asked for while a watch goes on, each in a short-lived process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from memwatch.core.events import Diagnose, Diagnosed, Event, SnapshotTaken
from memwatch.core.examination import Examination
from memwatch.core.measurements import Target
from memwatch.system import serialization
from memwatch.system.child_process import Task

EXAMINATION_SECONDS = 180.0  # after which an examination is ended: it gives way to others, and may wait long for a core
_EXAMINATION_CODE = "from memwatch.app.examination_worker import serve; serve()"


@dataclass(frozen=True, slots=True)
class ExaminationRequest:
    """What the other process is told."""

    target: Target
    types: tuple[str, ...]  # whose holders are told
    paths: tuple[str, ...]  # whose size is told
    memory_bytes: int  # that it may take
    uptime: float  # seconds, at which it was asked for
    record_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """An examination that goes on."""

    asked: Diagnose
    errand: Task


class ExaminationLauncher:
    """One at a time, and beside it one recording. A source of events: what was found."""

    name = "diagnosis"

    def __init__(self, target: Target, code: str = _EXAMINATION_CODE) -> None:
        self._target, self._code = target, code
        self._under_way: dict[bool, _UnderWay] = {}  # by whether it is a recording
        self._failed: list[Diagnosed] = []

    def start_examination(self, asked: Diagnose) -> None:
        """Start it, unless one of its kind goes on; what hinders it is its outcome."""
        is_recording = asked.record_seconds > 0.0
        if is_recording in self._under_way:
            return
        bounds = asked.memory_bytes, time.clock_gettime(time.CLOCK_BOOTTIME), asked.record_seconds
        order = ExaminationRequest(self._target, asked.types, asked.paths, *bounds)
        try:
            self._under_way[is_recording] = _UnderWay(asked, Task(self._code, serialization.to_json(order)))
        except OSError as error:
            reason = f"no process can be started: {error}"
            self._failed.append(Diagnosed(asked.t, asked, Examination(census_reason=reason)))

    def poll(self, now: float) -> Sequence[Event]:
        """What has ended since."""
        ended, self._failed = self._failed, []
        for kind, one in list(self._under_way.items()):
            status = one.errand.poll()
            if status is None and now - one.asked.t < EXAMINATION_SECONDS + one.asked.record_seconds:
                continue
            found = _read(one.errand.output()) if status == 0 else None
            self._end(kind)
            if found is None:
                how = f"took more than {EXAMINATION_SECONDS:g} s" if status is None else f"ended with status {status}"
                found = Examination(census_reason=f"the examination {how}")
            ended.append(Diagnosed(now, one.asked, found))
        return ended

    def close(self) -> None:
        """End what goes on."""
        for kind in list(self._under_way):
            self._end(kind)

    def _end(self, kind: bool) -> None:
        self._under_way.pop(kind).errand.kill()


def _read(answer: bytes) -> Examination | None:
    try:
        return serialization.from_json(answer, Examination)
    except serialization.SerializationError:
        return None


SNAPSHOT_SECONDS = 300.0  # after which one is ended
_SNAPSHOT_CODE = "from memwatch.cli.snapshot_command import serve; serve()"


@dataclass(frozen=True, slots=True)
class ProcessSnapshotRequest:
    """What the other process is told."""

    pid: int
    label: str


@dataclass(frozen=True, slots=True)
class ProcessSnapshotOutcome:
    """What it answers."""

    path: str = ""
    reason: str = ""  # why there is none


class ProcessSnapshotLauncher:
    """One at a time. A source of events: what became of it."""

    name = "snapshot"

    def __init__(self, pid: int, code: str = _SNAPSHOT_CODE) -> None:
        self._pid, self._code = pid, code
        self._under_way: tuple[str, float, Task] | None = None
        self._failed: list[tuple[str, ProcessSnapshotOutcome]] = []

    def start_process_snapshot(self) -> None:
        """Take one now, unless one is being taken; it is called after the time of day."""
        if self._under_way is not None:
            return
        label = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            errand = Task(self._code, serialization.to_json(ProcessSnapshotRequest(self._pid, label)))
        except OSError as error:
            self._failed.append((label, ProcessSnapshotOutcome(reason=f"no process can be started: {error}")))
        else:
            self._under_way = label, time.monotonic(), errand

    def poll(self, now: float) -> Sequence[Event]:
        """What has ended since."""
        ended, self._failed = self._failed, []
        if self._under_way is not None:
            label, began, errand = self._under_way
            status = errand.poll()
            if status is not None or time.monotonic() - began > SNAPSHOT_SECONDS:
                ended.append((label, _outcome(status, errand.output())))
                self.close()
        return [SnapshotTaken(now, label, outcome.path, outcome.reason) for label, outcome in ended]

    def close(self) -> None:
        """End what goes on."""
        if self._under_way is not None:
            self._under_way[2].kill()
            self._under_way = None


def _outcome(status: int | None, answer: bytes) -> ProcessSnapshotOutcome:
    try:
        return serialization.from_json(answer, ProcessSnapshotOutcome)
    except serialization.SerializationError:
        how = f"it took more than {SNAPSHOT_SECONDS:g} s" if status is None else f"it ended with status {status}"
        return ProcessSnapshotOutcome(reason=how)
