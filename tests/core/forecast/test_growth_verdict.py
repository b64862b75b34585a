"""What growth is called: the least alarming word that the evidence allows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.core.forecast.fitted_model import MIN_GENERATIONS, classify_growth
from memwatch.core.forecast.piecewise_trend import BaselinePoint, TrendFit, fit_trend
from memwatch.core.snapshot import Verdict

Level = Callable[[int], float]
ALARM = (Verdict.WARMING_UP, Verdict.STABLE, Verdict.PLATEAU, Verdict.GROWING, Verdict.LEAK)


def levels(level: Level, count: int, noise: float = 1.0) -> TrendFit:
    rng = random.Random(0)
    found = fit_trend([BaselinePoint(float(x), level(x) + noise * rng.gauss(0.0, 1.0)) for x in range(count)])
    assert found is not None
    return found


def verdict(level: Level, count: int, limit: float | None = 1500.0) -> Verdict:
    return classify_growth(levels(level, count), count, limit)


@pytest.mark.parametrize(
    ("level", "count", "expected"),
    [
        pytest.param(lambda x: 1000.0, 20, Verdict.STABLE, id="no growth"),
        pytest.param(lambda x: 1000.0 - 5.0 * x, 20, Verdict.STABLE, id="ever less"),
        pytest.param(lambda x: 500.0 + 25.0 * x, 16, Verdict.LEAK, id="a line to a limit"),
        pytest.param(lambda x: 500.0 + 4.0 * max(0, x - 8) ** 1.5, 20, Verdict.LEAK, id="ever faster"),
        pytest.param(lambda x: min(500.0 + 60.0 * x, 980.0), 20, Verdict.PLATEAU, id="full"),
        pytest.param(lambda x: 1000.0 - 500.0 * math.exp(-x / 3), 24, Verdict.PLATEAU, id="levelled off"),
        pytest.param(lambda x: 1200.0 - 700.0 * math.exp(-x / 6), 9, Verdict.GROWING, id="slowing down"),
        pytest.param(
            lambda x: min(500.0 + 60.0 * x, 800.0) + 30.0 * max(0, x - 12), 24, Verdict.LEAK, id="after a fill"
        ),
        pytest.param(lambda x: 700.0 + (400.0 if x >= 19 else 0.0), 20, Verdict.STABLE, id="a jump"),
    ],
)
def test_what_it_is_called(level: Level, count: int, expected: Verdict) -> None:
    assert verdict(level, count) is expected


@pytest.mark.parametrize("complete", range(MIN_GENERATIONS))
def test_few_generations_are_warming_up_whatever_they_look_like(complete: int) -> None:
    assert classify_growth(levels(lambda x: 500.0 + 25.0 * x, 16), complete, 600.0) is Verdict.WARMING_UP


def test_growth_that_slows_down_is_no_leak_though_it_may_meet_the_limit() -> None:
    slowing = levels(lambda x: 1200.0 - 700.0 * math.exp(-x / 6), 9)
    assert slowing.best.x_at_level(1150.0) - slowing.best.x < slowing.best.span
    assert classify_growth(slowing, 9, 1150.0) is Verdict.GROWING


def test_growth_to_no_limit_is_no_leak() -> None:
    assert verdict(lambda x: 500.0 + 25.0 * x, 16, limit=None) is Verdict.GROWING


def test_growth_to_a_limit_that_does_not_matter_is_no_leak() -> None:
    assert verdict(lambda x: 500.0 + 2.5 * x, 16, limit=1e9) is Verdict.GROWING


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.floats(0.0, 1e6), min_size=2, max_size=30),
    st.integers(0, 30),
    st.floats(1e6, 1e8),
    st.floats(1.0, 1e3),
)
def test_a_limit_farther_away_is_never_more_alarming(
    series: list[float], complete: int, limit: float, farther: float
) -> None:
    found = fit_trend([BaselinePoint(float(x), level) for x, level in enumerate(series)])
    assert found is not None
    near, far, none = (classify_growth(found, complete, bound) for bound in (limit, limit * farther, None))
    assert ALARM.index(far) <= ALARM.index(near)
    assert ALARM.index(none) <= ALARM.index(far)
