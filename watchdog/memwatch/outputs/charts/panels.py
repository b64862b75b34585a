"""Panels of a run: memory, forecasts and growth against time; memory, phases and Python types by generation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import attrgetter
from statistics import quantiles
from typing import TypeVar

from memwatch.core.examination import TypeCount
from memwatch.core.measurements import HOST
from memwatch.core.snapshot import GenerationRow, ResourceView
from memwatch.core.text_and_units import format_bytes, format_duration, printable, without_main_module
from memwatch.outputs.charts.pointer_words import Words, latest, moment_words, range_words
from memwatch.outputs.charts.run_data import FORECAST_EVENTS, RunData, TimedNotice
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
OUTAGES = 3  # how often a run's watch is away for long, at most (chosen)
HALF_BAR = 0.36  # half of a bar's width in generations; chosen, it leaves a gap between bars
MOST_LABELS = 4  # labels of one kind in a panel; more would cover the lines
INTERRUPT_REASONS = {
    "boundary": "no room for another",
    "time": "last moment for a checkpoint",
    "saved": "just after a checkpoint",
    "emergency": "a burst",
}


def run_panels(run: RunData) -> list[Panel]:
    """Returns the panels of each resource, from top to bottom."""
    return [
        panel
        for resource in run.memory
        for panel in (memory_panel(run, resource), forecast_panel(run, resource), growth_panel(run, resource))
        if panel is not None
    ]


def memory_panel(run: RunData, resource: str) -> Panel:
    """Memory and its limit against time; verdicts along the bottom, generations along the top, phases shaded."""
    memory = run.memory[resource]
    limits = [limit for _, limit in memory.limits if limit is not None and limit <= OFF_SCALE * memory.peak]
    y = ChartAxis.over(0.0, 1.1 * max([memory.peak, *limits]), byte_ticks)
    phases = _phases(run)
    lines = [line for samples in memory.by_process for line in _split_at_gaps(samples, run.end_t)]
    return Panel(
        title=resource_title(resource, "memory"),
        x=_time_axis(run),
        y=y,
        height=330,
        marks=[
            phases,
            *(AreaMark(line, "memory wash") for line in lines if not phases.spans),
            *(
                LineMark(step_corners(steps, until), "limit dashed")
                for steps, until in _known_runs(memory.limits, run.end_t)
            ),
            *_event_rules(run, resource),
            *(LineMark(line, "memory") for line in lines),
            Dots([(*line[0], "") for line in lines if len(line) == 1], "memory"),
            Dots([(t, used, _reached_words(t)) for t, used in memory.limit_reached], "limit", radius=5.0),
        ],
        labels=[
            *(
                Label(one.t, None, _interrupt_lines(one, run.end.unit))
                for one in run.first_interrupts(resource)[:MOST_LABELS]
            ),
            *(Label(t, used, ("limit reached",), "limit") for t, used in memory.limit_reached[:MOST_LABELS]),
            *(_limit_label(t, limit, y.high) for t, limit in memory.limits[:MOST_LABELS] if limit is not None),
            *(Label(t, None, ("restart",), "muted") for t in run.restarts[:MOST_LABELS]),
        ],
        legend=[("line memory", "memory used")],
        boundaries=Boundaries(run.markers, printable(run.end.unit, 12)) if run.markers else None,
        ribbon=Ribbon(_verdicts(run, resource), "verdict"),
        words_between=_memory_words(run, resource, lines),
    )


def forecast_panel(run: RunData, resource: str) -> Panel | None:
    """When the limit was expected to be reached, as forecast at each time; None if there was no such forecast."""
    notices = run.notices_of(resource, *FORECAST_EVENTS)
    known = _known_runs([(one.t, None if one["eta_s"] is None else one) for one in notices], run.end_t)
    forecasts = [([_absolute_forecast(one) for _, one in made], until) for made, until in known]
    if not forecasts:
        return None
    reached = [t for t, _ in run.memory[resource].limit_reached]
    middles = [middle for rows, _ in forecasts for _, middle, *_ in rows]
    top = _forecast_top(middles, run.end_t, max(reached, default=0.0))
    now = min(run.end_t, top)
    dots = [(one.t, one.t + one["eta_s"], _words(one)) for one in notices if one["eta_s"] is not None]
    truths = [(run.process_start_t(t), t) for t in reached]
    return Panel(
        title=resource_title(resource, "forecast time of reaching the limit"),
        x=_time_axis(run),
        y=ChartAxis.over(0.0, top, duration_ticks),
        height=260,
        marks=[
            PolygonMark([(0.0, 0.0), (now, now), (run.end_t, now), (run.end_t, 0.0)], "muted wash"),
            *(Band([(t, low, high) for t, _, low, high in rows], until, "forecast faint") for rows, until in forecasts),
            LineMark([(0.0, 0.0), (now, now)], "muted thin"),
            *_event_rules(run, resource),
            *(LineMark([(start, t), (t, t)], "limit dashed") for start, t in truths),
            *(
                LineMark(step_corners([(t, middle) for t, middle, *_ in rows], until), "forecast")
                for rows, until in forecasts
            ),
            Dots(dots if len(dots) <= MOST_DOTS else [], "forecast"),  # more would hide their line
            Dots([(t, t, _reached_words(t)) for t in reached], "limit", radius=5.0),
        ],
        labels=[
            *(Label(start, t, (_reached_words(t),), "limit") for start, t in truths[:MOST_LABELS]),
            Label(0.5 * now, 0.5 * now, ("now",), "muted"),
        ],
        legend=[("line forecast", "forecast, held until the next"), ("fill forecast faint", "90 % of outcomes")],
        words_between=_forecast_words(notices),
    )


def growth_panel(run: RunData, resource: str) -> Panel | None:
    """Estimated growth per generation beside the growth of each generation; None without markers."""
    notices = run.notices_of(resource, *FORECAST_EVENTS)
    estimates = [(one.t, one["growth_per_gen"]) for one in notices if one["growth_per_gen"] is not None]
    if not estimates:
        return None
    unit = printable(run.end.unit, 20)
    ended = [one for one in run.notices_of(resource, "generation") if not one["partial"] and one["delta"] is not None]
    low, high = _growth_range([growth for _, growth in estimates], [one["delta"] for one in ended])
    return Panel(
        title=resource_title(resource, f"growth per {unit}"),
        x=_time_axis(run),
        y=ChartAxis.over(low, high, byte_ticks),
        height=150,
        marks=[
            LineMark([(0.0, 0.0), (run.end_t, 0.0)], "muted thin"),
            *_event_rules(run, resource),
            Dots([(one.t, one["delta"], _words(one)) for one in ended], "memory"),
            LineMark(step_corners(estimates, run.end_t), "forecast"),
        ],
        legend=[("line forecast", "as estimated"), ("dot memory", f"in the {unit} that ended then")],
        words_between=_growth_words(estimates, unit),
    )


# --- under the pointer ----------------------------------------------------------------------------------------------


def _memory_words(run: RunData, resource: str, pieces: Sequence[Sequence[Point]]) -> Words:
    limits, unit = run.memory[resource].limits, printable(run.end.unit, 12)

    def words(low: float, high: float) -> str:
        used = range_words(pieces, low, high)
        if not used:
            return ""
        limit = latest(limits, high)
        of = "" if limit is None else f" of {format_bytes(limit)}"
        name = "" if resource == HOST else f"{resource}: "
        return f"{name}{used}{of}, {moment_words((low + high) / 2, run.markers, unit)}"

    return words


def _forecast_words(notices: Sequence[TimedNotice]) -> Words:
    forecasts = [(one.t, None if one["eta_s"] is None else _absolute_forecast(one)) for one in notices]

    def words(_: float, high: float) -> str:
        forecast = latest(forecasts, high)
        if forecast is None:
            return ""
        _, middle, early, late = forecast
        until = "never" if math.isinf(late) else format_duration(late)
        return f"forecast: limit after {format_duration(middle)} ({format_duration(early)} - {until})"

    return words


def _growth_words(estimates: Sequence[Point], unit: str) -> Words:
    def words(_: float, high: float) -> str:
        growth = latest(estimates, high)
        return "" if growth is None else f"{format_bytes(growth, signed=True)} per {unit}, as estimated then"

    return words


# --- parts of panels ------------------------------------------------------------------------------------------------


def _time_axis(run: RunData) -> ChartAxis:
    """A little longer than the run, so that events at its end are not cut off."""
    return ChartAxis.over(0.0, 1.015 * run.end_t, duration_ticks)


def format_elapsed(t: float) -> str:
    """`after 2 h`: seconds since the first event, for people."""
    return f"after {format_duration(t)}" if t >= 1 else "within a second" if t > 0 else "at once"


def resource_title(resource: str, words: str) -> str:
    """A panel's title, which names the resource unless it is main memory."""
    return words[0].upper() + words[1:] if resource == HOST else f"{resource}: {words}"


def _words(one: TimedNotice) -> str:
    """The notice as it shows under the pointer."""
    return f"{format_elapsed(one.t)}: {one.notice.text}"


def _reached_words(t: float) -> str:
    return f"limit reached {format_elapsed(t)}"


def _event_rules(run: RunData, resource: str) -> list[Mark]:
    """Vertical lines in every panel: restarts, and interrupts, of which the decisions are bold."""
    decisions = [one.t for one in run.first_interrupts(resource)]
    others = [one.t for one in run.notices_of(resource, "interrupt") if one.t not in decisions]
    return [Rules(run.restarts, "dotted muted"), Rules(others, "thin ink"), Rules(decisions, "bold ink")]


def _interrupt_lines(interrupt: TimedNotice, unit: str) -> tuple[str, ...]:
    """When, where, with how much headroom, and why. The lines stand within the chart, so they are short."""
    word = printable(unit, 12)
    where = "" if interrupt["gen"] is None else f"in {word} {format_index(interrupt['gen'])}"
    headroom = "" if interrupt["headroom"] is None else f"{format_bytes(interrupt['headroom'])} left"
    kind = str(interrupt["kind"] or "")
    why = INTERRUPT_REASONS.get(kind, kind) + (f" {word}" if kind == "boundary" else "")
    lines = (f"interrupt {format_elapsed(interrupt.t)}", ", ".join(filter(None, (where, headroom))), why)
    return tuple(filter(None, lines))


def phase_tints(run: RunData) -> dict[str, str]:
    """Assigns a colour to each of the phases that take the most time."""
    lasted: dict[str, float] = {}
    for start, end, name in run.phases:
        lasted[name] = lasted.get(name, 0.0) + end - start
    longest = sorted(lasted, key=lambda name: -lasted[name])[:TINTS]
    return {name: f"tint{i}" for i, name in enumerate(name for name in lasted if name in longest and lasted[name])}


def _phases(run: RunData) -> Spans:
    tints = phase_tints(run)
    return Spans(
        [(start, end, f"{tints[name]} tint") for start, end, name in run.phases if name in tints],
        [(f"fill {tint} tint", printable(name, 30)) for name, tint in tints.items()],
    )


def _split_at_gaps(samples: Sequence[Point], span: float) -> Iterator[Sequence[Point]]:
    """Yields the pieces between which samples are missing for far longer than usual."""
    gaps = [then[0] - before[0] for before, then in pairwise(samples)]
    least = max(GAP_STEPS * _usual_gap(gaps), GAP_SHARE * span) if gaps else 0.0
    cuts = [0, *(i + 1 for i, gap in enumerate(gaps) if gap > least), len(samples)]
    return (samples[start:end] for start, end in pairwise(cuts) if end > start)


def _usual_gap(gaps: Sequence[float]) -> float:
    """The longest but for OUTAGES, in which nobody watched. The median is far shorter where an examination sampled."""
    return sorted(gaps)[max(len(gaps) // 2, len(gaps) - 1 - OUTAGES)]


def _limit_label(t: float, limit: int, top: float) -> Label:
    beyond = ", far above" if limit > top else ""
    return Label(t, min(limit, top), (f"limit {format_bytes(limit)}{beyond}",), "limit")


def _known_runs(
    points: Sequence[tuple[float, T | None]], end_t: float
) -> Iterator[tuple[list[tuple[float, T]], float]]:
    """Yields runs of known values, each of which holds until the next, and when each run ended: None separates them."""
    for is_known, group in groupby(hold_intervals(points, end_t), key=lambda interval: interval[2] is not None):
        if is_known:
            intervals = list(group)
            yield [(start, value) for start, _, value in intervals if value is not None], intervals[-1][1]


def _absolute_forecast(one: TimedNotice) -> tuple[float, float, float, float]:
    """When the forecast was made, and when it expects the limit to be reached: middle, early, late."""
    middle, low, high = one["eta_s"], one["eta_lo_s"], one["eta_hi_s"]
    return one.t, one.t + middle, one.t + (middle if low is None else low), math.inf if high is None else one.t + high


def _forecast_top(middles: Sequence[float], end_t: float, reached_t: float) -> float:
    """How far ahead to show: when the limit was reached, and 90 % of the forecasts unless they make the rest flat."""
    most = quantiles(middles, n=10)[-1] if len(middles) > 1 else middles[0]
    return max(1.25 * reached_t, min(1.4 * most, 2.0 * reached_t or 4.0 * end_t))


def _growth_range(estimates: Sequence[float], measured: Sequence[float]) -> tuple[float, float]:
    """The range of growth to show: every estimate, and the measured growth without its most extreme twentieths."""
    inner = [quantiles(measured, n=20)[i] for i in (0, -1)] if len(measured) > 1 else list(measured)
    low, high = min([0.0, *estimates, *inner]), max([0.0, *estimates, *inner])
    return low - 0.08 * (high - low), high + 0.08 * (high - low)


def _verdicts(run: RunData, resource: str) -> list[tuple[float, float, str]]:
    """Returns (from, to, verdict), without repetitions."""
    notices = run.notices_of(resource, *FORECAST_EVENTS)
    verdicts = [(one.t, one["verdict"]) for one in notices if one["verdict"] is not None]
    begins = [next(group) for _, group in groupby(verdicts, key=lambda item: item[1])]
    return hold_intervals(begins, run.end_t)


# --- by generation --------------------------------------------------------------------------------------------------


def generation_panels(run: RunData) -> Iterator[Panel]:
    """Yields the panels of each resource that has generations, then those of the Python types."""
    for view in run.end.resources:
        rows = latest_attempt_rows(view.generations)
        if len(rows) > 1 and view.usage.resource in run.memory:
            yield memory_by_generation_panel(run, view)
            yield from phases_panel(run, view)
    yield from types_panels(run)


def memory_by_generation_panel(run: RunData, view: ResourceView) -> Panel:
    rows, unit = latest_attempt_rows(view.generations), printable(run.end.unit, 20)
    peaks = [(row.index, float(row.peak_bytes)) for row in rows]
    ends = [(row.index, float(row.end_bytes)) for row in rows]
    top = max(level for _, level in peaks)
    limit = view.usage.limit
    marks: list[Mark] = [
        LineMark(peaks, "forecast dotted"),
        Dots([(x, y, f"peak in {unit} {format_index(x)}: {format_bytes(y)}") for x, y in peaks], "forecast"),
        LineMark(ends, "memory"),
        Dots([(*end, _generation_words(row, unit)) for end, row in zip(ends, rows, strict=True)], "memory"),
    ]
    legend = [("line memory", f"at the end of the {unit}"), ("line forecast dotted", "its peak")]
    if limit is not None and limit.bytes <= OFF_SCALE * top:
        top = max(top, float(limit.bytes))
        marks.append(LineMark([(rows[0].index - 1, limit.bytes), (rows[-1].index + 1, limit.bytes)], "limit dashed"))
        legend.append(("line limit dashed", f"limit {format_bytes(limit.bytes)}"))
    title = resource_title(view.usage.resource, f"memory by {unit}")
    return Panel(title, _generation_axis(rows), ChartAxis.over(0.0, 1.1 * top, byte_ticks), 220, marks, legend=legend)


def _generation_words(row: GenerationRow, unit: str) -> str:
    took = "not ended" if row.end_t is None else f"in {format_duration(row.end_t - row.start_t)}"
    change = format_bytes(row.delta_bytes, signed=True)
    return f"{unit} {format_index(row.index)}: {format_bytes(row.end_bytes)}, {change} {took}"


def _generation_axis(rows: Sequence[GenerationRow]) -> ChartAxis:
    return ChartAxis.over(rows[0].index - 0.6, rows[-1].index + 0.6, count_ticks)


def phases_panel(run: RunData, view: ResourceView) -> Iterator[Panel]:
    """Yields a panel of how memory changed in each phase; memory that was released hangs below zero."""
    rows, unit = latest_attempt_rows(view.generations), printable(run.end.unit, 20)
    tints = phase_tints(run)
    bars: dict[str, list[tuple[float, float, float, float, str]]] = {name: [] for name in tints}
    low, high = 0.0, 0.0
    for row in rows:
        above, below = 0.0, 0.0
        for name in tints:
            delta = float(phase_delta(row, name) or 0)
            words = f"{name} of {unit} {format_index(row.index)}: {format_bytes(delta, signed=True)}"
            start = above if delta > 0 else below
            left, right = row.index - HALF_BAR, row.index + HALF_BAR
            bars[name].append((left, right, min(start, start + delta), max(start, start + delta), words))
            above, below = (above + delta, below) if delta > 0 else (above, below + delta)
        low, high = min(low, below), max(high, above)
    if high > low:
        yield Panel(
            resource_title(view.usage.resource, f"change of memory by phase of each {unit}"),
            _generation_axis(rows),
            ChartAxis.over(1.05 * low, 1.05 * high, byte_ticks),
            200,
            [
                *(Bars(bars[name], tint) for name, tint in tints.items()),
                LineMark([(rows[0].index - 1, 0.0), (rows[-1].index + 1, 0.0)], "muted thin"),
            ],
            legend=[(f"fill {tint}", printable(name, 30)) for name, tint in tints.items()],
        )


def types_panels(run: RunData) -> Iterator[Panel]:
    """Yields panels of the bytes and counts of the types that grow, at each examination."""
    by_time, unit = _is_by_time(run), printable(run.end.unit, 20)
    for title, ticks, shown, field in (
        ("Memory of Python objects by type", byte_ticks, format_bytes, "bytes"),
        ("Python objects by type", count_ticks, "{:,.0f}".format, "count"),
    ):
        series = growing_types(run, attrgetter(field))
        if not series:
            continue
        xs = [x for points in series.values() for x, _ in points]
        if by_time:
            across, axis = "time", ChartAxis.over(min(xs), max(xs), duration_ticks)
        else:
            across, axis = unit, ChartAxis.over(min(xs) - 0.6, max(xs) + 0.6, count_ticks)
        marks: list[Mark] = []
        legend = []
        for i, (type_name, points) in enumerate(series.items()):
            name, style, dots = printable(without_main_module(type_name), 60), f"series{i}", []
            for x, y in points:
                where = f"after {format_duration(x)}" if by_time else f"{unit} {format_index(x)}"
                dots.append((x, y, f"{name}, {where}: {shown(y)}"))
            marks += [LineMark(points, style), Dots(dots, style)]
            legend.append((f"line {style}", name))
        top = max(y for points in series.values() for _, y in points)
        yield Panel(f"{title}, by {across}", axis, ChartAxis.over(0.0, 1.1 * top, ticks), 220, marks, legend=legend)


def growing_types(
    run: RunData, figure: Callable[[TypeCount], int | None], most: int = SERIES
) -> dict[str, list[Point]]:
    """Returns (generation or seconds, value) at each examination, of the types that grew the most."""
    by_time = _is_by_time(run)
    series: dict[str, list[Point]] = {}
    for t, one in run.examined:
        census = one.found.census
        if census is None or not census.complete:
            continue
        x = t if by_time else float(one.asked.generation or 0)
        for counted in census.types:
            value = figure(counted)
            if value is not None:
                series.setdefault(counted.type, []).append((x, float(value)))
    growth = {name: points[-1][1] - points[0][1] for name, points in series.items() if len(points) > 1}
    largest = sorted((name for name in growth if growth[name] > 0), key=lambda name: -growth[name])[:most]
    return {name: series[name] for name in largest}


def _is_by_time(run: RunData) -> bool:
    """Whether the x axis is time: without a generation, examinations differ in nothing else."""
    return any(one.asked.generation is None for _, one in run.examined)
