"""The next minutes: the limit is met as the generations that were seen would go on from here."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.forecast.generation_profile import GenerationProfile
from memwatch.core.forecast.generation_tracker import GenerationTracker
from memwatch.core.forecast.outlook import CheckpointCost
from memwatch.core.forecast.periodic_peaks import PeriodicPeak
from memwatch.core.forecast.sample_summaries import SLOTS, TimeBin, excursion_distribution
from memwatch.core.forecast.time_to_limit import ShortHorizonModel, p_growth_ended

LENGTH = 60.0  # seconds of a generation
PEAK_PART = 12  # of SLOTS: 45 s of 60


def generation(height: float, part: int = PEAK_PART) -> tuple[float, ...]:
    return tuple(height if k == part else 0.0 for k in range(SLOTS))


def seen(*generations: tuple[float, ...]) -> GenerationProfile:
    highs = tuple(max(one[k] for one in generations) for k in range(len(generations[0])))
    return GenerationProfile((0.0,) * len(highs), highs, 1.0, past_slot_maxima=generations)


ALIKE = seen(*[generation(50.0)] * 8)


def near(room: float, outline: GenerationProfile = ALIKE, slope: float = 0.0, part: float = 0.1) -> ShortHorizonModel:
    return ShortHorizonModel(room, 0.0, slope, 0.0, 1.0, outline, (part,), LENGTH)


@pytest.mark.parametrize(
    ("room", "slope", "seconds", "met"),
    [
        pytest.param(45.0, 0.0, 50.0, True, id="by the high part that comes"),
        pytest.param(45.0, 0.0, 20.0, False, id="not before it comes"),
        pytest.param(55.0, 0.0, 500.0, False, id="it fits"),
        pytest.param(55.0, 0.4, 50.0, True, id="but not upon the growth until then"),
        pytest.param(10.0, 0.5, 30.0, True, id="by growth alone"),
        pytest.param(-5.0, 0.0, 1.0, True, id="beyond it already"),
    ],
)
def test_memory_meets_the_limit_as_its_generations_usually_go(
    room: float, slope: float, seconds: float, met: bool
) -> None:
    odds = near(room, slope=slope).p_exceed(seconds)
    assert odds > 0.9 if met else odds < 0.1


def test_one_high_generation_in_ten_is_a_chance_of_one_in_ten() -> None:
    one_high = seen(*[generation(20.0)] * 9, generation(200.0))
    assert near(150.0, one_high).p_exceed(LENGTH) == pytest.approx(0.1, abs=0.05)


def test_few_generations_tell_less_than_many() -> None:
    """The same deviation, and a room beyond all that was seen."""
    few, many = (seen(*[generation(height) for height in (40.0, 60.0)] * times) for times in (2, 12))
    assert near(80.0, few).p_exceed(LENGTH) > 3.0 * near(80.0, many).p_exceed(LENGTH)


def test_what_memory_is_above_its_course_counts() -> None:
    on_course = near(60.0)
    assert replace(on_course, residual=20.0).p_exceed(LENGTH) > 0.9 > 0.1 > on_course.p_exceed(LENGTH)


def test_an_unsure_line_is_unsure_either_way() -> None:
    sure = near(60.0)
    unsure = replace(sure, slope_error=20.0 / LENGTH)
    assert (
        sure.p_exceed(LENGTH)
        < 0.01
        < unsure.p_exceed(LENGTH)
        < 0.5
        < replace(unsure, room=40.0).p_exceed(LENGTH)
        < 0.99
    )


def test_where_in_a_generation_it_is_nobody_knows() -> None:
    """Then the peak may come at any time: a tenth of a generation has a tenth of the chance."""
    lost = near(45.0, ALIKE.whole(), part=0.1)
    assert lost.p_exceed(0.1 * LENGTH) == pytest.approx(0.1 * lost.p_exceed(LENGTH), rel=0.01)


def test_a_peak_that_is_due_counts_from_when_it_is() -> None:
    every_fifth = replace(near(100.0), peaks=PeriodicPeak(9.0, 5.0, (118.0, 120.0, 122.0)), due_seconds=90.0)
    assert every_fifth.p_exceed(80.0) < 0.01
    assert every_fifth.p_exceed(100.0) > 0.9


def test_peaks_without_a_rhythm_are_as_likely_as_they_are_frequent() -> None:
    peaks = PeriodicPeak(9.0, 5.0, (118.0, 120.0, 122.0), regular=False)
    now_and_then = replace(near(100.0), peaks=peaks, peak_seconds=1000.0)
    assert now_and_then.p_exceed(100.0) == pytest.approx(1.0 - math.exp(-0.1), rel=0.01)


def test_what_the_horizon_cuts_off_does_not_make_the_highs_uncertain() -> None:
    """In a third of the generations the peak comes later than the horizon; how high it is was always the same."""
    early, late = generation(50.0, PEAK_PART), generation(50.0, PEAK_PART + 3)
    found = near(60.0, seen(*[early] * 8, *[late] * 4))
    assert found.p_exceed((PEAK_PART / SLOTS - found.parts[0] + 1.0 / SLOTS) * LENGTH) < 0.001


def test_memory_far_above_all_that_was_seen_may_go_farther() -> None:
    assert replace(near(360.0), residual=300.0).p_exceed(50.0) > 0.1
    assert near(60.0).p_exceed(50.0) < 0.01


def test_without_markers_memory_must_rise_from_where_it_is() -> None:
    """A block of time that goes high enough is not enough: what is left is more than memory ever rose in that time."""
    bins = [TimeBin(t, t + 1.0, 1, level, level, level) for t in range(200) for level in (50.0 * (t % 100) / 100.0,)]
    low = replace(near(45.0, ALIKE.whole()), headroom=44.0, rises=excursion_distribution(bins))
    assert low.p_exceed(10.0) < 0.01
    assert replace(low, headroom=3.0).p_exceed(10.0) == pytest.approx(replace(low, rises=None).p_exceed(10.0))


def test_a_peak_under_way_is_not_put_upon_itself() -> None:
    """Memory is above its course because the peak has come."""
    under_way = replace(near(150.0), residual=90.0, peaks=PeriodicPeak(9.0, 5.0, (100.0, 100.0)), due_seconds=0.0)
    assert under_way.p_exceed(5.0) < 0.01


SAVE = CheckpointCost(5.0, 30.0)  # as long as a part and a third; the peak has 50 bytes


def test_a_checkpoint_that_does_not_fit_upon_a_peak_fits_after_it() -> None:
    """A room of 70: above the line there is enough for it, at the peak there is not."""
    within = near(70.0, part=(PEAK_PART + 0.5) / SLOTS)
    assert within.p_checkpoint_fails(0.0, SAVE) < 0.01


def test_a_checkpoint_is_too_late_when_the_next_peak_is_met_and_it_did_not_fit_before() -> None:
    """The limit is met at the peak, 40 s ahead; until then there is room, or there is none."""
    enough, less = near(45.0), near(25.0)
    assert enough.p_checkpoint_fails(0.0, SAVE) < 0.01 < 0.99 < enough.p_checkpoint_fails(45.0, SAVE)
    assert less.p_checkpoint_fails(0.0, SAVE) > 0.99 > 0.01 > less.p_checkpoint_fails(0.0, CheckpointCost(5.0))


def test_a_checkpoint_that_growth_leaves_no_room_for_is_too_late_before_the_limit_is_met() -> None:
    grows = near(100.0, seen(*[(0.0,) * SLOTS] * 8), slope=1.0)
    assert grows.p_exceed(80.0) < 0.01
    assert grows.p_checkpoint_fails(60.0, SAVE) < 0.01 < 0.99 < grows.p_checkpoint_fails(80.0, SAVE)


def test_without_markers_the_room_above_the_line_must_hold_it() -> None:
    bins = [TimeBin(t, t + 1.0, 1, level, level, level) for t in range(200) for level in (float(t % 3),)]
    lost = replace(near(20.0, ALIKE.whole()), headroom=20.0, rises=excursion_distribution(bins))
    assert lost.p_checkpoint_fails(0.0, CheckpointCost(5.0, 10.0)) < 0.01
    assert replace(lost, headroom=28.0).p_checkpoint_fails(0.0, CheckpointCost(5.0, 30.0)) > 0.8


def test_what_was_usual_in_this_part_of_a_generation_leaves_so_much_room() -> None:
    assert near(60.0).usual_headroom(10.0) == 60.0
    assert near(60.0).usual_headroom(40.0) == 10.0, "the peak comes by then"
    assert near(60.0, ALIKE.whole()).usual_headroom(10.0) == math.inf


HEIGHTS = st.lists(st.floats(0.0, 100.0), min_size=SLOTS, max_size=SLOTS)


@given(
    st.lists(HEIGHTS, min_size=1, max_size=6),
    st.floats(-100.0, 300.0),
    st.floats(0.0, 0.96),
    st.floats(0.0, 1e3),
)
def test_odds_are_a_probability_and_more_room_never_raises_them(
    many: list[list[float]], room: float, part: float, seconds: float
) -> None:
    found = near(room, seen(*map(tuple, many)), 0.1, part)
    odds = found.p_exceed(seconds)
    assert 0.0 <= odds <= 1.0 and math.isfinite(odds)
    assert replace(found, room=room + 10.0).p_exceed(seconds) <= odds + 1e-12


@given(HEIGHTS, st.floats(-100.0, 300.0), st.floats(0.0, 0.96), st.floats(0.0, 200.0), st.floats(0.0, 200.0))
def test_more_time_never_lowers_the_odds(
    heights: list[float], room: float, part: float, seconds: float, more: float
) -> None:
    """Of generations that are alike; where they differ in one part and not in another, it is less sure."""
    found = near(room, seen(*[tuple(heights)] * 4), 0.1, part)
    assert found.p_exceed(seconds + more) >= found.p_exceed(seconds) - 1e-9


@given(
    HEIGHTS,
    st.floats(-100.0, 300.0),
    st.floats(0.0, 0.96),
    st.floats(0.0, 200.0),
    st.floats(0.0, 100.0),
    st.floats(0.0, 100.0),
    st.floats(0.0, 100.0),
)
def test_to_need_more_or_to_wait_longer_is_never_better(
    heights: list[float], room: float, part: float, wait: float, seconds: float, needed: float, more: float
) -> None:
    found, need = near(room, seen(*[tuple(heights)] * 4), 0.1, part), CheckpointCost(seconds, needed)
    odds = found.p_checkpoint_fails(wait, need)
    assert 0.0 <= odds <= 1.0
    assert found.p_checkpoint_fails(wait, replace(need, bytes=needed + more)) >= odds - 1e-9
    assert found.p_checkpoint_fails(wait + more, need) >= odds - 1e-9
    assert found.p_checkpoint_fails(wait, need) >= found.p_exceed(wait + seconds) - 1e-9


def test_what_begins_with_the_next_generation_may_come_as_early_as_after_the_shorter_ones():
    steady = near(25.0, seen(*[generation(50.0, part=1)] * 8), part=0.7)
    uneven = replace(steady, parts=(0.95, 0.7, 0.5))
    soon = 0.15 * LENGTH
    assert steady.p_exceed(soon) < 0.05 < 0.2 < uneven.p_exceed(soon) < 0.5
    assert uneven.p_exceed(LENGTH) == pytest.approx(steady.p_exceed(LENGTH), abs=0.1)


def test_the_parts_of_a_generation_that_may_be_over_follow_from_the_lengths_of_the_latest():
    tracker, t = GenerationTracker(0.0, 0.0, None), 0.0
    for index, length in enumerate((100.0, 80.0, 120.0, 100.0, 80.0, 120.0, 100.0)):
        tracker.add_samples([t + second for second in range(int(length))], [1.0] * int(length))
        t += length
        tracker.begin_generation(t, index + 1.0)
    shorter, usual, longer = tracker.likely_parts(t + 50.0)
    assert usual == pytest.approx(0.5) and 0.4 <= longer < usual < shorter <= 0.625
    assert tracker.likely_parts(t + 200.0)[0] < 1.0


@pytest.mark.parametrize(
    ("behind", "low", "high"),
    [
        pytest.param(0.0, 0.0, 0.0, id="on its course"),
        pytest.param(1.0, 0.01, 0.05, id="by what is usual"),
        pytest.param(3.0, 0.1, 0.4, id="by three deviations: growth that has gone on for so long goes on"),
        pytest.param(10.0, 0.9, 1.0, id="by ten: no accident"),
    ],
)
def test_memory_far_behind_its_course_has_ceased_to_grow(behind: float, low: float, high: float) -> None:
    assert low <= p_growth_ended(behind, width=1.0, risen=100.0) <= high


def test_the_more_has_risen_the_less_likely_has_it_just_ended() -> None:
    assert p_growth_ended(4.0, 1.0, 1000.0) < p_growth_ended(4.0, 1.0, 100.0) < p_growth_ended(4.0, 1.0, 10.0)


@given(
    st.floats(-1e12, 1e12, allow_nan=False),
    st.floats(0.0, 1e12, allow_nan=False),
    st.floats(-1e6, 1e15, allow_nan=False),
)
def test_a_probability_that_growth_has_ended_is_one(behind: float, width: float, risen: float) -> None:
    assert 0.0 <= p_growth_ended(behind, width, risen) <= 1.0


def test_where_growth_has_ended_memory_goes_on_from_where_it_is() -> None:
    growing = replace(near(45.0, slope=1.0), residual=-40.0, behind=40.0, risen=400.0)
    ended = growing.if_ended()
    assert growing.p_exceed(50.0) > 0.5 > 0.1 > ended.p_exceed(50.0)
    assert growing.p_ended > 0.9
