"""Panels of a run by generation: memory, growth in each phase, Python objects by type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from memwatch.core.examination import TypeCount
from memwatch.core.snapshot import GenerationRow, ResourceView
from memwatch.core.text_and_units import format_bytes, format_duration, printable, without_main_module
from memwatch.outputs.charts.panels import OFF_SCALE, phase_tints, resource_title
from memwatch.outputs.charts.run_data import RunData
from memwatch.outputs.charts.svg_axes_and_marks import (
    Bars,
    ChartAxis,
    Dots,
    LineMark,
    Mark,
    Ticker,
    byte_ticks,
    count_ticks,
    duration_ticks,
)
from memwatch.outputs.charts.svg_chart import SERIES, Panel
from memwatch.outputs.text.formatting import format_index, latest_attempt_rows, phase_delta

HALF_BAR = 0.36  # half of a bar's width in generations; chosen, it leaves a gap between bars


def generation_panels(story: RunData) -> Iterator[Panel]:
    """Yields the panels of each resource that has generations, then those of the Python types."""
    for view in story.end.resources:
        rows = latest_attempt_rows(view.generations)
        if len(rows) > 1 and view.usage.resource in story.memory:
            yield memory_by_generation_panel(story, view)
            yield from phases_panel(story, view)
    yield from types_panels(story)


def memory_by_generation_panel(story: RunData, view: ResourceView) -> Panel:
    rows, unit = latest_attempt_rows(view.generations), printable(story.end.unit, 20)
    peaks = [(row.index, float(row.peak_bytes)) for row in rows]
    top = max(level for _, level in peaks)
    limit = view.usage.limit
    marks: list[Mark] = [
        LineMark(peaks, "forecast dotted"),
        Dots([(x, y, f"peak in {unit} {format_index(x)}: {format_bytes(y)}") for x, y in peaks], "forecast"),
        LineMark([(row.index, float(row.end_bytes)) for row in rows], "memory"),
        Dots([(row.index, float(row.end_bytes), _words(row, unit)) for row in rows], "memory"),
    ]
    legend = [("line memory", f"at the end of the {unit}"), ("line forecast dotted", "its peak")]
    if limit is not None and limit.bytes <= OFF_SCALE * top:
        top = max(top, float(limit.bytes))
        marks.append(LineMark([(rows[0].index - 1, limit.bytes), (rows[-1].index + 1, limit.bytes)], "limit dashed"))
        legend.append(("line limit dashed", f"limit {format_bytes(limit.bytes)}"))
    title = resource_title(view.usage.resource, f"memory by {unit}")
    return Panel(title, _across(rows), ChartAxis.over(0.0, 1.1 * top, byte_ticks), 220, marks, legend=legend)


def _words(row: GenerationRow, unit: str) -> str:
    took = "not ended" if row.end_t is None else f"in {format_duration(row.end_t - row.start_t)}"
    change = format_bytes(row.delta_bytes, signed=True)
    return f"{unit} {format_index(row.index)}: {format_bytes(row.end_bytes)}, {change} {took}"


def _across(rows: Sequence[GenerationRow]) -> ChartAxis:
    return ChartAxis.over(rows[0].index - 0.6, rows[-1].index + 0.6, count_ticks)


def phases_panel(story: RunData, view: ResourceView) -> Iterator[Panel]:
    """Yields a panel of how memory changed in each phase; memory that was released hangs below zero."""
    rows, unit = latest_attempt_rows(view.generations), printable(story.end.unit, 20)
    tints = phase_tints(story)
    boxes: dict[str, list[tuple[float, float, float, float, str]]] = {name: [] for name in tints}
    low, high = 0.0, 0.0
    for row in rows:
        above, below = 0.0, 0.0
        for name in tints:
            delta = float(phase_delta(row, name) or 0)
            words = f"{name} of {unit} {format_index(row.index)}: {format_bytes(delta, signed=True)}"
            start = above if delta > 0 else below
            left, right = row.index - HALF_BAR, row.index + HALF_BAR
            boxes[name].append((left, right, min(start, start + delta), max(start, start + delta), words))
            above, below = (above + delta, below) if delta > 0 else (above, below + delta)
        low, high = min(low, below), max(high, above)
    if high > low:
        yield Panel(
            resource_title(view.usage.resource, f"change of memory by phase of each {unit}"),
            _across(rows),
            ChartAxis.over(1.05 * low, 1.05 * high, byte_ticks),
            200,
            [
                *(Bars(boxes[name], tints[name]) for name in tints),
                LineMark([(rows[0].index - 1, 0.0), (rows[-1].index + 1, 0.0)], "muted thin"),
            ],
            legend=[(f"fill {tint}", printable(name, 30)) for name, tint in tints.items()],
        )


def types_panels(story: RunData) -> Iterator[Panel]:
    """Yields panels of the bytes and counts of the types that grow, at each examination."""
    for title, ticks, shown, figure in (
        ("Memory of Python objects by type", byte_ticks, format_bytes, _bytes),
        ("Python objects by type", count_ticks, "{:,.0f}".format, _count),
    ):
        series = growing_types(story, figure)
        if series:
            yield _types_panel(story, title, ticks, shown, series)


def _bytes(one: TypeCount) -> int | None:
    return one.bytes


def _count(one: TypeCount) -> int | None:
    return one.count


def growing_types(
    story: RunData, figure: Callable[[TypeCount], int | None], most: int = SERIES
) -> dict[str, list[tuple[float, float]]]:
    """Returns (generation or seconds, value) at each examination, of the types that grew the most."""
    named: dict[str, list[tuple[float, float]]] = {}
    for x, types in _examined(story):
        for one in types:
            value = figure(one)
            if value is not None:
                named.setdefault(one.type, []).append((x, float(value)))
    rises = {name: rows[-1][1] - rows[0][1] for name, rows in named.items() if len(rows) > 1}
    first = sorted((name for name in rises if rises[name] > 0), key=lambda name: -rises[name])[:most]
    return {name: named[name] for name in first}


def _examined(story: RunData) -> Iterator[tuple[float, Sequence[TypeCount]]]:
    timed = by_time(story)
    for t, one in story.examined:
        if one.found.census is not None and one.found.census.complete:
            yield (t if timed else float(one.asked.generation or 0)), one.found.census.types


def by_time(story: RunData) -> bool:
    """Whether the x axis is time: without a generation, examinations differ in nothing else."""
    return any(one.asked.generation is None for _, one in story.examined)


def _types_panel(
    story: RunData,
    title: str,
    ticks: Ticker,
    shown: Callable[[float], str],
    series: Mapping[str, list[tuple[float, float]]],
) -> Panel:
    xs = [x for rows in series.values() for x, _ in rows]
    low, high = min(xs), max(xs)
    top = max(y for rows in series.values() for _, y in rows)
    names = [printable(without_main_module(name), 60) for name in series]
    timed, unit = by_time(story), printable(story.end.unit, 20)
    marks: list[Mark] = []
    for i, (name, rows) in enumerate(zip(names, series.values(), strict=True)):
        marks.append(LineMark(rows, f"series{i}"))
        dots = []
        for x, y in rows:
            where = f"after {format_duration(x)}" if timed else f"{unit} {format_index(x)}"
            dots.append((x, y, f"{name}, {where}: {shown(y)}"))
        marks.append(Dots(dots, f"series{i}"))
    across = ChartAxis.over(low, high, duration_ticks) if timed else ChartAxis.over(low - 0.6, high + 0.6, count_ticks)
    return Panel(
        f"{title}, by {'time' if timed else unit}",
        across,
        ChartAxis.over(0.0, 1.1 * top, ticks),
        220,
        marks,
        legend=[(f"line series{i}", name) for i, name in enumerate(names)],
    )
