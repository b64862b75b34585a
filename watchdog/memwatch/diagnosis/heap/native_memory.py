"""Measures memory of C code behind objects: the buffer of a JAX array, the image of a PIL image, a booster's trees.

The words of objects, and of the blocks of malloc() that these lead to, are followed as far as they lead to others: of
several alike objects, since what all lead to, as a pool of threads, is nobody's. The allocator has to be glibc's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from statistics import median_low

from memwatch.diagnosis.heap.remote_memory import Ranges, RemoteMemory
from memwatch.diagnosis.heap.remote_objects import OBJECT_BYTES, HeapType, RemoteObject, TypeTable
from memwatch.errors import SourceError

_GLIBC = re.compile(r"/libc(?:-2\.\d+)?\.so(?:\.6)?$")
_MAX_DEPTH = 12  # blocks from an object: a bound against chains (measured: 3 to 7 for arrays of JAX, Arrow, TensorFlow)
_MAX_WAYS = 128  # from an object to blocks: a bound on time, as a booster may have thousands (chosen)
_FOLLOWED_BYTES = 4096  # of a block that are followed: structs are shorter, and data leads nowhere (chosen)
_MAX_READS = 1024  # in one system call: IOV_MAX
# Of glibc's malloc: what is before a block, the unit of its size, and the size's flags.
_HEAD_BYTES, _UNIT = 16, 16
_IN_USE, _IS_MAPPED, _FLAGS = 1, 2, 7
_PAGE = 4096
_MAX_BYTES = 1 << 40  # of a block: a larger number is none


def own_words_at(types: TypeTable, kind: HeapType) -> int:
    """Return the offset of the first word of objects of a type that C code lays out as it likes; 0: there is none.

    What a class has of a builtin type is not its own.
    """
    if kind.shape:
        return 0
    base = types.type_at(kind.base_at)
    while base is not None and "." in base.name:
        base = types.type_at(base.base_at)
    first = OBJECT_BYTES if base is None else base.basic_bytes
    return first if kind.basic_bytes > first else 0


class NativeMemory:
    """The memory behind objects of one process."""

    def __init__(self, memory: RemoteMemory) -> None:
        self._memory = memory
        self._libraries = Ranges((m.start, m.end) for m in memory.maps if m.path.endswith(".so"))
        self._is_glibc = any(_GLIBC.search(mapping.path) for mapping in memory.maps)
        self._sizes: dict[int, int] = {}  # of blocks by address; 0: no block begins there

    def words(self, types: TypeTable, obj: RemoteObject) -> Sequence[int]:
        """Return the words of an object that C code of a library lays out as it likes; none of others."""
        kind = obj.heap_type
        if "." not in kind.name and kind.address not in self._libraries:
            return ()
        at = own_words_at(types, kind)
        return obj.words(obj.address + at, (kind.basic_bytes - at) // 8) if at else ()

    def bytes_behind(self, kinds: Sequence[Sequence[Sequence[int]]]) -> list[int]:
        """Return how many bytes are behind each object of several kinds, by the words of alike objects of each kind.

        A block counts where more than half of a kind lead to one of their own by the same way, so that neither what
        they share does nor what an old address leads to; and once, for the kind that has the shortest way to it.
        """
        found, ways, taken = [0.0] * len(kinds), [0] * len(kinds), set[int]()
        waiting = [(i, alike) for i, alike in enumerate(kinds) if self._is_glibc and len(alike) > 1]
        for _ in range(_MAX_DEPTH if waiting else 0):
            self._find_blocks([word for _, rows in waiting for row in rows for word in row])
            following = list[tuple[int, list[int]]]()
            for i, rows in waiting:
                for blocks in self._columns(rows):
                    own = [block for block, times in Counter(blocks).items() if times == 1 and block not in taken]
                    if 2 * len(own) > len(kinds[i]) and ways[i] < _MAX_WAYS:
                        ways[i] += 1
                        taken.update(own)
                        found[i] += median_low([self._sizes[block] for block in own]) * len(own) / len(kinds[i])
                        following.append((i, own))
            if not following:
                break
            waiting = [(i, self._words_in(own)) for i, own in following]
        return [int(size) for size in found]

    def _columns(self, rows: Sequence[Sequence[int]]) -> Iterable[list[int]]:
        """Return the addresses of blocks at the same place of several rows."""
        found: dict[int, list[int]] = {}
        for row in rows:
            for place, word in enumerate(row):
                if word and self._sizes.get(word):
                    found.setdefault(place, []).append(word)
        return found.values()

    def _find_blocks(self, words: Sequence[int]) -> None:
        """Note which of these words are addresses of blocks in use, and their sizes."""
        memory = self._memory
        may_be = dict.fromkeys(
            word for word in words if word not in self._sizes and not word % _UNIT and word in memory.anonymous
        )
        self._sizes |= dict.fromkeys(may_be, 0)
        following = dict[int, tuple[int, int]]()  # the block and its size, by where the size of the next one is
        for word, head in self._read([(word - _HEAD_BYTES, _HEAD_BYTES) for word in may_be]):
            before, size = head[0], head[1] & ~_FLAGS
            block = word + _HEAD_BYTES
            if size < 2 * _UNIT or size % _UNIT or size >= _MAX_BYTES:
                continue
            if head[1] & _IS_MAPPED:
                if not (word - before) % _PAGE and not (size + before) % _PAGE:
                    self._sizes[block] = size - _HEAD_BYTES
            else:
                following[word + size + 8] = block, size
        for place, (size_after,) in self._read([(place, 8) for place in following if place in memory.anonymous]):
            block, size = following[place]
            if size_after & _IN_USE and size_after & ~_FLAGS >= _UNIT:
                self._sizes[block] = size - 8

    def _words_in(self, blocks: Sequence[int]) -> list[Sequence[int]]:
        places = [(block, min(self._sizes[block], _FOLLOWED_BYTES) & ~7) for block in blocks]
        return [words for _, words in self._read(places)]

    def _read(self, places: Sequence[tuple[int, int]]) -> list[tuple[int, Sequence[int]]]:
        """Read so many bytes at each address; return it with the words there, without what is not mapped any more."""
        found = list[tuple[int, Sequence[int]]]()
        for begin in range(0, len(places), _MAX_READS):
            some = places[begin : begin + _MAX_READS]
            sizes = [size for _, size in some]
            buffer = bytearray(sum(sizes))
            done = self._memory.read_vectors([address for address, _ in some], sizes, memoryview(buffer))
            words, at = memoryview(buffer).cast("Q"), 0
            for address, size in some:
                if 8 * at + size <= done:
                    found.append((address, words[at : at + size // 8]))
                else:
                    with suppress(SourceError):
                        found.append((address, self._memory.words(address, size // 8)))
                at += size // 8
        return found
