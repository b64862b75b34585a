"""Time and sleep of the real world: real signals, real descriptors."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memwatch.system.clock import STOP_SIGNALS, Sleeper, SystemClock

LONG = 20.0  # a sleep that is never slept to its end


@contextmanager
def soon(act: object) -> Iterator[None]:
    timer = threading.Timer(0.05, act)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def sleeping(*watched: int) -> Sleeper:
    return Sleeper(watched, STOP_SIGNALS, lambda _: None)


def slept(sleeper: Sleeper, seconds: float) -> float:
    before = time.monotonic()
    sleeper.sleep(seconds)
    return time.monotonic() - before


def rested(sleeper: Sleeper, seconds: float) -> float:
    before = time.monotonic()
    sleeper.sleep_until_signal(seconds)
    return time.monotonic() - before


def open_descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_the_clock_is_unix_time_and_goes_on() -> None:
    clock = SystemClock()
    first = clock.now()
    assert abs(first - time.time()) < 0.1
    time.sleep(0.02)
    assert 0.02 <= clock.now() - first < 1


def test_what_is_past_stays_past_though_the_machines_clock_was_set_back() -> None:
    clock = SystemClock()
    ahead = clock.now() + 3600
    clock.advance_to(ahead)
    assert ahead <= clock.now() < ahead + 1
    clock.advance_to(ahead - 60)
    assert ahead <= clock.now() < ahead + 1


def test_it_sleeps_to_the_end_when_nothing_happens() -> None:
    with sleeping() as sleeper:
        assert 0.05 <= slept(sleeper, 0.05) < 1
        assert slept(sleeper, -1.0) < 0.5
        assert sleeper.sleep(0.0) is False


def test_a_signal_before_the_sleep_is_not_lost() -> None:
    with sleeping() as sleeper:
        os.kill(os.getpid(), signal.SIGTERM)
        assert slept(sleeper, LONG) < LONG / 2


@pytest.mark.parametrize("number", [*STOP_SIGNALS, signal.SIGUSR1])
def test_a_signal_ends_the_sleep_and_is_passed_on(number: signal.Signals) -> None:
    got: list[int] = []
    with Sleeper((), (number,), got.append) as sleeper:
        with soon(lambda: os.kill(os.getpid(), number)):
            assert slept(sleeper, LONG) < LONG / 2
        assert got == [number]
        assert slept(sleeper, 0.05) >= 0.05, "the wake-up was taken in: the next sleep is a whole one"


def test_a_watched_descriptor_ends_the_sleep() -> None:
    child = os.fork()
    if child == 0:
        time.sleep(0.05)
        os._exit(0)
    pidfd = os.pidfd_open(child)
    with sleeping(pidfd) as sleeper:
        assert slept(sleeper, LONG) < LONG / 2
        assert sleeper.sleep(0.0) is True
    os.waitpid(child, 0)
    os.close(pidfd)


def test_handlers_and_descriptors_are_given_back() -> None:
    def mine(_number: int, _frame: object) -> None: ...

    before = signal.signal(signal.SIGTERM, mine)
    descriptors = open_descriptors()
    try:
        with sleeping():
            assert signal.getsignal(signal.SIGTERM) is not mine
        assert signal.getsignal(signal.SIGTERM) is mine
        assert open_descriptors() == descriptors
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_rest_is_ended_by_a_signal_alone_also_by_one_before_it() -> None:
    told, told_end = os.pipe()
    os.write(told_end, b"x")
    with sleeping(told) as sleeper:
        assert 0.05 <= rested(sleeper, 0.05) < 1, "what is watched does not end it"
        assert rested(sleeper, -1.0) < 0.5
        with soon(lambda: os.kill(os.getpid(), signal.SIGINT)):
            assert rested(sleeper, LONG) < LONG / 2
    forwarded: list[int] = []
    with Sleeper([], [signal.SIGUSR1], forwarded.append) as sleeper:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert rested(sleeper, LONG) < LONG / 2, "one that is not for memwatch ends it too"
    assert forwarded == [signal.SIGUSR1]
    os.close(told)
    os.close(told_end)


def test_a_rest_that_a_signal_has_ended_can_go_on() -> None:
    with Sleeper((), (signal.SIGUSR1,), lambda _: None) as sleeper:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert rested(sleeper, LONG) < LONG / 2
        assert 0.05 <= rested(sleeper, 0.05) < 1
