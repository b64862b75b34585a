"""A heap that lies, and names in a real one: a census with what could be read, or a named error."""

from __future__ import annotations

import shutil
import struct
import time

import pytest

from hostile import heaps
from hostile.defiled import harmful
from memwatch.diagnosis.heap.program_modules import is_of_program
from memwatch.diagnosis.whole_heap.object_census import CensusOptions, take_census
from memwatch.errors import SourceError
from support.processes import python, running

NAMES = """
import sys, time
kept = []
long, halves = ("a" * 400, "b" * 400), ("\\ud800", "\\udc00")
for module, name in [("", "x"), (".", "."), ("\\x1b[2J", "\\u202e"), long, halves, ("m", "")]:
    kind = type("C", (), {"__module__": module, "__qualname__": name, "\\x1b[31m" + name: kept})
    kept += [kind() for _ in range(300)]
    for one in kept[-300:]:
        one.__dict__["\\x1b]0;" + name] = [one, bytearray(5000)]
kept.append(kept)
sys.modules["\\x9b" + "m" * 300] = type(sys)("\\x9bm", None)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("version", range(8))
def test_the_heap_that_words_are_changed_in_is_one(version: int) -> None:
    found, stacks = heaps.census(bytes((version, 0)))
    held = {one.path: one.objects for one in found.tracked}
    assert found.complete and held["Trainer.kept[*]"] == 4 and held["Trainer.table['a']"] == 1
    assert {one.type: one.count for one in found.types}["__main__.Record"] == 4
    assert found.storages and found.tensors_with_graph is not None and len(stacks) == 2


def test_names_that_a_program_makes_up_are_told_without_harm() -> None:
    with running(python(NAMES)) as trainer:
        found = take_census(trainer.pid, CensusOptions(bytes=True, trace_most_frequent=5, containers=True))
    said = [text for one in (*found.holders, *found.types) for text in (one.type, getattr(one, "path", ""))]
    counts = {one.type: one.count for one in found.types}
    assert found.complete and counts["x"] == counts["..."] == 300 and counts["C"] == 600, (
        "names that are none are its own"
    )
    assert not set().union(*(harmful(text, "") for text in [*said, *(one.path for one in found.containers)]))


@pytest.mark.skipif(shutil.which("gcc") is None and shutil.which("cc") is None, reason="needs a C compiler")
def test_interpreters_that_are_invented_cost_no_more_time_than_there_is() -> None:
    """64 of them would be looked through for minutes."""
    begun = time.thread_time()
    with pytest.raises(SourceError, match="not where they are expected"):
        heaps.crowded(seconds=2.0)
    assert time.thread_time() - begun < 6.0


def test_a_class_of_no_module_is_not_the_programs() -> None:
    assert not is_of_program(".x") and not is_of_program("") and is_of_program("__main__.x")


def test_an_executable_that_was_not_mapped_as_it_says_has_no_runtime() -> None:
    raw = bytearray(heaps.executables()[0])
    table, size, count = struct.unpack_from("<Q", raw, 32)[0], *struct.unpack_from("<HH", raw, 54)
    heaps.binary(bytes(raw))
    for at in range(table, table + size * count, size):
        struct.pack_into("<Q", raw, at + 8, 1 << 40)
    with pytest.raises(SourceError, match="no CPython"):
        heaps.binary(bytes(raw))
