"""The parts of HTML pages: elements, tables, charts, and the sections that several pages have.

All text is escaped here: only what these functions return is markup.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import NewType

import memwatch
from memwatch.core.cause_of_death import TAIL_CHARS
from memwatch.core.engine import status_sentence as sentences
from memwatch.core.events import Exited
from memwatch.core.examination import Diagnosis
from memwatch.core.snapshot import EarlierRun, Expectation, GenerationRow, Severity
from memwatch.core.text_and_units import format_bytes, format_duration, printable, replace_unprintable
from memwatch.outputs.charts.run_data import TimedNotice
from memwatch.outputs.charts.svg_chart import NARROW, WIDE, Panel, render_svg, stylesheet
from memwatch.outputs.text.diagnosis_text import details, steepest_line
from memwatch.outputs.text.formatting import format_index, format_severity, largest_phases, phase_delta, phase_heads

LocalTime = Callable[[float], time.struct_time]
Markup = NewType("Markup", str)

HTML_PHASE_COLUMNS = 6  # phases that have a column
PAGE_CSS = """\
:root{color-scheme:light dark;--paper:#fff;--ink:#1c2128;--muted:#57606a;--rule:#e3e6ea;--bad:#bf3b00;
 --fits:#1a7f37;--calm:#3a6ea5;--warn:#b26a00;--act:#c62828}
@media(prefers-color-scheme:dark){
 :root{--paper:#12161b;--ink:#e6e9ed;--muted:#9aa5b1;--rule:#2b323a;--bad:#ff8f5e;
  --fits:#4ac26b;--calm:#79b0e8;--warn:#e3a13d;--act:#ff7b72}
}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1080px;padding:16px;background:var(--paper);color:var(--ink);
 font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif}
h1{font-size:1.5em;line-height:1.25;margin:.2em 0 .4em;overflow-wrap:anywhere}
h2{font-size:1.1em;margin:1.6em 0 .4em}
h3{font-size:1em;margin:1em 0 .2em;overflow-wrap:anywhere}
p,ul{margin:.3em 0;overflow-wrap:anywhere}
ul{padding-left:1.2em}
a{color:inherit}
nav{display:flex;flex-wrap:wrap;gap:.2em 1.2em;color:var(--muted);font-size:.87em}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:12px 20px;margin:1em 0;padding:12px 0;
 border-block:1px solid var(--rule)}
dt,footer,th,.muted{color:var(--muted);font-size:.87em;font-weight:400}
dl div{min-width:0}dt,dd{overflow-wrap:anywhere}dd{margin:0;font-weight:600}
.meter{width:100%;height:1.1em;background:var(--rule);border-radius:3px;overflow:hidden}
td.gauge{min-width:90px}
.wider td:first-child{white-space:nowrap}
.meter i{display:block;height:100%;background:currentColor}
.fits,.ended_well{color:var(--fits)}.watching{color:var(--calm)}.will_not_fit{color:var(--warn)}
.about_to_interrupt,.interrupting,.ended_badly{color:var(--act)}
pre{overflow-x:auto;font-size:.87em;line-height:1.35}
.bad{color:var(--bad)}.lead{font-size:1.15em}
svg.chart{display:block;width:100%;height:auto;margin:.4em 0}
svg.narrow{display:none}
.wider{overflow-x:auto}
table{border-collapse:collapse;width:100%}
th{text-align:left;white-space:nowrap}
th,td{padding:.3em .8em .3em 0;border-bottom:1px solid var(--rule);vertical-align:top}
.figure{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.events td{overflow-wrap:anywhere}
.events td:not(:last-child){white-space:nowrap}
tr.interrupt td{font-weight:600}
footer{margin:2em 0 1em}
@media(max-width:859px){
 svg.wide{display:none}svg.narrow{display:block;max-width:600px}
 .events thead{display:none}.events tr{display:block;padding:.5em 0;border-bottom:1px solid var(--rule)}
 .events td{display:inline;border:0}.events td:last-child{display:block}
}
@media print{body{max-width:none}svg.chart{break-inside:avoid}}
"""
ICON_COLOURS = {
    Severity.FITS: "#1a7f37",
    Severity.WATCHING: "#3a6ea5",
    Severity.WILL_NOT_FIT: "#d98c00",
    Severity.ABOUT_TO_INTERRUPT: "#c62828",
    Severity.INTERRUPTING: "#c62828",
    Severity.ENDED_WELL: "#1a7f37",
    Severity.ENDED_BADLY: "#c62828",
}
STATIC_CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # no script runs, and nothing is loaded


def escape_html(text: str, limit: int = 300) -> Markup:
    """Escapes text from anywhere, cut to `limit` characters."""
    return Markup(escape(printable(text, limit)))


def element(tag: str, *inner: Markup, **attributes: str) -> Markup:
    """Returns `<tag attribute="...">inner</tag>`; `class_` stands for `class`, empty attributes are left out."""
    given = (f' {name.strip("_").replace("_", "-")}="{escape(value)}"' for name, value in attributes.items() if value)
    return Markup(f"<{tag}{''.join(given)}>{''.join(inner)}</{tag}>")


def text_element(tag: str, text: str, limit: int = 300, **attributes: str) -> Markup:
    return element(tag, escape_html(text, limit), **attributes)


def paragraph(text: str, style: str = "") -> Markup:
    return text_element("p", text, 1000, class_=style)


def section(title: str, *inner: Markup) -> Markup:
    """A heading with markup below it; nothing if there is no markup."""
    return element("section", text_element("h2", title), *inner) if any(inner) else Markup("")


def facts(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Names and values, side by side."""
    return element(
        "dl", *(element("div", text_element("dt", name), text_element("dd", value)) for name, value in pairs)
    )


def bullet_list(texts: Iterable[str]) -> Markup:
    """A list; nothing if it is empty."""
    items = [text_element("li", text, 600) for text in texts]
    return element("ul", *items) if items else Markup("")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], bold: frozenset[int] = frozenset()) -> Markup:
    """A table; columns whose head begins with `>` are right-aligned, rows in `bold` stand out. Nothing without rows."""
    styles = ["figure" if head.startswith(">") else "" for head in heads]
    top = (
        text_element("th", head.removeprefix(">"), 60, class_=style) for head, style in zip(heads, styles, strict=True)
    )
    body = [
        element(
            "tr",
            *(text_element("td", cell, 600, class_=style) for cell, style in zip(row, styles, strict=True)),
            class_="interrupt" if i in bold else "",
        )
        for i, row in enumerate(rows)
    ]
    if not body:
        return Markup("")
    return element("table", element("thead", element("tr", *top)), element("tbody", *body))


def wide_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table that scrolls sideways on a narrow screen."""
    inner = table(heads, rows)
    return element("div", inner, class_="wider") if inner else inner


def event_table(heads: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], first: int, last: int) -> Markup:
    """A table of events: rows of (event, cells), of which the last cell is text; the `first` and the `last` of them.

    Interrupts stand out.
    """
    left_out = len(rows) - first - last
    more = ("", [*[""] * (len(heads) - 1), f"{left_out:,} more"])
    shown = [*rows[:first], more, *rows[len(rows) - last :]] if left_out > 0 else rows
    bold = frozenset(i for i, (event, _) in enumerate(shown) if event == "interrupt")
    inner = table(heads, (cells for _, cells in shown), bold)
    return element("div", inner, class_="events") if inner else inner


def notice_table(
    notices: Sequence[TimedNotice], head: str, time_text: Callable[[float], str], unit: str, *, first: int, last: int
) -> Markup:
    """An event table of notices, with a column of generations if any notice has one."""
    has_generations = any(one["gen"] is not None for one in notices)
    rows = []
    for one in notices:
        generation = ["" if one["gen"] is None else format_index(one["gen"])] if has_generations else []
        rows.append((one.event, [time_text(one.t), *generation, one.event, one.notice.text]))
    return event_table([head, *([unit] if has_generations else []), "event", "text"], rows, first, last)


def chart_svg(*panels: Panel) -> Markup:
    """Panels below each other as two SVGs, for a wide and a narrow screen: scaled down, text would be too small."""
    frames = (("wide", WIDE), ("narrow", NARROW))
    name = ", ".join(panel.title for panel in panels)
    return Markup("".join(render_svg(panels, frame, name, kind) for kind, frame in frames) if panels else "")


def meter(used: int | None, limit: int | None, severity: Severity) -> Markup:
    """How much of the limit is used (bytes), coloured by how the resource stands; nothing without a limit."""
    if used is None or limit is None or limit <= 0:
        return Markup("")
    share = min(1.0, used / limit)
    filled = element("i", style=f"width:{share:.1%}", class_=severity.value)
    label = f"{share:.0%} of the limit, {format_severity(severity)}"
    return element("div", filled, class_="meter", role="img", aria_label=label, title=label)


def footer(more: str) -> Markup:
    return text_element("footer", f"memwatch {memwatch.__version__}{more}")


def _icon(severity: Severity) -> str:
    """The icon of the browser's tab: a disk in the colour of the state, as no file is loaded."""
    disk = f"<circle cx='8' cy='8' r='7' fill='{ICON_COLOURS[severity]}'/>"
    image = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'>{disk}</svg>"
    encoded = image.replace("#", "%23").replace("<", "%3C").replace(">", "%3E")
    return f'<link rel="icon" href="data:image/svg+xml,{encoded}">'


def render_document(
    title: str, *body: Markup, refresh_seconds: int | None = None, severity: Severity | None = None
) -> str:
    """The page; `severity` colours its icon."""
    refresh = "" if refresh_seconds is None else f'<meta http-equiv="refresh" content="{refresh_seconds}">'
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape_html(title)} - memwatch</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{STATIC_CSP}">{refresh}'
        f"{'' if severity is None else _icon(severity)}"
        f"<style>{PAGE_CSS}{stylesheet()}</style><body>{''.join(body)}</body></html>\n"
    )


# --- sections that several pages have -------------------------------------------------------------------------------


def findings_section(diagnosis: Diagnosis | None) -> Iterator[Markup]:
    """Yields each cause of growth, with its evidence and its remedy."""
    if diagnosis is not None:
        for one in diagnosis.findings:
            yield text_element("h3", sentences.finding_headline(one, diagnosis.unit), class_="bad")
            yield bullet_list(filter(None, details(one)))
        yield paragraph(steepest_line(diagnosis)) if diagnosis.findings else Markup("")


def log_tail_section(exited: Exited | None) -> Markup:
    """The last lines that the trainer logged, as they stand there."""
    lines = exited.log_tail if exited is not None else ()
    tail = escape("\n".join(replace_unprintable(line[:TAIL_CHARS]) for line in lines))
    return section("The log's last lines", element("pre", Markup(tail))) if lines else Markup("")


def earlier_runs_section(runs: Sequence[EarlierRun], local_time: LocalTime) -> Markup:
    """A table of other runs of the program, the latest first; nothing without any."""
    rows = [
        [
            time.strftime("%Y-%m-%d %H:%M", local_time(run.begun_t)),
            format_duration(run.seconds),
            sentences.cause_text(run.cause),
            printable(run.run_id, 40),
        ]
        for run in runs
    ]
    return section("Earlier runs", wide_table(["began", ">watched for", "how it ended", "run"], rows))


def generations_table(rows: Sequence[GenerationRow], unit: str) -> Markup:
    """A table of how memory changed in each generation, and in its phases."""
    phases = largest_phases(rows, HTML_PHASE_COLUMNS) if rows else []
    heads = [f">{unit}", ">took", ">start", ">end", ">change", ">peak", *(f">{name}" for name in phase_heads(phases))]
    return wide_table(heads, (_generation(row, phases) for row in rows))


def _generation(row: GenerationRow, phases: Sequence[str]) -> list[str]:
    deltas = [phase_delta(row, phase) for phase in phases]
    attempt = f" (try {row.attempt + 1})" if row.attempt else ""
    took = "not ended" if row.end_t is None else format_duration(row.end_t - row.start_t)
    return [
        format_index(row.index) + attempt,
        took + (", in part" if row.partial else ""),
        format_bytes(row.start_bytes),
        format_bytes(row.end_bytes),
        format_bytes(row.delta_bytes, signed=True),
        format_bytes(row.peak_bytes),
        *("" if delta is None else format_bytes(delta, signed=True) for delta in deltas),
    ]


def expectations_table(expectations: Sequence[Expectation]) -> Markup:
    """A table of the expectations, and whether they were met."""
    rows = []
    for one in expectations:
        result = "not evaluated yet" if one.met is None else "met"
        if one.breaches:
            result = f"broken {one.breaches} times, first at {one.first}"
        rows.append([one.text, result, one.latest])
    return wide_table(["expected", "result", "latest"], rows)
