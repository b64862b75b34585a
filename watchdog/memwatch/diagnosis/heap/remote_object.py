"""An object of another process, as it was read."""

from __future__ import annotations

from array import array
from struct import Struct

from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.diagnosis.heap.type_objects import HeapType, TypeTable
from memwatch.errors import SourceError, TargetGoneError

FRONT = 32  # bytes that may belong to an object in front of it: the collector's links, and attributes since 3.11
BODY_MOST = 1 << 12  # bytes of an object that are read at once; hardly any fixed part is longer
COUNT_MOST = 1 << 40
_WORDS_MOST = 1 << 23  # of the references of one object: what is beyond is counted in its size alone
_WHOLE_BYTES = 1 << 16  # a block from this size on must lie in one mapping: what looked like an object may be none
_SHORT, _HEAD_BYTES = 512, 16
OFTEN = 1 << 16  # references that one object may well have, and below any address
_REFERENCES_MOST = 1 << 40  # immortal objects have some 2**30 or 2**32
_WORD, _PAIR = Struct("<Q").unpack_from, Struct("<QQ").unpack_from


class RemoteObject:
    """Where an object lies in what was read: FRONT bytes before it and its fixed part, up to BODY_MOST, are there."""

    __slots__ = ("_memory", "at", "end", "heap_type", "raw", "start")

    def __init__(self, memory: RemoteMemory, raw: bytes, start: int) -> None:
        self._memory, self.raw, self.start, self.end = memory, raw, start, start + len(raw)
        self.at = 0  # of the object, in `raw`
        self.heap_type: HeapType

    @property
    def address(self) -> int:
        """Of the object."""
        return self.start + self.at

    def word(self, offset: int) -> int:
        """A word of the object."""
        return int(_WORD(self.raw, self.at + offset)[0])

    def pair(self, offset: int) -> tuple[int, int]:
        """Two words of it."""
        return _PAIR(self.raw, self.at + offset)

    def count(self, offset: int = 16) -> int:
        """A number of things; SourceError when it is none."""
        number = int(_WORD(self.raw, self.at + offset)[0])
        if number >= COUNT_MOST:
            raise SourceError("no number of items")
        return number

    def read(self, address: int, size: int) -> bytes:
        """Any memory of the process, from what was read where it lies in it."""
        first, end = address - self.start, address + size
        if first >= 0 and end <= self.end:
            return self.raw[first : first + size]
        if size >= _WHOLE_BYTES and self._memory.writable.within(address, end) != [(address, end)]:
            raise SourceError("no block of that size")
        return self._memory.read(address, size)

    def words(self, address: int, count: int) -> array[int]:
        """So many words from there on, or the first _WORDS_MOST."""
        return array("Q", self.read(address, 8 * min(count, _WORDS_MOST)))


def is_plausible_refcount(memory: RemoteMemory, word: int) -> bool:
    """Whether so many references to an object are likely. In a table of types, each before another is an address."""
    return 0 < word < OFTEN or (OFTEN <= word < _REFERENCES_MOST and word not in memory.writable)


def read_remote_object(memory: RemoteMemory, types: TypeTable, address: int) -> RemoteObject | None:
    """The object at an address, read for itself; None when there is none."""
    for low, high in memory.writable.within(address - FRONT, address + BODY_MOST):
        if not low <= address <= high - _HEAD_BYTES:
            continue
        try:
            raw = memory.read(low, min(high, address + _SHORT) - low)
            kind = types.type_at(_WORD(raw, address - low + 8)[0])
            if kind is not None and kind.basic_bytes > _SHORT:
                raw = memory.read(low, high - low)
        except TargetGoneError:
            raise
        except SourceError:  # unmapped since
            return None
        if kind is None:
            return None
        missing = max(0, FRONT - (address - low))  # where less is mapped than may belong to an object
        place = RemoteObject(memory, bytes(missing) + raw + bytes(min(BODY_MOST, kind.basic_bytes)), low - missing)
        place.at, place.heap_type, place.end = (
            address - place.start,
            kind,
            low + len(raw),
        )  # what is behind was not read
        return place
    return None
