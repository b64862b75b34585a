"""Scores a forecaster over traces that were made from seeds, or over a folder of labelled ones.

cd tests && python -m traces.score                            # the held-out run: seeds 11000 to 11015, all families
python -m traces.score --seeds 0:4 --only gc_teeth --verbose  # tuning: seeds below 11000
python -m traces.score --data ../../shared/traces/data        # ID.csv or ID.csv.gz beside ID.json
python -m traces.score --data FOLDER --attach-at 0.5          # watched from half of the life on
python -m traces.score --forecaster predict_linear            # or static90, static95, theil_sen
python -m traces.score --write FOLDER                         # the traces as files, not scored
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby, takewhile
from pathlib import Path
from typing import IO, Any

from memwatch.errors import MemwatchError
from traces.families import FAMILIES, HELD_OUT
from traces.forecasters import FORECASTERS
from traces.judge import Figures, Judgement, figures, judge
from traces.labels import label
from traces.runs import to_csv

STANDARD = range(HELD_OUT, HELD_OUT + 16)
LASTING = ("limit", "gpu_limit", "gen", "total_gens")  # columns whose latest value holds where a cell is empty


@dataclass(frozen=True, slots=True)
class Task:
    """One trace: a family and a seed, or the path of its label."""

    family: str
    seed: int = 0
    label_path: Path | None = None


def tasks(seeds: Iterable[int] = STANDARD, only: Sequence[str] = ()) -> list[Task]:
    """Of these families (by default of all), in order."""
    return [Task(family, seed) for family in only or FAMILIES for seed in seeds]


def data_tasks(folder: Path, only: Sequence[str] = ()) -> list[Task]:
    """Of a folder; `only` are ids or families."""
    found = []
    for path in sorted(folder.glob("*.json")):
        told = json.loads(path.read_text())
        if not only or told["id"] in only or told["family"] in only:
            found.append(Task(told["family"], label_path=path))
    return sorted(found, key=lambda task: task.family)


def score(task: Task, forecaster: str = "memwatch", knows_checkpoint: bool = True, attach_at: float = 0.0) -> Judgement:
    """Makes (or reads) the trace, runs the forecaster over it, judges its lines."""
    with tempfile.TemporaryDirectory(prefix="trace-") as folder:
        if task.label_path is not None:
            told = json.loads(task.label_path.read_text())
            path = task.label_path.with_suffix(".csv")
            path = path if path.exists() else path.with_suffix(".csv.gz")
        else:
            told, path = write(task, Path(folder))
        if attach_at > 0.0:
            told, path = begun_late(told, path, attach_at, Path(folder))
        return _scored(told, path, forecaster, knows_checkpoint)


def begun_late(told: dict[str, Any], path: Path, share: float, folder: Path) -> tuple[dict[str, Any], Path]:
    """The label and the trace of a watch that begins after this share of the life; it knows the trainer's age."""
    with _open(path) as raw, io.TextIOWrapper(raw) as text:
        rows = list(csv.DictReader(text))
    first_t, end_t = float(rows[0]["t"]), told["oom_t"] or float(rows[-1]["t"])
    begins_t = first_t + share * (end_t - first_t)
    kept = [row for row in rows if float(row["t"]) >= begins_t] or rows[-1:]
    known: dict[str, str] = {}
    for row in takewhile(lambda row: row is not kept[0], rows):
        known |= {name: row[name] for name in LASTING if row.get(name)}
    kept[0] |= {name: kept[0][name] or value for name, value in known.items()}
    kept[0]["age"] = f"{float(kept[0]['t']) - first_t:.3f}"
    late = folder / f"{told['id']}-late.csv"
    with late.open("w") as file:
        table = csv.DictWriter(file, dict.fromkeys((*rows[0], "age")), lineterminator="\n")
        table.writeheader()
        table.writerows(kept)
    looks = {name: [look for look in told[name] if look["t"] >= begins_t] for name in ("verdicts", "slopes")}
    return {**told, **looks, "eta": [t for t in told["eta"] if t >= begins_t]}, late


def write(task: Task, folder: Path) -> tuple[dict[str, object], Path]:
    """A trace that is made, and its label, as files; the label and the path of the trace."""
    run, name = FAMILIES[task.family].run(task.seed), f"{task.family}-{task.seed}"
    told, path = label(run, name, task.family), folder / f"{name}.csv"
    path.write_text(to_csv(run))
    path.with_suffix(".json").write_text(json.dumps(told, indent=1))
    return told, path


def _scored(told: dict[str, object], path: Path, forecaster: str, knows_checkpoint: bool) -> Judgement:
    checkpoint = float(told["ckpt_s"]) if knows_checkpoint else None  # type: ignore[arg-type]
    with _open(path) as file:
        count = sum(1 for _ in file) - 1
    began, error, lines = time.perf_counter(), "", []
    try:
        lines = FORECASTERS[forecaster](path, checkpoint)
    except (MemwatchError, ArithmeticError, LookupError, ValueError, TypeError, AttributeError) as failure:
        error = f"{type(failure).__name__}: {failure}"
    seconds = time.perf_counter() - began
    return judge(told, lines, rows=count, seconds=seconds, error=error)


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def scores(
    todo: Sequence[Task], forecaster: str, knows_checkpoint: bool, jobs: int, attach_at: float = 0.0
) -> list[Judgement]:
    """All of them, in order."""
    one = partial(score, forecaster=forecaster, knows_checkpoint=knows_checkpoint, attach_at=attach_at)
    if jobs <= 1:
        return [one(task) for task in todo]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(one, todo, chunksize=4))


# --- as a table -----------------------------------------------------------------------------------------------------

COLUMNS = (
    ("traces", "traces", "{:.0f}"),
    ("missed", "missed", "{:.0f}"),
    ("false", "false", "{:.0f}"),
    ("waste", "waste", "{:.1%}"),
    ("w.med", "waste_median", "{:.1%}"),
    ("w.gen", "waste_generations", "{:.2f}"),
    ("eta", "eta", "{:.1%}"),
    ("1/4", "eta_quarter", "{:.1%}"),
    ("late", "eta_late", "{:.1%}"),
    ("cover", "coverage", "{:.1%}"),
    ("width", "width", "{:.2f}"),
    ("verdict", "verdict", "{:.1%}"),
    ("growth", "growth", "{:.1%}"),
    ("phantom", "phantom", "{:.1%}"),
)


def table(judged: Sequence[Judgement], wall_seconds: float) -> str:
    """A line for each family, and one for all."""
    head = " " * 28 + " ".join(f"{name:>7s}" for name, _, _ in COLUMNS)
    lines = [head]
    for family, group in groupby(sorted(judged, key=lambda j: j.family), key=lambda j: j.family):
        lines.append(_table_line(family, figures(list(group))))
    total = figures(judged)
    lines += [head, _table_line("all", total)]
    savable = (
        f"missed {total.missed_share:.2%} of those that can be saved, false {total.false_share:.2%} of the healthy"
    )
    speed = f"{wall_seconds:.1f} s, {total.rows_per_second:,.0f} rows/s on one core, {total.errors} failures"
    return "\n".join([*lines, savable, speed])


def _table_line(name: str, of: Figures) -> str:
    cells = (form.format(value) if (value := getattr(of, key)) == value else "-" for _, key, form in COLUMNS)
    return f"{name[:28]:28s}" + " ".join(f"{cell:>7s}" for cell in cells)


def listing(judged: Sequence[Judgement]) -> str:
    """What is wrong with each trace, where anything is."""
    return "\n".join(line for line in map(_wrong, judged) if line)


def _wrong(j: Judgement) -> str:
    wrong = [f"{j.outcome} (interrupt {j.interrupt_t}, oom {j.oom_t})"] if j.outcome.isupper() else []
    if j.waste is not None and j.waste > 0.06:
        wrong.append(f"waste {j.waste:.0%} = {j.waste_generations:.1f} generations")
    if any(error > 0.25 for error in j.eta_errors):
        wrong.append("eta " + "/".join(f"{error:.0%}" for error in j.eta_errors))
    if not all(j.covered):
        wrong.append("covered " + "".join("y" if c else "n" for c in j.covered))
    if any(credit < 1 for _, _, credit in j.verdicts):
        wrong.append(" ".join(f"{state}:{said}" for state, said, credit in j.verdicts if credit < 1))
    if any(error > 0.1 for error in j.growth_errors):
        wrong.append("growth " + "/".join(f"{error:.0%}" for error in j.growth_errors))
    if any(j.phantoms):
        wrong.append("phantom " + "".join("y" if is_phantom else "n" for is_phantom in j.phantoms))
    if j.error:
        wrong.append(j.error)
    return f"{j.id:28s} {'; '.join(wrong)}" if wrong else ""


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default=f"{STANDARD.start}:{STANDARD.stop}", help="A:B, B not included")
    parser.add_argument("--only", action="append", default=[], metavar="FAMILY", help="families; with --data, or ids")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="labelled traces instead of made ones")
    parser.add_argument("--forecaster", choices=FORECASTERS, default="memwatch")
    parser.add_argument("--without-checkpoint", action="store_true", help="the forecaster is not told what one takes")
    parser.add_argument(
        "--attach-at", type=float, default=0.0, metavar="SHARE", help="of the life: when a watch begins"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="raw figures of each trace")
    parser.add_argument("--verbose", action="store_true", help="what is wrong, trace by trace")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write traces and labels, score nothing")
    asked = parser.parse_args()
    first, last = (int(seed) for seed in asked.seeds.split(":"))
    todo = tasks(range(first, last), asked.only) if asked.data is None else data_tasks(asked.data, asked.only)
    if asked.write is not None:
        asked.write.mkdir(parents=True, exist_ok=True)
        for task in todo:
            write(task, asked.write)
        return
    began = time.perf_counter()
    judged = scores(todo, asked.forecaster, not asked.without_checkpoint, asked.jobs, asked.attach_at)
    seconds = time.perf_counter() - began
    if asked.json:
        print(json.dumps({"figures": figures(judged).as_dict(), "traces": [asdict(j) for j in judged]}))
        return
    if asked.verbose:
        print(listing(judged), end="\n\n")
    print(table(judged, seconds))


if __name__ == "__main__":
    main()
