"""Panels of a run: memory, forecasts and growth against time; memory, phases and Python types by generation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from statistics import median, quantiles
from typing import TypeVar

from memwatch.core.examination import TypeCount
from memwatch.core.measurements import HOST
from memwatch.core.snapshot import GenerationRow, ResourceView
from memwatch.core.text_and_units import format_bytes, format_duration, printable, without_main_module
from memwatch.outputs.charts.run_data import FORECAST_EVENTS, MemorySeries, RunData, TimedNotice
from memwatch.outputs.charts.svg_axes_and_marks import (
    MOST_DOTS,
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
    Spans,
    Ticker,
    byte_ticks,
    count_ticks,
    duration_ticks,
    hold_intervals,
    step_corners,
)
from memwatch.outputs.charts.svg_chart import SERIES, TINTS, Boundaries, Label, Panel, Ribbon
from memwatch.outputs.text.formatting import format_index, latest_attempt_rows, phase_delta

T = TypeVar("T")

OFF_SCALE = 4.0  # a limit above this multiple of the peak is not drawn: it would flatten everything else (chosen)
# A line is interrupted where samples are missing for this many usual intervals and this share of the run (chosen).
GAP_STEPS, GAP_SHARE = 10.0, 0.01
HALF_BAR = 0.36  # half of a bar's width in generations; chosen, it leaves a gap between bars
MOST_LABELS = 4  # labels of one kind in a panel; more would cover the lines
KINDS = {
    "boundary": "no room for another",
    "time": "last moment for a checkpoint",
    "saved": "just after a checkpoint",
    "emergency": "a burst",
}


def run_panels(story: RunData) -> list[Panel]:
    """Returns the panels of each resource, from top to bottom."""
    return [
        panel
        for resource in story.memory
        for panel in (memory_panel(story, resource), forecast_panel(story, resource), growth_panel(story, resource))
        if panel is not None
    ]


def memory_panel(story: RunData, resource: str) -> Panel:
    """Memory and its limit against time; verdicts along the bottom, generations along the top, phases shaded."""
    memory = story.memory[resource]
    levels = [limit for _, limit in memory.limits if limit is not None and limit <= OFF_SCALE * memory.peak]
    y = ChartAxis.over(0.0, 1.1 * max([memory.peak, *levels]), byte_ticks)
    phases = _phases(story)
    runs = [piece for run in memory.runs for piece in _unbroken(run, story.end_t)]
    return Panel(
        title=resource_title(resource, "memory"),
        x=_time(story),
        y=y,
        height=330,
        marks=[
            phases,
            *(AreaMark(run, "memory wash") for run in runs if not phases.spans),
            *(LineMark(piece, "limit dashed") for piece in _levels(memory, story.end_t)),
            *_event_rules(story, resource),
            *(LineMark(run, "memory") for run in runs),
            Dots([(*run[0], "") for run in runs if len(run) == 1], "memory"),
            Dots(
                [(t, used, f"limit met {format_elapsed(t)}") for t, used in memory.limit_reached], "limit", radius=5.0
            ),
        ],
        labels=[
            *(
                Label(one.t, None, _decision(one, story.end.unit))
                for one in story.first_interrupts(resource)[:MOST_LABELS]
            ),
            *(Label(t, used, ("limit met",), "limit") for t, used in memory.limit_reached[:MOST_LABELS]),
            *_limit_labels(memory, y),
            *(Label(t, None, ("restart",), "muted") for t in story.restarts[:MOST_LABELS]),
        ],
        legend=[("line memory", "memory used")],
        boundaries=Boundaries(story.markers, printable(story.end.unit, 12)) if story.markers else None,
        ribbon=Ribbon(_verdicts(story, resource), "verdict"),
    )


def forecast_panel(story: RunData, resource: str) -> Panel | None:
    """When the limit was expected to be reached, as forecast at each time; None if there was no such forecast."""
    runs = list(_forecasts(story, resource))
    if not runs:
        return None
    met = story.memory[resource].limit_reached
    top = _reach([row[1] for run, _ in runs for row in run], story.end_t, met[-1][0] if met else 0.0)
    now = min(story.end_t, top)
    said = [(one.t, one.t + one["eta_s"], _spoken(one)) for one in _with(story, resource, "eta_s")]
    truths = [(story.process_start_t(t), t) for t, _ in met]
    return Panel(
        title=resource_title(resource, "when the limit will be met, as forecast at each time"),
        x=_time(story),
        y=ChartAxis.over(0.0, top, duration_ticks),
        height=260,
        marks=[
            PolygonMark([(0.0, 0.0), (now, now), (story.end_t, now), (story.end_t, 0.0)], "muted wash"),
            *(Band([(t, low, high) for t, _, low, high in run], until, "forecast faint") for run, until in runs),
            LineMark([(0.0, 0.0), (now, now)], "muted thin"),
            *_event_rules(story, resource),
            *(LineMark([(start, t), (t, t)], "limit dashed") for start, t in truths),
            *(
                LineMark(step_corners([(t, middle) for t, middle, _, _ in run], until), "forecast")
                for run, until in runs
            ),
            Dots(said if len(said) <= MOST_DOTS else [], "forecast"),  # more would hide their line
            Dots([(t, t, f"limit met {format_elapsed(t)}") for t, _ in met], "limit", radius=5.0),
        ],
        labels=[
            *(Label(start, t, (f"limit met {format_elapsed(t)}",), "limit") for start, t in truths[:MOST_LABELS]),
            Label(0.5 * now, 0.5 * now, ("now",), "muted"),
        ],
        legend=[("line forecast", "forecast, held until the next"), ("fill forecast faint", "90 % of outcomes")],
    )


def growth_panel(story: RunData, resource: str) -> Panel | None:
    """Estimated growth per generation beside the growth of each generation; None without markers."""
    said = _with(story, resource, "growth_per_gen")
    if not said:
        return None
    unit = printable(story.end.unit, 20)
    rows = [one for one in story.notices_of(resource, "generation") if not one["partial"] and one["delta"] is not None]
    grown = [(one.t, one["delta"], _spoken(one)) for one in rows]
    estimates = [(one.t, one["growth_per_gen"]) for one in said]
    low, high = _range([growth for _, growth in estimates], [growth for _, growth, _ in grown])
    return Panel(
        title=resource_title(resource, f"growth per {unit}"),
        x=_time(story),
        y=ChartAxis.over(low, high, byte_ticks),
        height=150,
        marks=[
            LineMark([(0.0, 0.0), (story.end_t, 0.0)], "muted thin"),
            *_event_rules(story, resource),
            Dots(grown, "memory"),
            LineMark(step_corners(estimates, story.end_t), "forecast"),
        ],
        legend=[("line forecast", "as estimated"), ("dot memory", f"in the {unit} that ended then")],
    )


# --- parts of panels ------------------------------------------------------------------------------------------------


def _time(story: RunData) -> ChartAxis:
    """The time axis, a little longer than the run, so that events at its end are not cut off."""
    return ChartAxis.over(0.0, 1.015 * story.end_t, duration_ticks)


def format_elapsed(t: float) -> str:
    """`after 2 h`: seconds since the first event, for people."""
    return f"after {format_duration(t)}" if t >= 1 else "within a second" if t > 0 else "at once"


def resource_title(resource: str, words: str) -> str:
    """A panel's title, which names the resource unless it is main memory."""
    return words[0].upper() + words[1:] if resource == HOST else f"{resource}: {words}"


def _spoken(said: TimedNotice) -> str:
    return f"{format_elapsed(said.t)}: {said.notice.text}"


def _with(story: RunData, resource: str, name: str) -> list[TimedNotice]:
    """The notices with a forecast in which this field is known."""
    return [one for one in story.notices_of(resource, *FORECAST_EVENTS) if one[name] is not None]


def _event_rules(story: RunData, resource: str) -> list[Mark]:
    """Vertical lines in every panel: restarts, and interrupts, of which the decisions are bold."""
    decisions = [one.t for one in story.first_interrupts(resource)]
    others = [one.t for one in story.notices_of(resource, "interrupt") if one.t not in decisions]
    return [Rules(story.restarts, "dotted muted"), Rules(others, "thin ink"), Rules(decisions, "bold ink")]


def _decision(said: TimedNotice, unit: str) -> tuple[str, ...]:
    """Lines of a label: when, where, with how much room, and why. They stand within the chart, so they are short."""
    word = printable(unit, 12)
    where = "" if said["gen"] is None else f"in {word} {format_index(said['gen'])}"
    room = "" if said["headroom"] is None else f"{format_bytes(said['headroom'])} left"
    why = KINDS.get(said["kind"], str(said["kind"] or "")) + (f" {word}" if said["kind"] == "boundary" else "")
    lines = (f"interrupt {format_elapsed(said.t)}", ", ".join(part for part in (where, room) if part), why)
    return tuple(line for line in lines if line)


def phase_tints(story: RunData) -> dict[str, str]:
    """Assigns a colour to each of the phases that take the most time."""
    lasted: dict[str, float] = {}
    for start, end, name in story.phases:
        lasted[name] = lasted.get(name, 0.0) + end - start
    longest = sorted(lasted, key=lambda name: -lasted[name])[:TINTS]
    return {name: f"tint{i}" for i, name in enumerate(name for name in lasted if name in longest and lasted[name])}


def _phases(story: RunData) -> Spans:
    tints = phase_tints(story)
    return Spans(
        [(start, end, f"{tints[name]} tint") for start, end, name in story.phases if name in tints],
        [(f"fill {tint} tint", printable(name, 30)) for name, tint in tints.items()],
    )


def _unbroken(run: Sequence[Point], span: float) -> Iterator[Sequence[Point]]:
    """Yields the pieces of a run between which samples are missing for far longer than usual."""
    gaps = [then[0] - before[0] for before, then in pairwise(run)]
    least = max(GAP_STEPS * median(gaps), GAP_SHARE * span) if gaps else 0.0
    cuts = [0, *(i + 1 for i, gap in enumerate(gaps) if gap > least), len(run)]
    return (run[start:end] for start, end in pairwise(cuts) if end > start)


def _levels(memory: MemorySeries, end_t: float) -> list[Sequence[Point]]:
    """The steps of the limit, without the times at which it is unknown."""
    known = _runs(memory.limits, end_t)
    return [[corner for start, end, limit in run for corner in ((start, limit), (end, limit))] for run in known]


def _limit_labels(memory: MemorySeries, y: ChartAxis) -> Iterator[Label]:
    for t, limit in memory.limits[:MOST_LABELS]:
        if limit is not None and limit <= y.high:
            yield Label(t, limit, (f"limit {format_bytes(limit)}",), "limit")
        elif limit is not None:
            yield Label(t, y.high, (f"limit {format_bytes(limit)}, far above",), "limit")


def _runs(points: Sequence[tuple[float, T | None]], end_t: float) -> list[list[tuple[float, float, T]]]:
    """Runs of (from, to, value), where each value holds until the next; times at which it is None separate them."""
    runs: list[list[tuple[float, float, T]]] = [[]]
    for start, end, value in hold_intervals(points, end_t):
        if value is not None:
            runs[-1].append((start, end, value))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _forecasts(story: RunData, resource: str) -> Iterator[tuple[list[tuple[float, float, float, float]], float]]:
    """Yields runs of forecasts (when made; when the limit is reached: middle, early, late), and when each run ended."""
    said = story.notices_of(resource, *FORECAST_EVENTS)
    for run in _runs([(one.t, None if one["eta_s"] is None else one) for one in said], story.end_t):
        yield [(t, *_met(t, one)) for t, _, one in run], run[-1][1]


def _met(t: float, said: TimedNotice) -> tuple[float, float, float]:
    middle, low, high = said["eta_s"], said["eta_lo_s"], said["eta_hi_s"]
    return t + middle, t + (middle if low is None else low), math.inf if high is None else t + high


def _reach(middles: Sequence[float], end_t: float, met_t: float) -> float:
    """How far ahead to show: when the limit was reached, and 90 % of the forecasts unless they make the rest flat."""
    most = quantiles(middles, n=10)[-1] if len(middles) > 1 else middles[0]
    return max(1.25 * met_t, min(1.4 * most, 2.0 * met_t or 4.0 * end_t))


def _range(estimates: Sequence[float], grown: Sequence[float]) -> tuple[float, float]:
    """The range of growth to show: every estimate, and the measured growth without its most extreme twentieths."""
    inner = [quantiles(grown, n=20)[i] for i in (0, -1)] if len(grown) > 1 else list(grown)
    low, high = min([0.0, *estimates, *inner]), max([0.0, *estimates, *inner])
    return low - 0.08 * (high - low), high + 0.08 * (high - low)


def _verdicts(story: RunData, resource: str) -> list[tuple[float, float, str]]:
    """Returns (from, to, verdict), without repetitions."""
    said = [(one.t, one["verdict"]) for one in _with(story, resource, "verdict")]
    begins = [next(group) for _, group in groupby(said, key=lambda item: item[1])]
    return hold_intervals(begins, story.end_t)


# --- by generation ---------------------------------------------------------------------------------------------------


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
        Dots([(row.index, float(row.end_bytes), _generation_words(row, unit)) for row in rows], "memory"),
    ]
    legend = [("line memory", f"at the end of the {unit}"), ("line forecast dotted", "its peak")]
    if limit is not None and limit.bytes <= OFF_SCALE * top:
        top = max(top, float(limit.bytes))
        marks.append(LineMark([(rows[0].index - 1, limit.bytes), (rows[-1].index + 1, limit.bytes)], "limit dashed"))
        legend.append(("line limit dashed", f"limit {format_bytes(limit.bytes)}"))
    title = resource_title(view.usage.resource, f"memory by {unit}")
    return Panel(title, _across(rows), ChartAxis.over(0.0, 1.1 * top, byte_ticks), 220, marks, legend=legend)


def _generation_words(row: GenerationRow, unit: str) -> str:
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
