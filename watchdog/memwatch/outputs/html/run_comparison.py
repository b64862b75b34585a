"""Two runs side by side, as before and after a fix: as text, as JSON, and as a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from statistics import mean, median, variance
from typing import Any

from memwatch.core.engine import status_sentence as sentences
from memwatch.core.examination import Diagnosis, Finding
from memwatch.core.measurements import HOST
from memwatch.core.snapshot import ResourceView, Snapshot
from memwatch.core.text_and_units import format_bytes, format_duration, printable, without_main_module
from memwatch.outputs.charts.pointer_words import latest, moment_words
from memwatch.outputs.charts.run_data import RunData
from memwatch.outputs.charts.svg_axes_and_marks import (
    ChartAxis,
    LineMark,
    Point,
    Ticker,
    byte_ticks,
    count_ticks,
    duration_ticks,
)
from memwatch.outputs.charts.svg_chart import Panel, wrap_lines
from memwatch.outputs.html import html_document as html
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
NOISE_SHARE = 0.05  # Two figures that differ by less are the same: so much do two runs of one program (chosen).
NOISE_ERRORS = 2.0  # standard errors of a difference in growth that chance makes
LOADING_GENERATIONS, MIN_GENERATIONS = 2, 3  # that are left out at the beginning, and that are needed (chosen)
FormattedValue = tuple[str, float | None]  # as text, empty if unknown; in bytes or seconds if it is a figure


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One of the two runs."""

    name: str  # as the user named it
    run_id: str
    run_data: RunData
    ending: Sequence[str]


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One figure or fact of both runs."""

    what: str
    a: FormattedValue
    b: FormattedValue

    @property
    def change(self) -> str:
        """`-92%`, from A to B; empty if that means nothing, or is hardly anything."""
        before, after = self.a[1], self.b[1]
        if before is None or after is None or before <= 0 or abs(after - before) < NOISE_SHARE * before:
            return ""
        return f"{(after - before) / before:+.0%}"


def conclusion(a: ComparedRun, b: ComparedRun) -> str:
    """`B grows 67% less a generation (33.9 MB -> 11.2 MB); Loss is gone; Environment is new`, one sentence."""
    parts = [*_growth_conclusion(a, b), *_cause_conclusion(a.run_data.end.diagnosis, b.run_data.end.diagnosis)]
    before, after = a.run_data.end, b.run_data.end
    if before.exited is not None and after.exited is not None and before.exited.cause != after.exited.cause:
        ends = (sentences.exit_text(one).removeprefix("ended: ") for one in (before.exited, after.exited))
        parts.append(", ".join(f"{name} ended: {end}" for name, end in zip(NAMES, ends, strict=True)))
    text = "; ".join(parts) or "A and B differ by no more than their generations do"
    return f"{text[0].upper()}{text[1:]}."


def _growth_conclusion(a: ComparedRun, b: ComparedRun) -> Iterator[str]:
    """Yield by how much the growth of main memory differs, where that is more than chance."""
    (mean_a, error_a), (mean_b, error_b) = (_growth(side.run_data.end) for side in (a, b))
    if mean_a is None or mean_b is None:
        return
    unit, most = printable(a.run_data.end.unit, 20), max(abs(mean_a), abs(mean_b))
    if a.run_data.end.unit != b.run_data.end.unit or most <= 0.0:
        return
    noise = max(NOISE_SHARE * most, NOISE_ERRORS * (error_a**2 + error_b**2) ** 0.5)
    figures = f"{format_bytes(mean_a, signed=True)} -> {format_bytes(mean_b, signed=True)}"
    if abs(mean_b - mean_a) <= noise:
        yield f"A and B grow alike, {format_bytes((mean_a + mean_b) / 2, signed=True)} per {unit}"
    elif mean_a <= NOISE_SHARE * most:
        yield f"B grows, A did not ({figures} per {unit})"
    elif mean_b <= NOISE_SHARE * most:
        yield f"B does not grow any more ({figures} per {unit})"
    else:
        yield f"B grows {abs(mean_b / mean_a - 1):.0%} {'less' if mean_b < mean_a else 'more'} per {unit} ({figures})"


def _growth(end: Snapshot) -> tuple[float | None, float]:
    """Return the growth of main memory by generation and its standard error, in bytes; None: too few generations.

    The first generations are left out: programs load in them.
    """
    rows = next((view.generations for view in end.resources if view.usage.resource == HOST), ())
    deltas = (
        [row.delta_bytes for row in latest_attempt_rows(rows) if row.end_t is not None and not row.partial]
        if rows
        else []
    )
    deltas = deltas[min(LOADING_GENERATIONS, len(deltas) // 3) :]
    if len(deltas) < MIN_GENERATIONS:
        return None, 0.0
    # A generation that ends high makes the next one grow less: neighbours that vary against each other say more.
    middle, n = mean(deltas), len(deltas)
    alone, beside = variance(deltas), sum((x - middle) * (y - middle) for x, y in pairwise(deltas)) / (n - 1)
    return middle, (max(alone / n, alone + 2.0 * beside) / n) ** 0.5


def _cause_conclusion(a: Diagnosis | None, b: Diagnosis | None) -> Iterator[str]:
    """Yield the causes that are in one of the runs only."""
    if a is None or b is None:
        return
    of_a, of_b = (dict.fromkeys(_cause_name(one) for one in each.findings if one.is_leak) for each in (a, b))
    yield from (f"{name} is gone" for name in of_a if name not in of_b)
    yield from (f"{name} is new" for name in of_b if name not in of_a)


def _cause_name(one: Finding) -> str:
    """`Loss`, `Trainer.kept`: what becomes more, else who holds it, else the cause."""
    short = without_main_module(one.type).rpartition(".")[2] if one.type else without_main_module(one.holder)
    return printable(short or one.cause.replace("_", " "), 40)


def comparison_rows(a: ComparedRun, b: ComparedRun) -> list[ComparisonRow]:
    """The rows of the comparison, the most interesting first."""
    of_a, of_b = dict(_facts(a)), dict(_facts(b))
    unknown: FormattedValue = ("", None)
    return [ComparisonRow(what, of_a.get(what, unknown), of_b.get(what, unknown)) for what in of_a | of_b]


def _facts(side: ComparedRun) -> Iterator[tuple[str, FormattedValue]]:
    end = side.run_data.end
    yield "command", (end.command, None)
    yield "run", (side.run_id, None)
    yield "how it ended", (side.ending[0], None)
    yield "progress", (format_progress(end), None)
    yield "watched", (format_duration(side.run_data.end_t), None)
    for view in end.resources:
        if view.usage.resource in side.run_data.memory:
            of = "" if view.usage.resource == HOST else f"{view.usage.resource}: "
            yield f"{of}growth", (format_verdict(view, end.unit), None)
            for what, size in _sizes(view):
                if size is not None:
                    yield of + what, (format_bytes(size), size)
    rows = next((view.generations for view in end.resources if view.generations), ())
    if took := [row.end_t - row.start_t for row in rows if row.end_t is not None]:
        yield "a generation takes", (format_duration(median(took)), median(took))
    yield "what grows", (_findings(end.diagnosis), None)


def _sizes(view: ResourceView) -> Iterator[tuple[str, float | None]]:
    """Yields names and bytes."""
    if view.trend is not None:
        by_generation = view.trend.growth_per_generation
        yield "growth by generation", by_generation
        yield "growth by hour", 3600.0 * view.trend.growth_per_second if by_generation is None else None
    yield "at the beginning", view.baseline_bytes
    yield "at the end", view.usage.used_bytes
    yield "peak", view.peak_bytes
    yield "limit", None if view.usage.limit is None else view.usage.limit.bytes
    totals, count = phase_totals(view.generations), len(latest_attempt_rows(view.generations))
    for phase in largest_phases(view.generations, MOST_PHASES):
        yield f"growth by generation in {phase}", totals[phase] / count


def _findings(diagnosis: Diagnosis | None) -> str:
    if diagnosis is None:
        return "not examined"
    texts = []
    for one in diagnosis.findings:
        texts.append(sentences.finding_headline(one, diagnosis.unit))
        if content := sentences.finding_content(one):
            texts.append(content)
    texts += sentences.driver_texts(diagnosis.drivers)
    return "; ".join(texts) or "no cause was found"


# --- text, JSON -----------------------------------------------------------------------------------------------------


def render_comparison_text(a: ComparedRun, b: ComparedRun) -> str:
    lines = [f"{'':<34}{'A: ' + printable(a.name, WIDTH - 5):<{WIDTH}}{'B: ' + printable(b.name, WIDTH - 5):<{WIDTH}}"]
    for row in comparison_rows(a, b):
        one, other = (wrap_lines(printable(text, 400) or "-", WIDTH - 2) for text, _ in (row.a, row.b))
        for i in range(max(len(one), len(other))):
            texts = [side[i] if i < len(side) else "" for side in (one, other)]
            what, change = (printable(row.what, 33), row.change) if i == 0 else ("", "")
            lines.append(f"{what:<34}{texts[0]:<{WIDTH}}{texts[1]:<{WIDTH}}{change}".rstrip())
    return "\n".join([conclusion(a, b), "", *lines, ""])


def as_json(a: ComparedRun, b: ComparedRun) -> dict[str, Any]:
    return {
        "a": {"name": a.name, "run_id": a.run_id},
        "b": {"name": b.name, "run_id": b.run_id},
        "conclusion": conclusion(a, b),
        "rows": [
            {"what": row.what, "a": row.a[0], "b": row.b[0], "a_figure": row.a[1], "b_figure": row.b[1]}
            for row in comparison_rows(a, b)
        ],
    }


# --- the page -------------------------------------------------------------------------------------------------------


def document(a: ComparedRun, b: ComparedRun) -> str:
    """The page: the rows, and the memory of both runs in one chart."""
    table = [[row.what, row.a[0] or "-", row.b[0] or "-", row.change] for row in comparison_rows(a, b)]
    return html.render_document(
        f"{a.name} and {b.name}",
        html.text_element("h1", "Two runs side by side"),
        html.text_element("p", conclusion(a, b)),
        html.wide_table(["", f"A: {a.name}", f"B: {b.name}", ">A to B"], table),
        html.section("Memory", *map(html.chart_svg, comparison_panels(a.run_data, b.run_data))),
        html.footer(f", runs {a.run_id} and {b.run_id}"),
    )


def comparison_panels(a: RunData, b: RunData) -> Iterator[Panel]:
    """Memory of both against generation, and against time."""
    for resource in dict.fromkeys([*a.memory, *b.memory]):
        of = "" if resource == HOST else f"{resource}: "
        ends = [_generation_ends(run, resource) for run in (a, b)]
        if all(ends):
            unit = printable(a.end.unit, 20)
            yield _panel(f"{of}At the end of each {unit}", ends, count_ticks, partial(_generation_words, unit))
        processes = [run.memory[resource].by_process if resource in run.memory else [] for run in (a, b)]
        memory = [list(chain.from_iterable(one)) for one in processes]
        yield _panel(f"{of}Over time", memory, duration_ticks, partial(moment_words, generations=(), unit=""))


def _generation_ends(run: RunData, resource: str) -> list[Point]:
    rows = [row for view in run.end.resources if view.usage.resource == resource for row in view.generations]
    return [(row.index, float(row.end_bytes)) for row in latest_attempt_rows(rows)]


def _generation_words(unit: str, x: float) -> str:
    return f"{unit} {math.floor(x)}"


def _panel(title: str, lines: Sequence[Sequence[Point]], x_ticks: Ticker, where: Callable[[float], str]) -> Panel:
    """`where` says in words at which x the values are that the pointer reads."""
    xs, ys = zip(*chain.from_iterable(lines), strict=True)

    def words_between(_: float, high: float) -> str:
        levels = [(name, latest(points, high)) for name, points in zip(NAMES, lines, strict=True)]
        said = [f"{name}: {format_bytes(level)}" for name, level in levels if level is not None]
        return ", ".join([*said, where(high)]) if said else ""

    return Panel(
        title,
        ChartAxis.over(min(xs), max(xs), x_ticks),
        ChartAxis.over(0.0, 1.1 * max(ys), byte_ticks),
        260,
        [LineMark(points, style) for style, points in zip(STYLES, lines, strict=True) if points],
        legend=[(f"line {style}", name) for name, style in zip(NAMES, STYLES, strict=True)],
        words_between=words_between,
    )
