"""Make docs/leak_reports/results.md of the runs of `leak_reports.run`: `python -m leak_reports.table RUNS`.

The facts of the runs go to `runs.jsonl` beside it; without RUNS the page is made of these anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from bench import tables
from gallery.table import Run, read_runs
from leak_reports.run import Report, reports
from support.markdown import placed

KEPT = Path(__file__).resolve().parents[2] / "docs" / "leak_reports"
PAGE = KEPT / "results.md"
BANDS = ((0.0, 0.5), (0.5, 0.7), (0.7, 1.0))  # of confidence: above the first, up to the second


def outcome(run: Run, report: Report) -> str:
    """`right` or `wrong` by the latest finding, of several at a time by the first, which is about the most memory.

    `none` where nothing was found, which is right of what is healthy.
    """
    if not run["findings"]:
        return "none" if report.blamed else "right"
    latest = max(one["after_s"] for one in run["findings"])
    return "right" if next(one["right"] for one in run["findings"] if one["after_s"] == latest) else "wrong"


def row(run: Run, report: Report) -> list[str]:
    """One run as the table has it."""
    findings = [
        f"`{one['text']}` ({one['confidence']:.2f}, {one['after_s']} s)" + ("" if one["right"] else " ✗")
        for one in run["findings"]
    ]
    return [f"[{report.name}]({report.source})", report.kind, "; ".join(findings) or "nothing", outcome(run, report)]


def reliability(runs: Sequence[Run]) -> list[list[str]]:
    """Of all findings with a confidence in a band: how many there were, and the share that is right."""
    rows = []
    for low, high in BANDS:
        found = [one["right"] for run in runs for one in run["findings"] if low < one["confidence"] <= high]
        share = f"{sum(found) / len(found):.0%}" if found else ""
        rows.append([f"{low:g} to {high:g}", str(len(found)), share])
    return rows


def filled(page: str, runs: Sequence[Run]) -> str:
    """The page with what the runs say."""
    known = {report.name: report for report in reports()}
    rows = [row(run, known[run["name"]]) for run in sorted(runs, key=lambda run: run["name"])]
    head = ["program", "what happens", "found (confidence, after)", ""]
    page = placed(page, "runs", tables.table(head, rows, left=4))
    return placed(page, "reliability", tables.table(["confidence", "findings", "right"], reliability(runs)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="?", type=Path)
    options = parser.parse_args()
    if options.runs:
        (KEPT / "runs.jsonl").write_text("".join(json.dumps(run) + "\n" for run in read_runs(options.runs)))
    PAGE.write_text(filled(PAGE.read_text(), read_runs(KEPT / "runs.jsonl")))


if __name__ == "__main__":
    main()
