"""The decision suite: `make trust`; a part of it: `cd tests && python -m trust.suite --only linear_leak:17 --verbose`.

Each run is watched by the real loop in a simulated machine; what became of it goes beside what would have become of it
alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path

from trust.cases import FAMILIES, draw
from trust.figures import bars, is_wrong, results
from trust.judge import Outcome, judged

STANDARD = 80  # runs of each family


def names(only: Sequence[str], seeds: range) -> list[tuple[str, int]]:
    """Family and seed of each run; `only`: families, or FAMILY:SEED."""
    wanted = [(family, seeds) for family in FAMILIES]
    if only:
        parts = [one.partition(":") for one in only]
        wanted = [(family, range(int(seed), int(seed) + 1) if seed else seeds) for family, _, seed in parts]
    found = [(family, seed) for family, those in wanted for seed in those]
    return sorted(found, key=itemgetter(1))  # the first so many are of all families


def one(name: tuple[str, int]) -> tuple[list[Outcome], float]:
    """What became of it, and the CPU that it took."""
    began = time.process_time()
    return judged(draw(*name)), time.process_time() - began


def run(wanted: Iterable[tuple[str, int]], jobs: int) -> Iterator[tuple[list[Outcome], float]]:
    """All of them, in order."""
    if jobs <= 1:
        yield from map(one, wanted)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(one, wanted, chunksize=4)


def keep(path: Path | None, told: Sequence[Outcome], seconds: float) -> None:
    """A run that is done, as a line of the file."""
    if path is not None:
        with path.open("a") as file:
            print(json.dumps([[asdict(one) for one in told], seconds]), file=file)


def kept_runs(path: Path | None) -> Iterator[tuple[list[Outcome], float]]:
    """Those that a suite that was broken off has done."""
    for line in path.read_text().splitlines() if path is not None and path.exists() else ():
        told, seconds = json.loads(line)
        yield [Outcome(**one) for one in told], seconds


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="FAMILY[:SEED]")
    parser.add_argument("--count", type=int, default=STANDARD, help="runs of each family")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="of each family; others than the standard")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="what became of each run, not only of what is wrong")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="each run as it ends; what it holds is not run again")
    parser.add_argument("--as-kept", action="store_true", help="sum up what that file holds, and run nothing")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the results as JSON")
    asked = parser.parse_args()
    done = {told[0].case: (told, seconds) for told, seconds in kept_runs(asked.keep)}
    wanted = names(asked.only, range(asked.first, asked.first + asked.count))
    if asked.as_kept:
        wanted = [one for one in wanted if f"{one[0]}:{one[1]}" in done]
    for told, seconds in run([one for one in wanted if f"{one[0]}:{one[1]}" not in done], asked.jobs):
        done[told[0].case] = told, seconds
        keep(asked.keep, told, seconds)
        for outcome in told:
            if asked.verbose or is_wrong(outcome):
                print(f"{seconds:.1f} s {outcome}", flush=True)
    runs = [done[f"{family}:{seed}"] for family, seed in wanted]
    found = results([outcome for told, _ in runs for outcome in told])
    for what, bar, measured, met in bars(found["all"]) if found["all"]["saved_share"] is not None else ():
        print(f"{'met   ' if met else 'MISSED'} {what}: {bar}; {measured}")
    if asked.write is not None:
        seeds = f"--first {asked.first} --count {asked.count}" if asked.first else f"--count {asked.count}"
        command = " ".join(["python -m trust.suite", seeds, *(["--only"] if asked.only else []), *asked.only])
        kept = {
            "command": command,
            "date": time.strftime("%Y-%m-%d"),
            "seconds": round(sum(s for _, s in runs)),
            "results": found,
        }
        asked.write.parent.mkdir(exist_ok=True)
        asked.write.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
