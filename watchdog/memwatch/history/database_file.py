"""Opens the history file: checks its folder and mode, follows no link, and renames a damaged file."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from memwatch.errors import HistoryError
from memwatch.history import schema_migrations
from memwatch.system import private_files

BUSY_MS = 50  # Milliseconds to wait for a lock, which another memwatch holds for less than 1 ms (measured).
_OPEN_SECONDS = 1.0  # The same at the start, when another memwatch may create the tables (chosen).
_CACHE = "PRAGMA cache_size = -256"  # KiB; reading fills SQLite's default of 2 MiB, and is no faster with it
_CHECK_SECONDS = 0.1  # Timeout of the check of a file that was not closed, within a start (chosen).
READ_SECONDS = 20.0  # Timeout of the next row; scanning 500 MB takes one or two seconds (measured).
_GAP_SECONDS = 0.1  # Longest interval between two checks that counts; a longer one was spent elsewhere (chosen).
_OPERATIONS = 10_000  # SQLite's operations between two such checks: 1 ms (measured).
_SIDES = ("", "-wal", "-shm")


def open_database(path: Path) -> tuple[sqlite3.Connection, str]:
    """Open the file, made if missing, and return a sentence about a damaged one that was renamed (empty: none was).

    HistoryError when the path cannot be used: a symlink, no permission, a full or read-only disk, another program's
    database, or one of a newer memwatch; such a file is left as it is.
    """
    try:
        _prepare(path)
        try:
            return _connect(path), ""
        except sqlite3.DatabaseError as error:
            if not is_corruption(error):
                raise
            aside = _set_aside(path)
            _prepare(path)
            return _connect(path), f"{path} was damaged ({error}); it is kept as {aside.name} and a new one is begun"
    except HistoryError as error:
        raise HistoryError(f"history {path}: {error}", error.hint) from error
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise HistoryError(f"history {path}: {reason}", "free or mend that place, or name another --history") from error


def open_read_only(path: Path, seconds: float = READ_SECONDS) -> sqlite3.Connection:
    """Open a connection that writes nothing; for an older memwatch's file, to a migrated copy in memory.

    A query that finds no row for `seconds` raises sqlite3.OperationalError. HistoryError for another program's database
    and for one that a newer memwatch wrote.
    """
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=_OPEN_SECONDS, uri=True)
    try:
        with _text_errors():
            if schema_migrations.is_older(connection):
                connection = _migrated_copy(connection)
            connection.execute("PRAGMA query_only = on")
            connection.execute(_CACHE)
        _bound_each_row(connection, seconds)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrated_copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    with closing(connection):
        copy = sqlite3.connect(":memory:", isolation_level=None)
        connection.backup(copy)
    schema_migrations.migrate(copy)
    return copy


def make_presence_check(path: Path) -> Callable[[], bool]:
    """Return a function that says whether the file at `path` is still the same one."""
    then = path.stat()

    def still_there() -> bool:
        try:
            return os.path.samestat(path.stat(), then)
        except OSError:
            return False

    return still_there


def is_corruption(error: sqlite3.Error) -> bool:
    """Whether the file's content is damaged: CPython uses this type for SQLITE_CORRUPT and SQLITE_NOTADB only."""
    return type(error) is sqlite3.DatabaseError


def _prepare(path: Path) -> None:
    """Ensure that `path` is a regular file of ours that nobody else can read."""
    if not path.parent.exists():
        private_files.ensure_private_dir(path.parent)
    for beside in _SIDES[1:]:
        if path.with_name(path.name + beside).is_symlink():
            raise HistoryError(f"{path.name}{beside} is a symbolic link", "remove it, or name another --history")
    try:
        os.close(private_files.create_private_file(path, os.O_RDWR))
    except FileExistsError:
        # looked at by name, never opened: closing a descriptor would drop the locks that SQLite holds on the file
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            raise HistoryError("it is a symbolic link", "name the file itself with --history") from None
        if not stat.S_ISREG(found.st_mode):
            raise HistoryError("it is not a regular file", "name another file with --history") from None
        _check_writable(path)
        if stat.S_IMODE(found.st_mode) & 0o077:
            path.chmod(0o600)


def _check_writable(path: Path) -> None:
    """Explain a failure for which SQLite only says "unable to open database file"."""
    if os.statvfs(path.parent).f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    if not (os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK)):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def _connect(path: Path) -> sqlite3.Connection:
    unclean = _size(path.with_name(path.name + "-wal")) > 0
    connection = sqlite3.connect(path, timeout=_OPEN_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        with _text_errors():
            connection.execute(_CACHE)
            deadline = time.monotonic() + _OPEN_SECONDS
            while not _set_up(connection, give_up=time.monotonic() > deadline):
                time.sleep(0.02)
        if unclean:
            _check(connection)
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _text_errors() -> Iterator[None]:
    """Handle errors that quote a table's broken definition, which Python fails to decode as UTF-8."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise sqlite3.DatabaseError("the definitions of its tables are not text") from error


def _set_up(connection: sqlite3.Connection, give_up: bool) -> bool:
    """Return False if another memwatch is setting up the same file, for which SQLite does not always wait."""
    try:
        schema_migrations.refuse_foreign(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        schema_migrations.migrate(connection)
    except sqlite3.OperationalError as error:
        if give_up or "locked" not in str(error):
            raise
        return False
    return True


def _check(connection: sqlite3.Connection) -> None:
    """Check for damage after a kill or a crash, for a bounded time: checking a gigabyte would delay the start."""
    try:
        with query_time_limit(connection, _CHECK_SECONDS):
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError:
        return  # time is up: the pages that were checked are sound
    if found != "ok":
        raise sqlite3.DatabaseError(found.splitlines()[-1])


@contextmanager
def query_time_limit(connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """Within it, queries raise sqlite3.OperationalError after this time."""
    deadline = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _OPERATIONS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)


def _bound_each_row(connection: sqlite3.Connection, seconds: float) -> None:
    """Stop a query that finds no row for this time: the pages of a damaged file may form a circle.

    The time that the reader spends between two rows is not counted. A row costs 0.1 us more (measured).
    """
    left, checked_t, found = seconds, time.monotonic(), False

    def row(_: sqlite3.Cursor, values: tuple[Any, ...]) -> tuple[Any, ...]:
        nonlocal found
        found = True
        return values

    def is_over() -> bool:
        nonlocal left, checked_t, found
        now = time.monotonic()
        left = seconds if found else left - min(now - checked_t, _GAP_SECONDS)
        checked_t, found = now, False
        return left < 0

    connection.row_factory = row
    connection.set_progress_handler(is_over, _OPERATIONS)


def _set_aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    for side in _SIDES:
        try:
            path.with_name(path.name + side).rename(aside.with_name(aside.name + side))
        except FileNotFoundError:
            pass
    return aside


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
