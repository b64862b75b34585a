"""`memwatch plan`: what a run of another length or capacity needs, told from recorded ones and checked by formula."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memwatch.cli.main import main
from memwatch.core.events import Attached, Cause, Exited, GaugeSeen, GenerationSeen
from memwatch.core.measurements import Target
from memwatch.history.event_store import HistoryStore
from support.watch import sampled

MB, T0, LIMIT = 10**6, 1_700_000_000.0, 4e9
A_GENERATION, PER_ITEM, CAPACITY = 300, 0.4 * MB, 3000
LEAK = 20 * MB


def leaking(k: int) -> float:
    return 400 * MB + LEAK * k


def filling(k: int, capacity: float = CAPACITY) -> float:
    return 400 * MB + PER_ITEM * min(capacity, A_GENERATION * (k + 1))


def recorded(path: Path, used: Callable[[int], float], generations: int, total: int, *, gauge: bool = False) -> None:
    """A run of generations of 60 s, counted from 1, a sample each 2 s; it completed if it came to its total."""
    store, rng = HistoryStore.open(path), random.Random(0)
    command = f"python {path.stem}.py"
    attached = Attached(T0, Target("boot", 4_000_000, generations), command)
    store.open_run(command, attached, T0, "/w", "/w/a.log")
    store.append([attached], [])
    for k in range(generations):
        t = T0 + 60.0 * k
        store.append([GenerationSeen(t, k + 1, total)], [])
        if gauge:
            store.append([GaugeSeen(t + 1.0, "replay buffer", min(CAPACITY, A_GENERATION * (k + 1)), CAPACITY)], [])
        store.append([sampled(t + 2 + 2 * i, used(k) + rng.gauss(0, MB), LIMIT) for i in range(29)], [])
    cause = Cause.COMPLETED if generations == total else Cause.FAILED
    store.append([Exited(T0 + 60.0 * generations, cause, ())], [])
    store.close()


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["plan", *arguments, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_a_longer_run_needs_what_growth_leads_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "leak.db")
    recorded(Path(path), leaking, 15, 15)
    [longer] = planned(capsys, path, "--generations", "40")
    [host] = longer["resources"]
    assert host["needed"] == pytest.approx(leaking(40), rel=0.05)
    assert host["needed_lo"] <= leaking(40) <= host["needed_hi"]
    assert (longer["total"], longer["unit"]) == (40, "generation")


@pytest.mark.parametrize(("asked", "needs"), [([], leaking(14)), (["--generations", "6"], leaking(5))])
def test_what_the_record_covers_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[str], needs: float
) -> None:
    path = str(tmp_path / "leak.db")
    recorded(Path(path), leaking, 15, 15)
    [host] = planned(capsys, path, *asked)[0]["resources"]
    assert host["needed"] == host["needed_lo"] == host["needed_hi"] == pytest.approx(needs, rel=0.02)
    assert main(["plan", path, *asked]) == 0
    assert "as it was measured" in capsys.readouterr().out


@pytest.mark.parametrize("capacity", [1500, 6000])
def test_another_capacity_needs_what_that_many_items_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], capacity: int
) -> None:
    path = str(tmp_path / "fill.db")
    recorded(Path(path), filling, 20, 20, gauge=True)
    [host] = planned(capsys, path, "--set", f"buffer={capacity}", "--generations", "30")[0]["resources"]
    assert host["needed"] == pytest.approx(filling(29, capacity), rel=0.05)


def test_several_runs_are_told_one_by_one_and_the_most_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(tmp_path / "leak.db"), str(tmp_path / "fill.db")]
    recorded(Path(paths[0]), leaking, 12, 40)
    recorded(Path(paths[1]), filling, 12, 40, gauge=True)
    assert main(["plan", *paths]) == 0
    said = capsys.readouterr().out
    assert said.count("after run ") == 2
    assert "at most, of all of them: needs 1." in said.splitlines()[-1]


def test_what_cannot_be_planned_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "short.db")
    recorded(Path(path), leaking, 1, 40)
    assert main(["plan", path]) == 0
    assert "not known what it needs: too little was recorded; its peak was 4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (["--set", "queue=5"], "--set queue: the log shows no level of that name"),
        (["--set", "buffer"], "--set buffer: not a capacity"),
        (["--set", "buffer=-1"], "--set buffer=-1: not a capacity"),
        (["--generations", "some"], "--generations some: not a number of generations"),
    ],
)
def test_wrong_questions(tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[str], problem: str) -> None:
    path = str(tmp_path / "fill.db")
    recorded(Path(path), filling, 4, 40, gauge=True)
    assert main(["plan", path, *asked]) == 2
    assert problem in capsys.readouterr().err
