"""The census against in-process truth: real interpreters, quiet and churning; and whatever else may be there."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.cli.main import main
from memwatch.diagnosis.heap.cpython_runtime import Interpreter, find_interpreter
from memwatch.diagnosis.heap.remote_memory import RemoteMemory, parse_maps
from memwatch.diagnosis.heap.remote_objects import BuiltinValues, TypeTable
from memwatch.diagnosis.whole_heap.gc_object_scan import Scanner
from memwatch.diagnosis.whole_heap.object_census import CensusOptions, take_census
from memwatch.errors import SourceError, TargetGoneError
from support.processes import running
from support.pythons import NAMES, needed_python, pythons

# answers each line with what the collector says of it: {type: count}
TRUTH = """
import gc, json, sys
from collections import Counter

def name(kind):
    return kind.__qualname__ if kind.__module__ == "builtins" else kind.__module__ + "." + kind.__qualname__

def serve():
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(Counter(name(type(one)) for one in gc.get_objects())), flush=True)
"""

MANY = """
import enum, threading, types
class Agent: pass
class Slotted:
    __slots__ = ("a", "__weakref__")
class Listed(list): pass
class Mapped(dict): pass
class Failed(ValueError): pass
class Meta(type): pass
class Made(metaclass=Meta): pass
class Outer:
    class Inner: pass
class Überschrift: pass
class Colour(enum.Enum):
    RED = 1
def local():
    class Hidden: pass
    return Hidden
Hidden = local()
Long = type("L" * 60, (), {})
class Moduled:
    __module__ = "__main__"
kinds = [Agent, Slotted, Listed, Mapped, Failed, Made, Outer.Inner, Überschrift, Hidden, Long, Moduled]
keep = [[kind() for _ in range(97 * (i + 1))] for i, kind in enumerate(kinds)]
for agent in keep[0]:
    agent.memory = [{"state": agent}]
keep.append([threading.Lock() for _ in range(10)])
"""
KINDS = (
    "Agent",
    "Slotted",
    "Listed",
    "Mapped",
    "Failed",
    "Made",
    "Outer.Inner",
    "Überschrift",
    "local.<locals>.Hidden",
)

CHURN = """
import threading
class Still: pass
class Churned:
    def __init__(self): self.value = [1]
still = [Still() for _ in range(20000)]
churned = [Churned() for _ in range(20000)]
def churn(first):
    at = first
    while True:
        churned[at] = Churned()
        at = (at + 4) % len(churned)
for first in range(4):
    threading.Thread(target=churn, args=(first,), daemon=True).start()
"""


def truth(process: subprocess.Popen[str]) -> Counter[str]:
    process.stdin.write("\n")
    process.stdin.flush()
    return Counter(json.loads(process.stdout.readline()))


def counted(pid: int) -> Counter[str]:
    census = take_census(pid)
    assert census.complete
    return Counter({one.type: one.count for one in census.types})


def test_the_interpreters_of_this_machine_are_found() -> None:
    assert f"3.{sys.version_info[1]}" in pythons()


@pytest.mark.parametrize("python", NAMES)
def test_each_class_of_the_user_is_counted_exactly(python: str) -> None:
    with running([*needed_python(python).command, "-X", "utf8", "-c", MANY + TRUTH + "serve()"]) as process:
        found, true = counted(process.pid), truth(process)
    expected = {name: true[name] for name in true if name.startswith("__main__.")}
    assert {f"__main__.{kind}" for kind in KINDS} <= expected.keys() and len(expected) >= 11
    assert {name: found[name] for name in expected} == expected
    for name in ("function", "wrapper_descriptor", "type", "module", "__main__.Colour"):
        assert found[name] == pytest.approx(true[name], rel=0.02), name  # answering makes a few


@pytest.mark.parametrize("python", NAMES)
def test_the_number_of_tracked_objects_is_read_without_a_census(python: str) -> None:
    with running([*needed_python(python).command, "-X", "utf8", "-c", MANY + TRUTH + "serve()"]) as process:
        true = sum(truth(process).values())
        with closing(RemoteMemory(process.pid)) as memory:
            found = find_interpreter(memory).tracked_objects(memory)
    assert found == pytest.approx(true, rel=0.25)  # of young objects, more are assumed than are there


@pytest.mark.parametrize("python", NAMES)
def test_a_disabled_collector_is_seen(python: str) -> None:
    switches = (
        "import gc, sys\nprint('ready', flush=True)\nfor line in sys.stdin:\n    exec(line)\n    print(flush=True)"
    )
    with (
        running([*needed_python(python).command, "-c", switches]) as process,
        closing(RemoteMemory(process.pid)) as read,
    ):
        assert process.stdin is not None and process.stdout is not None
        interpreter, seen = find_interpreter(read), []
        for switch in ("", "gc.disable()", "gc.set_debug(gc.DEBUG_SAVEALL)", "gc.enable()"):
            process.stdin.write(switch + "\n")
            process.stdin.flush()
            process.stdout.readline()
            seen.append(interpreter.is_collector_enabled(read))
        assert seen == [True, False, False, True]


@pytest.mark.parametrize("python", NAMES)
def test_churn_is_survived(python: str) -> None:
    with running([*needed_python(python).command, "-c", CHURN + TRUTH + "serve()"]) as process:
        for _ in range(3):
            found = counted(process.pid)
            assert found["__main__.Still"] == pytest.approx(20000, rel=0.005)
            assert found["__main__.Churned"] == pytest.approx(20000, rel=0.005)


def test_frozen_objects_count() -> None:
    code = "import gc\nclass Agent: pass\nkeep = [Agent() for _ in range(500)]\ngc.freeze()\n" + TRUTH + "serve()"
    with running([sys.executable, "-c", code]) as process:
        found, true = counted(process.pid), truth(process)
    assert true["__main__.Agent"] == 0, "the collector does not tell of them"
    assert found["__main__.Agent"] == 500


def test_a_second_census_says_the_same() -> None:
    with running([sys.executable, "-c", MANY + TRUTH + "serve()"]) as process:
        first, second = counted(process.pid), counted(process.pid)
    for of_read in ("managedbuffer", "memoryview"):  # The program may begin to wait for its input in between.
        del first[of_read], second[of_read]
    assert first == second


def test_a_process_that_is_no_python_is_refused() -> None:
    with running(["sh", "-c", "echo ready; exec sleep 60"]) as process, pytest.raises(SourceError) as told:
        take_census(process.pid)
    assert "CPython" in told.value.hint


def test_time_that_is_up_is_told() -> None:
    with running([sys.executable, "-c", MANY + TRUTH + "serve()"]) as process:
        assert not take_census(process.pid, CensusOptions(cpu_seconds=0.0)).complete


@pytest.mark.parametrize("end", ["killed", "another program"])
def test_a_process_that_ends_midway_is_told(end: str) -> None:
    code = "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: os.execv('/bin/sleep', ['sleep', '60']))\n"
    with ExitStack() as stack:
        process = stack.enter_context(running([sys.executable, "-c", code + MANY + TRUTH + "serve()"]))
        memory = stack.enter_context(closing(RemoteMemory(process.pid)))
        interpreter, name, chunks = find_interpreter(memory), Path(f"/proc/{process.pid}/comm"), []

        def may_go_on() -> bool:
            chunks.append(1)
            if len(chunks) == 3 and end == "killed":
                process.kill()
                process.wait()
            elif len(chunks) == 3:
                process.send_signal(signal.SIGUSR1)
                while name.read_text() != "sleep\n":
                    time.sleep(0.001)
            return True

        assert memory.is_there()
        with pytest.raises(TargetGoneError):
            Scanner(memory, interpreter, TypeTable(memory, BuiltinValues(memory, interpreter.minor))).scan(may_go_on)
        assert not memory.is_there()


def test_no_such_process() -> None:
    with pytest.raises(TargetGoneError):
        take_census(2**22 + 1)


def test_the_command_prints_json(capfd: pytest.CaptureFixture[str]) -> None:
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    with running([sys.executable, "-c", MANY + TRUTH + "serve()"]) as process:
        command = [sys.executable, "-m", "memwatch", "census", "--pid", str(process.pid)]
        told = subprocess.run([*command, "--json"], capture_output=True, check=True).stdout
        table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert main(["census", "--pid", "1"]) == 3
    census = json.loads(told)
    assert census["python"] == sys.version.split()[0] and census["complete"] is True and census["seconds"] > 0
    assert {"type": "__main__.Agent", "count": 97, "bytes": None, "tracked": True} in census["types"]
    assert "tracked objects" in table.splitlines()[0] and "list" in table
    assert os.getpriority(os.PRIO_PROCESS, 0) == niceness, "only its own process goes last"
    assert "PID 1" in capfd.readouterr().err


# --- hostile memory


@given(st.text())
def test_any_maps_are_read_or_refused(text: str) -> None:
    with suppress(SourceError):
        assert all(one.start >= 0 and one.end >= 0 for one in parse_maps(text))


def fake(folder: Path, regions: dict[int, bytes]) -> str:
    """A /proc with one process, 10, whose memory is a file."""
    process = folder / "10"
    process.mkdir(parents=True)
    with open(process / "mem", "wb") as file:
        for start, content in regions.items():
            file.seek(start)
            file.write(content)
    lines = [f"{start:x}-{start + len(content):x} rw-p 00000000 00:00 0" for start, content in regions.items()]
    (process / "maps").write_text("\n".join(lines) + "\n")
    return str(folder)


def test_random_memory_gives_counts_or_a_named_error_and_ends(tmp_path: Path) -> None:
    chance = random.Random(7)
    for attempt in range(20):
        base = 1 << 20
        words = [chance.choice([0, 1, chance.randrange(2**64), base + 8 * chance.randrange(4096)]) for _ in range(8192)]
        root = fake(tmp_path / str(attempt), {base: struct.pack("<8192Q", *words)})
        heads = Interpreter("3.11.7", (3, 11), (), (base, base + 24, base + 48))
        with closing(RemoteMemory(10, root)) as memory, suppress(SourceError):
            found = Scanner(memory, heads, TypeTable(memory, BuiltinValues(memory, (3, 11)))).scan(lambda: True)
            assert len(found.addresses) <= 4096


CIRCLE = """
import ctypes, sys
from collections import deque
kept = deque(range(1000))
block = ctypes.c_uint64.from_address(id(kept) + 24).value
ctypes.c_uint64.from_address(block + 520).value = block  # what follows it is itself
print("ready", flush=True)
sys.stdin.read()
"""


def test_blocks_of_a_deque_that_lead_in_a_circle_come_to_an_end() -> None:
    with running([sys.executable, "-c", CIRCLE]) as process:
        census = take_census(process.pid, CensusOptions(bytes=True))
    assert next(one.bytes for one in census.types if one.type == "collections.deque") < 1 << 20
