"""Sizes against what real interpreters tell of themselves: `sys.getsizeof` of all that can be reached."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from memwatch.core.census import Census, TypeCount
from memwatch.diagnosis.heap.census import Wish, take_census
from support.processes import running
from support.pythons import MINORS, PROGRAMS, interpreters, numpy_folder

PYTHONS = interpreters()
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
    census = take_census(process.pid, Wish(bytes=True))
    assert census.complete and not census.disturbed
    process.stdin.write("\n")
    process.stdin.flush()
    return census, {one.type: one for one in census.types}, json.loads(process.stdout.readline())


@pytest.mark.parametrize("minor", [f"3.{minor}" for minor in MINORS])
def test_sizes_are_those_that_the_interpreter_tells(minor: str) -> None:
    if minor not in PYTHONS:
        pytest.skip(f"no CPython {minor} here")
    with running([PYTHONS[minor], "-S", "-X", "utf8", str(PROGRAMS / "heap.py")]) as process:
        _, found, true = told(process)
    for name in (*EXACT, *COUNTED):
        count, size = true[name]
        # the program itself has made a few when it answers
        assert found[name].count == pytest.approx(count, abs=5, rel=0.0005), name
        if name in EXACT:
            assert found[name].bytes == pytest.approx(size, rel=0.002), name
    for name in ("dict", "int"):
        assert found[name].bytes == pytest.approx(true[name][1], rel=0.06), name
    for name in ("str", "bytes", "tuple"):  # those of code objects, too, which the collector does not go into
        assert found[name].count > true[name][0] and found[name].bytes > true[name][1], name
    assert found["float"].tracked is False and found["list"].tracked is True


@pytest.mark.parametrize("minor", [f"3.{minor}" for minor in MINORS])
def test_arrays_are_found_in_dicts_that_nobody_tracks(minor: str) -> None:
    folder = numpy_folder(minor)
    if minor not in PYTHONS or folder is None:
        pytest.skip(f"no CPython {minor} with numpy here; make numpy installs it")
    env = {**os.environ, "PYTHONPATH": str(folder)}
    with running([PYTHONS[minor], "-X", "utf8", str(PROGRAMS / "heap.py")], env=env) as process:
        census, found, true = told(process)
    assert [found["numpy.ndarray"].count, found["numpy.ndarray"].bytes] == true["numpy.ndarray"]
    assert found["numpy.ndarray"].tracked is False
    (one,) = census.large
    assert (one.type, one.path) == ("numpy.ndarray", "__main__.KEPT[i][i][i]") and one.bytes - (1 << 25) < 200


def test_without_bytes_none_are_told() -> None:
    with running([PYTHONS["3.11"], str(Path(PROGRAMS, "holders.py"))]) as process:
        census = take_census(process.pid)
    assert {one.bytes for one in census.types} == {None} and not census.large
