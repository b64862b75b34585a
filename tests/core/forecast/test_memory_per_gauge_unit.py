"""Bytes for each unit of a gauge, from its second reading on."""

from __future__ import annotations

import random

import pytest

from memwatch.core.forecast.growth_axes import UnitGrowth, fit_unit_growth

MB = 1e6
PER_TRANSITION = 0.435 * MB


def readings(count: int, start: float = 0.0, noise: float = 0.0) -> tuple[list[float], list[float]]:
    """The documents' trainer: 224 transitions a generation; `start` bytes come after the first reading."""
    rng = random.Random(count)
    values = [224.0 * (k + 1) for k in range(count)]
    used = [400 * MB + PER_TRANSITION * v + start * (k > 0) + rng.gauss(0.0, noise) for k, v in enumerate(values)]
    return values, used


def fitted(count: int, start: float = 0.0, noise: float = 0.0) -> UnitGrowth:
    found = fit_unit_growth(*readings(count, start, noise), 5 * MB)
    assert found is not None
    return found


def test_two_readings_tell_the_growth_but_all_of_it_may_be_the_programs_start() -> None:
    found = fitted(2)
    assert found.bytes == pytest.approx(PER_TRANSITION)
    assert found.low <= 0.0 and found.high > 1.05 * PER_TRANSITION


def test_each_further_reading_narrows_the_interval_around_the_truth() -> None:
    found = [fitted(count, noise=2 * MB) for count in (2, 3, 4, 6, 10, 20)]
    assert all(one.low <= PER_TRANSITION <= one.high for one in found)
    assert all(one.low <= 0.0 for one in found[:2]), "two readings without the first"
    widths = [one.high - one.low for one in found[1:]]
    assert widths == sorted(widths, reverse=True) and widths[-1] < 0.1 * PER_TRANSITION


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_what_a_program_takes_as_it_starts_is_not_the_gauges(count: int) -> None:
    found = fitted(count, start=150 * MB)
    assert found.low <= PER_TRANSITION <= found.high
    if count > 2:
        assert found.bytes == pytest.approx(PER_TRANSITION, rel=0.01)


def test_memory_that_goes_its_own_way_is_not_explained() -> None:
    rng = random.Random(1)
    values, _ = readings(20)
    found = fit_unit_growth(values, [1e9 + rng.gauss(0.0, 100 * MB) for _ in values], 5 * MB)
    assert found is not None and found.r2 < 0.5 and found.low < 0.0 < found.high


def test_a_gauge_that_does_not_move_tells_nothing() -> None:
    assert fit_unit_growth([16.0, 16.0, 16.0], [1.0, 2.0, 3.0], MB) is None
    assert fit_unit_growth([16.0], [1.0], MB) is None
    assert fit_unit_growth([], [], MB) is None
