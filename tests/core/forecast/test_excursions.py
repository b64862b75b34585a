"""How far memory rose within a time: from every place of a recording, for spans that double."""

from __future__ import annotations

from itertools import pairwise

import pytest

from memwatch.core.forecast.sample_summaries import (
    MIN_BINS,
    ExcursionDistribution,
    ExcursionHorizon,
    TimeBin,
    excursion_distribution,
)

PER_BIN = 3.0  # seconds


def ramp(count: int, growth: float = 2.0) -> list[TimeBin]:
    """Each bin so much higher than the one before."""
    return [TimeBin(PER_BIN * k, PER_BIN * k + 1.0, 1, growth * k, growth * k, growth * k) for k in range(count)]


def spans(found: ExcursionDistribution | None) -> list[ExcursionHorizon]:
    """All that there are."""
    assert found is not None
    told = [found.within(PER_BIN * 2**k) for k in range(12)]
    return [span for k, span in enumerate(told) if span not in told[:k]]


def test_a_ramp_rises_by_as_much_everywhere() -> None:
    for span in spans(excursion_distribution(ramp(80))):
        assert set(span.rises) == {2.0 * span.seconds / PER_BIN}
        assert span.variance == 0.0


def test_every_span_is_twice_as_long_as_the_one_before() -> None:
    found = spans(excursion_distribution(ramp(200)))
    assert found[0].seconds == pytest.approx(PER_BIN)
    assert len(found) == 6
    assert all(b.seconds == pytest.approx(2.0 * a.seconds) for a, b in pairwise(found))
    assert found[-1].seconds <= 200 * PER_BIN / 4


def test_what_was_asked_for_before_does_not_matter() -> None:
    once, twice = excursion_distribution(ramp(200)), excursion_distribution(ramp(200))
    assert once is not None and twice is not None
    twice.within(1e9)
    assert twice.within(10.0) == once.within(10.0)


@pytest.mark.parametrize(("seconds", "expected"), [(1.0, 3.0), (3.0, 3.0), (3.1, 6.0), (1e9, 96.0)])
def test_a_time_is_answered_by_a_span_that_is_no_shorter(seconds: float, expected: float) -> None:
    found = excursion_distribution(ramp(200))
    assert found is not None and found.within(seconds).seconds == pytest.approx(expected)


def test_the_load_is_no_rise_to_expect() -> None:
    load = [TimeBin(PER_BIN * k, PER_BIN * k + 1.0, 1, 50.0 * k, 50.0 * k, 50.0 * k) for k in range(10)]
    still = [TimeBin(PER_BIN * k, PER_BIN * k + 1.0, 1, 500.0, 500.0, 500.0) for k in range(10, 100)]
    assert all(max(span.rises) == 0.0 for span in spans(excursion_distribution([*load, *still])))


def test_a_short_recording_tells_nothing() -> None:
    assert excursion_distribution(ramp(MIN_BINS)) is None
    assert excursion_distribution([]) is None
