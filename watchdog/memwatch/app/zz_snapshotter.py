"""Snapshots that are asked for while a watch goes on, each in a short-lived process of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from memwatch.core.events import Event, SnapshotTaken
from memwatch.system import serialization
from memwatch.system.child_process import Errand

SECONDS = 300.0  # after which one is ended
_CODE = "from memwatch.cli.process_snapshot import serve; serve()"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the other process is told."""

    pid: int
    label: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What it answers."""

    path: str = ""
    reason: str = ""  # why there is none


class Snapshotter:
    """One at a time. A source of events: what became of it."""

    name = "snapshot"

    def __init__(self, pid: int, code: str = _CODE) -> None:
        self._pid, self._code = pid, code
        self._under_way: tuple[str, float, Errand] | None = None
        self._failed: list[tuple[str, Outcome]] = []

    def begin(self) -> None:
        """Take one now, unless one is being taken; it is called after the time of day."""
        if self._under_way is not None:
            return
        label = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            errand = Errand(self._code, serialization.to_json(Wanted(self._pid, label)))
        except OSError as error:
            self._failed.append((label, Outcome(reason=f"no process can be started: {error}")))
        else:
            self._under_way = label, time.monotonic(), errand

    def poll(self, now: float) -> Sequence[Event]:
        """What has ended since."""
        ended, self._failed = self._failed, []
        if self._under_way is not None:
            label, began, errand = self._under_way
            status = errand.status()
            if status is not None or time.monotonic() - began > SECONDS:
                ended.append((label, _outcome(status, errand.answer())))
                self.close()
        return [SnapshotTaken(now, label, outcome.path, outcome.reason) for label, outcome in ended]

    def close(self) -> None:
        """End what goes on."""
        if self._under_way is not None:
            self._under_way[2].end()
            self._under_way = None


def _outcome(status: int | None, answer: bytes) -> Outcome:
    try:
        return serialization.from_json(answer, Outcome)
    except serialization.ShapeError:
        how = f"it took more than {SECONDS:g} s" if status is None else f"it ended with status {status}"
        return Outcome(reason=how)
