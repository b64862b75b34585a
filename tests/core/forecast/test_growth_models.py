"""Growth models: at, slope and when say the same; other units, other places and another process."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.forecast.growth_models import Curve, GrowthModel

LINE = GrowthModel("linear", 1.0, 0.0, 0, 10, x=20.0, level=500.0, slope=7.0, slope_error=0.5, span=10.0)


def bent(curve: Curve, gain: float = 300.0, drift: float = 0.0) -> GrowthModel:
    """A curve that was fitted from x = 10 to 20."""
    kind = "fill and leak" if drift else curve.kind
    slope = gain * curve.slope(1.0) / 10.0 + drift
    return GrowthModel(kind, 1.0, 0.0, 0, 10, 20.0, 500.0, slope, 0.1 * slope, 10.0, curve, gain, 10.0, drift)


SATURATING, ACCELERATING = bent(Curve("saturating", 2.0)), bent(Curve("accelerating", 1.2))
FILL_AND_LEAK = bent(Curve("saturating", 7.0), drift=4.0)
BENT = (
    SATURATING,
    ACCELERATING,
    FILL_AND_LEAK,
    bent(Curve("logarithmic", 10.0)),
    bent(Curve("power", 0.55)),
    bent(Curve("power", 2.0)),
)
EVERY = pytest.mark.parametrize("model", (LINE, *BENT), ids=lambda model: model.kind)


@EVERY
def test_a_model_passes_through_its_level_with_its_slope(model: GrowthModel) -> None:
    assert model.level_at(model.x) == model.level
    assert model.slope_at(model.x) == pytest.approx(model.slope)


@EVERY
@pytest.mark.parametrize("x", [11.0, 20.0, 26.0, 40.0])
def test_the_slope_is_the_derivative(model: GrowthModel, x: float) -> None:
    assert model.slope_at(x) == pytest.approx((model.level_at(x + 1e-4) - model.level_at(x - 1e-4)) / 2e-4, rel=1e-4)


@EVERY
@given(ahead=st.floats(0.01, 40.0))
def test_when_inverts_at(model: GrowthModel, ahead: float) -> None:
    x = model.x_at_level(model.level_at(model.x + ahead))
    assert x - model.x == pytest.approx(ahead, rel=2e-3)


@EVERY
def test_what_is_reached_already_is_reached_now(model: GrowthModel) -> None:
    assert model.x_at_level(model.level - 1.0) == model.x


@EVERY
def test_faster_growth_by_some_errors_is_there_earlier(model: GrowthModel) -> None:
    level = model.level_at(model.x + 5.0)
    places = [model.x_at_level(level, errors) for errors in (-1.65, -0.9, 0.0, 0.9, 1.65)]
    assert places == sorted(places, reverse=True) and len(set(places)) == 5


def test_only_a_curve_that_saturates_has_a_level_that_it_never_reaches() -> None:
    ceiling = 500.0 + 300.0 * math.exp(-2.0)
    assert math.isfinite(SATURATING.x_at_level(ceiling - 1.0))
    assert math.isinf(SATURATING.x_at_level(ceiling + 1.0))
    assert math.isfinite(FILL_AND_LEAK.x_at_level(5_000.0))


def test_what_does_not_grow_never_arrives() -> None:
    still = GrowthModel("flat", 1.0, 0.0, 0, 10, 20.0, 500.0, 0.0, 0.5, 10.0)
    assert math.isinf(still.x_at_level(501.0))
    assert still.x_at_level(501.0, errors=2.0) == pytest.approx(21.0)
    assert math.isinf(still.x_at_level(501.0, errors=-2.0))


@EVERY
@given(size=st.floats(0.01, 100.0), ahead=st.floats(0.01, 40.0))
def test_other_units_change_no_bytes(model: GrowthModel, size: float, ahead: float) -> None:
    other = model.in_units(size)
    assert other.level_at((model.x + ahead) / size) == pytest.approx(model.level_at(model.x + ahead))
    assert other.slope == pytest.approx(model.slope * size)
    level = model.level_at(model.x + ahead)
    assert other.x_at_level(level) * size == pytest.approx(model.x_at_level(level), rel=1e-2)


@EVERY
def test_a_model_seen_from_further_on_its_way_is_the_same(model: GrowthModel) -> None:
    later = model.moved(26.0)
    assert later.x == 26.0
    assert later.level == pytest.approx(model.level_at(26.0))
    assert later.slope == pytest.approx(model.slope_at(26.0))
    assert later.level_at(31.0) == pytest.approx(model.level_at(31.0))


@EVERY
def test_what_others_take_from_now_on_is_added_to_its_growth(model: GrowthModel) -> None:
    later = model.steeper(5.0, 0.0, 26.0)
    assert later.level_at(26.0) == pytest.approx(model.level_at(26.0))
    assert later.level_at(36.0) == pytest.approx(model.level_at(36.0) + 50.0)
    assert later.x_at_level(later.level_at(36.0)) == pytest.approx(36.0, rel=1e-3)


def test_what_does_not_grow_grows_with_what_others_take() -> None:
    still = GrowthModel("flat", 1.0, 0.0, 0, 10, 20.0, 500.0, 0.0, 0.5, 10.0)
    assert still.steeper(5.0, 0.0, 26.0).x_at_level(550.0) == pytest.approx(36.0)


def test_a_new_process_has_the_leak_but_not_the_fill() -> None:
    kept = [model.persistent() for model in (LINE, ACCELERATING, FILL_AND_LEAK, SATURATING)]
    assert [model.kind for model in kept] == ["linear", "linear", "linear", "flat"]
    assert [model.slope for model in kept] == [7.0, ACCELERATING.slope, 4.0, 0.0]
    assert all(model.curve is None for model in kept)
