"""The records of diagnosis: the findings of one examination of a trainer, and the conclusions from several.

A census lists the objects of a Python heap by type, with their sizes and the attributes that keep them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memwatch.core.measurements import Target

NOT_ASKED = "not asked for"  # the reason why an examination leaves something out
UNNAMED_HOLDER_PREFIX = "a local variable or C code: "  # begins a path that starts at no attribute
CYCLES_HOLDER_PREFIX = "nothing but each other: "  # begins a path that starts in garbage which refers to itself
KEY_END, ITEM_ENDS = "{k}", ("[i]", "[k]", "{i}")  # of paths to items of a container, not to what a name leads to
LOCAL_VARIABLE_PREFIX = "local variable of "  # begins a path at a variable: "local variable of main: kept[i]"
ALLOCATED_BUFFER_FILLS = "allocated_buffer_fills"  # a cause of growth that ends by itself
MODEL_GROWS = "model_grows"  # a cause of growth that is what the program is for
NDARRAY = "numpy.ndarray"
LRU_ITEM = "functools._lru_list_elem"  # around each result that functools.lru_cache keeps
TENSORS = ("torch.Tensor", "torch.nn.parameter.Parameter")
ARRAY_TYPES = (NDARRAY, *TENSORS)
OTHERS_GROW, WORKERS_GROW = BESIDE_CAUSES = ("others_grow", "workers_grow")  # growth that is not the trainer's own


@dataclass(frozen=True, slots=True)
class TypeCount:
    """The objects of one type."""

    type: str  # "__main__.Agent", "dict"
    count: int
    bytes: int | None  # of all together, each without the objects it refers to; None: not asked for
    tracked: bool  # the garbage collector tracks such objects, though perhaps not each of them


@dataclass(frozen=True, slots=True)
class LargeObject:
    """One large object."""

    type: str
    bytes: int
    path: str  # "__main__.Trainer.obs"; empty: no path to it is known
    resident_bytes: int | None = None  # of an array whose pages are allocated as it is written; None: not known


@dataclass(frozen=True, slots=True)
class DeviceStorageTotals:
    """The memory of torch's tensors on one device, each storage once."""

    device: str  # "cpu", "cuda:0"
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ReferencePath:
    """A path of references that keeps objects of a type alive."""

    type: str  # of the objects at its end
    path: str  # "__main__.Trainer.losses[i]"
    count: int  # of the objects that it leads to
    of: int  # all objects of the type


@dataclass(frozen=True, slots=True)
class AttributeSize:
    """The objects at the end of a path that was asked for."""

    path: str
    objects: int  # instances of the class, times the items that the path fans out to
    bytes: int | None  # of them and all that they hold, each object once; None: the path leads to nothing
    items: int | None = None  # in the containers at the end of the path, all together; None: these are no containers
    capacity: int | None = None  # in items, by an attribute beside it or the maxlen of a deque
    reason: str = ""  # why the path leads to nothing
    full: str = ""  # the path with its class in full, "__main__.Trainer.buffer"; empty: several classes have the name


@dataclass(frozen=True, slots=True)
class GraphDepth:
    """How far the autograd graph of a tensor goes."""

    path: str  # the name that leads to the tensor
    nodes: int  # on the longest way through the graph


@dataclass(frozen=True, slots=True)
class Census:
    """The objects of a Python heap. The process went on running meanwhile."""

    python: str  # "3.11.7"
    seconds: float  # of CPU
    complete: bool  # False: the time was up
    disturbed: bool  # the collector ran a full collection during each attempt: counts may be too low
    types: tuple[TypeCount, ...]  # the most frequent first; by bytes, where they are known
    large: tuple[LargeObject, ...] = ()  # the largest first
    storages: tuple[DeviceStorageTotals, ...] = ()
    tensors_with_graph: int | None = None  # that keep their autograd graph; None: no tensors, or not asked for
    graph_paths: tuple[str, ...] = ()  # names of the program's that lead to such tensors, local variables excepted
    graph_depths: tuple[GraphDepth, ...] = ()  # of the tensors that names lead to, the deepest first
    tensors_unread: int = 0  # whose storage is not known: this torch lays tensors out differently
    holders: tuple[ReferencePath, ...] = ()  # by type, the one with most bytes first; in it the most objects first
    tracked: tuple[AttributeSize, ...] = ()
    containers: tuple[AttributeSize, ...] = ()  # attributes where the paths to most bytes begin, the largest first
    collector_enabled: bool | None = None  # the garbage collector runs by itself; None: not asked for
    traced: bool = True  # False: memory did not suffice to look for what holds the objects
    # By the clock, from when the objects were listed, and from when sizes of attributes began to be read, to the end.
    sizing_seconds: float = 0.0
    measuring_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryKind:
    """The mappings of a process that are of one kind."""

    kind: str  # "heap", "anonymous", "stacks", "shared memory", "files", "gpu driver"
    mapped_bytes: int
    resident_bytes: int  # estimated from a sample of pages
    error_bytes: int  # its standard error; 0 where all pages were read


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A function on a thread's stack."""

    function: str  # with its class where that is known: Trainer.learn
    file: str
    line: int
    installed: bool = False  # of Python or a library, not of the program


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """The stack of one thread of the trainer."""

    name: str  # empty: it has none
    active: bool  # it runs, instead of waiting
    frames: tuple[StackFrame, ...]  # the innermost first


@dataclass(frozen=True, slots=True)
class StackGrowth:
    """Growth of memory attributed to a stack: it ran when memory last rose to these levels."""

    frames: tuple[StackFrame, ...]  # the innermost first; empty: no stack was read
    bytes: int


@dataclass(frozen=True, slots=True)
class LineGrowth:
    """Growth of memory attributed to the line of the program that ran as it rose."""

    frame: StackFrame
    bytes: int
    share: float  # of all growth whose stack was read, 0 to 1


@dataclass(frozen=True, slots=True)
class AllocationProfile:
    """Growth of a process's resident memory during a recording, by the code that ran as it rose."""

    seconds: float
    cpu_seconds: float  # that the recording took
    grown_bytes: int  # all credits together: from the lowest level of the recording to the last
    credits: tuple[StackGrowth, ...]  # the largest first


@dataclass(frozen=True, slots=True)
class ProcessSize:
    """One process of a trainer's tree."""

    pid: int
    start_ticks: int  # as in a Target
    name: str  # printable
    anon_bytes: int  # resident anonymous memory


@dataclass(frozen=True, slots=True)
class Diagnose:
    """Examine the trainer, in a process of low priority. An action; Diagnosed carries it with its outcome."""

    t: float
    reason: str  # "generation", "phase", "middle" (of a generation), "time", "warn", "request", "rise"
    generation: float | None  # under way, as the program counts
    phase: str | None  # under way
    used_bytes: int | None  # of main memory
    memory_bytes: int  # that the examination may take
    types: tuple[str, ...] = ()  # whose holders are to be found, besides those of the types that it chooses itself
    paths: tuple[str, ...] = ()  # whose sizes are to be found, besides those of the attributes that it finds itself
    gpu_bytes: int | None = None  # used by the trainer on all GPUs; None: there is none, or it is not known
    record_seconds: float = 0.0  # follow memory for this long, to see which code raises it, and do nothing else
    cow_bytes: int = 0  # copied by forked workers so far
    # Read the whole heap, not only what the program's own names lead to, where at most so many objects are tracked.
    whole_objects: int | None = None  # None: however many
    cpu_seconds: float = 0.0  # that it may take at once; above that it pauses
    # that it may take besides: after seconds, CPU seconds; all that again in each minute to come. Nothing: no bound.
    cpu_later: tuple[tuple[float, float], ...] = ()
    kill_seconds: float = 180.0  # after which it is ended
    worker: ProcessSize | None = None  # to be examined; None: the trainer's own process


@dataclass(frozen=True, slots=True)
class ExaminationRequest:
    """The request to an `examination_worker`."""

    target: Target
    asked: Diagnose
    uptime: float  # of the machine in seconds, at the time of the request
    member_pids: tuple[int, ...] = ()  # processes of the job that are no descendants of the target


@dataclass(frozen=True, slots=True)
class Examination:
    """The findings in one process of a trainer; a part that could not be read is None, with its reason."""

    census: Census | None = None
    kinds: tuple[MemoryKind, ...] | None = None
    threads: tuple[ThreadStack, ...] | None = None
    profile: AllocationProfile | None = None
    census_reason: str = ""
    kinds_reason: str = ""
    threads_reason: str = ""
    profile_reason: str = ""
    cpu_seconds: float = 0.0  # that it took
    after_seconds: float = 0.0  # from the request to the reading of the heap's sizes
    names: Census | None = None  # estimates of what the program's own names lead to
    names_reason: str = ""
    names_after_seconds: float = 0.0  # from the request to the reading of these
    names_cpu_seconds: float = 0.0  # of `cpu_seconds`, that these took
    census_cpu_seconds: float = 0.0  # of `cpu_seconds`, that the whole heap took; the rest is Python's start
    tracked_objects: int | None = None  # about how many the collector tracks
    processes: tuple[ProcessSize, ...] = ()  # the trainer's own, then its largest descendants


# --- conclusions from several examinations ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Growth:
    """A figure that rose in each of the latest examinations."""

    name: str  # an attribute ("__main__.Trainer.kept"), a type, a kind of memory
    before: int  # bytes, or objects of a type, where the rise begins
    after: int  # at the latest examination
    per_unit: float  # per generation; per hour where there are no generations
    since: float  # the generation in which it began; without generations hours since the watch began
    steps: int  # consecutive examinations in which it rose

    @property
    def risen(self) -> int:
        """By how much, from where the rise begins."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class ExaminationRow:
    """One examination: a row of the table of all of them."""

    t: float
    reason: str  # "generation", "phase", "middle", "time", "warn", "request"
    generation: float | None
    phase: str | None  # under way
    used_bytes: int | None  # of main memory
    python_bytes: int  # of all Python objects
    objects: int
    counts: Mapping[str, int]  # of types that grow in number, those of findings first
    sizes: Mapping[str, int]  # bytes, of attributes that grow, those of findings first


@dataclass(frozen=True, slots=True)
class GrowthDriver:
    """A gauge of the log, or the number of an attribute's items, in proportion to which memory grows."""

    name: str  # "replay buffer"
    value: float
    capacity: float | None
    bytes_per_unit: float
    r2: float  # R² of the growth of memory, 0 to 1
    path: str  # the attribute whose items it counts; empty: none is known
    full_bytes: int | None  # of memory at its capacity; None: it has none
    limit_value: float | None  # the value at which memory reaches its limit; None: no limit is known
    # Intervals of 90 % (low, high) of bytes_per_unit, full_bytes and limit_value; None: not known.
    bytes_per_unit_range: tuple[float, float] | None = None
    full_range: tuple[int, int] | None = None
    limit_range: tuple[float, float | None] | None = None  # high None: perhaps never
    fits: bool | None = None  # memory when full is below the limit; None: not known, or its interval is on both sides
    in_bytes: bool = False  # it counts bytes, not items


@dataclass(frozen=True, slots=True)
class Finding:
    """A named cause of growth, with its evidence."""

    cause: str  # "environments_recreated", "unbounded_container" ...: docs/diagnosis.md lists them
    title: str  # for people
    resource: str  # "host", "gpu0"
    growth: Growth  # bytes
    share: float | None  # of the growth of memory
    phase: str | None  # in which it grows
    type: str  # of the objects that become more; empty: no Python type
    count_before: int | None
    count_after: int | None
    holder: str  # "__main__.Trainer.kept[i]"; empty: unknown
    remedy: str
    confidence: float  # 0 to 1
    evidence: tuple[str, ...] = ()
    process: str = ""  # in which it was found: "worker python3 (pid 123)"; empty: the trainer's own

    @property
    def is_leak(self) -> bool:
        """Whether the growth goes on for no good reason: arrays that fill, and will fit, end it by themselves."""
        return self.cause not in (ALLOCATED_BUFFER_FILLS, MODEL_GROWS)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The known causes of growth and the figures that grow, each list with the largest first."""

    t: float  # of the latest examination
    unit: str  # of growth and of `since`: "generation" as the log calls it, or "hour"
    examinations: int
    cpu_seconds: float  # that they took
    findings: tuple[Finding, ...]
    drivers: tuple[GrowthDriver, ...]
    containers: tuple[Growth, ...]  # bytes
    tracked: tuple[Growth, ...]  # bytes, of the attributes that the user tracks, growing or not
    types: tuple[Growth, ...]  # objects
    kinds: tuple[Growth, ...]  # bytes
    moments: tuple[ExaminationRow, ...]  # oldest first: the first few, and the latest
    credits: tuple[StackGrowth, ...]  # bytes, by the code that ran as memory rose, in the latest recordings
    lines: tuple[LineGrowth, ...]  # the same, by line
    latest: Examination  # the latest that was no recording
