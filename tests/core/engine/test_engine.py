"""The engine: its decisions, the course of an episode, its notices, and that it is deterministic."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.core.decision.emergency_interrupt import ESTABLISHED_GENERATIONS
from memwatch.core.decision.policy import (
    DELIVERY_SECONDS,
    MARGIN_SHARE,
    PACE_FLOOR_SECONDS,
    PACE_IDLE_SECONDS,
    PACE_LOOKS,
    WORTH_SHARE,
    Policy,
)
from memwatch.core.engine.engine import Engine
from memwatch.core.events import (
    Attached,
    Cause,
    CheckpointSeen,
    Escalate,
    Exited,
    GaugeSeen,
    GaveUp,
    GenerationSeen,
    HookRan,
    Interrupt,
    NeighboursSeen,
    Notice,
    OutOfMemorySeen,
    PhaseSeen,
    Restarting,
    Sampled,
    SignalHandlingSeen,
    Signalled,
    Signalling,
    SourceChanged,
    TotalSeen,
)
from memwatch.core.examination import GrowthDriver
from memwatch.core.forecast.forecaster import Forecaster
from memwatch.core.forecast.generation_profile import GenerationProfile
from memwatch.core.forecast.sample_summaries import SLOTS
from memwatch.core.forecast.time_to_limit import ShortHorizonModel
from memwatch.core.measurements import (
    GpuMemory,
    Limit,
    Neighbour,
    Neighbours,
    Sample,
    SignalHandling,
    Target,
    TreeMemory,
    UnavailableSource,
    Usage,
)
from memwatch.core.restart_policy import AttemptProgress
from memwatch.core.snapshot import Verdict, WatchState
from memwatch.history.trace_files import replay_notices
from support.watch import CALM, GB, TARGET, Watch, ends_in, growing, sampled

CHECKPOINT = Policy(checkpoint_seconds=10.0)


# --- warning ---------------------------------------------------------------------------------------------------------


def test_it_warns_once_and_withdraws_once():
    watch = Watch()
    watch.generations(3)
    watch.script.says = growing(1800)
    watch.look(60)
    assert len(watch.events("warn")) == 1
    assert watch.engine.snapshot().state is WatchState.WARNED
    watch.script.says = growing(4000)  # beyond the horizon, but not by enough
    watch.look(60)
    assert watch.events("cleared") == []
    watch.script.says = CALM
    watch.look(60)
    assert len(watch.events("cleared")) == 1
    assert watch.engine.snapshot().state is WatchState.WATCHING


def test_a_warning_that_comes_back_is_withdrawn_later_each_time():
    """Memory that grows in steps looks calm between two of them."""
    watch = Watch()
    watch.generations(3)
    for _ in range(12):
        for outlook in (growing(1800), CALM):
            watch.script.says = outlook
            watch.look(60)
    assert (len(watch.events("warn")), len(watch.events("cleared"))) == (2, 1)
    watch.look(240)
    assert len(watch.events("cleared")) == 2, "it is calm for good"
    assert [one.fields["threshold"]["held_s"] for one in watch.events("cleared")] == [30.0, 60.0]


def test_the_state_tells_of_which_resource_is_warned_and_how_far_ahead():
    watch = Watch()
    assert watch.engine.snapshot().warn_horizon_seconds == 3600, "without generations"
    watch.generations(3, seconds=1500)
    watch.script.says = growing(1800)
    watch.look(60)
    watch.script.says = CALM
    watch.feed(sampled(watch.t, 5 * GB, resource="gpu0"))
    known = watch.engine.snapshot()
    assert {view.usage.resource: view.warned for view in known.resources} == {"gpu0": False}
    watch.look(1)
    known = watch.engine.snapshot()
    assert {view.usage.resource: view.warned for view in known.resources} == {"host": True}
    assert known.warn_horizon_seconds == 4500, "three generations"


def test_others_in_the_cgroup_are_reported_once_and_their_growth_is_told():
    watch = Watch()
    watch.script.says = growing(20_000.0)
    for number in range(4):
        watch.look(2)
        used = 10 * GB + 2_000_000 * number
        largest = (Neighbour(20, "ray::Worker", used),)
        watch.feed(NeighboursSeen(watch.t, Neighbours("/job", used, 1, 0, 0, largest)))
    (notice,) = [one for one in watch.said if isinstance(one, Notice) and one.event == "neighbours"]
    assert notice.text == "of cgroup /job 10.0 GB are not the trainer's job's: ray::Worker (pid 20) 10.0 GB"
    shown = watch.engine.snapshot()
    assert shown.neighbours is not None and shown.neighbours.others_bytes == used
    assert shown.resources[0].neighbour_growth.others_per_second == pytest.approx(1e6)
    assert shown.sentence.endswith("of it 100.0 MB by others: ray::Worker (pid 20)")
    watch.feed(Attached(watch.t, replace(TARGET, pid=101), "python main.py"))
    assert watch.engine.snapshot().neighbours is None, "those were beside the process before"


def test_what_a_program_is_made_to_do_is_no_leak():
    """As a model that gains trees; a cause that is a leak, found later, makes it one."""
    watch = Watch()
    watch.script.says = replace(growing(20_000.0), verdict=Verdict.LEAK)
    for is_no_leak, verdict in ((False, Verdict.LEAK), (True, Verdict.GROWING), (False, Verdict.LEAK)):
        watch.engine._monitor.know_growth(is_no_leak)
        watch.engine._monitor.invalidate_outlooks()
        watch.look(2)
        assert watch.engine.snapshot().resources[0].verdict is verdict


def test_a_moment_of_alarm_is_no_warning():
    watch = Watch()
    watch.script.says = growing(1800)
    watch.look(20)
    watch.script.says = CALM
    watch.look(60)
    assert watch.events("warn") == []


@pytest.mark.parametrize("verdict", [Verdict.STABLE, Verdict.PLATEAU, Verdict.WARMING_UP])
def test_no_warning_and_no_interrupt_for_what_does_not_grow(verdict):
    watch = Watch()
    watch.generations(6)
    watch.script.says = replace(growing(5, 1), verdict=verdict)
    watch.look(120)
    assert watch.events("warn") == [] and watch.interrupts == []


def test_a_run_that_ends_first_is_left_alone():
    watch = Watch()
    watch.generations(6)
    watch.script.says = growing(5, 1, finishes=True)
    watch.look(120)
    assert watch.events("warn") == [] and watch.interrupts == []


# --- the moment ------------------------------------------------------------------------------------------------------


STEP = 60.0
LEAD = 10.0 + MARGIN_SHARE * 10.0 + DELIVERY_SECONDS + 2.0  # checkpoint, margin, delivery, confirmation


def test_it_interrupts_at_a_boundary_when_little_of_the_next_generation_would_fit():
    watch = Watch()
    watch.script.says = growing(500, 450)
    watch.generations(6, seconds=60)
    watch.look(59, rise=0.05 * GB)
    assert watch.interrupts == []
    left = 0.8 * WORTH_SHARE * STEP + LEAD  # no moment is the last yet
    watch.script.says = growing(left, left)
    watch.look(1)
    assert watch.interrupts == [], "not in the middle of a generation"
    watch.feed(GenerationSeen(watch.t, 8, 25))
    watch.look(1)
    assert watch.interrupts == [], "the first sample"
    watch.look(1)
    assert [i.resource for i in watch.interrupts] == ["host"]
    notice = watch.events("interrupt")[0]
    assert notice.fields["action"] == "interrupt" and notice.fields["kind"] == "boundary"


@pytest.mark.parametrize("share", [1.1 * WORTH_SHARE, 0.99, 1.5])
def test_a_boundary_after_which_much_of_another_generation_fits_is_passed(share):
    watch = Watch()
    left = share * STEP + LEAD
    watch.script.says = growing(left, left)
    watch.generations(6, seconds=60)
    watch.look(30)
    assert watch.interrupts == []


@pytest.mark.parametrize(("ends", "expected"), [((40.0,), 1), ((40.0, 9000.0), 1), ((40.0, *[9000.0] * 9), 0)])
def test_a_boundary_is_taken_where_the_odds_say_so_too(ends, expected):
    watch = Watch()
    watch.script.says = growing(500, 450, ends=ends_in(500.0))
    watch.generations(6, seconds=60)
    watch.look(59, rise=0.05 * GB)
    left = 0.8 * WORTH_SHARE * STEP + LEAD
    watch.feed(GenerationSeen(watch.t, 8, 25))
    watch.script.says = growing(left, left, ends=ends_in(*ends))
    watch.look(1)
    watch.look(1)
    assert [n.fields["kind"] for n in watch.events("interrupt")] == ["boundary"] * expected


def test_within_a_generation_it_waits_for_the_last_moment():
    watch = Watch()
    watch.generations(6, seconds=60)
    watch.look(10)
    watch.script.says = growing(60, 30)
    watch.look(20)
    assert watch.interrupts == []
    watch.script.says = growing(16, 12)
    watch.look(2)
    assert [n.fields["kind"] for n in watch.events("interrupt")] == ["time"]


def test_the_last_moment_is_when_waiting_may_cost_more_than_it_gains():
    watch = Watch()
    watch.generations(6, seconds=60)
    watch.look(10)
    watch.script.says = growing(900, 1, ends=ends_in(900.0))  # the outcomes count, not the early end of the interval
    watch.look(30)
    assert watch.interrupts == []
    watch.script.says = growing(LEAD + 2.0, LEAD, ends=ends_in(*[LEAD + 2.0] * 19, 900.0))  # most probably
    watch.look(2)
    assert [n.fields["kind"] for n in watch.events("interrupt")] == ["time"]


def test_what_rises_so_fast_that_no_checkpoint_would_find_room_is_waited_for_unless_the_limit_is_sure_to_be_met():
    watch = Watch()
    watch.generations(6, seconds=60)
    watch.used = 80.0 * GB
    watch.look(10)
    watch.script.says = growing(900, 800, ends=ends_in(LEAD + 2.0, 900.0))
    watch.look(2, rise=6.0 * GB)
    assert watch.interrupts == [], "it may fall again"
    watch.script.says = growing(5, 4, ends=ends_in(5.0))
    watch.look(2, rise=1.0 * GB)
    assert [n.fields["kind"] for n in watch.events("interrupt")] == ["time"]


def test_an_unlikely_end_is_no_reason_to_give_up_what_is_still_to_be_done():
    watch = Watch()
    watch.generations(6, seconds=60)
    watch.look(10)
    watch.script.says = growing(9000, 8000, ends=ends_in(5.0, *[9000.0] * 99))
    watch.look(60)
    assert watch.interrupts == []


def test_what_is_far_beyond_all_growth_so_far_is_no_last_moment():
    watch = Watch()
    watch.generations(6, seconds=60)
    watch.look(10)
    watch.script.rate = 1e6  # bytes a second, at most: 20 GB are not used up by that
    watch.script.says = growing(16, 12)
    watch.look(10)
    assert watch.interrupts == []
    watch.script.rate = 1.0 * GB  # but by a rise such as there was
    watch.look(2)
    assert len(watch.interrupts) == 1


def test_one_look_is_not_enough():
    watch = Watch()
    watch.generations(6)
    watch.look(30)
    for _ in range(10):
        watch.script.says = growing(16, 12)
        watch.look(1)
        watch.script.says = CALM
        watch.look(1)
    assert watch.interrupts == []


def test_a_trainer_that_saves_each_generation_is_interrupted_just_after_its_save():
    watch = Watch()
    watch.script.says = growing(1000, 900)
    watch.generations(6, saves=True)
    watch.script.says = growing(0.7 * WORTH_SHARE * STEP + LEAD, 0.6 * WORTH_SHARE * STEP + LEAD)
    watch.look(2)
    assert watch.interrupts == [], "its save is due in a second"
    watch.look(1)
    watch.feed(CheckpointSeen(watch.t, "saved", "log: saved"))
    watch.look(2)
    assert [n.fields["kind"] for n in watch.events("interrupt")] == ["saved"]


# --- a trainer that saves nothing when it is interrupted -------------------------------------------------------------

NOT_HANDLED = SignalHandling("SIGINT", False, reason="no handler, no `except KeyboardInterrupt`")
HANDLED = SignalHandling("SIGINT", True, "main (train.py:41)")


def last_chance(handling, low=70.0, middle=80.0):
    """A trainer in its 7th generation whose next own save is due in 3 s, at the last moment for a checkpoint."""
    watch = Watch()
    watch.feed(SignalHandlingSeen(0.0, handling))
    watch.script.says = growing(1000, 900)
    watch.generations(6, saves=True)
    watch.script.says = growing(middle, low, ends=ends_in(5.0, 6.0, 7.0))
    return watch


@pytest.mark.parametrize("handled", [True, None])
def test_one_that_handles_the_signal_is_interrupted_at_the_last_moment(handled):
    watch = last_chance(replace(HANDLED, handled=handled))
    watch.look(2)
    assert [n.fields["kind"] for n in watch.events("interrupt")] == ["time"]


def test_one_that_does_not_is_interrupted_right_after_its_own_save():
    watch = last_chance(NOT_HANDLED, low=60.0)
    watch.look(2)
    assert watch.interrupts == []
    [waits] = watch.events("deferred")
    assert "the trainer's own save" in waits.text
    assert waits.fields == {"own_save_due_s": 2.0}
    assert watch.engine.is_deciding, "so that the save is seen at once"
    watch.look(1)
    watch.feed(CheckpointSeen(watch.t, "saved", "log: saved"))
    watch.feed(GenerationSeen(watch.t, 8, 25))  # a boundary that follows a save does not hide it
    watch.look(2)
    [interrupt] = watch.events("interrupt")
    assert interrupt.fields["kind"] == "saved" and "after the trainer's own save" in interrupt.text


def test_the_save_after_the_next_is_waited_for_where_it_comes_in_time_too():
    watch = last_chance(NOT_HANDLED, low=100.0, middle=110.0)
    watch.look(3)
    watch.feed(CheckpointSeen(watch.t, "saved", "log: saved"))
    watch.look(3)
    assert watch.interrupts == []


def test_a_save_that_likely_comes_in_time_is_waited_for():
    """An interrupt before it would lose the work since the save before."""
    watch = last_chance(NOT_HANDLED, low=0.5, middle=6.0)
    watch.look(2)
    assert watch.interrupts == [] and watch.events("deferred")


def test_a_save_that_does_not_come_in_time_is_not_waited_for():
    watch = last_chance(NOT_HANDLED, low=0.5, middle=0.8)
    watch.look(2)
    assert [n.fields["kind"] for n in watch.events("interrupt")] == ["time"]


def test_an_overdue_save_is_not_waited_for():
    watch = last_chance(NOT_HANDLED)
    watch.look(17)
    assert watch.interrupts == []
    watch.look(4)
    assert [n.fields["kind"] for n in watch.events("interrupt")] == ["time"]


def test_half_a_generation_is_worth_nothing_where_only_its_save_counts():
    """A third of a generation more is worth going on for a trainer that then saves on the signal, not for this one."""
    kinds = {}
    for handling in (HANDLED, NOT_HANDLED):
        watch = Watch()
        watch.feed(SignalHandlingSeen(0.0, handling))
        watch.script.says = growing(1000, 900)
        watch.generations(6, saves=True)
        watch.look(3)
        watch.feed(CheckpointSeen(watch.t, "saved", "log: saved"))
        watch.script.says = growing(0.8 * STEP + LEAD, 0.7 * STEP + LEAD)
        watch.look(2)
        kinds[handling.handled] = [n.fields["kind"] for n in watch.events("interrupt")]
    assert kinds == {True: [], False: ["saved"]}


def test_how_the_signal_is_handled_is_said_once_per_change_and_forgotten_with_the_process():
    watch = Watch()
    assert watch.engine.snapshot().signal_handling is None
    for handling in (NOT_HANDLED, NOT_HANDLED, HANDLED):
        watch.feed(SignalHandlingSeen(watch.t, handling))
    said = watch.events("signal_handling")
    assert [n.fields["handled"] for n in said] == [False, True]
    assert said[0].text == (
        "does not handle SIGINT (no handler, no `except KeyboardInterrupt`): "
        "an interrupt ends it without a save; its own saves count"
    )
    assert said[1].text == "handles SIGINT in main (train.py:41)"
    assert watch.engine.snapshot().signal_handling == HANDLED
    watch.feed(Attached(watch.t, TARGET, "python main.py"))  # memwatch was started again
    assert watch.engine.snapshot().signal_handling == HANDLED
    watch.feed(Attached(watch.t, replace(TARGET, pid=101), "python main.py"))
    assert watch.engine.snapshot().signal_handling is None


def test_a_save_that_does_not_come_is_not_waited_for_beyond_the_last_moment():
    watch = Watch()
    watch.script.says = growing(1000, 900)
    watch.generations(6, saves=True)
    for left in range(62, 0, -1):
        watch.script.says = growing(left, left)
        watch.look(1)
    assert len(watch.interrupts) == 1
    assert watch.interrupts[0].t <= watch.t - 10, "a checkpoint still fits"


def test_start_up_without_markers_is_no_leak():
    watch = Watch()
    watch.script.says = growing(8, 5, generation=None, ends=ends_in(8.0))
    watch.look(60, rise=0.2 * GB)
    assert watch.interrupts == []


@pytest.mark.parametrize(("fits", "interrupted"), [(None, False), (True, False), (False, True)])
def test_a_buffer_that_cannot_fit_is_no_starting_up(fits, interrupted):
    watch = Watch()
    buffer = GrowthDriver("memory of frames", 8e10, 4e11, 1.0, 0.99, "", int(4e11), 1e11, fits=fits, in_bytes=True)
    watch.script.says = replace(growing(8, 5, generation=None, ends=ends_in(8.0)), drivers=(buffer,))
    watch.look(60, rise=0.2 * GB)
    assert bool(watch.interrupts) is interrupted


def test_a_slow_leak_without_markers_is_interrupted():
    watch = Watch()
    watch.script.says = growing(5000, 4000, generation=None)
    watch.look(400, rise=0.12 * GB)
    watch.script.says = growing(14, 10, generation=None)
    watch.look(2)
    assert len(watch.interrupts) == 1


def test_acting_switched_off_only_tells():
    watch = Watch(replace(CHECKPOINT, act=False))
    watch.generations(6)
    watch.look(30)
    watch.script.says = growing(16, 12)
    watch.look(60)
    assert watch.interrupts == []
    assert sum("acting is off" in n.text for n in watch.events("warn")) == 1


# --- the guard -------------------------------------------------------------------------------------------------------


def test_a_burst_to_the_limit_is_an_emergency_whatever_the_forecast_says():
    watch = Watch()
    watch.generations(6)
    watch.look(30)
    watch.look(22, rise=2 * GB)
    assert watch.interrupts and watch.interrupts[0].emergency
    assert watch.interrupts[0].t < watch.t - 1, "before the limit"


def burst(gb: tuple[float, ...], generations: int = ESTABLISHED_GENERATIONS + 1) -> Watch:
    """The use at the latest samples, after some calm generations and far from their use."""
    watch = Watch()
    watch.used, watch.script.rate = 40.0 * GB, 0.0
    watch.generations(generations)
    watch.look(30)
    for used in gb:
        watch.used = used * GB
        watch.look(1)
    return watch


def test_an_emergency_is_seen_three_times():
    climb = (95.5, 96.5, 97.5, 98.0)
    assert burst(climb[:2]).interrupts == []
    assert [i.emergency for i in burst(climb).interrupts] == [True]


def test_a_step_after_which_memory_hardly_rises_is_no_emergency():
    step = (60.0, 65.0, 70.0, 95.5)
    assert burst((*step, 95.6, 95.7, 95.8, 95.9)).interrupts == [], "the limit is 40 s away, a checkpoint takes 16"
    assert burst((*step, 96.0, 96.5, 97.0, 97.5)).interrupts


def test_an_emergency_that_is_not_confirmed_hides_no_last_moment():
    watch = burst((70.0, 97.5))
    assert watch.interrupts == [], "the emergency was seen once or twice"
    watch.script.says, watch.script.rate = growing(5, 1), 5.0 * GB
    for used in (97.4, 97.3, 97.2):  # still an emergency, but it rises no more
        watch.used = used * GB
        watch.look(1)
    assert [(i.emergency, watch.events("interrupt")[0].fields["kind"]) for i in watch.interrupts] == [(False, "time")]


@pytest.mark.parametrize(("ends", "at_once"), [((5.0,), 1), ((*[20.0] * 4, *[60.0] * 6), 0)])
def test_the_next_sample_confirms_where_the_usual_wait_for_it_likely_costs_the_checkpoint(ends, at_once):
    watch = Watch(Policy(checkpoint_seconds=10.0, confirmation_seconds=4.0))
    watch.generations(6, seconds=60)
    watch.look(10)
    watch.script.says = growing(16, 12, ends=ends_in(*ends))
    watch.look(1)
    assert watch.interrupts == [] and watch.engine.is_deciding, "one sample is no reason, but calls for another"
    watch.look(1)
    assert len(watch.interrupts) == at_once


def test_what_two_resources_ask_for_is_confirmed_for_each():
    watch = Watch()
    watch.generations(6)
    watch.script.says = growing(5, 1)
    for t in range(4):  # a reading of the GPU between two of main memory
        watch.t += 1
        watch.feed(sampled(watch.t, 78 * GB, resource="gpu0" if t % 2 else "host"))
    assert watch.interrupts


def test_little_is_lost_in_the_first_generations_and_jumps_are_usual():
    climb = (70.0, 80.0, 90.0, 95.5, 96.5, 97.5, 98.0)
    assert burst(climb).interrupts
    assert burst(climb, ESTABLISHED_GENERATIONS - 2).interrupts == []


def test_a_climb_to_where_generations_always_go_is_no_emergency():
    """Each had a part in which 98 of 100 GB were in use; memory stands upon a line of 40."""
    high = tuple(58.0 * GB if part == 8 else 0.0 for part in range(SLOTS))
    outline = GenerationProfile((0.0,) * SLOTS, high, 0.0, past_slot_maxima=(high,) * 6)
    near = ShortHorizonModel(60.0 * GB, 0.0, 0.0, 0.0, GB, outline, parts=(0.5,), seconds=60.0)
    climb = (70.0, 80.0, 90.0, 95.5, 96.5, 97.5)
    watch = Watch()
    watch.used, watch.script.rate = 40.0 * GB, 0.0
    watch.generations(ESTABLISHED_GENERATIONS + 1)
    watch.script.says = replace(CALM, time_to_limit=replace(ends_in(9000.0), short_horizon=near))
    watch.look(30)
    for used in climb:
        watch.used = used * GB
        watch.look(1)
    assert not watch.interrupts, "generations go as high"
    for used in (98.5, 98.9, 99.3):
        watch.used = used * GB
        watch.look(1)
    assert watch.interrupts, "above all that was seen"


def climb(watch: Watch, levels: Iterable[float], gap: float) -> float | None:
    """GB of 100 at which it was interrupted, at samples so many seconds apart."""
    for used in levels:
        watch.t, watch.used = watch.t + gap, used * GB
        watch.feed(sampled(watch.t, watch.used))
        if watch.interrupts:
            return used
    return None


def loading() -> Watch:
    """A program that was attached to a minute ago and has not done much since."""
    watch = Watch()
    watch.used, watch.script.rate = 20.0 * GB, 0.0
    watch.look(60)
    return watch


def test_looks_on_the_way_count_so_that_the_one_at_the_guard_is_the_last():
    assert climb(burst(()), [82, 85, 88, 91, 93, 95, 97], 1.0) == 95
    assert climb(burst(()), [80, 86, 92, 92, 95.5, 95.4], 1.0) is None


def test_past_the_guard_growth_that_was_seen_for_long_waits_for_the_next_look_alone():
    paces = {}
    for gap in (1.0, 0.1):
        watch = burst((65.0,))
        assert climb(watch, [93.0, 95.5], gap) is None, "the second of three samples"
        paces[gap] = watch.engine.next_sample_within_seconds
        assert climb(watch, [95.6], 0.005) == 95.6
    assert paces[1.0] == 0.005
    assert paces[0.1] > 0.05, "two readings of one allocation, as far as is known"


def test_an_allocation_between_two_close_looks_is_no_burst():
    watch = burst((95.0,))
    watch.look(60)
    blip = [95.0 + 0.05 * i for i in range(1, 7)]
    assert climb(watch, [*blip, *[95.3] * 100], 0.005) is None, "10 GB/s, but for 30 ms"


def test_a_program_that_still_loads_hears_of_its_end_at_the_brink():
    watch = loading()
    at = climb(watch, (20.0 + 0.4 * i for i in range(1, 200)), 0.01)
    assert at is not None and 95 <= at <= 96, "40 GB/s: the guard is gone within the quarter of a second"
    assert watch.interrupts[0].emergency and "too late for a checkpoint" in watch.interrupts[0].reason


def test_a_program_that_loads_and_stays_hears_nothing():
    up = [20.0 + 0.1 * i for i in range(1, 780)]
    assert climb(loading(), [*up, *[up[-1]] * 1000], 0.05) is None, "2 GB/s, up to 97.9"


def test_where_no_time_is_left_for_a_second_look_the_first_is_the_last():
    assert climb(loading(), [20.1, 60.0, 99.9], 1.0) == 99.9
    assert climb(loading(), [20.1, 60.0, 98.0], 1.0) is None


def beside(t: float, free: float, origin: str = "host") -> Sampled:
    """The trainer uses 20 GB of 100, all the while; others change the free memory."""
    return Sampled(t, Sample((Usage("host", 20 * GB, Limit(100 * GB, origin, int(free * GB))),)))


def test_others_that_take_the_hosts_memory_are_an_emergency_too():
    watch = loading()
    for free in (60.0, *[60.0 - 4.0 * i for i in range(1, 14)], 5.5, 4.0, 2.5):
        watch.t += 1
        watch.feed(beside(watch.t, free))
    assert [i.emergency for i in watch.interrupts] == [True]
    assert watch.engine.next_sample_within_seconds <= 1.0


def test_another_limit_that_binds_is_no_burst():
    watch = loading()
    for free, origin in (
        (60.0, "host"),
        (4.0, "rlimit_as"),
        (3.9, "rlimit_as"),
        (3.8, "rlimit_as"),
        (3.7, "rlimit_as"),
    ):
        watch.t += 1
        watch.feed(beside(watch.t, free, origin))
    assert watch.interrupts == []


def test_a_step_that_stays_is_no_emergency():
    watch = Watch()
    watch.generations(6)
    watch.used = 98.5 * GB
    watch.look(600)
    assert watch.interrupts == []


@pytest.mark.parametrize("share", [0.95, 0.97, 0.985])
def test_hours_near_the_limit_are_no_emergency(share):
    watch = Watch()
    for i in range(3 * 3600):
        watch.used = (share + 0.003 * math.sin(i * 1.7) + 0.002 * math.sin(i * 0.311)) * 100 * GB
        watch.look(1)
    assert watch.interrupts == []


def test_a_saw_tooth_that_comes_near_and_returns_is_no_emergency():
    watch = Watch()
    for _ in range(60):
        for share in (0.70, 0.75, 0.80, 0.85, 0.90, 0.94, 0.965):
            watch.used = share * 100 * GB
            watch.look(3)
    assert watch.interrupts == []


@settings(max_examples=20, deadline=None)
@given(share=st.floats(0.01, 0.999), gap=st.sampled_from([0.05, 1.0, 30.0]), markers=st.booleans())
def test_constant_usage_is_never_interrupted(share, gap, markers):
    engine = Engine(CHECKPOINT)
    engine.feed(Attached(0, TARGET, "x"))
    for i in range(150):
        if markers and i % 20 == 0:
            engine.feed(GenerationSeen(i * gap, i // 20))
        actions = engine.feed(sampled(i * gap, share * 100 * GB))
        assert not any(isinstance(a, Interrupt) for a in actions)


# --- checkpoints being written ---------------------------------------------------------------------------------------


def test_it_holds_while_a_checkpoint_is_written_and_acts_when_it_is_saved():
    watch = Watch()
    watch.generations(6)
    watch.look(30)
    watch.feed(CheckpointSeen(watch.t, "writing", "file: c.pt"))
    watch.script.says = growing(16, 12)
    watch.look(8)
    assert watch.interrupts == [] and len(watch.events("deferred")) == 1
    watch.feed(CheckpointSeen(watch.t, "saved", "file: c.pt"))
    watch.look(1)
    assert len(watch.interrupts) == 1


def test_it_holds_no_longer_when_the_headroom_runs_out():
    watch = Watch()
    watch.generations(6)
    watch.look(30)
    watch.feed(CheckpointSeen(watch.t, "writing", "file: c.pt"))
    watch.script.says = growing(16, 12)
    watch.used = 95 * GB
    watch.look(10, rise=0.5 * GB)
    assert len(watch.interrupts) == 1


def test_a_save_that_is_never_reported_does_not_hold_for_ever():
    watch = Watch()
    watch.generations(6)
    watch.feed(CheckpointSeen(watch.t, "writing", "log: saving"))
    watch.look(130)
    watch.script.says = growing(16, 12)
    watch.look(3)
    assert len(watch.interrupts) == 1


def test_checkpoints_seen_in_passing_teach_the_lead_time():
    watch = Watch(Policy())
    assert watch.engine.snapshot().checkpoint_origin == "assumed"
    watch.look(5)
    watch.feed(CheckpointSeen(watch.t, "writing", "log: saving"))
    watch.look(7)
    watch.feed(CheckpointSeen(watch.t, "saved", "log: saved"))
    snapshot = watch.engine.snapshot()
    assert (snapshot.checkpoint_seconds, snapshot.checkpoint_origin) == (7.0, "measured")
    assert snapshot.checkpoint_t == watch.t


# --- the episode -----------------------------------------------------------------------------------------------------


def interrupted(policy: Policy = CHECKPOINT, answer: bool = True) -> Watch:
    watch = Watch(policy, answer)
    watch.generations(6)
    watch.look(30)
    watch.script.says = growing(16, 12)
    watch.look(2)
    assert len(watch.interrupts) == 1
    return watch


def test_evidence_of_the_checkpoint_ends_the_wait_and_teaches():
    watch = interrupted(Policy())
    assert watch.engine.snapshot().state is WatchState.INTERRUPTING
    watch.look(4)
    watch.feed(CheckpointSeen(watch.t, "saved", "log: saved"))
    assert [n.fields["seconds"] for n in watch.events("saved")] == [4.0]
    assert watch.engine.snapshot().state is WatchState.SAVED
    assert watch.engine.snapshot().checkpoint_seconds == 4.0
    watch.feed(Exited(watch.t + 1, Cause.SAVED, ("status 0",), 0))
    assert watch.engine.snapshot().state is WatchState.ENDED
    watch.look(500)
    assert watch.escalations == []


def test_no_evidence_by_the_deadline_escalates_to_sigterm_only():
    watch = interrupted()
    watch.look(59)
    assert watch.escalations == []
    watch.look(400)
    assert watch.escalations == ["SIGTERM"]
    assert len(watch.events("escalated")) == 1
    assert watch.engine.snapshot().state is WatchState.ESCALATED


def test_sigkill_only_if_opted_in():
    watch = interrupted(replace(CHECKPOINT, kill=True))
    watch.look(200)
    assert watch.escalations == ["SIGTERM", "SIGKILL"]


def test_a_checkpoint_in_progress_doubles_the_deadline():
    watch = interrupted()
    for _ in range(11):
        watch.feed(CheckpointSeen(watch.t, "writing", "file: c.pt"))
        watch.look(10)
    assert watch.escalations == []
    watch.look(15)
    assert watch.escalations == ["SIGTERM"]


def test_a_trainer_that_saved_and_runs_on_is_told_of_and_not_killed():
    watch = interrupted(replace(CHECKPOINT, kill=True))
    watch.feed(CheckpointSeen(watch.t + 1, "saved", "log: saved"))
    watch.script.says = CALM
    watch.look(300)
    assert watch.escalations == [] and len(watch.events("continued")) == 1
    assert watch.engine.snapshot().state is WatchState.WATCHING


def test_a_dry_run_closes_the_episode_with_a_cooldown():
    watch = Watch(CHECKPOINT, answer=False)
    watch.generations(6)
    watch.look(30)
    watch.script.says = growing(16, 12)
    watch.look(2)
    watch.feed(Signalled(watch.t, "SIGINT", dry_run=True))
    watch.look(500)
    assert len(watch.interrupts) == 1 and watch.escalations == []
    watch.look(102)
    assert len(watch.interrupts) == 2, "after the cooldown"


@pytest.mark.parametrize("announced", [True, False])
def test_a_signal_that_cannot_be_sent_is_tried_again_then_escalated(announced: bool):
    watch = interrupted(answer=False)
    for _ in range(10):
        if announced:
            watch.feed(Signalling(watch.t, "SIGINT"))
        watch.feed(Signalled(watch.t, "SIGINT", error="not permitted"))
        watch.look(6)
    assert len(watch.interrupts) == 3
    assert watch.escalations == ["SIGTERM"]
    assert "not permitted" in watch.events("escalated")[0].text


def test_a_request_that_nobody_answers_is_made_again():
    watch = interrupted(answer=False)
    watch.look(10)
    assert len(watch.interrupts) == 2


def test_a_restart_of_memwatch_does_not_send_what_was_decided_before_it():
    watch = interrupted(answer=False)
    watch.feed(Attached(watch.t, TARGET, "python main.py"))
    watch.script.says = CALM
    watch.look(60)
    assert len(watch.interrupts) == 1 and watch.escalations == []


def killed_at_its_signal(policy: Policy = CHECKPOINT) -> Watch:
    """memwatch was killed as it was about to send the first signal, and has been started again."""
    watch = interrupted(policy, answer=False)
    watch.feed(Signalling(watch.t, "SIGINT"))
    watch.feed(Attached(watch.t, TARGET, "python main.py"))
    watch.answer = True
    return watch


def test_a_signal_that_may_have_been_sent_is_not_sent_again_before_its_deadline_and_nothing_stronger_after_it():
    watch = killed_at_its_signal()
    assert "whether it did is not known" in watch.events("note")[0].text
    watch.look(59)
    assert len(watch.interrupts) == 1 and watch.engine.snapshot().state is WatchState.INTERRUPTING
    watch.look(5)
    assert "SIGINT may not have been sent" in watch.events("note")[1].text
    assert len(watch.interrupts) == 2 and watch.escalations == []
    watch.look(61)
    assert watch.escalations == ["SIGTERM"], "it is known of the second"


def test_after_that_deadline_a_trainer_that_is_well_again_is_left_alone():
    watch = killed_at_its_signal()
    watch.script.says = CALM
    watch.look(500)
    assert len(watch.interrupts) == 1 and watch.escalations == []
    assert watch.engine.snapshot().state is WatchState.WATCHING


def test_a_checkpoint_after_a_signal_that_may_have_been_sent_ends_the_wait():
    watch = killed_at_its_signal()
    watch.look(4)
    watch.feed(CheckpointSeen(watch.t, "saved", "log: saved"))
    assert watch.engine.snapshot().state is WatchState.SAVED
    assert [n.fields["seconds"] for n in watch.events("saved")] == [4.0]


@pytest.mark.parametrize(
    ("killed_at", "then"),
    [("SIGTERM", ["SIGTERM", "SIGTERM", "SIGKILL"]), ("SIGKILL", ["SIGTERM", "SIGKILL", "SIGKILL"])],
)
def test_a_stronger_signal_that_may_have_been_sent_is_sent_before_one_that_is_stronger_still(killed_at, then):
    watch = interrupted(replace(CHECKPOINT, kill=True))
    while killed_at not in watch.escalations:
        watch.answer = len(watch.escalations) < then.index(killed_at)
        watch.look()
    watch.feed(Signalling(watch.t, killed_at))
    watch.feed(Attached(watch.t, TARGET, "python main.py"))
    watch.answer = True
    watch.look(59)
    assert watch.escalations == then[: then.index(killed_at) + 1]
    watch.look(150)
    assert watch.escalations == then


def test_a_second_witness_of_the_save_before_the_signal_is_no_evidence_of_one_after():
    watch = Watch()
    watch.generations(6)
    watch.look(30)
    watch.script.says = growing(16, 12)
    watch.look(1)
    watch.feed(CheckpointSeen(watch.t, "saved", "log: saved"))
    watch.look(1)
    assert len(watch.interrupts) == 1
    watch.feed(CheckpointSeen(watch.t + 1, "saved", "file: c.pt, still for 2.0 s"))
    assert watch.engine.snapshot().state is WatchState.INTERRUPTING
    watch.feed(CheckpointSeen(watch.t + 3, "saved", "file: c.pt, still for 2.0 s"))
    assert watch.engine.snapshot().state is WatchState.SAVED


def by_hook(watch: Watch, error: str = "status 1") -> None:
    """The interrupt that was asked for is carried out by a hook, which ends two seconds later."""
    watch.feed(Signalled(watch.t, "SIGINT", hook="scancel 7", instead=True))
    assert watch.engine.snapshot().state is WatchState.INTERRUPTING
    watch.look(2)
    watch.answer = True
    watch.feed(HookRan(watch.t, "scancel 7", 1 if error else 0, 2.0, error))


def test_a_hook_that_fails_in_place_of_the_signal_is_followed_by_the_signal_at_once():
    watch = interrupted(answer=False)
    by_hook(watch)
    [first, second] = watch.interrupts
    assert (first.by_signal, second.by_signal, second.t) == (False, True, watch.t)
    assert watch.engine.snapshot().state is WatchState.INTERRUPTING
    assert len(watch.events("hook_failed")) == 1
    watch.look(59)
    assert watch.escalations == []
    watch.look(3)
    assert watch.escalations == ["SIGTERM"]


def test_a_hook_that_did_its_work_is_not_followed_by_a_signal():
    watch = interrupted(answer=False)
    by_hook(watch, error="")
    watch.look(2)
    watch.feed(CheckpointSeen(watch.t, "saved", "log: saved"))
    assert len(watch.interrupts) == 1 and len(watch.events("hook")) == 1
    assert [n.fields["seconds"] for n in watch.events("saved")] == [4.0]


@pytest.mark.parametrize("state", ["writing", "saved"])
def test_a_checkpoint_on_its_way_is_not_broken_by_the_signal_that_follows_a_failed_hook(state: str):
    watch = interrupted(answer=False)
    watch.feed(Signalled(watch.t, "SIGINT", hook="scancel 7", instead=True))
    watch.look(1)
    watch.feed(CheckpointSeen(watch.t, state, "file: c.pt"))
    watch.feed(HookRan(watch.t, "scancel 7", None, 1.0, "it took more than 1 s and was killed"))
    assert len(watch.interrupts) == 1


def test_a_hook_that_cannot_be_started_is_followed_by_one_signal():
    watch = interrupted(answer=False)
    for event in (
        Signalling(watch.t, "SIGINT", "scancel 7", instead=True),
        Signalling(watch.t, "SIGINT"),
        HookRan(watch.t, "scancel 7", None, 0.0, "No such file"),
        Signalled(watch.t, "SIGINT"),
    ):
        watch.feed(event)
    watch.look(59)
    assert len(watch.interrupts) == 1 and watch.escalations == []


def test_a_hook_beside_the_signal_that_fails_changes_nothing():
    watch = interrupted()
    watch.feed(HookRan(watch.t, "kubectl x", 1, 1.0, "status 1", "error: forbidden"))
    assert len(watch.interrupts) == 1 and watch.engine.snapshot().state is WatchState.INTERRUPTING
    [reported] = watch.events("hook_failed")
    assert reported.text == "hook failed: status 1: kubectl x: error: forbidden"


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_never_two_sigints_within_a_cooldown_nor_one_into_a_checkpoint(data):
    watch = Watch(replace(CHECKPOINT, cooldown_seconds=120.0))
    watch.generations(6)
    writing = False
    for _ in range(40):
        step = data.draw(st.sampled_from(["grow", "calm", "writing", "saved", "mark", "look", "unhandled"]))
        if step in ("grow", "calm"):
            watch.script.says = growing(10, 5) if step == "grow" else CALM
        elif step == "mark":
            watch.feed(GenerationSeen(watch.t, 8 + int(watch.t)))
        elif step == "unhandled":
            watch.feed(SignalHandlingSeen(watch.t, NOT_HANDLED))
        elif step in ("writing", "saved"):
            watch.feed(CheckpointSeen(watch.t, step, "log"))
            writing = step == "writing"
        before = len(watch.interrupts)
        watch.look(data.draw(st.integers(1, 20)))
        assert not (writing and step == "writing" and len(watch.interrupts) > before)
    times = [i.t for i in watch.interrupts]
    assert all(later - earlier >= 120 for earlier, later in pairwise(times))


# --- who is watched --------------------------------------------------------------------------------------------------


def test_the_same_target_again_goes_on_with_the_same_attempt():
    watch = Watch()
    watch.generations(3)
    watch.feed(Attached(watch.t, TARGET, "python main.py"))
    assert watch.engine.snapshot().attempt == 0
    assert watch.script.restarts == 0
    assert watch.engine.snapshot().generation == 4


def test_another_target_is_the_next_attempt_of_the_run():
    watch = Watch()
    watch.generations(3)
    watch.feed(Exited(watch.t, Cause.OOM_CGROUP))
    watch.used = 5 * GB
    watch.feed(Attached(watch.t + 1, Target("boot", 200, 9), "python main.py --resume"))
    watch.look(3)
    watch.feed(GenerationSeen(watch.t, 2, 25))
    watch.look(3)
    snapshot = watch.engine.snapshot()
    assert (snapshot.attempt, snapshot.up, watch.script.restarts) == (1, True, 1)
    assert snapshot.resources[0].baseline_bytes == 5 * GB
    assert [(r.index, r.attempt) for r in snapshot.resources[0].generations] == [(1, 0), (2, 0), (3, 0), (2, 1)]


def test_the_end_is_told_with_its_evidence():
    watch = Watch()
    watch.look(2)
    watch.feed(Exited(3.0, Cause.OOM_CGROUP, ("oom_kill 0 -> 1",), signal="SIGKILL"))
    notice = watch.events("exited")[0]
    assert notice.fields == {
        "cause": "oom_cgroup",
        "evidence": ["oom_kill 0 -> 1"],
        "exit_code": None,
        "signal": "SIGKILL",
        "checkpoint": None,
    }
    snapshot = watch.engine.snapshot()
    assert snapshot.state is WatchState.ENDED and not snapshot.up
    assert [view.usage.resource for view in snapshot.resources] == ["host"], "its last use stays, for the summary"
    assert snapshot.sentence == "ended: killed by the kernel's OOM killer at the cgroup's limit"


def test_how_far_an_attempt_came_is_its_own():
    watch = Watch()
    assert watch.engine.attempt_progress == AttemptProgress()
    watch.generations(3, saves=True)
    assert watch.engine.attempt_progress == AttemptProgress("generation", 4, 25, own_checkpoints=2)
    watch.script.says = growing(5.0)
    watch.look(30)
    assert watch.interrupts
    watch.feed(CheckpointSeen(watch.t + 1, "saved", "log: on the signal"))
    watch.feed(CheckpointSeen(watch.t + 60, "saved", "log: and at its end"))
    watch.feed(Exited(watch.t + 61, Cause.SAVED))
    assert watch.engine.attempt_progress == AttemptProgress("generation", 4, 25, own_checkpoints=2), (
        "a checkpoint that memwatch requested is not its own"
    )
    watch.feed(Attached(watch.t + 70, Target("boot", 200, 9), "python main.py --resume"))
    assert watch.engine.attempt_progress == AttemptProgress("generation", None, 25, own_checkpoints=0)


def test_what_follows_an_end_is_told():
    watch = Watch()
    watch.feed(Exited(1.0, Cause.SAVED))
    watch.feed(Restarting(1.0, 2, 5, 4.0, "python main.py --resume"))
    watch.feed(Restarting(1.0, 1, None, 32.0, "python main.py"))
    watch.feed(GaveUp(9.0, 2, "no use"))
    assert [one.text for one in watch.events("restarting")] == [
        "restart 2 of 5 in 4 s: python main.py --resume",
        "restart 1 in 32 s: python main.py",
    ]
    assert watch.events("gave_up")[0].text == "gave up after restart 2: no use"


def test_a_watch_that_begins_anew_is_told_anew_what_fails():
    watch = Watch()
    watch.feed(SourceChanged(1.0, "log", False, "gone"))
    watch.feed(Attached(2.0, TARGET, "python main.py"))
    assert watch.engine.snapshot().sources == (), "it may work by now: nobody would say so"


# --- notices and the snapshot -----------------------------------------------------------------------------------------


def test_each_generation_is_told_with_its_growth():
    watch = Watch()
    watch.generations(2)
    rows = watch.events("generation")
    assert [n.fields["gen"] for n in rows] == [1, 2]
    assert rows[1].fields["delta"] == pytest.approx(57 * 0.05 * GB)
    assert [n.fields["gen"] for n in watch.events("marker")] == [1, 2, 3]


def test_forecast_notices_follow_generations_and_changes_not_every_look():
    watch = Watch()
    watch.generations(3)
    before = len(watch.events("forecast"))
    watch.look(50)
    assert len(watch.events("forecast")) == before + 1, "the one of the boundary"
    watch.script.says = growing(5000)
    watch.look(2)
    assert len(watch.events("forecast")) == before + 2


def copying(t: float, used: float, cow: float | None) -> Sampled:
    tree = TreeMemory(17, int(4 * GB), int(used), "pages", cow_bytes=cow and int(cow), cow_bytes_per_second=35e6)
    return Sampled(t, replace(sampled(t, used).sample, tree=tree))


def test_of_a_still_hour_few_looks_ask_for_a_forecast_and_few_are_told():
    asked: list[float] = []

    class Counted(Forecaster):
        def outlook(self, t, *others, **more):
            asked.append(t)
            return super().outlook(t, *others, **more)

    engine = Engine(Policy(), Counted)
    engine.feed(Attached(0.0, TARGET, "python main.py"))
    notices = [action for t in range(3600) for action in engine.feed(sampled(float(t), 10 * GB + t % 7 * 1e6))]
    assert 20 < len(asked) < 250, "a fit takes a millisecond"
    assert 0 < len([one for one in notices if one.event == "forecast"]) <= len(asked)


def test_pages_that_are_copied_are_told_once_an_attempt_when_they_are_much_of_the_growth():
    watch = Watch()
    for second, cow in enumerate((None, 0.0, 0.1 * GB, 0.9 * GB, 3.1 * GB, 5 * GB)):
        watch.feed(copying(second, 10 * GB + (cow or 0), cow))
    (reported,) = watch.events("cow")
    assert reported.fields == {"cow_bytes": int(0.9 * GB), "cow_bytes_per_s": 35_000_000, "processes": 17}
    assert "900.0 MB so far, +35.0 MB/s" in reported.text
    watch.feed(Attached(9.0, Target("boot", 200, 9), "python main.py --resume"))
    watch.feed(copying(10.0, 12 * GB, 2 * GB))
    assert len(watch.events("cow")) == 2


def test_copied_pages_that_are_little_of_the_growth_are_not_told():
    watch = Watch()
    watch.feed(copying(1.0, 10 * GB, 0.0))
    watch.feed(copying(2.0, 20 * GB, 2 * GB))
    assert watch.events("cow") == []


def test_sources_are_told_once_per_change():
    watch = Watch()
    for ok in (True, False, False, True, True):
        watch.feed(SourceChanged(watch.t, "cgroup", ok, "gone"))
    assert len(watch.events("source_failed")) == len(watch.events("source_recovered")) == 1
    assert watch.engine.snapshot().sources[0].ok


def test_a_failed_reading_publishes_nothing():
    watch = Watch()
    watch.look(3)
    watch.feed(Sampled(4.0, Sample((), unread=(UnavailableSource("cgroup", "no such file"),))))
    snapshot = watch.engine.snapshot()
    assert snapshot.resources == () and snapshot.sentence == "no reading: cgroup: no such file"


def test_deadlines_pass_without_readings():
    watch = interrupted()
    watch.feed(Sampled(watch.t + 100, Sample(())))
    assert watch.escalations == ["SIGTERM"]


def test_a_clock_that_goes_back_is_held_still():
    watch = Watch()
    watch.look(10)
    watch.feed(sampled(3.0, 1 * GB))
    assert watch.engine.snapshot().t == 10.0


def test_gauges_totals_phases_and_oom_lines_are_kept():
    watch = Watch()
    watch.look(1)
    watch.feed(GaugeSeen(1.0, "Buffer", 7840.0, 50000.0))
    watch.feed(TotalSeen(1.0, 25))
    watch.feed(PhaseSeen(1.0, "evaluate"))
    watch.feed(OutOfMemorySeen(1.0, "MemoryError", "MemoryError: x"))
    snapshot = watch.engine.snapshot()
    assert (snapshot.gauges[0].capacity, snapshot.total, snapshot.phase) == (50000.0, 25, "evaluate")
    assert watch.events("out_of_memory")


def test_a_phase_is_told_when_it_ends_with_what_it_brought():
    watch = Watch()
    watch.feed(GenerationSeen(0.0, 1, 25))
    watch.feed(PhaseSeen(0.0, "evaluate"))
    watch.feed(sampled(0.0, 10 * GB))
    watch.feed(sampled(30.0, 12 * GB))
    watch.feed(PhaseSeen(30.0, "train"))
    watch.feed(PhaseSeen(30.5, "log"))  # so short that it is none
    watch.feed(PhaseSeen(31.0, "evolve"))
    watch.feed(sampled(60.0, 11 * GB))
    watch.feed(GenerationSeen(60.0, 2, 25))
    reported = [
        (one.fields["gen"], one.fields["phase"], one.fields["delta"], one.fields["end"], one.fields["seconds"])
        for one in watch.events("phase")
    ]
    assert reported == [(1, "evaluate", 2 * GB, 12 * GB, 30.0), (1, "evolve", -1 * GB, 11 * GB, 29.0)]
    assert watch.events("phase")[0].text == "host: evaluate of generation 1 ended at 12.0 GB, +2.0 GB in 30 s"
    assert not [one for one in watch.engine.snapshot().notices if one.event == "phase"]


GPU = GpuMemory("gpu0", "GPU-1", "H200", 70 * GB, 70 * GB, 80 * GB, "exact")


def gpu_sample(host_used: int, gpu_used: int, fresh: bool = True) -> Sample:
    host = Usage("host", host_used, Limit(100 * GB, "host", 100 * GB - host_used))
    gpu = Usage("gpu0", gpu_used, Limit(80 * GB, "gpu0", 80 * GB - gpu_used))
    return Sample((host, gpu) if fresh else (host,), gpus=(replace(GPU, used_bytes=gpu_used),))


def test_between_two_readings_a_gpu_stays_in_sight_and_is_not_observed():
    engine = Engine(Policy())
    engine.feed(Attached(0.0, TARGET, "python main.py"))
    engine.feed(Sampled(1.0, gpu_sample(10 * GB, 70 * GB)))
    engine.feed(Sampled(1.1, gpu_sample(11 * GB, 70 * GB, fresh=False)))
    views = {view.usage.resource: view for view in engine.snapshot().resources}
    assert views["gpu0"].usage.used_bytes == 70 * GB
    engine.feed(Sampled(1.2, Sample(gpu_sample(12 * GB, 0, fresh=False).usages)))
    assert [view.usage.resource for view in engine.snapshot().resources] == ["host"], "it cannot be read any more"


def test_looks_more_often_than_a_gpu_is_read_make_no_burst_of_it():
    """0.2 GB a second while main memory has twenty samples a second: each reading fed twenty times would be 4 GB/s."""
    engine, used = Engine(Policy()), 0
    engine.feed(Attached(0.0, TARGET, "python main.py"))
    for i in range(20 * 20):
        t, fresh = i / 20, i % 20 == 0
        used = int((40 + 0.2 * t) * GB) if fresh else used
        engine.feed(Sampled(t, gpu_sample(10 * GB, used, fresh)))
    assert engine.snapshot().pace_seconds == pytest.approx((80 * GB - used) / (PACE_LOOKS * 0.2 * GB), rel=0.3)


def test_the_pace_follows_the_fastest_rise():
    watch = Watch()
    watch.used, watch.script.rate = 50 * GB, 0.0
    watch.look(2)
    assert watch.engine.snapshot().pace_seconds == PACE_IDLE_SECONDS
    watch.script.rate = 5 * GB
    watch.used += 1
    watch.look()
    assert watch.engine.snapshot().pace_seconds == pytest.approx(2.5)
    watch.script.rate = 1e15
    watch.used += 1e10
    watch.look()
    assert watch.engine.snapshot().pace_seconds == PACE_FLOOR_SECONDS


def test_notices_in_the_snapshot_are_bounded_and_without_markers():
    watch = Watch()
    watch.generations(80, seconds=4)
    notices = watch.engine.snapshot().notices
    assert len(notices) == 50 and {n.event for n in notices} == {"generation"}


def test_feeding_stored_events_again_ends_in_the_same_state():
    events = [Attached(0.0, TARGET, "x", "run")]
    for i in range(938):
        if i % 60 == 10:
            events.append(GenerationSeen(float(i), i // 60, 30))
            events.append(PhaseSeen(float(i), "evaluate"))
        if i % 60 == 40:
            events.append(CheckpointSeen(float(i), "writing", "f"))
            events.append(CheckpointSeen(i + 0.5, "saved", "f"))
        events.append(sampled(i + 0.6, (20 + i * 0.085) * GB))
    first, again = Engine(Policy()), Engine(Policy())
    reported = [first.feed(event) for event in events]
    assert reported == [again.feed(event) for event in events]
    assert first.snapshot() == again.snapshot()
    assert any(isinstance(a, Interrupt) for actions in reported for a in actions)
    again.feed(Attached(940.0, TARGET, "x", "run"))
    assert again.snapshot().attempt == 0
    assert again.snapshot().state is first.snapshot().state


def test_every_number_that_is_told_is_finite_or_none():
    watch = Watch()
    watch.generations(6)
    watch.script.says = growing(float("inf"), float("nan"))
    watch.look(20)
    for action in watch.said:
        if isinstance(action, Notice):
            for value in action.fields.values():
                assert not isinstance(value, float) or math.isfinite(value)


def test_escalations_are_actions_of_their_own():
    watch = interrupted()
    watch.look(61)
    assert [a.signal for a in watch.said if isinstance(a, Escalate)] == ["SIGTERM"]


def test_nobody_is_warned_of_a_limit_that_most_likely_lies_beyond_the_last_generation():
    watch = Watch()
    watch.generations(6)
    watch.script.says = growing(600.0, 500.0, finishes=False, generation=27)
    watch.look(120)
    assert watch.events("warn") == []
    assert "probably fits: would reach the limit at generation 27" in watch.engine.snapshot().sentence
    watch.script.says = growing(600.0, 500.0, finishes=False, generation=22)
    watch.look(120)
    assert len(watch.events("warn")) == 1


def test_another_unit_begins_a_clean_count():
    watch = Watch()
    watch.generations(6)
    watch.feed(GenerationSeen(watch.t, 1, 40, unit="epoch"))
    watch.look(3)
    snapshot = watch.engine.snapshot()
    assert (snapshot.unit, snapshot.generation, snapshot.total) == ("epoch", 1, 40)
    assert [row.index for row in snapshot.resources[0].generations] == [1]


def test_a_capacity_that_was_named_once_is_kept():
    watch = Watch()
    watch.feed(GaugeSeen(1.0, "Buffer", 10.0, 50.0))
    watch.feed(GaugeSeen(2.0, "Buffer", 20.0))
    assert (watch.engine.snapshot().gauges[0].value, watch.engine.snapshot().gauges[0].capacity) == (20.0, 50.0)


def test_a_save_that_was_lost_from_sight_teaches_no_lead():
    watch = Watch(Policy())
    watch.feed(CheckpointSeen(watch.t, "writing", "log: saving"))
    watch.look(3000)
    watch.feed(CheckpointSeen(watch.t, "saved", "log: saved"))
    assert watch.engine.snapshot().checkpoint_origin == "assumed"


def test_a_marker_that_is_told_late_begins_at_its_own_time():
    watch = Watch()
    watch.look(30)
    watch.feed(GenerationSeen(5.0, 1))
    watch.feed(GenerationSeen(25.0, 2))
    watch.look(1)
    row = watch.engine.snapshot().resources[0].generations[-1]
    assert (row.index, row.start_t, row.partial) == (2, 25.0, True)


def test_others_that_begin_late_to_take_the_limit_do_not_pass_for_the_load(tmp_path: Path) -> None:
    """The trainer stands at 7.4 GB; from 80 s on others take 100 MB/s of the 13 GB, and at 136 s nothing is left."""
    lines = ["t,rss,limit,gen"]
    for i in range(228):
        t = 0.6 * i
        rss = 7_400_000_000 + 40_000_000 * (i % 3)
        lines.append(f"{t:.2f},{rss},{round(13e9 - max(0.0, t - 80.0) * 1e8)},{int(t // 7)}")
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(lines))
    [interrupt] = [one for one in replay_notices(trace, Policy(checkpoint_seconds=1.8)) if one.event == "interrupt"]
    assert 115.0 < interrupt.t < 134.0
