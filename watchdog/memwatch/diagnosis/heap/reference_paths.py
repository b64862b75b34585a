"""Who keeps objects: the way from them, reference by reference, up to an attribute that has a name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from memwatch.core.examination import UNNAMED_HOLDER_PREFIX, ReferencePath
from memwatch.diagnosis.heap.attribute_values import Attributes
from memwatch.diagnosis.heap.reachable_objects import ReferenceGraph
from memwatch.diagnosis.heap.remote_object import RemoteObject

SAMPLED = 20_000  # objects of a type whose holders are looked for
_STEPS_MOST = 12
_FEW, _FEW_SHARE = 16, 0.01  # holders: so many, or this part of what they hold, are named; from more of them it goes on
_WAYS_MOST = 8  # that are followed on from one holder
_TOLD = 10  # holders of a type
_LOOKED_THROUGH_MOST = 1 << 18  # objects, for circles; without an answer there may be one
_KEYS_MOST = 8  # keys of one dict that are told; of more, all are [k]
_KEY = "[k]"
_THROUGH = {"dict": _KEY, "list": "[i]", "tuple": "[i]", "deque": "[i]", "set": "{i}", "ndarray": "[i]"}  # by shape
# Shapes that keep nothing, or (classes) what is in a dict of their own. Where one is now, another object was before.
_NO_HOLDERS = {"weak", "class", "str", "int", "bytes", "bytearray", "array"}
_FRAME = "frame"
_LOCALS = (_FRAME, "generator", "coroutine", "async_generator")
_ITS_DICT = "__dict__"
_MARK = "\0"
_NAME_MOST = 64

_Ways = Counter[str]  # how many objects are reached by each way from a certain place on


@dataclass(frozen=True, slots=True)
class PathRoots:
    """What ways may begin with."""

    namespaces: Mapping[int, str]  # modules and classes, by the addresses of their dicts
    variables: Mapping[int, str]  # local variables, by the addresses of what they hold


class ReferencePathFinder:
    """Looks for them in a heap that was gone through."""

    def __init__(
        self, graph: ReferenceGraph, attributes: Attributes, names: PathRoots, may_go_on: Callable[[], bool]
    ) -> None:
        """`may_go_on` is asked before each object is looked at."""
        self._graph, self._attributes, self._names, self._may_go_on = graph, attributes, names, may_go_on

    def paths_to_type(self, name: str, addresses: Sequence[int]) -> list[ReferencePath]:
        """Who holds most of the objects of a type, given the addresses of all; who holds the most comes first."""
        every, total = max(1, -(-len(addresses) // SAMPLED)), len(addresses)
        found = self._climb(dict.fromkeys(addresses[::every], ""))
        return [ReferencePath(name, path, min(count * every, total), total) for path, count in found.most_common(_TOLD)]

    def paths(self, addresses: Sequence[int]) -> dict[int, str]:
        """One way to each of these objects, the one that is told in the fewest words; without those that have none."""
        ways = sorted(self._climb({address: f"{_MARK}{address}" for address in addresses}), key=len, reverse=True)
        return {int(address): path for path, _, address in (way.partition(_MARK) for way in ways)}

    def _climb(self, ends: Mapping[int, str]) -> Counter[str]:
        return _ReferrerSearch(self._graph, self._attributes, self._names, self._may_go_on, ends).ways()


class _ReferrerSearch:
    """From objects to what refers to them, and on to what refers to that, until all is reached from a name."""

    def __init__(
        self,
        graph: ReferenceGraph,
        attributes: Attributes,
        names: PathRoots,
        may_go_on: Callable[[], bool],
        ends: Mapping[int, str],
    ) -> None:
        """`ends`: the objects by their addresses, and what their ways end with."""
        self._graph, self._attributes, self._names, self._objects = graph, attributes, names, ends
        self._may_go_on = may_go_on
        self._passed: dict[int, set[int]] = defaultdict(set)  # from where it went on -> what that holds of where it was
        self._looked_through = 0
        self._few = max(_FEW, int(_FEW_SHARE * len(ends)))
        self._found: _Ways = Counter()
        self._kinds: dict[int, str] = {}  # of the holders, by address

    def ways(self) -> _Ways:
        """By each way from a name, how many of the objects."""
        below: dict[int, _Ways] = {address: Counter({end: 1}) for address, end in self._objects.items()}
        for _ in range(_STEPS_MOST):
            if not below or not self._may_go_on():
                break
            below = self._step(below)
        self._leave(below)
        return self._found

    def _step(self, below: Mapping[int, _Ways]) -> dict[int, _Ways]:
        """The holders of these from which it goes on."""
        above: dict[int, _Ways] = defaultdict(Counter)
        named: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)  # by type and way: how many, by holder
        held: set[int] = set()
        sources = self._sources(below)
        for source, place, targets in takewhile(lambda _: self._may_go_on(), sources):
            labels = self._labels(source, place, targets)
            held |= labels.keys()
            for target, label in labels.items():
                for rest, number in below[target].items():
                    way = label + rest if label != _ITS_DICT else _attribute(rest)
                    if source in self._names.namespaces:
                        self._found[self._names.namespaces[source] + _attribute(way)] += number
                    elif place.heap_type.name == _FRAME and target in self._names.variables:
                        self._found[self._names.variables[target] + rest] += number
                    elif source in self._objects or place.heap_type.name in _LOCALS:
                        self._found[place.heap_type.name + way] += number
                    elif place.heap_type.shape in _THROUGH or place.heap_type.name == "cell":
                        above[source][way] += number
                    else:
                        named[place.heap_type.name, way][source] += number
        for (kind, way), numbers in named.items():
            if len(numbers) <= self._few:
                self._found[kind + way] += numbers.total()
            else:
                for source, number in numbers.items():
                    above[source][way] += number
        self._leave({address: ways for address, ways in below.items() if address not in held})
        for source, _, targets in sources:
            if source in above:
                self._passed[source] |= targets
        return {source: Counter(dict(ways.most_common(_WAYS_MOST))) for source, ways in above.items()}

    def _sources(self, below: Mapping[int, _Ways]) -> list[tuple[int, RemoteObject, set[int]]]:
        """What refers to these, each with those that it refers to; not where the way would go in a circle."""
        targets: dict[int, set[int]] = defaultdict(set)
        for source, target in self._graph.references_to(below.__contains__):
            if source not in self._passed or not self._leads(target, source):
                targets[source].add(target)
        found = []
        for source, held in takewhile(lambda _: self._may_go_on(), targets.items()):
            place = self._attributes.object_at(source)
            if place is not None and place.heap_type.shape not in _NO_HOLDERS and place.heap_type.name != "module":
                self._kinds[source] = place.heap_type.name
                found.append((source, place, held))
        return found

    def _leads(self, start: int, end: int) -> bool:
        """Whether on the ways up to `start` it came by `end`."""
        below, waiting = {start}, [start]
        while waiting and end not in below and self._looked_through < _LOOKED_THROUGH_MOST:
            held = self._passed.get(waiting.pop(), set())
            self._looked_through += 1 + len(held)
            waiting += (held - below) & self._passed.keys()
            below |= held
        return end in below or bool(waiting)

    def _labels(self, source: int, place: RemoteObject, targets: set[int]) -> dict[int, str]:
        """What the holder calls each of what it holds."""
        shape = place.heap_type.shape
        own = self._attributes.dict_of(place)
        labels = {target: _ITS_DICT for target in targets if target == own}
        rest = targets - labels.keys()
        if rest and shape == "dict" and len(rest) <= _KEYS_MOST:
            items = self._attributes.named_items(source)
            keys = {value: f"[{key!r}]" for key, value in items if value in rest and len(key) <= _NAME_MOST}
            labels |= {target: keys.get(target, _KEY) for target in rest}
        elif rest and shape == "ndarray" and self._attributes.is_view(place):
            labels |= dict.fromkeys(rest, ".base")
        elif rest and (shape in _THROUGH or place.heap_type.name == "cell"):
            labels |= dict.fromkeys(rest, _THROUGH.get(shape, ""))
        elif rest:
            names = {value: f".{name}" for name, value in self._attributes.named_values(place) if value in rest}
            labels |= {target: names.get(target, "") for target in rest}
        return labels

    def _leave(self, below: Mapping[int, _Ways]) -> None:
        """These are held by nothing that is known: by a local variable, or by C code."""
        for address, ways in below.items():
            for way, number in ways.items():
                begin = (
                    self._names.variables.get(address)
                    or f"{UNNAMED_HOLDER_PREFIX}{self._kinds.get(address) or 'an object'}"
                )
                self._found[begin + way] += number


def _attribute(way: str) -> str:
    """The way from an object whose dict this is the way from: ['losses'][i] is .losses[i]."""
    key, end, rest = way.partition("]")
    name = key[2:-1]
    return f".{name}{rest}" if end and key[:2] in ("['", '["') and name.isidentifier() else way
