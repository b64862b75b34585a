from __future__ import annotations

import math

import pytest

from memwatch.core.peaks import Peaks
from memwatch.core.shapes import SLOTS, Shape
from memwatch.core.trend import Model

LEVEL, PEAK = 100.0, 60.0


def generation(ordinal: int, peak: bool) -> Shape:
    highs = [LEVEL + 1.0 + 0.1 * (ordinal % 3)] * SLOTS
    if peak:
        highs[8] = LEVEL + PEAK
    return Shape(float(ordinal), 1, 60.0, LEVEL, (LEVEL,) * SLOTS, tuple(highs))


def peaks_every(every: int, generations: int) -> Peaks:
    peaks = Peaks()
    for g in range(generations):
        peaks.add(generation(g, g % every == every - 1))
    return peaks


def line(x: float, slope: float) -> Model:
    return Model("linear", 1.0, 0, 10, x, LEVEL, slope, 0.0, 10.0)


def test_the_next_peak_keeps_its_rhythm() -> None:
    peaks = peaks_every(5, 13)  # at 4 and 9
    assert peaks.meets(line(12.0, 0.0), LEVEL + PEAK - 1.0, 12.2) == pytest.approx(14.53, abs=0.01)


def test_a_peak_waits_for_the_level_to_rise() -> None:
    peaks = peaks_every(5, 13)
    # the level must rise by 10 until a peak of 60 meets 170: that is at 22, the next peak is that of 24
    assert peaks.meets(line(12.0, 1.0), LEVEL + PEAK + 10.0, 12.2) == pytest.approx(24.53, abs=0.01)


def test_without_growth_a_peak_that_fits_never_meets_the_limit() -> None:
    assert math.isinf(peaks_every(5, 13).meets(line(12.0, 0.0), LEVEL + PEAK + 1.0, 12.2))


def test_one_peak_has_no_rhythm() -> None:
    assert math.isinf(peaks_every(5, 7).meets(line(7.0, 1.0), LEVEL, 7.0))


def test_what_most_generations_have_is_not_rare() -> None:
    peaks = peaks_every(1, 12)
    assert not peaks.is_rare(generation(5, True))
    assert peaks_every(4, 12).is_rare(generation(7, True))
