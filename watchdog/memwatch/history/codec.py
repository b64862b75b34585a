"""Events and samples as rows, and back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import get_args

from memwatch import wire
from memwatch.core.events import Event, Sampled
from memwatch.core.model import Limit, Sample, Usage
from memwatch.core.text import encodable

_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event) if kind is not Sampled}
_INT_MAX = 2**63 - 1  # what SQLite holds

SampleRow = tuple[str, int, "int | None", "str | None", "int | None"]  # resource, used, bound, origin, headroom


def encode_event(event: Event) -> tuple[str, bytes]:
    """(kind, JSON) of any event but Sampled; wire.ShapeError when it holds something that JSON cannot."""
    return type(event).__name__, wire.to_json(event)


def decode_event(kind: str, json: bytes) -> Event | None:
    """The event again; None for a kind or a shape that this memwatch does not know."""
    type_ = _KINDS.get(kind)
    if type_ is None:
        return None
    try:
        return wire.from_json(json, type_)
    except wire.ShapeError:
        return None


def encode_usages(sample: Sample) -> Iterator[SampleRow]:
    """One row per resource. SQLite takes no lone surrogates, and a cgroup's path may hold any byte."""
    for usage in sample.usages:
        limit = usage.limit
        if limit is None:
            yield encodable(usage.resource), _int(usage.used_bytes), None, None, None
        else:
            bound, headroom = _int(limit.bytes), _int(limit.headroom_bytes)
            yield encodable(usage.resource), _int(usage.used_bytes), bound, encodable(limit.origin), headroom


def decode_usage(row: SampleRow) -> Usage:
    """The usage that a row holds."""
    resource, used, bound, origin, headroom = row
    if bound is None or headroom is None:
        return Usage(resource, used, None)
    return Usage(resource, used, Limit(bound, origin or "", headroom))


def _int(count: float) -> int:
    return max(-_INT_MAX, min(_INT_MAX, int(count))) if math.isfinite(count) else _INT_MAX
