"""Each fault of docs/faults.md has a test, which is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [line for line in (ROOT / "docs/faults.md").read_text().splitlines() if line.startswith("| ")]
FAULTS = [row for row in ROWS if not row.startswith("| what is done ")]
CELLS = 4


def test_there_are_faults() -> None:
    assert len(FAULTS) > 30


@pytest.mark.parametrize("row", FAULTS)
def test_each_fault_has_a_test(row: str) -> None:
    cells = [cell.strip() for cell in row.strip("|").split(" | ")]
    assert len(cells) == CELLS and all(cells), cells
    path, _, name = re.fullmatch(r"`(tests/[\w/]+\.py)(::)(test_\w+)`", cells[-1]).groups()
    functions = [one.name for one in ast.parse((ROOT / path).read_text()).body if isinstance(one, ast.FunctionDef)]
    assert name in functions, f"{path} has no {name}"
