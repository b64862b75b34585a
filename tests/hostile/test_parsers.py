"""Any bytes: facts with finite numbers or a named refusal, in bounded time and memory."""

from __future__ import annotations

import ast
import math
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import memwatch
from hostile.parsers import PARSERS

CPU_SECONDS, PEAK_BYTES = 2.0, 32 << 20  # for 64 KiB at most
PIECES = (
    b"-1",
    b"9" * 400,
    b"1e999",
    b"nan",
    b"\0",
    b"\xff\xfe",
    b" ",
    b"\n",
    b"=",
    b":",
    b"[",
    b"{",
    b'"',
    b"\\",
    b"2" * 20,
)
PACKAGE = Path(memwatch.__file__).parent


def numbers(value: object, depth: int = 0) -> Iterator[float]:
    """All that are within."""
    if isinstance(value, float):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        yield from (n for f in fields(value) for n in numbers(getattr(value, f.name), depth + 1))
    elif isinstance(value, Mapping):
        yield from (n for item in value.values() for n in numbers(item, depth + 1))
    elif isinstance(value, (list, tuple)) and depth < 20:
        yield from (n for item in value for n in numbers(item, depth + 1))


@st.composite
def inputs(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """A real input, cut, repeated and with other pieces in it; or anything."""
    raw = draw(st.sampled_from(seeds) | st.binary(max_size=200))
    for _ in range(draw(st.integers(0, 4))):
        start, end = sorted(draw(st.tuples(st.integers(0, len(raw)), st.integers(0, len(raw)))))
        raw = raw[:start] + draw(st.sampled_from(PIECES) | st.binary(max_size=8) | st.just(raw)) + raw[end:]
    return raw[: 64 << 10]


def checked(name: str, raw: bytes) -> None:
    parser = PARSERS[name]
    begun = time.thread_time()
    try:
        facts = parser.parse(raw)
    except parser.refusals:
        facts = None
    assert time.thread_time() - begun < CPU_SECONDS
    assert all(map(math.isfinite, numbers(facts)))


@pytest.mark.parametrize("name", PARSERS)
def test_any_bytes_are_facts_or_a_named_refusal(name: str) -> None:
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(inputs(PARSERS[name].seeds))
    def holds(raw: bytes) -> None:
        checked(name, raw)

    holds()


@pytest.mark.parametrize("name", PARSERS)
def test_much_of_the_same_takes_bounded_time_and_memory(name: str) -> None:
    tracemalloc.start()
    try:
        for piece in (*PARSERS[name].seeds, *PIECES):
            checked(name, (piece * ((64 << 10) // len(piece) + 1))[: 64 << 10])
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < PEAK_BYTES


def test_every_parser_is_in_the_table() -> None:
    found = {
        f"{path.stem}.{node.name}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("parse")
    }
    assert not found - PARSERS.keys()
