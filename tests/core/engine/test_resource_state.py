"""Single samples wait to be added together; a caller finds all of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.engine.resource_state import MAX_PENDING_SAMPLES, MonitoredResource
from memwatch.core.engine.status_sentence import outlook_text
from memwatch.core.forecast.forecaster import Forecaster
from memwatch.core.measurements import HOST, Limit, Usage
from memwatch.core.sample_windows import PeakRate
from memwatch.core.snapshot import Verdict

LIMIT = 100_000
GAPS, STEPS = st.sampled_from([0.005, 0.02, 0.45, 1.0, 1.0, 1.0, 7.0]), st.integers(-40, 40)


def usage(used: int, others: int = 0) -> Usage:
    """Of a limit that others take some of."""
    return Usage(HOST, used, Limit(LIMIT, "host", LIMIT - used - others))


@given(st.lists(st.tuples(GAPS, STEPS, STEPS), max_size=60))
def test_no_waiting_sample_has_risen_faster_than_the_known_rate(steps: list[tuple[float, int, int]]) -> None:
    t, used, others = 0.0, 5000, 5000
    resource, by_used, by_taken = MonitoredResource(usage(used, others), Forecaster, t), PeakRate(), PeakRate()
    for gap, step, other in steps:
        t, used, others = t + gap, used + step, others + other
        resource.add_sample(t, usage(used, others))
        by_used.add_samples((t,), (used,))
        by_taken.add_samples((t,), (used + others,))
        assert resource.fastest >= 0.999999 * by_used.fastest
        assert resource.fastest >= 0.999999 * by_taken.fastest


def test_a_caller_finds_every_sample() -> None:
    resource = MonitoredResource(usage(1000), Forecaster, 0.0)
    for t in range(MAX_PENDING_SAMPLES // 2):
        resource.add_sample(float(t), usage(1000 + t % 2))
    assert resource.forecaster.greatest_rise_bytes(100.0, 0.0) == 1.0


def test_a_change_of_the_limit_is_no_rise() -> None:
    resource = MonitoredResource(usage(1000), Forecaster, 0.0)
    for t in range(4):
        resource.add_sample(float(t), usage(1000))
    resource.add_sample(4.0, Usage(HOST, 1000, Limit(2000, "cgroup /job", 1000)))
    resource.add_sample(5.0, Usage(HOST, 1000, Limit(2000, "cgroup /job", 1000)))
    assert resource.burst.threat_rate(10, 2000, 5.0, math.inf) == 0.0


def in_cgroup(used: int, limit: int = LIMIT) -> Usage:
    return Usage(HOST, used, Limit(limit, "cgroup /job", limit - used))


def test_where_a_cgroup_binds_from_now_on_its_others_are_no_growth() -> None:
    """The job takes 2 MB a second; from the 50th on a cgroup's limit is the nearest, in which others hold 40 MB.

    What the job takes in that second is not told from them.
    """
    mb = 10**6
    resource = MonitoredResource(Usage(HOST, 10 * mb, Limit(900 * mb, "host", 800 * mb)), Forecaster, 0.0)
    for t in range(1, 100):
        used = (10 + 2 * t) * mb
        at_host = Usage(HOST, used, Limit(900 * mb, "host", 800 * mb - used))
        resource.add_sample(float(t), at_host if t < 50 else in_cgroup(used + 40 * mb, 500 * mb))
    resource.update_outlook(99.0, None, ())
    trend, forecast = resource.outlook.trend, resource.outlook.forecast
    assert trend is not None and trend.growth_per_second == pytest.approx(2 * mb, rel=0.05)
    assert forecast is not None and forecast.eta_seconds == pytest.approx((500 - 248) / 2, rel=0.1)
    assert (resource.usage.used_bytes, resource.peak, resource.first_bytes) == (248 * mb, 248 * mb, 52 * mb)
    assert resource.outlook_valid_below(resource.usage) <= 500 * mb


def test_a_real_rise_is_not_levelled_where_the_way_of_counting_stays_alike() -> None:
    """An own cgroup and the tree show the same, whichever limit is the nearest."""
    mb = 10**6
    resource = MonitoredResource(in_cgroup(10 * mb, 500 * mb), Forecaster, 0.0)
    for t in range(1, 100):
        used = (10 + 2 * t) * mb
        at_host = Usage(HOST, used, Limit(900 * mb, "host", 400 * mb - used))
        resource.add_sample(float(t), at_host if t % 2 else in_cgroup(used, 500 * mb))
    resource.update_outlook(99.0, None, ())
    trend = resource.outlook.trend
    assert trend is not None and trend.growth_per_second == pytest.approx(2 * mb, rel=0.05)


def test_the_memory_of_a_checkpoint_lies_between_the_rise_and_the_release() -> None:
    """The largest of the lower bounds counts, and no checkpoint took more than its rise or release, if that is more."""
    resource = MonitoredResource(usage(1000), Forecaster, 0.0)
    resource.checkpoint_started()  # never completed
    resource.add_sample(0.0, usage(900))
    resource.checkpoint_started()
    for t, used in enumerate((1000, 1200, 1100)):
        resource.add_sample(float(t), usage(used))
    resource.checkpoint_completed(is_whole=True)
    resource.add_sample(3.0, usage(950))
    resource.add_sample(4.0, usage(9000))
    assert resource.measured_checkpoint_bytes == 300, "all of the rise; 250 were released"
    resource.checkpoint_started()
    resource.add_samples((5.0, 6.0), (9500, 9600), (9500, 9600), usage(9600))
    resource.checkpoint_completed(is_whole=True)
    resource.add_samples((7.0, 8.0), (9340, 9000), (9340, 9000), usage(9000))
    assert resource.measured_checkpoint_bytes == 300, "at most 600, and the one before took no more than 300 ..."
    resource.checkpoint_started()
    resource.add_sample(9.0, usage(20_000))
    resource.checkpoint_completed(is_whole=False)
    resource.add_sample(10.0, usage(9000))
    assert resource.measured_checkpoint_bytes == 300, "its beginning was not seen"
    resource.checkpoint_started()
    resource.add_sample(11.0, usage(9400))
    resource.checkpoint_completed(is_whole=True)
    resource.add_sample(12.0, usage(9000))
    assert resource.measured_checkpoint_bytes == 400, "... but this one took no less than 400"


def test_a_restart_ends_the_checkpoint_under_way_and_keeps_the_measured_ones() -> None:
    resource = MonitoredResource(usage(1000), Forecaster, 0.0)
    resource.checkpoint_started()
    resource.add_sample(1.0, usage(1500))
    resource.checkpoint_completed(is_whole=True)
    resource.add_sample(2.0, usage(1000))
    resource.checkpoint_started()
    resource.begin_attempt(3.0)
    resource.add_sample(4.0, usage(50_000))
    resource.checkpoint_completed(is_whole=True)
    resource.add_sample(5.0, usage(1000))
    assert resource.measured_checkpoint_bytes == 500


def test_the_spread_of_the_usage_of_others_is_estimated() -> None:
    alone, beside = (MonitoredResource(usage(1000, others), Forecaster, 0.0) for others in (0, 500))
    for t in range(64):
        alone.add_sample(float(t), usage(1000))
        beside.add_sample(float(t), usage(1000, 500 + 10 * (t % 3)))
    assert alone.other_usage_sd_bytes == 0.0
    assert beside.other_usage_sd_bytes == pytest.approx(14.6, abs=0.1), "the median of three values, 10 apart"
    for t in range(64, 128):
        beside.add_sample(float(t), usage(1000, 500 + 10 * (t % 3) + 100 * t))
    assert beside.other_usage_sd_bytes < 15.0, "their growth is no spread"
    beside.add_sample(128.0, Usage(HOST, 1000, Limit(2000, "cgroup /job", 1000)))
    assert beside.other_usage_sd_bytes == 0.0, "of another limit"


def test_others_that_take_the_limit_bring_it_nearer_and_are_told_but_the_trainer_is_not_blamed() -> None:
    gb, rate = 10**9, 10**8  # bytes a second
    resource = MonitoredResource(Usage(HOST, 10 * gb, Limit(100 * gb, "host", 80 * gb)), Forecaster, 0.0)
    for i in range(1, 601):
        resource.add_sample(float(i), Usage(HOST, 10 * gb, Limit(100 * gb, "host", 80 * gb - i * rate)))
        if i % 10 == 0:
            resource.update_outlook(float(i), None, ())
    told, decides = resource.current_outlook, resource.outlook
    assert (told.verdict, decides.verdict) == (Verdict.STABLE, Verdict.LEAK)
    assert told.forecast is not None and told.forecast.eta_seconds == pytest.approx(200.0, rel=0.05)
    assert told.others_per_second == pytest.approx(rate, rel=0.05)
    text = outlook_text(resource.usage, told, "generation", None, None)
    assert text.startswith("OOM in 3 m 20 s (3 m 11 s-3 m 29 s); stable at 10.0 GB; limit: host 100.0 GB; ")
    assert text.endswith("; others take 360.0 GB/h of the limit")


def test_what_others_take_is_added_to_the_growth_of_the_trainer() -> None:
    gb, rate = 10**9, 10**8  # bytes a second, of each
    resource = MonitoredResource(Usage(HOST, 10 * gb, Limit(200 * gb, "host", 180 * gb)), Forecaster, 0.0)
    for i in range(1, 601):
        used = 10 * gb + i * rate
        resource.add_sample(float(i), Usage(HOST, used, Limit(200 * gb, "host", 180 * gb - 2 * i * rate)))
        if i % 10 == 0:
            resource.update_outlook(float(i), None, ())
    told = resource.current_outlook
    assert told.trend is not None and told.trend.growth_per_second == pytest.approx(rate, rel=0.05)
    assert told.forecast is not None and told.forecast.eta_seconds == pytest.approx(300.0, rel=0.05)
    assert told.others_per_second == pytest.approx(rate, rel=0.05)
    assert 20 * rate <= told.growth.greatest_rise_bytes(10.0, 0.0) <= 30 * rate, "of both; a bin is some seconds long"


def test_a_limit_that_is_lowered_bit_by_bit_is_forecast_as_if_somebody_took_it() -> None:
    gb, rate = 10**9, 10**8
    resource = MonitoredResource(Usage(HOST, 10 * gb, Limit(100 * gb, "--limit", 90 * gb)), Forecaster, 0.0)
    for i in range(1, 701):
        resource.add_sample(float(i), Usage(HOST, 10 * gb, Limit(100 * gb - i * rate, "--limit", 90 * gb - i * rate)))
        if i % 10 == 0:
            resource.update_outlook(float(i), None, ())
    assert resource.limit_used_bytes == 80 * gb
    told = resource.current_outlook.forecast
    assert told is not None and told.eta_seconds == pytest.approx(200.0, rel=0.05)


def test_after_a_limit_was_lowered_samples_at_once_say_the_same_as_one_by_one() -> None:
    times, used = (2.0, 3.0, 4.0), (1200, 1300, 1500)
    one_by_one, at_once = (MonitoredResource(in_cgroup(1000), Forecaster, 0.0) for _ in range(2))
    for resource in (one_by_one, at_once):
        resource.add_sample(1.0, in_cgroup(1000, LIMIT - 60_000))
    for t, each in zip(times, used, strict=True):
        one_by_one.add_sample(t, in_cgroup(each, LIMIT - 60_000))
    at_once.add_samples(times, used, used, in_cgroup(used[-1], LIMIT - 60_000))
    assert list(at_once.latest) == list(one_by_one.latest)
    assert at_once.recent_rise_bytes(10.0) == one_by_one.recent_rise_bytes(10.0) == 500


def test_others_that_come_and_go_are_no_forecast() -> None:
    gb = 10**9
    resource = MonitoredResource(Usage(HOST, 10 * gb, Limit(100 * gb, "host", 80 * gb)), Forecaster, 0.0)
    for i in range(1, 601):
        others = 30 * gb if i % 60 < 20 else 0
        resource.add_sample(float(i), Usage(HOST, 10 * gb, Limit(100 * gb, "host", 80 * gb - others)))
        if i % 10 == 0:
            resource.update_outlook(float(i), None, ())
    told = resource.current_outlook
    assert (told.verdict, told.others_per_second) == (Verdict.STABLE, 0.0)
