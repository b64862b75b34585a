"""The timeline of a watch: no reading is lost, however long it goes on."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.engine.resource_state import INITIAL_STEP_SECONDS, MAX_STEPS, Timeline
from memwatch.core.snapshot import TimelineStep


def told(times: list[float], used: list[int], at_once: int = 1, began_t: float = 0.0) -> tuple[TimelineStep, ...]:
    timeline = Timeline(began_t)
    for i in range(0, len(times), at_once):
        timeline.add_samples(times[i : i + at_once], used[i : i + at_once])
    return timeline.steps()


def test_readings_of_one_step_are_its_least_and_its_most():
    steps = told([10.0, 10.1, 10.2, 10.3], [5, 9, 2, 7], began_t=10.0)
    assert steps == (TimelineStep(10.0, INITIAL_STEP_SECONDS, 2, 9), TimelineStep(10.25, INITIAL_STEP_SECONDS, 7, 7))


@given(
    st.lists(st.tuples(st.floats(0.001, 1e5), st.integers(0, 2**50)), min_size=1, max_size=400),
    st.integers(1, 400),
)
def test_any_watch_is_told_in_few_steps_that_hold_all_that_was_read(readings, at_once):
    times = list(accumulate(gap for gap, _ in readings))
    used = [size for _, size in readings]
    steps = told(times, used, at_once)
    assert 0 < len(steps) <= MAX_STEPS
    assert all(a.t + a.seconds <= b.t * (1 + 1e-12) for a, b in pairwise(steps))
    assert min(one.least_bytes for one in steps) == min(used) and max(one.most_bytes for one in steps) == max(used)
    assert steps[0].t <= times[0] and times[-1] < (steps[-1].t + steps[-1].seconds) * (1 + 1e-12)
    assert steps == told(times, used)


def test_a_long_even_watch_keeps_at_least_half_of_the_steps():
    steps = told([float(t) for t in range(100_000)], list(range(100_000)), at_once=16)
    assert MAX_STEPS / 2 <= len(steps) <= MAX_STEPS
    assert [one.most_bytes for one in steps] == sorted(one.most_bytes for one in steps)


@pytest.mark.parametrize("back", [0.5, 1e6])
def test_a_clock_that_is_set_back_loses_nothing(back):
    steps = told([100.0, 200.0, 200.0 - back], [1, 2, 3])
    assert max(one.most_bytes for one in steps) == 3 and len(steps) == 2


def test_before_the_first_reading_there_is_nothing():
    assert Timeline(5.0).steps() == ()
