"""The made traces: the same for the same seed, and their labels true."""

from __future__ import annotations

import csv
import io
import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from traces.draw import MOST_ROWS
from traces.families import FAMILIES, HELD_OUT
from traces.labels import CREDIT, ETA_AT, label
from traces.runs import GAUGE_HEADER, HEADER, Run, to_csv
from traces.score import STANDARD, tasks

SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces" / "data"
SEEDS = (0, 1)
MADE = [(family, seed) for family in FAMILIES for seed in SEEDS]


@cache
def made(family: str, seed: int = 0) -> tuple[Run, list[dict[str, str]], dict[str, Any]]:
    """The run, the rows of its trace, its label."""
    run = FAMILIES[family].run(seed)
    return run, list(csv.DictReader(io.StringIO(to_csv(run)))), label(run, f"{family}-{seed}", family)


def columns(told: dict[str, Any]) -> tuple[str, str]:
    return ("rss", "limit") if told["resource"] == "host" else ("gpu_used", "gpu_limit")


def test_the_held_out_run_is_large_enough_and_about_half_of_it_dies() -> None:
    assert all(seed >= HELD_OUT for seed in STANDARD)
    assert len(tasks()) >= 240
    assert 0.4 <= sum(family.dies for family in FAMILIES.values()) / len(FAMILIES) <= 0.6


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_makes_one_trace_and_another_seed_another(family: str) -> None:
    text = to_csv(FAMILIES[family].run(7))
    assert text == to_csv(FAMILIES[family].run(7))
    assert text != to_csv(FAMILIES[family].run(8))


@pytest.mark.parametrize(("family", "seed"), MADE)
def test_what_dies_dies_with_its_last_row_and_nothing_else_meets_the_limit(family: str, seed: int) -> None:
    _, rows, told = made(family, seed)
    used, limit = columns(told)
    met = [r["t"] for r in rows if r[used] and r[limit] and int(r[used]) >= int(r[limit])]
    assert (told["oom_t"] is not None) is FAMILIES[family].dies
    assert met == ([rows[-1]["t"]] if FAMILIES[family].dies else [])
    assert float(rows[-1]["t"]) == pytest.approx(told["end_t"], abs=1e-3)
    assert (told["peak"] >= told["limit"]) is FAMILIES[family].dies
    assert 60 <= len(rows) <= 1.6 * MOST_ROWS


@pytest.mark.parametrize(("family", "seed"), MADE)
def test_what_is_asked_lies_between_the_moment_when_it_can_be_known_and_the_end(family: str, seed: int) -> None:
    run, _, told = made(family, seed)
    assert len(told["eta"]) <= len(ETA_AT)
    assert told["eta"] == sorted(set(told["eta"]))
    assert all(max(told["t_visible"], run.t(run.settled)) <= t < told["oom_t"] for t in told["eta"])
    assert all(told["t_start"] < look["t"] < told["end_t"] for look in told["verdicts"])
    assert all(look["credit"] == CREDIT[look["state"]] for look in told["verdicts"])
    assert {look["t"] for look in told["slopes"]} <= {look["t"] for look in told["verdicts"]}
    assert told["t_start"] + 10 * told["ckpt_s"] < told["end_t"] or not told["savable"]


@pytest.mark.parametrize("family", FAMILIES)
def test_dying_runs_are_asked_for_their_eta_and_growing_ones_for_their_growth(family: str) -> None:
    told = [made(family, seed)[2] for seed in SEEDS]
    if FAMILIES[family].dies and not family.startswith("burst"):
        assert all(t["eta"] for t in told)
    counted = [look for t in told for look in t["slopes"]]
    if family.startswith("server") or family.startswith("no_markers"):
        assert counted == []
    elif family.endswith("_leak") and not family.startswith(("lost", "late")):
        assert counted
        assert all(look["bytes_per_gen"] > 0 for look in counted if look["t"] > told[0].get("t_visible", 0))


def cells(family: str, name: str) -> list[str]:
    return [row[name] for row in made(family)[1]]


def test_what_a_log_does_not_tell_is_not_in_the_trace() -> None:
    assert set(cells("no_markers", "gen")) == {""}
    late = cells("late_markers_leak", "gen")
    assert late[len(late) // 8] == ""
    assert late[-1] != ""
    run, rows, _ = made("lost_markers_leak")
    until = run.markers.until
    assert until is not None
    silent = [row["gen"] for row in rows if float(row["t"]) > run.t(until)]
    assert set(silent) == {str(until - 1 + run.first_index)} if run.markers.stays else {""}


def test_what_a_recording_lacks_is_not_in_the_trace() -> None:
    times = [float(t) for t in cells("jitter_leak", "t")]
    assert any(b < a for a, b in pairwise(times))
    run, rows, _ = made("gaps_leak")
    steps = [float(b["t"]) - float(a["t"]) for a, b in pairwise(rows)]
    assert max(steps) > 3 * run.interval
    assert "" in cells("gaps_leak", "rss")
    assert "" in cells("gaps_leak", "limit")


def test_limits_change_and_come_late() -> None:
    raised, lowered = (sorted({int(c) for c in cells(f"limit_{how}_leak", "limit")}) for how in ("raised", "lowered"))
    assert len(raised) == len(lowered) == 2
    assert int(cells("limit_raised_leak", "limit")[0]) == raised[0]
    assert int(cells("limit_lowered_leak", "limit")[0]) == lowered[1]
    assert cells("limit_unknown_leak", "limit")[0] == ""
    assert cells("limit_unknown_leak", "limit")[-1] != ""


def test_restarts_go_back_and_begin_low() -> None:
    run, rows, told = made("restart_leak")
    again = next(i for i, row in enumerate(rows) if float(row["t"]) >= run.starts[1])
    before = [int(row["gen"]) for row in rows[:again] if row["gen"]]
    after = [int(row["gen"]) for row in rows[again:] if row["gen"]]
    assert after[0] <= before[-1]
    assert int(rows[again]["rss"]) < 0.3 * int(rows[again - 1]["rss"])
    assert told["t_start"] == run.starts[-1]


def test_a_gauge_tells_what_fills_and_how_much_there_is_to_fill() -> None:
    _, rows, _ = made("gauge")
    assert tuple(rows[0]) == HEADER + GAUGE_HEADER
    told = [row for row in rows if row["driver"]]
    assert told[-1]["driver"] == told[-1]["driver_capacity"]
    assert made("gauge_leak")[1][-1]["driver"] < made("gauge_leak")[1][-1]["driver_capacity"]


def test_a_gpu_that_dies_has_a_host_that_does_not() -> None:
    _, rows, told = made("gpu_leak")
    assert told["resource"] == "gpu0"
    assert all(int(row["rss"]) < int(row["limit"]) for row in rows)


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no labelled traces in {SHARED}")
def test_labels_have_the_keys_and_the_credit_of_the_shared_ones() -> None:
    shared = [json.loads(path.read_text()) for path in SHARED.glob("*.json")]
    assert {look["state"]: look["credit"] for told in shared for look in told["verdicts"]} == CREDIT
    dying = next(told for told in shared if told["oom_t"] is not None)
    healthy = next(told for told in shared if told["oom_t"] is None)
    assert set(made("linear")[2]) == set(dying)
    assert set(made("gc_teeth")[2]) == set(healthy)
