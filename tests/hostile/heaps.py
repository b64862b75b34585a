"""Processes whose memory lies: a small heap as CPython would have it, in which words are others and reads are torn."""

from __future__ import annotations

import io
import os
import shutil
import struct
import subprocess
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from memwatch.core.examination import Census, StackFrame
from memwatch.diagnosis.heap.attribute_path_syntax import parse_attribute_path
from memwatch.diagnosis.heap.cpython_runtime import Binary, Interpreter, find_interpreter
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.diagnosis.heap.stack_frames import Frames
from memwatch.diagnosis.whole_heap.object_census import CensusOptions, CensusTaker
from memwatch.errors import SourceError

BASE, SIZE = 0x7E0000000000, 0x10000  # of the heap, which may be written to
CODE = 0x7F0000000000  # what is mapped from a file
MOST_READ = 64 << 20  # bytes at once
CENSUS_SECONDS = 0.3
PID = "7"
WISH = CensusOptions(
    bytes=True,
    traced_types=("Record",),
    trace_most_frequent=3,
    attribute_paths=tuple(map(parse_attribute_path, ("Trainer.kept[*]", "Trainer.table['a']", "main.trainer.kept[0]"))),
    containers=True,
    cpu_seconds=CENSUS_SECONDS,
)
_TYPE, _GC, _HEAP, _READY, _MANAGED, _INLINE = 1 << 31, 1 << 14, 1 << 9, 1 << 12, 1 << 4, 1 << 2
_WORDS = (
    *(0, 1, 2, 3, 4, 7, 8, 63, 64, 255, 4095, 4096, 2**16, 2**20, 2**31 - 1, 2**31, 2**32, 2**40 - 1, 2**40),
    *(2**47, 2**48, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 8, CODE, CODE + 8, BASE, BASE + SIZE - 8),
)


class FakeAccess:
    """A `MemoryAccess` of which only `read` is to be written."""

    def read(self, address: int, size: int) -> bytes:
        raise NotImplementedError

    def read_vectors(self, starts: Sequence[int], sizes: Sequence[int], buffer: memoryview) -> int:
        done = 0
        for start, size in zip(starts, sizes, strict=True):
            found = self.read(start, size)
            if len(found) < size:
                break
            buffer[done : done + size] = found
            done += size
        return done

    def is_there(self) -> bool:
        return True

    def close(self) -> None: ...


class Image(FakeAccess):
    """An `Access` to such a memory. Every so many reads a word is another."""

    def __init__(self, raw: bytes, torn: int = 0) -> None:
        self._raw, self._torn, self._reads = raw, torn, 0

    def read(self, address: int, size: int) -> bytes:
        assert size <= MOST_READ, f"{size} bytes are asked for at once"
        if not -(2**63) <= address < 2**63:
            raise OverflowError("as os.pread has it")
        if CODE <= address < CODE + 4096:
            return bytes(min(size, CODE + 4096 - address))
        if not BASE <= address < BASE + SIZE:
            raise OSError(5, "Input/output error")
        found = self._raw[address - BASE :][:size]
        self._reads += 1
        if self._torn and self._reads % self._torn == 0 and len(found) >= 8:
            at = self._reads * 8 % (len(found) - 7)
            found = found[:at] + struct.pack("<Q", BASE + self._reads * 8 % SIZE) + found[at + 8 :]
        return found


def census(raw: bytes) -> tuple[Census, list[tuple[StackFrame, ...]]]:
    """Of a heap of the version that the first byte says, with the words that the rest does; and what its threads do."""
    minor, torn = 8 + (raw[0] if raw else 3) % 8, raw[1] % 64 if len(raw) > 1 else 0
    heap = _heap(minor)
    memory = RemoteMemory(int(PID), str(_proc()), Image(_changed(heap, raw[2:]), torn))
    interpreter = Interpreter(f"3.{minor}.1", (3, minor), (heap.state,), heap.lists)
    frames, stacks = Frames(memory, interpreter), []
    with suppress(SourceError):
        stacks = [frames.resolve_stack(frames.stack(thread)) for thread in frames.threads()]
    return CensusTaker(memory, interpreter, WISH, resident=None).census(), stacks


def seeds() -> tuple[bytes, ...]:
    """Each version as it is, and with some words that are others."""
    return tuple(bytes((minor, 0)) + change for minor in range(8) for change in (b"", b"\x10\x01\x02\x17" * 3))


def _changed(heap: _Heap, raw: bytes) -> bytes:
    """Four bytes a change: where, how, and what to."""
    words, places = array("Q", heap.image), heap.places
    for at in range(0, min(len(raw), 4 * 512) - 3, 4):
        where, how, what = raw[at] | raw[at + 1] << 8, raw[at + 2], raw[at + 3]
        # most words of the image are empty: half of the changes meet those that say something
        slot = (places[where % len(places)] - BASE) // 8 + what % 16 if how & 1 else where % len(words)
        slot %= len(words)
        if how & 6 == 0:
            words[slot] = _WORDS[what % len(_WORDS)]
        elif how & 6 == 2:
            words[slot] = places[(what * 37 + (how >> 3)) % len(places)]
        elif how & 6 == 4:
            words[slot] = words[(slot + what * 13 + (how >> 3)) % len(words)]
        else:
            words[slot] = (words[slot] ^ 1 << (what & 63)) & 2**64 - 1
    return words.tobytes()


class _Heap:
    """A trainer of one version: a module, a class and its instance, and each kind of object that is known by name."""

    def __init__(self, minor: int) -> None:
        self.minor, self.places = minor, list[int]()
        self._image, self._free, self._tracked = bytearray(SIZE), BASE + 0x3000, list[int]()
        self.state = BASE + 64  # 9216 bytes, in which the first thread's address is looked for
        self._types: dict[str, int] = {}
        self._types["type"] = self._type("type", 880, tracked=True)
        self._build()
        heads = [self._take(24) for _ in range(3)]
        self.lists = tuple(heads)
        for head, ring in zip(heads, (self._tracked[::2], self._tracked[1::2], []), strict=True):
            ends = [head, *ring, head]
            for before, here, after in zip([ends[-2], *ends], ends, [*ends[1:], ends[1]], strict=False):
                self._put(here, after, before)
        self._put(heads[0] + 16, 700)

    @property
    def image(self) -> bytes:
        return bytes(self._image)

    def _take(self, size: int) -> int:
        at, self._free = self._free, (self._free + size + 15) & ~15
        assert self._free <= BASE + SIZE
        self.places.append(at)
        return at

    def _put(self, at: int, *words: int) -> None:
        struct.pack_into(f"<{len(words)}Q", self._image, at - BASE, *(word & 2**64 - 1 for word in words))

    def _text(self, text: str) -> int:
        """As C keeps it."""
        raw = text.encode() + b"\0"
        at = self._take(len(raw))
        self._image[at - BASE : at - BASE + len(raw)] = raw
        return at

    def _type(
        self, name: str, basic: int, item: int = 0, *, tracked: bool = True, own: bool = False, base: int = 0
    ) -> int:
        at = self._take(1024)
        self._put(at, 5, self._types.get("type", at), 0, self._text(name), basic, item)
        managed = (_MANAGED if self.minor >= 11 else 0) | (_INLINE if self.minor >= 13 else 0)
        flags = _READY | (_GC if tracked else 0) | (_TYPE if name == "type" else 0) | ((_HEAP | managed) if own else 0)
        self._put(at + 168, flags)
        self._put(at + 256, base)
        self._types[name] = at
        return at

    def _object(self, kind: str, *words: int, tracked: bool = False, front: int = 0) -> int:
        links = self._take(16 * (tracked + 1) + 16 + 8 * len(words) + front) + front
        at = links + 16
        if tracked:
            self._tracked.append(links)
        self._put(at, 1, self._types[kind], *words)
        self.places.append(at)
        return at

    def _str(self, text: str) -> int:
        raw, short = text.encode(), 48 if self.minor <= 11 else 40
        at = self._object("str", len(raw), 0, 1 << 2 | 32 | 64 | 1, *[0] * (3 + len(raw) // 8))
        self._image[at + short - BASE : at + short - BASE + len(raw)] = raw
        return at

    def _keys(self, items: dict[str, int]) -> int:
        """The table of a dict with text for keys."""
        pairs = [(self._str(key), value) for key, value in items.items()]
        if self.minor <= 10:
            at = self._take(40 + 8 + 24 * 5)
            self._put(at, 1, 8, 0, 5 - len(pairs), len(pairs))
            self._put(at + 48, *(word for key, value in pairs for word in (9, key, value)))
        else:
            at = self._take(32 + 8 + 16 * 5)
            self._put(at, 1, 3 | 3 << 8 | 1 << 16, 5 - len(pairs), len(pairs))
            self._put(at + 40, *(word for pair in pairs for word in pair))
        return at

    def _dict(self, items: dict[str, int]) -> int:
        return self._object("dict", len(items), 0, self._keys(items), 0, tracked=True)

    def _list(self, items: Sequence[int]) -> int:
        at = self._take(8 * len(items) + 8)
        self._put(at, *items)
        return self._object("list", len(items), at, len(items) + 1, tracked=True)

    def _build(self) -> None:
        for name, basic, item, tracked in (
            ("str", 40, 0, False), ("int", 24, 4, False), ("dict", 48, 0, True), ("list", 40, 0, True),
            ("tuple", 24, 8, True), ("set", 200, 0, True), ("bytes", 33, 1, False), ("bytearray", 56, 0, False),
            ("collections.deque", 80, 0, True), ("array.array", 64, 0, False), ("numpy.ndarray", 96, 0, False),
            ("torch._C.TensorBase", 32, 0, True), ("module", 56, 0, True), ("weakref", 72, 0, True),
            ("frame", 400, 8, True), ("cell", 24, 0, True),
        ):  # fmt: skip
            self._type(name, basic, item, tracked=tracked)
        own = [self._type(name, 32, own=True) for name in ("Trainer", "Record")]
        qualname = {8: 864, 9: 856}.get(self.minor, 864 if self.minor in (10, 11) else 880 if self.minor == 15 else 872)
        for at, name in zip(own, ("Trainer", "Record"), strict=True):
            self._put(at + 288, 16 if self.minor <= 10 else 0)
            self._put(at + 264, self._dict({"__module__": self._str("__main__"), "kind": at}))
            self._put(at + qualname, self._str(name), self._keys({"kept": 0, "table": 0}))
        records = [self._instance("Record", {"step": self._object("int", 1 << 3, 5)}) for _ in range(4)]
        ring = self._list([*records, *records])
        self._put(self._free - 16, ring)  # it may hold itself
        kept = self._list(
            [self._object("tuple", 2, records[0], ring, tracked=True), ring, self._arrays(), self._deque(ring)]
        )
        table = self._dict({"a": kept, "b": ring, "c": self._tensor()})
        trainer = self._instance("Trainer", {"kept": kept, "table": table, "capacity": self._object("int", 1 << 3, 9)})
        names = {"__name__": self._str("__main__"), "__file__": self._str("/w/main.py"), "trainer": trainer}
        self._object("module", self._dict(names), 0, 0, tracked=True)
        slots = self._take(128)
        self._put(slots, ring, 1, kept, 2)
        self._object("set", 2, 2, 7, slots, 0, 0, *[0] * 16, tracked=True)
        self._object("weakref", trainer, 0, 0, 0, tracked=True)
        self._object("cell", ring, tracked=True)
        self._threads(trainer)

    def _instance(self, name: str, attributes: dict[str, int]) -> int:
        """With a dict of its own, where each version looks for it."""
        own = self._dict(attributes)
        at = self._object(name, own, 0, tracked=True, front=16)
        if self.minor >= 11:
            self._put(at - 32, own if self.minor != 11 else 0, own)
        return at

    def _arrays(self) -> int:
        data, shape, description = self._take(64), self._take(16), self._take(64)
        self._put(shape, 4, 2)
        self._put(description + 24, 0, 12 << 32 | 8, 8, 8)
        view = self._object("numpy.ndarray", data, 2, shape, shape, 0, description, 4, 0, 0, 0)
        return self._object("numpy.ndarray", data, 1, shape, shape, view, description, 0, 0, 0, 0)

    def _deque(self, item: int) -> int:
        first, last = self._take(528), self._take(528)
        for block, following in ((first, last), (last, first)):
            self._put(block, 0, *[item] * 64, following)
        return self._object("collections.deque", 70, first, last, 3, 8, 0, 100, 0, tracked=True)

    def _tensor(self) -> int:
        impl, storage, meta = self._take(64), self._take(96), self._take(96)
        self._put(impl, CODE, 0, storage, meta)
        self._put(storage, CODE, 0, BASE, 0, 64, 0, 64)
        self._put(meta, CODE, impl, 0, 0, 0, impl, 1, 0)
        return self._object("torch._C.TensorBase", impl, impl, tracked=True)

    def _threads(self, local: int) -> None:
        """Two threads in one function, with a frame that calls itself."""
        names, code, table = (
            self._object("tuple", 1, 0, self._str("x"), 0),
            self._take(512),
            self._object("bytes", 4, 0, 0x11),
        )
        self._put(names + (24 if self.minor <= 13 else 32), self._str("x"))
        words = [5, self._types["tuple"], *[names] * 16]
        words[13], words[14], words[16] = self._str("/w/main.py"), self._str("main"), self._str("Trainer.main")
        words[15] = words[17] = table
        words[3] = words[5] = words[8] = words[9] = 1 << 32 | 1
        words[9] = words[12] = names
        self._put(code, *words)
        frame, threads = self._take(512), [self._take(256), self._take(256)]
        # code and the caller (itself) at all the places at which one of the versions has them, then the instruction
        self._put(frame, code, frame, code, frame, code, code, frame, code + 216, 0, local, local, local, 2, 2, local)
        for thread, following in zip(threads, (threads[1], 0), strict=True):
            self._put(thread, 0, following, self.state, frame, frame, frame, frame, frame, frame, frame)
        self._put(self.state + 128, threads[0])


@cache
def _heap(minor: int) -> _Heap:
    return _Heap(minor)


@cache
def _proc() -> Path:
    """What /proc says of such a process."""
    folder = Path(tempfile.mkdtemp(prefix="memwatch-heap-"))
    process = folder / PID
    process.mkdir()
    lines = (
        f"{BASE:x}-{BASE + SIZE:x} rw-p 00000000 00:00 0",
        f"{CODE:x}-{CODE + 4096:x} r-xp 0 08:01 5 /usr/lib/a.so",
    )
    (process / "maps").write_text("".join(f"{line}\n" for line in lines))
    (process / "status").write_text(f"Name:\tpython\nNSpid:\t{PID}\n")
    return folder


def binary(raw: bytes) -> tuple[int, ...]:
    """Where a runtime is by an executable that says anything."""
    with tempfile.TemporaryDirectory() as folder:
        found = Binary(RemoteMemory(int(PID), str(_mapped(Path(folder), raw)), Image(bytes(SIZE))))
    return found.runtime, found.version_at, *found.bss


class Crowd(FakeAccess):
    """An `Access` to a CPython 3.11 with one interpreter behind the other; each one's lists are found at the end."""

    _APART, _LISTS, _LATE = 0x10000, 8992, 190  # between two of them; where no version has them; searches before

    def __init__(self) -> None:
        self.words: dict[int, int] = {}
        self._looks = Counter[int]()

    def read(self, address: int, size: int) -> bytes:
        return struct.pack(f"<{size // 8}Q", *(self._word(at) for at in range(address, address + size // 8 * 8, 8)))

    def _word(self, at: int) -> int:
        if at < CODE:
            return self.words.get(at, 0)
        i, offset = divmod(at - CODE, self._APART)
        if offset == 0:
            return CODE + (i + 1) * self._APART
        head, part = divmod(offset - self._LISTS, 24)
        if head not in range(3) or part not in (0, 8):
            return 0
        self._looks[at] += 1
        return at - part if head < 2 or self._looks[at] > self._LATE else 0


def crowded(seconds: float) -> Interpreter:
    """What is found in such a process within so long."""
    with tempfile.TemporaryDirectory() as folder:
        crowd = Crowd()
        memory = RemoteMemory(int(PID), str(_mapped(Path(folder), executables()[0])), crowd)
        found = Binary(memory)
        crowd.words = {found.version_at: 0x030B07F0, found.runtime + 40: CODE}
        return find_interpreter(memory, seconds)


def _mapped(folder: Path, executable: bytes) -> Path:
    """What /proc says of a process that runs it."""
    process = folder / PID
    process.mkdir()
    (process / "exe.elf").write_bytes(executable)
    (process / "exe").symlink_to(process / "exe.elf")
    (process / "maps").write_text(f"{BASE:x}-{BASE + SIZE:x} r--p 00000000 08:01 5 {process / 'exe.elf'}\n")
    return folder


def executables() -> tuple[bytes, ...]:
    """One with the symbols of CPython's runtime, from a compiler; else the beginning of Python's own."""
    return tuple(_compiled()) or (Path("/proc/self/exe").read_bytes()[:4096],)


def unhashed(executable: bytes) -> bytes:
    """The same, whose hash of names says that it is empty."""
    try:
        section = ELFFile(io.BytesIO(executable)).get_section_by_name(".gnu.hash")
    except ELFError:  # the beginning of one
        section = None
    start = section["sh_offset"] if section is not None else 0
    return executable[:start] + bytes(16) + executable[start + 16 :]


def _compiled() -> Iterator[bytes]:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return
    source = b'char _PyRuntime[64], more[64] __attribute__((section(".PyRuntime"))); long Py_Version = 0x030b07f0;'
    with tempfile.TemporaryDirectory() as folder:
        for flags in (["-shared", "-nostdlib"], ["-shared", "-nostdlib", "-Wl,--hash-style=sysv", "-s"]):
            made = Path(folder, "a.so")
            words = [compiler, "-xc", *flags, "-o", str(made), "-"]
            subprocess.run(words, input=source, check=True, capture_output=True, env={**os.environ, "LC_ALL": "C"})
            yield made.read_bytes()
