"""The page at `/`: the state of the watch. It refreshes itself, and contains no script."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import memwatch
from memwatch.core.events import Notice
from memwatch.core.measurements import Usage
from memwatch.core.snapshot import ResourceView, Snapshot, Verdict, WatchState
from memwatch.core.text_and_units import format_bytes, format_duration, printable
from memwatch.outputs.charts.panels import resource_title
from memwatch.outputs.charts.run_data import chart_end_t, visible_limit_bytes
from memwatch.outputs.charts.svg_axes_and_marks import (
    Band,
    ChartAxis,
    LineMark,
    Mark,
    Point,
    PolygonMark,
    Rules,
    byte_ticks,
    duration_ticks,
    step_corners,
)
from memwatch.outputs.charts.svg_chart import Boundaries, Label, Panel
from memwatch.outputs.html import html_document
from memwatch.outputs.html.html_document import Markup
from memwatch.outputs.text.formatting import ROUTINE_EVENTS, format_gauge_value, format_progress, format_verdict

REFRESH_SECONDS = 5
MAX_HTML_GENERATIONS = 12
MOST_NOTICES = 12
LocalTime = Callable[[float], time.struct_time]


def render_home_page(snapshot: Snapshot | None, links: Sequence[str], local_time: LocalTime = time.localtime) -> str:
    """The page; `links` are the paths of the others. A snapshot of None means that nothing has been read yet."""
    nav = html_document.element(
        "nav", *(html_document.element("a", html_document.escape_html(path), href=path) for path in links)
    )
    if snapshot is None:
        return html_document.render_document(
            "memwatch", html_document.paragraph("no sample yet", "lead"), nav, refresh_seconds=REFRESH_SECONDS
        )
    known = snapshot.diagnosis
    bad = snapshot.exited is None and any(view.verdict is Verdict.LEAK for view in snapshot.resources)
    end = snapshot.exited.evidence if snapshot.exited is not None else ()
    return html_document.render_document(
        snapshot.command or "memwatch",
        html_document.element("h1", html_document.escape_html(snapshot.command or "no trainer")),
        html_document.paragraph(snapshot.sentence, "lead bad" if bad else "lead"),
        html_document.items(end),
        html_document.facts(_facts(snapshot)),
        *(part for view in snapshot.resources for part in _resource(view, snapshot)),
        html_document.section("What grows", *html_document.findings_section(known)),
        html_document.section("Generations", *_generations(snapshot)),
        html_document.section("Expectations", html_document.expectations(snapshot.expectations)),
        html_document.section("Latest events", _notices(snapshot.notices, local_time)),
        html_document.section("What cannot be read", html_document.items(_problems(snapshot))),
        nav,
        html_document.element(
            "footer", html_document.escape_html(f"memwatch {memwatch.__version__}, {_clock(snapshot.t, local_time)}")
        ),
        refresh_seconds=REFRESH_SECONDS,
    )


def _clock(t: float, local_time: LocalTime) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", local_time(t))


def _facts(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    if snapshot.target is not None:
        again = f", attempt {snapshot.attempt + 1}" if snapshot.attempt else ""
        yield "process", f"PID {snapshot.target.pid}{again}"
    if snapshot.started_t is not None:
        yield "watched", format_duration(snapshot.t - snapshot.started_t)
    if progress := format_progress(snapshot):
        yield "progress", progress + (f", {snapshot.phase}" if snapshot.phase else "")
    if snapshot.state is not WatchState.WATCHING:
        yield "state", snapshot.state.value
    if snapshot.up:
        yield "interrupt", "would reach it" if snapshot.unarmed is None else f"would not reach it: {snapshot.unarmed}"
    seen = snapshot.checkpoint_t
    yield "last checkpoint", "none seen" if seen is None else f"{format_duration(snapshot.t - seen)} ago"
    yield "a checkpoint takes", f"{format_duration(snapshot.checkpoint_seconds)} ({snapshot.checkpoint_origin})"
    for gauge in snapshot.gauges[:8]:
        of = "" if gauge.capacity is None else f" of {format_gauge_value(gauge.capacity)}"
        yield gauge.name, format_gauge_value(gauge.value) + of


# --- memory ---------------------------------------------------------------------------------------------------------


def _resource(view: ResourceView, snapshot: Snapshot) -> Iterator[Markup]:
    """How much of its limit a resource uses, and its chart if it grows or is the first."""
    usage = view.usage
    yield html_document.element("h2", html_document.escape_html(resource_title(usage.resource, "memory")))
    yield _meter(usage)
    limit = "no known limit" if usage.limit is None else f"of {format_bytes(usage.limit.bytes)} ({usage.limit.origin})"
    yield html_document.paragraph(
        f"{format_bytes(usage.used_bytes)} {limit}; {format_verdict(view, snapshot.unit)};"
        f" peak {format_bytes(view.peak_bytes)}"
    )
    if view.timeline and (view is snapshot.resources[0] or view.verdict in (Verdict.GROWING, Verdict.LEAK)):
        yield html_document.chart_svg(live_memory_panel(view, snapshot))


def _meter(usage: Usage) -> Markup:
    if usage.limit is None or usage.limit.bytes <= 0:
        return Markup("")
    share = usage.used_bytes / usage.limit.bytes
    text = f"{share:.0%}"
    return html_document.element(
        "meter", html_document.escape_html(text), min="0", max="1", high="0.9", value=f"{share:.4f}", title=text
    )


def live_memory_panel(view: ResourceView, snapshot: Snapshot) -> Panel:
    """Memory over the watch, and the forecast: as expected, at the earliest and at the latest; x is in seconds."""
    began = view.timeline[0].t
    now, used = snapshot.t - began, float(view.usage.used_bytes)
    limit, end = visible_limit_bytes(view), chart_end_t(view, began, snapshot.t) - began
    highest = max(one.most_bytes for one in view.timeline)
    ranges = [(one.t - began, float(one.least_bytes), float(one.most_bytes)) for one in view.timeline]
    marks: list[Mark] = [
        Band(ranges, now, "memory faint"),
        LineMark(step_corners([(t, most) for t, _, most in ranges], now), "memory"),
        Rules([now], "dotted muted"),
    ]
    if limit is not None:
        marks += [LineMark([(0.0, limit), (end, limit)], "limit dashed"), *_fan(view, (now, used), limit, end)]
    return Panel(
        f"over {format_duration(now)}, and ahead",
        ChartAxis.over(0.0, end, duration_ticks),
        ChartAxis.over(0.0, 1.1 * max(highest, limit or 0, 1), byte_ticks),
        260,
        marks,
        labels=[] if limit is None else [Label(0.0, limit, (f"limit {format_bytes(limit)}",), "limit")],
        legend=[("line memory", "memory used"), *([("line forecast", "forecast")] if len(marks) > 4 else [])],
        boundaries=_boundaries(view, began, printable(snapshot.unit, 12)),
    )


def _fan(view: ResourceView, here: Point, limit: float, end: float) -> Iterator[Mark]:
    forecast = view.forecast
    if forecast is None or forecast.eta_seconds is None:
        return
    now, _ = here
    low, high = forecast.eta_low_seconds, forecast.eta_high_seconds
    early = now + (forecast.eta_seconds if low is None else low)
    late = (
        now + high if high is not None else now + 100.0 * (end - now)
    )  # the limit may never be reached: far outside the chart
    yield PolygonMark([here, (early, limit), (late, limit)], "forecast faint")
    yield LineMark([here, (now + forecast.eta_seconds, limit)], "forecast")


def _boundaries(view: ResourceView, began: float, unit: str) -> Boundaries | None:
    at = [(row.start_t - began, row.index) for row in view.generations if row.start_t >= began]
    return Boundaries(at, unit) if at else None


# --- the rest -------------------------------------------------------------------------------------------------------


def _generations(snapshot: Snapshot) -> Iterator[Markup]:
    view = next((view for view in snapshot.resources if view.generations), None)
    if view is not None:
        yield html_document.generations_table(view.generations[-MAX_HTML_GENERATIONS:], snapshot.unit)


def _notices(notices: Sequence[Notice], local_time: LocalTime) -> Markup:
    rows = [
        (one.event, [time.strftime("%H:%M:%S", local_time(one.t)), one.event, one.text])
        for one in notices
        if one.event not in ROUTINE_EVENTS
    ]
    return html_document.event_table(["time", "event", "text"], rows[: -MOST_NOTICES - 1 : -1], MOST_NOTICES, 0)


def _problems(snapshot: Snapshot) -> Iterator[str]:
    return (f"{source.source}: {source.reason}" for source in snapshot.sources if not source.ok)
