"""Histories of somebody else: columns that hold what they should not, and files that are none of memwatch's."""

from __future__ import annotations

import io
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from memwatch.app import load_and_replay_run
from memwatch.app.load_and_replay_run import rejudge
from memwatch.cli import history_commands
from memwatch.config.settings import Config
from memwatch.history import stored_runs, trace_files
from memwatch.outputs.html import report_page as pages
from memwatch.outputs.html import run_comparison
from memwatch.outputs.status_json import snapshot_to_dict
from memwatch.outputs.terminal.command_progress import ProgressBar
from memwatch.outputs.text.exit_summary import generations_csv, render_summary
from memwatch.system.json_and_yaml import to_shown_json
from support.recorded import Recording, record

MOST_BYTES = 16 << 10  # of a column


@cache
def sound() -> bytes:
    """A history of memwatch's own, in pages so small that it is a short text: a run of a few generations."""
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder, "a.db"), Path(folder, "b.db")
        record(path, Recording(generations=3, samples=6, killed_in=2.5))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA page_size = 512")
            connection.execute("INSERT INTO watches VALUES (1, 0, 0.0, '1', ?)", (_settings(),))
            connection.commit()
            connection.execute("VACUUM INTO ?", (str(small),))
        return small.read_bytes()


def _settings() -> bytes:
    from memwatch.app.engine_settings import EngineSettings

    return EngineSettings.from_config(Config()).to_record().settings


@contextmanager
def file_of(raw: bytes) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(suffix=".db") as file:
        file.write(raw)
        file.flush()
        yield Path(file.name)


def read_file(raw: bytes) -> None:
    """All that memwatch makes of a history file."""
    with file_of(raw) as path:
        _read(path)


def read_row(raw: bytes) -> None:
    """The same of a history of memwatch's own in which one column of one row says something else.

    `raw`: a byte each for the column, the row and the type, and then the value.
    """
    where, row, kind = (*raw[:3], 0, 0, 0)[:3]
    with file_of(sound()) as path:
        with closing(sqlite3.connect(path)) as connection:
            columns = list(_columns(connection))
            table, column = columns[where % len(columns)]
            try:
                _change(connection, table, column, row, _value(kind, raw[3:]))
            except (sqlite3.Error, UnicodeEncodeError):  # SQLite does not hold that
                return
        _read(path)


def row_seeds() -> tuple[bytes, ...]:
    """What stands there, as `read_row` takes it."""
    with file_of(sound()) as path, closing(sqlite3.connect(path)) as connection:
        found: dict[str, bytes] = {}
        for where, (table, column) in enumerate(_columns(connection)):
            for row, (value,) in enumerate(
                connection.execute(f"SELECT {column} FROM {table} ORDER BY {_keys(connection, table)}")
            ):
                if isinstance(value, bytes):
                    found.setdefault(
                        f"{table} {value[:40].translate(None, b'0123456789.')!r}", bytes((where, row % 256, 0)) + value
                    )
        return tuple(found.values())


def _columns(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for _, column, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
            yield table, column


def _keys(connection: sqlite3.Connection, table: str) -> str:
    return ", ".join(name for _, name, *_, key in connection.execute(f"PRAGMA table_info({table})") if key)


def _change(connection: sqlite3.Connection, table: str, column: str, row: int, value: object) -> None:
    keys = _keys(connection, table)
    rows = connection.execute(f"SELECT {keys} FROM {table} ORDER BY {keys}").fetchall()
    condition = f"({keys}) = ({', '.join('?' * len(rows[0]))})"
    connection.execute(f"UPDATE {table} SET {column} = ? WHERE {condition}", (value, *rows[row % len(rows)]))
    connection.commit()


def _value(kind: int, raw: bytes) -> object:
    """As SQLite tells types: text may be no UTF-8, and a number any."""
    raw = raw[:MOST_BYTES]
    if kind % 5 == 0:
        return raw
    if kind % 5 == 1:
        return raw.decode("utf-8", "replace")
    if kind % 5 == 2:
        return struct.unpack("<q", raw[:8].ljust(8, b"\0"))[0]
    return struct.unpack("<d", raw[:8].ljust(8, b"\0"))[0] if kind % 5 == 3 else None


def _read(path: Path) -> None:
    """Report in each form, replay, export, compare."""
    config = Config()
    for run in load_and_replay_run.list_runs(path):
        found = load_and_replay_run.load_run(path, run, config, ProgressBar("", io.StringIO()))
        for text in (
            render_summary(found.end, found.is_running),
            generations_csv(found.end),
            history_commands.report_json(found),
        ):
            assert isinstance(text, str)
        to_shown_json(snapshot_to_dict(found.end))
        history_commands.report_html(found)
        side = run_comparison.ComparedRun(
            "a", run.run_id, found.run_data, pages.describe_ending(found.end, found.is_running)
        )
        run_comparison.render_comparison_text(side, side)
        run_comparison.document(side, side)
        trace_files.write_trace(stored_runs.event_batches(path, run), io.StringIO())
        for watch in rejudge(path, run, lambda share: None):
            assert watch.recomputed is not None
