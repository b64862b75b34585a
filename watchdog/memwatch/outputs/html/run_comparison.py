"""Two runs side by side, as before and after a fix: as text, as JSON, and as a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import memwatch
from memwatch.core.engine import status_sentence as sentences
from memwatch.core.examination import Diagnosis, Finding
from memwatch.core.measurements import HOST
from memwatch.core.snapshot import ResourceView
from memwatch.core.text_and_units import format_bytes, format_duration, printable
from memwatch.outputs.charts.run_data import RunData
from memwatch.outputs.charts.svg_axes_and_marks import (
    ChartAxis,
    Dots,
    LineMark,
    Mark,
    Point,
    Ticker,
    byte_ticks,
    count_ticks,
    duration_ticks,
)
from memwatch.outputs.charts.svg_chart import Panel, wrap_lines
from memwatch.outputs.html import html_document
from memwatch.outputs.text.formatting import (
    format_progress,
    format_verdict,
    largest_phases,
    latest_attempt_rows,
    phase_totals,
)

NAMES = ("A", "B")
STYLES = ("limit", "memory")  # of the lines of A and B: the run before the fix is red
MOST_PHASES = 6
WIDTH = 40  # characters of a column of text
FormattedValue = tuple[str, float | None]  # as text, empty if unknown; in bytes or seconds if it is a figure


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One of the two runs."""

    name: str  # as the user named it
    run_id: str
    story: RunData
    ending: Sequence[str]

    def view(self, resource: str) -> ResourceView | None:
        """The resource at the end of the run, if it was watched."""
        return next((one for one in self.story.end.resources if one.usage.resource == resource), None)


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One figure or fact of both runs."""

    what: str
    a: FormattedValue
    b: FormattedValue

    @property
    def change(self) -> str:
        """`-92%`, from A to B; empty if that means nothing."""
        before, after = self.a[1], self.b[1]
        if before is None or after is None or before <= 0:
            return ""
        return f"{(after - before) / before:+.0%}"


def comparison_rows(a: ComparedRun, b: ComparedRun) -> list[ComparisonRow]:
    """The rows of the comparison, the most interesting first."""
    one, other = dict(_facts(a)), dict(_facts(b))
    unknown: FormattedValue = ("", None)
    return [
        ComparisonRow(what, one.get(what, unknown), other.get(what, unknown)) for what in dict.fromkeys([*one, *other])
    ]


def _facts(side: ComparedRun) -> Iterator[tuple[str, FormattedValue]]:
    end = side.story.end
    yield "command", (end.command, None)
    yield "run", (side.run_id, None)
    yield "how it ended", (side.ending[0], None)
    yield "progress", (format_progress(end), None)
    yield from _figure("watched", side.story.end_t, format_duration)
    for view in end.resources:
        if view.usage.resource in side.story.memory:
            of = "" if view.usage.resource == HOST else f"{view.usage.resource}: "
            yield f"{of}growth", (format_verdict(view, end.unit), None)
            yield from (fact for what, value in _memory(view) for fact in _figure(of + what, value, format_bytes))
    yield from _figure("a generation takes", _generation_seconds(end.resources), format_duration)
    yield "what grows", (_findings(end.diagnosis), None)


def _figure(what: str, value: float | None, shown: Callable[[float], str]) -> Iterator[tuple[str, FormattedValue]]:
    if value is not None:
        yield what, (shown(value), value)


def _memory(view: ResourceView) -> Iterator[tuple[str, float | None]]:
    """Yields names and values in bytes."""
    if view.trend is not None:
        yield "growth by generation", view.trend.growth_per_generation
        yield "growth by hour", 3600.0 * view.trend.growth_per_second
    yield "at the beginning", view.baseline_bytes
    yield "at the end", view.usage.used_bytes
    yield "peak", view.peak_bytes
    yield "limit", None if view.usage.limit is None else view.usage.limit.bytes
    totals, count = phase_totals(view.generations), len(latest_attempt_rows(view.generations))
    for phase in largest_phases(view.generations, MOST_PHASES):
        yield f"growth by generation in {phase}", totals[phase] / count


def _generation_seconds(views: Sequence[ResourceView]) -> float | None:
    rows = next((view.generations for view in views if view.generations), ())
    took = [row.end_t - row.start_t for row in rows if row.end_t is not None]
    return median(took) if took else None


def _findings(known: Diagnosis | None) -> str:
    if known is None:
        return "not examined"
    return "; ".join(_brief(one, known.unit) for one in known.findings) or "no cause was found"


def _brief(one: Finding, unit: str) -> str:
    content = sentences.finding_content(one)
    return sentences.finding_headline(one, unit) + (f"; {content}" if content else "")


# --- text, JSON -----------------------------------------------------------------------------------------------------


def render_comparison_text(a: ComparedRun, b: ComparedRun) -> str:
    lines = [f"{'':<34}{'A: ' + printable(a.name, WIDTH - 5):<{WIDTH}}{'B: ' + printable(b.name, WIDTH - 5):<{WIDTH}}"]
    for row in comparison_rows(a, b):
        one, other = (wrap_lines(printable(text, 400) or "-", WIDTH - 2) for text, _ in (row.a, row.b))
        for i in range(max(len(one), len(other))):
            texts = [side[i] if i < len(side) else "" for side in (one, other)]
            what, change = (printable(row.what, 33), row.change) if i == 0 else ("", "")
            lines.append(f"{what:<34}{texts[0]:<{WIDTH}}{texts[1]:<{WIDTH}}{change}".rstrip())
    return "\n".join([*lines, ""])


def as_json(a: ComparedRun, b: ComparedRun) -> dict[str, Any]:
    return {
        "a": {"name": a.name, "run_id": a.run_id},
        "b": {"name": b.name, "run_id": b.run_id},
        "rows": [
            {"what": row.what, "a": row.a[0], "b": row.b[0], "a_figure": row.a[1], "b_figure": row.b[1]}
            for row in comparison_rows(a, b)
        ],
    }


# --- the page -------------------------------------------------------------------------------------------------------


def document(a: ComparedRun, b: ComparedRun) -> str:
    """The page: the rows, and the memory of both runs in one chart."""
    table = [[row.what, row.a[0] or "-", row.b[0] or "-", row.change] for row in comparison_rows(a, b)]
    return html_document.render_document(
        f"{a.name} and {b.name}",
        html_document.element("h1", html_document.escape_html("Two runs side by side")),
        html_document.wide_table(["", f"A: {a.name}", f"B: {b.name}", ">A to B"], table),
        html_document.section("Memory", *map(html_document.chart_svg, comparison_panels(a, b))),
        html_document.element(
            "footer", html_document.escape_html(f"memwatch {memwatch.__version__}, runs {a.run_id} and {b.run_id}")
        ),
    )


def comparison_panels(a: ComparedRun, b: ComparedRun) -> Iterator[Panel]:
    """Memory of both against generation, and against time."""
    sides = (a, b)
    for resource in dict.fromkeys(name for side in sides for name in side.story.memory):
        of = "" if resource == HOST else f"{resource}: "
        ends = [_ends(side.view(resource)) for side in sides]
        if all(ends):
            unit = printable(a.story.end.unit, 20)
            yield _panel(f"{of}At the end of each {unit}", ends, count_ticks, dotted=True)
        runs = [side.story.memory[resource].runs if resource in side.story.memory else [] for side in sides]
        yield _panel(f"{of}Over time", [[p for run in one for p in run] for one in runs], duration_ticks)


def _ends(view: ResourceView | None) -> list[Point]:
    return [] if view is None else [(row.index, float(row.end_bytes)) for row in latest_attempt_rows(view.generations)]


def _panel(title: str, series: Sequence[Sequence[Point]], across: Ticker, dotted: bool = False) -> Panel:
    points = [point for one in series for point in one]
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    marks: list[Mark] = []
    for name, style, one in zip(NAMES, STYLES, series, strict=True):
        marks += [LineMark(one, style)] if one else []
        marks += [Dots([(x, y, f"{name}: {format_bytes(y)}") for x, y in one], style)] if dotted else []
    return Panel(
        title,
        ChartAxis.over(low, high, across),
        ChartAxis.over(0.0, 1.1 * max(y for _, y in points), byte_ticks),
        260,
        marks,
        legend=[(f"line {style}", name) for name, style in zip(NAMES, STYLES, strict=True)],
    )
