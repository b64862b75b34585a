"""Charts as SVG text: panels with axes, legends, ribbons, and labels that are placed where there is room.

A `Panel` is one plot; `render_svg` stacks panels of one width. Colours are roles (`memory`, `limit`, `forecast` ...),
to which `stylesheet` gives values for light and dark screens. All text is escaped here: callers pass plain text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from memwatch.core.text_and_units import printable
from memwatch.outputs.charts.svg_axes_and_marks import (
    Box,
    ChartAxis,
    LineMark,
    Mark,
    PlotArea,
    Point,
    Scale,
    Spans,
    escape_svg,
    pixel,
    round_up,
    vertical,
)
from memwatch.outputs.text.formatting import format_index

# By role, the colours on a light and on a dark screen. They start from Okabe and Ito, moved apart for colour-blind
# people (Machado 2009): any two verdicts, and any two of memory, limit, forecast and ink, differ by 14 or more (CIE76).
PALETTE: Mapping[str, tuple[str, str]] = {
    "ink": ("#1c2128", "#e6e9ed"),
    "muted": ("#57606a", "#9aa5b1"),
    "grid": ("#e3e6ea", "#2b323a"),
    "memory": ("#0072b2", "#56b4e9"),
    "limit": ("#bf3b00", "#ff8f5e"),
    "forecast": ("#a6387a", "#f2a6d0"),
    "warming_up": ("#dfe3e7", "#b9c0c8"),
    "stable": ("#4fae8a", "#4fae8a"),
    "plateau": ("#a5d5f5", "#8fd0f7"),
    "growing": ("#f7cf55", "#f2c54a"),
    "leak": ("#e9743f", "#e9743f"),
    "tint0": ("#77aadd", "#77aadd"),
    "tint1": ("#eedd88", "#eedd88"),
    "tint2": ("#ee8866", "#ee8866"),
    "tint3": ("#44bb99", "#44bb99"),
    "tint4": ("#ffaabb", "#ffaabb"),
    "tint5": ("#bbcc33", "#bbcc33"),
    "series0": ("#4477aa", "#6699cc"),  # lines of one panel; Tol's bright scheme
    "series1": ("#ee6677", "#ee6677"),
    "series2": ("#228833", "#44aa55"),
    "series3": ("#b3a22e", "#ccbb44"),
    "series4": ("#4db3d4", "#66ccee"),
    "series5": ("#aa3377", "#cc6699"),
}
PAPER = ("#ffffff", "#12161b")
TINTS = sum(role.startswith("tint") for role in PALETTE)
SERIES = sum(role.startswith("series") for role in PALETTE)
FONTS = 'system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif'
LETTER = 0.6  # width of a letter in font sizes; DejaVu Sans, the widest of those, has 0.59 on average
RIBBON = 1.4  # height of a ribbon in font sizes
SMALL = 0.86  # font size of the text at axes, relative to the other text
SPILL = 12.0  # pixels by which text may extend beyond the end of its axis
CLOSEST = 5.0  # pixels between boundaries; where they are closer, only labelled ones are drawn
_MIDDLE = ' dy=".35em"'  # makes y the middle of a text
LABEL_OFFSET_PX = 5.0  # pixels between a label and its point
COLUMN_PX = 10.0  # width of what one position of the pointer reads: about what a hand can aim at (chosen)

_FORMS = (
    ".chart text{font-family:" + FONTS + "}"
    ".chart .line{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}"
    ".chart .fill{stroke:none;fill:#8b949e}"  # for an unknown role
    ".chart .thin{stroke-width:1}.chart .bold{stroke-width:2.4}"
    ".chart .dashed{stroke-dasharray:7 4;stroke-linecap:butt}.chart .dotted{stroke-dasharray:1.5 4}"
    ".chart .faint{opacity:.22}.chart .tint{opacity:.16}.chart .key .tint{opacity:.45}.chart .wash{opacity:.1}"
    f".chart .title{{font-weight:600}}.chart .small{{font-size:{SMALL}em}}"
    ".chart .on{fill:#16191d}"  # words on a ribbon, whose colours are light in both schemes
    ".chart .halo{paint-order:stroke;stroke-width:4px;stroke-linejoin:round}"
    # What is drawn lies over the columns that read values, and lets the pointer through unless it has words itself.
    ".chart text,.chart .line,.chart .fill{pointer-events:none}.chart .told{pointer-events:auto}"
    ".chart .column rect{fill:none;pointer-events:all}.chart .column :not(rect){visibility:hidden}"
    ".chart .column:hover :not(rect){visibility:visible}.chart .column:hover~.title{visibility:hidden}"
)


def stylesheet(dark: bool = True) -> str:
    """The rules for every class that a chart uses; with `dark`, also those for readers who prefer a dark screen."""
    light = _FORMS + _colours(0)
    return f"{light}@media(prefers-color-scheme:dark){{{_colours(1)}}}" if dark else light


def _colours(scheme: int) -> str:
    roles = "".join(
        f".chart .fill.{role},.chart text.{role}{{fill:{pair[scheme]}}}.chart .line.{role}{{stroke:{pair[scheme]}}}"
        for role, pair in PALETTE.items()
    )
    return f"{roles}.chart .paper{{fill:{PAPER[scheme]}}}.chart .halo{{stroke:{PAPER[scheme]}}}"


# --- labels ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Label:
    """Text beside a point, or anywhere along the vertical at x if y is None; the first of several lines is a title."""

    x: float
    y: float | None
    lines: tuple[str, ...]
    role: str = "ink"


def _places(label: Label, area: PlotArea, font: float) -> Iterator[Box]:
    """Yields the places where a label may stand, the best first."""
    width, height = max(map(len, label.lines)) * LETTER * font, 1.25 * font * len(label.lines)
    x = area.x(label.x)
    lefts = [x + LABEL_OFFSET_PX, x - LABEL_OFFSET_PX - width]
    if label.y is None:
        _, top, _, bottom = area.box
        tops = [top + LABEL_OFFSET_PX + i / 9 * (bottom - top - height - 2 * LABEL_OFFSET_PX) for i in range(10)]
    else:
        y = area.y(label.y)
        tops = [y - LABEL_OFFSET_PX - height, y + LABEL_OFFSET_PX]
        lefts.append(x - width / 2)
    yield from ((left, top, left + width, top + height) for top in tops for left in lefts)


def _labels(labels: Sequence[Label], area: PlotArea, obstacles: Sequence[Box], font: float) -> Iterator[str]:
    """Labels of points are placed first, as they have fewer places."""
    taken: list[Box] = []
    for label in sorted(labels, key=lambda label: label.y is None):
        best = min(
            enumerate(_places(label, area, font)),
            key=lambda item: (
                _outside(item[1], area.box)
                + 2.0 * sum(_common(item[1], box) for box in taken)
                + sum(6.0 * font for box in obstacles if _common(item[1], box) > 0)
                + item[0]
            ),
        )[1]
        taken.append(best)
        yield _lines_at(label, best, font)


def _lines_at(label: Label, box: Box, font: float) -> str:
    x, title = pixel(box[0]), ' class="title"' if len(label.lines) > 1 else ""
    spans = (
        f'<tspan x="{x}" y="{pixel(box[1] + (1.25 * i + 0.95) * font)}"{"" if i else title}>{escape_svg(line)}</tspan>'
        for i, line in enumerate(label.lines)
    )
    return f'<text class="halo {label.role}">{"".join(spans)}</text>'


def _common(a: Box, b: Box) -> float:
    """The area that two boxes share; a line counts as one pixel wide."""
    width = min(a[2], b[2] + 0.5) - max(a[0], b[0] - 0.5)
    height = min(a[3], b[3] + 0.5) - max(a[1], b[1] - 0.5)
    return max(0.0, width) * max(0.0, height)


def _outside(box: Box, frame: Box) -> float:
    over = (frame[0] - box[0], frame[1] - box[1], box[2] - frame[2], box[3] - frame[3])
    return 1000.0 * sum(max(0.0, pixels) for pixels in over)


def _segments(marks: Iterable[Mark], area: PlotArea) -> list[Box]:
    """The pieces of all lines, which labels should not cover."""
    runs = [mark.pixels(area) for mark in marks if isinstance(mark, LineMark)]
    return [
        (min(a[0], b[0]), min(a[1], b[1]), max(a[0], b[0]), max(a[1], b[1])) for run in runs for a, b in pairwise(run)
    ]


# --- panels ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DrawingSize:
    """Sizes of a drawing, in pixels."""

    width: float
    left: float  # width of the labels of the y axis
    right: float
    font: float
    stretch: float = 1.0  # factor for the heights of panels


WIDE = DrawingSize(width=1000, left=74, right=16, font=13)
NARROW = DrawingSize(width=360, left=58, right=10, font=12, stretch=0.8)


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Where generations begin, along the top: (x, index), and the word for a generation."""

    at: Sequence[Point]
    unit: str


@dataclass(frozen=True, slots=True)
class Ribbon:
    """Colours along the bottom: (from, to, role), where the role is also the word for it, and the ribbon's name."""

    pieces: Sequence[tuple[float, float, str]]
    name: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot."""

    title: str
    x: ChartAxis
    y: ChartAxis
    height: float  # of the plot itself, in pixels of a wide drawing
    marks: Sequence[Mark]
    labels: Sequence[Label] = ()  # the most important first
    legend: Sequence[tuple[str, str]] = ()  # "line ...", "fill ..." or "dot ..." classes, words
    boundaries: Boundaries | None = None
    ribbon: Ribbon | None = None
    # What it shows from one x to another, in words that take the title's place while the pointer is there.
    words_between: Callable[[float, float], str] | None = None


def render_svg(panels: Sequence[Panel], frame: DrawingSize, name: str, kind: str = "") -> str:
    """Returns an <svg> for a page that has the stylesheet; screen readers read `name`, `kind` is another CSS class.

    Panels that follow each other with the same x axis are read together: the pointer in one shows the values of all.
    """
    parts, height = _stacked(panels, frame, 0.0, has_pointer=True)
    return _svg(parts, (0.0, 0.0, frame.width, height), frame, name, f"chart {kind}".rstrip())


def render_svg_file(panels: Sequence[Panel], frame: DrawingSize, heading: Sequence[str], dark: bool = True) -> str:
    """Returns an SVG file: a title and sentences, the panels, and a stylesheet and background of its own."""
    title, y = _heading(heading, frame)
    parts, height = _stacked(panels, frame, y, has_pointer=False)
    pad = 1.5 * frame.font
    box = (-pad, 0.0, frame.width + pad, height + 0.5 * pad)
    paper = f'<rect class="paper" x="{pixel(-pad)}" width="100%" height="100%"/>'
    return _svg([f"<style>{stylesheet(dark)}</style>{paper}", *title, *parts], box, frame, " ".join(heading), "chart")


def _stacked(panels: Sequence[Panel], frame: DrawingSize, y: float, *, has_pointer: bool) -> tuple[list[str], float]:
    parts: list[str] = []
    for _, linked in groupby(panels, key=lambda panel: (panel.x.low, panel.x.high)):
        placed: list[tuple[Panel, PlotArea, float]] = []
        drawn: list[str] = []
        for panel in linked:
            title_y = y + 1.7 * frame.font
            markup, area, y = _panel(panel, frame, title_y)
            placed.append((panel, area, title_y))
            drawn += markup
        parts += [*_columns(placed, frame), *drawn] if has_pointer else drawn
    return parts, y


def _columns(panels: Sequence[tuple[Panel, PlotArea, float]], frame: DrawingSize) -> Iterator[str]:
    """Areas behind panels with one x axis; under the pointer each shows a line and what the panels say there."""
    (_, area, _), (_, lowest, _) = panels[0], panels[-1]
    left, top, right, bottom = area.box[0], area.box[1], area.box[2], lowest.box[3]
    count = max(1, int((right - left) / COLUMN_PX))
    letters = int(frame.width / (LETTER * frame.font))
    width, step = (right - left) / count, (area.x.high - area.x.low) / count
    for i in range(count):
        start, low = left + i * width, area.x.low + i * step
        said = [
            (printable(words, letters), y)
            for panel, _, y in panels
            if panel.words_between is not None and (words := panel.words_between(low, low + step))
        ]
        if not said:
            continue
        silent = [_words(panel.title, 0, y, "ink title") for panel, _, y in panels if y not in {at for _, at in said}]
        place = f'x="{pixel(start)}" y="{pixel(top)}" width="{pixel(width)}" height="{pixel(bottom - top)}"'
        rule = f'<path class="line thin muted" d="M{pixel(start + width / 2)},{pixel(top)}V{pixel(bottom)}"/>'
        texts = [_words(words, 0, y, "ink") for words, y in said]
        yield f'<g class="column"><rect {place}/>{rule}{"".join((*texts, *silent))}</g>'


def _svg(parts: Iterable[str], box: Box, frame: DrawingSize, name: str, kind: str) -> str:
    left, top, right, bottom = box
    width, height = pixel(right - left), pixel(bottom - top)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" role="img" aria-label="{escape_svg(name, 400)}" '
        f'viewBox="{pixel(left)} {pixel(top)} {width} {height}" width="{width}" height="{height}" '
        f'font-size="{frame.font}">{"".join(parts)}</svg>'
    )


def _words(words: str, x: float, y: float, style: str, more: str = "") -> str:
    return f'<text class="{style}" x="{pixel(x)}" y="{pixel(y)}"{more}>{escape_svg(words)}</text>'


def _heading(lines: Sequence[str], frame: DrawingSize) -> tuple[list[str], float]:
    """A title and the sentences below it, wrapped to the width."""
    font, width = frame.font, int(frame.width / (LETTER * frame.font))
    parts, y = [], 0.6 * font
    for number, line in enumerate(lines):
        for piece in wrap_lines(line, width if number else int(width / 1.4)):
            y += (1.5 if number else 2.0) * font
            size = "" if number else f' font-size="{pixel(1.4 * font)}"'
            parts.append(_words(piece, 0, y, "muted" if number else "ink title", size))
    return parts, y + 0.5 * font


def wrap_lines(text: str, width: int) -> list[str]:
    """Returns lines of at most `width` letters, broken between words where possible."""
    lines = [""]
    for word in printable(text, 1000).split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".lstrip(" ")
        while len(lines[-1]) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return lines


def _panel(panel: Panel, frame: DrawingSize, y: float) -> tuple[list[str], PlotArea, float]:
    """Returns the markup of the panel whose title stands at `y`, its plot, and the y at which it ends."""
    font = frame.font
    parts = [_words(panel.title, 0, y, "ink title")]
    x = Scale(panel.x.low, panel.x.high, frame.left, frame.width - frame.right)
    keys = [key for mark in panel.marks if isinstance(mark, Spans) and mark.is_seen(x) for key in mark.keys]
    legend, y = _legend([*panel.legend, *keys], frame, y)
    y += 0.8 * font + (1.6 * font if panel.boundaries else 0.0)
    area = PlotArea(x, Scale(panel.y.low, panel.y.high, y + panel.height * frame.stretch, y))
    parts += [*legend, *_grid(panel.y, area, font)]
    if panel.boundaries is not None:
        parts += _boundaries(panel.boundaries, area, font)
    parts.append(_clipped("".join(markup for mark in panel.marks for markup in mark.draw(area)), area))
    parts += _labels(panel.labels, area, _segments(panel.marks, area), font)
    bottom = area.box[3]
    if panel.ribbon is not None:
        parts += _ribbon(panel.ribbon, area, font)
        bottom += RIBBON * font + 2
    parts += _x_axis(panel.x, area, bottom, font)
    return parts, area, bottom + 2.2 * font


def _clipped(markup: str, area: PlotArea) -> str:
    """Clips by an <svg> within the <svg>: a clipPath has an id, which two charts on a page would share."""
    left, top, right, bottom = area.box
    x, y, width, height = pixel(left), pixel(top), pixel(right - left), pixel(bottom - top)
    box = f'x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{x} {y} {width} {height}"'
    return f'<svg {box} overflow="hidden">{markup}</svg>'


def _legend(items: Sequence[tuple[str, str]], frame: DrawingSize, y: float) -> tuple[list[str], float]:
    """Swatches and their words, in as many rows as they need."""
    parts, x, font = [], 0.0, 0.9 * frame.font
    y += 1.6 * font if items else 0.0
    for style, words in items:
        width = 26 + len(words) * 0.9 * LETTER * font
        if x > 0 and x + width > frame.width:
            x, y = 0.0, y + 1.5 * font
        parts.append(f'<g class="key">{_swatch(style, x, y - 0.35 * font)}</g>')
        parts.append(_words(words, x + 26, y, "muted", f' font-size="{pixel(font)}"'))
        x += width + 1.4 * font
    return parts, y


def _swatch(style: str, x: float, y: float) -> str:
    if style.startswith("dot"):
        return f'<circle class="fill {style}" cx="{pixel(x + 10)}" cy="{pixel(y)}" r="3"/>'
    form = f"M{pixel(x)},{pixel(y)}h20" if style.startswith("line") else f"M{pixel(x)},{pixel(y - 5)}h20v10h-20Z"
    return f'<path class="{style}" d="{form}"/>'


# --- axes -----------------------------------------------------------------------------------------------------------


def _grid(axis: ChartAxis, area: PlotArea, font: float) -> Iterator[str]:
    left, top, right, bottom = area.box
    for value, words in axis.ticks(axis.low, axis.high, max(2, int((bottom - top) / (2.4 * font)))):
        y = area.y(value)
        yield f'<path class="line thin grid" d="M{pixel(left)},{pixel(y)}H{pixel(right)}"/>'
        yield _words(words, left - 7, y, "muted small", f'{_MIDDLE} text-anchor="end"')


def _x_axis(axis: ChartAxis, area: PlotArea, y: float, font: float) -> Iterator[str]:
    """Draws the axis with its ticks hanging from y."""
    left, _, right, bottom = area.box
    yield f'<path class="line thin muted" d="M{pixel(left)},{pixel(bottom)}H{pixel(right)}"/>'
    for value, words in axis.ticks(axis.low, axis.high, max(2, int((right - left) / (5.8 * font)))):
        x = area.x(value)
        anchor = "end" if x + len(words) * LETTER * SMALL * font / 2 > right + SPILL else "middle"
        yield f'<path class="line thin muted" d="M{pixel(x)},{pixel(y)}v4"/>'
        yield _words(words, x, y + 4 + font, "muted small", f' text-anchor="{anchor}"')


def _boundaries(boundaries: Boundaries, area: PlotArea, font: float) -> Iterator[str]:
    """Light verticals where there is room for them, and as many indices along the top as fit."""
    left, top, right, _ = area.box
    letter = LETTER * SMALL * font
    marks = [(area.x(x), format_index(index), index) for x, index in boundaries.at]
    room = (right - left) / (letter * max((len(words) for _, words, _ in marks), default=1) + SMALL * font)
    every = round_up(max(1.0, len(marks) / room), (1.0, 2.0, 5.0, 10.0))
    labelled = [(x, words) for x, words, index in marks if math.isclose(index % every, 0.0, abs_tol=1e-9)]
    dense = (right - left) < CLOSEST * len(marks)
    lines = "".join(vertical(x, area.box) for x in ([x for x, _ in labelled] if dense else [x for x, *_ in marks]))
    yield f'<path class="line thin grid" d="{lines}"/>'
    yield _words(boundaries.unit, 0, top - 8, "muted small")
    free = 0.9 * letter * len(printable(boundaries.unit)) + 4
    for x, words in labelled:
        half = letter * len(words) / 2
        if x - half >= free and x + half <= right + SPILL:
            free = x + half + 3
            yield _words(words, x, top - 8, "muted small", ' text-anchor="middle"')


def _ribbon(ribbon: Ribbon, area: PlotArea, font: float) -> Iterator[str]:
    top, height = area.box[3] + 1, RIBBON * font
    middle, shown = top + height / 2, -math.inf
    yield _words(ribbon.name, 0, middle, "muted small", _MIDDLE)
    for start, end, role in ribbon.pieces:
        left, right = max(area.x(start), shown), area.x(end)
        if right - shown < 0.5:
            continue  # narrower than half a pixel
        shown, words = right, role.replace("_", " ")
        place = f'x="{pixel(left)}" y="{pixel(top)}" width="{pixel(right - left)}" height="{pixel(height)}"'
        yield f'<rect class="fill {escape_svg(role)}" {place}><title>{escape_svg(words)}</title></rect>'
        if right - left > len(words) * LETTER * SMALL * font + 8:
            yield _words(words, (left + right) / 2, middle, "on small", f'{_MIDDLE} text-anchor="middle"')
