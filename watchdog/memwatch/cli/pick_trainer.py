"""`memwatch` without a trainer: a list of those that run here, of which a key on the terminal chooses one."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence

from memwatch.core.text_and_units import format_bytes, format_duration, printable
from memwatch.errors import ConfigError, ExitCode, SourceError
from memwatch.outputs.terminal.row_picker import choose_row
from memwatch.sources.target.find_process import OPTIONS, RunningTrainer, running_trainers

TITLE = "Which trainer? Its key watches it, q leaves."
MOST_LISTED = 9  # in an error (chosen)
HEADS = ("pid", "memory", "growth", "age", "gpu", "command")


def pick_trainer() -> int:
    """Watch the trainer that is chosen; ConfigError with the list where nobody can choose."""
    shown = _RunningTrainers()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("no trainer is named", _hint(shown.read()))
    try:
        chosen = choose_row(TITLE, HEADS, shown.read)
    except SourceError as error:  # in the background of a shell
        raise ConfigError("no trainer is named", _hint(shown.read())) from error
    if chosen is None:
        return ExitCode.STOPPED
    arguments = [*sys.argv[1:], "--pid", str(shown.trainers[chosen].pid)]
    print(f"memwatch {' '.join(arguments)}", flush=True)
    # A fresh process: the search and its table have taken memory that a watch does not need.
    os.execv(sys.executable, [sys.executable, "-m", "memwatch", *arguments])  # noqa: S606 - no shell is wanted


def _hint(rows: Sequence[Sequence[str]]) -> str:
    hint = f"give one of {OPTIONS}; or use memwatch run"
    if not rows:
        return hint
    listed = "\n".join(f"  pid {'  '.join(filter(None, row))}" for row in rows[:MOST_LISTED])
    return f"{hint}\nas in: memwatch --pid {rows[0][0]}; these run here:\n{listed}"


class _RunningTrainers:
    """The rows of the table, with the growth since the last look."""

    def __init__(self) -> None:
        self.trainers: list[RunningTrainer] = []
        self._before: Mapping[int, tuple[float, int]] = {}  # by PID: when, and bytes then

    def read(self) -> list[tuple[str, ...]]:
        now = time.monotonic()
        self.trainers = running_trainers()
        rows = [self._row(one, now) for one in self.trainers]
        self._before = {one.pid: (now, one.used_bytes) for one in self.trainers}
        return rows

    def _row(self, one: RunningTrainer, now: float) -> tuple[str, ...]:
        growth = ""
        if one.pid in self._before:
            then, used = self._before[one.pid]
            growth = f"{format_bytes((one.used_bytes - used) / max(now - then, 1e-3), signed=True)}/s"
        return (
            str(one.pid),
            format_bytes(one.used_bytes),
            growth,
            "" if one.age_seconds is None else format_duration(one.age_seconds),
            ",".join(f"gpu{number}" for number in one.gpus),
            printable(one.command, 200),
        )
