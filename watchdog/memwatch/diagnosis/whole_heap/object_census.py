"""The census: the objects of a running CPython by type, their sizes, and the attributes that keep them."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

from memwatch.core.examination import AttributeSize, Census, DeviceStorageTotals, LargeObject, ReferencePath, TypeCount
from memwatch.diagnosis.heap.attribute_path_syntax import AttributePath, parse_attribute_path
from memwatch.diagnosis.heap.attributes import BOOKKEEPING, Attributes, is_program
from memwatch.diagnosis.heap.cpython_runtime import Interpreter, find_interpreter
from memwatch.diagnosis.heap.object_layouts import NDARRAY_DATA_AT, Layouts
from memwatch.diagnosis.heap.program_modules import is_of_program
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.diagnosis.heap.remote_objects import BuiltinValues, HeapType, TypeTable
from memwatch.diagnosis.heap.stack_frames import Frames
from memwatch.diagnosis.heap.torch_tensors import Storage
from memwatch.diagnosis.whole_heap.attribute_sizes import AttributePathSizer
from memwatch.diagnosis.whole_heap.bulk_layouts import BulkLayouts
from memwatch.diagnosis.whole_heap.gc_object_scan import GcScan, Scanner
from memwatch.diagnosis.whole_heap.program_namespaces import LIBRARY, Program
from memwatch.diagnosis.whole_heap.reachable_objects import HeapObjects, HeapWalk
from memwatch.diagnosis.whole_heap.reference_names import ReferenceNames
from memwatch.diagnosis.whole_heap.reference_paths import ReferencePathFinder

CPU_SECONDS = 60.0  # that a census may take by default (chosen)
LARGE_BYTES = 10 << 20  # An object from this size on is listed by itself (chosen).
MAX_LARGE_OBJECTS = 20  # Objects that are listed one by one (chosen).
GENERATORS = ("generator", "coroutine", "async_generator")
MAX_GENERATORS = 4096  # of which those that wait are looked for: 5 us each (measured)
MAX_WAITING = 64  # Of more of these, it is looked for who keeps them, and not for names in each (chosen).
MAX_CONTAINERS = 8  # Attributes whose size is measured because they hold the most (chosen).
ALWAYS_TRACED_TYPES = ("numpy.ndarray", "torch.Tensor")  # Even a few of these may be most of the memory.
DATA_TYPES, MOST_DATA = ("bytearray", "bytes", "str", "array.array"), 0.25  # traced where they take this share (chosen)
_TRIES = 3  # of a scan that a full collection disturbed
_BOOKKEEPING_ITEM = re.compile(rf"\.(?:{'|'.join(BOOKKEEPING)})\[")
_MAX_STEPS = 8  # from an attribute to its owner's: a bound against circles
_ATTRIBUTE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")

ResidentBytes = Callable[[int, int], int | None]  # (address, bytes) -> how many of these bytes are in memory


@dataclass(frozen=True, slots=True)
class CensusOptions:
    """The parts of a census beside the counts of tracked objects."""

    bytes: bool = False  # sizes, also of objects that are not tracked
    traced_types: tuple[str, ...] = ()  # reference paths to the objects of these types: "numpy.ndarray", "ndarray"
    trace_most_frequent: int = 0  # and to those of so many types with the most objects, the main program's first
    attribute_paths: tuple[AttributePath, ...] = ()
    containers: bool = False  # sizes of the attributes at which the reference paths begin
    cpu_seconds: float = CPU_SECONDS

    @property
    def is_deep(self) -> bool:
        """Whether more than counting is needed."""
        traced = self.traced_types or self.trace_most_frequent
        return self.bytes or bool(traced or self.attribute_paths or self.containers)


def take_census(pid: int, options: CensusOptions | None = None, resident: ResidentBytes | None = None) -> Census:
    """Take a census of process `pid`; SourceError, with a hint, when its heap cannot be read."""
    with closing(RemoteMemory(pid)) as memory:
        return CensusTaker(memory, find_interpreter(memory), options or CensusOptions(), resident).census()


class CensusTaker:
    """Takes one census of a process whose interpreter is known."""

    def __init__(
        self, memory: RemoteMemory, interpreter: Interpreter, options: CensusOptions, resident: ResidentBytes | None
    ) -> None:
        self._memory, self._interpreter, self._options, self._resident = memory, interpreter, options, resident
        self._began = time.process_time()
        self._types_so_far: tuple[TypeCount, ...] = ()
        self._are_types_complete = False
        self._measured_from: float | None = None  # by the clock, when sizes of attributes began to be read
        builtins = BuiltinValues(memory, interpreter.minor)
        self._types, self._layouts = TypeTable(memory, builtins), Layouts(builtins)
        self._attributes = Attributes(memory, builtins, self._types, self._layouts)

    def census(self) -> Census:
        scan, disturbed = self._scan()
        listed = time.monotonic()
        found = self._of_listed(scan, disturbed)
        ended = time.monotonic()
        measured = ended if self._measured_from is None else self._measured_from
        return replace(found, sizing_seconds=round(ended - listed, 3), measuring_seconds=round(ended - measured, 3))

    def _of_listed(self, scan: GcScan, disturbed: bool) -> Census:
        if self._options.is_deep:
            with suppress(MemoryError, SystemError):  # SystemError: C code of Python's swallowed a MemoryError
                return self._deep(scan, disturbed)
        is_complete = self._are_types_complete or (scan.complete and not self._options.is_deep)
        types = self._types_so_far or self._counted(scan)
        is_traced = not self._options.is_deep
        return Census(self._interpreter.version, self._spent(), is_complete, disturbed, types, traced=is_traced)

    def _deep(self, scan: GcScan, disturbed: bool) -> Census:
        """Go on from tracked objects to all that they hold; `_types_so_far` is left where memory does not suffice."""
        variables = self._local_variables(scan)
        layouts = BulkLayouts(self._memory, self._types, self._layouts)
        starts = np.concatenate([scan.addresses, np.fromiter(variables, np.uint64)])
        heap = HeapWalk(self._memory, layouts).walk(starts, self._may_go_on)
        types = self._types_so_far = _measured(heap)
        self._are_types_complete = scan.complete and heap.complete
        program = Program(heap, layouts, self._attributes, f"{self._memory.folder}/root")
        names = ReferenceNames(heap, layouts, self._attributes)
        finder = ReferencePathFinder(heap, names, program, variables, self._may_go_on)
        large, holders = self._large(heap, finder), self._holders(heap, finder, self._traced(types, program))
        self._measured_from = time.monotonic()
        self._memory.refresh()  # New objects lie in new mappings, and belong to the sizes of this moment.
        data = BulkLayouts(self._memory, self._types, self._layouts, is_program)
        new_walk = partial(HeapWalk, self._memory, data)
        sizer = AttributePathSizer(self._attributes, self._layouts, heap, program, new_walk)
        tracked = tuple(sizer.size(path, self._may_go_on) for path in self._options.attribute_paths)
        containers = self._containers(types, holders, sizer) if self._options.containers else ()
        has_tensors = any(kind.shape == "tensor" for kind in heap.types)
        return Census(
            python=self._interpreter.version,
            seconds=self._spent(),
            complete=scan.complete and heap.complete and self._may_go_on(),
            disturbed=disturbed,
            types=types,
            large=large,
            storages=_by_device(layouts.tensors.storages.values()),
            tensors_with_graph=layouts.tensors.with_graph if has_tensors else None,
            tensors_unread=layouts.tensors.unread,
            collector_enabled=self._interpreter.is_collector_enabled(self._memory),
            holders=holders,
            tracked=tracked,
            containers=containers,
        )

    def _local_variables(self, scan: GcScan) -> dict[int, str]:
        """Return the names of local variables by their values: those of threads, and of a few generators that wait."""
        frames = Frames(self._memory, self._interpreter)
        types = [kind.address for kind in self._types.gc_types.values() if kind.name in GENERATORS]
        generators = scan.addresses[np.isin(scan.types, np.array(types, np.uint64))].tolist()
        objects = filter(None, map(self._attributes.object_at, generators[:MAX_GENERATORS]))
        waiting = list(islice(filter(frames.is_waiting, objects), MAX_WAITING + 1))
        return frames.waiting_variables(waiting if len(waiting) <= MAX_WAITING else ()) | frames.local_variables()

    def _scan(self) -> tuple[GcScan, bool]:
        """Scan for tracked objects; True when a full collection ran each time, so that counts may be too low."""
        for _ in range(_TRIES):
            before = self._interpreter.collection_counts(self._memory)
            scan = Scanner(self._memory, self._interpreter, self._types).scan(self._may_go_on)
            disturbed = -1 in before or self._interpreter.collection_counts(self._memory) != before
            if not disturbed or not scan.complete:
                break
        return scan, disturbed

    def _traced(self, types: Iterable[TypeCount], program: Program) -> tuple[str, ...]:
        """Return the types to whose objects reference paths are sought."""
        most = self._options.trace_most_frequent
        if not most:
            return self._options.traced_types
        own = [found for found in types if is_of_program(found.type) and program.distance(found.type) < LIBRARY]
        own.sort(key=lambda found: (program.distance(found.type), -found.count))
        total = sum(found.bytes or 0 for found in types)
        data = [found.type for found in types if found.type in DATA_TYPES and (found.bytes or 0) >= MOST_DATA * total]
        return (*self._options.traced_types, *ALWAYS_TRACED_TYPES, *data, *(found.type for found in own[:most]))

    def _may_go_on(self) -> bool:
        return time.process_time() - self._began < self._options.cpu_seconds

    def _spent(self) -> float:
        return round(time.process_time() - self._began, 3)

    def _counted(self, scan: GcScan) -> tuple[TypeCount, ...]:
        counts: Counter[str] = Counter()
        for address, count in zip(*(part.tolist() for part in np.unique(scan.types, return_counts=True)), strict=True):
            counts[self._types.gc_types[address].name] += count
        return tuple(TypeCount(name, count, None, tracked=True) for name, count in counts.most_common())

    def _large(self, heap: HeapObjects, finder: ReferencePathFinder) -> tuple[LargeObject, ...]:
        found = np.flatnonzero(heap.sizes >= LARGE_BYTES)
        largest = found[np.argsort(-heap.sizes[found], kind="stable")][:MAX_LARGE_OBJECTS].tolist()
        paths = finder.shortest_paths(largest)
        rows = (
            (int(heap.addresses[one]), int(heap.sizes[one]), heap.types[heap.kinds[one]].name, one) for one in largest
        )
        return tuple(
            LargeObject(name, size, paths.get(one, ""), self._resident_bytes(address, size))
            for address, size, name, one in rows
        )

    def _resident_bytes(self, address: int, size: int) -> int | None:
        """Return how much of an array was ever written: numpy.zeros gets its pages as they are filled."""
        obj = self._attributes.object_at(address) if self._resident is not None else None
        if self._resident is None or obj is None or obj.heap_type.shape != "ndarray":
            return None
        return self._resident(obj.word(NDARRAY_DATA_AT), size)

    def _holders(
        self, heap: HeapObjects, finder: ReferencePathFinder, names: Sequence[str]
    ) -> tuple[ReferencePath, ...]:
        called = {kind.name for kind in heap.types if any(_is_called(kind, name) for name in names)}
        objects = {name: heap.of_types(partial(_has_name, name)) for name in sorted(called)}
        paths = defaultdict[str, list[ReferencePath]](list)
        for path in finder.paths_to_types({name: found for name, found in objects.items() if len(found)}):
            paths[path.type].append(path)
        return tuple(path for found in paths.values() for path in _real(found))

    def _containers(
        self, types: Sequence[TypeCount], holders: Sequence[ReferencePath], sizer: AttributePathSizer
    ) -> tuple[AttributeSize, ...]:
        """Return the attributes that hold the most, chosen by the mean size of the objects at the ends of the paths."""
        mean = {found.type: (found.bytes or 0) / found.count for found in types if found.count}
        several = {found.type for found in types if found.count > 1}
        owners = {path.type: root for path in reversed(holders) if path.type in several and (root := _root(path.path))}
        sizes: Counter[str] = Counter()
        for path in holders:
            if (root := _root(path.path)) is not None:
                sizes[_outermost(root, owners)] += int(path.count * mean.get(path.type, 0.0))
        roots = [parse_attribute_path(root) for root, _ in sizes.most_common(MAX_CONTAINERS)]
        largest = [sizer.size(root, self._may_go_on) for root in roots]
        return tuple(sorted((size for size in largest if size.bytes), key=lambda size: -(size.bytes or 0)))


def _has_name(name: str, kind: HeapType) -> bool:
    return kind.name == name


def _measured(heap: HeapObjects) -> tuple[TypeCount, ...]:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    number = np.bincount(heap.kinds, minlength=len(heap.types)).tolist()
    size = np.bincount(heap.kinds, heap.sizes, len(heap.types)).tolist()
    for i, kind in enumerate(heap.types):
        counts[kind.name] += number[i]
        sizes[kind.name] += int(size[i])
    tracked = {kind.name for kind in heap.types if kind.is_gc_tracked}
    found = ((name, counts[name], size) for name, size in sizes.most_common() if counts[name])
    return tuple(TypeCount(name, count, size, name in tracked) for name, count, size in found)


def _real(paths: list[ReferencePath]) -> list[ReferencePath]:
    """Return the paths that do not lead through a dict of variables; all where there is no other."""
    return [path for path in paths if not _BOOKKEEPING_ITEM.search(path.path)] or paths


def _by_device(storages: Iterable[Storage]) -> tuple[DeviceStorageTotals, ...]:
    sizes: dict[str, list[int]] = defaultdict(list)
    for storage in storages:
        sizes[storage.device].append(storage.bytes)
    return tuple(DeviceStorageTotals(device, len(found), sum(found)) for device, found in sorted(sizes.items()))


def _root(path: str) -> str | None:
    """Return the attribute that a path begins with; None where it begins with none of the program."""
    root = path.partition("[")[0]
    if root.rpartition(".")[2] in BOOKKEEPING:
        return None
    is_attribute = is_of_program(root) and _ATTRIBUTE.fullmatch(root)
    return root if is_attribute and not root.startswith(ALWAYS_TRACED_TYPES) else None


def _outermost(root: str, owners: Mapping[str, str]) -> str:
    """Return the attribute that holds the owners of `root`: Trainer.kept, for Loss.inputs of the losses in it."""
    for _ in range(_MAX_STEPS):
        owner = next((name for name in owners if root.startswith(f"{name}.")), None)
        if owner is None or owners[owner] == root:
            break
        root = owners[owner]
    return root


def _is_called(kind: HeapType, name: str) -> bool:
    """Whether a type has this full name, or one that ends with it."""
    return kind.name == name or kind.name.endswith(f".{name}")
