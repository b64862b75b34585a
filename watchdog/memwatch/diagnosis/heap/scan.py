"""Counting tracked objects while the process runs: a linear scan of the memory that the collector's lists reach.

The lists themselves cannot be walked, they change under the reader. What they link lies in few stretches of memory,
and whether a slot there holds a tracked object can be told by itself: from the links in front of it, its reference
count and its type.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import compress

from memwatch.diagnosis.heap.interpreter import POINTER, Interpreter
from memwatch.diagnosis.heap.memory import Memory
from memwatch.diagnosis.heap.types import Types
from memwatch.errors import SourceError, TargetGoneError

CHUNK = 1 << 20
SLOT = 16  # bytes: of the two links in front of an object, which lie at a multiple of it
_TYPE_AT = 3  # words from the links to the object's type
_LOWEST = 4096  # no link leads below; the second one is 0 to 3, its flags alone, where an object is not tracked
REFERENCES_MOST = 1 << 40  # immortal objects have some 2**30 or 2**32


@dataclass(slots=True)
class Scan:
    """What was found."""

    counts: Counter[int] = field(default_factory=Counter)  # by the address of the type
    places: dict[int, array[int]] = field(default_factory=dict)  # by chunk, in which slots their links lie
    complete: bool = True

    def addresses(self) -> Iterator[array[int]]:
        """Of the objects, chunk by chunk."""
        for chunk, slots in self.places.items():
            first = chunk * CHUNK + SLOT  # an object lies behind its links
            yield array("Q", [first + SLOT * slot for slot in slots])


class Scanner:
    """Goes through all chunks that the lists reach, and again through those that were read before a type was met."""

    def __init__(self, memory: Memory, interpreter: Interpreter, types: Types) -> None:
        self._memory, self._interpreter, self._types = memory, interpreter, types
        self._waiting: dict[int, set[tuple[int, int]]] = {}  # chunk not read yet -> links into it: from, to
        self._read: dict[int, int] = {}  # chunk -> of how many types its objects are counted
        self._slots: dict[int, array[int]] = {}  # chunk -> in which of its slots they lie, in order

    def scan(self, may_go_on: Callable[[], bool]) -> Scan:
        """Count all, or as much as may be; asked before each chunk."""
        found = Scan(places=self._slots)
        for head in self._interpreter.lists:
            self._link(head, self._memory.word(head) & POINTER)
        while (chunk := self._next()) is not None:
            if not may_go_on():
                found.complete = False
                break
            self._scan_chunk(chunk, found)
        return found

    def _next(self) -> int | None:
        if self._waiting:
            return next(iter(self._waiting))
        count = len(self._types.known)
        return next((chunk for chunk, known in self._read.items() if known < count), None)

    def _scan_chunk(self, chunk: int, found: Scan) -> None:
        for source, target in self._waiting.pop(chunk, ()):
            self._learn(source, target)
        before, until = self._read.get(chunk, 0), len(self._types.known)
        wanted, start = self._types.known_from(before), chunk * CHUNK
        slots = self._slots.get(chunk, array("H"))
        self._read[chunk] = until
        for low, high in self._memory.writable(start, start + CHUNK):
            try:
                words = array("Q", self._memory.read(low, high - low))
            except TargetGoneError:
                raise
            except SourceError:  # unmapped since
                continue
            accepted = self._accepted(words, wanted)
            kinds, first = words[_TYPE_AT::2], (low - start) // SLOT
            found.counts.update([kinds[slot] for slot in accepted])
            slots.extend([first + slot for slot in accepted])
            self._follow(low, words, accepted)
        self._slots[chunk] = array("H", sorted(slots))

    def _accepted(self, words: array[int], wanted: Collection[int]) -> list[int]:
        """The slots of 16 bytes at which the links of a tracked object of one of these types lie."""
        kinds, top = words[_TYPE_AT::2], self._memory.top
        return [
            slot
            for slot in compress(range(len(kinds)), map(wanted.__contains__, kinds))
            if _LOWEST <= words[2 * slot] < top
            and words[2 * slot + 1] >= _LOWEST
            and 0 < words[2 * slot + 2] < REFERENCES_MOST
        ]

    def _follow(self, low: int, words: array[int], slots: list[int]) -> None:
        """Go on to where the links of these lead, in this part or in another."""
        end, count, known = low + 8 * len(words), len(words) - _TYPE_AT, self._types.known
        for slot in slots:
            target = words[2 * slot] & POINTER
            if not low <= target < end:
                self._link(low + SLOT * slot, target)
            elif (at := (target - low) >> 3) < count and words[at + _TYPE_AT] not in known:
                self._learn(low + SLOT * slot, target)

    def _link(self, source: int, target: int) -> None:
        """A link into a chunk; in one that was read it leads to an object that is counted, or to one of a new type."""
        chunk, slot = target // CHUNK, target % CHUNK // SLOT
        slots = self._slots.get(chunk)
        if slots is None:
            self._waiting.setdefault(chunk, set()).add((source, target))
        elif (at := bisect_left(slots, slot)) == len(slots) or slots[at] != slot:
            self._learn(source, target)

    def _learn(self, source: int, target: int) -> None:
        """Meet the type of what is linked from here, when it links back."""
        try:
            _, before, _, kind = self._memory.words(target, 4)
        except TargetGoneError:
            raise
        except SourceError:
            return
        if before & POINTER == source:
            self._types.learn(kind)
