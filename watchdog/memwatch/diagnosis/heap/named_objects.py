"""A first, cheap look at a heap: the containers and arrays that the program itself can name, with estimated sizes.

It goes from the variables of all frames and from the globals of the program's own modules by attributes and keys, and
estimates what a container holds from a sample of its items. A whole census reads every object instead.
"""

from __future__ import annotations

import math
import struct
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from typing import NamedTuple

from memwatch.core.examination import (
    ITEM_ENDS,
    LOCAL_VARIABLE_PREFIX,
    AttributeSize,
    Census,
    GraphDepth,
    LargeObject,
    ReferencePath,
    TypeCount,
)
from memwatch.diagnosis.heap.attributes import (
    BOOKKEEPING,
    FEW_NAMES,
    LRU_CACHE,
    LRU_CACHE_AT,
    TYPE_AT,
    Attributes,
    Way,
    is_program,
    items_and_capacity,
)
from memwatch.diagnosis.heap.cpython_runtime import Interpreter, find_interpreter
from memwatch.diagnosis.heap.native_memory import NativeMemory
from memwatch.diagnosis.heap.object_layouts import (
    NDARRAY_BASE_AT,
    NDARRAY_DATA_AT,
    NDARRAY_DIMENSIONS_AT,
    NDARRAY_SHAPE_AT,
    QUEUE_LIST_AT,
    RING_BEHIND,
    RING_COUNT_AT,
    RING_FIRST_AT,
    RING_TABLE_AT,
    TRACEBACK_FRAME_AT,
    TRACEBACK_NEXT_AT,
    Layouts,
)
from memwatch.diagnosis.heap.program_modules import is_installed
from memwatch.diagnosis.heap.remote_memory import Hop, RemoteMemory, UnreadableError, WayToValue, follow
from memwatch.diagnosis.heap.remote_objects import REFCOUNT_BITS, BuiltinValues, HeapType, RemoteObject, TypeTable
from memwatch.diagnosis.heap.stack_frames import Frames
from memwatch.diagnosis.heap.torch_tensors import Tensors
from memwatch.errors import SourceError

MAX_OBJECTS = 20_000  # Objects that are read: a bound on time; one takes 15 to 40 us (measured).
NAMES_SECONDS, CONTENT_SECONDS = 0.12, 0.12  # of CPU, for names and for what they hold (chosen)
CONTENT_SHARE = 0.25  # of the time that is left for one container: what comes after it is to be seen, too (chosen)
LARGE_BYTES = 1 << 20  # An array from this size on is listed by itself, with its resident part (chosen).
MAX_CONTAINERS, MAX_ARRAYS, MAX_HOLDERS, MAX_GRAPH_PATHS = 64, 20, 128, 16  # that are reported, the largest (chosen)
_MAX_STEPS = 7  # attributes from a variable to a container (chosen)
_SAMPLED, _SAMPLED_INSIDE, _MAX_INSIDE = 16, 4, 6  # items of a container, of one in it, and levels (chosen)
_RECORD_LEVEL = 0.25  # of a level: for what has a few parts, as a bound method, a tuple or a dict of names (chosen)
_MAX_NATIVE_KINDS = 4  # of objects in one container whose memory of C code is measured: a bound on time (chosen)
_MAX_TRACEBACKS = 32  # of one exception: a bound on time
_MAX_ATTRIBUTES = 200  # of one object that are followed: a bound on time
_SEQUENCES = {"list": "[i]", "tuple": "[i]", "deque": "[i]", "queue": "[i]", "set": "{i}"}
_CONTAINERS = {*_SEQUENCES, "dict"}
_TEXTS = {"str", "bytes", "bytearray", "int", "array"}  # shapes without references
_ARRAYS = {"ndarray", "tensor"}
_CALLABLE = ("function", "method")
_MMAP = "mmap.mmap"  # its address and its size follow the object's head
_IN_MEMORY = ("_io.StringIO", "_io.BytesIO")  # files that refer to what was written to them
_WRITER_AT, _WRITER_BEHIND = 56, (3, 14)  # in a StringIO: since that version, the address of what refers to its text
_MODULE_KEYS = 16  # of a module's dict: its name, its file and the like come first; torch's has 1,500, read in 30 ms
_WARNED = "__warningregistry__"  # of a module: the text of each warning is a key
_ITERATORS = ("iterator", "generator", "coroutine", "enumerate", "zip", "map", "filter")
_DEQUE_ITEMS_AT, _DEQUE_BLOCK_ITEMS, _DEQUE_BYTES = 8, 64, 528
_BROKEN = (SourceError, ValueError, ArithmeticError, struct.error)  # An object changed while it was read.

ResidentBytes = Callable[[int, int], int | None]


@dataclass(slots=True)
class _Named:
    """A container or array with a name."""

    path: str
    obj: RemoteObject
    owner: RemoteObject | None  # whose attribute it is
    way: WayToValue | None  # to it


class _Waiting(NamedTuple):
    """A name that is to be followed."""

    address: int  # of what it refers to
    path: str
    owner: RemoteObject | None
    steps: int  # from a variable
    way: WayToValue | None = None
    obj: RemoteObject | None = None  # once it was read


@dataclass(frozen=True, slots=True)
class _Met:
    """An object that was met in a container."""

    number: float  # of objects that it stands for
    bytes: int
    kind: str
    path: str
    references: int  # to it, or to what leads to it from the container's item: the most of them


@dataclass(slots=True)
class _Content:
    """What was met in a container, by address."""

    found: dict[int, _Met] = field(default_factory=dict)

    def add_sample(self, parts: Sequence[_Content], weight: float, references: int) -> None:
        """Add what was met in each sampled item, `weight` items for each; `references`: to the container.

        What several items share stands for fewer: as many references lead to it from all of them as it has. That is
        so, too, for what was met in one item, where others of its kind are shared by neighbours: the next state of a
        step and the state of the one that follows.
        """
        times = Counter(address for part in parts for address in part.found)
        met = {address: one for part in reversed(parts) for address, one in part.found.items()}
        numbers = {address: weight * n / max(n, met[address].references) for address, n in times.items()}
        shared = {met[address].kind for address, n in times.items() if n > 1 and numbers[address] >= n}
        for address, one in met.items():
            is_shared = times[address] > 1 or one.kind in shared
            number = one.number * (max(1.0, numbers[address]) if is_shared and weight > 1.0 else weight)
            self.found.setdefault(address, replace(one, number=number, references=max(one.references, references)))

    def share_of(self, address: int) -> _Content:
        """Return the share that one reference has in this object and all that was met in it, where many others hold it.

        A few are the hooks of one object in several places: what it holds belongs to these.
        """
        one = self.found.get(address)
        if one is None or one.references <= FEW_NAMES:
            return self
        each = 1.0 / one.references
        return _Content({met: replace(part, number=each * part.number) for met, part in self.found.items()})

    @property
    def bytes(self) -> int:
        return int(sum(one.number * one.bytes for one in self.found.values()))


class _KnownContent(NamedTuple):
    """What was met in a part of a container, and how deep in it; `is_sample` as in `_content`."""

    content: _Content
    level: float
    is_sample: bool


def look_at_names(
    pid: int,
    resident: ResidentBytes | None = None,
    *,
    names_seconds: float = NAMES_SECONDS,
    content_seconds: float = CONTENT_SECONDS,
) -> tuple[Census, int | None]:
    """Look at process `pid`; return a census of estimates, and the number of tracked objects, None if not known.

    It takes so many seconds of CPU at most. SourceError, with a hint, when its heap cannot be read.
    """
    began = time.process_time()
    with closing(RemoteMemory(pid)) as memory:
        interpreter = find_interpreter(memory)
        census = NamedObjects(memory, interpreter, resident).census(began, names_seconds, content_seconds)
        return census, interpreter.tracked_objects(memory)


class NamedObjects:
    """Takes one look at a process whose interpreter is known."""

    def __init__(self, memory: RemoteMemory, interpreter: Interpreter, resident: ResidentBytes | None) -> None:
        self._memory, self._interpreter, self._resident = memory, interpreter, resident
        self._builtins = BuiltinValues(memory, interpreter.minor)
        self._types, self._layouts = TypeTable(memory, self._builtins), Layouts(self._builtins)
        self._attributes = Attributes(memory, self._builtins, self._types, self._layouts)
        self._tensors, self._frames = Tensors(memory), Frames(memory, interpreter)
        self._most_bytes = sum(high - low for low, high in memory.writable.bounds())  # that anything may take
        self._seen: set[int] = set()  # objects that have a name
        self._objects_read, self._deadline = 0, 0.0
        # Of the parts of one container, by address: what many of them refer to is read once.
        self._known: dict[int, _KnownContent] = {}
        self._arrays: dict[int, LargeObject] = {}
        self._graphs: dict[int, int] = {}  # depths of the autograd graphs of tensors, by the tensor's address
        self._native = NativeMemory(memory)
        self._native_words: dict[int, array[int]] = {}  # of objects that C code lays out, by address
        self._own_modules: set[str] = set()

    def census(self, began: float, names_seconds: float, content_seconds: float) -> Census:
        self._deadline = time.process_time() + names_seconds
        named = self._named()
        containers: dict[str, list[tuple[_Named, int]]] = {}
        counts: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        paths: Counter[tuple[str, str]] = Counter()
        path_sizes: Counter[tuple[str, str]] = Counter()
        graphs, graph_paths, depths = 0.0, dict[str, None](), dict[str, int]()
        for one, content in self._contents(named, time.process_time() + content_seconds):
            containers.setdefault(one.path, []).append((one, content.bytes))
            kept = {address: content.found[address] for address in self._graphs.keys() & content.found.keys()}
            for address, met in kept.items():
                if not met.path.endswith(ITEM_ENDS):  # of many items each has a graph of its own
                    depths[met.path] = max(depths.get(met.path, 0), self._graphs[address])
            graphs += sum(met.number for met in kept.values())
            named_graphs = sorted(met.path for met in kept.values() if not met.path.startswith(LOCAL_VARIABLE_PREFIX))
            graph_paths |= dict.fromkeys(named_graphs)
            for met in content.found.values():
                counts[met.kind] += round(met.number)
                sizes[met.kind] += round(met.number * met.bytes)
                paths[met.kind, met.path] += round(met.number)
                path_sizes[met.kind, met.path] += round(met.number * met.bytes)
        totals = {path: sum(size for _, size in parts) for path, parts in containers.items()}
        reported = sorted(
            totals, key=lambda path: (not path.startswith("__main__.") or path.count(".") > 1, -totals[path])
        )[:MAX_CONTAINERS]
        return Census(
            python=self._interpreter.version,
            seconds=round(time.process_time() - began, 3),
            complete=True,
            disturbed=False,
            types=tuple(TypeCount(kind, counts[kind], size, True) for kind, size in sizes.most_common()),
            large=tuple(sorted(self._arrays.values(), key=lambda large: -large.bytes)[:MAX_ARRAYS]),
            tensors_with_graph=round(graphs) if self._tensors.storages else None,
            graph_paths=tuple(graph_paths)[:MAX_GRAPH_PATHS],
            graph_depths=tuple(
                GraphDepth(path, nodes)
                for path, nodes in sorted(depths.items(), key=lambda found: -found[1])[:MAX_GRAPH_PATHS]
                if nodes
            ),
            holders=tuple(
                ReferencePath(kind, path, paths[kind, path], counts[kind])
                for (kind, path), _ in path_sizes.most_common(MAX_HOLDERS)
                if paths[kind, path]
            ),
            containers=tuple(
                self._size(path, containers[path], totals[path]) for path in sorted(reported, key=lambda p: -totals[p])
            ),
        )

    def _contents(self, named: Sequence[_Named], end: float) -> list[tuple[_Named, _Content]]:
        """Read what these hold until a time, in their order; without those for which it did not suffice.

        Each has an equal share of the time, and then those for which that does not suffice, as of options that
        refer to each other, have what is left.
        """
        found, unfinished = dict[int, tuple[_Named, _Content]](), dict[int, dict[int, _KnownContent]]()
        for i, one in enumerate(named):
            now = time.process_time()
            self._deadline = now + (end - now) / (len(named) - i)
            if not self._may_go_on():  # What is further away is left out.
                break
            self._known = {}
            if (read := self._read(one)) is not None:
                found[i] = read
            if not self._may_go_on():
                unfinished[i] = self._known
        for i, self._known in unfinished.items():
            now = time.process_time()
            self._deadline = now + CONTENT_SHARE * (end - now)
            if self._may_go_on() and (read := self._read(named[i])) is not None:
                found[i] = read
        return [found[i] for i in sorted(found)]

    def _read(self, found_before: _Named) -> tuple[_Named, _Content] | None:
        """Return what a name refers to now, with what that holds; None where it changes too fast, or is another."""
        one = self._present(found_before)
        content = None if one is None else self._content(one.obj, one.path)
        if one is None or content is None or self._is_elsewhere(one):
            return None
        self._add_native_memory(content)
        return one, content

    def _add_native_memory(self, content: _Content) -> None:
        """Add what C code has allocated for objects of which a container holds several alike."""
        alike: dict[tuple[str, str], list[int]] = {}
        for address, met in content.found.items():
            if address in self._native_words:
                alike.setdefault((met.kind, met.path), []).append(address)
        kinds = sorted(alike.values(), key=len, reverse=True)[:_MAX_NATIVE_KINDS]
        words = [[self._native_words[address] for address in addresses] for addresses in kinds]
        for addresses, behind in zip(kinds, self._native.bytes_behind(words), strict=True):
            for address in addresses if behind else ():
                met = content.found[address]
                content.found[address] = replace(met, bytes=met.bytes + behind)

    def _present(self, one: _Named) -> _Named | None:
        """Return what the name refers to now; None where that is nothing, or of another type."""
        address = one.obj.address if one.way is None else follow(self._memory.read, *one.way)
        obj = None if address is None else self._object(address)  # anew: a list may have moved since it was found
        same = obj is not None and obj.heap_type.address == one.obj.heap_type.address
        return replace(one, obj=obj) if obj is not None and same else None

    def _is_elsewhere(self, one: _Named) -> bool:
        """Whether the name refers to another object by now: what was read as the former's may be the content of any."""
        return one.way is not None and follow(self._memory.read, *one.way) != one.obj.address

    def _size(self, path: str, parts: list[tuple[_Named, int]], size: int) -> AttributeSize:
        lengths = [
            length
            for one, taken in parts
            if (length := self._layouts.length(one.obj)) is not None and length <= taken  # else it was freed meanwhile
        ]
        items, capacity = sum(lengths) if lengths else None, None
        if len(parts) == 1 and lengths:
            one = parts[0][0]
            items, capacity = items_and_capacity(
                self._attributes, self._layouts, one.obj, one.owner, path=path, size=size
            )
        return AttributeSize(path, len(parts), size, items, capacity, full=path)

    def _may_go_on(self) -> bool:
        return self._objects_read < MAX_OBJECTS and time.process_time() < self._deadline

    def _object(self, address: int) -> RemoteObject | None:
        self._objects_read += 1
        return self._attributes.object_at(address)

    # --- names ---

    def _named(self) -> list[_Named]:
        """Return what has a name: in turn what the variables of frames lead to, what globals do, and what code does.

        Each of these may be thousands of names, as the functions, classes and modules that lead to other globals are.
        """
        found: list[_Named] = []
        in_variables, in_globals, in_code = (deque[_Waiting]() for _ in range(3))
        namespaces = dict.fromkeys(self._frames.globals())
        if not namespaces:
            raise SourceError("no function of Python runs in it: it begins, or ends")
        for namespace in namespaces:
            in_globals.extend(self._globals(namespace))
        are_global = {one.address for one in in_globals}
        for address, (name, way) in self._frames.ways_to_variables().items():
            if address not in are_global:
                in_variables.append(_Waiting(address, name, None, 1, way))
        turns = cycle((in_variables, in_globals, in_variables, in_code))
        while (in_globals or in_variables or in_code) and self._may_go_on():
            queue = next(turns) or in_globals or in_variables or in_code
            one = queue.popleft()
            if one.address in self._seen or not one.address:
                continue
            obj = one.obj or self._object(one.address)
            if obj is not None and queue is not in_code and is_program(obj.heap_type):
                in_code.append(one._replace(obj=obj))
                continue
            self._seen.add(one.address)
            with suppress(*_BROKEN):
                queue.extend(self._visit(obj, one, found, in_code) if obj is not None else ())
        return found

    def _visit(
        self, obj: RemoteObject, this: _Waiting, found: list[_Named], in_code: deque[_Waiting]
    ) -> Iterator[_Waiting]:
        """Add a container or array to `found`, a module's globals to `in_code`; yield the names in another object."""
        kind, path, owner, steps = obj.heap_type, this.path, this.owner, this.steps
        shape, name = kind.shape, kind.name
        if shape == "dict" and 0 < obj.count() <= FEW_NAMES and (items := self._keyed(obj)) is not None:
            yield from (
                _Waiting(value, f"{path}[{key!r}]", owner or obj, steps + 1)
                for key, value in items
                if steps < _MAX_STEPS
            )
        elif shape == "queue" and self._interpreter.minor < (3, RING_BEHIND):
            yield _Waiting(obj.word(QUEUE_LIST_AT), path, owner, steps)
        elif shape in _CONTAINERS or shape in _ARRAYS or shape in ("bytearray", "bytes", "str", "array"):
            if shape in _CONTAINERS or shape in _ARRAYS or obj.word(16) >= LARGE_BYTES or shape == "array":
                found.append(_Named(path, obj, owner, this.way))
            if steps < _MAX_STEPS:
                yield from (_Waiting(address, f"{path}[i]", obj, steps + 1) for address in self._members(obj))
        elif name in _IN_MEMORY or (name == _MMAP and obj.word(16) in self._memory.anonymous):
            found.append(_Named(path, obj, owner, this.way))
        elif name == "module":
            module = self._attributes.module(obj.address)
            in_code.extend(self._globals(module.namespace))
        elif name == "function":
            in_code.extend(self._globals(obj.word(16 if self._interpreter.minor >= (3, 10) else 24)))
            variables = self._frames.closure_variables(obj) if steps < _MAX_STEPS else {}
            yield from (_Waiting(cell, variable, None, steps + 1) for cell, variable in variables.items())
        elif name == LRU_CACHE:
            yield _Waiting(obj.word(LRU_CACHE_AT), f"{path}.cache", obj, steps + 1)
        elif shape == "class":
            for class_name, key, value in self._of_class(obj):
                yield _Waiting(value, f"{class_name}.{key}", obj, steps + 1)
        elif shape == "generator":
            variables = self._frames.waiting_variables([obj])
            yield from (_Waiting(value, variable, None, 1) for value, variable in variables.items())
        elif name in ("method", "cell"):
            at = 24 if name == "method" else 16
            way = this.way and (this.way[0], (*this.way[1], Hop(at, TYPE_AT, kind.address)))
            yield _Waiting(obj.word(at), path, owner, steps, way)
        elif steps < _MAX_STEPS and "." in name and not _is_iterator(kind):
            with suppress(UnreadableError):
                for key, hops, value in islice(self._attributes.ways(obj), _MAX_ATTRIBUTES):
                    if key not in BOOKKEEPING:
                        yield _Waiting(value, f"{name}.{key}", obj, steps + 1, (obj.address, hops))

    def _members(self, obj: RemoteObject) -> list[int]:
        """Return the instances, functions and sequences among the few items of a list, a tuple or an array of objects.

        Those are its parts, as callbacks, a hook with its options or the axes of a figure are, and no data that becomes
        more; nothing of a list in which two are of one class.
        """
        shape = obj.heap_type.shape
        if shape == "ndarray":
            items_at = self._few_of_array(obj)
        elif shape in ("list", "tuple") and 0 < obj.count() <= _SAMPLED:
            at = obj.pair(24)[0] if shape == "list" else obj.address + self._builtins.tuple_bytes
            items_at = list(obj.words(at, obj.count()))
        else:
            return []
        items = [self._object(address) for address in items_at]
        kinds = {item.address: item.heap_type for item in items if item is not None}
        if shape == "list" and len({kind.address for kind in kinds.values()}) < len(items):
            return []
        return [
            address
            for address, kind in kinds.items()
            if kind.shape in ("list", "tuple") or (not kind.shape and ("." in kind.name or kind.name in _CALLABLE))
        ]

    def _few_of_array(self, obj: RemoteObject) -> list[int]:
        """Return the items of an array of a few objects; a view has those of its base."""
        base = obj.word(NDARRAY_BASE_AT)
        owner = self._object(base) if base else obj
        if owner is None or owner.heap_type.shape != "ndarray":
            return []
        dimensions = owner.word(NDARRAY_DIMENSIONS_AT) & 0xFFFFFFFF
        if not 0 < dimensions <= 2 or math.prod(owner.words(owner.word(NDARRAY_SHAPE_AT), dimensions)) > _SAMPLED:
            return []
        references: array[int] = array("Q")
        self._layouts.measurer_for(owner.heap_type)(owner, references)
        return list(references[1:])  # the first is its dtype

    def _globals(self, namespace: int) -> Iterator[_Waiting]:
        """Yield the globals of a module of the program, by its dict; nothing for those of installed packages."""
        if not namespace or namespace in self._seen:
            return
        self._seen.add(namespace)
        first = dict[str | None, int]()
        with suppress(SourceError):
            items_at = self._builtins.items(namespace, _MODULE_KEYS)
            first |= {self._builtins.text_or_none(name_at): value for name_at, value in items_at}
        name = self._builtins.text_or_none(first.get("__name__", 0)) or ""
        file = self._builtins.text_or_none(first.get("__file__", 0)) or ""
        if name != "__main__" and (not file or is_installed(file, f"{self._memory.folder}/root")):
            return
        items = list[Way]()
        with suppress(SourceError):
            items += self._attributes.item_ways(namespace)
        self._own_modules.add(name)
        for key, hops, value in items:
            if not key.startswith("__") or key == _WARNED:
                yield _Waiting(value, f"{name}.{key}", None, 1, (namespace, hops))

    def _of_class(self, obj: RemoteObject) -> Iterator[tuple[str, str, int]]:
        """Yield its name and each attribute of a class of the program; nothing for those of installed packages."""
        own = self._types.type_at(obj.address)
        if own is not None and any(own.name.startswith(f"{module}.") for module in self._own_modules):
            for key, value in self._attributes.items(self._attributes.dict_of(obj), _MAX_ATTRIBUTES):
                if not key.startswith("__"):
                    yield own.name, key, value

    def _keyed(self, obj: RemoteObject) -> list[tuple[str, int]] | None:
        """Return the items of a dict whose keys are names in the code; None when others are among them."""
        items = list(self._attributes.named_items(obj.address))
        return items if len(items) == obj.count() else None

    # --- what a container holds ---

    def _content(self, obj: RemoteObject, path: str, level: float = 0.0, is_sample: bool = False) -> _Content | None:
        """Return an object and what it holds, without what has a name of its own; None: it changed while it was read.

        `is_sample`: it stands for others, and is not whole where a part of it changed.
        """
        content, kind = _Content(), obj.heap_type
        try:
            size, items, total = self._measure(obj, path)
        except _BROKEN:
            return None
        if size > self._most_bytes:  # It changed while it was read.
            return None
        items = [item for item in items if item[1]]  # A slot or a cell is empty before its variable is set.
        references = obj.word(0) & REFCOUNT_BITS
        content.found[obj.address] = _Met(1.0, size, kind.name, path, references)
        if not is_sample:
            self._add_array(obj, size, path)
        if words := self._native.words(self._types, obj):
            known = {address for _, address in items}
            self._native_words[obj.address] = array("Q", (0 if word in known else word for word in words))
        if level >= _MAX_INSIDE or not items:
            return content
        # No field of a record, as (state, action, reward, next state), stands for another.
        is_sampled = total > FEW_NAMES and (kind.shape in _CONTAINERS or kind.shape == "ndarray")
        chosen = _sample(items, _spread(level)) if is_sampled else items
        is_sample = is_sample or (is_sampled and total > len(chosen))
        is_record = kind.name in ("cell", "method") or (kind.shape in ("tuple", "dict") and total <= FEW_NAMES)
        below, parts = level + (_RECORD_LEVEL if is_record else 1.0), []
        for label, address in chosen:
            if not self._may_go_on():
                break
            part = _Content() if address in self._seen else self._part(address, path + label, below, is_sample)
            if part is not None:
                parts.append(part.share_of(address) if kind.name in ("cell", "method") else part)
            elif is_sample and not is_sampled:
                return None
        if not self._may_go_on():
            if len(parts) > 1 or level == 0:  # The last one is not whole.
                del parts[-1:]
            if not parts and level == 0:
                return None
        content.add_sample(parts, max(1.0, total / max(1, len(parts))) if is_sampled else 1.0, references)
        return content

    def _part(self, address: int, path: str, level: float, is_sample: bool) -> _Content | None:
        """Return the content of an object in a container: empty for what is no data, None where it cannot be read."""
        known = self._known.get(address)
        if known is not None and known.level <= level and known.is_sample == is_sample:
            return known.content
        obj = self._object(address)
        if obj is None:
            return None
        kind = obj.heap_type
        # A class without a name of its own is one that the program makes as it runs.
        may_hold = kind.name in (*_CALLABLE, "cell") or kind.shape == "class"
        is_data = may_hold or not (is_program(kind) or _is_iterator(kind))
        content = self._content(obj, path, level, is_sample) if is_data else _Content()
        if content is not None and self._may_go_on():
            self._known[address] = _KnownContent(content, level, is_sample)
        return content

    def _measure(self, obj: RemoteObject, path: str) -> tuple[int, list[tuple[str, int]], int]:
        """Return an object's own bytes, some or all of the references in it, with labels, and their number in all."""
        kind, shape = obj.heap_type, obj.heap_type.shape
        fixed = kind.front_bytes + kind.basic_bytes
        if shape == "list":
            items_at, room = obj.pair(24)
            return fixed + 8 * room, self._at(obj, items_at, obj.count()), obj.count()
        if shape == "tuple":
            at = obj.address + self._builtins.tuple_bytes
            return fixed + 8 * obj.count(), self._at(obj, at, obj.count()), obj.count()
        if shape == "deque":
            return self._deque(obj, fixed)
        if shape == "queue":
            return self._queue(obj, fixed)
        if shape == "dict":
            return self._dict(obj, fixed)
        references: array[int] = array("Q")
        if kind.name == _MMAP:
            return fixed + obj.count(24), [], 0
        if kind.name == "function":  # Hooks and callbacks keep what they use.
            cells = self._frames.closure_variables(obj)
            return fixed, [(".__closure__[i]", cell) for cell in cells], len(cells)
        if kind.name in ("method", "cell"):
            label, at = (".__self__", 24) if kind.name == "method" else ("", 16)
            return fixed, [(label, obj.word(at))], 1
        if shape == "set" and obj.count(24) > _SAMPLED:
            slots, table_at = obj.count(32) + 1, obj.word(40)
            few = obj.words(table_at, 2 * min(slots, 8 * _SAMPLED))[::2]
            return fixed + 16 * slots, [("{i}", one) for one in few if one], obj.count(24)
        size = self._layouts.measurer_for(kind)(obj, references)
        if shape == "tensor":
            before = self._tensors.with_graph
            size += self._tensors.add(obj.word)
            if self._tensors.with_graph > before:
                self._graphs[obj.address] = self._tensors.graph_depth()
            return size, [], 0
        if shape == "ndarray":
            data = obj.word(NDARRAY_DATA_AT)
            if size >= LARGE_BYTES and not self._memory.writable.within(data + size - 1 - fixed, data + size - fixed):
                raise ValueError("no array: its memory is not mapped")  # It was freed while it was read.
            base = obj.word(NDARRAY_BASE_AT)
            held = [(".base", base)] if base else [("[i]", one) for one in references[1:]]
            return size, held, len(held)
        if shape == "frame":
            return size, [("", one) for one in references if one], len(references)
        if shape == "traceback":
            return size, [(".tb_frame", frame) for frame in self._frames_of(obj)], 1
        if (
            kind.name == _IN_MEMORY[0]
            and self._interpreter.minor >= _WRITER_BEHIND
            and (writer := obj.word(_WRITER_AT))
        ):
            references.append(self._memory.word(writer))
        if shape == "exception" or kind.name in _IN_MEMORY:
            named = [("", one) for one in references if one]
            return size, named, len(named)
        if shape == "set":
            return size, [("{i}", one) for one in references if one], obj.count(24)
        if shape == "class":
            held = [(f".{key}", value) for _, key, value in self._of_class(obj)]
            return size, held, len(held)
        if shape in _TEXTS or shape == "weak" or (not references and not kind.has_managed_dict):
            return size, [], 0
        named = [(f".{key}", value) for key, value in self._attributes.named_values(obj) if key not in BOOKKEEPING]
        return size, named[:_MAX_ATTRIBUTES], len(named)

    def _frames_of(self, traceback: RemoteObject) -> Iterator[int]:
        """Yield the addresses of the frames of a traceback and of those that follow it."""
        following: RemoteObject | None = traceback
        for _ in range(_MAX_TRACEBACKS):
            if following is None or following.heap_type.shape != "traceback":
                break
            yield following.word(TRACEBACK_FRAME_AT)
            following = self._object(following.word(TRACEBACK_NEXT_AT))

    def _at(self, obj: RemoteObject, first: int, count: int) -> list[tuple[str, int]]:
        """Return some of `count` references from an address on: all of a few, else at equal distances."""
        if count <= 4 * _SAMPLED:
            return [("[i]", one) for one in obj.words(first, count)] if count else []
        return [("[i]", obj.words(first + 8 * i, 1)[0]) for i in _places(count, _SAMPLED)]

    def _deque(self, obj: RemoteObject, fixed: int) -> tuple[int, list[tuple[str, int]], int]:
        (left, right), (low, high), count = obj.pair(24), obj.pair(40), obj.count()
        first = obj.words(left + _DEQUE_ITEMS_AT, _DEQUE_BLOCK_ITEMS)
        last = obj.words(right + _DEQUE_ITEMS_AT, _DEQUE_BLOCK_ITEMS) if right != left else first[:0]
        ends = [*first[low : min(_DEQUE_BLOCK_ITEMS, low + count)], *last[: high + 1]]
        blocks = 1 + (low + max(0, count - 1)) // _DEQUE_BLOCK_ITEMS
        return fixed + _DEQUE_BYTES * blocks, [("[i]", one) for one in ends], count

    def _queue(self, obj: RemoteObject, fixed: int) -> tuple[int, list[tuple[str, int]], int]:
        if self._interpreter.minor < (3, RING_BEHIND):
            return fixed, [("", obj.word(QUEUE_LIST_AT))], 1
        first, (table, room), count = obj.count(RING_FIRST_AT), obj.pair(RING_TABLE_AT), obj.count(RING_COUNT_AT)
        places = range(count) if count <= 4 * _SAMPLED else _places(count, _SAMPLED)
        items = [("[i]", obj.words(table + 8 * ((first + i) % room), 1)[0]) for i in places]
        return fixed + 8 * room, items, count

    def _dict(self, obj: RemoteObject, fixed: int) -> tuple[int, list[tuple[str, int]], int]:
        keys_at, values_at = obj.pair(32)
        keys, count = self._builtins.keys(keys_at, obj.read), obj.count()
        size = fixed + (8 * keys.room if values_at else keys.bytes if keys.room else 0)
        if count <= FEW_NAMES and (items := self._keyed(obj)) is not None:
            return size, [(f"[{key!r}]", value) for key, value in items], len(items)
        if values_at or keys.count <= 4 * _SAMPLED:
            pairs = list(self._builtins.items(obj.address, 4 * _SAMPLED))
        else:
            at = (keys.first + 8 * (keys.width * (i + 1) - 2) for i in _places(keys.count, _SAMPLED))
            pairs = [(key, value) for key, value in (obj.words(one, 2) for one in at) if value]
        if count <= FEW_NAMES:
            return size, [("[k]", value) for _, value in pairs], count
        return size, [held for key, value in pairs for held in (("{k}", key), ("[k]", value))], 2 * count

    def _add_array(self, obj: RemoteObject, size: int, path: str) -> None:
        """List an array by itself, with how much of it was ever written."""
        if size < LARGE_BYTES or obj.address in self._arrays:
            return
        kind, data = obj.heap_type, 0
        if kind.shape == "ndarray":
            data = obj.word(NDARRAY_DATA_AT)
        elif kind.shape == "bytearray":
            data = obj.word(32)
        elif kind.name == _MMAP:
            data = obj.word(16)
        elif kind.shape == "tensor":
            data = self._tensors.data_at
        there = self._resident(data, size) if data and self._resident is not None else None
        self._arrays[obj.address] = LargeObject(kind.name, size, path, there)


def _spread(level: float) -> int:
    return _SAMPLED if level == 0 else _SAMPLED_INSIDE


def _sample(items: list[tuple[str, int]], most: int) -> list[tuple[str, int]]:
    return items if len(items) <= most else [items[i] for i in _places(len(items), most)]


def _places(count: int, most: int) -> list[int]:
    """Return `most` of `count` places, in pairs of neighbours at equal distances, the first and the last among them.

    Neighbours show what they share; and of two kinds of items in turn, as many are of one as of the other.
    """
    pairs = most // 2
    firsts = [i * (count - 2) // (pairs - 1) for i in range(pairs)]
    return [place for first in firsts for place in (first, first + 1)]


def _is_iterator(kind: HeapType) -> bool:
    return kind.name.endswith(_ITERATORS)
