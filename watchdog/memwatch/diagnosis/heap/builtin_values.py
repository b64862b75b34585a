"""Reads str and dict objects of a CPython heap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import unpack_from

from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.errors import SourceError

MAX_TEXT = 512  # characters of a name: a bound on garbage
_MAX_ENTRIES = 1 << 28  # of a dict: likewise

Read = Callable[[int, int], bytes]  # (address, number of bytes)


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

    def keys(self, address: int, read: Read | None = None) -> DictKeys:
        """Read the key table at this address; SourceError when it is none."""
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
        if not 0 <= count <= room <= _MAX_ENTRIES:
            raise SourceError("no table of a dict")
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
            values = self._memory.words(self.values(values_at), count)
        return [(key, value) for key, value in zip(names, values, strict=True) if key and value]

    def values(self, address: int) -> int:
        """Return the address of the values of a dict that shares its keys with others."""
        return address + 8 if self.minor >= 13 else address

    def text(self, address: int) -> str:
        """Read a compact str; SourceError when it is none, empty, or longer than MAX_TEXT."""
        head = self._memory.read(address, 40)
        start, length, kind = self.text_at(head, 0)
        if not 0 < length <= MAX_TEXT:
            raise SourceError("no name")
        raw = self._memory.read(address + start, length * kind)
        try:
            return raw.decode({1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[kind])
        except UnicodeDecodeError as error:
            raise SourceError("no str") from error

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
            raise SourceError("no compact str")
        short = 48 if self.minor <= 11 else 40
        return (short if ascii_only else short + (24 if self.minor <= 11 else 16)), length, kind
