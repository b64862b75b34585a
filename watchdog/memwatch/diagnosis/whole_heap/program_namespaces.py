"""The modules and classes of a program: their names, by their dicts, and how far they are from the main program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memwatch.diagnosis.heap.attributes import Attributes
from memwatch.diagnosis.heap.object_layouts import CLASS_DICT_AT
from memwatch.diagnosis.heap.program_modules import MAIN, is_installed
from memwatch.diagnosis.whole_heap.bulk_layouts import BulkLayouts, Objects
from memwatch.diagnosis.whole_heap.bulk_reads import Words
from memwatch.diagnosis.whole_heap.reachable_objects import HeapObjects, Numbers

_MODULE_DICT_AT, _CLASS_NAME_AT = 16, 24
LIBRARY = 3  # the distance of an installed package
_COMPARED = 8  # modules whose names tell where the name is (chosen)


class Program:
    """The modules and classes of one process; `root` is the process's `/`."""

    def __init__(self, heap: HeapObjects, layouts: BulkLayouts, attributes: Attributes, root: str = "") -> None:
        self._heap, self._attributes, self._root = heap, attributes, root
        self._owners: dict[int, int] = {}  # modules and classes, by their dicts
        self._names: dict[int, str] = {}  # of these, by the same; of classes without that of the module
        self._modules = defaultdict[str, list[int]](list)  # addresses, by name
        self._classes = defaultdict[str, list[int]](list)  # addresses, by the name without that of the module
        modules = heap.of_types(lambda kind: kind.name == "module")
        for which, objects in layouts.read(heap.addresses[modules], heap.kinds[modules]):
            texts = objects.word(self._name_offset(objects)) + np.uint64(layouts.ascii_offset)
            names = layouts.tables.texts(texts)
            self._add(modules[which], objects.word(_MODULE_DICT_AT), names)
            for name, address in zip(names, objects.addresses.tolist(), strict=True):
                self._modules[name].append(address)
        self._of_modules = set(self._owners)
        classes = heap.of_types(lambda kind: kind.shape == "class")
        for which, objects in layouts.read(heap.addresses[classes], heap.kinds[classes]):
            names = [name.rpartition(".")[2] for name in layouts.tables.texts(objects.word(_CLASS_NAME_AT))]
            self._add(classes[which], objects.word(CLASS_DICT_AT), names)
            for name, address in zip(names, objects.addresses.tolist(), strict=True):
                self._classes[name].append(address)
        self._are_namespaces = np.zeros(len(heap.addresses), bool)
        self._are_namespaces[list(self._owners)] = True
        self._distances: dict[str, int] = {}
        self._main = self._file(MAIN)

    def _name_offset(self, modules: Objects) -> int:
        """Return where in a module its name is, which differs from version to version: where those of most are."""
        names = [self._attributes.module(address).name for address in modules.addresses[:_COMPARED].tolist()]
        offsets = range(_MODULE_DICT_AT + 8, 8 * int(modules.room[0]), 8)
        seen = {offset: modules.word(offset)[:_COMPARED].tolist() for offset in offsets}
        texts = {offset: [self._attributes.text(one) for one in found] for offset, found in seen.items()}
        alike = {offset: sum(a == b for a, b in zip(texts[offset], names, strict=True)) for offset in offsets}
        return max(alike, key=alike.__getitem__, default=_MODULE_DICT_AT)

    def _add(self, owners: Numbers, dicts: Words, names: Sequence[str]) -> None:
        for number, owner, name in zip(self._heap.numbers(dicts).tolist(), owners.tolist(), names, strict=True):
            if number >= 0:
                self._owners[number], self._names[number] = owner, name

    def are_namespaces(self, numbers: Numbers) -> NDArray[np.bool_]:
        """Return which of these objects are the dicts of modules and classes."""
        found: NDArray[np.bool_] = self._are_namespaces[numbers]
        return found

    def namespace(self, number: int) -> str:
        """Return the name of the module or class with this dict."""
        address = self.owner(number)
        return (
            self._attributes.module(address).name if self.is_of_module(number) else self._attributes.type_name(address)
        )

    def owner(self, number: int) -> int:
        """Return the address of the module or class with this dict."""
        return int(self._heap.addresses[self._owners[number]])

    def short_name(self, number: int) -> str:
        """Return the name of the module with this dict, or of the class without that of its module."""
        return self._names[number]

    def is_of_module(self, number: int) -> bool:
        """Return whether this dict is that of a module, not of a class."""
        return number in self._of_modules

    def modules(self, name: str) -> list[int]:
        """Return the addresses of the modules of that name."""
        return self._modules.get(name, [])

    def classes(self, name: str) -> list[int]:
        """Return the addresses of the classes that are called so in their modules."""
        return self._classes.get(name, [])

    def distance(self, name: str) -> int:
        """Return the distance of a class from the main program: 0 its own, 1 beside it, 2 elsewhere, 3 in a library."""
        package = name.partition(".")[0]
        if package == MAIN:
            return 0
        if package not in self._distances:
            file = self._file(package)
            self._distances[package] = _distance(file, self._main, self._root) if file else LIBRARY
        return self._distances[package]

    def _file(self, package: str) -> str:
        found = [file for address in self.modules(package) if (file := self._attributes.module(address).file)]
        return found[-1] if found else ""


def _distance(file: str, main: str, root: str) -> int:
    if is_installed(file, root):
        return LIBRARY
    folder = main.rpartition("/")[0]
    return 1 if folder and file.startswith(f"{folder}/") else 2
