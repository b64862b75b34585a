"""Panels as charts that can be zoomed and pointed at, by Plotly: the one room that knows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatchmethod

import plotly.graph_objects as go
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from memwatch.outputs.charts.svg_chart import PALETTE, Boundaries, Label, Panel, Ribbon
from memwatch.outputs.charts.svg_marks import (
    AreaMark,
    Band,
    Bars,
    ChartAxis,
    Dots,
    LineMark,
    Mark,
    Point,
    PolygonMark,
    Rules,
    Scale,
    Spans,
    byte_ticks,
    count_ticks,
    downsample,
    duration_ticks,
    round_up,
    step_corners,
)
from memwatch.outputs.html import html_document
from memwatch.outputs.html.html_document import ChartRenderer, Markup
from memwatch.outputs.text.formatting import format_index

PLOTLY_CSP = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
COLUMNS = 2500  # of which a line keeps its extremes: there is something to zoom into
UNITS = (("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0))
MOST_INDEXES = 30  # along the top
GREY = "rgba(128,128,128,0.25)"
OPACITY = {"faint": 0.22, "tint": 0.16, "wash": 0.1}
INDEX_PIXELS = 18.0  # for indices along the top
MARGIN = {"l": 80, "r": 20, "t": 50, "b": 40}
PLOTLY_CSS = """
.plotly-graph-div{margin:.4em 0}
.js-plotly-plot :is(.xtick,.ytick,.legend,.annotation,.infolayer) text{fill:var(--ink)!important}
"""


def plotly_charts() -> ChartRenderer:
    """Each panel as a chart of its own; the script that draws them is in the page: nothing is loaded from elsewhere."""
    head = (
        f"<style>{PLOTLY_CSS}</style><script>{get_plotlyjs()}</script><noscript><p>The charts need JavaScript; "
        "memwatch report --static draws them without.</p></noscript>"
    )
    return ChartRenderer(_Numbered().draw, Markup(head), PLOTLY_CSP)


class _Numbered:
    """Charts that know each other's number: what names them in the page."""

    def __init__(self) -> None:
        self._count = 0

    def draw(self, panels: Sequence[Panel]) -> Markup:
        """One after the other."""
        return Markup("".join(map(self._chart, panels)))

    def _chart(self, panel: Panel) -> str:
        self._count += 1
        name = f"chart{self._count}"
        figure = _Drawing(panel).figure()
        drawn = to_html(figure, include_plotlyjs=False, full_html=False, config=_CONFIG, div_id=name)
        return html_document.element("h3", html_document.escape_html(panel.title)) + str(drawn)


_CONFIG = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d"]}


class _Scaled:
    """Values of an axis as Plotly gets them: durations in the unit that suits the axis."""

    def __init__(self, axis: ChartAxis) -> None:
        span = axis.high - axis.low
        self.unit, self._size = "", 1.0
        if axis.ticks is duration_ticks:
            self.unit, self._size = next((one for one in UNITS if span >= 2 * one[1]), UNITS[-1])
        self._far = axis.high + 4.0 * span
        self._axis = axis

    def __call__(self, value: float) -> float:
        """What is infinite is far outside."""
        return min(max(value, -self._far), self._far) / self._size

    @property
    def layout(self) -> dict[str, object]:
        """How its ticks are written."""
        given: dict[str, object] = {"ticksuffix": f" {self.unit}"}
        if self._axis.ticks is byte_ticks:
            given = {"tickformat": "~s", "ticksuffix": "B"}
        elif self._axis.ticks is count_ticks:
            given = {"tickformat": ",d"}
        bounds = [self(self._axis.low), self(self._axis.high)]
        ticks = {"ticks": "outside", "ticklen": 5, "tickcolor": GREY}
        return {"range": bounds, "gridcolor": GREY, "zerolinecolor": GREY, **ticks, **given}


class _Drawing:
    """One panel on its way to a figure."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._x, self._y = _Scaled(panel.x), _Scaled(panel.y)
        self._columns = Scale(panel.x.low, panel.x.high, 0.0, COLUMNS)
        self._legend = dict(
            [*panel.legend, *(key for mark in panel.marks if isinstance(mark, Spans) for key in mark.keys)]
        )
        self._figure = go.Figure()

    def figure(self) -> go.Figure:
        """The whole chart."""
        panel = self._panel
        if panel.boundaries is not None:
            self._boundaries(panel.boundaries)
        for mark in panel.marks:
            self._draw(mark)
        for label in panel.labels:
            self._label(label)
        above = 0.0 if panel.boundaries is None else INDEX_PIXELS
        bottom = 0.0
        if panel.ribbon is not None:
            bottom = 0.09
            self._ribbon(panel.ribbon)
        self._figure.update_layout(
            height=panel.height + MARGIN["t"] + MARGIN["b"],
            margin=MARGIN,
            xaxis={**self._x.layout, "anchor": "free", "position": 0.0},
            yaxis={**self._y.layout, "domain": [bottom, 1.0]},
            legend={
                "orientation": "h",
                "x": 0,
                "y": 1.0 + above / panel.height,
                "yanchor": "bottom",
                "xanchor": "left",
            },
            modebar={"bgcolor": "rgba(0,0,0,0)", "color": GREY, "activecolor": PALETTE["muted"][0]},
            paper_bgcolor="rgba(0,0,0,0)",
            plot_bgcolor="rgba(0,0,0,0)",
            hovermode="closest",
            hoverlabel={"bgcolor": PALETTE["ink"][0], "font": {"color": "#ffffff"}, "align": "left"},
            barmode="overlay",
            template="none",
        )
        return self._figure

    # --- marks ---

    @singledispatchmethod
    def _draw(self, mark: Mark) -> None:
        raise TypeError(f"{type(mark).__name__} cannot be drawn")

    @_draw.register
    def _(self, mark: LineMark) -> None:
        self._scatter(
            downsample(mark.points, self._columns),
            f"line {mark.style}",
            mode="lines",
            line=_pen(mark.style),
            **({"hoverinfo": "skip"} if "muted" in mark.style else {}),
        )

    @_draw.register
    def _(self, mark: AreaMark) -> None:
        ground = self._panel.y.low
        points = downsample(mark.points, self._columns)
        self._area([(points[0][0], ground), *points, (points[-1][0], ground)], mark.style)

    @_draw.register
    def _(self, mark: PolygonMark) -> None:
        self._area(mark.points, mark.style)

    @_draw.register
    def _(self, mark: Band) -> None:
        low = step_corners([(x, low) for x, low, _ in mark.rows], mark.until)
        high = step_corners([(x, high) for x, _, high in mark.rows], mark.until)
        self._area([*low, *reversed(high)], mark.style)

    @_draw.register
    def _(self, mark: Spans) -> None:
        if not mark.is_seen(Scale(self._panel.x.low, self._panel.x.high, 0.0, 1000.0)):
            return
        low, high = self._panel.y.low, self._panel.y.high
        for style in dict.fromkeys(style for _, _, style in mark.spans):
            boxes = [(start, end) for start, end, its in mark.spans if its == style]
            corners = [[(start, low), (start, high), (end, high), (end, low)] for start, end in boxes]
            self._area(_separate(corners), style)

    @_draw.register
    def _(self, mark: Rules) -> None:
        low, high = self._panel.y.low, self._panel.y.high
        self._scatter(
            _separate([[(x, low), (x, high)] for x in mark.xs]),
            f"line {mark.style}",
            mode="lines",
            line=_pen(mark.style),
            hoverinfo="skip",
        )

    @_draw.register
    def _(self, mark: Dots) -> None:
        self._scatter(
            [(x, y) for x, y, _ in mark.points],
            f"dot {mark.style}",
            mode="markers",
            marker={"color": _colour(mark.style), "size": 2.2 * mark.radius},
            text=[html_document.escape_html(words) for _, _, words in mark.points],
            hovertemplate="%{text}<extra></extra>",
        )

    @_draw.register
    def _(self, mark: Bars) -> None:
        name = self._legend.get(f"fill {mark.style}", "")
        self._figure.add_bar(
            x=[self._x(0.5 * (start + end)) for start, end, *_ in mark.boxes],
            width=[self._x(end) - self._x(start) for start, end, *_ in mark.boxes],
            base=[self._y(low) for _, _, low, _, _ in mark.boxes],
            y=[self._y(high - low) for _, _, low, high, _ in mark.boxes],
            marker={"color": _colour(mark.style)},
            hovertext=[html_document.escape_html(words) for *_, words in mark.boxes],
            hovertemplate="%{hovertext}<extra></extra>",
            name=html_document.escape_html(name),
            showlegend=bool(name),
        )

    def _area(self, points: Sequence[Point | None], style: str) -> None:
        opacity = next((OPACITY[word] for word in style.split() if word in OPACITY), 1.0)
        red, green, blue = (int(_colour(style)[i : i + 2], 16) for i in (1, 3, 5))
        self._scatter(
            points,
            f"fill {style}",
            mode="none",
            fill="toself",
            fillcolor=f"rgba({red},{green},{blue},{opacity})",
            hoverinfo="skip",
        )

    def _scatter(self, points: Sequence[Point | None], key: str, **how: object) -> None:
        """One trace; it is in the legend where the panel's has such a key, once."""
        name = self._legend.pop(key, "")
        self._figure.add_scatter(
            x=[None if point is None else self._x(point[0]) for point in points],
            y=[None if point is None else self._y(point[1]) for point in points],
            name=html_document.escape_html(name),
            showlegend=bool(name),
            **how,
        )

    # --- around them ---

    def _boundaries(self, boundaries: Boundaries) -> None:
        """Light verticals, and indices along the top."""
        low, high = self._panel.y.low, self._panel.y.high
        every = round_up(max(1.0, len(boundaries.at) / MOST_INDEXES), (1.0, 2.0, 5.0, 10.0))
        shown = [(x, i) for x, i in boundaries.at if math.isclose(i % every, 0.0, abs_tol=1e-9)]
        lines = _separate([[(x, low), (x, high)] for x, _ in shown])
        self._scatter(lines, "line thin grid", mode="lines", line={"color": GREY, "width": 1}, hoverinfo="skip")
        for x, index in shown:
            self._note(x, 1.0, format_index(index), yref="paper", yanchor="bottom", showarrow=False)

    def _label(self, label: Label) -> None:
        text = "<br>".join(html_document.escape_html(line) for line in label.lines)
        is_left = label.x < 0.3 * (self._panel.x.low + self._panel.x.high)
        where: dict[str, object] = {"yref": "paper", "y": 0.55} if label.y is None else {"y": self._y(label.y)}
        self._figure.add_annotation(
            x=self._x(label.x),
            text=text,
            align="left",
            xanchor="left" if is_left else "right",
            xshift=4 if is_left else -4,
            yanchor="bottom",
            showarrow=False,
            font={"color": _colour(label.role)},
            **where,
        )

    def _note(self, x: float, y: float, text: str, **how: object) -> None:
        self._figure.add_annotation(x=self._x(x), y=y, text=html_document.escape_html(text), font={"size": 11}, **how)

    def _ribbon(self, ribbon: Ribbon) -> None:
        """A strip below the plot, with a scale of its own."""
        self._figure.update_layout(
            yaxis2={"domain": [0.0, 0.05], "range": [0, 1], "visible": False, "fixedrange": True}
        )
        pieces = ribbon.pieces
        self._figure.add_bar(
            x=[self._x(0.5 * (start + end)) for start, end, _ in pieces],
            width=[self._x(end) - self._x(start) for start, end, _ in pieces],
            y=[1] * len(pieces),
            marker={"color": [_colour(role) for *_, role in pieces], "line": {"width": 0}},
            hovertext=[html_document.escape_html(f"{ribbon.name}: {role.replace('_', ' ')}") for *_, role in pieces],
            hovertemplate="%{hovertext}<extra></extra>",
            yaxis="y2",
            showlegend=False,
        )


def _separate(runs: Sequence[Sequence[Point]]) -> list[Point | None]:
    """One after the other, with a gap between them."""
    joined: list[Point | None] = []
    for run in runs:
        joined += [*run, None]
    return joined


def _colour(style: str) -> str:
    return next((PALETTE[word][0] for word in style.split() if word in PALETTE), PALETTE["muted"][0])


def _pen(style: str) -> dict[str, object]:
    width = 1.0 if "thin" in style else 2.4 if "bold" in style else 1.6
    dash = "dash" if "dashed" in style else "dot" if "dotted" in style else "solid"
    return {"color": _colour(style), "width": width, "dash": dash}
