"""The nouns of diagnosis: what an examination of a trainer finds, and what follows from several.

What a census of a Python heap tells: which objects there are, of what size, and who keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

UNNAMED_HOLDER_PREFIX = "a local variable or C code: "  # where a way begins that begins with no attribute
LOCAL_VARIABLE_PREFIX = "local variable of "  # where it begins with one: "local variable of main: kept[i]"
NDARRAY = "numpy.ndarray"
TENSORS = ("torch.Tensor", "torch.nn.parameter.Parameter")
ARRAY_TYPES = (NDARRAY, *TENSORS)


@dataclass(frozen=True, slots=True)
class TypeCount:
    """The objects of one type."""

    type: str  # "__main__.Agent", "dict"
    count: int
    bytes: int | None  # of all together, each without what it refers to; None: not asked for
    tracked: bool  # the garbage collector knows such objects, though it may not know each of them


@dataclass(frozen=True, slots=True)
class LargeObject:
    """One large object."""

    type: str
    bytes: int
    path: str  # "__main__.Trainer.obs"; empty: no way to it is known
    resident_bytes: int | None = None  # of an array whose memory is taken as it is written; None: not known


@dataclass(frozen=True, slots=True)
class DeviceStorageTotals:
    """The memory of torch's tensors on one device, each storage once."""

    device: str  # "cpu", "cuda:0"
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ReferencePath:
    """A way by which objects of a type are kept."""

    type: str  # of what is held
    path: str  # "__main__.Trainer.losses[i]"
    count: int  # of the objects that it leads to
    of: int  # all that there are


@dataclass(frozen=True, slots=True)
class AttributeSize:
    """What is at the end of a path that was asked for."""

    path: str
    objects: int  # instances of the class, times what the path fans out to
    bytes: int | None  # of them and all that they hold, each object once; None: nothing is there
    items: int | None = None  # in the containers at the end of the path, all together; None: these are none
    capacity: int | None = None  # of items, as an attribute beside it or a deque says
    reason: str = ""  # why there is nothing
    full: str = ""  # the path with its class in full, "__main__.Trainer.buffer"; empty: several classes are called so


@dataclass(frozen=True, slots=True)
class Census:
    """One census. The process went on meanwhile."""

    python: str  # "3.11.7"
    seconds: float  # of CPU
    complete: bool  # False: the time was up
    disturbed: bool  # the collector went through all objects meanwhile, at each attempt: counts may be too low
    types: tuple[TypeCount, ...]  # the most frequent first; by bytes, where they are known
    large: tuple[LargeObject, ...] = ()  # the largest first
    storages: tuple[DeviceStorageTotals, ...] = ()
    tensors_with_graph: int | None = None  # that keep the graph of their making; None: no tensors, or not asked for
    tensors_unread: int = 0  # whose storage is not known: torch lays them out in another way than is known
    holders: tuple[ReferencePath, ...] = ()  # by type, the one with most bytes first; those that hold the most first
    tracked: tuple[AttributeSize, ...] = ()
    containers: tuple[AttributeSize, ...] = ()  # where the ways of most bytes that are held begin, the largest first


@dataclass(frozen=True, slots=True)
class MemoryKind:
    """The mappings of a process that are of one kind."""

    kind: str  # "heap", "anonymous", "stacks", "shared memory", "files", "gpu driver"
    mapped_bytes: int
    resident_bytes: int  # as a sample of pages tells it
    error_bytes: int  # its standard error; 0 where all pages were looked at


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A function that is being run."""

    function: str  # with its class where that is known: Trainer.learn
    file: str
    line: int
    installed: bool = False  # of Python or a library, not of the program


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """What a thread of the trainer does."""

    name: str  # empty: it has none
    active: bool  # it runs, instead of waiting
    frames: tuple[StackFrame, ...]  # the innermost first


@dataclass(frozen=True, slots=True)
class StackGrowth:
    """Growth of memory that is credited to a stack: it ran as memory rose to a level, for the last time."""

    frames: tuple[StackFrame, ...]  # the innermost first; empty: none was seen
    bytes: int


@dataclass(frozen=True, slots=True)
class LineGrowth:
    """Growth of memory by the line of the program that ran as it rose."""

    frame: StackFrame
    bytes: int
    share: float  # of all growth that was seen, 0 to 1


@dataclass(frozen=True, slots=True)
class AllocationProfile:
    """Growth of a process's memory, by the code that ran as it rose."""

    seconds: float
    cpu_seconds: float  # that it took
    grown_bytes: int  # all credits together: from the lowest level on
    credits: tuple[StackGrowth, ...]  # the largest first


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found of a trainer's own process. What could not be read is None, with the reason."""

    census: Census | None = None
    kinds: tuple[MemoryKind, ...] | None = None
    threads: tuple[ThreadStack, ...] | None = None
    profile: AllocationProfile | None = None
    census_reason: str = ""
    kinds_reason: str = ""
    threads_reason: str = ""
    profile_reason: str = ""
    cpu_seconds: float = 0.0  # that it took
    after_seconds: float = 0.0  # how long after it was asked for the heap was read


# --- what follows from several ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Growth:
    """Something that rises from one examination to the next, of late."""

    name: str  # an attribute ("__main__.Trainer.kept"), a type, a kind of memory
    before: int  # bytes, or objects of a type, where the rise begins
    after: int  # at the latest examination
    per_unit: float  # of the generation; of an hour, where there are none
    since: float  # the generation in which it began; hours since the watch began, where there are none
    steps: int  # examinations one after the other in which it rose


@dataclass(frozen=True, slots=True)
class ExaminationRow:
    """What an examination showed: a row of the table of all of them."""

    t: float
    reason: str  # "generation", "phase", "middle", "time", "warn", "request"
    generation: float | None
    phase: str | None  # that had begun
    used_bytes: int | None  # of main memory
    python_bytes: int  # all Python objects
    objects: int
    counts: Mapping[str, int]  # of types that grow in number, those of findings first
    sizes: Mapping[str, int]  # bytes, of attributes that grow, those of findings first


@dataclass(frozen=True, slots=True)
class GrowthDriver:
    """A level in the log, or a number of items, that growth goes along with."""

    name: str  # "replay buffer"
    value: float
    capacity: float | None
    bytes_per_unit: float
    r2: float  # how much of the growth it explains, 0 to 1
    path: str  # the attribute that it counts the items of; empty: none is known
    full_bytes: int | None  # of memory at its capacity; None: it has none
    limit_value: float | None  # at which the limit is met; None: no limit is known


@dataclass(frozen=True, slots=True)
class Finding:
    """A named cause of growth, with its evidence."""

    cause: str  # "environments_recreated", "unbounded_container" ...: docs/diagnosis.md lists them
    title: str  # for people
    resource: str  # "host", "gpu0"
    growth: Growth  # bytes
    share: float | None  # of the growth of memory
    phase: str | None  # in which it grows
    type: str  # what there is more and more of; empty: no Python type
    count_before: int | None
    count_after: int | None
    holder: str  # "__main__.Trainer.kept[i]"; empty: unknown
    remedy: str
    confidence: float  # 0 to 1
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is known of the causes of growth. The largest first, each time."""

    t: float  # of the latest examination
    unit: str  # of growth and of `since`: "generation" as the log calls it, or "hour"
    examinations: int
    cpu_seconds: float  # that they took
    findings: tuple[Finding, ...]
    drivers: tuple[GrowthDriver, ...]
    containers: tuple[Growth, ...]  # bytes
    tracked: tuple[Growth, ...]  # bytes, of attributes that somebody wants to know of, growing or not
    types: tuple[Growth, ...]  # objects
    kinds: tuple[Growth, ...]  # bytes
    moments: tuple[ExaminationRow, ...]  # oldest first: the first few, and the latest
    credits: tuple[StackGrowth, ...]  # bytes, by the code that ran as memory rose, in the latest recordings
    lines: tuple[LineGrowth, ...]  # the same, by line
    latest: Examination  # but for recordings
