"""Finds tracked objects while the process runs, by a linear scan of the memory that the collector's lists reach.

The lists themselves cannot be walked, because they change under the reader. Their objects lie in few chunks of memory,
and a slot shows by itself whether it holds a tracked object: by the links before it, its reference count and its type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memwatch.diagnosis.heap.cpython_runtime import POINTER, Interpreter
from memwatch.diagnosis.heap.remote_memory import LOWEST, RemoteMemory, UnreadableError
from memwatch.diagnosis.heap.remote_objects import (
    MAX_REFCOUNT,
    OBJECT_BYTES,
    TYPE_BYTES,
    TYPE_READY,
    USUAL_REFCOUNT,
    TypeTable,
    is_plausible_refcount,
)
from memwatch.diagnosis.whole_heap.bulk_reads import BulkReader, Words, distinct

CHUNK = 1 << 20  # bytes that are read at once
SLOT = 16  # bytes of the two links before an object, which lie at a multiple of it
_MAX_DOUBTFUL = 20_000  # Where objects come and go all the time there are more, nearly all of them real.
_BATCH = 64  # chunks that are read between two looks at the types of what is in them: a bound on memory


@dataclass(frozen=True, slots=True)
class GcScan:
    """The tracked objects that a scan found."""

    addresses: Words  # of the objects, in order
    types: Words  # the address of the type of each
    complete: bool = True


class Scanner:
    """Reads all chunks that the lists reach."""

    def __init__(self, memory: RemoteMemory, interpreter: Interpreter, types: TypeTable) -> None:
        self._memory, self._interpreter, self._types = memory, interpreter, types
        self._reader = BulkReader(memory)
        self._top = np.uint64(memory.writable.end)

    def scan(self, may_go_on: Callable[[], bool]) -> GcScan:
        """Find all objects, or as many as `may_go_on`, which is called before each chunk, permits."""
        heads = [self._memory.word(head) & POINTER for head in self._interpreter.gc_list_heads]
        waiting, seen = {head // CHUNK for head in heads}, set[int]()
        found, complete = [_nothing()], True
        while waiting and complete:
            batch = [waiting.pop() for _ in range(min(len(waiting), _BATCH))]
            likely, seen = [_nothing()], seen.union(batch)
            for chunk in batch:
                complete = complete and may_go_on()
                if complete:
                    parts = self._memory.anonymous.within(chunk * CHUNK, (chunk + 1) * CHUNK)
                    likely += [self._likely(low, high) for low, high in parts]
            objects = np.concatenate(likely, axis=1)
            objects = objects[:, self._of_tracked_types(objects[1])]
            found.append(objects[:3])
            waiting |= set(distinct(objects[2:] // np.uint64(CHUNK)).tolist()) - seen
        links, types, following = np.concatenate([part[:3] for part in found], axis=1)
        order = np.argsort(links)
        links, types, following = links[order], types[order], following[order]
        real = self._real(links, types, following)
        return GcScan(links[real] + np.uint64(SLOT), types[real], complete)

    def _likely(self, low: int, high: int) -> Words:
        """Return what may be tracked objects in a part of memory: rows of addresses of links, types, and both links."""
        try:
            words = np.frombuffer(self._memory.read(low, (high - low) // SLOT * SLOT), np.uint64)
        except UnreadableError:  # It was unmapped since.
            return _nothing()
        slots = words.reshape(-1, 2)
        following, before, counts, types = slots[:-1, 0], slots[:-1, 1], slots[1:, 0], slots[1:, 1]
        # The most selective first: few words are a number that is not 0 and below any address.
        at = np.flatnonzero(counts - np.uint64(1) < np.uint64(MAX_REFCOUNT - 1))
        for links in (following, before, types):  # of what is not tracked, the second link is 0 to 3: only flags
            at = at[links[at] - np.uint64(LOWEST) < self._top]
        at = at[types[at] & np.uint64(7) == 0]
        at = at[are_refcounts(self._memory, counts[at])]
        links = np.uint64(low) + at.astype(np.uint64) * np.uint64(SLOT)
        return np.stack([links, types[at], following[at] & np.uint64(POINTER), before[at] & np.uint64(POINTER)])

    def _of_tracked_types(self, words: Words) -> NDArray[np.bool_]:
        """Return which of these words are addresses of types of tracked objects; learn new ones."""
        distinct, which = np.unique(words, return_inverse=True)
        kinds = distinct.tolist()
        unknown = np.array([kind for kind in kinds if kind not in self._types.gc_types], np.uint64)
        for kind in likely_types(self._reader, unknown).tolist():
            self._types.type_at(kind)
        known: NDArray[np.bool_] = np.array([kind in self._types.gc_types for kind in kinds], bool)[which]
        return known

    def _real(self, links: Words, types: Words, following: Words) -> NDArray[np.bool_]:
        """Which of these objects are no false ones: two addresses, a 1, and a type, on the interpreter's stack.

        A real object has neighbours that link back, or it has been freed since.
        """
        real = np.ones(len(links), bool)
        at = np.searchsorted(links, following)
        at[at == len(links)] = 0
        doubtful = np.flatnonzero(links[at] != following)
        if len(doubtful) <= _MAX_DOUBTFUL:
            for i in doubtful.tolist():
                real[i] = not self._is_false(int(links[i]), int(types[i]))
        return real

    def _is_false(self, address: int, kind: int) -> bool:
        """Whether a thing that is still there has no neighbour that links back."""
        try:
            following, before, _, kind_now = self._memory.words(address, 4)
        except UnreadableError:  # It was unmapped since.
            return False
        return kind_now == kind and address not in (self._link_at(following + 8), self._link_at(before))

    def _link_at(self, address: int) -> int:
        """Return the target of the link at an address; 0 when there is none."""
        try:
            return self._memory.word(address & ~7) & POINTER
        except UnreadableError:
            return 0


def are_refcounts(memory: RemoteMemory, words: Words) -> NDArray[np.bool_]:
    """Return which of these words may be reference counts, as `is_plausible_refcount` has it."""
    found: NDArray[np.bool_] = words - np.uint64(1) < np.uint64(USUAL_REFCOUNT - 1)
    rare = np.flatnonzero(~found & (words - np.uint64(1) < np.uint64(MAX_REFCOUNT - 1)))
    found[rare] = [is_plausible_refcount(memory, word) for word in words[rare].tolist()]
    return found


def likely_types(reader: BulkReader, addresses: Words) -> Words:
    """Return those of these addresses at which a type may be: nearly all of them are one."""
    found = [addresses[:0]]
    for which, words, at in reader.windows(addresses, np.full(len(addresses), TYPE_BYTES, np.uint64)):
        metatype, basic, flags = (words[at + offset // 8] for offset in (8, 32, 168))
        fits = (flags & np.uint64(TYPE_READY) > 0) & (metatype & np.uint64(7) == 0) & (metatype >= np.uint64(LOWEST))
        found.append(addresses[which[fits & (basic - np.uint64(OBJECT_BYTES) < np.uint64(1 << 24))]])
    return np.concatenate(found)


def _nothing() -> Words:
    return np.empty((4, 0), np.uint64)
