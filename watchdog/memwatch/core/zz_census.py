"""What a census of a Python heap tells: which objects there are, of what size, and who keeps them."""

from __future__ import annotations

from dataclasses import dataclass

UNNAMED = "a local variable or C code: "  # where a way begins that begins with no attribute
LOCAL = "local variable of "  # where it begins with one: "local variable of main: kept[i]"
NDARRAY = "numpy.ndarray"
TENSORS = ("torch.Tensor", "torch.nn.parameter.Parameter")
ARRAYS = (NDARRAY, *TENSORS)


@dataclass(frozen=True, slots=True)
class TypeCount:
    """The objects of one type."""

    type: str  # "__main__.Agent", "dict"
    count: int
    bytes: int | None  # of all together, each without what it refers to; None: not asked for
    tracked: bool  # the garbage collector knows such objects, though it may not know each of them


@dataclass(frozen=True, slots=True)
class Large:
    """One large object."""

    type: str
    bytes: int
    path: str  # "__main__.Trainer.obs"; empty: no way to it is known
    resident_bytes: int | None = None  # of an array whose memory is taken as it is written; None: not known


@dataclass(frozen=True, slots=True)
class Storages:
    """The memory of torch's tensors on one device, each storage once."""

    device: str  # "cpu", "cuda:0"
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A way by which objects of a type are kept."""

    type: str  # of what is held
    path: str  # "__main__.Trainer.losses[i]"
    count: int  # of the objects that it leads to
    of: int  # all that there are


@dataclass(frozen=True, slots=True)
class Tracked:
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
    large: tuple[Large, ...] = ()  # the largest first
    storages: tuple[Storages, ...] = ()
    tensors_with_graph: int | None = None  # that keep the graph of their making; None: no tensors, or not asked for
    tensors_unread: int = 0  # whose storage is not known: torch lays them out in another way than is known
    holders: tuple[Holder, ...] = ()  # by type, the one with most bytes first; those that hold the most first
    tracked: tuple[Tracked, ...] = ()
    containers: tuple[Tracked, ...] = ()  # where the ways of most bytes that are held begin, the largest first
