"""Make the table of docs/gallery.md from runs: `PYTHONPATH=tests python -m gallery.table build/gallery/runs.jsonl`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gallery.catalogue import CATALOGUE, Program

COLUMNS = ("program", "run", "clock", "own saves", "warned", "interrupted at", "after saves", "cause", "end", "CPU")
LATEST_SHARE = 0.8  # of the limit in use at an interrupt, below which it came much too early to be worth its while


def row(run: Mapping[str, Any], program: Program) -> list[str]:
    """One run as the table has it; what is wrong has a cross."""
    failing = run["failing"]
    busy = ", busy" if run["busy"] else ""
    clock = f"{run['unit']} {run['index']}" + (f" of {run['total']}" if run["total"] else "")
    clock_is_right = (run["unit"] or "") == program.unit and run["total"] == program.total
    used = [one["used"] / run["limit_bytes"] for one in run["interrupts"] if one["used"]]
    interrupted = ", ".join(f"{share:.0%} of the limit" for share in used)
    in_time = bool(used) and used[0] >= LATEST_SHARE if failing else not run["interrupts"]
    ended = run["end"] in ("interrupted_saved", "interrupted_unsaved") if failing else run["end"] == "completed"
    cpu = run["memwatch_cpu_seconds"]
    return [
        program.name,
        f"{'failing' if failing else 'healthy'}, {run['attach']}, {run['limit']}{busy}",
        marked(clock if run["unit"] else "none", clock_is_right),
        marked(str(run["checkpoints"]), bool(run["checkpoints"]) or not program.saves),
        str(run["warnings"]) if failing else marked(str(run["warnings"]), not run["warnings"]),
        marked(interrupted or "never", in_time),
        "yes" if run["saved_after_signal"] else "no",
        marked("; ".join(run["findings"]) or "none", bool(run["right_cause"]) if failing else not run["findings"]),
        marked(str(run["end"]), ended),
        "" if cpu is None else f"{cpu / run['seconds']:.1%}",
    ]


def marked(text: str, right: bool) -> str:
    """The text, with a cross where it is not as it is in truth."""
    return text if right else f"{text} ✗"


def main() -> None:
    programs = {one.name: one for one in CATALOGUE}
    runs = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for run in runs:
        print(f"| {' | '.join(row(run, programs[run['program']]))} |")


if __name__ == "__main__":
    main()
