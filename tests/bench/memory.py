"""What memwatch holds over a long run: `PYTHONPATH=tests python tests/bench/memory.py [--days D] [--whole] [--json]`.

RSS of the process at ten points of a run of so many days at 1 Hz, and of one of so many generations: of the engine,
and with `--whole` of the engine with its forecaster, and of the daemon, which looks at a real tree of 17 processes so
many times by a clock of its own. Each run has a process of its own, two at the same time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.cost import trainer
from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.events import Event
from memwatch.core.forecast.forecaster import Forecaster
from memwatch.core.forecast.outlook import ForecasterProtocol
from support.endless import generations_pass, time_passes
from support.measure import ENVIRON, rss_mib
from support.simulated import ticks
from support.steady import Steady

POINTS = 10
EVENTS: dict[str, Callable[[], Iterator[Event]]] = {"time": time_passes, "generations": generations_pass}
DAEMON = "Daemon"
FORECASTERS: dict[str, Callable[[], ForecasterProtocol]] = {"Steady": Steady, "Forecaster": Forecaster}


def run(events: Iterator[Event], count: int, forecaster: Callable[[], ForecasterProtocol]) -> dict[str, Any]:
    """RSS at each point, how far it rose after the first, and CPU microseconds of an event."""
    engine, rss, begun = Engine(Policy(), forecaster), [], time.process_time()
    for _ in range(POINTS):
        for event in islice(events, count // POINTS):
            engine.feed(event)
        engine.snapshot()
        rss.append(round(rss_mib(), 2))
    return _told(count, rss, time.process_time() - begun)


def run_daemon(count: int) -> dict[str, Any]:
    """The same of the daemon, by looks at a real tree."""
    with TemporaryDirectory() as folder, trainer(17) as pid, ticks(pid, Path(folder)) as passing:
        rss, begun = [], time.process_time()
        for _ in range(POINTS):
            for _ in islice(passing, count // POINTS):
                pass
            rss.append(round(rss_mib(), 2))
        return _told(count, rss, time.process_time() - begun)


def _told(count: int, rss: list[float], seconds: float) -> dict[str, Any]:
    rise = round(max(rss) - rss[0], 2)
    return {"events": count, "rss_mib": rss, "rise_mib": rise, "us_an_event": round(1e6 * seconds / count, 2)}


def apart(name: str, forecaster: str, count: int) -> dict[str, Any]:
    """A run in a process of its own."""
    command = [sys.executable, __file__, "--work", name, forecaster, str(count)]
    return dict(json.loads(subprocess.run(command, check=True, env=ENVIRON, stdout=subprocess.PIPE).stdout))


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generations", type=int, default=100_000)
    parser.add_argument("--days", type=float, default=3.0)
    parser.add_argument("--looks", type=int, default=100_000, help="of the daemon")
    parser.add_argument("--whole", action="store_true", help="with the forecaster, and the daemon")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        name, which, number = given.work
        told = run_daemon(int(number)) if which == DAEMON else run(EVENTS[name](), int(number), FORECASTERS[which])
        print(json.dumps(told))
        return
    counts = {"time": int(given.days * 86_400), "generations": given.generations * 8}
    works = [(name, which, counts[name]) for which in (FORECASTERS if given.whole else ("Steady",)) for name in counts]
    if given.whole:
        works.append(("looks", DAEMON, given.looks))
    with ThreadPoolExecutor(2) as pool:
        made = pool.map(lambda work: apart(*work), works)
        told = {f"{name}, {which}": one for (name, which, _), one in zip(works, made, strict=True)}
    if given.json:
        print(json.dumps(told))
        return
    for name, one in told.items():
        points = " ".join(f"{mib:.1f}" for mib in one["rss_mib"])
        print(f"{name:<28}{one['events']:>9} events, {one['us_an_event']:6.1f} us each; MiB {points}")


if __name__ == "__main__":
    main()
