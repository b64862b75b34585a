"""A fixed part of the decision suite, and its page: `make trust` runs all of it."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import pytest

from support.markdown import rows, section
from trust import tables
from trust.cases import FAMILIES, draw
from trust.figures import Figures, bars, is_wrong, results
from trust.judge import Outcome, judged

SEEDS = range(3)  # of each family
PAGE, KEPT = tables.PAGE.read_text(), tables.kept()
SUMMARY = (tables.ROOT / "docs" / "trust.md").read_text()
DECISIONS = ("decisions", "unseen")
WRONG = [one for name in DECISIONS for one in KEPT[name]["results"]["wrong"]]
KNOWN = {(one["case"], one["life"]) for one in WRONG}  # each has its cause on the page


@cache
def outcomes(family: str) -> tuple[Outcome, ...]:
    return tuple(outcome for seed in SEEDS for outcome in judged(draw(family, seed)))


@pytest.mark.parametrize("family", FAMILIES)
def test_leaking_runs_are_saved_and_healthy_ones_left_alone_and_what_is_said_is_true(family: str) -> None:
    assert [told for told in outcomes(family) if is_wrong(told) and (told.case, told.life) not in KNOWN] == []


def test_the_part_is_worth_running() -> None:
    """Each family does what it is called after: most of its processes leak, or none."""
    for family in FAMILIES:
        told = outcomes(family)
        assert min(one.looks for one in told) > 50, "each is watched"
        assert (sum(one.outcome == "saved" for one in told) > len(SEEDS) // 2) is family.endswith("_leak")


def test_the_same_seed_is_the_same_run() -> None:
    assert draw("resume_leak", 7) == draw("resume_leak", 7) != draw("resume_leak", 8)


# --- the page -------------------------------------------------------------------------------------------------------


def test_the_page_shows_the_results() -> None:
    assert tables.filled(PAGE, KEPT) == PAGE, "run `python -m trust.tables` in tests"


@pytest.mark.parametrize("name", DECISIONS)
def test_the_results_are_of_all_families_and_sum_up(name: str) -> None:
    told: Figures = KEPT[name]["results"]
    assert set(told["families"]) == set(FAMILIES)
    for name in ("runs", "processes", "saved", "late", "MISSED", "FALSE", "quiet"):
        assert told["all"][name] == sum(one[name] for one in told["families"].values())
    wrong = told["all"]["late"] + told["all"]["MISSED"] + told["all"]["FALSE"]
    assert len([one for one in told["wrong"] if one["outcome"] in ("late", "MISSED", "FALSE")]) == wrong


def test_another_result_makes_another_page() -> None:
    changed = copy.deepcopy(KEPT)
    changed["decisions"]["results"]["all"]["saved"] += 1
    assert tables.filled(PAGE, changed) != PAGE


def test_what_is_missed_has_its_cause_on_the_page() -> None:
    told = section(SUMMARY, "What the decisions missed")
    assert [one["case"] for one in WRONG if f"`{one['case']}`" not in told] == []


def test_the_summary_says_what_the_results_say() -> None:
    of = [KEPT[name]["results"]["all"] for name in DECISIONS]
    lost = [f"{one['late'] + one['MISSED']} of {one['leaking']}" for one in of]
    interrupted = [f"{one['FALSE']} of {one['quiet'] + one['FALSE']}" for one in of]
    false = [f"{one['untrue_causes']} of {one['processes']:,}" for one in of]
    real = KEPT["real"]
    lost.append(f"{real['leaking'] - real['leaking_saved']} of {real['leaking']}")
    interrupted.append(f"{real['healthy_interrupted']} of {real['healthy']}")
    false.append(f"{real['verdicts'].get('wrong', 0)} of {real['leaking'] + real['healthy']}")
    assert [cells[1:] for cells in rows(SUMMARY)] == [lost, interrupted, false]
    assert [one for one in of if f"with {100 * one['saved_share']:.1f} % saved" not in SUMMARY] == []


def test_each_bar_can_be_missed() -> None:
    good = outcomes("linear_leak")[0]
    worse = ({"outcome": "MISSED"}, {"outcome": "FALSE"}, {"is_true": False}, {"unjournalled": 1}, {"retold": False})
    for number, change in enumerate(worse):
        told = [good, replace(good, case="other:1", **change)]
        assert [met for *_, met in bars(results(told)["all"])] == [i != number for i in range(len(worse))]
