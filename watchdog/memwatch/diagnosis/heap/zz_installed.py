"""Which sources are Python's own or an installed library's, and not the program's."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

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
