"""The guard against bursts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.decision.burst_detector import CEILING_SECONDS, BurstDetector, ClimbDetector

GB = 10**9


def climb(burst: BurstDetector, t: float, values: list[float]) -> bool:
    threatened = False
    for value in values:
        t += 1
        burst.add_samples((t,), (int(value * GB),))
        threatened |= value >= 98 and burst.threat_rate(int((100 - value) * GB), 100 * GB, 15, math.inf) > 0.0
    return threatened


def test_a_burst_beyond_all_before_threatens_near_the_limit_only():
    burst = BurstDetector()
    assert not climb(burst, 0, [50.0] * 60)
    assert not climb(burst, 60, [55, 60, 65, 70, 75, 80])
    assert climb(burst, 66, [85, 90, 95, 98])


def test_a_climb_like_those_before_does_not_threaten():
    burst = BurstDetector()
    t = 0.0
    for _ in range(6):
        climb(burst, t, [*[60.0] * 30, 70, 80, 90, *[60.0] * 30])
        t += 63
    assert not climb(burst, t, [*[64.0] * 30, 74, 84, 94])


@pytest.mark.parametrize("seconds", [6, 12, 25, 60])
def test_nor_does_a_peak_of_each_of_the_latest_generations_however_short_they_are(seconds):
    burst = BurstDetector()
    climb(burst, 0, [60.0] * 60)
    t = 60.0
    for generation in range(4):
        low, top = 94 + 0.5 * generation, 96.5 + 0.5 * generation
        assert not climb(burst, t, [*[low] * (seconds - 3), low + 1.5, top, top]), generation
        t += seconds
    assert climb(burst, t, [95, 97, 98.5, 99.8])


def test_a_burst_that_pauses_and_falls_a_little_threatens_all_the_same():
    burst = BurstDetector()
    climb(burst, 0, [50.0] * 60)
    assert climb(burst, 60, [55, 60, 57, 66, 72, 68, 80, 86, 82, 92, 98.5])


@given(
    samples=st.lists(
        st.tuples(st.sampled_from([0.0, 0.05, 0.5, 1.0, 3.0, 9.9, 10.0, 12.0, 60.0, 700.0]), st.integers(0, 20)),
        min_size=1,
        max_size=150,
    )
)
def test_the_ceiling_is_the_most_of_all_samples_but_the_recent(samples):
    burst, seen, t = BurstDetector(), list[tuple[float, int]](), 0.0
    for gap, used in samples:
        t += gap
        burst.add_samples((t,), (used,))
        seen.append((t, used))
        settled = [used for at, used in seen if at < t - CEILING_SECONDS]
        assert burst._ceiling == max([seen[0][1], *settled])


def test_what_is_kept_is_bounded():
    burst = BurstDetector()
    for i in range(20_000):
        burst.add_samples((i * 0.05,), ((i * 7919) % 1000,))
    assert len(burst._recent) <= CEILING_SECONDS / 0.05 + 1


LEAD = 16.0


def believed(levels: list[float], usual_headroom: float = math.inf) -> list[int]:
    """At which of the samples, one a second, a climb is believed to reach the limit. GB of 100."""
    climb, found = ClimbDetector(), []
    climb.set_window_seconds(LEAD)
    for t, level in enumerate(levels):
        climb.add_samples((float(t),), (int(level * GB),))
        if climb.threat_rate(int(level * GB), int((100 - level) * GB), usual_headroom):
            found.append(t)
    return found


@pytest.mark.parametrize("seconds", [40, 100, 400])
def test_a_steady_climb_to_the_limit_is_believed_before_a_checkpoint_would_be_too_late(seconds):
    at = believed([50.0] * 60 + [50 + 50 * t / seconds for t in range(seconds)])
    assert at and 60 < at[0] <= 60 + seconds - LEAD


def test_an_accelerating_climb_is_believed_in_time_too():
    at = believed([50.0] * 60 + [50 + 50 * (t / 60) ** 2 for t in range(60)])
    assert at and at[0] <= 120 - LEAD / 2


def test_a_pause_does_not_end_a_climb():
    at = believed([50.0] * 60 + [50 + 0.8 * t for t in range(30)] + [74.0] * 10 + [74 + 0.8 * t for t in range(30)])
    assert at and at[0] <= 60 + 30 + 10 + 32 - LEAD + 2


def test_what_generations_like_those_before_would_do_is_not_new():
    levels = [50.0] * 60 + [50 + 0.5 * t for t in range(100)]
    assert believed(levels, usual_headroom=10 * GB)[0] > believed(levels)[0]
    assert believed(levels, usual_headroom=0.0) == []


@pytest.mark.parametrize(
    ("levels", "since"),
    [
        pytest.param([90.0] * 200, 0, id="no growth"),
        pytest.param([60.0] * 60 + [95.0] * 100, 0, id="a step that stays"),
        pytest.param(([60.0 + t for t in range(36)] + [60.0] * 36) * 5, 72, id="a climb such as there was"),
        pytest.param([50 + 0.02 * t for t in range(1000)], 0, id="slow"),
        pytest.param([50 + 0.01 * t + (35.0 if t >= 60 else 0.0) for t in range(120)], 0, id="a step in a slow climb"),
        pytest.param([95 + 4 * ((t * 7919) % 11) / 11 for t in range(600)], 60, id="unrest near the limit"),
    ],
)
def test_what_is_no_climb(levels, since):
    assert [t for t in believed(levels) if t >= since] == []


@given(
    samples=st.lists(st.tuples(st.sampled_from([0.5, 1.0, 3.0, 20.0]), st.integers(0, 100)), min_size=2, max_size=80),
    cut=st.integers(1, 79),
)
def test_samples_are_added_one_by_one_or_together(samples, cut):
    times, used, t = [], [], 0.0
    for gap, level in samples:
        t += gap
        times.append(t)
        used.append(level)
    one, two = ClimbDetector(), ClimbDetector()
    for climb in (one, two):
        climb.set_window_seconds(LEAD)
    one.add_samples(times, used)
    two.add_samples(times[:cut], used[:cut])
    for t, level in zip(times[cut:], used[cut:], strict=True):
        two.add_samples((t,), (level,))
    assert (one.record, one.rate, one._cells) == (two.record, two.rate, two._cells)
