"""The total size of an attribute of the trainer's objects: `Trainer.replay_buffer`, `Trainer.population[*]`."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from memwatch.core.examination import AttributeSize
from memwatch.diagnosis.heap.attribute_values import Attributes
from memwatch.diagnosis.heap.object_layouts import Layouts
from memwatch.diagnosis.heap.reachable_objects import ReachableObjects
from memwatch.diagnosis.heap.remote_objects import MAX_COUNT, HeapType
from memwatch.errors import ConfigError

_NAME = r"[^\W\d]\w*"
_ROOT = re.compile(rf"{_NAME}(?:\.{_NAME})*")
_STEP = re.compile(rf"\.({_NAME})|\[(\*)\]|\[(\d+)\]|\[(?:'([^']*)'|\"([^\"]*)\")\]")
_DEQUE_MAXLEN_AT = 64  # in a dequeobject
_CAPACITIES = ("capacity", "maxlen", "max_len", "max_size", "maxsize", "max_length", "buffer_size", "max_capacity")
# Objects that belong to the program itself and do not count as an attribute's data, by shape and by name of the type.
_PROGRAM_SHAPES = {"class", "weak"}
_PROGRAM = {"module", "function", "builtin_function_or_method", "code", "frame", "method", "generator", "coroutine"}


@dataclass(frozen=True, slots=True)
class AttributePath:
    """A path through attributes and items, from the instances of a class or from a module."""

    path: str
    names: tuple[str, ...]  # "Trainer", "memory", "items": the heap shows how many of them name the class
    steps: tuple[str, ...]  # after these: ".name", "[*]", "[3]", "['key']"


def parse_attribute_path(path: str) -> AttributePath:
    """Parse a path; ConfigError, with an example, when it is none."""
    root = _ROOT.match(path)
    names, at = (tuple(root[0].split(".")), root.end()) if root else ((), 0)
    steps = []
    while names and at < len(path) and (step := _STEP.match(path, at)):
        steps.append(step[0])
        at = step.end()
    if len(names) + len(steps) < 2 or at < len(path):
        hint = "write a class and what follows: Trainer.replay_buffer, Trainer.population[*], Trainer.state['memory']"
        raise ConfigError(f"{path!r} is no path to an attribute", hint)
    return AttributePath(path, names, tuple(steps))


def matching_names(track: AttributePath, name: str) -> int:
    """Return how many names of the path belong to the class of this name; 0: the path does not start there."""
    for length in range(len(track.names), 0, -1):
        begin = ".".join(track.names[:length])
        if name == begin or name.endswith(f".{begin}"):
            return length
    return 0


class AttributePathSizer:
    """Follows paths in one heap; `new_walk` prepares a walk through it."""

    def __init__(self, attributes: Attributes, layouts: Layouts, new_walk: Callable[..., ReachableObjects]) -> None:
        self._attributes, self._layouts, self._new_walk = attributes, layouts, new_walk

    def size(
        self, track: AttributePath, instances: Iterable[tuple[HeapType, Sequence[int]]], may_go_on: Callable[[], bool]
    ) -> AttributeSize:
        """Return the size of all objects at the end of a path, given the objects of each type that it may start at.

        An attribute of the class itself counts where its instances have none of that name.
        """
        of_instances: dict[int, list[int]] = defaultdict(list)  # by the number of names that lead to them
        of_classes: dict[int, list[int]] = defaultdict(list)
        class_names: dict[int, set[str]] = defaultdict(set)  # full names of the classes
        for kind, addresses in instances:
            if kind.shape == "class":
                for address in addresses:
                    name = self._attributes.type_name(address)
                    length = matching_names(track, name)
                    of_classes[length].append(address)
                    class_names[length].add(name)
            elif kind.name == "module":
                for address in addresses:
                    module = tuple(self._attributes.module(address).name.split("."))
                    of_instances[len(module) if module == track.names[: len(module)] else 0].append(address)
            elif length := matching_names(track, kind.name):
                of_instances[length] += addresses
                class_names[length].add(kind.name)
        longest = max((*of_instances, *of_classes), default=0)
        if not longest:
            reason = f"no object of a class {track.names[0]}, and no such module"
            return AttributeSize(track.path, 0, None, reason=reason)
        steps = (*(f".{name}" for name in track.names[longest:]), *track.steps)
        roots = of_instances[longest]
        found, missing = self._follow(roots, steps)
        if not found and of_classes[longest]:
            roots, of_instance = of_classes[longest], missing
            found, missing = self._follow(roots, steps)
            missing = of_instance or missing
        if not found:
            return AttributeSize(track.path, 0, None, reason=f"nothing at {missing}")
        reached = self._new_walk(left_out=_is_program)
        reached.exclude(roots)
        reached.walk([array("Q", found)], may_go_on)
        items, capacity = self._items(roots, found)
        rest = track.path[len(".".join(track.names[:longest])) :]
        full = "".join(class_names[longest]) + rest if len(class_names[longest]) == 1 else ""
        size = sum(kind.bytes for kind in reached.tallies)
        return AttributeSize(track.path, len(found), size, items, capacity, full=full)

    def _items(self, owners: Sequence[int], found: Iterable[int]) -> tuple[int | None, int | None]:
        """Return the number of items of these containers, and the capacity of a single one of a single owner."""
        objects = [obj for address in found if (obj := self._attributes.object_at(address)) is not None]
        lengths = [length for obj in objects if (length := self._layouts.length(obj)) is not None]
        if not lengths:
            return None, None
        if len(objects) > 1 or len(owners) > 1:
            return sum(lengths), None
        maxlen = objects[0].word(_DEQUE_MAXLEN_AT) if objects[0].heap_type.shape == "deque" else MAX_COUNT
        return sum(lengths), maxlen if maxlen < MAX_COUNT else self._owner_capacity(owners[0])

    def _owner_capacity(self, owner: int) -> int | None:
        """Return the capacity that an attribute of the container's owner states."""
        obj = self._attributes.object_at(owner)
        if obj is None:
            return None
        values = {name.lstrip("_"): value for name, value in self._attributes.named_values(obj)}
        named = (self._attributes.object_at(values[name]) for name in _CAPACITIES if name in values)
        numbers = (self._layouts.whole_number(value) for value in named if value is not None)
        return next((number for number in numbers if number), None)

    def _follow(self, roots: Iterable[int], steps: Iterable[str]) -> tuple[set[int], str]:
        """Return the objects at the end of these steps, or none and the first step that leads nowhere."""
        found = set(roots)
        for step in steps:
            found = {value for address in found for value in self._take_step(address, step)}
            if not found:
                return found, step
        return found, ""

    def _take_step(self, address: int, step: str) -> Iterator[int]:
        obj = self._attributes.object_at(address)
        if obj is None:
            return
        _, every, index, single, double = _STEP.fullmatch(step).groups()  # type: ignore[union-attr]
        if step.startswith("."):
            yield from (value for name, value in self._attributes.named_values(obj) if name == step[1:])
        elif every is not None or index is not None:
            items = self._layouts.elements(obj)
            yield from items if every else items[int(index) : int(index) + 1]
        else:
            yield from (value for name, value in self._attributes.items(address) if name == (single or double))


def _is_program(kind: HeapType) -> bool:
    return kind.shape in _PROGRAM_SHAPES or kind.name in _PROGRAM
