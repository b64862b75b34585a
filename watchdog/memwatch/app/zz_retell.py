"""A run of the history, judged again: an engine of the same settings, fed the same, tells the same or is another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from memwatch.app.zz_judge import Settings
from memwatch.core.events import Notice
from memwatch.errors import ConfigError
from memwatch.history import stored_runs
from memwatch.history.stored_runs import PastRun, PastWatch
from memwatch.system import serialization

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
        for event in engine.worth_feeding(told):
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
