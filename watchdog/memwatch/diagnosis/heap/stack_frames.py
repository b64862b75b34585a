"""Reads the stacks and local variables of a running CPython's threads from outside, without stopping them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from struct import iter_unpack, unpack_from

from memwatch.core.examination import LOCAL_VARIABLE_PREFIX, StackFrame
from memwatch.core.text_and_units import printable
from memwatch.diagnosis.heap.cpython_runtime import Interpreter
from memwatch.diagnosis.heap.object_layouts import VALUE_STACK_AT
from memwatch.diagnosis.heap.program_modules import is_installed
from memwatch.diagnosis.heap.remote_memory import REFERENCE, Hop, RemoteMemory, UnreadableError, WayToValue
from memwatch.diagnosis.heap.remote_objects import BuiltinValues, RemoteObject
from memwatch.errors import SourceError

# --- line tables of code objects --------------------------------------------------------------------------------------

_NO_LINE = -128  # in 3.10's tables: these instructions have none
_LONG, _NO_COLUMNS, _NO_LOCATION, _ONE_LINE = 14, 13, 15, (10, 11, 12)  # entry codes: Objects/locations.md


def line_of(table: bytes, first: int, offset: int, minor: int) -> int:
    """Return the line of the instruction at a byte offset in code that begins at the line `first`.

    `table`: co_lnotab up to 3.9, co_linetable from 3.10 on. A table that is cut off gives its last line.
    """
    decode = _by_lnotab if minor <= 9 else _by_linetable if minor == 10 else _by_locations
    line = first
    for length, new in decode(table, first):
        line = line if new is None else new
        offset -= length
        if offset < 0:
            break
    return line


def _by_lnotab(table: bytes, line: int) -> Iterator[tuple[int, int | None]]:
    """Decode pairs of (bytes of code, lines to skip after them)."""
    for length, lines in zip(table[::2], table[1::2], strict=False):
        yield length, line
        line += _signed(lines)
    yield 0, line


def _by_linetable(table: bytes, line: int) -> Iterator[tuple[int, int | None]]:
    """Decode pairs of (bytes of code, lines to skip before them)."""
    for length, lines in zip(table[::2], table[1::2], strict=False):
        if _signed(lines) == _NO_LINE:
            yield length, None
        else:
            line += _signed(lines)
            yield length, line


def _by_locations(table: bytes, line: int) -> Iterator[tuple[int, int | None]]:
    """Decode entries whose first byte has its highest bit set and holds the form and the number of instructions."""
    at = 0
    while at < len(table):
        form, length = table[at] >> 3 & 15, 2 * ((table[at] & 7) + 1)
        at += 1
        if form in (_LONG, _NO_COLUMNS):
            line += _varint(table, at)
        elif form in _ONE_LINE:
            line += form - _ONE_LINE[0]
        yield length, None if form == _NO_LOCATION else line
        while at < len(table) and not table[at] & 128:
            at += 1


def _varint(table: bytes, at: int) -> int:
    """Decode six bits a byte, the lowest first, while the seventh is set; the lowest of all is the sign."""
    value = shift = 0
    for byte in table[at : at + 8]:
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return -(value >> 1) if value & 1 else value >> 1


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


# --- threads and frames -----------------------------------------------------------------------------------------------

MAX_FRAMES = 200  # of a stack: a bound against circles
MAX_THREADS = 256  # of an interpreter: a bound against circles
_SEARCHED = 9216  # bytes of an interpreter's state that contain the first thread's address
_THREAD_BYTES = 192
_NEXT, _INTERPRETER = 8, 16  # in a PyThreadState
_PTHREAD_BYTES = 2304  # of struct pthread, which a thread's identity up to 3.10 points to and which contains its id
_MAX_TABLE_BYTES, _CODE_BYTES = 1 << 20, 144
_TRIES = 8  # of a stack that changes while it is read: 11 of 100 do so beside a recursive search (measured)
_NS_PID = re.compile(r"^NSpid:.*?(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Offsets:
    """Offsets in bytes, from the internal headers of one minor version."""

    thread_id: int  # thread -> its id; up to 3.10 the address of its struct pthread
    current: int  # thread -> the frame, or the structure that points to it
    between: int | None  # that structure -> the frame; None: there is none
    code: int  # frame -> code
    caller: int  # frame -> the frame that called it
    instruction: int  # frame -> the instruction: its address, up to 3.10 its number
    owner: int | None  # frame -> its owner; None: frames are objects
    file: int  # code -> its source
    name: int  # with the class, from 3.11 on
    first_line: int
    lines: int  # the table
    instructions: int  # code -> the first instruction
    globals: int  # code -> the names of globals and attributes that it uses
    stack_size: int  # code -> how many values its frames have besides variables
    variable_names: int
    variables: int  # frame -> the first variable


# In the order of the fields: those of the thread and the frame, of the code object, of the variables.
_OLD = _Offsets(176, 24, None, 32, 24, 104, None, 104, 112, 40, 120, 0, 64, 32, 72, 360)
_NEW = _Offsets(160, 72, None, 0, 8, 56, 70, 112, 128, 68, 136, 200, 32, 64, 96, 72)
_BY_MINOR = {
    8: _OLD,
    9: _OLD,
    10: replace(_OLD, instruction=96, variables=352),
    11: replace(
        _NEW,
        current=56,
        between=8,
        code=32,
        caller=48,
        owner=69,
        first_line=72,
        instructions=184,
        stack_size=68,
    ),
    12: replace(_NEW, thread_id=144, current=56, between=0, instructions=192),
    13: _NEW,
    14: replace(_NEW, owner=74, instructions=208, variables=80),
    15: replace(_NEW, owner=74, instructions=208, thread_id=184, variables=80),
}
_GLOBALS_AT = {8: 48, 9: 48, 10: 48, 11: 8}  # frame -> globals; 24 from 3.12 on
_FRAME_BYTES, _FRAME_OBJECT_BYTES = 80, 112
_CODE_AND_CLOSURE_AT = {False: (16, 48), True: (48, 72)}  # in a function, by whether it is of 3.10 or later
_FREE_NAMES_AT, _CELL_NAMES_AT = 80, 88  # code -> names of variables of outer functions, for inner ones; up to 3.10
_GENERATOR_FRAME_AT = 16  # in a generator, up to 3.10
_STATE_BEFORE_FRAME = 5  # bytes, in a generator, from 3.11 on
_FRAME_EXECUTING = {False: 0, True: 4}  # the state of its frame, by whether it is of 3.15; those that wait are below
_MAX_VARIABLES = 4096  # of a function, and about as many of all
_MAX_STACK = 64  # values on the stack of a frame that are read: the iterators of its loops are at the bottom
_GENERATOR = 1  # FRAME_OWNED_BY_GENERATOR
_C_STACK = 3  # FRAME_OWNED_BY_CSTACK: frames of this owner and above stand where C code called Python

CodeLocation = tuple[int, int]  # the address of a frame's code, and its instruction
RawStack = tuple[CodeLocation, ...]  # the innermost first


@dataclass(frozen=True, slots=True)
class ThreadState:
    """A thread that runs Python."""

    address: int
    interpreter: int
    tid: int  # in the process's own namespace; 0: not known


@dataclass(frozen=True, slots=True)
class FrameValues:
    """What one frame refers to, by addresses."""

    address: int
    code_at: int  # from the frame: where the word is that refers to its code
    code_word: int
    function: StackFrame
    globals: int
    variables: tuple[tuple[str, int, int], ...]  # name, where its word is from the frame, value: those that are set
    stack: tuple[int, ...]  # what may be on its value stack, as the iterators of its loops, the outermost first


class Frames:
    """Reads the frames of one process. A stack that changes while it is read may mix two states."""

    def __init__(self, memory: RemoteMemory, interpreter: Interpreter) -> None:
        self._memory, self._interpreter, self._minor = memory, interpreter, interpreter.minor[1]
        self._builtins = BuiltinValues(memory, interpreter.minor)
        self._offsets = _BY_MINOR[self._minor]
        self._known: dict[CodeLocation, StackFrame | None] = {}
        self._outermost: set[tuple[int, int]] = set()  # of threads, with the frames at which a reading of them ended
        self._tid_at: int | None = None  # index of the id in a struct pthread, in words of four bytes

    # --- threads ---

    def threads(self) -> list[ThreadState]:
        """Return all threads, the oldest first; none where they cannot be found."""
        found: list[ThreadState] = []
        for state in self._interpreter.states:
            of_state = list[ThreadState]()
            address = self._newest_thread(state)
            while address and len(of_state) < MAX_THREADS:
                raw = self._memory.read(address, _THREAD_BYTES)
                if unpack_from("<Q", raw, _INTERPRETER)[0] != state:
                    break
                of_state.append(ThreadState(address, state, unpack_from("<Q", raw, self._offsets.thread_id)[0]))
                address = unpack_from("<Q", raw, _NEXT)[0]
            found += reversed(of_state)
        if self._offsets.owner is None:
            return [replace(thread, tid=self._thread_id(thread.tid)) for thread in found]
        return found

    def _newest_thread(self, state: int) -> int:
        """Return the address of an interpreter's newest thread, which has none before it."""
        for low, high in self._memory.writable.within(state, state + _SEARCHED)[:1]:
            for (address,) in iter_unpack("<Q", self._memory.read(low, (high - low) & ~7)):
                if address in self._memory.writable:
                    with suppress(SourceError):
                        before, _, interpreter = self._memory.words(address, 3)
                        if before == 0 and interpreter == state:
                            return int(address)
        return 0

    def _thread_id(self, identity: int) -> int:
        """Return the id of the thread with this struct pthread; the first call is for the main thread."""
        try:
            raw = self._memory.read(identity, _PTHREAD_BYTES)
        except SourceError:
            return 0
        numbers = unpack_from(f"<{_PTHREAD_BYTES // 4}I", raw)
        if self._tid_at is None:
            own = id_in_own_namespace(self._memory.folder, self._memory.pid)
            self._tid_at = numbers.index(own) if own in numbers else -1
        return numbers[self._tid_at] if self._tid_at >= 0 else 0

    # --- frames ---

    def stack(self, thread: ThreadState) -> RawStack:
        """Read a thread's stack; empty when it runs no Python, has ended, or changes too fast."""
        frames, is_whole = self._read_frames(thread)
        return tuple(self._code_location(raw) for _, raw in frames) if is_whole else ()

    def local_variables(self) -> dict[int, str]:
        """Return the names of the local variables in all frames, by the addresses of their values.

        A value of several variables has its name in the outermost function.
        """
        return {value: name for value, (name, _) in self.ways_to_variables().items()}

    def ways_to_variables(self) -> dict[int, tuple[str, WayToValue]]:
        """Return these names, and the ways from the frames to what the variables refer to then, by these addresses."""
        at = self._offsets.code
        found: dict[int, tuple[str, WayToValue]] = {}
        for thread in self.threads():
            for frame, raw in self._read_frames(thread)[0]:
                if len(found) < _MAX_VARIABLES:
                    code = unpack_from("<Q", raw, at)[0]
                    with suppress(SourceError):  # The frame has ended meanwhile.
                        for name, variable_at, value in self._variables(frame, code & REFERENCE):
                            found[value] = name, (frame, (Hop(variable_at, at, code),))
        return found

    def waiting_variables(self, generators: Iterable[RemoteObject]) -> dict[int, str]:
        """Return the names of local variables of generators and coroutines that wait, by addresses of their values."""
        found: dict[int, str] = {}
        for obj in generators:
            frame = obj.address + obj.heap_type.basic_bytes - self._offsets.variables
            if self._offsets.owner is None:
                frame = obj.word(_GENERATOR_FRAME_AT)
            with suppress(SourceError):  # It has ended, or does so meanwhile.
                code = self._memory.word(frame + self._offsets.code) & REFERENCE
                found |= {value: name for name, _, value in self._variables(frame, code)}
        return found

    def is_waiting(self, generator: RemoteObject) -> bool:
        """Whether a generator or coroutine has neither ended nor runs: only then it has variables that are kept."""
        if self._offsets.owner is None:
            return bool(generator.word(_GENERATOR_FRAME_AT))
        frame = generator.address + generator.heap_type.basic_bytes - self._offsets.variables
        state = int.from_bytes(self._memory.read(frame - _STATE_BEFORE_FRAME, 1), "little", signed=True)
        return state < _FRAME_EXECUTING[self._minor >= 15]

    def closure_variables(self, function: RemoteObject) -> dict[int, str]:
        """Return the names of variables of outer functions that a function keeps, by the addresses of their cells."""
        code, closure = (function.word(at) for at in _CODE_AND_CLOSURE_AT[self._minor >= 10])
        count = self._memory.word(closure + 16) if closure else 0
        if not 0 < count <= _MAX_VARIABLES:
            return {}
        offsets = self._offsets
        names = self._memory.word(code + (_FREE_NAMES_AT if offsets.owner is None else offsets.variable_names))
        known = self._memory.word(names + 16)  # free variables come last
        if not count <= known <= _MAX_VARIABLES:
            return {}
        cells = self._memory.words(closure + self._builtins.tuple_bytes, count)
        texts = self._memory.words(names + self._builtins.tuple_bytes + 8 * (known - count), count)
        owner = self._builtins.text(self._memory.word(code + offsets.name))
        return {
            cell: printable(f"{LOCAL_VARIABLE_PREFIX}{owner}: {name}")
            for cell, name in zip(cells, map(self._builtins.text_or_none, texts), strict=True)
            if name is not None
        }

    def frame_values(self, thread: ThreadState) -> Iterator[FrameValues]:
        """Yield what a thread's frames refer to, the outermost first; one that ends meanwhile is left out."""
        for frame, raw in reversed(self._read_frames(thread)[0]):
            with suppress(SourceError):
                yield self._values(frame, raw)

    def _values(self, frame: int, raw: bytes) -> FrameValues:
        offsets, word = self._offsets, self._memory.word
        code_word = unpack_from("<Q", raw, offsets.code)[0]
        code = code_word & REFERENCE
        function = self.function(code)
        names = self._names(code + offsets.variable_names)
        if offsets.owner is None:
            names = (*names, *self._names(code + _CELL_NAMES_AT), *self._names(code + _FREE_NAMES_AT))
        depth = unpack_from("<i", self._memory.read(code + offsets.stack_size, 4))[0]
        if not 0 <= depth <= _MAX_VARIABLES:
            raise UnreadableError("no code")
        stack_at = frame + offsets.variables + 8 * len(names)
        if offsets.owner is None:
            stack_at = word(frame + VALUE_STACK_AT)
        stack = self._memory.words(stack_at, min(depth, _MAX_STACK)) if depth else ()
        globals_at = unpack_from("<Q", raw, _GLOBALS_AT.get(self._minor, 24))[0] & REFERENCE
        variables = tuple(self._set_variables(frame, names))
        on_stack = tuple(value & REFERENCE for value in stack)
        return FrameValues(frame, offsets.code, code_word, function, globals_at, variables, on_stack)

    def _names(self, at: int) -> tuple[int, ...]:
        """Return the items of the tuple that the word at an address refers to."""
        names = self._memory.word(at)
        count = self._memory.word(names + 16)
        if count > _MAX_VARIABLES:
            raise UnreadableError("no code")
        return self._memory.words(names + self._builtins.tuple_bytes, count) if count else ()

    def globals(self) -> list[int]:
        """Return the addresses of the globals of all frames, those of the main thread's outermost function first."""
        at, found = _GLOBALS_AT.get(self._minor, 24), list[int]()
        for thread in self.threads():
            frames, _ = self._read_frames(thread)
            found += (unpack_from("<Q", raw, at)[0] & REFERENCE for _, raw in reversed(frames))
        return found

    def _read_frames(self, thread: ThreadState) -> tuple[list[tuple[int, bytes]], bool]:
        """Return the frames of a thread as `_frames` yields them, and whether all were read before one had ended.

        A frame that has ended, or a generator's that waits, leads to none: all were read where the outermost is the
        same as once before.
        """
        most: list[tuple[int, bytes]] = []
        owner_at = self._offsets.owner
        for _ in range(_TRIES):
            frames: list[tuple[int, bytes]] = []
            with suppress(SourceError):
                frames.extend(self._frames(thread))
                if frames and (owner_at is None or frames[-1][1][owner_at] != _GENERATOR):
                    end = thread.address, frames[-1][0]
                    if end in self._outermost:
                        return frames, True
                    self._outermost.add(end)
            most = max(most, frames, key=len)
        return most, False

    def _frames(self, thread: ThreadState) -> Iterator[tuple[int, bytes]]:
        """Yield the addresses and contents of a thread's Python frames, the innermost first."""
        offsets, read = self._offsets, self._memory.read
        raw = read(thread.address, offsets.current + 8)
        if unpack_from("<Q", raw, _INTERPRETER)[0] != thread.interpreter:
            return
        frame = unpack_from("<Q", raw, offsets.current)[0]
        if frame and offsets.between is not None:
            frame = self._memory.word(frame + offsets.between)
        for _ in range(MAX_FRAMES):
            if not frame:
                return
            raw = read(frame, _FRAME_OBJECT_BYTES if offsets.owner is None else _FRAME_BYTES)
            if offsets.owner is None or raw[offsets.owner] < _C_STACK:
                yield frame, raw
            frame = unpack_from("<Q", raw, offsets.caller)[0]

    def _code_location(self, raw: bytes) -> CodeLocation:
        offsets = self._offsets
        code, form = unpack_from("<Q", raw, offsets.code)[0], "<i" if offsets.owner is None else "<Q"
        return code & REFERENCE, unpack_from(form, raw, offsets.instruction)[0]  # -1: it has not begun

    def _variables(self, frame: int, code: int) -> Iterator[tuple[str, int, int]]:
        """Yield each variable of one frame that is set, as below, by its name with that of the function."""
        function = self._builtins.text(self._memory.word(code + self._offsets.name))
        names = self._names(code + self._offsets.variable_names)
        for name, at, value in self._set_variables(frame, names):
            yield printable(f"{LOCAL_VARIABLE_PREFIX}{function}: {name}"), at, value

    def _set_variables(self, frame: int, names: tuple[int, ...]) -> Iterator[tuple[str, int, int]]:
        """Yield the name of each variable that is set, where its word is from the frame, and its value."""
        values = self._memory.words(frame + self._offsets.variables, len(names)) if names else ()
        for number, (name, value) in enumerate(zip(map(self._builtins.text_or_none, names), values, strict=True)):
            if name is not None and value & REFERENCE:
                yield printable(name), self._offsets.variables + 8 * number, value & REFERENCE

    def resolve_stack(self, stack: RawStack) -> tuple[StackFrame, ...]:
        """Return the functions and lines of a stack; a frame that cannot be read is left out."""
        for location in stack:
            if location not in self._known:
                self._known[location] = None
                with suppress(UnreadableError):
                    self._known[location] = self._frame(*location)
        return tuple(frame for location in stack if (frame := self._known[location]) is not None)

    def function(self, code: int) -> StackFrame:
        """Return the function with this code, at its first line; SourceError when it cannot be read."""
        offsets = self._offsets
        function = self._frame(code, code + offsets.instructions if self._minor >= 11 else 0)
        return replace(function, line=unpack_from("<i", self._memory.read(code + offsets.first_line, 4))[0])

    def used_names(self, code: int) -> frozenset[str]:
        """Return the names of globals and attributes that a code object uses; SourceError when it cannot be read."""
        return frozenset(filter(None, map(self._builtins.text_or_none, self._names(code + self._offsets.globals))))

    def _frame(self, code: int, instruction: int) -> StackFrame:
        offsets, minor = self._offsets, self._minor
        raw = self._memory.read(code, _CODE_BYTES)
        file, name, table = (unpack_from("<Q", raw, at)[0] for at in (offsets.file, offsets.name, offsets.lines))
        first = unpack_from("<i", raw, offsets.first_line)[0]
        offset = instruction - code - offsets.instructions if minor >= 11 else instruction * (1 + (minor == 10))
        size = self._memory.word(table + 16)
        if not (0 <= size <= _MAX_TABLE_BYTES and -2 <= offset <= _MAX_TABLE_BYTES):
            raise UnreadableError("no code")
        line = line_of(self._memory.read(table + 32, size) if size else b"", first, max(0, offset), minor)
        path = self._builtins.text(file)
        installed = is_installed(path, f"{self._memory.folder}/root")
        return StackFrame(printable(self._builtins.text(name)), printable(path), line, installed)


def id_in_own_namespace(folder: str, number: int) -> int:
    """Return the id of a process or thread in its own PID namespace, given its folder in /proc; else `number`."""
    with suppress(OSError):
        status = Path(folder, "status").read_text(encoding="utf-8", errors="surrogateescape")
        if found := _NS_PID.search(status):
            return int(found[1])
    return number
