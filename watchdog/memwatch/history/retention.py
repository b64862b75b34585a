"""Limits the size of the history: removes the oldest runs, then details of the watched run, then its beginning."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

RECORDS_PER_STEP = 5_000  # Records per step: the file is locked for some milliseconds (measured).
FULL_DETAIL_RECORDS = 20_000  # Latest records of the watched run that keep all detail (chosen).
SHRINK_TO_SHARE = 0.9  # Share of the limit to which a larger file shrinks (chosen).
_GRIDS = (1, 10, 60, 600)  # Seconds; a sample on none of them, nor on a coarser one, is removed.
_OTHERS = """SELECT runs.id, watcher_pid, watcher_start_ticks FROM runs JOIN attempts ON run = runs.id
    WHERE runs.id != ? ORDER BY runs.id"""
_FIRST = "SELECT seq FROM {} WHERE run = ? ORDER BY seq LIMIT 1"
_REMOVE = "DELETE FROM {} WHERE run = ? AND seq < ?"
_LAST = "SELECT seq FROM samples WHERE run = ? ORDER BY seq DESC LIMIT 1"
# By table, the condition for records that may be removed; other events have no meaning without these two.
_REMOVABLE = {"samples": "", "notices": "", "events": "AND NOT kind IN ('Attached', 'Exited')"}

IsAnother = Callable[[int, int], bool]  # whether the PID and start ticks are those of another memwatch that runs


class Retention:
    """Shrinks a history file that has grown beyond a size, step by step, while a run is watched."""

    def __init__(self, most_bytes: int, is_another: IsAnother) -> None:
        self._most_bytes, self._is_another = most_bytes, is_another
        self._shrinks = False
        self._removed: int | None = None  # the run that is being removed, part by part
        self._level = self._seq = 0  # how far the watched run is thinned: index of the grid, and `seq`
        self._thinned = 0  # the `seq` up to which it has been thinned by all grids

    def step(self, connection: sqlite3.Connection, watched: int) -> bool:
        """Do a bounded part of the work within the caller's transaction; False: none is left. Raises sqlite3.Error.

        `watched` is the number of the run that is never removed.
        """
        if self._removed is None:
            self._shrinks = used_bytes(connection) > self._most_bytes * (SHRINK_TO_SHARE if self._shrinks else 1.0)
            if not self._shrinks:
                return False
            self._removed = self._oldest_but(connection, watched)
        if self._removed is None:
            return self._thin(connection, watched)
        if _remove_part(connection, self._removed):
            self._removed = None
        return True

    def _oldest_but(self, connection: sqlite3.Connection, watched: int) -> int | None:
        others: dict[int, bool] = {}
        for run, *watcher in connection.execute(_OTHERS, (watched,)):
            others[run] = others.get(run, False) or self._is_another(*watcher)
        return next((run for run, is_watched in others.items() if not is_watched), None)

    def _thin(self, connection: sqlite3.Connection, run: int) -> bool:
        """Thin out the older part of the run to ever coarser grids; after the coarsest, remove its oldest records."""
        last = connection.execute(_LAST, (run,)).fetchone()
        end = 0 if last is None else last[0] - FULL_DETAIL_RECORDS
        if end <= 0:
            return False
        _forget_watches(connection, run)
        if self._level == len(_GRIDS):
            self._level, self._thinned = 0, self._seq  # newer records are thinned before more of the oldest are removed
            return _remove_oldest(connection, run, end)
        upto = min(self._seq + RECORDS_PER_STEP, end)
        connection.execute(
            "DELETE FROM samples WHERE run = ? AND seq >= ? AND seq < ? AND grid < ?",
            (run, self._seq, upto, _GRIDS[self._level]),
        )
        self._seq = max(self._seq, upto)
        if self._seq >= end:
            self._level += 1
            self._seq = self._seq if self._level == len(_GRIDS) else self._thinned
        return True


def used_bytes(connection: sqlite3.Connection) -> int:
    """Return the bytes of the file without its free pages."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _remove_part(connection: sqlite3.Connection, run: int) -> bool:
    """Remove the first records of a run or, when it has none left, the run itself; True: the run was removed."""
    _forget_watches(connection, run)
    for table in ("samples", "events", "notices"):
        first = connection.execute(_FIRST.format(table), (run,)).fetchone()
        if first is not None:
            connection.execute(_REMOVE.format(table), (run, first[0] + RECORDS_PER_STEP))
            return False
    connection.execute("DELETE FROM attempts WHERE run = ?", (run,))
    connection.execute("DELETE FROM runs WHERE id = ?", (run,))
    return True


def _remove_oldest(connection: sqlite3.Connection, run: int, end: int) -> bool:
    """Remove some records from the run's beginning, up to `end`; False: there are none."""
    rows = [
        connection.execute(f"SELECT seq FROM {table} WHERE run = ? {condition} ORDER BY seq LIMIT 1", (run,)).fetchone()  # noqa: S608
        for table, condition in _REMOVABLE.items()
    ]
    first = min((row[0] for row in rows if row is not None), default=end)
    for table, condition in _REMOVABLE.items():
        bound = min(first + RECORDS_PER_STEP, end)
        connection.execute(f"DELETE FROM {table} WHERE run = ? AND seq < ? {condition}", (run, bound))  # noqa: S608
    return bool(first < end)


def _forget_watches(connection: sqlite3.Connection, run: int) -> None:
    """Remove the engines of a run that becomes incomplete: their decisions cannot be reproduced any more."""
    connection.execute("DELETE FROM watches WHERE run = ?", (run,))
