"""A series is flat, or it rises: both are told."""

from __future__ import annotations

import random

import pytest

from soak.series import after, floor_rise, growth, spread, windows

HOUR = [float(t) for t in range(0, 3600, 10)]


def noisy(rise: float) -> list[tuple[float, float]]:
    dice = random.Random(1)
    return [(t, 30.0 + rise * t / 3590 + dice.uniform(-0.1, 0.1)) for t in HOUR]


@pytest.mark.parametrize("rise", [0.0, 0.5, 3.0, -2.0])
def test_a_rise_is_told_through_noise(rise: float) -> None:
    assert growth(noisy(rise)) == pytest.approx(rise, abs=0.05)
    assert spread(noisy(rise), 300) == pytest.approx(abs(rise) * 11 / 12, abs=0.1)


def test_a_step_that_a_line_would_hide_is_told() -> None:
    there_and_back = [(t, 35.0 if 1500 < t < 2100 else 30.0) for t in HOUR]
    assert abs(growth(there_and_back)) < 0.5
    assert spread(there_and_back, 300) == 5.0


def test_what_comes_and_goes_raises_no_floor_and_what_stays_does() -> None:
    busy = [(t, 40 + t % 70 // 10) for t in HOUR]
    assert floor_rise(busy, 300) == 0
    assert floor_rise([(t, n + (t > 3000)) for t, n in busy], 300) == 1


def test_a_warm_up_and_a_piece_at_the_end_are_left_out() -> None:
    assert after([(0, 1.0), (10, 2.0), (20, 3.0)], 10) == [(10, 2.0), (20, 3.0)]
    assert [len(part) for part in windows([(t, 0.0) for t in HOUR[:65]], 300)] == [30, 30]
    assert [len(part) for part in windows([(t, 0.0) for t in HOUR[:80]], 300)] == [30, 30, 20]
