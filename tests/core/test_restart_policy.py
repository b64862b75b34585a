"""When a trainer that saved is started again: bounds that no run can break, and what counts as having got further."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.events import GaveUp, Restarting
from memwatch.core.measurements import Limit
from memwatch.core.restart_policy import (
    LONGEST_PAUSE_SECONDS,
    AttemptEnd,
    AttemptProgress,
    decide_restart,
    made_progress,
    pause_seconds,
)

LIMIT = Limit(4 * 10**9, "cgroup /job", 10**8)
NOTHING = AttemptProgress()

reached = st.builds(
    AttemptProgress,
    unit=st.sampled_from(["generation", "epoch"]),
    index=st.none() | st.floats(0, 50),
    total=st.none() | st.integers(0, 50),
    own_checkpoints=st.integers(0, 2),
)
ends = st.builds(
    AttemptEnd,
    t=st.floats(0, 1e9),
    seconds=st.floats(0, 1e6),
    saved=st.sampled_from([True, True, True, False]),
    progress=reached,
    limit=st.none() | st.just(LIMIT),
)
most = st.none() | st.integers(1, 10)


def at(index: float | None, total: int | None = None, unit: str = "generation", saves: int = 0) -> AttemptProgress:
    return AttemptProgress(unit, index, total, saves)


def end(where: AttemptProgress = NOTHING, saved: bool = True, seconds: float = 60.0) -> AttemptEnd:
    return AttemptEnd(100.0, seconds, saved, where, LIMIT)


def lived(allowed: int | None, lives: Sequence[AttemptEnd]) -> list[Restarting | GaveUp | None]:
    """What is decided at each end of a run, up to the one that is final."""
    decided: list[Restarting | GaveUp | None] = []
    for count in range(1, len(lives) + 1):
        decided.append(decide_restart(allowed, lives[:count], "python main.py"))
        if not isinstance(decided[-1], Restarting):
            break
    return decided


# --- bounds ---------------------------------------------------------------------------------------------------------


@given(most, st.lists(ends, min_size=1, max_size=30))
def test_never_more_often_than_allowed(allowed: int | None, lives: list[AttemptEnd]) -> None:
    restarts = [one for one in lived(allowed, lives) if isinstance(one, Restarting)]
    assert allowed is None or len(restarts) <= allowed
    assert [one.number for one in restarts] == list(range(1, len(restarts) + 1))


@given(most, st.lists(ends, min_size=1, max_size=30))
def test_only_after_an_interrupt_that_saved(allowed: int | None, lives: list[AttemptEnd]) -> None:
    for one, decided in zip(lives, lived(allowed, lives), strict=False):
        assert one.saved or decided is None


@given(most, st.lists(ends, min_size=1, max_size=30))
def test_no_restart_follows_one_that_gained_nothing(allowed: int | None, lives: list[AttemptEnd]) -> None:
    decided = lived(allowed, lives)
    for i in range(1, len(decided)):
        if isinstance(decided[i], Restarting):
            assert made_progress([one.progress for one in lives[:i]], lives[i].progress)


@given(st.lists(ends, min_size=1, max_size=40))
def test_a_pause_is_bounded_and_a_long_life_makes_the_next_short(lives: list[AttemptEnd]) -> None:
    assert 2.0 <= pause_seconds(lives) <= LONGEST_PAUSE_SECONDS
    assert pause_seconds([*lives, end(seconds=3600.0)]) == 2.0


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.integers(1, 100))
def test_a_leak_runs_to_its_end_however_few_generations_fit(steps: list[int], total: int) -> None:
    index, lives = 0, list[AttemptEnd]()
    for step in steps:
        index += step
        lives.append(end(at(index, total)))
    assert all(isinstance(one, Restarting) for one in lived(None, lives))


def test_pauses_of_short_lives_double() -> None:
    found = [pause_seconds([end()] * count) for count in range(1, 9)]
    assert found == [2, 4, 8, 16, 32, 60, 60, 60]
    assert pause_seconds([end()] * 5000) == 60


# --- what counts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "has_gained"),
    [
        ([at(7)], at(8), True),
        ([at(7)], at(7), False),
        ([at(7)], at(3), False),  # an older checkpoint, or none: it may do the same for ever
        ([at(3), at(7), at(5)], at(6), False),
        ([at(7, 12)], at(2, 5), True),  # it counts what is left anew, and less is left
        ([at(7, 12)], at(2, 12), False),
        ([at(7, 12)], at(0, 5), False),
        ([at(0.53, unit="epoch")], at(0.61, unit="epoch"), True),
        ([at(7)], at(None, saves=3), False),
        ([at(None)], at(0), True),
        ([at(None)], at(None), False),
        ([at(None)], at(None, saves=1), True),
        ([at(7)], at(90, unit="step"), False),  # by another counter nobody can tell
        ([at(7)], at(90, unit="step", saves=1), True),
    ],
)
def test_what_counts_as_a_gain(before: list[AttemptProgress], now: AttemptProgress, has_gained: bool) -> None:
    assert made_progress(before, now) is has_gained


# --- words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lives", "allowed", "reason"),
    [
        (
            [at(7), at(7)],
            None,
            "it gained no generation (it was at generation 7 before and after): the limit of 4.0 GB is too low for"
            " this program, or it does not go on from its checkpoint",
        ),
        ([at(7), at(3)], None, "it gained no generation (it reached 3, and 7 before): "),
        ([at(7), at(None)], 9, "it gained no generation (it reached none, and generation 7 before): "),
        ([at(None), at(None)], None, "nothing shows any progress (it names no generations, and completed no "),
        ([at(7), at(8), at(9)], 2, "it needs another one, and --max-restarts allows no more"),
    ],
)
def test_it_says_why_it_gives_up(lives: list[AttemptProgress], allowed: int | None, reason: str) -> None:
    decided = lived(allowed, [end(one) for one in lives])[-1]
    assert isinstance(decided, GaveUp)
    assert decided.restarts == len(lives) - 1
    assert decided.reason.startswith(reason)


def test_an_end_of_another_kind_is_the_end() -> None:
    assert lived(5, [end(at(7)), end(at(9), saved=False)])[-1] is None
