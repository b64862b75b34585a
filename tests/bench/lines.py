"""Whether the line that leaks is told first: `PYTHONPATH=tests python tests/bench/lines.py`; see --help.

Each leak of the example trainer, with generations of 2 s, is followed for three of them by `memwatch profile`, each
time in a new trainer. Prints one JSON object with all runs: the first line and whether it is the one that leaks, its
share of the growth that was seen, the share of all growth that this is, and the CPU that it took.
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

from memwatch.core.examination import AllocationProfile
from memwatch.core.leaks.growth_attribution import by_line
from memwatch.system import json_and_yaml
from support.leaks import LINES, first_line, options
from support.mainjob import Folder, trainer, until

GENERATION_SECONDS, GENERATIONS = 2.0, 3


def profile(leak: str, path: Path) -> dict[str, Any]:
    """One run, from its second generation on."""
    folder = Folder(path)
    with trainer(folder, *options(leak, GENERATION_SECONDS)) as run:
        until(lambda: b"Generation 2 " in folder.log.read_bytes())
        seconds = str(GENERATIONS * GENERATION_SECONDS)
        command = [sys.executable, "-m", "memwatch", "profile", "--pid", str(run.pid), "--seconds", seconds, "--json"]
        shown = subprocess.run(command, capture_output=True, check=True, timeout=120, cwd=path, env=folder.environ())
    found, first = (
        json_and_yaml.from_json(shown.stdout, AllocationProfile),
        first_line(json_and_yaml.from_json(shown.stdout, AllocationProfile)),
    )
    lines = by_line(found.credits)
    seen = sum(one.bytes for one in lines)
    return {
        "right": first in LINES[leak],
        "first": first,
        "share": round(lines[0].share, 3) if lines else 0.0,
        "seen": round(seen / max(1, found.grown_bytes), 3),
        "grown_mb": round(found.grown_bytes / 1e6, 1),
        "cpu_percent": round(100 * found.cpu_seconds / found.seconds, 1),
    }


def measure(runs: int) -> dict[str, list[dict[str, Any]]]:
    """All leaks in turn, so many times."""
    found: dict[str, list[dict[str, Any]]] = {leak: [] for leak in LINES}
    for _ in range(runs):
        for leak, told in found.items():
            with tempfile.TemporaryDirectory() as path:
                told.append(profile(leak, Path(path)))
            time.sleep(0.1)
    return found


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="of each leak")
    print(json.dumps(measure(parser.parse_args().runs)))


if __name__ == "__main__":
    main()
