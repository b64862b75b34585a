from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.forecast.sample_summaries import (
    KEPT_SHAPES,
    SLOTS,
    GenerationSummary,
    TimeBin,
    TimeBins,
    add_shape,
    slots_of,
    summarize_generation,
)
from support.shapes import shape_from


@given(st.lists(st.tuples(st.floats(0.0, 1e4), st.integers(0, 2**50)), min_size=1, max_size=500))
def test_bins_lose_no_sample_and_no_extreme(samples: list[tuple[float, int]]) -> None:
    bins = TimeBins(32)
    t = 0.0
    for step, used in samples:
        t += step
        bins.add_samples((t,), (used,))
    assert len(bins.items) < 32
    assert sum(b.count for b in bins.items) == len(samples) == bins.samples
    assert max(b.high for b in bins.items) == max(u for _, u in samples)
    assert min(b.low for b in bins.items) == min(u for _, u in samples)
    assert sum(b.total for b in bins.items) == pytest.approx(sum(u for _, u in samples))
    assert all(a.end_t <= b.start_t for a, b in pairwise(bins.items))


def one(t: float, used: float) -> TimeBin:
    return TimeBin(t, t, 1, used, used, used)


def test_slots_hold_the_last_level_where_nothing_was_sampled() -> None:
    means, highs = slots_of([one(0.0, 10.0), one(8.0, 30.0)], 0.0, 16.0, SLOTS)
    assert means == [10.0] * 8 + [30.0] * 8
    assert highs == means


def test_the_level_of_a_generation_ignores_a_short_peak() -> None:
    bins = [one(float(t), 1000.0 if t == 30 else 100.0) for t in range(64)]
    shape = summarize_generation(bins, 0.0, 64.0, 3.0)
    assert shape is not None
    assert shape.baseline == 100.0
    assert shape.peak == 1000.0
    assert shape.middle_t == 32.0
    assert shape.slot_maxima[30 // 4] == 1000.0


def test_a_generation_without_samples_or_length_has_no_shape() -> None:
    assert summarize_generation([], 0.0, 1.0, 0.0) is None
    assert summarize_generation([one(0.0, 1.0)], 0.0, 0.0, 0.0) is None


def test_old_generations_are_merged_and_none_is_lost() -> None:
    shapes: list[GenerationSummary] = []
    for g in range(1000):
        level = float(g)
        add_shape(shapes, shape_from(level, level, [level] * SLOTS, [level] * SLOTS, seconds=10.0))
    assert len(shapes) == KEPT_SHAPES
    assert sum(s.count for s in shapes) == 1000
    assert [s.ordinal for s in shapes] == sorted(s.ordinal for s in shapes)
    assert all(s.baseline == pytest.approx(s.ordinal) for s in shapes)
    assert all(s.middle_t == pytest.approx(10 * (s.ordinal + 0.5)) for s in shapes)
    assert all(s.count == 1 for s in shapes[-10:])
