"""The generations of a run as CSV."""

from __future__ import annotations

import csv
import io

from memwatch.core.snapshot import Snapshot
from memwatch.outputs.text.formatting import phase_delta

_BYTES = ("start_bytes", "end_bytes", "delta_bytes", "peak_bytes")
CSV_COLUMNS = ("resource", "attempt", "generation", "start_t", "end_t", *_BYTES)


def generations_csv(end: Snapshot) -> str:
    """Returns a row for each generation of each resource, with the growth in each phase; unknown is empty."""
    rows = [(view.usage.resource, row) for view in end.resources for row in view.generations]
    phases = list(dict.fromkeys(part.phase for _, row in rows for part in row.phases))
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow([*CSV_COLUMNS, *(f"phase:{phase}" for phase in phases)])
    for resource, row in rows:
        figures = (getattr(row, name) for name in _BYTES)
        deltas = (phase_delta(row, phase) for phase in phases)
        table.writerow([resource, row.attempt, row.index, row.start_t, row.end_t, *figures, *deltas])
    return file.getvalue()
