"""The trainer's checkpoints: how long one takes, how often it saves by itself, whether one is being written."""

from __future__ import annotations

import re
from collections import deque

from memwatch.core.robust_statistics import median

DURATIONS_KEPT = 5  # The longest of these latest ones counts: to be late costs the run, to be early some seconds.
HABIT_SAVES = 3  # The next save is expected after this many saves (chosen: two intervals to compare).
HABIT_SPREAD = 0.5  # Intervals that differ from their median by more than this share are not regular (chosen).
OWN_SAVE_OVERDUE_SHARE = 0.25  # A save that is late by this share of its interval is not waited for (chosen).
WRITING_TIMEOUT_SECONDS = 120.0  # A "writing" without its "saved" teaches nothing after this or 4 checkpoint times.
HOLD_TIMES = 4.0  # A save is held to last this many times as long as those before it, at most (chosen).
HOLD_LEAST_SECONDS = 10.0  # The same, at least: files are looked at every 5 s (chosen).
SLOW_SECONDS = 900.0  # The same, where "writing" and "saved" name the same file (chosen).
ECHO_SECONDS = 10.0  # Log and files report one save within this: files must be unchanged, and folders are read slowly.
UNKNOWN_SECONDS = 30.0  # The duration that is assumed before the first generation (chosen).
ASSUMED_SHARE = 0.25  # The assumed duration in generations: always enough on recorded trainers.
END_SECONDS = 1.0  # that a trainer takes to end that saves nothing when it is interrupted (chosen).
ASSUMED_BOUNDS = (5.0, 600.0)  # Seconds between which the assumed duration is kept (chosen).
FILES = "file"  # the witness that reports "saved" when the files have not changed for a while
FILE_NAME = re.compile(r"[\w/-]*[./][\w./-]*\w")  # within a line of the log


class CheckpointTracker:
    """Learns from "writing" and "saved" events how the trainer saves. All times are seconds; it has no clock."""

    def __init__(self) -> None:
        self.saved_t: float | None = None
        self.saves_on_signal: bool | None = None  # False: an interrupt ends the trainer, and nothing is saved
        self._measured: deque[float] = deque(maxlen=DURATIONS_KEPT)
        self._intervals: deque[float] = deque(maxlen=DURATIONS_KEPT)
        self._writing_t: float | None = None
        self._writing_seen_t = 0.0
        self._is_in_files = False  # the files show that it is being written, not the log alone
        self._is_old = False
        self._names: frozenset[str] = frozenset()  # of files, in the line that reported the writing
        self._witness = ""
        self._echoed = False
        self.is_writing_duplicate = False  # another witness has just reported this save as complete, it seems

    def record_writing(self, t: float, witness: str = "", line: str = "", is_old: bool = False) -> None:
        """Record that a checkpoint is being written, as `line` of the log shows; after a long silence it is a new one.

        `is_old`: it was begun at an unknown time before the watch. A log is read late: what it says of a save that the
        files have just shown to be complete is of that save.
        """
        if witness != FILES and self._writing_t is None and self._witness == FILES and self._is_just_saved(t):
            self.is_writing_duplicate = True
            return
        if self._writing_t is None or t - self._writing_seen_t > WRITING_TIMEOUT_SECONDS:
            self._writing_t, self._names, self._is_old = t, frozenset(FILE_NAME.findall(line)), is_old
            self.is_writing_duplicate = witness != self._witness and self._is_just_saved(t)
            self._is_in_files = False
        self._writing_seen_t = t
        self._is_in_files = self._is_in_files or witness == FILES

    def record_dropped(self) -> None:
        """The files that were being written are no checkpoint, or gone."""
        if self._is_in_files:
            self._writing_t = None

    def is_duplicate(self, t: float, witness: str) -> bool:
        """Whether this "saved" is another witness ("log", "file") of the known save; call it once for each."""
        if witness != self._witness and self.saved_t is not None and t <= self.saved_t:
            if self.is_writing_duplicate:
                self._writing_t = None
            return True  # files show a save late: the log has reported this one, or a later one
        if self._echoed or witness == self._witness or (self._writing_t is not None and not self.is_writing_duplicate):
            return False
        self._echoed = self._is_just_saved(t)
        if self._echoed:
            self._writing_t = None
        return self._echoed

    def _is_just_saved(self, t: float) -> bool:
        return self.saved_t is not None and t - self.saved_t <= ECHO_SECONDS

    def record_saved(self, t: float, witness: str = "", seconds: float | None = None, line: str = "") -> float | None:
        """Record a complete checkpoint; return the seconds it took, if its witness or its "writing" shows them."""
        self._witness, self._echoed = witness, False
        took = seconds
        if took is None and witness != FILES and self._writing_t is not None and self._is_same(t, line):
            took = t - self._writing_t
        if took is not None:
            self.record_duration(took)
        if self.saved_t is not None and t > self.saved_t and (took is None or t - took > self.saved_t):
            self._intervals.append(t - self.saved_t)
        self.saved_t, self._writing_t = t if self.saved_t is None else max(t, self.saved_t), None
        return took

    def _is_same(self, t: float, line: str) -> bool:
        """Whether the checkpoint that is complete is the one that was being written."""
        if self._is_old:
            return False
        silent = t - self._writing_seen_t
        is_named = silent <= SLOW_SECONDS and not self._names.isdisjoint(FILE_NAME.findall(line))
        return is_named or silent <= max(WRITING_TIMEOUT_SECONDS, 4 * max(self._measured, default=0.0))

    def record_duration(self, seconds: float) -> None:
        self._measured.append(seconds)

    def begin_attempt(self) -> None:
        """Begin with a new trainer process, which writes nothing yet; durations stay."""
        self._writing_t = None
        self._intervals.clear()

    def is_writing(self, t: float, seconds: float) -> bool:
        """Whether a checkpoint is being written at `t`; one takes `seconds`, and is given up after four times that.

        Before one was measured, it is believed as long as the files show it. Each line of the log counts anew.
        """
        if self._writing_t is None:
            return False
        if self._is_in_files and not self._measured:
            return t - self._writing_seen_t <= WRITING_TIMEOUT_SECONDS
        since_t = self._writing_t if self._is_in_files else self._writing_seen_t
        return t - since_t <= max(HOLD_LEAST_SECONDS, HOLD_TIMES * seconds)

    def duration_estimate(self, configured: float | None, generation_seconds: float | None) -> tuple[float, str]:
        """Estimate the seconds of a checkpoint; return them with the origin of the estimate."""
        if configured is not None:
            return configured, "configured"
        if self._measured:
            return max(self._measured), "measured"
        if self.saves_on_signal is False:
            return END_SECONDS, "assumed"
        if generation_seconds is None:
            return UNKNOWN_SECONDS, "assumed"
        low, high = ASSUMED_BOUNDS
        return min(max(ASSUMED_SHARE * generation_seconds, low), high), "assumed"

    @property
    def own_save_interval_seconds(self) -> float | None:
        """Seconds between the trainer's own saves; None while they are not regular."""
        if len(self._intervals) < HABIT_SAVES - 1:
            return None
        usual = median(self._intervals)
        regular = all(abs(i - usual) <= HABIT_SPREAD * usual for i in self._intervals)
        return usual if regular else None

    def seconds_until_own_save(self, t: float) -> float | None:
        """Seconds until the trainer's next own save (0 when it is due); None when it is not expected."""
        interval = self.own_save_interval_seconds
        if interval is None or self.saved_t is None:
            return None
        due = self.saved_t + interval - t
        return max(due, 0.0) if due > -OWN_SAVE_OVERDUE_SHARE * interval else None
