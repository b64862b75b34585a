"""Peaks that not every generation has: which they are, their rhythm, and when the next one comes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.forecast.periodic_peaks import (
    GRACE_GENERATIONS,
    PeriodicPeak,
    PeriodicPeakDetector,
    periodic_peak_of_bins,
)
from memwatch.core.forecast.sample_summaries import SLOTS, GenerationSummary, TimeBin
from support.shapes import shape_from

LEVEL, BASE, PEAK = 100.0, 80.0, 60.0
SLOT = 8  # in which a peak begins


def generation(ordinal: int, peak: bool, level: float = LEVEL) -> GenerationSummary:
    highs = [level + 1.0 + 0.1 * (ordinal % 3)] * SLOTS
    if peak:
        highs[SLOT] = level + PEAK
    return shape_from(float(ordinal), level, [level] * SLOTS, highs)


def peaks_of(shapes: Iterable[GenerationSummary]) -> PeriodicPeakDetector:
    peaks = PeriodicPeakDetector()
    for shape in shapes:
        peaks.add(shape, shape.baseline - LEVEL + BASE)
    return peaks


def peaks_every(every: int, generations: int, until: int = 10_000) -> PeriodicPeakDetector:
    """The last of every so many generations has one, up to generation `until`."""
    return peaks_of(generation(g, g % every == every - 1 and g < until) for g in range(generations))


def beat(peaks: PeriodicPeakDetector, above_base: bool = False) -> PeriodicPeak:
    found = peaks.periodic_peak(above_base)
    assert found is not None
    return found


@pytest.mark.parametrize("every", [2, 3, 5, 8])
def test_peaks_of_every_kth_generation_are_a_beat(every: int) -> None:
    found = beat(peaks_every(every, 4 * every + 1))
    assert found.period == every and found.regular
    assert found.excess == pytest.approx(PEAK)
    assert found.last == pytest.approx(4 * every - 1 + SLOT / SLOTS, abs=1 / SLOTS)


@pytest.mark.parametrize("unseen", [23, 15])
def test_a_generation_that_was_not_seen_contradicts_no_rhythm(unseen: int) -> None:
    """Every eighth; the one of a gap in the recording is missing."""
    found = beat(peaks_of(generation(g, g % 8 == 7) for g in range(36) if g != unseen))
    assert (found.period, found.regular) == (8.0, True)


def test_peaks_without_a_rhythm_may_come_at_any_time_until_they_are_forgotten() -> None:
    at = {6, 9, 17, 22}
    found = beat(peaks_of(generation(g, g in at) for g in range(31)))
    assert not found.regular and found.excess == pytest.approx(PEAK)
    assert peaks_of(generation(g, g in at) for g in range(48)).periodic_peak(above_base=False) is None


def test_above_the_base_a_peak_is_higher_than_above_the_level() -> None:
    assert beat(peaks_every(4, 17), above_base=True).excess == pytest.approx(PEAK + LEVEL - BASE)


def test_the_next_peak_keeps_its_rhythm() -> None:
    found = beat(peaks_every(5, 13))  # at 4 and 9
    assert found.first_from(12.2) == pytest.approx(14.5, abs=0.1)
    assert found.first_from(14.4) == pytest.approx(14.5, abs=0.1)
    assert found.first_from(22.0) == pytest.approx(24.5, abs=0.1)


def test_one_that_is_a_little_late_is_still_awaited() -> None:
    found = beat(peaks_every(5, 13))
    due = found.last + found.period
    assert found.first_from(due + 0.2) == pytest.approx(due + 0.2)
    assert found.first_from(due + 1.0) == pytest.approx(due + found.period)


@given(last=st.floats(0.0, 1e3), every=st.floats(0.1, 50.0), regular=st.booleans(), ahead=st.floats(0.0, 1e3))
def test_the_next_peak_is_never_in_the_past_nor_far_beyond_its_turn(
    last: float, every: float, regular: bool, ahead: float
) -> None:
    x = last + ahead
    following = PeriodicPeak(last, every, PEAK, regular).first_from(x)
    assert x <= following <= x + every + 1e-6
    later = PeriodicPeak(last, every, PEAK, regular).first_from(x + 0.3 * every)
    assert later >= following - 1e-6


def test_one_peak_has_no_rhythm() -> None:
    assert peaks_every(5, 7).periodic_peak(above_base=False) is None


def test_peaks_that_do_not_come_any_more_have_ceased() -> None:
    assert peaks_every(4, 21 + GRACE_GENERATIONS, until=19).periodic_peak(above_base=False) is None
    assert peaks_every(4, 19, until=18).periodic_peak(above_base=False) is not None


def test_what_most_generations_have_is_not_rare() -> None:
    peaks = peaks_every(1, 12)
    assert not peaks.is_rare(generation(5, True)) and peaks.periodic_peak(above_base=False) is None
    assert peaks_every(4, 12).is_rare(generation(7, True))
    assert not peaks_every(4, 12).is_rare(generation(6, False))


@pytest.mark.parametrize("at", [6, 9, 14])
def test_a_step_is_no_peak(at: int) -> None:
    """The highest of its generation, and the next one begins there."""
    shapes = [generation(g, g == at - 1, LEVEL + (PEAK if g >= at else 0.0)) for g in range(16)]
    peaks = peaks_of(shapes)
    assert peaks.periodic_peak(above_base=False) is None
    assert not peaks.is_rare(shapes[at - 1])


def bins(peaks_at: list[float], count: int = 128, seconds: float = 10.0) -> list[TimeBin]:
    """Calm bins of 10 s, but for those in which a peak is."""
    found = []
    for k in range(count):
        start = k * seconds
        high = LEVEL + 1.0 + 0.1 * (k % 3)
        if any(start <= t < start + seconds for t in peaks_at):
            high = LEVEL + PEAK
        found.append(TimeBin(start, start + seconds - 1.0, 10, 10 * LEVEL, LEVEL - 1.0, high))
    return found


def test_without_markers_peaks_are_told_by_their_times() -> None:
    found = periodic_peak_of_bins(bins([300.0, 500.0, 700.0, 900.0, 1100.0]), 0.0)
    assert found is not None and found.regular
    assert (found.last, found.period) == (1100.0, 200.0)
    assert found.excess == pytest.approx(PEAK, rel=0.05)
    assert found.first_from(1280.0) == 1300.0


def test_without_rhythm_the_next_one_is_to_be_expected_and_no_more() -> None:
    found = periodic_peak_of_bins(bins([300.0, 500.0, 850.0, 1000.0, 1250.0]), 0.0)
    assert found is not None and not found.regular
    assert found.first_from(1280.0) > 1280.0 + 0.5 * found.period


@pytest.mark.parametrize(
    "peaks_at",
    [
        pytest.param([], id="none"),
        pytest.param([640.0], id="one"),
        pytest.param([200.0, 300.0, 400.0], id="ceased"),
        pytest.param([0.0, 10.0, 20.0, 30.0, 40.0], id="the load"),
        pytest.param([10.0 * k for k in range(0, 128, 2)], id="in every second bin"),
    ],
)
def test_without_markers_what_is_no_beat(peaks_at: list[float]) -> None:
    assert periodic_peak_of_bins(bins(peaks_at), 0.0) is None
    assert periodic_peak_of_bins(bins([60.0, 120.0], count=20), 0.0) is None, "too little is known"
