"""Samples that are added together leave the same state as when each is added by itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memwatch.core.decision.burst_detector import BurstDetector, ClimbDetector
from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import (
    Attached,
    CheckpointSeen,
    Event,
    GenerationSeen,
    Notice,
    SampleBatch,
    SignalHandlingSeen,
    Signalled,
    UsageSeries,
)
from memwatch.core.forecast.forecaster import Forecaster
from memwatch.core.forecast.generation_tracker import GenerationTracker, SawtoothDetector
from memwatch.core.generation_ledger import GenerationLedger
from memwatch.core.measurements import SignalHandling, Target
from memwatch.core.sample_windows import PeakRate
from memwatch.core.snapshot import Snapshot
from memwatch.history.trace_files import read_trace, replay_notices
from support.watch import TARGET

GB = 10**9


class Climbing(ClimbDetector):
    def __init__(self) -> None:
        super().__init__()
        self.set_window_seconds(40.0)


class OneResourceLedger:
    def __init__(self) -> None:
        self.ledger = GenerationLedger()

    def add_samples(self, times: Sequence[float], used: Sequence[int]) -> None:
        self.ledger.add_samples(times, "host", used)


KINDS: dict[str, Callable[[], Any]] = {
    "burst": BurstDetector,
    "climb": Climbing,
    "peak rate": PeakRate,
    "teeth": SawtoothDetector,
    "rhythm": lambda: GenerationTracker(0.0, 0.0, None),
    "ledger": OneResourceLedger,
    "forecaster": Forecaster,
}


def walked(drawn: Sequence[tuple[float, int, int]]) -> tuple[list[float], list[int]]:
    times, used, t = [], [], 0.0
    for gap, level, unrest in drawn:
        t += gap
        times.append(t)
        used.append(level + unrest * (level > 1))
    return times, used


readings = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.05, 1.0, 1.0, 1.0, 7.3, 100.0, 700.0]),
        st.sampled_from([0, 1, GB, GB, 10 * GB, 11 * GB]),
        st.integers(0, GB // 10),
    ),
    min_size=1,
    max_size=300,
).map(walked)


def state(thing: object) -> object:
    """The whole state of an object, as plain values."""
    if isinstance(thing, Enum):
        return thing
    if hasattr(thing, "__slots__") and not hasattr(thing, "__dict__"):
        return [state(getattr(thing, name)) for name in thing.__slots__]
    if hasattr(thing, "__dict__"):
        return {name: state(value) for name, value in vars(thing).items()}
    if isinstance(thing, dict):
        return {key: state(value) for key, value in thing.items()}
    if hasattr(thing, "__iter__") and not isinstance(thing, str):
        return [state(one) for one in thing]
    return thing


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
@settings(max_examples=60, deadline=None)
@given(samples=readings, cuts=st.lists(st.integers(0, 300), max_size=6))
@example(samples=([0.0, 700.0, 700.05], [0, 0, 0]), cuts=[])
def test_the_state_does_not_depend_on_the_grouping(make: Callable[[], Any], samples: Any, cuts: list[int]) -> None:
    times, used = samples
    single, pieces = make(), make()
    for t, level in zip(times, used, strict=True):
        single.add_samples((t,), (level,))
    ends = sorted({0, *(min(cut, len(times)) for cut in cuts), len(times)})
    for first, end in pairwise(ends):
        pieces.add_samples(times[first:end], used[first:end])
    assert state(pieces) == state(single)


def one_by_one(path: Any) -> Iterator[Notice]:
    """A replay that feeds each sample by itself."""
    engine = Engine(Policy())
    for event in read_trace(path):
        actions = engine.feed(event)
        if any(not isinstance(action, Notice) for action in actions):
            actions = actions + engine.feed(Signalled(event.t, "SIGINT", dry_run=True))
        yield from (action for action in actions if isinstance(action, Notice))


def write_leak(path: Any, rows: int, gpu: bool, seed: int) -> Any:
    rng, lines = random.Random(seed), ["t,rss,limit,gen,phase,gpu_used,gpu_limit"]
    for i in range(rows):
        used = 20 * GB + i * 30_000_000 + rng.randrange(GB)
        held = f"{5 * GB + rng.randrange(GB)},{80 * GB}" if gpu and i % 3 else ","
        lines.append(f"{i + rng.random() / 2:.3f},{used},{60 * GB},{i // 100},{'ab'[i // 50 % 2]},{held}")
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_replay_reports_the_same_as_feeding_each_sample(tmp_path: Any, gpu: bool, seed: int) -> None:
    trace = write_leak(tmp_path / "leak.csv", 2000, gpu, seed)
    reported = [(notice.t, notice.event, notice.text) for notice in replay_notices(trace, Policy())]
    assert reported == [(notice.t, notice.event, notice.text) for notice in one_by_one(trace)]
    assert "interrupt" in [event for _, event, _ in reported]


def test_only_samples_that_continue_the_latest_are_fast_forwarded() -> None:
    def batch(limit: int, first: int = 0, count: int = 50) -> SampleBatch:
        times = [float(first + i) for i in range(count)]
        return SampleBatch(times, (UsageSeries("host", [20 * GB] * count, limit, "trace"),))

    engine = Engine(Policy())
    assert engine.fast_forward(batch(100 * GB), 0) == 0, "nothing is watched yet"
    snapshot = feed(engine, batch(100 * GB))
    assert snapshot.sample_t == 49.0
    late = batch(100 * GB, 50)
    fed = 0
    while (end := engine.fast_forward(late, fed)) == fed:
        engine.feed(late.event_at(fed))
        fed += 1
    assert fed < end < 50, "until the next forecast"
    now = int(late.times[end]) - 1
    assert engine.fast_forward(batch(90 * GB, now), 0) == 0, "another limit"
    assert engine.fast_forward(batch(100 * GB, now - 1), 0) == 0, "a time before the latest"
    assert engine.fast_forward(batch(100 * GB, now), 0) > 0


def shared(seed: int, samples: int = 1500) -> list[SampleBatch]:
    """A leak below a limit that others use too: sometimes a lot of it, at the end nearly all."""
    rng, batches = random.Random(seed), []
    for first in range(0, samples, 100):
        times = [first + i + rng.random() / 2 for i in range(100)]
        used = [20 * GB + round(t) * 10_000_000 + rng.randrange(GB // 10) for t in times]
        others = [(5 if t < samples - 200 else 76) * GB + rng.randrange(GB) + (t % 400 < 3) * 30 * GB for t in times]
        taken = [mine + round(other) for mine, other in zip(used, others, strict=True)]
        batches.append(SampleBatch(times, (UsageSeries("host", used, 110 * GB, "host", taken),)))
    return batches


@pytest.mark.parametrize("seed", range(3))
def test_usage_of_the_limit_by_others_is_followed_in_time(seed: int) -> None:
    forwarding, single = Engine(Policy()), Engine(Policy())
    reported: dict[Engine, list[tuple[float, str, str]]] = {forwarding: [], single: []}
    fed = 0

    def feed_to(engine: Engine, event: Any) -> None:
        actions = engine.feed(event)
        if any(not isinstance(action, Notice) for action in actions):
            actions = actions + engine.feed(Signalled(event.t, "SIGINT", dry_run=True))
        reported[engine] += [(one.t, one.event, one.text) for one in actions if isinstance(one, Notice)]

    for engine in reported:
        feed_to(engine, Attached(0.0, TARGET, "python main.py"))
    for batch in shared(seed):
        for event in forwarding.events_to_feed(batch):
            fed += 1
            feed_to(forwarding, event)
        for i in range(len(batch.times)):
            feed_to(single, batch.event_at(i))
    assert reported[forwarding] == reported[single] and "interrupt" in [event for _, event, _ in reported[single]]
    assert fed < 1000
    assert state(forwarding.snapshot()) == state(single.snapshot())


def test_samples_without_decisions_are_fast_forwarded_whole() -> None:
    judged, rarely = Engine(Policy(act=False)), Engine(Policy(act=False))
    fed = {judged: 0, rarely: 0}
    for engine, seconds in ((judged, 0.0), (rarely, 60.0)):
        engine.feed(Attached(0.0, TARGET, "python main.py"))
        for batch in shared(0):
            for event in engine.events_to_feed(batch, seconds):
                fed[engine] += 1
                engine.feed(event)
    assert fed[rarely] < fed[judged] / 4
    [one], [other] = rarely.snapshot().resources, judged.snapshot().resources
    assert (one.peak_bytes, one.usage, one.timeline) == (other.peak_bytes, other.usage, other.timeline)


def feed(engine: Engine, batch: SampleBatch) -> Snapshot:
    engine.feed(Attached(0.0, TARGET, "python main.py"))
    for i in range(len(batch.times)):
        engine.feed(batch.event_at(i))
    return engine.snapshot()


def saving_leak() -> Iterator[Event | SampleBatch]:
    """A leak that saves at the end of each generation and handles no signal, near its limit at the end."""
    rng, limit = random.Random(5), 60 * GB
    yield Attached(0.0, Target("boot", 100, 7), "python train.py")
    yield SignalHandlingSeen(0.0, SignalHandling("SIGINT", False, reason="no handler"))
    for generation in range(1, 30):
        t = 30.0 * (generation - 1)
        yield GenerationSeen(t, generation, 60)
        times = [t + 0.5 * i for i in range(1, 60)]
        used = [20 * GB + int(t * GB / 15) + i * GB // 30 + rng.randrange(2 * GB) for i in range(1, 60)]
        yield SampleBatch(times, (UsageSeries("host", used, limit, "cgroup /job"),))
        yield CheckpointSeen(times[-1] + 0.1, "saved", "log: saved")


def test_what_waits_for_an_own_save_is_the_same_in_batches() -> None:
    def notices(in_batches: bool) -> list[tuple[float, str, str]]:
        engine, said = Engine(Policy()), []
        for item in saving_leak():
            singly = isinstance(item, SampleBatch) and not in_batches
            events = map(item.event_at, range(len(item.times))) if singly else engine.events_to_feed(item)
            for event in events:
                actions = engine.feed(event)
                if any(not isinstance(action, Notice) for action in actions):
                    actions = actions + engine.feed(Signalled(event.t, "SIGINT", dry_run=True))
                said += [(one.t, one.event, one.text) for one in actions if isinstance(one, Notice)]
        return said

    said = notices(in_batches=True)
    assert said == notices(in_batches=False)
    assert any(event == "interrupt" and "after the trainer's own save" in text for _, event, text in said)
