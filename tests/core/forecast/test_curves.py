"""Curves fitted to clean stretches: each family finds itself, alone or upon a line."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.core.forecast.growth_models import FORMS, MIN_POINTS, UPON_LINE, Curve, CurveFit, fit_curves

U = [k / 23 for k in range(24)]
W = [0.5 + u for u in U]  # the latest count most
CURVES, BENEATH = ([Curve(kind, rate) for kind, rates in forms for rate in rates] for forms in (FORMS, UPON_LINE))


def best(y: list[float]) -> CurveFit:
    return min(fit_curves(W, U, y), key=lambda bend: (bend.rss, bend.extra))


@pytest.mark.parametrize("curve", CURVES, ids=lambda c: f"{c.kind} {c.rate:.2g}")
def test_each_curve_is_found_in_its_own_values(curve: Curve) -> None:
    found = best([1000.0 + 80.0 * curve.value(u) for u in U])
    assert found.curve == curve
    assert (found.amplitude, found.linear_term) == (pytest.approx(80.0), 0.0)
    assert found.end == pytest.approx(1000.0 + 80.0 * curve.value(1.0))
    assert found.slope == pytest.approx(80.0 * curve.slope(1.0))
    assert found.rss == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "curve",
    [
        Curve("saturating", 2.0),
        Curve("accelerating", 1.55),
        Curve("power", 0.6),
        Curve("power", 2.45),
        Curve("logarithmic", 5.5),
    ],
    ids=lambda c: f"{c.kind} {c.rate:.2g}",
)
def test_a_curve_between_two_that_are_tried_is_met_between_them(curve: Curve) -> None:
    y = [80.0 * curve.value(u) for u in U]
    mean = sum(y) / len(y)
    found = min(fit_curves(W, U, y), key=lambda bend: (bend.extra, bend.rss))
    assert found.curve.kind == curve.kind
    assert found.curve.rate == pytest.approx(curve.rate, rel=0.1)
    assert found.rss <= 1e-4 * sum((v - mean) ** 2 for v in y)


@pytest.mark.parametrize(
    ("curve", "kind"),
    [(Curve("power", 0.68), "power"), (Curve("power", 2.0), "accelerating"), (CURVES[0], "saturating")],
)
def test_growth_is_called_after_the_way_it_goes_on(curve: Curve, kind: str) -> None:
    assert best([80.0 * curve.value(u) for u in U]).kind == kind
    upon = best([80.0 * curve.value(u) + 40.0 * u for u in U])
    assert curve.rate != 2.0 or (upon.kind == kind and upon.linear_term > 0.0)


@pytest.mark.parametrize("fill", BENEATH, ids=lambda c: f"{c.kind} {c.rate:.2g}")
@pytest.mark.parametrize("drift", [10.0, 40.0, 200.0])
def test_a_leak_beneath_a_fill_is_told_apart_from_it(fill: Curve, drift: float) -> None:
    found = best([80.0 * fill.value(u) + drift * u for u in U])
    assert found.curve == fill
    assert (found.amplitude, found.linear_term) == (pytest.approx(80.0), pytest.approx(drift))
    assert found.end == pytest.approx(80.0 * fill.value(1.0) + drift)
    assert found.slope == pytest.approx(80.0 * fill.slope(1.0) + drift)
    assert found.extra == 2


def test_what_falls_is_no_curve() -> None:
    assert list(fit_curves(W, U, [-5.0 * u for u in U])) == []


def test_few_points_are_no_curve() -> None:
    few = MIN_POINTS - 1
    assert list(fit_curves(W[:few], [k / (few - 1) for k in range(few)], [float(k) for k in range(few)])) == []
    five = [k / (MIN_POINTS - 1) for k in range(MIN_POINTS)]
    assert {bend.curve.kind for bend in fit_curves([1.0] * MIN_POINTS, five, five)} == {"saturating"}


def test_a_point_without_weight_says_nothing() -> None:
    y = [80.0 * CURVES[4].value(u) for u in U]
    spoilt = [*y[:10], 1e6, *y[11:]]
    weights = [1e-12 if i == 10 else 1.0 for i in range(len(U))]
    found = min(fit_curves(weights, U, spoilt), key=lambda bend: bend.rss)
    assert found.curve == CURVES[4] and found.amplitude == pytest.approx(80.0, rel=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 10.0), st.floats(-1e6, 1e6)), min_size=2, max_size=30))
def test_every_bend_is_finite_and_rises(points: list[tuple[float, float]]) -> None:
    u = [k / (len(points) - 1) for k in range(len(points))]
    for bend in fit_curves([w for w, _ in points], u, [y for _, y in points]):
        assert bend.amplitude > 0.0 and bend.linear_term >= 0.0 and bend.rss >= 0.0 and bend.slope >= 0.0
        assert all(
            map(math.isfinite, (bend.amplitude, bend.linear_term, bend.end, bend.slope, bend.slope_error, bend.rss))
        )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-5.0, 5.0), min_size=24, max_size=24), st.floats(-1.0, 2.0), st.floats(0.0, 1.5))
def test_a_bound_leaves_out_what_is_beyond_it_and_nothing_else(noise: list[float], growth: float, share: float) -> None:
    y = [off + growth * 10.0 * u for off, u in zip(noise, U, strict=True)]
    middle = sum(w * v for w, v in zip(W, y, strict=True)) / sum(W)
    most = share * sum(w * (v - middle) ** 2 for w, v in zip(W, y, strict=True))
    assert list(fit_curves(W, U, y, most)) == [bend for bend in fit_curves(W, U, y) if bend.rss <= most]
