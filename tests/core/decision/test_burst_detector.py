"""The guard against bursts."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.decision.burst_detector import (
    BURST_SAMPLES,
    CEILING_SECONDS,
    PERIOD_FLOOR_SECONDS,
    PERIOD_SECONDS,
    RISES_KEPT,
    BurstDetector,
    RampDetector,
)

GB = 10**9


def climb(burst: BurstDetector, t: float, values: list[float]) -> bool:
    threatened = False
    for value in values:
        t += 1
        burst.add_samples((t,), (int(value * GB),))
        threatened |= value >= 98 and burst.threat_rate(int((100 - value) * GB), 100 * GB, 15) > 0.0
    return threatened


def test_a_burst_beyond_all_before_threatens_near_the_limit_only():
    burst = BurstDetector()
    assert not climb(burst, 0, [50.0] * 60)
    assert not climb(burst, 60, [55, 60, 65, 70, 75, 80])
    assert climb(burst, 66, [85, 90, 95, 98])


def test_a_climb_like_those_before_does_not_threaten():
    burst = BurstDetector()
    t = 0.0
    for _ in range(6):
        climb(burst, t, [*[60.0] * 30, 70, 80, 90, *[60.0] * 30])
        t += 63
    assert not climb(burst, t, [*[64.0] * 30, 74, 84, 94])


class Plain:
    """The ceiling and the climbs by their definition, from all readings that there were."""

    def __init__(self) -> None:
        self.looks: list[tuple[float, int]] = []
        self.learned = 0
        self.rises = deque([0], maxlen=RISES_KEPT)
        self.period_t: float | None = None

    def observe(self, t: float, used_bytes: int) -> None:
        self.looks.append((t, used_bytes))
        while self.is_over(t, self.learned):
            begun, used = self.looks[self.learned]
            self.learned += 1
            after = [u for at, u in self.looks[self.learned :] if at <= begun + CEILING_SECONDS]
            self.rises[-1] = max(self.rises[-1], max(after, default=used) - used)
        if self.period_t is None or t - self.period_t > PERIOD_SECONDS:
            self.begin_period(t)

    def is_over(self, t: float, number: int) -> bool:
        return self.looks[number][0] < min(t - 2 * CEILING_SECONDS, self.looks[-BURST_SAMPLES:][0][0])

    def begin_period(self, t: float) -> None:
        if self.period_t is None or t - self.period_t >= PERIOD_FLOOR_SECONDS:
            self.period_t = t
            self.rises.append(0)

    @property
    def ceiling(self) -> int:
        return max([self.looks[0][1], *(used for at, used in self.looks if at < self.looks[-1][0] - CEILING_SECONDS)])


@given(
    readings=st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.05, 0.5, 1.0, 3.0, 9.9, 10.0, 12.0, 60.0, 700.0]),
            st.integers(0, 20),
            st.sampled_from([False] * 9 + [True]),
        ),
        min_size=1,
        max_size=150,
    )
)
def test_what_is_kept_of_the_readings_is_what_all_of_them_say(readings):
    burst, plain, t = BurstDetector(), Plain(), 0.0
    for gap, used, begins in readings:
        t += gap
        burst.add_samples((t,), (used,))
        plain.observe(t, used)
        if begins:
            burst.begin_period(t)
            plain.begin_period(t)
        assert burst._ceiling == plain.ceiling
        assert burst._rises == plain.rises


def test_what_is_kept_is_bounded():
    burst = BurstDetector()
    for i in range(20_000):
        burst.add_samples((i * 0.05,), ((i * 7919) % 1000,))
    kept = [*burst._recent, *burst._climbs._starts, *burst._climbs._ahead, *burst._climbs._tops]
    assert len(kept) < 4 * 2 * CEILING_SECONDS / 0.05


LEAD = 16.0


def ramp(levels: list[float]) -> list[int]:
    """At which of the readings, one a second, a ramp threatens. GB of 100."""
    ramp, threatened = RampDetector(), []
    for t, level in enumerate(levels):
        ramp.set_window_seconds(LEAD)
        ramp.add_samples((float(t),), (int(level * GB),))
        if ramp.threat_rate(int((100 - level) * GB)):
            threatened.append(t)
    return threatened


def test_a_steady_climb_to_the_limit_threatens_before_a_checkpoint_would_be_too_late():
    seconds = 100
    at = ramp([50.0] * 60 + [50 + 0.5 * t for t in range(seconds)])
    assert at and 60 < at[0] < 60 + seconds - LEAD


@pytest.mark.parametrize(
    ("levels", "since"),
    [
        pytest.param([90.0] * 200, 0, id="no growth"),
        pytest.param([60.0] * 60 + [95.0] * 100, 0, id="a step that stays"),
        pytest.param(([60.0 + t for t in range(36)] + [60.0] * 36) * 5, 72, id="a climb such as there was"),
        pytest.param([50 + 0.02 * t for t in range(1000)], 0, id="slow"),
        pytest.param([50 + 0.01 * t + (35.0 if t >= 60 else 0.0) for t in range(120)], 0, id="a step in a slow climb"),
    ],
)
def test_what_is_no_ramp(levels, since):
    assert [t for t in ramp(levels) if t >= since] == []
