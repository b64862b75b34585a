"""The line that leaks is the first of those that `memwatch profile` tells, for each leak of the example trainer."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.lines import profile
from support.leaks import LINES

pytestmark = pytest.mark.paced  # where no core is idle, fewer rises are seen closely


@pytest.mark.parametrize("leak", LINES)
def test_the_line_that_leaks_is_first(leak: str, tmp_path: Path) -> None:
    # Where no core is idle, too little of the growth may be seen: then no line is named, or a lesser one.
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        told = profile(leak, folder)
        if told["share"] * told["seen"] > 0.1 and told["grown_mb"] > 10:
            break
    assert told["grown_mb"] > 10 and told["right"], told
