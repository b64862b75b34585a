"""Print a table of runs: `PYTHONPATH=watchdog:tests python -m gallery.table build/gallery/runs.jsonl`.

A second argument names the columns: `program,run,clock,told by,cause`. With `--keep NAME` the facts of the runs go to
docs/gallery/NAME.jsonl, and the table of that name into docs/gallery/results.md; without runs all its tables are made
anew. A table whose facts are not there stays as it is.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import tables
from gallery.catalogue import CATALOGUE, Program
from memwatch.core.examination import ALLOCATED_BUFFER_FILLS, MODEL_GROWS
from support.markdown import placed

COLUMNS = (
    "program",
    "run",
    "clock",
    "told by",
    "own saves",
    "forecast",
    "needs",
    "moment",
    "warned",
    "interrupted at",
    "after saves",
    "cause",
    "end",
    "CPU",
    "pace",
)
KEPT = Path(__file__).resolve().parents[2] / "docs" / "gallery"
PAGE = KEPT / "results.md"
TABLES = {  # of the page, by the names of their files: the columns
    "log": "program,run,clock,own saves,forecast,needs,moment,warned,interrupted at,after saves,cause,end,CPU,pace",
    "no_log": "program,run,clock,told by,needs,interrupted at,cause,end",
    "busy": "program,run,clock,forecast,needs,warned,interrupted at,cause,end,CPU",
    "cgroup": "program,run,clock,own saves,forecast,warned,interrupted at,after saves,cause,end",
}
FACTS = (  # what a row is made of
    *("program", "failing", "attach", "limit", "busy", "log", "limit_bytes", "seconds", "unwatched_seconds"),
    *("memwatch_cpu_seconds", "unit", "index", "total", "from", "checkpoints", "warnings", "interrupts"),
    *("saved_after_signal", "findings", "right_cause", "end", "true_oom_gen", "forecasts", "forecast_errors"),
    *("needed_error", "moment_error_units", "moment_error_share"),
)
FORECAST_UNITS, FORECAST_SHARE = 2.0, 0.08  # by which a forecast may err: units, or of the life (2 of 25)
NEEDED_SHARE = 0.1  # by which the memory that is needed may be told wrongly
LATEST_SHARE = 0.8  # of the limit in use at an interrupt, below which it came much too early to be worth its while


Run = Mapping[str, Any]  # as runs.jsonl has it


def row(run: Run, program: Program) -> list[str]:
    """One run as the table has it; what is wrong has a cross."""
    failing = run["failing"]
    busy = (", busy" if run["busy"] else "") + ("" if run.get("log", True) else ", no log")
    clock = f"{run['unit']} {run['index']}" + (f" of {run['total']}" if run["total"] else "")
    clock_is_right = bool(re.fullmatch(program.unit, run["unit"] or "")) and run["total"] == program.total
    used = [one["used"] / run["limit_bytes"] for one in run["interrupts"] if one["used"]]
    interrupted = ", ".join(f"{share:.0%} of the limit" for share in used)
    in_time = bool(used) and used[0] >= LATEST_SHARE if failing else not run["interrupts"]
    ended = run["end"] in ("interrupted_saved", "interrupted_unsaved") if failing else run["end"] == "completed"
    named = bool(run["right_cause"]) if failing else not _blamed(run, program)
    cpu = run["memwatch_cpu_seconds"]
    return [
        program.name,
        f"{'failing' if failing else 'healthy'}, {run['attach']}, {run['limit']}{busy}",
        marked(clock if run["unit"] else "none", clock_is_right),
        run.get("from") or {None: "", "save": "its saves"}.get(run["unit"], "its log"),
        marked(str(run["checkpoints"]), bool(run["checkpoints"]) or not program.saves),
        forecast(run),
        needs(run, program),
        moment(run),
        str(run["warnings"]) if failing else marked(str(run["warnings"]), not run["warnings"]),
        marked(interrupted or "never", in_time),
        "yes" if run["saved_after_signal"] else "no",
        marked("; ".join(run["findings"]) or "none", named),
        marked(str(run["end"]), ended),
        "" if cpu is None else f"{cpu / run['seconds']:.1%}",
        "" if failing or run["busy"] else f"{run['seconds'] / run['unwatched_seconds']:.2f}",
    ]


def _blamed(run: Run, program: Program) -> list[str]:
    """What a healthy run was blamed for: not its own buffer, which fills and will fit, nor a model that gains trees."""
    own = re.compile(rf"{ALLOCATED_BUFFER_FILLS}: .*(?:{program.fills or program.cause})|{MODEL_GROWS}: ")
    return [one for one in run["findings"] if not own.match(one)]


def forecast(run: Run) -> str:
    """By how much forecasts erred from a third of the life on: the median, and how many told a time."""
    if "true_oom_gen" not in run:
        return ""
    true, errors = run["true_oom_gen"], run["forecast_errors"]
    if not errors:
        return marked("none", False)
    middle = sorted(errors)[len(errors) // 2]
    right = abs(middle) <= max(FORECAST_UNITS, FORECAST_SHARE * true)
    return marked(f"{middle:+.3g} of {true:.4g}, {len(errors)} of {run['forecasts']}", right)


def needs(run: Run, program: Program) -> str:
    """The error of the need that was reported at half of the life; only logs with a total have one."""
    if program.total is None:
        return ""
    error = run.get("needed_error")
    return marked("none", False) if error is None else marked(f"{error:+.0%}", abs(error) <= NEEDED_SHARE)


def moment(run: Run) -> str:
    """The error of the interrupt's generation, as it was reported at half of the life."""
    if not run["failing"]:
        return ""
    share, units = run.get("moment_error_share"), run.get("moment_error_units")
    if share is None:
        return marked("none", False)
    return marked(f"{units:+.3g}, {share:+.0%}", abs(units) <= 1.0 or abs(share) <= FORECAST_SHARE)


def marked(text: str, right: bool) -> str:
    """The text, with a cross where it is not as it is in truth."""
    return text if right else f"{text} ✗"


def table(runs: Iterable[Run], columns: Sequence[str], short: bool = False) -> str:
    """In Markdown; `short`: a run is only healthy or failing, as the rest is the same for all and stands above."""
    programs, rows = {one.name: one for one in CATALOGUE}, []
    for run in runs:
        cells = dict(zip(COLUMNS, row(run, programs[run["program"]]), strict=True))
        if short:
            cells["run"] = cells["run"].partition(",")[0]
        rows.append([cells[column] for column in columns])
    return tables.table(columns, rows, left=len(columns))


def facts(run: Run) -> Run:
    """What is kept of a run: no texts, and no path of the machine that it ran on."""
    kept = {name: run[name] for name in FACTS if name in run}
    return kept | {"interrupts": [{"used": one["used"]} for one in run["interrupts"]]}


def read_runs(path: Path) -> list[Run]:
    """One a line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_kept(folder: Path = KEPT) -> dict[str, list[Run]]:
    """The runs of each table that has some."""
    return {name: read_runs(path) for name in TABLES if (path := folder / f"{name}.jsonl").exists()}


def filled(page: str, kept: Mapping[str, Sequence[Run]]) -> str:
    """The page with what the runs say."""
    for name, runs in kept.items():
        page = placed(page, name, table(runs, TABLES[name].split(","), short=True))
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="?", type=Path)
    parser.add_argument("columns", nargs="?", default=",".join(COLUMNS))
    parser.add_argument("--keep", choices=TABLES, help="the table of the page that these runs are")
    options = parser.parse_args()
    if options.runs and not options.keep:
        print(table(read_runs(options.runs), options.columns.split(",")))
        return
    if options.runs:
        lines = (json.dumps(facts(run)) + "\n" for run in read_runs(options.runs))
        (KEPT / f"{options.keep}.jsonl").write_text("".join(lines))
    PAGE.write_text(filled(PAGE.read_text(), read_kept()))


if __name__ == "__main__":
    main()
