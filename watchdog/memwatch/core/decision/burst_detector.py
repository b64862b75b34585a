"""The guard against bursts: growth beyond all that was used before, too fast for any forecast."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import chain, islice, pairwise, takewhile

from memwatch.core.robust_statistics import median
from memwatch.core.sample_windows import first_beyond

BURST_SAMPLES = 3  # readings that a burst is measured over: fewer, and one noisy reading is a burst
SEEN_SECONDS = 1.5  # ... and so long, or a single allocation between two close readings is a burst ...
SEEN_SHARE = 0.25  # ... unless it is already this share of the room that is left
CEILING_SECONDS = 30.0  # a burst is growth beyond what was in use before this long ago ...
REPEATED_SHARE = 0.5  # ... and beyond a later peak from which memory fell by this share of its rise since (chosen)
RATE_SECONDS = 10.0  # that its rate is measured over, where single readings are unrest
NOISE_LOOKS = 64  # readings that ordinary unrest is averaged over
NOISE_FACTOR = 3.0  # growth within so many times of it is unrest
REACTION_SECONDS = 2.0  # a burst is seen, seen again, and told to the trainer
EXHAUSTED_SHARE = 0.005  # headroom under this share of the limit, still shrinking, is none: even a write is cut short

CELLS = 8  # in the time that a checkpoint takes: four steps are half of it
CELLS_KEPT = 96  # a climb of twelve times as long
LEAST_STEPS = 4  # from cell to cell: fewer are no climb
STEADY_SHARE = 0.25  # of the usual step: a smaller one is a pause, a fall by more is the end
MOST_IN_STEP = 0.5  # of a climb's rise: more is a jump
BELIEVED = 0.5  # probability that a climb goes on to the limit

_Reading = tuple[float, int]  # time, bytes


class BurstDetector:
    """Watches one resource for growth beyond all that it used before, too fast for any forecast.

    A saw-tooth that comes near the limit and returns stays under the ceiling that it made itself; a steady use of
    95-98 % has no growth beyond its unrest.
    """

    def __init__(self) -> None:
        self._latest: deque[_Reading] = deque(maxlen=BURST_SAMPLES)
        self._recent: deque[_Reading] = deque()  # of the last CEILING_SECONDS
        self._seen = 0
        self._ceiling: int | None = None  # of all readings but the recent; the first one while there are no others
        self._unrest = 0.0

    def add_samples(self, times: Sequence[float], used: Sequence[int]) -> None:
        """Readings in order; times never go back."""
        if self._ceiling is None:
            self._ceiling = used[0]
            self._take(times[:1], used[:1])
            times, used = times[1:], used[1:]
        if times:
            self._learn_unrest(used)
            self._take(times, used)

    def _take(self, times: Sequence[float], used: Sequence[int]) -> None:
        readings = list(zip(times, used, strict=True))
        self._latest.extend(readings[-BURST_SAMPLES:])
        recent, t = self._recent, times[-1]
        recent.extend(readings)
        while recent[0][0] < t - CEILING_SECONDS:
            self._ceiling = max(self._ceiling or 0, recent.popleft()[1])

    def _learn_unrest(self, used: Sequence[int]) -> None:
        # a single jump counts as four times the usual at most, or one burst would hide the next; while there was no
        # unrest at all memory has never fallen, and what rises is beyond all before: that is growth
        usual, seen, last = self._unrest, self._seen, self._latest[-1][1]
        for now in used:
            size = float(abs(now - last))
            if size > 4 * usual and (usual > 0 or now > last):
                size = 4 * usual
            if seen < NOISE_LOOKS:
                seen += 1
            usual += (size - usual) / seen
            last = now
        self._unrest, self._seen = usual, seen

    def rate(self, headroom_bytes: int) -> float:
        """Growth in bytes/s: over the last readings if that is no mere unrest, or over the recent ones."""
        return max(self._latest_rate(headroom_bytes), self._recent_rate)

    def _latest_rate(self, headroom_bytes: int) -> float:
        """Since the latest reading from which enough was seen: readings, and time or growth."""
        if len(self._latest) < BURST_SAMPLES:
            return 0.0
        t, used = self._latest[-1]
        enough = used - SEEN_SHARE * max(headroom_bytes, 0)
        for t0, used0 in chain((self._latest[0],), islice(reversed(self._recent), BURST_SAMPLES, None)):
            if t - t0 >= SEEN_SECONDS or used0 <= enough:
                return (used - used0) / (t - t0) if t > t0 and used - used0 > NOISE_FACTOR * self._unrest else 0.0
        return 0.0

    @property
    def _recent_rate(self) -> float:
        since = self._latest[-1][0] - RATE_SECONDS if self._latest else 0.0
        readings = list(takewhile(lambda reading: reading[0] >= since, reversed(self._recent)))
        third = len(readings) // 3
        if third < BURST_SAMPLES:
            return 0.0
        (t0, used0), (t1, used1) = _middle(readings[-third:]), _middle(readings[:third])
        return max(0.0, (used1 - used0) / (t1 - t0)) if t1 > t0 else 0.0

    def threat_rate(self, headroom_bytes: int, limit_bytes: int, lead: float, usual_headroom: float) -> float:
        """Bytes/s at which the room that is left would be gone before a checkpoint is complete; 0 when it would not."""
        if self._ceiling is None or headroom_bytes >= usual_headroom or self._latest[-1][1] <= self._ceiling:
            return 0.0
        beyond = self._latest[-1][1] - max(self._ceiling, self._repeated_peak())
        is_unrest = beyond <= max(NOISE_FACTOR * self._unrest, 0.001 * limit_bytes)
        if is_unrest or not _reaches_limit(beyond, headroom_bytes):
            return 0.0
        rate, sure = self.rate(headroom_bytes), headroom_bytes - NOISE_FACTOR * self._unrest
        return rate if sure < rate * lead else 0.0

    def _repeated_peak(self) -> int:
        """The highest recent peak that the rise under way may repeat; 0: there is none."""
        used = low = self._latest[-1][1]
        highest = 0
        for _, before in reversed(self._recent):
            low = min(low, before)
            if before - low > REPEATED_SHARE * (used - low):
                highest = max(highest, before)
        return highest

    def is_exhausting(self, headroom_bytes: int, limit_bytes: int) -> bool:
        rate = self.rate(headroom_bytes)
        return rate > 0 and headroom_bytes < max(EXHAUSTED_SHARE * limit_bytes, rate * REACTION_SECONDS)


def _middle(readings: Sequence[_Reading]) -> _Reading:
    return sum(t for t, _ in readings) / len(readings), sum(used for _, used in readings) // len(readings)


def _reaches_limit(beyond_bytes: float, headroom_bytes: float) -> bool:
    """Whether growth that is so far beyond all before is believed to go on to the limit.

    What has lasted for s goes on for t more with probability s / (s + t): the Pareto prior of a duration whose scale is
    unknown (Gott, Nature 363, 1993).
    """
    return beyond_bytes >= BELIEVED * (beyond_bytes + headroom_bytes)


_Cell = tuple[float, float, int]  # its start, the mean in it, the top of all samples at its end


def _step(before: _Cell, after: _Cell) -> float:
    """Bytes/s from a cell to the next."""
    return (after[1] - before[1]) / (after[0] - before[0])


class ClimbDetector:
    """A steady climb beyond all that was used before. How long it has lasted says how long it may go on.

    Looked at in cells of time: a jump has all its rise in one of them, a climb has some in each.
    """

    def __init__(self) -> None:
        self._width = math.inf  # seconds of a cell
        self._cell: tuple[float, int, int] | None = None  # the open one: start, samples, their sum
        self._top = 0  # of all samples so far
        self._cells: deque[_Cell] = deque(maxlen=CELLS_KEPT)
        self.record = 0  # bytes: the top before the climb that is under way, or of all where there is none
        self.rate = 0.0  # bytes/s of that climb
        self.seconds = 0.0  # for which it has lasted, as far as the cells go back

    def add_samples(self, times: Sequence[float], used: Sequence[int]) -> None:
        """Add samples in order; times never go back."""
        first = 0
        while first < len(times):
            start, count, total = self._cell or (times[first], 0, 0)
            end = first_beyond(times, start, self._width, first)
            if end == first and count:
                self._cells.append((start, total / count, self._top))
                self.record, self.rate, self.seconds = self._climb()
                self._cell = None
                continue
            end = max(end, first + 1)
            more = used[first:end]
            self._top = max(self._top, *more)
            self._cell = start, count + len(more), total + sum(more)
            first = end

    def _climb(self) -> tuple[int, float, float]:
        """The record before the climb under way, its rate and seconds; the top of all and 0 where there is none."""
        cells = list(self._cells)
        latest = [_step(a, b) for a, b in pairwise(cells[-LEAST_STEPS - 1 :])]
        if len(latest) < LEAST_STEPS or (rate := median(latest)) <= 0.0:
            return self._top, 0.0, 0.0
        rising, pause = 0, 0  # steps since the latest pause, and of a pause: one that is longer than that is an end
        first = last = len(cells) - 1
        while last > 0 and pause <= rising:
            last -= 1
            step = _step(cells[last], cells[last + 1])
            if step < -STEADY_SHARE * rate:
                break
            if step >= STEADY_SHARE * rate:
                rising, pause, first = rising + 1, 0, last
            else:
                pause += 1
        climb = cells[first:]
        rise = climb[-1][1] - climb[0][1]
        if len(climb) <= LEAST_STEPS or max(b[1] - a[1] for a, b in pairwise(climb)) > MOST_IN_STEP * rise:
            return self._top, 0.0, 0.0
        return climb[0][2], max(rate, 0.5 * (latest[-1] + latest[-2])), climb[-1][0] - climb[0][0]

    def set_window_seconds(self, seconds: float) -> None:
        """Climbs are looked for that reach the limit within so many seconds."""
        self._width = seconds / CELLS

    def threat_rate(self, used: int, headroom_bytes: int, usual_headroom: float) -> float:
        """Bytes/s at which the limit is reached within the window; 0 where it is not, or is not to be believed.

        `usual_headroom`: bytes that generations like those seen would leave; only what is beyond it is new.
        """
        beyond, window = min(used - self.record, usual_headroom - headroom_bytes), self._width * CELLS
        if self.rate <= 0.0 or headroom_bytes > self.rate * window or beyond <= 0:
            return 0.0
        return self.rate if _reaches_limit(beyond, headroom_bytes) else 0.0
