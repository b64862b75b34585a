"""Growth credited to code, from outside, of real processes."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.leaks.growth_attribution import by_line
from memwatch.diagnosis.memory_growth_recorder import LifoAttribution, record_profile
from memwatch.errors import SourceError, TargetGoneError
from support.processes import running

GROWS = """
import mmap, sys, threading, time

def churn():
    with mmap.mmap(-1, 1 << 19) as space:
        space.write(bytes(1 << 19))

def keep(kept):
    kept.append(mmap.mmap(-1, 1 << 20))
    kept[-1].write(bytes(1 << 20))

def work(kept=[]):
    while len(kept) < 3000:
        churn()
        time.sleep(0.002)
        keep(kept)
        time.sleep(0.002)

print("ready", flush=True)
if sys.argv[1] == "alone":
    work()
else:
    threading.Thread(target=work, daemon=True).start()
    while True:
        sum(range(100000))
"""


@given(st.lists(st.tuples(st.integers(-1000, 1000), st.sampled_from("abc"))))
def test_the_credits_are_what_memory_has_grown_by_since_it_was_lowest(moves: list[tuple[int, str]]) -> None:
    levels = LifoAttribution()
    level = lowest = 0
    for by, who in moves:
        levels.add_change(by, who)
        level += by
        lowest = min(lowest, level)
    assert sum(levels.bytes_by_source().values()) == level - lowest
    assert all(size > 0 for size in levels.bytes_by_source().values())


def test_what_is_made_and_dropped_again_leaves_nothing() -> None:
    levels = LifoAttribution()
    for _ in range(1000):
        levels.add_change(1, "keeps")
        levels.add_change(500, "churns")
        levels.add_change(-500, "whoever")
    assert levels.bytes_by_source() == {"keeps": 1000}


@pytest.mark.parametrize("how", ["alone", "beside another thread"])
def test_the_line_that_keeps_is_first_whatever_is_made_and_dropped_beside_it(how: str) -> None:
    with running([sys.executable, "-c", GROWS, how]) as process:
        found = record_profile(process.pid, 3.0)
    lines = by_line(found.credits)
    assert (lines[0].frame.function, lines[0].frame.line) == ("keep", 10), lines
    assert lines[0].share > 0.4 and lines[0].bytes > 5 << 20
    assert found.grown_bytes == sum(one.bytes for one in found.credits)
    assert 2.9 < found.seconds < 6 and 0 < found.cpu_seconds < found.seconds


def test_it_ends_with_its_cpu_time_and_with_the_process() -> None:
    with running([sys.executable, "-c", GROWS, "alone"]) as process:
        assert record_profile(process.pid, 30.0, cpu_seconds=0.1).cpu_seconds < 1.0
    with running([sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(0.7)"]) as process:
        assert record_profile(process.pid, 30.0).seconds < 20
        process.wait()
        with pytest.raises(TargetGoneError):
            record_profile(process.pid, 30.0)


def test_a_process_that_is_no_python_is_refused() -> None:
    with running(["sh", "-c", "echo ready; exec sleep 60"]) as process, pytest.raises(SourceError, match="CPython"):
        record_profile(process.pid, 1.0)
