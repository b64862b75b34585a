"""Whether a trainer that was interrupted and saved is started again: after how long, or why not any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from memwatch.core.events import GaveUp, Restarting
from memwatch.core.measurements import Limit
from memwatch.core.text_and_units import format_bytes, index_text

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 60.0  # the kernel and GPUs take a moment to free what was held
STABLE_RUN_SECONDS = 600.0  # a trainer that ran so long is started again without much ado


@dataclass(frozen=True, slots=True)
class AttemptProgress:
    """How far one trainer process came, as the program counts."""

    unit: str = "generation"
    index: float | None = None  # of the generation under way at its end; None: it named none
    total: int | None = None
    own_checkpoints: int = 0  # checkpoints that it completed by itself

    @property
    def generations_left(self) -> float | None:
        """Generations to the last; None when that is not known."""
        return None if self.index is None or self.total is None else self.total - self.index


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How one trainer process of a run ended."""

    t: float
    seconds: float  # that it ran
    saved: bool  # memwatch interrupted it, its checkpoint is complete, and nobody asked for the end of it all
    progress: AttemptProgress
    limit: Limit | None = None  # that was about to be met


def decide_restart(most: int | None, ends: Sequence[AttemptEnd], command: str) -> Restarting | GaveUp | None:
    """What follows the last of these ends, which are all of a run's, the first start's among them.

    `most`: restarts that are allowed; None: any number, as long as each gains something. None: its end is the run's.
    """
    last, restarts = ends[-1], len(ends) - 1
    if not last.saved:
        return None
    if restarts and not made_progress([end.progress for end in ends[:-1]], last.progress):
        return GaveUp(last.t, restarts, _fruitless(ends))
    if most is not None and restarts >= most:
        return GaveUp(last.t, restarts, "it needs yet another, and --max-restarts allows no more")
    return Restarting(last.t, restarts + 1, most, pause_seconds(ends), command)


def made_progress(before: Sequence[AttemptProgress], now: AttemptProgress) -> bool:
    """It came further than all before it: to a later generation or, counting anew, with fewer of them left.

    One that only begins to count again is none that gained: so does one that never read its checkpoint. Of a program
    that names no generations, a checkpoint that it completed by itself counts.
    """
    counted = [one for one in before if one.index is not None]
    if now.index is None:
        return not counted and now.own_checkpoints > 0
    best, left = (
        _best(before, now),
        [one.generations_left for one in counted if one.unit == now.unit and one.generations_left is not None],
    )
    if best is None:  # the first that names any, or by another counter
        return not counted or now.own_checkpoints > 0
    return now.index > best or (now.generations_left is not None and bool(left) and now.generations_left < min(left))


def pause_seconds(ends: Sequence[AttemptEnd]) -> float:
    """2 s, and twice as long with each short life in a row, to a minute."""
    short = sum(1 for _ in takewhile(lambda end: end.seconds < STABLE_RUN_SECONDS, reversed(ends)))
    return min(FIRST_PAUSE_SECONDS * 2.0 ** min(max(short - 1, 0), 16), LONGEST_PAUSE_SECONDS)


def _fruitless(ends: Sequence[AttemptEnd]) -> str:
    """Why there is no use in another one."""
    last = ends[-1]
    bound = f"the limit of {format_bytes(last.limit.bytes)}" if last.limit is not None else "the limit"
    why = f"{bound} is too low for this program, or it does not go on from its checkpoint"
    return f"{_no_gain([end.progress for end in ends[:-1]], last.progress)}: {why}"


def _no_gain(before: Sequence[AttemptProgress], now: AttemptProgress) -> str:
    best = _best(before, now)
    if best is None:
        return "nothing shows that it gets on (it names no generations, and completed no checkpoint by itself)"
    if now.index is None:
        return f"it gained no {now.unit} (it came to none, and to {now.unit} {index_text(best)} before)"
    if now.index == best:
        return f"it gained no {now.unit} (it was at {now.unit} {index_text(best)} before and after)"
    return f"it gained no {now.unit} (it came to {index_text(now.index)}, and to {index_text(best)} before)"


def _best(before: Sequence[AttemptProgress], now: AttemptProgress) -> float | None:
    return max((one.index for one in before if one.index is not None and one.unit == now.unit), default=None)
