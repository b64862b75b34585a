"""What reports cost: `PYTHONPATH=tests python tests/bench/report.py [--samples N] [--runs N]`.

Makes a history of 25 generations with so many samples a generation, an examination in each, and a GPU of which others
hold some too. Each figure is of a process of its own, with its seconds, CPU seconds and peak RSS, and the bytes that it
wrote; `replay` is `memwatch replay` of the same samples, to compare with. `status page` is one answer at `/`, the first
and the median of others, and what memwatch's process holds more after them; `metrics` is the same of `/metrics`.
Prints one JSON object with all runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from memwatch.outputs.http.server import WebServer
from memwatch.system.clock import SystemClock
from support.measure import median, rss_mib
from support.recorded import Recording, record
from support.snapshots import make_diagnosis, make_snapshot

GENERATIONS = 25
Figures = dict[str, Any]
PROGRAM = (
    "import resource, sys, json; from memwatch.cli.main import main; code = main(sys.argv[1:]);"
    "used = resource.getrusage(resource.RUSAGE_SELF);"
    "print(json.dumps([code, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]), file=sys.stderr)"
)


def measured(*arguments: str, output: Path) -> Figures:
    """One command, whose output is a file."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    if not output.exists():
        output.write_text(done.stdout)
    code, cpu_seconds, peak_rss_mib = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    found = {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_rss_mib": peak_rss_mib}
    return {name: round(value, 3) for name, value in found.items()} | {"bytes": output.stat().st_size}


def reports(folder: Path, samples: int, runs: int) -> dict[str, list[Figures]]:
    """By what is made."""
    history, trace = folder / "history.db", folder / "trace.csv"
    record(history, Recording(generations=GENERATIONS, samples=samples, gpus=1))
    told: dict[str, list[Figures]] = {}
    for run in range(runs):
        for name, arguments, suffix in (
            ("export", ("export", history, "-o", trace), ".csv"),
            ("replay", ("replay", trace), ".txt"),
            ("report", ("report", history), ".txt"),
            ("page", ("report", history, "-o", "OUT"), ".html"),
            ("comparison", ("compare", history, history, "-o", "OUT"), ".html"),
        ):
            out = trace if name == "export" else folder / f"{name}-{run}{suffix}"
            words = [str(out if one == "OUT" else one) for one in arguments]
            told.setdefault(name, []).append(measured(*words, output=out))
    return told


def pages(count: int) -> dict[str, Figures]:
    """Answers of the HTTP server, asked as a browser and as Prometheus do."""
    import urllib.request

    server = WebServer("127.0.0.1", 0, SystemClock())
    server.start()
    told = {}
    for name, path in (("metrics", "metrics"), ("status page", "")):
        before, took, size = rss_mib(), [], 0
        for _ in range(count):
            server.publish(make_snapshot(25, gpus=1, diagnosis=make_diagnosis()), ())
            began = time.perf_counter()
            with urllib.request.urlopen(server.url + path) as answer:
                size = len(answer.read())
            took.append(1e3 * (time.perf_counter() - began))
        told[name] = {
            "first_ms": round(took[0], 2),
            "median_ms": round(median(took[1:]), 2),
            "rise_mib": round(rss_mib() - before, 2),
            "bytes": size,
        }
    server.on_watch_end(make_snapshot())
    server.stop()
    return told


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=3600, help="a generation")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        told = reports(Path(folder), arguments.samples, arguments.runs)
    samples = GENERATIONS * arguments.samples
    print(json.dumps({"samples": samples, "reports": told, "pages": pages(50)}))


if __name__ == "__main__":
    main()
