"""Commits rows on a thread of its own, so that a disk that hangs, is full or locked never delays the watch."""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memwatch.history.retention import Retention

# By table, the rows that wait at most while the disk does not take them (chosen).
_MAX_WAITING = {"watches": 10, "events": 2000, "samples": 4000, "notices": 1000, "endings": 10}
_INSERT = {
    "watches": "INSERT OR IGNORE INTO watches VALUES (?, ?, ?, ?, ?)",
    "events": "INSERT OR IGNORE INTO events VALUES (?, ?, ?, ?, ?, ?)",
    "samples": "INSERT OR IGNORE INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "notices": "INSERT OR IGNORE INTO notices VALUES (?, ?, ?, ?, ?, ?, ?)",
    "endings": "WITH this(run, attempt, t, cause) AS (VALUES (?, ?, ?, ?)) UPDATE attempts"
    " SET exited_t = (SELECT t FROM this), cause = (SELECT cause FROM this)"
    " WHERE run = (SELECT run FROM this) AND attempt = (SELECT attempt FROM this)",
}
_TEXTS = (8, 10)  # the columns of `samples` after `run` that are texts here and ids in the file

WAIT_SECONDS = 0.05  # Timeout of waiting for a commit, which usually takes 0.2 ms (measured).
_ROOM_SECONDS = 60.0  # Interval of checking the size of the file (chosen).
_RETRY_SECONDS = (1.0, 2.0, 4.0, 8.0)  # Pauses after one failure, two failures ... (chosen).
_LOSS = "records come faster than the disk takes them: the oldest that waited are lost"


@dataclass(slots=True)
class RunRecord:
    """The run and the attempt that rows belong to; `id` is None until the file has them."""

    id: int | None
    run_row: tuple[Any, ...]
    attempt_row: tuple[Any, ...]  # without the run's id

    def insert(self, connection: sqlite3.Connection) -> int:
        """Return the run's id in the file; insert the run when it has none."""
        connection.execute("INSERT OR IGNORE INTO runs VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", self.run_row)
        found = connection.execute("SELECT id FROM runs WHERE run_id = ?", self.run_row[:1]).fetchone()
        connection.execute(
            "INSERT OR IGNORE INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)", (*found, *self.attempt_row)
        )
        return int(found[0])


TableRow = tuple[str, tuple[Any, ...]]  # table, values without the run


class Backlog:
    """Rows in memory, of each table the latest."""

    def __init__(self) -> None:
        self.rows: dict[str, deque[tuple[RunRecord, tuple[Any, ...]]]] = {
            table: deque(maxlen=most) for table, most in _MAX_WAITING.items()
        }
        self.lost = 0

    def add(self, table: str, run: RunRecord, values: tuple[Any, ...]) -> None:
        """Add a row; drop the oldest of its table if there is no room."""
        rows = self.rows[table]
        self.lost += len(rows) == rows.maxlen
        rows.append((run, values))

    def extend(self, later: Backlog) -> None:
        self.lost += later.lost
        for table, rows in later.rows.items():
            for run, values in rows:
                self.add(table, run, values)

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))


class HistoryWriter:
    """Owns the connection's writing side. `failure` says why the last try failed; None if it did not.

    `loss` says that records were lost which waited for too long; None again once all waiting records were written.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        still_there: Callable[[], bool],
        retention: Retention | None = None,
        stalled_seconds: float = 5.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failure: str | None = None
        self.loss: str | None = None
        self.connection_lock = threading.Lock()
        self._connection, self._still_there = connection, still_there
        self._retention, self._retained_t, self._now = retention, -math.inf, now  # not before that time
        self._stalled_seconds = stalled_seconds
        self._state = threading.Condition()
        self._waiting = Backlog()
        self._put = self._done = 0  # how often rows were enqueued, and how many of these have been tried
        self._trying_since: float | None = None
        self._closing = False
        self._text_ids: dict[str, int] = {}
        self._thread: threading.Thread | None = None

    def enqueue(self, run: RunRecord, rows: list[TableRow], patient: bool = True, insist: bool = False) -> None:
        """Add rows; if `patient`, wait a moment for their commit: usually they are on disk then.

        Unless told to `insist`, it does not wait if earlier rows still wait: a slow disk would hold up each call.
        """
        with self._state:
            for table, values in rows:
                self._waiting.add(table, run, values)
            self._put += 1
            if self._thread is None:
                self._begin()
            self._state.notify_all()
            mine, behind = self._put, self._done < self._put - 1
            if patient and self.failure is None and (insist or not behind):
                self._state.wait_for(lambda: self._done >= mine, WAIT_SECONDS)
            self._notice_stall()

    def close(self, patience_seconds: float) -> None:
        """Try once more to write the waiting rows and close the file; give up on a disk that hangs."""
        with self._state:
            self._closing = True
            self._state.notify_all()
        if self._thread is not None:
            self._thread.join(patience_seconds)
        elif self._waiting:
            self._work()  # no thread could be started
        else:
            self._connection.close()

    def _begin(self) -> None:
        """Start the thread; if that fails, the rows wait for the next try."""
        thread = threading.Thread(target=self._work, name="history", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the pids cgroup, or the user's limit of processes, is used up
            self.failure = "no thread can be started to write it: raise pids.max, or ulimit -u"
        else:
            self._thread, self.failure = thread, None

    def _notice_stall(self) -> None:
        since = self._trying_since
        if since is not None and time.monotonic() - since > self._stalled_seconds:
            self.failure = f"the disk has not answered for more than {self._stalled_seconds:g} s"
        if self._waiting.lost:
            self.loss = _LOSS

    # --- on the thread ---

    def _work(self) -> None:
        held = Backlog()
        failures = 0
        while True:
            with self._state:
                if failures and not self._closing:  # rows that come in meanwhile wait, up to a bound
                    pause = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS)) - 1]
                    self._state.wait_for(lambda: self._closing, pause)
                else:
                    self._state.wait_for(lambda: self._closing or len(self._waiting) > 0)
                held.extend(self._waiting)
                self._waiting, tried, closing = Backlog(), self._put, self._closing
                self._trying_since = time.monotonic()
            failure = self._write(held)
            failures = 0 if failure is None else failures + 1
            if failure is None:
                self._make_room(held)
            with self._state:
                self.failure, self._done, self._trying_since = failure, tried, None
                self.loss = _LOSS if held.lost or self._waiting.lost else None
                self._state.notify_all()
            if failure is None:
                held = Backlog()
            if closing:
                self._connection.close()
                return

    def _write(self, rows: Backlog) -> str | None:
        """Write all rows in one transaction; return why that failed."""
        if not self._still_there():
            return "the file was removed or replaced while it was in use; a new one is begun when memwatch starts again"
        entered: dict[int, int] = {}
        with self.connection_lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                for table, waiting in rows.rows.items():
                    for run, values in waiting:
                        if run.id is None and id(run) not in entered:
                            entered[id(run)] = run.insert(self._connection)
                        number = entered.get(id(run), run.id)
                        row = self._with_text_ids(values) if table == "samples" else values
                        self._connection.execute(_INSERT[table], (number, *row))
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                self._text_ids.clear()
                roll_back(self._connection)
                return str(error)
        for waiting in rows.rows.values():
            for run, _ in waiting:
                run.id = entered.get(id(run), run.id)
        return None

    def _make_room(self, written: Backlog) -> None:
        """Do one step of the retention, after a write and while there is something to do."""
        run = next((rows[-1][0] for rows in written.rows.values() if rows), None)
        if self._retention is None or run is None or run.id is None or self._now() < self._retained_t:
            return
        with self.connection_lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                more = self._retention.step(self._connection, run.id)
                self._connection.execute("COMMIT")
            except sqlite3.Error:  # the next write reports what is wrong
                roll_back(self._connection)
                more = False
        self._retained_t = -math.inf if more else self._now() + _ROOM_SECONDS

    def _with_text_ids(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([self._text_id(value) if i in _TEXTS else value for i, value in enumerate(values)])

    def _text_id(self, text: str | None) -> int | None:
        """Return the id of a text that many samples share."""
        if text is not None and text not in self._text_ids:
            self._connection.execute("INSERT OR IGNORE INTO origins VALUES (NULL, ?)", (text,))
            found = self._connection.execute("SELECT id FROM origins WHERE text = ?", (text,)).fetchone()
            self._text_ids[text] = int(found[0])
        return None if text is None else self._text_ids[text]


def roll_back(connection: sqlite3.Connection) -> None:
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error:
        pass  # SQLite has rolled back by itself
