from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.core.forecast.forecaster import Forecaster
from memwatch.core.forecast.outlook import Outlook, UseByOthers
from memwatch.core.snapshot import Gauge, Verdict
from support.feeding import ask, fed, feed, outlooks
from traces import generators
from traces.generators import GB, Row, Trace

SEEDS = (0, 1, 2)


def at(trace: Trace, t: float) -> Outlook:
    """What is said at the last row up to t."""
    rows = [r for r in trace.rows if r.t <= t]
    return ask(feed(rows), rows[-1])


def error(trace: Trace, t: float) -> float:
    rows = [r for r in trace.rows if r.t <= t]
    latest = max(rows, key=lambda r: r.t)
    forecast = ask(feed(rows), latest).forecast
    assert forecast is not None and forecast.eta_seconds is not None and trace.truth.oom_t is not None
    remaining = trace.truth.oom_t - latest.t
    return abs(forecast.eta_seconds - remaining) / remaining


def is_near(outlook: Outlook, t: float) -> bool:
    """An end is said to come within t seconds."""
    eta = None if outlook.forecast is None else outlook.forecast.eta_seconds
    return eta is not None and eta < t


# --- the plain kinds ---


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("growth", [2 * GB, 5 * GB, 9 * GB])
def test_a_linear_leak_is_known_within_ten_percent_after_four_generations(seed: int, growth: float) -> None:
    trace = generators.linear_leak(seed, growth=growth, generations=60)
    outlook = at(trace, trace.truth.begins_t[4] + 1.0)
    assert error(trace, trace.truth.begins_t[4] + 1.0) < 0.10
    assert outlook.trend is not None and outlook.trend.growth_per_generation == pytest.approx(growth, rel=0.1)
    assert outlook.verdict in {Verdict.GROWING, Verdict.LEAK}
    assert at(trace, trace.truth.begins_t[7 if growth > 4 * GB else 10]).verdict is Verdict.LEAK


@pytest.mark.parametrize("seed", SEEDS)
def test_the_generation_of_the_oom_is_named_as_the_program_counts(seed: int) -> None:
    trace = generators.linear_leak(seed, first_index=1)
    forecast = at(trace, trace.truth.begins_t[8]).forecast
    assert forecast is not None and forecast.generation is not None
    assert forecast.generation == pytest.approx(trace.truth.oom_generation, abs=1)
    assert forecast.generation_low is not None and forecast.generation_low <= forecast.generation


@pytest.mark.parametrize(
    "make",
    [
        generators.stable,
        generators.stable_near_limit,
        generators.noise,
        partial(generators.noise, relative=0.12),
        partial(generators.gc_sawtooth, growth=0),
        partial(generators.checkpoint_peaks, growth=0),
        partial(generators.stable, seconds=lambda g: 20.0 + 10.0 * g),
    ],
    ids=["stable", "near the limit", "noise", "heavy noise", "teeth", "checkpoint peaks", "longer and longer"],
)
def test_no_growth_is_hardly_ever_taken_for_some(make) -> None:  # type: ignore[no-untyped-def]
    looks = calm = near = 0
    for seed in SEEDS:
        trace = make(seed)
        told = [(row.t, o) for row, o in outlooks(trace.rows[::2]) if row.t > trace.truth.begins_t[8]]
        assert not [t for t, o in told if o.verdict is Verdict.LEAK]
        looks += len(told)
        near += sum(is_near(o, t) for t, o in told)
        calm += sum(o.verdict in {Verdict.STABLE, Verdict.PLATEAU} for _, o in told)
    assert calm >= 0.85 * looks and near <= 0.02 * looks


@pytest.mark.parametrize("make", [generators.straight_fill, generators.exponential_fill])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_fill_that_levels_off_ends_as_a_plateau_without_an_end_in_sight(make, seed: int) -> None:  # type: ignore[no-untyped-def]
    trace = make(seed)
    end = at(trace, trace.rows[-1].t)
    assert end.verdict in {Verdict.PLATEAU, Verdict.STABLE}
    assert not is_near(end, 20.0 * trace.rows[-1].t)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fill_that_slows_down_is_never_called_a_leak(seed: int) -> None:
    trace = generators.exponential_fill(seed)
    assert not [row.t for row, o in outlooks(trace.rows[::2]) if o.verdict is Verdict.LEAK]


def grown(seconds: float, full_t: float) -> Forecaster:
    """A buffer that fills by 1 GB in 30 s, until it is full; a generation lasts as long."""
    forecaster = Forecaster()
    for second in range(int(seconds)):
        if second % 30 == 0:
            forecaster.begin_generation(float(second), second / 30.0)
        level = 20 * GB + min(second, full_t) / 30.0 * GB
        forecaster.add_samples((float(second),), (int(level),))
    return forecaster


@pytest.mark.parametrize(
    ("flat_seconds", "is_over"),
    [
        pytest.param(0.0, False, id="it grows"),
        pytest.param(2.0, False, id="a short pause"),
        pytest.param(24.0, True, id="most of a generation"),
    ],
)
def test_growth_close_to_the_limit_is_over_when_memory_stands_still(flat_seconds: float, is_over: bool) -> None:
    full_t = 390.0
    forecaster = grown(full_t + flat_seconds, full_t)
    outlook = forecaster.outlook(full_t + flat_seconds, int(34 * GB), None, None)
    assert outlook.time_to_limit is not None and outlook.forecast is not None
    assert (outlook.time_to_limit.p_never > 0.5) is is_over
    assert (outlook.forecast.eta_seconds is None) is is_over


@pytest.mark.parametrize("make", [generators.late_leak, generators.plateau_then_leak])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_leak_that_begins_late_is_seen_after_five_generations(make, seed: int) -> None:  # type: ignore[no-untyped-def]
    trace = make(seed)
    begin = 12 if make is generators.late_leak else 16
    before = at(trace, trace.truth.begins_t[begin])
    assert before.verdict in {Verdict.STABLE, Verdict.PLATEAU}
    assert at(trace, trace.truth.begins_t[begin + 6]).verdict is Verdict.LEAK
    assert error(trace, trace.truth.begins_t[begin + 6]) < 0.15


def risen(levels: Sequence[float], seconds: float, since_t: float = 0.0) -> float:
    """GB, of a sample a second."""
    forecaster = Forecaster()
    forecaster.add_samples([float(t) for t in range(len(levels))], [int(level * GB) for level in levels])
    return forecaster.greatest_rise_bytes(seconds, since_t) / GB


def test_the_greatest_rise_is_that_within_the_time_and_not_that_of_the_load():
    assert risen([1, 2, 1, 3, 4, 2], seconds=1.0) == 2.0
    assert risen([1, 2, 1, 3, 4, 2], seconds=2.0) == 3.0
    assert risen([1, 2, 1, 3, 4, 2], seconds=100.0) == 3.0
    assert risen([4, 3, 2, 1], seconds=100.0) == 0.0
    assert risen([0, 50, 51, 52], seconds=1.0, since_t=1.0) == 1.0


@pytest.mark.parametrize("seed", SEEDS)
def test_teeth_of_the_garbage_collector_are_no_trend_and_no_obstacle(seed: int) -> None:
    trace = generators.gc_sawtooth(seed)
    assert trace.truth.oom_t is not None
    assert error(trace, 0.6 * trace.truth.oom_t) < 0.30
    assert at(trace, 0.8 * trace.truth.oom_t).verdict is Verdict.LEAK


def with_peaks(generations: int, every: int, growth: float) -> Forecaster:
    """Of 30 s and 50 GB; the last 4 s of some take 10 GB more, and `growth` more from one generation to the next."""
    forecaster = Forecaster()
    for gen in range(generations):
        forecaster.begin_generation(30.0 * gen, float(gen))
        for i in range(30):
            high = 10 * GB + growth * gen if gen % every == every - 1 and i >= 26 else 0.0
            wobble = 0.2 * GB * math.sin(7.0 * gen + i)
            forecaster.add_samples([30.0 * gen + i], [int(50 * GB + high + wobble)])
    forecaster.begin_generation(30.0 * generations, float(generations))
    return forecaster


@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_peaks_that_do_not_grow_are_stable(every: int) -> None:
    outlook = with_peaks(30, every, 0.0).outlook(900.0, int(65 * GB), None, None)
    assert (outlook.verdict, outlook.forecast and outlook.forecast.eta_seconds) == (Verdict.STABLE, None)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_checkpoint_peak_meets_the_limit_before_the_level_does(seed: int) -> None:
    trace = generators.checkpoint_peaks(seed)
    assert trace.truth.oom_t is not None
    when = trace.truth.begins_t[18]
    assert error(trace, when) < 0.12
    forecast = at(trace, when).forecast
    assert forecast is not None and forecast.generation is not None
    assert forecast.generation % 4 == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_restart_the_growth_is_known_from_the_first_generation_on(seed: int) -> None:
    trace = generators.restart(seed)
    assert trace.truth.restart_t is not None and trace.truth.oom_t is not None
    begins = [t for t in trace.truth.begins_t if t > trace.truth.restart_t]
    assert error(trace, begins[1] + 30.0) < 0.15


@pytest.mark.parametrize(("before", "after"), [(2.5, 1.5), (1.5, 2.5), (2.5, 2.5)])
def test_growth_a_generation_stays_what_it_is_when_a_restart_changes_how_generations_are_bundled(before, after) -> None:
    forecaster, t = Forecaster(), 0.0
    for index in range(24):
        length = before if index < 12 else after
        if index == 12:
            forecaster.restart(t)
        forecaster.begin_generation(t, float(index))
        for part in range(10):
            done = index % 12 + part / 10
            forecaster.add_samples((t + part / 10 * length,), (int((1 + done) * GB),))
        t += length
        outlook = forecaster.outlook(t, 100 * GB, None, None)
        if index > 12 and outlook.trend is not None:
            assert outlook.trend.growth_per_generation == pytest.approx(GB, rel=0.15), index


@pytest.mark.parametrize("seed", SEEDS)
def test_without_markers_a_leak_is_known_by_time(seed: int) -> None:
    trace = generators.linear_leak(seed, markers=False)
    assert trace.truth.oom_t is not None
    outlook = at(trace, 0.6 * trace.truth.oom_t)
    assert outlook.verdict is Verdict.LEAK
    assert outlook.trend is not None and outlook.trend.growth_per_generation is None
    assert error(trace, 0.6 * trace.truth.oom_t) < 0.10


def test_markers_that_stop_do_not_stop_the_forecast() -> None:
    trace = generators.linear_leak(0, growth=1.5 * GB, generations=60)
    lost = trace.truth.begins_t[5]
    rows = [r if r.t < lost else replace(r, generation=4) for r in trace.rows]
    half = Trace(tuple(rows), trace.truth)
    assert error(half, 0.6 * (trace.truth.oom_t or 0.0)) < 0.15


# --- the limit and the end of the run ---


def test_a_leak_that_ends_before_the_limit_finishes() -> None:
    trace = generators.linear_leak(0, growth=1 * GB, generations=20, total=20)
    outlook = at(trace, trace.truth.begins_t[10])
    assert outlook.forecast is not None and outlook.forecast.finishes is True
    tight = generators.linear_leak(0, growth=5 * GB, generations=40, total=40)
    outlook = at(tight, tight.truth.begins_t[10])
    assert outlook.forecast is not None and outlook.forecast.finishes is False


def test_without_a_limit_there_is_a_trend_but_no_forecast() -> None:
    trace = generators.linear_leak(0, limit=None)
    outlook = at(trace, trace.truth.begins_t[10])
    assert outlook.forecast is None
    assert outlook.trend is not None and outlook.trend.growth_per_second == pytest.approx(5 * GB / 60, rel=0.1)


def test_a_raised_limit_is_further_away_at_once() -> None:
    rows = [r for r in generators.linear_leak(0).rows if r.t < 500]
    forecaster, used = feed(rows), rows[-1].used
    etas = []
    for limit in (60 * GB, 100 * GB, 200 * GB):
        forecast = forecaster.outlook(rows[-1].t, limit, limit - used, None).forecast
        assert forecast is not None and forecast.eta_seconds is not None
        etas.append(forecast.eta_seconds)
    assert etas == sorted(etas) and etas[0] < etas[1] < etas[2]


def test_headroom_of_someone_else_binds_before_the_own_limit() -> None:
    rows = [r for r in generators.linear_leak(0).rows if r.t < 500]
    forecaster = feed(rows)
    own = forecaster.outlook(rows[-1].t, 100 * GB, 100 * GB - rows[-1].used, None).forecast
    host = forecaster.outlook(rows[-1].t, 100 * GB, 10 * GB, None).forecast
    assert own is not None and host is not None
    assert (host.eta_seconds or math.inf) < (own.eta_seconds or math.inf)


def test_what_others_do_with_the_limit_makes_its_odds_less_sure() -> None:
    rows = [r for r in generators.linear_leak(0).rows if r.t < 500]
    forecaster = feed(rows)
    calm, unrest = (
        forecaster.outlook(rows[-1].t, 100 * GB, 10 * GB, None, others=UseByOthers(of)) for of in (0.0, 9.0 * GB)
    )
    assert calm.forecast == unrest.forecast and calm.time_to_limit is not None and unrest.time_to_limit is not None
    assert calm.time_to_limit.p_exceed(1.0) < 0.01 < unrest.time_to_limit.p_exceed(1.0)


def test_at_the_limit_nothing_is_left() -> None:
    forecaster = feed(generators.linear_leak(0).rows)
    forecast = forecaster.outlook(10_000.0, 1 * GB, -5 * GB, None).forecast
    assert forecast is not None and forecast.eta_seconds == 0.0


def test_the_load_at_the_start_is_no_forecast() -> None:
    for row, outlook in outlooks(generators.linear_leak(0).rows[:9]):
        assert row.generation is None
        assert outlook.verdict is Verdict.WARMING_UP
        assert outlook.forecast is None or outlook.forecast.eta_seconds is None


def grown_for(seconds: int, used: Callable[[float], float]) -> Outlook:
    """Of `used` GB, sampled each 10 s, in generations of an hour; the limit is at 40 GB."""
    forecaster = Forecaster()
    for t in range(0, seconds, 10):
        if t % 3600 == 0:
            forecaster.begin_generation(float(t), t // 3600)
        forecaster.add_samples([float(t)], [int(used(t / 3600) * GB)])
    return forecaster.outlook(float(seconds), 40 * GB, None, None)


@pytest.mark.parametrize("hours", [0.5, 1.5, 2.5])
def test_a_leak_on_one_line_is_forecast_before_three_generations_are_over(hours: float) -> None:
    outlook = grown_for(int(hours * 3600), lambda hour: 10.0 + 10.0 * hour)
    assert outlook.verdict in (Verdict.GROWING, Verdict.LEAK)
    assert outlook.forecast is not None and outlook.time_to_limit is not None
    assert outlook.forecast.eta_seconds == pytest.approx((3.0 - hours) * 3600, rel=0.05)
    assert outlook.time_to_limit.level_seconds < outlook.time_to_limit.cycle_seconds
    assert outlook.growth_seen_seconds == pytest.approx(hours * 3600, rel=0.1)


def test_a_leak_on_one_line_after_a_start_that_was_none_is_forecast_when_a_generation_has_it_whole() -> None:
    def used(hour: float) -> float:
        return 14.0 + 10.0 * hour - 4.0 * math.exp(-30.0 * hour)

    outlook = grown_for(int(1.6 * 3600), used)
    assert outlook.verdict in (Verdict.GROWING, Verdict.LEAK)
    assert outlook.forecast is not None and outlook.forecast.eta_seconds == pytest.approx(3600.0, rel=0.05)


@pytest.mark.parametrize("hours", [0.9, 1.5, 1.9])
def test_growth_in_one_part_of_the_first_generations_is_none_to_speak_of_yet(hours: float) -> None:
    outlook = grown_for(int(hours * 3600), lambda hour: 10.0 + 5.0 * (hour // 1.0 + min(hour % 1.0, 0.5)))
    assert outlook.verdict is Verdict.WARMING_UP


# --- gauges ---


def filled(trace: Trace, until: float, pace: float, capacity: float, unit_bytes: float | None = None) -> Outlook:
    """What is said at a time when a gauge was read at every row: it has risen by `pace` a second since the first."""
    forecaster, said = Forecaster(), Outlook(Verdict.WARMING_UP, None, None)
    for row in fed((r for r in trace.rows if r.t <= until), forecaster):
        gauge = Gauge("buffer", min(pace * row.t, capacity), capacity, row.t, unit_bytes=unit_bytes)
        said = forecaster.outlook(row.t, row.limit, None, None, (gauge,))
    return said


def test_growth_that_a_gauge_explains_is_no_leak_and_ends_with_it() -> None:
    trace = generators.linear_leak(0)
    until = trace.truth.begins_t[9]
    assert at(trace, until).verdict is Verdict.LEAK
    fits = filled(trace, until, 10.0, 10.0 * 1.3 * until)  # full when 30 % more time is over: below the limit
    assert fits.verdict is Verdict.GROWING
    assert fits.forecast is not None and fits.forecast.eta_seconds is None


@pytest.mark.parametrize(("share", "verdict"), [(0.9, Verdict.GROWING), (0.001, Verdict.LEAK)])
def test_what_holds_next_to_nothing_of_the_growth_does_not_explain_it(share: float, verdict: Verdict) -> None:
    trace = generators.linear_leak(0)
    until = trace.truth.begins_t[9]
    plain = at(trace, until).trend
    assert plain is not None
    unit_bytes = share * plain.growth_per_second / 10.0
    assert filled(trace, until, 10.0, 10.0 * 1.3 * until, unit_bytes).verdict is verdict


def test_a_buffer_that_does_not_fit_still_meets_the_limit() -> None:
    trace = generators.linear_leak(0)
    until = trace.truth.begins_t[9]
    plain, explained = at(trace, until).forecast, filled(trace, until, 10.0, 10.0 * 20.0 * until).forecast
    assert plain is not None and plain.eta_seconds is not None
    assert explained is not None and explained.eta_seconds == pytest.approx(plain.eta_seconds, rel=0.1)


def test_since_when_it_grows_is_a_generation_whatever_explains_the_growth() -> None:
    forecaster, gauge = Forecaster(), Gauge("buffer", 0.0, 100_000.0, 0.0)
    for index in range(1, 13):
        forecaster.begin_generation(100.0 * (index - 1), index)
        for i in range(100):
            t = 100.0 * (index - 1) + i
            forecaster.add_samples([t], [10**9 + int(7e7 * t / 100)])
            gauge = Gauge("buffer", 232.0 * t / 100, 100_000.0, t)
            said = forecaster.outlook(t, 10**11, None, 25.0, (gauge,))
    assert said.verdict is Verdict.GROWING, "the gauge explains it"
    assert said.trend is not None and said.trend.since_generation is not None
    assert 1 <= said.trend.since_generation <= 4


def said_of_a_buffer(capacity: float, leak: float = 0.0) -> dict[int, Outlook]:
    """By the second: ten items of 50 kB a second up to a capacity, and a leak of so many bytes a second beside them."""
    forecaster, said = Forecaster(), {}
    for t in range(2400):
        if t % 100 == 0:
            forecaster.begin_generation(float(t), t // 100 + 1)
        held = min(10.0 * t, capacity)
        forecaster.add_samples([float(t)], [10**9 + 50_000 * held + leak * t])
        said[t] = forecaster.outlook(float(t), 3 * 10**9, None, 24.0, (Gauge("buffer", held, capacity, float(t)),))
    return said


def test_a_buffer_that_is_full_has_levelled_off_at_once() -> None:
    """Nobody waits for three flat generations: its growth is over, as the log says."""
    said = said_of_a_buffer(20_000.0)
    assert said[1950].verdict is Verdict.GROWING
    for t in range(2020, 2400, 20):
        trend = said[t].trend
        assert said[t].verdict is Verdict.PLATEAU, t
        assert trend is not None and trend.growth_per_second == pytest.approx(0.0, abs=1000.0)


def test_a_leak_beside_a_buffer_has_not_levelled_off_when_that_is_full() -> None:
    """Two generations after it are enough to see that memory goes on growing."""
    said = said_of_a_buffer(12_000.0, leak=400_000.0)
    assert said[1250].verdict is Verdict.PLATEAU
    for t in range(1450, 2400, 20):
        trend = said[t].trend
        assert said[t].verdict in (Verdict.GROWING, Verdict.LEAK), t
        assert trend is not None and trend.growth_per_second > 0.0
    assert said[2390].trend.growth_per_second == pytest.approx(400_000.0, rel=0.1)


def test_a_full_gauge_and_one_that_stands_still_excuse_no_growth() -> None:
    trace = generators.linear_leak(0)
    until = trace.truth.begins_t[9]
    for pace in (0.0, 1000.0):
        assert filled(trace, until, pace, 50_000.0).verdict is Verdict.LEAK


def test_nothing_told_is_warming_up() -> None:
    assert Forecaster().outlook(0.0, 1, 1, None) == Outlook(Verdict.WARMING_UP, None, None)


# --- hostile feeding ---


def test_gaps_equal_and_backward_times_do_not_matter() -> None:
    clean = generators.linear_leak(0)
    rows: list[Row] = []
    for i, row in enumerate(clean.rows):
        if 100 < i < 130:
            continue  # a gap of a minute
        rows.append(row)
        if i % 7 == 0:
            rows.append(row)
            rows.append(replace(row, t=row.t - 500.0, used=1))
    cut = next(i for i, row in enumerate(rows) if row.t > clean.truth.begins_t[8])
    assert error(Trace(tuple(rows[:cut]), clean.truth), rows[cut].t) < 0.10


@given(st.lists(st.tuples(st.sampled_from((0.01, 0.4, 1.0, 2.1, 9.0, 70.0)), st.floats(-3.0, 20.0), st.integers(0, 6)),
                min_size=30, max_size=90), st.floats(0.0, 3e7))  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_markers_of_any_length_and_step_break_nothing(markers: list[tuple[float, float, int]], growth: float) -> None:
    """A bar shows any part of the index; one of a few generations has a peak; a counter goes back."""
    forecaster, t, index = Forecaster(), 0.0, 0.0
    for seconds, step, samples in markers:
        for i in range(samples):
            peak = 4e8 if index % 4 < 1 and i == 1 else 0.0
            forecaster.add_samples([t + seconds * (i + 0.5) / samples], [int(1e9 + growth * index + peak)])
        t, index = t + seconds, index + step
        forecaster.begin_generation(t, index)
        said = forecaster.outlook(t, 3 * 10**9, None, 500.0)
        if said.forecast is not None and said.forecast.eta_seconds is not None:
            assert math.isfinite(said.forecast.eta_seconds) and said.forecast.eta_seconds >= 0.0
        if said.trend is not None and said.trend.growth_per_generation is not None:
            assert math.isfinite(said.trend.growth_per_generation)


def test_generations_shorter_than_the_interval_are_bounded_and_harmless() -> None:
    forecaster = Forecaster()
    for i in range(20_000):
        forecaster.begin_generation(i * 0.5, float(i))
        if i % 3 == 0:
            forecaster.add_samples((i * 0.5,), (10 * GB + i * 10**6,))
    outlook = forecaster.outlook(10_000.0, 100 * GB, None, None)
    assert outlook.forecast is not None and outlook.forecast.eta_seconds is not None
    assert outlook.forecast.eta_seconds == pytest.approx(35_000, rel=0.1)


def test_a_day_costs_little_and_an_outlook_under_a_few_milliseconds() -> None:
    forecaster = Forecaster()
    started = time.process_time()
    for i in range(20_000):
        if i % 20 == 0:
            forecaster.begin_generation(float(i), float(i // 20))
        forecaster.add_samples((float(i),), (10 * GB + i * 10**5 + i % 20 * 10**7,))
    told = (time.process_time() - started) / 20_000
    started = time.process_time()
    for i in range(200):
        forecaster.add_samples((20_000.0 + i,), (12 * GB + i,))
        forecaster.outlook(20_000.0 + i, 100 * GB, None, None)
    asked = (time.process_time() - started) / 200
    assert told < 100e-6  # measured: 5 us
    assert asked < 5e-3  # measured: 0.5 ms


# --- the fastest rise ---


def test_a_run_that_stands_still_is_fitted_seldom_until_it_does_something_new() -> None:
    fitted: list[float] = []

    class Counted(Forecaster):
        def _fitted(self, rhythm):  # type: ignore[no-untyped-def]
            fitted.append(self._t)
            return super()._fitted(rhythm)

    forecaster = Counted()

    def watch(since: int, until: int, growth: float) -> Outlook:
        for t in range(since, until):
            forecaster.add_samples([float(t)], [int(10 * GB + t % 7 * 1e6 + growth * (t - since))])
            outlook = forecaster.outlook(float(t), 100 * GB, None, None)
        return outlook

    assert watch(0, 7200, 0.0).verdict is Verdict.STABLE
    assert len([t for t in fitted if t >= 3600]) <= 8, "30 for each e-fold of the time, if it moved"
    fitted.clear()
    outlook = watch(7200, 9000, 1e6)
    assert fitted[0] < 7200 * 1.03, "it has left what it did before"
    assert outlook.forecast is not None and outlook.forecast.eta_seconds is not None


def test_the_fastest_rise_is_of_short_windows_and_fades() -> None:
    forecaster = Forecaster()
    assert forecaster.peak_rate() == 0.0
    for t in range(20):
        forecaster.add_samples((float(t),), (GB,))
    assert forecaster.peak_rate() == 0.0
    forecaster.add_samples((20.0,), (5 * GB,))
    assert forecaster.peak_rate() == pytest.approx(4 * GB, rel=0.2)
    for t in range(21, 2000):
        forecaster.add_samples((float(t),), (5 * GB,))
    assert forecaster.peak_rate() < 0.01 * GB


def test_a_jittered_clock_does_not_invent_a_rate() -> None:
    forecaster = Forecaster()
    for t in range(20):
        forecaster.add_samples((float(t),), (GB,))
    forecaster.add_samples((19.000001,), (GB + 10**6,))
    assert forecaster.peak_rate() <= 3 * 10**6


# --- laws ---


@st.composite
def rough_rows(draw: st.DrawFn) -> list[tuple[float, int, bool]]:
    """(seconds since the last, bytes, a generation begins)."""
    return draw(
        st.lists(
            st.tuples(
                st.one_of(st.just(0.0), st.floats(-5.0, 100.0), st.just(1e7)),
                st.integers(0, 2**50),
                st.booleans(),
            ),
            max_size=120,
        )
    )


def told(rows: list[tuple[float, int, bool]], limit: int) -> list[Outlook]:
    forecaster, t, index, said = Forecaster(), 0.0, 0, []
    for step, used, begins in rows:
        t += step
        if begins:
            index += 1
            forecaster.begin_generation(t, float(index))
        forecaster.add_samples((t,), (used,))
        said.append(forecaster.outlook(t, limit, limit - used, 50.0))
    return said


@settings(max_examples=60, deadline=None)
@given(rough_rows(), st.integers(1, 2**51))
def test_whatever_is_fed_the_figures_are_finite_and_ordered(rows: list[tuple[float, int, bool]], limit: int) -> None:
    for outlook in told(rows, limit):
        if outlook.trend is not None:
            assert math.isfinite(outlook.trend.growth_per_second)
            assert 0.0 <= outlook.trend.confidence <= 1.0
        if (forecast := outlook.forecast) is None:
            continue
        order = [forecast.eta_low_seconds, forecast.eta_seconds, forecast.eta_high_seconds]
        known = [x for x in order if x is not None]
        assert all(math.isfinite(x) and x >= 0.0 for x in known) and known == sorted(known)
        assert order[: len(known)] == known  # an unknown bound is never below a known one


@settings(max_examples=25, deadline=None)
@given(rough_rows(), st.integers(1, 2**51), st.floats(0.0, 1e4), st.floats(0.0, 1e4))
def test_the_odds_of_any_outlook_are_odds(
    rows: list[tuple[float, int, bool]], limit: int, seconds: float, more: float
) -> None:
    for ends in (outlook.time_to_limit for outlook in told(rows, limit)):
        if ends is not None:
            assert 0.0 <= ends.p_exceed(seconds) <= ends.p_exceed(seconds + more) + 1e-4 <= 1.001
            assert 0.0 <= ends.expected_time_to_limit(seconds, 1e3) <= 1e3 * (1.0 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(rough_rows(), st.integers(1, 2**51))
def test_a_replay_says_the_same_again(rows: list[tuple[float, int, bool]], limit: int) -> None:
    assert told(rows, limit) == told(rows, limit)


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(generators.ALL), st.integers(0, 50), st.floats(0.3, 0.9), st.sampled_from([1, 50, 90, 200, 10_000])
)
def test_another_look_or_limit_in_between_changes_nothing_later(make, seed: int, share: float, gb: int) -> None:  # type: ignore[no-untyped-def]
    """What is asked on the way is no evidence: only what is fed is."""
    rows = make(seed).rows
    cut = int(share * len(rows))
    plain, asked = feed(rows[:cut]), feed(rows[:cut])
    asked.outlook(rows[cut - 1].t, round(gb * GB), None, 3.0)
    first, again = ask(plain, rows[cut - 1]), ask(asked, rows[cut - 1])
    assert (again.verdict, again.trend, again.forecast) == (first.verdict, first.trend, first.forecast)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(generators.ALL), st.integers(0, 20), st.sampled_from([8, 1024, 2**20]), st.floats(0.3, 1.0))
def test_bytes_have_no_scale(make, seed: int, factor: int, share: float) -> None:  # type: ignore[no-untyped-def]
    rows = make(seed).rows
    rows = rows[: max(1, int(share * len(rows)))]
    scaled = [replace(r, used=r.used * factor, limit=(r.limit or 0) * factor) for r in rows]
    one, two = ask(feed(rows), rows[-1]), ask(feed(scaled), scaled[-1])
    assert one.verdict is two.verdict
    assert one.forecast is not None and two.forecast is not None
    if one.forecast.eta_seconds is None:
        assert two.forecast.eta_seconds is None
    else:
        assert two.forecast.eta_seconds == pytest.approx(one.forecast.eta_seconds, rel=1e-3, abs=1e-3)


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.2, 8.0),
    st.floats(1.02, 4.0),
    st.integers(5, 12),
    st.booleans(),
)
def test_more_growth_never_lengthens_the_eta(slow: float, more: float, generations: int, markers: bool) -> None:
    etas = []
    for growth in (slow, slow * more):
        trace = generators.linear_leak(0, base=5 * GB, growth=growth * GB, limit=1000 * GB, noise=0.0, markers=markers)
        forecast = at(trace, trace.truth.begins_t[generations]).forecast
        assert forecast is not None and forecast.eta_seconds is not None
        etas.append(forecast.eta_seconds)
    assert etas[1] <= etas[0] * 1.001
