"""Draws the pictures of forecasting.md from generated traces: `make pictures`, the same files for the same code."""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from memwatch.core.decision.policy import Policy
from memwatch.core.events import Notice
from memwatch.core.measurements import HOST
from memwatch.core.snapshot import Snapshot
from memwatch.core.text_and_units import format_duration
from memwatch.history.trace_files import read_trace, replay_notices
from memwatch.outputs.charts.panels import forecast_panel, memory_panel
from memwatch.outputs.charts.run_data import FORECAST_EVENTS, RunData, build_run_data
from memwatch.outputs.charts.svg_axes_and_marks import ChartAxis, LineMark, Mark, PolygonMark
from memwatch.outputs.charts.svg_chart import WIDE, Label, Panel, render_svg_file
from traces.generators import Trace, checkpoint_peaks, gc_sawtooth, linear_leak, straight_fill

FOLDER = Path(__file__).resolve().parent / "images"
POLICY = Policy(checkpoint_seconds=20.0)
FAN_AT = 0.5  # of the trace's life
CAPACITY = 50_000  # of the buffer whose level the log prints
LOW = 160  # height of a panel that repeats much of another
Picture = tuple[str, list[Panel]]


def leak() -> Picture:
    """What is said of a leak half way, and what is done at its end."""
    story = told(linear_leak(total=30))
    memory = with_fan(story)
    return "A leak: the forecast half way, and what it came to", [
        memory,
        *(replace(panel, x=memory.x) for panel in forecasts(story)),
    ]


def fill() -> Picture:
    """A buffer that looks like a leak until it is full, and how much sooner a gauge of the log tells."""
    full_at = 8.0  # generations
    trace = straight_fill(full_at=full_at, generations=20)
    first, second = trace.truth.begins_t[:2]
    parts = [(row.t - first) / (second - first) / full_at for row in trace.rows]
    plain, gauged = told(trace), told(trace, [round(CAPACITY * min(1.0, max(0.0, part))) for part in parts])
    below = [replace(panel, height=LOW) for panel in (memory_panel(gauged, HOST), *forecasts(gauged))]
    return "A buffer that fills, then is full", [
        memory_panel(plain, HOST),
        *forecasts(plain),
        *(
            replace(panel, title=f"The same, and its log tells how full it is: {panel.title.lower()}")
            for panel in below
        ),
    ]


def peaks() -> Picture:
    """Every fourth generation writes a checkpoint: it is the next of these peaks that must fit."""
    story = told(checkpoint_peaks(every=4))
    return "A slow leak under a peak every four generations", [memory_panel(story, HOST), *forecasts(story)]


def sawtooth() -> Picture:
    """Garbage that is collected every now and then hides a leak."""
    story = told(gc_sawtooth())
    return "A leak beneath the saw-tooth of a garbage collector", [memory_panel(story, HOST), *forecasts(story)]


PICTURES: tuple[Callable[[], Picture], ...] = (leak, fill, peaks, sawtooth)


def forecasts(story: RunData) -> list[Panel]:
    """The panel of the forecasts as they evolved, where there were any."""
    panel = forecast_panel(story, HOST)
    return [] if panel is None else [panel]


def with_fan(story: RunData) -> Panel:
    """Memory against time, and where it was said to go."""
    panel = memory_panel(story, HOST)
    said = [one for one in story.notices_of(HOST, *FORECAST_EVENTS) if one["eta_hi_s"] is not None]
    one = min(said, key=lambda one: abs(one.t - FAN_AT * story.end_t))
    used, limit = float(one["used"]), float(one["limit"])
    middle, early, late = (one.t + one[name] for name in ("eta_s", "eta_lo_s", "eta_hi_s"))
    fan: list[Mark] = [
        PolygonMark([(one.t, used), (early, limit), (late, limit)], "forecast faint"),
        LineMark([(one.t, used), (middle, limit)], "forecast dashed"),
    ]
    words = f"in {format_duration(one['eta_s'])} ({format_duration(early - one.t)}-{format_duration(late - one.t)})"
    lines = (f"forecast after {format_duration(one.t)}:", f"the limit is reached {words}")
    label = Label(one.t, used, lines, "forecast")
    x = ChartAxis.over(panel.x.low, max(panel.x.high, 1.02 * late), panel.x.ticks)
    return replace(panel, x=x, marks=[*panel.marks, *fan], labels=[*panel.labels, label])


def told(trace: Trace, gauge: Sequence[int] = ()) -> RunData:
    """The story of a generated trace, through the same files and functions as any recorded one.

    `gauge`: what its log says of a buffer, at each row; none when it says nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("t", "rss", "limit", "gen", "total_gens", "driver", "driver_capacity"))
            for row, level in zip_longest(trace.rows, gauge):
                capacity = None if level is None else CAPACITY
                rows.writerow((row.t, row.used, row.limit, row.generation, row.total, level, capacity))
        notices: list[Notice] = []
        end = _drained(path, notices)
        return build_run_data(read_trace(path), notices, end)


def _drained(path: Path, notices: list[Notice]) -> Snapshot:
    events = replay_notices(path, POLICY)
    while True:
        try:
            notices.append(next(events))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def main(folder: Path) -> None:
    """Draw all pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for picture in PICTURES:
        title, panels = picture()
        (folder / f"{picture.__name__}.svg").write_text(render_svg_file(panels, WIDE, [title], dark=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
