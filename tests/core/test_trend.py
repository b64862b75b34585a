from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.core.trend import Fit, Point, fit


def series(level: Callable[[int], float], count: int, noise: float = 0.0, seed: int = 0) -> list[Point]:
    rng = random.Random(seed)
    return [Point(float(x), level(x) + noise * rng.gauss(0.0, 1.0)) for x in range(count)]


def fitted(points: list[Point]) -> Fit:
    found = fit(points)
    assert found is not None
    return found


@pytest.mark.parametrize("noise", [0.0, 1.0, 5.0])
def test_a_line_is_a_line(noise: float) -> None:
    best = fitted(series(lambda x: 100 + 10 * x, 16, noise)).best
    assert best.kind == "linear"
    assert best.first == 0
    assert abs(best.slope - 10) <= max(0.1, 3 * best.slope_error)
    assert best.when(400.0) == pytest.approx(30.0, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_is_flat(seed: int) -> None:
    best = fitted(series(lambda x: 1000.0, 20, 10.0, seed)).best
    assert best.kind == "flat"


def test_the_last_piece_of_a_broken_line_is_found() -> None:
    found = fitted(series(lambda x: 100 + 20 * max(0, x - 12), 20, 2.0))
    assert found.best.kind == "linear"
    assert found.best.first in {11, 12, 13}
    assert found.best.slope == pytest.approx(20, rel=0.1)
    assert found.past.risen < 30


def test_a_jump_of_the_warm_up_is_no_growth() -> None:
    best = fitted(series(lambda x: 10.0 if x < 2 else 500.0, 12, 1.0)).best
    assert best.kind == "flat"
    assert best.level == pytest.approx(500, rel=0.02)


def test_a_curve_tends_to_its_ceiling() -> None:
    best = fitted(series(lambda x: 100 - 80 * math.exp(-x / 5), 14, 0.1)).best
    assert best.kind == "saturating"
    assert best.ceiling == pytest.approx(100, rel=0.05)
    assert math.isinf(best.when(130.0))
    assert best.when(96.0) == pytest.approx(5 * math.log(80 / 4), rel=0.15)


def test_what_was_before_a_plateau_is_remembered() -> None:
    past = fitted(series(lambda x: 10.0 * min(x, 8), 18, 0.3)).past
    assert past.fastest == pytest.approx(10, rel=0.1)
    assert past.risen == pytest.approx(75, rel=0.2)


def test_the_weights_of_the_models_are_a_belief() -> None:
    found = fitted(series(lambda x: 100 + 3 * x, 9, 4.0))
    assert sum(m.weight for m in found.models) == pytest.approx(1.0)
    assert [m.weight for m in found.models] == sorted((m.weight for m in found.models), reverse=True)


def test_one_point_or_no_length_has_no_trend() -> None:
    assert fit([]) is None
    assert fit([Point(0.0, 1.0)]) is None
    assert fit([Point(1.0, 1.0), Point(1.0, 2.0)]) is None


def test_a_model_seen_from_further_on_its_way_is_the_same() -> None:
    best = fitted(series(lambda x: 100 - 80 * math.exp(-x / 5), 14, 0.1)).best
    later = best.shifted(20.0, best.at(20.0))
    assert later.at(25.0) == pytest.approx(best.at(25.0))
    assert later.slope == pytest.approx(best.slope_at(20.0))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.floats(1e-3, 1e6), st.integers(0, 2**50)), max_size=40))
def test_every_model_of_any_series_is_finite(steps: list[tuple[float, int]]) -> None:
    points, x = [], 0.0
    for step, level in steps:
        x += step
        points.append(Point(x, float(level)))
    found = fit(points)
    if found is None:
        assert len(points) < 2
        return
    assert found.noise > 0.0 and 0.0 <= found.explained <= 1.0
    for model in found.models:
        assert all(map(math.isfinite, (model.level, model.slope, model.slope_error, model.span, model.weight)))
        assert model.when(model.level + 1.0) >= model.x
