"""The parts of a chart: axes with round ticks in bytes and durations, scales, and marks that draw themselves as SVG.

Points are (x, y) in values; pixels count from the top left. The `style` of a mark are classes of
`svg_chart.stylesheet`: a role, which gives its colour, and words such as `dashed` or `faint`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Protocol, TypeVar

from memwatch.core.text_and_units import format_duration, printable

T = TypeVar("T")
Point = tuple[float, float]
Tick = tuple[float, str]
Ticker = Callable[[float, float, int], list[Tick]]  # low, high, largest number of ticks
Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels

MOST_DOTS = 150  # dots of a series that show words under the pointer; more would hide their line (chosen)
SHORTEST_SPAN = 6.0  # pixels; shadings that are shorter on average cannot be told apart
FAR = 20.0  # coordinates, infinite ones too, are bounded to this many sizes of the area beyond it


# --- text -----------------------------------------------------------------------------------------------------------


def escape_svg(words: str, limit: int = 120) -> str:
    """Escapes text from anywhere for markup, cut to `limit` characters."""
    return escape(printable(words, limit))


def pixel(value: float) -> str:
    """A coordinate to a tenth of a pixel, which is finer than the eye."""
    return f"{value:.1f}".removesuffix(".0")


def path(points: Sequence[Point]) -> str:
    """The `d` attribute of a line through these pixels."""
    return f"M{'L'.join(f'{pixel(x)},{pixel(y)}' for x, y in points)}" if points else ""


def vertical(x: float, box: Box) -> str:
    """The `d` attribute of a line from top to bottom."""
    return f"M{pixel(x)},{pixel(box[1])}V{pixel(box[3])}"


# --- axes -----------------------------------------------------------------------------------------------------------

SIZES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
DAY = 86400.0


def byte_ticks(low: float, high: float, most: int) -> list[Tick]:
    """Round sizes within low..high, all in one unit: `0`, `2.5 GB`, `5.0 GB`."""
    step = max(1.0, round_up((high - low) / most, (1.0, 2.0, 2.5, 5.0, 10.0)))
    size, unit = next((pair for pair in SIZES if max(abs(low), abs(high)) >= pair[0]), SIZES[-1])
    digits = next((d for d in range(3) if math.isclose(round(step / size, d), step / size, rel_tol=1e-6)), 3)
    return [(value, f"{value / size:.{digits}f} {unit}" if value else "0") for value in _multiples(low, high, step)]


def count_ticks(low: float, high: float, most: int) -> list[Tick]:
    """Round numbers within low..high: `0`, `500`, `1,000`."""
    step = max(1.0, round_up((high - low) / most, (1.0, 2.0, 5.0, 10.0)))
    return [(value, f"{value:,.0f}") for value in _multiples(low, high, step)]


def duration_ticks(low: float, high: float, most: int) -> list[Tick]:
    """Round durations within low..high: `0`, `30 m`, `1 h 30 m`."""
    wanted = (high - low) / most
    if wanted > DAY:
        step = DAY * round_up(wanted / DAY, (1.0, 2.0, 5.0, 10.0))
    elif wanted < 1:
        step = round_up(wanted, (1.0, 2.0, 5.0, 10.0))
    else:
        step = next(seconds for seconds in SECONDS if seconds >= wanted)
    words = format_duration if step >= 1 else "{:.6g} s".format
    return [(value, words(value) if value else "0") for value in _multiples(low, high, step)]


def round_up(wanted: float, factors: Sequence[float]) -> float:
    """Returns the smallest factor times a power of ten that is not below `wanted` (> 0)."""
    power = 10.0 ** math.floor(math.log10(wanted))
    return next((f * power for f in factors if f * power >= wanted * (1 - 1e-9)), 10.0 * power)


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """The range of one dimension, low < high, and the function that finds its ticks."""

    low: float
    high: float
    ticks: Ticker

    @classmethod
    def over(cls, low: float, high: float, ticks: Ticker) -> ChartAxis:
        """From low to high; if they are equal, a range of that size above."""
        return cls(low, high if high > low else low + max(1.0, abs(low)), ticks)


@dataclass(frozen=True, slots=True)
class Scale:
    """Values to pixels; `end` may lie before `start`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class PlotArea:
    """The area of a panel in which marks are drawn."""

    x: Scale
    y: Scale

    @property
    def box(self) -> Box:
        return self.x.start, self.y.end, self.x.end, self.y.start

    def pixels(self, points: Iterable[Point]) -> list[Point]:
        """Converts values to pixels. Values far outside are moved nearer; nothing of them is visible either way."""
        left, top, right, bottom = self.box
        far = FAR * (right - left + bottom - top)
        return [
            (min(max(self.x(x), left - far), right + far), min(max(self.y(y), top - far), bottom + far))
            for x, y in points
        ]


# --- marks ----------------------------------------------------------------------------------------------------------


class Mark(Protocol):
    """Something that is drawn within a panel; parts outside the axes are cut off."""

    def draw(self, area: PlotArea) -> Iterator[str]:
        """Yields the markup."""


@dataclass(frozen=True, slots=True)
class LineMark:
    """Points joined in the order of x. Of very many, each pixel column keeps the first, lowest, highest and last."""

    points: Sequence[Point]
    style: str

    def draw(self, area: PlotArea) -> Iterator[str]:
        yield f'<path class="line {self.style}" d="{path(self.pixels(area))}"/>'

    def pixels(self, area: PlotArea) -> list[Point]:
        return area.pixels(downsample(self.points, area.x))


@dataclass(frozen=True, slots=True)
class PolygonMark:
    """A filled polygon."""

    points: Sequence[Point]
    style: str

    def draw(self, area: PlotArea) -> Iterator[str]:
        yield f'<path class="fill {self.style}" d="{path(area.pixels(self.points))}Z"/>'


@dataclass(frozen=True, slots=True)
class AreaMark:
    """The filled area below a line."""

    points: Sequence[Point]
    style: str

    def draw(self, area: PlotArea) -> Iterator[str]:
        points = downsample(self.points, area.x)
        ground = area.y.low
        yield from PolygonMark([(points[0][0], ground), *points, (points[-1][0], ground)], self.style).draw(area)


@dataclass(frozen=True, slots=True)
class Band:
    """The area between steps: rows of (x, low, high) in the order of x, each held until the next or `until`."""

    rows: Sequence[tuple[float, float, float]]
    until: float
    style: str

    def draw(self, area: PlotArea) -> Iterator[str]:
        low = downsample(step_corners([(x, low) for x, low, _ in self.rows], self.until), area.x)
        high = downsample(step_corners([(x, high) for x, _, high in self.rows], self.until), area.x)
        yield from PolygonMark([*low, *reversed(high)], self.style).draw(area)


@dataclass(frozen=True, slots=True)
class Spans:
    """Full-height shadings (from, to, style), not drawn if they are too short to be told apart."""

    spans: Sequence[tuple[float, float, str]]
    keys: Sequence[tuple[str, str]] = ()  # entries of the legend if they are drawn: "fill " and the style, words

    def is_seen(self, x: Scale) -> bool:
        """Whether the shadings are long enough on average."""
        width = sum(x(end) - x(start) for start, end, _ in self.spans)
        return bool(self.spans) and width >= SHORTEST_SPAN * len(self.spans)

    def draw(self, area: PlotArea) -> Iterator[str]:
        _, top, _, bottom = area.box
        for style in dict.fromkeys(style for _, _, style in self.spans) if self.is_seen(area.x) else ():
            pairs = [(area.x(start), area.x(end)) for start, end, its in self.spans if its == style]
            boxes = "".join(f"M{pixel(a)},{pixel(top)}H{pixel(b)}V{pixel(bottom)}H{pixel(a)}Z" for a, b in pairs)
            yield f'<path class="fill {style}" d="{boxes}"/>'


@dataclass(frozen=True, slots=True)
class Bars:
    """Boxes (from, to, low, high, words) whose words show under the pointer."""

    boxes: Sequence[tuple[float, float, float, float, str]]
    style: str

    def draw(self, area: PlotArea) -> Iterator[str]:
        for start, end, low, high, words in self.boxes:
            (left, bottom), (right, top) = area.pixels([(start, low), (end, high)])
            place = f'x="{pixel(left)}" y="{pixel(top)}" width="{pixel(right - left)}" height="{pixel(bottom - top)}"'
            yield f'<rect class="fill told {self.style}" {place}><title>{escape_svg(words, 300)}</title></rect>'


@dataclass(frozen=True, slots=True)
class Rules:
    """Vertical lines."""

    xs: Sequence[float]
    style: str

    def draw(self, area: PlotArea) -> Iterator[str]:
        lines = "".join(vertical(x, area.box) for x in apart((area.x(x) for x in self.xs), 1.0))
        if lines:
            yield f'<path class="line {self.style}" d="{lines}"/>'


@dataclass(frozen=True, slots=True)
class Dots:
    """Points in the order of x whose words show under the pointer; more than MOST_DOTS are smaller and have none.

    A point above or below the axis is an arrow at its edge.
    """

    points: Sequence[tuple[float, float, str]]
    style: str
    radius: float = 2.6

    def draw(self, area: PlotArea) -> Iterator[str]:
        if len(self.points) > MOST_DOTS:
            points = area.pixels(downsample([(x, y) for x, y, _ in self.points], area.x))
            dots = "".join(f"M{pixel(x)},{pixel(y)}h0" for x, y in points)
            yield f'<path class="line bold {self.style}" d="{dots}"/>'
            return
        for x, y, words in self.points:
            yield self._dot(area.x(x), area.y(y), area.box, words)

    def _dot(self, across: float, down: float, box: Box, words: str) -> str:
        _, top, _, bottom = box
        style = f"told {self.style}" if words else self.style
        title = f"<title>{escape_svg(words, 300)}</title>" if words else ""
        if top <= down <= bottom:
            place = f'cx="{pixel(across)}" cy="{pixel(down)}" r="{self.radius}"'
            return f'<circle class="fill {style}" {place}>{title}</circle>'
        edge, back = (top + 1, 7) if down < top else (bottom - 1, -7)
        return f'<path class="fill {style}" d="M{pixel(across)},{pixel(edge)}l4,{back}h-8Z">{title}</path>'


def hold_intervals(points: Sequence[tuple[float, T]], until: float) -> list[tuple[float, float, T]]:
    """Returns (from, to, value) of values that hold until the next, the last one until `until`."""
    ends = [*(x for x, _ in points[1:]), until]
    return [(x, max(x, end), value) for (x, value), end in zip(points, ends, strict=False)]


def step_corners(points: Sequence[Point], until: float) -> list[Point]:
    """The corners of a step function whose values hold until the next."""
    return [corner for start, end, y in hold_intervals(points, until) for corner in ((start, y), (end, y))]


def downsample(points: Sequence[Point], x: Scale) -> Sequence[Point]:
    """Keeps the first, lowest, highest and last point of each pixel column if there are more: peaks survive."""
    if len(points) <= 4 * abs(x.end - x.start):
        return points
    kept: list[Point] = []
    for _, column in groupby(points, key=lambda point: math.floor(x(point[0]))):
        kept += _extremes(list(column))
    return kept


def _extremes(column: Sequence[Point]) -> list[Point]:
    values = [y for _, y in column]
    return [column[i] for i in sorted({0, values.index(min(values)), values.index(max(values)), len(column) - 1})]


def apart(xs: Iterable[float], least: float) -> Iterator[float]:
    """Yields those that are at least `least` after the one before."""
    last = -math.inf
    for x in xs:
        if x - last >= least:
            last = x
            yield x
