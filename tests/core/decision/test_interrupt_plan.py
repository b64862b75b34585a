"""The told moment of the interrupt: of the rule in `interrupt_rule`, if all goes on as forecast."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from core.decision.test_interrupt_rule import CYCLE, LEAD, asking
from memwatch.core.checkpoint_timing import CheckpointTracker
from memwatch.core.decision.interrupt_plan import plan_interrupt
from memwatch.core.snapshot import Forecast, Verdict

LONG = 1e6  # seconds watched: growth is believed


def planned(eta: float, *, low: float = 0.0, into: float | None = 10.0, saves: CheckpointTracker | None = None, **more):
    """In generation 5, `into` seconds after its beginning."""
    pace = more.pop("pace", 1.0)  # of the forecast's generations, beside that of the latest
    context, index_step = asking(eta, more.pop("watched", LONG), complete=5), more.pop("index_step", 1.0)
    ledger = SimpleNamespace(
        complete_generations=5,
        last_generation=more.pop("last", None),
        index=5.0,
        generation_seconds=lambda t: None if into is None else CYCLE,
        seconds_in_generation=lambda t: into,
        index_step=index_step,
    )
    forecast = Forecast(eta, low or eta, None, 5.0 + pace * index_step * ((into or 0.0) + eta) // CYCLE)
    return plan_interrupt(replace(context, ledger=ledger, forecast=forecast), saves or CheckpointTracker())


def saved_every(seconds: float, t: float) -> CheckpointTracker:
    """Own saves, the latest of them at `t`; an interrupt would save nothing."""
    tracker = CheckpointTracker()
    for k in range(5, -1, -1):
        tracker.record_saved(t - k * seconds, "log")
    tracker.saves_on_signal = False
    return tracker


def test_it_comes_at_the_beginning_of_the_generation_that_no_longer_fits() -> None:
    found = planned(50.0 + 3 * CYCLE + 15.0)  # the limit comes 15 s into generation 9
    assert found.seconds == pytest.approx(50.0 + 3 * CYCLE)
    assert found.generation == 9.0


def test_it_comes_a_checkpoint_before_the_limit_where_most_of_the_generation_fits() -> None:
    found = planned(50.0 + 3 * CYCLE + 50.0)
    assert found.seconds == pytest.approx(50.0 + 3 * CYCLE + 50.0 - LEAD)
    assert found.generation == 9.0


def test_where_the_log_tells_each_twentieth_iteration_it_is_told_in_iterations() -> None:
    found = planned(50.0 + 3 * CYCLE + 15.0, index_step=20.0)
    assert found.seconds == pytest.approx(50.0 + 3 * CYCLE)
    assert found.generation == 5.0 + 20.0 * (10.0 + 50.0 + 3 * CYCLE) / CYCLE


def test_the_early_end_of_the_forecast_makes_it_earlier() -> None:
    sure, unsure = planned(400.0), planned(400.0, low=200.0)
    assert sure.seconds is not None and unsure.seconds is not None
    assert unsure.seconds < sure.seconds


def test_it_comes_after_the_last_own_save_where_nothing_else_saves() -> None:
    found = planned(400.0, saves=saved_every(100.0, LONG - 20.0))  # due in 80, 180, 280, 380 s
    assert found.seconds == pytest.approx(380.0)


def test_a_young_run_is_not_interrupted_before_its_growth_is_believed() -> None:
    young, old = planned(300.0, watched=11 * LEAD), planned(300.0)
    assert young.seconds is not None and old.seconds is not None
    assert old.seconds <= young.seconds <= 300.0


def test_where_the_run_probably_ends_first_none_is_told() -> None:
    found = planned(400.0, last=8.0)
    assert (found.seconds, found.reason) == (None, "the run probably ends before the limit is reached")
    assert planned(400.0, last=40.0).seconds is not None


@pytest.mark.parametrize(
    ("verdict", "forecast", "reason"),
    [
        (Verdict.STABLE, Forecast(None, None, None), "memory does not grow"),
        (Verdict.WARMING_UP, Forecast(None, None, None), "too little was seen yet"),
        (Verdict.GROWING, Forecast(None, None, None), "the limit is not in sight"),
        (Verdict.LEAK, Forecast(900.0, 800.0, None, finishes=True), "the run ends before the limit is reached"),
    ],
)
def test_why_there_will_be_none(verdict, forecast, reason) -> None:
    context = asking(100.0, LONG)
    context.resource.outlook = replace(context.resource.outlook, verdict=verdict, forecast=forecast)
    ledger = SimpleNamespace(last_generation=None)
    found = plan_interrupt(replace(context, ledger=ledger, forecast=forecast), CheckpointTracker())
    assert (found.seconds, found.reason) == (None, reason)


def test_without_a_forecast_nothing_is_planned() -> None:
    assert plan_interrupt(None, CheckpointTracker()).seconds is None


def test_without_the_length_of_a_generation_it_is_counted_along_the_way_to_the_limit() -> None:
    found = planned(600.0, into=None)  # in generation 5, the limit comes in 15
    assert found.seconds == pytest.approx(600.0 - LEAD)
    assert found.generation == 14.0


def test_where_the_forecast_has_another_pace_than_the_latest_generations_it_comes_in_proportion() -> None:
    found = planned(100 * CYCLE, pace=3.0)  # in generation 305
    assert found.seconds is not None
    assert found.generation == pytest.approx(5.0 + 300.0 * found.seconds / (100 * CYCLE), abs=1.0)
