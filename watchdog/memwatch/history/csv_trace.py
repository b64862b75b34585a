"""A recorded trace (CSV) as the events that a watch would have been told.

A trace has a header and a row a sample: `t` in seconds; `rss`, `limit`, `gpu_used` and `gpu_limit` in bytes; `gen` as
the program counts, `phase`, `total_gens`; `driver` and `driver_capacity`, a gauge of its log. Columns come in any
order, others are ignored. Recorders fail now and then:

- An empty cell was not read. Of memory there is no sample then; a limit that was known still holds (0: there is none);
  without `gen` the log was not read, and what it said last goes on.
- A time before the latest is taken as the latest, for clocks jitter. Much before it, two recordings are in one file.
- A count that goes back is a new process when memory is lower, or when the process was not seen between; and so is
  memory that halved while it was not seen. Without `gen`, or with no memory in use, it is not seen.

A recorded trace through the same engine: what memwatch would have said, and when it would have acted.

A run's events as a trace that `memwatch replay` reads: what a CSV of one host, one GPU and one gauge can tell.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import le
from pathlib import Path
from typing import BinaryIO, TextIO

from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.engine.status_sentence import forecast_fields
from memwatch.core.events import (
    Action,
    Attached,
    Event,
    GaugeSeen,
    GenerationSeen,
    Interrupt,
    Notice,
    PhaseSeen,
    SampleBatch,
    Sampled,
    Signalled,
    TotalSeen,
    UsageSeries,
)
from memwatch.core.forecast.outlook import Outlook
from memwatch.core.measurements import HOST, Target, Usage
from memwatch.core.snapshot import Snapshot, Verdict
from memwatch.errors import ConfigError

GPU_RESOURCE = "gpu0"
REQUIRED = ("t", "rss", "limit")
SAMPLE_COLUMNS = ("t", "rss", "gpu_used")  # other figures in every row
STATE_COLUMNS = (
    "limit",
    "gpu_limit",
    "gen",
    "phase",
    "total_gens",
    "driver",
    "driver_capacity",
)  # the same ones for many rows
ROWS_PER_READ = 1024  # Rows that are read and checked at once.
MAX_CELL_VALUE = 2.0**63
BACK_SECONDS = 300.0  # A clock that goes back by at most this (chosen) ...
BACK_SHARE = 0.01  # ... or this share of the time so far has jitter, or was set (chosen).
RESTART_SHARE = 0.8  # If the count goes back and memory falls below this share, it is a new process (chosen).
GONE_SHARE = 0.5  # The same after a gap in which the process was not seen (chosen).
_COLUMNS = "t,rss,limit,gen,phase,total_gens,gpu_used,gpu_limit"
_HINT = f"a trace has the columns {_COLUMNS}: seconds and bytes, empty where unknown"


def read_trace(path: Path | str, limit_bytes: int | None = None) -> Iterator[Event]:
    """The events of a trace (.csv or .csv.gz), row by row; ConfigError names the line that cannot be used.

    `limit_bytes` bounds host memory, as --limit does, where it is tighter than the trace's own limit.
    """
    for told in read_batches(path, limit_bytes):
        if isinstance(told, SampleBatch):
            yield from map(told.event_at, range(len(told.times)))
        else:
            yield told


def read_batches(
    path: Path | str, limit_bytes: int | None = None, reach: Callable[[float], None] | None = None
) -> Iterator[Event | SampleBatch]:
    """As read_trace, but looks at memory that nothing comes between are told together.

    `reach` is told now and then which share of the file has been read, 0 to 1.
    """
    path = Path(path)
    try:
        with path.open("rb") as raw, _text(raw, path.suffix) as file:
            size = max(1, os.fstat(raw.fileno()).st_size)
            for told in _events(_pieces(file, path, limit_bytes), path.name):
                if reach is not None and isinstance(told, SampleBatch):
                    reach(raw.tell() / size)
                yield told
    except (OSError, EOFError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read: {why}", "give a .csv or .csv.gz file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: is not CSV text: {error}", _HINT) from error


def _text(raw: BinaryIO, suffix: str) -> TextIO:
    if suffix == ".gz":
        return gzip.open(raw, "rt", encoding="utf-8-sig", newline="")
    return io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")


@dataclass(frozen=True, slots=True)
class _RowState:
    """What a row says besides time and memory; rows that say the same share it."""

    limit: int | None = None  # of the host, as the next; None: unknown, or there is none
    origin: str = "trace"
    gpu_limit: int | None = None
    generation: float | None = None
    phase: str = ""
    total: int | None = None
    driver: float | None = None
    driver_capacity: float | None = None


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows one after the other that differ in time and memory alone."""

    times: Sequence[float]
    host: Sequence[int] | None  # bytes; None: not read
    gpu: Sequence[int] | None
    told: _RowState


_Figures = tuple[list[float], "list[int] | None", "list[int] | None"]  # times, bytes of the host and of the GPU


def _pieces(file: TextIO, path: Path, own_limit: int | None) -> Iterator[_Piece]:
    reader = csv.reader(file, skipinitialspace=True)
    columns = {name.strip(): i for i, name in enumerate(next(reader, ()))}
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise ConfigError(f"{path}:1: no column {', '.join(missing)}", _HINT)
    parser, rows = _TraceParser(columns, own_limit), [[""]]
    while rows:
        line, rows, failure = reader.line_num, [], None
        try:
            rows.extend(islice(reader, ROWS_PER_READ))
        except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:  # what came before is told first
            failure = error
        try:
            yield from parser.parse(rows)
        except ValueError as error:
            line += sum(1 + sum(cell.count("\n") for cell in row) for row in rows[: parser.parsed + 1])
            raise ConfigError(f"{path}:{line}: {error}", _HINT) from error
        if failure is not None:
            raise failure


class _TraceParser:
    """Rows to pieces whose times never go back. A block of rows is read at a glance where all is plain."""

    def __init__(self, columns: Mapping[str, int], own_limit: int | None) -> None:
        self._width = 1 + max(columns.values())
        # a column that the trace does not have is the last cell, which is empty
        self._measured = [columns.get(name, -1) for name in SAMPLE_COLUMNS]
        self._rest = [columns.get(name, -1) for name in STATE_COLUMNS]
        self._own_limit = own_limit
        self._trace_limit: int | None = None
        self._texts: tuple[str, ...] | None = None
        self._told = _RowState()
        self._first_t: float | None = None
        self._t = 0.0
        self.parsed = 0  # of the latest rows

    def parse(self, rows: Sequence[list[str]]) -> Iterator[_Piece]:
        """ValueError for a row that cannot be used, the one after those that are `parsed`."""
        self.parsed = 0
        columns = list(zip(*rows))  # noqa: B905 - of rows that differ in length, what all have
        figures = self._parse_plain(columns) if len(columns) >= self._width else None
        if figures is None:
            yield from self._parse_each(rows)
            return
        times, host, gpu = figures
        self._first_t, self._t = times[0] if self._first_t is None else self._first_t, times[-1]
        for texts, count in _alike([columns[place] if place >= 0 else ("",) * len(rows) for place in self._rest]):
            told = self._tell(texts)
            part = slice(self.parsed, self.parsed + count)
            yield _Piece(times[part], None if host is None else host[part], None if gpu is None else gpu[part], told)
            self.parsed += count

    def _parse_plain(
        self, columns: Sequence[tuple[str, ...]]
    ) -> tuple[list[float], list[int] | None, list[int] | None] | None:
        """Times and bytes when every row has them, in order; None: a closer look is needed."""
        when, host, gpu = (_figures(columns[place]) if place >= 0 else () for place in self._measured)
        if not when or host is None or gpu is None or when[0] < self._t or not all(map(le, when, when[1:])):
            return None
        return list(when), list(map(int, host)) or None, list(map(int, gpu)) or None

    def _parse_each(self, rows: Sequence[list[str]]) -> Iterator[_Piece]:
        for cells in rows:
            cells.extend([""] * (self._width + 1 - len(cells)))
            when, host, gpu = (cells[place] for place in self._measured)
            t = _number(when, "t")
            if t is not None:
                yield self._piece(t, _bytes(host, "rss"), _bytes(gpu, "gpu_used"), cells)
            elif any(map(str.strip, cells)):
                raise ValueError("no time")
            self.parsed += 1

    def _piece(self, t: float, host: int | None, gpu: int | None, cells: Sequence[str]) -> _Piece:
        if self._first_t is None:
            self._first_t = t
        elif t < self._t:
            t = self._held(t, self._t - self._first_t)
        self._t = t
        told = self._tell(tuple(cells[place] for place in self._rest))
        return _Piece((t,), None if host is None else (host,), None if gpu is None else (gpu,), told)

    def _tell(self, texts: tuple[str, ...]) -> _RowState:
        """What seldom changes is parsed only when its text does."""
        if texts != self._texts:
            self._told, self._texts = self._parse(texts), texts
        return self._told

    def _held(self, t: float, so_far: float) -> float:
        if self._t - t > max(BACK_SECONDS, BACK_SHARE * so_far):
            raise ValueError(f"time goes back from {self._t:g} to {t:g}: are there two recordings in this file?")
        return self._t

    def _parse(self, texts: tuple[str, ...]) -> _RowState:
        limit, gpu_limit, generation, phase, total, driver, capacity = texts
        self._trace_limit = _bound(_bytes(limit, "limit"), self._trace_limit)
        own = self._own_limit
        binds = own is not None and (self._trace_limit is None or own < self._trace_limit)
        return _RowState(
            own if binds else self._trace_limit,
            "--limit" if binds else "trace",
            _bound(_bytes(gpu_limit, "gpu_limit"), self._told.gpu_limit),
            _number(generation, "gen"),
            phase.strip(),
            _bytes(total, "total_gens"),
            _number(driver, "driver"),
            _number(capacity, "driver_capacity"),
        )


def _number(text: str, name: str) -> float | None:
    """None for an empty cell; ValueError for what is no number, or one that nothing in a trace can be."""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        if not text.strip():
            return None
        value = -1.0
    if 0.0 <= value < MAX_CELL_VALUE:
        return value
    raise ValueError(f"{name} {text.strip()!r} is not a number from 0 to 2**63")


def _bytes(text: str, name: str) -> int | None:
    value = _number(text, name)
    return None if value is None else int(value)


def _bound(read: int | None, known: int | None) -> int | None:
    """The limit from here on: what was known while none was read, and 0 says that there is none."""
    return known if read is None else read or None


def _figures(texts: tuple[str, ...]) -> Sequence[float] | None:
    """The numbers of a column; none of an empty one; None: some of it is not plain."""
    if not any(texts):
        return ()
    try:
        figures = list(map(float, texts))
    except ValueError:
        return None
    return figures if min(figures) >= 0.0 and max(figures) < MAX_CELL_VALUE and sum(figures) >= 0.0 else None  # nan


def _alike(columns: Sequence[tuple[str, ...]]) -> Iterator[tuple[tuple[str, ...], int]]:
    """The texts of rows one after the other that say the same, and how many these are."""
    if all(column.count(column[0]) == len(column) for column in columns):
        yield tuple(column[0] for column in columns), len(columns[0])
        return
    for texts, rows in groupby(zip(*columns, strict=True)):
        yield texts, sum(1 for _ in rows)


# --- pieces to events -----------------------------------------------------------------------------------------------


def _events(pieces: Iterable[_Piece], name: str) -> Iterator[Event | SampleBatch]:
    process: _TraceProcess | None = None
    pid, log, before = 0, _Log(), None
    for piece in pieces:
        told, first = piece.told, 0
        while first < len(piece.times):
            t, host = piece.times[first], None if piece.host is None else piece.host[first]
            if process is None or not process.goes_on(host, told.generation):
                process, log, before = _TraceProcess(host, told.generation), _Log(), None
                pid += 1
                yield Attached(t, Target("trace", pid, 0), f"trace {name}")
            if told is not before:
                yield from log.events(t, told)
                before = told
            taken = process.take(piece.host, first + 1)
            yield _stretch(piece, slice(first, first + 1 + taken), host)
            first += 1 + taken


def _stretch(piece: _Piece, part: slice, host: int | None) -> SampleBatch:
    told, pools = piece.told, list[UsageSeries]()
    if piece.host is not None and host:
        pools.append(UsageSeries(HOST, piece.host[part], told.limit, told.origin))
    if piece.gpu is not None:
        pools.append(UsageSeries(GPU_RESOURCE, piece.gpu[part], told.gpu_limit, "trace"))
    return SampleBatch(piece.times[part], tuple(pools))


class _Log:
    """What the log of one process has told so far."""

    def __init__(self) -> None:
        self._generation: float | None = None
        self._phase = ""
        self._driver: float | None = None

    def events(self, t: float, told: _RowState) -> Iterator[Event]:
        """What a row tells beyond that."""
        if told.generation is not None and told.generation != self._generation:
            self._generation = told.generation
            yield GenerationSeen(t, told.generation, told.total)
        is_read = told.generation is not None or self._generation is None
        if told.phase != self._phase and (told.phase or is_read):  # without its count, the log was not read at all
            ended, self._phase = self._phase, told.phase
            yield PhaseSeen(t, told.phase or ended, "start" if told.phase else "end")
        if told.driver is not None and told.driver != self._driver:
            self._driver = told.driver
            yield GaugeSeen(t, "driver", told.driver, told.driver_capacity)


class _TraceProcess:
    """One process of the trainer, as its rows tell of it."""

    def __init__(self, host: int | None, generation: float | None) -> None:
        self._generation = generation  # the latest
        self._peak = self._used = host or 0  # bytes: the most since that generation began, and the latest
        self._hidden = False  # the latest rows do not show the process
        self._unjudged = False  # ... and none of them told its memory yet

    def goes_on(self, host: int | None, generation: float | None) -> bool:
        """The row is of this process, not of its successor. Asked once for each row."""
        if host and generation == self._generation and not self._hidden:
            self._used = host
            self._peak = max(self._peak, host)
            return True
        hidden = host == 0 or (generation is None and self._generation is not None)
        if hidden and not self._hidden:
            self._hidden = self._unjudged = True
        if host:
            if self._is_succeeded(host, generation):
                return False
            self._hidden, self._unjudged = hidden, False
        self._take(host, generation)
        return True

    def take(self, host: Sequence[int] | None, first: int) -> int:
        """How many more readings from `first` on, in the same generation as the last, are surely of this process."""
        more = host[first:] if host is not None else ()
        if not more or self._hidden or min(more) <= 0:
            return 0
        self._used, self._peak = more[-1], max(self._peak, *more)
        return len(more)

    def _is_succeeded(self, host: int, generation: float | None) -> bool:
        if generation is not None and self._generation is not None and generation < self._generation:
            return self._hidden or host < RESTART_SHARE * self._peak
        return self._unjudged and host < GONE_SHARE * self._used

    def _take(self, host: int | None, generation: float | None) -> None:
        known = self._generation
        # while memory is not read, a count that goes back is not judged yet
        if generation is not None and (host or known is None or generation > known) and generation != known:
            self._generation, self._peak = generation, 0
        self._used = host or self._used
        self._peak = max(self._peak, self._used)


def replay_notices(
    path: Path | str, policy: Policy, limit_bytes: int | None = None, reach: Callable[[float], None] | None = None
) -> Generator[Notice, None, Snapshot]:
    """All that the engine has to tell about a trace, in order; every notice carries the fields of a forecast.

    What it returns is the state at the end.
    Nothing is signalled: every interrupt is a dry run. `limit_bytes` binds where it is tighter than the trace's own;
    `reach` is told how much has been read, 0 to 1.
    """
    engine = Engine(policy)
    latest: dict[str, Notice] = {}
    for told in read_batches(path, limit_bytes, reach):
        for action in _fed(engine, told):
            if isinstance(action, Notice):
                yield _complete(action, latest)
    return engine.snapshot()


def _fed(engine: Engine, told: Event | SampleBatch) -> Iterator[Action]:
    """What the engine asks for, event by event; it learns that an interrupt was a dry run."""
    for event in engine.events_to_feed(told):
        actions = engine.feed(event)
        yield from actions
        if any(isinstance(action, Interrupt) for action in actions):
            yield from engine.feed(Signalled(event.t, "SIGINT", dry_run=True))


def _complete(notice: Notice, latest: dict[str, Notice]) -> Notice:
    """The notice with what was last forecast of its resource, carried on to its time."""
    resource = notice.fields.get("resource", next(iter(latest), HOST))
    if "verdict" in notice.fields:
        latest[resource] = notice
        return notice
    known = latest.get(resource)
    if known is None:
        fields = forecast_fields(Usage(resource, 0, None), None, Outlook(Verdict.WARMING_UP, None, None))
        fields["used"] = None
    else:
        fields = {**known.fields, "action": None}
        for name in ("eta_s", "eta_lo_s", "eta_hi_s"):
            fields[name] = None if fields[name] is None else max(0.0, fields[name] - (notice.t - known.t))
    return Notice(notice.t, notice.event, notice.text, {**fields, **notice.fields})


TRACE_COLUMNS = (
    "t",
    "rss",
    "limit",
    "gen",
    "phase",
    "total_gens",
    "gpu_used",
    "gpu_limit",
    "driver",
    "driver_capacity",
)
Cell = str | int | float | None


def write_trace(events: Iterable[Event | SampleBatch], file: TextIO) -> None:
    """A row for each sample, with seconds from the first event."""
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(TRACE_COLUMNS)
    rows.writerows(_rows(events))


def _rows(events: Iterable[Event | SampleBatch]) -> Iterator[list[Cell]]:
    start_t: float | None = None
    said: dict[str, Cell] = {}
    for told in events:
        first_t = told.times[0] if isinstance(told, SampleBatch) else told.t
        start_t = first_t if start_t is None else start_t
        if isinstance(told, SampleBatch | Sampled):
            for event in map(told.event_at, range(len(told.times))) if isinstance(told, SampleBatch) else (told,):
                usages = {usage.resource: usage for usage in event.sample.usages}
                pools = _pool(usages.get(HOST), "rss", "limit") | _pool(
                    usages.get(GPU_RESOURCE), "gpu_used", "gpu_limit"
                )
                known = said | pools
                yield [round(event.t - start_t, 3), *(known.get(name) for name in TRACE_COLUMNS[1:])]
        else:
            _note(told, said)


def _pool(usage: Usage | None, used: str, limit: str) -> dict[str, Cell]:
    if usage is None:
        return {}
    return {used: usage.used_bytes, limit: 0 if usage.limit is None else usage.limit.bytes}


def _note(event: Event, said: dict[str, Cell]) -> None:
    """What the log said last goes on."""
    if isinstance(event, Attached):
        said.clear()
    elif isinstance(event, GenerationSeen):
        said["gen"] = event.index
        said["total_gens"] = event.total if event.total is not None else said.get("total_gens")
    elif isinstance(event, TotalSeen):
        said["total_gens"] = event.total
    elif isinstance(event, PhaseSeen):
        said["phase"] = event.phase if event.at == "start" else None
    elif isinstance(event, GaugeSeen) and said.get("gauge", event.name) == event.name:  # the first one: it has room for
        said.update(gauge=event.name, driver=event.value, driver_capacity=event.capacity)
