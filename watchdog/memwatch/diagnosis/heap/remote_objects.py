"""Reads single objects of a CPython heap: str and dict, types, and any other object by its type."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct, unpack_from

from memwatch.core.text_and_units import printable
from memwatch.diagnosis.heap.remote_memory import LOWEST, RemoteMemory, UnreadableError
from memwatch.errors import SourceError

# --- str and dict -----------------------------------------------------------------------------------------------------

_MAX_TEXT = 512  # characters of a name: a bound on garbage
MAX_ENTRIES = 1 << 28  # of a dict: a bound on garbage


@dataclass(frozen=True, slots=True)
class DictKeys:
    """The key table of a dict, whose entries are in the order of insertion."""

    first: int  # address of the entries
    count: int  # of used entries, including deleted ones
    width: int  # words of an entry: hash, key, value; or key, value where all keys are str
    bytes: int  # of the whole table
    room: int  # number of entries that it can have
    shared: int  # number of values that an instance of a class with this table reserves, since 3.11


class BuiltinValues:
    """Reads str and dict objects of one process; `minor` is the minor version of its CPython."""

    def __init__(self, memory: RemoteMemory, minor: tuple[int, int]) -> None:
        self._memory, self.minor = memory, minor[1]
        self.tuple_bytes = 24 if self.minor <= 13 else 32  # without its items
        self.values_offset = 8 if self.minor >= 13 else 0  # of the values of a dict that shares its keys with others

    def keys(self, address: int, read: Callable[[int, int], bytes] | None = None) -> DictKeys:
        """Read the key table at this address; UnreadableError when it is none. `read` takes an address and a size."""
        read = read or self._memory.read
        if self.minor <= 10:
            _, size, _, usable, count = unpack_from("<QQQqq", read(address, 40))
            index_bytes = size * next(width for width in (1, 2, 4, 8) if size < 1 << 8 * width)
            first, width = address + 40 + index_bytes, 3
        else:
            head = read(address, 32)
            size, index_bytes = 1 << min(head[8], 63), 1 << min(head[9], 63)
            first, width = address + 32 + index_bytes, 2 if head[10] else 3
            usable, count = unpack_from("<qq", head, 16)
        room = (size << 1) // 3
        if not 0 <= count <= room <= MAX_ENTRIES:
            raise UnreadableError("no table of a dict")
        return DictKeys(first, count, width, first - address + room * width * 8, room, count + usable)

    def items(self, address: int, most: int = 1 << 16) -> list[tuple[int, int]]:
        """Return the addresses of keys and values of the first `most` entries of a dict."""
        keys_at, values_at = self._memory.words(address + 32, 2)
        keys = self.keys(keys_at)
        count = min(keys.count, most)
        raw = self._memory.words(keys.first, count * keys.width) if count else ()
        names = raw[keys.width - 2 :: keys.width]
        values = raw[keys.width - 1 :: keys.width]
        if values_at and count:
            values = self._memory.words(values_at + self.values_offset, count)
        return [(key, value) for key, value in zip(names, values, strict=True) if key and value]

    def text(self, address: int) -> str:
        """Read a compact str; UnreadableError when it is none, empty, or longer than _MAX_TEXT."""
        head = self._memory.read(address, 40)
        start, length, kind = self.text_at(head, 0)
        if not 0 < length <= _MAX_TEXT:
            raise UnreadableError("no name")
        raw = self._memory.read(address + start, length * kind)
        try:
            return raw.decode({1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[kind])
        except UnicodeDecodeError as error:
            raise UnreadableError("no str") from error

    def text_or_none(self, address: int) -> str | None:
        try:
            return self.text(address)
        except SourceError:
            return None

    def is_interned(self, address: int) -> bool:
        """Whether a str is interned, as names and constants of code that look like names are, but no data."""
        return bool(unpack_from("<I", self._memory.read(address + 32, 4))[0] & 3)

    def text_at(self, raw: bytes, at: int) -> tuple[int, int, int]:
        """Return the offset of a str's characters, their number, and the bytes of each."""
        length, state = unpack_from("<q", raw, at + 16)[0], unpack_from("<I", raw, at + 32)[0]
        kind, compact, ascii_only = state >> 2 & 7, state & 32, state & 64
        if not compact or kind not in (1, 2, 4):
            raise UnreadableError("no compact str")
        short = 48 if self.minor <= 11 else 40
        return (short if ascii_only else short + (24 if self.minor <= 11 else 16)), length, kind


# --- types ------------------------------------------------------------------------------------------------------------

TYPE_BYTES = 416  # of a PyTypeObject: the part that is the same in all versions
_TYPE_SUBCLASS, _HEAP_TYPE, _HAS_GC, TYPE_READY = 1 << 31, 1 << 9, 1 << 14, 1 << 12
_MANAGED_DICT, _MANAGED_WEAKREF, _INLINE_VALUES = 1 << 4, 1 << 3, 1 << 2  # since 3.11, 3.12, 3.13
_QUALNAME = {8: 864, 9: 856, 10: 864, 11: 864, 12: 872, 13: 872, 14: 872, 15: 880}  # by minor version
_MAX_NAME_BYTES = 512
_MAX_CLASS_ENTRIES = 4096  # of a class's namespace: a bound on time
_MAX_BASES = 64  # a bound against circles
_MAX_REFUSED = 1 << 17  # addresses kept that are no types: a bound on memory
OBJECT_BYTES = 16  # of any object: its reference count and the address of its type
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
    "_queue.SimpleQueue": "queue",
    "array.array": "array",
    "frame": "frame",
    "generator": "generator",
    "coroutine": "generator",
    "async_generator": "generator",
    "BaseException": "exception",
    "traceback": "traceback",
    "numpy.ndarray": "ndarray",
    "torch._C._TensorBase": "tensor",
    "torch._C.TensorBase": "tensor",
}
_EXACT = {"str", "bytes"}  # shapes whose subclasses have another layout
_FRAMES_INSIDE = 11  # CPython 3.11: a generator has its frame in itself; before, that is an object of its own
_BY_FIELDS = {"tensor", "exception", "traceback"}  # shapes whose references are sought in the whole fixed part


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

    def __init__(self, memory: RemoteMemory, builtins: BuiltinValues) -> None:
        self._memory, self._builtins, self._minor = memory, builtins, builtins.minor
        self._known: dict[int, HeapType] = {}
        self.gc_types: dict[int, HeapType] = {}  # those of tracked objects
        self._refused: set[int] = set()
        self._metatypes: set[int] = set()
        self._module_keys: set[int] = set()  # addresses of the str "__module__", which nearly all classes share
        self._module_names: dict[int, str] = {}  # of modules, by the address of the str

    def type_at(self, address: int) -> HeapType | None:
        """Return the type at this address; None when there is none."""
        found = self._known.get(address)
        if found is not None or address in self._refused or address % 8 or address < LOWEST:
            return found
        try:
            return self._read_type(address, _MAX_BASES)
        except SourceError:
            if len(self._refused) >= _MAX_REFUSED:
                self._refused.clear()
            self._refused.add(address)
            return None

    def _read_type(self, address: int, bases_left: int) -> HeapType:
        raw = self._memory.read(address, TYPE_BYTES)
        metatype, (name_at, basic, item) = unpack_from("<Q", raw, 8)[0], unpack_from("<Qqq", raw, 24)
        flags, members_at, base_at, namespace = (unpack_from("<Q", raw, at)[0] for at in (168, 240, 256, 264))
        dict_offset = unpack_from("<q", raw, 288)[0]
        if not flags & TYPE_READY or not OBJECT_BYTES <= basic < 1 << 24 or not 0 <= item < 1 << 16:
            raise UnreadableError("no type")
        if metatype % 8 or not self._is_metatype(metatype):
            raise UnreadableError("no type")
        qualified_at = keys_at = 0
        if flags & _HEAP_TYPE:
            qualified_at, keys_at = self._memory.words(address + _QUALNAME[self._minor], 2)
        name = self._full_name(qualified_at, namespace, name_at)
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
        self._known[address] = found
        if found.is_gc_tracked:
            self.gc_types[address] = found
        return found

    def _shape(self, name: str, basic: int, base_at: int, bases_left: int) -> tuple[str, int]:
        shape = _SHAPES.get(name)
        if shape is not None and (shape != "generator" or self._minor >= _FRAMES_INSIDE):
            return shape, OBJECT_BYTES if shape in _BY_FIELDS else basic
        if base_at and bases_left:
            base = self._known.get(base_at) or self._read_type(base_at, bases_left - 1)
            if base.shape not in _EXACT:
                return base.shape, base.shape_bytes
        return "", OBJECT_BYTES

    def _is_metatype(self, address: int) -> bool:
        if address not in self._metatypes and self._memory.word(address + 168) & _TYPE_SUBCLASS:
            self._metatypes.add(address)
        return address in self._metatypes

    def _full_name(self, qualified_at: int, namespace: int, name_at: int) -> str:
        """Return the module and qualified name of a class, as far as they can be read."""
        qualified = self._builtins.text_or_none(qualified_at) if qualified_at else None
        if qualified is not None:
            with suppress(SourceError):
                return f"{self._module(namespace)}.{qualified}"
        name = self._memory.text(name_at, _MAX_NAME_BYTES)
        return name if qualified is None or name.endswith(f".{qualified}") else qualified

    def _module(self, namespace: int) -> str:
        """Return `__module__` of a class's namespace."""
        for key, value in self._builtins.items(namespace, _MAX_CLASS_ENTRIES):
            if key not in self._module_keys and self._builtins.text_or_none(key) != "__module__":
                continue
            self._module_keys.add(key)
            if value not in self._module_names:
                self._module_names[value] = self._builtins.text(value)
            return self._module_names[value]
        raise UnreadableError("no __module__")


# --- any object -------------------------------------------------------------------------------------------------------

FRONT_BYTES = 32  # Bytes before an object that may belong to it: the collector's links, and attributes since 3.11.
MAX_BODY_BYTES = 1 << 12  # Bytes of an object that are read at once; hardly any fixed part is longer.
MAX_COUNT = 1 << 40  # No object has so many items: a larger number is none.
MAX_WORDS = 1 << 23  # References of one object that are followed: a bound on memory.
_WHOLE_BYTES = 1 << 16  # A block from this size on must lie in one mapping, because the object may be a false one.
_FIRST_READ_BYTES = 512  # Bytes of an object that are read before its type is known.
REFCOUNT_BITS = 0xFFFFFFFF  # of a reference count's word that count in each version
USUAL_REFCOUNT = 1 << 16  # A reference count below this is plausible, and below any address.
MAX_REFCOUNT = 1 << 40  # Immortal objects have some 2**30 or 2**32.
_WORD, _PAIR = Struct("<Q").unpack_from, Struct("<QQ").unpack_from


class RemoteObject:
    """An object within `raw`, with FRONT_BYTES bytes before it and up to MAX_BODY_BYTES of its fixed part."""

    __slots__ = ("_memory", "at", "end", "heap_type", "raw", "start")

    def __init__(self, memory: RemoteMemory, raw: bytes, start: int) -> None:
        self._memory, self.raw, self.start, self.end = memory, raw, start, start + len(raw)
        self.at = 0  # of the object, in `raw`
        self.heap_type: HeapType

    @property
    def address(self) -> int:
        return self.start + self.at

    def word(self, offset: int) -> int:
        return int(_WORD(self.raw, self.at + offset)[0])

    def pair(self, offset: int) -> tuple[int, int]:
        """Return two words of the object."""
        return _PAIR(self.raw, self.at + offset)

    def count(self, offset: int = 16) -> int:
        """Return a number of items; UnreadableError when the word is none."""
        number = int(_WORD(self.raw, self.at + offset)[0])
        if number >= MAX_COUNT:
            raise UnreadableError("no number of items")
        return number

    def read(self, address: int, size: int) -> bytes:
        """Read any memory of the process, without a system call where these bytes contain it."""
        first, end = address - self.start, address + size
        if first >= 0 and end <= self.end:
            return self.raw[first : first + size]
        if size >= _WHOLE_BYTES and self._memory.writable.within(address, end) != [(address, end)]:
            raise UnreadableError("no block of that size")
        return self._memory.read(address, size)

    def words(self, address: int, count: int) -> array[int]:
        """Read `count` words at an address, or the first MAX_WORDS."""
        return array("Q", self.read(address, 8 * min(count, MAX_WORDS)))


def is_plausible_refcount(memory: RemoteMemory, word: int) -> bool:
    """Whether a word may be a reference count; in a table of types, where another type follows, it is an address."""
    return 0 < word < USUAL_REFCOUNT or (USUAL_REFCOUNT <= word < MAX_REFCOUNT and word not in memory.writable)


def read_remote_object(memory: RemoteMemory, types: TypeTable, address: int) -> RemoteObject | None:
    """Read the object at an address; None when there is none."""
    for low, high in memory.writable.within(address - FRONT_BYTES, address + MAX_BODY_BYTES):
        if not low <= address <= high - OBJECT_BYTES:
            continue
        try:
            raw = memory.read(low, min(high, address + _FIRST_READ_BYTES) - low)
            kind = types.type_at(_WORD(raw, address - low + 8)[0])
            if kind is not None and kind.basic_bytes > _FIRST_READ_BYTES:
                raw = memory.read(low, high - low)
        except UnreadableError:  # It was unmapped since.
            return None
        if kind is None:
            return None
        # Zeros stand for unmapped memory before the object, and for memory after `end`, which was not read.
        missing = max(0, FRONT_BYTES - (address - low))
        obj = RemoteObject(memory, bytes(missing) + raw + bytes(min(MAX_BODY_BYTES, kind.basic_bytes)), low - missing)
        obj.at, obj.heap_type, obj.end = address - obj.start, kind, low + len(raw)
        return obj
    return None
