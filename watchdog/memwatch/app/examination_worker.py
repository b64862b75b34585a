"""An examination: all that is read of a trainer's own process at one moment, here or in a process of its own."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from memwatch.app.examination_launcher import ExaminationRequest
from memwatch.core.examination import Census, Examination, TypeCount
from memwatch.diagnosis.heap.attributes import AttributePath, parse_attribute_path
from memwatch.diagnosis.heap.object_census import CensusOptions, take_census
from memwatch.diagnosis.heap.program_modules import is_of_program
from memwatch.diagnosis.heap.remote_memory import RemoteMemory
from memwatch.diagnosis.memory_growth_recorder import record_profile
from memwatch.diagnosis.thread_stacks import read_stacks
from memwatch.errors import ConfigError, SourceError
from memwatch.sources.memory.pagemap import PagemapFile, read_memory_kinds, read_resident
from memwatch.sources.target.target_facts import is_same_process
from memwatch.system.python_workers import serve_task

DEFAULT_TRACED_TYPES = 5  # of which it is told who holds their objects, besides those that are named
MAX_RECORDING_CPU_SHARE = 0.25  # of a core, at most, that a recording takes
STACKS_MOST = 200  # of a recording, that are told
_FEW_OBJECTS, _FEW_BYTES = 100, 1 << 20  # of a type that is not the program's: not worth telling


def examine_process(pid: int, wish: CensusOptions, stacks: bool = True) -> Examination:
    """What can be read of a process; what cannot be is left out, with the reason."""
    began, found = time.process_time(), Examination(threads_reason="not asked for")
    try:
        with ExitStack() as held:
            found = replace(found, census=take_census(pid, wish, resident=_residence(pid, held)))
    except SourceError as error:
        found = replace(found, census_reason=str(error))
    try:  # at the moment at which the census read how much attributes hold
        found = replace(found, kinds=read_memory_kinds(pid))
    except SourceError as error:
        found = replace(found, kinds_reason=str(error))
    try:
        found = replace(found, threads=read_stacks(pid), threads_reason="") if stacks else found
    except SourceError as error:
        found = replace(found, threads_reason=str(error))
    return replace(found, cpu_seconds=round(time.process_time() - began, 3))


def _program(pid: int, held: ExitStack) -> RemoteMemory | None:
    """The memory of the program that runs now; None where it may not be read."""
    try:
        memory = RemoteMemory(pid)
    except SourceError:
        return None
    held.callback(memory.close)
    return memory


def _residence(pid: int, held: ExitStack) -> Callable[[int, int], int | None] | None:
    """What tells how much of an array is in memory; None where the kernel does not let it."""
    try:
        pages = PagemapFile(pid)
    except SourceError:
        return None
    held.callback(pages.close)
    return partial(read_resident, pages)


def serve() -> None:
    """In a process of its own: answer an ExaminationRequest with an Examination."""
    serve_task(ExaminationRequest, _examine_safely)


def _examine_safely(order: ExaminationRequest) -> Examination:
    _bound_memory(order.memory_bytes)
    try:
        found = _examine_for(order)
    except Exception as error:  # a bug of ours: nobody reads what this process would print
        found = Examination(census_reason=f"internal error: {type(error).__name__}: {error}")
    return replace(found, cpu_seconds=round(time.process_time(), 3))


def _examine_for(order: ExaminationRequest) -> Examination:
    if order.record_seconds:
        return _record_for(order)
    tracks = tuple(track for path in order.paths if (track := _track(path)) is not None)
    wish = CensusOptions(
        bytes=True,
        traced_types=order.types,
        trace_most_frequent=DEFAULT_TRACED_TYPES,
        attribute_paths=tracks,
        containers=True,
    )
    with ExitStack() as held:
        program = _program(order.target.pid, held)
        found = with_memory_fallback(lambda wish: examine_process(order.target.pid, wish, stacks=False), wish)
        is_there = program is None or program.is_there()
    after = time.clock_gettime(time.CLOCK_BOOTTIME) - order.uptime  # sizes are what is read last
    if not is_same_process(order.target) or not is_there:  # memory goes before the process does
        return Examination(census_reason="the trainer ended meanwhile, or its process executes another program now")
    if found.census is not None:
        found = replace(found, census=without_rare_types(found.census))
    return replace(found, after_seconds=round(after, 3))


def _record_for(order: ExaminationRequest) -> Examination:
    if not is_same_process(order.target):
        return Examination(profile_reason="the trainer has ended")
    try:
        found = record_profile(order.target.pid, order.record_seconds, MAX_RECORDING_CPU_SHARE * order.record_seconds)
    except SourceError as error:
        return Examination(profile_reason=str(error))
    return Examination(profile=replace(found, credits=found.credits[:STACKS_MOST]))


def _track(path: str) -> AttributePath | None:
    """None for what is none, as a history of another version may hold."""
    try:
        return parse_attribute_path(path)
    except ConfigError:
        return None


def with_memory_fallback(look: Callable[[CensusOptions], Examination], wish: CensusOptions) -> Examination:
    """All that is wished for; where memory does not suffice for that, counts alone, or nothing, with the reason."""
    try:
        return look(wish)
    except (MemoryError, SystemError):  # the latter: C code of Python's that met the first and did not say so
        reason = "the heap is too large for the memory that an examination may take: diagnosis.memory bounds it"
    try:
        return replace(look(CensusOptions(cpu_seconds=wish.cpu_seconds)), census_reason=reason)
    except (MemoryError, SystemError):
        return Examination(census_reason=reason)


def without_rare_types(census: Census) -> Census:
    """Without the types of Python and its libraries of which there is little."""
    return replace(census, types=tuple(one for one in census.types if _is_worth_telling(one)))


def _is_worth_telling(one: TypeCount) -> bool:
    return is_of_program(one.type) or one.count >= _FEW_OBJECTS or (one.bytes or 0) >= _FEW_BYTES


def _bound_memory(more_bytes: int) -> None:
    """What the kernel gives this process from now on, at most (RLIMIT_DATA: the heap and private mappings)."""
    status = Path("/proc/self/status").read_text()
    used = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData:"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bound = used + more_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (bound if hard < 0 else min(bound, hard), hard))
