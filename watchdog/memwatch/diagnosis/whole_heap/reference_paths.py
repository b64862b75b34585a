"""Finds what keeps objects alive: reference paths from them up to a named attribute or local variable."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memwatch.core.examination import CYCLES_HOLDER_PREFIX, UNNAMED_HOLDER_PREFIX, ReferencePath
from memwatch.diagnosis.heap.attributes import LRU_CACHE
from memwatch.diagnosis.whole_heap.bulk_reads import Places, ragged
from memwatch.diagnosis.whole_heap.program_namespaces import Program
from memwatch.diagnosis.whole_heap.reachable_objects import HeapObjects, Numbers, References
from memwatch.diagnosis.whole_heap.reference_names import BASE, CELL, INSTANCE_DICT, THROUGH, ReferenceNames

EXPLAINS = 0.5  # From this share of the objects on, what is true of them is said of their type (chosen).
SAMPLED = 8_000  # Objects of a type whose holders are sought: a bound on time (measured: 20,000 take 0.3 s more).
_GOLDEN_RATIO = 0.5 * (math.sqrt(5.0) - 1.0)
_MAX_STEPS = 12  # References in a path (chosen).
_FEW, _FEW_SHARE = 16, 0.01  # A type of at most so many holders, or this share of the objects, ends a path (chosen).
_MAX_PATHS = 8  # Paths that are continued from one holder (chosen).
_MAX_HOLDERS = 10  # Paths that are reported for a type (chosen).
# Objects of a type, and of those with what refers to them, that are looked at for whether they are garbage (chosen).
_GARBAGE_SAMPLED, _MAX_IN_CYCLES = 16, 1 << 13
_MAX_SEARCHED = 1 << 19  # Objects that are searched for circles; beyond, a circle is assumed.
# Shapes that hold nothing, or (classes) hold it in a dict of their own. Such an object replaced a freed holder.
_NO_HOLDERS = {"weak", "class", "str", "int", "bytes", "bytearray", "array"}
# Of a module its dict holds; a bound method of a list or dict, as `children.remove`, belongs to what is in that.
_NAMELESS_HOLDERS = {"module", "builtin_function_or_method"}
_FRAMES = {"frame", "generator", "coroutine", "async_generator"}
_MODULES = "sys.modules[k]"
# Types of which no object is the holder that a user looks for.
_THROUGH = {CELL, "traceback", LRU_CACHE, "functools.partial", "method", *_FRAMES}


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
        numbers = heap.numbers(np.fromiter(variables, np.uint64)).tolist()
        self.variables = {one: name for one, name in zip(numbers, variables.values(), strict=True) if one >= 0}

    def paths_to_types(self, objects: Mapping[str, Numbers]) -> list[ReferencePath]:
        """Return the paths to most objects of each type, given the numbers of all; that to the most comes first."""
        sought = [_sample(numbers) for numbers in objects.values()]
        found = list[ReferencePath]()
        searched = _ReferrerSearch(self, sought).paths()
        for (name, numbers), few, paths in zip(objects.items(), sought, searched, strict=True):
            number, every = len(numbers), len(numbers) / len(few)
            for path, count in paths.most_common(_MAX_HOLDERS):
                found.append(ReferencePath(name, path, min(round(count * every), number), number))
        return found

    def shortest_paths(self, numbers: Sequence[int]) -> dict[int, str]:
        """Return the shortest path to each of these objects that has one."""
        sought = [np.array([number], np.int32) for number in numbers]
        found = _ReferrerSearch(self, sought).paths()
        return {one: min(paths, key=len) for one, paths in zip(numbers, found, strict=True) if paths}

    def are_garbage(self, numbers: Numbers) -> NDArray[np.bool_]:
        """Return which of these objects are held by nothing but each other, as the collector finds it.

        Every reference to them, and to all that refer to them, comes from one of these. False where these are too many.
        """
        heap, inside = self.heap, np.zeros(len(self.heap.addresses) + 1, bool)  # and none
        inside[numbers] = True
        waiting = numbers
        while len(waiting):
            sources = heap.references_to(waiting).sources
            waiting = np.unique(sources[~inside[sources]])
            inside[waiting] = True
            if np.count_nonzero(inside) > _MAX_IN_CYCLES or not self.may_go_on():
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

    def __init__(self, finder: ReferencePathFinder, sought: Sequence[Numbers]) -> None:
        """`sought`: sets of objects."""
        self._finder, self._heap, self._names = finder, finder.heap, finder.names
        self._found: list[Counter[str]] = [Counter() for _ in sought]
        # by the dict of a module or class in which a path begins, and the path from there
        self._in_namespaces: list[Counter[tuple[int, str]]] = [Counter() for _ in sought]
        self._texts: list[tuple[int, str]] = []  # of each path: which of the sets it leads to, and its text
        self._numbers: dict[tuple[int, str], int] = {}
        self._few = np.array([max(_FEW, int(_FEW_SHARE * len(numbers))) for numbers in sought])
        objects = np.concatenate([np.empty(0, np.int32), *sought])
        sets = np.repeat(np.arange(len(sought)), np.array([len(numbers) for numbers in sought], np.int64))
        self._sought = set(zip(objects.tolist(), sets.tolist(), strict=True))
        starts = np.array([self._path(i, "") for i in range(len(sought))], np.int64)
        self._below = _summed(objects, starts[sets], np.ones(len(objects), np.int64))
        types = self._heap.types
        self._holds = np.array(
            [kind.shape not in _NO_HOLDERS and kind.name not in _NAMELESS_HOLDERS for kind in types], bool
        )
        self._is_through = np.array(
            [kind.shape in (*THROUGH, "exception") or kind.name in _THROUGH for kind in types], bool
        )
        self._is_frame = np.array([kind.name in _FRAMES for kind in types], bool)
        self._steps: list[References] = []  # that led to holders
        self._passed = np.zeros(len(self._heap.addresses), bool)  # holders of earlier steps
        self._searched = 0
        self._assumed = np.zeros(len(self._heap.addresses), bool)  # objects for whose holders a circle was assumed

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

    def _name_namespaces(self) -> None:
        """Add the paths from modules and classes; where many modules have the same, it is sys.modules that grows.

        The full name of a class takes time to read: only the paths to the most objects get it.
        """
        program = self._finder.program
        for found, named in zip(self._found, self._in_namespaces, strict=True):
            modules = Counter(path for source, path in named if program.is_of_module(source))
            many = {path for path, number in modules.items() if number > _FEW and not path.startswith(".__")}
            totals, sources = Counter[tuple[str, str]](), dict[tuple[str, str], int]()
            for (source, path), count in named.items():
                is_one_of_many = path in many and program.is_of_module(source)
                key = _MODULES if is_one_of_many else program.short_name(source), path
                totals[key] += count
                sources[key] = source
            for place, ((name, path), count) in enumerate(totals.most_common()):
                is_told = place < _MAX_HOLDERS and name != _MODULES
                found[(program.namespace(sources[name, path]) if is_told else name) + path] += count

    def _name_garbage(self) -> None:
        """Say of paths that begin at no name that it is garbage in which they begin, where it is."""
        builtins = {kind.name for kind in self._heap.types if "." not in kind.name}
        for of, found in enumerate(self._found):
            named = sum(count for path, count in found.items() if _begins_at_name(path, builtins))
            sought = np.array(sorted(number for number, which in self._sought if which == of), np.int32)
            if named >= EXPLAINS * len(sought) or not len(sought):
                continue
            share = np.mean(self._finder.are_garbage(sought[:: -(-len(sought) // _GARBAGE_SAMPLED)]))
            if share >= EXPLAINS:
                kind = self._heap.types[self._heap.kinds[sought[0]]].name
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
        sources, targets, counts = references.sources[rows], references.targets[rows], below.counts[at]
        paths = self._joined(names[rows], below.paths[at])
        goes_on = self._end(sources, targets, paths, below.paths[at], counts)
        above = _summed(sources[goes_on], paths[goes_on], counts[goes_on])
        goes_on = self._end_at_types(above)
        above = _Paths(above.objects[goes_on], above.paths[goes_on], above.counts[goes_on])
        held = np.isin(below.objects, references.targets) | self._assumed[below.objects]  # another path may lead there
        self._add_unnamed(_Paths(below.objects[~held], below.paths[~held], below.counts[~held]))
        self._below = _most_common(above)
        led = np.isin(references.sources, self._below.objects)
        self._steps.append(References(references.sources[led], references.targets[led]))
        self._passed[self._below.objects] = True

    def _references(self) -> References:
        """Return the references to these objects, but none that closes a circle."""
        sources, targets = self._heap.references_to(self._below.objects)
        holds = self._holds[self._heap.kinds[sources]]
        sources, targets = sources[holds], targets[holds]
        kept = np.ones(len(sources), bool)
        if len(again := np.flatnonzero(self._passed[sources])):
            kept[again] = ~self._lead(targets[again], sources[again])
        return References(sources[kept], targets[kept])

    def _lead(self, starts: Numbers, ends: Numbers) -> NDArray[np.bool_]:
        """Return for each pair whether a path from the first object down to those that are sought contains the second.

        Once too many objects were searched, it is assumed of all pairs.
        """
        owners, held = (np.concatenate(part) for part in zip(*self._steps, strict=True))
        order = np.argsort(owners, kind="stable")
        owners, held = owners[order], held[order]
        found: NDArray[np.bool_] = starts == ends
        pairs, below = np.arange(len(starts)), starts
        seen = np.unique(pairs << 32 | below)
        while len(pairs):
            first = np.searchsorted(owners, below)
            number = np.searchsorted(owners, below, side="right") - first
            self._searched += len(below) + int(number.sum())
            if self._searched > _MAX_SEARCHED:
                found[pairs] = True
                self._assumed[starts[pairs]] = True
                break
            pairs, below = np.repeat(pairs, number), held[ragged(first, number)]
            found[pairs[below == ends[pairs]]] = True
            waiting = np.unique((pairs << 32 | below)[~found[pairs]])
            waiting = waiting[~np.isin(waiting, seen, assume_unique=True)]
            seen = np.concatenate([seen, waiting])
            pairs, below = waiting >> 32, (waiting & 0xFFFFFFFF).astype(np.int32)
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
        for i in np.flatnonzero(goes_on & self._may_be_sought(sources)).tolist():
            of, text = self._texts[paths[i]]
            if (int(sources[i]), of) in self._sought and not text.startswith(BASE):
                self._found[of][self._heap.types[kinds[i]].name + text] += int(counts[i])
                goes_on[i] = False
        return goes_on

    def _may_be_sought(self, sources: Numbers) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = np.isin(sources, np.fromiter({number for number, _ in self._sought}, np.int32))
        return found

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
        sets = np.array([of for of, _ in self._texts], np.int64)[groups & 0xFFFFFFFF]
        few = number <= self._few[sets]
        for group, total in zip(groups[few].tolist(), totals[few].tolist(), strict=True):
            of, text = self._texts[group & 0xFFFFFFFF]
            self._found[of][self._heap.types[group >> 32].name + text] += total
        goes_on[rows[few[which]]] = False
        return goes_on

    def _add_unnamed(self, below: _Paths) -> None:
        """Add paths that begin at no attribute: at a local variable, or in C code."""
        for number, path, count in zip(
            below.objects.tolist(), below.paths.tolist(), below.counts.tolist(), strict=True
        ):
            of, text = self._texts[path]
            kind = self._heap.types[self._heap.kinds[number]].name if self._passed[number] else "an object"
            if kind == "method":
                kind = f"{kind} {self._names.attributes.method_name(int(self._heap.addresses[number]))}"
            self._found[of][(self._finder.variables.get(number) or f"{UNNAMED_HOLDER_PREFIX}{kind}") + text] += count


def _sample(numbers: Numbers) -> Numbers:
    """Return about SAMPLED of these, evenly, but in no rhythm: objects may lie in turns of two kinds."""
    if len(numbers) <= SAMPLED:
        return numbers
    places = np.arange(SAMPLED) * _GOLDEN_RATIO % 1.0 * len(numbers)  # Each lies in the largest gap of those before.
    return numbers[np.unique(places.astype(np.int64))]


def _begins_at_name(path: str, builtins: Collection[str]) -> bool:
    """Whether a path begins at an attribute or a variable, not at an object of a builtin type or in C code."""
    return not path.startswith(UNNAMED_HOLDER_PREFIX) and path.partition("[")[0].partition(".")[0] not in builtins


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
