"""Finds what keeps objects alive: reference paths from them up to a named attribute or local variable."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memwatch.core.examination import CYCLES_HOLDER_PREFIX, UNNAMED_HOLDER_PREFIX, ReferencePath
from memwatch.diagnosis.heap.attributes import LRU_CACHE
from memwatch.diagnosis.heap.remote_objects import HeapType
from memwatch.diagnosis.whole_heap.bulk_reads import Places, distinct, ragged
from memwatch.diagnosis.whole_heap.program_namespaces import Program
from memwatch.diagnosis.whole_heap.reachable_objects import HeapObjects, Numbers, References
from memwatch.diagnosis.whole_heap.reference_names import BASE, CELL, INSTANCE_DICT, THROUGH, ReferenceNames

EXPLAINS = 0.5  # From this share of the objects on, what is true of them is said of their type (chosen).
SAMPLED = 8_000  # Objects of a type whose holders are sought: a bound on time (measured: 20,000 take 0.3 s more).
_GOLDEN_RATIO = 0.5 * (math.sqrt(5.0) - 1.0)
_SET_BITS = 16  # of a number of an object with a set: more sets than are ever sought at once
_MAX_STEPS = 12  # References in a path (chosen).
_MAX_LINK_STEPS = 3  # from one node to the next, through its dict, a list in it and a tuple in that (chosen).
_FEW, _FEW_SHARE = 16, 0.01  # A type of at most so many holders, or this share of the objects, ends a path (chosen).
_PART_OF_CLASSES = 0.25  # Of the objects, that classes must hold by one path: what holds these takes time (chosen).
_MAX_PATHS = 8  # Paths that are continued from one holder (chosen).
_MAX_HOLDERS = 10  # Paths that are reported for a type (chosen).
# Objects of a type, and of those with what refers to them, that are looked at for whether they are garbage (chosen).
_GARBAGE_SAMPLED, _MAX_IN_CYCLES = 16, 1 << 13
_MAX_CIRCLE_STEPS = 32  # References in a circle of garbage: each step takes 10 ms in a heap of a million (chosen).
_MAX_SEARCHED = 1 << 19  # Objects that are searched for circles; beyond, a circle is assumed.
# Shapes that hold nothing, or (classes) hold it in a dict of their own. Such an object replaced a freed holder.
_NO_HOLDERS = {"weak", "class", "str", "int", "bytes", "bytearray", "array"}
_MODULE = "module"  # Its dict holds what it has.
_BUILTIN_METHOD = "builtin_function_or_method"  # of a list or dict, as `children.remove`, it belongs to what is in that
_FRAMES = {"frame", "generator", "coroutine", "async_generator"}
_MODULES = "sys.modules[k]"
# Types of which no object is the holder that a user looks for.
_THROUGH = {CELL, "traceback", LRU_CACHE, _BUILTIN_METHOD, "functools.partial", "function", "method", *_FRAMES}


@dataclass(frozen=True, slots=True)
class _Paths:
    """Paths down to the objects that are sought: in each row, so many go down from an object."""

    objects: Numbers  # in order
    paths: Places  # index of the text and of what is sought
    counts: Places


class ReferencePathFinder:
    """Finds paths in a heap, which begin at a module, a class or a local variable."""

    def __init__(
        self,
        heap: HeapObjects,
        names: ReferenceNames,
        program: Program,
        variables: Mapping[int, str],
        may_go_on: Callable[[], bool],
    ) -> None:
        """`variables` are local variables, by the addresses of their values; `may_go_on` is called before each step."""
        self.heap, self.names, self.program, self.may_go_on = heap, names, program, may_go_on
        self._builtins = {kind.name for kind in heap.types if "." not in kind.name}
        self._into_types: dict[str, Mapping[str, float]] = {}  # by name
        numbers = heap.numbers(np.fromiter(variables, np.uint64)).tolist()
        self.variables = {one: name for one, name in zip(numbers, variables.values(), strict=True) if one >= 0}

    def paths_to_types(self, objects: Mapping[str, Numbers]) -> list[ReferencePath]:
        """Return the paths to most objects of each type, given the numbers of all; that to the most comes first."""
        sought = [_sample(numbers) for numbers in objects.values()]
        found = list[ReferencePath]()
        search = _ReferrerSearch(self, sought)
        searched = search.paths()
        if len(unheld := search.unheld()) and len((more := self.names.in_c_memory(unheld)).sources):
            self.heap = self.heap.with_references(more)
            self._into_types.clear()
            searched = _ReferrerSearch(self, sought).paths()
        for (name, numbers), few, paths in zip(objects.items(), sought, searched, strict=True):
            number, every = len(numbers), len(numbers) / len(few)
            is_named = self.named(name, paths) >= EXPLAINS * len(few)
            is_class = _is_class(self.heap.types[self.heap.kinds[numbers[0]]])
            into = self.paths_into_type(name) if is_class and not is_named else {}
            counts = {path: share * number for path, share in into.items()}
            counts |= {path: count * every for path, count in paths.most_common(_MAX_HOLDERS) if path not in into}
            told = Counter({path: min(round(count), number) for path, count in counts.items()})
            found += [ReferencePath(name, path, count, number) for path, count in told.most_common(_MAX_HOLDERS)]
        return found

    def shortest_paths(self, numbers: Sequence[int]) -> dict[int, str]:
        """Return the shortest path to each of these objects that has one."""
        sought = [np.array([number], np.int32) for number in numbers]
        found = _ReferrerSearch(self, sought).paths()
        return {one: min(paths, key=len) for one, paths in zip(numbers, found, strict=True) if paths}

    def named(self, name: str, paths: Counter[str]) -> int:
        """Return how many of the objects of a type are at paths that begin at a name, not at one of them."""
        others = ((path, count) for path, count in paths.items() if path != name and not path.startswith(f"{name}."))
        return sum(count for path, count in others if _begins_at_name(path, self._builtins))

    def paths_into_type(self, name: str) -> Mapping[str, float]:
        """As _paths_into, for the objects of a type."""
        if name not in self._into_types:
            self._into_types[name] = self._paths_into(self.heap.of_types(lambda kind: kind.name == name))
        return self._into_types[name]

    def _paths_into(self, numbers: Numbers) -> Mapping[str, float]:
        """Return the paths to a linked structure: to those of its objects that others hold; with the share of these.

        A tree is held by what holds its root. There is none where most of the objects do not hold each other, or where
        most of those that others hold are held by what has no name.
        """
        heap, inside = self.heap, np.zeros(len(self.heap.addresses) + 1, bool)  # and none
        inside[numbers] = True
        may_link = np.array([kind.shape in THROUGH or kind.name == CELL for kind in heap.types], bool)
        newest = numbers
        for _ in range(_MAX_LINK_STEPS):
            targets = distinct(heap.references_from(newest).targets)
            targets = targets[~inside[targets] & may_link[heap.kinds[targets]]]
            newest = targets[~self.program.are_namespaces(targets)]
            inside[newest] = True
        members = np.flatnonzero(inside[:-1]).astype(np.int32)
        into = heap.references_to(members)
        within = inside[into.sources]
        if np.count_nonzero(np.isin(numbers, into.targets[within])) < EXPLAINS * len(numbers):
            return {}
        entries = _sample(distinct(into.targets[~within]))
        paths = _ReferrerSearch(self, [entries], inside).paths()[0]
        named = {path: count / len(entries) for path, count in paths.items() if _begins_at_name(path, self._builtins)}
        return named if sum(named.values()) >= EXPLAINS else {}

    def holders_of_classes(self, named: Counter[tuple[int, str]], number: int) -> dict[str, str]:
        """Return what holds the classes in which a path begins, where it begins in many: `Cell.known[i]`; by the path.

        `named`: namespaces and paths, of so many objects; only paths to a good part of these are looked at.
        """
        classes, counts = defaultdict[str, list[int]](list), Counter[str]()
        for (source, path), count in named.items():
            if path.startswith(".") and ".__" not in path and not self.program.is_of_module(source):
                classes[path].append(source)
                counts[path] += count
        found = dict[str, str]()
        for path, sources in classes.items():
            if len(sources) > _FEW and counts[path] >= _PART_OF_CLASSES * number:
                addresses = [self.program.owner(source) for source in sources]
                numbers = self.heap.numbers(np.array(addresses, np.uint64))
                passed_over = np.zeros(len(self.heap.addresses), bool)  # nothing: with a mark, no classes are sought
                paths = _ReferrerSearch(self, [distinct(numbers[numbers >= 0])], passed_over).paths()[0]
                named_paths = [one for one in paths if "[" in one and _begins_at_name(one, self._builtins)]
                holder = max(named_paths, key=paths.__getitem__, default="")
                if paths[holder] >= EXPLAINS * len(addresses):
                    found[path] = holder
        return found

    def are_garbage(self, numbers: Numbers) -> NDArray[np.bool_]:
        """Return which of these objects are held by nothing but each other, as the collector finds it.

        Every reference to them, and to all that refer to them, comes from one of these. False where these are too many.
        """
        heap, inside = self.heap, np.zeros(len(self.heap.addresses) + 1, bool)  # and none
        inside[numbers] = True
        waiting, steps = numbers, 0
        while len(waiting):
            steps += 1
            sources = heap.references_to(waiting).sources
            waiting = distinct(sources[~inside[sources]])
            inside[waiting] = True
            if np.count_nonzero(inside) > _MAX_IN_CYCLES or steps > _MAX_CIRCLE_STEPS or not self.may_go_on():
                return np.zeros(len(numbers), bool)
        members, (sources, targets) = np.flatnonzero(inside[:-1]).astype(np.int32), heap.references_among(inside)
        counts = np.bincount(targets, minlength=len(inside))
        held = np.zeros(len(inside), bool)
        held[members] = self.names.refcounts(members) > counts[members]
        while len(new := targets[held[sources] & ~held[targets]]):
            held[new] = True
        return ~held[numbers]


class _ReferrerSearch:
    """Goes from objects to their referrers, and on to those of these, until a name leads to all."""

    def __init__(
        self, finder: ReferencePathFinder, sought: Sequence[Numbers], passed_over: NDArray[np.bool_] | None = None
    ) -> None:
        """`sought`: sets of objects; `passed_over`: a mark for each object through which no path shall lead."""
        self._finder, self._heap, self._names, self._passed_over = finder, finder.heap, finder.names, passed_over
        self._found: list[Counter[str]] = [Counter() for _ in sought]
        # by the dict of a module or class in which a path begins, and the path from there
        self._in_namespaces: list[Counter[tuple[int, str]]] = [Counter() for _ in sought]
        self._texts: list[tuple[int, str]] = []  # of each path: which of the sets it leads to, and its text
        self._numbers: dict[tuple[int, str], int] = {}
        self._most = EXPLAINS * np.array([max(1, len(numbers)) for numbers in sought])
        self._few = np.array([max(_FEW, int(_FEW_SHARE * len(numbers))) for numbers in sought])
        objects = np.concatenate([np.empty(0, np.int32), *sought])
        sets = np.repeat(np.arange(len(sought)), np.array([len(numbers) for numbers in sought], np.int64))
        types, self._sought = self._heap.types, sought
        # types of which an object ends a path as one of the sought, each with its set
        kinds = distinct(self._heap.kinds[objects].astype(np.int64) << 32 | sets)
        self._types_in = kinds[[_is_class(types[kind]) for kind in (kinds >> 32).tolist()]]
        starts = np.array([self._path(i, "") for i in range(len(sought))], np.int64)
        self._below = _summed(objects, starts[sets], np.ones(len(objects), np.int64))
        self._holds = np.array([kind.shape not in _NO_HOLDERS and kind.name != _MODULE for kind in types], bool)
        self._is_method = np.array([kind.name == _BUILTIN_METHOD for kind in types], bool)
        self._is_container = np.array([kind.shape in THROUGH for kind in types], bool)
        self._is_through = np.array(
            [kind.shape in (*THROUGH, "exception") or kind.name in _THROUGH for kind in types], bool
        )
        self._is_frame = np.array([kind.name in _FRAMES for kind in types], bool)
        self._unheld = Counter[tuple[int, int]]()  # objects that nothing is known to hold, and the set below them
        # each object with the set that it leads to: the references that led to holders, and these
        self._steps: list[tuple[Places, Places]] = []
        self._passed = np.empty(0, np.int64)
        self._searched = 0
        self._assumed = np.empty(0, np.int64)  # those for whose holders a circle was assumed

    def paths(self) -> list[Counter[str]]:
        """Return for each set the number of objects by each path from a name."""
        for _ in range(_MAX_STEPS):
            if not len(self._below.objects) or not self._finder.may_go_on():
                break
            self._step()
        self._add_unnamed(self._below)
        self._name_namespaces()
        self._name_garbage()
        return self._found

    def unheld(self) -> Numbers:
        """Return the objects that nothing is known to hold and that lead to most of a set."""
        totals = Counter[int]()
        for (_, of), count in self._unheld.items():
            totals[of] += count
        most = {number for number, of in self._unheld if totals[of] >= EXPLAINS * len(self._sought[of])}
        return np.array(sorted(most), np.int32)

    def _name_namespaces(self) -> None:
        """Add the paths from modules and classes; where many modules have the same, it is sys.modules that grows.

        If many classes have it, the program makes them as it runs: the path then begins at what holds them.
        The full name of a class takes time to read: only the paths to the most objects get it.
        """
        program = self._finder.program
        for found, named, sought in zip(self._found, self._in_namespaces, self._sought, strict=True):
            modules = Counter(path for source, path in named if program.is_of_module(source))
            many = {path for path, number in modules.items() if number > _FEW and not path.startswith(".__")}
            holders = self._finder.holders_of_classes(named, len(sought)) if self._passed_over is None else {}
            totals, sources = Counter[tuple[str, str]](), dict[tuple[str, str], int]()
            for (source, path), count in named.items():
                if path in holders and not program.is_of_module(source):
                    found[holders[path] + path] += count
                    continue
                is_one_of_many = path in many and program.is_of_module(source)
                key = _MODULES if is_one_of_many else program.short_name(source), path
                totals[key] += count
                sources[key] = source
            for place, ((name, path), count) in enumerate(totals.most_common()):
                is_told = place < _MAX_HOLDERS and name != _MODULES
                found[(program.namespace(sources[name, path]) if is_told else name) + path] += count

    def _name_garbage(self) -> None:
        """Say of paths that begin at no name, or at what is sought, that this is garbage, where it is."""
        for sought, found in zip(self._sought, self._found, strict=True):
            if not len(sought):
                continue
            kind = self._heap.types[self._heap.kinds[sought[0]]].name
            if self._finder.named(kind, found) >= EXPLAINS * len(sought):
                continue
            share = np.mean(self._finder.are_garbage(sought[:: -(-len(sought) // _GARBAGE_SAMPLED)]))
            if share >= EXPLAINS:
                found.clear()
                found[f"{CYCLES_HOLDER_PREFIX}{kind}"] = round(share * len(sought))

    def _path(self, of: int, text: str) -> int:
        """Return the number of a path to one of the sets."""
        if (of, text) not in self._numbers:
            self._numbers[of, text] = len(self._texts)
            self._texts.append((of, text))
        return self._numbers[of, text]

    def _step(self) -> None:
        """Go on to the holders of these objects that do not end a path."""
        below, references = self._below, self._references()
        names = self._names.names(references)
        # each reference with each of the paths below
        first = np.searchsorted(below.objects, references.targets)
        number = np.searchsorted(below.objects, references.targets, side="right") - first
        rows, at = np.repeat(np.arange(len(names)), number), ragged(first, number)
        ways = self._in_sets(below.objects, below.paths)
        held, holders = ways[at], self._in_sets(references.sources[rows], below.paths[at])
        kept = ~self._close_circles(held, holders)
        rows, at, held, holders = rows[kept], at[kept], held[kept], holders[kept]
        sources, targets, counts = references.sources[rows], references.targets[rows], below.counts[at]
        paths = self._joined(names[rows], below.paths[at])
        goes_on = self._end(sources, targets, paths, below.paths[at], counts)
        above = _summed(sources[goes_on], paths[goes_on], counts[goes_on])
        above = _chosen(above, self._end_at_types(above))
        if self._passed_over is None:
            above = _chosen(above, self._end_at_links(above))
        self._add_unnamed(_chosen(below, ~(_are_in(ways, np.sort(held)) | _are_in(ways, self._assumed))))
        self._below = _most_common(above)
        newest = self._in_sets(self._below.objects, self._below.paths)
        led = _are_in(holders, np.sort(newest))
        self._steps.append((holders[led], held[led]))
        self._passed = _distinct(np.concatenate([self._passed, newest]))

    def _references(self) -> References:
        """Return the references to these objects from what may hold them."""
        sources, targets = self._heap.references_to(self._below.objects)
        kinds = self._heap.kinds
        holds = self._holds[kinds[sources]] & ~(self._is_method[kinds[sources]] & self._is_container[kinds[targets]])
        if self._passed_over is not None:
            holds &= ~self._passed_over[sources]
        return References(sources[holds], targets[holds])

    def _in_sets(self, objects: Numbers, paths: Places) -> Places:
        """Return the objects, each with the set that its path leads to, as numbers."""
        return objects.astype(np.int64) << _SET_BITS | self._sets(paths)

    def _sets(self, paths: Places) -> Places:
        """Return the set that each path leads to."""
        return np.array([of for of, _ in self._texts], np.int64)[paths]

    def _close_circles(self, held: Places, holders: Places) -> NDArray[np.bool_]:
        """Return which of these references close a circle."""
        found = np.zeros(len(held), bool)
        again = np.flatnonzero(_are_in(holders, self._passed))
        if len(again):
            nodes, numbers = np.unique(np.concatenate([held[again], holders[again]]), return_inverse=True)
            pairs, which = np.unique(numbers[: len(again)] << 32 | numbers[len(again) :], return_inverse=True)
            found[again] = self._lead(nodes[pairs >> 32], nodes[pairs & 0xFFFFFFFF])[which]
        return found

    def _lead(self, starts: Places, ends: Places) -> NDArray[np.bool_]:
        """Return for each pair whether a path from the first object down to those that are sought contains the second.

        Once too many objects were searched, it is assumed of all pairs.
        """
        owners, held = (np.concatenate(part) for part in zip(*self._steps, strict=True))
        order = np.argsort(owners, kind="stable")
        nodes, held = np.unique(np.concatenate([held[order], starts]), return_inverse=True)
        owners, below, held = owners[order], held[len(order) :], held[: len(order)]
        found: NDArray[np.bool_] = starts == ends
        pairs = np.arange(len(starts))
        seen = np.sort(pairs << 32 | below)
        while len(pairs):
            first = np.searchsorted(owners, nodes[below])
            number = np.searchsorted(owners, nodes[below], side="right") - first
            self._searched += len(below) + int(number.sum())
            if self._searched > _MAX_SEARCHED:
                found[pairs] = True
                self._assumed = _distinct(np.concatenate([self._assumed, starts[pairs]]))
                break
            pairs, below = np.repeat(pairs, number), held[ragged(first, number)]
            found[pairs[nodes[below] == ends[pairs]]] = True
            waiting = _distinct((pairs << 32 | below)[~found[pairs]])
            waiting = waiting[~_are_in(waiting, seen)]
            seen = np.sort(np.concatenate([seen, waiting]))
            pairs, below = waiting >> 32, waiting & 0xFFFFFFFF
        return found

    def _joined(self, names: Places, paths: Places) -> Places:
        """Return the paths that begin with these names."""
        distinct, which = np.unique(names << 32 | paths, return_inverse=True)
        joined = []
        for name, path in zip((distinct >> 32).tolist(), (distinct & 0xFFFFFFFF).tolist(), strict=True):
            (of, rest), text = self._texts[path], self._names.texts[name]
            joined.append(self._path(of, _attribute(rest) if text == INSTANCE_DICT else text + rest))
        return np.array(joined, np.int64)[which]

    def _end(
        self, sources: Numbers, targets: Numbers, paths: Places, below: Places, counts: Places
    ) -> NDArray[np.bool_]:
        """Add what begins at a name; return which go on."""
        kinds, program = self._heap.kinds[sources], self._finder.program
        owned = program.are_namespaces(sources)
        local = np.zeros(len(kinds), bool)
        for i in np.flatnonzero(self._is_frame[kinds]).tolist():
            if variable := self._finder.variables.get(int(targets[i])):
                of, text = self._texts[below[i]]
                self._found[of][variable + text] += int(counts[i])
                local[i] = True
        rows = np.flatnonzero(owned & ~local)
        for source, path, count in zip(*_totals(sources[rows], paths[rows], counts[rows]), strict=True):
            of, text = self._texts[path]
            self._in_namespaces[of][source, _attribute(text)] += count
        goes_on: NDArray[np.bool_] = ~owned & ~local
        sets = np.array([-1 if text.startswith(BASE) else of for of, text in self._texts], np.int64)[paths]
        rows = np.flatnonzero(goes_on & _are_in(kinds.astype(np.int64) << 32 | sets, self._types_in))
        for kind, path, count in zip(*_totals(kinds[rows], paths[rows], counts[rows]), strict=True):
            of, text = self._texts[path]
            self._found[of][self._heap.types[kind].name + text] += count
        goes_on[rows] = False
        return goes_on

    def _end_at_types(self, above: _Paths) -> NDArray[np.bool_]:
        """Add what few objects of a type hold by a path, which begins at the type then; return which go on."""
        kinds = self._heap.kinds[above.objects]
        goes_on = np.ones(len(kinds), bool)
        rows = np.flatnonzero(~self._is_through[kinds])
        names = {kind.name: i for i, kind in reversed(list(enumerate(self._heap.types)))}
        of_name = np.array([names[kind.name] for kind in self._heap.types], np.int64)
        groups, which, number = np.unique(
            of_name[kinds[rows]] << 32 | above.paths[rows], return_inverse=True, return_counts=True
        )
        totals = np.bincount(which, above.counts[rows], len(groups)).astype(np.int64)
        sets = self._sets(groups & 0xFFFFFFFF)
        few = number <= self._few[sets]
        for group, total in zip(groups[few].tolist(), totals[few].tolist(), strict=True):
            of, text = self._texts[group & 0xFFFFFFFF]
            self._found[of][self._heap.types[group >> 32].name + text] += total
        goes_on[rows[few[which]]] = False
        return goes_on

    def _end_at_links(self, above: _Paths) -> NDArray[np.bool_]:
        """Add what is held by a linked structure, whose objects hold others of their type; return which go on."""
        kinds, sets = self._heap.kinds[above.objects], self._sets(above.paths)
        goes_on = np.ones(len(kinds), bool)
        for kind in distinct(kinds[~self._is_through[kinds]]).tolist():
            rows = np.flatnonzero(kinds == kind)
            if not (np.bincount(sets[rows], above.counts[rows]) >= self._most[: sets[rows].max() + 1]).any():
                continue
            into = self._finder.paths_into_type(self._heap.types[kind].name)
            for _, path, count in zip(*_totals(kinds[rows], above.paths[rows], above.counts[rows]), strict=True):
                of, text = self._texts[path]
                for start, share in into.items():
                    self._found[of][start + text] += round(count * share)
            goes_on[rows] = not into
        return goes_on

    def _add_unnamed(self, below: _Paths) -> None:
        """Add paths that begin at no attribute: at a local variable, or in C code."""
        is_passed = _are_in(self._in_sets(below.objects, below.paths), self._passed)
        for number, path, count, passed in zip(
            below.objects.tolist(), below.paths.tolist(), below.counts.tolist(), is_passed.tolist(), strict=True
        ):
            of, text = self._texts[path]
            kind = self._heap.types[self._heap.kinds[number]].name if passed else "an object"
            if number not in self._finder.variables and kind != "method":
                self._unheld[number, of] += count
            if kind == "method":
                kind = f"{kind} {self._names.attributes.method_name(int(self._heap.addresses[number]))}"
            self._found[of][(self._finder.variables.get(number) or f"{UNNAMED_HOLDER_PREFIX}{kind}") + text] += count


def _sample(numbers: Numbers) -> Numbers:
    """Return about SAMPLED of these, evenly, but in no rhythm: objects may lie in turns of two kinds."""
    if len(numbers) <= SAMPLED:
        return numbers
    places = np.arange(SAMPLED) * _GOLDEN_RATIO % 1.0 * len(numbers)  # Each lies in the largest gap of those before.
    return numbers[distinct(places.astype(np.int64))]


def _is_class(kind: HeapType) -> bool:
    """Whether it is neither a builtin type nor a container of the standard library, whose objects hold each other."""
    return "." in kind.name and kind.shape not in THROUGH


def _begins_at_name(path: str, builtins: Collection[str]) -> bool:
    """Whether a path begins at an attribute or a variable, not at an object of a builtin type or in C code."""
    return not path.startswith(UNNAMED_HOLDER_PREFIX) and path.partition("[")[0].partition(".")[0] not in builtins


def _distinct(numbers: Places) -> Places:
    """As numpy.unique, which takes seconds where many numbers share their low bits (since NumPy 2.3)."""
    ordered = np.sort(numbers)
    return ordered[np.flatnonzero(np.diff(ordered, prepend=-1))]


def _are_in(numbers: Places, ordered: Places) -> NDArray[np.bool_]:
    """As numpy.isin, and for the same reason."""
    if not len(ordered):
        return np.zeros(len(numbers), bool)
    found: NDArray[np.bool_] = ordered[np.minimum(np.searchsorted(ordered, numbers), len(ordered) - 1)] == numbers
    return found


def _chosen(paths: _Paths, rows: NDArray[np.bool_]) -> _Paths:
    return _Paths(paths.objects[rows], paths.paths[rows], paths.counts[rows])


def _summed(objects: Numbers, paths: Places, counts: Places) -> _Paths:
    """Return one row for each object and path."""
    pairs, which = np.unique(objects.astype(np.int64) << 32 | paths, return_inverse=True)
    totals = np.bincount(which, counts, len(pairs)).astype(np.int64)
    return _Paths((pairs >> 32).astype(np.int32), pairs & 0xFFFFFFFF, totals)


def _totals(objects: Numbers, paths: Places, counts: Places) -> tuple[list[int], list[int], list[int]]:
    rows = _summed(objects, paths, counts)
    return rows.objects.tolist(), rows.paths.tolist(), rows.counts.tolist()


def _most_common(paths: _Paths) -> _Paths:
    """Return the most common paths of each object."""
    order = np.lexsort((-paths.counts, paths.objects))
    first = np.searchsorted(paths.objects, paths.objects)
    kept = np.sort(order[np.arange(len(order)) - first < _MAX_PATHS])
    return _Paths(paths.objects[kept], paths.paths[kept], paths.counts[kept])


def _attribute(path: str) -> str:
    """Turn a path from an object's dict into one from the object: ['losses'][i] is .losses[i]."""
    key, end, rest = path.partition("]")
    name = key[2:-1]
    return f".{name}{rest}" if end and key[:2] in ("['", '["') and name.isidentifier() else path
