"""A minute of what `make soak-watch` does for an hour, two days of what it does for a month."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bench.bars import Bar
from soak import hour, month
from soak.bars import hour_bars, month_bars

LINES = ": lines"  # of a start there are more than of an hour: told apart
DESCRIPTORS = "file descriptors more"
FEW = 2  # a window of seconds may miss the moment at which a trainer has no worker
RSS = "RSS, "
BLOCKS = "blocks of"
WARMING_PERCENT = 10.0
WARMING_MIB = 2.0  # the ledger of generations has 1050 of them when it is full, a month's and not two days'


def missed(bars: Sequence[Bar]) -> list[Bar]:
    return [bar for bar in bars if not bar.met]


@pytest.mark.paced
def test_a_minute_at_20_hz_raises_nothing() -> None:
    told = hour.measure(seconds=40.0, rotate_seconds=8.0, generation_seconds=2.0)
    bars = list(hour_bars(told))
    assert not missed([bar for bar in bars if LINES not in bar.of and DESCRIPTORS not in bar.of])
    assert max(bar.value for bar in bars if DESCRIPTORS in bar.of) <= FEW
    for found in told["watches"].values():
        assert found["ticks_total"] > 400 and found["generation"] > 10, "it has looked, and read through rotations"
        assert found["scrapes"] >= 2 and found["exit_code"] == 14
        assert sum(map(len, found["lines"])) < 2000


@pytest.mark.integration
@pytest.mark.timeout(400)  # 8 s on a machine that is free
def test_two_days_by_a_clock_that_is_moved_raise_nothing() -> None:
    told = month.measure(days=2.0, interval=120.0, lengths=[1800.0, 3600.0])
    bars = list(month_bars(told))
    assert not missed([bar for bar in bars if RSS not in bar.of and BLOCKS not in bar.of])
    assert max(bar.value for bar in bars if BLOCKS in bar.of) <= WARMING_PERCENT
    assert max(bar.value for bar in bars if RSS in bar.of) <= WARMING_MIB
    assert told["readings"][-1][0] > 1.8 and told["scrapes"] > 2
    notices, said = told["notices"], "\n".join(told["lines"])
    assert notices["attached"] >= 3 and notices["exited"] == 2, "killed, and done; its configuration changed"
    assert notices["source_failed"] >= 4 == notices["source_recovered"], said
    assert notices["generation"] > 40
