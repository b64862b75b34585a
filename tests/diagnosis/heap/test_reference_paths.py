"""Who holds what, and how large what is at a path: real programs that keep objects as leaking trainers do."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from memwatch.cli.main import main
from memwatch.core.examination import Census
from memwatch.diagnosis.heap.attribute_path_syntax import parse_attribute_path
from memwatch.diagnosis.whole_heap.object_census import CensusOptions, take_census
from memwatch.errors import ConfigError
from support.processes import running
from support.pythons import NAMES, OWN, PROGRAMS, needed_python

HELD = {
    "__main__.Tensor": [("__main__.Trainer.actor_losses[i]", 21504)],
    "__main__.Transition": [("__main__.Buffer.buffer[i]", 3000)],
    "__main__.Environment": [("__main__.Trainer.environments[k]", 500)],
    "__main__.Agent": [("__main__.Trainer.agents[i]", 16)],
    "__main__.Loss": [("__main__.Trainer.registry[i]", 700)],
    "__main__.Request": [("__main__.cache[k]['request']", 300)],
    "__main__.Lone": [("__main__.Slotted.items[i]", 90)],
    "__main__.Buffer": [("__main__.Trainer.replay_buffer", 1)],
    "__main__.Member": [("__main__.Trainer.clubs['before'][i][i][i][i]", 40), ("__main__.Trainer.clubs['now'][i]", 20)],
}
SIZES = {
    "Trainer.replay_buffer": (1, 3000 * 2 * 1000),
    "Trainer.replay_buffer.buffer[5]": (1, 2000),
    "__main__.Trainer.agents[*]": (16, 16 * 2 << 20),
    "Trainer.agents[3].memory[0]": (1, 1 << 20),
    "Agent.memory": (16, 16 * 2 << 20),
    "Trainer.state['memory']": (1, 50_000),
    "Trainer.obs": (1, 20 << 20),
    "__main__.cache": (1, 300 * 48),
}
NOT_THERE = {
    "Trainer.nothing": "nothing at .nothing",
    "Trainer.agents[99]": "nothing at [99]",
    "Nobody.items": "no object of a class Nobody, and no such module",
}


def taken(python: str, wish: CensusOptions) -> Census:
    with running(needed_python(python).program("holders.py")) as process:
        return take_census(process.pid, wish)


def census_of(python: str, code: str, wish: CensusOptions) -> Census:
    with running([*needed_python(python).command, "-c", code]) as process:
        return take_census(process.pid, wish)


@pytest.mark.parametrize("python", NAMES)
def test_the_attribute_that_holds_is_named(python: str) -> None:
    names = (*HELD, "bytearray", "Figure", "Node", "Looped")
    census = taken(python, CensusOptions(traced_types=names))
    found = {name: [(one.path, one.count) for one in census.holders if one.type == name] for name in HELD}
    assert found == HELD
    assert all(one.of == 21504 for one in census.holders if one.type == "__main__.Tensor")
    ways = {one.path: one.count for one in census.holders if one.type == "bytearray"}
    assert ways["__main__.Buffer.buffer[i].state"] == ways["__main__.Buffer.buffer[i].next_state"] == 3000
    assert ways["__main__.Agent.memory[i]"] == 32
    figures = [one.path for one in census.holders if one.type == "__main__.Figure"]
    assert figures == ["local variable of main: figures[i]"]
    nodes = {one.path: one.count for one in census.holders if one.type == "__main__.Node"}
    assert nodes["__main__.Node.following"] == 1999
    looped = [(one.path, one.count) for one in census.holders if one.type == "__main__.Looped"]
    assert looped[0] == ("__main__.Trainer.ring[i]", 30) and len(looped) == 2, "a circle is gone round once"
    assert [(one.type, one.path) for one in census.large] == [("bytearray", "__main__.Trainer.obs")]


@pytest.mark.parametrize("python", NAMES)
def test_what_is_at_a_path_is_measured(python: str) -> None:
    census = taken(
        python, CensusOptions(attribute_paths=tuple(parse_attribute_path(path) for path in (*SIZES, *NOT_THERE)))
    )
    found = {one.path: one for one in census.tracked}
    for path, (objects, size) in SIZES.items():
        assert found[path].objects == objects, path
        assert size <= found[path].bytes <= 1.5 * size + 100_000, path
    for path, reason in NOT_THERE.items():
        assert found[path].bytes is None and found[path].reason == reason


CLOSURE = """
import sys
def keep():
    kept = [bytes(1000) for _ in range(2000)]
    return lambda: kept
class Trainer:
    def __init__(self):
        self.callback, self.step = keep(), self.save
    def save(self): pass
trainer = Trainer()
print("ready", flush=True)
sys.stdin.read()
"""


def test_no_builtin_type_is_a_container_of_the_program() -> None:
    census = census_of(NAMES[0], CLOSURE, CensusOptions(bytes=True, traced_types=("bytes",), containers=True))
    assert not [one.path for one in census.containers if not one.path.startswith("__main__.")]


HELD_OUT_OF_SIGHT = """
import asyncio, atexit, sys, types
class Simulator:
    def __init__(self): atexit.register(self.close)
    def close(self): pass
class Schedule: pass
class Observation: pass
class Weights: pass
async def observe(): return Observation()
async def listen():
    tasks = [asyncio.create_task(observe()) for _ in range(300)]
    await asyncio.sleep(0.01)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
class Cell:
    made = []
    def __init_subclass__(cls): Cell.made.append(cls)
for i in range(60): type(f"Cell{i}", (Cell,), {"observed": Weights()})
for i in range(60):
    module = sys.modules[f"rules_{i}"] = types.ModuleType(f"rules_{i}")
    module.SCHEDULE, module.last = Schedule(), Simulator()
    del module.last
asyncio.run(listen())
"""


@pytest.mark.parametrize("python", NAMES)
def test_what_waits_what_is_imported_again_and_what_is_registered_is_named(python: str) -> None:
    census = census_of(
        python, HELD_OUT_OF_SIGHT, CensusOptions(traced_types=("Observation", "Schedule", "Simulator", "Weights"))
    )
    found = {one.type: (one.path, one.count) for one in reversed(census.holders)}
    assert found["__main__.Observation"] == ("local variable of listen: tasks[i].result", 300)
    assert found["__main__.Schedule"] == ("sys.modules[k].SCHEDULE", 60)
    assert found["__main__.Weights"] == ("__main__.Cell.made[i].observed", 60)
    callbacks = "list[i][i]" if python in ("Debian 3.14", "Debian 3.15") else "method Simulator.close"
    assert found["__main__.Simulator"] == (f"a local variable or C code: {callbacks}.__self__", 60)


DEFAULTS = """
import sys
class Step: pass
class Plan: pass
def adapt(step, steps=[]): steps.append(step)
class Planner:
    def plan(self, plan, *, plans={}): plans[len(plans)] = plan
for i in range(60):
    adapt(Step())
    Planner().plan(Plan())
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("python", NAMES)
def test_default_arguments_are_named_by_their_function(python: str) -> None:
    options = CensusOptions(traced_types=("Step", "Plan"), containers=True)
    census = census_of(python, DEFAULTS, options)
    found = {one.type: (one.path, one.count) for one in reversed(census.holders)}
    assert found["__main__.Step"] == ("__main__.adapt.__defaults__[i][i]", 60)
    assert found["__main__.Plan"] == ("__main__.Planner.plan.__kwdefaults__['plans'][k]", 60)
    assert {one.path for one in census.containers} >= {"__main__.adapt.__defaults__"}, census.containers


CIRCLES = """
import gc, sys
gc.disable()
class Module:
    def __init__(self): self.hook = lambda: self
class Node:
    def __init__(self, following): self.following = following
for i in range(60): Module()
last = None
for i in range(100_000): last = Node(last)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("python", NAMES)
def test_a_circle_through_a_function_is_garbage_and_a_long_chain_is_none(python: str) -> None:
    census = census_of(python, CIRCLES, CensusOptions(traced_types=("Module", "Node")))
    paths = {(one.type, one.path) for one in census.holders}
    assert ("__main__.Module", "nothing but each other: __main__.Module") in paths
    assert ("__main__.Node", "nothing but each other: __main__.Node") not in paths


VIEWS = """
import sys
import numpy
class Trace:
    def __init__(self): self.tail = numpy.zeros(1000)[-10:]
kept = [Trace() for _ in range(50)]
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("python", NAMES)
def test_what_holds_a_view_holds_its_array(python: str) -> None:
    one = needed_python(python, numpy=True)
    command = ["env", *(f"{name}={value}" for name, value in one.numpy_env.items()), *one.command, "-c", VIEWS]
    with running(command) as process:
        census = take_census(process.pid, CensusOptions(traced_types=("numpy.ndarray",)))
    found = {one.path: one.count for one in census.holders}
    assert found.items() >= {("__main__.kept[i].tail", 50), ("__main__.kept[i].tail.base", 50)}, found


@pytest.mark.parametrize("path", ["", "Trainer", "Trainer.", "Trainer.a[", "Trainer..a", "Trainer[x]", "3.a", "a b.c"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse_attribute_path(path)
    assert "Trainer.replay_buffer" in told.value.hint


def test_the_command_tells_all_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--holders", "Tensor", "--holders", "bytearray", "--track", "Trainer.obs", "--bytes"]
    with running([sys.executable, str(PROGRAMS / "holders.py")]) as process:
        command = [sys.executable, "-m", "memwatch", "census", "--pid", str(process.pid), *words]
        told = json.loads(subprocess.run([*command, "--json"], capture_output=True, check=True).stdout)
        table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert main(["census", "--pid", str(process.pid), "--track", "Trainer"]) == 2
    assert "Trainer.population[*]" in capfd.readouterr().err
    path = "__main__.Trainer.actor_losses[i]"
    assert {"type": "__main__.Tensor", "path": path, "count": 21504, "of": 21504} in told["holders"]
    assert told["tracked"][0]["path"] == "Trainer.obs" and told["large"][0]["bytes"] > 20 << 20
    agents = next(one for one in told["types"] if one["type"] == "__main__.Agent")
    assert agents["count"] == 16 and agents["bytes"] > 0 and agents["tracked"] is True
    assert f"21,504  of 21,504 __main__.Tensor: {path}" in table
    assert "large objects" in table and "tracked" in table


VARIABLES = """
import sys
class Record:
    pass
def keep(given):
    given.append(Record())
def main():
    kept, seen, shared, alone = [], {}, [], bytearray(3 << 20)
    def share():
        shared.append(Record())
    for number in range(300):
        keep(kept)
        seen[number] = Record()
        share()
    print("ready", flush=True)
    wait(kept)
def wait(records):
    sys.stdin.read()
main()
"""


@pytest.mark.parametrize("python", NAMES)
def test_local_variables_of_functions_that_run_are_named(python: str) -> None:
    census = census_of(python, VARIABLES, CensusOptions(bytes=True, traced_types=("Record", "bytearray")))
    found = {(one.type, one.path): one.count for one in census.holders}
    assert found["__main__.Record", "local variable of main: kept[i]"] == 300
    assert found["__main__.Record", "local variable of main: seen[k]"] == 300
    assert found["bytearray", "local variable of main: alone"] == 1
    assert next(one for one in census.types if one.type == "bytearray").bytes > 3 << 20


IN_TURN = """
import sys
class Pairs: pass
pairs = Pairs()
pairs.left, pairs.right = [], []
for _ in range(30_000):
    pairs.left.append(bytearray(8))
    pairs.right.append(bytearray(8))
print("ready", flush=True)
sys.stdin.read()
"""


def test_of_many_objects_a_sample_tells_all_holders_though_they_have_them_in_turn() -> None:
    with running([sys.executable, "-c", IN_TURN]) as process:
        census = take_census(process.pid, CensusOptions(traced_types=("bytearray",)))
    found = {one.path: one.count for one in census.holders}
    for side in ("left", "right"):
        assert found[f"__main__.Pairs.{side}[i]"] == pytest.approx(30_000, rel=0.05)


IN_C_MEMORY = """
import io, pickle, sys
from xml.etree import ElementTree
class Episode:
    def __init__(self, number): self.number = number
class Archive:
    def __init__(self): self.writer = pickle.Pickler(io.BytesIO(), 5)
class Reader:
    def __init__(self): self.parser = ElementTree.XMLPullParser()
archive, reader = Archive(), Reader()
reader.parser.feed("<run>")
for number in range(3000):
    archive.writer.dump(Episode(number))
    reader.parser.feed(f"<step n='{number}'><loss>0.3</loss></step>")
    for _ in reader.parser.read_events(): pass
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("python", NAMES)
def test_what_c_code_keeps_in_memory_of_its_own_is_named_by_its_object(python: str) -> None:
    """The memo of a Pickler is a table, the children of an element another; a small one is part of a struct."""
    census = census_of(python, IN_C_MEMORY, CensusOptions(traced_types=("Episode", "Element")))
    found = {(one.type, one.path): one.count for one in census.holders}
    assert found["__main__.Episode", "_pickle.Pickler"] == 3000
    elements = {path: count for (type_, path), count in found.items() if type_ == "xml.etree.ElementTree.Element"}
    assert max(elements, key=elements.__getitem__).startswith("xml.etree.ElementTree."), elements
    assert sum(count for path, count in elements.items() if path.startswith("a local variable or C code")) < 600


BESIDE_TEXT = """
import ctypes, sys
api = ctypes.pythonapi
api.PyMem_Malloc.restype, api.PyMem_Malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
api.Py_IncRef.argtypes = [ctypes.py_object]
class Lost: pass
class Name(str): pass
names = []
for number in range(300):
    lost = Lost()
    api.Py_IncRef(lost)
    names.append(Name(f"n{number}"))
    block = api.PyMem_Malloc(16)
    ctypes.c_size_t.from_address(block).value = ctypes.c_size_t.from_address(block + 8).value = id(lost)
del lost
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("python", OWN)
def test_what_lies_beside_a_block_of_memory_is_not_in_it(python: str) -> None:
    """The text of a str of a subclass is a block of its own; so is what follows it."""
    census = census_of(python, BESIDE_TEXT, CensusOptions(traced_types=("Lost",)))
    found = [(one.path, one.count) for one in census.holders if one.type == "__main__.Lost"]
    assert found == [("a local variable or C code: an object", 300)]


LINKED = """
import sys
from collections import deque
class Step:
    def __init__(self, before): self.before = before
class Move:
    def __init__(self, parent): self.parent, self.moves = parent, {}
class Record:
    __slots__ = ("args",)
    def __init__(self, recent): self.args = (list(recent), "text")
class Search:
    def __init__(self): self.root, self.newest, self.recent = Move(None), None, deque(maxlen=10)
    def grow(self, number):
        self.newest = Step(self.newest)
        node = self.root
        while len(node.moves) == 5: node = node.moves[number % 5]
        node.moves[len(node.moves)] = Move(node)
        self.recent.append(Record(self.recent))
search = Search()
for number in range(9000): search.grow(number)
print("ready", flush=True)
sys.stdin.read()
"""
LINKS = {"Step": (".newest", ".before"), "Move": (".root", ".moves[k]"), "Record": (".recent[i]", ".args[i][i]")}


@pytest.mark.parametrize("python", ["3.8", "3.11", NAMES[-1]])
def test_a_linked_structure_is_held_by_what_holds_its_first_nodes(python: str) -> None:
    """A chain, a tree whose nodes know their parents, and records that each hold some of those before."""
    sized = tuple(parse_attribute_path(f"Search{path}") for path in (".newest", ".root"))
    census = census_of(python, LINKED, CensusOptions(bytes=True, traced_types=tuple(LINKS), attribute_paths=sized))
    of_type = {one.type.rpartition(".")[2]: one.bytes for one in census.types}
    for name, (path, link) in LINKS.items():
        found = {one.path: one.count for one in census.holders if one.type == f"__main__.{name}"}
        assert found[f"__main__.Search{path}"] >= 9000
        assert f"__main__.{name}{link}" in found
        assert max(found, key=found.__getitem__).startswith(("__main__.Search.", f"__main__.{name}."))
    for one, name in zip(census.tracked, ("Step", "Move"), strict=True):
        assert one.bytes is not None and one.bytes >= of_type[name], "a chain is followed to its end"
    assert census.seconds < 5


WAITING = """
import asyncio, sys
class Step:
    def __init__(self, number): self.number = number
class Actor:
    def __init__(self): self.steps, self.closing = [], asyncio.Event()
    async def run(self):
        for number in range(3000):
            self.steps.append(Step(number))
            asyncio.ensure_future(self.closing.wait())
        await asyncio.sleep(0.01)
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
async def main():
    actor = Actor()
    await actor.run()
asyncio.run(main())
"""


@pytest.mark.parametrize("python", NAMES)
def test_tasks_that_wait_are_held_by_what_they_wait_for(python: str) -> None:
    """A future knows its task by a bound method of C code; the search for one type does not stop that for another."""
    names = ("Step", "_asyncio.Task", "_asyncio.Future")
    census = census_of(python, WAITING, CensusOptions(traced_types=names))
    found = {(one.type, one.path): one.count for one in census.holders}
    assert found["__main__.Step", "__main__.Actor.steps[i]"] == 3000
    for name in names[1:]:
        paths = {path: count for (type_, path), count in found.items() if type_ == name and "_waiters" in path}
        assert max(paths.values(), default=0) >= 3000, found
