"""The guard against bursts: growth beyond all that was used before, too fast for any forecast."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain, islice, pairwise, takewhile

from memwatch.core.sample_windows import first_beyond

BURST_SAMPLES = 3  # readings that a burst is measured over: fewer, and one noisy reading is a burst
SEEN_SECONDS = 1.5  # ... and so long, or a single allocation between two close readings is a burst ...
SEEN_SHARE = 0.25  # ... unless it is already this share of the room that is left
CEILING_SECONDS = 30.0  # a burst is growth beyond what was in use before this long ago
RATE_SECONDS = 10.0  # that its rate is measured over, where single readings are unrest
RISES_KEPT = 16  # periods whose highest climb is remembered: a checkpoint's peak may come every ten generations
PERIOD_SECONDS = 600.0  # a period is a generation, but no longer than this ...
PERIOD_FLOOR_SECONDS = 20.0  # ... and no shorter: within it a climb cannot be told from the next
RISE_FACTOR = 1.25  # a climb up to so much higher than any remembered is like them
NOISE_LOOKS = 64  # readings that ordinary unrest is averaged over
NOISE_FACTOR = 3.0  # growth within so many times of it is unrest
REACTION_SECONDS = 2.0  # a burst is seen, seen again, and told to the trainer
EXHAUSTED_SHARE = 0.005  # headroom under this share of the limit, still shrinking, is none: even a write is cut short

PARTS = 5  # of the time that a ramp is looked at over
MOST_IN_PART = 0.5  # of a ramp's rise
LEAST_OVER, MOST_OVER = 0.8, 2.0  # of the time that is looked over, between the first part and the last
NEW_SHARE = 0.4  # of the rise is beyond all before

_Reading = tuple[float, int]  # time, bytes


class BurstDetector:
    """Watches one resource for growth beyond all that it used before, too fast for any forecast.

    A saw-tooth that comes near the limit and returns stays under the ceiling that it made itself; a steady use of
    95-98 % has no growth beyond its unrest.
    """

    def __init__(self) -> None:
        self._latest: deque[_Reading] = deque(maxlen=BURST_SAMPLES)
        self._recent: deque[_Reading] = deque()  # of the last CEILING_SECONDS
        self._climbs = _Climbs()
        self._seen = 0
        self._ceiling: int | None = None  # of all readings but the recent; the first one while there are no others
        self._unrest = 0.0
        self._rises: deque[int] = deque([0], maxlen=RISES_KEPT)  # the highest climb of each of the latest periods
        self._period_t: float | None = None

    def add_samples(self, times: Sequence[float], used: Sequence[int]) -> None:
        """Readings in order; times never go back."""
        first = 0
        if self._ceiling is None:
            self._ceiling = used[0]
            self._take(times[:1], used[:1])
            self.begin_period(times[0])
            first = 1
        while first < len(times):
            end = len(times)
            if self._is_over(times[-1]):  # up to the reading that ends the period
                end = next(i for i in range(first, len(times)) if self._is_over(times[i])) + 1
            self._learn_unrest(used[first:end])
            self._take(times[first:end], used[first:end])
            if self._is_over(times[end - 1]):
                self.begin_period(times[end - 1])
            first = end

    def _is_over(self, t: float) -> bool:
        return self._period_t is not None and t - self._period_t > PERIOD_SECONDS

    def _take(self, times: Sequence[float], used: Sequence[int]) -> None:
        readings = list(zip(times, used, strict=True))
        self._latest.extend(readings[-BURST_SAMPLES:])
        recent, t = self._recent, times[-1]
        recent.extend(readings)
        settled = []
        while recent[0][0] < t - CEILING_SECONDS:
            settled.append(recent.popleft())
        if settled:
            self._ceiling = max(self._ceiling or 0, *[used for _, used in settled])
            self._climbs.append(settled)
        over_t = min(t - 2 * CEILING_SECONDS, self._latest[0][0])  # what began later may be under way
        self._rises[-1] = max(self._rises[-1], self._climbs.highest_before(over_t))

    def begin_period(self, t: float) -> None:
        """A generation begins (or so much time has passed): climbs of long ago are forgotten."""
        if self._period_t is not None and t - self._period_t < PERIOD_FLOOR_SECONDS:
            return
        self._period_t = t
        self._rises.append(0)

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

    def threat_rate(self, headroom_bytes: int, limit_bytes: int, lead: float) -> float:
        """Bytes/s at which the room that is left would be gone before a checkpoint is complete; 0 when it would not."""
        if self._ceiling is None:
            return 0.0
        beyond = self._latest[-1][1] - self._ceiling
        if beyond <= max(NOISE_FACTOR * self._unrest, 0.001 * limit_bytes) or self._tops_out(headroom_bytes):
            return 0.0
        rate, sure = self.rate(headroom_bytes), headroom_bytes - NOISE_FACTOR * self._unrest
        return rate if sure < rate * lead else 0.0

    def _tops_out(self, headroom_bytes: int) -> bool:
        """The climb is like one of those before, and such a climb ends below the limit."""
        climb = self._latest[-1][1] - min(used for _, used in self._recent)
        known = min((rise for rise in self._rises if climb <= RISE_FACTOR * rise), default=None)
        return known is not None and headroom_bytes > known - climb

    def is_exhausting(self, headroom_bytes: int, limit_bytes: int) -> bool:
        rate = self.rate(headroom_bytes)
        return rate > 0 and headroom_bytes < max(EXHAUSTED_SHARE * limit_bytes, rate * REACTION_SECONDS)


def _middle(readings: Sequence[_Reading]) -> _Reading:
    return sum(t for t, _ in readings) / len(readings), sum(used for _, used in readings) // len(readings)


class _Climbs:
    """How high memory went within CEILING_SECONDS of each reading; a constant number of steps for each."""

    def __init__(self) -> None:
        self._starts: deque[_Reading] = deque()  # readings whose climb was not asked for
        self._ahead: deque[_Reading] = deque()  # readings beyond the climb of the latest that was
        self._tops: deque[_Reading] = deque()  # readings within it that none after them exceeds: the highest first

    def append(self, readings: Sequence[_Reading]) -> None:
        self._starts.extend(readings)
        self._ahead.extend(readings)

    def highest_before(self, t: float) -> int:
        """Bytes of the highest climb that began before t and was not asked for; it must be over, and all of it told."""
        starts, ahead, tops, highest = self._starts, self._ahead, self._tops, 0
        while starts and starts[0][0] < t:
            start = starts.popleft()
            while ahead and ahead[0][0] <= start[0] + CEILING_SECONDS:
                reading = ahead.popleft()
                while tops and tops[-1][1] <= reading[1]:
                    tops.pop()
                tops.append(reading)
            climb = tops[0][1] - start[1]
            if climb > highest:
                highest = climb
            if tops[0] is start:
                tops.popleft()
        return highest


class RampDetector:
    """A steady climb beyond all that was used before, over as long as a checkpoint takes: slower than a burst.

    Looked at in PARTS equal parts of that time: a jump has all its rise in one of them, a ramp has some in each.
    """

    def __init__(self) -> None:
        self._width = 0.0  # seconds of a part
        self._parts: deque[tuple[float, int, int, int]] = deque()  # start, readings, their sum, the highest
        self._record = 0  # of all parts that are over long ago

    def add_samples(self, times: Sequence[float], used: Sequence[int]) -> None:
        """Readings in order; times never go back."""
        parts, first = self._parts, 0
        if parts:
            first = self._go_on(times, used, first)
        while first < len(times):
            parts.append((times[first], 1, used[first], used[first]))
            first = self._go_on(times, used, first + 1)
            if len(parts) > PARTS + 1:
                self._record = max(self._record, parts.popleft()[3])

    def _go_on(self, times: Sequence[float], used: Sequence[int], first: int) -> int:
        """Take the readings from `first` on that are of the latest part; where the next one begins."""
        start, count, total, high = self._parts[-1]
        end = first_beyond(times, start, self._width, first)
        if end > first:
            more = used[first:end]
            self._parts[-1] = (start, count + len(more), total + sum(more), max(high, *more))
        return end

    def set_window_seconds(self, seconds: float) -> None:
        """Climbs of so many seconds are looked for from now on."""
        self._width = seconds / PARTS

    def threat_rate(self, headroom_bytes: int) -> float:
        """Bytes/s at which the limit is met within the time that is looked over; 0 when it is not."""
        parts, seconds = self._parts, self._width * PARTS
        if len(parts) <= PARTS or not LEAST_OVER * seconds <= parts[-1][0] - parts[0][0] <= MOST_OVER * seconds:
            return 0.0
        levels = [total / count for _, count, total, _ in parts]
        rise = levels[-1] - levels[0]
        steps = [b - a for a, b in pairwise(levels)]
        steady = min(steps) > 0.0 and max(steps) < MOST_IN_PART * rise
        beyond = steady and levels[-1] - self._record > NEW_SHARE * rise and headroom_bytes < rise
        return rise / (parts[-1][0] - parts[0][0]) if beyond else 0.0
