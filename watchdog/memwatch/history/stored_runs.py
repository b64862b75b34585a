"""What a history file holds: its runs, and the events of each again."""

from __future__ import annotations

import heapq
import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memwatch.core.engine.fast_forward import SampleBatch, UsageSeries
from memwatch.core.events import Event, Notice, Sampled
from memwatch.core.measurements import Target
from memwatch.errors import HistoryError
from memwatch.history import database_file, row_codec

MAX_REPLAYED_SAMPLES = 5_000  # samples, about, at most: a start must not take long
MAX_REPORT_SAMPLES = 150_000  # of a report
MAX_BATCH_SAMPLES = 1024  # looks of a stretch, at most
StoredSample = tuple[float, list[row_codec.SampleRow]]
_GRIDS = (1, 10, 60)  # seconds, of which the first is read that holds so few
_REPLAY_RECENT = 1200  # the latest records, about the last 10 minutes, are read whole
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


RUNS_SECONDS = 10.0  # for the list of them, at most: pages of a damaged file may lead in a circle
_POOLS = 1024  # of a look, at most
_REAL, _WHOLE, _TEXT, _NOTHING, _JSON = float, int, str, type(None), (bytes, str)


RowTypes = frozenset[tuple[type, ...]]


def _shape(*columns: type | tuple[type, ...]) -> RowTypes:
    """The types that a row may have: SQLite keeps in a column whatever a file has there."""
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

    def elapsed_share(self, told: Event | SampleBatch) -> float:
        """How much of the run had passed at that time, 0 to 1."""
        t = told.times[0] if isinstance(told, SampleBatch) else told.t
        lasted = self.latest_t - self.begun_t
        return min(1.0, max(0.0, (t - self.begun_t) / lasted)) if lasted > 0 else 1.0


@dataclass(frozen=True, slots=True)
class StoredWatch:
    """One engine's part of a run."""

    begun_seq: int
    t: float
    version: str  # of memwatch
    settings: bytes  # JSON
    end_seq: int  # where the next one began; of the last, after what it had told when it was asked for

    @property
    def sql_condition(self) -> str:
        """Of the rows that are its own."""
        return f"AND seq > {self.begun_seq:d} AND seq < {self.end_seq:d}"


def stored_runs(path: Path) -> list[StoredRun]:
    """All runs in a file, the latest first; HistoryError when it is none of memwatch's."""
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
    """The run that a process was watched in last; empty when it was in none, or the file cannot be read."""
    process = (target.boot_id, target.pid, target.start_ticks)
    try:
        with closing(database_file.open_read_only(path)) as connection:
            found = connection.execute(_RUN_OF, process).fetchone()
    except (sqlite3.Error, OSError, HistoryError):
        return ""
    return str(found[0]) if found is not None else ""


def events_to_replay(path: Path, run_id: str) -> Iterator[Event]:
    """All stored events of a run in order, `Sampled` with usages only, to feed a fresh engine with.

    Of a run with very many samples the older ones come on a coarser grid. HistoryError when it cannot be read.
    """
    with _run(path, run_id) as (connection, run):
        yield from _one_by_one(_stored_events(connection, run, MAX_REPLAYED_SAMPLES))


def event_batches(path: Path, of: StoredRun) -> Iterator[Event | SampleBatch]:
    """As events, on a coarser grid only beyond 150,000 samples, and looks that nothing comes between together."""
    with _run(path, of.run_id) as (connection, run):
        yield from _together(_stored_events(connection, run, MAX_REPORT_SAMPLES, _of(of.attempt)))


def watches(path: Path, of: StoredRun) -> list[StoredWatch]:
    """What the run was judged by, one after the other; HistoryError when it cannot be read."""
    with _run(path, of.run_id) as (connection, run):
        rows = list(validated_rows(connection.execute(_WATCHES, (run,)), _OF_WATCHES))
        latest = latest_seq(connection, run)
    ends = [*(seq for seq, *_ in rows), latest + 1][1:]
    return [
        StoredWatch(seq, t, version, settings, end) for (seq, t, version, settings), end in zip(rows, ends, strict=True)
    ]


def events_before(path: Path, of: StoredRun, watch: StoredWatch) -> Iterator[Event]:
    """What its engine was fed at its beginning: `events` as they were then."""
    with _run(path, of.run_id) as (connection, run):
        yield from _one_by_one(_stored_events(connection, run, MAX_REPLAYED_SAMPLES, f"AND seq < {watch.begun_seq:d}"))


def events_during(path: Path, of: StoredRun, watch: StoredWatch) -> Iterator[Event | SampleBatch]:
    """All that its engine was fed from then on."""
    with _run(path, of.run_id) as (connection, run):
        yield from _together(_stored_events(connection, run, None, watch.sql_condition))


def notices_during(path: Path, of: StoredRun, watch: StoredWatch) -> list[Notice]:
    """All that it told, in order; HistoryError when it cannot be read."""
    return _notices(path, of, watch.sql_condition)


def notices(path: Path, of: StoredRun) -> list[Notice]:
    """All that was told of a run, in order; HistoryError when it cannot be read."""
    return _notices(path, of, _of(of.attempt))


def _notices(path: Path, of: StoredRun, which: str) -> list[Notice]:
    with _run(path, of.run_id) as (connection, run):
        rows = validated_rows(connection.execute(f"{_NOTICES} {which} ORDER BY seq", (run,)), _OF_NOTICES)
        return [Notice(t, event, text, row_codec.decode_fields(json)) for _, t, event, text, json in rows]


def latest_seq(connection: sqlite3.Connection, run: int) -> int:
    """The place of what is latest of a run; 0: there is nothing."""
    [(latest,)] = validated_rows(connection.execute(_LATEST, {"run": run}), _shape(_WHOLE))
    return int(latest)


def validated_rows(rows: Iterable[tuple[Any, ...]], shape: RowTypes, alike: int = 1) -> Iterator[tuple[Any, ...]]:
    """The same rows; sqlite3.DatabaseError at the first that no memwatch has written.

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
    """The file, and the number that the run has in it."""
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
    """What was told of a run, with its place; of more than `most` samples the older ones on a coarser grid."""
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
    """A condition."""
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
    """The grid to read, and the place from which on all is read."""
    ends = (validated_rows(connection.execute(_END.format(which, way), (run,)), _OF_ENDS) for way in ("ASC", "DESC"))
    (_, began_t), (latest, ended_t) = (next(end, (0, 0.0)) for end in ends)
    if most is None or latest <= most:
        return 0, 0
    seconds = ended_t - began_t
    return next((grid for grid in _GRIDS if seconds <= most * grid), 600), latest - _REPLAY_RECENT


def _sampled(t: float, rows: Sequence[row_codec.SampleRow]) -> Sampled:
    return Sampled(t, row_codec.decode_sample(rows))


def _alike(told: tuple[int, Event | StoredSample]) -> object:
    """The same for looks under the same limits, of use that is counted in the same way; None for all else."""
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
