"""Where CPython's runtime lies in a process, by the symbols of its executable or its libpython."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.hash import GNUHashSection
from elftools.elf.sections import SymbolTableSection

from memwatch.diagnosis.heap.remote_memory import Mapping, Memory
from memwatch.errors import SourceError

_LIBRARY = re.compile(r"/libpython[0-9][^/]*\.so[^/]*( \(deleted\))?$")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Binary:
    """The file that CPython's runtime is in, as it is mapped."""

    def __init__(self, memory: Memory, root: str = "/proc") -> None:
        """SourceError when no file of the process has a CPython in it."""
        for path, first in _candidates(memory, root):
            # elftools trusts what a file says of itself: one that lies ends it in any way
            with suppress(Exception), open(path, "rb") as file:
                elf = ELFFile(file)
                runtime = _symbol(elf, "_PyRuntime") or _section(elf, ".PyRuntime")[0]
                if runtime:
                    bias = _bias(elf, first)
                    self.path = first.path
                    self.runtime = runtime + bias
                    version = _symbol(elf, "Py_Version")
                    self.version_at = version + bias if version else 0
                    start, size = _section(elf, ".bss")
                    self.bss = (start + bias, size)
                    return
        raise SourceError(
            f"process {memory.pid} runs no CPython that can be found",
            "a census needs CPython 3.8 to 3.15 with its symbol _PyRuntime, as all usual builds have it",
        )


def _candidates(memory: Memory, root: str) -> Iterator[tuple[str, Mapping]]:
    """Ways to the executable and to each libpython, with its first mapping."""
    folder = f"{root}/{memory.pid}"
    executable = os.readlink(f"{folder}/exe")  # noqa: PTH115 - a text, which may end with " (deleted)"
    seen = set()
    for mapping in memory.maps:
        if mapping.path in seen or not (mapping.path == executable or _LIBRARY.search(mapping.path)):
            continue
        seen.add(mapping.path)
        linked = f"{folder}/map_files/{mapping.start:x}-{mapping.end:x}"
        ways = (f"{folder}/exe",) if mapping.path == executable else (f"{folder}/root{mapping.path}", linked)
        yield from ((way, mapping) for way in ways)


def _symbol(elf: ELFFile, name: str) -> int:
    """Its address in the file; 0 without it. By a hash of the names first: reading all symbols takes 0.2 s."""
    hashed = elf.get_section_by_name(".gnu.hash")
    found = hashed.get_symbol(name) if isinstance(hashed, GNUHashSection) else None
    if found is not None and found["st_shndx"] != "SHN_UNDEF":
        return int(found["st_value"])
    for section in (".dynsym", ".symtab"):
        table = elf.get_section_by_name(section)
        named = table.get_symbol_by_name(name) if isinstance(table, SymbolTableSection) else None
        if named and named[0]["st_shndx"] != "SHN_UNDEF":
            return int(named[0]["st_value"])
    return 0


def _section(elf: ELFFile, name: str) -> tuple[int, int]:
    """Its address in the file and its size; zeros without it."""
    section = elf.get_section_by_name(name)
    return (int(section["sh_addr"]), int(section["sh_size"])) if section is not None else (0, 0)


def _bias(elf: ELFFile, first: Mapping) -> int:
    """What is added to an address in the file."""
    loads = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
    of_first = next((load for load in loads if load["p_offset"] // _PAGE * _PAGE == first.offset), None)
    if of_first is None:
        raise ELFError("its first mapping is none of its segments")
    return first.start - int(of_first["p_vaddr"]) // _PAGE * _PAGE
