"""Finds what keeps objects alive: reference paths from them up to a named attribute or local variable."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from memwatch.core.examination import UNNAMED_HOLDER_PREFIX, ReferencePath
from memwatch.diagnosis.heap.attributes import Attributes
from memwatch.diagnosis.heap.object_layouts import NDARRAY_BASE_AT
from memwatch.diagnosis.heap.reachable_objects import ReferenceGraph
from memwatch.diagnosis.heap.remote_objects import RemoteObject

SAMPLED = 20_000  # Objects of a type whose holders are sought: a bound on time.
_MAX_STEPS = 12  # References in a path (chosen).
_FEW, _FEW_SHARE = 16, 0.01  # A type of at most so many holders, or this share of the objects, ends a path (chosen).
_MAX_PATHS = 8  # Paths that are continued from one holder (chosen).
_MAX_HOLDERS = 10  # Paths that are reported for a type (chosen).
_MAX_SEARCHED = 1 << 18  # Objects that are searched for circles; beyond, a circle is assumed.
_MAX_KEYS = 8  # Keys of one dict that are named; of more, all are [k] (chosen).
_MAX_KEY_CHARS = 64  # of a key that is named (chosen)
_KEY = "[k]"
_THROUGH = {"dict": _KEY, "list": "[i]", "tuple": "[i]", "deque": "[i]", "set": "{i}", "ndarray": "[i]"}  # by shape
# Shapes that hold nothing, or (classes) hold it in a dict of their own. Such an object replaced a freed holder.
_NO_HOLDERS = {"weak", "class", "str", "int", "bytes", "bytearray", "array"}
_FRAME = "frame"
_LOCALS = (_FRAME, "generator", "coroutine", "async_generator")
_INSTANCE_DICT = "__dict__"
_MARK = "\0"

_Paths = Counter[str]  # the number of objects at the end of each path from a certain object


@dataclass(frozen=True, slots=True)
class ReferencePathFinder:
    """Finds paths in the graph of a heap, which begin at a module, a class or a local variable."""

    graph: ReferenceGraph
    attributes: Attributes
    namespaces: Mapping[int, str]  # modules and classes, by the addresses of their dicts
    variables: Mapping[int, str]  # local variables, by the addresses of their values
    may_go_on: Callable[[], bool]  # is called before each object is read

    def paths_to_type(self, name: str, addresses: Sequence[int]) -> list[ReferencePath]:
        """Return the paths to most objects of a type, given the addresses of all; that to the most comes first."""
        every, total = max(1, -(-len(addresses) // SAMPLED)), len(addresses)
        found = _ReferrerSearch(self, dict.fromkeys(addresses[::every], "")).paths()
        most = found.most_common(_MAX_HOLDERS)
        return [ReferencePath(name, path, min(count * every, total), total) for path, count in most]

    def paths(self, addresses: Sequence[int]) -> dict[int, str]:
        """Return the shortest path to each of these objects that has one."""
        search = _ReferrerSearch(self, {address: f"{_MARK}{address}" for address in addresses})
        found = sorted(search.paths(), key=len, reverse=True)
        return {int(address): path for path, _, address in (text.partition(_MARK) for text in found)}


class _ReferrerSearch:
    """Goes from objects to their referrers, and on to those of these, until a name leads to all."""

    def __init__(self, heap: ReferencePathFinder, ends: Mapping[int, str]) -> None:
        """`ends`: the last part of the path to each object, by its address."""
        self._heap, self._attributes, self._objects = heap, heap.attributes, ends
        self._passed: dict[int, set[int]] = defaultdict(set)  # holders of earlier steps -> the objects they held then
        self._searched = 0
        self._few = max(_FEW, int(_FEW_SHARE * len(ends)))
        self._found: _Paths = Counter()
        self._kinds: dict[int, str] = {}  # of the holders, by address

    def paths(self) -> _Paths:
        """Return the number of objects by each path from a name."""
        below: dict[int, _Paths] = {address: Counter({end: 1}) for address, end in self._objects.items()}
        for _ in range(_MAX_STEPS):
            if not below or not self._heap.may_go_on():
                break
            below = self._step(below)
        self._add_unnamed(below)
        return self._found

    def _step(self, below: Mapping[int, _Paths]) -> dict[int, _Paths]:
        """Return the holders of these objects that do not end a path."""
        above: dict[int, _Paths] = defaultdict(Counter)
        named: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)  # by type and path: numbers by holder
        held: set[int] = set()
        sources = self._sources(below)
        for source, obj, targets in takewhile(lambda _: self._heap.may_go_on(), sources):
            labels = self._labels(source, obj, targets)
            held |= labels.keys()
            for target, label in labels.items():
                for rest, number in below[target].items():
                    path = label + rest if label != _INSTANCE_DICT else _attribute(rest)
                    if source in self._heap.namespaces:
                        self._found[self._heap.namespaces[source] + _attribute(path)] += number
                    elif obj.heap_type.name == _FRAME and target in self._heap.variables:
                        self._found[self._heap.variables[target] + rest] += number
                    elif source in self._objects or obj.heap_type.name in _LOCALS:
                        self._found[obj.heap_type.name + path] += number
                    elif obj.heap_type.shape in _THROUGH or obj.heap_type.name == "cell":
                        above[source][path] += number
                    else:
                        named[obj.heap_type.name, path][source] += number
        for (kind, path), numbers in named.items():
            if len(numbers) <= self._few:
                self._found[kind + path] += numbers.total()
            else:
                for source, number in numbers.items():
                    above[source][path] += number
        self._add_unnamed({address: paths for address, paths in below.items() if address not in held})
        for source, _, targets in sources:
            if source in above:
                self._passed[source] |= targets
        return {source: Counter(dict(paths.most_common(_MAX_PATHS))) for source, paths in above.items()}

    def _sources(self, below: Mapping[int, _Paths]) -> list[tuple[int, RemoteObject, set[int]]]:
        """Return the referrers of these objects, each with those that it refers to, but none that closes a circle."""
        targets: dict[int, set[int]] = defaultdict(set)
        for source, target in self._heap.graph.references_to(below.__contains__):
            if source not in self._passed or not self._leads(target, source):
                targets[source].add(target)
        found = []
        for source, held in takewhile(lambda _: self._heap.may_go_on(), targets.items()):
            obj = self._attributes.object_at(source)
            if obj is not None and obj.heap_type.shape not in _NO_HOLDERS and obj.heap_type.name != "module":
                self._kinds[source] = obj.heap_type.name
                found.append((source, obj, held))
        return found

    def _leads(self, start: int, end: int) -> bool:
        """Whether a path from `start` down to the objects contains `end`."""
        below, waiting = {start}, [start]
        while waiting and end not in below and self._searched < _MAX_SEARCHED:
            held = self._passed.get(waiting.pop(), set())
            self._searched += 1 + len(held)
            waiting += (held - below) & self._passed.keys()
            below |= held
        return end in below or bool(waiting)

    def _labels(self, source: int, obj: RemoteObject, targets: set[int]) -> dict[int, str]:
        """Return the holder's name for each object that it holds."""
        shape = obj.heap_type.shape
        own = self._attributes.dict_of(obj)
        labels = {target: _INSTANCE_DICT for target in targets if target == own}
        rest = targets - labels.keys()
        if rest and shape == "dict" and len(rest) <= _MAX_KEYS:
            items = self._attributes.named_items(source)
            keys = {value: f"[{key!r}]" for key, value in items if value in rest and len(key) <= _MAX_KEY_CHARS}
            labels |= {target: keys.get(target, _KEY) for target in rest}
        elif rest and shape == "ndarray" and obj.word(NDARRAY_BASE_AT):
            labels |= dict.fromkeys(rest, ".base")
        elif rest and (shape in _THROUGH or obj.heap_type.name == "cell"):
            labels |= dict.fromkeys(rest, _THROUGH.get(shape, ""))
        elif rest:
            names = {value: f".{name}" for name, value in self._attributes.named_values(obj) if value in rest}
            labels |= {target: names.get(target, "") for target in rest}
        return labels

    def _add_unnamed(self, below: Mapping[int, _Paths]) -> None:
        """Add paths that begin at no attribute: at a local variable, or in C code."""
        for address, paths in below.items():
            unnamed = f"{UNNAMED_HOLDER_PREFIX}{self._kinds.get(address) or 'an object'}"
            for path, number in paths.items():
                self._found[(self._heap.variables.get(address) or unnamed) + path] += number


def _attribute(path: str) -> str:
    """Turn a path from an object's dict into one from the object: ['losses'][i] is .losses[i]."""
    key, end, rest = path.partition("]")
    name = key[2:-1]
    return f".{name}{rest}" if end and key[:2] in ("['", '["') and name.isidentifier() else path
