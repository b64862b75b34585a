"""A census as text: tables of what there is the most of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from memwatch.core.text_and_units import visible
from memwatch.core.zz_census import Census, TypeCount
from memwatch.core.zz_units import format_bytes

SHOWN = 25  # types
_HOLDERS_SHOWN = 3  # of each type


def render(census: Census) -> str:
    """What was found, for people."""
    measured = any(one.bytes is not None for one in census.types)
    objects = sum(one.count for one in census.types)
    what = f"{objects:,} {'objects' if measured else 'tracked objects'} of {len(census.types):,} types"
    size = f", {format_bytes(sum(one.bytes or 0 for one in census.types))}" if measured else ""
    lines = [f"Python {census.python}: {what}{size}; {census.seconds:.2f} s of CPU", *_doubts(census), ""]
    lines += _types(census.types, measured)
    for title, rows in (
        ("large objects", _large(census)),
        ("held by", _holders(census)),
        ("tracked", _tracked(census)),
    ):
        if listed := list(rows):
            lines += ["", title, *listed]
    return "\n".join(map(visible, lines))


def _doubts(census: Census) -> Iterator[str]:
    if not census.complete:
        yield "incomplete: the time was up before all was seen"
    if census.disturbed:
        yield "the collector was at work meanwhile: counts may be too low"


def _types(types: Sequence[TypeCount], measured: bool) -> Iterator[str]:
    rest = types[SHOWN:]
    rows = [(one.count, one.bytes or 0, one.type) for one in types[:SHOWN]]
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
        if shown[one.type] > _HOLDERS_SHOWN:
            continue
        yield f"{one.count:>12,}  of {one.of:,} {one.type}: {one.path}"


def _tracked(census: Census) -> Iterator[str]:
    for one in census.tracked:
        size = one.reason if one.bytes is None else format_bytes(one.bytes)
        several = f" in {one.objects:,} objects" if one.objects > 1 else ""
        yield f"{size:>12}{several}  {one.path}"
