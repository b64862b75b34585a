"""Distinguishes the program's own modules, classes and sources from Python's and from installed libraries'."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from memwatch.diagnosis.heap.attributes import Attributes
from memwatch.diagnosis.heap.reachable_objects import TypeTally
from memwatch.diagnosis.heap.remote_objects import HeapType

_FOLDERS = re.compile(r"/(site-packages|dist-packages|lib(64)?/python3(\.\d+)?)/")


def is_installed(path: str, root: str = "") -> bool:
    """Whether a source, by its path in the process, is Python's or a library's; `root` is the process's `/`."""
    return path.startswith("<frozen ") or bool(_FOLDERS.search(path)) or _is_with_metadata(path, root)


# numpy/ beside numpy-2.1.0.dist-info/, in any folder: pip install --target
@cache
def _is_with_metadata(path: str, root: str) -> bool:
    """Whether the package of a source lies beside the metadata that pip writes."""
    folder = Path(f"{root}{path}").parent
    try:
        while (folder / "__init__.py").exists():
            folder = folder.parent
        return path.startswith("/") and any(folder.glob("*.dist-info"))
    except (OSError, ValueError):  # No file can have this name.
        return False


LIBRARY = 3  # the distance of an installed package
_MAIN = "__main__"


def is_of_program(name: str) -> bool:
    """Whether a class is of neither Python, its standard library, nor a private package."""
    package, dot, _ = name.partition(".")
    return bool(dot and package) and (package == _MAIN or not (package[0] == "_" or package in sys.stdlib_module_names))


def is_owner(kind: HeapType) -> bool:
    """Whether the dict of its objects is a namespace of the program."""
    return kind.shape == "class" or kind.name == "module"


class Program:
    """The modules and classes of one process; `root` is the process's `/`."""

    def __init__(self, attributes: Attributes, tallies: Iterable[TypeTally], root: str = "") -> None:
        self.owners: dict[int, str] = {}  # names of modules and classes, by the address of their dicts
        files: dict[str, str] = {}  # of packages
        for tally in tallies:
            if tally.type.name == "module":
                for address in tally.addresses:
                    module = attributes.module(address)
                    self.owners[module.namespace] = module.name
                    if "." not in module.name:
                        files[module.name] = module.file
            elif tally.type.shape == "class":
                for address in tally.addresses:
                    obj = attributes.object_at(address)
                    if obj is not None:
                        self.owners[attributes.dict_of(obj)] = attributes.type_name(address)
        self.owners.pop(0, None)
        main = files.get(_MAIN, "")
        self._distances = {package: _distance(file, main, root) for package, file in files.items() if file}

    def distance(self, name: str) -> int:
        """Return the distance of a class from the main program: 0 its own, 1 beside it, 2 elsewhere, 3 in a library."""
        package = name.partition(".")[0]
        return 0 if package == _MAIN else self._distances.get(package, LIBRARY)


def _distance(file: str, main: str, root: str) -> int:
    if is_installed(file, root):
        return LIBRARY
    folder = main.rpartition("/")[0]
    return 1 if folder and file.startswith(f"{folder}/") else 2
