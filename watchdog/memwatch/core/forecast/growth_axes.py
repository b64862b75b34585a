"""What growth goes along: generations, time, or a gauge of the log; and how that goes along with time."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from memwatch.core.robust_statistics import NORMAL_95, mean, median, variance

RECENT = 5  # latest generations that say how long one lasts
STEP_AGREES, STEP_DIFFERS = 0.2, 0.3  # the latest two lengths are alike, and unlike the usual one
SURE = 4.0  # standard errors of a change in length that is believed
STEADY = 0.02  # a generation's length that changes by less than this share from one to the next stays as it is
KEPT_READINGS = 256  # of a gauge
# So much of the growth along a gauge is in what it counts, or something else grows: other containers may fill in step,
# and some memory of an item cannot be measured. (Chosen: beside a replay buffer that filled, memory grew by 3 MB with
# each item of a list of 200 bytes an item.)
MEASURED_SHARE = 0.1
# A gauge without a reading for so long has stopped: this many times the longer of the latest two intervals, but at
# least these seconds, as an examination may wait for a minute until it has CPU time.
STALE, STALE_SECONDS = 1.5, 60.0


class Regressor(Protocol):
    """What a model's x counts; `pace` is how many units of x there are in one unit of the model's axis, now."""

    @property
    def name(self) -> str: ...
    @property
    def pace(self) -> float: ...
    def position(self, x: float) -> float:
        """The position (generations, or seconds without markers) at which x will be; infinity for never."""

    def x_at(self, place: float) -> float:
        """The x at a position ahead; of a gauge that is full, its capacity."""


@dataclass(frozen=True, slots=True)
class CycleIndex:
    """x is the position on the model's axis itself."""

    name: str = "index"
    pace: float = 1.0

    def position(self, x: float) -> float:
        return x

    def x_at(self, place: float) -> float:
        return place


@dataclass(frozen=True, slots=True)
class GenerationSchedule:
    """How positions follow in time: `seconds` a generation now, each later one `ratio` times as long.

    The change is believed for as many generations as it was seen.
    """

    now_x: float
    generation_seconds: float
    ratio: float = 1.0
    believed: float = 0.0  # generations ahead

    def seconds_until(self, x: float) -> float:
        ahead = x - self.now_x
        if self.ratio == 1.0 or ahead <= 0.0 or math.isinf(ahead):
            return ahead * self.generation_seconds
        bent = min(ahead, self.believed)
        rate = math.log(self.ratio)
        return self.generation_seconds * (math.expm1(rate * bent) / rate + (ahead - bent) * math.exp(rate * bent))

    def place(self, seconds: float) -> float:
        """The x so many seconds after now_x."""
        if self.ratio == 1.0 or seconds <= 0.0 or math.isinf(seconds):
            return self.now_x + seconds / self.generation_seconds
        rate = math.log(self.ratio)
        whole = math.expm1(rate * self.believed) / rate * self.generation_seconds
        if seconds <= whole:
            return self.now_x + math.log1p(rate * seconds / self.generation_seconds) / rate
        return (
            self.now_x + self.believed + (seconds - whole) / (self.generation_seconds * math.exp(rate * self.believed))
        )


def usual_seconds(lengths: Sequence[float]) -> float:
    """How long a generation lasts of late, oldest first: the median, or the latest two where they agree on another."""
    usual = median(lengths)
    if len(lengths) < 4:
        return usual
    a, b = lengths[-2:]
    agree = abs(a - b) <= STEP_AGREES * max(a, b)
    return 0.5 * (a + b) if agree and min(abs(a - usual), abs(b - usual)) > STEP_DIFFERS * usual else usual


def fit_schedule(now_x: float, lengths: Sequence[float]) -> GenerationSchedule:
    """From the lengths of the latest generations, oldest first."""
    usual = usual_seconds(lengths[-RECENT:])
    if len(lengths) <= RECENT or usual <= 0.0:
        return GenerationSchedule(now_x, usual or 1.0)
    logs = [math.log(max(length, 1e-9)) for length in lengths]
    slope = median([(b - a) / (j - i) for i, a in enumerate(logs) for j, b in enumerate(logs) if j > i])
    step, middle = median([b - a for a, b in pairwise(logs)]), 0.5 * (len(logs) - 1)
    if abs(slope) < STEADY or slope * step <= 0.0 or abs(step) < 0.5 * abs(slope):  # one step is no change from each
        return GenerationSchedule(now_x, usual)
    base, usual_log = median([v - slope * (i - middle) for i, v in enumerate(logs)]), median(logs)
    off_line = median([abs(v - base - slope * (i - middle)) for i, v in enumerate(logs)])
    error = 1.5 * off_line / math.sqrt(len(logs) ** 3 / 12.0)
    if off_line > 0.5 * median([abs(v - usual_log) for v in logs]) or abs(slope) < SURE * error:
        return GenerationSchedule(now_x, usual)
    return GenerationSchedule(now_x, math.exp(base + slope * (middle + 1.0)), math.exp(slope), float(len(lengths)))


@dataclass(frozen=True, slots=True)
class ElapsedTime:
    """x is seconds since the first sample, the model's axis counts generations."""

    calendar: GenerationSchedule
    now_t: float  # on the axis
    name: str = "time"

    @property
    def pace(self) -> float:
        return self.calendar.generation_seconds

    def position(self, x: float) -> float:
        return self.calendar.place(x - self.now_t)

    def x_at(self, place: float) -> float:
        return self.now_t + self.calendar.seconds_until(place)


@dataclass(frozen=True, slots=True)
class GaugeLevel:
    """x is a gauge of the log, which rises by `pace` in a unit of the model's axis, up to its capacity."""

    now_x: float  # position on the model's axis
    value: float  # of the gauge there
    pace: float
    capacity: float  # infinite: it has none
    name: str = "gauge"

    def position(self, x: float) -> float:
        """The place at which the gauge shows x."""
        if x > self.capacity:
            return math.inf
        return self.now_x + max(0.0, x - self.value) / self.pace

    def x_at(self, place: float) -> float:
        return min(self.capacity, self.value + max(0.0, place - self.now_x) * self.pace)


class GaugeReadings:
    """What a gauge showed, and when, in bounded memory."""

    def __init__(self, name: str = "", *, in_bytes: bool = False) -> None:
        self.name, self.in_bytes = name, in_bytes
        self.times: list[float] = []
        self.values: list[float] = []
        self.used: list[float] = []  # bytes in use at these times
        self.capacity: float | None = None
        self.unit_bytes: float | None = None  # that one unit holds, as it was measured; None: not known
        self._capacity_moved = False
        self.known_until = math.inf  # from its first reading until then its value is known
        self.stale_from = math.inf  # after this it was read too long ago to go by it
        self._gap = 0.0  # seconds between the latest two examinations that read it

    def add(self, t: float, value: float, capacity: float | None, seldom: bool = False, *, used: float = 0.0) -> bool:
        """A reading at t, not before the last one, with `used` bytes in use; True: it differs from that, and counts.

        Told `seldom`, it says nothing of what comes after it, unless it is full. A capacity that moves is none: the
        arrays of a list that grows are each full.
        """
        self._capacity_moved |= bool(self.times) and capacity != self.capacity and self.capacity is not None
        self.capacity = capacity = None if self._capacity_moved else capacity
        if not seldom or (capacity is not None and value >= capacity):
            self.known_until = self.stale_from = math.inf
        elif t != self.known_until:
            gap = t - self.known_until if math.isfinite(self.known_until) else math.inf
            self.known_until, self.stale_from = t, t + max(STALE * max(gap, self._gap), STALE_SECONDS)
            self._gap = gap if math.isfinite(gap) else 0.0
        if self.times and (t <= self.times[-1] or value == self.values[-1]):
            return False
        self.times.append(t)
        self.values.append(value)
        self.used.append(used)
        if len(self.times) >= KEPT_READINGS:
            self.times, self.values, self.used = self.times[::2], self.values[::2], self.used[::2]
        return True

    def may_take(self, unit_bytes: float) -> bool:
        """Whether memory may grow by so much with each unit: what was measured is enough of it."""
        return self.unit_bytes is None or self.unit_bytes >= MEASURED_SHARE * unit_bytes

    @property
    def capacity_or_infinity(self) -> float:
        return math.inf if self.capacity is None else self.capacity

    def at(self, t: float) -> float:
        """The value at t, between two readings on the line through them."""
        i = bisect_left(self.times, t)
        if i == 0:
            return self.values[0]
        if i == len(self.times):
            return self.values[-1]
        share = (t - self.times[i - 1]) / (self.times[i] - self.times[i - 1])
        return self.values[i - 1] + share * (self.values[i] - self.values[i - 1])


READINGS = 32  # of a gauge that are compared, spread over all: some 500 pairs, a millisecond
WITHOUT_START = 3  # readings from which on the estimate does not use the first, which may hold a program's start
PRIOR_READINGS = 2  # readings that the noise which is expected of them counts for, beside what they show themselves
# Student's t for 1, 2 ... degrees of freedom: 5 % lies above it
T_95 = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81, 1.80, 1.78)


@dataclass(frozen=True, slots=True)
class UnitGrowth:
    """Bytes that memory grows by with one unit of a gauge: the estimate and the interval of 90 %."""

    bytes: float
    low: float
    high: float
    r2: float  # share of the variance of memory that the gauge explains; 1 for two readings
    readings: int

    @property
    def error(self) -> float:
        """Standard error of the estimate, as wide as the interval."""
        return (self.high - self.low) / (2.0 * NORMAL_95)


def fit_unit_growth(values: Sequence[float], used: Sequence[float], noise: float) -> UnitGrowth | None:
    """Fit memory in bytes to the values of a gauge, both of the same moments; None of fewer than two values.

    `noise` is the deviation of memory that is expected at such a moment. The first reading may hold a program's
    start: the interval is that with it and that without it, and from three readings on the estimate does not use it.
    While fewer than three are left without it, no misfit can show that a start lasts longer: all may be the start's.
    """
    step = max(1, math.ceil(len(values) / READINGS))
    x, y = values[::-step][::-1], used[::-step][::-1]
    whole = _robust_line(x, y, noise)
    if whole is None:
        return None
    later = _robust_line(x[1:], y[1:], noise)
    both = [whole] if later is None else [later, whole]
    low = 0.0 if both[0].readings < WITHOUT_START else math.inf
    low, high = min(low, *(one.low for one in both)), max(one.high for one in both)
    return UnitGrowth(both[0].bytes, low, high, max(one.r2 for one in both), whole.readings)


def _robust_line(x: Sequence[float], y: Sequence[float], noise: float) -> UnitGrowth | None:
    """Theil and Sen's line; its error from its residuals and from the noise that is expected."""
    n = len(x)
    slopes = [(y[j] - y[i]) / (x[j] - x[i]) for i in range(n) for j in range(i + 1, n) if x[j] != x[i]]
    if not slopes:
        return None
    slope, middle = median(slopes), mean(x)
    base = median([level - slope * at for at, level in zip(x, y, strict=True)])
    squares = sum((level - slope * at - base) ** 2 for at, level in zip(x, y, strict=True))
    deviation = math.sqrt((squares + PRIOR_READINGS * noise**2) / n)
    half = _student(n) * deviation / math.sqrt(sum((at - middle) ** 2 for at in x))
    total = variance(y) * (n - 1)
    return UnitGrowth(slope, slope - half, slope + half, 1.0 - squares / total if total > 0.0 else 0.0, n)


def _student(freedom: int) -> float:
    return T_95[freedom - 1] if freedom <= len(T_95) else NORMAL_95 + 1.6 / freedom
