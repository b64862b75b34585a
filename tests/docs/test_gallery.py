"""docs/gallery and its page say what the runs say."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from gallery import table
from support.markdown import in_place, rows

PAGE = table.PAGE.read_text()
KEPT = table.read_kept()
SUMMARY = (Path(__file__).parents[2] / "docs" / "gallery.md").read_text()


def runs(name: str) -> list[dict[str, str]]:
    """The rows of one table of the page."""
    columns = table.TABLES[name].split(",")
    return [dict(zip(columns, row, strict=True)) for row in rows(in_place(PAGE, name))]


def right(name: str, run: str, column: str) -> str:
    """How many are as they are in truth."""
    cells = [one[column] for one in runs(name) if one["run"] == run]
    return f"{sum('✗' not in cell for cell in cells)} of {len(cells)}"


def test_the_tables_show_the_runs() -> None:
    assert KEPT
    assert table.filled(PAGE, KEPT) == PAGE, "run `python -m gallery.table`"


def test_what_is_kept_is_of_tables_of_the_page() -> None:
    assert {path.stem for path in table.KEPT.glob("*.jsonl")} == set(KEPT)


def test_another_run_makes_another_page() -> None:
    changed = copy.deepcopy(KEPT)
    changed["no_log"][0]["end"] = "failed"
    assert table.filled(PAGE, changed) != PAGE


@pytest.mark.parametrize(("name", "told"), list(zip(table.TABLES, rows(SUMMARY), strict=True)))
def test_the_summary_says_what_the_tables_say(name: str, told: list[str]) -> None:
    columns = (("healthy", "interrupted at"), ("failing", "interrupted at"), ("failing", "cause"))
    assert told[1:] == [right(name, *column) for column in columns]
