"""Recorded traces (CSV): read as the events of a watch, replayed, and written from a run's events, also as Parquet.

A trace has a header and one row per sample: `t` in seconds; `rss`, `limit`, `gpu_used` and `gpu_limit` in bytes; `gen`
as the program counts, `unit`, `phase`, `total_gens`; `driver` and `driver_capacity`, a gauge of its log, or `gauges`,
all of them: {"replay buffer": [448, 5000]}; `checkpoint`, those since the row before, separated by spaces:
`writing@12.1`, `saved@13.4/1.3` with the seconds that it took; `age`, in the first row of a process, the seconds for
which it has run. Columns come in any order, others are ignored.
Recorders fail now and then:

- An empty cell was not read. Without memory there is no sample; a known limit still holds (0: there is none); without
  `gen` the log was not read, and its last state still holds.
- A time before the latest is taken as the latest, because clocks jitter. A much earlier one is an error: there are two
  recordings in the file.
- A count that goes back is a new process if memory is lower, or if the process was not seen in between; so is memory
  that halved while the process was not seen. A process is not seen without `gen`, or with no memory in use.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import tempfile
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
    Attached,
    CheckpointSeen,
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
from memwatch.core.text_and_units import printable
from memwatch.errors import ConfigError

GPU_RESOURCE = "gpu0"
REQUIRED = ("t", "rss", "limit")
SAMPLE_COLUMNS = ("t", "rss", "gpu_used")  # these differ from row to row
# These are the same in many rows.
STATE_COLUMNS = (
    *("limit", "gpu_limit", "gen", "phase", "total_gens", "driver", "driver_capacity"),
    *("unit", "gauges", "checkpoint", "age"),
)
_COLUMNS = ("t", "rss", "limit", "gen", "phase", "total_gens", "gpu_used", "gpu_limit")
TRACE_COLUMNS = (*_COLUMNS, "unit", "gauges", "checkpoint", "age")
_CHECKPOINT = re.compile(r"(?P<state>writing|saved)@(?P<t>[0-9.]{1,20})(?:/(?P<seconds>[0-9.]{1,20}))?")
CHECKPOINT_EVIDENCE = "trace: a checkpoint"
UNIT_LENGTH = 20  # characters
ROWS_PER_READ = 1024  # rows that are read and checked at once
MAX_CELL_VALUE = 2.0**63
BACK_SECONDS = 300.0  # A clock that goes back by at most this (chosen) ...
BACK_SHARE = 0.01  # ... or by at most this share of the time so far has jitter, or was set (chosen).
RESTART_SHARE = 0.8  # If the count goes back and memory falls below this share, it is a new process (chosen).
GONE_SHARE = 0.5  # The same after a gap in which the process was not seen (chosen).
_HINT = f"a trace has the columns {','.join(_COLUMNS)}: seconds and bytes, empty where unknown"
Progress = Callable[[float], None]  # is called with the share of the file that has been read, 0 to 1


def read_trace(path: Path | str, limit_bytes: int | None = None) -> Iterator[Event]:
    """Yields the events of a trace (.csv or .csv.gz), row by row; ConfigError names the line that cannot be used.

    `limit_bytes` bounds host memory, as --limit does, where it is tighter than the trace's own limit.
    """
    return _one_by_one(read_batches(path, limit_bytes))


def read_batches(
    path: Path | str, limit_bytes: int | None = None, report_progress: Progress | None = None
) -> Iterator[Event | SampleBatch]:
    """As read_trace, but consecutive samples come in batches."""
    path = Path(path)
    try:
        with path.open("rb") as raw, _text(raw, path.suffix) as file:
            size = max(1, os.fstat(raw.fileno()).st_size)
            for event in _events(_row_blocks(file, path, limit_bytes), path.name):
                if report_progress is not None and isinstance(event, SampleBatch):
                    report_progress(raw.tell() / size)
                yield event
    except (OSError, EOFError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read: {why}", "give a .csv or .csv.gz file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: is not CSV text: {error}", _HINT) from error


def _text(raw: BinaryIO, suffix: str) -> TextIO:
    if suffix == ".gz":
        return gzip.open(raw, "rt", encoding="utf-8-sig", newline="")
    return io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")


def _one_by_one(events: Iterable[Event | SampleBatch]) -> Iterator[Event]:
    for event in events:
        if isinstance(event, SampleBatch):
            yield from map(event.event_at, range(len(event.times)))
        else:
            yield event


# --- rows to blocks -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RowState:
    """The state columns of a row; consecutive rows with the same text share it."""

    limit: int | None = None  # of the host, as the next; None: unknown, or there is none
    origin: str = "trace"
    gpu_limit: int | None = None
    generation: float | None = None
    phase: str = ""
    total: int | None = None
    gauges: tuple[tuple[str, float, float | None], ...] = ()  # name, value, capacity
    unit: str = ""
    checkpoints: tuple[tuple[str, float, float | None], ...] = ()  # state, time, seconds that it took
    age: float = 0.0  # of the process, seconds


@dataclass(frozen=True, slots=True)
class _RowBlock:
    """Consecutive rows that differ only in time and memory."""

    times: Sequence[float]
    host: Sequence[int] | None  # bytes; None: not read
    gpu: Sequence[int] | None
    state: _RowState


def _row_blocks(file: TextIO, path: Path, own_limit: int | None) -> Iterator[_RowBlock]:
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
        except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:  # the rows before it are parsed first
            failure = error
        try:
            yield from parser.parse(rows)
        except ValueError as error:
            line += sum(1 + sum(cell.count("\n") for cell in row) for row in rows[: parser.parsed + 1])
            raise ConfigError(f"{path}:{line}: {error}", _HINT) from error
        if failure is not None:
            raise failure


class _TraceParser:
    """Parses rows into blocks whose times never go back. Many rows are parsed at once if each of them is plain."""

    def __init__(self, columns: Mapping[str, int], own_limit: int | None) -> None:
        self._width = 1 + max(columns.values())
        # a column that the trace does not have is the last cell, which is empty
        self._sample_columns = [columns.get(name, -1) for name in SAMPLE_COLUMNS]
        self._state_columns = [columns.get(name, -1) for name in STATE_COLUMNS]
        self._own_limit = own_limit
        self._trace_limit: int | None = None
        self._state_texts: tuple[str, ...] | None = None
        self._state = _RowState()
        self._first_t: float | None = None
        self._t = 0.0
        self.parsed = 0  # of the latest rows

    def parse(self, rows: Sequence[list[str]]) -> Iterator[_RowBlock]:
        """ValueError for a row that cannot be used, the one after those that are `parsed`."""
        self.parsed = 0
        columns = list(zip(*rows))  # noqa: B905 - rows may differ in length: the columns that all of them have
        samples = self._parse_plain(columns) if len(columns) >= self._width else None
        if samples is None:
            yield from self._parse_each(rows)
            return
        times, host, gpu = samples
        self._first_t, self._t = times[0] if self._first_t is None else self._first_t, times[-1]
        empty = ("",) * len(rows)
        for texts, count in _count_repeats([columns[i] if i >= 0 else empty for i in self._state_columns]):
            part = slice(self.parsed, self.parsed + count)
            yield _RowBlock(times[part], host and host[part], gpu and gpu[part], self._parse_state(texts))
            self.parsed += count

    def _parse_plain(
        self, columns: Sequence[tuple[str, ...]]
    ) -> tuple[list[float], list[int] | None, list[int] | None] | None:
        """Times and bytes if every row has them, in order; None: the rows are to be parsed one by one."""
        times, host, gpu = (_plain_numbers(columns[i]) if i >= 0 else [] for i in self._sample_columns)
        if not times or host is None or gpu is None or times[0] < self._t or not all(map(le, times, times[1:])):
            return None
        return times, list(map(int, host)) or None, list(map(int, gpu)) or None

    def _parse_each(self, rows: Sequence[list[str]]) -> Iterator[_RowBlock]:
        for cells in rows:
            cells.extend([""] * (self._width + 1 - len(cells)))
            time_text, host_text, gpu_text = (cells[i] for i in self._sample_columns)
            t = _number(time_text, "t")
            if t is not None:
                host, gpu = _integer(host_text, "rss"), _integer(gpu_text, "gpu_used")
                self._advance(t)
                state = self._parse_state(tuple(cells[i] for i in self._state_columns))
                yield _RowBlock((self._t,), None if host is None else (host,), None if gpu is None else (gpu,), state)
            elif any(map(str.strip, cells)):
                raise ValueError("no time")
            self.parsed += 1

    def _advance(self, t: float) -> None:
        """A time that is a little earlier than the latest leaves it as it is."""
        if self._first_t is None:
            self._first_t = t
        elif self._t - t > max(BACK_SECONDS, BACK_SHARE * (self._t - self._first_t)):
            raise ValueError(f"time goes back from {self._t:g} to {t:g}: are there two recordings in this file?")
        self._t = max(self._t, t)

    def _parse_state(self, texts: tuple[str, ...]) -> _RowState:
        if texts == self._state_texts:
            return self._state
        limit, gpu_limit, generation, phase, total, driver, capacity, unit, gauges, checkpoint, age = texts
        level = _number(driver, "driver")
        known = () if level is None else (("driver", level, _number(capacity, "driver_capacity")),)
        self._trace_limit = _limit(limit, "limit", self._trace_limit)
        own = self._own_limit
        is_own_tighter = own is not None and (self._trace_limit is None or own < self._trace_limit)
        self._state = _RowState(
            own if is_own_tighter else self._trace_limit,
            "--limit" if is_own_tighter else "trace",
            _limit(gpu_limit, "gpu_limit", self._state.gpu_limit),
            _number(generation, "gen"),
            phase.strip(),
            _integer(total, "total_gens"),
            _gauges(gauges) if gauges.strip() else known,
            printable(unit.strip(), UNIT_LENGTH),
            _checkpoints(checkpoint),
            _number(age, "age") or 0.0,
        )
        self._state_texts = texts
        return self._state


def _number(text: str, name: str) -> float | None:
    """None for an empty cell; ValueError for text that is no number, or a number that no column can have."""
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


def _gauges(text: str) -> tuple[tuple[str, float, float | None], ...]:
    """Parse {"replay buffer": [448, 5000], "loss": 0.5}; ValueError for any other text."""
    try:
        items = json.loads(text).items()
        pairs = ((name, value if isinstance(value, list) else [value, None]) for name, value in items)
        return tuple(
            (printable(name, 40), float(level), None if most is None else float(most)) for name, (level, most) in pairs
        )
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"gauges {text.strip()[:60]!r} is not a JSON object of numbers") from error


def _checkpoints(text: str) -> tuple[tuple[str, float, float | None], ...]:
    found = []
    for word in text.split():
        match = _CHECKPOINT.fullmatch(word)
        if match is None:
            raise ValueError(f"checkpoint {word[:60]!r} is not writing@SECONDS or saved@SECONDS/SECONDS")
        seconds = _number(match["seconds"] or "", "checkpoint")
        found.append((match["state"], _number(match["t"], "checkpoint") or 0.0, seconds))
    return tuple(found)


def _integer(text: str, name: str) -> int | None:
    value = _number(text, name)
    return None if value is None else int(value)


def _limit(text: str, name: str, known: int | None) -> int | None:
    """The limit from here on: the known one if none was read; 0 says that there is none."""
    limit = _integer(text, name)
    return known if limit is None else limit or None


def _plain_numbers(texts: tuple[str, ...]) -> list[float] | None:
    """The numbers of a column; an empty list for an empty column; None if any text is empty or out of range."""
    if not any(texts):
        return []
    try:
        numbers = list(map(float, texts))
    except ValueError:
        return None
    return numbers if min(numbers) >= 0.0 and max(numbers) < MAX_CELL_VALUE and sum(numbers) >= 0.0 else None  # nan


def _count_repeats(columns: Sequence[tuple[str, ...]]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yields the texts of consecutive rows that are alike, and their number."""
    if all(column.count(column[0]) == len(column) for column in columns):  # usual, and faster than groupby
        yield tuple(column[0] for column in columns), len(columns[0])
        return
    for texts, rows in groupby(zip(*columns, strict=True)):
        yield texts, sum(1 for _ in rows)


# --- blocks to events -----------------------------------------------------------------------------------------------


def _events(blocks: Iterable[_RowBlock], name: str) -> Iterator[Event | SampleBatch]:
    process: _TraceProcess | None = None
    pid, log, before = 0, _Log(), None
    for block in blocks:
        state, first = block.state, 0
        while first < len(block.times):
            t, host = block.times[first], None if block.host is None else block.host[first]
            if process is None or not process.continues(host, state.generation):
                process, log, before = _TraceProcess(host, state.generation), _Log(), None
                pid += 1
                yield Attached(t, Target("trace", pid, 0), f"trace {name}", age_seconds=state.age)
            if state is not before:
                yield from log.events(t, state)
                before = state
            end = first + 1 + process.add_samples(block.host, first + 1)
            yield _batch(block, slice(first, end), host)
            first = end


def _batch(block: _RowBlock, part: slice, host: int | None) -> SampleBatch:
    state, series = block.state, list[UsageSeries]()
    if block.host is not None and host:
        series.append(UsageSeries(HOST, block.host[part], state.limit, state.origin))
    if block.gpu is not None:
        series.append(UsageSeries(GPU_RESOURCE, block.gpu[part], state.gpu_limit, "trace"))
    return SampleBatch(block.times[part], tuple(series))


class _Log:
    """The log of one process, as its rows show it."""

    def __init__(self) -> None:
        self._generation: float | None = None
        self._phase = ""
        self._gauges: dict[str, float] = {}

    def events(self, t: float, state: _RowState) -> Iterator[Event]:
        """Yields what is new in a row."""
        if state.generation is not None and state.generation != self._generation:
            self._generation = state.generation
            yield GenerationSeen(t, state.generation, state.total, state.unit or "generation")
        is_read = state.generation is not None or self._generation is None
        if state.phase != self._phase and (state.phase or is_read):  # without its count, the log was not read at all
            ended, self._phase = self._phase, state.phase
            yield PhaseSeen(t, state.phase or ended, "start" if state.phase else "end")
        for name, value, capacity in state.gauges:
            if self._gauges.get(name) != value:
                self._gauges[name] = value
                yield GaugeSeen(t, name, value, capacity)
        for name, saved_t, seconds in state.checkpoints:
            yield CheckpointSeen(t, name, CHECKPOINT_EVIDENCE, seconds, still_seconds=max(0.0, t - saved_t))


class _TraceProcess:
    """One process of the trainer, as its rows show it."""

    def __init__(self, host: int | None, generation: float | None) -> None:
        self._generation = generation  # the latest
        self._peak = self._used = host or 0  # bytes: the most since that generation began, and the latest
        self._is_hidden = False  # the latest rows do not show the process
        self._awaits_memory = False  # ... and none of them has its memory

    def continues(self, host: int | None, generation: float | None) -> bool:
        """Whether a row is of this process, not of its successor. It is called once for each row."""
        if host and generation == self._generation and not self._is_hidden:
            self._used = host
            self._peak = max(self._peak, host)
            return True
        is_hidden = host == 0 or (generation is None and self._generation is not None)
        if is_hidden and not self._is_hidden:
            self._is_hidden = self._awaits_memory = True
        if host:
            if self._is_succeeded(host, generation):
                return False
            self._is_hidden, self._awaits_memory = is_hidden, False
        known = self._generation
        # while memory is not read, nothing is concluded from a count that goes back
        if generation is not None and (host or known is None or generation > known) and generation != known:
            self._generation, self._peak = generation, 0
        self._used = host or self._used
        self._peak = max(self._peak, self._used)
        return True

    def _is_succeeded(self, host: int, generation: float | None) -> bool:
        if generation is not None and self._generation is not None and generation < self._generation:
            return self._is_hidden or host < RESTART_SHARE * self._peak
        return self._awaits_memory and host < GONE_SHARE * self._used

    def add_samples(self, host: Sequence[int] | None, first: int) -> int:
        """Adds the samples from `first` on, in the same generation as the last, if they surely are of this process.

        Returns their number.
        """
        more = host[first:] if host is not None else ()
        if not more or self._is_hidden or min(more) <= 0:
            return 0
        self._used, self._peak = more[-1], max(self._peak, *more)
        return len(more)


# --- replay ---------------------------------------------------------------------------------------------------------


def replay_notices(
    path: Path | str, policy: Policy, limit_bytes: int | None = None, report_progress: Progress | None = None
) -> Generator[Notice, None, Snapshot]:
    """Yields the notices of an engine that is fed a trace, each with the fields of a forecast; returns its last state.

    Nothing is signalled: every interrupt is a dry run. `limit_bytes` binds where it is tighter than the trace's own.
    """
    engine = Engine(policy)
    latest: dict[str, Notice] = {}
    for batch in read_batches(path, limit_bytes, report_progress):
        for event in engine.events_to_feed(batch):
            actions = engine.feed(event)
            if any(isinstance(action, Interrupt) for action in actions):
                actions = [*actions, *engine.feed(Signalled(event.t, "SIGINT", dry_run=True))]
            for action in actions:
                if isinstance(action, Notice):
                    yield _complete(action, latest)
    return engine.snapshot()


def _complete(notice: Notice, latest: dict[str, Notice]) -> Notice:
    """Returns the notice with the latest forecast of its resource, carried on to its time."""
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


# --- export ---------------------------------------------------------------------------------------------------------

Cell = str | int | float | None


def write_trace(events: Iterable[Event | SampleBatch], file: TextIO) -> None:
    """Writes a row for each sample, with seconds from the first event; of a host and one GPU."""
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(TRACE_COLUMNS)
    start_t: float | None = None
    logged: dict[str, Cell] = {}
    gauges: dict[str, tuple[float, float | None]] = {}
    for event in _one_by_one(events):
        start_t = event.t if start_t is None else start_t
        if isinstance(event, Sampled):
            usages = {usage.resource: usage for usage in event.sample.usages}
            host = _usage_cells(usages.get(HOST), "rss", "limit")
            gpu = _usage_cells(usages.get(GPU_RESOURCE), "gpu_used", "gpu_limit")
            cells = logged | host | gpu
            rows.writerow([round(event.t - start_t, 3), *(cells.get(name) for name in TRACE_COLUMNS[1:])])
            logged.pop("checkpoint", None)
            logged.pop("age", None)
        elif isinstance(event, GaugeSeen):
            gauges[event.name] = event.value, event.capacity
            logged["gauges"] = json.dumps(gauges, ensure_ascii=False)
        elif isinstance(event, CheckpointSeen):
            at, took = round(event.t - event.still_seconds - start_t, 3), event.seconds
            word = f"{event.state}@{max(0.0, at)}{'' if took is None else f'/{took:.3f}'}"
            if event.state != "dropped":
                logged["checkpoint"] = f"{logged['checkpoint']} {word}" if "checkpoint" in logged else word
        else:
            if isinstance(event, Attached):
                gauges.clear()
            _update_logged(logged, event)


def _usage_cells(usage: Usage | None, used: str, limit: str) -> dict[str, Cell]:
    if usage is None:
        return {}
    return {used: usage.used_bytes, limit: 0 if usage.limit is None else usage.limit.bytes}


def _update_logged(logged: dict[str, Cell], event: Event) -> None:
    """Updates the cells that hold until the log says otherwise."""
    if isinstance(event, Attached):
        logged.clear()
        logged["age"] = event.age_seconds or None
    elif isinstance(event, GenerationSeen):
        logged["gen"], logged["unit"] = event.index, event.unit
        logged["total_gens"] = event.total if event.total is not None else logged.get("total_gens")
    elif isinstance(event, TotalSeen):
        logged["total_gens"] = event.total
    elif isinstance(event, PhaseSeen):
        logged["phase"] = event.phase if event.at == "start" else None


_FLOATS, _TEXTS = ("t", "gen", "age"), ("unit", "phase", "gauges", "checkpoint")  # the other columns are whole numbers


def check_parquet() -> None:
    """Raise ConfigError where pyarrow is not installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        hint = "pip install 'memwatch[parquet]', or export to a file.csv"
        raise ConfigError("Parquet needs pyarrow, which is not installed", hint) from error


def write_parquet(events: Iterable[Event | SampleBatch], path: Path) -> None:
    """Write a row for each sample to `path`: numbers and texts; what is not known is null."""
    import pyarrow
    from pyarrow import csv, parquet

    with tempfile.TemporaryFile() as rows:
        text = io.TextIOWrapper(rows, encoding="utf-8", newline="")
        write_trace(events, text)
        text.flush()
        rows.seek(0)
        types = dict.fromkeys(TRACE_COLUMNS, pyarrow.int64())
        types |= dict.fromkeys(_FLOATS, pyarrow.float64()) | dict.fromkeys(_TEXTS, pyarrow.string())
        table = csv.read_csv(rows, convert_options=csv.ConvertOptions(column_types=types, strings_can_be_null=True))
        text.detach()
    try:
        parquet.write_table(table, path)
    except OSError as error:
        raise ConfigError(f"-o {path}: {error.strerror or error}", "name a file that can be written") from error
