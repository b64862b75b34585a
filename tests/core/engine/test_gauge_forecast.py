"""A gauge tells where growth ends, from the second generation on: the documents' trainer, live in the engine."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Attached, GaugeSeen, GenerationSeen, Interrupt, Notice
from memwatch.core.examination import GrowthDriver
from memwatch.core.snapshot import Snapshot, Verdict
from support.watch import TARGET, sampled

MB = 1e6
CAPACITY, A_GENERATION, PER_TRANSITION = 5000, 224, 0.435 * MB
FILL_SHARE = 0.4  # of a generation: its transitions come in the beginning, then it trains
SECONDS = 60
PLATEAU = 550 * MB + CAPACITY * PER_TRANSITION + 80 * MB  # as `used_bytes` has it: 2.8 GB


def used_bytes(index: int, part: float, leak: float = 0.0) -> float:
    """Memory in generation `index` (from 0): the buffer, 150 MB of start-up in the first, 80 MB while it trains."""
    stored = min(CAPACITY, A_GENERATION * (index + min(1.0, part / FILL_SHARE)))
    start = 150 * MB if index or part > FILL_SHARE else 0.0
    return 400 * MB + stored * PER_TRANSITION + start + leak * (index + part) + 80 * MB * (FILL_SHARE < part < 0.9)


def trained(
    generations: int,
    limit: float,
    *,
    capacity: float | None = CAPACITY,
    gauges: Callable[[int], dict[str, float]] = lambda k: {"replay buffer": min(CAPACITY, A_GENERATION * (k + 1))},
    leak: float = 0.0,
) -> tuple[list[Snapshot], list[Interrupt], list[Notice]]:
    """The state after each generation, and what was done; samples each second, a checkpoint takes 5 s."""
    engine, rng = Engine(Policy(checkpoint_seconds=5.0)), random.Random(0)
    engine.feed(Attached(0.0, TARGET, "python main.py"))
    engine.feed(sampled(0.0, used_bytes(0, 0.0), limit))
    states, acted = [], []
    for k in range(generations):
        acted += engine.feed(GenerationSeen(float(k * SECONDS), k + 1, total=25))
        for second in range(SECONDS):
            t, part = k * SECONDS + float(second), second / SECONDS
            if second == int(FILL_SHARE * SECONDS) + 1:
                for name, value in gauges(k).items():
                    acted += engine.feed(GaugeSeen(t, name, value, capacity))
            acted += engine.feed(sampled(t, used_bytes(k, part, leak) + rng.gauss(0.0, MB), limit))
        states.append(engine.snapshot())
    return states, [a for a in acted if isinstance(a, Interrupt)], [a for a in acted if isinstance(a, Notice)]


def driver(state: Snapshot) -> GrowthDriver:
    (found,) = state.resources[0].drivers
    return found


def test_from_the_second_generation_on_it_is_told_and_the_interval_narrows_around_the_truth() -> None:
    states, _, _ = trained(7, 3.2e9)
    assert states[0].resources[0].drivers == ()
    found = [driver(state) for state in states[1:]]
    widths = []
    for one in found:
        assert one.bytes_per_unit_range is not None and one.full_range is not None
        assert one.bytes_per_unit_range[0] <= PER_TRANSITION <= one.bytes_per_unit_range[1]
        assert one.full_range[0] <= PLATEAU <= one.full_range[1]
        widths.append(one.full_range[1] - one.full_range[0])
    assert widths == sorted(widths, reverse=True)
    assert found[0].bytes_per_unit == pytest.approx(PER_TRANSITION, rel=0.1)


def test_nobody_waits_for_the_fifth_generation_to_know_that_it_fits() -> None:
    states, _, notices = trained(4, 3.2e9)
    assert [driver(state).fits for state in states[1:]] == [None, None, True]
    assert states[1].sentence.startswith("warming up, ")
    assert " for each of replay buffer (448 of 5,000); full at 5,000 it takes 2.8 GB (" in states[1].sentence
    assert states[3].sentence.endswith(": fits")
    assert [one for one in notices if one.event == "warn"] == []


def test_a_buffer_that_does_not_fit_says_at_which_level_the_limit_falls() -> None:
    states, _, _ = trained(4, 1.6e9)
    one = driver(states[-1])
    assert one.fits is False and one.limit_range is not None
    full = next(v for v in range(CAPACITY) if 630 * MB + v * PER_TRANSITION >= 1.6e9)
    assert one.limit_value == pytest.approx(full, rel=0.05)
    assert "the limit falls at about 2,200 of 5,000 (" in states[-1].sentence
    assert states[-1].resources[0].forecast is not None and states[-1].resources[0].forecast.generation in (10, 11)


def test_a_run_whose_buffer_fits_is_never_warned_of_interrupted_or_called_a_leak() -> None:
    states, interrupts, notices = trained(25, 1.07 * PLATEAU)
    assert interrupts == []
    assert [one.text for one in notices if one.event == "warn"] == []
    assert Verdict.LEAK not in {state.resources[0].verdict for state in states}


def test_a_leak_beside_a_full_buffer_is_still_interrupted() -> None:
    _, interrupts, _ = trained(25, 1.07 * PLATEAU, leak=40 * MB)
    assert interrupts


def test_a_gauge_without_a_capacity_is_told_too_but_not_one_that_counts_the_generations() -> None:
    states, _, _ = trained(4, 8e9, capacity=None)
    one = driver(states[-1])
    assert one.bytes_per_unit == pytest.approx(PER_TRANSITION, rel=0.05)
    assert (one.capacity, one.full_bytes, one.fits) == (None, None, None)
    assert "kB) for each of replay buffer (896); the limit falls at about 17,000 (" in states[-1].sentence
    states, _, _ = trained(4, 8e9, capacity=None, gauges=lambda k: {"round": k + 1.0})
    assert states[-1].resources[0].drivers == ()


def test_of_several_gauges_the_one_that_memory_follows() -> None:
    rng = random.Random(2)

    def told(k: int) -> dict[str, float]:
        return {
            "population": 16.0,
            "novelty archive": 10.0 * (k + 1) + rng.uniform(-9.0, 9.0) * k,
            "replay buffer": min(CAPACITY, A_GENERATION * (k + 1)),
        }

    states, _, _ = trained(8, 3.2e9, gauges=told)
    assert driver(states[-1]).name == "replay buffer"
