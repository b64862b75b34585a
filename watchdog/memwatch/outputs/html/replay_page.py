"""A replay as one page or SVG file: its panels, its outcome, and its events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import memwatch
from memwatch.core.text_and_units import format_bytes, format_duration
from memwatch.outputs.charts.panels import format_elapsed, run_panels
from memwatch.outputs.charts.run_data import RunData, TimedNotice
from memwatch.outputs.charts.svg_chart import WIDE, render_svg_file
from memwatch.outputs.html import html_document
from memwatch.outputs.html.html_document import Markup
from memwatch.outputs.terminal.plain_and_json_lines import NoticeFilter
from memwatch.outputs.text.formatting import format_index

SUFFIXES = (".html", ".svg")
REPLAY_ROWS_FIRST, REPLAY_ROWS_LAST = 40, 20  # rows kept from the ends of a longer table


def render_replay(suffix: str, name: str, story: RunData, conclusion: str, parameters: Mapping[str, str]) -> str:
    """Returns the text of the file, by its suffix. `parameters` are options of the replay, for people."""
    if suffix.lower() == ".svg":
        return render_svg_file(run_panels(story), WIDE, [name, *conclusion.splitlines()]) + "\n"
    asked = "".join(f", {word} {value}" for word, value in parameters.items())
    return html_document.render_document(
        name,
        html_document.element("h1", html_document.escape_html(name)),
        *map(html_document.paragraph, conclusion.splitlines()),
        html_document.facts(_facts(story)),
        *map(html_document.chart_svg, run_panels(story)),
        html_document.section("What was said and done", notice_table(story)),
        html_document.element(
            "footer", html_document.escape_html(f"memwatch {memwatch.__version__} replay{asked}", 1000)
        ),
    )


def _facts(story: RunData) -> Iterator[tuple[str, str]]:
    """The figures of the decision."""
    interrupt = next((one for one in story.timed_notices if one.event == "interrupt"), None)
    if interrupt is not None:
        room = interrupt["headroom"]
        yield "interrupt", format_elapsed(interrupt.t)
        yield "room left then", "unknown" if room is None else format_bytes(room)
    yield from _meeting(story, None if interrupt is None else interrupt.t)
    yield "a checkpoint takes", f"{format_duration(story.end.checkpoint_seconds)} ({story.end.checkpoint_origin})"
    yield "samples", f"{max((sum(map(len, one.runs)) for one in story.memory.values()), default=0):,}"


def _meeting(story: RunData, interrupt_t: float | None) -> Iterator[tuple[str, str]]:
    """When the limit was really reached: the first time after the interrupt, or the first time of all."""
    memories = story.memory.values()
    met = sorted(t for memory in memories for t, _ in memory.limit_reached)
    later = [t for t in met if interrupt_t is None or t >= interrupt_t]
    if later:
        yield "limit met", format_elapsed(later[0])
        if interrupt_t is not None:
            yield "time in hand", format_duration(later[0] - interrupt_t)
    elif met:
        yield "limit met", f"{format_elapsed(met[-1])}, before the interrupt"
    else:
        known = any(limit is not None for memory in memories for _, limit in memory.limits)
        yield "limit met", "not in this trace" if known else "no limit known"


def notice_table(story: RunData) -> Markup:
    """The events that a replay prints, with their times."""
    is_news = NoticeFilter()
    news = [one for one in story.timed_notices if is_news(one.notice)]
    counted = any(one["gen"] is not None for one in news)
    heads = ["after", *([story.end.unit] if counted else []), "event", "text"]
    return html_document.event_table(
        heads, [(one.event, _row(one, counted)) for one in news], REPLAY_ROWS_FIRST, REPLAY_ROWS_LAST
    )


def _row(said: TimedNotice, counted: bool) -> list[str]:
    gen = "" if said["gen"] is None else format_index(said["gen"])
    return [
        format_duration(said.t) if said.t >= 1 else "0 s",
        *([gen] if counted else []),
        said.event,
        said.notice.text,
    ]
