"""What a run needs to finish: the highest use by its end, as the models go on, with the end of a gauge."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from core.forecast.test_time_to_limit import course, line
from memwatch.core.forecast.generation_profile import GenerationProfile
from memwatch.core.forecast.periodic_peaks import PeriodicPeak
from memwatch.core.forecast.piecewise_trend import BaselinePoint, fit_trend
from memwatch.core.forecast.time_to_limit import memory_needed

NOW, LEVEL, GROWTH = 12.0, 220.0, 10.0  # of `course(line())`: generations, bytes, bytes a generation


def needed(of, end=20.0, most=0.0):
    found = memory_needed(of, end, most)
    assert found is not None
    return found


def test_a_line_goes_on_to_the_end() -> None:
    found = needed(course(line(), by_generation=False))
    assert found.bytes == pytest.approx(LEVEL + GROWTH * (20.0 - NOW), abs=1.0)
    assert found.low_bytes < found.bytes < (found.high_bytes or 0)


def test_the_last_generation_ends_with_its_index_and_its_high_part_counts() -> None:
    highs = (0.0, 0.0, 40.0, 0.0)
    found = needed(course(line(), GenerationProfile(highs, highs, 0.0)))
    assert found.bytes == pytest.approx(100.0 + GROWTH * (19.0 + 2.5 / 4) + 40.0, abs=1.5)


def test_it_is_never_less_than_what_was_used() -> None:
    found = needed(course(line(growth=0.0)), most=500.0)
    assert (found.low_bytes, found.bytes, found.high_bytes) == (500, 500, 500)


def test_what_stands_still_needs_what_it_has() -> None:
    assert needed(course(line(growth=0.0)), end=math.inf).bytes == pytest.approx(100.0, abs=1.0)


def test_growth_without_a_known_end_needs_nobody_knows_how_much() -> None:
    assert memory_needed(course(line()), math.inf, 0.0) is None
    assert memory_needed(replace(course(line()), components=()), 20.0, 0.0) is None


def test_a_gauge_that_has_a_capacity_ends_the_growth_with_and_without_a_known_end() -> None:
    full = 100.0 + GROWTH * 18.0
    for end in (40.0, math.inf):
        assert needed(course(line(), by_generation=False, gauge=18.0), end).bytes == pytest.approx(full, abs=2.0)
    before = needed(course(line(), by_generation=False, gauge=18.0), 15.0).bytes
    assert before == pytest.approx(100.0 + GROWTH * 15.0, abs=2.0)


def test_a_peak_counts_that_comes_before_the_end() -> None:
    every_fifth = PeriodicPeak(last=9.9, period=5.0, highs=(45.0,))
    with_peak, before_it = (needed(course(line(growth=0.0), beat=every_fifth), end).bytes for end in (16.0, 14.0))
    assert with_peak == pytest.approx(145.0, abs=1.0)
    assert before_it == pytest.approx(100.0, abs=1.0)


def test_the_more_generations_are_to_come_the_higher_the_highest_of_them() -> None:
    unsteady = GenerationProfile((0.0,), (0.0,), 10.0, record=20.0)
    few, many = (needed(course(line(growth=0.0), unsteady), end).bytes for end in (13.0, 100.0))
    assert 100.0 <= few < many <= 140.0


@pytest.mark.parametrize("end", [50.0, 1e3, 1e5, 1e300])
def test_a_curve_that_bends_upwards_far_beyond_what_was_seen_has_no_end(end: float) -> None:
    points = [BaselinePoint(x + 0.5, 100.0 + 5.0 * math.exp(0.3 * x)) for x in range(12)]
    fitted = fit_trend(points)
    assert fitted is not None and any(model.kind == "accelerating" for model in fitted.models)
    found = memory_needed(course(fitted), end, 0.0)
    assert found is None or found.bytes < 2**60


def test_doubt_grows_with_the_way_to_the_end() -> None:
    near, far = (needed(course(line()), end) for end in (14.0, 40.0))
    widths = [(one.high_bytes or 0) - one.low_bytes for one in (near, far)]
    assert widths[0] < widths[1]
