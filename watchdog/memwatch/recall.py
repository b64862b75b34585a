"""A run that was watched, from its history: the state at its end, and its story."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from memwatch.config import Config
from memwatch.core.engine import NO_DIAGNOSIS, Engine
from memwatch.core.model import Snapshot, Target
from memwatch.errors import AttachError, ConfigError, HistoryError
from memwatch.history import past
from memwatch.history.past import PastRun
from memwatch.outputs.story import Story, Tape
from memwatch.progress import Progress
from memwatch.sources.target import identify

JUDGED_SECONDS = 30.0  # between two looks that are judged: all is over, no decision is asked for


@dataclass(frozen=True, slots=True)
class Recalled:
    """A run of a history file."""

    run: PastRun
    end: Snapshot
    story: Story
    lives: bool  # its trainer still runs


def history_path(config: Config, environ: Mapping[str, str], named: str = "") -> Path:
    """The file that is named, or the configured one; ConfigError where there is none."""
    path = Path(named) if named else config.history_path(environ)
    if path is None:
        raise ConfigError("no history is named, and none is kept", "name one: memwatch report FILE")
    return path


def runs(path: Path) -> list[PastRun]:
    """Those in a file, the latest first; ConfigError when it is none of memwatch's."""
    try:
        return past.runs(path)
    except HistoryError as error:
        raise ConfigError(str(error), error.hint) from error


def find(path: Path, run_id: str | None = None) -> PastRun:
    """The run of that ID, or the latest; ConfigError when there is none."""
    known = runs(path)
    chosen = next((one for one in known if run_id in (None, one.run_id)), None)
    if chosen is None:
        latest = ", ".join(one.run_id for one in known[:5]) or "none"
        raise ConfigError(f"{path}: no run {run_id or 'at all'}", f"its latest runs: {latest}")
    return chosen


def recall(path: Path, run: PastRun, config: Config, progress: Progress) -> Recalled:
    """All that the file tells of a run; HistoryError when it cannot be read."""
    examining = config.examining if run.was_examined else NO_DIAGNOSIS
    engine = Engine(config.policy, diagnosis=examining, expectations=config.checks)
    tape = Tape()
    for told in progress.over(past.stretches(path, run.run_id), run.share):
        tape.take(told)
        for event in engine.worth_feeding(told, JUDGED_SECONDS):
            engine.feed(event)
    end = engine.snapshot()
    return Recalled(run, end, tape.story(past.notices(path, run.run_id), end), lives(run.target))


def lives(target: Target) -> bool:
    """It still runs."""
    try:
        return identify(target.pid) == target
    except AttachError:
        return False
