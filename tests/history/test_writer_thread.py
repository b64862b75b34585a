from __future__ import annotations

import itertools
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from memwatch.app.watch_loop import FailureTracker
from memwatch.history.database_file import open_database
from memwatch.history.writer_thread import WAIT_SECONDS, Backlog, HistoryWriter, RunRecord
from support.mainjob import until
from support.slowdisk import slow_disk
from support.stopwatch import Stopwatch


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    opened, _ = open_database(tmp_path / "h.db")
    yield opened
    opened.close()


def run() -> RunRecord:
    return RunRecord(None, ("r", "k", 1.0, "c", "/", "", "h"), (0, "b", 5, 6, 1.0, 7, 8))


def event(seq: int) -> tuple[str, tuple[object, ...]]:
    return "events", (seq, 0, 1.0, "TotalSeen", b"{}")


def test_a_disk_that_hangs_is_told_and_holds_nobody_up(connection: sqlite3.Connection, tmp_path: Path) -> None:
    works = threading.Event()
    writer = HistoryWriter(
        connection, works.wait, stalled_seconds=0.2
    )  # the thread hangs as in a read of a dead NFS server
    mine = run()
    start = Stopwatch()
    writer.enqueue(mine, [event(1)])
    assert start.seconds >= WAIT_SECONDS and start.undisturbed_seconds < 1.0
    start = Stopwatch()
    for seq in range(2, 50):
        writer.enqueue(mine, [event(seq)])
    assert start.undisturbed_seconds < 24 * WAIT_SECONDS  # waited for once, not 48 times
    time.sleep(0.2)
    writer.enqueue(mine, [event(50)])
    assert writer.failure == "the disk has not answered for more than 0.2 s"
    start = Stopwatch()
    writer.close(0.1)
    assert start.undisturbed_seconds < 2.0
    works.set()
    writer.close(5.0)
    assert writer.failure is None
    with sqlite3.connect(tmp_path / "h.db") as again:
        assert again.execute("SELECT count(*) FROM events").fetchone() == (50,)
    again.close()


def test_what_insists_is_waited_for_though_others_wait_too(connection: sqlite3.Connection) -> None:
    works = threading.Event()
    writer, mine, seqs = HistoryWriter(connection, works.wait), run(), itertools.count(1)

    def put(insist: bool) -> tuple[float, bool]:
        """Seconds that it took, behind others; whether it is on disk then."""
        seq, start = next(seqs), time.monotonic()
        writer.enqueue(mine, [event(seq)], insist=insist)
        took = time.monotonic() - start
        return took, connection.execute("SELECT count(*) FROM events WHERE seq = ?", (seq,)).fetchone() == (1,)

    for _ in range(2):
        writer.enqueue(mine, [event(next(seqs))], patient=False)
    assert min(put(insist=False) for _ in range(5))[0] < WAIT_SECONDS
    assert WAIT_SECONDS <= put(insist=True)[0] < 1.0, "and no longer than that"
    works.set()
    until(lambda: put(insist=True)[1])
    writer.close(5.0)


def test_what_a_slow_disk_costs_is_told_once_and_so_is_its_recovery(
    connection: sqlite3.Connection, tmp_path: Path
) -> None:
    slow = slow_disk(tmp_path / "h.db", 0.3)
    writer, mine, health = HistoryWriter(slow, lambda: True, stalled_seconds=0.2), run(), FailureTracker()
    told: list[tuple[bool, str]] = []

    def put(count: int) -> None:
        writer.enqueue(mine, [event(next(numbers)) for _ in range(count)])
        told.extend((one.ok, one.reason) for one in health.update(0.0, "backlog", writer.loss))

    numbers = itertools.count(1)
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:  # ten times as many as have room while one commit takes place
        put(100)
        time.sleep(0.001)
    assert told == [(False, "records come faster than the disk takes them: the oldest that waited are lost")]
    slow.commit_seconds = 0.0
    until(lambda: put(1) or len(told) > 1)
    assert told[1:] == [(True, "")]
    count = next(numbers)
    writer.close(5.0)
    kept = connection.execute("SELECT count(*) FROM events").fetchone()[0]
    assert 0 < kept < count, "something was lost, and not all"


def test_a_transaction_that_fails_leaves_no_half(connection: sqlite3.Connection) -> None:
    writer = HistoryWriter(connection, lambda: True)
    mine = run()
    connection.execute("DROP TABLE samples")
    writer.enqueue(mine, [event(1), ("samples", (2, 0, 0, 1.0, 1, "host", 1, 2, "cgroup /", 3))])
    assert writer.failure == "no such table: samples"
    assert mine.id is None
    assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)
    assert not connection.in_transaction
    writer.close(5.0)


def test_the_backlog_keeps_the_latest_and_counts_the_rest() -> None:
    earlier, later, mine = Backlog(), Backlog(), run()
    for seq in range(9):
        earlier.add("endings", mine, (seq,))
    for seq in range(9, 12):
        later.add("endings", mine, (seq,))
    earlier.extend(later)
    assert [values[0] for _, values in earlier.rows["endings"]] == list(range(2, 12))
    assert (len(earlier), earlier.lost) == (10, 2)
