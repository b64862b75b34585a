"""Types of a heap: which addresses are types, and what they are called."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from struct import unpack_from

from memwatch.core.text import printable
from memwatch.diagnosis.heap.memory import Memory
from memwatch.errors import SourceError

_TYPE_BYTES = 416  # of a PyTypeObject, as far as all versions have it alike
_TYPE_SUBCLASS, _HEAP_TYPE, _HAS_GC, _READY = 1 << 31, 1 << 9, 1 << 14, 1 << 12
_QUALNAME = {8: 864, 9: 856, 10: 864, 11: 864, 12: 872, 13: 872, 14: 872, 15: 880}  # by minor version
_NAME_MOST = 512  # bytes of a name
_ENTRIES_MOST = 4096  # of a class's namespace


@dataclass(frozen=True, slots=True)
class HeapType:
    """One type."""

    address: int
    name: str  # "__main__.Agent", "dict"
    basic_bytes: int
    item_bytes: int


class Types:
    """The types that were met so far."""

    def __init__(self, memory: Memory, minor: tuple[int, int]) -> None:
        self._memory, self._minor = memory, minor[1]
        self.known: dict[int, HeapType] = {}
        self._refused: set[int] = set()

    def learn(self, address: int) -> HeapType | None:
        """The type at this address; None when there is none of tracked objects."""
        if address in self.known:
            return self.known[address]
        if address in self._refused or address % 8 or address < 4096:
            return None
        try:
            found = self._read(address)
        except SourceError:
            found = None
        if found is None:
            self._refused.add(address)
        else:
            self.known[address] = found
        return found

    def known_from(self, count: int) -> frozenset[int]:
        """The addresses of all but the first so many, in the order in which they were met."""
        return frozenset(islice(self.known, count, None))

    def _read(self, address: int) -> HeapType | None:
        raw = self._memory.read(address, _TYPE_BYTES)
        metatype, (name_at, basic, item) = unpack_from("<Q", raw, 8)[0], unpack_from("<Qqq", raw, 24)
        flags = unpack_from("<Q", raw, 168)[0]
        if not flags & _HAS_GC or not flags & _READY or not 16 <= basic < 1 << 24 or not 0 <= item < 1 << 16:
            return None
        if metatype % 8 or not self._memory.word(metatype + 168) & _TYPE_SUBCLASS:
            return None
        name = self._memory.text(name_at, _NAME_MOST)
        if flags & _HEAP_TYPE:
            name = self._full_name(address, unpack_from("<Q", raw, 264)[0], name)
        return HeapType(address, printable(name.removeprefix("builtins.")), basic, item)

    def _full_name(self, address: int, namespace: int, name: str) -> str:
        """Module and qualified name of a class; what is known of it when they cannot be read."""
        try:
            qualified = self._text(self._memory.word(address + _QUALNAME[self._minor]))
        except SourceError:
            return name
        try:
            return f"{self._module(namespace)}.{qualified}"
        except SourceError:
            return name if name.endswith(f".{qualified}") else qualified

    # --- names are objects, too

    def _module(self, namespace: int) -> str:
        """What a class's namespace says of `__module__`."""
        for key, value in self._items(namespace):
            if self._text_or_none(key) == "__module__":
                return self._text(value)
        raise SourceError("no __module__")

    def _items(self, mapping: int) -> list[tuple[int, int]]:
        """Addresses of keys and values of a dict that shares no keys."""
        keys = self._memory.word(mapping + 32)
        if self._minor <= 10:
            _, size, _, _, count = unpack_from("<QQQqq", self._memory.read(keys, 40))
            index_bytes = next(width for width in (1, 2, 4, 8) if size < 1 << 8 * width)
            first, width = keys + 40 + size * index_bytes, 24
        else:
            head = self._memory.read(keys, 32)
            first, width = keys + 32 + (1 << head[9]), 16 if head[10] else 24
            count = unpack_from("<q", head, 24)[0]
        if not 0 <= count <= _ENTRIES_MOST:
            raise SourceError("a namespace of that size is none")
        raw = self._memory.read(first, count * width) if count else b""
        found = (unpack_from("<QQ", raw, i * width + width - 16) for i in range(count))
        return [(key, value) for key, value in found if key and value]

    def _text_or_none(self, address: int) -> str | None:
        try:
            return self._text(address)
        except SourceError:
            return None

    def _text(self, address: int) -> str:
        """A str, of the usual compact forms."""
        short = 48 if self._minor <= 11 else 40
        head = self._memory.read(address, 40)
        length = unpack_from("<q", head, 16)[0]
        if not 0 < length <= _NAME_MOST:
            raise SourceError("no name")
        state = unpack_from("<I", head, 32)[0] >> (2 if self._minor <= 13 else 16)
        kind, compact, ascii_only = state & 7, state & 8, state & 16
        if not compact or kind not in (1, 2, 4):
            raise SourceError("no compact str")
        long = 72 if self._minor <= 11 else 56
        raw = self._memory.read(address + (short if ascii_only else long), length * kind)
        try:
            return raw.decode({1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[kind])
        except UnicodeDecodeError as error:
            raise SourceError("no str") from error
