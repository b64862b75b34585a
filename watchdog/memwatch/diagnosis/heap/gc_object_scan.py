"""Counts tracked objects while the process runs, by a linear scan of the memory that the collector's lists reach.

The lists themselves cannot be walked, because they change under the reader. Their objects lie in few chunks of memory,
and a slot shows by itself whether it holds a tracked object: by the links before it, its reference count and its type.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import compress, islice

from memwatch.diagnosis.heap.cpython_runtime import POINTER, Interpreter
from memwatch.diagnosis.heap.remote_memory import RemoteMemory, UnreadableError
from memwatch.diagnosis.heap.remote_objects import USUAL_REFCOUNT, TypeTable, is_plausible_refcount

CHUNK = 1 << 20  # bytes that are read at once
SLOT = 16  # bytes of the two links before an object, which lie at a multiple of it
_TYPE_AT = 3  # words from the links to the object's type
_MAX_WALKED = 200_000  # links that are followed one by one: a bound on time
_COLUMNS = (1, 2, 3)  # bytes of an address in which types differ most from other words
_MAX_DOUBTFUL = 20_000  # Where objects come and go all the time there are more, nearly all of them real.
_LOWEST = 4096  # No link leads below; the second one is 0 to 3, only flags, where an object is not tracked.


@dataclass(slots=True)
class GcScan:
    """The tracked objects that a scan found."""

    counts: Counter[int] = field(default_factory=Counter)  # by the address of the type
    slots: dict[int, array[int]] = field(default_factory=dict)  # by chunk, the slots of their links
    complete: bool = True

    def addresses(self) -> Iterator[array[int]]:
        """Yield the addresses of the objects, chunk by chunk."""
        for chunk, slots in self.slots.items():
            first = chunk * CHUNK + SLOT  # An object lies after its links.
            yield array("Q", [first + SLOT * slot for slot in slots])


class Scanner:
    """Reads all chunks that the lists reach, and again those that were read before a type was known."""

    def __init__(self, memory: RemoteMemory, interpreter: Interpreter, types: TypeTable) -> None:
        self._memory, self._interpreter, self._types = memory, interpreter, types
        self._waiting: dict[int, set[tuple[int, int]]] = {}  # chunk to read -> links into it: from, to
        self._counted_types: dict[int, int] = {}  # chunk -> number of types whose objects were counted in it
        self._slots: dict[int, array[int]] = {}  # chunk -> slots of its objects, in order
        self._slot_numbers = tuple(range(CHUNK // SLOT))  # made once, as each chunk iterates over it
        self._walked: set[int] = set()  # objects from which links were followed one by one
        self._doubtful: set[int] = set()  # links without a link back

    def scan(self, may_go_on: Callable[[], bool]) -> GcScan:
        """Count all objects, or as many as `may_go_on`, which is called before each chunk, permits."""
        found = GcScan(slots=self._slots)
        for head in self._interpreter.gc_list_heads:
            self._link(head, self._memory.word(head) & POINTER)
        while (chunk := self._next_chunk()) is not None:
            if not may_go_on():
                found.complete = False
                break
            self._scan_chunk(chunk, found)
        if len(self._doubtful) <= _MAX_DOUBTFUL:
            self._drop_false(found)
        return found

    def _next_chunk(self) -> int | None:
        if self._waiting:
            return next(iter(self._waiting))
        count = len(self._types.gc_types)
        return next((chunk for chunk, known in self._counted_types.items() if known < count), None)

    def _scan_chunk(self, chunk: int, found: GcScan) -> None:
        for source, target in self._waiting.pop(chunk, ()):
            self._follow_link(source, target)
        # Of a chunk that was read before, only the types are wanted that were found since.
        wanted = frozenset(islice(self._types.gc_types, self._counted_types.get(chunk, 0), None))
        self._counted_types[chunk] = len(self._types.gc_types)
        slots, start = self._slots.get(chunk, array("H")), chunk * CHUNK
        for low, high in self._memory.anonymous.within(start, start + CHUNK):
            try:
                raw = self._memory.read(low, high - low)
            except UnreadableError:  # It was unmapped since.
                continue
            words, first = array("Q", raw), (low - start) // SLOT
            accepted = self._accepted(raw, words, wanted)
            found.counts.update([words[2 * slot + _TYPE_AT] for slot in accepted])
            slots.extend([first + slot for slot in accepted])
            self._follow(low, words, accepted)
        self._slots[chunk] = array("H", sorted(slots))

    def _accepted(self, raw: bytes, words: array[int], wanted: frozenset[int]) -> list[int]:
        """Return the slots of tracked objects of one of these types."""
        top = self._memory.writable.end
        return [
            slot
            for slot in compress(self._slot_numbers, _likely(raw, wanted))
            if words[2 * slot + _TYPE_AT] in wanted
            and _LOWEST <= words[2 * slot] < top
            and words[2 * slot + 1] >= _LOWEST
            and (0 < words[2 * slot + 2] < USUAL_REFCOUNT or is_plausible_refcount(self._memory, words[2 * slot + 2]))
        ]

    def _follow(self, low: int, words: array[int], slots: list[int]) -> None:
        """Follow the links of these objects, within this part or into another."""
        end, count, known = low + 8 * len(words), len(words) - _TYPE_AT, self._types.gc_types
        for slot in slots:
            target = words[2 * slot] & POINTER
            if not low <= target < end:
                self._link(low + SLOT * slot, target)
            elif (at := (target - low) >> 3) < count and words[at + _TYPE_AT] not in known:
                self._follow_link(low + SLOT * slot, target)

    def _link(self, source: int, target: int) -> None:
        """Add a link into a chunk; in one that was read it leads to a counted object or to one of a new type."""
        if target // CHUNK not in self._slots:
            self._waiting.setdefault(target // CHUNK, set()).add((source, target))
        elif not self._is_counted(target):
            self._follow_link(source, target)

    def _is_counted(self, address: int) -> bool:
        slots, slot = self._slots.get(address // CHUNK, ()), address % CHUNK // SLOT
        at = bisect_left(slots, slot)
        return at < len(slots) and slots[at] == slot

    def _follow_link(self, source: int, target: int) -> None:
        """Learn the type of the object linked from here, if that links back, and of those that follow it."""
        if not self._learn_type(source, target):
            self._doubtful.add(source)
            return
        while len(self._walked) < _MAX_WALKED and target not in self._walked:
            self._walked.add(target)
            source, target = target, self._link_at(target)
            if target // CHUNK not in self._slots:
                self._link(source, target)
                break
            if self._is_counted(target) or not self._learn_type(source, target):
                break

    def _learn_type(self, source: int, target: int) -> bool:
        """Learn the type of the object linked from here; False when it does not link back."""
        try:
            _, before, _, kind = self._memory.words(target, 4)
        except UnreadableError:
            return False
        if before & POINTER != source:
            return False
        self._types.type_at(kind)
        return True

    def _drop_false(self, found: GcScan) -> None:
        """Drop words that only look like an object: two addresses, a 1, and a type, on the interpreter's stack.

        A real object has neighbours that link back, or it has been freed since.
        """
        for address in self._doubtful:
            if self._is_counted(address) and found.counts[kind := self._type_of_false(address)]:
                found.counts[kind] -= 1
                self._slots[address // CHUNK].remove(address % CHUNK // SLOT)

    def _type_of_false(self, address: int) -> int:
        """Return the type of a false object, which has no neighbour that links back; 0 for a real one."""
        try:
            following, before, _, kind = self._memory.words(address, 4)
        except UnreadableError:  # It was unmapped since.
            return 0
        return 0 if address in (self._link_at(following + 8), self._link_at(before)) else kind

    def _link_at(self, address: int) -> int:
        """Return the target of the link at an address; 0 when there is none."""
        try:
            return self._memory.word(address & ~7) & POINTER
        except UnreadableError:
            return 0


def _likely(raw: bytes, wanted: frozenset[int]) -> bytes:
    """Return a byte for each slot: 0 where none of these types can be, by three bytes of its address.

    That makes a scan five times as fast. It handles all slots at once: one byte of each slot is a slice of `raw`, a
    translation looks it up, and three such slices are combined as numbers.
    """
    likely = -1
    for column in _COLUMNS:
        possible = bytearray(256)
        for kind in wanted:
            possible[kind >> 8 * column & 0xFF] = 1
        found = raw[8 * _TYPE_AT + column :: SLOT].translate(possible)
        likely &= int.from_bytes(found, "little")
    return likely.to_bytes(len(found), "little")
