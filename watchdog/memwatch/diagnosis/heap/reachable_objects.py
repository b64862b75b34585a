"""Walks from the objects that the collector tracks to all objects that they refer to: arrays, text, untracked dicts.

It goes chunk by chunk of memory: a reference waits until its chunk is read for all references into it.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import compress, count

from memwatch.diagnosis.heap.gc_object_scan import CHUNK, SLOT
from memwatch.diagnosis.heap.object_layouts import Layouts, MeasureObject
from memwatch.diagnosis.heap.remote_memory import RemoteMemory, UnreadableError
from memwatch.diagnosis.heap.remote_objects import (
    FRONT_BYTES,
    MAX_BODY_BYTES,
    HeapType,
    RemoteObject,
    TypeTable,
    is_plausible_refcount,
    read_remote_object,
)
from memwatch.diagnosis.heap.torch_tensors import Tensors

LARGE_BYTES = 10 << 20  # An object from this size on is listed by itself (chosen).
_SLOTS = CHUNK // SLOT  # No two objects begin in the same slot.
_ALL_SEEN = bytearray(b"\1") * _SLOTS  # the marks of a chunk without objects
_FEW = 24  # Up to this number, objects are read one by one instead of their whole chunk (chosen).
_MAX_NON_TYPES = 1 << 17  # addresses kept that are no types: a bound on memory
_HEAD = struct.Struct("<QQ").unpack_from


class ReferenceGraph:
    """All references between objects."""

    def __init__(self) -> None:
        self.sources, self.starts, self.targets = array("Q"), array("Q"), array("Q")

    def references_to(self, is_target: Callable[[int], bool]) -> Iterator[tuple[int, int]]:
        """Yield each reference to such an object: from, to."""
        for at in compress(count(), map(is_target, self.targets)):
            yield self.sources[bisect_right(self.starts, at) - 1], self.targets[at]


@dataclass(slots=True)
class TypeTally:
    """A type, and the objects of it that were found."""

    type: HeapType
    measure_object: MeasureObject
    is_wanted: bool
    count: int = 0
    bytes: int = 0
    large: list[tuple[int, int]] = field(default_factory=list)  # bytes and address
    addresses: array[int] = field(default_factory=lambda: array("Q"))  # only of a wanted type


class ReachableObjects:
    """The objects that a walk through a heap finds, by type, and the references between them."""

    def __init__(
        self,
        memory: RemoteMemory,
        types: TypeTable,
        layouts: Layouts,
        wanted: Callable[[HeapType], bool] = lambda _: False,
        left_out: Callable[[HeapType], bool] = lambda _: False,
    ) -> None:
        """Keep the addresses of objects of `wanted` types; ignore objects of `left_out` types."""
        self.graph, self.tensors = ReferenceGraph(), Tensors(memory)
        self.complete = True
        self._memory, self._types, self._layouts = memory, types, layouts
        self._wanted, self._left_out = wanted, left_out
        self._seen: dict[int, bytearray] = {0: _ALL_SEEN}  # marks of slots, by chunk
        self._waiting: dict[int, array[int]] = {}  # addresses, by chunk
        self._tallies: dict[int, TypeTally | None] = {}  # by the address of the type

    @property
    def tallies(self) -> list[TypeTally]:
        return [tally for tally in self._tallies.values() if tally is not None]

    def walk(self, starts: Iterable[array[int]], may_go_on: Callable[[], bool]) -> None:
        """Find the objects at these addresses and all that they hold; `may_go_on` is called after each chunk."""
        for addresses in starts:
            self._follow(addresses)
        while self._waiting and self.complete:
            chunk = next(iter(self._waiting))
            self._visit(chunk, sorted(self._waiting.pop(chunk)))
            self.complete = may_go_on()

    def exclude(self, addresses: Iterable[int]) -> None:
        """Do not visit these objects."""
        self._follow(array("Q", addresses))
        self._waiting.clear()

    def _visit(self, chunk: int, addresses: list[int]) -> None:
        """Visit the waiting objects of a chunk, which is read at once or, for few objects, one by one."""
        parts = self._memory.writable.within(chunk * CHUNK, (chunk + 1) * CHUNK)
        at = 0
        for low, high in parts:
            end = bisect_left(addresses, high, at)
            inner = bisect_left(addresses, low + FRONT_BYTES, at), bisect_right(addresses, high - MAX_BODY_BYTES, at)
            at = bisect_left(addresses, low, at)
            if inner[1] - inner[0] > _FEW and (raw := self._read(low, high)) is not None:
                self._visit_all(addresses[slice(*inner)], RemoteObject(self._memory, raw, low))
                addresses[slice(*inner)], end = [], end - inner[1] + inner[0]
            for address in addresses[at:end]:
                if (obj := read_remote_object(self._memory, self._types, address)) is not None:
                    self._visit_all([address], obj)
            at = end

    def _read(self, low: int, high: int) -> bytes | None:
        try:
            return self._memory.read(low, high - low)
        except UnreadableError:  # It was unmapped since.
            return None

    def _visit_all(self, addresses: list[int], obj: RemoteObject) -> None:
        raw, start = obj.raw, obj.start
        sources, starts, targets = self.graph.sources, self.graph.starts, self.graph.targets
        for address in addresses:
            refcount, type_at = _HEAD(raw, address - start)
            tally = self._tally(type_at)
            if tally is None or not is_plausible_refcount(self._memory, refcount):
                continue
            obj.at, obj.heap_type, references = address - start, tally.type, array("Q")
            try:
                size = tally.measure_object(obj, references)
            except (UnreadableError, ValueError, ArithmeticError, struct.error):  # It changed, or never was an object.
                continue
            if tally.type.shape == "tensor":
                size += self.tensors.add(obj)
            tally.count += 1
            tally.bytes += size
            if size >= LARGE_BYTES:
                tally.large.append((size, address))
            if tally.is_wanted:
                tally.addresses.append(address)
            if references:
                sources.append(address)
                starts.append(len(targets))
                targets.extend(references)
                self._follow(references)

    def _tally(self, type_at: int) -> TypeTally | None:
        if type_at in self._tallies:
            return self._tallies[type_at]
        kind = self._types.type_at(type_at)
        tally = None
        if kind is not None and not self._left_out(kind):
            tally = TypeTally(kind, self._layouts.measurer_for(kind), self._wanted(kind))
        if tally is not None or len(self._tallies) < _MAX_NON_TYPES:
            self._tallies[type_at] = tally
        return tally

    def _follow(self, targets: array[int]) -> None:
        """Queue the objects that were not seen yet."""
        seen, waiting = self._seen, self._waiting
        for target in targets:
            chunk, slot = target >> 20, target >> 4 & 0xFFFF
            marks = seen[chunk] if chunk in seen else self._open(chunk)
            if not marks[slot]:
                marks[slot] = 1
                if chunk in waiting:
                    waiting[chunk].append(target)
                else:
                    waiting[chunk] = array("Q", (target,))

    def _open(self, chunk: int) -> bytearray:
        is_mapped = self._memory.writable.within(chunk * CHUNK, (chunk + 1) * CHUNK)
        marks = self._seen[chunk] = bytearray(_SLOTS) if is_mapped else _ALL_SEEN
        return marks
