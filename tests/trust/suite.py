"""The decision suite: `make trust`, or a part of it: `cd tests && python -m trust.suite --only linear_leak:17 --verbose`.

Each run is watched by the real loop in a simulated machine; what became of it goes beside what would have become of it
alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from trust.cases import FAMILIES, draw
from trust.judge import Outcome, judged

STANDARD = 80  # runs of each family


def names(only: Sequence[str], count: int) -> list[tuple[str, int]]:
    """Family and seed of each run; `only`: families, or FAMILY:SEED."""
    wanted = [(family, range(count)) for family in FAMILIES]
    if only:
        parts = [one.partition(":") for one in only]
        wanted = [(family, range(int(seed), int(seed) + 1) if seed else range(count)) for family, _, seed in parts]
    return [(family, seed) for family, seeds in wanted for seed in seeds]


def one(name: tuple[str, int]) -> tuple[list[Outcome], float]:
    """That run."""
    return judged(draw(*name))


def run(wanted: Iterable[tuple[str, int]], jobs: int) -> Iterator[tuple[list[Outcome], float]]:
    """All of them, in order."""
    if jobs <= 1:
        yield from map(one, wanted)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(one, wanted, chunksize=4)


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="FAMILY[:SEED]")
    parser.add_argument("--count", type=int, default=STANDARD, help="runs of each family")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="all of each run, not only what went wrong")
    asked = parser.parse_args()
    began, counts = time.perf_counter(), dict[tuple[str, str], int]()
    for outcomes, seconds in run(names(asked.only, asked.count), asked.jobs):
        for told in outcomes:
            counts[told.family, told.outcome] = counts.get((told.family, told.outcome), 0) + 1
            wrong = told.outcome in ("FALSE", "late", "MISSED") or not (told.is_true and told.retold) or told.unjournalled
            if wrong or asked.verbose:
                print(f"{seconds:.1f}", told, flush=True)
    for (family, outcome), count in counts.items():
        print(f"{family:20s} {outcome:8s} {count}")
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
