"""What growth goes along: how generations follow in time, a gauge and its capacity."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.forecast.growth_axes import (
    KEPT_READINGS,
    CycleIndex,
    ElapsedTime,
    GaugeLevel,
    GaugeReadings,
    GenerationSchedule,
    fit_schedule,
    usual_seconds,
)

CALENDARS = st.builds(
    GenerationSchedule,
    st.floats(0.0, 1e3),
    st.floats(0.1, 1e4),
    st.sampled_from([1.0, 0.9, 1.02, 1.3]),
    st.floats(1.0, 40.0),
)


@given(CALENDARS, st.floats(0.0, 1e3))
def test_places_and_times_are_each_others_inverse(days: GenerationSchedule, ahead: float) -> None:
    assert days.place(days.seconds_until(days.now_x + ahead)) == pytest.approx(days.now_x + ahead, rel=1e-6, abs=1e-6)


@given(CALENDARS, st.floats(-5.0, 1e3), st.floats(0.0, 1e3))
def test_a_later_place_is_never_earlier_in_time(days: GenerationSchedule, ahead: float, more: float) -> None:
    assert days.seconds_until(days.now_x + ahead + more) >= days.seconds_until(days.now_x + ahead) - 1e-9


def test_never_is_never() -> None:
    for days in (GenerationSchedule(3.0, 60.0), GenerationSchedule(3.0, 60.0, 1.1, 5.0)):
        assert math.isinf(days.seconds_until(math.inf)) and math.isinf(days.place(math.inf))
        assert days.seconds_until(3.0) == 0.0 and days.place(0.0) == 3.0


def test_generations_that_last_longer_and_longer_do_so_as_long_as_that_was_seen() -> None:
    days = GenerationSchedule(0.0, 10.0, 1.1, 5.0)
    assert days.seconds_until(1.0) > 10.0
    assert days.seconds_until(6.0) - days.seconds_until(5.0) == pytest.approx(10.0 * 1.1**5)
    assert days.seconds_until(50.0) - days.seconds_until(49.0) == pytest.approx(10.0 * 1.1**5)


def test_a_trend_in_the_lengths_goes_on() -> None:
    lengths = [20.0 * 1.08**k for k in range(8)]
    days = fit_schedule(9.0, lengths)
    assert days.ratio == pytest.approx(1.08, rel=0.01)
    assert days.seconds_until(10.0) == pytest.approx(lengths[-1] * 1.08, rel=0.1)


@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_a_step_in_the_lengths_is_no_trend(after: int) -> None:
    days = fit_schedule(9.0, [20.0] * (8 - after) + [60.0] * after)
    assert days.ratio == 1.0
    assert days.generation_seconds == (60.0 if after > 1 else 20.0), "one long generation is no new habit"


def test_lengths_that_scatter_have_no_trend() -> None:
    rng = random.Random(0)
    ratios = [fit_schedule(9.0, [rng.uniform(50.0, 70.0) for _ in range(8)]).ratio for _ in range(200)]
    assert ratios.count(1.0) >= 0.9 * len(ratios)


def test_few_lengths_are_taken_as_they_are() -> None:
    assert fit_schedule(1.0, [30.0]) == GenerationSchedule(1.0, 30.0)
    assert fit_schedule(1.0, []).generation_seconds == 1.0, (
        "unknown: whatever is said in seconds of it is infinite or nothing"
    )
    assert usual_seconds([10.0, 20.0, 90.0]) == 20.0


def test_a_clock_gives_the_generation_of_a_time() -> None:
    clock = ElapsedTime(GenerationSchedule(5.0, 60.0), now_t=300.0)
    assert clock.position(300.0) == 5.0
    assert clock.position(420.0) == pytest.approx(7.0)
    assert (clock.name, clock.pace) == ("time", 60.0)


def test_the_course_is_its_own_axis() -> None:
    assert (CycleIndex().position(4.2), CycleIndex().pace) == (4.2, 1.0)


def test_a_gauge_ends_at_its_capacity() -> None:
    gauge = GaugeLevel(now_x=4.0, value=400.0, pace=100.0, capacity=1000.0)
    assert gauge.position(400.0) == 4.0
    assert gauge.position(300.0) == 4.0, "what is passed is here"
    assert gauge.position(1000.0) == pytest.approx(10.0)
    assert math.isinf(gauge.position(1000.1))


def test_readings_lie_on_the_line_between_two() -> None:
    readings = GaugeReadings()
    for t, value in ((10.0, 100.0), (20.0, 200.0), (20.0, 900.0), (15.0, 900.0), (25.0, 200.0), (40.0, 600.0)):
        readings.add(t, value, 1000.0)
    assert readings.times == [10.0, 20.0, 40.0], "neither a repeated value nor a time that goes back"
    assert [readings.at(t) for t in (0.0, 10.0, 15.0, 20.0, 30.0, 99.0)] == [100.0, 100.0, 150.0, 200.0, 400.0, 600.0]
    assert readings.capacity == 1000.0


def test_a_capacity_that_moves_is_none() -> None:
    readings = GaugeReadings()
    for arrays in range(1, 5):
        readings.add(float(arrays), 15e6 * arrays, 15e6 * arrays, True)
    assert readings.capacity is None, "the arrays of a list that grows are each full"
    readings.add(5.0, 75e6, 60e6)
    assert readings.capacity is None, "nor is it one again"


def test_of_many_readings_some_are_kept_and_the_line_stays() -> None:
    readings = GaugeReadings()
    for k in range(20 * KEPT_READINGS):
        readings.add(float(k), 5.0 * k, None)
        assert len(readings.times) < KEPT_READINGS
    assert [readings.at(t) for t in (0.0, 1234.5, 4000.0)] == pytest.approx([0.0, 6172.5, 20_000.0])


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 1e6)), min_size=1, max_size=300))
def test_readings_are_bounded_and_say_nothing_that_was_not_read(told: list[tuple[float, float]]) -> None:
    readings, t = GaugeReadings(), 0.0
    for step, value in told:
        t += step
        readings.add(t, value, None)
    assert 1 <= len(readings.times) == len(readings.values) <= KEPT_READINGS
    assert readings.times == sorted(readings.times)
    low, high = min(value for _, value in told), max(value for _, value in told)
    assert all(low - 1e-9 * high <= readings.at(at) <= high * (1.0 + 1e-9) for at in (0.0, 0.4 * t, t, 2.0 * t))
