"""Middles, deviations and lines, against the standard library's exact ones."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memwatch.core.robust_statistics import (
    mean,
    median,
    quantile,
    robust_sd,
    robust_sd_about,
    straight_line,
    trimmed_mean,
    upper_semideviation,
    variance,
)

numbers = st.floats(-1e6, 1e6)
some = st.lists(numbers, min_size=2, max_size=30)


def about(expected: float | list[float], scale: float) -> object:
    """Equal but for what rounding leaves of numbers as large as `scale`, or of squares too small for a float."""
    return pytest.approx(expected, rel=1e-9, abs=max(1e-9 * scale, 1e-300))


@given(some)
@example([524288.9999999999, -524289.0])
@example([0.0, 0.0, 0.0, 0.0, 0.0, 6.322533995045554e-160])
def test_they_are_what_the_standard_library_says(values: list[float]) -> None:
    largest = max(map(abs, values))
    assert mean(values) == about(statistics.fmean(values), largest)
    assert median(values) == about(statistics.median(values), largest)
    assert variance(values) == about(statistics.variance(values), largest**2)
    assert quantile(values, 0.5) == about(statistics.median(values), largest)
    quarters = statistics.quantiles(values, n=4, method="inclusive")
    assert [quantile(values, share) for share in (0.25, 0.75)] == about([quarters[0], quarters[2]], largest)


@given(st.lists(st.tuples(st.integers(0, 50), numbers), min_size=3, max_size=30, unique_by=lambda point: point[0]))
def test_the_line_is_that_of_least_squares(points: list[tuple[int, float]]) -> None:
    x, y = [float(at) for at, _ in points], [value for _, value in points]
    line, highest = straight_line(x, y), max(map(abs, y))
    slope, intercept = statistics.linear_regression(x, y)
    assert line.slope == about(slope, highest)
    assert line.residuals == about([value - intercept - slope * at for at, value in points], highest)
    assert line.x_sum_of_squares == about(statistics.pvariance(x) * len(x), max(x))


def test_the_error_of_a_slope_is_that_of_the_textbook() -> None:
    line = straight_line([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0])
    assert line.slope == pytest.approx(0.8)
    assert line.slope_se == pytest.approx((1.8 / 2 / 5) ** 0.5)
    flat = straight_line([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])
    assert (flat.slope, flat.slope_se) == (0.0, 0.0), "no line through one place"


def test_the_trimmed_mean_leaves_a_fifth_out_at_each_end() -> None:
    assert trimmed_mean([1000.0, 1.0, 2.0, 3.0, -1000.0]) == 2.0
    assert trimmed_mean([7.0]) == 7.0


def test_a_robust_deviation_does_not_hear_of_one_far_off() -> None:
    normal = [statistics.NormalDist(5.0, 2.0).inv_cdf((k + 0.5) / 99) for k in range(99)]
    assert robust_sd(normal) == pytest.approx(2.0, rel=0.02)
    assert robust_sd([*normal, 1e9]) == pytest.approx(2.0, rel=0.05)
    assert robust_sd_about(normal, 5.0) == pytest.approx(robust_sd(normal))
    assert robust_sd([1.0, 9.0]) == 0.0


def test_what_is_below_the_median_is_no_rise() -> None:
    normal = [statistics.NormalDist(5.0, 2.0).inv_cdf((k + 0.5) / 99) for k in range(99)]
    assert upper_semideviation(normal) == pytest.approx(2.0, rel=0.05)
    assert upper_semideviation([-1000.0 if value < 5.0 else value for value in normal]) == pytest.approx(
        upper_semideviation(normal)
    )
    assert upper_semideviation([1.0, 9.0]) == 0.0
