"""A replay as one page or SVG file: its panels, its outcome, and its events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memwatch.core.text_and_units import format_bytes, format_duration
from memwatch.outputs.charts.panels import format_elapsed, run_panels
from memwatch.outputs.charts.run_data import RunData
from memwatch.outputs.charts.svg_chart import WIDE, render_svg_file
from memwatch.outputs.html import html_document as html
from memwatch.outputs.terminal.plain_and_json_lines import NoticeFilter

SUFFIXES = (".html", ".svg")
REPLAY_ROWS_FIRST, REPLAY_ROWS_LAST = 40, 20  # rows kept from the ends of a longer table


def render_replay(suffix: str, name: str, run: RunData, conclusion: str, parameters: Mapping[str, str]) -> str:
    """Returns the text of the file, by its suffix. `parameters` are options of the replay, for people."""
    if suffix.lower() == ".svg":
        return render_svg_file(run_panels(run), WIDE, [name, *conclusion.splitlines()]) + "\n"
    is_news = NoticeFilter()
    news = [one for one in run.timed_notices if is_news(one.notice)]
    table = html.notice_table(news, "after", _elapsed, run.end.unit, first=REPLAY_ROWS_FIRST, last=REPLAY_ROWS_LAST)
    options = "".join(f", {option} {value}" for option, value in parameters.items())
    return html.render_document(
        name,
        html.text_element("h1", name),
        *map(html.paragraph, conclusion.splitlines()),
        html.facts(_facts(run)),
        html.chart_svg(*run_panels(run)),
        html.section("Events", table),
        html.footer(f" replay{options}"),
    )


def _facts(run: RunData) -> Iterator[tuple[str, str]]:
    interrupt = next((one for one in run.timed_notices if one.event == "interrupt"), None)
    if interrupt is not None:
        headroom = interrupt["headroom"]
        yield "interrupt", format_elapsed(interrupt.t)
        yield "headroom at interrupt", "unknown" if headroom is None else format_bytes(headroom)
    yield from _limit_facts(run, None if interrupt is None else interrupt.t)
    yield "a checkpoint takes", f"{format_duration(run.end.checkpoint_seconds)} ({run.end.checkpoint_origin})"
    yield "samples", f"{max((sum(map(len, one.by_process)) for one in run.memory.values()), default=0):,}"


def _limit_facts(run: RunData, interrupt_t: float | None) -> Iterator[tuple[str, str]]:
    """When the limit was really reached: the first time after the interrupt, or the first time of all."""
    memories = run.memory.values()
    reached = sorted(t for memory in memories for t, _ in memory.limit_reached)
    later = [t for t in reached if interrupt_t is None or t >= interrupt_t]
    if later:
        yield "limit reached", format_elapsed(later[0])
        if interrupt_t is not None:
            yield "time to spare", format_duration(later[0] - interrupt_t)
    elif reached:
        yield "limit reached", f"{format_elapsed(reached[-1])}, before the interrupt"
    else:
        is_known = any(limit is not None for memory in memories for _, limit in memory.limits)
        yield "limit reached", "not in this trace" if is_known else "no limit known"


def _elapsed(t: float) -> str:
    return format_duration(t) if t >= 1 else "0 s"
