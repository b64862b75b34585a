"""The steps in the states that Hugging Face's Trainer writes beside its checkpoints."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from memwatch.core.events import GenerationSeen
from memwatch.errors import SourceError
from memwatch.sources.progress.progress_files import TrainerStateFiles


def save(folder: Path, step: int, *, last: int = 1250, losses: int = 3, t: float | None = None) -> Path:
    """As the Trainer does: its keys in order, and NaN as Python writes it."""
    history = [{"epoch": 0.1, "loss": float("nan"), "global_step": 7, "step": n} for n in range(losses)]
    state = {"epoch": 2.0, "global_step": step, "log_history": history, "max_steps": last, "trial_name": None}
    path = folder / f"checkpoint-{step}" / "trainer_state.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(state, indent=2, sort_keys=True) + "\n")
    os.utime(path, (step, step) if t is None else (t, t))
    return path


def seen(source: TrainerStateFiles, now: float) -> list[tuple[float, int | None, bool]]:
    return [(one.index, one.total, one.before_watch) for one in source.poll(now) if isinstance(one, GenerationSeen)]


@pytest.mark.parametrize("losses", [3, 4000])
def test_each_checkpoint_tells_the_step(tmp_path: Path, losses: int) -> None:
    source = TrainerStateFiles(save(tmp_path, 500, losses=losses))
    assert seen(source, 0.0) == [(500, 1250, True)] and source.unit == "step"
    save(tmp_path, 1000)
    assert seen(source, 1.0) == [], "not at each poll"
    assert seen(source, 6.0) == [(1000, 1250, False)]
    assert seen(source, 12.0) == []


def test_the_latest_state_counts_not_the_highest_step(tmp_path: Path) -> None:
    save(tmp_path, 1000, t=10.0)  # of an earlier run
    source = TrainerStateFiles(save(tmp_path, 500, t=20.0))
    assert seen(source, 0.0) == [(500, 1250, True)]
    shutil.rmtree(tmp_path / "checkpoint-500")  # the Trainer keeps the latest few
    save(tmp_path, 750, t=30.0)
    assert seen(source, 6.0) == [(750, 1250, False)]


def test_a_run_without_end_has_no_total(tmp_path: Path) -> None:
    assert seen(TrainerStateFiles(save(tmp_path, 500, last=0)), 0.0) == [(500, None, True)]


def test_what_is_no_state_or_gone_is_an_error(tmp_path: Path) -> None:
    path = save(tmp_path, 500)
    path.write_text('{"step": 500')
    source = TrainerStateFiles(path)
    with pytest.raises(SourceError, match="no state of a Trainer, or not whole"):
        source.poll(0.0)
    shutil.rmtree(path.parent)
    with pytest.raises(SourceError, match="any more"):
        source.poll(6.0)
