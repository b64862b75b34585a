"""A chart of memory in characters: braille dots, eight in a cell, or letters if the terminal has no braille.

The past shows the samples, lowest to highest; the fan shows when the limit may be reached, earliest to latest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

from memwatch.core.snapshot import ResourceView, TimelineStep
from memwatch.core.text_and_units import format_bytes, format_duration
from memwatch.outputs.charts.visible_range import chart_end_t, visible_limit_bytes
from memwatch.outputs.text.formatting import format_index

ROOM_ABOVE = 1.06  # the y axis ends at this multiple of the highest value
GAP = 3.0  # a step longer than this multiple of the usual one means that samples are missing (chosen)
_LABEL = 9  # cells of the labels left of the chart
_BRAILLE, _BITS = (
    0x2800,
    ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08)),
)  # bits of a row of dots, the lowest row first
MEMORY, FORECAST, FORECAST_EDGE, LIMIT, AXIS = range(5)  # roles, the most important first
_LETTERS = "#*.-"

Point = tuple[float, float]  # dots to the right and up
Piece = tuple[int, str]  # a role, and the text in its colour


class _Grid:
    """Dots from the lower left; a cell belongs to the most important role that has a dot in it."""

    def __init__(self, width: int, height: int, ascii_only: bool) -> None:
        self.width, self.height, self._ascii_only = width, height, ascii_only
        self._dots_across, self._dots_up = (1, 1) if ascii_only else (2, 4)
        self.across, self.up = width * self._dots_across, height * self._dots_up
        self._roles = [[AXIS] * width for _ in range(height)]
        self._bits = [[0] * width for _ in range(height)]

    def dot(self, x: int, y: int, role: int) -> None:
        """Sets a dot if it is within the grid."""
        if not (0 <= x < self.across and 0 <= y < self.up):
            return
        across, up = x // self._dots_across, y // self._dots_up
        owner = self._roles[up][across]
        if role <= owner:
            bit = _BITS[y % self._dots_up][x % self._dots_across]
            self._roles[up][across] = role
            self._bits[up][across] = self._bits[up][across] | bit if role == owner else bit

    def rule(self, y: int, role: int) -> None:
        """Sets the dots of a whole row."""
        for x in range(self.across):
            self.dot(x, y, role)

    def line(self, start: Point, end: Point, role: int, gap: int = 1) -> None:
        """Sets every `gap`-th dot of a straight line."""
        (x, y), (to_x, to_y) = start, end
        steps = max(1, round(max(abs(to_x - x), abs(to_y - y))))
        across, up = (to_x - x) / steps, (to_y - y) / steps
        for i in range(0, steps + 1, gap):
            self.dot(round(x + across * i), round(y + up * i), role)

    def row(self, y: int) -> Iterator[Piece]:
        """Yields the pieces of one line; line 0 is the lowest, and neighbours of one role are one piece."""
        at = 0
        for role, cells in groupby(self._roles[y]):
            size = len(list(cells))
            if role == AXIS:
                text = " " * size
            elif self._ascii_only:
                text = _LETTERS[role] * size
            else:
                text = "".join(chr(_BRAILLE | bits) for bits in self._bits[y][at : at + size])
            at += size
            yield role, text


@dataclass(frozen=True, slots=True)
class _Scale:
    """Converts seconds and bytes to dots. Values far outside are moved nearer: another server's may be anything."""

    from_t: float
    to_t: float
    most: float
    grid: _Grid

    def x(self, t: float) -> float:
        return _near((t - self.from_t) / max(self.to_t - self.from_t, 1e-9)) * (self.grid.across - 1)

    def y(self, used: float) -> float:
        return _near(used / self.most) * (self.grid.up - 1)


def _near(share: float) -> float:
    return max(-1.0, min(2.0, share))


def braille_chart(
    view: ResourceView, now: float, width: int, height: int, ascii_only: bool = False
) -> list[list[Piece]]:
    """Returns `height` lines of pieces, at most `width` cells wide: memory over the watch, and its forecast."""
    steps = view.timeline
    if not steps or width < 3 * _LABEL or height < 3:
        return []
    grid = _Grid(width - _LABEL, height - 1, ascii_only)
    limit = visible_limit_bytes(view)
    highest = max(one.most_bytes for one in steps)
    scale = _Scale(steps[0].t, chart_end_t(view, steps[0].t, now), ROOM_ABOVE * max(highest, limit or 0, 1), grid)
    if limit is not None:
        grid.rule(round(scale.y(limit)), LIMIT)
        _fan(view, now, limit, scale)
    _past(steps, scale)
    top = limit or highest
    labels = {0: 0, round(scale.y(top)) * grid.height // grid.up: top}
    edge = "|" if ascii_only else "│"
    rows = [
        [(AXIS, f"{format_bytes(labels[y]) if y in labels else '':>{_LABEL - 1}}{edge}"), *grid.row(y)]
        for y in reversed(range(grid.height))
    ]
    return [*rows, [(AXIS, " " * _LABEL + _moments(view, now, scale))]]


def _fan(view: ResourceView, now: float, limit: float, scale: _Scale) -> None:
    """Draws from the present memory to where it reaches the limit: as expected, and at the earliest and latest."""
    forecast = view.forecast
    if forecast is None or forecast.eta_seconds is None:
        return
    used = view.usage.used_bytes
    for eta, role, gap in (
        (forecast.eta_low_seconds, FORECAST_EDGE, 3),
        (forecast.eta_high_seconds, FORECAST_EDGE, 3),
        (forecast.eta_seconds, FORECAST, 1),
    ):
        if eta is not None:
            shown = min(1.0, (scale.to_t - now) / eta) if eta > 0.0 else 1.0  # share of the way up to the right edge
            end = scale.x(now + shown * eta), scale.y(used + shown * (limit - used))
            scale.grid.line((scale.x(now), scale.y(used)), end, role, gap)


def _past(steps: Sequence[TimelineStep], scale: _Scale) -> None:
    """Draws the samples, lowest to highest in each column of dots, with neighbours joined."""
    columns: dict[int, tuple[int, int]] = {}
    usual = (steps[-1].t - steps[0].t) / max(1, len(steps) - 1)  # usual step; some steps have no sample
    for one, after in zip_longest(steps, steps[1:]):
        low, high = round(scale.y(one.least_bytes)), round(scale.y(one.most_bytes))
        end_t = one.t + one.seconds if after is None or after.t - one.t > GAP * usual else after.t
        first, end = round(scale.x(one.t)), round(scale.x(min(end_t, scale.to_t)))
        for x in range(first, max(first, end - (after is not None)) + 1):
            lower, higher = columns.get(x, (low, high))
            columns[x] = min(low, lower), max(high, higher)
    before: tuple[int, int] | None = None
    for x, (low, high) in columns.items():
        joined = (low, high) if before is None else (min(low, before[1]), max(high, before[0]))
        for y in range(joined[0], joined[1] + 1):
            scale.grid.dot(x, y, MEMORY)
        before = low, high


def _moments(view: ResourceView, now: float, scale: _Scale) -> str:
    """The line under the chart: where generations begin, or else how long ago the watch began, and `now`."""
    width, per_cell = scale.grid.width, scale.grid.across / scale.grid.width
    line = [" "] * width
    _write(line, round(scale.x(now) / per_cell), "now", must=True)
    ticks = [(row.start_t, format_index(row.index)) for row in view.generations if row.start_t >= scale.from_t]
    if not ticks:
        ticks = [(scale.from_t, f"{format_duration(now - scale.from_t)} ago")]
    for t, text in ticks:
        _write(line, round(scale.x(t) / per_cell), text)
    return "".join(line).rstrip()


def _write(line: list[str], at: int, text: str, must: bool = False) -> None:
    """Writes where a cell on both sides is free; a text that `must` be there moves to the left."""
    at = min(at, len(line) - len(text)) if must else at
    room = line[max(0, at - 1) : at + len(text) + 1]
    if at >= 0 and at + len(text) <= len(line) and not "".join(room).strip():
        line[at : at + len(text)] = text
