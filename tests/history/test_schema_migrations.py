from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from memwatch.errors import HistoryError
from memwatch.history.schema_migrations import APPLICATION_ID, MIGRATIONS, migrate

NEXT = (*MIGRATIONS, ("ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT ''", "CREATE TABLE extra (a)"))


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(tmp_path / "h.db", isolation_level=None)
    yield opened
    opened.close()


def version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_an_empty_file_gets_all_tables(connection: sqlite3.Connection) -> None:
    migrate(connection)
    assert version(connection) == len(MIGRATIONS)
    assert connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    assert tables(connection) == {"runs", "attempts", "events", "samples", "origins", "notices", "watches"}
    migrate(connection)


def test_an_older_file_is_brought_up_to_date_with_its_rows(connection: sqlite3.Connection) -> None:
    migrate(connection, MIGRATIONS[:1])
    connection.execute("INSERT INTO runs VALUES (NULL, 'r', 'k', 1.0, 'c', '/', '', 'h')")
    migrate(connection, NEXT)
    assert version(connection) == len(NEXT)
    assert connection.execute("SELECT run_id, note FROM runs").fetchall() == [("r", "")]


def test_a_step_that_fails_leaves_the_file_as_it_was(connection: sqlite3.Connection) -> None:
    migrate(connection)
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, (*NEXT, ("CREATE TABLE runs (a)",)))
    assert version(connection) == len(MIGRATIONS)
    assert "extra" not in tables(connection)
    assert not connection.in_transaction


def test_a_newer_file_is_refused(connection: sqlite3.Connection) -> None:
    migrate(connection, NEXT)
    with pytest.raises(HistoryError, match="newer memwatch") as caught:
        migrate(connection)
    assert "update memwatch" in caught.value.hint
    assert version(connection) == len(NEXT)


@pytest.mark.parametrize(
    "made", ["CREATE TABLE theirs (a)", "PRAGMA user_version = 1", "PRAGMA application_id = 252006674"]
)
def test_another_programs_database_is_refused(connection: sqlite3.Connection, made: str) -> None:
    connection.execute(made)
    before = tables(connection)
    with pytest.raises(HistoryError, match="another program"):
        migrate(connection)
    assert tables(connection) == before
