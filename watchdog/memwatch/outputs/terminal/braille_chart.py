"""A chart of memory in characters: braille dots, eight in a cell, or letters if the terminal has no braille.

The past shows the samples, lowest to highest; the fan shows when the limit may be reached, earliest to latest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest

from memwatch.core.snapshot import ResourceView, TimelineStep
from memwatch.core.text_and_units import format_bytes, format_duration
from memwatch.outputs.charts.run_data import chart_end_t, visible_limit_bytes
from memwatch.outputs.text.formatting import format_index

ROOM_ABOVE = 1.06  # the y axis ends at this multiple of the highest value (chosen)
GAP_STEPS = 3.0  # a step longer than this multiple of the usual one means that samples are missing (chosen)
_LABEL = 9  # cells of the labels left of the chart
_BRAILLE = 0x2800
_BITS = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))  # of each row of dots, the lowest row first
MEMORY, FORECAST, FORECAST_EDGE, LIMIT, AXIS = range(5)  # roles, the most important first
_LETTERS = "#*.-"
RUN_END = "end"

Point = tuple[float, float]  # dots to the right and up
Piece = tuple[int, str]  # a role, and the text in its colour


class _Canvas:
    """A grid of dots over time and bytes; a cell belongs to the most important role that has a dot in it."""

    def __init__(
        self, width: int, height: int, ascii_only: bool, times: tuple[float, float], highest_bytes: float
    ) -> None:
        self.width, self.height, self._ascii_only = width, height, ascii_only
        self.from_t, self.to_t = times
        self._highest_bytes = highest_bytes
        self._dots_across, self._dots_up = (1, 1) if ascii_only else (2, 4)
        self.across, self.up = width * self._dots_across, height * self._dots_up
        self._roles = [[AXIS] * width for _ in range(height)]
        self._bits = [[0] * width for _ in range(height)]

    def x(self, t: float) -> float:
        return _clamp((t - self.from_t) / max(self.to_t - self.from_t, 1e-9)) * (self.across - 1)

    def y(self, used: float) -> float:
        return _clamp(used / self._highest_bytes) * (self.up - 1)

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

    def line(self, start: Point, end: Point, role: int, every: int) -> None:
        """Sets one in `every` dots of a straight line."""
        (x, y), (to_x, to_y) = start, end
        steps = max(1, round(max(abs(to_x - x), abs(to_y - y))))
        across, up = (to_x - x) / steps, (to_y - y) / steps
        for i in range(0, steps + 1, every):
            self.dot(round(x + across * i), round(y + up * i), role)

    def row(self, y: int) -> Iterator[Piece]:
        """Yields the pieces of one line, of which line 0 is the lowest; adjacent cells of one role are one piece."""
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


def _clamp(share: float) -> float:
    """Brings values far outside the chart nearer: the status may come from another machine."""
    return max(-1.0, min(2.0, share))


def braille_chart(
    view: ResourceView,
    now: float,
    width: int,
    height: int,
    ascii_only: bool = False,
    *,
    run_end_t: float | None = None,
) -> list[list[Piece]]:
    """Returns `height` lines of pieces, at most `width` cells wide: memory over the watch, and its forecast.

    Where the run ends first, so does the forecast.
    """
    steps = view.timeline
    if not steps or width < 3 * _LABEL or height < 3:
        return []
    limit = visible_limit_bytes(view)
    highest = max(one.most_bytes for one in steps)
    times = steps[0].t, chart_end_t(view, steps[0].t, now, run_end_t)
    canvas = _Canvas(width - _LABEL, height - 1, ascii_only, times, ROOM_ABOVE * max(highest, limit or 0, 1))
    if limit is not None:
        limit_y = round(canvas.y(limit))
        for x in range(canvas.across):
            canvas.dot(x, limit_y, LIMIT)
        _draw_forecast(view, now, limit, canvas, run_end_t)
    _draw_samples(steps, canvas)
    top = limit or highest
    labels = {0: 0, round(canvas.y(top)) * canvas.height // canvas.up: top}
    edge = "|" if ascii_only else "│"
    rows = [
        [(AXIS, f"{format_bytes(labels[y]) if y in labels else '':>{_LABEL - 1}}{edge}"), *canvas.row(y)]
        for y in reversed(range(canvas.height))
    ]
    return [*rows, [(AXIS, " " * _LABEL + _time_axis(view, now, canvas, run_end_t))]]


def _draw_forecast(view: ResourceView, now: float, limit: float, canvas: _Canvas, run_end_t: float | None) -> None:
    """Draws lines from the present memory to the limit: as expected, and at the earliest and latest."""
    forecast = view.forecast
    if forecast is None or forecast.eta_seconds is None:
        return
    used, until = view.usage.used_bytes, canvas.to_t if run_end_t is None else min(canvas.to_t, run_end_t)
    for eta, role, every in (
        (forecast.eta_low_seconds, FORECAST_EDGE, 3),
        (forecast.eta_high_seconds, FORECAST_EDGE, 3),
        (forecast.eta_seconds, FORECAST, 1),
    ):
        if eta is not None:
            shown = min(1.0, (until - now) / eta) if eta > 0.0 else 1.0  # share of the way up to the end
            end = canvas.x(now + shown * eta), canvas.y(used + shown * (limit - used))
            canvas.line((canvas.x(now), canvas.y(used)), end, role, every)


def _draw_samples(steps: Sequence[TimelineStep], canvas: _Canvas) -> None:
    """Draws each column of dots from its lowest sample to its highest, joined with the column before."""
    columns: dict[int, tuple[int, int]] = {}
    usual = (steps[-1].t - steps[0].t) / max(1, len(steps) - 1)  # seconds; some steps have no sample
    for one, after in zip_longest(steps, steps[1:]):
        low, high = round(canvas.y(one.least_bytes)), round(canvas.y(one.most_bytes))
        end_t = one.t + one.seconds if after is None or after.t - one.t > GAP_STEPS * usual else after.t
        first, end = round(canvas.x(one.t)), round(canvas.x(min(end_t, canvas.to_t)))
        for x in range(first, max(first, end - (after is not None)) + 1):
            lower, higher = columns.get(x, (low, high))
            columns[x] = min(low, lower), max(high, higher)
    last_low, last_high = next(iter(columns.values()))
    for x, (low, high) in columns.items():
        for y in range(min(low, last_high), max(high, last_low) + 1):
            canvas.dot(x, y, MEMORY)
        last_low, last_high = low, high


def _time_axis(view: ResourceView, now: float, canvas: _Canvas, run_end_t: float | None) -> str:
    """The line under the chart: where generations begin, or else how long ago the watch began, `now` and the end."""
    width, per_cell = canvas.width, canvas.across / canvas.width
    line = [" "] * width
    _write(line, min(round(canvas.x(now) / per_cell), width - len("now")), "now")
    if run_end_t is not None and run_end_t <= canvas.to_t:
        _write(line, min(round(canvas.x(run_end_t) / per_cell), width - len(RUN_END)), RUN_END)
    ticks = [(row.start_t, format_index(row.index)) for row in view.generations if row.start_t >= canvas.from_t]
    if not ticks:
        ticks = [(canvas.from_t, f"{format_duration(now - canvas.from_t)} ago")]
    for t, text in ticks:
        _write(line, round(canvas.x(t) / per_cell), text)
    return "".join(line).rstrip()


def _write(line: list[str], at: int, text: str) -> None:
    """Writes the text if it fits, with a free cell on both sides."""
    cells = line[max(0, at - 1) : at + len(text) + 1]
    if 0 <= at <= len(line) - len(text) and not "".join(cells).strip():
        line[at : at + len(text)] = text
