"""What several runs of pytest came to: what passed, what ran again and why, what would bring the skipped tests.

Each run appends its results to the file that $TEST_RESULTS names; `python -m support.summary FILE RUNS` prints all of
them and fails where a run failed or is missing. A run without that variable prints its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

MAY_RUN_AGAIN = "may run again"
_COUNTED = ("passed", "failed", "error", "xfailed", "xpassed")


@dataclass(frozen=True, slots=True)
class Results:
    """Those of one run."""

    exit_status: int
    counts: dict[str, int]
    failed: list[str]
    reruns: list[str]  # a test for each time that it ran again
    may_run_again: dict[str, str]  # why, by test
    skipped: list[str]  # a reason for each test


def results_of(reporter: pytest.TerminalReporter, exit_status: int) -> Results:
    """What the reporter of a run counted, in its workers too."""
    stats = reporter.stats
    reports = [report for group in ("passed", "failed", "rerun") for report in stats.get(group, [])]
    return Results(
        exit_status=int(exit_status),
        counts={name: len(stats.get(name, [])) for name in _COUNTED},
        failed=[report.nodeid for group in ("failed", "error") for report in stats.get(group, [])],
        reruns=[report.nodeid for report in stats.get("rerun", [])],
        may_run_again={
            report.nodeid: reason
            for report in reports
            for name, reason in getattr(report, "user_properties", [])
            if name == MAY_RUN_AGAIN
        },
        skipped=[_reason(report) for report in stats.get("skipped", [])],
    )


def lines(runs: Sequence[Results]) -> Iterator[str]:
    """The summary of these runs."""
    counts = sum((Counter(run.counts) for run in runs), Counter[str]())
    reruns = [test for run in runs for test in run.reruns]
    reasons = {test: reason for run in runs for test, reason in run.may_run_again.items()}
    skipped = Counter(reason for run in runs for reason in run.skipped)
    unusual = "".join(f", {counts[name]} {name}" for name in _COUNTED[2:] if counts[name])
    yield (
        f"{counts['passed']} passed, {counts['failed']} failed{unusual}, {skipped.total()} skipped, "
        f"{len(set(reruns))} ran again of {len(reasons)} that may"
    )
    yield from (f"  FAILED {test}" for run in runs for test in run.failed)
    yield from (f"  RAN AGAIN {test}: {reasons.get(test, 'for no reason given')}" for test in sorted(set(reruns)))
    brought: defaultdict[str, list[str]] = defaultdict(list)
    for reason, count in skipped.most_common():
        what, _, command = reason.removeprefix("needs ").rpartition(": ")
        if reason.startswith("needs ") and what and " " in command:
            brought[f"brought by `{command}`"].append(f"{count} need {what}")
        else:
            brought["not on this machine"].append(f"{count}: {reason}")
    for command, needs in sorted(brought.items()):
        yield f"  skipped, {command}: {'; '.join(needs)}"


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ").split("\n")[0]


def record(reporter: pytest.TerminalReporter, exit_status: int) -> None:
    """Keep the results of a run for `main`, or print them."""
    if hasattr(reporter.config, "workerinput"):  # one of xdist's workers: its results are in those of the whole run
        return
    results = results_of(reporter, exit_status)
    if path := os.environ.get("TEST_RESULTS"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(results)) + "\n")
        return
    reporter.section("summary", "=")
    for line in lines([results]):
        reporter.write_line(line)


def main(path: str, expected: str) -> int:
    """Print what the runs came to that left their results there; 1 if one failed, or fewer did than are expected."""
    file = Path(path)
    runs = [Results(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
    print("\n".join(lines(runs)))
    if len(runs) < int(expected):
        print(f"  FAILED {int(expected) - len(runs)} runs of pytest ended without results")
    return int(len(runs) < int(expected) or any(run.exit_status for run in runs))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
