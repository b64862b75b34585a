"""Reads single objects of another process."""

from __future__ import annotations

from array import array
from struct import Struct

from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.diagnosis.heap.type_objects import HeapType, TypeTable
from memwatch.errors import SourceError, TargetGoneError

FRONT = 32  # Bytes before an object that may belong to it: the collector's links, and attributes since 3.11.
MAX_BODY_BYTES = 1 << 12  # Bytes of an object that are read at once; hardly any fixed part is longer.
MAX_COUNT = 1 << 40  # No object has so many items: a larger number is none.
_MAX_WORDS = 1 << 23  # References of one object that are followed: a bound on memory.
_WHOLE_BYTES = 1 << 16  # A block from this size on must lie in one mapping, because the object may be a false one.
_SHORT, _HEAD_BYTES = 512, 16
OFTEN = 1 << 16  # A reference count below this is plausible, and below any address.
_MAX_REFERENCES = 1 << 40  # Immortal objects have some 2**30 or 2**32.
_WORD, _PAIR = Struct("<Q").unpack_from, Struct("<QQ").unpack_from


class RemoteObject:
    """An object within `raw`, with FRONT bytes before it and up to MAX_BODY_BYTES of its fixed part."""

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
        """Return a number of items; SourceError when the word is none."""
        number = int(_WORD(self.raw, self.at + offset)[0])
        if number >= MAX_COUNT:
            raise SourceError("no number of items")
        return number

    def read(self, address: int, size: int) -> bytes:
        """Read any memory of the process, without a system call where these bytes contain it."""
        first, end = address - self.start, address + size
        if first >= 0 and end <= self.end:
            return self.raw[first : first + size]
        if size >= _WHOLE_BYTES and self._memory.writable.within(address, end) != [(address, end)]:
            raise SourceError("no block of that size")
        return self._memory.read(address, size)

    def words(self, address: int, count: int) -> array[int]:
        """Read `count` words at an address, or the first _MAX_WORDS."""
        return array("Q", self.read(address, 8 * min(count, _MAX_WORDS)))


def is_plausible_refcount(memory: RemoteMemory, word: int) -> bool:
    """Whether a word may be a reference count; in a table of types, where another type follows, it is an address."""
    return 0 < word < OFTEN or (OFTEN <= word < _MAX_REFERENCES and word not in memory.writable)


def read_remote_object(memory: RemoteMemory, types: TypeTable, address: int) -> RemoteObject | None:
    """Read the object at an address; None when there is none."""
    for low, high in memory.writable.within(address - FRONT, address + MAX_BODY_BYTES):
        if not low <= address <= high - _HEAD_BYTES:
            continue
        try:
            raw = memory.read(low, min(high, address + _SHORT) - low)
            kind = types.type_at(_WORD(raw, address - low + 8)[0])
            if kind is not None and kind.basic_bytes > _SHORT:
                raw = memory.read(low, high - low)
        except TargetGoneError:
            raise
        except SourceError:  # It was unmapped since.
            return None
        if kind is None:
            return None
        # Zeros stand for unmapped memory before the object, and for memory after `end`, which was not read.
        missing = max(0, FRONT - (address - low))
        obj = RemoteObject(memory, bytes(missing) + raw + bytes(min(MAX_BODY_BYTES, kind.basic_bytes)), low - missing)
        obj.at, obj.heap_type, obj.end = address - obj.start, kind, low + len(raw)
        return obj
    return None
