"""The growth beside the trainer's own tree: how fast, whose, and what of it counts."""

from __future__ import annotations

import pytest

from memwatch.core.leaks.growth_attribution import MIN_READINGS, READINGS, NeighbourGrowthTracker
from memwatch.core.measurements import Neighbour, Neighbours

MB = 10**6


def reading(other: int, member: int = 0, cgroup: str = "/job") -> Neighbours:
    """Of two others, of which the second grows, and a worker."""
    largest = (
        Neighbour(20, "db", 900 * MB),
        Neighbour(21, "python3 serve.py", other),
        Neighbour(22, "ray::Worker", member, "environment"),
    )
    return Neighbours(cgroup, 900 * MB + other, 2, member, 1, largest)


def tracker(*readings: Neighbours) -> NeighbourGrowthTracker:
    known = NeighbourGrowthTracker()
    for number, each in enumerate(readings):
        known.add(2.0 * number, each)
    return known


def test_the_slope_is_the_growth_and_the_fastest_is_named():
    growth = tracker(*[reading(10 * n * MB, 2 * n * MB) for n in range(6)]).growth(counts_others=True)
    assert (growth.others_per_second, growth.members_per_second) == pytest.approx((5 * MB, MB))
    assert growth.per_second == pytest.approx(6 * MB)
    assert growth.whose == "others: python3 serve.py (pid 21)", "the largest stands still"


def test_where_the_cgroup_is_not_forecast_others_do_not_count():
    growth = tracker(*[reading(10 * n * MB, 2 * n * MB) for n in range(6)]).growth(counts_others=False)
    assert (growth.per_second, growth.largest_other) == (pytest.approx(MB), None)
    assert growth.whose == "workers that are no children: ray::Worker (pid 22)"


def test_nothing_is_known_at_first_nor_where_another_cgroup_binds():
    known = tracker(*[reading(10 * n * MB) for n in range(MIN_READINGS - 1)])
    assert known.growth(counts_others=True) is None
    known.add(9.0, reading(30 * MB))
    assert known.growth(counts_others=True) is not None
    known.add(10.0, reading(30 * MB, cgroup="/pod"))
    assert known.growth(counts_others=True) is None
    known.begin_attempt()
    assert known.latest is None


def test_what_shrinks_is_no_growth():
    growth = tracker(*[reading((99 - n) * MB) for n in range(6)]).growth(counts_others=True)
    assert growth.per_second == 0.0


def test_growth_that_is_over_is_forgotten():
    growth = tracker(*[reading(min(n, 10) * MB) for n in range(10 + READINGS)]).growth(counts_others=True)
    assert growth.per_second == 0.0
