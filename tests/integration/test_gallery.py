"""Programs of the gallery that need small packages, healthy and failing; `make gallery` runs them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gallery.catalogue import CATALOGUE, SMALL, Program
from gallery.run import ROOT, Setting, command, unwatched, watched
from gallery.table import COLUMNS, row

pytestmark = [pytest.mark.paced, pytest.mark.timeout(600)]

ENVIRONMENTS = ROOT / ".venv"
PROGRAMS = [program for program in CATALOGUE if program.python == SMALL]


def facts(program: Program, failing: bool, tmp_path: Path) -> dict[str, Any]:
    if not (ENVIRONMENTS / SMALL / ".made").exists():
        pytest.skip("needs the small programs of the gallery: make tools")
    words = command(program, failing, tmp_path, ENVIRONMENTS)
    alone = unwatched(words, tmp_path / "unwatched")
    setting = Setting(failing, attach="pid", limit="flag", busy=False, log=True)
    run = watched(program, words, setting, alone, tmp_path / "watched")
    return run | {"peak_bytes": max(alone.memory), "unwatched_seconds": alone.seconds}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_healthy_program_is_left_in_peace(program: Program, tmp_path: Path) -> None:
    found = facts(program, False, tmp_path)
    cells = dict(zip(COLUMNS, row(found, program), strict=True))
    del cells["needs"]  # in the middle of half a minute it is too young to tell
    assert {column: cell for column, cell in cells.items() if "✗" in cell} == {}, found


def test_a_history_that_is_kept_is_named_and_interrupted(tmp_path: Path) -> None:
    (deap,) = (program for program in PROGRAMS if program.name == "DEAP")
    found = facts(deap, True, tmp_path)
    assert found["right_cause"] and found["interrupts"], found
    assert found["end"].startswith("interrupted"), found
