"""Generations as the markers tell them: very short ones in bundles, missed and late markers, the open one's level."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest

from memwatch.core.forecast.generation_tracker import LOST_AFTER, GenerationTracker
from memwatch.core.forecast.sample_summaries import KEPT_SHAPES

Used = Callable[[float], float]  # generations since the first marker -> bytes


def lived(
    generations: float, used: Used = lambda x: 100.0 + 10.0 * x, length: float = 20.0, step: float = 1.0
) -> tuple[GenerationTracker, float]:
    """So many generations of equal length, a sample a second; and the time."""
    rhythm, told = GenerationTracker(0.0, 0.0, None), 0
    for t in range(int(generations * length)):
        g = int(t / length)
        if g != told:
            told = g
            rhythm.begin_generation(g * length, g * step)
        rhythm.add_samples((float(t),), (used(t / length),))
    return rhythm, generations * length


def test_each_generation_has_its_level() -> None:
    rhythm, t = lived(6.05)
    assert [s.ordinal for s in rhythm.summaries] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert all(s.seconds == 20.0 for s in rhythm.summaries) and rhythm.seconds == 20.0
    steps = [b.level - a.level for a, b in pairwise(rhythm.points(t))]
    assert steps == pytest.approx([10.0] * 5)


@pytest.mark.parametrize("part", [0.4, 0.7, 0.95])
def test_the_open_generation_has_a_level_as_far_as_it_is_known(part: float) -> None:
    rhythm, t = lived(5.0 + part, lambda x: 100.0 + 10.0 * int(x) + (50.0 if x % 1 > 0.5 else 0.0))
    latest = rhythm.points(t)[-1]
    assert latest.x == 5.5 and 0.2 < latest.weight < 1.0
    assert latest.level - rhythm.summaries[-1].baseline == pytest.approx(10.0, abs=2.0), "like is compared with like"


def test_one_that_has_hardly_begun_has_none() -> None:
    rhythm, t = lived(5.1)
    assert rhythm.points(t)[-1].x == 4.5


@pytest.mark.parametrize("step", [1.0, 100.0])
def test_a_missed_marker_leaves_a_gap_and_no_long_generation(step: float) -> None:
    rhythm, t = lived(4.0, step=step)
    rhythm.begin_generation(t, 4 * step)
    for s in range(40):
        rhythm.add_samples((t + s,), (150.0,))
    rhythm.begin_generation(t + 40.0, 6 * step)
    assert (rhythm.ordinal, rhythm.step) == (6, step)
    assert max(s.seconds for s in rhythm.summaries) == 20.0


def test_generations_that_pass_while_memwatch_is_away_are_counted() -> None:
    """Of four generations one is seen whole; that the others began is told late, when memwatch is back."""
    rhythm, t = GenerationTracker(0.0, 0.0, None), 0.0
    for index in range(1, 21):
        for _ in range(20):
            t += 1.0
            if index % 4 in (0, 1):
                rhythm.add_samples((t,), (1.0 * t,))
        if index % 4 in (3, 0):
            rhythm.begin_generation(t, index)
        elif index % 4 == 2:
            rhythm.add_late_marker(index)
    assert (rhythm.ordinal, rhythm.step) == (20, 1.0)
    assert [(s.ordinal, s.seconds) for s in rhythm.summaries] == [(o, 20.0) for o in (3.0, 7.0, 11.0, 15.0, 19.0)]


def test_a_marker_that_is_told_late_takes_its_samples_with_it() -> None:
    rhythm, _ = lived(3.0, lambda x: 100.0)
    for t in range(60, 65):
        rhythm.add_samples((float(t),), (900.0,))
    rhythm.begin_generation(60.0, 3.0)
    assert rhythm.summaries[-1].peak == 100.0
    assert rhythm.samples == 65 and rhythm.latest() == 900.0


def test_very_short_generations_are_taken_together() -> None:
    rhythm = GenerationTracker(0.0, 0.0, None)
    for g in range(1, 200):
        rhythm.add_samples((g * 0.5,), (100.0 + g,))
        rhythm.begin_generation(g * 0.5, float(g))
    assert rhythm.size >= 4
    assert rhythm.ordinal == pytest.approx(199 / rhythm.size, rel=0.1)
    assert all(s.seconds >= 1.5 for s in rhythm.summaries)


@pytest.mark.parametrize("seconds", [0.5, 1.0, 1.5, 2.0, 2.5, 3.1])
def test_growth_by_generation_is_told_whatever_few_samples_one_has(seconds: float) -> None:
    """Of generations about as long as two or three samples some have one more than others, and are bundled so."""
    rhythm, t, sampled_t = GenerationTracker(0.0, 0.0, None), 0.0, 1.0
    for g in range(1, 60):
        t += seconds * (1.0 + 0.02 * math.sin(7.0 * g))
        while sampled_t < t:
            rhythm.add_samples((sampled_t,), (100.0 * sampled_t / seconds,))
            sampled_t += 1.0
        rhythm.add_samples((t,), (100.0 * t / seconds,))
        rhythm.begin_generation(t, float(g))
        points = rhythm.points(t)
        if len(points) > 4:
            growth = (points[-1].level - points[0].level) / (points[-1].x - points[0].x)
            assert growth / rhythm.size == pytest.approx(100.0, rel=0.1)
    assert rhythm.ordinal * rhythm.size == pytest.approx(59.0, abs=4.0)


def test_a_first_bundle_that_is_too_large_does_not_delay_the_others() -> None:
    """The first two last 1.98 s, so a third is taken with them; from then on two are enough, and soon are taken."""
    rhythm, t = GenerationTracker(0.0, 0.0, None), 0.0
    for g in range(1, 13):
        for _ in range(10):
            t += 0.099 if g < 3 else 0.101
            rhythm.add_samples((t,), (5e6 * g,))
        rhythm.begin_generation(t, float(g))
    assert (rhythm.size, len(rhythm.summaries)) == (2.0, 5), "3, 2, 2, 2 and 2 of them"


def test_growth_is_that_of_the_index_whatever_part_of_it_a_bar_shows() -> None:
    """A bar is read once a second; the program runs now at five steps a second, now at twenty, a MB a step."""
    rhythm, index, t = GenerationTracker(0.0, 0.0, None), 0.0, 0.0
    for second in range(240):
        t += 1.0
        index += round(12.5 + 7.5 * math.sin(second / 20))
        rhythm.add_samples((t,), (1e8 + 1e6 * index,))
        rhythm.begin_generation(t, index)
    points = rhythm.points(t)
    for a, b in pairwise(points[::10]):
        assert (b.level - a.level) / (b.x - a.x) / rhythm.size == pytest.approx(1e6, rel=0.15)
    assert rhythm.ordinal * rhythm.size == pytest.approx(index, rel=0.02)


def test_peaks_of_generations_of_uneven_size_are_counted_and_break_nothing() -> None:
    """Every fourth has a peak, and a generation is now 9, now 15 of the index: it is the fourth all the same."""
    rhythm, index, t = GenerationTracker(0.0, 0.0, None), 0.0, 0.0
    for number in range(40):
        for second in range(20):
            t += 1.0
            high = 5e8 if number % 4 == 3 and 8 <= second < 12 else 0.0
            rhythm.add_samples((t,), (1e9 + high,))
        index += (9.0, 15.0, 12.0, 11.0, 13.0)[number % 5]
        rhythm.begin_generation(t, index)
    peak = rhythm.peaks.periodic_peak(False)
    assert peak is not None and peak.regular
    assert peak.period * rhythm.size == pytest.approx(4 * 12.0, rel=0.1)
    assert peak.last * rhythm.size == pytest.approx(index - 0.6 * 12.0, abs=12.0)


def test_generations_that_become_long_are_no_longer_bundled() -> None:
    rhythm, t, sampled_t = GenerationTracker(0.0, 0.0, None), 0.0, 1.0
    for g in range(1, 120):
        t += 0.25 if g < 60 else 20.0
        while sampled_t < t:
            rhythm.add_samples((sampled_t,), (100.0 * sampled_t,))
            sampled_t += 1.0
        rhythm.begin_generation(t, float(g))
        if g == 59:
            assert rhythm.size >= 8
    assert rhythm.size == 1
    points = rhythm.points(t)[-5:]
    assert (points[-1].level - points[0].level) / (points[-1].x - points[0].x) == pytest.approx(2000.0, rel=0.02)


def test_markers_are_lost_when_a_generation_lasts_much_too_long() -> None:
    rhythm, t = lived(6.0)
    assert rhythm.goes_on(t)
    assert not rhythm.goes_on(t + (LOST_AFTER + 1.0) * 20.0)
    assert not GenerationTracker(0.0, 0.0, None).goes_on(1.0), "no length is known"
    assert GenerationTracker(0.0, 0.0, 20.0).goes_on(1.0)


def test_what_is_kept_is_bounded() -> None:
    rhythm, t = lived(500.0)
    assert len(rhythm.summaries) <= KEPT_SHAPES
    assert sum(s.count for s in rhythm.summaries) == 499
    assert (rhythm.x(t), rhythm.part(t)) == (pytest.approx(500.0), pytest.approx(1.0))


def test_a_generation_with_a_jump_in_it_has_no_level() -> None:
    rhythm, t = lived(5.05, lambda x: 100.0 if x < 2.5 else 180.0)
    assert [p.x for p in rhythm.points(t)] == [0.5, 1.5, 3.5, 4.5]
    assert [p.level for p in rhythm.points(t)] == [100.0, 100.0, 180.0, 180.0]


def test_stairs_are_no_jumps() -> None:
    rhythm, _ = lived(8.05, lambda x: 100.0 + 10.0 * int(x + 0.5))
    assert not any(s.has_level_shift for s in rhythm.summaries)


@pytest.mark.parametrize("part", [0.5, 1.05, 1.5])
def test_a_late_generation_cannot_be_compared_part_by_part(part: float) -> None:
    rhythm, _ = lived(5.05)
    t = rhythm.start_t + part * 20.0
    for second in range(int(rhythm.start_t) + 1, int(t)):
        rhythm.add_samples((float(second),), (150.0,))
    assert rhythm.is_blurred(t) is (part > 1.1)


def test_a_generation_that_was_hardly_seen_has_no_shape() -> None:
    rhythm = GenerationTracker(0.0, 0.0, None)
    for t in range(120):
        if t % 20 == 0 and t:
            rhythm.begin_generation(float(t), t / 20)
        if not 63 < t < 80:
            rhythm.add_samples((float(t),), (100.0,))
    assert [s.ordinal for s in rhythm.summaries] == [0.0, 1.0, 2.0, 4.0]
