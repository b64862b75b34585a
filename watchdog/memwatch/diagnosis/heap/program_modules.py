"""Distinguishes the program's own modules, classes and sources from Python's and from installed libraries'."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

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


MAIN = "__main__"


def is_of_program(name: str) -> bool:
    """Whether a class is of neither Python, its standard library, nor a private package."""
    package, dot, _ = name.partition(".")
    return bool(dot and package) and (package == MAIN or not (package[0] == "_" or package in sys.stdlib_module_names))
