"""How a run stands, as one value from its forecast."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memwatch.core.engine.severity import ABOUT_SECONDS, resource_severity, watch_severity
from memwatch.core.events import Cause, Exited
from memwatch.core.measurements import Limit, Usage
from memwatch.core.snapshot import PlannedInterrupt, Severity, Verdict, WatchState
from support.watch import CALM, GB, growing

USAGE = Usage("host", 80 * GB, Limit(100 * GB, "cgroup /job", 20 * GB))


def stands(outlook, *, warned=False, due=None, last=None, generation=None, usage=USAGE) -> Severity:
    planned = None if due is None else PlannedInterrupt(due, None)
    return resource_severity(
        usage, outlook, warned=warned, planned=planned, last_generation=last, generation_seconds=generation
    )


@pytest.mark.parametrize("verdict", [Verdict.STABLE, Verdict.PLATEAU])
def test_what_stands_still_fits_and_without_a_limit_nothing_is_known(verdict) -> None:
    still = replace(CALM, verdict=verdict)
    assert stands(still) is Severity.FITS
    assert stands(still, usage=Usage("host", 1, None)) is Severity.WATCHING


def test_growth_to_the_limit_does_not_fit_where_the_end_is_known_or_the_limit_is_near() -> None:
    assert stands(growing(900.0, finishes=False), last=40.0) is Severity.WILL_NOT_FIT
    assert stands(growing(900.0)) is Severity.WATCHING
    assert stands(growing(900.0), warned=True) is Severity.WILL_NOT_FIT


def test_a_run_that_ends_first_fits_and_one_that_probably_does_is_watched() -> None:
    assert stands(growing(900.0, finishes=True), last=8.0) is Severity.FITS
    assert stands(growing(900.0, finishes=False, generation=9), last=8.0) is Severity.WATCHING


def test_an_interrupt_within_a_generation_is_about_to_come() -> None:
    assert stands(growing(900.0), due=200.0, generation=300.0) is Severity.ABOUT_TO_INTERRUPT
    assert stands(growing(900.0), due=400.0, generation=300.0, last=40.0) is Severity.WILL_NOT_FIT
    assert stands(growing(900.0), due=ABOUT_SECONDS) is Severity.ABOUT_TO_INTERRUPT


def test_the_watch_stands_as_its_worst_resource_until_it_acts_or_ends() -> None:
    both = [Severity.FITS, Severity.WILL_NOT_FIT]
    assert watch_severity(WatchState.WARNED, None, both) is Severity.WILL_NOT_FIT
    assert watch_severity(WatchState.SAVED, None, both) is Severity.INTERRUPTING
    assert watch_severity(WatchState.WAITING, None, []) is Severity.WATCHING
    ends = [(Cause.COMPLETED, Severity.ENDED_WELL), (Cause.SAVED, Severity.ENDED_BADLY)]
    for cause, expected in [*ends, (Cause.OOM_HOST, Severity.ENDED_BADLY)]:
        assert watch_severity(WatchState.ENDED, Exited(1.0, cause, ()), both) is expected
