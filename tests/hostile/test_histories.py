"""A history file that somebody else made: refused with a reason, at once, whatever its tables are."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest

from hostile.histories import file_of, read_file, sound
from memwatch.errors import HistoryError, MemwatchError
from memwatch.history import database_file
from memwatch.history.event_store import HistoryStore

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT 1 AS run, x AS seq, 0 AS attempt"
STRANGE = {
    "a view": "CREATE VIEW v AS SELECT 1",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
    "a virtual table": "CREATE VIRTUAL TABLE x USING rtree(a, b, c)",
    "a view in place of a table": f"DROP TABLE events; CREATE VIEW events AS {ENDLESS} FROM c",
    "a column as large as you like": "ALTER TABLE runs ADD COLUMN g BLOB AS (zeroblob(1000000000))",
}


def changed(script: str) -> bytes:
    with file_of(sound()) as path:
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(script)
        return path.read_bytes()


def test_what_memwatch_made_itself_is_read() -> None:
    read_file(sound())


@pytest.mark.parametrize("script", STRANGE.values(), ids=STRANGE)
def test_a_file_with_more_than_tables_is_refused(script: str) -> None:
    with file_of(changed(script)) as path:
        with pytest.raises(MemwatchError, match=r"views, triggers or computed columns"):
            read_file(path.read_bytes())
        with pytest.raises(HistoryError, match=r"views, triggers or computed columns"):
            HistoryStore.open(path)


@pytest.mark.parametrize("table", ["events", "samples", "notices", "watches", "attempts", "runs", "origins"])
def test_a_table_of_the_same_name_with_other_columns_is_refused(table: str) -> None:
    with pytest.raises(MemwatchError, match=r"no such (column|table|index)|ambiguous column"):
        read_file(changed(f"DROP TABLE {table}; CREATE TABLE {table} (run, seq, id, other)"))


def test_tables_described_by_no_text_are_damage_and_set_aside() -> None:
    raw = sound().replace(b"PRIMARY KEY, run_id TEXT", b"PRIMARY KEY  \xff\xff\xff\xff\xff\xff TEXT", 1)
    with pytest.raises(MemwatchError, match="are not text"):
        read_file(raw)
    with file_of(raw) as path:
        store = HistoryStore.open(path)
        store.close()
        (aside,) = path.parent.glob(f"{path.name}.corrupt-*")
        aside.unlink()
        assert "damaged" in store.corruption_notice


def test_pages_that_lead_in_a_circle_are_not_followed_for_ever() -> None:
    """An inner page whose children are all the same: SQLite goes on as long as somebody reads."""
    with file_of(sound()) as path:
        with closing(sqlite3.connect(path)) as connection:
            size = connection.execute("PRAGMA page_size").fetchone()[0]
            (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchone()
        raw = bytearray(path.read_bytes())
    page = (root - 1) * size
    assert raw[page] == 2, "an inner page of an index: WITHOUT ROWID"
    cells = int.from_bytes(raw[page + 3 : page + 5], "big")
    for i in range(cells):
        at = int.from_bytes(raw[page + 12 + 2 * i :][:2], "big")
        raw[page + at : page + at + 4] = root.to_bytes(4, "big")
    begun = time.thread_time()
    with pytest.raises(MemwatchError):
        read_file(bytes(raw))
    assert time.thread_time() - begun < 5.0


def labyrinth(depth: int = 15) -> bytes:
    """Inner pages of `samples`, each of whose children are all the next one: as many ways as there are to the leaf."""
    with file_of(sound()) as path:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TEMP TABLE more AS SELECT * FROM samples")
            for _ in range(5):
                connection.execute("UPDATE more SET seq = seq + 1000")
                connection.execute("INSERT INTO samples SELECT * FROM more")
            connection.commit()
            size = connection.execute("PRAGMA page_size").fetchone()[0]
            (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'samples'").fetchone()
        raw = bytearray(path.read_bytes())
    inner = raw[(root - 1) * size : root * size]
    assert inner[0] == 2, "an inner page of an index: WITHOUT ROWID"
    assert int.from_bytes(inner[3:5], "big") >= 4, "children enough"
    leaf = inner[8:12]  # the last of them
    count = len(raw) // size
    for number in range(count + 1, count + depth + 1):
        raw += inner
        point_to(raw, (number - 1) * size, (number + 1).to_bytes(4, "big") if number < count + depth else leaf)
    point_to(raw, (root - 1) * size, (count + 1).to_bytes(4, "big"))
    raw[28:32] = (count + depth).to_bytes(4, "big")
    return bytes(raw)


def point_to(raw: bytearray, page: int, child: bytes) -> None:
    """Let all children of an inner page be this one."""
    cells = int.from_bytes(raw[page + 3 : page + 5], "big")
    starts = (int.from_bytes(raw[page + 12 + 2 * i :][:2], "big") for i in range(cells))
    for at in (8, *starts):
        raw[page + at : page + at + 4] = child


PASSED_OVER = "SELECT seq FROM samples WHERE run = 1 AND attempt = 7 ORDER BY seq"


def test_rows_that_nobody_wants_are_not_passed_over_for_ever() -> None:
    with file_of(labyrinth()) as path, closing(database_file.open_read_only(path, seconds=0.5)) as connection:
        begun = time.thread_time()
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            connection.execute(PASSED_OVER).fetchall()
        assert time.thread_time() - begun < 5.0


def test_who_is_slow_to_take_rows_gets_them_all() -> None:
    with file_of(sound()) as path, closing(database_file.open_read_only(path, seconds=0.15)) as connection:
        rows = connection.execute("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c")
        for _ in range(4):
            assert next(rows)
            time.sleep(0.2)
            for _ in range(10_000):  # long enough for a look at the time
                next(rows)
