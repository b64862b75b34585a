"""Recordings of real programs: no healthy one is interrupted, and few of those that die are missed.

The floors are what was measured; with the same recordings they are made stricter, or one for another.
"""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path

import pytest

from traces.judge import figures
from traces.recorded import Case, cases, recordings, slowed
from traces.score import data_tasks, score

NEAR = ("fits 1.1", "dies 0.8")  # the harder of the limits above a run's need, the likelier of those within its growth
MISSED_LATE = 6  # of those that are watched for the last quarter of their life
MISSED = 4  # allocations of a save, and jumps; docs/forecasting.md


def write_cases(folder: Path, *families: str) -> None:
    for path in recordings():
        for case in cases(path):
            if case.label["family"] in families:
                case.write(folder)


def test_where_the_limit_is_near_none_is_interrupted_that_fits_and_most_are_saved_that_do_not(tmp_path: Path) -> None:
    write_cases(tmp_path, *NEAR)
    total = figures([score(task) for task in data_tasks(tmp_path)])
    assert (total.traces, total.dying, total.errors) == (81, 58, 0)
    assert total.false == 0 and total.missed <= MISSED, total.wrong
    assert total.waste <= 0.033 and total.eta <= 0.12 and total.coverage >= 0.77


def test_a_watch_that_begins_late_saves_most_programs_too(tmp_path: Path) -> None:
    write_cases(tmp_path, "dies 0.8")
    total = figures([score(task, attach_at=0.75) for task in data_tasks(tmp_path)])
    assert (total.dying, total.errors) == (58, 0)
    assert total.missed <= MISSED_LATE, total.wrong


@pytest.mark.parametrize("slower", [1.0, 20.0])
def test_a_case_ends_where_memory_first_reaches_its_limit(slower: float) -> None:
    found = [case for path in islice(recordings(), 4) for case in cases(path, slower)]
    assert {case.label["family"] for case in found} > {"fits 1.1", "fits 1.25"}
    for case in found:
        used = _used(case)
        if case.label["oom_t"] is None:
            assert max(used) < case.label["limit"]
        else:
            assert used[-1] >= case.label["limit"] > max(used[:-1])


def test_a_run_that_is_slowed_down_has_the_same_levels_further_apart() -> None:
    rows = [
        {"t": "0.0", "rss": "100", "checkpoint": ""},
        {"t": "1.0", "rss": "200", "checkpoint": "writing@1.000 saved@0.500/0.200"},
        {"t": "40.0", "rss": "300", "checkpoint": ""},  # nobody knows what was between
    ]
    found = slowed(rows, 10.0)
    assert [row["t"] for row in found] == ["0.000", "2.000", "4.000", "6.000", "8.000", "10.000", "400.000"]
    assert [row["rss"] for row in found] == ["100", "120", "140", "160", "180", "200", "300"]
    assert [row["checkpoint"] for row in found if row["checkpoint"]] == ["saved@5.000/0.200"]
    assert all(float(a["t"]) < float(b["t"]) for a, b in pairwise(found))


def _used(case: Case) -> list[int]:
    return [int(row["rss"]) for row in case.rows if row["rss"]]
