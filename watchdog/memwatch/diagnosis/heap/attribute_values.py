"""The attributes of remote objects: their names, and the addresses of their values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from memwatch.core.text_and_units import printable
from memwatch.diagnosis.heap.object_layouts import Layouts
from memwatch.diagnosis.heap.remote_memory import RemoteMemory, UnreadableError
from memwatch.diagnosis.heap.remote_objects import (
    BuiltinValues,
    HeapType,
    RemoteObject,
    TypeTable,
    read_remote_object,
)
from memwatch.errors import SourceError

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
