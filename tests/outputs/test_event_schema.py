"""`memwatch schema events`, as a validator reads it; each event that any test produces is checked by conftest.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import run

import pytest
from jsonschema import Draft202012Validator, ValidationError

from memwatch.core.engine.status_sentence import to_json_line
from memwatch.core.events import Notice
from memwatch.outputs.event_schema import event_schema
from support.events import faults

VALIDATOR = Draft202012Validator(event_schema())
PHASE = {"resource": "host", "gen": 3, "phase": "train", "delta": 1, "end": 2, "peak": 3, "seconds": 1.5}
LEAKS = """
import sys, time
kept = []
for epoch in range(1, 40):
    print(f"Epoch {epoch}/39", flush=True)
    kept.append(bytearray(4_000_000))
    time.sleep(0.3)
"""


def line(event: str, **fields: object) -> dict[str, object]:
    return dict(json.loads(to_json_line(Notice(1.0, event, "text", fields), pid=7)))


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(event_schema())


def test_a_line_is_as_it_says() -> None:
    VALIDATOR.validate(line("phase", **PHASE))
    VALIDATOR.validate(line("deferred", own_save_due_s=3.0))
    VALIDATOR.validate(line("note", of_a_later_version=1))


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("phase", {**PHASE, "gen": "3"}),
        ("phase", {name: value for name, value in PHASE.items() if name != "delta"}),
        ("deferred", {"kind": "time"}),
        ("unheard", {}),
    ],
)
def test_another_line_is_not(event: str, fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        VALIDATOR.validate(line(event, **fields))


def test_a_field_that_it_does_not_know_is_found_by_the_tests() -> None:
    assert faults(Notice(1.0, "phase", "", PHASE)) == []
    assert faults(Notice(1.0, "phase", "", {**PHASE, "new": 1})) == ["new is not in the schema"]
    assert faults(Notice(1.0, "phase", "", {**PHASE, "gen": True})) == ["gen is True, no number"]


@pytest.mark.integration
def test_the_lines_of_a_run_are_as_it_says(tmp_path: Path) -> None:
    memwatch = [sys.executable, "-m", "memwatch", "run", "--json", "-v", "--listen", "none", "--history", "none"]
    command = [*memwatch, "--limit", "120MB", "--", sys.executable, "-c", LEAKS]
    printed = run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False).stdout
    lines = [json.loads(one) for one in printed.splitlines() if one.startswith("{")]
    assert {"attached", "marker", "generation", "forecast", "interrupt", "exited"} <= {one["event"] for one in lines}
    for one in lines:
        VALIDATOR.validate(one)
