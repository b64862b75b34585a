"""Charts: round ticks, thinning that keeps peaks, labels that find room, well-formed markup whatever the words."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memwatch.core.snapshot import Verdict
from memwatch.core.text_and_units import printable
from memwatch.outputs.charts import svg_chart
from memwatch.outputs.charts.svg_axes_and_marks import (
    MOST_DOTS,
    AreaMark,
    Band,
    ChartAxis,
    Dots,
    LineMark,
    PlotArea,
    PolygonMark,
    Rules,
    Scale,
    Spans,
    byte_ticks,
    downsample,
    duration_ticks,
    step_corners,
)
from memwatch.outputs.charts.svg_chart import (
    NARROW,
    WIDE,
    Boundaries,
    DrawingSize,
    Label,
    Panel,
    Ribbon,
    render_svg,
    render_svg_file,
)

GB = 10**9
SVG = "{http://www.w3.org/2000/svg}"
EVIL = "<script>alert('1')</script> & \"q\" ]]> \x00\x1b[31m\u202e\udcff"


def panel(**changes) -> Panel:
    fields = {
        "title": "memory",
        "x": ChartAxis.over(0, 600, duration_ticks),
        "y": ChartAxis.over(0, 100 * GB, byte_ticks),
        "height": 300,
        "marks": [LineMark([(0, 10 * GB), (600, 90 * GB)], "memory")],
    }
    return Panel(**{**fields, **changes})


def parsed(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(markup)


def words(markup: str) -> list[str]:
    return ["".join(text.itertext()) for text in parsed(markup).iter(f"{SVG}text")]


def area(x: tuple[float, float] = (0, 600), y: tuple[float, float] = (0, 100)) -> PlotArea:
    return PlotArea(Scale(*x, 0, 600), Scale(*y, 300, 0))


# --- ticks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "most", "labels"),
    [
        (0, 100 * GB, 6, ["0", "20 GB", "40 GB", "60 GB", "80 GB", "100 GB"]),
        (0, 9.9 * GB, 5, ["0", "2 GB", "4 GB", "6 GB", "8 GB"]),
        (0, 9.9 * GB, 4, ["0", "2.5 GB", "5.0 GB", "7.5 GB"]),
        (-1.1e6, 2.4e6, 4, ["-1 MB", "0", "1 MB", "2 MB"]),
        (0, 3, 9, ["0", "1 B", "2 B", "3 B"]),
    ],
)
def test_sizes_are_round_and_in_one_unit(low, high, most, labels):
    assert [label for _, label in byte_ticks(low, high, most)] == labels


@pytest.mark.parametrize(
    ("high", "most", "labels"),
    [
        (100, 8, ["0", "15 s", "30 s", "45 s", "1 m", "1 m 15 s", "1 m 30 s"]),
        (6400, 8, ["0", "15 m", "30 m", "45 m", "1 h", "1 h 15 m", "1 h 30 m", "1 h 45 m"]),
        (30 * 86400, 4, ["0", "10 d", "20 d", "30 d"]),
        (0.5, 6, ["0", "0.1 s", "0.2 s", "0.3 s", "0.4 s", "0.5 s"]),
    ],
)
def test_durations_are_round(high, most, labels):
    assert [label for _, label in duration_ticks(0, high, most)] == labels


@given(
    ticks=st.sampled_from([byte_ticks, duration_ticks]),
    low=st.floats(-1e12, 1e12),
    span=st.floats(1e-3, 1e15),
    most=st.integers(2, 12),
)
def test_ticks_are_few_within_the_axis_and_told_apart(ticks, low, span, most):
    low = 0.0 if ticks is duration_ticks else low
    assume(ticks is duration_ticks or span >= 10)
    assume(span > 1e-3 * abs(low))  # an axis from 1.0000 to 1.0001 TB is not drawn: axes of sizes begin at 0
    found = ticks(low, low + span, most)
    assert len(found) <= most + 1
    assert all(low - 1e-6 * span <= value <= low + 1.000001 * span for value, _ in found)
    assert len({label for _, label in found}) == len(found)


def test_an_axis_of_no_length_gets_one():
    assert ChartAxis.over(0, 0, byte_ticks).high == 1
    assert ChartAxis.over(5e9, 5e9, byte_ticks).high == 1e10


# --- marks ----------------------------------------------------------------------------------------------------------

points = st.lists(st.tuples(st.floats(0, 600), st.floats(0, 100)), min_size=1, max_size=400).map(sorted)


@given(points)
def test_thinning_keeps_first_lowest_highest_and_last_of_each_column(run):
    scale = Scale(0, 600, 0, 12)  # 12 columns
    kept = downsample(run, scale)
    columns = {math.floor(scale(x)) for x, _ in run}
    assert len(kept) <= max(4 * 12, 4 * len(columns))
    assert list(kept) == sorted(kept, key=lambda point: point[0])
    for column in columns:
        before = [p for p in run if math.floor(scale(p[0])) == column]
        after = [p for p in kept if math.floor(scale(p[0])) == column]
        ends = [before[0], min(before, key=lambda p: p[1]), max(before, key=lambda p: p[1]), before[-1]]
        assert set(ends) <= set(after) <= set(before)


def test_a_peak_of_one_sample_in_ninety_thousand_is_drawn():
    run = [(t, 10.0 if t != 43_210 else 90.0) for t in range(90_000)]
    [markup] = LineMark(run, "memory").draw(area(x=(0, 90_000)))
    assert len(markup) < 40_000
    heights = [float(y) for y in re.findall(r",([\d.]+)", markup)]
    assert (min(heights), max(heights)) == (30, 270)


def test_steps_hold_until_the_next():
    assert step_corners([(0, 1), (5, 2)], 8) == [(0, 1), (5, 1), (5, 2), (8, 2)]
    assert step_corners([], 8) == []
    assert step_corners([(9, 1)], 8) == [(9, 1), (9, 1)], "what was said after the end does not go back"


def test_what_is_infinite_or_far_away_stays_a_number():
    rows = [(0.0, 10.0, math.inf), (300.0, -math.inf, 1e300)]
    [markup] = Band(rows, 600, "forecast").draw(area())
    assert not re.search(r"nan|inf|e\+", markup)


def test_dots_beyond_the_axis_are_arrows_at_its_edge():
    above, inside, below = Dots([(1, 500, "up"), (2, 50, "in"), (3, -9, "down")], "memory").draw(area())
    assert "<circle" in inside and 'cy="150"' in inside and "<title>in</title>" in inside
    assert "M1,1l4,7h-8Z" in above and "M3,299l4,-7h-8Z" in below


def test_very_many_dots_are_one_path():
    [markup] = Dots([(i, 50, "x") for i in range(MOST_DOTS + 1)], "memory").draw(area())
    assert markup.count("M") == MOST_DOTS + 1 and "title" not in markup


def test_shadings_too_short_to_be_told_apart_are_left_out_with_their_legend():
    keys = [("fill tint0 tint", "evaluate")]
    wide = Spans([(0, 50, "tint0"), (50, 90, "tint1"), (100, 150, "tint0")], keys)
    assert [markup.count("M") for markup in wide.draw(area())] == [2, 1]
    short = Spans([(t, t + 1, "tint0") for t in range(0, 600, 2)], keys)
    assert not list(short.draw(area())) and not list(Spans([]).draw(area()))
    assert "evaluate" in words(render_svg([panel(marks=[wide])], WIDE, "x"))
    assert "evaluate" not in words(render_svg([panel(marks=[short])], WIDE, "x"))


def test_rules_in_the_same_pixel_are_one():
    [markup] = Rules([10, 10.1, 10.2, 20], "ink").draw(area())
    assert markup.count("M") == 2
    assert not list(Rules([], "ink").draw(area()))


# --- labels ---------------------------------------------------------------------------------------------------------


def boxes(markup: str) -> list[tuple[float, float, float, float]]:
    """Of each label: left, top, right, bottom, as wide as the renderer takes it to be."""
    found = []
    for text in parsed(markup).iter(f"{SVG}text"):
        if "halo" not in text.get("class", ""):
            continue
        spans = [(float(s.get("x")), float(s.get("y")), len(s.text)) for s in text.iter(f"{SVG}tspan")]
        font = WIDE.font
        right = max(x + svg_chart.LETTER * font * letters for x, _, letters in spans)
        found.append((spans[0][0], spans[0][1] - 0.95 * font, right, spans[-1][1] + 0.3 * font))
    return found


def test_labels_keep_clear_of_each_other_and_of_the_line():
    labels = [Label(300, None, ("interrupt", "no room", "1 GB left")), Label(310, None, ("restart",))]
    markup = render_svg([panel(labels=labels)], WIDE, "x")
    a, b = boxes(markup)
    assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    frame = area_of(markup)
    for left, top, right, bottom in (a, b):
        assert frame[0] <= left < right <= frame[2] and frame[1] <= top < bottom <= frame[3]
        for t in range(601):  # the line goes from a tenth to nine tenths of the height
            x = frame[0] + t / 600 * (frame[2] - frame[0])
            y = frame[3] - (0.1 + 0.8 * t / 600) * (frame[3] - frame[1])
            assert not (left < x < right and top < y < bottom), "a label stands on the line"


def area_of(markup: str) -> tuple[float, float, float, float]:
    """The box in which marks are drawn."""
    inner = parsed(markup).find(f"{SVG}svg")
    assert inner is not None
    x, y, wide, high = (float(inner.get(name)) for name in ("x", "y", "width", "height"))
    return x, y, x + wide, y + high


def test_a_label_at_the_right_edge_stands_to_the_left_of_its_point():
    markup = render_svg([panel(labels=[Label(599, 90 * GB, ("limit reached",))])], WIDE, "x")
    [(_, _, right, _)] = boxes(markup)
    assert right < area_of(markup)[2]


# --- panels ---------------------------------------------------------------------------------------------------------


def test_generations_stand_along_the_top_as_many_as_can_be_read():
    few = panel(boundaries=Boundaries([(i * 60.0, i) for i in range(10)], "epoch"))
    many = panel(boundaries=Boundaries([(i * 0.6, i) for i in range(1000)], "epoch"))
    assert {"epoch", "1", "9"} <= set(words(render_svg([few], WIDE, "x")))
    shown = [int(word) for word in words(render_svg([many], NARROW, "x")) if word.isdigit() and int(word) > 60]
    assert 3 <= len(shown) <= 12 and all(index % 100 == 0 for index in shown)


def test_a_ribbon_names_what_is_wide_enough_and_skips_what_cannot_be_seen():
    pieces = [(0, 300, "warming_up"), (300, 300.01, "stable"), (300.01, 310, "growing"), (310, 600, "leak")]
    markup = render_svg([panel(ribbon=Ribbon(pieces, "verdict"))], WIDE, "x")
    rects = [rect.get("class") for rect in parsed(markup).iter(f"{SVG}rect")]
    assert rects == ["fill warming_up", "fill growing", "fill leak"]
    assert {"warming up", "leak", "verdict"} <= set(words(markup)) and "growing" not in words(markup)


def test_panels_stand_below_each_other():
    one, two = (parsed(render_svg([panel()] * n, WIDE, "x")) for n in (1, 2))
    assert float(two.get("height")) == 2 * float(one.get("height"))
    assert two.get("viewBox") == f"0 0 1000 {two.get('height')}"


def test_a_document_brings_its_style_and_a_drawing_does_not():
    alone, within = render_svg_file([panel()], WIDE, ["title", "words"]), render_svg([panel()], WIDE, "x")
    assert "<style>" in alone and "prefers-color-scheme:dark" in alone and "<style>" not in within
    assert "prefers-color-scheme" not in render_svg_file([panel()], WIDE, ["title"], dark=False)
    assert words(alone)[:2] == ["title", "words"]


@given(st.text(max_size=300), st.integers(5, 40))
def test_text_is_broken_between_words_and_nothing_is_lost(text, most):
    lines = svg_chart.wrap_lines(text, most)
    assert all(len(line) <= most for line in lines)
    assert "".join(lines).replace(" ", "") == printable(text, 1000).replace(" ", "")


@pytest.mark.parametrize("frame", [WIDE, NARROW])
@given(text=st.one_of(st.text(max_size=40), st.just(EVIL)))
def test_any_words_are_well_formed_and_never_markup(frame, text):
    pieces = [(0, 300, text), (300, 600, "leak")]
    one = panel(
        title=text,
        legend=[("fill tint0 tint", text), ("line memory", text), ("dot memory", text)],
        labels=[Label(100, None, (text, text)), Label(200, 5 * GB, (text,))],
        boundaries=Boundaries([(0, 1), (60, 2.5)], text),
        ribbon=Ribbon(pieces, text),
        marks=[Dots([(1, GB, text), (2, 900 * GB, text)], "memory")],
    )
    for markup in (render_svg([one], frame, text), render_svg_file([one], frame, [text, text])):
        root = parsed(markup)
        tags = {element.tag.removeprefix(SVG) for element in root.iter()}
        assert tags <= {"svg", "g", "path", "circle", "rect", "text", "tspan", "title", "style"}
        attributes = {name for element in root.iter() for name in element.attrib}
        assert not {name for name in attributes if name.startswith(("on", "href", "{"))}


# --- colours --------------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    """Relative, of `#rrggbb`: WCAG 2.1."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_words_and_lines_stand_out_from_their_paper(scheme):
    for role in ("ink", "muted", "limit", "forecast", "memory"):
        assert contrast(svg_chart.PALETTE[role][scheme], svg_chart.PAPER[scheme]) >= 4.5, role
    for verdict in Verdict:
        assert contrast(svg_chart.PALETTE[verdict.value][scheme], "#16191d") >= 4.5, verdict
    assert "#16191d" in svg_chart.stylesheet()


def test_every_class_that_marks_use_has_a_rule():
    one = panel(
        marks=[
            PolygonMark([(0, 0), (1, 1)], "forecast faint"),
            AreaMark([(0, 0), (1, 1)], "memory wash"),
            Rules([1], "dotted muted"),
        ],
        labels=[Label(100, None, ("a", "b"))],
        boundaries=Boundaries([(0, 1)], "epoch"),
        ribbon=Ribbon([(0, 600, "leak")], "verdict"),
    )
    markup = render_svg_file([one], DrawingSize(500, 60, 10, 12), ["a", "b"])
    used = {name for found in re.findall(r'class="([^"]*)"', markup) for name in found.split()}
    assert used <= set(re.findall(r"\.([a-z]\w*)", svg_chart.stylesheet()))
