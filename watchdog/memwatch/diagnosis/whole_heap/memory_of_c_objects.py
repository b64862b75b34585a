"""Finds what objects of C code hold in memory of their own: the memo of a Pickler, the tree of an XML parser."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from memwatch.diagnosis.heap.native_memory import own_words_at
from memwatch.diagnosis.heap.remote_memory import LOWEST
from memwatch.diagnosis.heap.remote_objects import OBJECT_BYTES
from memwatch.diagnosis.whole_heap.bulk_layouts import BulkLayouts
from memwatch.diagnosis.whole_heap.bulk_reads import LONGEST_BYTES, BulkReader, Places, Words, distinct
from memwatch.diagnosis.whole_heap.reachable_objects import HeapObjects, Numbers, References

_FEW = 512  # Objects of a type of which each may hold many others (chosen).
_MAX_OWNERS = 1 << 18  # that are looked into, and ...
_MAX_TABLES = 1 << 16  # ... tables that these lead to: bounds on time
_STRUCT_BYTES = 64  # of what an object's word leads to: a struct with references, or with the address of a table
# Bytes. A shorter block looks as if it were in use when it was freed: glibc keeps it for the same thread (tcache).
_SHORTEST_TABLE, _LONGEST_TABLE = 1032, 1 << 28
_SIZE_BYTES, _CHUNK_BYTES = 8, 16  # before a block of malloc() (glibc), and the unit of its chunks
_POOL_HEAD_BYTES, _LARGEST_IN_POOL = 48, 512  # of Python's own allocator: it has larger blocks from malloc()
_FLAGS = np.uint64(7)
_CONTAINERS = ("list", "dict", "set")  # shapes with a table of their own


def references_in_c_memory(heap: HeapObjects, layouts: BulkLayouts, held: Numbers) -> References:
    """Return references to these objects from those of C code, through a struct or a table that is no object.

    Looked into are objects of types of which there are few, and what these refer to; and all objects of the types of
    `held` that are of C code themselves, as the elements of a tree.
    """
    own_at = np.array([own_words_at(layouts.types, kind) // 8 for kind in heap.types], np.int64)
    is_of_c = ((own_at > 0) & ["." in kind.name for kind in heap.types])[heap.kinds]
    alike = np.flatnonzero(is_of_c & np.isin(heap.kinds, distinct(heap.kinds[held]))).astype(np.int32)
    wanted = np.sort(heap.addresses[distinct(np.concatenate([held, alike]))])
    pairs = [np.empty(0, np.int64)]
    for some in (_few(heap, is_of_c), alike):
        owners = some[own_at[heap.kinds[some]] > 0][:_MAX_OWNERS]
        numbers, words = _words_of(heap, layouts, owners, own_at)
        for sources, targets in _held_by(heap, layouts, numbers, words, wanted):
            pairs.append(sources << 32 | heap.numbers(targets))
    found = distinct(np.concatenate(pairs))
    return References((found >> 32).astype(np.int32), found.astype(np.int32))


def _few(heap: HeapObjects, is_of_c: NDArray[np.bool_]) -> Numbers:
    """Return the objects of types of which there are few, and what these refer to."""
    are_few = is_of_c & (np.bincount(heap.kinds, minlength=len(heap.types))[heap.kinds] <= _FEW)
    sources, targets = heap.references_among(np.append(is_of_c, False))
    return distinct(np.concatenate([np.flatnonzero(are_few).astype(np.int32), targets[are_few[sources]]]))


def _held_by(
    heap: HeapObjects, layouts: BulkLayouts, numbers: Places, words: Words, wanted: Words
) -> Iterator[tuple[Places, Words]]:
    """Yield owners, and the addresses of wanted objects in the structs and tables that these words lead to."""
    reader = layouts.tables
    numbers, words = _no_objects(heap, numbers, words)
    tables = [(np.empty(0, np.int64), np.empty(0, np.uint64))]
    for which, rows in _rows(reader, words, np.minimum(_block_bytes(layouts, words), _STRUCT_BYTES)):
        yield _in_rows(numbers[which], rows, wanted)
        of_each = np.repeat(numbers[which], rows.shape[1])
        tables.append(_no_objects(heap, of_each, rows.reshape(-1)))
    numbers, words = (np.concatenate(part) for part in zip(*tables, strict=True))
    words, first = np.unique(words, return_index=True)
    numbers, words = numbers[first][:_MAX_TABLES], words[:_MAX_TABLES]
    sizes = _block_bytes(layouts, words)
    are_tables = (sizes > _SHORTEST_TABLE) & (sizes <= _LONGEST_TABLE)
    held = list[tuple[int, Places, Words]]()
    for number, start, size in zip(
        numbers[are_tables].tolist(), words[are_tables].tolist(), sizes[are_tables].tolist(), strict=True
    ):
        for piece in range(start, start + size, LONGEST_BYTES):
            of_piece = np.array([min(LONGEST_BYTES, start + size - piece)], np.int64)
            for _, rows in _rows(reader, np.array([piece], np.uint64), of_piece):
                found, targets = _in_rows(np.array([number]), rows, wanted)
                held += [(start, found, targets)] if len(targets) else []
    if held:
        owned = _tables_of_containers(heap, layouts)
        yield from ((found, targets) for start, found, targets in held if start not in owned)


def _tables_of_containers(heap: HeapObjects, layouts: BulkLayouts) -> set[int]:
    """Return the addresses of the tables of all lists, dicts and sets: another pointer to one is what memory was."""
    containers = heap.of_types(lambda kind: kind.shape in _CONTAINERS)
    _, words = _words_of(heap, layouts, containers, np.full(len(heap.types), OBJECT_BYTES // 8))
    return set(words[(words & _FLAGS == 0) & (words >= np.uint64(LOWEST))].tolist())


def _block_bytes(layouts: BulkLayouts, addresses: Words) -> Places:
    """Return the size of the memory block at each address, in bytes; 0 if no block starts there.

    Python's own allocator or glibc's malloc() made the block.
    """
    found = np.zeros(len(addresses), np.int64)
    is_mapped, is_used = np.zeros(len(addresses), bool), np.zeros(len(addresses), bool)
    for which, rows in _rows(layouts.tables, addresses - np.uint64(_SIZE_BYTES), np.full(len(addresses), _SIZE_BYTES)):
        sizes = (rows[:, 0] & ~_FLAGS).view(np.int64)
        is_size = (sizes >= 2 * _CHUNK_BYTES) & (sizes <= _LONGEST_TABLE) & (sizes % _CHUNK_BYTES == 0)
        is_size &= addresses[which] % np.uint64(_CHUNK_BYTES) == 0
        found[which] = np.where(is_size, sizes - _SIZE_BYTES, 0)
        is_mapped[which] = rows[:, 0] & np.uint64(2) > 0
    # What follows a block says whether that is in use: a list that has grown leaves its old table behind as it was.
    for which, rows in _rows(layouts.tables, addresses + found.view(np.uint64), np.where(found > 0, _SIZE_BYTES, 0)):
        is_used[which] = rows[:, 0] & np.uint64(1) > 0
    found[~(is_used | is_mapped)] = 0
    pool_bytes = np.uint64(1 << (12 if layouts.minor <= 9 else 14))
    pools, which_pool = np.unique(addresses & ~(pool_bytes - np.uint64(1)), return_inverse=True)
    in_pool = np.zeros(len(pools), np.int64)
    for which, rows in _rows(layouts.tables, pools, np.full(len(pools), _POOL_HEAD_BYTES)):
        halves = np.ascontiguousarray(rows[:, 4:6]).view(np.uint32).astype(np.int64)
        sizes = (halves[:, 1] + 1) * _CHUNK_BYTES  # after the arena's index: the class of size, two offsets
        is_head = (sizes <= _LARGEST_IN_POOL) & (halves[:, 3] == int(pool_bytes) - sizes)
        in_pool[which] = np.where(is_head & (halves[:, 2] <= int(pool_bytes)), sizes, 0)
    sizes = in_pool[which_pool]
    within = (addresses - pools[which_pool]).view(np.int64) - _POOL_HEAD_BYTES
    begins = within % np.maximum(sizes, 1) == 0
    return np.where(sizes > 0, np.where(begins, sizes, 0), found)


def _words_of(heap: HeapObjects, layouts: BulkLayouts, owners: Numbers, first_at: Places) -> tuple[Places, Words]:
    """Return the words of objects from `first_at` of their types on, with whose they are."""
    numbers, found = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for which, objects in layouts.read(heap.addresses[owners], heap.kinds[owners]):
        for kind in distinct(objects.kinds).tolist():
            same = np.flatnonzero(objects.kinds == kind)
            places = np.arange(first_at[kind], int(objects.room[same[0]]))
            numbers.append(np.repeat(owners[which[same]].astype(np.int64), len(places)))
            found.append(objects.words[objects.at[same][:, None] + places].reshape(-1))
    return np.concatenate(numbers), np.concatenate(found)


def _no_objects(heap: HeapObjects, owners: Places, words: Words) -> tuple[Places, Words]:
    """Return the words that may be addresses of memory which is no object, in order."""
    may_be = (words & _FLAGS == 0) & (words >= np.uint64(LOWEST))
    words, first = np.unique(words[may_be], return_index=True)
    is_none = heap.numbers(words) < 0
    return owners[may_be][first[is_none]], words[is_none]


def _rows(reader: BulkReader, addresses: Words, sizes: Places) -> Iterator[tuple[Places, Words]]:
    """Yield which of these addresses were read, and so many bytes at each, in words; nothing of what is not mapped."""
    for size in distinct(sizes[sizes > 0]).tolist():
        same = np.flatnonzero(sizes == size)
        for which, words, at in reader.windows(addresses[same], np.full(len(same), size, np.uint64)):
            yield same[which], words[at[:, None] + np.arange(int(size) // 8)]


def _in_rows(owners: Places, rows: Words, wanted: Words) -> tuple[Places, Words]:
    """Return the words of these rows that are wanted, each with the owner of its row."""
    at = np.minimum(np.searchsorted(wanted, rows), len(wanted) - 1)
    which, places = np.nonzero(wanted[at] == rows)
    return owners[which], rows[which, places]
