"""The levels at which a look is wanted at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.decision.emergency_interrupt import GUARDS, wake_thresholds
from memwatch.core.measurements import Limit

GB = 10**9
LIMIT = 100 * GB


def rooms(used: int, peak: int, guard: float = 0.05) -> list[float]:
    return [room / GB for room in wake_thresholds(Limit(LIMIT, "cgroup /a", LIMIT - used), used, peak, guard)]


def test_they_divide_the_room_above_the_highest_use_and_end_at_the_guard():
    assert rooms(10 * GB, 20 * GB) == [40.0, 20.0, *(share * 5.0 for share in GUARDS)]


def test_below_what_memory_reaches_again_and_again_nobody_is_woken():
    assert rooms(10 * GB, 85 * GB) == rooms(80 * GB, 85 * GB) == [share * 5.0 for share in GUARDS]


def test_without_a_guard_there_are_halves_alone():
    assert rooms(0, 0, 0.0) == [50.0, 25.0, 12.5, 6.25]


@given(used=st.integers(0, LIMIT), more=st.integers(0, LIMIT), guard=st.floats(0, 0.5))
def test_they_are_bytes_below_the_limit_the_most_first(used, more, guard):
    found = rooms(used, min(used + more, LIMIT), guard)
    assert found == sorted(found, reverse=True) and len(found) <= 9
    assert all(0 <= room <= LIMIT / GB for room in found)
