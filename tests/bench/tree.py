"""What a tree of processes is told to use, beside the truth: `PYTHONPATH=watchdog:tests python tests/bench/tree.py`.

One JSON object: for each tree of support.trees, as large as real ones, look by look, what was told and the sum of PSS,
the CPU seconds of each look and of reading smaps_rollup of all processes; and how long mmap and munmap take a trainer
while nobody looks, while 200 runs of its pages are read each second or runs without a pause, and while smaps_rollup is
read without one.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable

from memwatch.sources.memory.pagemap import PAGES_PER_RUN, PagemapFile, read_address_space
from support import mapping, trees
from support.forest import Forest, read_pss

SIZE = 4  # times what a test has: hundreds of megabytes to gigabytes, as in training
SIZES = {"data_loaders": 1, "two_hundred": 2}  # 4 GB already; and 200 processes take minutes to be summed up


def of_tree(step: trees.Step, looks: int, size: int) -> dict[str, object]:
    """Raw figures of one tree."""
    run = trees.watch(step, looks, size)
    return {
        "tree": step.__name__,
        "size": size,
        "processes": run.told[-1].processes,
        "pss_bytes": run.pss_bytes,
        "used_bytes": [memory.used_bytes for memory in run.told],
        "error_bytes": [memory.error_bytes for memory in run.told],
        "cow_bytes": [memory.cow_bytes for memory in run.told],
        "look_cpu_seconds": run.seconds,
        "rollup_cpu_seconds": run.rollup_seconds,
        "visits": run.told[-1].survey_cost.visits,
    }


def latencies(seconds: float, megabytes: int) -> list[dict[str, object]]:
    """Quantiles of what mmap and munmap take, while the trainer is looked at."""
    with mapping.mapper(megabytes, forks=2) as trainer:
        pages, heap = (
            PagemapFile(trainer.pid),
            max(read_address_space(trainer.pid).anon.ranges, key=lambda pages: pages[1]),
        )

        def sample(runs: int, then_seconds: float = 0.0) -> None:
            for _ in range(runs):
                pages.read_page_kinds(heap[0] + random.randrange(heap[1] - PAGES_PER_RUN), PAGES_PER_RUN)
            time.sleep(then_seconds)

        ways: dict[str, Callable[[], object]] = {
            "nobody looks": lambda: time.sleep(0.001),
            "a visit each second": lambda: sample(200, 1.0),
            "pages are sampled": lambda: sample(1),
            "smaps_rollup is read": lambda: read_pss([trainer.pid]),
        }
        try:
            return [{"while": name, **_latency(trainer, seconds, look)} for name, look in ways.items()]
        finally:
            pages.close()


def _latency(trainer: Forest, seconds: float, look: Callable[[], object]) -> dict[str, object]:
    mapping.begin(trainer, seconds)
    end, looks = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        look()
        looks += 1
    return {"looks": looks, **mapping.quantiles(trainer)}


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--looks", type=int, default=60)
    parser.add_argument("--tree", help="one of the trees alone")
    parser.add_argument("--size", type=int, help="of all trees: 1 as in the tests; by default as large as real ones")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each way of looking, for the latencies")
    parser.add_argument("--megabytes", type=int, default=1000, help="of the trainer whose latency is measured")
    arguments = parser.parse_args()
    wanted = [step for step in trees.TREES if arguments.tree in (None, step.__name__)]
    found = {
        "trees": [of_tree(step, arguments.looks, arguments.size or SIZES.get(step.__name__, SIZE)) for step in wanted],
        "latency": latencies(arguments.seconds, arguments.megabytes),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
