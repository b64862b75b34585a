"""A recorded trace (CSV) through the same engine: what memwatch would have said, and when it would have acted."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
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

REQUIRED = ("t", "rss", "limit")
KNOWN = (*REQUIRED, "gen", "phase", "total_gens", "gpu_used", "gpu_limit", "driver", "driver_capacity")
RESTART_SHARE = 0.8  # the count goes back and memory is below this share of what it was: a new process
GONE_SHARE = 0.5  # ... and of this, when the log names no generation any more
_HINT = f"a trace has the columns {','.join(KNOWN[:8])}: seconds and bytes, empty where unknown"


@dataclass(frozen=True, slots=True)
class _Row:
    t: float
    usages: tuple[Usage, ...]
    generation: float | None
    phase: str
    total: int | None
    driver: float | None
    driver_capacity: float | None

    @property
    def host_bytes(self) -> int | None:
        return next((u.used_bytes for u in self.usages if u.resource == HOST), None)


def read_trace(path: Path | str) -> Iterator[Event]:
    """The events of a trace (.csv or .csv.gz), row by row; ConfigError names the line that cannot be used."""
    path = Path(path)
    try:
        with _open(path) as file:
            yield from _events(_rows(file, path), path)
    except (OSError, EOFError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read: {why}", "give a .csv or .csv.gz file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: is not CSV text: {error}", _HINT) from error


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _rows(file: TextIO, path: Path) -> Iterator[_Row]:
    reader = csv.DictReader(file)
    missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
    if missing:
        raise ConfigError(f"{path}:1: no column {', '.join(missing)}", _HINT)
    last_t = -math.inf
    for cells in reader:
        row = _parse_row(cells, f"{path}:{reader.line_num}")
        if row.t < last_t:
            raise ConfigError(f"{path}:{reader.line_num}: time goes back from {last_t:g} to {row.t:g}", _HINT)
        last_t = row.t
        yield row


def _parse_row(cells: dict[str, str | None], where: str) -> _Row:
    def value(name: str) -> float | None:
        text = (cells.get(name) or "").strip()
        if not text:
            return None
        try:
            parsed = float(text)
        except ValueError:
            parsed = math.nan
        if not math.isfinite(parsed) or parsed < 0 or parsed >= 2**63:
            raise ConfigError(f"{where}: {name} {text!r} is not a number from 0 to 2**63", _HINT)
        return parsed

    t = value("t")
    if t is None:
        raise ConfigError(f"{where}: no time", _HINT)
    usages = [_usage(HOST, value("rss"), value("limit")), _usage("gpu0", value("gpu_used"), value("gpu_limit"))]
    total = value("total_gens")
    return _Row(
        t,
        tuple(usage for usage in usages if usage is not None),
        value("gen"),
        (cells.get("phase") or "").strip(),
        None if total is None else int(total),
        value("driver"),
        value("driver_capacity"),
    )


def _usage(resource: str, used: float | None, limit: float | None) -> Usage | None:
    if used is None:
        return None
    bound = None if not limit else Limit(int(limit), "trace", int(limit) - int(used))
    return Usage(resource, int(used), bound)


def _events(rows: Iterable[_Row], path: Path) -> Iterator[Event]:
    pid, before = 1, _Row(0.0, (), None, "", None, None, None)
    highest: float | None = None  # index of this process
    for row in rows:
        if pid == 1 and not before.usages and highest is None:
            pid += 1
            yield Attached(row.t, Target("trace", pid, 0), f"trace {path.name}")
        elif _restarts(before, row, highest):
            pid, highest = pid + 1, None
            before = _Row(row.t, (), None, "", None, None, None)
            yield Attached(row.t, Target("trace", pid, 0), f"trace {path.name}")
        yield from _marks(before, row, highest)
        yield Sampled(row.t, Sample(row.usages))
        highest = highest if row.generation is None else row.generation
        before = row


def _restarts(before: _Row, row: _Row, highest: float | None) -> bool:
    was, now = before.host_bytes, row.host_bytes
    if highest is None or was is None or now is None:
        return False
    if row.generation is None:
        return before.generation is not None and now < GONE_SHARE * was
    return row.generation < highest and now < RESTART_SHARE * was


def _marks(before: _Row, row: _Row, highest: float | None) -> Iterator[Event]:
    if row.generation is not None and row.generation != highest:
        yield GenerationSeen(row.t, row.generation, row.total)
    if row.phase != before.phase:
        yield PhaseSeen(row.t, row.phase or before.phase, "start" if row.phase else "end")
    if row.driver is not None and row.driver != before.driver:
        yield GaugeSeen(row.t, "driver", row.driver, row.driver_capacity)


def replay(path: Path | str, policy: Policy, limit_bytes: int | None = None) -> Generator[Notice, None, Snapshot]:
    """All that the engine has to tell about a trace, in order; every notice carries the fields of a forecast.

    What it returns is the state at the end.
    Nothing is signalled: every interrupt is a dry run. `limit_bytes` binds where it is tighter than the trace's own.
    """
    engine = Engine(policy)
    latest: dict[str, Notice] = {}
    for event in read_trace(path):
        if limit_bytes is not None and isinstance(event, Sampled):
            event = _limited(event, limit_bytes)  # noqa: PLW2901
        actions = engine.feed(event)
        if any(isinstance(action, Interrupt) for action in actions):
            actions = actions + engine.feed(Signalled(event.t, "SIGINT", dry_run=True))
        for action in actions:
            if isinstance(action, Notice):
                yield _complete(action, latest)
    return engine.snapshot()


def _limited(event: Sampled, limit_bytes: int) -> Sampled:
    """As the live watch does with --limit: it bounds host memory, and the tightest limit binds."""

    def bound(usage: Usage) -> Usage:
        limit = Limit(limit_bytes, "--limit", limit_bytes - usage.used_bytes)
        room = usage.limit.headroom_bytes if usage.limit else math.inf
        return replace(usage, limit=limit) if usage.resource == HOST and limit.headroom_bytes < room else usage

    return replace(event, sample=replace(event.sample, usages=tuple(map(bound, event.sample.usages))))


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
