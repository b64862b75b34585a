"""Peaks that not every generation has: a checkpoint or a validation every few generations."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from memwatch.core.shapes import Shape, median
from memwatch.core.trend import Model

REMEMBERED = 48  # generations
RARE_SHARE = 0.4  # peaks in more generations than this are the usual shape


@dataclass(frozen=True, slots=True)
class _Peak:
    ordinal: int
    excess: float  # bytes above the generation's level
    part: float  # where in the generation


class Peaks:
    """The highest excess of each of the latest generations, and the rhythm of those that stand out."""

    def __init__(self) -> None:
        self._all: deque[_Peak] = deque(maxlen=REMEMBERED)
        self._rare: list[_Peak] = []

    def add(self, shape: Shape) -> None:
        """A generation is complete."""
        slot = max(range(len(shape.highs)), key=shape.highs.__getitem__)
        self._all.append(_Peak(int(shape.ordinal), shape.peak_excess, (slot + 0.5) / len(shape.highs)))
        excesses = [p.excess for p in self._all]
        rare = self._beyond(_bound(excesses, shape.level))
        if len(rare) > RARE_SHARE * len(self._all) or not rare:  # every second one, perhaps: the calmer half tells
            rare = self._beyond(_bound(sorted(excesses)[: (len(excesses) + 1) // 2], shape.level))
            gaps = [b.ordinal - a.ordinal for a, b in pairwise(rare)]
            if any(gap % min(gaps) for gap in gaps):  # one that fell between two samples leaves a double gap
                rare = []
        self._rare = rare

    def _beyond(self, bound: float) -> list[_Peak]:
        return [p for p in self._all if p.excess > bound and p.ordinal > 0]

    def is_rare(self, shape: Shape) -> bool:
        """The generation has a peak that most have not."""
        return any(p.ordinal == shape.ordinal for p in self._rare)

    def meets(self, model: Model, limit: float, now_x: float, errors: float = 0.0) -> float:
        """The x at which the next such peak meets the limit, if they come in a rhythm; else infinity.

        `errors`: the model's slope is off by so many standard errors.
        """
        if len(self._rare) < 2:
            return math.inf
        gaps = [b.ordinal - a.ordinal for a, b in pairwise(self._rare)]
        every = int(median([float(g) for g in gaps]))
        last = self._rare[-1]
        when = model.when(limit - median([p.excess for p in self._rare]), errors)
        if math.isinf(when) or every < 1:
            return math.inf
        times = max(1, math.ceil((max(when, now_x - last.part) - last.ordinal) / every - 1e-9))
        return last.ordinal + times * every + last.part


def _bound(excesses: Sequence[float], level: float) -> float:
    """What stands out among these."""
    usual = median(excesses)
    around = 1.4826 * median([abs(e - usual) for e in excesses])
    return usual + max(6.0 * around, 0.5 * usual, 0.01 * abs(level))
