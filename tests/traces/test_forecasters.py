"""The baselines do what their names say, or a comparison with them is worth nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from traces.forecasters import FORECASTERS, Line

LIMIT = 1000
LENGTH = 60.0  # of a generation, seconds


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[Line]]:
    """The lines of a baseline over a level that is a function of time, ten seconds apart."""

    def lines(
        name: str, level: Callable[[float], float], seconds: float, checkpoint: float | None = 10.0
    ) -> list[Line]:
        path = tmp_path / "trace.csv"
        rows = ["t,rss,limit,gen,phase,total_gens,gpu_used,gpu_limit"]
        times = (10.0 * k for k in range(int(seconds / 10)))
        rows += [f"{t},{int(level(t))},{LIMIT},{int(t / LENGTH)},,,," for t in times]
        path.write_text("\n".join(rows) + "\n")
        return FORECASTERS[name](path, checkpoint)

    return lines


def interrupted(lines: list[Line]) -> float | None:
    return next((line["t"] for line in lines if line["action"] == "interrupt"), None)


def test_a_static_threshold_acts_at_its_share_and_knows_no_time(run: Callable[..., list[Line]]) -> None:
    lines = run("static90", lambda t: t, 1000)
    assert interrupted(lines) == 900.0
    assert interrupted(run("static95", lambda t: t, 1000)) == 950.0
    assert all(line["eta_s"] is None for line in lines)
    assert interrupted(run("static90", lambda t: 899, 1000)) is None


def test_predict_linear_knows_a_straight_line_and_acts_when_a_checkpoint_just_fits(
    run: Callable[..., list[Line]],
) -> None:
    lines = run("predict_linear", lambda t: 100 + t / 10, 9000)
    at = next(line for line in lines if line["t"] == 5000.0)
    assert at["eta_s"] == pytest.approx(4000.0, rel=0.01)
    assert interrupted(lines) == pytest.approx(9000 - 10 - 3, abs=10)
    assert interrupted(run("predict_linear", lambda t: 900 - t / 100, 9000)) is None


def test_predict_linear_looks_back_an_hour_and_no_further(run: Callable[..., list[Line]]) -> None:
    lines = run("predict_linear", lambda t: min(t, 500), 6000)
    early, late = (next(line for line in lines if line["t"] == t) for t in (1000.0, 5900.0))
    assert early["eta_s"] is not None  # the load is taken for a trend
    assert late["eta_s"] is None


def test_theil_sen_is_not_led_astray_by_a_peak_and_acts_when_a_generation_does_not_fit(
    run: Callable[..., list[Line]],
) -> None:
    lines = run("theil_sen", lambda t: 100 + t / 10 + 300 * (1800 <= t < 1860), 9000)
    at = next(line for line in lines if line["t"] >= 5000.0)
    assert at["growth_per_gen"] == pytest.approx(6.0, rel=0.01)
    assert at["t"] + at["eta_s"] == pytest.approx(9000.0, rel=0.02)
    assert interrupted(lines) == pytest.approx(9000 - LENGTH - 13, abs=LENGTH)


def test_theil_sen_says_nothing_without_generations(run: Callable[..., list[Line]]) -> None:
    assert run("theil_sen", lambda t: t, LENGTH) == []


def test_an_unknown_checkpoint_is_taken_to_be_a_minute(run: Callable[..., list[Line]]) -> None:
    known, unknown = (
        interrupted(run("predict_linear", lambda t: 100 + t / 10, 9000, checkpoint)) for checkpoint in (60.0, None)
    )
    assert known == unknown
