"""Growth that no attribute holds, in real processes: its cause is named, and a healthy one is left in peace."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from support.mainjob import Folder, Memwatch, memwatch, roomy_budget, trainer, until
from support.pythons import PROGRAMS

pytestmark = [pytest.mark.paced, pytest.mark.timeout(200)]

SECONDS = 1.5  # of a phase, two of which are a generation: longer than an examination ...
SURELY_SECONDS = 2.5  # ... on a busy machine, where those at phases must not be left out


@contextmanager
def watched(kind: str, tmp_path: Path) -> Iterator[Memwatch]:
    folder = Folder(tmp_path)
    seconds = SURELY_SECONDS if kind == "fragmentation" else SECONDS
    with trainer(folder, program=[sys.executable, str(PROGRAMS / "causes.py"), kind, str(seconds)]) as run:
        target = [
            *roomy_budget(tmp_path),
            "--pid",
            str(run.pid),
            "--log",
            str(folder.log),
            "--limit",
            "2GB",
            "--dry-run",
            "--listen",
            "none",
        ]
        with memwatch(folder, *target, "--interval", "0.25", "--json") as watch:
            yield watch


@pytest.mark.parametrize(
    ("kind", "cause", "rate"),
    [
        ("native_leak", "native_leak", 20e6),
        ("native_leak_beside_batches", "native_leak", 20e6),
        ("fragmentation", "fragmentation", 30e6),
        ("workers_copy_pages", "workers_copy_pages", 24e6),
        ("shared_memory", "shared_memory", 10e6),
        ("local_variable", "held_by_local_or_native", 20e6),
        ("worker_heap", "unbounded_container", 10e6),
        ("kept_exceptions", "exceptions_kept", 20e6),
        ("garbage_in_cycles", "garbage_in_cycles", 20e6),
        ("waiting_generator", "held_by_local_or_native", 20e6),
    ],
)
def test_growth_that_no_attribute_holds_is_named(kind: str, cause: str, rate: float, tmp_path: Path) -> None:
    with watched(kind, tmp_path) as watch:
        until(lambda: watch.named("finding"), 170.0)
        (found,) = watch.named("finding")
    assert found["cause"] == cause and found["proof"], found
    within = 0.8 if kind == "workers_copy_pages" else 0.5  # what workers share is told from samples of pages
    assert found["growth_per_unit"] == pytest.approx(rate, rel=within)
    if kind == "local_variable":
        held = "local variable of local_variable: records[i]"
        assert (found["type"], found["holder"]) == ("__main__.Record", held)
        assert found["remedy"] == "bound or clear records in local_variable"
    assert HOLDERS.get(kind, found["holder"]) == found["holder"]
    assert ("worker" in found["process"]) == (kind == "worker_heap")


HOLDERS = {
    "worker_heap": "__main__.Environment.trail[i]",
    "kept_exceptions": "local variable of kept_exceptions: kept[i].tb_frame",
    "waiting_generator": "local variable of waiting_generator.<locals>.batches: seen[i]",
}


def test_arrays_that_come_and_go_are_no_leak(tmp_path: Path) -> None:
    with watched("batches", tmp_path) as watch:
        until(lambda: any(one["gen"] == 9 for one in watch.named("marker")))
        assert examinations(tmp_path) >= 4 and watch.named("finding") == []


def examinations(tmp_path: Path) -> int:
    with closing(sqlite3.connect(Folder(tmp_path).history)) as history:
        return int(history.execute("SELECT count(*) FROM events WHERE kind = 'Diagnosed'").fetchone()[0])
