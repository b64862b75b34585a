"""The beat of saw-teeth: regular ones are found, unrest and what comes by chance are none."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable

import pytest

from memwatch.core.forecast.generation_tracker import GenerationTracker, SawtoothDetector

GB = 1e9


def told(
    level: Callable[[float], float], seconds: float, noise: float = 0.002, interval: float = 1.0
) -> SawtoothDetector:
    rng, teeth = random.Random(0), SawtoothDetector()
    for k in range(int(seconds / interval)):
        teeth.add_samples((k * interval,), (level(k * interval) * (1.0 + noise * rng.gauss(0.0, 1.0)),))
    return teeth


def saw(period: float, height: float = 6 * GB, growth: float = 3e6) -> Callable[[float], float]:
    """Garbage that is collected every so often, above a leak."""
    return lambda t: 20 * GB + growth * t + height * (t % period) / period


def beat(teeth: SawtoothDetector, t: float) -> GenerationTracker:
    found = teeth.cycle(t)
    assert found is not None
    return found


@pytest.mark.parametrize("period", [13.0, 40.0, 103.0])
@pytest.mark.parametrize("height", [3 * GB, 20 * GB])
def test_regular_teeth_are_a_beat(period: float, height: float) -> None:
    found = beat(told(saw(period, height), 12 * period), 12 * period)
    assert found.seconds == pytest.approx(period, rel=0.1)
    assert len(found.summaries) >= 9


def test_the_levels_of_the_teeth_show_the_leak_beneath_them() -> None:
    points = beat(told(saw(40.0), 800.0), 800.0).points(800.0)
    steps = [(b.level - a.level) / (b.t - a.t) for a, b in zip(points[1:], points[6:], strict=False)]
    assert sum(steps) / len(steps) == pytest.approx(3e6, rel=0.1)


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.06])
@pytest.mark.parametrize("growth", [0.0, 20e6])
def test_noise_is_no_tooth(noise: float, growth: float) -> None:
    assert told(lambda t: 20 * GB + growth * t, 2000.0, noise).cycle(2000.0) is None


def test_a_few_falls_are_no_beat() -> None:
    assert told(saw(100.0), 350.0).cycle(350.0) is None


def test_falls_by_chance_are_hardly_ever_a_beat() -> None:
    beats = 0
    for seed in range(20):
        rng, falls = random.Random(seed), [0.0]
        while falls[-1] < 2000.0:
            falls.append(falls[-1] + 5.0 + rng.expovariate(1 / 60.0))
        teeth = told(lambda t, falls=falls: 20 * GB + 0.1 * GB * (t - falls[bisect_right(falls, t) - 1]), 2000.0)
        beats += teeth.cycle(2000.0) is not None
    assert beats <= 3


def test_teeth_that_do_not_come_any_more_are_none() -> None:
    teeth = told(saw(40.0), 600.0)
    assert teeth.cycle(610.0) is not None
    for t in range(600, 800):
        teeth.add_samples((float(t),), (26 * GB,))
    assert teeth.cycle(799.0) is None
