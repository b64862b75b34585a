"""The two questions that an interrupt depends on: is the limit reached at all, and what does a wait cost?"""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.decision.interrupt_rule import LIKELIER, WAITS, DecisionContext, waiting_costs_more
from memwatch.core.decision.policy import ESTABLISHED_GENERATIONS, LOADING_LEADS, Policy
from memwatch.core.engine.resource_state import MonitoredResource
from memwatch.core.examination import GrowthDriver
from memwatch.core.measurements import Limit, Usage
from support.watch import GB, Script, ends_in, growing

LEAD = 10.0
CYCLE = 60.0  # seconds: of `ends_in`


def asked(eta: float, watched: float, points: int = 1000, never: float = 0.0, fits: bool | None = None):
    return asking(eta, watched, points, never, fits).p_limit_reached


def asking(
    eta: float, watched: float, points: int = 1000, never: float = 0.0, fits: bool | None = None, complete: int = 0
) -> DecisionContext:
    """A resource whose growth is forecast to meet its limit in `eta` seconds, watched for so long."""
    limit = Limit(100 * GB, "cgroup /job", 20 * GB)
    resource = MonitoredResource(Usage("host", 80 * GB, limit), Script, 0.0)
    ends = ends_in(eta, *([math.inf] if never else []))
    says = growing(eta, 0.9 * eta, ends=ends)
    assert says.forecast is not None
    drivers = () if fits is None else (GrowthDriver("buffer", 1.0, 2.0, 1.0, 0.99, "", None, None, fits=fits),)
    resource.outlook = replace(says, drivers=drivers, growth_seen_seconds=(points - 1) * CYCLE)
    ledger = SimpleNamespace(complete_generations=complete)
    context = DecisionContext(Policy(), ledger, watched, resource, limit, says.forecast, LEAD, 1.0)
    assert ends.p_never == pytest.approx(never)
    return context


def test_growth_is_believed_to_go_on_for_as_long_again_as_it_was_seen_with_the_cycle_after_it():
    loading = LOADING_LEADS * LEAD
    assert asked(900.0 - CYCLE, loading + 900.0) == pytest.approx(LIKELIER)
    assert asked(900.0, loading + 900.0) < LIKELIER < asked(900.0, loading + 1000.0)


def test_what_few_levels_show_was_seen_for_as_long_as_they_are_apart():
    assert asked(2 * CYCLE, 1e6, points=4) == pytest.approx(LIKELIER)
    assert asked(0.0, 1e6, points=2) == pytest.approx(LIKELIER)
    assert asked(0.0, 1e6, points=1) == 0.0


def test_a_steady_climb_was_seen_from_its_beginning_on_though_the_forecast_begins_anew_with_a_marker():
    context = asking(2 * CYCLE, 1e6, points=2)
    assert context.p_limit_reached < LIKELIER
    context.resource.climb.set_window_seconds(2 * CYCLE)
    times = [float(t) for t in range(600)]
    context.resource.climb.add_samples(times, [int(t * GB / 10) for t in times])
    assert context.resource.climb.seconds == pytest.approx(600, abs=2 * CYCLE / 4)
    assert context.growth_seen_seconds == context.resource.climb.seconds and context.p_limit_reached > LIKELIER


def test_what_grows_while_a_program_loads_is_not_believed():
    assert asked(1.0, LOADING_LEADS * LEAD) == 0.0


@pytest.mark.parametrize(
    ("complete", "believed"), [(ESTABLISHED_GENERATIONS - 1, False), (ESTABLISHED_GENERATIONS, True)]
)
def test_a_young_run_is_believed_from_some_generations_on_where_no_later_checkpoint_would_complete(complete, believed):
    soon, later = (asking(eta, LOADING_LEADS * LEAD, complete=complete) for eta in (0.1 * LEAD, 10 * LEAD))
    assert soon.p_limit_reached == 0.0
    assert (soon.is_believed, later.is_believed) == (believed, False)


def test_a_program_that_ran_long_before_the_watch_has_loaded():
    context = asking(1.0, LOADING_LEADS * LEAD)
    context.resource.started_t = -1000.0
    assert context.growth_seen_seconds == 1000.0 and context.p_limit_reached > LIKELIER


def test_a_forecast_that_may_be_wrong_is_believed_as_far_as_it_goes():
    assert asked(1.0, 1e9, points=10**8, never=0.5) == pytest.approx(0.5, rel=1e-3)


def test_a_buffer_that_cannot_fit_goes_on_filling():
    assert asked(900.0, 1.0, fits=False) == 1.0
    assert asked(900.0, 1.0, fits=True) == 0.0


STEP = 60.0  # seconds of a generation


def peak_at(seconds: float, chance: float, soon: float = 0.0):
    """The limit is met by what comes then, with this chance; or at once, with the other."""
    return lambda wait: soon + (chance if wait >= seconds else 0.0)


@pytest.mark.parametrize(
    ("too_late", "expected"),
    [
        pytest.param(peak_at(5.0, 0.0), False, id="nothing can be lost"),
        pytest.param(peak_at(2.0, 0.5), True, id="a coin is tossed for the run within the next look"),
        pytest.param(peak_at(30.0, 0.5), False, id="the coin is tossed later: there is time yet"),
        pytest.param(peak_at(2.0, 0.001), False, id="a small risk, and a generation to be done"),
    ],
)
def test_the_last_moment_is_when_every_wait_costs_more_than_it_gains(too_late, expected):
    waits = [share * STEP for share in WAITS]
    assert waiting_costs_more(too_late, waits, work_at_risk_seconds=3000.0) is expected


@given(
    chance=st.floats(0, 1),
    soon=st.floats(0, 1),
    at=st.floats(0, 200),
    stake=st.floats(0, 1e6),
    more=st.floats(1, 10),
)
def test_more_at_stake_never_calls_for_waiting(chance, soon, at, stake, more):
    odds, waits = peak_at(at, chance, soon), [share * STEP for share in WAITS]
    if waiting_costs_more(odds, waits, stake):
        assert waiting_costs_more(odds, waits, stake * more)
