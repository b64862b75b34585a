"""Run small programs after public reports of leaks under memwatch, and note what it blames: --help has options.

`PYTHONPATH=watchdog:tests python -m leak_reports.run`. `reports.json` says of each program what holds the growth, or
that it is healthy. One JSON line of facts for each run goes to `runs.jsonl`; `leak_reports.table` makes the table.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memwatch.core.examination import ALLOCATED_BUFFER_FILLS
from support.mainjob import Folder, memwatch, trainer

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = "2GB"  # twice of what the programs need: the limit says nothing of them
LONGEST_SECONDS = 400.0


@dataclass(frozen=True)
class Report:
    """A program, and what is true of it whatever memwatch says."""

    name: str  # of its file
    source: str  # the public report whose mechanism it has
    kind: str  # of the leak, in words
    python: str  # the environment that it runs in
    blamed: str = ""  # a pattern of the cause, holder or type that is right; "" for a healthy program
    fills: str = ""  # a pattern of what a healthy program fills up to its bound

    def explains(self, cause: str, text: str) -> bool:
        """Whether a finding is right; of a healthy program, that it says of what fills that this will end."""
        if self.blamed:
            return re.search(self.blamed, text) is not None
        return cause == ALLOCATED_BUFFER_FILLS and re.search(self.fills, text) is not None


def reports() -> list[Report]:
    return [Report(**one) for one in json.loads((HERE / "reports.json").read_text())]


def watched(report: Report, environments: Path, path: Path) -> dict[str, Any]:
    """Run the program under memwatch to its end, and return what was said of it."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    folder = Folder(path)
    words = [str(environments / report.python / "bin" / "python"), str(HERE / "programs" / f"{report.name}.py")]
    options = ["--limit", LIMIT, "--dry-run", "--json", "-v", "--listen", "none"]
    begun, begun_t = time.monotonic(), time.time()
    with trainer(folder, program=words) as program:
        time.sleep(1.0)  # as a user does: the trainer first
        with memwatch(folder, "--pid", str(program.pid), "--log", folder.log.name, *options) as watch:
            try:
                program.wait(LONGEST_SECONDS)
            except subprocess.TimeoutExpired:
                program.kill()
            seconds = time.monotonic() - begun
            watch.wait(60.0)
    run = {"name": report.name, "seconds": round(seconds), "exit": program.returncode}
    return run | said(watch.events(), begun_t, report)


def said(events: Sequence[dict[str, Any]], begun_t: float, report: Report) -> dict[str, Any]:
    """What memwatch blamed, whether rightly, after how many seconds, and how sure it was."""
    findings = []
    for one in events:
        if one["event"] == "finding":
            text = f"{one['cause']}: {one['holder'] or one['type'] or ''}"
            whole = " ".join([text, one["type"] or "", *one["proof"]])
            findings.append(
                {
                    "text": text,
                    "right": report.explains(one["cause"], whole),
                    "confidence": one["confidence"],
                    "after_s": round(one["t"] - begun_t),
                }
            )
    ends = [one["cause"] for one in events if one["event"] == "exited"]
    counts = {name: sum(one["event"] == name for one in events) for name in ("warn", "examined", "not_examined")}
    return {"findings": findings, "end": ends[-1] if ends else None, **counts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="REGEX", default="", help="programs of this name")
    parser.add_argument("--jobs", type=int, default=2, help="programs that run at a time")
    parser.add_argument("--environments", type=Path, default=ROOT / ".venv", help="where `gallery/bin/python` is")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "leak_reports")
    options = parser.parse_args()
    results = options.results.resolve()
    todo = [report for report in reports() if re.search(options.only, report.name)]
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = pool.map(lambda one: watched(one, options.environments.resolve(), results / one.name), todo)
        for found in runs:
            line = json.dumps(found)
            print(line, flush=True)
            with (results / "runs.jsonl").open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
