"""Chooses which log to follow where several may be the trainer's: those of its ranks, or those found without --log."""

from __future__ import annotations

import glob
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from memwatch.core.events import Event, SourceChanged
from memwatch.core.text_and_units import printable
from memwatch.errors import ConfigError, SourceError
from memwatch.sources.log.log_source import LogSource
from memwatch.sources.log.log_tail import STDIN
from memwatch.sources.log.marker_presets import Preset
from memwatch.sources.progress.progress_files import EVENT_FILE, STATE_FILE, TensorBoardEvents, TrainerStateFiles

CHECK_SECONDS = 5.0  # between two looks at which logs there are: the start of a rank takes as long (chosen)
# A log without a marker for so long is left for the next one, and one that is not written for so long for one that was
# created since: a generation may take longer, so that this decides only between several (chosen).
PATIENCE_SECONDS = 60.0
_SEARCHED, _LISTED = 10_000, 5  # files of a folder that are looked at, and that its error names (chosen)
CoarseLog = TensorBoardEvents | TrainerStateFiles  # that tells less than the trainer's memory does
LOG_NAME = re.compile(r"(?:^|\.)(?:log|out|err|txt|csv|jsonl)\d*$", re.IGNORECASE)


def require_one_log(paths: Sequence[str]) -> None:
    """ConfigError for a folder, and for standard input beside files."""
    for path in paths:
        if Path(path).is_dir():
            inside = islice(Path(path).rglob("*"), _SEARCHED)
            files = [file for file in inside if LOG_NAME.search(file.name) and os.path.isfile(file)]  # noqa: PTH113
            files.sort(key=_written_t, reverse=True)
            there = ", ".join(printable(str(file)) for file in files[:_LISTED]) or "it has none"
            hint = f"name a file in it ({there}), or a quoted pattern, as '{printable(path).rstrip('/')}/rank*.log'"
            raise ConfigError(f"log {printable(path)} is a folder", hint)
    if STDIN in paths and len(paths) > 1:
        raise ConfigError("log -: standard input is given beside other logs", "give --log - alone")


def require_files(paths: Sequence[str]) -> None:
    """As require_one_log, where standard input is not the trainer's log: a service's, or the trainer's own."""
    require_one_log(paths)
    if STDIN in paths:
        raise ConfigError("log -: standard input is read by memwatch --pid alone", "name the file of the log")


def is_pattern(path: str) -> bool:
    """Whether it stands for files that match it, such as logs/rank*.log."""
    return glob.has_magic(path) and not Path(path).exists()


def named_logs(paths: Iterable[str]) -> list[Path]:
    """Return the files that there are of the paths and patterns, in their order; those of a pattern by number."""
    found = {}
    for path in paths:
        names = glob.glob(path, recursive=True) if is_pattern(path) else [path]  # noqa: PTH207 - the path is whole
        found.update(dict.fromkeys(sorted(names, key=_natural_order)))
    return [Path(name) for name in found if Path(name).is_file()]


def is_coarse_log(path: Path | str) -> bool:
    """Whether it is no text, but a file of another kind that tells a step now and then."""
    return Path(path).name.startswith((EVENT_FILE, STATE_FILE))


def open_log(path: Path | str, presets: Sequence[Preset], began_t: float = -math.inf) -> LogSource | CoarseLog:
    """Open a log as what it is by its name; `began_t` as for LogSource."""
    if not is_coarse_log(path):
        return LogSource(path, presets, began_t=began_t)
    return TensorBoardEvents(path) if Path(path).name.startswith(EVENT_FILE) else TrainerStateFiles(path)


class ChosenLog:
    """Follows one log of several, as one clock needs: the first in order that is being written and has markers.

    `find` returns the logs that there are, in order of preference; it is called for `search_seconds`. A log that
    appears later is followed when the present one is not written any more. `missing` is the error while there is none.
    """

    name = "log"

    def __init__(
        self,
        find: Callable[[], Sequence[Path]],
        open_log: Callable[[Path], LogSource | CoarseLog],
        *,
        missing: str = "",
        search_seconds: float = math.inf,
    ) -> None:
        self._find, self._open_log = find, open_log
        self._missing, self._search_seconds = missing, search_seconds
        self._source: LogSource | CoarseLog | None = None
        self.path: Path | None = None
        self.paths = list(find())  # that there are
        self._began_t, self._check_t = math.inf, -math.inf
        self._leave_t = -math.inf  # when a log without markers is left
        self._known: set[Path] = set()  # when the present one was chosen
        self._without_markers: set[Path] = set()
        self._follow(self._first_choice(), self.paths)

    def poll(self, now: float) -> Iterator[Event]:
        """Yield the new events of the log; SourceError when it cannot be read, or there is none."""
        if now >= self._check_t:
            self._began_t, self._check_t = min(self._began_t, now), now + CHECK_SECONDS
            before = self.path
            self._check(now)
            if self.path != before:
                yield SourceChanged(now, self.name, True, f"following {printable(str(self.path))}")
        if self._source is not None:
            yield from self._source.poll(now)
        elif self._missing:
            raise SourceError(self._missing, "it is followed as soon as it is created")

    def read_last_text(self) -> str:
        """The last 64 KiB of the log; empty when there is none that is text."""
        return self._source.read_last_text() if isinstance(self._source, LogSource) else ""

    @property
    def is_coarse(self) -> bool:
        """It tells less than the trainer's memory does: a step now and then."""
        return isinstance(self._source, CoarseLog)

    def await_end(self) -> None:
        """Nothing: what a trainer that has ended wrote last is in the file."""

    def close(self) -> None:
        if self._source is not None:
            self._source.close()

    def _check(self, now: float) -> None:
        if now - self._began_t <= self._search_seconds:
            self.paths = list(self._find())
        if self._source is None or self.path is None:
            self._follow(self._first_choice(), self.paths)
        elif later := [path for path in self.paths if path not in self._known and self._outlasts(path, self.path)]:
            self._without_markers.clear()
            self._follow(later[0], self.paths)
        elif self._source.unit is not None or self._source.catching_up:
            return
        elif math.isinf(self._leave_t):
            self._leave_t = now + PATIENCE_SECONDS
        elif now >= self._leave_t:
            self._leave(now, self.path)

    def _leave(self, now: float, present: Path) -> None:
        """Follow the next log that has not been tried, else the first one again."""
        self._without_markers.add(present)
        untried = [path for path in self.paths if path not in self._without_markers]
        if not untried:
            self._without_markers.clear()
        self._follow([*untried, *self.paths, present][0], self._known)
        self._leave_t = now + (CHECK_SECONDS if untried else PATIENCE_SECONDS)

    def _first_choice(self) -> Path | None:
        """The first one, without those that were left off before the latest one was written."""
        latest = max(map(_written_t, self.paths), default=0.0)
        return next((path for path in self.paths if _written_t(path) >= latest - PATIENCE_SECONDS), None)

    def _outlasts(self, path: Path, other: Path) -> bool:
        return _written_t(path) > _written_t(other) + PATIENCE_SECONDS

    def _follow(self, path: Path | None, known: Iterable[Path]) -> None:
        if path is None or path == self.path:
            return
        self.close()
        self.path, self._source, self._known = path, self._open_log(path), set(known)
        self._leave_t = -math.inf


def _written_t(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _natural_order(name: str) -> str:
    """`rank10` comes after `rank2`."""
    return re.sub(r"\d+", lambda number: number[0].zfill(20), name)
