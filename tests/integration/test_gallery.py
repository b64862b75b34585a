"""Programs of the gallery that need small packages, healthy and failing; `make gallery` runs them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from gallery.catalogue import CATALOGUE, SMALL, Program
from gallery.run import ROOT, Setting, command, unwatched, watched
from gallery.table import row

pytestmark = [pytest.mark.paced, pytest.mark.timeout(600)]

ENVIRONMENTS = ROOT / ".venv"
PROGRAMS = [program for program in CATALOGUE if program.python == SMALL]


@pytest.mark.parametrize("failing", [False, True], ids=["healthy", "failing"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_what_is_said_of_it_is_true(program: Program, failing: bool, tmp_path: Path) -> None:
    if not (ENVIRONMENTS / SMALL / ".made").exists():
        pytest.skip("needs the small programs of the gallery: make tools")
    words = command(program, failing, tmp_path, ENVIRONMENTS)
    alone = unwatched(words, tmp_path / "unwatched")
    setting = Setting(failing, attach="pid", limit="flag", busy=False)
    facts = watched(program, words, setting, alone, tmp_path / "watched")
    facts |= {"peak_bytes": alone.peak, "unwatched_seconds": alone.seconds}
    wrong = [cell for cell in row(facts, program) if "✗" in cell]
    assert not wrong, facts
