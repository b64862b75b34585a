"""An examination of a trainer's process: its heap, kinds of memory and stacks, or a recording of its growth."""

from __future__ import annotations

import math
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from memwatch.core.examination import NOT_ASKED, Diagnose, Examination, ExaminationRequest, StackFrame, TypeCount
from memwatch.core.leaks.examination_cpu_budget import seconds_until
from memwatch.core.measurements import Target
from memwatch.core.text_and_units import format_bytes
from memwatch.diagnosis.heap.attribute_path_syntax import parse_attribute_path
from memwatch.diagnosis.heap.named_objects import look_at_names
from memwatch.diagnosis.heap.program_modules import is_of_program
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.diagnosis.memory_growth_recorder import record_profile
from memwatch.diagnosis.thread_stacks import read_stacks
from memwatch.errors import ConfigError, SourceError
from memwatch.sources.memory.cgroup import CgroupReader
from memwatch.sources.memory.pagemap import PagemapFile, read_memory_kinds, read_resident
from memwatch.sources.memory.process_descendants import find_largest_processes
from memwatch.sources.procfs import HostReader
from memwatch.sources.target.target_facts import is_same_process
from memwatch.system import json_and_yaml
from memwatch.system.process_priority import lower_priority
from memwatch.system.python_workers import MAX_REPLY_BYTES

if TYPE_CHECKING:
    from memwatch.diagnosis.whole_heap.object_census import CensusOptions

DEFAULT_TRACED_TYPES = 5  # most frequent types whose holders are reported, besides those that are named
TICK_SECONDS = 0.02  # CPU time between two checks of that budget (chosen)
ROOM_SHARE = 0.25  # Share of the free memory here that an examination may take (chosen).
MIN_ROOM_BYTES = 32 << 20  # With less no examination is made: a look at names takes 10 MiB (measured).
MAX_ROOM_BYTES = 1 << 30  # that is assumed free where neither host nor cgroup can be read
TOO_LARGE = "the heap is too large for the memory that an examination may take: diagnosis.memory bounds it"
ENDED = "the trainer ended meanwhile, or its process executes another program now"
MAX_RECORDING_CPU_SHARE = 0.25  # of a core, for a recording
MAX_STACKS, MAX_FRAMES = 40, 16  # of a recording that are reported (chosen: more took 1.4 MB of a history)
KEPT_BYTES = 96 << 20  # A process that is larger after an examination ends (chosen: it has 52 MB after a census).
MAX_PROCESSES = 32  # of a job, beside the trainer itself, whose size is reported, the largest (chosen)
_FEW_OBJECTS, _FEW_BYTES = 100, 1 << 20  # a type that is not the program's and has fewer is not reported


def examine_process(pid: int, options: CensusOptions, stacks: bool = True) -> Examination:
    """Examine a process; what cannot be read is left out, with the reason."""
    from memwatch.diagnosis.whole_heap.object_census import take_census

    began, found = time.process_time(), Examination(threads_reason=NOT_ASKED)
    try:
        with ExitStack() as stack:
            census = take_census(pid, options, resident=_resident_reader(pid, stack))
            is_cut = not (census.complete and census.traced) and census.seconds < options.cpu_seconds
            found = replace(found, census=census, census_reason=TOO_LARGE if is_cut else "")
    except SourceError as error:
        found = replace(found, census_reason=str(error))
    except (MemoryError, SystemError):  # SystemError: C code of Python's swallowed a MemoryError
        found = replace(found, census_reason=TOO_LARGE)
    try:  # next, since the census has just read the sizes of attributes
        found = replace(found, kinds=read_memory_kinds(pid))
    except SourceError as error:
        found = replace(found, kinds_reason=str(error))
    try:
        found = replace(found, threads=read_stacks(pid), threads_reason="") if stacks else found
    except SourceError as error:
        found = replace(found, threads_reason=str(error))
    spent = round(time.process_time() - began, 3)
    return replace(found, cpu_seconds=spent, census_cpu_seconds=spent)


def _resident_reader(pid: int, stack: ExitStack) -> Callable[[int, int], int | None] | None:
    """Return a function that reads how much of an array is in memory; None where the kernel does not permit it."""
    try:
        pages = PagemapFile(pid)
    except SourceError:
        return None
    stack.callback(pages.close)
    return partial(read_resident, pages)


def serve() -> None:
    """In a process of its own: answer each ExaminationRequest on descriptor 0 with an Examination, until it is closed.

    It ends by itself when it has grown.
    """
    lower_priority()
    began = 0.0
    with socket.socket(fileno=0) as channel, suppress(OSError):  # memwatch has ended
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_REPLY_BYTES)
        while message := channel.recv(MAX_REPLY_BYTES):
            found = _answer(json_and_yaml.from_json(message, ExaminationRequest))
            cpu_seconds = time.process_time()
            channel.send(json_and_yaml.to_json(replace(found, cpu_seconds=round(cpu_seconds - began, 3))))
            began = cpu_seconds
            if found.census is not None:
                _give_memory_back()
            if _resident_bytes() > KEPT_BYTES:
                break


def _answer(request: ExaminationRequest) -> Examination:
    asked = request.asked
    room = min(asked.memory_bytes, int(ROOM_SHARE * free_bytes()))
    if room < MIN_ROOM_BYTES:
        reason = f"{format_bytes(room)} of memory may be used (diagnosis.memory, a quarter of what is free here)"
        return Examination(census_reason=reason, names_reason=reason, profile_reason=reason)
    _limit_memory(room)
    try:
        if asked.record_seconds:
            found = _record_growth(request)
        else:
            with throttled(asked.cpu_seconds, asked.cpu_later):
                found = _examine_heap(request)
    except Exception as error:  # a bug in memwatch: nobody reads the output of this process
        found = Examination(census_reason=f"internal error: {type(error).__name__}: {error}")
    return found


@contextmanager
def throttled(at_once: float, later: Sequence[tuple[float, float]]) -> Iterator[None]:
    """Pause this process whenever it has taken the CPU time that `seconds_until` permits so far."""
    began, spent = time.monotonic(), time.process_time()

    def pause(*_: object) -> None:
        wait = seconds_until(time.process_time() - spent, at_once, later) - (time.monotonic() - began)
        if wait > 0.0:
            time.sleep(wait)

    signal.signal(signal.SIGPROF, pause)
    signal.setitimer(signal.ITIMER_PROF, TICK_SECONDS if at_once or later else 0.0, TICK_SECONDS)
    try:
        yield
    finally:  # Python's end gives the signal its default action, which kills.
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def free_bytes() -> int:
    """Return the memory that this process may still take, by the host and by its own cgroup."""
    free = []
    with suppress(SourceError):
        free.append(HostReader().read_memory(0.0).available_bytes)
    with suppress(SourceError), closing(CgroupReader(os.getpid())) as cgroup:
        levels = cgroup.read_memory(0.0).levels
        free += [level.limit_bytes - level.charged_bytes for level in levels if level.limit_bytes is not None]
    return min(free, default=MAX_ROOM_BYTES)


def _look_at_names(request: ExaminationRequest) -> Examination:
    """Read what the program's own names lead to, and the kinds of its memory."""
    spent = time.process_time()
    pid, found = _examined(request).pid, Examination(census_reason=NOT_ASKED, threads_reason=NOT_ASKED)
    try:
        with ExitStack() as stack:
            began = time.clock_gettime(time.CLOCK_BOOTTIME)
            names, objects = look_at_names(pid, _resident_reader(pid, stack))
            read_t = 0.5 * (began + time.clock_gettime(time.CLOCK_BOOTTIME))
            found = replace(found, names=names, tracked_objects=objects, names_after_seconds=read_t - request.uptime)
        found = replace(found, kinds=read_memory_kinds(pid))
    except (MemoryError, SystemError):
        found = replace(found, names_reason=TOO_LARGE)
    except SourceError as error:
        found = replace(found, names_reason=str(error), kinds_reason=str(error))
    return replace(found, names_cpu_seconds=round(time.process_time() - spent, 3))


def _examine_heap(request: ExaminationRequest) -> Examination:
    target, most = _examined(request), request.asked.whole_objects
    with ExitStack() as stack:
        program: RemoteMemory | None = None
        with suppress(SourceError):  # its memory may not be read
            program = RemoteMemory(target.pid)
            stack.callback(program.close)
        names = _look_at_names(request)
        is_whole = most is None or (names.tracked_objects is not None and names.tracked_objects <= most)
        found = _read_whole_heap(target.pid, request.asked) if is_whole else names
        is_there = program is None or program.is_there()
    after_seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - request.uptime  # sizes were read last
    processes = tuple(find_largest_processes(request.target.pid, request.member_pids)[: 1 + MAX_PROCESSES])
    if not is_same_process(target) or not is_there:  # a process loses its memory before it ends
        return Examination(census_reason=ENDED, names_reason=ENDED, processes=processes)
    found = replace(
        found,
        names=names.names,
        names_reason=names.names_reason,
        names_after_seconds=names.names_after_seconds,
        names_cpu_seconds=names.names_cpu_seconds,
        tracked_objects=names.tracked_objects,
        processes=processes,
    )
    if found.census is not None:
        types = tuple(filter(_is_worth_reporting, found.census.types))
        found = replace(found, census=replace(found.census, types=types))
    return replace(found, after_seconds=round(after_seconds, 3))


def _read_whole_heap(pid: int, asked: Diagnose) -> Examination:
    from memwatch.diagnosis.whole_heap.object_census import CensusOptions

    paths = []
    for path in asked.paths:
        with suppress(ConfigError):  # a history of another version may hold paths that this one cannot parse
            paths.append(parse_attribute_path(path))
    options = CensusOptions(
        bytes=True,
        traced_types=asked.types,
        trace_most_frequent=DEFAULT_TRACED_TYPES,
        attribute_paths=tuple(paths),
        containers=True,
    )
    return examine_process(pid, options, stacks=False)


def _examined(request: ExaminationRequest) -> Target:
    """Return the process to examine."""
    worker = request.asked.worker
    if worker is None:
        return request.target
    return replace(request.target, pid=worker.pid, start_ticks=worker.start_ticks)


def _record_growth(request: ExaminationRequest) -> Examination:
    if not is_same_process(request.target):
        return Examination(profile_reason="the trainer has ended")
    seconds, spent = request.asked.record_seconds, time.process_time()
    cpu_seconds = min(MAX_RECORDING_CPU_SHARE * seconds, (request.asked.cpu_seconds or math.inf) - spent)
    try:
        found = record_profile(request.target.pid, seconds, cpu_seconds)
    except SourceError as error:
        return Examination(profile_reason=str(error))
    credits = tuple(replace(credit, frames=_shortened(credit.frames)) for credit in found.credits[:MAX_STACKS])
    return Examination(profile=replace(found, credits=credits))


def _shortened(frames: tuple[StackFrame, ...]) -> tuple[StackFrame, ...]:
    """Leave out the library's frames that are far from the innermost one."""
    return tuple(frame for i, frame in enumerate(frames) if i < MAX_FRAMES or not frame.installed)


def _is_worth_reporting(found: TypeCount) -> bool:
    return is_of_program(found.type) or found.count >= _FEW_OBJECTS or (found.bytes or 0) >= _FEW_BYTES


def _give_memory_back() -> None:
    """Let the allocator return what a census has left: some 90 of 140 MB (measured)."""
    import ctypes

    with suppress(AttributeError):  # musl has none
        ctypes.CDLL(None).malloc_trim(0)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _limit_memory(more_bytes: int) -> None:
    """Limit the memory that the kernel gives this process from now on (RLIMIT_DATA: heap and private mappings)."""
    status = Path("/proc/self/status").read_text()
    used = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData:"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = used + more_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))
