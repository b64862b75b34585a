"""Each way in which the example trainer leaks is named by its third generation; the healthy run is left in peace."""

from __future__ import annotations

import time
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import pytest

from support.mainjob import EXAMPLE, Folder, memwatch, roomy_budget, trainer
from support.pythons import needed_python

pytestmark = [pytest.mark.paced, pytest.mark.timeout(300)]

THIRD = 3
SECONDS = 8  # of a generation: the shortest phase is longer than an examination


@dataclass(frozen=True)
class Named:
    """What is to be said of a leak."""

    cause: str
    type: str
    holder: str
    phase: tuple[str, ...]  # and the next, where memory grows in the last instant of it
    remedy: str


LEAKS = {
    "buffer": Named(
        "buffer_cannot_fit", "__main__.Transition", "__main__.ReplayBuffer.items[i]", ("evaluate",), "capacity below"
    ),
    "environments": Named(
        "environments_recreated", "__main__.Environment", "__main__.Trainer.kept[i]", ("evaluate",), "reset()"
    ),
    "losses": Named("unbounded_container", "__main__.Loss", "__main__.Trainer.kept[i]", ("train",), "maxlen"),
    "population": Named(
        "old_population_kept",
        "__main__.Agent",
        "__main__.Trainer.kept[i][i][i]",
        ("evolve", "evaluate"),
        "whole members",
    ),
    "figures": Named(
        "figures_not_closed", "__main__.Figure", "__main__.Figure.opened[i]", ("evolve", "evaluate"), "plt.close"
    ),
    "history": Named(
        "unbounded_container", "numpy.ndarray", "__main__.Trainer.kept[i]['seen']", ("evaluate",), "maxlen"
    ),
}
PYTHONS = ("3.9", "3.11", "3.13", "Debian 3.14")
APART_SECONDS = 6.0  # runs begin, in all workers: no two go through a generation in step, few are examined at once
LIMIT = "500MB"  # of which a replay buffer takes 740, and a quarter of what is left suffices for an examination


def part(*values: str, at: int) -> Any:
    """Three of four are run by `make thorough` alone: each leak and each interpreter is in the fourth."""
    return pytest.param(*values, marks=[pytest.mark.thorough] if at % len(PYTHONS) else [])


def wait_for_turn(shared: Path) -> None:
    """Until the latest run, in whichever worker, began long enough ago."""
    with (shared / "turn").open("a+") as turn:
        flock(turn, LOCK_EX)
        turn.seek(0)
        left = float(turn.read() or 0.0) + APART_SECONDS - time.monotonic()
        time.sleep(min(max(0.0, left), APART_SECONDS))
        turn.truncate(0)
        turn.write(str(time.monotonic()))


def watched(leak: str, python: str, tmp_path: Path, generations: int) -> list[dict]:
    """The findings of a run, each with the generation in which it was told."""
    one, folder = needed_python(python, numpy=True), Folder(tmp_path)
    wait_for_turn(tmp_path.parents[1])
    env = ["env", *(f"{name}={value}" for name, value in one.numpy_env.items())]
    options = ["--leak", leak, "--seconds", str(SECONDS), "--generations", str(generations), "--checkpoint-every", "0"]
    program = [
        *env,
        *one.command,
        "-X",
        "utf8",
        "-c",
        EXAMPLE.read_text(),
        *options,
        "--checkpoints",
        str(folder.checkpoints),
    ]
    with trainer(folder, program=program) as run:
        target = [
            *roomy_budget(tmp_path),
            "--pid",
            str(run.pid),
            "--log",
            str(folder.log),
            "--limit",
            LIMIT,
            "--dry-run",
        ]
        with memwatch(folder, *target, "--listen", "none", "--interval", "0.25", "--json") as watch:
            assert watch.wait(120.0) == 0, watch.said()
    begun = [(one["t"], one["gen"]) for one in watch.named("marker")]
    return [{**one, "in": max(gen for t, gen in begun if t <= one["t"])} for one in watch.named("finding")]


@pytest.mark.parametrize(
    ("leak", "python"),
    [part(leak, python, at=i + j) for i, leak in enumerate(LEAKS) for j, python in enumerate(PYTHONS)],
)
def test_a_leak_is_named_by_the_third_generation(leak: str, python: str, tmp_path: Path) -> None:
    findings, wanted = watched(leak, python, tmp_path, THIRD), LEAKS[leak]
    assert len(findings) == 1, findings
    (found,) = findings
    assert found["in"] <= THIRD
    assert (found["cause"], found["type"], found["holder"]) == (wanted.cause, wanted.type, wanted.holder), found
    phases = [phase.removesuffix("_population") for phase in found["phase"].split(" or ")]
    assert phases[0] == wanted.phase[0] and {*phases} <= {*wanted.phase}, found
    assert int(found["since"]) == 1 and wanted.remedy in found["remedy"]
    assert found["count_after"] > found["count_before"] and found["growth_per_unit"] > 5e6


@pytest.mark.parametrize("python", [part(python, at=j + 1) for j, python in enumerate(PYTHONS)])
def test_the_healthy_run_has_no_finding(python: str, tmp_path: Path) -> None:
    assert watched("none", python, tmp_path, THIRD + 2) == []
