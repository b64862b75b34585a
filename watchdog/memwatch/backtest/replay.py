"""A recorded trace (CSV) through the same engine: what memwatch would have said, and when it would have acted.

A trace has a header and a row a sample: `t` in seconds; `rss`, `limit`, `gpu_used` and `gpu_limit` in bytes; `gen` as
the program counts, `phase`, `total_gens`; `driver` and `driver_capacity`, a gauge of its log. Columns come in any
order, others are ignored. Recorders fail now and then:

- An empty cell was not read. Of memory there is no sample then; a limit that was known still holds (0: there is none);
  without `gen` the log was not read, and what it said last goes on.
- A time before the latest is taken as the latest, for clocks jitter. Much before it, two recordings are in one file.
- A count that goes back is a new process when memory is lower, or when the process was not seen between; and so is
  memory that halved while it was not seen. Without `gen`, or with no memory in use, it is not seen.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TextIO

from memwatch.core.engine import Engine
from memwatch.core.forecast import Outlook
from memwatch.core.model import (
    HOST,
    Attached,
    Event,
    GaugeSeen,
    GenerationSeen,
    Interrupt,
    Limit,
    Notice,
    PhaseSeen,
    Sample,
    Sampled,
    Signalled,
    Snapshot,
    Target,
    Usage,
    Verdict,
)
from memwatch.core.policy import Policy
from memwatch.core.sentence import forecast_fields
from memwatch.errors import ConfigError

GPU = "gpu0"
REQUIRED = ("t", "rss", "limit")
MEASURED = ("t", "rss", "gpu_used")  # other figures in every row
TOLD = ("limit", "gpu_limit", "gen", "phase", "total_gens", "driver", "driver_capacity")  # the same ones for many rows
LARGEST = 2.0**63
BACK_SECONDS = 300.0  # a clock that goes back by no more than this ...
BACK_SHARE = 0.01  # ... or this share of the time so far jitters, or was set
RESTART_SHARE = 0.8  # the count goes back and memory is below this share of what it was: a new process
GONE_SHARE = 0.5  # ... and of this, when the process was not seen between
_COLUMNS = "t,rss,limit,gen,phase,total_gens,gpu_used,gpu_limit"
_HINT = f"a trace has the columns {_COLUMNS}: seconds and bytes, empty where unknown"


def read_trace(path: Path | str, limit_bytes: int | None = None) -> Iterator[Event]:
    """The events of a trace (.csv or .csv.gz), row by row; ConfigError names the line that cannot be used.

    `limit_bytes` bounds host memory, as --limit does, where it is tighter than the trace's own limit.
    """
    path = Path(path)
    try:
        with _open(path) as file:
            yield from _events(_rows(file, path, limit_bytes), path.name)
    except (OSError, EOFError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read: {why}", "give a .csv or .csv.gz file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: is not CSV text: {error}", _HINT) from error


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


# --- cells to rows --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Told:
    """What a row says besides time and memory; rows that say the same share it."""

    limit: int | None = None  # of the host, as the next; None: unknown, or there is none
    origin: str = "trace"
    gpu_limit: int | None = None
    generation: float | None = None
    phase: str = ""
    total: int | None = None
    driver: float | None = None
    driver_capacity: float | None = None


_Row = tuple[float, "int | None", "int | None", _Told]  # seconds, bytes of the host and of the GPU, what else is told


def _rows(file: TextIO, path: Path, own_limit: int | None) -> Iterator[_Row]:
    reader = csv.reader(file, skipinitialspace=True)
    columns = {name.strip(): i for i, name in enumerate(next(reader, ()))}
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise ConfigError(f"{path}:1: no column {', '.join(missing)}", _HINT)
    parse = _Parser(columns, own_limit)
    for cells in reader:
        try:
            row = parse(cells)
        except ValueError as error:
            raise ConfigError(f"{path}:{reader.line_num}: {error}", _HINT) from error
        if row is not None:
            yield row


class _Parser:
    """Cells to rows whose times never go back. What seldom changes is parsed only when its text does."""

    def __init__(self, columns: Mapping[str, int], own_limit: int | None) -> None:
        self._width = 1 + max(columns.values())
        # a column that the trace does not have is the last cell, which is empty
        self._measured = itemgetter(*(columns.get(name, -1) for name in MEASURED))
        self._rest = itemgetter(*(columns.get(name, -1) for name in TOLD))
        self._own_limit = own_limit
        self._trace_limit: int | None = None
        self._texts: tuple[str, ...] | None = None
        self._told = _Told()
        self._first_t: float | None = None
        self._t = 0.0

    def __call__(self, cells: list[str]) -> _Row | None:
        """None for a blank line; ValueError for what cannot be used."""
        if len(cells) < self._width:
            cells.extend([""] * (self._width - len(cells)))
        cells.append("")
        when, host, gpu = self._measured(cells)
        t = _number(when, "t")
        if t is None:
            if any(map(str.strip, cells)):
                raise ValueError("no time")
            return None
        if self._first_t is None:
            self._first_t = t
        elif t < self._t:
            t = self._held(t, self._t - self._first_t)
        self._t = t
        texts = self._rest(cells)
        if texts != self._texts:
            self._told, self._texts = self._parse(texts), texts
        return t, _bytes(host, "rss"), _bytes(gpu, "gpu_used"), self._told

    def _held(self, t: float, so_far: float) -> float:
        if self._t - t > max(BACK_SECONDS, BACK_SHARE * so_far):
            raise ValueError(f"time goes back from {self._t:g} to {t:g}: are there two recordings in this file?")
        return self._t

    def _parse(self, texts: tuple[str, ...]) -> _Told:
        limit, gpu_limit, generation, phase, total, driver, capacity = texts
        self._trace_limit = _bound(_bytes(limit, "limit"), self._trace_limit)
        own = self._own_limit
        binds = own is not None and (self._trace_limit is None or own < self._trace_limit)
        return _Told(
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
    if 0.0 <= value < LARGEST:
        return value
    raise ValueError(f"{name} {text.strip()!r} is not a number from 0 to 2**63")


def _bytes(text: str, name: str) -> int | None:
    value = _number(text, name)
    return None if value is None else int(value)


def _bound(read: int | None, known: int | None) -> int | None:
    """The limit from here on: what was known while none was read, and 0 says that there is none."""
    return known if read is None else read or None


# --- rows to events -------------------------------------------------------------------------------------------------


def _events(rows: Iterable[_Row], name: str) -> Iterator[Event]:
    process: _Process | None = None
    pid, log, before = 0, _Log(), None
    for t, host, gpu, told in rows:
        if process is None or not process.goes_on(host, told.generation):
            process, log, before = _Process(host, told.generation), _Log(), None
            pid += 1
            yield Attached(t, Target("trace", pid, 0), f"trace {name}")
        if told is not before:
            yield from log.events(t, told)
            before = told
        usages: tuple[Usage, ...] = (_usage(HOST, host, told.limit, told.origin),) if host else ()
        if gpu is not None:
            usages += (_usage(GPU, gpu, told.gpu_limit, "trace"),)
        yield Sampled(t, Sample(usages))


def _usage(resource: str, used: int, limit: int | None, origin: str) -> Usage:
    return Usage(resource, used, None if limit is None else Limit(limit, origin, limit - used))


class _Log:
    """What the log of one process has told so far."""

    def __init__(self) -> None:
        self._generation: float | None = None
        self._phase = ""
        self._driver: float | None = None

    def events(self, t: float, told: _Told) -> Iterator[Event]:
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


class _Process:
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


# --- events to notices ----------------------------------------------------------------------------------------------


def replay(path: Path | str, policy: Policy, limit_bytes: int | None = None) -> Generator[Notice, None, Snapshot]:
    """All that the engine has to tell about a trace, in order; every notice carries the fields of a forecast.

    What it returns is the state at the end.
    Nothing is signalled: every interrupt is a dry run. `limit_bytes` binds where it is tighter than the trace's own.
    """
    engine = Engine(policy)
    latest: dict[str, Notice] = {}
    for event in read_trace(path, limit_bytes):
        actions = engine.feed(event)
        if not actions:
            continue
        if any(isinstance(action, Interrupt) for action in actions):
            actions = actions + engine.feed(Signalled(event.t, "SIGINT", dry_run=True))
        for action in actions:
            if isinstance(action, Notice):
                yield _complete(action, latest)
    return engine.snapshot()


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
