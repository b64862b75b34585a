"""A log that names no generations: the clock is the trainer's own saves, else blocks of time."""

from __future__ import annotations

import random

from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Action, Attached, CheckpointSeen, GenerationSeen, Interrupt
from memwatch.core.measurements import Target
from support.watch import TARGET, sampled

MB = 1e6
HZ = 5


def grown(
    seconds: int,
    rate: float,
    limit: float,
    *,
    start: float = 200.0,
    plateau: float = float("inf"),
    saves: int | None = None,
    named_from: int | None = None,
) -> tuple[Engine, list[tuple[float, Interrupt]]]:
    """A steady growth of `rate` MB/s until it is interrupted or out of memory; the headroom at each interrupt, MB."""
    engine, rng = Engine(Policy()), random.Random(3)
    engine.feed(Attached(0.0, TARGET, "python main.py"))
    found: list[tuple[float, Interrupt]] = []
    for i in range(seconds * HZ):
        t, actions = i / HZ, list[Action]()
        used = min(plateau, start + rate * t) + rng.gauss(0.0, 0.5)
        if saves and i and i % (saves * HZ) == 0:
            engine.feed(CheckpointSeen(t - 0.1, "writing", "file: model.pt"))
            engine.feed(CheckpointSeen(t, "saved", "file: model.pt", 0.5))
        if named_from is not None and t >= named_from and i % (10 * HZ) == 0:
            engine.feed(GenerationSeen(t, int(t) // 10, unit="epoch"))
        actions += engine.feed(sampled(t, used * MB, limit * MB))
        found += [(limit - used, one) for one in actions if isinstance(one, Interrupt)]
        if found or used >= limit:
            break
    return engine, found


def test_clear_growth_is_believed_near_the_limit_though_nothing_is_known_of_its_checkpoints() -> None:
    _, ((left, interrupt),) = grown(100, 8.0, 700.0)
    assert not interrupt.emergency
    assert 20.0 <= left <= 0.05 * 700.0, "three seconds of growth, where it was 0.1 MB"


def test_a_program_that_loads_is_left_alone() -> None:
    _, found = grown(120, 8.0, 755.0, plateau=680.0)
    assert found == []


def test_own_saves_are_the_clock_from_the_second_on() -> None:
    engine, _ = grown(9, 1.0, 4000.0, saves=5)
    assert engine.snapshot().generation is None, "one save makes no interval"
    engine, _ = grown(60, 1.0, 4000.0, saves=5)
    state = engine.snapshot()
    assert (state.unit, state.generation) == ("save", 11)
    assert [row.index for row in state.resources[0].generations] == list(range(2, 12)), (
        "the first passed before it was known"
    )
    trend = state.resources[0].trend
    assert trend is not None and trend.growth_per_generation is not None
    assert abs(trend.growth_per_generation - 5 * MB) < 0.5 * MB
    assert engine.attempt_progress.index is None and engine.attempt_progress.own_checkpoints == 11


def test_a_log_that_begins_to_tell_is_the_clock_from_then_on() -> None:
    engine, _ = grown(100, 1.0, 4000.0, saves=5, named_from=40)
    state = engine.snapshot()
    assert (state.unit, state.generation) == ("epoch", 9)
    assert [row.index for row in state.resources[0].generations] == list(range(4, 10))


def test_saves_of_a_trainer_whose_log_tells_are_no_generations() -> None:
    engine, _ = grown(100, 1.0, 4000.0, saves=5, named_from=0)
    assert (engine.snapshot().unit, engine.snapshot().generation) == ("epoch", 9)


def test_another_process_counts_its_saves_anew() -> None:
    engine, _ = grown(60, 1.0, 4000.0, saves=5)
    engine.feed(Attached(61.0, Target("boot", 101, 8), "python main.py"))
    engine.feed(CheckpointSeen(70.0, "saved", "file: model.pt", 0.5))
    assert engine.snapshot().generation is None
    engine.feed(CheckpointSeen(90.0, "saved", "file: model.pt", 0.5))
    assert (engine.snapshot().unit, engine.snapshot().generation) == ("save", 2)
