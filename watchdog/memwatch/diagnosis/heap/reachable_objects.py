"""From the objects that the collector tracks to all that they hold, which it may not: arrays, text, dicts of those.

Chunk by chunk of memory: what an object refers to waits until the chunk that it lies in is read for all that is there.
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
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.diagnosis.heap.remote_object import (
    BODY_MOST,
    FRONT,
    RemoteObject,
    is_plausible_refcount,
    read_remote_object,
)
from memwatch.diagnosis.heap.torch_tensors import CPU_DEVICE, Storage, Tensors
from memwatch.diagnosis.heap.type_objects import HeapType, TypeTable
from memwatch.errors import SourceError, TargetGoneError

LARGE_BYTES = 10 << 20
_SLOTS = CHUNK // SLOT  # no two objects begin in the same
_NOWHERE = bytearray(b"\1") * _SLOTS  # the marks of a chunk in which nothing can lie
_ALONE = 24  # so few objects are read one by one
_STRANGERS_MOST = 1 << 17  # addresses kept that are no types
_HEAD = struct.Struct("<QQ").unpack_from


class ReferenceGraph:
    """Who refers to whom."""

    def __init__(self) -> None:
        self.sources, self.starts, self.targets = array("Q"), array("Q"), array("Q")

    def references_to(self, held: Callable[[int], bool]) -> Iterator[tuple[int, int]]:
        """Each reference to such a one: from, to."""
        for at in compress(count(), map(held, self.targets)):
            yield self.sources[bisect_right(self.starts, at) - 1], self.targets[at]


@dataclass(slots=True)
class TypeTally:
    """A type, and what was met of it."""

    type: HeapType
    measure_object: MeasureObject
    is_wanted: bool
    count: int = 0
    bytes: int = 0
    large: list[tuple[int, int]] = field(default_factory=list)  # bytes and address
    addresses: array[int] = field(default_factory=lambda: array("Q"))  # where it is wanted


@dataclass(frozen=True, slots=True)
class ReachableObjects:
    """What was found."""

    tallies: list[TypeTally]
    graph: ReferenceGraph
    storages: list[Storage]  # of all tensors, each once
    with_graph: int  # tensors that keep the graph of their making
    unread: int  # tensors that are not laid out as expected
    complete: bool


class Walk:
    """One way through a heap, from what a scan has found."""

    def __init__(
        self,
        memory: RemoteMemory,
        types: TypeTable,
        layouts: Layouts,
        wanted: Callable[[HeapType], bool] = lambda _: False,
        left_out: Callable[[HeapType], bool] = lambda _: False,
    ) -> None:
        """The addresses of `wanted` objects are kept; those `left_out` are as if they were not there."""
        self._memory, self._types, self._layouts, self._tensors = memory, types, layouts, Tensors(memory)
        self._wanted, self._left_out = wanted, left_out
        self._seen: dict[int, bytearray] = {0: _NOWHERE}  # marks of what was met, by chunk
        self._waiting: dict[int, array[int]] = {}  # addresses, by chunk
        self._kinds: dict[int, TypeTally | None] = {}  # by the address of the type
        self._graph = ReferenceGraph()
        self._storages: dict[int, Storage] = {}  # by address
        self._with_graph = self._unread = 0  # tensors

    def run(self, starts: Iterable[array[int]], may_go_on: Callable[[], bool]) -> ReachableObjects:
        """The objects at these addresses, and all that they hold. Asked before each chunk of memory is read."""
        for addresses in starts:
            self._follow(addresses)
        complete = True
        while self._waiting and complete:
            chunk = next(iter(self._waiting))
            self._visit(chunk, sorted(self._waiting.pop(chunk)))
            complete = may_go_on()
        kinds, storages = [kind for kind in self._kinds.values() if kind is not None], list(self._storages.values())
        return ReachableObjects(kinds, self._graph, storages, self._with_graph, self._unread, complete)

    def pass_by(self, addresses: Iterable[int]) -> None:
        """Objects at which it is not to go on."""
        self._follow(array("Q", addresses))
        self._waiting.clear()

    def _visit(self, chunk: int, addresses: list[int]) -> None:
        """All that wait in a chunk: in what is read of it at once or, where they are few, one by one."""
        parts = self._memory.writable.within(chunk * CHUNK, (chunk + 1) * CHUNK)
        at = 0
        for low, high in parts:
            end = bisect_left(addresses, high, at)
            inner = bisect_left(addresses, low + FRONT, at), bisect_right(addresses, high - BODY_MOST, at)
            at = bisect_left(addresses, low, at)
            if inner[1] - inner[0] > _ALONE and (raw := self._read(low, high)) is not None:
                self._visit_all(addresses[slice(*inner)], RemoteObject(self._memory, raw, low))
                addresses[slice(*inner)], end = [], end - inner[1] + inner[0]
            for address in addresses[at:end]:
                if (place := read_remote_object(self._memory, self._types, address)) is not None:
                    self._visit_all([address], place)
            at = end

    def _read(self, low: int, high: int) -> bytes | None:
        try:
            return self._memory.read(low, high - low)
        except TargetGoneError:
            raise
        except SourceError:  # unmapped since
            return None

    def _visit_all(self, addresses: list[int], place: RemoteObject) -> None:
        raw, start = place.raw, place.start
        sources, starts, targets = self._graph.sources, self._graph.starts, self._graph.targets
        for address in addresses:
            owners, type_at = _HEAD(raw, address - start)
            kind = self._kind(type_at)
            if kind is None or not is_plausible_refcount(self._memory, owners):
                continue
            place.at, place.heap_type, references = address - start, kind.type, array("Q")
            try:
                size = kind.measure_object(place, references)
            except TargetGoneError:
                raise
            except (SourceError, ValueError, ArithmeticError, struct.error):  # it changed, or never was an object
                continue
            if kind.type.shape == "tensor":
                size += self._storage_bytes(place)
            kind.count += 1
            kind.bytes += size
            if size >= LARGE_BYTES:
                kind.large.append((size, address))
            if kind.is_wanted:
                kind.addresses.append(address)
            if references:
                sources.append(address)
                starts.append(len(targets))
                targets.extend(references)
                self._follow(references)

    def _storage_bytes(self, place: RemoteObject) -> int:
        """Of memory of the host that a tensor shows, when no other one did before."""
        tensor = self._tensors.read(place)
        if tensor is None:
            self._unread += 1
            return 0
        self._with_graph += tensor.has_graph
        storage = tensor.storage
        if storage is None or storage.address in self._storages:
            return 0
        self._storages[storage.address] = storage
        return storage.bytes if storage.device == CPU_DEVICE else 0

    def _kind(self, address: int) -> TypeTally | None:
        if address in self._kinds:
            return self._kinds[address]
        found = self._types.type_at(address)
        kind = None
        if found is not None and not self._left_out(found):
            kind = TypeTally(found, self._layouts.measurer_for(found), self._wanted(found))
        if kind is not None or len(self._kinds) < _STRANGERS_MOST:
            self._kinds[address] = kind
        return kind

    def _follow(self, targets: array[int]) -> None:
        """What was not met yet waits."""
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
        is_there = self._memory.writable.within(chunk * CHUNK, (chunk + 1) * CHUNK)
        marks = self._seen[chunk] = bytearray(_SLOTS) if is_there else _NOWHERE
        return marks
