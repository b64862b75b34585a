"""A snapshot of a trainer, and the difference between two, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from memwatch.core.leaks.process_snapshot import (
    Comparison,
    Figure,
    Inspection,
    memory,
)
from memwatch.core.text_and_units import visible
from memwatch.core.zz_units import format_bytes, format_duration
from memwatch.outputs.text import zz_census

SHOWN = 15  # rows of each table
_FRAMES_SHOWN = 8


def render(inspection: Inspection) -> str:
    """All of one, for people."""
    sizes = memory(inspection.sample).items()
    lines = [f"{inspection.label}: PID {inspection.target.pid}, {inspection.command}", ""]
    lines += [f"{format_bytes(size):>12}  {name}" for name, size in sizes if size is not None]
    found = inspection.found
    kinds = [f"{format_bytes(one.resident_bytes):>12}  {one.kind}" for one in found.kinds or ()]
    lines += ["", "the trainer's own process", *kinds] if kinds else ["", f"no kinds of memory: {found.kinds_reason}"]
    for thread in found.threads or ():
        state = "runs" if thread.active else "waits"
        lines += ["", f"thread {thread.name or '(no name)'}, {state}"]
        lines += [f"    {frame.function} ({frame.file}:{frame.line})" for frame in thread.frames[:_FRAMES_SHOWN]]
    lines += ["", f"no stacks: {found.threads_reason}"] if found.threads is None else []
    lines += ["", f"no census: {found.census_reason}"] if found.census is None else [""]
    counted = [zz_census.render(found.census)] if found.census is not None else []
    return "\n".join([*map(visible, lines), *counted])


def render_comparison(found: Comparison) -> str:
    """What is different, for people."""
    lines = [f"from {found.before!r} to {found.after!r}: {format_duration(found.seconds)}"]
    if not found.same_process:
        lines.append("these are two processes: what one holds and the other does not is a change, too")
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
    return "\n".join(map(visible, lines))


def _section(title: str, rows: Sequence[str]) -> Iterator[str]:
    if rows:
        yield from ("", title, *rows[:SHOWN])
    if len(rows) > SHOWN:
        yield f"{'':>24}and {len(rows) - SHOWN:,} more, all of them with --json"


def _sized(one: Figure) -> str:
    return f"{format_bytes(one.change or 0, signed=True):>12}  {_both(one, format_bytes):<28}  {one.name}"


def _counted(one: Figure) -> str:
    return f"{one.change or 0:>+12,}  {_both(one, '{:,}'.format):<28}  {one.name}"


def _type_row(size: Figure, count: Figure) -> str:
    sized = f"{format_bytes(size.change, signed=True):>12}  " if size.change is not None else ""
    return f"{sized}{count.change or 0:>+12,}  {_both(count, '{:,}'.format):<24}  {count.name}"


def _both(one: Figure, shown: Callable[[int], str]) -> str:
    return f"{shown(one.before or 0)} -> {shown(one.after or 0)}"
