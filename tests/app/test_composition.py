"""What the composition root puts around a watch."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator

import pytest

from memwatch.app.composition import FULL_GC_SECONDS, MIN_SLEEP_FOR_GC_SECONDS, with_periodic_gc
from support.world import HandClock

FREE = 1000  # blocks, fewer than a free list takes


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def sleep(clock: HandClock) -> Iterator[Callable[[float], bool]]:
    gc.disable()
    yield with_periodic_gc(lambda seconds: seconds < MIN_SLEEP_FOR_GC_SECONDS, clock)
    gc.enable()


def given_back(sleep: Callable[[float], bool], seconds: float) -> bool:
    """Whether the blocks that free lists hold before that sleep are free after it."""
    for _ in range(2 * FREE):
        tuple(map(float, range(16)))
    before = sys.getallocatedblocks()
    assert sleep(seconds) is (seconds < MIN_SLEEP_FOR_GC_SECONDS), "as the sleep itself says"
    return before - sys.getallocatedblocks() > FREE


def test_once_an_hour_what_is_free_is_given_back(sleep: Callable[[float], bool], clock: HandClock) -> None:
    assert not given_back(sleep, 1.0)
    clock.t += FULL_GC_SECONDS
    assert given_back(sleep, 1.0)
    assert not given_back(sleep, 1.0)
    clock.t += FULL_GC_SECONDS
    assert given_back(sleep, 1.0)


def test_never_before_a_look_that_is_due_at_once(sleep: Callable[[float], bool], clock: HandClock) -> None:
    clock.t += FULL_GC_SECONDS
    assert not given_back(sleep, MIN_SLEEP_FOR_GC_SECONDS / 2)
    assert given_back(sleep, MIN_SLEEP_FOR_GC_SECONDS)
