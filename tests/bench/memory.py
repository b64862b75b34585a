"""What memwatch holds over a long run: `PYTHONPATH=tests python tests/bench/memory.py [--generations N] [--days D]`.

RSS of this process at ten points of a run of so many days at 1 Hz, and of one of so many generations.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from memwatch.core.engine import Engine
from memwatch.core.forecast import Forecaster
from memwatch.core.model import Event
from memwatch.core.policy import Policy
from memwatch.core.track import ForecasterLike
from support.endless import generations_pass, time_passes
from support.steady import Steady

PAGE_BYTES = 4096
POINTS = 10


def rss_mb() -> float:
    """Of this process, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES / 1e6


def run(name: str, events: Iterator[Event], count: int, forecaster: Callable[[], ForecasterLike]) -> None:
    """One line: RSS at each point, and what an event costs."""
    engine, rss, begun = Engine(Policy(), forecaster), [], time.process_time()
    for _ in range(POINTS):
        for event in islice(events, count // POINTS):
            engine.feed(event)
        engine.snapshot()
        rss.append(rss_mb())
    cost = 1e6 * (time.process_time() - begun) / count
    print(f"{name:<28}{count:>9} events, {cost:6.1f} us each; MB {' '.join(f'{mb:.1f}' for mb in rss)}", flush=True)


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generations", type=int, default=100_000)
    parser.add_argument("--days", type=float, default=3.0)
    parser.add_argument("--whole", action="store_true", help="with memwatch's own forecaster too")
    arguments = parser.parse_args()
    seconds, generations = int(arguments.days * 86_400), arguments.generations * 8
    for forecaster in (Steady, Forecaster) if arguments.whole else (Steady,):
        run(f"time, {forecaster.__name__}", time_passes(), seconds, forecaster)
        run(f"generations, {forecaster.__name__}", generations_pass(), generations, forecaster)


if __name__ == "__main__":
    main()
