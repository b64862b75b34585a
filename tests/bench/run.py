"""Runs the measuring programs and keeps what they print: `PYTHONPATH=tests python tests/bench/run.py`; see --help.

Writes INTO/NAME.json (docs/performance by default) for each program: its command line, the machine in general terms and
how fast it was, the versions of what is compared, and its results with all runs. `--quick` shows in minutes that all of
it works, and needs an --into of its own. A program that cannot run here says why, and the results that are there stay.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from support.measure import ENVIRON

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "docs" / "performance"

# What each is run with: in full, and to see that it works.
PROGRAMS: dict[str, tuple[str, str]] = {
    "cost": ("", "--start 3 --warm 3 --windows 2 --seconds 3"),
    "looks": ("", "--runs 2 --looks 100 --cold 3"),
    "harm": ("", "--rounds 2 --megabytes 100"),
    "pace": ("", "--rounds 1 --seconds 2"),
    "reaction": (
        "--runs 20 --slow 20 --fast 100 --realtime 10 --jobs 2",
        "--runs 1 --slow 2 --fast 2 --realtime 1 --jobs 2",
    ),
    "scrape": ("", "--rounds 1 --scrapes 10"),
    "log": ("", "--mb 20 --runs 1 --seconds 6"),
    "replay": ("--runs 2 --json", "--rows 2000 --json"),
    "memory": (
        "--days 30 --generations 20000 --whole --json",
        "--days 0.1 --generations 200 --looks 1000 --whole --json",
    ),
    "census": ("", "--objects 20000 --runs 1 --rounds 1 --seconds 0.5"),
    "lines": ("", "--runs 1"),
    "report": ("", "--samples 40 --runs 1"),
    "tree": ("--looks 60", "--looks 3 --size 1 --seconds 0.3 --megabytes 100"),
}


def machine() -> dict[str, object]:
    """What a reader needs to know of it, and no more."""
    cpus = Path("/proc/cpuinfo").read_text()
    memory = re.search(r"MemTotal: +(\d+)", Path("/proc/meminfo").read_text())
    model = re.search(r"model name\s*: (.+)", cpus)
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory[1]) / 2**20, 1) if memory else None,
        "kernel": re.match(r"[\d.]*\d", platform.release())[0],  # type: ignore[index]
        "python": f"{platform.python_implementation()} {platform.python_version()}{_whose()}",
    }


def _whose() -> str:
    """A distribution's Python is compiled by a profile, which makes it a third faster; one's own seldom is."""
    return " of the distribution" if sys.base_prefix == "/usr" else ""


def versions() -> dict[str, str | None]:
    """None: not installed."""
    found: dict[str, str | None] = {}
    for name in ("memwatch", "psutil", "psrecord", "memory_profiler"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    found["earlyoom"] = None
    if shutil.which("earlyoom"):
        told = subprocess.run(["earlyoom", "-v"], capture_output=True, text=True, check=False)
        found["earlyoom"] = (told.stdout + told.stderr).split()[1]
    return found


def loop_ms() -> list[float]:
    """CPU milliseconds of a million turns of a loop, five times: how fast this machine runs Python now."""
    found = []
    for _ in range(5):
        begun, total = time.process_time(), 0
        for number in range(1_000_000):
            total += number * number
        found.append(round(1e3 * (time.process_time() - begun), 1))
    return found


def run(program: str, arguments: str, into: Path, name: str) -> bool:
    """Run tests/PROGRAM.py; whether its results were written, as INTO/NAME.json."""
    words = [f"tests/{program}.py", *arguments.split()]
    load, pace = os.getloadavg()[0], loop_ms()
    begun = time.monotonic()
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=ENVIRON, stdout=subprocess.PIPE, check=False)
    took = round(time.monotonic() - begun)
    if done.returncode:
        print(f"{name}: failed after {took} s", flush=True)
        return False
    results: dict[str, Any] = json.loads(done.stdout)
    if "skipped" in results:
        print(f"{name}: skipped: {results['skipped']}", flush=True)
        return False
    told = {
        "program": name,
        "command": f"PYTHONPATH=tests python {' '.join(words)}",
        "date": time.strftime("%Y-%m-%d"),
        "seconds": took,
        "load_before": round(load, 2),
        "loop_ms": [*pace, *loop_ms()],
        "machine": machine(),
        "versions": versions(),
        "results": results,
    }
    into.mkdir(parents=True, exist_ok=True)
    (into / f"{name}.json").write_text(dumped(told) + "\n")
    print(f"{name}: {took} s", flush=True)
    return True


def dumped(told: object, width: int = 120, before: str = "") -> str:
    """JSON with what fits into a line on one."""
    flat = json.dumps(told)
    if len(flat) + len(before) <= width or not isinstance(told, (dict, list)):
        return flat
    inner = before + " "
    if isinstance(told, dict):
        lines = [f"{json.dumps(key)}: {dumped(value, width, inner)}" for key, value in told.items()]
    else:
        lines = [dumped(value, width, inner) for value in told]
    left, right = "{}" if isinstance(told, dict) else "[]"
    return f"{left}\n{inner}" + f",\n{inner}".join(lines) + f"\n{before}{right}"


def main() -> int:
    """Run all, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=PROGRAMS, help="these programs")
    parser.add_argument("--quick", action="store_true", help="few and short runs, which say little")
    parser.add_argument("--into", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.quick and given.into.resolve() == RESULTS:
        parser.error("--quick: its results are none to be kept; name another folder with --into")
    names = given.only or PROGRAMS
    written = [run(f"bench/{name}", PROGRAMS[name][given.quick], given.into, name) for name in names]
    return 0 if all(written) else 1


if __name__ == "__main__":
    sys.exit(main())
