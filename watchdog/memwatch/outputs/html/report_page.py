"""The report of a run: one page, which is read after the trainer has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import memwatch
from memwatch.core.engine import status_sentence as sentences
from memwatch.core.examination import Diagnosis
from memwatch.core.snapshot import Snapshot
from memwatch.core.text_and_units import format_bytes, format_duration, without_main_module
from memwatch.outputs.charts.panels import generation_panels, growing_types, run_panels
from memwatch.outputs.charts.run_data import RunData, TimedNotice
from memwatch.outputs.html import html_document
from memwatch.outputs.html.html_document import Markup
from memwatch.outputs.text import profile_formats
from memwatch.outputs.text.formatting import format_index, format_progress, format_verdict

REPORT_ROWS_FIRST, REPORT_ROWS_LAST = 200, 200  # rows kept from the ends of a longer timeline
MAX_HEAP_TABLE_ROWS = 20  # rows of the tables of types, attributes and lines
IN_TABLES = frozenset({"marker", "phase", "generation"})  # events that other parts of the page show
DEEDS = {"warn": "warned", "interrupt": "interrupted", "saved": "saved", "escalated": "escalated", "gave_up": "gave up"}
LocalTime = Callable[[float], time.struct_time]


def render_report(story: RunData, ending: Sequence[str], run_id: str, local_time: LocalTime = time.localtime) -> str:
    """The page. `ending` says how the run ended and why memwatch concludes that, line by line."""
    end, known = story.end, story.end.diagnosis
    clock = TimeOfDayFormatter(story, local_time)
    return html_document.render_document(
        end.command or run_id,
        html_document.element("h1", html_document.escape_html(end.command or run_id)),
        html_document.paragraph(ending[0], "lead"),
        html_document.items(ending[1:]),
        html_document.facts(_facts(story, clock)),
        html_document.section("What grows", *html_document.findings_section(known)),
        html_document.section("Memory over time", *map(html_document.chart_svg, run_panels(story))),
        html_document.section(
            "Generation by generation",
            *map(html_document.chart_svg, generation_panels(story)),
            *_generations(story),
        ),
        html_document.section("What it holds", *_holdings(story, known)),
        html_document.section("Expectations", html_document.expectations(end.expectations)),
        html_document.section("What was seen, said and done", _timeline(story, clock)),
        html_document.element(
            "footer", html_document.escape_html(f"memwatch {memwatch.__version__}, run {run_id}; times: {clock.zone}")
        ),
    )


def describe_ending(end: Snapshot, lives: bool) -> list[str]:
    """How a run ended according to its record, and the evidence; `lives` says that the trainer still runs."""
    if end.exited is not None:
        return [end.sentence, *end.exited.evidence]
    if lives:
        return [end.sentence, "the trainer still runs"]
    return [
        "How it ended is not known: the record ends before the trainer did",
        "memwatch was stopped, or ended by the same hand as the trainer",
        f"the last that it said: {end.sentence}",
    ]


class TimeOfDayFormatter:
    """Formats seconds since the first event as times of day."""

    def __init__(self, story: RunData, local_time: LocalTime) -> None:
        self._start_t, self._local_time = story.start_t, local_time
        days = {self._parts(t)[:3] for t in (0.0, story.end_t)}
        self._form = "%H:%M:%S" if len(days) == 1 else "%m-%d %H:%M:%S"

    def _parts(self, t: float) -> time.struct_time:
        return self._local_time(self._start_t + t)

    def __call__(self, t: float) -> str:
        """`08:53:20`, with the date unless the run ended on the day it began."""
        return time.strftime(self._form, self._parts(t))

    def date(self, t: float) -> str:
        """`2026-11-23 08:53`."""
        return time.strftime("%Y-%m-%d %H:%M", self._parts(t))

    @property
    def zone(self) -> str:
        """The name of the time zone."""
        return time.strftime("%Z", self._parts(0.0)) or "local time"


# --- what it comes to -----------------------------------------------------------------------------------------------


def _facts(story: RunData, clock: TimeOfDayFormatter) -> Iterator[tuple[str, str]]:
    end = story.end
    yield "began", clock.date(0.0)
    yield "watched", format_duration(story.end_t)
    if progress := format_progress(end):
        yield "progress", progress
    if end.attempt:
        yield "restarts", str(end.attempt)
    for view in end.resources:
        if view.usage.resource not in story.memory:
            continue
        name, limit = view.usage.resource, view.usage.limit
        yield f"{name}: growth", format_verdict(view, end.unit)
        of = f" of {format_bytes(limit.bytes)}" if limit is not None else ""
        yield f"{name}: peak", format_bytes(view.peak_bytes) + of
    yield "a checkpoint takes", f"{format_duration(end.checkpoint_seconds)} ({end.checkpoint_origin})"
    for event, word in DEEDS.items():
        times = [one.t for one in story.timed_notices if one.event == event]
        if times:
            yield word, clock(times[0]) + (f", {len(times)} times" if len(times) > 1 else "")


# --- generations ----------------------------------------------------------------------------------------------------


def _generations(story: RunData) -> Iterator[Markup]:
    """A table for each resource that is shown."""
    for view in story.end.resources:
        if view.usage.resource in story.memory and view.generations:
            yield html_document.element("h3", html_document.escape_html(view.usage.resource))
            yield html_document.generations_table(view.generations, story.end.unit)


# --- the heap -------------------------------------------------------------------------------------------------------


def _holdings(story: RunData, known: Diagnosis | None) -> Iterator[Markup]:
    """Types, attributes and lines of code, at the first examination and at the last."""
    yield _types(story)
    if known is None:
        return
    unit = known.unit
    attributes = [
        [
            without_main_module(one.name),
            format_bytes(one.before),
            format_bytes(one.after),
            f"{format_bytes(one.per_unit, signed=True)}/{unit}",
            sentences.since_text(one.since, unit),
        ]
        for one in (*known.containers, *(one for one in known.tracked if one not in known.containers))[
            :MAX_HEAP_TABLE_ROWS
        ]
    ]
    yield html_document.wide_table(["attribute", ">before", ">at last", ">growth", "since"], attributes)
    lines = [
        [profile_formats.format_frame(one.frame), format_bytes(one.bytes), f"{one.share:.0%}"]
        for one in known.lines[:MAX_HEAP_TABLE_ROWS]
    ]
    yield html_document.wide_table(["line that raised memory, of late", ">by", ">share"], lines)


def _types(story: RunData) -> Markup:
    sizes = growing_types(story, lambda one: one.bytes, MAX_HEAP_TABLE_ROWS)
    counts = growing_types(story, lambda one: one.count, 1_000_000)
    rows = [
        [
            without_main_module(name),
            *(f"{round(counts[name][i][1]):,}" if name in counts else "" for i in (0, -1)),
            *(format_bytes(series[i][1]) for i in (0, -1)),
        ]
        for name, series in sizes.items()
    ]
    return html_document.wide_table(["type", ">objects at first", ">at last", ">bytes at first", ">at last"], rows)


# --- the rest -------------------------------------------------------------------------------------------------------


def _timeline(story: RunData, clock: TimeOfDayFormatter) -> Markup:
    told = [one for one in story.timed_notices if one.event not in IN_TABLES]
    counted = any(one["gen"] is not None for one in told)
    heads = ["time", *([story.end.unit] if counted else []), "event", "text"]
    return html_document.event_table(
        heads, [(one.event, _told(one, clock, counted)) for one in told], REPORT_ROWS_FIRST, REPORT_ROWS_LAST
    )


def _told(one: TimedNotice, clock: TimeOfDayFormatter, counted: bool) -> list[str]:
    gen = "" if one["gen"] is None else format_index(one["gen"])
    return [clock(one.t), *([gen] if counted else []), one.event, one.notice.text]
