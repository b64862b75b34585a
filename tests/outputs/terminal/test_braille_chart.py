"""A chart in characters: the past where it was, the limit where it is, the fan where it leads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwatch.core.measurements import Limit, Usage
from memwatch.core.snapshot import Forecast, ResourceView, TimelineStep
from memwatch.outputs.terminal.braille_chart import FORECAST, FORECAST_EDGE, LIMIT, MEMORY, braille_chart
from support.snapshots import make_view

MB = 10**6


def view(
    levels: list[int], limit: int | None = 1000, forecast: Forecast | None = None, seconds: float = 1.0
) -> ResourceView:
    """Levels in MB, one a second, and a limit in MB."""
    used = levels[-1] * MB if levels else 0
    bound = None if limit is None else Limit(limit * MB, "host", limit * MB - used)
    steps = tuple(TimelineStep(i * seconds, seconds, level * MB, level * MB) for i, level in enumerate(levels))
    peak = max(levels, default=0) * MB
    return replace(
        make_view(0),
        usage=Usage("host", used, bound),
        peak_bytes=peak,
        forecast=forecast,
        timeline=steps,
        generations=(),
    )


def drawn(shown: ResourceView, now: float, width: int = 69, height: int = 11, ascii_only: bool = True) -> list[str]:
    return ["".join(text for _, text in line) for line in braille_chart(shown, now, width, height, ascii_only)]


def cells(shown: ResourceView, now: float, role: int) -> set[tuple[int, int]]:
    """(column, row from above) of a role."""
    found = set()
    for y, line in enumerate(braille_chart(shown, now, 69, 11, ascii_only=True)):
        x = 0
        for one, text in line:
            found |= {(x + i, y) for i in range(len(text))} if one == role else set()
            x += len(text)
    return found


def test_a_line_that_rises_to_its_limit_goes_from_the_lower_left_to_the_upper_right():
    lines = drawn(view([1000 * i // 59 for i in range(60)]), 60.0)
    assert lines[1].startswith("  1.0 GB|") and lines[9].startswith("     0 B|#")
    assert lines[1].endswith("#") and lines[-1].strip().startswith("1 m ago") and lines[-1].endswith("now")


def test_the_fan_begins_at_the_last_level_and_meets_the_limit_at_its_times():
    shown = view([500] * 60, forecast=Forecast(30.0, 15.0, 60.0))
    assert max(x for x, _ in cells(shown, 60.0, MEMORY)) == pytest.approx(9 + 30, abs=2)
    ends = {x for x, y in cells(shown, 60.0, FORECAST) | cells(shown, 60.0, FORECAST_EDGE) if y == 1}
    assert min(ends) == pytest.approx(9 + 37, abs=2) and max(ends) == pytest.approx(9 + 58, abs=2)
    assert {y for _, y in cells(shown, 60.0, LIMIT)} == {1}


def test_a_meeting_that_is_far_off_does_not_press_the_past_against_the_edge():
    shown = view([500] * 60, forecast=Forecast(90_000.0, 80_000.0, None))
    assert max(x for x, _ in cells(shown, 60.0, MEMORY)) > 9 + 28


def test_a_limit_that_is_far_above_is_left_out_unless_it_will_be_met():
    assert cells(view([50] * 60), 60.0, LIMIT) == set()
    assert drawn(view([50] * 60), 60.0)[1].startswith(" 50.0 MB|#")
    assert cells(view([50] * 60, forecast=Forecast(90.0, 80.0, None)), 60.0, LIMIT)
    assert drawn(view([50] * 60, limit=None), 60.0)[1].startswith(" 50.0 MB|#")


def test_a_peak_and_a_fall_are_joined_and_where_nothing_was_read_there_is_a_gap():
    peak = cells(view([100] * 20 + [900] + [100] * 39), 60.0, MEMORY)
    assert {y for x, y in peak if abs(x - 29) <= 1} == set(range(1, 9))
    gone = view([500] * 60)
    gone = replace(gone, timeline=gone.timeline[:20] + gone.timeline[40:])
    columns = {x - 9 for x, _ in cells(gone, 60.0, MEMORY)}
    assert not columns & set(range(22, 38)) and {10, 50} <= columns


def test_generations_stand_where_they_begin():
    shown = make_view(4)
    line = drawn(shown, shown.timeline[-1].t + 750, ascii_only=False)[-1]
    assert line.split() == ["1", "2", "3", "4", "now"]


def test_where_there_is_nothing_to_draw_or_no_room_there_is_no_chart():
    assert (
        braille_chart(view([]), 1.0, 80, 10) == []
        and braille_chart(view([1]), 1.0, 20, 10) == []
        and braille_chart(view([1]), 1.0, 80, 2) == []
    )


amounts = st.integers(0, 2**49)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.floats(1e-3, 1e7), amounts, amounts), min_size=1, max_size=50),
    amounts,
    st.tuples(*[st.none() | st.floats(0, 1e12)] * 3),
    st.integers(1, 200),
    st.integers(1, 40),
    st.booleans(),
)
def test_any_watch_fits_its_frame(steps, limit, etas, width, height, ascii_only):
    t, timeline = 0.0, []
    for seconds, a, b in steps:
        timeline.append(TimelineStep(t, seconds, min(a, b), max(a, b)))
        t += seconds
    used = steps[-1][1]
    usage = Usage("host", used, Limit(limit, "host", limit - used))
    peak = max(one.most_bytes for one in timeline)
    shown = replace(make_view(3), usage=usage, peak_bytes=peak, forecast=Forecast(*etas), timeline=tuple(timeline))
    lines = drawn(shown, t, width, height, ascii_only)
    assert len(lines) in (0, height) and all(len(line) <= width for line in lines)
    assert not ascii_only or "".join(lines).isascii()
