"""What the composition root puts around a watch."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator

import pytest

from memwatch.app.composition import CALM_SECONDS, TIDY_SECONDS, tidying
from support.world import HandClock

FREE = 1000  # blocks, fewer than a free list takes


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def sleep(clock: HandClock) -> Iterator[Callable[[float], bool]]:
    gc.disable()
    yield tidying(lambda seconds: seconds < CALM_SECONDS, clock)
    gc.enable()


def given_back(sleep: Callable[[float], bool], seconds: float) -> bool:
    """Whether the blocks that free lists hold before that sleep are free after it."""
    for _ in range(2 * FREE):
        tuple(map(float, range(16)))
    before = sys.getallocatedblocks()
    assert sleep(seconds) is (seconds < CALM_SECONDS), "as the sleep itself says"
    return before - sys.getallocatedblocks() > FREE


def test_once_an_hour_what_is_free_is_given_back(sleep: Callable[[float], bool], clock: HandClock) -> None:
    assert not given_back(sleep, 1.0)
    clock.t += TIDY_SECONDS
    assert given_back(sleep, 1.0)
    assert not given_back(sleep, 1.0)
    clock.t += TIDY_SECONDS
    assert given_back(sleep, 1.0)


def test_never_before_a_look_that_is_due_at_once(sleep: Callable[[float], bool], clock: HandClock) -> None:
    clock.t += TIDY_SECONDS
    assert not given_back(sleep, CALM_SECONDS / 2)
    assert given_back(sleep, CALM_SECONDS)
