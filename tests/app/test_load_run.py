"""A run from its history is as it was: what was known at its end, with all samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwatch.app import load_and_replay_run
from memwatch.config.settings import Config
from memwatch.core.engine.engine import NO_DIAGNOSIS, Engine
from memwatch.history import stored_runs
from memwatch.outputs.terminal.command_progress import ProgressBar
from support.recorded import GB, Recording, record


@pytest.mark.parametrize("gpus", [0, 1])
def test_what_is_known_at_the_end_is_what_was_known_then(tmp_path: Path, gpus: int) -> None:
    recording = Recording(killed_in=13.4, limit=160 * GB, gpus=gpus, samples=400)
    config = Config()
    live = Engine(config.policy, diagnosis=config.diagnosis_policy)
    for event in recording.events():
        live.feed(event)
    record(tmp_path / "h.db", recording)
    [run] = stored_runs.stored_runs(tmp_path / "h.db")
    found, then = (
        load_and_replay_run.load_run(tmp_path / "h.db", run, config, ProgressBar("reading")).end,
        live.snapshot(),
    )
    assert run.was_examined and then.diagnosis is not None and then.diagnosis.findings
    assert found.diagnosis == then.diagnosis
    for one, other in zip(found.resources, then.resources, strict=True):
        assert (one.generations, one.peak_bytes, one.timeline) == (other.generations, other.peak_bytes, other.timeline)
    assert found.sentence == then.sentence


def test_a_run_that_was_not_examined_is_recalled_in_stretches(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    record(path, Recording(generations=4, samples=2000, examined=False))
    [run] = stored_runs.stored_runs(path)
    assert not run.was_examined
    engine, fed = Engine(Config().policy, diagnosis=NO_DIAGNOSIS), 0
    for told in stored_runs.event_batches(path, run):
        for event in engine.events_to_feed(told, load_and_replay_run.REPLAY_INTERVAL_SECONDS):
            engine.feed(event)
            fed += 1
    assert fed < 500
    assert (
        load_and_replay_run.load_run(path, run, Config(), ProgressBar("x")).end.resources == engine.snapshot().resources
    )
