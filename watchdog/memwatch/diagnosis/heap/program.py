"""What in a heap is the program's own: its modules and classes, apart from Python's and from installed libraries'."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from memwatch.diagnosis.heap.attributes import Attributes
from memwatch.diagnosis.heap.types import HeapType
from memwatch.diagnosis.heap.walk import Kind

_INSTALLED = ("/site-packages/", "/dist-packages/")


def is_of_program(name: str) -> bool:
    """A class of neither Python itself nor its standard library, nor of what others keep to themselves."""
    package, dot, _ = name.partition(".")
    return bool(dot) and (package == "__main__" or not (package[0] == "_" or package in sys.stdlib_module_names))


def is_owner(kind: HeapType) -> bool:
    """Its dict is a namespace of the program."""
    return kind.shape == "class" or kind.name == "module"


class Program:
    """The modules and classes of one process."""

    def __init__(self, attributes: Attributes, kinds: Iterable[Kind]) -> None:
        self.owners: dict[int, str] = {}  # names of modules and classes, by the address of their dicts
        self._own = {"__main__"}  # packages that were written for this program
        for kind in kinds:
            if kind.type.name == "module":
                for address in kind.addresses:
                    module = attributes.module(address)
                    self.owners[module.namespace] = module.name
                    if module.file and not any(folder in module.file for folder in _INSTALLED):
                        self._own.add(module.name.partition(".")[0])
            elif kind.type.shape == "class":
                for address in kind.addresses:
                    place = attributes.find(address)
                    if place is not None:
                        self.owners[attributes.dict_of(place)] = attributes.type_name(address)
        self.owners.pop(0, None)

    def is_own(self, name: str) -> bool:
        """A class that was written for this program."""
        return is_of_program(name) and name.partition(".")[0] in self._own
