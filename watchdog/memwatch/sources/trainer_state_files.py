"""Follows the states that Hugging Face's Trainer writes with its checkpoints: the step, and the last one.

out/checkpoint-500/trainer_state.json: {"epoch": 2.0, "global_step": 500, "log_history": [...], "max_steps": 1250, ...}
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from memwatch.core.events import Event, GenerationSeen
from memwatch.core.text_and_units import printable
from memwatch.errors import SourceError

STATE_FILE = "trainer_state.json"
CHECK_SECONDS = 5.0  # between two looks for a newer one: a checkpoint takes about as long (chosen)
_CHECKPOINT = "checkpoint-"  # begins the name of each checkpoint's folder
_PART_BYTES = 1 << 16  # of its beginning and its end: between them is the history of the losses
_FIELD = re.compile(rb'^  "(global_step|max_steps)": (\d{1,18})\b', re.MULTILINE)


class TrainerStateFiles:
    """A source of events: the step of the latest state that lies in one folder, or in its checkpoints."""

    def __init__(self, path: Path | str, name: str = "log") -> None:
        """`path`: one of the states."""
        self.name, self.paths = name, [Path(path)]
        self.unit: str | None = None  # "step", once a state was read
        self.catching_up = False  # each state tells all
        folder = Path(path).parent
        self._folder = folder.parent if folder.name.startswith(_CHECKPOINT) else folder
        self._read_t = 0.0  # when the latest state that was read was written
        self._check_t = float("-inf")
        self._step: int | None = None

    def poll(self, now: float) -> Iterable[Event]:
        """Return the step of a new state; SourceError when there is none, or it is none of a Trainer."""
        if now < self._check_t:
            return ()
        self._check_t = now + CHECK_SECONDS
        written, path = max(self._states(), default=(0.0, None))
        if path is None:
            raise SourceError(f"there is no {printable(str(self.paths[0]))} (any more)", "name a log with --log")
        if written <= self._read_t:
            return ()
        (step, total), was_old, known = _read(path), self.unit is None, self._step
        self._read_t, self.unit, self._step = written, "step", step
        if step == known:
            return ()
        return (GenerationSeen(now, step, total=total, unit="step", at="end", before_watch=was_old),)

    def close(self) -> None:
        """Nothing: no file stays open."""

    def _states(self) -> Iterable[tuple[float, Path]]:
        for path in (self._folder / STATE_FILE, *self._folder.glob(f"{_CHECKPOINT}*/{STATE_FILE}")):
            with suppress(OSError):  # a checkpoint that the Trainer removes, for a newer one
                yield path.stat().st_mtime, path


def _read(path: Path) -> tuple[int, int | None]:
    """Return the step of a state and the last step; None for one without end."""
    try:
        with path.open("rb") as file:
            text = file.read(_PART_BYTES)
            file.seek(max(len(text), os.fstat(file.fileno()).st_size - _PART_BYTES))
            text += file.read(_PART_BYTES)
    except OSError as error:
        raise SourceError(f"{printable(str(path))}: {error.strerror}", "name a log with --log") from error
    found = {name: int(value) for name, value in _FIELD.findall(text)}
    if b"global_step" not in found:
        raise SourceError(f"{printable(str(path))} is no state of a Trainer, or not whole", "name a log with --log")
    return found[b"global_step"], found.get(b"max_steps") or None
