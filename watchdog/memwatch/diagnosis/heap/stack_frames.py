"""What the threads of a running CPython do: their frames, read from outside, without a stop.

Which line of its source an instruction belongs to: the tables of code objects, as CPython's versions have them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from struct import iter_unpack, unpack_from

from memwatch.core.examination import LOCAL_VARIABLE_PREFIX, StackFrame
from memwatch.core.text_and_units import printable
from memwatch.diagnosis.heap.builtin_values import BuiltinValues
from memwatch.diagnosis.heap.cpython_runtime import Interpreter
from memwatch.diagnosis.heap.program_modules import is_installed
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.errors import SourceError, TargetGoneError

_NO_LINE = -128  # in 3.10's tables: these instructions have none
_LONG, _NO_COLUMNS, _NO_LOCATION, _ONE_LINE = 14, 13, 15, (10, 11, 12)


def line_of(table: bytes, first: int, offset: int, minor: int) -> int:
    """The line of the instruction at an offset (in bytes) of code that begins at the line `first`.

    `table`: co_lnotab up to 3.9, co_linetable from 3.10 on. A table that is cut off gives the last line that it tells.
    """
    if minor <= 9:
        return _by_lnotab(table, first, offset)
    line = first
    for length, new in _by_linetable(table, first) if minor == 10 else _by_locations(table, first):
        line = line if new is None else new
        offset -= length
        if offset < 0:
            break
    return line


def _by_lnotab(table: bytes, line: int, offset: int) -> int:
    """Pairs: so many bytes further, so many lines further."""
    at = 0
    for forward, lines in zip(table[::2], table[1::2], strict=False):
        at += forward
        if at > offset:
            break
        line += _signed(lines)
    return line


def _by_linetable(table: bytes, line: int) -> Iterator[tuple[int, int | None]]:
    """Pairs: so many lines further, which so many bytes have."""
    for length, lines in zip(table[::2], table[1::2], strict=False):
        if _signed(lines) == _NO_LINE:
            yield length, None
        else:
            line += _signed(lines)
            yield length, line


def _by_locations(table: bytes, line: int) -> Iterator[tuple[int, int | None]]:
    """Entries: a first byte with its highest bit set, which tells the form and how many instructions it is for."""
    at = 0
    while at < len(table):
        form, length = table[at] >> 3 & 15, 2 * ((table[at] & 7) + 1)
        at += 1
        if form in (_LONG, _NO_COLUMNS):
            line += _number(table, at)
        elif form in _ONE_LINE:
            line += form - _ONE_LINE[0]
        yield length, None if form == _NO_LOCATION else line
        while at < len(table) and not table[at] & 128:
            at += 1


def _number(table: bytes, at: int) -> int:
    """Six bits a byte, the lowest first, while the seventh is set; the lowest of all is the sign."""
    value = shift = 0
    for byte in table[at : at + 8]:
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return -(value >> 1) if value & 1 else value >> 1


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


DEEPEST = 200  # frames of a stack
THREADS_MOST = 256
_SEARCHED = 9216  # bytes of an interpreter's state, in which the first thread's address is
_THREAD_BYTES = 192
_NEXT, _INTERPRETER = 8, 16  # in a thread's state
_PTHREAD_BYTES = 2304  # of what a thread's identity up to 3.10 is the address of; its number is somewhere in it
_TABLE_MOST, _CODE_BYTES = 1 << 20, 144
_UNTAGGED = ~3 & (2**64 - 1)
_TRIES = 3
_NUMBERS = re.compile(r"^NSpid:.*?(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Places:
    """Offsets in bytes, from the internal headers of one minor version."""

    thread_id: int  # in a thread: its number; up to 3.10 the address of what pthread keeps of it
    current: int  # thread -> what the frame hangs at
    between: int | None  # that -> the frame, where there is a step between
    code: int  # frame -> code
    caller: int  # frame -> the frame that called it
    instruction: int  # frame -> the instruction: its address, up to 3.10 its number
    owner: int | None  # frame -> whose it is; None: frames are objects
    file: int  # code -> its source
    name: int  # with the class, from 3.11 on
    first_line: int
    lines: int  # the table
    instructions: int  # code -> the first of them
    variable_count: int
    variable_names: int
    variables: int  # frame -> the first of them


_OLD = _Places(
    thread_id=176,
    current=24,
    between=None,
    code=32,
    caller=24,
    instruction=104,
    owner=None,
    file=104,
    name=112,
    first_line=40,
    lines=120,
    instructions=0,
    variable_count=28,
    variable_names=72,
    variables=360,
)
_NEW = _Places(
    thread_id=160,
    current=72,
    between=None,
    code=0,
    caller=8,
    instruction=56,
    owner=70,
    file=112,
    name=128,
    first_line=68,
    lines=136,
    instructions=200,
    variable_count=72,
    variable_names=96,
    variables=72,
)
_BY_MINOR = {
    8: _OLD,
    9: _OLD,
    10: replace(_OLD, instruction=96, variables=352),
    11: replace(
        _NEW, current=56, between=8, code=32, caller=48, owner=69, first_line=72, instructions=184, variable_count=76
    ),
    12: replace(_NEW, thread_id=144, current=56, between=0, instructions=192),
    13: _NEW,
    14: replace(_NEW, owner=74, instructions=208, variables=80),
    15: replace(_NEW, owner=74, instructions=208, thread_id=184, variables=80),
}
_FRAME_BYTES, _FRAME_OBJECT_BYTES = 80, 112
_VARIABLES_MOST = 4096  # of a function; of all, about
_NOBODYS = 3  # frames from this owner on stand where C has called Python

CodeLocation = tuple[int, int]  # a frame as it is read: the address of its code, and the instruction
RawStack = tuple[CodeLocation, ...]  # the innermost first


@dataclass(frozen=True, slots=True)
class ThreadState:
    """A thread that runs Python."""

    address: int
    interpreter: int
    tid: int  # as the process itself counts; 0: not known


class Frames:
    """Reads them in one process. What changes while it is read may mix two moments of a stack."""

    def __init__(self, memory: RemoteMemory, interpreter: Interpreter) -> None:
        self._memory, self._interpreter, self._minor = memory, interpreter, interpreter.minor[1]
        self._objects = BuiltinValues(memory, interpreter.minor)
        self._places = _BY_MINOR[self._minor]
        self._known: dict[CodeLocation, StackFrame | None] = {}
        self._tid_at: int | None = None  # in what pthread keeps of a thread

    # --- threads ---

    def threads(self) -> list[ThreadState]:
        """All that are there now, the one that has been there the longest first; none where they cannot be found."""
        found: list[ThreadState] = []
        for state in self._interpreter.states:
            of_state = list[ThreadState]()
            address = self._first(state)
            while address and len(of_state) < THREADS_MOST:
                raw = self._memory.read(address, _THREAD_BYTES)
                if unpack_from("<Q", raw, _INTERPRETER)[0] != state:
                    break
                of_state.append(ThreadState(address, state, unpack_from("<Q", raw, self._places.thread_id)[0]))
                address = unpack_from("<Q", raw, _NEXT)[0]
            found += reversed(of_state)
        return [replace(one, tid=self._tid(one.tid)) for one in found] if self._places.owner is None else found

    def _first(self, state: int) -> int:
        """The address of an interpreter's newest thread: nobody is before it."""
        for low, high in self._memory.writable.within(state, state + _SEARCHED)[:1]:
            for (address,) in iter_unpack("<Q", self._memory.read(low, (high - low) & ~7)):
                if address in self._memory.writable:
                    with suppress(SourceError):
                        before, _, interpreter = self._memory.words(address, 3)
                        if before == 0 and interpreter == state:
                            return int(address)
        return 0

    def _tid(self, identity: int) -> int:
        """Of the thread that pthread keeps at this address; the first that is asked for is the main thread."""
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
        """What it is doing now; empty when it runs no Python, is gone, or changes too fast to be read whole."""
        for _ in range(_TRIES):
            with suppress(SourceError):  # a frame that has ended meanwhile
                return tuple(self._site(raw) for _, raw in self._frames(thread))
        return ()

    def local_variables(self) -> dict[int, str]:
        """Names of the local variables of all functions that run, by the addresses of what they hold.

        What several hold has the name in the function that has called the others.
        """
        found: dict[int, str] = {}
        for thread in self.threads():
            with suppress(SourceError):
                for frame, raw in self._frames(thread):
                    if len(found) < _VARIABLES_MOST:
                        found |= self._variables(frame, self._site(raw)[0])
        return found

    def _frames(self, thread: ThreadState) -> Iterator[tuple[int, bytes]]:
        """Addresses and contents of its frames, without those that are C's, the innermost first."""
        places, read = self._places, self._memory.read
        raw = read(thread.address, places.current + 8)
        if unpack_from("<Q", raw, _INTERPRETER)[0] != thread.interpreter:
            return
        frame = unpack_from("<Q", raw, places.current)[0]
        if frame and places.between is not None:
            frame = self._memory.word(frame + places.between)
        for _ in range(DEEPEST):
            if not frame:
                return
            raw = read(frame, _FRAME_OBJECT_BYTES if places.owner is None else _FRAME_BYTES)
            if places.owner is None or raw[places.owner] < _NOBODYS:
                yield frame, raw
            frame = unpack_from("<Q", raw, places.caller)[0]

    def _site(self, raw: bytes) -> CodeLocation:
        places = self._places
        code, form = unpack_from("<Q", raw, places.code)[0], "<i" if places.owner is None else "<Q"
        return code & _UNTAGGED, unpack_from(form, raw, places.instruction)[0]  # -1: it has not begun

    def _variables(self, frame: int, code: int) -> dict[int, str]:
        """Of one frame, without those that are not set."""
        places = self._places
        raw = self._memory.read(code, _CODE_BYTES)
        count = unpack_from("<i", raw, places.variable_count)[0]
        names = unpack_from("<Q", raw, places.variable_names)[0]
        if not 0 < count <= _VARIABLES_MOST or self._memory.word(names + 16) < count:
            return {}
        function = self._objects.text(unpack_from("<Q", raw, places.name)[0])
        values = self._memory.words(frame + places.variables, count)
        texts = map(self._objects.text_or_none, self._memory.words(names + self._objects.tuple_bytes, count))
        return {
            value & _UNTAGGED: printable(f"{LOCAL_VARIABLE_PREFIX}{function}: {name}")
            for name, value in zip(texts, values, strict=True)
            if name is not None and value & _UNTAGGED
        }

    def resolve_stack(self, stack: RawStack) -> tuple[StackFrame, ...]:
        """The same for people; a frame that cannot be read, or has ended since, is left out."""
        return tuple(frame for site in stack if (frame := self._named(site)) is not None)

    def _named(self, site: CodeLocation) -> StackFrame | None:
        if site not in self._known:
            self._known[site] = None
            try:
                self._known[site] = self._read(*site)
            except TargetGoneError:
                raise
            except SourceError:
                pass
        return self._known[site]

    def _read(self, code: int, instruction: int) -> StackFrame:
        places, minor = self._places, self._minor
        raw = self._memory.read(code, _CODE_BYTES)
        file, name, table = (unpack_from("<Q", raw, at)[0] for at in (places.file, places.name, places.lines))
        first = unpack_from("<i", raw, places.first_line)[0]
        offset = instruction - code - places.instructions if minor >= 11 else instruction * (1 + (minor == 10))
        size = self._memory.word(table + 16)
        if not (0 <= size <= _TABLE_MOST and -2 <= offset <= _TABLE_MOST):
            raise SourceError("no code")
        line = line_of(self._memory.read(table + 32, size) if size else b"", first, max(0, offset), minor)
        path = self._objects.text(file)
        return StackFrame(
            printable(self._objects.text(name)),
            printable(path),
            line,
            is_installed(path, f"{self._memory.folder}/root"),
        )


def id_in_own_namespace(folder: str, number: int) -> int:
    """By which a process or thread knows itself: in a container another than outside. `folder`: its, in /proc."""
    with suppress(OSError):
        status = Path(folder, "status").read_text(encoding="utf-8", errors="surrogateescape")
        if found := _NUMBERS.search(status):
            return int(found[1])
    return number
