"""Snapshot -> one JSON-ready dict: the only place that knows how a snapshot looks in JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from memwatch.core.examination import Diagnosis
from memwatch.core.model import GenerationRow, ResourceView, Snapshot

SCHEMA = 1  # grows when a field changes its meaning or goes; new fields leave it alone

MOST_TYPES = 50  # of the latest census
MOST_GENERATIONS = 200  # the newest; ten thousand rows would cost 20 MB to write


def status(snapshot: Snapshot) -> dict[str, Any]:
    """The state of the watch. Bytes and seconds; unknown is null; forecasts have the names that replay prints."""
    shaped = {"target", "command", "resources", "diagnosis"}
    plain = {f.name: jsonable(getattr(snapshot, f.name)) for f in fields(snapshot) if f.name not in shaped}
    target = jsonable(snapshot.target)
    return {
        "schema": SCHEMA,
        "up": snapshot.up,
        **plain,
        "target": target and {**target, "command": jsonable(snapshot.command)},
        "resources": [_resource(view) for view in snapshot.resources],
        "diagnosis": _diagnosis(snapshot.diagnosis),
    }


def jsonable(value: Any) -> Any:
    """Records as dicts, enums as their value, floats that JSON cannot write as null, text that UTF-8 can."""
    if value is None or (isinstance(value, bool | int) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if is_dataclass(value):
        return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    return jsonable(str(value))


def _diagnosis(known: Diagnosis | None) -> dict[str, Any] | None:
    """All of it, but of the types only those that there is the most of; stacks have pages of their own."""
    if known is None:
        return None
    census = known.latest.census
    brief = census and replace(census, types=census.types[:MOST_TYPES])
    shown: dict[str, Any] = jsonable(replace(known, credits=(), latest=replace(known.latest, census=brief)))
    return {name: value for name, value in shown.items() if name != "credits"}


def _resource(view: ResourceView) -> dict[str, Any]:
    limit, trend, forecast = view.usage.limit, view.trend, view.forecast
    shown = {
        "resource": view.usage.resource,
        "used": view.usage.used_bytes,
        "limit": limit and limit.bytes,
        "limit_origin": limit and limit.origin,
        "headroom": limit and limit.headroom_bytes,
        "baseline": view.baseline_bytes,
        "peak": view.peak_bytes,
        "verdict": view.verdict,
        "model": trend and trend.model,
        "model_weight": trend and trend.weight,
        "model_points": trend and trend.points,
        "model_since_gen": trend and trend.since_generation,
        "confidence": trend and trend.confidence,
        "growth_per_s": trend and trend.growth_per_second,
        "growth_per_gen": trend and trend.growth_per_generation,
        "eta_s": forecast and forecast.eta_seconds,
        "eta_lo_s": forecast and forecast.eta_low_seconds,
        "eta_hi_s": forecast and forecast.eta_high_seconds,
        "oom_gen": forecast and forecast.generation,
        "oom_gen_lo": forecast and forecast.generation_low,
        "oom_gen_hi": forecast and forecast.generation_high,
        "finishes": forecast and forecast.finishes,
        "generations": [_generation(row) for row in view.generations[-MOST_GENERATIONS:]],
        "generations_left_out": max(0, len(view.generations) - MOST_GENERATIONS),
    }
    plain: dict[str, Any] = jsonable(shown)
    return plain


def _generation(row: GenerationRow) -> dict[str, Any]:
    plain: dict[str, Any] = jsonable(row)
    return {**plain, "delta_bytes": row.delta_bytes}
