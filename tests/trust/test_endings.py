"""One ending of many kinds, for real: what memwatch says of it is so. `make trust-endings` plays hundreds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trust.endings import play
from trust.kinds import KINDS
from trust.marks import REAL
from trust.pool import Ahead, players

SLOW = {  # a variant of another, or a wait of seconds
    *("exception", "survived, completed", "survived a generation", "shell, failed", "shell, child crashed", "crashed"),
    *("somebody's interrupt", "OOM killer, parents", "OOM killer, memwatch acting", "OOM killer at once"),
    *("worker killed, completed", "worker killed, failed", "worker killed, somebody's SIGKILL", "ranks fail"),
    *("neighbour killed, SIGKILL", "neighbour killed, failed", "interrupted, saves slowly", "interrupted, killed"),
    *("interrupted, saved, OOM killer", "interrupted, somebody's SIGKILL", "interrupted, another program"),
    *("memwatch stopped", "memwatch killed", "memwatch killed, survived", "memwatch killed as it saves"),
    *("memwatch killed, interrupted", "second attempt, exception", "another program"),
}
SEED, JOBS = 4242, 3
WANTED = [kind for kind in KINDS if kind not in SLOW]

pytestmark = REAL


@pytest.fixture(scope="module")
def ahead(request: pytest.FixtureRequest) -> Iterator[Ahead]:
    wanted = [item.callspec.params["kind"] for item in request.session.items if item.path == Path(__file__)]
    with players(JOBS) as pool:
        yield Ahead(pool, play, [(number, SEED, kind) for number, kind in enumerate(KINDS) if kind in wanted])


@pytest.mark.parametrize("kind", WANTED)
def test_an_end_is_told_as_it_was(ahead: Ahead, kind: str) -> None:
    row = ahead.row(list(KINDS).index(kind), SEED, kind)
    assert row["verdict"] in ("true", "unknown", "vague", "nothing"), row
    assert row["replays"]
    if kind not in ("before it is attached", "neighbour killed, SIGKILL, no kernel log"):  # what there is to know
        assert row["verdict"] == "true", row
