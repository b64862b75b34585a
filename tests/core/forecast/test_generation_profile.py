"""What stands above the level within a generation."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.forecast.generation_profile import ADDITIVE, FLAT_PROFILE, GenerationProfile, fit_profile
from memwatch.core.forecast.piecewise_trend import BaselinePoint, TrendFit, fit_trend
from memwatch.core.forecast.sample_summaries import SLOTS, GenerationSummary
from support.shapes import shape_from

STEP, HIGH = 30.0, 40.0
LITTLE = 0.06 * HIGH  # no two generations are quite alike, whatever was seen of a few
PROFILE = [HIGH if 5 <= k < 8 else 0.0 for k in range(SLOTS)]


def generations(
    count: int, growth: float = STEP, profile: list[float] = PROFILE, noise: float = 0.0
) -> list[GenerationSummary]:
    """A line through all of them, and the same profile upon it in each."""
    rng, shapes = random.Random(0), []
    for g in range(count):
        levels = [1000.0 + growth * (g + (k + 0.5) / SLOTS) for k in range(SLOTS)]
        means = [v + p + noise * rng.gauss(0.0, 1.0) for v, p in zip(levels, profile, strict=True)]
        middle = 1000.0 + growth * (g + 0.5)
        shapes.append(shape_from(float(g), middle, means, [v + 1.0 for v in means]))
    return shapes


def fitted(shapes: list[GenerationSummary]) -> TrendFit:
    found = fit_trend([BaselinePoint(s.ordinal + 0.5, s.baseline) for s in shapes])
    assert found is not None
    return found


@pytest.mark.parametrize("growth", [0.0, STEP, -STEP])
def test_the_profile_is_told_without_the_growth_in_it(growth: float) -> None:
    shapes = generations(8, growth)
    found = fit_profile(shapes, [s.baseline for s in shapes], fitted(shapes))
    assert found.means == pytest.approx(PROFILE, abs=1e-6)
    assert found.slot_maxima == pytest.approx([p + 1.0 for p in PROFILE], abs=1e-6)
    assert 0.0 <= found.peak_sd <= LITTLE
    assert len(found.past_slot_maxima) == len(shapes) and found.past_slot_maxima[-1] == pytest.approx(
        found.slot_maxima, abs=1e-6
    )
    assert found.range == pytest.approx(HIGH + 1.0)


def test_growth_that_begins_steep_lifts_no_generation_above_the_others() -> None:
    levels = [[300.0 * max(0.0, g - 5 + (k + 0.5) / SLOTS) ** 0.6 for k in range(SLOTS)] for g in range(18)]
    shapes = [shape_from(float(g), sum(means) / SLOTS, means, means) for g, means in enumerate(levels)]
    found = fitted(shapes)
    power = next(model for model in found.models if model.kind == "power")
    told = fit_profile(shapes, [s.baseline for s in shapes], replace(found, models=(power,)))
    assert told.top < 300.0, "which its first generation grows"


def test_the_highest_part_comes_first() -> None:
    shapes = generations(8)
    parts = fit_profile(shapes, [s.baseline for s in shapes], fitted(shapes)).parts()
    assert len(parts) == SLOTS
    assert {part for part, _ in parts[:3]} == {5.5 / SLOTS, 6.5 / SLOTS, 7.5 / SLOTS}
    assert [high for _, high in parts] == sorted((high for _, high in parts), reverse=True)


def test_generations_that_differ_scatter() -> None:
    shapes = generations(8, noise=5.0)
    found = fit_profile(shapes, [s.baseline for s in shapes], fitted(shapes))
    assert 0.5 < found.peak_sd < 10.0
    assert len({max(one) for one in found.past_slot_maxima}) == len(shapes)


def test_teeth_across_the_generations_are_taken_above_the_trend() -> None:
    """The level goes down when the peak goes up: above the trend, peaks are steadier."""
    shapes = [replace(s, baseline=s.baseline + (12.0 if s.ordinal % 2 else -12.0)) for s in generations(8)]
    trend = fitted(generations(8))
    levels = [s.baseline for s in shapes]
    assert fit_profile(shapes, levels, trend).peak_sd <= LITTLE
    assert fit_profile(shapes, levels, None).peak_sd > 2.0 * LITTLE


def test_highs_that_keep_to_the_trend_are_told_above_it() -> None:
    """A calm stretch now longer, now shorter, moves the level of a generation; its peak stays on the line."""
    shapes = generations(16)
    moved = [s.baseline + (40.0 if g % 2 else -40.0) for g, s in enumerate(shapes)]
    trend = fit_trend([BaselinePoint(s.ordinal + 0.5, level) for s, level in zip(shapes, moved, strict=True)])
    assert trend is not None
    told = fit_profile(shapes, moved, trend)
    assert math.sqrt(told.spread) < 20.0 and told.noise < 20.0
    few = fit_profile(shapes[-6:], moved[-6:], trend)
    assert math.sqrt(few.spread) > 30.0 and few.noise == trend.noise


def test_nothing_is_known_of_none() -> None:
    assert fit_profile([], [], None) == FLAT_PROFILE
    assert FLAT_PROFILE.parts() == [(0.5, 0.0)] and FLAT_PROFILE.range == 0.0


STANDS = GenerationProfile(tuple(PROFILE), tuple(p + 1.0 for p in PROFILE), 0.0)


@pytest.mark.parametrize(
    ("above", "part", "aside"),
    [
        pytest.param(0.0, 0.05, 0.0, id="on its course"),
        pytest.param(HIGH, 0.4, 0.0, id="in the high part"),
        pytest.param(HIGH, 0.25, 0.0, id="the high part comes early"),
        pytest.param(HIGH, 0.55, 0.0, id="and goes late"),
        pytest.param(HIGH, 0.9, HIGH - 1.0, id="high where none is"),
        pytest.param(HIGH + 10.0, 0.4, 9.0, id="higher than usual"),
        pytest.param(-7.0, 0.9, -7.0, id="lower than usual"),
    ],
)
def test_how_far_memory_is_off(above: float, part: float, aside: float) -> None:
    assert STANDS.residual(above, part) == pytest.approx(aside)


@given(st.floats(-1e3, 1e3), st.floats(0.0, 0.999))
def test_no_deviation_is_larger_than_the_distance_to_the_line(above: float, part: float) -> None:
    assert abs(STANDS.residual(above, part)) <= abs(above) + 1e-9


def swelling(share: float, noise: float = 0.0, count: int = 12) -> GenerationProfile:
    """A high of 20 % above a level that rises from 1000 to 2100; `share` of it rises too."""
    rng, shapes = random.Random(1), []
    for g in range(count):
        level = 1000.0 + 100.0 * g
        high = 200.0 * (1.0 - share + share * level / 1000.0) + rng.gauss(0.0, noise)
        means = [level + (high if k == 5 else 0.0) for k in range(SLOTS)]
        shapes.append(shape_from(float(g), level, means, means))
    return fit_profile(shapes, [s.baseline for s in shapes], fitted(shapes))


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_what_grows_with_the_level_is_told_for_the_level_of_now(share: float) -> None:
    told = swelling(share)
    high = 200.0 * (1.0 + 1.1 * share)
    assert max(told.slot_maxima) == pytest.approx(high, rel=0.1)
    level = told.scaling.level_under(4000.0, max(told.slot_maxima))
    assert level + 200.0 * (1.0 + share * (level / 1000.0 - 1.0)) == pytest.approx(4000.0, rel=0.02)
    assert told.scaling.doubt(4000.0, max(told.slot_maxima)) < 20.0


def test_what_may_grow_with_the_level_leaves_the_room_in_doubt() -> None:
    noisy = swelling(0.0, noise=80.0)
    assert noisy.scaling.share == 0.0
    assert noisy.scaling.doubt(4000.0, 200.0) > 4 * swelling(0.0, noise=5.0).scaling.doubt(4000.0, 200.0) > 0.0
    assert swelling(0.0, noise=80.0, count=4).scaling == ADDITIVE, "so few tell nothing"


def test_what_stays_as_it_is_leaves_the_room_that_it_leaves_now() -> None:
    assert FLAT_PROFILE.scaling.level_under(100.0, 30.0) == 70.0


def test_as_a_whole_any_part_explains_where_memory_is() -> None:
    told = GenerationProfile((0.0, 5.0, 0.0, 0.0) * 4, (1.0, 40.0, 1.0, 1.0) * 4, 1.0)
    assert told.whole().residual(39.0, 0.99) == 0.0
    assert told.whole().residual(43.0, 0.0) == 3.0
