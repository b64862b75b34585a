"""The page at `/`: the state of the watch. It refreshes itself, and contains no script."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from memwatch.core.engine.status_sentence import driver_texts, first_to_end, is_telling, signal_handling_text
from memwatch.core.events import Notice
from memwatch.core.snapshot import EarlierRun, ResourceView, Severity, Snapshot, Verdict, WatchState
from memwatch.core.text_and_units import format_bytes, format_duration, printable, program_name
from memwatch.outputs.charts.panels import resource_title
from memwatch.outputs.charts.pointer_words import moment_words, range_words
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
from memwatch.outputs.html import html_document as html
from memwatch.outputs.html.html_document import LocalTime, Markup
from memwatch.outputs.text.formatting import (
    ROUTINE_EVENTS,
    format_gauge_value,
    format_needed,
    format_planned,
    format_progress,
    format_severity,
    format_verdict,
)

REFRESH_SECONDS = 5
MAX_HTML_GENERATIONS = 12
MOST_NOTICES = 12


def render_home_page(
    snapshot: Snapshot | None,
    links: Sequence[str],
    local_time: LocalTime = time.localtime,
    *,
    earlier: Sequence[EarlierRun] = (),
) -> str:
    """The page; `links` are the paths of the others, which begin where this page is.

    A snapshot of None means that nothing has been read yet.
    """
    nav = html.element("nav", *(html.text_element("a", path, href=path.lstrip("/")) for path in links))
    if snapshot is None:
        return html.render_document(
            "memwatch", html.paragraph("no sample yet", "lead"), nav, refresh_seconds=REFRESH_SECONDS
        )
    state = format_severity(snapshot.severity)
    failed = [f"{source.source}: {source.reason}" for source in snapshot.sources if not source.ok]
    return html.render_document(
        f"{_short_state(snapshot)} - {program_name(snapshot.command) or 'no trainer'}",
        html.text_element("h1", state[:1].upper() + state[1:], class_=snapshot.severity.value),
        html.paragraph(snapshot.sentence, "lead"),
        html.paragraph(snapshot.command or "no trainer", "muted"),
        html.bullet_list(snapshot.exited.evidence if snapshot.exited is not None else ()),
        html.log_tail_section(snapshot.exited),
        html.section("What grows", *html.findings_section(snapshot.diagnosis)),
        html.facts(_facts(snapshot)),
        *(part for view in snapshot.resources for part in _resource(view, snapshot)),
        html.section("Generations", *_generations(snapshot)),
        html.section("Expectations", html.expectations_table(snapshot.expectations)),
        html.section("Processes", *_processes(snapshot)),
        html.section("Latest events", _notices(snapshot.notices, local_time)),
        html.section("What cannot be read", html.bullet_list(failed)),
        html.earlier_runs_section(earlier, local_time),
        nav,
        html.footer(f", {time.strftime('%Y-%m-%d %H:%M:%S', local_time(snapshot.t))}"),
        refresh_seconds=REFRESH_SECONDS,
        severity=snapshot.severity,
    )


def _short_state(snapshot: Snapshot) -> str:
    """`OOM in 52 s`; how the run stands, where its limit is not in sight."""
    if snapshot.severity in (Severity.WILL_NOT_FIT, Severity.ABOUT_TO_INTERRUPT):
        forecast = first_to_end(snapshot.resources).forecast
        if forecast is not None and forecast.eta_seconds is not None:
            return f"OOM in {format_duration(forecast.eta_seconds)}"
    return format_severity(snapshot.severity)


def _facts(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    if snapshot.target is not None:
        attempt = f", attempt {snapshot.attempt + 1}" if snapshot.attempt else ""
        yield "process", f"PID {snapshot.target.pid}{attempt}"
    if snapshot.started_t is not None:
        yield "watched", format_duration(snapshot.t - snapshot.started_t)
    if progress := format_progress(snapshot):
        yield "progress", progress + (f", {snapshot.phase}" if snapshot.phase else "")
    if snapshot.state is not WatchState.WATCHING:
        yield "state", snapshot.state.value
    if snapshot.up:
        yield "interrupt", format_planned(snapshot)
    for view in snapshot.resources:
        if view.needed is not None and is_telling(view.needed):
            name = "" if view is snapshot.resources[0] else f"{view.usage.resource}: "
            yield f"{name}needs to finish", format_needed(view.needed)
    if snapshot.up and snapshot.signal_handling is not None:
        yield "the trainer", signal_handling_text(snapshot.signal_handling)
    saved_t = snapshot.checkpoint_t
    yield "last checkpoint", "none seen" if saved_t is None else f"{format_duration(snapshot.t - saved_t)} ago"
    yield "a checkpoint takes", f"{format_duration(snapshot.checkpoint_seconds)} ({snapshot.checkpoint_origin})"
    for gauge in snapshot.gauges[:8]:
        of = "" if gauge.capacity is None else f" of {format_gauge_value(gauge.capacity)}"
        yield gauge.name, format_gauge_value(gauge.value) + of


def _resource(view: ResourceView, snapshot: Snapshot) -> Iterator[Markup]:
    """How much of its limit a resource uses, and its chart if it grows or is the first."""
    usage = view.usage
    yield html.text_element("h2", resource_title(usage.resource, "memory"))
    yield html.meter(usage.used_bytes, usage.limit.bytes if usage.limit is not None else None, view.severity)
    limit = "no known limit" if usage.limit is None else f"of {format_bytes(usage.limit.bytes)} ({usage.limit.origin})"
    yield html.paragraph(
        f"{format_bytes(usage.used_bytes)} {limit}; {format_verdict(view, snapshot.unit)};"
        f" peak {format_bytes(view.peak_bytes)}"
    )
    yield from map(html.paragraph, driver_texts(view.drivers))
    if view.timeline and (view is snapshot.resources[0] or view.verdict in (Verdict.GROWING, Verdict.LEAK)):
        yield html.chart_svg(live_memory_panel(view, snapshot))


def live_memory_panel(view: ResourceView, snapshot: Snapshot) -> Panel:
    """Memory over the watch, and the forecast: as expected, at the earliest and at the latest; x is in seconds."""
    began = view.timeline[0].t
    now, used = snapshot.t - began, float(view.usage.used_bytes)
    run_end_t = snapshot.run_end_t
    limit, end = visible_limit_bytes(view), chart_end_t(view, began, snapshot.t, run_end_t) - began
    highest = max(one.most_bytes for one in view.timeline)
    ranges = [(one.t - began, float(one.least_bytes), float(one.most_bytes)) for one in view.timeline]
    generations = [(row.start_t - began, row.index) for row in view.generations if row.start_t >= began]
    marks: list[Mark] = [
        Band(ranges, now, "memory faint"),
        LineMark(step_corners([(t, most) for t, _, most in ranges], now), "memory"),
        Rules([now], "dotted muted"),
    ]
    labels = list[Label]()
    legend = [("line memory", "memory used")]
    if run_end_t is not None and run_end_t - began <= end:
        marks.append(Rules([run_end_t - began], "dotted muted"))
        labels.append(Label(run_end_t - began, None, ("the run ends",), "muted"))
    if limit is not None:
        marks.append(LineMark([(0.0, limit), (end, limit)], "limit dashed"))
        labels.append(Label(0.0, limit, (f"limit {format_bytes(limit)}",), "limit"))
        forecast = list(_forecast_marks(view, (now, used), limit, end))
        if forecast:
            marks += forecast
            legend.append(("line forecast", "forecast"))
    held = [*ranges, (now, *ranges[-1][1:])]
    used_then = [[(t, least) for t, least, _ in held], [(t, most) for t, _, most in held]]

    def words_between(low: float, high: float) -> str:
        middle = (low + high) / 2
        if middle <= now:
            return f"{range_words(used_then, low, high)}, {moment_words(middle, generations, snapshot.unit)}"
        return _expected_words(view, (now, used), limit, middle)

    return Panel(
        f"over {format_duration(now)}, and ahead",
        ChartAxis.over(0.0, end, duration_ticks),
        ChartAxis.over(0.0, 1.1 * max(highest, limit or 0, 1), byte_ticks),
        260,
        marks,
        labels,
        legend,
        Boundaries(generations, printable(snapshot.unit, 12)) if generations else None,
        words_between=words_between,
    )


def _expected_words(view: ResourceView, here: Point, limit: float | None, x: float) -> str:
    """`in 5 m: 1.8 GB if it grows as forecast`; nothing without a forecast, and past the limit."""
    eta = view.forecast.eta_seconds if view.forecast is not None else None
    now, used = here
    if eta is None or limit is None or x > now + eta:
        return ""
    expected = used + (limit - used) * (x - now) / eta
    return f"in {format_duration(x - now)}: {format_bytes(expected)} if it grows as forecast"


def _forecast_marks(view: ResourceView, here: Point, limit: float, end: float) -> Iterator[Mark]:
    forecast = view.forecast
    if forecast is None or forecast.eta_seconds is None:
        return
    now, _ = here
    low, high = forecast.eta_low_seconds, forecast.eta_high_seconds
    early = now + (forecast.eta_seconds if low is None else low)
    # without an upper bound the limit may never be reached: far outside the chart
    late = now + high if high is not None else now + 100.0 * (end - now)
    yield PolygonMark([here, (early, limit), (late, limit)], "forecast faint")
    yield LineMark([here, (now + forecast.eta_seconds, limit)], "forecast")


def _generations(snapshot: Snapshot) -> Iterator[Markup]:
    view = next((view for view in snapshot.resources if view.generations), None)
    if view is not None:
        yield html.generations_table(view.generations[-MAX_HTML_GENERATIONS:], snapshot.unit)


def _processes(snapshot: Snapshot) -> Iterator[Markup]:
    """A table of the trainer and the largest of its children, where there are any."""
    tree = snapshot.sample.tree if snapshot.sample is not None else None
    if tree is None or not tree.largest or snapshot.target is None:
        return
    rows = [
        ["the trainer", str(snapshot.target.pid), format_bytes(tree.rss_bytes)],
        *([printable(child.name, 40), str(child.pid), format_bytes(child.bytes)] for child in tree.largest),
    ]
    yield html.wide_table(["process", ">PID", ">memory"], rows)
    if left_out := tree.processes - len(rows):
        yield html.paragraph(f"and {left_out:,} more; together {format_bytes(tree.used_bytes)}", "muted")


def _notices(notices: Sequence[Notice], local_time: LocalTime) -> Markup:
    """A table of the newest notices, the latest first."""
    rows = [
        (one.event, [time.strftime("%H:%M:%S", local_time(one.t)), one.event, one.text])
        for one in notices
        if one.event not in ROUTINE_EVENTS
    ]
    return html.event_table(["time", "event", "text"], rows[: -MOST_NOTICES - 1 : -1], MOST_NOTICES, 0)
