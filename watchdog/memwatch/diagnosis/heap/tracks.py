"""How much an attribute of the trainer's objects holds in all: `Trainer.replay_buffer`, `Trainer.population[*]`."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from memwatch.core.census import Tracked
from memwatch.diagnosis.heap.attributes import Attributes
from memwatch.diagnosis.heap.types import HeapType
from memwatch.diagnosis.heap.walk import Walk
from memwatch.errors import ConfigError

_NAME = r"[^\W\d]\w*"
_ROOT = re.compile(rf"{_NAME}(?:\.{_NAME})*")
_STEP = re.compile(rf"\.({_NAME})|\[(\*)\]|\[(\d+)\]|\[(?:'([^']*)'|\"([^\"]*)\")\]")
_PROGRAM_SHAPES = {"class", "weak"}  # from here on it is no data of the attribute's any more
_PROGRAM = {"module", "function", "builtin_function_or_method", "code", "frame", "method", "generator", "coroutine"}


@dataclass(frozen=True, slots=True)
class Track:
    """A path through attributes and items, from the instances of a class or from a module."""

    path: str
    names: tuple[str, ...]  # "Trainer", "memory", "items": where the class ends is seen when it is looked for
    steps: tuple[str, ...]  # behind these: ".name", "[*]", "[3]", "['key']"


def parse(path: str) -> Track:
    """ConfigError, with what to write, when it is no path."""
    root = _ROOT.match(path)
    names, at = (tuple(root[0].split(".")), root.end()) if root else ((), 0)
    steps = []
    while names and at < len(path) and (step := _STEP.match(path, at)):
        steps.append(step[0])
        at = step.end()
    if len(names) + len(steps) < 2 or at < len(path):
        hint = "write a class and what follows: Trainer.replay_buffer, Trainer.population[*], Trainer.state['memory']"
        raise ConfigError(f"{path!r} is no path to an attribute", hint)
    return Track(path, names, tuple(steps))


def starts(track: Track, kind: HeapType) -> int:
    """How many names of the path are those of this type; 0: it does not start there."""
    for length in range(len(track.names), 0, -1):
        name = ".".join(track.names[:length])
        if kind.name == name or kind.name.endswith(f".{name}"):
            return length
    return 0


class Tracks:
    """Follows paths in one heap."""

    def __init__(self, attributes: Attributes, walk: Callable[..., Walk]) -> None:
        """`walk` makes a new way through the heap; what it is to leave out is told to it."""
        self._attributes, self._walk = attributes, walk

    def size(
        self, track: Track, instances: Iterable[tuple[HeapType, Sequence[int]]], may_go_on: Callable[[], bool]
    ) -> Tracked:
        """All that is held at the end of a path, given the objects of each type it may start at."""
        lengths = [(self._names_at(track, kind, at), at) for kind, addresses in instances for at in addresses]
        longest = max((length for length, _ in lengths), default=0)
        roots = [address for length, address in lengths if length == longest]
        if not longest:
            return Tracked(track.path, 0, None, f"no object of a class {track.names[0]}, and no such module")
        found = set(roots)
        for step in (*(f".{name}" for name in track.names[longest:]), *track.steps):
            found = {value for address in found for value in self._next(address, step)}
            if not found:
                return Tracked(track.path, 0, None, f"nothing at {step}")
        walk = self._walk(left_out=_is_program)
        walk.pass_by(roots)
        reached = walk.go([array("Q", found)], may_go_on)
        return Tracked(track.path, len(found), sum(kind.bytes for kind in reached.kinds))

    def _names_at(self, track: Track, kind: HeapType, address: int) -> int:
        """How many names of the path lead to this object."""
        if kind.name != "module":
            return starts(track, kind)
        name = self._attributes.module_name(address).split(".")
        return len(name) if tuple(name) == track.names[: len(name)] else 0

    def _next(self, address: int, step: str) -> Iterator[int]:
        place = self._attributes.find(address)
        if place is None:
            return
        _, every, index, single, double = _STEP.fullmatch(step).groups()  # type: ignore[union-attr]
        if step.startswith("."):
            yield from (value for name, value in self._attributes.of(place) if name == step[1:])
        elif every is not None or index is not None:
            items = self._attributes.elements(place)
            yield from items if every else items[int(index) : int(index) + 1]
        else:
            yield from (value for name, value in self._attributes.items(address) if name == (single or double))


def _is_program(kind: HeapType) -> bool:
    return kind.shape in _PROGRAM_SHAPES or kind.name in _PROGRAM
