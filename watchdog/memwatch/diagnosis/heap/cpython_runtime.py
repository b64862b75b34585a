"""Finds a process's CPython: its version, its interpreters, and the garbage collector's lists of tracked objects.

The address of the runtime comes from the symbols of the executable or of libpython.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from struct import unpack
from typing import BinaryIO, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.hash import GNUHashSection
from elftools.elf.sections import SymbolTableSection

from memwatch.diagnosis.heap.remote_memory import MemoryMapping, RemoteMemory
from memwatch.errors import SourceError, TargetGoneError

# pyelftools reads .gnu.hash, .dynsym and .symtab of a file that is not loaded here; nothing lighter that memwatch
# depends on does (ctypes resolves only what it loads, and that would run the trainer's library in memwatch).
_LIBRARY = re.compile(r"/libpython[0-9][^/]*\.so[^/]*( \(deleted\))?$")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Addresses(NamedTuple):
    """What a file says of where CPython's runtime is, before it is mapped; 0: it has no such symbol or section."""

    runtime: int
    version: int
    bss: tuple[int, int]
    segments: tuple[tuple[int, int], ...]  # of those that are loaded: the offset in the file, and the address


_known = dict[tuple[int, ...], _Addresses]()  # by device, inode, size and time: to read them takes 10 to 20 ms
_MOST_KNOWN = 16
_SETTLED_SECONDS = 2.0  # A file that was written since may change within one tick of its time (chosen).


class Binary:
    """The mapped file that contains CPython's runtime; SourceError when the process has none."""

    def __init__(self, memory: RemoteMemory) -> None:
        for path, first in _candidates(memory):
            # elftools trusts the headers of a file: on false ones it may raise anything.
            with suppress(Exception), open(path, "rb") as file:
                found = _addresses(file)
                if found.runtime:
                    bias = _bias(found, first)
                    self.runtime = found.runtime + bias
                    self.version_at = found.version + bias if found.version else 0
                    self.bss = (found.bss[0] + bias, found.bss[1])
                    return
        raise SourceError(
            f"process {memory.pid} runs no CPython that can be found",
            "a census needs CPython 3.8 to 3.15 with its symbol _PyRuntime, as all usual builds have it",
        )


def _candidates(memory: RemoteMemory) -> Iterator[tuple[str, MemoryMapping]]:
    """Yield paths to the executable and to each libpython, with its first mapping."""
    folder = memory.folder
    try:
        executable = os.readlink(f"{folder}/exe")  # noqa: PTH115 - a text, which may end with " (deleted)"
    except FileNotFoundError as error:  # memory that was opened before can be read for a moment longer
        raise TargetGoneError(f"process {memory.pid} has ended") from error
    seen = set()
    for mapping in memory.maps:
        if mapping.path in seen or not (mapping.path == executable or _LIBRARY.search(mapping.path)):
            continue
        seen.add(mapping.path)
        if mapping.path == executable:
            yield f"{folder}/exe", mapping
        else:
            yield f"{folder}/root{mapping.path}", mapping
            yield f"{folder}/map_files/{mapping.start:x}-{mapping.end:x}", mapping


def _addresses(file: BinaryIO) -> _Addresses:
    stat = os.fstat(file.fileno())
    identity = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
    if (known := _known.get(identity)) is not None:
        return known
    elf = ELFFile(file)
    loads = (segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD")
    found = _Addresses(
        runtime=_symbol(elf, "_PyRuntime") or _section(elf, ".PyRuntime")[0],
        version=_symbol(elf, "Py_Version", is_exported=True),
        bss=_section(elf, ".bss"),
        segments=tuple((int(load["p_offset"]), int(load["p_vaddr"])) for load in loads),
    )
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    if time.time() - stat.st_mtime > _SETTLED_SECONDS:
        _known[identity] = found
    return found


def _symbol(elf: ELFFile, name: str, *, is_exported: bool = False) -> int:
    """Return a symbol's address in the file, or 0; by the hash table first, because reading all symbols takes 0.2 s.

    `is_exported`: the hash table has it wherever there is such a table.
    """
    hashed = elf.get_section_by_name(".gnu.hash")
    found = hashed.get_symbol(name) if isinstance(hashed, GNUHashSection) else None
    if found is not None and found["st_shndx"] != "SHN_UNDEF":
        return int(found["st_value"])
    if is_exported and isinstance(hashed, GNUHashSection):
        return 0
    for section in (".dynsym", ".symtab"):
        table = elf.get_section_by_name(section)
        named = table.get_symbol_by_name(name) if isinstance(table, SymbolTableSection) else None
        if named and named[0]["st_shndx"] != "SHN_UNDEF":
            return int(named[0]["st_value"])
    return 0


def _section(elf: ELFFile, name: str) -> tuple[int, int]:
    """Return a section's address in the file and its size, or zeros."""
    section = elf.get_section_by_name(name)
    return (int(section["sh_addr"]), int(section["sh_size"])) if section is not None else (0, 0)


def _bias(found: _Addresses, first: MemoryMapping) -> int:
    """Return the difference between a mapped address and the same address in the file."""
    of_first = next((address for offset, address in found.segments if offset // _PAGE * _PAGE == first.offset), None)
    if of_first is None:
        raise ELFError("its first mapping is none of its segments")
    return first.start - of_first // _PAGE * _PAGE


_COOKIE = b"xdebugpy"  # at the start of the runtime, from 3.13 on
_VERSION = re.compile(rb"(3\.\d{1,2}\.\d{1,3}(?:(?:a|b|rc)\d{1,2})?\+?) \(")
_RECORD = 24  # bytes of a generation: next, prev, threshold, count
_GENERATIONS = 3
_COUNTED_ELSEWHERE = (3, 15)  # from this version on, collections are not counted after the permanent generation
_OBJECT_COUNT_AT = {(3, 14): 96, (3, 15): 40}  # bytes from the end of the permanent generation to heap_size
_TO_PERMANENT = range(72, 92, 4)  # from the first generation to the permanent one, in the builds that were seen
_SEARCHED = 9216  # bytes of an interpreter's state that are searched for lists that are not at the known offset
_RUNTIME_BYTES = 1 << 18  # the runtime's structure has up to this many bytes (3.13: about 120 kB)
_TRIES, _TRY_SECONDS = 400, 0.005  # to see each list closed: 2 s (chosen)
POINTER = ~3 & (2**64 - 1)  # the two lowest bits of a link are flags
MAX_INTERPRETERS = 64  # of a process: a bound against circles
_MAX_OBJECTS = 1 << 32  # A larger number of objects is none.
FIND_SECONDS = 10.0  # for the lists of all interpreters: a false one takes seconds


@dataclass(frozen=True, slots=True)
class _Offsets:
    """Offsets in bytes, from the internal headers of one minor version; checked before use."""

    head: int  # runtime -> the first interpreter
    following: int  # interpreter -> the next one
    generations: tuple[int, ...]  # interpreter (3.8: runtime) -> the first generation


_OFFSETS = {
    (3, 8): _Offsets(32, 0, (368,)),
    (3, 9): _Offsets(32, 0, (640,)),
    (3, 10): _Offsets(32, 0, (640,)),
    (3, 11): _Offsets(40, 0, (672,)),
    (3, 12): _Offsets(40, 0, (136,)),
    (3, 13): _Offsets(632, 7264, (7424, 7420)),
    (3, 14): _Offsets(808, 7272, (7432,)),
    (3, 15): _Offsets(936, 7264, (7408,)),
}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The CPython of a process."""

    version: str  # "3.11.7"
    minor: tuple[int, int]
    states: tuple[int, ...]  # addresses of its PyInterpreterState structures
    gc_list_heads: tuple[int, ...]  # addresses of the heads of all lists of tracked objects, of all interpreters
    collectors: tuple[int, ...] = ()  # addresses of each interpreter's counts of collections, where they are known
    object_counts: tuple[int, ...] = ()  # addresses of each interpreter's count of tracked objects, from 3.14 on
    variables: tuple[tuple[int, int], ...] = ()  # from, to: where C variables of the runtime lie

    def collection_counts(self, memory: RemoteMemory) -> tuple[int, ...]:
        """Return the number of full collections of each interpreter; -1 while one of any kind is under way."""
        return tuple(
            -1 if memory.word(at + _GENERATIONS * _RECORD) & 0xFFFFFFFF else memory.word(at + 2 * _RECORD)
            for at in self.collectors
        )

    def is_collector_enabled(self, memory: RemoteMemory) -> bool:
        """Whether the garbage collector of the first interpreter runs by itself, as it does until `gc.disable()`."""
        # before the first generation: `enabled` (0 or 1), the flags of gc.set_debug(), and in most versions padding
        return 1 in unpack("<II", memory.read(self.gc_list_heads[0] - 12, 8))

    def tracked_objects(self, memory: RemoteMemory) -> int | None:
        """Return about how many objects the collectors track: those of the last full collection and younger ones."""
        found = sum(memory.word(at) for at in self.object_counts)
        if found or not self.collectors:
            return found if 0 < found < _MAX_OBJECTS else None
        for at in self.collectors:
            found += sum(memory.words(at + _GENERATIONS * _RECORD + 24, 2))  # long_lived_total, long_lived_pending
        (threshold, count), (_, collections) = (unpack("<II", memory.read(at + 16, 8)) for at in self.gc_list_heads[:2])
        found += count + threshold * collections  # Each collection of the youngest left at most so many.
        return found if 0 < found < _MAX_OBJECTS else None


def find_interpreter(memory: RemoteMemory, seconds: float = FIND_SECONDS) -> Interpreter:
    """Find the CPython of a process; SourceError, with a hint, when it cannot be read, or not within `seconds`."""
    deadline = time.monotonic() + seconds
    if sys.byteorder != "little" or sys.maxsize != 2**63 - 1:
        raise SourceError("a census reads 64-bit little-endian processes only")
    binary = Binary(memory)
    version = _version(memory, binary)
    major, number = map(int, version.split(".")[:2])
    minor = (major, number)
    if minor not in _OFFSETS:
        raise SourceError(f"CPython {version} cannot be read", "a census reads CPython 3.8 to 3.15")
    lists: list[int] = []
    collectors, object_counts = [], []
    states = _states(memory, binary.runtime, minor)
    for holder in states if minor > (3, 8) else [binary.runtime]:
        found = _lists(memory, holder, version, _OFFSETS[minor].generations, deadline)
        lists += found
        if len(found) > _GENERATIONS and minor < _COUNTED_ELSEWHERE:
            collectors.append(found[_GENERATIONS] + _RECORD)
        if len(found) > _GENERATIONS and minor in _OBJECT_COUNT_AT:
            object_counts.append(found[_GENERATIONS] + _RECORD + _OBJECT_COUNT_AT[minor])
    bss, size = binary.bss
    variables = ((bss, bss + size), (binary.runtime, binary.runtime + _RUNTIME_BYTES))
    return Interpreter(version, minor, tuple(states), tuple(lists), tuple(collectors), tuple(object_counts), variables)


def _version(memory: RemoteMemory, binary: Binary) -> str:
    head = memory.read(binary.runtime, 24)
    if head.startswith(_COOKIE):
        number = int.from_bytes(head[8:16], "little")
        if int.from_bytes(head[16:24], "little"):
            hint = "a build without the GIL keeps no lists of its objects: diagnose the run on an ordinary build"
            raise SourceError(f"CPython {_of_number(number)} is free-threaded: its heap cannot be read", hint)
        return _of_number(number)
    if binary.version_at:
        return _of_number(memory.word(binary.version_at))
    start, size = binary.bss
    for low, high in memory.writable.within(start, start + size):
        found = _VERSION.search(memory.read(low, high - low))
        if found:
            return found[1].decode()
    raise SourceError("the version of this CPython is unknown", "a census reads CPython 3.8 to 3.15")


# 0x030b07f0: 3.11.7
def _of_number(number: int) -> str:
    major, minor, micro = (number >> 24) & 255, (number >> 16) & 255, (number >> 8) & 255
    level = {0xA: "a", 0xB: "b", 0xC: "rc"}.get((number >> 4) & 15, "")
    return f"{major}.{minor}.{micro}{f'{level}{number & 15}' if level else ''}"


def _states(memory: RemoteMemory, runtime: int, minor: tuple[int, int]) -> list[int]:
    """Return the addresses of the interpreters' states."""
    head, following = _OFFSETS[minor].head, _OFFSETS[minor].following
    if memory.read(runtime, 8) == _COOKIE:
        # cookie, version, free-threaded; runtime: size, finalizing, interpreters.head; interpreter: size, id, next
        head, following = memory.word(runtime + 40), memory.word(runtime + 64)
    found: list[int] = []
    state = memory.word(runtime + head)
    while state and state not in found and len(found) < MAX_INTERPRETERS:
        found.append(state)
        state = memory.word(state + following)
    return found


def _lists(memory: RemoteMemory, holder: int, version: str, hints: tuple[int, ...], deadline: float) -> list[int]:
    """Return the heads of the collector's lists of an interpreter or, in 3.8, of the runtime.

    The lists change while they are read, that of young objects all the time: a head is certain once seen closed.
    """
    closed: set[int] = set()
    for attempt in range(_TRIES):
        if attempt and time.monotonic() > deadline:
            break
        offsets = hints if attempt < _TRIES / 2 else range(0, _SEARCHED, 4)
        found = [offset for offset in offsets if _are_heads(memory, holder + offset, closed)]
        if len(found) == 1:
            first = holder + found[0]
            permanent = [first + distance for distance in _TO_PERMANENT if _is_head(memory, first + distance)]
            return [*(first + i * _RECORD for i in range(_GENERATIONS)), *permanent[:1]]
        time.sleep(_TRY_SECONDS if attempt % 8 == 7 else 0.0)
    raise SourceError(
        f"the objects of CPython {version} are not where they are expected",
        "this build differs from the usual ones; tell its version and where it comes from",
    )


def _are_heads(memory: RemoteMemory, first: int, closed: set[int]) -> bool:
    """Whether the heads of three generations follow each other here."""
    for at in range(first, first + _GENERATIONS * _RECORD, _RECORD):
        if at not in closed and not _is_head(memory, at):
            return False
        closed.add(at)
    return True


def _is_head(memory: RemoteMemory, at: int) -> bool:
    """Whether a closed list has its head here: its neighbours point back to it."""
    try:
        following, before, counts = memory.words(at, 3)
        following, before, threshold = following & POINTER, before & POINTER, counts & 0xFFFFFFFF
        if threshold >= 100_000_000 or not following or following % 4 or before % 4:
            return False
        return memory.word(following + 8) & POINTER == at == memory.word(before) & POINTER
    except SourceError:
        return False
