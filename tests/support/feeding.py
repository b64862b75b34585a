"""Feeds a trace to a Forecaster as a replay does, and asks it on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memwatch.core.forecast.forecaster import Forecaster
from memwatch.core.forecast.outlook import Outlook
from traces.generators import Row


def feed(rows: Iterable[Row], forecaster: Forecaster | None = None) -> Forecaster:
    """The forecaster after all rows."""
    forecaster = forecaster or Forecaster()
    for _ in fed(rows, forecaster):
        pass
    return forecaster


def fed(rows: Iterable[Row], forecaster: Forecaster) -> Iterator[Row]:
    """Each row after it was told; a marker comes before its sample, and markers that vanish tell of a restart."""
    generation: int | None = None
    for row in rows:
        if row.generation is None and generation is not None:
            forecaster.restart(row.t)
        elif row.generation is not None and row.generation != generation:
            forecaster.begin_generation(row.t, float(row.generation))
        generation = row.generation
        forecaster.add_samples((row.t,), (row.used,))
        yield row


def ask(forecaster: Forecaster, row: Row, first_index: int = 0) -> Outlook:
    """The outlook at a row, its limit being the only bound."""
    headroom = None if row.limit is None else row.limit - row.used
    last = None if row.total is None else float(row.total - 1 + first_index)
    return forecaster.outlook(row.t, row.limit, headroom, last)


def outlooks(rows: Iterable[Row]) -> list[tuple[Row, Outlook]]:
    """What was said at every row."""
    forecaster = Forecaster()
    return [(row, ask(forecaster, row)) for row in fed(rows, forecaster)]
