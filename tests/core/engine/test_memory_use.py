"""The memory of the engine does not grow with the run. At full length: tests/bench/memory.py."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Event
from memwatch.core.forecast.forecaster import Forecaster
from memwatch.core.forecast.outlook import ForecasterProtocol
from support.endless import attempts_pass, generations_pass, time_passes
from support.steady import Steady


def kept_bytes(
    events: Iterator[Event], counts: tuple[int, int], forecaster: Callable[[], ForecasterProtocol]
) -> list[int]:
    """Bytes that the engine holds after so many events, and after so many more."""
    engine, kept = Engine(Policy(), forecaster), []
    tracemalloc.start()
    try:
        for count in counts:
            for event in islice(events, count):
                engine.feed(event)
            engine.snapshot()
            gc.collect()
            kept.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    return kept


@pytest.mark.parametrize(
    ("events", "first", "more", "forecaster", "most"),
    [
        # the timeline has 120 to 240 steps, which are joined, in turn; one of each of these samples would be 1.8 MB
        pytest.param(time_passes, 2000, 10_000, Steady, 40_000, id="time"),
        # a forecaster's bins fill and are joined, in turn; two floats of each of these samples would be 600 kB
        pytest.param(time_passes, 1000, 3000, Forecaster, 120_000, id="time, with a forecaster"),
        pytest.param(generations_pass, 10_000, 10_000, Steady, 20_000, id="generations"),
        pytest.param(attempts_pass, 10_000, 10_000, Steady, 20_000, id="attempts"),
    ],
)
def test_the_memory_of_the_engine_does_not_grow(events, first, more, forecaster, most):
    before, after = kept_bytes(events(), (first, more), forecaster)
    assert after - before < most, f"{before} bytes, then {after}"
