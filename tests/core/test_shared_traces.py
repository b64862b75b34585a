"""The forecaster alone over labelled traces that lie beside the repository; judged by their own scorer."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import statistics
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from memwatch.core.forecast import Forecaster, Outlook
from support.feeding import ask, fed
from traces.generators import Row

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no labelled traces in {TRACES}")

PLAIN = {  # trace: (least mean credit of the verdicts, largest median error of the ETA or None)
    "doc_gen13_crash_linear": (1.0, 0.12),
    "doc_gen7_crash_175": (0.75, 0.08),
    "doc_scenario1_evaluate_64": (1.0, 0.08),
    "doc_scenario2_train_96": (1.0, 0.08),
    "doc_scenario3_evolve_175": (1.0, 0.08),
    "doc_scenario4_healthy_175": (1.0, None),
    "doc_scenario4_healthy_24": (1.0, None),
    "fill_plateau": (1.0, None),
    "linear_leak": (1.0, 0.15),
    "rec_catboost_healthy": (1.0, None),
    "rec_catboost_leak": (1.0, 0.12),
    "restart": (1.0, 0.06),
    "stable_noise": (1.0, None),
}


def rows_of(name: str, resource: str) -> Iterator[Row]:
    used, limit = ("rss", "limit") if resource == "host" else ("gpu_used", "gpu_limit")
    total: int | None = None
    with gzip.open(TRACES / "data" / f"{name}.csv.gz", "rt", newline="") as file:
        for line in csv.DictReader(file):
            total = int(float(line["total_gens"])) if line["total_gens"] else total
            if line[used]:
                bound = int(float(line[limit])) if line[limit] else None
                generation = int(float(line["gen"])) if line["gen"] else None
                yield Row(float(line["t"]), int(float(line[used])), bound, generation, total)


def line_of(row: Row, outlook: Outlook, resource: str) -> dict[str, Any]:
    forecast, trend = outlook.forecast, outlook.trend
    return {
        "t": row.t,
        "resource": resource,
        "verdict": outlook.verdict.value,
        "growth_per_gen": trend.growth_per_generation if trend else None,
        "eta_s": forecast.eta_seconds if forecast else None,
        "eta_lo_s": forecast.eta_low_seconds if forecast else None,
        "eta_hi_s": forecast.eta_high_seconds if forecast else None,
    }


@cache
def judge() -> Callable[[dict[str, Any], list[dict[str, Any]]], dict[str, Any]]:
    spec = importlib.util.spec_from_file_location("score_traces", TRACES / "score_traces.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    judged: Callable[[dict[str, Any], list[dict[str, Any]]], dict[str, Any]] = module.judge
    return judged


@cache
def judged(name: str) -> dict[str, Any]:
    """What the scorer says of the lines at the times that it looks at."""
    truth = json.loads((TRACES / "data" / f"{name}.json").read_text())
    times = [*truth["eta"], *(c["t"] for c in truth["verdicts"]), *(c["t"] for c in truth["slopes"])]
    rows = list(rows_of(name, truth["resource"]))
    looked_at = {bisect_right(rows, t + 1e-6, key=lambda r: r.t) - 1 for t in times}
    first = next((r.generation for r in rows if r.generation is not None), 0)
    forecaster = Forecaster()
    lines = [
        line_of(row, ask(forecaster, row, first), truth["resource"])
        for i, row in enumerate(fed(rows, forecaster))
        if i in looked_at
    ]
    return judge()(truth, lines)


@pytest.mark.parametrize("name", PLAIN)
def test_the_plain_kinds_are_right(name: str) -> None:
    credit, error = PLAIN[name]
    result = judged(name)
    assert statistics.mean(c for _, _, c in result["verdict"]) >= credit
    if error is not None:
        assert statistics.median(result["eta_err"]) <= error


def test_all_traces_together_stay_on_their_floors() -> None:
    results = [judged(path.stem) for path in sorted((TRACES / "data").glob("*.json"))]
    assert len(results) >= 34
    errors = [e for r in results for e in r["eta_err"]]
    covered = [float(c) for r in results for c in r["covered"]]
    credits_ = [c for r in results for _, _, c in r["verdict"]]
    growth = [g for r in results for g in r["growth_err"]]
    assert statistics.median(errors) <= 0.06
    assert statistics.mean(errors) <= 0.25
    assert 0.87 <= statistics.mean(covered) <= 0.98
    assert statistics.mean(credits_) >= 0.95
    assert statistics.median(growth) <= 0.04
