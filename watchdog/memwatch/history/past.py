"""What a history file holds: its runs, and the events of each again."""

from __future__ import annotations

import heapq
import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from memwatch.core.model import Event, Sample, Sampled, Target
from memwatch.errors import HistoryError
from memwatch.history import codec, files
from memwatch.history.schema import refuse_foreign

# (records of a run, the grid that its replay reads): about 5000 samples at most, for a start must not take long
_REPLAY_GRIDS = ((5_000, 1), (50_000, 10), (300_000, 60))
_REPLAY_RECENT = 1200  # the latest records, about the last 10 minutes, are read whole
_SAMPLES = """SELECT seq, t, resource, used, bound, origins.text, headroom
    FROM samples {} LEFT JOIN origins ON origin = origins.id WHERE run = ? AND {} ORDER BY seq, slot"""


_RUN_OF = """SELECT runs.run_id FROM attempts JOIN runs ON runs.id = attempts.run
    WHERE boot_id = ? AND pid = ? AND start_ticks = ? ORDER BY runs.id DESC LIMIT 1"""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run of a history."""

    run_id: str
    begun_t: float
    command: str


def runs(path: Path) -> list[PastRun]:
    """All runs in a file, the latest first; HistoryError when it is none of memwatch's."""
    try:
        with closing(files.open_for_reading(path)) as connection:
            refuse_foreign(connection)
            rows = connection.execute("SELECT run_id, created, command FROM runs ORDER BY id DESC").fetchall()
    except (sqlite3.Error, OSError) as error:
        raise HistoryError(f"history {path}: {error}", "name a history file: memwatch report FILE") from error
    return [PastRun(*row) for row in rows]


def run_of(path: Path, target: Target) -> str:
    """The run that a process was watched in last; empty when it was in none, or the file cannot be read."""
    process = (target.boot_id, target.pid, target.start_ticks)
    try:
        with closing(files.open_for_reading(path)) as connection:
            refuse_foreign(connection)
            found = connection.execute(_RUN_OF, process).fetchone()
    except (sqlite3.Error, OSError, HistoryError):
        return ""
    return str(found[0]) if found is not None else ""


def events(path: Path, run_id: str) -> Iterator[Event]:
    """All stored events of a run in order, `Sampled` with usages only, to feed a fresh engine with.

    Of a run with very many samples the older ones come on a coarser grid. HistoryError when it cannot be read.
    """
    try:
        with closing(files.open_for_reading(path)) as connection:
            found = connection.execute("SELECT id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            if found is not None:
                merged = heapq.merge(_events(connection, found[0]), _samples(connection, found[0]), key=_first)
                yield from (event for _, event in merged)
    except (sqlite3.Error, OSError) as error:
        hint = "watching goes on without the past; move the file away to begin a new one"
        raise HistoryError(f"history {path}: run {run_id} cannot be read: {error}", hint) from error


def _first(pair: tuple[int, Event]) -> int:
    return pair[0]


def _events(connection: sqlite3.Connection, run: int) -> Iterator[tuple[int, Event]]:
    rows = connection.execute("SELECT seq, kind, json FROM events WHERE run = ? ORDER BY seq", (run,))
    for seq, kind, json in rows:
        event = codec.decode_event(kind, json)
        if event is not None:
            yield seq, event


def _samples(connection: sqlite3.Connection, run: int) -> Iterator[tuple[int, Event]]:
    latest = connection.execute("SELECT max(seq) FROM samples WHERE run = ?", (run,)).fetchone()[0] or 0
    grid = next((grid for records, grid in _REPLAY_GRIDS if latest <= records), 600)
    recent = latest - _REPLAY_RECENT if grid > 1 else 0
    # INDEXED BY and the index's own condition: SQLite would scan a month of rows otherwise
    index, coarse = ("INDEXED BY coarse_samples", "AND grid >= 60") if grid >= 60 else ("", "")
    older = connection.execute(_SAMPLES.format(index, f"seq < ? {coarse} AND grid >= {grid:d}"), (run, recent))
    newer = connection.execute(_SAMPLES.format("", "seq >= ?"), (run, recent))
    rows = itertools.chain(older, newer)
    for seq, group in itertools.groupby(rows, key=_first):
        usages = list(group)
        yield seq, Sampled(usages[0][1], Sample(tuple(codec.decode_usage(row[2:]) for row in usages)))
