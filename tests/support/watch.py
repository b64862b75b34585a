"""A watch for engine tests: a scripted forecaster and short ways to write events."""

from __future__ import annotations

from dataclasses import replace

from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import (
    Action,
    Attached,
    CheckpointSeen,
    Escalate,
    Event,
    GenerationSeen,
    Interrupt,
    Notice,
    Sampled,
    Signalled,
    Signalling,
)
from memwatch.core.forecast.growth_axes import GenerationSchedule
from memwatch.core.forecast.outlook import Outlook
from memwatch.core.forecast.time_to_limit import TimeToLimit, UncertainSchedule, distribution_of
from memwatch.core.measurements import Limit, Sample, Target, Usage
from memwatch.core.snapshot import Forecast, Trend, Verdict
from support.steady import Steady

GB = 10**9
TARGET = Target("boot", 100, 7)


def growing(
    eta: float,
    low: float | None = None,
    finishes: bool | None = None,
    generation: float | None = 9,
    ends: TimeToLimit | None = None,
) -> Outlook:
    """A leak that meets its limit in `eta` seconds."""
    trend = Trend("linear", 1e6, 1e8, 0.9, points=8)
    forecast = Forecast(eta, low, None, generation, generation, None, finishes)
    seen = 0.0 if ends is None else 7 * ends.level_seconds
    return Outlook(Verdict.LEAK, trend, forecast, ends, growth_seen_seconds=seen)


def ends_in(*seconds: float) -> TimeToLimit:
    """The limit is met in so many seconds: each as likely as the others."""
    timing = UncertainSchedule(GenerationSchedule(0.0, 1.0))
    return TimeToLimit(distribution_of(100 * GB, ((s, 1.0) for s in seconds), timing), timing, 60.0, 60.0)


CALM = Outlook(Verdict.STABLE, Trend("flat", 0.0, 0.0, 0.9), Forecast(None, None, None))


class Script(Steady):
    """A forecaster that says what it is told to say."""

    def __init__(self) -> None:
        self.says = CALM
        self.generations: list[float] = []
        self.restarts = 0
        self.rate = 5.0 * GB  # fast enough for whatever is forecast

    def begin_generation(self, t: float | None, index: float) -> None:
        if t is not None:
            self.generations.append(index)

    def greatest_rise_bytes(self, seconds: float, since_t: float) -> float:
        return self.rate * seconds

    def outlook(self, *asked: object, **options: object) -> Outlook:
        return replace(self.says, growth=self)

    def restart(self, t: float) -> None:
        self.restarts += 1


def sampled(t: float, used: float, limit: float | None = 100 * GB, resource: str = "host") -> Sampled:
    bound = None if limit is None else Limit(int(limit), "cgroup /job", int(limit - used))
    return Sampled(t, Sample((Usage(resource, int(used), bound),)))


class Watch:
    """An engine with one scripted forecaster, a clock of one second a look, and everything it said."""

    def __init__(self, policy: Policy | None = None, answer: bool = True) -> None:
        self.script = Script()
        self.engine = Engine(policy or Policy(checkpoint_seconds=10.0), lambda: self.script)
        self.answer = answer  # report each Interrupt and Escalate as sent
        self.t = 0.0
        self.used = 78.0 * GB
        self.said: list[Action] = []
        self.feed(Attached(0.0, TARGET, "python main.py"))

    def feed(self, event: Event) -> list[Action]:
        actions = self.engine.feed(event)
        self.said += actions
        for action in actions:
            if self.answer and isinstance(action, (Interrupt, Escalate)):
                name = "SIGINT" if isinstance(action, Interrupt) else action.signal
                self.feed(Signalling(action.t, name))
                self.feed(Signalled(action.t, name))
        return actions

    def look(self, seconds: int = 1, rise: float = 0.0) -> None:
        for _ in range(seconds):
            self.t += 1
            self.used += rise
            self.feed(sampled(self.t, self.used))

    def generations(self, count: int, seconds: int = 60, first: int = 1, saves: bool = False) -> None:
        """`count` generations that have passed, and the marker of the next."""
        for index in range(first, first + count + 1):
            self.feed(GenerationSeen(self.t, index, 25))
            if index == first + count:
                return
            self.look(3)
            if saves and index > first:
                self.feed(CheckpointSeen(self.t, "saved", "log: saved"))
            self.look(seconds - 3, rise=0.05 * GB)

    @property
    def interrupts(self) -> list[Interrupt]:
        return [a for a in self.said if isinstance(a, Interrupt)]

    @property
    def escalations(self) -> list[str]:
        return [a.signal for a in self.said if isinstance(a, Escalate)]

    def events(self, name: str) -> list[Notice]:
        return [a for a in self.said if isinstance(a, Notice) and a.event == name]
