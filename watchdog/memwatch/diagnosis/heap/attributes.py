"""The attributes of remote objects: their names and values, and the total size at the end of a path of attributes."""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from memwatch.core.examination import AttributeSize
from memwatch.core.text_and_units import printable
from memwatch.diagnosis.heap.object_layouts import Layouts
from memwatch.diagnosis.heap.reachable_objects import ReachableObjects
from memwatch.diagnosis.heap.remote_memory import RemoteMemory, UnreadableError
from memwatch.diagnosis.heap.remote_objects import (
    MAX_COUNT,
    BuiltinValues,
    HeapType,
    RemoteObject,
    TypeTable,
    read_remote_object,
)
from memwatch.errors import ConfigError, SourceError

_MEMBER_BYTES, _MAX_MEMBERS = 40, 256  # PyMemberDef: name, type, offset, flags, doc
_OBJECT_MEMBERS = {6, 16}  # T_OBJECT, T_OBJECT_EX
_MAX_BASES = 64  # of a type: a bound against circles
_MAX_NAME_BYTES = 256
_MODULE_NAMES = ("__name__", "__file__")
_MODULE_ITEMS = 16  # first items of a module's dict: the import puts these names among them
_MAX_ITEMS = 1 << 16  # of a dict: a bound on time


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the program."""

    name: str  # empty: it has none
    file: str  # empty: it has none, or it is not known
    namespace: int  # the address of its dict


class Attributes:
    """Reads attributes in one process; values that change meanwhile are left out."""

    def __init__(self, memory: RemoteMemory, builtins: BuiltinValues, types: TypeTable, layouts: Layouts) -> None:
        self._memory, self._builtins, self._types, self._layouts = memory, builtins, types, layouts
        self.module = cache(self._module)  # reads the module at an address; fields that cannot be read are empty
        self._members_of = cache(self._members)

    def named_values(self, obj: RemoteObject) -> Iterator[tuple[str, int]]:
        """Yield names and addresses of values, of slots and of the instance's dict."""
        try:
            for name, offset in self._members_of(obj.heap_type):
                yield name, obj.words(obj.address + offset, 1)[0]
            dict_at, values_at = self._layouts.attributes_at(obj)
            if dict_at:
                yield from self.items(dict_at)
            elif values_at and (names := self._layouts.shared_keys(obj.heap_type)) is not None:
                keys = obj.words(names.first, names.count * names.width)[names.width - 2 :: names.width]
                for key, value in zip(keys, obj.words(values_at, names.count), strict=True):
                    text = self._builtins.text_or_none(key) if value else None
                    if text is not None:
                        yield printable(text), value
        except UnreadableError:
            return

    def dict_of(self, obj: RemoteObject) -> int:
        """Return the address of the dict of attributes; 0 without one."""
        try:
            if obj.heap_type.name == "module":
                return obj.word(16)
            if obj.heap_type.shape == "class":
                return obj.word(264)
            return self._layouts.attributes_at(obj)[0]
        except SourceError:
            return 0

    def items(self, address: int, most: int = _MAX_ITEMS) -> Iterator[tuple[str, int]]:
        """Yield those of the first `most` items of a dict whose keys are text."""
        with suppress(SourceError):
            for key, value in self._builtins.items(address, most):
                if (name := self._builtins.text_or_none(key)) is not None:
                    yield printable(name), value

    def named_items(self, address: int) -> Iterator[tuple[str, int]]:
        """Yield the items of a dict whose keys are names in the program's code, not data."""
        with suppress(SourceError):
            for key, value in self._builtins.items(address, _MAX_ITEMS):
                name = self._builtins.text_or_none(key)
                if name is not None and name.isidentifier() and self._builtins.is_interned(key):
                    yield printable(name), value

    def _members(self, kind: HeapType) -> list[tuple[str, int]]:
        """Return the names and offsets of the references in an object's fixed part, those of its base classes too."""
        found = []
        base: HeapType | None = kind
        for _ in range(_MAX_BASES):
            if base is None:
                break
            found += self._own_members(base)
            base = self._types.type_at(base.base_at)
        return found

    def _own_members(self, kind: HeapType) -> list[tuple[str, int]]:
        found = []
        with suppress(SourceError):
            for i in range(_MAX_MEMBERS if kind.members_at else 0):
                name_at, sort, offset = self._memory.words(kind.members_at + i * _MEMBER_BYTES, 3)
                if not name_at:
                    break
                if sort & 0xFFFFFFFF in _OBJECT_MEMBERS and offset < kind.basic_bytes:
                    found.append((self._memory.text(name_at, _MAX_NAME_BYTES), offset))
        return found

    def _module(self, address: int) -> Module:
        obj = self.object_at(address)
        namespace = self.dict_of(obj) if obj is not None else 0
        first = self.items(namespace, _MODULE_ITEMS) if namespace else ()
        known = {name: value for name, value in first if name in _MODULE_NAMES}
        name, file = (self._builtins.text_or_none(known[key]) if key in known else None for key in _MODULE_NAMES)
        return Module(name or "", file or "", namespace)

    def type_name(self, address: int) -> str:
        """Return the name of the type at an address; "?" when there is none."""
        found = self._types.type_at(address)
        return found.name if found is not None else "?"

    def object_at(self, address: int) -> RemoteObject | None:
        return read_remote_object(self._memory, self._types, address)


# --- sizes at the end of a path: Trainer.replay_buffer, Trainer.population[*] -----------------------------------------

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
        reached = self._new_walk(left_out=is_program)
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
        owner = self._attributes.object_at(owners[0])
        return sum(lengths), capacity_of(self._attributes, self._layouts, objects[0], owner)

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


def capacity_of(
    attributes: Attributes, layouts: Layouts, container: RemoteObject, owner: RemoteObject | None
) -> int | None:
    """Return the capacity in items of a container: a deque's maxlen, else what an attribute of its owner states."""
    maxlen = container.word(_DEQUE_MAXLEN_AT) if container.heap_type.shape == "deque" else MAX_COUNT
    if maxlen < MAX_COUNT or owner is None:
        return maxlen if maxlen < MAX_COUNT else None
    values = {name.lstrip("_"): value for name, value in attributes.named_values(owner)}
    named = (attributes.object_at(values[name]) for name in _CAPACITIES if name in values)
    numbers = (layouts.whole_number(value) for value in named if value is not None)
    return next((number for number in numbers if number), None)


def is_program(kind: HeapType) -> bool:
    """Whether such objects belong to the program itself, not to its data."""
    return kind.shape in _PROGRAM_SHAPES or kind.name in _PROGRAM
