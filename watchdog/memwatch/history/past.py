"""What a history file holds: its runs, and the events of each again."""

from __future__ import annotations

import heapq
import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memwatch import wire
from memwatch.core.events import Event, Notice, Sampled, Series, Stretch
from memwatch.core.model import Sample, Target
from memwatch.errors import HistoryError
from memwatch.history import codec, files
from memwatch.history.schema import refuse_foreign

REPLAYED = 5_000  # samples, about, at most: a start must not take long
DRAWN = 150_000  # of a report
BLOCK = 1024  # looks of a stretch, at most
Look = tuple[float, list[codec.SampleRow]]
_GRIDS = (1, 10, 60)  # of which the first is read that holds so few
_REPLAY_RECENT = 1200  # the latest records, about the last 10 minutes, are read whole
_SAMPLES = """SELECT seq, t, resource, used, bound, origins.text, headroom
    FROM samples {} LEFT JOIN origins ON origin = origins.id WHERE run = ? AND {} ORDER BY seq, slot"""


_EVENTS = "SELECT seq, kind, json FROM events WHERE run = ?"
_NOTICES = "SELECT t, event, text, json FROM notices WHERE run = ?"
_RUNS = """SELECT runs.run_id, created, command, host,
    coalesce((SELECT t FROM samples WHERE run = runs.id ORDER BY seq DESC LIMIT 1), created),
    EXISTS (SELECT 1 FROM events WHERE run = runs.id AND kind = 'Diagnosed'),
    boot_id, pid, start_ticks, max(attempt)
    FROM runs JOIN attempts ON run = runs.id GROUP BY runs.id ORDER BY runs.id DESC"""
_RUN_OF = """SELECT runs.run_id FROM attempts JOIN runs ON runs.id = attempts.run
    WHERE boot_id = ? AND pid = ? AND start_ticks = ? ORDER BY runs.id DESC LIMIT 1"""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run of a history."""

    run_id: str
    begun_t: float
    command: str
    host: str
    latest_t: float  # of its latest sample
    was_examined: bool
    attempts: int  # trainer processes, one after the other
    target: Target  # its latest process
    attempt: int | None = None  # which of them is meant, from 0; None: all

    def share(self, told: Event | Stretch) -> float:
        """How much of the run had passed at that time, 0 to 1."""
        t = told.times[0] if isinstance(told, Stretch) else told.t
        lasted = self.latest_t - self.begun_t
        return min(1.0, max(0.0, (t - self.begun_t) / lasted)) if lasted > 0 else 1.0


def runs(path: Path) -> list[PastRun]:
    """All runs in a file, the latest first; HistoryError when it is none of memwatch's."""
    try:
        with closing(files.open_for_reading(path)) as connection:
            refuse_foreign(connection)
            rows = connection.execute(_RUNS).fetchall()
    except (sqlite3.Error, OSError) as error:
        raise HistoryError(f"history {path}: {error}", "name a history file: memwatch report FILE") from error
    return [
        PastRun(run_id, begun_t, command, host, latest_t, bool(examined), 1 + attempt, Target(boot_id, pid, ticks))
        for run_id, begun_t, command, host, latest_t, examined, boot_id, pid, ticks, attempt in rows
    ]


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
    with _run(path, run_id) as (connection, run):
        for _, told in _told(connection, run, REPLAYED, None):
            yield _sampled(*told) if isinstance(told, tuple) else told


def stretches(path: Path, of: PastRun) -> Iterator[Event | Stretch]:
    """As events, on a coarser grid only beyond 150,000 samples, and looks that nothing comes between together."""
    with _run(path, of.run_id) as (connection, run):
        for kind, group in itertools.groupby(_told(connection, run, DRAWN, of.attempt), key=_alike):
            told = [one for _, one in group]
            if kind is None:
                yield from (_sampled(*one) if isinstance(one, tuple) else one for one in told)
                continue
            looks = [one for one in told if isinstance(one, tuple)]
            for i in range(0, len(looks), BLOCK):
                yield _stretch(looks[i : i + BLOCK])


def notices(path: Path, of: PastRun) -> list[Notice]:
    """All that was told of a run, in order; HistoryError when it cannot be read."""
    with _run(path, of.run_id) as (connection, run):
        rows = connection.execute(f"{_NOTICES} {_of(of.attempt)} ORDER BY seq", (run,))
        return [Notice(t, event, text, wire.from_json(json, dict)) for t, event, text, json in rows]


@contextmanager
def _run(path: Path, run_id: str) -> Iterator[tuple[sqlite3.Connection, int]]:
    """The file, and the number that the run has in it."""
    try:
        with closing(files.open_for_reading(path)) as connection:
            found = connection.execute("SELECT id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            yield connection, -1 if found is None else found[0]
    except (sqlite3.Error, OSError) as error:
        hint = "it may be damaged: move it away, and memwatch begins a new one"
        raise HistoryError(f"history {path}: run {run_id} cannot be read: {error}", hint) from error


def _told(
    connection: sqlite3.Connection, run: int, most: int, attempt: int | None
) -> Iterator[tuple[int, Event | Look]]:
    """What was told of a run, with its place; of more than `most` samples the older ones on a coarser grid."""
    return heapq.merge(_events(connection, run, attempt), _looks(connection, run, most, attempt), key=_first)


def _of(attempt: int | None) -> str:
    """A condition."""
    return "" if attempt is None else f"AND attempt = {attempt:d}"


def _first(pair: Sequence[Any]) -> Any:
    return pair[0]


def _events(connection: sqlite3.Connection, run: int, attempt: int | None) -> Iterator[tuple[int, Event]]:
    rows = connection.execute(f"{_EVENTS} {_of(attempt)} ORDER BY seq", (run,))
    for seq, kind, json in rows:
        event = codec.decode_event(kind, json)
        if event is not None:
            yield seq, event


def _looks(connection: sqlite3.Connection, run: int, most: int, attempt: int | None) -> Iterator[tuple[int, Look]]:
    latest = connection.execute("SELECT max(seq) FROM samples WHERE run = ?", (run,)).fetchone()[0] or 0
    grid = next((grid for grid in _GRIDS if latest <= most * grid), 600)
    recent = latest - _REPLAY_RECENT if grid > 1 else 0
    # INDEXED BY and the index's own condition: SQLite would scan a month of rows otherwise
    index, coarse = ("INDEXED BY coarse_samples", "AND grid >= 60") if grid >= 60 else ("", "")
    which = _of(attempt)
    older = connection.execute(_SAMPLES.format(index, f"seq < ? {coarse} AND grid >= {grid:d} {which}"), (run, recent))
    newer = connection.execute(_SAMPLES.format("", f"seq >= ? {which}"), (run, recent))
    for seq, group in itertools.groupby(itertools.chain(older, newer), key=_first):
        rows = list(group)
        yield seq, (rows[0][1], [row[2:] for row in rows])


def _sampled(t: float, rows: Sequence[codec.SampleRow]) -> Sampled:
    return Sampled(t, Sample(tuple(map(codec.decode_usage, rows))))


def _alike(told: tuple[int, Event | Look]) -> object:
    """The same for looks under the same limits; None for all else."""
    if not isinstance(told[1], tuple):
        return None
    return [(resource, bound, origin) for resource, _, bound, origin, _ in told[1][1]]


def _stretch(looks: Sequence[Look]) -> Stretch:
    pools = [_series(rows) for rows in zip(*(rows for _, rows in looks), strict=True)]
    return Stretch([t for t, _ in looks], tuple(pools))


def _series(rows: Sequence[codec.SampleRow]) -> Series:
    resource, _, bound, origin, _ = rows[0]
    used = [row[1] for row in rows]
    if bound is None:
        return Series(resource, used, None, "")
    taken = [bound - (headroom or 0) for *_, headroom in rows]
    return Series(resource, used, bound, origin or "", None if taken == used else taken)
