"""Places in a program's memory that hold a count of its progress, and the reading of their values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from struct import unpack_from

from memwatch.diagnosis.heap.remote_memory import Hop, follow, open_memory

_TYPE_AT, _NUMBER_AT, _NUMBER_BYTES = 8, 16, 32  # in an int and a float
_DIGIT_BITS = 30


@dataclass(frozen=True, slots=True)
class CounterPlace:
    """A place whose number tells how far the program is."""

    name: str  # "epoch of train()", "TrainerState.global_step"
    unit: str
    start: int
    hops: tuple[Hop, ...]
    value: float  # as it was found
    total: int | None = None
    at: str = "start"  # as GenerationSeen: "end": so many are done
    level: int = 0  # how deep in the program: an outer loop has a lower one
    first: int | None = None  # the number that it began with; None: not known
    is_loop: bool = False  # over a range
    known: bool = False  # a library's own counter, or a loop with its end, named by a unit: it counts for certain


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The request to search a trainer and the other processes of its job."""

    pid: int
    member_pids: tuple[int, ...] = ()  # processes of the job that are no descendants of the trainer


@dataclass(frozen=True, slots=True)
class FoundPlaces:
    """What a search found; `reason`: why there is nothing."""

    pid: int = 0  # of the process that has them: the trainer, or its child
    minor: int = 0  # version of its CPython, the second number
    int_type: int = 0  # addresses of types
    float_type: int = 0
    places: tuple[CounterPlace, ...] = ()
    reason: str = ""


class PlaceReader:
    """Reads the numbers in the places of one process, which is neither stopped nor changed."""

    def __init__(self, found: FoundPlaces) -> None:
        """SourceError, with a hint, when its memory may not be read."""
        self._found, self._memory = found, open_memory(found.pid, f"/proc/{found.pid}")

    def close(self) -> None:
        self._memory.close()

    def value(self, place: CounterPlace) -> float | None:
        """Return the number that is there now; None when the place is gone."""
        at = follow(self._memory.read, place.start, place.hops)
        try:
            return None if at is None else number(self._read(at, _NUMBER_BYTES), self._found)
        except (OSError, OverflowError, ValueError):
            return None

    def _read(self, address: int, size: int) -> bytes:
        raw = self._memory.read(address, size)
        if len(raw) < size:
            raise OSError("it is not mapped")
        return raw


def number(raw: bytes, found: FoundPlaces) -> float | None:
    """Return the value of the int or float object in `raw`; None for any other, or none that counts."""
    kind = unpack_from("<Q", raw, _TYPE_AT)[0]
    if kind == found.float_type:
        value = float(unpack_from("<d", raw, _NUMBER_AT)[0])
        return value if math.isfinite(value) and value >= 0.0 else None
    if kind != found.int_type:
        return None
    word = unpack_from("<q", raw, _NUMBER_AT)[0]
    digits, is_negative, is_zero = word, word < 0, word == 0
    if found.minor >= 12:
        digits, is_negative, is_zero = word >> 3, word & 3 == 2, word & 3 == 1
    if is_negative or digits > 2:
        return None
    low, high = unpack_from("<II", raw, _NUMBER_AT + 8)
    return 0.0 if is_zero else float(low + (high << _DIGIT_BITS if digits == 2 else 0))
