"""The census: which objects a running CPython holds, of what size, and who keeps them."""

from __future__ import annotations

import re
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain

from memwatch.core.examination import AttributeSize, Census, DeviceStorageTotals, LargeObject, ReferencePath, TypeCount
from memwatch.diagnosis.heap.attribute_path_sizes import (
    AttributePath,
    AttributePathSizer,
    matching_names,
    parse_attribute_path,
)
from memwatch.diagnosis.heap.attribute_values import Attributes
from memwatch.diagnosis.heap.builtin_values import BuiltinValues
from memwatch.diagnosis.heap.cpython_runtime import Interpreter, find_interpreter
from memwatch.diagnosis.heap.gc_object_scan import GcScan, Scanner
from memwatch.diagnosis.heap.object_layouts import NDARRAY_DATA_AT, Layouts
from memwatch.diagnosis.heap.program_modules import LIBRARY, Program, is_of_program, is_owner
from memwatch.diagnosis.heap.reachable_objects import ReachableObjects, Walk
from memwatch.diagnosis.heap.reference_paths import PathRoots, ReferencePathFinder
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.diagnosis.heap.stack_frames import Frames
from memwatch.diagnosis.heap.torch_tensors import Storage
from memwatch.diagnosis.heap.type_objects import HeapType, TypeTable

CPU_SECONDS = 60.0  # that a census may take
MAX_LARGE_OBJECTS = 20  # objects told one by one
CONTAINERS = 8  # attributes whose size is told because they hold the most
ALWAYS_TRACED_TYPES = ("numpy.ndarray", "torch.Tensor")  # which may be most of the memory, be there few or many
_TRIES = 3
_STEPS_MOST = 8
_ATTRIBUTE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")


@dataclass(frozen=True, slots=True)
class CensusOptions:
    """What a census is to tell besides the counts of what the collector tracks."""

    bytes: bool = False  # and all that is held by it
    traced_types: tuple[str, ...] = ()  # of the objects of these types: "numpy.ndarray", "ndarray"
    trace_most_frequent: int = 0  # and of so many types with the most objects, those of the main program first
    attribute_paths: tuple[AttributePath, ...] = ()
    containers: bool = False  # and how much the attributes hold in all that the holders' ways begin with
    cpu_seconds: float = CPU_SECONDS

    @property
    def is_deep(self) -> bool:
        """More than counting is needed."""
        return self.bytes or bool(
            self.traced_types or self.trace_most_frequent or self.attribute_paths or self.containers
        )


def take_census(
    pid: int,
    wish: CensusOptions | None = None,
    root: str = "/proc",
    resident: Callable[[int, int], int | None] | None = None,
) -> Census:
    """What the CPython of process `pid` holds. SourceError, with a hint, when its heap cannot be read.

    `resident` tells how many of so many bytes from an address on are in memory.
    """
    with closing(RemoteMemory(pid, root)) as memory:
        return census_of(memory, find_interpreter(memory, root), wish or CensusOptions(), resident)


def census_of(
    memory: RemoteMemory,
    interpreter: Interpreter,
    wish: CensusOptions,
    resident: Callable[[int, int], int | None] | None = None,
) -> Census:
    """The same of a process whose interpreter is known."""
    return _Taking(memory, interpreter, wish, resident).census()


class _Taking:
    """One census."""

    def __init__(
        self,
        memory: RemoteMemory,
        interpreter: Interpreter,
        wish: CensusOptions,
        resident: Callable[[int, int], int | None] | None,
    ) -> None:
        self._memory, self._interpreter, self._wish, self._resident = memory, interpreter, wish, resident
        self._began = time.process_time()
        self._objects = BuiltinValues(memory, interpreter.minor)
        self._types = TypeTable(memory, self._objects)
        self._layouts = Layouts(self._objects)
        self._attributes = Attributes(memory, self._objects, self._types, self._layouts)

    def census(self) -> Census:
        scan, disturbed = self._scan()
        if not self._wish.is_deep:
            types = self._counted(scan)
            return Census(self._interpreter.version, self._spent(), scan.complete, disturbed, types)
        variables = Frames(self._memory, self._interpreter).local_variables()
        walk = Walk(self._memory, self._types, self._layouts, wanted=self._is_wanted)
        reached = walk.run(chain(scan.addresses(), [array("Q", variables)]), self._may_go_on)
        program, types = (
            Program(self._attributes, reached.tallies, f"{self._memory.folder}/root"),
            self._measured(reached),
        )
        holders = ReferencePathFinder(
            reached.graph, self._attributes, PathRoots(program.owners, variables), self._may_go_on
        )
        large, held = self._large(reached, holders), self._holders(reached, holders, self._held(types, program))
        self._memory.refresh()  # what was made since lies in new mappings, and belongs to the sizes of this moment
        tracked = tuple(self._sized(self._wish.attribute_paths, reached))
        containers = self._containers(types, held, reached) if self._wish.containers else ()
        has_tensors = any(kind.type.shape == "tensor" for kind in reached.tallies)
        return Census(
            python=self._interpreter.version,
            seconds=self._spent(),
            complete=scan.complete and reached.complete and self._may_go_on(),
            disturbed=disturbed,
            types=types,
            large=large,
            storages=_by_device(reached.storages),
            tensors_with_graph=reached.with_graph if has_tensors else None,
            tensors_unread=reached.unread,
            holders=held,
            tracked=tracked,
            containers=containers,
        )

    def _scan(self) -> tuple[GcScan, bool]:
        """What is tracked; whether that may be too little, because each time a collection went on."""
        for _ in range(_TRIES):
            before = self._interpreter.collection_counts(self._memory)
            scan = Scanner(self._memory, self._interpreter, self._types).scan(self._may_go_on)
            disturbed = -1 in before or self._interpreter.collection_counts(self._memory) != before
            if not disturbed or not scan.complete:
                break
        return scan, disturbed

    def _held(self, types: Iterable[TypeCount], program: Program) -> tuple[str, ...]:
        """The types of which it is told who holds their objects."""
        if not self._wish.trace_most_frequent:
            return self._wish.traced_types
        own = [one for one in types if is_of_program(one.type) and program.distance(one.type) < LIBRARY]
        own.sort(key=lambda one: (program.distance(one.type), -one.count))
        return (
            *self._wish.traced_types,
            *ALWAYS_TRACED_TYPES,
            *(one.type for one in own[: self._wish.trace_most_frequent]),
        )

    def _is_wanted(self, kind: HeapType) -> bool:
        return (
            is_owner(kind)
            or ((self._wish.containers or self._wish.trace_most_frequent > 0) and _may_be_held(kind))
            or any(_is_called(kind, name) for name in self._wish.traced_types)
            or any(matching_names(track, kind.name) for track in self._wish.attribute_paths)
        )

    def _may_go_on(self) -> bool:
        return time.process_time() - self._began < self._wish.cpu_seconds

    def _spent(self) -> float:
        return round(time.process_time() - self._began, 3)

    def _counted(self, scan: GcScan) -> tuple[TypeCount, ...]:
        counts: Counter[str] = Counter()
        for address, count in scan.counts.items():
            counts[self._types.gc_types[address].name] += count
        return tuple(TypeCount(name, count, None, tracked=True) for name, count in counts.most_common())

    def _measured(self, reached: ReachableObjects) -> tuple[TypeCount, ...]:
        counts: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for kind in reached.tallies:
            counts[kind.type.name] += kind.count
            sizes[kind.type.name] += kind.bytes
        tracked = {kind.type.name for kind in reached.tallies if kind.type.is_gc_tracked}
        return tuple(TypeCount(name, counts[name], size, name in tracked) for name, size in sizes.most_common())

    def _large(self, reached: ReachableObjects, holders: ReferencePathFinder) -> tuple[LargeObject, ...]:
        all_large = ((size, address, kind.type.name) for kind in reached.tallies for size, address in kind.large)
        largest = sorted(all_large, reverse=True)[:MAX_LARGE_OBJECTS]
        paths = holders.paths([address for _, address, _ in largest])
        return tuple(
            LargeObject(name, size, paths.get(address, ""), self._in_memory(address, size))
            for size, address, name in largest
        )

    def _in_memory(self, address: int, size: int) -> int | None:
        """How much of an array's memory was ever written to: numpy.zeros takes pages as they are filled."""
        place = self._attributes.object_at(address) if self._resident is not None else None
        if self._resident is None or place is None or place.heap_type.shape != "ndarray":
            return None
        return self._resident(place.word(NDARRAY_DATA_AT), size)

    def _holders(
        self, reached: ReachableObjects, holders: ReferencePathFinder, names: Sequence[str]
    ) -> tuple[ReferencePath, ...]:
        addresses: dict[str, list[int]] = defaultdict(list)
        for kind in sorted(reached.tallies, key=lambda kind: -kind.bytes):
            if any(_is_called(kind.type, name) for name in names):
                addresses[kind.type.name] += kind.addresses
        return tuple(holder for name, found in addresses.items() for holder in holders.paths_to_type(name, found))

    def _sized(self, wanted: Iterable[AttributePath], reached: ReachableObjects) -> Iterator[AttributeSize]:
        tracks = AttributePathSizer(self._attributes, partial(Walk, self._memory, self._types, self._layouts))
        instances = [(kind.type, kind.addresses) for kind in reached.tallies]
        yield from (tracks.size(track, instances, self._may_go_on) for track in wanted)

    def _containers(
        self, types: Sequence[TypeCount], held: Sequence[ReferencePath], reached: ReachableObjects
    ) -> tuple[AttributeSize, ...]:
        """The attributes that hold the most, as far as the size of what is right at the ends of the ways tells."""
        mean = {one.type: (one.bytes or 0) / one.count for one in types if one.count}
        several = {one.type for one in types if one.count > 1}
        owners = {one.type: root for one in reversed(held) if one.type in several and (root := _root(one.path))}
        sizes: Counter[str] = Counter()
        for one in held:
            if (root := _root(one.path)) is not None:
                sizes[_outermost(root, owners)] += int(one.count * mean.get(one.type, 0.0))
        found = self._sized([parse_attribute_path(root) for root, _ in sizes.most_common(CONTAINERS)], reached)
        return tuple(sorted((one for one in found if one.bytes), key=lambda one: -(one.bytes or 0)))


def _by_device(storages: Iterable[Storage]) -> tuple[DeviceStorageTotals, ...]:
    sizes: dict[str, list[int]] = defaultdict(list)
    for storage in storages:
        sizes[storage.device].append(storage.bytes)
    return tuple(DeviceStorageTotals(device, len(found), sum(found)) for device, found in sorted(sizes.items()))


def _root(path: str) -> str | None:
    """The attribute that a way begins with; None where it begins with none of the program."""
    root = path.partition("[")[0]
    return (
        root
        if is_of_program(root) and _ATTRIBUTE.fullmatch(root) and not root.startswith(ALWAYS_TRACED_TYPES)
        else None
    )


def _outermost(root: str, owners: Mapping[str, str]) -> str:
    """The attribute of which this is one of what it holds: Trainer.kept, for Loss.inputs of the losses in it."""
    for _ in range(_STEPS_MOST):
        owner = next((name for name in owners if root.startswith(f"{name}.")), None)
        if owner is None or owners[owner] == root:
            break
        root = owners[owner]
    return root


def _may_be_held(kind: HeapType) -> bool:
    """Who holds its objects may be told."""
    return kind.name in ALWAYS_TRACED_TYPES or is_of_program(kind.name)


def _is_called(kind: HeapType, name: str) -> bool:
    """A type is named in full, or by the end of that."""
    return kind.name == name or kind.name.endswith(f".{name}")
