"""What is known of the trainer's checkpoints: how long one takes, how often they come, whether one is being written."""

from __future__ import annotations

import re
from collections import deque

from memwatch.core.robust_statistics import median

DURATIONS_KEPT = 5  # the longest of so many latest measurements counts: being late costs the run, being early seconds
HABIT_SAVES = 3  # saves that must have been seen before the next is expected
HABIT_SPREAD = 0.5  # intervals that differ from their median by more than this share are no habit
OWN_SAVE_OVERDUE_SHARE = 0.25  # a save that is late by so much of its interval is not waited for
WRITING_TIMEOUT_SECONDS = 120.0  # a "writing" without its "saved" is over after this, or after 4 checkpoint times
SLOW_SECONDS = 900.0  # ... but where both name the same file it was one save, of up to so many seconds
NAME = re.compile(r"[\w/-]*[./][\w./-]*\w")  # of a file, as a line has it
ECHO_SECONDS = 10.0  # log and files tell of the same save within this: a file must be still, folders are read slowly
FILES = "file"  # the witness whose "saved" comes when the files have been still for a while
UNKNOWN_SECONDS = 30.0  # assumed for a trainer of which nothing is known
ASSUMED_SHARE = 0.25  # of a generation: always enough on recorded trainers
ASSUMED_BOUNDS = (5.0, 600.0)


class CheckpointTracker:
    """Told of writing and saved states; no clock."""

    def __init__(self) -> None:
        self.saved_t: float | None = None
        self._measured: deque[float] = deque(maxlen=DURATIONS_KEPT)
        self._intervals: deque[float] = deque(maxlen=DURATIONS_KEPT)
        self._writing_t: float | None = None
        self._writing_seen_t = 0.0
        self._is_old = False
        self._names: frozenset[str] = frozenset()  # of files, in what told that it is being written
        self._witness = ""
        self._echoed = False
        self.is_writing_duplicate = (
            False  # what is being written has just been called saved by another witness, it seems
        )

    def record_writing(self, t: float, witness: str = "", said: str = "", is_old: bool = False) -> None:
        """A checkpoint is being written, as was `said`; said again after long silence, it is another one.

        `is_old`: nobody knows since when.
        """
        if self._writing_t is None or t - self._writing_seen_t > WRITING_TIMEOUT_SECONDS:
            self._writing_t, self._names, self._is_old = t, frozenset(NAME.findall(said)), is_old
            self.is_writing_duplicate = witness != self._witness and self._is_fresh(t)
        self._writing_seen_t = t

    def is_duplicate(self, t: float, witness: str) -> bool:
        """This "saved" is another witness ("log", "file") of the save that is known already. Asked once for each."""
        if self._echoed or witness == self._witness or (self._writing_t is not None and not self.is_writing_duplicate):
            return False
        self._echoed = self._is_fresh(t)
        if self._echoed:
            self._writing_t = None
        return self._echoed

    def _is_fresh(self, t: float) -> bool:
        return self.saved_t is not None and t - self.saved_t <= ECHO_SECONDS

    def record_saved(self, t: float, witness: str = "", seconds: float | None = None, said: str = "") -> float | None:
        """A checkpoint is complete; the seconds it took, as its witness says or since its beginning was told."""
        self._witness, self._echoed = witness, False
        took = seconds
        if took is None and witness != FILES and self._writing_t is not None and self._is_same(t, said):
            took = t - self._writing_t
        if took is not None:
            self.record_duration(took)
        if self.saved_t is not None and t > self.saved_t and (took is None or t - took > self.saved_t):
            self._intervals.append(t - self.saved_t)
        self.saved_t, self._writing_t = t, None
        return took

    def _is_same(self, t: float, said: str) -> bool:
        """What is complete is what was seen to begin."""
        if self._is_old:
            return False
        silent = t - self._writing_seen_t
        is_named = silent <= SLOW_SECONDS and not self._names.isdisjoint(NAME.findall(said))
        return is_named or silent <= max(WRITING_TIMEOUT_SECONDS, 4 * self._longest)

    @property
    def _longest(self) -> float:
        return max(self._measured, default=0.0)

    def record_duration(self, seconds: float) -> None:
        """A checkpoint was seen to need so long."""
        self._measured.append(seconds)

    def begin_attempt(self) -> None:
        """A new trainer process: nothing is being written; what was learned stays."""
        self._writing_t = None
        self._intervals.clear()

    def is_writing(self, t: float, seconds: float) -> bool:
        """A checkpoint is being written; one that was never reported complete is forgotten in time."""
        if self._writing_t is None:
            return False
        return t - self._writing_seen_t <= max(WRITING_TIMEOUT_SECONDS, 4 * seconds)

    def duration_estimate(self, configured: float | None, generation_seconds: float | None) -> tuple[float, str]:
        """Seconds that a checkpoint is taken to need, and where that comes from."""
        if configured is not None:
            return configured, "configured"
        if self._measured:
            return self._longest, "measured"
        if generation_seconds is None:
            return UNKNOWN_SECONDS, "assumed"
        low, high = ASSUMED_BOUNDS
        return min(max(ASSUMED_SHARE * generation_seconds, low), high), "assumed"

    @property
    def own_save_interval_seconds(self) -> float | None:
        """Seconds between the trainer's own saves; None while no habit is known."""
        if len(self._intervals) < HABIT_SAVES - 1:
            return None
        usual = median(self._intervals)
        regular = all(abs(i - usual) <= HABIT_SPREAD * usual for i in self._intervals)
        return usual if regular else None

    def seconds_until_own_save(self, t: float) -> float | None:
        """Seconds until the next save by habit (0 when it should come at any moment); None: none is expected."""
        interval = self.own_save_interval_seconds
        if interval is None or self.saved_t is None:
            return None
        due = self.saved_t + interval - t
        return max(due, 0.0) if due > -OWN_SAVE_OVERDUE_SHARE * interval else None
