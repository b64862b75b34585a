"""The next minutes: how likely memory meets the limit, as each of the latest generations would go on from here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from memwatch.core.forecast.generation_profile import LATE_PARTS, Outline
from memwatch.core.forecast.periodic_peaks import Beat
from memwatch.core.forecast.zz_rises import Rises
from memwatch.core.robust_statistics import variance

LIKENESS = 2.0  # generations: what has been is taken for what may be, give or take its deviation times √(this / number)
UNSURE = 0.02  # of the growth of a generation: no line is known better
NOVEL = 0.1  # of what memory is above all that was seen: how far it goes on is not known better
LOGISTIC = math.pi / math.sqrt(3.0)  # standard deviations of the logistic distribution in its scale
LEAST_WIDTH = 1.0  # bytes
NO_CHANCE = 7.0  # widths beyond the highest: 3 in a million
AHEAD = 2  # generations that are looked ahead at most
FARTHEST = 50.0  # scales: beyond it there is no chance


@dataclass(frozen=True, slots=True)
class Need:
    """What a checkpoint takes."""

    seconds: float  # until it is complete
    bytes: float = 0.0  # of memory meanwhile


@dataclass(frozen=True, slots=True)
class Near:
    """Memory where it is now, above or below its course, and how generations (or blocks of time) usually go."""

    room: float  # bytes from the course's line to the limit
    aside: float  # bytes by which memory is now above the line, or below
    slope: float  # bytes a second
    slope_error: float  # standard error of it
    noise: float  # standard deviation of the line, bytes
    outline: Outline
    part: float  # of the open generation that is over
    seconds: float  # of a generation, or of the block of time that stands for one
    peaks: Beat | None = None  # that not every generation has
    due_seconds: float = math.inf  # until the next of them, where they have a rhythm
    peak_seconds: float = math.inf  # from one to the next
    headroom: float = math.inf  # bytes from where memory is to the limit
    rises: Rises | None = None  # from where it is; of a run without markers

    def odds(self, seconds: float) -> float:
        """Probability that the limit is met within so many seconds."""
        return self.too_late(0.0, Need(seconds))

    def too_late(self, wait: float, need: Need) -> float:
        """Probability that what is needed is not to be had any more after so many seconds, then or later."""
        by_peak = self._peak_odds(wait + need.seconds)
        return 1.0 - (1.0 - self._usual_odds(wait, need)) * (1.0 - by_peak)

    def _usual_odds(self, wait: float, need: Need) -> float:
        """As generations like those seen go on."""
        outline, room, seconds = self.outline, self.room - self.aside, wait + need.seconds
        highest = outline.top + need.bytes + self.slope * seconds
        if room - highest > NO_CHANCE * self._width(outline.spread, len(outline.seen)):
            return 0.0
        tops = self._tops(wait, need)
        odds = _share_beyond(tops, room, self._width(min(variance(tops), outline.spread), len(tops)))
        if len(outline.highs) > 1:
            return odds
        level = _share_beyond([self.slope * seconds], room, self._width(0.0, 1))
        high = odds * min(1.0, seconds / self.seconds)  # it comes anywhere in the block
        met = min(max(level, high), self._rise_odds(seconds, self.headroom))
        if need.bytes <= 0.0:
            return met
        full = _share_beyond([need.bytes + self.slope * wait], room, self._width(0.0, 1))
        return max(met, min(full, self._rise_odds(wait, self.headroom - need.bytes)))

    def usual_room(self, seconds: float) -> float:
        """Bytes that are left where memory is as high as ever in this part of a generation, and so many seconds on.

        Infinite where parts are not known.
        """
        size = len(self.outline.highs)
        if size == 1:
            return math.inf
        first = int(self.part * size) - LATE_PARTS
        last = int((self.part + min(seconds / self.seconds, 1.0)) * size) + LATE_PARTS
        slots = {k % size for k in range(first, last + 1)}
        return self.room - max(one[k] for one in self.outline.seen for k in slots)

    def _rise_odds(self, seconds: float, room: float) -> float:
        """That memory rises by so much from where it is, as it did from other places."""
        if self.rises is None:
            return 1.0
        span = self.rises.within(seconds)
        width = max(math.sqrt(span.variance * LIKENESS / span.apart), LEAST_WIDTH)
        rises = span.highest(room - NO_CHANCE * width)
        return _share_beyond(rises, room, width) * len(rises) / len(span.rises) if rises else 0.0

    def _tops(self, wait: float, need: Need) -> Sequence[float]:
        """The room above the line that each of the generations that were seen would leave too late, going on from here.

        A need is met from a part on, after the wait, in which there is room for it, if none until it is complete is
        higher than the room: the part that asks for the least room counts.
        """
        size = len(self.outline.highs)
        if size == 1:
            return [high + self.slope * (wait + need.seconds) for (high,) in self.outline.seen]
        first = int(self.part * size)
        last = int((self.part + (wait + need.seconds) / self.seconds) * size - 0.5)  # whose middle is within the time
        last = min(max(first, last), first + AHEAD * size)
        later = size if need.bytes > 0.0 else 0
        begin = min(int((self.part + wait / self.seconds) * size), last)
        ahead = range(first, last + later + 1)
        grown = [self.slope * max(0.0, ((k + 0.5) / size - self.part) * self.seconds) for k in ahead]
        slots = [k % size for k in ahead]
        paths = ([seen[k] + more for k, more in zip(slots, grown, strict=True)] for seen in self.outline.seen)
        if not later:
            return [max(path) for path in paths]
        return [_least_room(path, begin - first, last - begin, need.bytes) for path in paths]

    def _peak_odds(self, seconds: float) -> float:
        """That one of the rare peaks comes in that time, and is too high."""
        peaks = self.peaks
        if peaks is None or (peaks.regular and self.due_seconds > seconds):
            return 0.0
        wait, chance = self.due_seconds, 1.0
        if not peaks.regular:  # it may come at any time
            wait, chance = seconds, -math.expm1(-seconds / self.peak_seconds)
        tops = [high + self.slope * wait for high in peaks.highs]
        return chance * _share_beyond(tops, self.room, self._width(variance(tops), len(tops)))

    def _width(self, spread: float, count: int) -> float:
        """Standard deviation around each of so many tops."""
        novel = NOVEL * max(self.aside, 0.0)
        unsure = self.noise**2 + novel**2 + (self.slope_error**2 + (UNSURE * self.slope) ** 2) * self.seconds**2
        return max(math.sqrt(spread * LIKENESS / count + unsure), LEAST_WIDTH)


def _least_room(path: Sequence[float], begin: int, lasts: int, needed: float) -> float:
    """What a need of so many bytes and parts asks for that is met from one of the parts from `begin` on."""
    highest = list(accumulate(path, max))
    return min(max(path[k] + needed, highest[k + lasts]) for k in range(begin, len(path) - lasts))


def _share_beyond(tops: Sequence[float], room: float, width: float) -> float:
    """Probability that the next one is beyond the room: around each of the tops, the share that is."""
    scale = LOGISTIC / width
    return sum(1.0 / (1.0 + math.exp(min(scale * (room - top), FARTHEST))) for top in tops) / len(tops)
