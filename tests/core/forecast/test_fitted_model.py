"""The course of a run: what growth goes along, and what stands above it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from itertools import accumulate

import pytest

from memwatch.core.forecast.fitted_model import (
    FittedModel,
    fit_by_generation,
    fit_by_time,
    levels_by_generation,
    levels_by_time,
)
from memwatch.core.forecast.generation_tracker import GenerationTracker
from memwatch.core.forecast.growth_axes import GaugeReadings
from memwatch.core.forecast.growth_models import GrowthModel
from memwatch.core.forecast.sample_summaries import TimeBins

GB = 1e9
LENGTHS = (60.0, 130.0, 45.0, 90.0, 180.0, 50.0, 110.0, 70.0, 150.0, 40.0, 100.0, 85.0, 140.0)
EVEN = (60.0,) * 13
Used = Callable[[float, float], float]  # (seconds, generations) since the first marker -> bytes


def lived(lengths: tuple[float, ...], used: Used, noise: float = 0.001) -> tuple[GenerationTracker, float]:
    """Complete generations of these lengths, and the beginning of the next."""
    rng, rhythm = random.Random(0), GenerationTracker(0.0, 0.0, None)
    begins = [0.0, *accumulate(lengths)]
    for g, (begin, length) in enumerate(zip(begins, lengths, strict=False)):
        if g:
            rhythm.begin_generation(begin, float(g))
        for k in range(30):
            t, x = begin + length * k / 30, g + k / 30
            rhythm.add_samples((t,), (used(t, x) * (1.0 + noise * rng.gauss(0.0, 1.0)),))
    rhythm.begin_generation(begins[-1], float(len(lengths)))
    return rhythm, begins[-1]


def course(lengths: tuple[float, ...], used: Used, prior: GrowthModel | None = None) -> FittedModel:
    return over(*lived(lengths, used), prior)


def over(
    rhythm: GenerationTracker, t: float, prior: GrowthModel | None = None, gauges: Mapping[str, GaugeReadings] = {}
) -> FittedModel:
    return fit_by_generation(levels_by_generation(rhythm, t), rhythm, t, gauges, prior=prior)


def over_time(bins: TimeBins, gauges: Mapping[str, GaugeReadings] = {}) -> FittedModel:
    first_t = bins.items[0].start_t
    return fit_by_time(levels_by_time(bins.items, first_t), bins.items, first_t, gauges)


def test_even_generations_need_no_clock() -> None:
    found = course(EVEN, lambda t, x: 20 * GB + 2 * GB * x)
    assert [strand.regressor.name for strand in found.components] == ["index"]
    assert found.slope == pytest.approx(2 * GB, rel=0.05)
    assert found.by_generation and found.periodic_peak is None


def test_growth_by_the_hour_is_told_from_growth_by_the_generation() -> None:
    hourly = course(LENGTHS, lambda t, x: 20 * GB + 0.02 * GB * t)
    assert hourly.components[0].regressor.name == "time" and hourly.components[0].weight > 0.9
    assert hourly.slope == pytest.approx(0.02 * GB * hourly.schedule.generation_seconds, rel=0.05)
    counted = course(LENGTHS, lambda t, x: 20 * GB + 2 * GB * x)
    assert counted.components[0].regressor.name == "index" and counted.components[0].weight > 0.9
    assert counted.slope == pytest.approx(2 * GB, rel=0.05)


def test_blocks_of_time_before_growth_began_do_not_say_how_high_the_next_goes() -> None:
    """Half of the recording is a steep fill, the other half a slow line: no block of that stands above it."""
    bins = TimeBins(256)
    times = [float(t) for t in range(1600)]
    bins.add_samples(times, [20 * GB + GB * min(50.0, t / 16) + 0.002 * GB * max(0.0, t - 800.0) for t in times])
    found = over_time(bins)
    assert found.fit is not None and found.fit.best.points < len(levels_by_time(bins.items, 0.0).points)
    assert found.slope == pytest.approx(0.002 * GB, rel=0.05)
    assert len(found.profile.past_slot_maxima) < len(levels_by_time(bins.items, 0.0).points)
    assert found.profile.top < 0.1 * GB, "the fill rose by 6 in each block"


@pytest.mark.parametrize("lengths", [EVEN, LENGTHS])
def test_the_weights_are_a_belief(lengths: tuple[float, ...]) -> None:
    strands = course(lengths, lambda t, x: 20 * GB + 2 * GB * x).components
    assert sum(strand.weight for strand in strands) == pytest.approx(1.0)
    assert [s.weight for s in strands] == sorted((s.weight for s in strands), reverse=True)


def filling(pace: float, seconds: float, capacity: float, every: float = 20.0) -> GaugeReadings:
    readings = GaugeReadings()
    for k in range(int(seconds / every) + 1):
        readings.add(k * every, min(capacity, pace * k * every), capacity)
    return readings


def test_a_gauge_explains_growth_before_the_plateau_is_seen() -> None:
    rhythm, t = lived(EVEN, lambda t, x: 20 * GB + 2 * GB * x)
    found = over(rhythm, t, None, {"buffer": filling(10.0, t, 20_000.0)})
    assert found.components[0].regressor.name == "gauge"
    assert found.slope == pytest.approx(2 * GB, rel=0.05)
    full_x = 20_000.0 / 10.0 / 60.0
    assert found.components[0].regressor.position(19_999.0) == pytest.approx(full_x, rel=0.05)
    assert math.isinf(found.components[0].regressor.position(20_001.0))
    assert sum(strand.weight for strand in found.components) == pytest.approx(1.0)


def test_the_line_of_a_gauge_goes_on_from_its_latest_level() -> None:
    """The open generation has a level of its own, by the markers; the gauge's line ends a generation before it."""
    rhythm, t = lived(EVEN, lambda t, x: 20 * GB + 2 * GB * x)
    found = over(rhythm, t, None, {"buffer": filling(10.0, t, 20_000.0)})
    plain = over(rhythm, t)
    x = rhythm.x(t)
    assert found.level_at(x) == pytest.approx(plain.level_at(x), abs=0.1 * GB)


def endless(seconds: float) -> GaugeReadings:
    readings = GaugeReadings()
    for k in range(int(seconds / 20.0)):
        readings.add(20.0 * k, 200.0 * k, None)
    return readings


@pytest.mark.parametrize(
    ("growth", "gauge"),
    [
        pytest.param(2 * GB, lambda t: filling(100.0, t, 5_000.0), id="full"),
        pytest.param(2 * GB, endless, id="without a capacity"),
        pytest.param(2 * GB, lambda t: filling(10.0, 40.0, 5_000.0), id="it has stopped"),
        pytest.param(0.0, lambda t: filling(10.0, t, 20_000.0), id="nothing grows with it"),
    ],
)
def test_a_gauge_that_explains_nothing_is_not_asked(growth: float, gauge: Callable[[float], GaugeReadings]) -> None:
    rhythm, t = lived(EVEN, lambda t, x: 20 * GB + growth * x)
    assert [s.regressor.name for s in over(rhythm, t, None, {"buffer": gauge(t)}).components] == ["index"]


def test_what_comes_and_goes_in_each_generation_stands_above_the_level() -> None:
    found = course(EVEN, lambda t, x: 20 * GB + 2 * GB * x + (9 * GB if 0.5 <= x % 1 < 0.7 else 0.0))
    assert max(found.profile.slot_maxima) == pytest.approx(9 * GB, rel=0.1)
    assert found.slope == pytest.approx(2 * GB, rel=0.05)
    assert 0.5 <= found.profile.parts()[0][0] < 0.72


def test_peaks_of_every_fourth_generation_are_a_beat() -> None:
    found = course(EVEN, lambda t, x: 20 * GB + 0.2 * GB * x + (9 * GB if x % 4 > 3.8 else 0.0))
    assert found.periodic_peak is not None and found.periodic_peak.period == 4.0
    assert found.periodic_peak.excess == pytest.approx(9 * GB, rel=0.1)
    assert max(found.profile.slot_maxima) < 2 * GB, "and no part of the usual generation"


def test_after_a_restart_the_growth_before_it_is_expected() -> None:
    prior = GrowthModel("linear", 1.0, 0.0, 0, 10, 9.5, 60 * GB, 5 * GB, 0.1 * GB, 9.0)
    found = course(EVEN[:2], lambda t, x: 20 * GB + 0.5 * GB * x, prior)
    assert found.slope == 5 * GB
    assert found.level_at(1.5) == pytest.approx(20.75 * GB, rel=0.02)
    own = course(EVEN, lambda t, x: 20 * GB + 0.5 * GB * x, prior)
    assert own.slope == pytest.approx(0.5 * GB, rel=0.1)


def test_nothing_but_the_first_marker_is_no_growth() -> None:
    rhythm = GenerationTracker(0.0, 0.0, None)
    rhythm.add_samples((1.0,), (GB,))
    found = over(rhythm, 2.0)
    assert (found.components, found.fit, found.slope, found.level_at(1.0)) == ((), None, 0.0, 0.0)


# --- without markers ---


def binned(used: Callable[[float], float], seconds: int = 2000, noise: float = 0.001) -> TimeBins:
    rng, bins = random.Random(0), TimeBins(256)
    for t in range(seconds):
        bins.add_samples((float(t),), (used(float(t)) * (1.0 + noise * rng.gauss(0.0, 1.0)),))
    return bins


def test_without_markers_growth_is_by_the_second() -> None:
    found = over_time(binned(lambda t: 20 * GB + 0.01 * GB * t))
    assert found.slope == pytest.approx(0.01 * GB, rel=0.05)
    assert found.level_at(1999.0) == pytest.approx(40 * GB, rel=0.01)
    assert (found.schedule.generation_seconds, found.by_generation) == (1.0, False)


def test_without_markers_unrest_stands_above_the_level() -> None:
    found = over_time(binned(lambda t: 20 * GB + (5 * GB if t % 50 < 10 else 0.0)))
    assert found.slope == 0.0
    assert found.level_at(1999.0) + found.profile.slot_maxima[0] == pytest.approx(25 * GB, rel=0.02)


def test_without_markers_rare_peaks_are_a_beat() -> None:
    found = over_time(binned(lambda t: 20 * GB + 0.001 * GB * t + (9 * GB if t % 300 > 285 else 0.0), 3000))
    assert found.periodic_peak is not None
    assert found.periodic_peak.period == pytest.approx(300.0, rel=0.1)
    assert found.periodic_peak.excess == pytest.approx(9 * GB, rel=0.15)


def test_without_markers_a_gauge_explains_growth_too() -> None:
    found = over_time(binned(lambda t: 20 * GB + 0.01 * GB * t), {"buffer": filling(10.0, 2000.0, 40_000.0)})
    assert found.components[0].regressor.name == "gauge"
    assert found.slope == pytest.approx(0.01 * GB, rel=0.05)
