"""An examination of a trainer's process: its heap, kinds of memory and stacks, or a recording of its growth."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from memwatch.app.examination_launcher import ExaminationRequest
from memwatch.core.examination import Examination, TypeCount
from memwatch.diagnosis.heap.attributes import parse_attribute_path
from memwatch.diagnosis.heap.object_census import CensusOptions, take_census
from memwatch.diagnosis.heap.program_modules import is_of_program
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.diagnosis.memory_growth_recorder import record_profile
from memwatch.diagnosis.thread_stacks import read_stacks
from memwatch.errors import ConfigError, SourceError
from memwatch.sources.memory.pagemap import PagemapFile, read_memory_kinds, read_resident
from memwatch.sources.target.target_facts import is_same_process
from memwatch.system.python_workers import serve_task

DEFAULT_TRACED_TYPES = 5  # most frequent types whose holders are reported, besides those that are named
MAX_RECORDING_CPU_SHARE = 0.25  # of a core, for a recording
MAX_STACKS = 200  # reported from a recording
_FEW_OBJECTS, _FEW_BYTES = 100, 1 << 20  # a type that is not the program's and has fewer is not reported


def examine_process(pid: int, options: CensusOptions, stacks: bool = True) -> Examination:
    """Examine a process; what cannot be read is left out, with the reason."""
    began, found = time.process_time(), Examination(threads_reason="not asked for")
    try:
        with ExitStack() as stack:
            found = replace(found, census=take_census(pid, options, resident=_resident_reader(pid, stack)))
    except SourceError as error:
        found = replace(found, census_reason=str(error))
    try:  # next, since the census has just read the sizes of attributes
        found = replace(found, kinds=read_memory_kinds(pid))
    except SourceError as error:
        found = replace(found, kinds_reason=str(error))
    try:
        found = replace(found, threads=read_stacks(pid), threads_reason="") if stacks else found
    except SourceError as error:
        found = replace(found, threads_reason=str(error))
    return replace(found, cpu_seconds=round(time.process_time() - began, 3))


def _resident_reader(pid: int, stack: ExitStack) -> Callable[[int, int], int | None] | None:
    """Return a function that reads how much of an array is in memory; None where the kernel does not permit it."""
    try:
        pages = PagemapFile(pid)
    except SourceError:
        return None
    stack.callback(pages.close)
    return partial(read_resident, pages)


def serve() -> None:
    """In a process of its own: answer an ExaminationRequest with an Examination."""
    serve_task(ExaminationRequest, _answer)


def _answer(request: ExaminationRequest) -> Examination:
    _limit_memory(request.asked.memory_bytes)
    try:
        found = _record_growth(request) if request.asked.record_seconds else _examine_heap(request)
    except Exception as error:  # a bug in memwatch: nobody reads the output of this process
        found = Examination(census_reason=f"internal error: {type(error).__name__}: {error}")
    return replace(found, cpu_seconds=round(time.process_time(), 3))


def _examine_heap(request: ExaminationRequest) -> Examination:
    pid, paths = request.target.pid, []
    for path in request.asked.paths:
        with suppress(ConfigError):  # a history of another version may hold paths that this one cannot parse
            paths.append(parse_attribute_path(path))
    options = CensusOptions(
        bytes=True,
        traced_types=request.asked.types,
        trace_most_frequent=DEFAULT_TRACED_TYPES,
        attribute_paths=tuple(paths),
        containers=True,
    )
    with ExitStack() as stack:
        program: RemoteMemory | None = None
        with suppress(SourceError):  # its memory may not be read
            program = RemoteMemory(pid)
            stack.callback(program.close)
        found = with_memory_fallback(lambda options: examine_process(pid, options, stacks=False), options)
        is_there = program is None or program.is_there()
    after_seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - request.uptime  # sizes were read last
    if not is_same_process(request.target) or not is_there:  # a process loses its memory before it ends
        return Examination(census_reason="the trainer ended meanwhile, or its process executes another program now")
    if found.census is not None:
        types = tuple(filter(_is_worth_reporting, found.census.types))
        found = replace(found, census=replace(found.census, types=types))
    return replace(found, after_seconds=round(after_seconds, 3))


def _record_growth(request: ExaminationRequest) -> Examination:
    if not is_same_process(request.target):
        return Examination(profile_reason="the trainer has ended")
    seconds = request.asked.record_seconds
    try:
        found = record_profile(request.target.pid, seconds, MAX_RECORDING_CPU_SHARE * seconds)
    except SourceError as error:
        return Examination(profile_reason=str(error))
    return Examination(profile=replace(found, credits=found.credits[:MAX_STACKS]))


def with_memory_fallback(examine: Callable[[CensusOptions], Examination], options: CensusOptions) -> Examination:
    """Examine with these options; when memory does not suffice, only count objects, or return the reason alone."""
    try:
        return examine(options)
    except (MemoryError, SystemError):  # SystemError: C code of Python's swallowed a MemoryError
        reason = "the heap is too large for the memory that an examination may take: diagnosis.memory bounds it"
    try:
        return replace(examine(CensusOptions(cpu_seconds=options.cpu_seconds)), census_reason=reason)
    except (MemoryError, SystemError):
        return Examination(census_reason=reason)


def _is_worth_reporting(found: TypeCount) -> bool:
    return is_of_program(found.type) or found.count >= _FEW_OBJECTS or (found.bytes or 0) >= _FEW_BYTES


def _limit_memory(more_bytes: int) -> None:
    """Limit the memory that the kernel gives this process from now on (RLIMIT_DATA: heap and private mappings)."""
    status = Path("/proc/self/status").read_text()
    used = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData:"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = used + more_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))
