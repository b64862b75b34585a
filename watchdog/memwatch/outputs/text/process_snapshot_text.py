"""A trainer's snapshot as text, the difference of two of them, and a census."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from memwatch.core.examination import Census, TypeCount
from memwatch.core.leaks.process_snapshot import ProcessSnapshot, ProcessSnapshotDiff, ValueChange, memory_figures
from memwatch.core.text_and_units import format_bytes, format_duration, replace_unprintable

DIFFERENCE_ROWS = 15  # rows of each table of a difference
SHOWN_FRAMES = 8  # of each thread
CENSUS_TYPES = 25  # types in a table; the rest is one row
SHOWN_HOLDERS = 3  # of each type


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
