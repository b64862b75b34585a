"""The rules of the policy, one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.checkpoint_timing import CheckpointTracker
from memwatch.core.decision.decision_maker import LeadTimeEstimator
from memwatch.core.decision.policy import (
    PACE_FLOOR_SECONDS,
    PACE_IDLE_SECONDS,
    Policy,
    may_reach_limit_within,
    next_step_fits,
    pace_seconds,
    reaches_limit,
)
from memwatch.core.decision.warning import (
    LimitWarning,
    run_ends_first,
    seconds_until_warning,
    should_withdraw_warning,
    warning_hold_seconds,
)
from memwatch.core.forecast.growth_axes import GenerationSchedule
from memwatch.core.forecast.outlook import Outlook
from memwatch.core.forecast.time_to_limit import TimeToLimit, UncertainSchedule, distribution_of
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.snapshot import Forecast, Trend, Verdict

GB = 10**9


def eta(mid: float | None, low: float | None = None, finishes: bool | None = None, generation: float | None = None):
    return Forecast(mid, low, None, generation, None, None, finishes)


@pytest.mark.parametrize(
    ("verdict", "forecast", "expected"),
    [
        (Verdict.LEAK, eta(10), True),
        (Verdict.GROWING, eta(10), True),
        (Verdict.GROWING, eta(10, finishes=False), True),
        (Verdict.LEAK, eta(10, finishes=True), False),
        (Verdict.LEAK, eta(None), False),
        (Verdict.LEAK, None, False),
        (Verdict.STABLE, eta(10), False),
        (Verdict.PLATEAU, eta(10), False),
        (Verdict.WARMING_UP, eta(10), False),
    ],
)
def test_only_growth_to_a_limit_before_the_end_threatens(verdict, forecast, expected):
    assert reaches_limit(verdict, forecast) is expected


@pytest.mark.parametrize(("mid", "step", "expected"), [(3600, None, True), (3601, None, False), (5999, 2000, True)])
def test_the_longer_horizon_warns(mid, step, expected):
    assert (seconds_until_warning(Policy(), Verdict.LEAK, eta(mid), step) <= 0.0) is expected


@pytest.mark.parametrize(("cycle", "warned_t"), [(10.0, 30.0), (1200.0, 130.0), (3000.0, None)])
def test_growth_within_a_generation_warns_once_it_lasted_for_one_more_than_is_left(cycle, warned_t):
    """Levels are 10 s apart, the growth has lasted for 1,500 s and is to last for 500 s more."""
    timing = UncertainSchedule(GenerationSchedule(0.0, 1.0))
    warning, given_t = LimitWarning(), None
    for t in range(0, 500, 10):
        trend = Trend("linear", 1e6, None, 0.9)
        risk = TimeToLimit(distribution_of(1e9, [(500.0 - t, 1.0)], timing), timing, cycle, 10.0)
        outlook = Outlook(Verdict.LEAK, trend, eta(500.0 - t), risk, growth_seen_seconds=1500.0 + t)
        if warning.update(t, Policy(), outlook, None, cycle):
            given_t = float(t)
    assert given_t == warned_t


@pytest.mark.parametrize(("mid", "expected"), [(3601, False), (5400, False), (5401, True), (None, True)])
def test_a_warning_clears_well_beyond_the_horizon(mid, expected):
    assert should_withdraw_warning(Policy(), Verdict.LEAK, eta(mid), None) is expected


def test_an_urgent_warning_does_not_wait_long():
    assert warning_hold_seconds(eta(10)) == 1
    assert warning_hold_seconds(eta(3000)) == warning_hold_seconds(None) == 30


def test_the_early_end_of_a_forecast_counts():
    assert may_reach_limit_within(eta(15, 9), 10)
    assert not may_reach_limit_within(eta(15, 11), 10)
    assert may_reach_limit_within(eta(9), 10), "the middle where nothing else is known"
    assert not may_reach_limit_within(eta(None, None), 10)


@given(mid=st.floats(0, 1e6), share=st.floats(0, 1), step=st.floats(1, 1e4), lead=st.floats(1, 1e3))
def test_less_time_never_fits_more(mid, share, step, lead):
    fits = next_step_fits(eta(mid, mid * share), step, lead)
    assert not next_step_fits(eta(mid * 0.5, mid * 0.5 * share), step, lead) or fits


def test_the_lead_is_longer_than_the_checkpoint_and_the_looks():
    estimator = LeadTimeEstimator(Policy(confirmation_seconds=2.0), GenerationLedger(), CheckpointTracker())
    assert estimator.lead_seconds(30) > 32


@pytest.mark.parametrize(("policy", "expected"), [(Policy(), 120), (Policy(save_timeout_seconds=7), 7)])
def test_the_save_timeout(policy, expected):
    assert policy.save_timeout(30) == expected
    assert Policy().save_timeout(1) == 60


@given(headroom=st.one_of(st.none(), st.integers(-(10**12), 10**15)), rate=st.floats(-1e12, 1e15))
def test_the_pace_is_bounded(headroom, rate):
    assert PACE_FLOOR_SECONDS <= pace_seconds(headroom, rate) <= PACE_IDLE_SECONDS


def test_checkpoints_assume_a_quarter_of_a_generation_until_one_is_measured():
    saves = CheckpointTracker()
    assert saves.duration_estimate(None, None) == (30.0, "assumed")
    assert saves.duration_estimate(None, 100.0) == (25.0, "assumed")
    assert saves.duration_estimate(None, 1.0) == (5.0, "assumed")
    assert saves.duration_estimate(None, 10**6) == (600.0, "assumed")
    saves.saves_on_signal = False
    assert saves.duration_estimate(None, 100.0) == (1.0, "assumed"), "it only has to end"
    saves.record_duration(3.0)
    saves.record_duration(9.0)
    assert saves.duration_estimate(None, 100.0) == (9.0, "measured")
    assert saves.duration_estimate(12.0, 100.0) == (12.0, "configured")


def test_a_slow_save_is_measured_where_both_lines_name_the_same_file():
    for said, took in (("log: Checkpoint saved: run/ckpt_3.pt", 400.0), ("log: Checkpoint saved: run/best.pt", None)):
        saves = CheckpointTracker()
        saves.record_writing(100.0, "log", "log: Saving checkpoint to run/ckpt_3.pt ...")
        assert saves.record_saved(500.0, "log", None, said) == took
    saves = CheckpointTracker()
    saves.record_writing(100.0, "log", "log: Saving checkpoint to run/ckpt_3.pt ...")
    assert saves.record_saved(1100.0, "log", None, "log: Checkpoint saved: run/ckpt_3.pt") is None, "too long ago"


def test_a_save_that_was_under_way_before_the_watch_is_not_measured():
    saves = CheckpointTracker()
    saves.record_writing(100.0, "log", "log: Saving checkpoint to ckpt_3.pt ...", is_old=True)
    assert saves.is_writing(101.0, 10.0)
    assert saves.record_saved(105.0, "log", None, "log: Checkpoint saved: ckpt_3.pt") is None
    saves.record_writing(200.0, "log", "log: Saving checkpoint to ckpt_4.pt ...")
    assert saves.record_saved(203.0, "log", None, "log: Checkpoint saved: ckpt_4.pt") == 3.0


def test_a_habit_of_saving_needs_regular_saves():
    saves = CheckpointTracker()
    for t in (0, 60, 121):
        saves.record_saved(t)
    assert saves.seconds_until_own_save(150) == pytest.approx(31.5, abs=1)
    assert saves.seconds_until_own_save(185) == 0
    assert saves.seconds_until_own_save(210) is None, "it does not come"
    saves.record_saved(1000)
    assert saves.seconds_until_own_save(1001) is None, "no habit"


@pytest.mark.parametrize(
    ("generation", "last", "expected"), [(24.9, 25, False), (25.9, 25, False), (26.0, 25, True), (26.0, None, False)]
)
def test_a_run_outlasts_no_limit_that_comes_within_its_last_generation(generation, last, expected):
    assert run_ends_first(Forecast(60.0, 50.0, 70.0, generation, 24, 28, False), last) is expected
