"""Any bytes: facts with finite numbers or a named refusal, in bounded time and memory."""

from __future__ import annotations

import ast
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import memwatch
from hostile.contract import MOST_BYTES, PEAK_BYTES, PIECES, hold, inputs, trees
from hostile.parsers import PARSERS

PACKAGE = Path(memwatch.__file__).parent


@pytest.mark.parametrize("name", PARSERS)
def test_any_bytes_are_facts_or_a_named_refusal(name: str) -> None:
    @settings(deadline=None, suppress_health_check=list(HealthCheck))
    @given(inputs(PARSERS[name].seeds) | trees(PARSERS[name].seeds))
    def holds(raw: bytes) -> None:
        hold(PARSERS[name], raw)

    holds()


@pytest.mark.parametrize(("name", "raw"), [(name, raw) for name, one in PARSERS.items() for raw in one.found])
def test_what_was_found_once_is_not_found_again(name: str, raw: bytes) -> None:
    hold(PARSERS[name], raw)


@pytest.mark.parametrize("name", PARSERS)
def test_much_of_the_same_takes_bounded_time_and_memory(name: str) -> None:
    tracemalloc.start()
    try:
        for piece in (*PARSERS[name].seeds, *PIECES):
            hold(PARSERS[name], (piece * (MOST_BYTES // len(piece) + 1))[:MOST_BYTES])
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
