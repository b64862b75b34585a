"""The generations of one process, as the markers tell them: the open one, the shapes of those that are over."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from memwatch.core.peaks import Peaks
from memwatch.core.shapes import (
    MIN_SECONDS,
    SLOTS,
    Bin,
    Bins,
    Shape,
    add_shape,
    median,
    shape_of,
    slots_of,
    trimmed_mean,
)
from memwatch.core.trend import Point

GENERATION_BINS = 64  # time bins of the open generation
USUAL = 8  # latest generations that say how a generation usually goes
RECENT = 5  # latest generations that say how long one lasts
LIKENESS = 3  # latest generations that the open one is compared with
SHORT_SECONDS = 2.0  # generations shorter than this, or with ...
FEW_SAMPLES = 3  # ... fewer samples than this, are taken together: their shape is not seen
LOST_AFTER = 6.0  # markers are lost when a generation lasts this many times the longest of the usual ones


class Rhythm:
    """Generations counted by `ordinal` from 0, whatever index the program gives them; very short ones in bundles."""

    def __init__(self, index: float, start_t: float, prior_seconds: float | None) -> None:
        self.index = index
        self.start_t = start_t
        self.ordinal = 0
        self.samples = 0
        self.shapes: list[Shape] = []
        self.peaks = Peaks()
        self._prior_seconds = prior_seconds
        self._open = Bins(GENERATION_BINS)
        self._steps: deque[float] = deque(maxlen=USUAL)
        self._bundles: deque[int] = deque(maxlen=USUAL)
        self._latest = index  # marker
        self._markers = 0  # since the open bundle began

    # --- being told ---

    def observe(self, t: float, used: float) -> None:
        """A sample of the open generation."""
        self._open.add(t, used)
        self.samples += 1

    def resume(self, known: Sequence[Bin]) -> None:
        """The first marker was told late: what is known of the time since."""
        self._open.items = [replace(item) for item in known if item.start_t >= self.start_t][1 - GENERATION_BINS :]
        self._open.samples = self.samples = sum(item.count for item in self._open.items)

    def begin(self, t: float, index: float) -> None:
        """The open generation is over, the one of this index begins; markers in between may have been missed.

        A marker that is told late takes the samples since then with it.
        """
        t = max(t, self.start_t)
        step, self._latest = index - self._latest, index
        if step > 0.0:
            self._steps.append(step)
        self._markers += 1
        later = self._open.split(t)
        if self._are_short(t):
            self._open.join(later)
            return
        self._bundles.append(self._markers)
        passed = 1 if self._markers > 1 else max(1, round(step / self.step))
        shape = shape_of(self._open.items, self.start_t, t, float(self.ordinal))
        if shape is not None and passed == 1:
            add_shape(self.shapes, shape)
            self.peaks.add(shape)
        self.ordinal += passed
        self.index, self.start_t, self._open, self._markers = index, t, later, 0

    def _are_short(self, t: float) -> bool:
        """What is open is too short to stand alone, and not by accident: a late marker shortens the next generation."""
        if self.bundle == 1 and self.shapes and (self.seconds or 0.0) > 2.0 * SHORT_SECONDS:
            return False
        return t - self.start_t < SHORT_SECONDS or self._open.samples < FEW_SAMPLES

    # --- being asked ---

    @property
    def step(self) -> float:
        """By how much the index usually grows from one marker to the next."""
        return median(self._steps, 1.0)

    @property
    def bundle(self) -> int:
        """How many generations usually are taken as one."""
        return round(median(self._bundles, 1.0))

    @property
    def seconds(self) -> float | None:
        """How long a generation usually lasts; None before one is over."""
        if not self.shapes:
            return self._prior_seconds
        recent = [s.seconds for s in self.shapes[-RECENT:]]
        return median(recent[1:] if len(self.shapes) == len(recent) > 2 else recent)

    def part(self, t: float) -> float:
        """How far the open generation is: 1 for as long as usual, more when it takes longer."""
        return (t - self.start_t) / (self.seconds or MIN_SECONDS)

    def x(self, t: float) -> float:
        """Where the run is, in generations."""
        return self.ordinal + min(self.part(t), 1.0)

    def goes_on(self, t: float) -> bool:
        """A generation's length is known, and the markers have not stopped."""
        longest = max((s.seconds for s in self.shapes[-USUAL:]), default=self._prior_seconds)
        return longest is not None and t - self.start_t <= LOST_AFTER * longest

    def usual(self) -> list[Shape]:
        """The latest generations; the first is left out where others are known, it holds the warm-up."""
        usual = [s for s in self.shapes[-USUAL:] if s.count == 1] or self.shapes[-1:]
        return usual[1:] if 2 < len(usual) == len(self.shapes) else usual

    def points(self, t: float) -> list[Point]:
        """The level of each generation, the open one's as far as it can be told."""
        points = [Point(s.ordinal, s.level, float(s.count)) for s in self.shapes]
        open_point = self._open_point(t, self.usual()[-LIKENESS:])
        return points if open_point is None else [*points, open_point]

    def _open_point(self, t: float, like: Sequence[Shape]) -> Point | None:
        """The level of the open generation from those of its slots that are over, each compared with its like."""
        length = max(self.seconds or MIN_SECONDS, t - self.start_t)
        over = min(SLOTS, int((t - self.start_t) / length * SLOTS))
        if over < SLOTS // 4 or not like or not self._open.items:
            return None
        means, _ = slots_of(self._open.items, self.start_t, length, over)
        levels = [means[k] - sum(s.means[k] - s.level for s in like) / len(like) for k in range(over)]
        return Point(float(self.ordinal), trimmed_mean(levels), over / SLOTS)

    def unevenness(self) -> float:
        """Robust deviation of the lengths of the latest generations, as a share of a generation."""
        return deviation([s.seconds for s in self.shapes[-USUAL:]]) / (self.seconds or MIN_SECONDS)


def deviation(values: Sequence[float]) -> float:
    """Robust standard deviation; 0 of fewer than three."""
    if len(values) < 3:
        return 0.0
    middle = median(values)
    return 1.4826 * median([abs(v - middle) for v in values])
