"""When it is looked up whether a real trainer handles the signal of an interrupt, and what is reported."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from memwatch.actions.signal_sender import SignalPlan
from memwatch.app.signal_handling_check import (
    FIRST_CHECK_AGE_SECONDS,
    NEXT_CHECK_SECONDS,
    SignalHandlingCheck,
)
from memwatch.core.events import SignalHandlingSeen
from memwatch.core.measurements import SignalHandling
from memwatch.sources.target.target_facts import identify
from memwatch.system.clock import process_age_seconds
from support.processes import python, running
from support.pythons import PROGRAMS

CAUGHT = SignalPlan("SIGINT", True, (), "")
UNCAUGHT = SignalPlan("SIGTERM", False, ("SIGINT",), "")
IGNORED = SignalPlan(None, False, ("SIGINT", "SIGTERM"), "")
OLD_ENOUGH = FIRST_CHECK_AGE_SECONDS


def reacting(how: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / "interrupted.py"), how]


@contextmanager
def looking(pid: int, plan: SignalPlan = CAUGHT) -> Iterator[Callable[[float], SignalHandling | None]]:
    """Polls at a time until the look that is due then has ended; returns what it reports."""
    look = SignalHandlingCheck(identify(pid), lambda: plan)
    assert look.poll(0.0) == [], "the trainer is too young"

    def poll(now: float) -> SignalHandling | None:
        found = look.poll(now)
        while not found and look._task is not None:
            time.sleep(0.01)
            found = look.poll(now)
        for event in found:
            assert isinstance(event, SignalHandlingSeen) and event.t == now
            return event.handling
        return None

    try:
        yield poll
    finally:
        look.close()


def test_a_trainer_that_handles_it_is_looked_at_once() -> None:
    with running(reacting("handler")) as process, looking(process.pid) as poll:
        found = poll(OLD_ENOUGH)
        assert found is not None and found.handled and found.where.startswith("save_on_signal (interrupted.py:")
        assert poll(OLD_ENOUGH + sum(NEXT_CHECK_SECONDS)) is None


def test_one_that_does_not_is_looked_at_three_times() -> None:
    with running(reacting("nothing")) as process, looking(process.pid) as poll:
        first, second = NEXT_CHECK_SECONDS
        times = (OLD_ENOUGH, OLD_ENOUGH + first, OLD_ENOUGH + first + second)
        assert poll(times[0] - process_age_seconds(identify(process.pid).start_ticks) - 1.0) is None, "too young"
        assert [found and found.handled for found in map(poll, times)] == [False, False, False]
        assert poll(times[1] + 1.0) is None
        assert poll(1e6) is None, "enough"


def test_what_is_not_known_is_said_at_the_second_look() -> None:
    with running(["sh", "-c", "echo ready; exec sleep 60"]) as process, looking(process.pid) as poll:
        assert poll(OLD_ENOUGH) is None, "it may not have begun"
        found = poll(OLD_ENOUGH + NEXT_CHECK_SECONDS[0])
        assert found is not None and found.handled is None and "CPython" in found.reason


@pytest.mark.parametrize(("plan", "handled"), [(UNCAUGHT, False), (IGNORED, None)])
def test_a_signal_that_is_not_caught_needs_no_look(plan: SignalPlan, handled: bool | None) -> None:
    with running(python("print('ready', flush=True); import time; time.sleep(60)")) as process:
        look = SignalHandlingCheck(identify(process.pid), lambda: plan, code="raise SystemExit(1)")
        look.poll(0.0)
        found = look.poll(OLD_ENOUGH)
    if handled is None:
        assert found == []
    else:
        assert found == [SignalHandlingSeen(OLD_ENOUGH, SignalHandling("SIGTERM", False, reason="it is not caught"))]


def test_a_trainer_that_ends_meanwhile_leaves_it_unknown() -> None:
    with running(reacting("nothing")) as process, looking(process.pid) as poll:
        poll(OLD_ENOUGH)
        process.kill()
        process.wait()
        found = poll(OLD_ENOUGH + NEXT_CHECK_SECONDS[0])
        assert found is not None and found.handled is None and found.reason
