"""Reads a history file: its runs, and the events, samples and notices of each."""

from __future__ import annotations

import heapq
import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memwatch.core.events import Event, Notice, SampleBatch, Sampled, UsageSeries
from memwatch.core.measurements import Target
from memwatch.errors import HistoryError
from memwatch.history import database_file, row_codec

MAX_REPLAYED_SAMPLES = 5_000  # Samples, about, that a restarted engine is fed: a bound on the time of a start.
MAX_REPORT_SAMPLES = 150_000  # Samples, about, in a report: a bound on its time.
MAX_BATCH_SAMPLES = 1024  # Samples in a batch: a bound on memory.
StoredSample = tuple[float, list[row_codec.SampleRow]]
_GRIDS = (1, 10, 60)  # Seconds; the finest grid with few enough samples is read.
_REPLAY_RECENT = 1200  # The latest records, about the last 10 minutes, are all read.
_SAMPLES = """SELECT seq, t, resource, used, bound, origins.text, headroom, counts.text
    FROM samples {} LEFT JOIN origins ON origin = origins.id LEFT JOIN origins AS counts ON counted = counts.id
    WHERE run = ? AND {} ORDER BY seq, slot"""


_END = "SELECT seq, t FROM samples WHERE run = ? {} ORDER BY seq {} LIMIT 1"
_WATCHES = "SELECT seq, t, version, settings FROM watches WHERE run = ? ORDER BY seq"
_LATEST = """SELECT max((SELECT coalesce(max(seq), 0) FROM events WHERE run = :run),
    (SELECT coalesce(max(seq), 0) FROM samples WHERE run = :run),
    (SELECT coalesce(max(seq), 0) FROM notices WHERE run = :run))"""
_EVENTS = "SELECT seq, kind, json FROM events WHERE run = ?"
_NOTICES = "SELECT seq, t, event, text, json FROM notices WHERE run = ?"
_RUNS = """SELECT -runs.id, runs.run_id, created, command, host,
    coalesce((SELECT t FROM samples WHERE run = runs.id ORDER BY seq DESC LIMIT 1), created),
    EXISTS (SELECT 1 FROM events WHERE run = runs.id AND kind = 'Diagnosed'),
    boot_id, pid, start_ticks, max(attempt)
    FROM runs JOIN attempts ON run = runs.id GROUP BY runs.id ORDER BY runs.id DESC"""
_RUN_OF = """SELECT runs.run_id FROM attempts JOIN runs ON runs.id = attempts.run
    WHERE boot_id = ? AND pid = ? AND start_ticks = ? ORDER BY runs.id DESC LIMIT 1"""


RUNS_SECONDS = 10.0  # Timeout of the list of runs: pages of a damaged file may form a circle.
_POOLS = 1024  # Rows of a sample: a bound on those of a damaged file.
_REAL, _WHOLE, _TEXT, _NOTHING, _JSON = float, int, str, type(None), (bytes, str)


RowTypes = frozenset[tuple[type, ...]]


def _shape(*columns: type | tuple[type, ...]) -> RowTypes:
    """Return the types that a row may have: SQLite does not enforce those of its columns."""
    return frozenset(itertools.product(*(one if isinstance(one, tuple) else (one,) for one in columns)))


_OF_SAMPLES = _shape(
    *(_WHOLE, _REAL, _TEXT, _WHOLE, (_WHOLE, _NOTHING)), *((_TEXT, _NOTHING), (_WHOLE, _NOTHING), (_TEXT, _NOTHING))
)
_OF_ENDS = _shape(_WHOLE, _REAL)
_OF_EVENTS = _shape(_WHOLE, _TEXT, _JSON)
_OF_NOTICES = _shape(_WHOLE, _REAL, _TEXT, _TEXT, _JSON)
_OF_WATCHES = _shape(_WHOLE, _REAL, _TEXT, _JSON)
_OF_RUNS = _shape(_WHOLE, _TEXT, _REAL, _TEXT, _TEXT, _REAL, _WHOLE, _TEXT, _WHOLE, _WHOLE, _WHOLE)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run in a history file."""

    run_id: str
    begun_t: float
    command: str
    host: str
    latest_t: float  # of its latest sample
    was_examined: bool
    attempts: int  # trainer processes, one after the other
    target: Target  # its latest process
    attempt: int | None = None  # which of them is meant, from 0; None: all

    def elapsed_share(self, event: Event | SampleBatch) -> float:
        """Return the share of the run that had passed at a time, 0 to 1."""
        t = event.times[0] if isinstance(event, SampleBatch) else event.t
        lasted = self.latest_t - self.begun_t
        return min(1.0, max(0.0, (t - self.begun_t) / lasted)) if lasted > 0 else 1.0


@dataclass(frozen=True, slots=True)
class StoredWatch:
    """One engine's part of a run."""

    begun_seq: int
    t: float
    version: str  # of memwatch
    settings: bytes  # JSON
    end_seq: int  # where the next one began; of the last, after all its records so far

    @property
    def sql_condition(self) -> str:
        """The condition for its own rows."""
        return f"AND seq > {self.begun_seq:d} AND seq < {self.end_seq:d}"


def stored_runs(path: Path) -> list[StoredRun]:
    """Read all runs in a file, the latest first; HistoryError when it is none of memwatch's."""
    try:
        with (
            closing(database_file.open_read_only(path)) as connection,
            database_file.query_time_limit(connection, RUNS_SECONDS),
        ):
            rows = list(validated_rows(connection.execute(_RUNS), _OF_RUNS))
    except (sqlite3.Error, OSError) as error:
        raise HistoryError(f"history {path}: {error}", "name a history file: memwatch report FILE") from error
    return [
        StoredRun(run_id, begun_t, command, host, latest_t, bool(examined), 1 + attempt, Target(boot_id, pid, ticks))
        for _, run_id, begun_t, command, host, latest_t, examined, boot_id, pid, ticks, attempt in rows
    ]


def run_id_of(path: Path, target: Target) -> str:
    """Return the last run in which a process was watched; empty without one, or when the file cannot be read."""
    process = (target.boot_id, target.pid, target.start_ticks)
    try:
        with closing(database_file.open_read_only(path)) as connection:
            found = connection.execute(_RUN_OF, process).fetchone()
    except (sqlite3.Error, OSError, HistoryError):
        return ""
    return str(found[0]) if found is not None else ""


def events_to_replay(path: Path, run_id: str) -> Iterator[Event]:
    """Yield all stored events of a run in order, `Sampled` with usages only, to feed a new engine.

    Of a run with very many samples the older ones come on a coarser grid. HistoryError when it cannot be read.
    """
    with _run(path, run_id) as (connection, run):
        yield from _one_by_one(_stored_events(connection, run, MAX_REPLAYED_SAMPLES))


def event_batches(path: Path, of: StoredRun) -> Iterator[Event | SampleBatch]:
    """Yield the events of a run, consecutive samples in batches; on a coarser grid only beyond 150,000 samples."""
    with _run(path, of.run_id) as (connection, run):
        yield from _together(_stored_events(connection, run, MAX_REPORT_SAMPLES, _of(of.attempt)))


def watches(path: Path, of: StoredRun) -> list[StoredWatch]:
    """Read the engines that watched the run, in order; HistoryError when it cannot be read."""
    with _run(path, of.run_id) as (connection, run):
        rows = list(validated_rows(connection.execute(_WATCHES, (run,)), _OF_WATCHES))
        latest = latest_seq(connection, run)
    ends = [*(seq for seq, *_ in rows), latest + 1][1:]
    return [
        StoredWatch(seq, t, version, settings, end) for (seq, t, version, settings), end in zip(rows, ends, strict=True)
    ]


def events_before(path: Path, of: StoredRun, watch: StoredWatch) -> Iterator[Event]:
    """Yield the events that its engine was fed at its start, as they were then."""
    with _run(path, of.run_id) as (connection, run):
        yield from _one_by_one(_stored_events(connection, run, MAX_REPLAYED_SAMPLES, f"AND seq < {watch.begun_seq:d}"))


def events_during(path: Path, of: StoredRun, watch: StoredWatch) -> Iterator[Event | SampleBatch]:
    """Yield the events that its engine was fed after its start."""
    with _run(path, of.run_id) as (connection, run):
        yield from _together(_stored_events(connection, run, None, watch.sql_condition))


def notices_during(path: Path, of: StoredRun, watch: StoredWatch) -> list[Notice]:
    """Read the notices of a watch, in order; HistoryError when they cannot be read."""
    return _notices(path, of, watch.sql_condition)


def notices(path: Path, of: StoredRun) -> list[Notice]:
    """Read the notices of a run, in order; HistoryError when they cannot be read."""
    return _notices(path, of, _of(of.attempt))


def _notices(path: Path, of: StoredRun, which: str) -> list[Notice]:
    with _run(path, of.run_id) as (connection, run):
        rows = validated_rows(connection.execute(f"{_NOTICES} {which} ORDER BY seq", (run,)), _OF_NOTICES)
        return [Notice(t, event, text, row_codec.decode_fields(json)) for _, t, event, text, json in rows]


def latest_seq(connection: sqlite3.Connection, run: int) -> int:
    """Return the highest `seq` of a run; 0 when it has no records."""
    [(latest,)] = validated_rows(connection.execute(_LATEST, {"run": run}), _shape(_WHOLE))
    return int(latest)


def validated_rows(rows: Iterable[tuple[Any, ...]], shape: RowTypes, alike: int = 1) -> Iterator[tuple[Any, ...]]:
    """Yield the rows; sqlite3.DatabaseError at the first that no memwatch can have written.

    They come in the order of their first column, in which at most so many are `alike`: pages of a damaged file may lead
    in a circle.
    """
    before, count = None, 0
    times = [i for i, kind in enumerate(next(iter(shape))) if kind is float]
    for row in rows:
        if (*map(type, row),) not in shape or not all(
            -row_codec.MAX_TIMESTAMP < row[i] < row_codec.MAX_TIMESTAMP for i in times
        ):
            raise sqlite3.DatabaseError("a row holds what no memwatch has written")
        count = count + 1 if row[0] == before else 1
        if count > alike or (before is not None and row[0] < before):
            raise sqlite3.DatabaseError("its rows are in no order")
        before = row[0]
        yield row


@contextmanager
def _run(path: Path, run_id: str) -> Iterator[tuple[sqlite3.Connection, int]]:
    """Open the file; yield its connection and the id of the run."""
    try:
        with closing(database_file.open_read_only(path)) as connection:
            found = connection.execute("SELECT id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            yield connection, -1 if found is None else int(found[0])
    except (sqlite3.Error, OSError) as error:
        hint = "it may be damaged: move it away, and memwatch begins a new one"
        raise HistoryError(f"history {path}: run {run_id} cannot be read: {error}", hint) from error


def _stored_events(
    connection: sqlite3.Connection, run: int, most: int | None, which: str = ""
) -> Iterator[tuple[int, Event | StoredSample]]:
    """Yield the events of a run with their `seq`; beyond `most` samples the older ones are on a coarser grid."""
    return heapq.merge(_events(connection, run, which), _stored_samples(connection, run, most, which), key=_first)


def _one_by_one(told: Iterable[tuple[int, Event | StoredSample]]) -> Iterator[Event]:
    for _, one in told:
        yield _sampled(*one) if isinstance(one, tuple) else one


def _together(told: Iterable[tuple[int, Event | StoredSample]]) -> Iterator[Event | SampleBatch]:
    for kind, group in itertools.groupby(told, key=_alike):
        if kind is None:
            yield from _one_by_one(group)
            continue
        looks = [one for _, one in group if isinstance(one, tuple)]
        for i in range(0, len(looks), MAX_BATCH_SAMPLES):
            yield _stretch(looks[i : i + MAX_BATCH_SAMPLES])


def _of(attempt: int | None) -> str:
    return "" if attempt is None else f"AND attempt = {attempt:d}"


def _first(pair: Sequence[Any]) -> Any:
    return pair[0]


def _events(connection: sqlite3.Connection, run: int, which: str) -> Iterator[tuple[int, Event]]:
    rows = connection.execute(f"{_EVENTS} {which} ORDER BY seq", (run,))
    for seq, kind, json in validated_rows(rows, _OF_EVENTS):
        event = row_codec.decode_event(kind, json)
        if event is not None:
            yield seq, event


def _stored_samples(
    connection: sqlite3.Connection, run: int, most: int | None, which: str
) -> Iterator[tuple[int, StoredSample]]:
    grid, recent = _thinned(connection, run, most, which)
    # INDEXED BY and the index's own condition: SQLite would scan a month of rows otherwise
    index, coarse = ("INDEXED BY coarse_samples", "AND grid >= 60") if grid >= 60 else ("", "")
    older = connection.execute(_SAMPLES.format(index, f"seq < ? {coarse} AND grid >= {grid:d} {which}"), (run, recent))
    newer = connection.execute(_SAMPLES.format("", f"seq >= ? {which}"), (run, recent))
    for seq, group in itertools.groupby(validated_rows(itertools.chain(older, newer), _OF_SAMPLES, _POOLS), key=_first):
        rows = list(group)
        yield seq, (rows[0][1], [row[2:] for row in rows])


def _thinned(connection: sqlite3.Connection, run: int, most: int | None, which: str) -> tuple[int, int]:
    """Return the grid to read, and the `seq` from which all samples are read."""
    ends = (validated_rows(connection.execute(_END.format(which, way), (run,)), _OF_ENDS) for way in ("ASC", "DESC"))
    (_, began_t), (latest, ended_t) = (next(end, (0, 0.0)) for end in ends)
    if most is None or latest <= most:
        return 0, 0
    seconds = ended_t - began_t
    return next((grid for grid in _GRIDS if seconds <= most * grid), 600), latest - _REPLAY_RECENT


def _sampled(t: float, rows: Sequence[row_codec.SampleRow]) -> Sampled:
    return Sampled(t, row_codec.decode_sample(rows))


def _alike(told: tuple[int, Event | StoredSample]) -> object:
    """Return a key that samples with the same limits and accounting share; None for other events."""
    if not isinstance(told[1], tuple) or not told[1][1][0][0]:
        return None
    return [(resource, bound, origin, counted) for resource, _, bound, origin, _, counted in told[1][1]]


def _stretch(looks: Sequence[StoredSample]) -> SampleBatch:
    pools = [_series(rows) for rows in zip(*[rows for _, rows in looks], strict=True)]
    return SampleBatch([t for t, _ in looks], tuple(pools), looks[0][1][0][5])


def _series(rows: Sequence[row_codec.SampleRow]) -> UsageSeries:
    resource, _, bound, origin, *_ = rows[0]
    used = [row[1] for row in rows]
    if bound is None:
        return UsageSeries(resource, used, None, "")
    taken = [bound - (headroom or 0) for *_, headroom, _ in rows]
    return UsageSeries(resource, used, bound, origin or "", None if taken == used else taken)
