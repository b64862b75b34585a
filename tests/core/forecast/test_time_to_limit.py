"""When a course meets its limit: places, odds, and what is lost by acting now."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.forecast.fitted_model import FittedModel, TrendComponent
from memwatch.core.forecast.generation_profile import FLAT_PROFILE, GenerationProfile
from memwatch.core.forecast.growth_axes import CycleIndex, GaugeLevel, GenerationSchedule
from memwatch.core.forecast.periodic_peaks import PeriodicPeak
from memwatch.core.forecast.piecewise_trend import BaselinePoint, TrendFit, fit_trend
from memwatch.core.forecast.sample_summaries import SLOTS
from memwatch.core.forecast.time_to_limit import (
    LEAST_ERROR,
    QUANTILE_TOLERANCE,
    CheckpointCost,
    ShortHorizonModel,
    TimeToLimit,
    TimeToLimitDistribution,
    UncertainSchedule,
    distribution_of,
    time_to_limit_distribution,
)

LENGTH = 60.0  # seconds of a generation


def line(growth: float = 10.0, count: int = 12, noise: float = 0.0, seed: int = 0) -> TrendFit:
    rng = random.Random(seed)
    found = fit_trend(
        [BaselinePoint(x + 0.5, 100.0 + growth * (x + 0.5) + noise * rng.gauss(0.0, 1.0)) for x in range(count)]
    )
    assert found is not None
    return found


def course(
    fitted: TrendFit,
    stands: GenerationProfile = FLAT_PROFILE,
    by_generation: bool = True,
    beat: PeriodicPeak | None = None,
    gauge: float = 0.0,
) -> FittedModel:
    axis = GaugeLevel(12.0, 12.0, 1.0, gauge) if gauge else CycleIndex()
    x = fitted.best.x
    return FittedModel(
        (TrendComponent(fitted, axis, 1.0, x),), GenerationSchedule(12.0, LENGTH), stands, by_generation, beat
    )


def ends(of: FittedModel, limit: float = 300.0) -> TimeToLimit:
    timing = UncertainSchedule(of.schedule)
    return TimeToLimit(time_to_limit_distribution(of, timing, limit), timing, LENGTH, LENGTH)


def place(of: FittedModel, limit: float = 300.0) -> float:
    return ends(of, limit).quantiles()[1]


def test_a_line_meets_the_limit_where_it_reaches_it() -> None:
    assert place(course(line(), by_generation=False)) == pytest.approx(20.0, abs=0.1)


def test_what_stands_above_the_level_meets_it_first() -> None:
    plain, high = course(line(), by_generation=False), GenerationProfile((0.0,), (35.0,), 0.0)
    assert place(course(line(), high, by_generation=False)) == pytest.approx(place(plain) - 3.5, abs=0.1)


@pytest.mark.parametrize("slot", [1, 8, 14])
def test_it_is_met_in_the_part_of_the_generation_that_stands_highest(slot: int) -> None:
    highs = tuple(40.0 if k == slot else 0.0 for k in range(SLOTS))
    met = place(course(line(), GenerationProfile(highs, highs, 0.0)))
    assert met % 1.0 == pytest.approx((slot + 0.5) / SLOTS, abs=0.5 / SLOTS)
    assert 15.5 <= met <= 17.0


def test_a_peak_is_met_when_it_comes() -> None:
    every_fifth = PeriodicPeak(last=9.9, period=5.0, highs=(45.0,))
    assert place(course(line(), beat=every_fifth)) == pytest.approx(19.9, abs=0.02)
    assert place(course(line(growth=5.0), beat=every_fifth), 200.0) == pytest.approx(14.9, abs=0.02)


def test_what_does_not_grow_never_meets_it() -> None:
    still = ends(course(line(growth=0.0)))
    assert still.quantiles() == (math.inf, math.inf, math.inf)
    assert still.p_exceed(1e9) == 0.0 and still.p_never == 1.0
    assert still.expected_time_to_limit(10.0, cap=500.0) == 500.0
    noisy = ends(course(line(growth=0.0, noise=1.0)))
    assert math.isinf(noisy.quantiles()[1]) and noisy.p_never > 0.7


def test_a_gauge_that_is_full_before_ends_the_growth() -> None:
    assert place(course(line(), by_generation=False, gauge=25.0)) == pytest.approx(20.0, abs=0.5)
    assert math.isinf(place(course(line(), by_generation=False, gauge=18.0)))


def test_noise_widens_the_interval_around_the_truth() -> None:
    around = 0
    for seed in range(10):
        calm, noisy = (
            ends(course(line(noise=noise, seed=seed), by_generation=False)).quantiles() for noise in (0.5, 6.0)
        )
        assert noisy[2] - noisy[0] > calm[2] - calm[0] > 0.0
        around += noisy[0] < 20.0 < noisy[2]
    assert around >= 8, "of an interval of 90 %"


def test_a_lower_limit_is_never_met_later() -> None:
    stands = GenerationProfile((0.0, 10.0), (2.0, 20.0), 1.0)
    met = [place(course(line(noise=2.0), stands), limit) for limit in range(240, 500, 10)]
    assert met == sorted(met)


def test_outcomes_are_passed_when_the_course_is_beyond_the_earliest() -> None:
    timing = UncertainSchedule(GenerationSchedule(12.0, LENGTH))
    every = distribution_of(300.0, ((15.0, 0.5), (18.0, 0.5)), timing)
    assert not every.is_passed(14.0) and not every.is_passed(15.0)
    assert every.is_passed(15.2)
    assert not distribution_of(300.0, (), timing).is_passed(99.0)


# --- laws ---

PLACES = st.lists(
    st.tuples(st.one_of(st.floats(0.0, 200.0), st.just(math.inf)), st.floats(0.01, 1.0)), min_size=1, max_size=12
)
TIMINGS = st.builds(
    UncertainSchedule,
    st.builds(
        GenerationSchedule, st.floats(0.0, 50.0), st.floats(1.0, 500.0), st.sampled_from([1.0, 1.1]), st.just(5.0)
    ),
    st.floats(0.0, 0.5),
    st.sampled_from([0.0, 0.04]),
)
ENDS = st.builds(
    lambda places, timing, passed: TimeToLimit(distribution_of(300.0, places, timing), timing, LENGTH, LENGTH, passed),
    PLACES,
    TIMINGS,
    st.floats(0.0, 30.0),
)


@given(ENDS)
def test_the_quantiles_are_ordered_and_ahead(any_ends: TimeToLimit) -> None:
    low, middle, high = any_ends.quantiles()
    assert any_ends.timing.calendar.now_x <= low <= middle <= high


@given(ENDS, st.floats(0.0, 1e4), st.floats(0.0, 1e4))
def test_more_time_never_lowers_the_odds(any_ends: TimeToLimit, seconds: float, more: float) -> None:
    odds = any_ends.p_exceed(seconds)
    assert 0.0 <= odds <= 1.0 + 1e-9
    assert any_ends.p_exceed(seconds + more) >= odds - 1e-4


@given(ENDS, st.floats(0.0, 1e4), st.floats(0.0, 1e4), st.floats(1.0, 1e5))
def test_what_is_left_shrinks_and_is_bounded(any_ends: TimeToLimit, seconds: float, more: float, most: float) -> None:
    left = any_ends.expected_time_to_limit(seconds, most)
    assert 0.0 <= any_ends.expected_time_to_limit(seconds + more, most) <= left + 1e-6 * most
    assert left <= most * (1.0 + 1e-9)


@given(ENDS)
def test_the_odds_of_the_course_and_its_quantiles_tell_the_same(any_ends: TimeToLimit) -> None:
    by_course = replace(any_ends, passed=0.0)
    met, days = by_course.quantiles(), by_course.timing.calendar
    for x, share in zip(met, (0.05, 0.5, 0.95), strict=True):
        if math.isfinite(x):
            before = x - 2.0 * QUANTILE_TOLERANCE * (x - days.now_x) - 2.0 * LEAST_ERROR
            if before > days.now_x:
                assert (
                    by_course.p_exceed(days.seconds_until(before)) - 1e-6
                    <= share
                    <= by_course.p_exceed(days.seconds_until(x)) + 1e-6
                )
        else:
            assert by_course.p_never > 1.0 - share - 1e-6


def test_what_comes_after_the_run_has_ended_is_no_risk() -> None:
    """The limit is met within 40 s; the run ends in 20 s."""
    of = replace(ends(course(line(), by_generation=False), 225.0), run_seconds=20.0)
    assert of.p_exceed(60.0) == of.p_exceed(20.0) < 0.01 < 0.99 < replace(of, run_seconds=math.inf).p_exceed(60.0)
    assert of.p_checkpoint_fails(50.0, CheckpointCost(10.0)) == of.p_exceed(20.0)
    assert replace(of, passed=15.0).p_exceed(60.0) == replace(of, passed=15.0).p_exceed(5.0)


@pytest.mark.parametrize("p_ended", [0.51, 0.97, 1.0])
def test_where_growth_has_likely_ended_only_the_early_end_of_the_interval_may_be_left(p_ended: float) -> None:
    outcomes = TimeToLimitDistribution(100.0, ((5.0, 0.5), (6.0, 0.5)), 0.0, (5.0, 5.5, 6.0))
    timing = UncertainSchedule(GenerationSchedule(0.0, 10.0))
    ends = TimeToLimit(outcomes, timing, 10.0, 10.0, p_ended=p_ended)
    low, middle, high = ends.quantiles()
    assert math.isinf(middle) and math.isinf(high)
    assert math.isinf(low) is (p_ended > 0.95)
    assert ends.p_never == pytest.approx(p_ended)
    assert ends.expected_time_to_limit(0.0, 1000.0) > 500.0


def test_beyond_the_next_generations_the_places_tell_whether_a_checkpoint_comes_too_late() -> None:
    places = ((5.0, 0.9), (6.0, 0.1))  # generations of 10 s
    outcomes = TimeToLimitDistribution(100.0, places, 0.0, (5.0, 5.0, 6.0))
    timing = UncertainSchedule(GenerationSchedule(0.0, 10.0))
    flat = GenerationProfile((0.0,) * SLOTS, (0.0,) * SLOTS, 1.0, past_slot_maxima=((0.0,) * SLOTS,) * 8)
    near = ShortHorizonModel(50.0, 0.0, 1.0, 0.0, 1.0, flat, (0.0,), 10.0)
    ends = TimeToLimit(outcomes, timing, 10.0, 10.0, short_horizon=near)
    cost = CheckpointCost(5.0)
    assert ends.p_checkpoint_fails(10.0, cost) < 0.05
    assert ends.p_checkpoint_fails(60.0, cost) > 0.9 and ends.p_exceed(60.0) > 0.85
