"""A calm run costs few lines, however short its generations are."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Attached, Event, GenerationSeen, Notice, PhaseSeen, Sampled
from memwatch.core.measurements import Limit, Sample, Usage
from memwatch.outputs.terminal.plain_and_json_lines import PlainLines
from soak.bars import LINES_KB
from support.snapshots import make_snapshot
from support.watch import TARGET

HOURS, WARM_HOURS = 2, 1
SNAPSHOT = make_snapshot()  # lines do not show it
STEPS, EVALUATES, FULL, LIMIT = 8, 4, 400, 4 * 10**9


def healthy(seconds: float, interval: float, resources: Sequence[str]) -> Iterator[Event]:
    """As programs/healthy.py: a buffer fills up, each step works, workers are forked in the middle of a generation."""
    dice, number, filled, workers, work = random.Random(1), 0, 0, 0, dict.fromkeys(resources, 0.0)
    step, due_t, pause = STEPS, 0.0, 0.0
    yield Attached(0.0, TARGET, "python main.py")
    for t in (i * interval for i in range(int(HOURS * 3600 / interval))):
        if t >= due_t:
            if step == STEPS:
                number, step, pause = number + 1, 0, seconds * dice.uniform(0.8, 1.2) / STEPS
                yield GenerationSeen(t, number, 100_000)
            if step == EVALUATES:
                yield PhaseSeen(t, "evaluate")
            workers = 3 if step == EVALUATES else max(0, workers - 1)
            filled, work = min(FULL, filled + 5), {name: dice.uniform(2.0, 4.0) for name in resources}
            step, due_t = step + 1, due_t + pause
        used = {name: int(1e6 * (18 + filled / 10 + work[name] + 2 * workers)) for name in resources}
        bounds = (Usage(name, taken, Limit(LIMIT, name, LIMIT - taken)) for name, taken in used.items())
        yield Sampled(t, Sample(tuple(bounds)))


@pytest.mark.parametrize(
    ("seconds", "interval", "resources"),
    [(1, 0.2, ["host"]), (8, 0.5, ["host"]), (8, 1, ["host", "gpu0"]), (60, 5, ["host"]), (3600, 30, ["host"])],
)
def test_a_calm_hour_costs_less_than_a_kilobyte_of_lines(
    seconds: float, interval: float, resources: Sequence[str]
) -> None:
    engine, out = Engine(Policy()), io.StringIO()
    lines, sizes, verdicts = PlainLines(out), [0], set[object]()
    for event in healthy(seconds, interval, resources):
        if event.t >= len(sizes) * 3600:
            sizes.append(out.tell())
        notices = [action for action in engine.feed(event) if isinstance(action, Notice)]
        verdicts |= {one.fields.get("verdict") for one in notices}
        lines.publish(SNAPSHOT, notices)
    sizes.append(out.tell())
    assert len(sizes) == HOURS + 1 and "stable" in verdicts
    assert max(after - before for before, after in pairwise(sizes[WARM_HOURS:])) <= LINES_KB * 1000, out.getvalue()
