"""Loads a run of the history for reports and charts, or replays it: judges it again with the settings of then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from memwatch.app.engine_settings import EngineSettings
from memwatch.config.settings import Config
from memwatch.core.engine.engine import NO_DIAGNOSIS, Engine
from memwatch.core.events import Notice
from memwatch.core.snapshot import Snapshot
from memwatch.errors import AttachError, ConfigError, HistoryError
from memwatch.history import stored_runs
from memwatch.history.stored_runs import StoredRun, StoredWatch
from memwatch.outputs.charts.run_data import RunData, RunDataBuilder
from memwatch.outputs.terminal.command_progress import ProgressBar
from memwatch.sources.target.target_facts import identify
from memwatch.system import json_and_yaml

REPLAY_INTERVAL_SECONDS = 30.0  # between two judged samples of a loaded run: it is over, no decision depends on them
IRREPRODUCIBLE_NOTICES = frozenset({"cow"})  # depend on parts of a sample that are not stored


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run of a history file, with the engine's state at its end."""

    run: StoredRun
    end: Snapshot
    run_data: RunData
    is_running: bool  # its trainer still runs


def history_path(config: Config, environ: Mapping[str, str], named: str = "") -> Path:
    """Return the named history file, or the configured one; ConfigError when there is none."""
    path = Path(named) if named else config.history_path(environ)
    if path is None:
        raise ConfigError("no history is named, and none is kept", "name one: memwatch report FILE")
    return path


def list_runs(path: Path) -> list[StoredRun]:
    """Return the runs of a file, the latest first; ConfigError when the file is not a history of memwatch's."""
    try:
        return stored_runs.stored_runs(path)
    except HistoryError as error:
        raise ConfigError(str(error), error.hint) from error


def find_run(path: Path, name: str | None = None) -> StoredRun:
    """Return the run of that ID, or the latest; `ID@2` is its second process alone. ConfigError when there is none."""
    runs = list_runs(path)
    run_id, _, attempt = (name or "").partition("@")
    found = next((run for run in runs if run_id in ("", run.run_id)), None)
    if found is None:
        latest = ", ".join(run.run_id for run in runs[:5]) or "none"
        raise ConfigError(f"{path}: no run {run_id or 'at all'}", f"its latest runs: {latest}")
    if not attempt:
        return found
    if not (attempt.isdecimal() and 1 <= int(attempt) <= found.attempts):
        hint = f"it has {found.attempts}: {', '.join(attempt_names(found)) or found.run_id}"
        raise ConfigError(f"{path}: no process {attempt} of run {found.run_id}", hint)
    return replace(found, attempt=int(attempt) - 1)


def find_named_run(config: Config, environ: Mapping[str, str], name: str) -> tuple[Path, StoredRun]:
    """Return a history file and a run of it: `name` is a file (its latest run) or a run's ID; empty: the latest run."""
    is_file = bool(name) and Path(name).exists()
    path = history_path(config, environ, name if is_file else "")
    return path, find_run(path, None if is_file else name)


def attempt_names(run: StoredRun) -> list[str]:
    """Return the names of a run's processes, none when it has only one."""
    return [f"{run.run_id}@{i + 1}" for i in range(run.attempts)] if run.attempts > 1 else []


def load_run(path: Path, run: StoredRun, config: Config, progress: ProgressBar) -> LoadedRun:
    """Load a run; HistoryError when the file cannot be read."""
    settings = EngineSettings.from_config(config)
    engine = (settings if run.was_examined else replace(settings, diagnosis=NO_DIAGNOSIS)).make_engine()
    builder = RunDataBuilder()
    for stored in progress.track(stored_runs.event_batches(path, run), run.elapsed_share):
        builder.add_event(stored)
        for event in engine.events_to_feed(stored, REPLAY_INTERVAL_SECONDS):
            engine.feed(event)
    end = engine.snapshot()
    return LoadedRun(run, end, builder.build(stored_runs.notices(path, run), end), _is_trainer_running(run))


def _is_trainer_running(run: StoredRun) -> bool:
    if run.attempt not in (None, run.attempts - 1):
        return False
    try:
        return identify(run.target.pid) == run.target
    except AttachError:
        return False


@dataclass(frozen=True, slots=True)
class RejudgedWatch:
    """The notices of one watch of a run: those that were stored then, and those of this memwatch."""

    watch: StoredWatch
    recorded: tuple[Notice, ...]
    recomputed: tuple[Notice, ...]
    difference: tuple[Notice | None, Notice | None] | None  # the first that differ, stored and new


def rejudge(path: Path, run: StoredRun, report_progress: Callable[[float], None]) -> Iterator[RejudgedWatch]:
    """Judge each watch of a run again; `report_progress` is called with the share that is done, 0 to 1.

    ConfigError when another version of memwatch stored the run, with settings or records that this one cannot read.
    """
    watches = stored_runs.watches(path, run)
    if not watches and stored_runs.notices(path, run):  # a run without notices was killed as it began
        raise ConfigError(
            f"{path}: run {run.run_id} was kept by a memwatch that did not keep all of it",
            "export it as a trace: memwatch export",
        )
    for watch in watches:
        recorded = tuple(stored_runs.notices(path, run, watch))
        recomputed = tuple(_recompute(path, run, watch, report_progress))
        yield RejudgedWatch(watch, recorded, recomputed, _first_difference(recorded, recomputed))


def replay_until(path: Path, run: StoredRun, t: float) -> Engine:
    """The engine of the run's latest watch that had begun by then, fed up to that time; ConfigError as of `rejudge`."""
    watches = stored_runs.watches(path, run)
    if not watches:
        raise ConfigError(f"{path}: of run {run.run_id} no watch is kept whole", "export it: memwatch export")
    watch = next((one for one in reversed(watches) if one.t <= t), watches[0])
    engine = _engine(path, run, watch)
    engine.feed_until(stored_runs.event_batches(path, run, watch), t)
    return engine


def _engine(path: Path, run: StoredRun, watch: StoredWatch) -> Engine:
    """Make the engine of a watch: with its settings, and fed the earlier events that it restored."""
    try:
        engine = EngineSettings.from_json(watch.settings).make_engine()
    except (ValueError, ConfigError) as error:
        raise ConfigError(
            f"{path}: memwatch {watch.version} judged by other settings: {error}", "replay it with that one"
        ) from error
    for event in stored_runs.events_to_replay(path, run.run_id, before=watch):
        engine.feed(event)
    return engine


def _recompute(
    path: Path, run: StoredRun, watch: StoredWatch, report_progress: Callable[[float], None]
) -> Iterator[Notice]:
    engine = _engine(path, run, watch)
    for stored in stored_runs.event_batches(path, run, watch):
        report_progress(run.elapsed_share(stored))
        for event in engine.events_to_feed(stored):
            yield from (action for action in engine.feed(event) if isinstance(action, Notice))


def _first_difference(
    recorded: Iterable[Notice], recomputed: Iterable[Notice]
) -> tuple[Notice | None, Notice | None] | None:
    """Return the first pair of notices that differ in any bit of what the history stores of them."""
    pairs = zip_longest(_comparable(recorded), _comparable(recomputed), fillvalue=(None, None))
    for (then, then_stored), (now, now_stored) in pairs:
        if then_stored != now_stored:
            return then, now
    return None


def _comparable(notices: Iterable[Notice]) -> Iterator[tuple[Notice, object]]:
    for notice in notices:
        if notice.event not in IRREPRODUCIBLE_NOTICES:
            yield notice, (notice.t, notice.event, notice.text, json_and_yaml.to_json(notice.fields))
