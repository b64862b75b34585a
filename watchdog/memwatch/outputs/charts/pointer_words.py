"""What a chart says of the place under the pointer: values between two x, in words."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar

from memwatch.core.text_and_units import format_bytes, format_duration
from memwatch.outputs.text.formatting import format_index

T = TypeVar("T")
Words = Callable[[float, float], str]  # from x, to x; empty: nothing to say there
Value = tuple[float, T]  # x, and what is true from there on


def latest(values: Sequence[Value[T]], x: float) -> T | None:
    """The value of the last one that is not after `x`; None before the first. `values` are in the order of x."""
    i = bisect_right(values, x, key=_x)
    return values[i - 1][1] if i else None


def range_words(pieces: Sequence[Sequence[tuple[float, float]]], low: float, high: float) -> str:
    """`1.2 GB`, `1.2 GB - 1.4 GB`: the values between, and the one that holds where they begin. `pieces` have gaps."""
    levels: list[float] = []
    for piece in pieces:
        if piece and piece[0][0] <= high and piece[-1][0] >= low:
            first = max(0, bisect_right(piece, low, key=_x) - 1)
            levels += (y for _, y in piece[first : bisect_left(piece, high, lo=first, key=_x)])
    if not levels:
        return ""
    least, most = format_bytes(min(levels)), format_bytes(max(levels))
    return least if least == most else f"{least} - {most}"


def moment_words(x: float, generations: Sequence[Value[float]], unit: str) -> str:
    """`after 12 m, generation 7`: seconds since the first event, and the generation that ran then."""
    generation = latest(generations, x)
    after = f"after {format_duration(x)}"
    return after if generation is None else f"{after}, {unit} {format_index(generation)}"


def _x(value: Value[T]) -> float:
    return value[0]
