"""A run of the history: its state at the end, its data for charts, or judged again with the same settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from memwatch.app.engine_settings import EngineSettings
from memwatch.config.settings import Config
from memwatch.core.engine.engine import NO_DIAGNOSIS
from memwatch.core.events import Notice
from memwatch.core.snapshot import Snapshot
from memwatch.errors import AttachError, ConfigError, HistoryError
from memwatch.history import stored_runs
from memwatch.history.stored_runs import StoredRun, StoredWatch
from memwatch.outputs.charts.run_data import RunData, RunDataBuilder
from memwatch.outputs.terminal.command_progress import ProgressBar
from memwatch.sources.target.target_facts import identify
from memwatch.system import json_and_yaml

REPLAY_INTERVAL_SECONDS = 30.0  # between two looks that are judged: all is over, no decision is asked for


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A run of a history file."""

    run: StoredRun
    end: Snapshot
    run_data: RunData
    is_running: bool  # its trainer still runs


def history_path(config: Config, environ: Mapping[str, str], named: str = "") -> Path:
    """The file that is named, or the configured one; ConfigError where there is none."""
    path = Path(named) if named else config.history_path(environ)
    if path is None:
        raise ConfigError("no history is named, and none is kept", "name one: memwatch report FILE")
    return path


def list_runs(path: Path) -> list[StoredRun]:
    """Those in a file, the latest first; ConfigError when it is none of memwatch's."""
    try:
        return stored_runs.stored_runs(path)
    except HistoryError as error:
        raise ConfigError(str(error), error.hint) from error


def find_run(path: Path, name: str | None = None) -> StoredRun:
    """The run of that ID, or the latest; `ID@2` is its second process alone. ConfigError when there is none."""
    known = list_runs(path)
    run_id, _, attempt = (name or "").partition("@")
    chosen = next((one for one in known if run_id in ("", one.run_id)), None)
    if chosen is None:
        latest = ", ".join(one.run_id for one in known[:5]) or "none"
        raise ConfigError(f"{path}: no run {run_id or 'at all'}", f"its latest runs: {latest}")
    if not attempt:
        return chosen
    if not (attempt.isdecimal() and 1 <= int(attempt) <= chosen.attempts):
        fix = f"it has {chosen.attempts}: {', '.join(attempt_names(chosen)) or chosen.run_id}"
        raise ConfigError(f"{path}: no process {attempt} of run {chosen.run_id}", fix)
    return replace(chosen, attempt=int(attempt) - 1)


def attempt_names(run: StoredRun) -> list[str]:
    """Of the processes of a run, where it has several."""
    return [f"{run.run_id}@{i + 1}" for i in range(run.attempts)] if run.attempts > 1 else []


def load_run(path: Path, run: StoredRun, config: Config, progress: ProgressBar) -> LoadedRun:
    """All that the file tells of a run; HistoryError when it cannot be read."""
    settings = EngineSettings.from_config(config)
    engine = (settings if run.was_examined else replace(settings, diagnosis=NO_DIAGNOSIS)).make_engine()
    tape = RunDataBuilder()
    for told in progress.track(stored_runs.event_batches(path, run), run.elapsed_share):
        tape.add_event(told)
        for event in engine.events_to_feed(told, REPLAY_INTERVAL_SECONDS):
            engine.feed(event)
    end = engine.snapshot()
    return LoadedRun(run, end, tape.build(stored_runs.notices(path, run), end), is_trainer_running(run))


def is_trainer_running(run: StoredRun) -> bool:
    """Its trainer still runs."""
    if run.attempt not in (None, run.attempts - 1):
        return False
    try:
        return identify(run.target.pid) == run.target
    except AttachError:
        return False


IRREPRODUCIBLE_NOTICES = frozenset({"cow"})  # rests on what of a look is not kept


@dataclass(frozen=True, slots=True)
class RejudgedWatch:
    """What was told of a run within one watch: then, and now."""

    watch: StoredWatch
    recorded: tuple[Notice, ...]
    recomputed: tuple[Notice, ...]
    difference: tuple[Notice | None, Notice | None] | None  # the first, then and now; None: there is none


def rejudge(path: Path, run: StoredRun, reach: Callable[[float], None]) -> Iterator[RejudgedWatch]:
    """Each watch of it, one after the other; `reach` is told how much is done, 0 to 1.

    ConfigError when another memwatch kept it, whose settings or records this one does not know.
    """
    watches = stored_runs.watches(path, run)
    if not watches and stored_runs.notices(path, run):  # one that was killed as it began has told nothing
        raise ConfigError(
            f"{path}: run {run.run_id} was kept by a memwatch that did not keep all of it",
            "export it as a trace: memwatch export",
        )
    for watch in watches:
        then, now = tuple(stored_runs.notices(path, run, watch)), tuple(_now(path, run, watch, reach))
        yield RejudgedWatch(watch, then, now, _difference(then, now))


def _now(path: Path, run: StoredRun, watch: StoredWatch, reach: Callable[[float], None]) -> Iterator[Notice]:
    try:
        engine = EngineSettings.from_json(watch.settings).make_engine()
    except (ValueError, ConfigError) as error:
        raise ConfigError(
            f"{path}: memwatch {watch.version} judged by other settings: {error}", "replay it with that one"
        ) from error
    for event in stored_runs.events_to_replay(path, run.run_id, before=watch):
        engine.feed(event)
    for told in stored_runs.event_batches(path, run, watch):
        reach(run.elapsed_share(told))
        for event in engine.events_to_feed(told):
            yield from (action for action in engine.feed(event) if isinstance(action, Notice))


def _difference(then: Iterable[Notice], now: Iterable[Notice]) -> tuple[Notice | None, Notice | None] | None:
    pairs = zip_longest(filter(_is_kept, then), filter(_is_kept, now))
    return next((pair for pair in pairs if pair[0] is None or pair[1] is None or _are_different(*pair)), None)


def _is_kept(notice: Notice) -> bool:
    return notice.event not in IRREPRODUCIBLE_NOTICES


def _are_different(then: Notice, now: Notice) -> bool:
    """In any bit of what the history keeps of a notice."""
    return (then.t, then.event, then.text, json_and_yaml.to_json(then.fields)) != (
        now.t,
        now.event,
        now.text,
        json_and_yaml.to_json(now.fields),
    )
