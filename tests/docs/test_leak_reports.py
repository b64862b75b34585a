"""docs/leak_reports and the summary of it say what the runs say."""

from __future__ import annotations

import re
from pathlib import Path

from leak_reports import table
from leak_reports.run import reports

RUNS = table.read_runs(table.KEPT / "runs.jsonl")
SUMMARY = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text()


def test_the_page_is_made_of_the_runs() -> None:
    page = table.PAGE.read_text()
    assert table.filled(page, RUNS) == page, "run `python -m leak_reports.table`"


def test_each_program_was_run_once() -> None:
    assert sorted(run["name"] for run in RUNS) == sorted(report.name for report in reports())


def test_the_summary_has_the_numbers() -> None:
    known = {report.name: report for report in reports()}
    leaks = [run for run in RUNS if known[run["name"]].blamed]
    right = sum(table.outcome(run, known[run["name"]]) == "right" for run in leaks)
    healthy = [run for run in RUNS if not known[run["name"]].blamed]
    left_alone = sum(table.outcome(run, known[run["name"]]) == "right" for run in healthy)
    said = re.search(r"names (\d+) of (\d+) leaks rightly.*?leaves (\d+) of (\d+) healthy", SUMMARY, re.DOTALL)
    assert said is not None
    assert [int(number) for number in said.groups()] == [right, len(leaks), left_alone, len(healthy)]
