"""docs/trust/results.md says of the soak what its results say."""

from __future__ import annotations

import copy

from soak import run

PAGE = run.PAGE.read_text()
RESULTS = run.read_results()


def test_the_table_shows_the_results() -> None:
    assert run.filled(PAGE, RESULTS) == PAGE, "run tests/soak/run.py --judge"


def test_there_are_results_of_both() -> None:
    assert set(RESULTS) == set(run.BARS)


def test_another_result_makes_another_page() -> None:
    changed = copy.deepcopy(RESULTS)
    changed["soak_month"]["results"]["readings"][-1][1] += 50
    assert run.filled(PAGE, changed) != PAGE
