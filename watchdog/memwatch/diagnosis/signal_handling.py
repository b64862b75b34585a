"""Judges from outside whether a running CPython program would react to a signal before it ends.

Evidence: the handler that `signal.signal` installed and, where that one raises KeyboardInterrupt, the `except` and
`finally` clauses around the lines that the main thread is in. Nothing is stopped, and nothing runs in the program.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path, PurePath

from memwatch.core.examination import StackFrame
from memwatch.core.measurements import SignalHandling
from memwatch.core.proc_stat import parse_stat
from memwatch.core.text_and_units import printable
from memwatch.diagnosis.heap.cpython_runtime import Interpreter, find_interpreter
from memwatch.diagnosis.heap.remote_memory import RemoteMemory, UnreadableError
from memwatch.diagnosis.heap.remote_objects import BuiltinValues, TypeTable
from memwatch.diagnosis.heap.stack_frames import CodeLocation, Frames, ThreadState
from memwatch.errors import SourceError

# Of Handlers in CPython's signalmodule.c: 65 times a flag and the Python object that handles the signal.
_SIGNALS, _RECORD_WORDS = 65, 2
_SAME_RECORDS = 30  # real-time signals have the default handler one after the other: 31 with glibc, 30 with musl
_SIGKILL, _SIGSTOP = 9, 19  # nobody can handle these
_FUNCTION_CODE = (16, 48)  # function -> code, before 3.10 and since
_METHOD_FUNCTION, _C_FUNCTION_NAME = 16, 16  # method -> function; C function -> its definition, which begins with it
_RAISES_INTERRUPT = "default_int_handler"
_STACKS, _STACK_SECONDS = 3, 0.05  # frames in all of these stacks stay; the others come and go (chosen)
_MAX_SOURCE_BYTES = 1 << 20
_CLOCK_SECONDS = 1.0  # file times and start times are read from two clocks
_CATCHES, _INTERRUPT = ("KeyboardInterrupt", "BaseException"), "KeyboardInterrupt"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SAVES = re.compile(r"save|checkpoint|ckpt|dump|snapshot|persist", re.IGNORECASE)  # names of functions


def read_signal_handling(pid: int, signal_name: str) -> SignalHandling:
    """Judge a program that catches this signal (SigCgt of its status); SourceError when it cannot be read."""
    with closing(RemoteMemory(pid)) as memory:
        interpreter = find_interpreter(memory)
        frames = Frames(memory, interpreter)
        handler = _find_handler(memory, interpreter, signal.Signals[signal_name])
        types = TypeTable(memory, BuiltinValues(memory, interpreter.minor))
        kind = types.type_at(memory.word(handler + 8))
        code_at = _FUNCTION_CODE[interpreter.minor >= (3, 10)]
        where = _describe_handler(memory, frames, handler, kind.name if kind is not None else "", code_at)
        if where is None:
            return SignalHandling(signal_name, None, reason="code in C handles it")
        return SignalHandling(signal_name, True, where) if where else _judge_stack(memory, frames, signal_name)


# --- the handler ----------------------------------------------------------------------------------------------------


def _find_handler(memory: RemoteMemory, interpreter: Interpreter, number: int) -> int:
    """Return the address of the Python object that handles a signal.

    The array is no exported symbol. It is recognised by the run of equal records of the real-time signals at its end.
    """
    for start, end in interpreter.variables:
        for low, high in memory.writable.within(start, end):
            words = array("Q", memory.read(low, (high - low) & ~7))
            if (first := _find_array(words)) is not None:
                return words[first + number * _RECORD_WORDS + 1]
    raise SourceError("its table of signal handlers is not found")


def _find_array(words: array[int]) -> int | None:
    """Return the index of the array's first word."""
    length = _SAME_RECORDS * _RECORD_WORDS
    for i in range(len(words) - length):
        default = words[i + 1]
        if not default or words[i] or words[i + length - 1] != default:
            continue
        end = i
        while end + 1 < len(words) and words[end] == 0 and words[end + 1] == default:
            end += _RECORD_WORDS
        first = end - _SIGNALS * _RECORD_WORDS
        unhandled = [first + number * _RECORD_WORDS + 1 for number in (_SIGKILL, _SIGSTOP)]
        if end - i >= length and first >= 0 and all(words[at] == default for at in unhandled):
            return first
    return None


def _describe_handler(memory: RemoteMemory, frames: Frames, handler: int, name: str, code_at: int) -> str | None:
    """Describe the handler, an object of the type `name`; empty when it raises KeyboardInterrupt, None for C code.

    `code_at`: the offset of a function's code.
    """
    if name == "builtin_function_or_method":
        called = memory.text(memory.word(memory.word(handler + _C_FUNCTION_NAME)))
        return "" if called == _RAISES_INTERRUPT else printable(called)
    if name == "method":
        handler, name = memory.word(handler + _METHOD_FUNCTION), "function"
    if name == "function":
        return _where(frames.function(memory.word(handler + code_at)))
    return None if name in ("", "int", "NoneType") else name


def _where(frame: StackFrame) -> str:
    return f"{frame.function} ({PurePath(frame.file).name}:{frame.line})"


# --- the main thread's stack ----------------------------------------------------------------------------------------


def _judge_stack(memory: RemoteMemory, frames: Frames, signal_name: str) -> SignalHandling:
    """Look for what catches a KeyboardInterrupt in the main thread, the innermost first: that one gets it."""
    stack = _lasting_stack(frames, _main_thread(frames))
    resolved = [(location, frame) for location in stack for frame in frames.resolve_stack((location,))]
    seen = [frame for _, frame in resolved]
    if not seen:
        return SignalHandling(signal_name, None, reason="its main thread runs no Python code, or changes too fast")
    started_t, comes_later = _start_time(memory), False
    for location, frame in resolved:
        with suppress(SourceError):
            source = _source(memory, frame.file, started_t)
            clause = _clause_around(frames, location, frame, source)
            if clause is not None:
                return SignalHandling(signal_name, True, clause)
            comes_later |= _catches_later(frames, location, frame, source)
    if any(frame.file.startswith("<frozen importlib") for frame in seen):
        return SignalHandling(signal_name, None, reason="it is still importing its modules")
    if comes_later:
        return SignalHandling(signal_name, None, reason="it is not yet in the code that catches KeyboardInterrupt")
    return SignalHandling(signal_name, False, reason="no handler, no `except KeyboardInterrupt`")


def _main_thread(frames: Frames) -> ThreadState:
    """Return the thread that runs signal handlers."""
    threads = frames.threads()
    if not threads:
        raise SourceError("its threads are not found")
    return threads[0]


def _lasting_stack(frames: Frames, thread: ThreadState) -> tuple[CodeLocation, ...]:
    """Return the frames that stay in several stacks, as they were in the last one."""
    stacks = []
    for number in range(_STACKS):
        time.sleep(_STACK_SECONDS if number else 0.0)
        stacks.append(frames.stack(thread))
    *earlier, latest = stacks
    lasting = [code for code, _ in latest]
    for stack in earlier:
        codes = {code for code, _ in stack}
        lasting = [code for code in lasting if code in codes]
    return tuple(location for location in latest if location[0] in lasting)


def _start_time(memory: RemoteMemory) -> float:
    """Return the Unix time of the program's start."""
    try:
        ticks = parse_stat(Path(memory.folder, "stat").read_bytes()).start_ticks
    except (OSError, ValueError) as error:
        raise UnreadableError("its start time cannot be read") from error
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def _clause_around(frames: Frames, location: CodeLocation, frame: StackFrame, source: str | None) -> str | None:
    """Return what catches a KeyboardInterrupt in this frame: by its source or, without one, by names in its code."""
    if source is None:
        return _where(frame) if _INTERRUPT in frames.used_names(location[0]) else None
    line = catching_line(source, frames.function(location[0]).line, frame.line, frame.installed)
    return None if line is None else f"{frame.function} ({PurePath(frame.file).name}:{line})"


def _catches_later(frames: Frames, location: CodeLocation, frame: StackFrame, source: str | None) -> bool:
    """Whether the function of this frame, or the module, catches a KeyboardInterrupt further down."""
    if source is None or frame.installed:
        return False
    first = 0 if frame.function == "<module>" else frames.function(location[0]).line
    return catches_after(source, first, frame.line)


def _source(memory: RemoteMemory, path: str, started_t: float) -> str | None:
    """Return the source as the program read it; None when there is none, or it was changed since."""
    if path.startswith("<"):
        return None
    file = Path(f"{memory.folder}/root{path}" if path.startswith("/") else f"{memory.folder}/cwd/{path}")
    try:
        if file.stat().st_mtime > started_t + _CLOCK_SECONDS:
            return None
        with file.open("rb") as opened:
            raw = opened.read(_MAX_SOURCE_BYTES + 1)
    except (OSError, ValueError):
        return None
    return raw.decode("utf-8", "replace") if len(raw) <= _MAX_SOURCE_BYTES else None


# --- a source -------------------------------------------------------------------------------------------------------


def catching_line(source: str, first_line: int, line: int, is_library: bool = False) -> int | None:
    """Return the line of the clause that catches a KeyboardInterrupt raised in `line`; None without one.

    `first_line` is that of the function that `line` is in. A clause that passes the exception on counts if it calls
    something named save, checkpoint and the like, or if the program itself names KeyboardInterrupt there.
    """
    tree = _parse(source, max(0, first_line - 1), line)
    nodes = ast.walk(tree) if tree is not None else ()
    around = [node for node in nodes if isinstance(node, ast.Try) and node.lineno >= first_line]
    for node in sorted(around, key=lambda node: -node.lineno):
        clause = _clause(node, line, is_library)
        if clause is not None:
            return clause
    return None


def catches_after(source: str, first_line: int, line: int) -> bool:
    """Whether the function that begins in `first_line` (0: the module) catches a KeyboardInterrupt after `line`."""
    tree = _parse(source, line, None)
    if tree is None:
        return False
    within = [tree]
    if first_line:
        functions = (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))
        within = [f for f in functions if first_line in (f.lineno, *(one.lineno for one in f.decorator_list))]
    while within:
        node = within.pop()
        if isinstance(node, ast.Try) and node.lineno > line and _clause(node, node.body[0].lineno, False):
            return True
        within += (child for child in ast.iter_child_nodes(node) if not isinstance(child, _FUNCTIONS))
    return False


def _parse(source: str, first: int, last: int | None) -> ast.AST | None:
    """Parse a source that has a `try` in these lines: parsing a long module takes 0.1 s."""
    if not any(text.lstrip().startswith("try") for text in source.splitlines()[first:last]):
        return None
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _clause(node: ast.Try, line: int, is_library: bool) -> int | None:
    if _spans(node.body, line):
        for handler in node.handlers:
            names = _names(handler.type)
            if handler.type is None or not names.isdisjoint(_CATCHES):
                if _reacts(handler.body, is_library or _INTERRUPT not in names):
                    return handler.lineno
                break
    parts = [node.body, node.orelse, *(handler.body for handler in node.handlers)]
    if node.finalbody and any(_spans(part, line) for part in parts) and _saves(node.finalbody):
        return node.finalbody[0].lineno
    return None


def _spans(body: Sequence[ast.stmt], line: int) -> bool:
    return bool(body) and body[0].lineno <= line <= (body[-1].end_lineno or 0)


def _names(node: ast.expr | None) -> set[str]:
    """Return the last names of the exceptions: KeyboardInterrupt of builtins.KeyboardInterrupt."""
    walked = ast.walk(node) if node is not None else ()
    return {n.id if isinstance(n, ast.Name) else n.attr for n in walked if isinstance(n, (ast.Name, ast.Attribute))}


def _reacts(body: Sequence[ast.stmt], is_general: bool) -> bool:
    """Whether a clause does more than to pass the exception on; one for all exceptions, or of a library, must save."""
    passes_on = isinstance(body[-1], ast.Raise) and body[-1].exc is None
    return not passes_on or _saves(body) or (not is_general and len(body) > 1)


def _saves(body: Sequence[ast.stmt]) -> bool:
    return any(_SAVES.search(name) for name in _called(body))


def _called(body: Sequence[ast.stmt]) -> Iterator[str]:
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Name):
                    yield node.func.id
                elif isinstance(node.func, ast.Attribute):
                    yield node.func.attr
