"""A run that was watched, from its history: the state at its end, and its story."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from memwatch.config import Config
from memwatch.core.engine import Engine
from memwatch.core.model import Snapshot, Target
from memwatch.errors import AttachError, ConfigError, HistoryError
from memwatch.history import past
from memwatch.history.past import PastRun
from memwatch.outputs.story import Story, tell
from memwatch.progress import Progress
from memwatch.sources.target import identify

DRAWN = 150_000  # samples, about, at most


@dataclass(frozen=True, slots=True)
class Recalled:
    """A run of a history file."""

    path: Path
    run: PastRun
    end: Snapshot
    story: Story
    lives: bool  # its trainer still runs


def find(
    config: Config, environ: Mapping[str, str], history: str = "", run_id: str | None = None
) -> tuple[Path, PastRun]:
    """The run of that ID, or the latest, in that file or the configured one; ConfigError when there is none."""
    path = Path(history) if history else config.history_path(environ)
    if path is None:
        raise ConfigError("no history is named, and none is kept", "name one: memwatch report FILE")
    try:
        runs = past.runs(path)
    except HistoryError as error:
        raise ConfigError(str(error), error.hint) from error
    chosen = next((one for one in runs if run_id in (None, one.run_id)), None)
    if chosen is None:
        known = ", ".join(one.run_id for one in runs[:5]) or "none"
        raise ConfigError(f"{path}: no run {run_id or 'at all'}", f"its latest runs: {known}")
    return path, chosen


def replayed(path: Path, run: PastRun, config: Config, progress: Progress) -> Snapshot:
    """The state at the end of a run, as the engine comes to it."""
    engine = Engine(config.policy, diagnosis=config.examining, expectations=config.checks)
    for event in progress.over(past.events(path, run.run_id), run.share):
        engine.feed(event)
    return engine.snapshot()


def recall(path: Path, run: PastRun, config: Config, progress: Progress) -> Recalled:
    """All that the file tells of a run; HistoryError when it cannot be read."""
    end = replayed(path, run, config, progress)
    events = progress.over(past.events(path, run.run_id, DRAWN), run.share)
    return Recalled(path, run, end, tell(events, past.notices(path, run.run_id), end), _lives(run.target))


def _lives(target: Target) -> bool:
    try:
        return identify(target.pid) == target
    except AttachError:
        return False
