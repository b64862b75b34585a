"""The report of a run: one page, which is read after the trainer has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from memwatch.core.engine import status_sentence as sentences
from memwatch.core.examination import Diagnosis
from memwatch.core.snapshot import EarlierRun, Severity, Snapshot
from memwatch.core.text_and_units import (
    format_bytes,
    format_duration,
    printable,
    program_name,
    since_text,
    without_main_module,
)
from memwatch.outputs.charts.panels import generation_panels, growing_types, run_panels
from memwatch.outputs.charts.run_data import RunData
from memwatch.outputs.html import html_document as html
from memwatch.outputs.html.html_document import LocalTime, Markup
from memwatch.outputs.text import profile_formats
from memwatch.outputs.text.formatting import format_needed, format_progress, format_verdict

REPORT_ROWS_FIRST, REPORT_ROWS_LAST = 200, 200  # rows kept from the ends of a longer timeline
MAX_HEAP_TABLE_ROWS = 20  # rows of the tables of types, attributes and lines
IN_TABLES = frozenset({"marker", "phase", "generation"})  # events that other parts of the page show
ACTED = {"warn": "warned", "interrupt": "interrupted", "saved": "saved", "escalated": "escalated", "gave_up": "gave up"}


def render_report(
    run: RunData,
    ending: Sequence[str],
    run_id: str,
    local_time: LocalTime = time.localtime,
    *,
    earlier: Sequence[EarlierRun] = (),
) -> str:
    """The page. `ending` says how the run ended and why memwatch concludes that, line by line."""
    end = run.end
    began, ended = local_time(run.start_t), local_time(run.start_t + run.end_t)
    zone = time.strftime("%Z", began) or "local time"
    time_format = "%H:%M:%S" if began[:3] == ended[:3] else "%m-%d %H:%M:%S"

    def time_of_day(t: float) -> str:
        return time.strftime(time_format, local_time(run.start_t + t))

    timeline = html.notice_table(
        [one for one in run.timed_notices if one.event not in IN_TABLES],
        "time",
        time_of_day,
        end.unit,
        first=REPORT_ROWS_FIRST,
        last=REPORT_ROWS_LAST,
    )
    severity = end.severity if end.exited is not None else None
    return html.render_document(
        f"{printable(ending[0], 60)} - {program_name(end.command) or run_id}",
        html.text_element(
            "h1", ending[0][:1].upper() + ending[0][1:], class_="" if severity is None else severity.value
        ),
        html.paragraph(end.command or run_id, "muted"),
        html.bullet_list(ending[1:]),
        html.log_tail_section(end.exited),
        html.section("What grows", *html.findings_section(end.diagnosis)),
        html.facts([("began", time.strftime("%Y-%m-%d %H:%M", began)), *_facts(run, time_of_day)]),
        html.section("Memory over time", html.chart_svg(*run_panels(run))),
        html.section("Generation by generation", *map(html.chart_svg, generation_panels(run)), *_generations(run)),
        html.section("What it holds", _types(run), *_attributes_and_lines(end.diagnosis)),
        html.section("Expectations", html.expectations_table(end.expectations)),
        html.section("Timeline", timeline),
        html.earlier_runs_section(earlier, local_time),
        html.footer(f", run {run_id}; times: {zone}"),
        severity=severity,
    )


def describe_ending(end: Snapshot, lives: bool) -> list[str]:
    """How a run ended according to its record, and the evidence; `lives` says that the trainer still runs."""
    if end.exited is not None:
        return [end.sentence, *end.exited.evidence]
    if lives:
        return [end.sentence, "the trainer still runs"]
    return [
        "How it ended is not known: the record ends before the trainer did",
        "memwatch was stopped, or killed with the trainer",
        f"its last report: {end.sentence}",
    ]


def _facts(run: RunData, time_of_day: Callable[[float], str]) -> Iterator[tuple[str, str]]:
    end = run.end
    yield "watched", format_duration(run.end_t)
    if progress := format_progress(end):
        yield "progress", progress
    if end.attempt:
        yield "restarts", str(end.attempt)
    for view in end.resources:
        if view.usage.resource not in run.memory:
            continue
        name, limit = view.usage.resource, view.usage.limit
        yield f"{name}: growth", format_verdict(view, end.unit)
        for driver in sentences.driver_texts(view.drivers):
            yield f"{name}: grows by", driver
        of = f" of {format_bytes(limit.bytes)}" if limit is not None else ""
        yield f"{name}: peak", format_bytes(view.peak_bytes) + of
        if view.needed is not None and sentences.is_telling(view.needed) and end.severity is not Severity.ENDED_WELL:
            yield f"{name}: needs to finish", format_needed(view.needed)
    yield "a checkpoint takes", f"{format_duration(end.checkpoint_seconds)} ({end.checkpoint_origin})"
    for event, word in ACTED.items():
        times = [one.t for one in run.timed_notices if one.event == event]
        if times:
            yield word, time_of_day(times[0]) + (f", {len(times)} times" if len(times) > 1 else "")


def _generations(run: RunData) -> Iterator[Markup]:
    """A table for each resource that is shown."""
    for view in run.end.resources:
        if view.usage.resource in run.memory and view.generations:
            yield html.text_element("h3", view.usage.resource)
            yield html.generations_table(view.generations, run.end.unit)


def _types(run: RunData) -> Markup:
    """A table of the types that grow, at the first examination and at the last."""
    sizes = growing_types(run, attrgetter("bytes"), MAX_HEAP_TABLE_ROWS)
    counts = growing_types(run, attrgetter("count"), 1_000_000)
    rows = [
        [
            without_main_module(name),
            *(f"{round(counts[name][i][1]):,}" if name in counts else "" for i in (0, -1)),
            *(format_bytes(series[i][1]) for i in (0, -1)),
        ]
        for name, series in sizes.items()
    ]
    return html.wide_table(["type", ">objects at first", ">at last", ">bytes at first", ">at last"], rows)


def _attributes_and_lines(diagnosis: Diagnosis | None) -> Iterator[Markup]:
    """Tables of the attributes that grow, and of the lines of code that raised memory."""
    if diagnosis is None:
        return
    unit = diagnosis.unit
    tracked = [one for one in diagnosis.tracked if one not in diagnosis.containers]
    attributes = [
        [
            without_main_module(one.name),
            format_bytes(one.before),
            format_bytes(one.after),
            f"{format_bytes(one.per_unit, signed=True)}/{unit}",
            since_text(one.since, unit),
        ]
        for one in [*diagnosis.containers, *tracked][:MAX_HEAP_TABLE_ROWS]
    ]
    yield html.wide_table(["attribute", ">before", ">at last", ">growth", "since"], attributes)
    lines = [
        [profile_formats.format_frame(one.frame), format_bytes(one.bytes), f"{one.share:.0%}"]
        for one in diagnosis.lines[:MAX_HEAP_TABLE_ROWS]
    ]
    yield html.wide_table(["line that recently raised memory", ">by", ">share"], lines)
