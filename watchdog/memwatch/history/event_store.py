"""The history of all runs: finds the run of a trainer, appends its events, samples and notices."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memwatch.core.events import Attached, Cause, Event, Exited, Notice, Sampled, Signalling
from memwatch.core.measurements import Target
from memwatch.core.text_and_units import encodable
from memwatch.history import database_file, row_codec, run_identity, stored_runs
from memwatch.history.retention import Retention
from memwatch.history.writer_thread import HistoryWriter, RunRecord, TableRow, roll_back
from memwatch.system import json_and_yaml

_GRIDS = ((600, 599.5), (60, 59.5), (10, 9.5), (1, 0.95))  # (name in the file, least seconds between two samples)
_CLOSE_SECONDS = 2.0  # timeout of the last write (chosen)


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """The run and attempt of a watch in the history."""

    run_id: str
    attempt: int  # 0 for the run's first trainer process
    resumed: bool  # the run has earlier records: replay them
    new_attempt: bool  # ... and this trainer process is a successor of the one watched before


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """An engine that watches a run, and its settings."""

    version: str  # of memwatch
    settings: bytes  # JSON


class HistoryStore:
    """One history file, for one watch at a time. Of its methods only `open` raises HistoryError."""

    name = "history"

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        set_aside: str,
        proc: Path,
        *,
        most_bytes: int | None,
        now: Callable[[], float],
    ) -> None:
        self.path = path
        self.corruption_notice = set_aside  # a sentence for the user when a damaged file was replaced, else empty
        self._connection, self._proc = connection, proc
        retention = None if most_bytes is None else Retention(most_bytes, self._is_another)
        self._writer = HistoryWriter(connection, database_file.make_presence_check(path), retention, now=now)
        self._run: RunRecord | None = None
        self._attempt = self._seq = 0
        self._last_on_grid: dict[int, float] = {}
        self._held: list[Sampled] = []  # came without other events, and wait for the next write

    @classmethod
    def open(
        cls,
        path: Path,
        proc: Path = Path("/proc"),
        most_bytes: int | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> HistoryStore:
        """Open or make the file (0600, in a 0700 folder if that is made too); HistoryError when it cannot be used.

        Beyond `most_bytes`, the oldest records are removed; `now` times the checks of the file's size.
        """
        connection, set_aside = database_file.open_database(path)
        return cls(path, connection, set_aside, proc, most_bytes=most_bytes, now=now)

    @property
    def failure(self) -> str | None:
        """Why the history is not being written now; None if it is."""
        return self._writer.failure

    @property
    def loss(self) -> str | None:
        """The report of records that waited for too long and were lost; None without any."""
        return self._writer.loss

    def open_run(self, key: str, attached: Attached, now: float, cwd: str = "", log: str = "") -> OpenedRun:
        """Find the run that this trainer process belongs to, or begin one; `key` comes from `run_identity.run_key`.

        The process that was watched before continues its attempt, whatever its key was then. A successor of a process
        that is gone and did not complete is a new attempt of its run. Any other process begins a new run, and so does a
        process that another memwatch watches now.
        """
        self._write((), (), patient=False)
        texts = map(encodable, (attached.command, cwd, log, os.uname().nodename))
        facts = (key, now, *texts)
        watcher_ticks = run_identity.start_ticks(os.getpid(), self._proc) or 0
        process = (*_identity(attached.target), attached.t, os.getpid(), watcher_ticks)
        with self._writer.connection_lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                opened = self._find(key, attached.target) or _new_run(now)
                self._run = RunRecord(None, (opened.run_id, *facts), (opened.attempt, *process))
                self._enter(self._run)
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                roll_back(self._connection)
                self._writer.failure = str(error)
                opened = _new_run(now)
                self._run = RunRecord(None, (opened.run_id, *facts), (opened.attempt, *process))
                self._seq = 0
        self._attempt = opened.attempt
        self._last_on_grid = {}
        return opened

    def record_engine(self, engine: EngineRecord, now: float) -> None:
        """Record that an engine begins: it is fed `stored_runs.events_to_replay` and then all that is appended."""
        if self._run is not None:
            row = (self._next_seq(), now, engine.version, engine.settings)
            self._writer.enqueue(self._run, [("watches", row)], patient=False)

    def append(self, events: Sequence[Event], notices: Sequence[Notice], wait_seconds: float = 0.0) -> None:
        """Write the records in one transaction: on return they are on disk, safe from a kill.

        If that takes more than 50 ms, they are written in the background. Samples that come without other events may
        wait up to `wait_seconds` for the next call, because a commit costs as much as a sample; they are then written
        in the background. A Signalling is waited for even if earlier records still wait. It does not raise: errors show
        in `failure`, and the latest records wait.
        """
        if self._run is None:
            return
        samples = [event for event in events if isinstance(event, Sampled)]
        if notices or len(samples) < len(events):
            insist = any(isinstance(event, Signalling) for event in events)
            self._write(events, notices, patient=True, insist=insist)
            return
        self._held += samples
        if self._held and not 0 <= self._held[-1].t - self._held[0].t < wait_seconds:
            self._write((), (), patient=not wait_seconds)

    def _write(self, events: Sequence[Event], notices: Sequence[Notice], patient: bool, insist: bool = False) -> None:
        """Pass the samples that wait, and these records, to the writer."""
        held, self._held = self._held, []
        rows: list[TableRow] = []
        for sampled in held:
            rows += self._sample_rows(sampled, on_each_grid=False)
        for event in events:
            if isinstance(event, Sampled):
                rows += self._sample_rows(event, on_each_grid=True)
            else:
                rows += self._event_rows(event)
        for notice in notices:
            rows += self._notice_rows(notice)
        if self._run is not None and rows:
            self._writer.enqueue(self._run, rows, patient, insist)

    def close(self) -> None:
        """Write the waiting records and close the file, within two seconds."""
        self._write((), (), patient=False)
        self._run = None
        self._writer.close(_CLOSE_SECONDS)

    # --- which run it is ---

    def _find(self, key: str, target: Target) -> OpenedRun | None:
        attempts = self._connection.execute(
            """SELECT run_id, attempt, boot_id, pid, start_ticks, watcher_pid, watcher_start_ticks, cause
            FROM attempts JOIN runs ON run = runs.id
            WHERE key = ? OR (boot_id = ? AND pid = ? AND start_ticks = ?)
            ORDER BY runs.id DESC, attempt DESC LIMIT 100""",
            (key, *_identity(target)),
        ).fetchall()
        others = []
        for run_id, attempt, *process, watcher, watcher_ticks, cause in attempts:
            if tuple(process) != _identity(target):
                others.append((run_id, attempt, process, cause))
            elif watcher == os.getpid() or not self._lives([process[0], watcher, watcher_ticks], target.boot_id):
                return OpenedRun(run_id, attempt, resumed=True, new_attempt=False)
        for run_id, attempt, process, cause in others:
            if self._lives(process, target.boot_id):
                continue  # a sibling that runs at the same time, not a predecessor
            if cause == Cause.COMPLETED.value:
                break
            return OpenedRun(run_id, attempt + 1, resumed=True, new_attempt=True)
        return None

    def _is_another(self, pid: int, ticks: int) -> bool:
        """Whether this is another memwatch that still runs, whose runs must not be shortened."""
        return pid != os.getpid() and run_identity.start_ticks(pid, self._proc) == ticks

    def _lives(self, process: list[Any], boot: str) -> bool:
        boot_id, pid, ticks = process
        return bool(boot_id == boot and run_identity.start_ticks(pid, self._proc) == ticks)

    def _enter(self, run: RunRecord) -> None:
        """Write the run and the attempt where they are new, become the watcher, and continue after the last `seq`."""
        run.id = run.insert(self._connection)
        attempt, *_, watcher, watcher_ticks = run.attempt_row
        self._connection.execute(
            "UPDATE attempts SET watcher_pid = ?, watcher_start_ticks = ? WHERE run = ? AND attempt = ?",
            (watcher, watcher_ticks, run.id, attempt),
        )
        self._seq = stored_runs.latest_seq(self._connection, run.id)

    # --- rows ---

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _event_rows(self, event: Event) -> Iterable[TableRow]:
        try:
            kind, json = row_codec.encode_event(event)
        except json_and_yaml.SerializationError:
            return
        yield "events", (self._next_seq(), self._attempt, event.t, kind, json)
        if isinstance(event, Exited):
            yield "endings", (self._attempt, event.t, event.cause.value)

    def _sample_rows(self, event: Sampled, on_each_grid: bool) -> Iterable[TableRow]:
        """A sample that was taken together with another event is on each grid."""
        t = event.t
        grids = [grid for grid, seconds in _GRIDS if not 0 <= t - self._last_on_grid.get(grid, -1e18) < seconds]
        for grid in grids:
            self._last_on_grid[grid] = t
        coarsest = _GRIDS[0][0] if on_each_grid else next(iter(grids), 0)
        seq = self._next_seq()
        for slot, row in enumerate(row_codec.encode_sample(event.sample)):
            yield "samples", (seq, slot, self._attempt, t, coarsest, *row)

    def _notice_rows(self, notice: Notice) -> Iterable[TableRow]:
        try:
            json = json_and_yaml.to_json(notice.fields)
        except json_and_yaml.SerializationError:
            json = b"{}"
        texts = map(encodable, (notice.event, notice.text))
        yield "notices", (self._next_seq(), self._attempt, notice.t, *texts, json)


def _identity(target: Target) -> tuple[str, int, int]:
    return target.boot_id, target.pid, target.start_ticks


def _new_run(now: float) -> OpenedRun:
    day = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return OpenedRun(f"{day}-{os.urandom(3).hex()}", 0, resumed=False, new_attempt=False)
