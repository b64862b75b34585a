"""Walks from the objects that the collector tracks to all objects that they refer to: arrays, text, untracked dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memwatch.diagnosis.heap.remote_memory import LOWEST, RemoteMemory
from memwatch.diagnosis.heap.remote_objects import HeapType
from memwatch.diagnosis.whole_heap.bulk_layouts import BulkLayouts, Sizes
from memwatch.diagnosis.whole_heap.bulk_reads import Places, Words, distinct, ragged
from memwatch.diagnosis.whole_heap.gc_object_scan import CHUNK, SLOT

_SLOTS = CHUNK // SLOT  # No two objects begin in the same slot.
_CHUNK_BITS, _SLOT_BITS = CHUNK.bit_length() - 1, SLOT.bit_length() - 1
_GROUP, _REAL = 64, 128  # slots that are numbered together; the mark of an object beside its number in its group
_BLOCK_SIZE = 1 << 18  # numbers that are kept together
_UNSEEN, _WAITING, _VISITED, _HALFWAY = 0, 1, 2, 4  # marks; the last one is added to others
_ALL_WAITING = np.uint64(_WAITING * 0x0101010101010101)  # in eight marks
_BATCH = 1 << 16  # objects that are visited before their references are followed: a bound on memory
# Steps at each of which so few objects wait are those along a chain: from so many on it is followed (chosen).
_NARROW, _MAX_NARROW_STEPS = 16, 64
_MAX_CHUNKS = 1 << 16  # 64 GiB of objects: places are kept in 32 bits
_HASHED = 1 << 12  # entries of the table of chunks, at first

Numbers = NDArray[np.int32]  # of objects, or of types


class _Slots:
    """A mark for each slot of the memory in which there are objects; a place is the index of a mark.

    Objects of C code may begin in the middle of a slot, as their mark then says.
    """

    def __init__(self, memory: RemoteMemory) -> None:
        self._memory = memory
        self.chunks = np.empty(0, np.uint64)
        self.marks = np.empty((0, _SLOTS), np.uint8)
        self._top = np.uint64(memory.writable.end)
        self._changed = np.empty(0, bool)  # chunks in which objects began to wait
        self._none: set[int] = set()  # chunks without writable memory
        self._rows = np.full(_HASHED, -1, np.int64)  # of a chunk, at its number modulo the size
        self._count = 0

    def are_likely(self, words: Words) -> NDArray[np.bool_]:
        """Return which of these words may be addresses."""
        found: NDArray[np.bool_] = (words - np.uint64(LOWEST) < self._top) & (words & np.uint64(7) == 0)
        return found

    def places(self, words: Words) -> Places:
        """Return the places of addresses; -1 where there is no writable memory."""
        chunks = words >> np.uint64(_CHUNK_BITS)
        rows = self._rows_of(chunks)
        if (unknown := rows < 0).any():
            new = set(distinct(chunks[unknown]).tolist()) - self._none
            if new and self._open(new):
                rows = self._rows_of(chunks)
        slots = (words >> np.uint64(_SLOT_BITS)).view(np.int64) & (_SLOTS - 1)
        return np.where(rows >= 0, rows * _SLOTS + slots, -1)

    def addresses(self, places: Places) -> Words:
        """Return the addresses of the objects in slots."""
        places = places.astype(np.int64)
        within = places % _SLOTS * SLOT + (self.marks.reshape(-1)[places] & _HALFWAY) * (SLOT // 2 // _HALFWAY)
        found: Words = self.chunks[places // _SLOTS] * np.uint64(CHUNK) + within.astype(np.uint64)
        return found

    def mark(self, words: Words, places: Places) -> None:
        """Let the objects at these addresses, whose places these are, wait for a visit unless they were marked."""
        marks = self.marks.reshape(-1)
        new = marks[places] == _UNSEEN
        self._changed[places[new] // _SLOTS] = True
        marks[places[new]] = (words[new] & np.uint64(SLOT // 2)).astype(np.uint8) // (SLOT // 2) * _HALFWAY | _WAITING

    def waiting(self) -> Places:
        """Return the places of all objects that wait."""
        rows = np.flatnonzero(self._changed)
        self._changed[:] = False
        found = [_NO_PLACES]
        for row in rows.tolist():
            eights = np.flatnonzero(self.marks[row].view(np.uint64) & _ALL_WAITING)
            within = np.flatnonzero(self.marks[row].reshape(-1, 8)[eights] & _WAITING)
            found.append((eights[within >> 3] << 3) + (within & 7) + row * _SLOTS)
        return np.concatenate(found)

    def _rows_of(self, chunks: Words) -> Places:
        rows: Places = self._rows[chunks.view(np.int64) & (len(self._rows) - 1)]
        if self._count:
            rows[self.chunks[rows] != chunks] = -1
        return rows

    def _open(self, chunks: Iterable[int]) -> bool:
        mapped = [one for one in chunks if self._memory.writable.within(one * CHUNK, (one + 1) * CHUNK)]
        mapped = mapped[: _MAX_CHUNKS - self._count]
        self._none |= set(chunks) - set(mapped)
        if not mapped:
            return False
        self.chunks = np.concatenate([self.chunks, np.array(sorted(mapped), np.uint64)])
        self._count = len(self.chunks)
        if self._count > len(self.marks):
            grown = np.zeros((self._count + self._count // 4, _SLOTS), np.uint8)
            grown[: len(self.marks)] = self.marks
            self.marks, self._changed = grown, np.append(self._changed, np.zeros(len(grown) - len(self.marks), bool))
        size = len(self._rows)
        while len(distinct(self.chunks % np.uint64(size))) < self._count:  # two chunks at one place
            size *= 2
        self._rows = np.full(size, -1, np.int64)
        self._rows[(self.chunks % np.uint64(size)).astype(np.int64)] = np.arange(self._count)
        return True


class References(NamedTuple):
    """References between objects, by their numbers."""

    sources: Numbers
    targets: Numbers


@dataclass(frozen=True, slots=True)
class HeapObjects:
    """Objects that were found, in the order of their addresses; a number is the index of one."""

    addresses: Words
    kinds: Numbers  # index of the type of each
    sizes: Sizes  # bytes
    types: tuple[HeapType, ...]
    owners: Numbers  # objects with references; one may occur several times
    ends: Places  # how many references these and all before them have
    targets: Numbers  # of the references; -1: to no object
    complete: bool

    def references_to(self, numbers: Numbers) -> References:
        """Return all references to some objects, each once, in the order of sources and targets."""
        wanted = np.zeros(len(self.addresses) + 1, bool)  # and for none
        wanted[numbers] = True
        found = np.flatnonzero(wanted[self.targets])
        sources = self.owners[np.searchsorted(self.ends, found, side="right")]
        pairs = distinct(sources.astype(np.int64) << 32 | self.targets[found])
        return References((pairs >> 32).astype(np.int32), pairs.astype(np.int32))

    def references_from(self, numbers: Numbers) -> References:
        """Return all references of some objects to others, each as often as it is there."""
        wanted = np.zeros(len(self.addresses), bool)
        wanted[numbers] = True
        rows = np.flatnonzero(wanted[self.owners])
        counts = np.diff(self.ends, prepend=0)[rows]
        targets = self.targets[ragged(self.ends[rows] - counts, counts)]
        return References(np.repeat(self.owners[rows], counts)[targets >= 0], targets[targets >= 0])

    def reachable_from(self, numbers: Numbers, closed: NDArray[np.bool_], may_go_on: Callable[[], bool]) -> Numbers:
        """Return the objects that these lead to, one after the other: for chains, in which each leads to few others.

        `closed`: a mark for each object that is not gone through.
        """
        order = np.argsort(self.owners, kind="stable")
        first = np.searchsorted(self.owners[order], np.arange(len(self.addresses) + 1))
        seen = np.append(closed, True)  # and none
        found, waiting = list[int](), numbers.tolist()
        while waiting and (len(found) % _BATCH or may_go_on()):
            one = waiting.pop()
            for row in order[first[one] : first[one + 1]].tolist():
                for target in self.targets[self.ends[row - 1] if row else 0 : self.ends[row]].tolist():
                    if not seen[target]:
                        seen[target] = True
                        found.append(target)
                        waiting.append(target)
        return np.array(found, np.int32)

    def references_among(self, inside: NDArray[np.bool_]) -> References:
        """Return the references from and to objects that are marked, each as often as it is there.

        `inside`: a mark for each object, and False for none.
        """
        found = np.flatnonzero(inside[self.targets])
        sources = self.owners[np.searchsorted(self.ends, found, side="right")]
        return References(sources[inside[sources]], self.targets[found][inside[sources]])

    def with_references(self, more: References) -> HeapObjects:
        """Return the same objects with some more references, which are in the order of their sources."""
        owners, counts = np.unique(more.sources, return_counts=True)
        ends = (self.ends[-1] if len(self.ends) else 0) + np.cumsum(counts)
        return replace(
            self,
            owners=np.concatenate([self.owners, owners]),
            ends=np.concatenate([self.ends, ends]),
            targets=np.concatenate([self.targets, more.targets]),
        )

    def of_types(self, is_wanted: Callable[[HeapType], bool]) -> Numbers:
        """Return the numbers of the objects of some types."""
        wanted = np.array([is_wanted(kind) for kind in self.types], bool)
        return np.flatnonzero(wanted[self.kinds]).astype(np.int32)

    def numbers(self, addresses: Words) -> Numbers:
        """Return the numbers of the objects at these addresses; -1 where there is none."""
        if not len(self.addresses):
            return np.full(len(addresses), -1, np.int32)
        at = np.minimum(np.searchsorted(self.addresses, addresses), len(self.addresses) - 1)
        return np.where(self.addresses[at] == addresses, at, -1).astype(np.int32)


class HeapWalk:
    """Finds the objects that others lead to."""

    def __init__(self, memory: RemoteMemory, layouts: BulkLayouts) -> None:
        self._layouts, self._slots = layouts, _Slots(memory)
        self._places, self._kinds, self._sizes = _Growing(np.uint32), _Growing(np.int32), _Growing(np.int64)
        # places of objects with references, how many, and the places to which these lead
        self._owners, self._counts, self._targets = _Growing(np.uint32), _Growing(np.int64), _Growing(np.uint32)

    def exclude(self, addresses: Iterable[int]) -> None:
        """Do not visit these objects."""
        places = self._slots.places(np.fromiter(addresses, np.uint64))
        self._slots.marks.reshape(-1)[places[places >= 0]] = _VISITED

    def walk(self, starts: Words, may_go_on: Callable[[], bool], known: HeapObjects | None = None) -> HeapObjects:
        """Find the objects at these addresses and all that they hold; `may_go_on` is called after each batch.

        A chain takes a step for each of its objects: after many steps, those of `known` tell where it leads.
        """
        self._reach(starts)
        complete, narrow_steps = True, 0
        while complete and len(waiting := self._slots.waiting()):
            narrow_steps += len(waiting) <= _NARROW
            if known is not None and narrow_steps > _MAX_NARROW_STEPS:
                self._reach(self._known_after(known, self._slots.addresses(waiting), may_go_on))
                waiting, narrow_steps = distinct(np.concatenate([waiting, self._slots.waiting()])), 0
            for first in range(0, len(waiting), _BATCH):
                self._visit(waiting[first : first + _BATCH])
                complete = may_go_on()
                if not complete:
                    break
        return self._objects(complete)

    def _known_after(self, known: HeapObjects, addresses: Words, may_go_on: Callable[[], bool]) -> Words:
        """Return the addresses of what objects led to when all objects were read, as far as it was not visited."""
        places = self._slots.places(known.addresses)
        are_seen = (self._slots.marks.reshape(-1)[places] != _UNSEEN) & (places >= 0)
        are_left_out = np.array([self._layouts.left_out(kind) for kind in known.types], bool)[known.kinds]
        numbers = known.numbers(addresses)
        return known.addresses[known.reachable_from(numbers[numbers >= 0], are_seen | are_left_out, may_go_on)]

    def _visit(self, places: Places) -> None:
        addresses = self._slots.addresses(places)
        self._slots.marks.reshape(-1)[places] ^= _WAITING | _VISITED
        for which, kinds, sizes in self._layouts.measure(places, addresses):
            self._places.append(which)
            self._kinds.append(kinds)
            self._sizes.append(sizes)
        for owners, words in self._layouts.references():
            led, targets = self._reach(words)
            led_by = owners[led]
            first = np.flatnonzero(np.diff(led_by, prepend=-1))
            self._owners.append(led_by[first])
            self._counts.append(np.diff(first, append=len(led_by)))
            self._targets.append(targets)

    def _reach(self, words: Words) -> tuple[Places, Places]:
        """Visit the objects at these addresses later; return which are addresses of the heap, and their places."""
        likely = np.flatnonzero(self._slots.are_likely(words))
        places = self._slots.places(words[likely])
        led = likely[places >= 0]
        places = places[places >= 0]
        self._slots.mark(words[led], places)
        return led, places

    def _objects(self, complete: bool) -> HeapObjects:
        rank = _Rank(self._slots, self._places)
        kinds, sizes = np.empty(len(rank.addresses), np.int32), np.empty(len(rank.addresses), np.int64)
        for places, some_kinds, some_sizes in zip(
            self._places.taken(), self._kinds.taken(), self._sizes.taken(), strict=True
        ):
            numbers = rank.numbers(places)
            kinds[numbers], sizes[numbers] = some_kinds, some_sizes
        targets, count = np.empty(self._targets.count, np.int32), 0
        for some in self._targets.taken():
            targets[count : count + len(some)] = np.where(rank.are_in(some), rank.numbers(some), -1)
            count += len(some)
        owners = np.concatenate([_NO_NUMBERS, *map(rank.numbers, self._owners.taken())])
        ends = np.cumsum(np.concatenate([_NO_PLACES, *self._counts.taken()]))
        types = tuple(self._layouts.kinds)
        return HeapObjects(rank.addresses, kinds, sizes, types, owners, ends, targets, complete)


class _Growing:
    """Numbers that are kept in blocks, so that no copy of all is needed."""

    def __init__(self, dtype: type) -> None:
        self.count, self._dtype, self._blocks = 0, dtype, list[NDArray[Any]]()

    def append(self, numbers: NDArray[Any]) -> None:
        done = 0
        while done < len(numbers):
            used = self.count % _BLOCK_SIZE
            if not used:
                self._blocks.append(np.empty(_BLOCK_SIZE, self._dtype))
            some = numbers[done : done + _BLOCK_SIZE - used]
            self._blocks[-1][used : used + len(some)] = some
            self.count, done = self.count + len(some), done + len(some)

    def blocks(self) -> Iterator[NDArray[Any]]:
        for i, block in enumerate(self._blocks):
            yield block[: self.count - i * _BLOCK_SIZE]

    def taken(self) -> Iterator[NDArray[Any]]:
        """Yield the blocks; the memory of each is given back before the next one."""
        left = self.count
        while self._blocks:
            yield self._blocks.pop(0)[:left]
            left -= _BLOCK_SIZE


class _Rank:
    """Numbers places in the order of their addresses. It takes the place of the marks, which are lost."""

    def __init__(self, slots: _Slots, places: _Growing) -> None:
        for some in places.blocks():
            slots.marks.reshape(-1)[some] |= _REAL
        before = np.empty((len(slots.chunks), _SLOTS // _GROUP), np.int32)
        self.addresses, count = np.empty(places.count, np.uint64), 0
        for row in np.argsort(slots.chunks).tolist():
            real = np.flatnonzero(slots.marks[row] & _REAL)
            self.addresses[count : count + len(real)] = slots.addresses(real + row * _SLOTS)
            marks = slots.marks[row].reshape(-1, _GROUP)
            marks &= _REAL
            within = np.cumsum(marks > 0, 1, dtype=np.uint8)  # up to a slot, and with it
            totals = np.cumsum(within[:, -1], dtype=np.int32)
            before[row] = totals - within[:, -1] + count
            count += len(real)
            marks += within
        self._before, self._within = before.reshape(-1), slots.marks.reshape(-1)  # a group; in it, with a slot itself

    def are_in(self, places: NDArray[np.uint32]) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self._within[places] >= _REAL
        return found

    def numbers(self, places: NDArray[np.uint32]) -> Numbers:
        found: Numbers = self._before[places // _GROUP] + (self._within[places] & (_REAL - 1)) - np.int32(1)
        return found


_NO_PLACES, _NO_NUMBERS = np.empty(0, np.int64), np.empty(0, np.int32)
