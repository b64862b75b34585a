"""Leaks of programs of libraries are named: torch, stable-baselines3, matplotlib, as `make libraries` installs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.mainjob import ROOT, Folder, memwatch, roomy_budget, trainer
from support.pythons import PROGRAMS

pytestmark = [pytest.mark.paced, pytest.mark.timeout(300)]

PYTHON = ROOT / ".venv" / "libraries" / "bin" / "python"


def found(program: str, limit: str, tmp_path: Path) -> list[dict[str, Any]]:
    """What a watch of it finds."""
    if not PYTHON.exists():
        pytest.skip("needs stable-baselines3 and torch: make libraries")
    folder = Folder(tmp_path)
    with trainer(folder, program=[str(PYTHON), str(PROGRAMS / program)]) as run:
        target = ["--pid", str(run.pid), "--log", str(folder.log), "--limit", limit, "--dry-run", "--listen", "none"]
        with memwatch(folder, *target, *roomy_budget(tmp_path), "--json") as watch:
            assert watch.wait(200.0) == 0, watch.said()
    return watch.named("finding")


def test_losses_that_keep_their_graph_are_named(tmp_path: Path) -> None:
    (one,) = found("torch_losses.py", "4GB", tmp_path)
    assert (one["cause"], one["type"]) == ("graph_retained", "torch.Tensor")
    assert one["holder"] == "__main__.Trainer.losses[i]" and "loss.item()" in one["remedy"]


def test_a_replay_buffer_that_is_larger_than_the_limit_is_named(tmp_path: Path) -> None:
    (one,) = found("sb3_buffer.py", "900MB", tmp_path)
    assert (one["cause"], one["type"]) == ("buffer_cannot_fit", "numpy.ndarray")
    assert one["holder"].startswith("stable_baselines3.common.buffers.ReplayBuffer.")


def test_figures_that_are_never_closed_are_named(tmp_path: Path) -> None:
    (one,) = found("pyplot_figures.py", "4GB", tmp_path)
    assert (one["cause"], one["type"]) == ("figures_not_closed", "matplotlib.figure.Figure")
    assert one["holder"] == "matplotlib.pyplot" and "plt.close(figure)" in one["remedy"]
