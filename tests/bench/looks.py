"""What one look costs, by part: `PYTHONPATH=tests python tests/bench/looks.py`; --help has options.

A trainer alone and a tree of 17 forked processes are looked at (all is read, and judged), and a snapshot is made, by a
clock that is a second later at each look: without a pause, and of a new tree really once a second. Prints one JSON
object: CPU time by part, of the first hour of each run and of those after it, medians of the runs, and the runs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from bench.cost import TREES, trainer
from memwatch.app.composition import make_readers
from memwatch.config.settings import Config
from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Attached, Sampled
from memwatch.sources.target.target_facts import identify, read_target_facts
from support.measure import median, quantile

PARTS = ("look", "sample", "judge", "snapshot")
HOUR = 3600
Told = Mapping[str, Mapping[str, float]]  # quantiles by part


def looks(processes: int, runs: int, count: int) -> dict[str, object]:
    """CPU microseconds of the parts of so many looks of the first hour, and of so many after it."""
    made = [_run(processes, 2 * count) for _ in range(runs)]
    spans = {"first hour": slice(0, count), "second hour": slice(count, None)}
    found: dict[str, object] = {}
    for name, span in spans.items():
        told = [_told({part: spent[span] for part, spent in run.items()}) for run in made]
        found[name] = {**_medians(told), "runs": told}
    return found


def cold(processes: int, count: int) -> Told:
    """Of looks that come once a second, at a new tree."""
    return _told(_run(processes, count, pause=1.0))


def _run(processes: int, count: int, pause: float = 0.0) -> dict[str, list[float]]:
    """Microseconds by part, look by look."""
    spent: dict[str, list[float]] = {part: [] for part in PARTS}
    with ExitStack() as stack:
        pid = stack.enter_context(trainer(processes))
        facts = read_target_facts(identify(pid))
        readers, engine = make_readers(Config(), facts, stack), Engine(Policy())
        begun = time.time()
        engine.feed(Attached(begun, facts.target, facts.command))
        for second in range(count):
            time.sleep(pause)
            began = time.thread_time_ns()
            sample = readers.sampler.sample(begun + second)
            read = time.thread_time_ns()
            engine.feed(Sampled(begun + second, sample))
            judged = time.thread_time_ns()
            engine.snapshot()
            ended = time.thread_time_ns()
            times = (judged - began, read - began, judged - read, ended - judged)
            for part, took in zip(PARTS, times, strict=True):
                spent[part].append(took / 1e3)
    return spent


def _told(spent: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    at = {"median_us": 0.5, "p99_us": 0.99, "worst_us": 1.0}
    return {
        part: {"mean_us": round(sum(values) / len(values), 1)}
        | {name: round(quantile(values, share), 1) for name, share in at.items()}
        for part, values in spent.items()
    }


def _medians(runs: Sequence[Told]) -> Told:
    return {part: {key: median([run[part][key] for run in runs]) for key in runs[0][part]} for part in PARTS}


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--looks", type=int, default=HOUR, help="of each hour")
    parser.add_argument("--cold", type=int, default=60, help="looks that come once a second")
    given = parser.parse_args()
    found: dict[str, object] = {name: looks(count, given.runs, given.looks) for name, count in TREES.items()}
    print(json.dumps({**found, "17 at 1 Hz": cold(17, given.cold)}))


if __name__ == "__main__":
    main()
