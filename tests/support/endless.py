"""Events of runs that go on for as long as one likes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from memwatch.core.events import (
    Attached,
    CheckpointSeen,
    Event,
    GaugeSeen,
    GenerationSeen,
    PhaseSeen,
    Sampled,
    SourceChanged,
)
from memwatch.core.measurements import HOST, Limit, Sample, Target, Usage

GB = 10**9
LIMIT = 100 * GB


def sampled(t: float) -> Sampled:
    """A host that grows slowly under teeth, and a GPU."""
    used = int(40 * GB + t * 100 + t % 97 * 1e8)
    gpu = int(10 * GB + t % 11 * 1e8)
    host = Usage(HOST, used, Limit(LIMIT, "trace", LIMIT - used))
    return Sampled(t, Sample((host, Usage("gpu0", gpu, Limit(LIMIT, "gpu0", LIMIT - gpu)))))


def attached(t: float, pid: int = 1) -> Attached:
    """A process of the trainer begins."""
    return Attached(t, Target("boot", pid, pid), "python main.py")


def time_passes() -> Iterator[Event]:
    """Readings at 1 Hz, and no markers."""
    yield attached(0.0)
    for t in count():
        yield sampled(float(t))


def generations_pass(seconds: float = 0.3) -> Iterator[Event]:
    """Short generations, each with a reading, two phases, a save, and names that were never seen before."""
    yield attached(0.0)
    for g in count():
        yield from _generation(g * seconds, g)


def attempts_pass() -> Iterator[Event]:
    """A trainer that is started again and again."""
    for attempt in count(1):
        yield attached(60.0 * attempt, pid=attempt)
        for g in range(5):
            yield from _generation(60.0 * attempt + 10 * g, g)


def _generation(t: float, g: int) -> Iterator[Event]:
    yield GenerationSeen(t, g + 1)
    yield PhaseSeen(t, f"phase {g} of {t}")
    yield sampled(t)
    yield PhaseSeen(t + 0.1, "train")
    yield GaugeSeen(t + 0.1, f"gauge {t}", g, 10 * g)
    yield SourceChanged(t + 0.1, "gpu", g % 2 == 0, f"reason {t}")
    yield CheckpointSeen(t + 0.2, "writing", f"log: {t}")
    yield CheckpointSeen(t + 0.2, "saved", f"log: {t}")
