from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.core.forecast.piecewise_trend import BaselinePoint, TrendFit, fit_trend, line_t_stat


def series(level: Callable[[int], float], count: int, noise: float = 0.0, seed: int = 0) -> list[BaselinePoint]:
    rng = random.Random(seed)
    return [BaselinePoint(float(x), level(x) + noise * rng.gauss(0.0, 1.0)) for x in range(count)]


def fitted(points: list[BaselinePoint]) -> TrendFit:
    found = fit_trend(points)
    assert found is not None
    return found


@pytest.mark.parametrize("noise", [0.0, 1.0, 5.0])
def test_a_line_is_a_line(noise: float) -> None:
    best = fitted(series(lambda x: 100 + 10 * x, 16, noise)).best
    assert best.kind == "linear"
    assert best.first == 0
    assert abs(best.slope - 10) <= max(0.1, 3 * best.slope_error)
    assert best.x_at_level(400.0) == pytest.approx(30.0, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_flat(seed: int) -> None:
    best = fitted(series(lambda x: 1000.0, 20, 10.0, seed)).best
    assert best.kind == "flat"


@pytest.mark.parametrize("period", [3.0, 4.0, 4.7])
def test_waves_do_not_hide_a_line(period: float) -> None:
    """Their steps are not those of a level that wanders, though neighbours are no more alike."""
    best = fitted(series(lambda x: 100.0 + 10.0 * x + 15.0 * math.sin(2.0 * math.pi * x / period), 17)).best
    assert best.kind == "linear"
    assert best.slope == pytest.approx(10.0, rel=0.2)


def test_a_crest_of_a_long_wave_is_no_plateau() -> None:
    for count in range(26, 33):
        best = fitted(series(lambda x: 100.0 + 2.0 * x + 6.0 * math.sin(2.0 * math.pi * x / 7.0), count, 0.5)).best
        assert best.kind == "linear" and best.points >= 20
        assert best.slope == pytest.approx(2.0, rel=0.2)


def test_the_load_that_a_run_begins_with_does_not_hide_a_line() -> None:
    found = fitted(series(lambda x: 20.0 if x == 0 else 100.0 + 4.0 * x, 17, 2.0))
    assert found.best.kind == "linear"


def test_a_level_that_wanders_is_called_a_line_in_less_than_half() -> None:
    def walk(seed: int) -> list[BaselinePoint]:
        rng, level, points = random.Random(seed), 1000.0, []
        for x in range(17):
            level += rng.gauss(0.0, 10.0)
            points.append(BaselinePoint(float(x), level))
        return points

    lines = sum(fitted(walk(seed)).best.kind == "linear" for seed in range(200))
    assert lines < 100


def test_the_last_piece_of_a_broken_line_is_found() -> None:
    found = fitted(series(lambda x: 100 + 20 * max(0, x - 12), 20, 2.0))
    assert found.best.kind == "linear"
    assert found.best.first in {11, 12, 13}
    assert found.best.slope == pytest.approx(20, rel=0.1)
    assert found.history.risen < 30


def test_a_jump_of_the_warm_up_is_no_growth() -> None:
    best = fitted(series(lambda x: 10.0 if x < 2 else 500.0, 12, 1.0)).best
    assert best.kind == "flat"
    assert best.level == pytest.approx(500, rel=0.02)


def test_a_curve_tends_to_its_ceiling() -> None:
    best = fitted(series(lambda x: 100 - 80 * math.exp(-x / 5), 14, 0.1)).best
    assert best.kind == "saturating"
    assert best.level_at(200.0) == pytest.approx(100, rel=0.05)
    assert math.isinf(best.x_at_level(130.0))
    assert best.x_at_level(96.0) == pytest.approx(5 * math.log(80 / 4), rel=0.15)


def test_what_was_before_a_plateau_is_remembered() -> None:
    past = fitted(series(lambda x: 10.0 * min(x, 8), 18, 0.3)).history
    assert past.fastest == pytest.approx(10, rel=0.1)
    assert past.risen == pytest.approx(75, rel=0.2)


def test_the_weights_of_the_models_are_a_belief() -> None:
    found = fitted(series(lambda x: 100 + 3 * x, 9, 4.0))
    assert sum(m.weight for m in found.models) == pytest.approx(1.0)
    assert [m.weight for m in found.models] == sorted((m.weight for m in found.models), reverse=True)


def test_one_point_or_no_length_has_no_trend() -> None:
    assert fit_trend([]) is None
    assert fit_trend([BaselinePoint(0.0, 1.0)]) is None
    assert fit_trend([BaselinePoint(1.0, 1.0), BaselinePoint(1.0, 2.0)]) is None


@pytest.mark.parametrize("at", [4, 9, 14])
@pytest.mark.parametrize("jump", [-300.0, 80.0, 1000.0])
def test_a_jump_is_neither_noise_nor_slope(at: int, jump: float) -> None:
    plain = fitted(series(lambda x: 100 + 10 * x, 18, 1.0))
    jumped = fitted(series(lambda x: 100 + 10 * x + (jump if x >= at else 0.0), 18, 1.0))
    assert jumped.noise <= 3.0 * plain.noise
    assert jumped.best.slope == pytest.approx(10.0, rel=0.15)
    assert jumped.best.level_at(30.0) == pytest.approx(400.0 + jump, rel=0.1)


@pytest.mark.parametrize(("count", "at"), [(5, 2), (5, 3), (6, 2), (6, 4), (8, 4)])
@pytest.mark.parametrize("jump", [-300.0, 300.0])
def test_of_few_levels_too_a_jump_is_no_noise(count: int, at: int, jump: float) -> None:
    assert fitted(series(lambda x: 100 + 10 * x + (jump if x >= at else 0.0), count, 1.0)).noise < 10.0


@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize("jump", [-60.0, 60.0, 400.0])
def test_a_step_in_the_latest_levels_is_no_slope(after: int, jump: float) -> None:
    found = fitted(series(lambda x: 100.0 + (jump if x >= 12 - after else 0.0), 12, 0.5))
    believed = sum(m.weight * (m.slope if m.kind != "flat" else 0.0) for m in found.models)
    assert abs(believed) <= 0.05 * abs(jump)


@pytest.mark.parametrize(
    "level",
    [
        pytest.param(lambda x: 100 - 80 * math.exp(-x / 5), id="saturating"),
        pytest.param(lambda x: 100 + 5 * math.exp(x / 6), id="accelerating"),
        pytest.param(lambda x: 100 + 3 * x**1.5, id="power"),
    ],
)
def test_a_smooth_bend_is_no_noise(level: Callable[[int], float]) -> None:
    bent, noisy = fitted(series(level, 16, 0.05)), fitted(series(level, 16, 5.0))
    range_ = level(15) - level(0)
    assert bent.noise < 0.02 * range_
    assert noisy.noise > 2.0
    assert bent.best.level == pytest.approx(level(15), rel=0.02)


@pytest.mark.parametrize("scale", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("count", [8, 10, 14])
def test_of_few_levels_too_a_bend_is_no_noise(scale: float, count: int) -> None:
    found = fitted(series(lambda x: 1000 - 900 * math.exp(-x / scale), count, 0.5))
    assert found.noise < 12.0
    assert found.best.curve is not None


def test_a_known_noise_is_taken_as_it_is() -> None:
    points = series(lambda x: 100 + 10 * x, 12, 1.0)
    assert fitted(points).noise != 25.0
    found = fit_trend(points, noise=25.0)
    assert found is not None and found.noise == 25.0


def test_growth_is_clearer_where_levels_scatter_less() -> None:
    (clear, calm), (dim, unrest) = (line_t_stat(series(lambda x: 100 + 10 * x, 12, noise)) for noise in (1.0, 30.0))
    assert clear > 2.0 * dim > 0.0
    assert (calm, unrest) == (pytest.approx(1.0, rel=0.5), pytest.approx(30.0, rel=0.5))
    assert line_t_stat(series(lambda x: 100 + 10 * x, 3)) == (0.0, 0.0), "too few"


def test_a_fill_that_has_become_a_leak_is_a_curve_upon_a_line() -> None:
    found = fitted(series(lambda x: 500 - 400 * math.exp(-x / 2) + 12 * x, 24, 1.0))
    ahead = sum(m.weight * (m.level_at(40.0) - m.level) for m in found.models)
    assert ahead == pytest.approx(12 * 17, rel=0.15)
    assert found.best.slope == pytest.approx(12.0, rel=0.15)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.floats(1e-3, 1e6), st.integers(0, 2**50)), max_size=40))
def test_every_model_of_any_series_is_finite(steps: list[tuple[float, int]]) -> None:
    points, x = [], 0.0
    for step, level in steps:
        x += step
        points.append(BaselinePoint(x, float(level)))
    found = fit_trend(points)
    if found is None:
        assert len(points) < 2
        return
    assert found.noise > 0.0 and 0.0 <= found.r_squared <= 1.0
    for model in found.models:
        assert all(map(math.isfinite, (model.level, model.slope, model.slope_error, model.span, model.weight)))
        assert model.x_at_level(model.level + 1.0) >= model.x


def test_the_first_of_few_levels_may_be_the_warm_ups() -> None:
    """Two levels: the rise may be all start-up's. Three: what did not go on was, and no interval excludes the truth."""
    two = fitted([BaselinePoint(i + 0.5, level * 1e6) for i, level in enumerate((500, 900))])
    assert {model.kind for model in two.models} == {"linear", "flat"} and two.best.kind == "linear"
    assert sum(model.weight for model in two.models if model.kind == "flat") > 0.05, "so its interval has no end"
    three = fitted([BaselinePoint(i + 0.5, level * 1e6) for i, level in enumerate((500, 900, 920))])
    assert three.best.slope == pytest.approx(20e6, rel=0.1) and three.best.weight > 0.9
    steady = fitted([BaselinePoint(i + 0.5, level * 1e6) for i, level in enumerate((500, 600, 700))])
    assert all(model.slope == pytest.approx(100e6, rel=0.1) for model in steady.models)
