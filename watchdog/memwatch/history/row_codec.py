"""Encodes events and samples as rows, and decodes them."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_args

from memwatch.core.events import Event, Sampled
from memwatch.core.measurements import Limit, Sample, Usage
from memwatch.core.text_and_units import encodable
from memwatch.system import json_and_yaml

_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event) if kind is not Sampled}
_INT_MAX = 2**63 - 1  # the largest INTEGER of SQLite
MAX_TIMESTAMP = 2.5e11  # Seconds: Python has dates until the year 9999.
_MAX_FIGURE = 2.0**63  # of a generation, or of a gauge of the log


@dataclass(frozen=True, slots=True)
class _NoticeFields:
    """The fields of notices that are read from a history again, with their types."""

    resource: str | None = None
    gen: float | None = None
    attempt: int | None = None
    verdict: str | None = None
    eta_s: float | None = None
    eta_lo_s: float | None = None
    eta_hi_s: float | None = None
    growth_per_gen: float | None = None
    delta: float | None = None
    partial: bool | None = None
    headroom: float | None = None
    kind: str | None = None


# resource (empty: none could be read), used, bound, origin, headroom, accounting
SampleRow = tuple[str, int, "int | None", "str | None", "int | None", "str | None"]


def encode_event(event: Event) -> tuple[str, bytes]:
    """Encode any event but Sampled as (kind, JSON); SerializationError for a value that JSON cannot hold."""
    return type(event).__name__, json_and_yaml.to_json(event)


def decode_event(kind: str, json: bytes | str) -> Event | None:
    """Decode an event; None for an unknown kind or shape."""
    type_ = _KINDS.get(kind)
    if type_ is None:
        return None
    try:
        event = json_and_yaml.from_json(json, type_)
    except json_and_yaml.SerializationError:
        return None
    values = (getattr(event, field.name) for field in fields(event))
    is_bounded = all(abs(value) <= _MAX_FIGURE for value in values if isinstance(value, (int, float)))
    return event if is_bounded and abs(event.t) < MAX_TIMESTAMP else None


def decode_fields(json: bytes | str) -> Mapping[str, Any]:
    """Decode the fields of a notice; sqlite3.DatabaseError when they are invalid."""
    try:
        json_and_yaml.from_json(json, _NoticeFields)
        return json_and_yaml.from_json(json, dict)
    except json_and_yaml.SerializationError as error:
        raise sqlite3.DatabaseError(f"fields of a notice: {error}") from error


def encode_sample(sample: Sample) -> Iterator[SampleRow]:
    """Encode one row per resource. SQLite takes no lone surrogates, but a cgroup's path may hold any byte."""
    if not sample.usages:
        yield "", 0, None, None, None, sample.accounting
    for usage in sample.usages:
        limit, name, used = usage.limit, encodable(usage.resource), _int(usage.used_bytes)
        if limit is None:
            yield name, used, None, None, None, sample.accounting
        else:
            bound, headroom = _int(limit.bytes), _int(limit.headroom_bytes)
            yield name, used, bound, encodable(limit.origin), headroom, sample.accounting


def decode_sample(rows: Sequence[SampleRow]) -> Sample:
    """Decode the rows of a sample: its usages and its accounting."""
    return Sample(tuple([_usage(row) for row in rows if row[0]]), accounting=rows[0][5])


def _usage(row: SampleRow) -> Usage:
    resource, used, bound, origin, headroom, _ = row
    if bound is None or headroom is None:
        return Usage(resource, used, None)
    return Usage(resource, used, Limit(bound, origin or "", headroom))


def _int(count: float) -> int:
    return max(-_INT_MAX, min(_INT_MAX, int(count))) if math.isfinite(count) else _INT_MAX
