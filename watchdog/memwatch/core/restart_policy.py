"""Whether a trainer that was interrupted and saved is started again: after how many seconds, or why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from memwatch.core.events import GaveUp, Restarting
from memwatch.core.measurements import Limit
from memwatch.core.text_and_units import format_bytes, index_text

FIRST_PAUSE_SECONDS = 2.0  # The kernel and the GPU drivers need a moment to free memory (chosen).
LONGEST_PAUSE_SECONDS = 60.0  # The pause doubles with each short run up to this (chosen).
STABLE_RUN_SECONDS = 600.0  # A run of at least this long is not short: the pause begins anew (chosen).


@dataclass(frozen=True, slots=True)
class AttemptProgress:
    """The progress of one trainer process, as the program counts."""

    unit: str = "generation"
    index: float | None = None  # of the generation under way at its end; None: it printed no marker
    total: int | None = None
    own_checkpoints: int = 0  # checkpoints that it completed by itself

    @property
    def generations_left(self) -> float | None:
        return None if self.index is None or self.total is None else self.total - self.index


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How one trainer process of a run ended."""

    t: float
    seconds: float  # that it ran
    saved: bool  # memwatch interrupted it, a complete checkpoint of it is on disk, and the user did not end the run
    progress: AttemptProgress
    limit: Limit | None = None  # that memory was about to reach


def decide_restart(most: int | None, ends: Sequence[AttemptEnd], command: str) -> Restarting | GaveUp | None:
    """Decide after the last of a run's ends, given all of them; None: the run is over.

    `most`: restarts that are allowed; None: any number, as long as each makes progress.
    """
    last, restarts = ends[-1], len(ends) - 1
    before = [end.progress for end in ends[:-1]]
    if not last.saved:
        return None
    if restarts and not made_progress(before, last.progress):
        bound = f"the limit of {format_bytes(last.limit.bytes)}" if last.limit is not None else "the limit"
        why = f"{bound} is too low for this program, or it does not go on from its checkpoint"
        return GaveUp(last.t, restarts, f"{_no_gain(before, last.progress)}: {why}")
    if most is not None and restarts >= most:
        return GaveUp(last.t, restarts, "it needs another one, and --max-restarts allows no more")
    return Restarting(last.t, restarts + 1, most, pause_seconds(ends), command)


def made_progress(before: Sequence[AttemptProgress], now: AttemptProgress) -> bool:
    """Whether it came further than all before: to a later generation or, counting anew, with fewer of them left.

    To count from the start again is not progress: a trainer that never read its checkpoint does so too. For a program
    without markers, a checkpoint that it completed by itself is progress.
    """
    counted = [attempt for attempt in before if attempt.index is not None]
    if now.index is None:
        return not counted and now.own_checkpoints > 0
    best = _best_index(before, now)
    if best is None:  # the first with markers, or with markers of this unit
        return not counted or now.own_checkpoints > 0
    left = [a.generations_left for a in counted if a.unit == now.unit and a.generations_left is not None]
    return now.index > best or (now.generations_left is not None and bool(left) and now.generations_left < min(left))


def pause_seconds(ends: Sequence[AttemptEnd]) -> float:
    """Return FIRST_PAUSE_SECONDS, doubled by each further short run in a row up to LONGEST_PAUSE_SECONDS."""
    short = sum(1 for _ in takewhile(lambda end: end.seconds < STABLE_RUN_SECONDS, reversed(ends)))
    return min(FIRST_PAUSE_SECONDS * 2.0 ** min(max(short - 1, 0), 16), LONGEST_PAUSE_SECONDS)


def _no_gain(before: Sequence[AttemptProgress], now: AttemptProgress) -> str:
    best = _best_index(before, now)
    if best is None:
        return "nothing shows any progress (it names no generations, and completed no checkpoint by itself)"
    if now.index is None:
        return f"it gained no {now.unit} (it reached none, and {now.unit} {index_text(best)} before)"
    if now.index == best:
        return f"it gained no {now.unit} (it was at {now.unit} {index_text(best)} before and after)"
    return f"it gained no {now.unit} (it reached {index_text(now.index)}, and {index_text(best)} before)"


def _best_index(before: Sequence[AttemptProgress], now: AttemptProgress) -> float | None:
    return max((a.index for a in before if a.index is not None and a.unit == now.unit), default=None)
