"""Each way in which the example trainer leaks is named by its third generation; the healthy run is left in peace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from support.mainjob import EXAMPLE, Folder, memwatch, trainer
from support.pythons import pythons

pytestmark = [pytest.mark.paced, pytest.mark.timeout(300)]

SECONDS = 12  # of a generation: the shortest phase is longer than an examination


@dataclass(frozen=True)
class Named:
    """What is to be said of a leak."""

    cause: str
    type: str
    holder: str
    phase: str
    remedy: str


LEAKS = {
    "buffer": Named(
        "buffer_cannot_fit", "__main__.Transition", "__main__.ReplayBuffer.items[i]", "evaluate", "capacity below"
    ),
    "environments": Named(
        "environments_recreated", "__main__.Environment", "__main__.Trainer.kept[i]", "evaluate", "reset()"
    ),
    "losses": Named("graph_retained", "__main__.Loss", "__main__.Trainer.kept[i]", "train", "loss.item()"),
    "population": Named(
        "old_population_kept", "__main__.Agent", "__main__.Trainer.kept[i][i][i]", "evolve", "whole members"
    ),
    "figures": Named("figures_not_closed", "__main__.Figure", "__main__.Figure.opened[i]", "evolve", "plt.close"),
    "history": Named("unbounded_container", "numpy.ndarray", "__main__.Trainer.kept[i]['seen']", "evaluate", "maxlen"),
}
CASES = [*((leak, "3.11") for leak in LEAKS), ("losses", "3.9"), ("figures", "3.13"), ("buffer", "Debian 3.14")]


def watched(leak: str, python: str, tmp_path: Path) -> list[dict]:
    """The findings of a run of four generations."""
    if python not in pythons() or not pythons()[python].has_numpy:
        pytest.skip(f"no CPython {python} with numpy is here: make pythons")
    one, folder = pythons()[python], Folder(tmp_path)
    env = ["env", *(f"{name}={value}" for name, value in one.numpy_env.items())]
    options = ["--leak", leak, "--seconds", str(SECONDS), "--generations", "4", "--checkpoint-every", "0"]
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
        target = ["--pid", str(run.pid), "--log", str(folder.log), "--limit", "450MB", "--dry-run"]
        with memwatch(folder, *target, "--listen", "none", "--interval", "0.25", "--json") as watch:
            assert watch.wait(120.0) == 0, watch.said()
    begun = [(one["t"], one["gen"]) for one in watch.named("marker")]
    return [{**one, "in": max(gen for t, gen in begun if t <= one["t"])} for one in watch.named("finding")]


@pytest.mark.parametrize(("leak", "python"), CASES)
def test_a_leak_is_named_by_the_third_generation(leak: str, python: str, tmp_path: Path) -> None:
    findings, wanted = watched(leak, python, tmp_path), LEAKS[leak]
    assert len(findings) == 1, findings
    (found,) = findings
    assert found["in"] <= 3
    assert (found["cause"], found["type"], found["holder"]) == (wanted.cause, wanted.type, wanted.holder), found
    assert found["phase"] == f"{wanted.phase}_population", found
    assert found["since"] == 1 and wanted.remedy in found["remedy"]
    assert found["count_after"] > found["count_before"] and found["growth_per_unit"] > 5e6


@pytest.mark.parametrize("python", ["3.9", "3.11", "3.13", "Debian 3.14"])
def test_the_healthy_run_has_no_finding(python: str, tmp_path: Path) -> None:
    assert watched("none", python, tmp_path) == []
