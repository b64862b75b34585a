"""Readings that wait: what is asked for is as if each had been taken when it came."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.engine.resource_state import MAX_PENDING_SAMPLES, MonitoredResource
from memwatch.core.forecast.forecaster import Forecaster
from memwatch.core.measurements import HOST, Limit, Usage
from memwatch.core.sample_windows import PeakRate
from support.watch import Script, ends_in, growing

LIMIT = 100_000
GAPS, STEPS = st.sampled_from([0.005, 0.02, 0.45, 1.0, 1.0, 1.0, 7.0]), st.integers(-40, 40)


def usage(used: int, others: int = 0) -> Usage:
    """Of a limit that others take some of."""
    return Usage(HOST, used, Limit(LIMIT, "host", LIMIT - used - others))


@given(st.lists(st.tuples(GAPS, STEPS, STEPS), max_size=60))
def test_whatever_waits_nothing_has_risen_faster_than_is_known(steps: list[tuple[float, int, int]]) -> None:
    t, used, others = 0.0, 5000, 5000
    track, by_used, by_taken = MonitoredResource(usage(used, others), Forecaster(), t), PeakRate(), PeakRate()
    for gap, step, other in steps:
        t, used, others = t + gap, used + step, others + other
        track.add_sample(t, usage(used, others))
        by_used.add_samples((t,), (used,))
        by_taken.add_samples((t,), (used + others,))
        assert track.fastest >= 0.999999 * by_used.fastest
        assert track.fastest >= 0.999999 * by_taken.fastest


def test_who_asks_sees_every_reading() -> None:
    track = MonitoredResource(usage(1000), Forecaster(), 0.0)
    for t in range(MAX_PENDING_SAMPLES // 2):
        track.add_sample(float(t), usage(1000 + t % 2))
    assert track.forecaster.new_high_bytes(100.0) == 1001, "none was before"
    assert track.forecaster.rise_bytes(100.0) > 0.0


def test_readings_of_another_limit_are_no_rise() -> None:
    track = MonitoredResource(usage(1000), Forecaster(), 0.0)
    for t in range(4):
        track.add_sample(float(t), usage(1000))
    track.add_sample(4.0, Usage(HOST, 1000, Limit(2000, "cgroup /job", 1000)))
    track.add_sample(5.0, Usage(HOST, 1000, Limit(2000, "cgroup /job", 1000)))
    assert track.burst.threat_rate(10, 2000, 5.0) == 0.0


def test_what_a_checkpoint_takes_lies_between_what_came_with_it_and_what_went_again() -> None:
    """One of the latest took at least so much; none took more than that went, or came, whichever is more."""
    track = MonitoredResource(usage(1000), Forecaster(), 0.0)
    track.checkpoint_started()  # and never ended
    track.add_sample(0.0, usage(900))
    track.checkpoint_started()
    for t, used in enumerate((1000, 1200, 1100)):
        track.add_sample(float(t), usage(used))
    track.checkpoint_completed(is_whole=True)
    track.add_sample(3.0, usage(950))
    track.add_sample(4.0, usage(9000))
    assert track.measured_checkpoint_bytes == 300, "all that it rose by; 250 went again"
    track.checkpoint_started()
    track.add_samples((5.0, 6.0), (9500, 9600), (9500, 9600), usage(9600))
    track.checkpoint_completed(is_whole=True)
    track.add_samples((7.0, 8.0), (9340, 9000), (9340, 9000), usage(9000))
    assert track.measured_checkpoint_bytes == 300, "at most 600, and as the one before it took no more than 300 ..."
    track.checkpoint_started()
    track.add_sample(9.0, usage(20_000))
    track.checkpoint_completed(is_whole=False)
    track.add_sample(10.0, usage(9000))
    assert track.measured_checkpoint_bytes == 300, "its begin was not seen"
    track.checkpoint_started()
    track.add_sample(11.0, usage(9400))
    track.checkpoint_completed(is_whole=True)
    track.add_sample(12.0, usage(9000))
    assert track.measured_checkpoint_bytes == 400, "... but this one took no less than 400"


def test_a_restart_ends_what_was_being_saved_and_forgets_nothing_learned() -> None:
    track = MonitoredResource(usage(1000), Forecaster(), 0.0)
    track.checkpoint_started()
    track.add_sample(1.0, usage(1500))
    track.checkpoint_completed(is_whole=True)
    track.add_sample(2.0, usage(1000))
    track.checkpoint_started()
    track.begin_attempt(3.0)
    track.add_sample(4.0, usage(50_000))
    track.checkpoint_completed(is_whole=True)
    track.add_sample(5.0, usage(1000))
    assert track.measured_checkpoint_bytes == 500


def test_that_the_limit_may_never_be_met_is_remembered_for_a_while() -> None:
    """One fit among many may not see it."""
    script = Script()
    track = MonitoredResource(usage(1000), script, 0.0)
    script.says = growing(900, ends=ends_in(900.0, math.inf))
    track.update_outlook(0.0, None, ())
    assert track.p_never == pytest.approx(0.5)
    script.says = growing(900, ends=ends_in(900.0))
    track.update_outlook(60.0, None, ())
    assert track.p_never == pytest.approx(0.5 / math.e), "a generation later"
    track.begin_attempt(60.0)
    assert track.p_never == 0.0


def test_what_others_do_makes_the_odds_less_sure() -> None:
    alone, beside = (MonitoredResource(usage(1000, others), Forecaster(), 0.0) for others in (0, 500))
    for t in range(64):
        alone.add_sample(float(t), usage(1000))
        beside.add_sample(float(t), usage(1000, 500 + 10 * (t % 3)))
    assert alone.other_usage_sd_bytes == 0.0
    assert beside.other_usage_sd_bytes == pytest.approx(14.8, abs=0.1), "in the middle of three: 10 off in two of three"
    beside.add_sample(64.0, Usage(HOST, 1000, Limit(2000, "cgroup /job", 1000)))
    assert beside.other_usage_sd_bytes == 0.0, "of another limit"
