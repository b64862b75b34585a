"""A tmpfs as a resource: its peak is forecast, what comes and goes below it neither interrupts nor hurries."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

from memwatch.app.engine_settings import EngineSettings
from memwatch.config.settings import Config
from memwatch.core.events import Attached, GenerationSeen, Interrupt, Notice, Sampled
from memwatch.core.measurements import Limit, Sample, TmpfsMemory, Usage
from memwatch.core.memory_accounting import tmpfs_usage
from memwatch.sources.memory.tmpfs import _Peak
from support.watch import TARGET

SIZE = 64 << 20
GENERATION_SECONDS = 30


class Run:
    """A trainer of 20 generations, sampled once a second; `share(t)` of its /dev/shm is in use at t."""

    def __init__(self, share: Callable[[int], float], markers: bool = True) -> None:
        engine = EngineSettings.from_config(Config()).make_engine()
        engine.feed(Attached(0.0, TARGET, "python train.py"))
        used = [int(SIZE * share(t)) for t in range(20 * GENERATION_SECONDS)]
        self.notices: list[str] = []
        self.interrupts: list[Interrupt] = []
        self.paces: list[float] = []
        peak = _Peak()
        for t, now in enumerate(used):
            high = peak.add_sample(float(t), now, SIZE)
            shm = tmpfs_usage(TmpfsMemory("/dev/shm", now, high, SIZE))
            host = Usage("host", 10**9, Limit(10**11, "host", 10**11 - 10**9))
            actions = []
            if markers and t % GENERATION_SECONDS == 0:
                actions += engine.feed(GenerationSeen(float(t), t // GENERATION_SECONDS + 1, 20))
            actions += engine.feed(Sampled(float(t), Sample((host, shm))))
            self.notices += [one.event for one in actions if isinstance(one, Notice)]
            self.interrupts += [one for one in actions if isinstance(one, Interrupt)]
            self.paces.append(engine.next_sample_within_seconds)


def test_segments_that_are_kept_are_interrupted_at_the_end_of_the_room() -> None:
    run = Run(lambda t: min(1.0, 0.1 + t / 620))
    interrupt = run.interrupts[0]
    assert interrupt.resource == "/dev/shm" and 500 < interrupt.t < 558, interrupt
    assert "warn" in run.notices


def test_peaks_that_fit_are_healthy_whenever_they_are_sampled() -> None:
    dice = random.Random(1)
    shapes: list[Callable[[int], float]] = [
        lambda t: 0.99 if dice.random() < 0.05 else 0.3 + 0.02 * dice.random(),
        lambda t: 0.99 + 0.005 * (dice.random() - 0.5),
        lambda t: 0.2 + 0.79 * dice.random(),
        lambda t: min(0.97, t / 25),  # a data set that is cached in the first generation
        lambda t: 0.98 * (t % GENERATION_SECONDS) / GENERATION_SECONDS,
        lambda t: 0.99 if 10 < t % GENERATION_SECONDS < 15 else 0.2,
        lambda t: 0.0 if t == 0 else 0.95 + 0.01 * dice.random(),  # what is fetched ahead, at once
    ]
    batch = 10.5e6 / SIZE  # up to six of them in flight, fewer while workers are started
    shapes.append(lambda t: batch * (dice.randint(0, 6) if t % 4 == 0 else 6 - dice.choice((0, 0, 1, 2))))
    for share in shapes:
        for markers in (True, False):
            assert Run(share, markers).interrupts == []


def test_batches_do_not_hurry_the_samples() -> None:
    """They rise by tens of megabytes a millisecond: at the pace of that there would be 200 samples a second."""
    run = Run(lambda t: 0.3 + 0.6 * (t % 2))
    assert min(run.paces) >= 1.0
    assert all(a == b for a, b in pairwise(run.paces[2:]))
