"""The JSON Schema of the lines that `--json` prints, of all events."""

from __future__ import annotations

from typing import Any

_TYPES = {
    "text": "string",
    "int": "integer",
    "number": "number",
    "bool": "boolean",
    "list": "array",
    "object": "object",
}

# Of each event its fields: a name and a type; `?` behind the type: it may be null. Fields in square brackets are
# there in some of the lines only, all of one pair of brackets together.
_OUTLOOK = (
    "resource:text gen:number? verdict:text growth_per_gen:number? growth_per_s:number? model:text?"
    " model_weight:number? model_points:int? model_since_gen:number? eta_s:number? eta_lo_s:number? eta_hi_s:number?"
    " oom_gen:number? oom_gen_lo:number? oom_gen_hi:number? finishes:bool? others_per_s:number"
    " needed:int? needed_lo:int? needed_hi:int? interrupt_in_s:number? interrupt_gen:number?"
    " limit:int? limit_origin:text? used:int headroom:int? drivers:list action:text?"
)
_DECISION = "samples:list threshold:object"
_EVENTS = {
    "waiting": "reason:text",
    "attached": "pid:int attempt:int command:text run_id:text run:object?",
    "note": "",
    "marker": "gen:number total:int? unit:text at:text from:text?",
    "generation": "resource:text gen:number delta:int start:int end:int peak:int seconds:number? partial:bool"
    " phases:object",
    "phase": "resource:text gen:number phase:text delta:int end:int peak:int seconds:number?",
    "examined": "reason:text gen:number? phase:text? used:int? python_bytes:int? objects:int? types:object"
    " attributes:object cpu_seconds:number",
    "not_examined": "reason:text gen:number? phase:text? failure:text",
    "snapshot": "label:text path:text reason:text",
    "forecast": _OUTLOOK,
    "neighbours": "cgroup:text others_bytes:int others:int members_bytes:int members:int largest:list",
    "warn": f"{_OUTLOOK} {_DECISION} [kind:text]",
    "cleared": f"{_OUTLOOK} {_DECISION}",
    "cow": "cow_bytes:int cow_bytes_per_s:number processes:int",
    "deferred": f"[{_OUTLOOK} {_DECISION} kind:text] [own_save_due_s:number]",
    "interrupt": f"{_OUTLOOK} {_DECISION} kind:text",
    "signalled": "signal:text dry_run:bool error:text hook:text instead:bool",
    "hook": "command:text status:int? seconds:number error:text output:text",
    "hook_failed": "command:text status:int? seconds:number error:text output:text",
    "checkpoint": "state:text evidence:text path:text seconds:number?",
    "saved": "seconds:number? evidence:text",
    "escalated": "signal:text reason:text",
    "failed": "signal:text error:text",
    "continued": "cooldown_s:number",
    "breach": "expectation:text seen:text breaches:int",
    "finding": "cause:text resource:text growth_per_unit:number unit:text share:number? phase:text? since:number?"
    " type:text count_before:int? count_after:int? holder:text process:text remedy:text confidence:number proof:list",
    "out_of_memory": "kind:text line:text",
    "source_failed": "source:text reason:text",
    "source_recovered": "source:text reason:text",
    "armed": "reason:text",
    "unarmed": "reason:text",
    "signal_handling": "signal:text handled:bool? where:text reason:text",
    "exited": "cause:text evidence:list exit_code:int? signal:text? checkpoint:object?",
    "restarting": "restart:int most:int? after_s:number command:text",
    "gave_up": "restarts:int reason:text",
}


def event_schema() -> dict[str, Any]:
    """The schema of one line: `event`, `t` and `text` are in each, the other fields depend on the event.

    Others are not refused: a later version may have more.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "memwatch: one line of --json",
        "type": "object",
        "required": ["event", "t", "text"],
        "properties": {
            "event": {"enum": list(_EVENTS)},
            "t": {"type": "number", "description": "Unix time, seconds"},
            "text": {"type": "string", "description": "the line for people"},
            "pid": {"type": "integer", "description": "of the trainer, where a whole node is watched"},
        },
        "allOf": [
            {"if": {"properties": {"event": {"const": event}}}, "then": _one(event, fields)}
            for event, fields in _EVENTS.items()
        ],
    }


def _one(event: str, fields: str) -> dict[str, Any]:
    groups = fields.replace("]", "[").split("[")  # every second one was in brackets
    always, sometimes = [group.split() for group in groups[::2]], [group.split() for group in groups[1::2]]
    properties = dict(_property(field) for group in (*always, *sometimes) for field in group)
    together = [[field.partition(":")[0] for field in group] for group in sometimes]
    schema: dict[str, Any] = {
        "required": [field.partition(":")[0] for group in always for field in group],
        "properties": properties,
    }
    if together:
        schema["dependentRequired"] = {name: names for names in together for name in names if len(names) > 1}
    return schema


def _property(field: str) -> tuple[str, dict[str, Any]]:
    name, _, kind = field.partition(":")
    of = _TYPES[kind.rstrip("?")]
    return name, {"type": [of, "null"] if kind.endswith("?") else of}
