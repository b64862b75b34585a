"""A run's events as a trace that `memwatch replay` reads: what a CSV of one host, one GPU and one gauge can tell."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import TextIO

from memwatch.core.events import (
    Attached,
    Event,
    GaugeSeen,
    GenerationSeen,
    PhaseSeen,
    Sampled,
    Stretch,
    TotalSeen,
)
from memwatch.core.measurements import HOST, Usage
from memwatch.history.csv_trace import GPU

COLUMNS = ("t", "rss", "limit", "gen", "phase", "total_gens", "gpu_used", "gpu_limit", "driver", "driver_capacity")
Cell = str | int | float | None


def write(events: Iterable[Event | Stretch], file: TextIO) -> None:
    """A row for each sample, with seconds from the first event."""
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(COLUMNS)
    rows.writerows(_rows(events))


def _rows(events: Iterable[Event | Stretch]) -> Iterator[list[Cell]]:
    start_t: float | None = None
    said: dict[str, Cell] = {}
    for told in events:
        first_t = told.times[0] if isinstance(told, Stretch) else told.t
        start_t = first_t if start_t is None else start_t
        if isinstance(told, Stretch | Sampled):
            for event in map(told.sampled, range(len(told.times))) if isinstance(told, Stretch) else (told,):
                usages = {usage.resource: usage for usage in event.sample.usages}
                pools = _pool(usages.get(HOST), "rss", "limit") | _pool(usages.get(GPU), "gpu_used", "gpu_limit")
                known = said | pools
                yield [round(event.t - start_t, 3), *(known.get(name) for name in COLUMNS[1:])]
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
