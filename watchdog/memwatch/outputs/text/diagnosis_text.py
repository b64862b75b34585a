"""What examinations have found, as text: the causes of growth, and tables of what grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from memwatch.core.engine import status_sentence as words
from memwatch.core.examination import Diagnosis, Finding, Growth
from memwatch.core.text_and_units import (
    format_bytes,
    index_text,
    printable,
    replace_unprintable,
    since_text,
    without_main_module,
)
from memwatch.outputs.text import profile_formats
from memwatch.outputs.text.formatting import phase_heads

TABLE_ROWS = 8  # rows of each table of a diagnosis
GROWTH_COLUMNS = 3  # columns for growing attributes and types, at least one of them for a type
MIN_LINE_SHARE = 0.01  # a line with a smaller share of the growth is not shown (chosen)
LINE_WIDTH = 160  # characters


def headlines(diagnosis: Diagnosis) -> Iterator[str]:
    """Yields each finding in a few lines: what grows, the evidence, the remedy."""
    for one in diagnosis.findings:
        yield printable(words.finding_headline(one, diagnosis.unit), LINE_WIDTH)
        yield from (f"  {printable(line, 400)}" for line in details(one) if line)
    if place := steepest_line(diagnosis):
        yield f"  {place}"


def steepest_line(diagnosis: Diagnosis) -> str:
    """The line of code that raised memory most, with its share; empty without a finding, and where it is not known."""
    if not diagnosis.findings or not diagnosis.lines:
        return ""
    most = diagnosis.lines[0]
    place = printable(profile_formats.format_frame(most.frame), 120)
    return f"recently memory rose most in {place}: {most.share:.0%} of the growth that was observed"


def details(one: Finding) -> Iterator[str]:
    """Yields what grows, the evidence for it, and its remedy."""
    yield replace_unprintable(words.finding_content(one))
    yield replace_unprintable(f"{one.title} (confidence {one.confidence:.2f})")
    yield from map(replace_unprintable, one.evidence)
    yield replace_unprintable(f"what to do: {one.remedy}")


def diagnosis_tables(diagnosis: Diagnosis) -> Iterator[str]:
    """Yields tables of what has grown from one examination to the next, and of what is large."""
    unit = diagnosis.unit
    yield from _moments(diagnosis)
    yield from _growths(f"attributes that grow each {unit}", diagnosis.containers, unit, format_bytes)
    yield from _tracked(diagnosis)
    yield from _growths(f"types with more objects each {unit}", diagnosis.types, unit, "{:,.0f}".format)
    yield from _growths(f"kinds of memory that grow each {unit}", diagnosis.kinds, unit, format_bytes)
    if diagnosis.lines:
        yield from (
            "",
            "lines that recently raised memory",
            *profile_formats.profile_rows(one for one in diagnosis.lines[:TABLE_ROWS] if one.share >= MIN_LINE_SHARE),
        )
    census = diagnosis.latest.census
    if census is not None and census.large:
        yield from ("", "large objects")
        for one in census.large[:TABLE_ROWS]:
            there = "" if one.resident_bytes is None else f", {format_bytes(one.resident_bytes)} of it in memory"
            yield f"{format_bytes(one.bytes):>12}  {printable(f'{one.type} {one.path}', 80)}{there}"
    if drivers := list(words.driver_texts(diagnosis.drivers)):
        yield from (
            "",
            "grows with",
            *(f"  {printable(text, LINE_WIDTH)}" for text in drivers),
        )


def _moments(diagnosis: Diagnosis) -> Iterator[str]:
    """A table of the examinations, with the types and attributes that grow the most."""
    moments = diagnosis.moments
    if len(moments) < 2:
        return
    paths = list(moments[-1].sizes)[: GROWTH_COLUMNS - 1]
    types = list(moments[-1].counts)[: GROWTH_COLUMNS - len(paths)]
    heads = "".join(f"{printable(without_main_module(name), 19):>20}" for name in (*paths, *types))
    yield from ("", f"{'examined in':>26}{'memory':>11}{'objects take':>14}{heads}")
    named = list(dict.fromkeys(one.phase for one in moments if one.phase))
    phases = dict(zip(named, phase_heads(named), strict=True))
    rows = moments if len(moments) <= TABLE_ROWS else (*moments[:2], *moments[2 - TABLE_ROWS :])
    for one in rows:
        where = "" if one.generation is None else f"{printable(diagnosis.unit, 12)} {index_text(one.generation)}"
        begun = ", ".join(filter(None, (where, printable(phases.get(one.phase or "", ""), 12))))
        used = "" if one.used_bytes is None else format_bytes(one.used_bytes)
        sizes = "".join(f"{format_bytes(one.sizes[name]) if name in one.sizes else '-':>20}" for name in paths)
        counts = "".join(f"{one.counts[name]:>20,}" for name in types)
        yield f"{begun:>26}{used:>11}{format_bytes(one.python_bytes):>14}{sizes}{counts}"


def _tracked(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.tracked:
        yield from ("", f"tracked attributes, and their growth per {diagnosis.unit}")
    for one in diagnosis.tracked:
        grows = " GROWS" if one.steps else ""
        name = printable(without_main_module(one.name), 60)
        yield f"{format_bytes(one.per_unit, signed=True):>12}  {format_bytes(one.after):<24}  {name}{grows}"


def _growths(title: str, rows: Sequence[Growth], unit: str, shown: Callable[[float], str]) -> Iterator[str]:
    rows = [one for one in rows if shown(one.per_unit) != shown(0)]  # growth per step may round to nothing
    if rows:
        yield from ("", title)
    for one in rows[:TABLE_ROWS]:
        change, since = f"{shown(one.before)} -> {shown(one.after)}", since_text(one.since, unit)
        name = printable(without_main_module(one.name), 60)
        yield f"{'+' + shown(one.per_unit):>12}  {change:<24}  {name}, since {since}"
