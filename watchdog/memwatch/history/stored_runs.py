"""Reads a history file: its runs, and the events, samples and notices of each.

HistoryError when the file or the run cannot be read.
"""

from __future__ import annotations

import heapq
import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from memwatch.core.events import Event, Notice, SampleBatch, Sampled, UsageSeries, begin_t
from memwatch.core.measurements import Target
from memwatch.core.snapshot import EarlierRun
from memwatch.core.text_and_units import program_name
from memwatch.errors import HistoryError
from memwatch.history import database_file, row_codec

MAX_REPLAYED_SAMPLES = 5_000  # Samples, about, that a restarted engine is fed: a bound on the time of a start.
MAX_REPORT_SAMPLES = 150_000  # Samples, about, in a report: a bound on its time.
MAX_EARLIER_RUNS = 5  # Earlier runs on a page.
MAX_BATCH_SAMPLES = 1024  # Samples in a batch: a bound on memory.
_GRIDS = (1, 10, 60)  # Seconds; the finest grid with few enough samples is read.
_REPLAY_RECENT = 1200  # The latest records, about the last 10 minutes, are all read.
_RUNS_SECONDS = 10.0  # Timeout of the list of runs: pages of a damaged file may form a circle.
_EARLIER_SECONDS = 1.0  # Timeout of the earlier runs: a watch waits for them at its start.
_MAX_SEARCHED_RUNS = 200  # Latest runs, of any program, among which the earlier ones are searched.
_MAX_SAMPLE_ROWS = 1024  # Rows of a sample: a bound on those of a damaged file.

_SAMPLES = """SELECT seq, t, resource, used, bound, origins.text, headroom, counts.text
    FROM samples {} LEFT JOIN origins ON origin = origins.id LEFT JOIN origins AS counts ON counted = counts.id
    WHERE run = ? AND {} ORDER BY seq, slot"""
_END = "SELECT seq, t FROM samples WHERE run = ? {} ORDER BY seq {} LIMIT 1"
_WATCHES = "SELECT seq, t, version, settings FROM watches WHERE run = ? ORDER BY seq"
_LATEST = """SELECT max((SELECT coalesce(max(seq), 0) FROM events WHERE run = :run),
    (SELECT coalesce(max(seq), 0) FROM samples WHERE run = :run),
    (SELECT coalesce(max(seq), 0) FROM notices WHERE run = :run))"""
_EVENTS = "SELECT seq, kind, json FROM events WHERE run = ? {} ORDER BY seq"
_NOTICES = "SELECT seq, t, event, text, json FROM notices WHERE run = ? {} ORDER BY seq"
_RUNS = """SELECT -runs.id, runs.run_id, created, command, host,
    coalesce((SELECT t FROM samples WHERE run = runs.id ORDER BY seq DESC LIMIT 1), created),
    EXISTS (SELECT 1 FROM events WHERE run = runs.id AND kind = 'Diagnosed'),
    boot_id, pid, start_ticks, max(attempt), cause
    FROM runs JOIN attempts ON run = runs.id GROUP BY runs.id ORDER BY runs.id DESC"""
_EARLIER = """SELECT -runs.id, runs.run_id, created, command,
    coalesce((SELECT t FROM samples WHERE run = runs.id ORDER BY seq DESC LIMIT 1), created), max(attempt), cause
    FROM runs JOIN attempts ON run = runs.id WHERE runs.run_id != ? GROUP BY runs.id ORDER BY runs.id DESC LIMIT ?"""
_RUN_OF = """SELECT runs.run_id FROM attempts JOIN runs ON runs.id = attempts.run
    WHERE boot_id = ? AND pid = ? AND start_ticks = ? ORDER BY runs.id DESC LIMIT 1"""

RowTypes = frozenset[tuple[type, ...]]
StoredSample = tuple[float, list[row_codec.SampleRow]]  # time, a row for each resource


def _row_types(*columns: type | tuple[type, ...]) -> RowTypes:
    """Return the types that a row may have: SQLite does not enforce those of its columns."""
    return frozenset(itertools.product(*(one if isinstance(one, tuple) else (one,) for one in columns)))


_NULL, _JSON = type(None), (bytes, str)
_SAMPLE_TYPES = _row_types(int, float, str, int, (int, _NULL), (str, _NULL), (int, _NULL), (str, _NULL))
_END_TYPES = _row_types(int, float)
_EVENT_TYPES = _row_types(int, str, _JSON)
_NOTICE_TYPES = _row_types(int, float, str, str, _JSON)
_WATCH_TYPES = _row_types(int, float, str, _JSON)
_EARLIER_TYPES = _row_types(int, str, float, str, float, int, (str, _NULL))
_RUN_TYPES = _row_types(int, str, float, str, str, float, int, str, int, int, int, (str, _NULL))


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
    cause: str  # of that one's end; empty while it lives, and where nobody saw its end
    attempt: int | None = None  # the one that is meant, from 0; None: all

    def elapsed_share(self, event: Event | SampleBatch) -> float:
        """Return the share of the run that had passed at a time, 0 to 1."""
        t = begin_t(event)
        lasted = self.latest_t - self.begun_t
        return min(1.0, max(0.0, (t - self.begun_t) / lasted)) if lasted > 0 else 1.0

    @property
    def sql_condition(self) -> str:
        """The condition for rows of the attempt."""
        return "" if self.attempt is None else f"AND attempt = {self.attempt:d}"


@dataclass(frozen=True, slots=True)
class StoredWatch:
    """One engine's part of a run."""

    begun_seq: int
    t: float
    version: str  # of memwatch
    settings: bytes  # JSON
    end_seq: int  # where the next one began; for the last one, after the latest record

    @property
    def sql_condition(self) -> str:
        """The condition for its own rows."""
        return f"AND seq > {self.begun_seq:d} AND seq < {self.end_seq:d}"


def stored_runs(path: Path) -> list[StoredRun]:
    """Read all runs in a file, the latest first."""
    if not path.exists():
        raise HistoryError(f"history {path}: there is none yet", "memwatch --pid or memwatch run makes one")
    if path.is_dir():
        raise HistoryError(f"history {path}: it is a folder", "name a history file: memwatch report FILE")
    try:
        with (
            closing(database_file.open_read_only(path)) as connection,
            database_file.query_time_limit(connection, _RUNS_SECONDS),
        ):
            rows = list(_validated(connection.execute(_RUNS), _RUN_TYPES))
    except (sqlite3.Error, OSError) as error:
        raise HistoryError(f"history {path}: {error}", "name a history file: memwatch report FILE") from error
    return [
        StoredRun(
            run_id,
            begun_t,
            command,
            host,
            latest_t,
            was_examined=bool(examined),
            attempts=1 + attempt,
            target=Target(boot_id, pid, ticks),
            cause=cause or "",
        )
        for _, run_id, begun_t, command, host, latest_t, examined, boot_id, pid, ticks, attempt, cause in rows
    ]


def earlier_runs(path: Path, run_id: str, command: str) -> list[EarlierRun]:
    """Read the latest runs of the program of `command`, without the run of that ID; none where that fails."""
    name = program_name(command)
    try:
        with (
            closing(database_file.open_read_only(path)) as connection,
            database_file.query_time_limit(connection, _EARLIER_SECONDS),
        ):
            rows = list(_validated(connection.execute(_EARLIER, (run_id, _MAX_SEARCHED_RUNS)), _EARLIER_TYPES))
    except (sqlite3.Error, OSError, HistoryError):
        return []
    alike = (row for row in rows if program_name(row[3]) == name)
    return [
        EarlierRun(other_id, begun_t, latest_t - begun_t, cause or "")
        for _, other_id, begun_t, _, latest_t, _, cause in itertools.islice(alike, MAX_EARLIER_RUNS)
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


def events_to_replay(path: Path, run_id: str, before: StoredWatch | None = None) -> Iterator[Event]:
    """Yield the stored events of a run in order, `Sampled` with usages only, to feed a new engine.

    With `before`, those that the engine of that watch was fed at its start. If there are very many samples, the older
    ones come on a coarser grid.
    """
    condition = "" if before is None else f"AND seq < {before.begun_seq:d}"
    with _run(path, run_id) as (connection, run):
        yield from _one_by_one(_stored_events(connection, run, MAX_REPLAYED_SAMPLES, condition))


def event_batches(path: Path, of: StoredRun, watch: StoredWatch | None = None) -> Iterator[Event | SampleBatch]:
    """Yield the events of a run, or those fed to the engine of a watch; consecutive samples come in batches.

    Beyond 150,000 samples, the older samples of a run come on a coarser grid; a watch has all of its samples.
    """
    most, condition = (MAX_REPORT_SAMPLES, of.sql_condition) if watch is None else (None, watch.sql_condition)
    with _run(path, of.run_id) as (connection, run):
        for key, group in itertools.groupby(_stored_events(connection, run, most, condition), key=_batch_key):
            if key is None:
                yield from _one_by_one(group)
                continue
            samples = [one for _, one in group if isinstance(one, tuple)]
            for i in range(0, len(samples), MAX_BATCH_SAMPLES):
                yield _batch(samples[i : i + MAX_BATCH_SAMPLES])


def watches(path: Path, of: StoredRun) -> list[StoredWatch]:
    """Read the engines that watched the run, in order."""
    with _run(path, of.run_id) as (connection, run):
        rows = list(_validated(connection.execute(_WATCHES, (run,)), _WATCH_TYPES))
        latest = latest_seq(connection, run)
    ends = [*(seq for seq, *_ in rows), latest + 1][1:]
    return [
        StoredWatch(seq, t, version, settings, end) for (seq, t, version, settings), end in zip(rows, ends, strict=True)
    ]


def notices(path: Path, of: StoredRun, watch: StoredWatch | None = None) -> list[Notice]:
    """Read the notices of a run, or of a watch, in order."""
    condition = of.sql_condition if watch is None else watch.sql_condition
    with _run(path, of.run_id) as (connection, run):
        rows = _validated(connection.execute(_NOTICES.format(condition), (run,)), _NOTICE_TYPES)
        return [Notice(t, event, text, row_codec.decode_fields(json)) for _, t, event, text, json in rows]


def latest_seq(connection: sqlite3.Connection, run: int) -> int:
    """Return the highest `seq` of a run; 0 when it has no records. Raises sqlite3.Error."""
    [(latest,)] = _validated(connection.execute(_LATEST, {"run": run}), _row_types(int))
    return int(latest)


@contextmanager
def _run(path: Path, run_id: str) -> Iterator[tuple[sqlite3.Connection, int]]:
    """Open the file; yield its connection and the number of the run, -1 if there is no such run."""
    try:
        with closing(database_file.open_read_only(path)) as connection:
            found = connection.execute("SELECT id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
            yield connection, -1 if found is None else int(found[0])
    except (sqlite3.Error, OSError) as error:
        hint = "it may be damaged: move it away, and memwatch begins a new one"
        raise HistoryError(f"history {path}: run {run_id} cannot be read: {error}", hint) from error


def _validated(rows: Iterable[tuple[Any, ...]], types: RowTypes, most_alike: int = 1) -> Iterator[tuple[Any, ...]]:
    """Yield the rows; sqlite3.DatabaseError at the first that no memwatch can have written.

    Rows are ordered by their first column, in which at most `most_alike` are the same: pages of a damaged file may form
    a circle.
    """
    before, count = None, 0
    times = [i for i, kind in enumerate(next(iter(types))) if kind is float]
    most = row_codec.MAX_TIMESTAMP
    for row in rows:
        if (*map(type, row),) not in types or not all(-most < row[i] < most for i in times):
            raise sqlite3.DatabaseError("a row holds values that memwatch never writes")
        count = count + 1 if row[0] == before else 1
        if count > most_alike or (before is not None and row[0] < before):
            raise sqlite3.DatabaseError("its rows are out of order")
        before = row[0]
        yield row


# --- events and samples ---------------------------------------------------------------------------------------------


def _stored_events(
    connection: sqlite3.Connection, run: int, most: int | None, condition: str
) -> Iterator[tuple[int, Event | StoredSample]]:
    """Yield the events of a run with their `seq`; beyond `most` samples the older ones are on a coarser grid."""
    events, samples = _events(connection, run, condition), _samples(connection, run, most, condition)
    return heapq.merge(events, samples, key=itemgetter(0))


def _events(connection: sqlite3.Connection, run: int, condition: str) -> Iterator[tuple[int, Event]]:
    for seq, kind, json in _validated(connection.execute(_EVENTS.format(condition), (run,)), _EVENT_TYPES):
        event = row_codec.decode_event(kind, json)
        if event is not None:
            yield seq, event


def _samples(
    connection: sqlite3.Connection, run: int, most: int | None, condition: str
) -> Iterator[tuple[int, StoredSample]]:
    grid, recent = _grid(connection, run, most, condition)
    # INDEXED BY and the index's own condition: SQLite would scan a month of rows otherwise
    index, coarse = ("INDEXED BY coarse_samples", "AND grid >= 60") if grid >= 60 else ("", "")
    older = _SAMPLES.format(index, f"seq < ? {coarse} AND grid >= {grid:d} {condition}")
    newer = _SAMPLES.format("", f"seq >= ? {condition}")
    found = itertools.chain(connection.execute(older, (run, recent)), connection.execute(newer, (run, recent)))
    for seq, group in itertools.groupby(_validated(found, _SAMPLE_TYPES, _MAX_SAMPLE_ROWS), key=itemgetter(0)):
        rows = list(group)
        yield seq, (rows[0][1], [row[2:] for row in rows])


def _grid(connection: sqlite3.Connection, run: int, most: int | None, condition: str) -> tuple[int, int]:
    """Return the grid to read, and the `seq` from which all samples are read."""
    ends = (connection.execute(_END.format(condition, way), (run,)) for way in ("ASC", "DESC"))
    (_, began_t), (latest, ended_t) = (next(_validated(end, _END_TYPES), (0, 0.0)) for end in ends)
    if most is None or latest <= most:
        return 0, 0
    seconds = ended_t - began_t
    return next((grid for grid in _GRIDS if seconds <= most * grid), 600), latest - _REPLAY_RECENT


def _one_by_one(stored: Iterable[tuple[int, Event | StoredSample]]) -> Iterator[Event]:
    for _, one in stored:
        yield Sampled(one[0], row_codec.decode_sample(one[1])) if isinstance(one, tuple) else one


def _batch_key(stored: tuple[int, Event | StoredSample]) -> object:
    """Return a key that samples with the same limits and accounting share; None for anything else."""
    _, one = stored
    if not isinstance(one, tuple) or not one[1][0][0]:
        return None
    return [(resource, bound, origin, counted) for resource, _, bound, origin, _, counted in one[1]]


def _batch(samples: Sequence[StoredSample]) -> SampleBatch:
    series = [_series(rows) for rows in zip(*[rows for _, rows in samples], strict=True)]
    return SampleBatch([t for t, _ in samples], tuple(series), samples[0][1][0][5])


def _series(rows: Sequence[row_codec.SampleRow]) -> UsageSeries:
    resource, _, bound, origin, *_ = rows[0]
    used = [row[1] for row in rows]
    if bound is None:
        return UsageSeries(resource, used, None, "")
    taken = [bound - (headroom or 0) for *_, headroom, _ in rows]
    return UsageSeries(resource, used, bound, origin or "", None if taken == used else taken)
