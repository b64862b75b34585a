"""Starts the examinations and snapshots of a watch, in processes of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from memwatch.app.watch_session import ExaminationBudget
from memwatch.core.events import Diagnosed, Event, SnapshotTaken
from memwatch.core.examination import Diagnose, Examination, ExaminationRequest
from memwatch.core.measurements import Target
from memwatch.errors import SourceError
from memwatch.system import json_and_yaml
from memwatch.system.python_workers import Task, Worker, children_cpu_seconds

IDLE_SECONDS = 60.0  # that a process waits for the next examination before it ends (chosen)
KILLED_SECONDS = 1.0  # that a killed process is waited for (chosen)
SNAPSHOT_SECONDS = 300.0  # After this time the process is killed (chosen).
_PLACES = ("examination", "beside", "recording")  # of processes; a look at names beside a whole heap has the second
_EXAMINATION_CODE = "from memwatch.app.examination_worker import serve; serve()"
_SNAPSHOT_CODE = "from memwatch.cli.examination_commands import serve; serve()"


class ExaminationLauncher:
    """Runs one examination at a time, and beside it a recording and a look at names. An event source of their outcomes.

    Each has a process, which stays for the next one: to start Python and to import takes as much CPU as a look.
    """

    name = "diagnosis"

    def __init__(
        self,
        target: Target,
        code: str = _EXAMINATION_CODE,
        budget: ExaminationBudget | None = None,
        member_pids: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """`budget` is for the examinations of several trainers together; `member_pids` are as in the request."""
        self._target, self._budget, self._member_pids = target, budget, member_pids
        self._workers = {place: Worker(code, "the examination") for place in _PLACES}
        self._running: dict[str, Diagnose] = {}  # by place
        self._answered_t: dict[str, float] = {}  # of workers that wait
        self._spent: dict[str, float] = {}  # CPU seconds that the present process at each place has reported
        self._failed: list[tuple[Diagnose, str]] = []  # that could not be started

    def start_examination(self, asked: Diagnose) -> None:
        """Start it, unless its place is taken; that no process can be started is reported as its outcome."""
        place = "recording" if asked.record_seconds else "examination"
        if place in self._running and asked.whole_objects == 0:
            place = "beside"
        if place in self._running:
            return
        if self._budget is not None and not self._budget.take(asked.cpu_seconds):
            self._failed.append((asked, "the examinations of this node have used their CPU time"))
            return
        uptime, member_pids = time.clock_gettime(time.CLOCK_BOOTTIME), tuple(self._member_pids())
        request = ExaminationRequest(self._target, asked, uptime, member_pids)
        worker = self._workers[place]
        try:
            if not self._is_sent(worker, request):
                self._spent.pop(place, None)
                worker.start(request, asked.t)
        except OSError as error:
            self._failed.append((asked, f"no process can be started: {error}"))
            return
        self._running[place] = asked
        self._answered_t.pop(place, None)

    @staticmethod
    def _is_sent(worker: Worker, request: ExaminationRequest) -> bool:
        """Send the request to a process that waits; return whether there is one."""
        if worker.is_running:
            try:
                worker.send(json_and_yaml.to_json(request), request.asked.t)
            except SourceError:  # It has ended since: by itself as it had grown, or because the host lacked memory.
                worker.stop(request.asked.t)
        return worker.is_running

    def poll(self, now: float) -> Sequence[Event]:
        ended = [(asked, Examination(census_reason=why, names_reason=why)) for asked, why in self._failed]
        self._failed = []
        for place, asked in list(self._running.items()):
            worker, before = self._workers[place], children_cpu_seconds()
            try:
                worker.end_if_hung(now, asked.record_seconds + asked.kill_seconds)
                found = worker.receive(Examination)
            except SourceError as error:
                worker.close(grace_seconds=0.0, killed_seconds=KILLED_SECONDS)
                spent = children_cpu_seconds() - before - self._spent.pop(place, 0.0)
                why, spent = str(error), round(max(0.0, spent), 3)
                found = Examination(census_reason=why, names_reason=why, profile_reason=why, cpu_seconds=spent)
            else:
                if found is not None:
                    self._spent[place] = self._spent.get(place, 0.0) + found.cpu_seconds
            if found is not None:
                del self._running[place]
                self._answered_t[place] = now
                ended.append((asked, found))
                if self._budget is not None:
                    self._budget.correct(found.cpu_seconds - asked.cpu_seconds)
        for place, worker in self._workers.items():
            if now - self._answered_t.get(place, now) > IDLE_SECONDS:
                worker.stop(now)
                del self._answered_t[place]
            worker.reap(now)
        return [Diagnosed(now, asked, found) for asked, found in ended]

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close(grace_seconds=0.0, killed_seconds=KILLED_SECONDS)
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
