"""What in a heap is the program's own: its modules and classes, apart from Python's and from installed libraries'.

Which sources are Python's own or an installed library's, and not the program's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from memwatch.diagnosis.heap.attribute_values import Attributes
from memwatch.diagnosis.heap.reachable_objects import TypeTally
from memwatch.diagnosis.heap.type_objects import HeapType

_FOLDERS = re.compile(r"/(site-packages|dist-packages|lib(64)?/python3(\.\d+)?)/")


def is_installed(path: str, root: str = "") -> bool:
    """`path`: of a source, as the process names it; `root`: the folder that is `/` to it."""
    return path.startswith("<frozen ") or bool(_FOLDERS.search(path)) or _is_with_metadata(path, root)


# numpy/ beside numpy-2.1.0.dist-info/, in any folder: pip install --target
@cache
def _is_with_metadata(path: str, root: str) -> bool:
    """Whether its package lies beside what pip writes about packages."""
    folder = Path(f"{root}{path}").parent
    try:
        while (folder / "__init__.py").exists():
            folder = folder.parent
        return path.startswith("/") and any(folder.glob("*.dist-info"))
    except (OSError, ValueError):  # a name that no file can have
        return False


LIBRARY = 3  # the distance of what is installed
_MAIN = "__main__"


def is_of_program(name: str) -> bool:
    """A class of neither Python itself nor its standard library, nor of what others keep to themselves."""
    package, dot, _ = name.partition(".")
    return bool(dot and package) and (
        package == "__main__" or not (package[0] == "_" or package in sys.stdlib_module_names)
    )


def is_owner(kind: HeapType) -> bool:
    """Its dict is a namespace of the program."""
    return kind.shape == "class" or kind.name == "module"


class Program:
    """The modules and classes of one process."""

    def __init__(self, attributes: Attributes, kinds: Iterable[TypeTally], root: str = "") -> None:
        """`root`: the folder that is `/` to it."""
        self.owners: dict[int, str] = {}  # names of modules and classes, by the address of their dicts
        files: dict[str, str] = {}  # of packages
        for kind in kinds:
            if kind.type.name == "module":
                for address in kind.addresses:
                    module = attributes.module(address)
                    self.owners[module.namespace] = module.name
                    if "." not in module.name:
                        files[module.name] = module.file
            elif kind.type.shape == "class":
                for address in kind.addresses:
                    place = attributes.object_at(address)
                    if place is not None:
                        self.owners[attributes.dict_of(place)] = attributes.type_name(address)
        self.owners.pop(0, None)
        self._distances = {
            package: _distance(file, files.get(_MAIN, ""), root) for package, file in files.items() if file
        }

    def distance(self, name: str) -> int:
        """How far a class is from the main program: 0 its own, 1 beside it, 2 elsewhere, 3 of a library."""
        package = name.partition(".")[0]
        return 0 if package == _MAIN else self._distances.get(package, LIBRARY)


def _distance(file: str, main: str, root: str) -> int:
    if is_installed(file, root):
        return LIBRARY
    folder = main.rpartition("/")[0]
    return 1 if folder and file.startswith(f"{folder}/") else 2
