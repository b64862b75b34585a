"""What holds after each test of real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memwatch.app.load_and_replay_run import rejudge
from memwatch.history import stored_runs


@pytest.fixture(autouse=True)
def no_end_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test but that of it leaves a process behind."""
    monkeypatch.setenv("MEMWATCH_DAEMON__END_PAGE_SECONDS", "0")


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers of tests last for seconds; that of the grace has one of minutes."""
    monkeypatch.setenv("MEMWATCH_POLICY__OWN_LIMIT_GRACE_SECONDS", "0")


@pytest.fixture(autouse=True)
def each_watch_is_judged_again_as_it_was(tmp_path: Path) -> Iterator[None]:
    """Whatever happened to it: the history holds all that it went by."""
    yield
    for path in tmp_path.rglob("history.db"):
        for run in stored_runs.stored_runs(path):
            for watch in rejudge(path, run, lambda share: None):
                assert watch.difference is None, f"{path}: {run.run_id}"
