"""The JSON form of a snapshot, in both directions: /status.json and the reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from memwatch.core.examination import Diagnosis
from memwatch.core.snapshot import ResourceView, Snapshot

_TREND = {
    "model": "model",
    "weight": "model_weight",
    "points": "model_points",
    "since_generation": "model_since_gen",
    "confidence": "confidence",
    "growth_per_second": "growth_per_s",
    "growth_per_generation": "growth_per_gen",
}  # JSON names of a Trend's fields
_FORECAST = {
    "eta_seconds": "eta_s",
    "eta_low_seconds": "eta_lo_s",
    "eta_high_seconds": "eta_hi_s",
    "generation": "oom_gen",
    "generation_low": "oom_gen_lo",
    "generation_high": "oom_gen_hi",
    "finishes": "finishes",
}  # JSON names of a Forecast's fields
_NEEDED = {"bytes": "needed", "low_bytes": "needed_lo", "high_bytes": "needed_hi"}  # of a MemoryNeeded's
_PLANNED = {
    "seconds": "interrupt_in_s",
    "generation": "interrupt_gen",
    "reason": "no_interrupt",
}  # of a PlannedInterrupt's
STATUS_SCHEMA_VERSION = 1  # grows when a field changes its meaning or goes; new fields leave it alone

MOST_TYPES = 50  # types of the latest census
MAX_JSON_GENERATIONS = 200  # the newest rows; writing ten thousand would take 20 MB


def snapshot_to_dict(snapshot: Snapshot) -> dict[str, Any]:
    """The state of the watch. Bytes and seconds; unknown is null; forecasts have the names that replay prints."""
    shaped = {"target", "command", "resources", "diagnosis"}
    plain = {f.name: jsonable(getattr(snapshot, f.name)) for f in fields(snapshot) if f.name not in shaped}
    target = jsonable(snapshot.target)
    return {
        "schema": STATUS_SCHEMA_VERSION,
        "up": snapshot.up,
        **plain,
        "target": target and {**target, "command": jsonable(snapshot.command)},
        "resources": [_resource(view) for view in snapshot.resources],
        "diagnosis": _diagnosis(snapshot.diagnosis),
    }


def snapshot_shape(shown: dict[str, Any]) -> dict[str, Any]:
    """Turns the result of `snapshot_to_dict` back into the fields of a Snapshot, the omitted ones empty; KeyError."""
    target, known = shown["target"], shown["diagnosis"]
    return {
        **shown,
        "command": target["command"] if target else "",
        "resources": [_view_shape(one) for one in shown["resources"]],
        "diagnosis": known and {**known, "credits": []},
    }


def _view_shape(shown: dict[str, Any]) -> dict[str, Any]:
    limit = {"bytes": shown["limit"], "origin": shown["limit_origin"], "headroom_bytes": shown["headroom"]}
    trend, forecast, needed, planned = (
        {field: shown[name] for field, name in names.items()} for names in (_TREND, _FORECAST, _NEEDED, _PLANNED)
    )
    return {
        **shown,
        "usage": {
            "resource": shown["resource"],
            "used_bytes": shown["used"],
            "limit": None if shown["limit"] is None else limit,
        },
        "baseline_bytes": shown["baseline"],
        "peak_bytes": shown["peak"],
        "trend": None if shown["model"] is None else trend,
        "forecast": None if all(value is None for value in forecast.values()) else forecast,
        "needed": None if shown["needed"] is None else needed,
        "planned": None if shown["no_interrupt"] is None else planned,
        "timeline": [
            {"t": t, "seconds": shown["timeline_step_s"], "least_bytes": least, "most_bytes": most}
            for t, least, most in shown["timeline"]
        ],
    }


def jsonable(value: Any) -> Any:
    """Records as dicts, enums as their value, floats that JSON cannot represent as null, text that UTF-8 can encode."""
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
    """All fields, but only the most frequent types; stacks have pages of their own."""
    if known is None:
        return None
    census = known.latest.census
    brief = census and replace(census, types=census.types[:MOST_TYPES])
    shown = dict(jsonable(replace(known, credits=(), latest=replace(known.latest, census=brief))))
    del shown["credits"]
    return shown


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
        "severity": view.severity,
        "warned": view.warned,
        "drivers": view.drivers,
        "neighbour_growth": view.neighbour_growth,
        "others_per_s": view.others_per_second,
        **{name: trend and getattr(trend, field) for field, name in _TREND.items()},
        **{name: forecast and getattr(forecast, field) for field, name in _FORECAST.items()},
        **{name: view.needed and getattr(view.needed, field) for field, name in _NEEDED.items()},
        **{name: view.planned and getattr(view.planned, field) for field, name in _PLANNED.items()},
        "generations": [
            {**jsonable(row), "delta_bytes": row.delta_bytes} for row in view.generations[-MAX_JSON_GENERATIONS:]
        ],
        "generations_left_out": max(0, len(view.generations) - MAX_JSON_GENERATIONS),
        "timeline": [(one.t, one.least_bytes, one.most_bytes) for one in view.timeline],
        "timeline_step_s": view.timeline[0].seconds if view.timeline else None,
    }
    return dict(jsonable(shown))
