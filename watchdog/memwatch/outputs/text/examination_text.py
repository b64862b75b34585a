"""What is known of the causes of growth, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from memwatch.core.engine import status_sentence as words
from memwatch.core.examination import Diagnosis, Finding, Growth
from memwatch.core.text_and_units import printable, visible
from memwatch.core.zz_units import format_bytes
from memwatch.outputs.text import profile_formats
from memwatch.outputs.text.formatting import phase_heads

SHOWN = 8  # rows of each table
COLUMNS = 3  # for attributes and types that grow: one at least is a type's
WORTH = 0.01  # of the growth that was seen: a line with less is not told
_WIDTH = 160


def headlines(diagnosis: Diagnosis) -> Iterator[str]:
    """Each finding in a few lines: what, why, what to do."""
    for one in diagnosis.findings:
        yield printable(words.finding_headline(one, diagnosis.unit), _WIDTH)
        yield from (f"  {printable(line, 400)}" for line in details(one) if line)
    if diagnosis.findings and diagnosis.lines:
        most = diagnosis.lines[0]
        place = printable(profile_formats.place(most.frame), 120)
        yield f"  of late memory rose the most in {place}: {most.share:.0%} of what was seen"


def details(one: Finding) -> Iterator[str]:
    """What is more and more, why that is said, and what to do about it."""
    yield visible(words.finding_content(one))
    yield visible(f"{one.title} (confidence {one.confidence:.2f})")
    yield from map(visible, one.evidence)
    yield visible(f"what to do: {one.remedy}")


def tables(diagnosis: Diagnosis) -> Iterator[str]:
    """What has grown from one examination to the next, and what is large."""
    unit = diagnosis.unit
    yield from _moments(diagnosis)
    yield from _growths(f"attributes that grow by the {unit}", diagnosis.containers, unit, format_bytes)
    yield from _tracked(diagnosis)
    yield from _growths(f"types that there are more of by the {unit}", diagnosis.types, unit, "{:,.0f}".format)
    yield from _growths(f"kinds of memory that grow by the {unit}", diagnosis.kinds, unit, format_bytes)
    if diagnosis.lines:
        yield from (
            "",
            "lines that raise memory, of late",
            *profile_formats.rows(one for one in diagnosis.lines[:SHOWN] if one.share >= WORTH),
        )
    census = diagnosis.latest.census
    if census is not None and census.large:
        yield from ("", "large objects")
        for one in census.large[:SHOWN]:
            there = "" if one.resident_bytes is None else f", {format_bytes(one.resident_bytes)} of it in memory"
            yield f"{format_bytes(one.bytes):>12}  {printable(f'{one.type} {one.path}', 80)}{there}"
    if diagnosis.drivers:
        yield from ("", "grows with", *(f"  {printable(words.driver_text(one), _WIDTH)}" for one in diagnosis.drivers))


def _moments(diagnosis: Diagnosis) -> Iterator[str]:
    """What each examination showed, with the types and attributes that grow the most."""
    moments = diagnosis.moments
    if len(moments) < 2:
        return
    paths = list(moments[-1].sizes)[: COLUMNS - 1]
    types = list(moments[-1].counts)[: COLUMNS - len(paths)]
    heads = "".join(f"{printable(words.main_less(name), 19):>20}" for name in (*paths, *types))
    yield from ("", f"{'examined in':>26}{'memory':>11}{'objects take':>14}{heads}")
    named = list(dict.fromkeys(one.phase for one in moments if one.phase))
    phases = dict(zip(named, phase_heads(named), strict=True))
    rows = moments if len(moments) <= SHOWN else (*moments[:2], *moments[2 - SHOWN :])
    for one in rows:
        where = "" if one.generation is None else f"{printable(diagnosis.unit, 12)} {words.index_text(one.generation)}"
        begun = ", ".join(filter(None, (where, printable(phases.get(one.phase or "", ""), 12))))
        used = "" if one.used_bytes is None else format_bytes(one.used_bytes)
        sizes = "".join(f"{format_bytes(one.sizes[name]) if name in one.sizes else '-':>20}" for name in paths)
        counts = "".join(f"{one.counts[name]:>20,}" for name in types)
        yield f"{begun:>26}{used:>11}{format_bytes(one.python_bytes):>14}{sizes}{counts}"


def _tracked(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.tracked:
        yield from ("", f"tracked attributes, and their growth by the {diagnosis.unit}")
    for one in diagnosis.tracked:
        grows = " GROWS" if one.steps else ""
        name = printable(words.main_less(one.name), 60)
        yield f"{format_bytes(one.per_unit, signed=True):>12}  {format_bytes(one.after):<24}  {name}{grows}"


def _growths(title: str, rows: Sequence[Growth], unit: str, shown: Callable[[float], str]) -> Iterator[str]:
    rows = [one for one in rows if shown(one.per_unit) != shown(0)]  # of a step, where the log counts steps
    if rows:
        yield from ("", title)
    for one in rows[:SHOWN]:
        change, since = f"{shown(one.before)} -> {shown(one.after)}", words.since_text(one.since, unit)
        name = printable(words.main_less(one.name), 60)
        yield f"{'+' + shown(one.per_unit):>12}  {change:<24}  {name}, since {since}"
