"""Writes a run's events as a trace in Parquet: the columns of a trace in CSV, for pandas and the like."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable
from pathlib import Path

from memwatch.core.events import Event, SampleBatch
from memwatch.errors import ConfigError
from memwatch.history.csv_trace import TRACE_COLUMNS, write_trace

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
