"""A history that has grown too large: what goes first, what stays, and that no write waits for it."""

from __future__ import annotations

import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from zlib import crc32

import pytest

from memwatch.core.events import Attached, GenerationSeen, Notice, Sampled
from memwatch.core.measurements import HOST, Sample, Target, Usage
from memwatch.history import run_identity, stored_runs
from memwatch.history.event_store import EngineRecord, HistoryStore
from memwatch.history.retention import FULL_DETAIL_RECORDS, RECORDS_PER_STEP, Retention, used_bytes
from memwatch.system import json_and_yaml
from support.processes import WAIT, python, running

T0 = 1_700_000_000.0
LOOKS = 12_000
WAIT_SECONDS = 20.0


def watched(path: Path, name: str, looks: int = LOOKS, hertz: float = 1.0) -> str:
    """A run of that name, with all that a run has; its ID."""
    with closing(HistoryStore.open(path)) as store:
        run_id = begun(store, name)
    with closing(sqlite3.connect(path)) as connection, connection:
        [run] = connection.execute("SELECT id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        rows = ((run, 10 + i, T0 + i / hertz, grid(i / hertz), 10**9 + i) for i in range(looks))
        connection.executemany("INSERT INTO samples VALUES (?, ?, 0, 0, ?, ?, 'host', ?, NULL, NULL, NULL, NULL)", rows)
    return run_id


def grid(seconds: float) -> int:
    return next((one for one in (600, 60, 10, 1) if seconds % one == 0), 0)


def watched_within(path: Path, name: str, most_bytes: int, looks: int = 100) -> None:
    """A short run; between two looks there is time to make room."""
    with closing(HistoryStore.open(path, most_bytes=most_bytes)) as store:
        begun(store, name)
        for i in range(looks):
            store.append([Sampled(T0 + i, Sample((Usage(HOST, 10**9 + i, None),)))], [])
            time.sleep(0.02)


def begun(store: HistoryStore, name: str) -> str:
    attached = Attached(T0, Target("boot", 4_000_000, crc32(name.encode())), name)
    run_id = store.open_run(name, attached, T0).run_id
    store.record_engine(EngineRecord("1", b"{}"), T0)
    store.append([attached, GenerationSeen(T0, 1.0)], [Notice(T0, "attached", name)])
    return run_id


def commands(path: Path) -> list[str]:
    return [run.command for run in stored_runs.stored_runs(path)]


def settled(connection: sqlite3.Connection, retention: Retention, run: int) -> int:
    """How many steps it took."""
    steps = 0
    while retention.step(connection, run):
        steps += 1
    return steps


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "h.db"


@pytest.fixture
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    for name in ("first", "second", "third"):
        watched(path, name)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def test_the_oldest_run_goes_first_and_all_of_it(opened: sqlite3.Connection, path: Path) -> None:
    most = int(used_bytes(opened) * 0.95)
    steps = settled(opened, Retention(most, lambda pid, ticks: False), 3)
    assert commands(path) == ["third", "second"]
    assert steps > LOOKS / RECORDS_PER_STEP, "piece by piece"
    for table in ("samples", "events", "notices", "attempts", "watches"):
        assert opened.execute(f"SELECT count(*) FROM {table} WHERE run = 1").fetchone() == (0,), table
    assert used_bytes(opened) < most


def test_a_file_that_is_small_enough_is_left_alone(opened: sqlite3.Connection, path: Path) -> None:
    assert not Retention(used_bytes(opened), lambda pid, ticks: False).step(opened, 3)
    assert len(commands(path)) == 3


def test_what_another_memwatch_watches_is_its_own(opened: sqlite3.Connection, path: Path) -> None:
    opened.execute("UPDATE attempts SET watcher_pid = 77 WHERE run = 1")
    settled(opened, Retention(1, lambda pid, ticks: pid == 77), 3)
    assert commands(path) == ["third", "first"]


def test_of_the_run_that_is_watched_the_older_details_go(path: Path) -> None:
    run_id = watched(path, "only", looks=3 * FULL_DETAIL_RECORDS, hertz=2.0)
    [run] = stored_runs.stored_runs(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        before = used_bytes(connection)
        settled(connection, Retention(before // 2, lambda pid, ticks: False), 1)
        assert used_bytes(connection) < before // 2
        older = dict(
            connection.execute("SELECT grid, count(*) FROM samples WHERE seq < ? GROUP BY grid", (FULL_DETAIL_RECORDS,))
        )
        assert 0 not in older and older[600] > 10
        [later] = connection.execute(
            "SELECT count(*) FROM samples WHERE seq > ?", (2 * FULL_DETAIL_RECORDS,)
        ).fetchone()
        assert later >= FULL_DETAIL_RECORDS, "the latest part has all its detail"
    looks = [event for event in stored_runs.events_to_replay(path, run_id) if isinstance(event, Sampled)]
    assert looks[0].t == T0 and looks[-1].t == T0 + (3 * FULL_DETAIL_RECORDS - 1) / 2
    assert stored_runs.watches(path, run) == [], "it is not whole any more"


def test_what_cannot_be_made_smaller_ends(path: Path) -> None:
    watched(path, "only", looks=100)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert settled(connection, Retention(1, lambda pid, ticks: False), 1) < 10
        assert connection.execute("SELECT count(*) FROM samples").fetchone() == (100,), "the latest are kept"
    [run] = stored_runs.stored_runs(path)
    assert stored_runs.watches(path, run), "it is whole"


def test_a_watch_that_never_ends_stays_within_its_bound(path: Path) -> None:
    run_id = watched(path, "only", looks=0)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        most, first = 2_000_000, 10
        retention = Retention(most, lambda pid, ticks: False)
        for month in range(5):
            rows = ((1, first + i, first + i, grid(i), first + i) for i in range(2 * FULL_DETAIL_RECORDS))
            with connection:
                connection.execute("BEGIN")
                connection.executemany(
                    "INSERT INTO samples VALUES (?, ?, 0, 0, ?, ?, 'host', ?, NULL, NULL, NULL, NULL)", rows
                )
                connection.executemany(
                    "INSERT INTO events VALUES (1, ?, 0, ?, 'GenerationSeen', ?)",
                    (
                        (first + i, first + i, json_and_yaml.to_json({"t": first + i, "index": i}))
                        for i in range(0, FULL_DETAIL_RECORDS, 5)
                    ),
                )
            first += 2 * FULL_DETAIL_RECORDS
            settled(connection, retention, 1)
            assert used_bytes(connection) < most, f"month {month}"
        [later] = connection.execute(
            "SELECT count(*) FROM samples WHERE seq >= ?", (first - FULL_DETAIL_RECORDS,)
        ).fetchone()
        assert later == FULL_DETAIL_RECORDS, "the latest part has all its detail"
    told = list(stored_runs.events_to_replay(path, run_id))
    assert isinstance(told[0], Attached), "what all the rest belongs to is still there"
    assert 100 < sum(isinstance(event, GenerationSeen) for event in told) < 5 * FULL_DETAIL_RECORDS / 5


def test_a_watch_makes_room_while_it_writes(path: Path) -> None:
    watched(path, "before")
    with closing(sqlite3.connect(path)) as connection:
        most = used_bytes(connection) // 2
    watched_within(path, "now", most, looks=100)
    assert commands(path) == ["now"]
    [run] = stored_runs.stored_runs(path)
    assert sum(isinstance(event, Sampled) for event in stored_runs.events_to_replay(path, run.run_id)) == 100
    assert stored_runs.watches(path, run), "it is whole"


def test_runs_of_a_memwatch_that_lives_are_known(path: Path) -> None:
    watched(path, "before")
    with running(python(WAIT)) as other:
        assert isinstance(other, subprocess.Popen)
        with closing(sqlite3.connect(path)) as connection, connection:
            ticks = run_identity.start_ticks(other.pid)
            connection.execute("UPDATE attempts SET watcher_pid = ?, watcher_start_ticks = ?", (other.pid, ticks))
        watched_within(path, "now", 1)
        assert commands(path) == ["now", "before"]
    watched_within(path, "last", 1)
    assert commands(path) == ["last"]


def test_the_size_is_looked_at_each_minute_of_the_clock_that_is_given(path: Path) -> None:
    passed = [0.0]
    with closing(HistoryStore.open(path, most_bytes=300_000, now=lambda: passed[0])) as store:
        begun(store, "now")
        watched(path, "before")
        for t in range(3):
            store.append([GenerationSeen(T0 + t, 2.0 + t)], [])
            assert len(commands(path)) == 2, "nobody has looked again"
        passed[0] = 61.0
        deadline = time.monotonic() + WAIT_SECONDS
        while len(commands(path)) == 2 and time.monotonic() < deadline:
            store.append([GenerationSeen(T0 + passed[0], 9.0)], [])
        assert commands(path) == ["now"]
