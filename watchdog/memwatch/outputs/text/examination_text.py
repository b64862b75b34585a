"""Examinations as text: causes of growth, a trainer's snapshot, the difference of two snapshots, a census."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from memwatch.core.engine import status_sentence as words
from memwatch.core.examination import Census, Diagnosis, Finding, Growth, TypeCount
from memwatch.core.leaks.process_snapshot import ProcessSnapshot, ProcessSnapshotDiff, ValueChange, memory_figures
from memwatch.core.text_and_units import (
    format_bytes,
    format_duration,
    index_text,
    printable,
    replace_unprintable,
    without_main_module,
)
from memwatch.outputs.text import profile_formats
from memwatch.outputs.text.formatting import phase_heads

TABLE_ROWS = 8  # rows of each table of a diagnosis
GROWTH_COLUMNS = 3  # columns for growing attributes and types, at least one of them for a type
MIN_LINE_SHARE = 0.01  # a line with a smaller share of the growth is not shown (chosen)
LINE_WIDTH = 160  # characters
DIFFERENCE_ROWS = 15  # rows of each table of a difference
SHOWN_FRAMES = 8  # of each thread
CENSUS_TYPES = 25  # types in a table; the rest is one row
SHOWN_HOLDERS = 3  # of each type


def headlines(diagnosis: Diagnosis) -> Iterator[str]:
    """Yields each finding in a few lines: what grows, the evidence, the remedy."""
    for one in diagnosis.findings:
        yield printable(words.finding_headline(one, diagnosis.unit), LINE_WIDTH)
        yield from (f"  {printable(line, 400)}" for line in details(one) if line)
    if diagnosis.findings and diagnosis.lines:
        most = diagnosis.lines[0]
        place = printable(profile_formats.format_frame(most.frame), 120)
        yield f"  recently memory rose most in {place}: {most.share:.0%} of the growth that was observed"


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
    if diagnosis.drivers:
        yield from (
            "",
            "grows with",
            *(f"  {printable(words.driver_text(one), LINE_WIDTH)}" for one in diagnosis.drivers),
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
        change, since = f"{shown(one.before)} -> {shown(one.after)}", words.since_text(one.since, unit)
        name = printable(without_main_module(one.name), 60)
        yield f"{'+' + shown(one.per_unit):>12}  {change:<24}  {name}, since {since}"


def render_snapshot(inspection: ProcessSnapshot) -> str:
    sizes = memory_figures(inspection.sample).items()
    lines = [f"{inspection.label}: PID {inspection.target.pid}, {inspection.command}", ""]
    lines += [f"{format_bytes(size):>12}  {name}" for name, size in sizes if size is not None]
    found = inspection.found
    kinds = [f"{format_bytes(one.resident_bytes):>12}  {one.kind}" for one in found.kinds or ()]
    lines += ["", "the trainer's own process", *kinds] if kinds else ["", f"no kinds of memory: {found.kinds_reason}"]
    for thread in found.threads or ():
        state = "runs" if thread.active else "waits"
        lines += ["", f"thread {thread.name or '(no name)'}, {state}"]
        lines += [f"    {frame.function} ({frame.file}:{frame.line})" for frame in thread.frames[:SHOWN_FRAMES]]
    if found.threads is None:
        lines += ["", f"no stacks: {found.threads_reason}"]
    lines.append("")
    if found.census is None:
        lines.append(f"no census: {found.census_reason}")
    shown = [replace_unprintable(line) for line in lines]
    return "\n".join(shown if found.census is None else [*shown, render_census(found.census)])


def render_inspection_diff(found: ProcessSnapshotDiff) -> str:
    lines = [f"from {found.before!r} to {found.after!r}: {format_duration(found.seconds)}"]
    if not found.same_process:
        lines.append("these are two processes: whatever only one of them holds counts as a change, too")
    lines += ["", *(_sized(one) for one in found.memory if one.change)]
    types = [_type_row(one.bytes, one.count) for one in found.types]
    sections = (
        ("the trainer's own process", [_sized(one) for one in found.kinds]),
        ("objects", types),
        ("large objects", [_sized(one) for one in found.large]),
        ("held by", [_counted(one) for one in found.holders]),
        ("tracked", [_sized(one) for one in found.tracked]),
        ("threads in", [_counted(one) for one in found.threads]),
    )
    for title, rows in sections:
        lines += _section(title, rows)
    return "\n".join(map(replace_unprintable, lines))


def _section(title: str, rows: Sequence[str]) -> Iterator[str]:
    if rows:
        yield from ("", title, *rows[:DIFFERENCE_ROWS])
    if len(rows) > DIFFERENCE_ROWS:
        yield f"{'':>24}and {len(rows) - DIFFERENCE_ROWS:,} more, all of them with --json"


def _sized(one: ValueChange) -> str:
    return f"{format_bytes(one.change or 0, signed=True):>12}  {_both(one, format_bytes):<28}  {one.name}"


def _counted(one: ValueChange) -> str:
    return f"{one.change or 0:>+12,}  {_both(one, '{:,}'.format):<28}  {one.name}"


def _type_row(size: ValueChange, count: ValueChange) -> str:
    sized = f"{format_bytes(size.change, signed=True):>12}  " if size.change is not None else ""
    return f"{sized}{count.change or 0:>+12,}  {_both(count, '{:,}'.format):<24}  {count.name}"


def _both(one: ValueChange, shown: Callable[[int], str]) -> str:
    return f"{shown(one.before or 0)} -> {shown(one.after or 0)}"


def render_census(census: Census) -> str:
    measured = any(one.bytes is not None for one in census.types)
    objects = sum(one.count for one in census.types)
    what = f"{objects:,} {'objects' if measured else 'tracked objects'} of {len(census.types):,} types"
    size = f", {format_bytes(sum(one.bytes or 0 for one in census.types))}" if measured else ""
    lines = [f"Python {census.python}: {what}{size}; {census.seconds:.2f} s of CPU", *_doubts(census), ""]
    lines += _types(census.types, measured)
    for title, rows in (
        ("large objects", _large(census)),
        ("held by", _holders(census)),
        ("tracked", _tracked_sizes(census)),
    ):
        if listed := list(rows):
            lines += ["", title, *listed]
    return "\n".join(map(replace_unprintable, lines))


def _doubts(census: Census) -> Iterator[str]:
    if not census.complete:
        yield "incomplete: the time was up before all objects were visited"
    if census.disturbed:
        yield "the garbage collector ran meanwhile: counts may be too low"


def _types(types: Sequence[TypeCount], measured: bool) -> Iterator[str]:
    rest = types[CENSUS_TYPES:]
    rows = [(one.count, one.bytes or 0, one.type) for one in types[:CENSUS_TYPES]]
    if rest:
        others = f"{len(rest):,} other types, all of them with --json"
        rows.append((sum(one.count for one in rest), sum(one.bytes or 0 for one in rest), others))
    for count, size, name in rows:
        yield f"{count:>12,}  {format_bytes(size) + '  ' if measured else '':>12}{name}"


def _large(census: Census) -> Iterator[str]:
    for one in census.large:
        yield f"{format_bytes(one.bytes):>12}  {one.type}{f', {one.path}' if one.path else ''}"


def _holders(census: Census) -> Iterator[str]:
    shown: Counter[str] = Counter()
    for one in census.holders:
        shown[one.type] += 1
        if shown[one.type] > SHOWN_HOLDERS:
            continue
        yield f"{one.count:>12,}  of {one.of:,} {one.type}: {one.path}"


def _tracked_sizes(census: Census) -> Iterator[str]:
    for one in census.tracked:
        size = one.reason if one.bytes is None else format_bytes(one.bytes)
        several = f" in {one.objects:,} objects" if one.objects > 1 else ""
        yield f"{size:>12}{several}  {one.path}"
