"""What the attributes of an object are called, and where their values are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from memwatch.core.text_and_units import printable
from memwatch.diagnosis.heap.builtin_values import BuiltinValues
from memwatch.diagnosis.heap.object_layouts import NDARRAY_BASE_AT, Layouts
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.diagnosis.heap.remote_object import COUNT_MOST, RemoteObject, read_remote_object
from memwatch.diagnosis.heap.type_objects import HeapType, TypeTable
from memwatch.errors import SourceError, TargetGoneError

_MEMBER_BYTES, _MEMBERS_MOST = 40, 256  # PyMemberDef: name, type, offset, flags, doc
_OBJECT_MEMBERS = {6, 16}  # T_OBJECT, T_OBJECT_EX
_BASES_MOST = 64
_DEQUE_MAXLEN_AT = 64
_NAME_MOST = 256
_MODULE_NAMES = ("__name__", "__file__")
_MODULE_ITEMS = 16  # of its dict, that the import has put there first: these names are among them
_ITEMS_MOST = 1 << 16


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the program."""

    name: str  # empty: it has none
    file: str  # empty: it was read from none, or that is not known
    namespace: int  # the address of its dict


class Attributes:
    """Reads them in one process; what changes meanwhile is left out."""

    def __init__(self, memory: RemoteMemory, objects: BuiltinValues, types: TypeTable, layouts: Layouts) -> None:
        self._memory, self._objects, self._types, self._layouts = memory, objects, types, layouts
        self._modules: dict[int, Module] = {}
        self._members: dict[int, list[tuple[str, int]]] = {}  # names and offsets, by the address of the type

    def named_values(self, place: RemoteObject) -> Iterator[tuple[str, int]]:
        """Names and addresses of values: those in its fixed part, and those of its dict."""
        try:
            for name, offset in self._members_of(place.heap_type):
                yield name, place.words(place.address + offset, 1)[0]
            dict_at, values_at = self._layouts.instance(place)
            if dict_at:
                yield from self.items(dict_at)
            elif values_at and (names := self._layouts.names(place.heap_type)) is not None:
                keys = place.words(names.first, names.count * names.width)[names.width - 2 :: names.width]
                for key, value in zip(keys, place.words(values_at, names.count), strict=True):
                    text = self._objects.text_or_none(key) if value else None
                    if text is not None:
                        yield printable(text), value
        except TargetGoneError:
            raise
        except SourceError:
            return

    def dict_of(self, place: RemoteObject) -> int:
        """Where the dict of attributes is; 0 without one."""
        try:
            if place.heap_type.name == "module":
                return place.word(16)
            if place.heap_type.shape == "class":
                return place.word(264)
            return self._layouts.instance(place)[0]
        except SourceError:
            return 0

    def is_view(self, place: RemoteObject) -> bool:
        """An array that shows the memory of another object."""
        return place.word(NDARRAY_BASE_AT) != 0

    def items(self, address: int, most: int = _ITEMS_MOST) -> Iterator[tuple[str, int]]:
        """The items of a dict whose keys are text, of the first so many."""
        with suppress(SourceError):
            for key, value in self._objects.items(address, most):
                if (name := self._objects.text_or_none(key)) is not None:
                    yield printable(name), value

    def named_items(self, address: int) -> Iterator[tuple[str, int]]:
        """The items of a dict whose keys are names that the program's code gives, not its data."""
        with suppress(SourceError):
            for key, value in self._objects.items(address, _ITEMS_MOST):
                name = self._objects.text_or_none(key)
                if name is not None and name.isidentifier() and self._objects.is_interned(key):
                    yield printable(name), value

    def elements(self, place: RemoteObject) -> list[int]:
        """Addresses of what a container holds, the values of a dict."""
        try:
            return [address for address in self._layouts.held(place) if address]
        except TargetGoneError:
            raise
        except SourceError:
            return []

    def length(self, place: RemoteObject) -> int | None:
        """How many items a container has; None when it is none."""
        try:
            return self._layouts.length(place)
        except SourceError:
            return None

    def length_most(self, place: RemoteObject) -> int | None:
        """How many items a container may have by itself: a deque with a maxlen."""
        most = place.word(_DEQUE_MAXLEN_AT) if place.heap_type.shape == "deque" else COUNT_MOST
        return most if most < COUNT_MOST else None

    def whole_number(self, address: int) -> int | None:
        """The value of an int that is not negative, and small; None when it is none."""
        place = self.object_at(address)
        return self._layouts.whole_number(place) if place is not None and place.heap_type.shape == "int" else None

    def _members_of(self, kind: HeapType) -> list[tuple[str, int]]:
        known = self._members.get(kind.address)
        if known is None:
            known = self._members[kind.address] = []
            base: HeapType | None = kind
            for _ in range(_BASES_MOST):
                if base is None:
                    break
                known += self._own_members(base)
                base = self._types.type_at(base.base_at) if base.base_at else None
        return known

    def _own_members(self, kind: HeapType) -> list[tuple[str, int]]:
        found = []
        with suppress(SourceError):
            for i in range(_MEMBERS_MOST if kind.members_at else 0):
                name_at, sort, offset = self._memory.words(kind.members_at + i * _MEMBER_BYTES, 3)
                if not name_at:
                    break
                if sort & 0xFFFFFFFF in _OBJECT_MEMBERS and offset < kind.basic_bytes:
                    found.append((self._memory.text(name_at, _NAME_MOST), offset))
        return found

    def module(self, address: int) -> Module:
        """The module at an address, as far as it can be read."""
        if address not in self._modules:
            self._modules[address] = self._module(address)
        return self._modules[address]

    def _module(self, address: int) -> Module:
        place = self.object_at(address)
        namespace = self.dict_of(place) if place is not None else 0
        first = self.items(namespace, _MODULE_ITEMS) if namespace else ()
        known = {name: value for name, value in first if name in _MODULE_NAMES}
        name, file = (self._objects.text_or_none(known[key]) if key in known else None for key in _MODULE_NAMES)
        return Module(name or "", file or "", namespace)

    def type_name(self, address: int) -> str:
        """Of the type at an address."""
        found = self._types.type_at(address)
        return found.name if found is not None else "?"

    def object_at(self, address: int) -> RemoteObject | None:
        """The object at an address; None when there is none."""
        return read_remote_object(self._memory, self._types, address)
