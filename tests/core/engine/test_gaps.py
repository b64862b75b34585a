"""Samples that do not fit together: hours between two, a figure that jumps and returns, a limit below the use."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Attached, Event, GenerationSeen, Interrupt, Sampled
from memwatch.core.measurements import Limit, Sample, Usage
from support.watch import GB, TARGET, sampled

LIMIT = 100 * GB
HOURS = 6 * 3600.0
GENERATION_SECONDS, GROWTH = 60, 2 * GB


class Run:
    """A trainer that grows with each generation, watched by a real engine; samples are a second apart."""

    def __init__(self, markers: bool = True) -> None:
        self.engine = Engine(Policy(checkpoint_seconds=10.0))
        self.t, self.used, self.generation, self.markers = 0.0, 20.0 * GB, 0, markers
        self.interrupts: list[Interrupt] = []
        self.feed(Attached(0.0, TARGET, "x"))

    def feed(self, event: Event) -> None:
        self.interrupts += [one for one in self.engine.feed(event) if isinstance(one, Interrupt)]

    def sample(self, count: int, growth: float = GROWTH / GENERATION_SECONDS, resource: str = "host") -> None:
        for _ in range(count):
            self.t += 1.0
            self.used += growth
            if self.markers and round(self.t) % GENERATION_SECONDS == 0:
                self.generation += 1
                self.feed(GenerationSeen(self.t, self.generation, 500))
            self.feed(sampled(self.t, self.used, LIMIT, resource))

    @property
    def etas(self) -> Iterator[float]:
        """The time to the limit of each forecast, in seconds."""
        for one in self.engine.snapshot().resources:
            if one.forecast is not None and one.forecast.eta_seconds is not None:
                yield one.forecast.eta_seconds


@pytest.mark.parametrize("markers", [True, False], ids=["by generations", "by time"])
def test_after_a_suspension_of_hours_the_gap_changes_nothing_and_the_leak_is_interrupted_in_time(markers: bool) -> None:
    run = Run(markers)
    run.sample(20 * GENERATION_SECONDS)
    run.t += HOURS
    run.sample(5 * GENERATION_SECONDS, growth=0.0)
    assert run.interrupts == [] and all(math.isfinite(eta) and eta > 60 for eta in run.etas)
    while not run.interrupts and run.used < LIMIT:
        run.sample(1)
    assert 0.85 * LIMIT < run.used < LIMIT - 10 * GROWTH / GENERATION_SECONDS, "in time for a checkpoint of 10 s"


@pytest.mark.parametrize("gap", [1.0, 12.0, 60.0, 600.0])
@pytest.mark.parametrize("markers", [True, False], ids=["by generations", "by time"])
def test_after_a_gap_between_the_call_for_an_interrupt_and_its_confirmation_it_is_sent(markers: bool, gap: float):
    """As on a machine that is busy or suspended: longer than a checkpoint takes."""
    plain, run = Run(markers), Run(markers)
    while not plain.interrupts:
        plain.sample(1)
    run.sample(round(plain.t) - 1)
    assert run.interrupts == []
    run.t += gap - 1.0
    run.sample(3)
    assert len(run.interrupts) == 1


def test_a_larger_use_after_the_gap_is_a_step_and_no_burst() -> None:
    run = Run()
    run.sample(10 * GENERATION_SECONDS)
    run.t, run.used = run.t + HOURS, 0.9 * LIMIT
    run.sample(5 * GENERATION_SECONDS, growth=0.0)
    assert run.interrupts == []


@pytest.mark.parametrize("resource", ["host", "gpu0"])
@pytest.mark.parametrize("lie", [0, int(0.999 * LIMIT), int(LIMIT)])
def test_a_figure_that_jumps_for_one_sample_and_returns_is_no_reason_to_interrupt(resource: str, lie: int) -> None:
    run = Run()
    run.sample(5 * GENERATION_SECONDS, resource=resource)
    for _ in range(20):
        run.t += 1.0
        run.feed(Sampled(run.t, Sample((Usage(resource, lie, Limit(int(LIMIT), resource, int(LIMIT) - lie)),))))
        run.sample(20, growth=0.0, resource=resource)
    assert run.interrupts == [] and all(map(math.isfinite, run.etas))


@pytest.mark.parametrize("growth", [GROWTH / GENERATION_SECONDS, 0.0], ids=["growing", "calm"])
@pytest.mark.parametrize("beyond", [GB, LIMIT, 10**18])
def test_a_limit_that_falls_below_the_use_interrupts_at_once(growth: float, beyond: float) -> None:
    """There is no room left for anything: the kernel kills with the next allocation, if it has not yet."""
    run = Run()
    run.sample(10 * GENERATION_SECONDS, growth)
    exceeded = Limit(GB, "cgroup /job", -int(beyond))
    run.feed(Sampled(run.t + 1.0, Sample((Usage("host", int(run.used), exceeded),))))
    [interrupt] = run.interrupts
    assert interrupt.emergency and "more is in use than the limit allows" in interrupt.reason
    assert "too late for a checkpoint unless" in interrupt.reason
    assert "never" not in interrupt.reason and "0 B/s" not in interrupt.reason
