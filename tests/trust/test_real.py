"""Some small real trainers: leaks end with a whole checkpoint, others are left alone; `make trust-real` plays more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trust.marks import REAL
from trust.pool import Ahead, players
from trust.real import SEED, play

JOBS = 3
NUMBERS = (0, 3, 4, 5, 18, 21, 22, 23)  # leaking, then healthy: linear, sawtooth, plateau, resume

pytestmark = REAL


@pytest.fixture(scope="module")
def ahead(request: pytest.FixtureRequest) -> Iterator[Ahead]:
    wanted = [item.callspec.params["number"] for item in request.session.items if item.path == Path(__file__)]
    with players(JOBS) as pool:
        yield Ahead(pool, play, [(number, SEED) for number in wanted])


@pytest.mark.parametrize("number", NUMBERS)
def test_a_leak_is_saved_and_a_healthy_run_is_left_alone(ahead: Ahead, number: int) -> None:
    row = ahead.row(number, SEED)
    assert not row["bad"], row
    assert row["replays"] and row.get("tried", True)
