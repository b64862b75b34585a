"""How objects name what they refer to: an attribute, a key, or an item."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from memwatch.diagnosis.heap.attributes import Attributes
from memwatch.diagnosis.heap.object_layouts import NDARRAY_BASE_AT
from memwatch.diagnosis.heap.remote_objects import REFCOUNT_BITS
from memwatch.diagnosis.whole_heap.bulk_layouts import BulkLayouts, Objects
from memwatch.diagnosis.whole_heap.bulk_reads import Places, Words, distinct
from memwatch.diagnosis.whole_heap.memory_of_c_objects import references_in_c_memory
from memwatch.diagnosis.whole_heap.reachable_objects import HeapObjects, Numbers, References

INSTANCE_DICT = "__dict__"
# What leads through a container, by its shape.
THROUGH = dict.fromkeys(("list", "tuple", "deque", "queue", "ndarray"), "[i]") | {"dict": "[k]", "set": "{i}"}
CELL = "cell"
BASE = ".base"  # of a view: what holds the view holds both
_MAX_KEYS = 8  # A dict that holds more of the objects shows each key as [k] (chosen).
_MAX_KEY_CHARS = 64  # A longer key is shown as [k] (chosen).
_MAX_ITEMS = 1 << 16  # of a dict whose keys are looked at: a bound on time


# objects, keys, addresses that are at these keys, and a function that gives the numbers of their names
_Items = tuple[Numbers, Words, Words, Callable[[Words], Places]]


class ReferenceNames:
    """Names references of one heap; a name is a number, an index of `texts`."""

    def __init__(self, heap: HeapObjects, layouts: BulkLayouts, attributes: Attributes) -> None:
        self._heap, self._layouts, self.attributes = heap, layouts, attributes
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        shapes = [THROUGH.get(kind.shape, "" if kind.name == CELL else None) for kind in heap.types]
        self._by_type = np.array([-1 if text is None else self.number(text) for text in shapes], np.int64)
        self._are_dicts = np.array([kind.shape == "dict" for kind in heap.types], bool)
        self._are_arrays = np.array([kind.shape == "ndarray" for kind in heap.types], bool)

    def number(self, text: str) -> int:
        """Return the number of a name."""
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]

    def names(self, references: References) -> Places:
        """Return the number of the name of each reference; references are in the order of source and target."""
        kinds = self._heap.kinds[references.sources]
        found = self._by_type[kinds]
        arrays = np.flatnonzero(self._are_arrays[kinds])
        if len(arrays):
            based = self._have_base(references.sources[arrays])
            found[arrays[based]] = self.number(BASE)
        first = np.flatnonzero(np.diff(references.sources, prepend=-1))
        number = np.diff(first, append=len(kinds))
        counts = np.repeat(number, number)
        dicts = np.flatnonzero(self._are_dicts[kinds] & (counts <= _MAX_KEYS))
        instances = np.flatnonzero(found < 0)
        found[instances] = self.number("")
        for which, items in ((dicts, self._items), (instances, self._fields)):
            if len(which):
                self._match(references, which, items(distinct(references.sources[which])), found)
        return found

    def _match(self, references: References, which: Places, items: Iterator[_Items], found: Places) -> None:
        """Set the names of some references by what their sources hold."""
        wanted = _pairs(references.sources[which], references.targets[which])
        for sources, keys, words, named in items:
            some = np.flatnonzero(words)
            targets = self._heap.numbers(words[some])
            pairs = _pairs(sources[some], targets)
            at = np.minimum(np.searchsorted(wanted, pairs), len(wanted) - 1)
            hit = np.flatnonzero((wanted[at] == pairs) & (targets >= 0))
            names = named(keys[some[hit]])
            found[which[at[hit[names >= 0]]]] = names[names >= 0]

    def in_c_memory(self, held: Numbers) -> References:
        """Return references to these objects that are in memory of C code."""
        return references_in_c_memory(self._heap, self._layouts, held)

    def refcounts(self, numbers: Numbers) -> Places:
        """Return the reference count of each of these objects, as it is now; a very large one where it is not read."""
        found = np.full(len(numbers), np.iinfo(np.int64).max)
        for which, objects in self._read(numbers):
            found[which] = objects.number(0) & REFCOUNT_BITS
        return found

    def _have_base(self, sources: Numbers) -> NDArray[np.bool_]:
        """Return which of these arrays are views of another object."""
        found = np.zeros(len(sources), bool)
        for which, objects in self._read(sources):
            found[which] = objects.word(NDARRAY_BASE_AT) > 0
        return found

    def _read(self, numbers: Numbers) -> Iterator[tuple[Places, Objects]]:
        return self._layouts.read(self._heap.addresses[numbers], self._heap.kinds[numbers])

    def _items(self, sources: Numbers) -> Iterator[_Items]:
        """Yield the items of dicts whose keys are names in the program's code, not data."""
        for which, dicts in self._read(sources):
            for of, keys, values in self._layouts.items(dicts, _MAX_ITEMS):
                yield sources[which[of]], keys, values, partial(self._of_keys, _key_text)

    def _fields(self, sources: Numbers) -> Iterator[_Items]:
        """Yield the attributes of instances, and their dicts."""
        for which, objects in self._read(sources):
            for number in distinct(objects.kinds).tolist():
                kind, same = self._heap.types[number], np.flatnonzero(objects.kinds == number)
                some, own = objects.chosen(same), sources[which[same]]
                for name, offset in self.attributes.members(kind):
                    if offset + 8 <= 8 * int(some.room[0]):
                        yield own, self._same(f".{name}", own), some.word(offset), _as_numbers
                dicts, values = self._layouts.attributes_at(some)
                yield own, self._same(INSTANCE_DICT, own), dicts, _as_numbers
                if (valued := values > 0).any() and len(names := self._layouts.shared_keys(kind)):
                    for of, keys, words in self._layouts.values(np.flatnonzero(valued), values[valued], names):
                        yield own[of], keys, words, partial(self._of_keys, _attribute_text)

    def _same(self, text: str, sources: Numbers) -> Words:
        return np.full(len(sources), self.number(text), np.uint64)

    def _of_keys(self, text: Callable[[str], str], keys: Words) -> Places:
        """Return the numbers of names by the addresses of their str; -1 for one that is no name in the code."""
        distinct, which = np.unique(keys, return_inverse=True)
        names = [self.attributes.identifier(key) if key else None for key in distinct.tolist()]
        numbers = [-1 if name is None else self.number(text(name)) for name in names]
        found: Places = np.array(numbers, np.int64)[which]
        return found


def _as_numbers(names: Words) -> Places:
    return names.astype(np.int64)


def _key_text(name: str) -> str:
    return f"[{name!r}]" if len(name) <= _MAX_KEY_CHARS else THROUGH["dict"]


def _attribute_text(name: str) -> str:
    return f".{name}"


def _pairs(sources: Numbers, targets: Numbers) -> NDArray[np.int64]:
    pairs: NDArray[np.int64] = sources.astype(np.int64) << 32 | targets.astype(np.int64) & 0xFFFFFFFF
    return pairs
