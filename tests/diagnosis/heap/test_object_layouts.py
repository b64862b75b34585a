"""Sizes against what real interpreters tell of themselves: `sys.getsizeof` of all that can be reached."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from memwatch.core.examination import Census, TypeCount
from memwatch.diagnosis.heap.attribute_path_syntax import parse_attribute_path
from memwatch.diagnosis.whole_heap.object_census import CensusOptions, take_census
from support.processes import running
from support.pythons import NAMES, OWN, needed_python, pythons

CURRENT = f"3.{sys.version_info[1]}"
EXACT = (
    "float",
    "list",
    "set",
    "frozenset",
    "bytearray",
    "array.array",
    "collections.deque",
    "collections.defaultdict",
    "collections.Counter",
    "__main__.Listed",
    "__main__.Mapped",
    "__main__.Slotted",
    "__main__.Queue",
    "__main__.Failed",
)
COUNTED = ("__main__.Agent", "__main__.Late", "__main__.Both", "__main__.Tupled", "__main__.Counted")


def told(process: subprocess.Popen[str]) -> tuple[Census, dict[str, TypeCount], dict[str, tuple[int, int]]]:
    """What a census says, also by type, and what the process itself does."""
    census = take_census(process.pid, CensusOptions(bytes=True))
    assert census.complete and not census.disturbed
    process.stdin.write("\n")
    process.stdin.flush()
    return census, {one.type: one for one in census.types}, json.loads(process.stdout.readline())


@pytest.mark.parametrize("python", NAMES)
def test_sizes_are_those_that_the_interpreter_tells(python: str) -> None:
    with running(needed_python(python).program("heap.py")) as process:
        _, found, true = told(process)
    for name in (*EXACT, *COUNTED):
        count, size = true[name]
        # the program itself has made a few when it answers
        assert found[name].count == pytest.approx(count, abs=5, rel=0.0005), name
        if name in EXACT:
            # later ones leave out other parts themselves: what is in front of an instance, the bytes of a bytearray
            assert found[name].bytes == pytest.approx(size, rel=0.002 if python in OWN else 0.25), name
    assert found["dict"].bytes == pytest.approx(true["dict"][1], rel=0.06)
    assert found["int"].bytes == pytest.approx(true["int"][1], rel=0.25)  # those in the executable itself are left out
    for name in ("str", "bytes", "tuple"):  # neither goes into code; names of attributes only the census meets
        assert found[name].count > 0.95 * true[name][0] and found[name].bytes > 0.95 * true[name][1], name
    assert found["float"].tracked is False and found["list"].tracked is True


@pytest.mark.parametrize("python", NAMES)
def test_arrays_are_found_in_dicts_that_nobody_tracks(python: str) -> None:
    interpreter = needed_python(python, numpy=True)
    with running(interpreter.program("heap.py"), env=interpreter.numpy_env) as process:
        census, found, true = told(process)
    assert [found["numpy.ndarray"].count, found["numpy.ndarray"].bytes] == true["numpy.ndarray"]
    assert found["numpy.ndarray"].tracked is False
    (one,) = census.large
    assert (one.type, one.path) == ("numpy.ndarray", "__main__.KEPT[i][i][i]") and one.bytes - (1 << 25) < 200


def test_without_bytes_none_are_told() -> None:
    with running(pythons()[CURRENT].program("holders.py")) as process:
        census = take_census(process.pid)
    assert {one.bytes for one in census.types} == {None} and not census.large


GROWING = """
import sys
import numpy as np
class Trainer:
    def __init__(self):
        self.buffer, self.kept = np.ones(1 << 21), []
trainer = Trainer()
print("ready", flush=True)
for line in sys.stdin:
    trainer.kept += [{"seen": np.ones(64)} for _ in range(50_000)]
    print("done", flush=True)
"""


def test_what_is_made_while_the_heap_is_read_belongs_to_the_size_of_a_path() -> None:
    interpreter = needed_python(CURRENT, numpy=True)
    with running([*interpreter.command, "-c", GROWING], env=interpreter.numpy_env) as process:

        def meanwhile(_address: int, size: int) -> int:
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"
            return size

        census = take_census(
            process.pid, CensusOptions(attribute_paths=(parse_attribute_path("Trainer.kept"),)), resident=meanwhile
        )
    (kept,) = census.tracked
    assert kept.items == 50_000 and kept.bytes > 50_000 * 8 * 64
