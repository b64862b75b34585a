"""What is known of the causes of growth, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from memwatch.core import sentence as words
from memwatch.core.examination import Diagnosis, Finding, Growth
from memwatch.core.text import printable
from memwatch.core.units import format_bytes
from memwatch.outputs import profile

SHOWN = 8  # rows of each table
WORTH = 0.01  # of the growth that was seen: a line with less is not told
_WIDTH = 160


def headlines(diagnosis: Diagnosis) -> Iterator[str]:
    """Each finding in a few lines: what, why, what to do."""
    for one in diagnosis.findings:
        yield printable(words.finding_headline(one, diagnosis.unit), _WIDTH)
        yield from (f"  {printable(line, 400)}" for line in _details(one) if line)
    if diagnosis.findings and diagnosis.lines:
        most = diagnosis.lines[0]
        place = printable(profile.place(most.frame), 120)
        yield f"  of late memory rose the most in {place}: {most.share:.0%} of what was seen"


def _details(one: Finding) -> Iterator[str]:
    yield words.finding_content(one)
    yield f"{one.title} (confidence {one.confidence:.2f})"
    yield from one.evidence
    yield f"what to do: {one.remedy}"


def tables(diagnosis: Diagnosis) -> Iterator[str]:
    """What has grown from one examination to the next, and what is large."""
    unit = diagnosis.unit
    yield from _growths(f"attributes that grow by the {unit}", diagnosis.containers, unit, format_bytes)
    yield from _growths(f"types that there are more of by the {unit}", diagnosis.types, unit, "{:,.0f}".format)
    yield from _growths(f"kinds of memory that grow by the {unit}", diagnosis.kinds, unit, format_bytes)
    if diagnosis.lines:
        yield from (
            "",
            "lines that raise memory, of late",
            *profile.rows(one for one in diagnosis.lines[:SHOWN] if one.share >= WORTH),
        )
    census = diagnosis.latest.census
    if census is not None and census.large:
        yield from ("", "large objects")
        for one in census.large[:SHOWN]:
            there = "" if one.resident_bytes is None else f", {format_bytes(one.resident_bytes)} of it in memory"
            yield f"{format_bytes(one.bytes):>12}  {printable(f'{one.type} {one.path}', 80)}{there}"
    if diagnosis.drivers:
        yield from ("", "grows with", *(f"  {printable(words.driver_text(one), _WIDTH)}" for one in diagnosis.drivers))


def _growths(title: str, rows: Sequence[Growth], unit: str, shown: Callable[[float], str]) -> Iterator[str]:
    rows = [one for one in rows if shown(one.per_unit) != shown(0)]  # of a step, where the log counts steps
    if rows:
        yield from ("", title)
    for one in rows[:SHOWN]:
        change, since = f"{shown(one.before)} -> {shown(one.after)}", words.since_text(one.since, unit)
        name = printable(words.main_less(one.name), 60)
        yield f"{'+' + shown(one.per_unit):>12}  {change:<24}  {name}, since {since}"
