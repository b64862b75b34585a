"""The census: how many objects of which type a running CPython holds."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from memwatch.diagnosis.heap.interpreter import find_interpreter
from memwatch.diagnosis.heap.memory import Memory
from memwatch.diagnosis.heap.scan import Scanner
from memwatch.diagnosis.heap.types import Types

CPU_SECONDS = 60.0  # that a census may take
SHOWN = 25  # types in the table


@dataclass(frozen=True, slots=True)
class TypeCount:
    """The objects of one type."""

    type: str  # "__main__.Agent", "dict"
    count: int
    tracked: bool  # by the garbage collector


@dataclass(frozen=True, slots=True)
class Census:
    """What was counted, while the process went on."""

    python: str  # "3.11.7"
    seconds: float  # of CPU
    complete: bool  # False: the time was up
    types: tuple[TypeCount, ...]  # the most frequent first


def take_census(pid: int, cpu_seconds: float = CPU_SECONDS, root: str = "/proc") -> Census:
    """Count the tracked objects of process `pid`. SourceError, with a hint, when its heap cannot be read."""
    began = time.process_time()
    memory = Memory(pid, root)
    try:
        interpreter = find_interpreter(memory, root)
        types = Types(memory, interpreter.minor)
        scan = Scanner(memory, interpreter, types).scan(lambda: time.process_time() - began < cpu_seconds)
    finally:
        memory.close()
    counts: Counter[str] = Counter()
    for address, count in scan.counts.items():
        counts[types.known[address].name] += count
    ranked = tuple(TypeCount(name, count, tracked=True) for name, count in counts.most_common())
    return Census(interpreter.version, round(time.process_time() - began, 3), scan.complete, ranked)


def render(census: Census) -> str:
    """For people: the most frequent types."""
    objects = sum(one.count for one in census.types)
    rows = [f"{one.count:>12,}  {one.type}" for one in census.types[:SHOWN]]
    rest = census.types[SHOWN:]
    if rest:
        rows.append(f"{sum(one.count for one in rest):>12,}  of {len(rest):,} other types, all of them with --json")
    part = "" if census.complete else "; the time was up before all were counted"
    title = f"Python {census.python}: {objects:,} tracked objects of {len(census.types):,} types"
    return "\n".join([f"{title}, {census.seconds:.2f} s of CPU{part}", "", *rows])
