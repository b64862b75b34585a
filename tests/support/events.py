"""Checks that what the engine tells is as `memwatch schema events` says."""

from __future__ import annotations

from typing import Any

from memwatch.core.events import Notice
from memwatch.outputs.event_schema import event_schema

SCHEMAS = {one["if"]["properties"]["event"]["const"]: one["then"] for one in event_schema()["allOf"]}
_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": (list, tuple),
    "object": dict,
    "null": type(None),
}


def faults(notice: Notice) -> list[str]:
    """What is not as the schema says: a field too many or too few, or of another type."""
    schema = SCHEMAS[notice.event]
    properties, given = schema["properties"], set(notice.fields)
    found = [f"{name} is missing" for name in set(schema["required"]) - given]
    found += [f"{name} is not in the schema" for name in given - set(properties)]
    for name, others in schema.get("dependentRequired", {}).items():
        found += [f"{name} without {other}" for other in others if name in given and other not in given]
    for name in given & set(properties):
        kinds = properties[name]["type"]
        kinds, value = [kinds] if isinstance(kinds, str) else kinds, notice.fields[name]
        is_bool = isinstance(value, bool)
        if not any(isinstance(value, _TYPES[kind]) and (kind == "boolean" or not is_bool) for kind in kinds):
            found.append(f"{name} is {value!r}, no {' or '.join(kinds)}")
    return found
