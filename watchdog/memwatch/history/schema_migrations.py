"""The tables of a history file, and the steps that bring an older file up to date."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from memwatch.errors import HistoryError

APPLICATION_ID = 0x6D656D77  # "memw": tells a history file from any other SQLite file

# Counts views, triggers, virtual tables and computed columns of a foreign file: reading one may run code or never end.
_STRANGE = """SELECT (SELECT count(*) FROM sqlite_master WHERE type NOT IN ('table', 'index') OR sql LIKE '%VIRTUAL%') +
    (SELECT count(*) FROM sqlite_master AS one, pragma_table_xinfo(one.name) AS of WHERE of.hidden > 0)"""

# Step n turns version n into version n + 1. A step that was released is never changed: a new one is added.
# `run` is runs.id, `seq` orders all that happened within a run. A sample is one row per resource, in order of `slot`,
# or one without a resource (an empty name) when nothing could be read.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE runs (
            id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, key TEXT NOT NULL, created REAL NOT NULL,
            command TEXT NOT NULL, cwd TEXT NOT NULL, log TEXT NOT NULL, host TEXT NOT NULL)""",
        "CREATE INDEX runs_by_key ON runs (key)",
        """CREATE TABLE attempts (
            run INTEGER NOT NULL REFERENCES runs (id), attempt INTEGER NOT NULL,
            boot_id TEXT NOT NULL, pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, attached_t REAL NOT NULL,
            watcher_pid INTEGER NOT NULL, watcher_start_ticks INTEGER NOT NULL,
            exited_t REAL, cause TEXT,
            PRIMARY KEY (run, attempt)) WITHOUT ROWID""",
        """CREATE TABLE events (
            run INTEGER NOT NULL, seq INTEGER NOT NULL, attempt INTEGER NOT NULL, t REAL NOT NULL,
            kind TEXT NOT NULL, json BLOB NOT NULL,
            PRIMARY KEY (run, seq)) WITHOUT ROWID""",
        # grid: 600, 60, 10 or 1, the coarsest grid of seconds that this sample is on, or 0; a replay of a long run
        # reads the coarse ones only. A sample that was taken together with an event has 600, too.
        """CREATE TABLE samples (
            run INTEGER NOT NULL, seq INTEGER NOT NULL, slot INTEGER NOT NULL, attempt INTEGER NOT NULL,
            t REAL NOT NULL, grid INTEGER NOT NULL, resource TEXT NOT NULL, used INTEGER NOT NULL,
            bound INTEGER, origin INTEGER REFERENCES origins (id), headroom INTEGER,
            PRIMARY KEY (run, seq, slot)) WITHOUT ROWID""",
        "CREATE INDEX coarse_samples ON samples (run, seq, slot) WHERE grid >= 60",
        "CREATE TABLE origins (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)",
        """CREATE TABLE notices (
            run INTEGER NOT NULL, seq INTEGER NOT NULL, attempt INTEGER NOT NULL, t REAL NOT NULL,
            event TEXT NOT NULL, text TEXT NOT NULL, json BLOB NOT NULL,
            PRIMARY KEY (run, seq)) WITHOUT ROWID""",
    ),
    (
        # an engine began to watch the run at `seq`, after it was fed the earlier records; settings: JSON
        """CREATE TABLE watches (
            run INTEGER NOT NULL, seq INTEGER NOT NULL, t REAL NOT NULL, version TEXT NOT NULL, settings BLOB NOT NULL,
            PRIMARY KEY (run, seq)) WITHOUT ROWID""",
        "ALTER TABLE samples ADD COLUMN counted INTEGER REFERENCES origins (id)",  # how main memory was measured
    ),
)


def migrate(connection: sqlite3.Connection, steps: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring the file up to date in one transaction, or leave it as it was.

    `connection` is in autocommit mode (isolation_level None). Raises as `refuse_foreign` does.
    """
    refuse_foreign(connection, len(steps))
    if _version(connection) == len(steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in steps[_version(connection) :]:  # read again: another memwatch may have been faster
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def is_older(connection: sqlite3.Connection) -> bool:
    """Whether the file lacks later steps; raises as `refuse_foreign` does."""
    refuse_foreign(connection)
    return _version(connection) < len(MIGRATIONS)


def refuse_foreign(connection: sqlite3.Connection, newest: int = len(MIGRATIONS)) -> None:
    """Raise HistoryError for another program's database and for a newer memwatch's; write nothing."""
    application = _pragma(connection, "application_id")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION_ID and (application or tables or _version(connection)):
        raise HistoryError("it is the database of another program", "name another file with --history")
    if connection.execute(_STRANGE).fetchone()[0]:
        reason = "it has views, triggers or computed columns, which memwatch never makes"
        raise HistoryError(reason, "name another file with --history")
    if _version(connection) > newest:
        raise HistoryError(
            f"a newer memwatch wrote it (version {_version(connection)}, this one knows {newest})",
            "update memwatch, or name another file with --history",
        )


def _version(connection: sqlite3.Connection) -> int:
    return _pragma(connection, "user_version")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
