"""What a scrape costs: `PYTHONPATH=tests python tests/bench/scrape.py [--rounds N] [--scrapes N] [--gpus N]`.

memwatch watches a tree of 17 processes at 1 Hz and so many GPUs of a scripted driver, which takes root and a C
compiler; seven make some 200 series. In each round nobody scrapes for as long as N scrapes take at 10 Hz, then they
are made: what the process has used of the CPU more, by scrape. Then the same number while the daemon's loop is stuck
in a system call: how long each took, and the age of the sample that it told. Prints one JSON object with all rounds;
"first" is the scrape that imports the server.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cost import trainer
from support.driven import WITH_DRIVER, Driven, missing
from support.fakenvml import GIB
from support.mainjob import memwatch, until
from support.measure import cpu_seconds, median, quantile, rss_mib
from support.stuck import stuck

PROCESSES = 17
GENERATIONS = 6  # a second each
PAUSE_SECONDS = 0.1
ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"  # as Prometheus asks


@dataclass
class Scraped:
    """A daemon with an address to scrape."""

    pid: int
    url: str

    def series(self) -> dict[str, float]:
        """What a scrape tells."""
        lines = [line for line in self.read().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def read(self) -> str:
        request = urllib.request.Request(self.url, headers={"Accept": ACCEPT})
        with urllib.request.urlopen(request, timeout=5) as answer:
            return str(answer.read(), "utf-8")


@contextmanager
def daemon(folder: Driven, gpus: int) -> Iterator[Scraped]:
    """memwatch on a tree after some generations."""
    with trainer(PROCESSES) as pid, folder.log.open("w") as log:
        for index in range(gpus):
            folder.world.gpu(index)
            folder.world.process(str(index), pid, 2 * GIB)
        options = ["--pid", str(pid), "--log", str(folder.log), "--listen", "127.0.0.1:0", "--json"]
        with memwatch(folder, *options, before=WITH_DRIVER if gpus else ()) as watch:
            until(watch.events)
            for generation in range(1, GENERATIONS + 1):
                print(f"Generation {generation} / 25", file=log, flush=True)
                time.sleep(1.0)
            [url] = [note["text"].split()[-1] for note in watch.named("note") if "metrics" in note["text"]]
            yield Scraped(watch.process.pid, url + "metrics")


def first(one: Scraped) -> dict[str, float]:
    """What the scrape that imports the server costs."""
    before, spent, begun = rss_mib(one.pid), cpu_seconds(one.pid), time.perf_counter()
    one.read()
    took = time.perf_counter() - begun
    return {
        "ms": round(1e3 * took, 2),
        "cpu_ms": round(1e3 * (cpu_seconds(one.pid) - spent), 2),
        "rss_before_mib": round(before, 1),
        "rss_after_mib": round(rss_mib(one.pid), 1),
    }


def scrapes(one: Scraped, count: int) -> list[float]:
    """Milliseconds of each, at 10 Hz."""
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        one.read()
        took.append(round(1e3 * (time.perf_counter() - begun), 3))
        time.sleep(max(0.0, begun + PAUSE_SECONDS - time.perf_counter()))
    return took


def round_of(one: Scraped, count: int) -> dict[str, Any]:
    """CPU milliseconds while nobody scrapes and while it is scraped, and the latencies."""
    begun = cpu_seconds(one.pid)
    time.sleep(count * PAUSE_SECONDS)
    idle = cpu_seconds(one.pid)
    took = scrapes(one, count)
    quiet, busy = idle - begun, cpu_seconds(one.pid) - idle
    return {
        "idle_cpu_ms": round(1e3 * quiet, 3),
        "scraped_cpu_ms": round(1e3 * busy, 3),
        "cpu_ms_a_scrape": round(1e3 * (busy - quiet) / count, 3),
        "ms": took,
    }


def while_stuck(one: Scraped, count: int) -> dict[str, Any]:
    """The loop does not turn: its latest sample grows old, and scrapes tell so without waiting."""
    with stuck(one.pid):
        before = one.series()
        took = scrapes(one, count)
        after = one.series()
    return {
        "ms": took,
        "ticks": after["memwatch_ticks_total"] - before["memwatch_ticks_total"],
        "age_before_s": round(before["memwatch_sample_age_seconds"], 2),
        "age_after_s": round(after["memwatch_sample_age_seconds"], 2),
    }


def measure(rounds: int, count: int, gpus: int) -> dict[str, Any]:
    """All of it."""
    with tempfile.TemporaryDirectory() as place, daemon(Driven(Path(place)), gpus) as one:
        begun = first(one)
        series = len(one.series())
        made = [round_of(one, count) for _ in range(rounds)]
        held = while_stuck(one, count)
    return {
        "series": series,
        "scrapes": rounds * count,
        "cpu_ms_a_scrape": median([one["cpu_ms_a_scrape"] for one in made]),
        "latency": latency([ms for one in made for ms in one["ms"]]),
        "latency_while_stuck": latency(held["ms"]),
        "first": begun,
        "stuck": held,
        "rounds": made,
    }


def latency(took: list[float]) -> dict[str, float]:
    return {"p50_ms": median(took), "p99_ms": quantile(took, 0.99), "max_ms": max(took)}


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--scrapes", type=int, default=25, help="of a round")
    parser.add_argument("--gpus", type=int, default=8)
    given = parser.parse_args()
    without = missing() if given.gpus else None
    told = measure(given.rounds, given.scrapes, 0 if without else given.gpus)
    print(json.dumps({"without_gpus": without} | told if without else told))


if __name__ == "__main__":
    main()
