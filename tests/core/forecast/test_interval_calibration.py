"""The width of an interval by the run's own earlier forecasts."""

from __future__ import annotations

import math
import random

import pytest

from memwatch.core.forecast.interval_calibration import CHECKED_SHARE, MOST_ERROR, IntervalCalibration


def told(ends: list[float], half: float) -> IntervalCalibration:
    """Forecasts of these ends, each made when a tenth more time has passed, with the same half width in seconds."""
    calibration, t = IntervalCalibration(), 10.0
    for end in ends:
        calibration.add_forecast(t, (end - half - t, end - t, end + half - t))
        t *= 1.1
    return calibration


def test_before_any_error_is_known_the_models_own_width_counts() -> None:
    assert IntervalCalibration().factor == 1.0
    assert told([1000.0], 50.0).factor == 1.0


def test_forecasts_that_never_move_leave_the_interval_as_it_is() -> None:
    assert told([1000.0] * 40, 50.0).factor == 1.0


def test_forecasts_that_move_by_more_than_they_say_widen_it() -> None:
    ends = [1000.0 + (300.0 if i % 6 < 3 else -300.0) for i in range(40)]
    assert told(ends, 20.0).factor > 2.0


@pytest.mark.parametrize("seed", range(4))
def test_forecasts_that_move_as_they_say_keep_it(seed: int) -> None:
    """What is not known of the end falls as the root of the time left, and each forecast moves by the rest."""
    rng, factors = random.Random(seed), []
    for _ in range(40):
        calibration, t, middle, truth = IntervalCalibration(), 20.0, 1000.0, 1000.0
        left = truth - t
        while left > 20.0:
            deviation = 0.1 * math.sqrt(left / 980.0) * 1000.0
            calibration.add_forecast(t, (middle - 1.645 * deviation - t, middle - t, middle + 1.645 * deviation - t))
            later = left / 1.12
            middle += rng.gauss(0.0, 0.1 * 1000.0 * math.sqrt((left - later) / 980.0))
            t, left = truth - later, later
        factors.append(calibration.factor)
    assert sum(factors) / len(factors) < 1.3


def test_no_single_forecast_tells_more_than_five_deviations() -> None:
    calibration = IntervalCalibration()
    calibration.add_forecast(10.0, (99.0, 100.0, 101.0))
    calibration.add_forecast(10.0 + CHECKED_SHARE * 100.0, (1e9, 1e9, 1e9))
    assert calibration.factor == pytest.approx((8.0 + MOST_ERROR / math.sqrt(2.0 / math.pi)) / 9.0)


def test_an_end_that_may_never_come_is_no_error_on_its_late_side() -> None:
    calibration = IntervalCalibration()
    calibration.add_forecast(10.0, (50.0, 100.0, math.inf))
    calibration.add_forecast(50.0, (900.0, 1000.0, math.inf))
    assert calibration.factor == 1.0


def test_a_forecast_of_no_end_is_not_kept() -> None:
    calibration = told([math.inf] * 20, 10.0)
    assert calibration.factor == 1.0


def test_forecasts_of_another_end_do_not_count() -> None:
    calibration = IntervalCalibration()
    calibration.add_forecast(10.0, (90.0, 100.0, 110.0))
    calibration.forget_kept()
    calibration.add_forecast(60.0, (500.0, 550.0, 600.0))
    assert calibration.factor == 1.0
