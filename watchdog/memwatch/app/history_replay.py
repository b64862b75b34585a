"""A run that was watched, from its history: the state at its end, and its story."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from memwatch.app.zz_judge import Settings
from memwatch.config.settings import Config
from memwatch.core.engine.engine import NO_DIAGNOSIS
from memwatch.core.snapshot import Snapshot
from memwatch.errors import AttachError, ConfigError, HistoryError
from memwatch.history import stored_runs
from memwatch.history.stored_runs import PastRun
from memwatch.outputs.charts.run_data import Story, Tape
from memwatch.outputs.terminal.progress_bar import Progress
from memwatch.sources.target.process_identity import identify

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
        return stored_runs.runs(path)
    except HistoryError as error:
        raise ConfigError(str(error), error.hint) from error


def find(path: Path, name: str | None = None) -> PastRun:
    """The run of that ID, or the latest; `ID@2` is its second process alone. ConfigError when there is none."""
    known = runs(path)
    run_id, _, attempt = (name or "").partition("@")
    chosen = next((one for one in known if run_id in ("", one.run_id)), None)
    if chosen is None:
        latest = ", ".join(one.run_id for one in known[:5]) or "none"
        raise ConfigError(f"{path}: no run {run_id or 'at all'}", f"its latest runs: {latest}")
    if not attempt:
        return chosen
    if not (attempt.isdecimal() and 1 <= int(attempt) <= chosen.attempts):
        fix = f"it has {chosen.attempts}: {', '.join(names(chosen)) or chosen.run_id}"
        raise ConfigError(f"{path}: no process {attempt} of run {chosen.run_id}", fix)
    return replace(chosen, attempt=int(attempt) - 1)


def names(run: PastRun) -> list[str]:
    """Of the processes of a run, where it has several."""
    return [f"{run.run_id}@{i + 1}" for i in range(run.attempts)] if run.attempts > 1 else []


def recall(path: Path, run: PastRun, config: Config, progress: Progress) -> Recalled:
    """All that the file tells of a run; HistoryError when it cannot be read."""
    settings = Settings.of(config)
    engine = (settings if run.was_examined else replace(settings, diagnosis=NO_DIAGNOSIS)).engine()
    tape = Tape()
    for told in progress.over(stored_runs.stretches(path, run), run.share):
        tape.take(told)
        for event in engine.worth_feeding(told, JUDGED_SECONDS):
            engine.feed(event)
    end = engine.snapshot()
    return Recalled(run, end, tape.story(stored_runs.notices(path, run), end), lives(run))


def lives(run: PastRun) -> bool:
    """Its trainer still runs."""
    if run.attempt not in (None, run.attempts - 1):
        return False
    try:
        return identify(run.target.pid) == run.target
    except AttachError:
        return False
