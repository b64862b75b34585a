"""A real trainer that does nothing on SIGINT is interrupted right after its own save."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.mainjob import Folder, memwatch, trainer

pytestmark = [pytest.mark.integration, pytest.mark.paced, pytest.mark.timeout(120)]

PROGRAM = Path(__file__).parents[1] / "programs" / "own_saves.py"
POLICY = "policy: {confirmation_seconds: 0.2}\n"
SECONDS = 1.0  # of a generation


def test_it_is_interrupted_right_after_its_own_save(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    config = tmp_path / "memwatch.yaml"
    config.write_text(POLICY)
    program = (sys.executable, str(PROGRAM), "60", "12", str(SECONDS))
    options = ("--log", str(folder.log), "--limit", "250MB", "--listen", "none", "--interval", "0.1", "--json")
    with (
        trainer(folder, program=program) as run,
        memwatch(folder, "--pid", str(run.pid), *options, "--config", str(config)) as watch,
    ):
        watch.wait()
    [seen] = watch.named("signal_handling")
    assert seen["signal"] == "SIGINT" and seen["handled"] is False, watch.said()
    [interrupt] = watch.named("interrupt")
    saved = [one["t"] for one in watch.named("checkpoint") if one["state"] == "saved" and one["t"] <= interrupt["t"]]
    assert interrupt["kind"] == "saved", watch.said()
    assert "after the trainer's own save" in interrupt["text"]
    assert interrupt["t"] - saved[-1] < 0.6 * SECONDS, "it had hardly begun the next generation"
    assert (tmp_path / "state.ckpt").stat().st_size == 1_000_000
