"""A process that maps and unmaps memory without a pause, and how long that takes it: what a held mmap lock delays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from support.forest import Forest, forest

Quantiles = dict[str, float]

# Times are counted in bins of 16 ns up to 1 ms, so that the target's memory does not grow while it is measured.
MAPPING = """
import array, json
BINS = array.array('L', bytes(8 << 16))

def keep_mapping(seconds):
    for i in range(len(BINS)):
        BINS[i] = 0
    bins, most, long, clock = BINS, len(BINS), [], time.perf_counter_ns
    end = clock() + int(seconds * 1e9)
    while (began := clock()) < end:
        mmap.mmap(-1, 65536).close()
        took = (clock() - began) >> 4
        if took < most:
            bins[took] += 1
        else:
            long.append(took)
    count = sum(bins) + len(long)
    told = {'count': count, 'max_us': (max(long, default=0) or max(i for i in range(most) if bins[i])) * 0.016}
    told['stalled_us'] = sum(long) * 0.016
    for name, part in (('p50_us', 0.5), ('p99_us', 0.99), ('p999_us', 0.999)):
        told[name] = at(part * count, bins, sorted(long)) * 0.016
    say(json.dumps(told))

def at(number, bins, long):
    for i, n in enumerate(bins):
        number -= n
        if number <= 0:
            return i
    return long[int(number) - 1]
"""


@contextmanager
def mapper(megabytes: int, forks: int) -> Iterator[Forest]:
    """A trainer with a heap in pages of 4 KiB that so many forks share."""
    with forest() as trainer:
        trainer.do(f"exec({MAPPING!r}, globals()); x = mmap.mmap(-1, {megabytes} * MB, mmap.MAP_PRIVATE)")
        trainer.do(f"x.madvise(mmap.MADV_NOHUGEPAGE); touch(x, range({megabytes} * 256)); fork({forks})")
        yield trainer


def begin(trainer: Forest, seconds: float, fork: bool = False) -> None:
    """Let the trainer, or the first of its forks, map and unmap for so long."""
    work = f"keep_mapping({seconds})"
    trainer.begin(f"tell({work!r}, 0, 1)" if fork else work)


def quantiles(trainer: Forest) -> Quantiles:
    """How many mappings there were, what they took (p50, p99, p999, max), and those over 1 ms together (stalled)."""
    return {name: round(value, 3) for name, value in json.loads(trainer.answer()).items()}
