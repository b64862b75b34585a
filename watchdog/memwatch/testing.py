"""For tests: fails where a piece of code keeps memory each time that it runs. It uses the forecast of a watch.

from memwatch.testing import assert_no_growth

def test_a_step_keeps_nothing(trainer):
    assert_no_growth(trainer.step, most="100 kB")
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

from memwatch.core.forecast.forecaster import Forecaster
from memwatch.core.snapshot import Verdict
from memwatch.core.text_and_units import format_bytes, parse_size

SAMPLES = 4  # of one call on the forecast's clock, so that it counts as a generation of its own
GROWS = (Verdict.GROWING, Verdict.LEAK)
_PAGE = os.sysconf("SC_PAGESIZE")


def assert_no_growth(step: Callable[[], object], *, most: str = "100 kB", times: int = 30, warm_up: int = 5) -> None:
    """Call `step` again and again; AssertionError where this process keeps more than `most` of each call.

    The first `warm_up` calls are not counted. What grows and levels off, such as a cache that fills, is no growth.
    ValueError for a size without a unit, and for fewer than ten `times`: growth cannot be told from noise.
    """
    bound = parse_size(most)
    if times < 10:
        raise ValueError(f"times is {times}: growth cannot be told from noise; give at least 10")
    for _ in range(warm_up):
        step()
    forecaster, t = Forecaster(), 0.0
    first = used = own_bytes()
    for number in range(1, times + 1):
        step()
        used = own_bytes()
        forecaster.begin_generation(t, number)
        forecaster.add_samples([t + i for i in range(SAMPLES)], [used] * SAMPLES)
        t += SAMPLES
    forecaster.begin_generation(t, times + 1)
    outlook = forecaster.outlook(t, None, None, None)
    growth = outlook.trend.growth_per_generation if outlook.trend is not None else None
    if growth is not None and growth > bound and outlook.verdict in GROWS:
        raise AssertionError(
            f"memory grows by {format_bytes(growth)} a call, more than {most}: "
            f"from {format_bytes(first)} to {format_bytes(used)} in {times} calls"
        )


def own_bytes() -> int:
    """Memory of this process without pages of files, in bytes, once all that nobody refers to is collected."""
    gc.collect()
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_bytes().split())
    return (resident - shared) * _PAGE
