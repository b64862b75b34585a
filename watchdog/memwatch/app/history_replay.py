"""A run that was watched, from its history: the state at its end, and its story.

A run of the history, judged again: an engine of the same settings, fed the same, tells the same or is another.

What a run is judged by: the settings of an engine, kept in the history beside what the engine was fed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from memwatch import __version__
from memwatch.config.settings import Config
from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import NO_DIAGNOSIS, Engine
from memwatch.core.events import Notice
from memwatch.core.expectations import parse_expectation
from memwatch.core.leaks.examination_schedule import DiagnosisPolicy
from memwatch.core.snapshot import Snapshot
from memwatch.errors import AttachError, ConfigError, HistoryError
from memwatch.history import stored_runs
from memwatch.history.event_store import Judge
from memwatch.history.stored_runs import PastRun, PastWatch
from memwatch.outputs.charts.run_data import RunData, RunDataBuilder
from memwatch.outputs.terminal.progress_bar import ProgressBar
from memwatch.sources.target.process_identity import identify
from memwatch.system import serialization


@dataclass(frozen=True, slots=True)
class Settings:
    """All that an engine goes by besides what it is fed: the same, fed the same, decides the same."""

    policy: Policy
    diagnosis: DiagnosisPolicy
    expectations: tuple[str, ...] = ()

    @staticmethod
    def of(config: Config) -> Settings:
        """As configured."""
        return Settings(config.policy, config.examining, config.expectations)

    @staticmethod
    def kept(data: bytes) -> Settings:
        """As an earlier watch kept them; wire.ShapeError when they are not those of this memwatch."""
        return serialization.from_json(data, Settings)

    def engine(self) -> Engine:
        """One that goes by them."""
        return Engine(self.policy, diagnosis=self.diagnosis, expectations=map(parse_expectation, self.expectations))

    def to_keep(self) -> Judge:
        """For the history."""
        return Judge(__version__, serialization.to_json(self))


JUDGED_SECONDS = 30.0  # between two looks that are judged: all is over, no decision is asked for


@dataclass(frozen=True, slots=True)
class Recalled:
    """A run of a history file."""

    run: PastRun
    end: Snapshot
    story: RunData
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


def recall(path: Path, run: PastRun, config: Config, progress: ProgressBar) -> Recalled:
    """All that the file tells of a run; HistoryError when it cannot be read."""
    settings = Settings.of(config)
    engine = (settings if run.was_examined else replace(settings, diagnosis=NO_DIAGNOSIS)).engine()
    tape = RunDataBuilder()
    for told in progress.track(stored_runs.stretches(path, run), run.share):
        tape.add_event(told)
        for event in engine.events_to_feed(told, JUDGED_SECONDS):
            engine.feed(event)
    end = engine.snapshot()
    return Recalled(run, end, tape.build(stored_runs.notices(path, run), end), lives(run))


def lives(run: PastRun) -> bool:
    """Its trainer still runs."""
    if run.attempt not in (None, run.attempts - 1):
        return False
    try:
        return identify(run.target.pid) == run.target
    except AttachError:
        return False


UNKEPT = frozenset({"cow"})  # rests on what of a look is not kept


@dataclass(frozen=True, slots=True)
class Retold:
    """What was told of a run within one watch: then, and now."""

    watch: PastWatch
    then: tuple[Notice, ...]
    now: tuple[Notice, ...]
    difference: tuple[Notice | None, Notice | None] | None  # the first, then and now; None: there is none


def retell(path: Path, run: PastRun, reach: Callable[[float], None]) -> Iterator[Retold]:
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
        then, now = tuple(stored_runs.told(path, run, watch)), tuple(_now(path, run, watch, reach))
        yield Retold(watch, then, now, _difference(then, now))


def _now(path: Path, run: PastRun, watch: PastWatch, reach: Callable[[float], None]) -> Iterator[Notice]:
    try:
        engine = Settings.kept(watch.settings).engine()
    except (ValueError, ConfigError) as error:
        raise ConfigError(
            f"{path}: memwatch {watch.version} judged by other settings: {error}", "replay it with that one"
        ) from error
    for event in stored_runs.before(path, run, watch):
        engine.feed(event)
    for told in stored_runs.during(path, run, watch):
        reach(run.share(told))
        for event in engine.events_to_feed(told):
            yield from (action for action in engine.feed(event) if isinstance(action, Notice))


def _difference(then: Iterable[Notice], now: Iterable[Notice]) -> tuple[Notice | None, Notice | None] | None:
    pairs = zip_longest(filter(_is_kept, then), filter(_is_kept, now))
    return next((pair for pair in pairs if pair[0] is None or pair[1] is None or _are_different(*pair)), None)


def _is_kept(notice: Notice) -> bool:
    return notice.event not in UNKEPT


def _are_different(then: Notice, now: Notice) -> bool:
    """In any bit of what the history keeps of a notice."""
    return (then.t, then.event, then.text, serialization.to_json(then.fields)) != (
        now.t,
        now.event,
        now.text,
        serialization.to_json(now.fields),
    )
