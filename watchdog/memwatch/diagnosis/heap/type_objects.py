"""Reads the types of a heap: their names, and the layouts of their objects."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from struct import unpack_from

from memwatch.core.text_and_units import printable
from memwatch.diagnosis.heap.builtin_values import BuiltinValues
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.errors import SourceError

_TYPE_BYTES = 416  # of a PyTypeObject: the part that is the same in all versions
_TYPE_SUBCLASS, _HEAP_TYPE, _HAS_GC, _READY = 1 << 31, 1 << 9, 1 << 14, 1 << 12
_MANAGED_DICT, _MANAGED_WEAKREF, _INLINE_VALUES = 1 << 4, 1 << 3, 1 << 2  # since 3.11, 3.12, 3.13
_QUALNAME = {8: 864, 9: 856, 10: 864, 11: 864, 12: 872, 13: 872, 14: 872, 15: 880}  # by minor version
_MAX_NAME_BYTES = 512
_MAX_ENTRIES = 4096  # of a class's namespace: a bound on time
_MAX_BASES = 64  # a bound against circles
_MAX_REFUSED = 1 << 17  # addresses kept that are no types: a bound on memory
_LOWEST = 4096  # No type lies below this address.
_OBJECT_BYTES = 16
_LINKS_BYTES = 16  # of the collector, before an object that it tracks

# The types whose layout is known, by name; the layout of a subclass begins with that of its base.
_SHAPES = {
    "list": "list",
    "tuple": "tuple",
    "dict": "dict",
    "set": "set",
    "frozenset": "set",
    "str": "str",
    "int": "int",
    "bytes": "bytes",
    "bytearray": "bytearray",
    "type": "class",
    "weakref": "weak",
    "weakref.ReferenceType": "weak",
    "collections.deque": "deque",
    "array.array": "array",
    "numpy.ndarray": "ndarray",
    "torch._C._TensorBase": "tensor",
    "torch._C.TensorBase": "tensor",
}
_EXACT = {"str", "bytes"}  # shapes whose subclasses have another layout
_BY_FIELDS = {"tensor"}  # shapes whose references are sought in the whole fixed part


@dataclass(frozen=True, slots=True)
class HeapType:
    """One type."""

    address: int
    name: str  # "__main__.Agent", "dict"
    basic_bytes: int
    item_bytes: int
    is_gc_tracked: bool  # the garbage collector tracks its objects, or may do so
    shape: str  # one of those above; "": none of them
    shape_bytes: int  # of the fixed part that the shape describes, from the start of the object
    base_at: int  # the address of its base type; 0 without
    members_at: int  # the table of attributes in the fixed part (slots and members of C code); 0 without
    dict_offset: int
    has_managed_dict: bool
    has_inline_values: bool
    front_bytes: int  # before each object
    keys_at: int  # the key table that its objects share; 0 without


class TypeTable:
    """The types that were read so far."""

    def __init__(self, memory: RemoteMemory, objects: BuiltinValues) -> None:
        self._memory, self._objects, self._minor = memory, objects, objects.minor
        self.gc_types: dict[int, HeapType] = {}  # of tracked objects
        self.others: dict[int, HeapType] = {}
        self._refused: set[int] = set()

    def gc_type_at(self, address: int) -> HeapType | None:
        """Return the type of tracked objects at this address; None when there is none."""
        found = self.type_at(address)
        return found if found is not None and found.is_gc_tracked else None

    def type_at(self, address: int) -> HeapType | None:
        """Return the type at this address; None when there is none."""
        found = self.gc_types.get(address) or self.others.get(address)
        if found is not None or address in self._refused or address % 8 or address < _LOWEST:
            return found
        try:
            found = self._read(address, _MAX_BASES)
        except SourceError:
            if len(self._refused) >= _MAX_REFUSED:
                self._refused.clear()
            self._refused.add(address)
            return None
        return found

    def known_from(self, count: int) -> frozenset[int]:
        """Return the addresses of all types of tracked objects but the first `count` that were read."""
        return frozenset(islice(self.gc_types, count, None))

    def _read(self, address: int, bases_left: int) -> HeapType:
        raw = self._memory.read(address, _TYPE_BYTES)
        metatype, (name_at, basic, item) = unpack_from("<Q", raw, 8)[0], unpack_from("<Qqq", raw, 24)
        flags, members_at, base_at, namespace = (unpack_from("<Q", raw, at)[0] for at in (168, 240, 256, 264))
        dict_offset = unpack_from("<q", raw, 288)[0]
        if not flags & _READY or not _OBJECT_BYTES <= basic < 1 << 24 or not 0 <= item < 1 << 16:
            raise SourceError("no type")
        if metatype % 8 or not self._memory.word(metatype + 168) & _TYPE_SUBCLASS:
            raise SourceError("no type")
        name = self._memory.text(name_at, _MAX_NAME_BYTES)
        of_heap = bool(flags & _HEAP_TYPE)
        keys_at = 0
        if of_heap:
            name = self._full_name(address, namespace, name)
            keys_at = self._memory.word(address + _QUALNAME[self._minor] + 8)
        name = printable(name.removeprefix("builtins."))
        shape, shape_bytes = self._shape(name, basic, base_at, bases_left)
        managed = self._minor >= 11 and bool(flags & _MANAGED_DICT)
        in_front = managed or (self._minor >= 12 and bool(flags & _MANAGED_WEAKREF))
        found = HeapType(
            address=address,
            name=name,
            basic_bytes=basic,
            item_bytes=item,
            is_gc_tracked=bool(flags & _HAS_GC),
            shape=shape,
            shape_bytes=shape_bytes,
            base_at=base_at,
            members_at=members_at,
            dict_offset=0 if managed else dict_offset,
            has_managed_dict=managed,
            has_inline_values=self._minor >= 13 and bool(flags & _INLINE_VALUES),
            front_bytes=_LINKS_BYTES * (bool(flags & _HAS_GC) + in_front),
            keys_at=keys_at,
        )
        (self.gc_types if found.is_gc_tracked else self.others)[address] = found
        return found

    def _shape(self, name: str, basic: int, base_at: int, bases_left: int) -> tuple[str, int]:
        shape = _SHAPES.get(name)
        if shape is not None:
            return shape, _OBJECT_BYTES if shape in _BY_FIELDS else basic
        if base_at and bases_left:
            base = self.gc_types.get(base_at) or self.others.get(base_at) or self._read(base_at, bases_left - 1)
            if base.shape not in _EXACT:
                return base.shape, base.shape_bytes
        return "", _OBJECT_BYTES

    def _full_name(self, address: int, namespace: int, name: str) -> str:
        """Return the module and qualified name of a class, as far as they can be read."""
        try:
            qualified = self._objects.text(self._memory.word(address + _QUALNAME[self._minor]))
        except SourceError:
            return name
        try:
            return f"{self._module(namespace)}.{qualified}"
        except SourceError:
            return name if name.endswith(f".{qualified}") else qualified

    def _module(self, namespace: int) -> str:
        """Return `__module__` of a class's namespace."""
        for key, value in self._objects.items(namespace, _MAX_ENTRIES):
            if self._objects.text_or_none(key) == "__module__":
                return self._objects.text(value)
        raise SourceError("no __module__")
