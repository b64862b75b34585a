"""What each parser holds to, given any bytes: facts of finite numbers or a named refusal, in bounded time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from memwatch.errors import MemwatchError

MOST_BYTES = 64 << 10  # of an input
CPU_SECONDS, PEAK_BYTES = 2.0, 32 << 20  # for so much
LARGEST = 1e300  # of a number: what is computed of it next must not be infinite either
DEEPEST = 20  # records within records
PIECES = (
    *(b"-1", b"9" * 400, b"1e999", b"nan", b"2" * 20, b"\0", b"\xff\xfe"),
    *(b" ", b"\n", b"=", b":", b"[", b"{", b'"', b"\\"),
)
VALUES = (  # of JSON, in the place of others
    *(None, True, 0, -1, 0.5, 1, 2**40, 2**63, 2**64, 1e29, -1e29, 1e-300, 1e300),
    *("", "x" * 50, "\x1b[2J<b>", "\ud800", "host", "1e9", [], {}, [[]], {"a": 1}, [0.0, 1.0, 2.0]),
)


@dataclass(frozen=True, slots=True)
class Parser:
    """A function that makes facts of foreign bytes. `seeds`: real inputs, from which others are made."""

    parse: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    refusals: tuple[type[Exception], ...] = (MemwatchError,)
    found: tuple[bytes, ...] = ()  # what it once failed on


def numbers(value: object, depth: int = 0) -> Iterator[float]:
    """All that are within, the whole ones too."""
    if isinstance(value, (int, float)):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        yield from (n for f in fields(value) for n in numbers(getattr(value, f.name), depth + 1))
    elif isinstance(value, Mapping):
        yield from (n for item in value.values() for n in numbers(item, depth + 1))
    elif isinstance(value, (list, tuple)) and depth < DEEPEST:
        yield from (n for item in value for n in numbers(item, depth + 1))


def hold(parser: Parser, raw: bytes) -> None:
    """AssertionError, or the error that is none of the parser's refusals."""
    begun = time.thread_time()
    try:
        facts = parser.parse(raw)
    except parser.refusals:
        facts = None
    assert time.thread_time() - begun < CPU_SECONDS, "it takes too long"
    assert all(-LARGEST < n < LARGEST for n in numbers(facts)), "a number that is none"


@st.composite
def inputs(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """A real input, cut, repeated and with other pieces in it; or anything."""
    raw = draw(st.sampled_from(seeds) | st.binary(max_size=200))
    for _ in range(draw(st.integers(0, 4))):
        start, end = sorted(draw(st.tuples(st.integers(0, len(raw)), st.integers(0, len(raw)))))
        raw = raw[:start] + draw(st.sampled_from(PIECES) | st.binary(max_size=8) | st.just(raw)) + raw[end:]
    return raw[:MOST_BYTES]


@st.composite
def trees(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """A real input of JSON in which some values are others."""
    return warped(draw(st.sampled_from(seeds)), Random(draw(st.integers(0, 2**32))))


def warped(raw: bytes, chance: Random) -> bytes:
    """The same with some values of its JSON, where there is any, replaced, left out or doubled."""
    begin = next((i for i, byte in enumerate(raw[:16]) if byte in b"{["), len(raw))
    try:
        tree = json.loads(raw[begin:])
    except (ValueError, RecursionError):
        return raw
    return (raw[:begin] + json.dumps(_warped(tree, chance, chance.choice((0.001, 0.01, 0.1)))).encode())[:MOST_BYTES]


def _warped(tree: Any, chance: Random, share: float) -> Any:
    if chance.random() < share:
        return chance.choice(VALUES)
    if isinstance(tree, dict):
        return {key: _warped(item, chance, share) for key, item in tree.items() if chance.random() > share / 4}
    if isinstance(tree, list):
        return [_warped(item, chance, share) for item in tree * chance.choice((1, 1, 1, 2))]
    return tree
