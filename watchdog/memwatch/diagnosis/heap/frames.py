"""What the threads of a running CPython do: their frames, read from outside, without a stop."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from struct import iter_unpack, unpack_from

from memwatch.core.examination import Frame
from memwatch.core.text import printable
from memwatch.diagnosis.heap.installed import is_installed
from memwatch.diagnosis.heap.interpreter import Interpreter
from memwatch.diagnosis.heap.lines import line_of
from memwatch.diagnosis.heap.memory import Memory
from memwatch.diagnosis.heap.objects import Objects
from memwatch.errors import SourceError, TargetGoneError

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
    file: int  # code -> ...
    name: int  # with the class, from 3.11 on
    first_line: int
    lines: int  # the table
    instructions: int  # code -> the first of them


_OLD = _Places(176, 24, None, 32, 24, 104, None, 104, 112, 40, 120, 0)
_NEW = _Places(160, 72, None, 0, 8, 56, 70, 112, 128, 68, 136, 200)
_BY_MINOR = {
    8: _OLD,
    9: _OLD,
    10: replace(_OLD, instruction=96),
    11: replace(_NEW, current=56, between=8, code=32, caller=48, owner=69, first_line=72, instructions=184),
    12: replace(_NEW, thread_id=144, current=56, between=0, instructions=192),
    13: _NEW,
    14: replace(_NEW, owner=74, instructions=208),
    15: replace(_NEW, owner=74, instructions=208, thread_id=184),
}
_FRAME_BYTES, _FRAME_OBJECT_BYTES = 80, 112
_NOBODYS = 3  # frames from this owner on stand where C has called Python

Site = tuple[int, int]  # a frame as it is read: the address of its code, and the instruction
Stack = tuple[Site, ...]  # the innermost first


@dataclass(frozen=True, slots=True)
class ThreadState:
    """A thread that runs Python."""

    address: int
    interpreter: int
    tid: int  # as the process itself counts; 0: not known


class Frames:
    """Reads them in one process. What changes while it is read may mix two moments of a stack."""

    def __init__(self, memory: Memory, interpreter: Interpreter) -> None:
        self._memory, self._interpreter, self._minor = memory, interpreter, interpreter.minor[1]
        self._objects = Objects(memory, interpreter.minor)
        self._places = _BY_MINOR[self._minor]
        self._known: dict[Site, Frame | None] = {}
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
        for (address,) in iter_unpack("<Q", self._memory.read(state, _SEARCHED)):
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
            own = own_number(self._memory.folder, self._memory.pid)
            self._tid_at = numbers.index(own) if own in numbers else -1
        return numbers[self._tid_at] if self._tid_at >= 0 else 0

    # --- frames ---

    def stack(self, thread: ThreadState) -> Stack:
        """What it is doing now; empty when it runs no Python, is gone, or changes too fast to be read whole."""
        for _ in range(_TRIES):
            sites: list[Site] = []
            try:
                frame = self._innermost(thread)
                while frame and len(sites) < DEEPEST:
                    frame = self._climb(frame, sites)
                return tuple(sites)
            except TargetGoneError:
                raise
            except SourceError:  # a frame that has ended meanwhile
                continue
        return ()

    def _innermost(self, thread: ThreadState) -> int:
        """The address of its innermost frame; 0 without one."""
        places = self._places
        raw = self._memory.read(thread.address, places.current + 8)
        if unpack_from("<Q", raw, _INTERPRETER)[0] != thread.interpreter:
            return 0
        frame = int(unpack_from("<Q", raw, places.current)[0])
        return self._memory.word(frame + places.between) if frame and places.between is not None else frame

    def _climb(self, frame: int, sites: list[Site]) -> int:
        """Add where a frame is, unless it is C's; the address of the one that called it."""
        places = self._places
        if places.owner is None:
            raw = self._memory.read(frame, _FRAME_OBJECT_BYTES)
            sites.append((unpack_from("<Q", raw, places.code)[0], unpack_from("<i", raw, places.instruction)[0]))
        else:
            raw = self._memory.read(frame, _FRAME_BYTES)
            if raw[places.owner] < _NOBODYS:
                code = unpack_from("<Q", raw, places.code)[0] & _UNTAGGED
                sites.append((code, unpack_from("<Q", raw, places.instruction)[0]))
        return int(unpack_from("<Q", raw, places.caller)[0])

    def named(self, stack: Stack) -> tuple[Frame, ...]:
        """The same for people; a frame that cannot be read, or has ended since, is left out."""
        return tuple(frame for site in stack if (frame := self._named(site)) is not None)

    def _named(self, site: Site) -> Frame | None:
        if site not in self._known:
            self._known[site] = None
            try:
                self._known[site] = self._read(*site)
            except TargetGoneError:
                raise
            except SourceError:
                pass
        return self._known[site]

    def _read(self, code: int, instruction: int) -> Frame:
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
        return Frame(
            printable(self._objects.text(name)),
            printable(path),
            line,
            is_installed(path, f"{self._memory.folder}/root"),
        )


def own_number(folder: str, number: int) -> int:
    """By which a process or thread knows itself: in a container another than outside. `folder`: its, in /proc."""
    with suppress(OSError):
        status = Path(folder, "status").read_text(encoding="utf-8", errors="surrogateescape")
        if found := _NUMBERS.search(status):
            return int(found[1])
    return number
