"""An object as it was read, and what lies around it."""

from __future__ import annotations

import sys
from contextlib import closing

from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.diagnosis.heap.remote_objects import BuiltinValues, TypeTable, read_remote_object
from support.processes import running

PROGRAM = """
import sys
class Agent: pass
kept = [Agent() for _ in range(300)]
print("ready")
print(*map(id, kept), flush=True)
sys.stdin.read()
"""


def test_what_lies_behind_an_object_is_what_the_process_has_there() -> None:
    with running([sys.executable, "-c", PROGRAM]) as process, closing(RemoteMemory(process.pid)) as memory:
        types = TypeTable(memory, BuiltinValues(memory, sys.version_info[:2]))
        for address in map(int, process.stdout.readline().split()):
            place = read_remote_object(memory, types, address)
            assert place is not None and place.heap_type.name == "__main__.Agent"
            around = memory.read(address, 1024)
            assert b"".join(place.read(address + at, 8) for at in range(0, 1024, 8)) == around
