"""When memory meets its limit: every model and its errors, weighed into a middle and an interval.

From the same models, the most memory that a run will have used by its end.
The next minutes: how likely memory meets the limit, as each of the latest generations would go on from here.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from memwatch.core.forecast.fitted_model import FittedModel
from memwatch.core.forecast.generation_profile import LATE_PARTS, GenerationProfile
from memwatch.core.forecast.growth_axes import GenerationSchedule, Regressor
from memwatch.core.forecast.growth_models import GrowthModel
from memwatch.core.forecast.outlook import CheckpointCost
from memwatch.core.forecast.periodic_peaks import PeriodicPeak
from memwatch.core.forecast.sample_summaries import SLOTS, ExcursionDistribution
from memwatch.core.robust_statistics import variance
from memwatch.core.snapshot import MemoryNeeded

# generations: what has been is taken for what may be, give or take its deviation times √(this / number)
KERNEL_GENERATIONS = 2.0
UNSURE = 0.02  # of the growth of a generation: no line is known better
NOVEL = 0.1  # of what memory is above all that was seen: how far it goes on is not known better
ROOT_THREE = math.sqrt(3.0)
LEAST_WIDTH = 1.0  # bytes
QUANTILES = (0.05, 0.5, 0.95)
NO_CHANCE = 10.0  # widths beyond the highest: one in a thousand
AHEAD = 2  # generations that are looked ahead at most


@dataclass(frozen=True, slots=True)
class ShortHorizonModel:
    """Memory where it is now, above or below its trend, and how generations (or blocks of time) usually go.

    It answers for the next minutes what `TimeToLimitProtocol` asks.
    """

    room: float  # bytes from the trend to the limit
    residual: float  # bytes by which memory is now above the line, or below
    slope: float  # bytes a second
    slope_error: float  # standard error of it
    noise: float  # standard deviation of the line, bytes
    profile: GenerationProfile
    parts: tuple[float, ...]  # of the open generation that are over, if it ends soon, as usual, or late: equally likely
    seconds: float  # of a generation, or of the block of time that stands for one
    peaks: PeriodicPeak | None = None  # that not every generation has
    due_seconds: float = math.inf  # until the next of them, where they are periodic
    peak_seconds: float = math.inf  # from one to the next
    headroom: float = math.inf  # bytes from where memory is to the limit
    rises: ExcursionDistribution | None = None  # from where it is; of a run without markers
    behind: float = 0.0  # bytes by which memory is below its trend
    risen: float = 0.0  # bytes that the growth was so far

    @property
    def p_ended(self) -> float:
        """The probability that growth has just ended."""
        return p_growth_ended(self.behind, math.hypot(self.noise, self.profile.mean_sd), self.risen)

    def if_ended(self) -> ShortHorizonModel:
        return replace(self, slope=0.0, slope_error=0.0, residual=-self.behind)

    @property
    def farthest_seconds(self) -> float:
        """So far it looks ahead; infinite where nothing is known of the course within a generation."""
        return math.inf if len(self.profile.slot_maxima) == 1 else AHEAD * self.seconds

    def p_exceed(self, seconds: float) -> float:
        return self.p_checkpoint_fails(0.0, CheckpointCost(seconds))

    def p_checkpoint_fails(self, wait: float, need: CheckpointCost) -> float:
        by_peak = self._peak_odds(wait + need.seconds)
        return 1.0 - (1.0 - self._usual_odds(wait, need)) * (1.0 - by_peak)

    def _usual_odds(self, wait: float, need: CheckpointCost) -> float:
        """As generations like those seen go on."""
        profile, room, seconds = self.profile, self.room - self.residual, wait + need.seconds
        highest = profile.top + need.bytes + self.slope * seconds
        if room - highest > NO_CHANCE * self._width(profile.spread, len(profile.past_slot_maxima)):
            return 0.0
        odds = 0.0
        for part in self.parts:
            tops = self._tops(part, wait, need)
            width = self._width(min(variance(tops), profile.spread), len(tops))
            odds += _share_beyond(tops, room, width) / len(self.parts)
        if len(profile.slot_maxima) > 1:
            return odds
        level = _share_beyond([self.slope * seconds], room, self._width(0.0, 1))
        high = odds * min(1.0, seconds / self.seconds)  # it comes anywhere in the block
        met = min(max(level, high), self._rise_odds(seconds, self.headroom))
        if need.bytes <= 0.0:
            return met
        full = _share_beyond([need.bytes + self.slope * wait], room, self._width(0.0, 1))
        return max(met, min(full, self._rise_odds(wait, self.headroom - need.bytes)))

    def usual_headroom(self, seconds: float) -> float:
        size = len(self.profile.slot_maxima)
        if size == 1:
            return math.inf
        first = int(self.parts[-1] * size) - LATE_PARTS
        last = int((self.parts[0] + min(seconds / self.seconds, 1.0)) * size) + LATE_PARTS
        slots = {k % size for k in range(first, last + 1)}
        return self.room - max(one[k] for one in self.profile.past_slot_maxima for k in slots)

    def _rise_odds(self, seconds: float, room: float) -> float:
        """That memory rises by so much from where it is, as it did from other places."""
        if self.rises is None:
            return 1.0
        span = self.rises.within(seconds)
        width = max(math.sqrt(span.variance * KERNEL_GENERATIONS / span.apart), LEAST_WIDTH)
        rises = span.rises[bisect_left(span.rises, room - NO_CHANCE * width) :]
        return _share_beyond(rises, room, width) * len(rises) / len(span.rises) if rises else 0.0

    def _tops(self, part: float, wait: float, need: CheckpointCost) -> Sequence[float]:
        """The room above the line that each of the generations that were seen would leave too late, going on from here.

        A need is met from a part on, after the wait, in which there is room for it, if none until it is complete is
        higher than the room: the part that asks for the least room counts.
        """
        size = len(self.profile.slot_maxima)
        if size == 1:
            return [high + self.slope * (wait + need.seconds) for (high,) in self.profile.past_slot_maxima]
        first = int(part * size)
        last = int((part + (wait + need.seconds) / self.seconds) * size - 0.5)  # whose middle is within the time
        if wait > 0.0:  # what is due may come a part earlier
            last += 1
        last = min(max(first, last), first + AHEAD * size)
        later = size if need.bytes > 0.0 else 0
        begin = min(int((part + wait / self.seconds) * size), last)
        ahead = range(first, last + later + 1)
        grown = [self.slope * max(0.0, ((k + 0.5) / size - part) * self.seconds) for k in ahead]
        slots = [k % size for k in ahead]
        past = self.profile.past_slot_maxima
        paths = ([seen[k] + more for k, more in zip(slots, grown, strict=True)] for seen in past)
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
        novel = NOVEL * max(self.residual, 0.0)
        unsure = self.noise**2 + novel**2 + (self.slope_error**2 + (UNSURE * self.slope) ** 2) * self.seconds**2
        return max(math.sqrt(spread * KERNEL_GENERATIONS / count + unsure), LEAST_WIDTH)


def p_growth_ended(behind: float, width: float, risen: float) -> float:
    """The probability that growth has ended, as far as memory shows it by being `behind` its trend, bytes.

    `width` bytes is the deviation from it that is usual, `risen` what the growth was so far. Growth that has lasted for
    a time ends within the next part of it with a hazard of one in that time: being behind is as likely anywhere up to
    what has risen. Else it is an accident, as likely as Student's t of three degrees of freedom has it. What the odds
    are on the trend itself is not shown by being behind: the models have weighed it.
    """
    if behind <= 0.0 or risen <= 0.0:
        return 0.0
    width = max(width, LEAST_WIDTH)
    odds = width / max(risen, behind, width) * (1.0 / _student_density(behind / width) - 1.0 / _student_density(0.0))
    return odds / (1.0 + odds) if odds < math.inf else 1.0


def _student_density(t: float) -> float:
    """Of three degrees of freedom."""
    return 2.0 / (math.pi * ROOT_THREE * (1.0 + t * t / 3.0) ** 2)


def _least_room(path: Sequence[float], begin: int, lasts: int, needed: float) -> float:
    """What a need of so many bytes and parts asks for that is met from one of the parts from `begin` on."""
    highest = list(accumulate(path, max))
    return min(max(path[k] + needed, highest[k + lasts]) for k in range(begin, len(path) - lasts))


def _share_beyond(tops: Sequence[float], room: float, width: float) -> float:
    """Probability that the next one is beyond the room: around each of the tops, the share that is."""
    return sum(_student_beyond((room - top) / width) for top in tops) / len(tops)


def _student_beyond(t: float) -> float:
    """Probability that Student's t of three degrees of freedom is greater."""
    off = t / ROOT_THREE
    return 0.5 - (off / (1.0 + off * off) + math.atan(off)) / math.pi


ERRORS = ((-1.65, 0.1), (-0.9, 0.24), (0.0, 0.32), (0.9, 0.24), (1.65, 0.1))  # standard errors and their weights
MORE = 0.3  # of the unrest: so much higher than any before may the first high be that meets the limit
FARTHEST_OFF = 5.0  # standard errors: what is farther off does not count
TIME_ERROR = 0.025  # of the time ahead: standard error, at the least
LEAST_ERROR = 1e-6  # of a place
ROOT_TWO = math.sqrt(2.0)
QUANTILE_TOLERANCE = 1e-3  # of the time ahead: so exactly is a quantile found

_Blurred = tuple[float, float, float]  # a place, its probability, its standard error


@dataclass(frozen=True, slots=True)
class UncertainSchedule:
    """How positions follow in time, and how exactly that is known."""

    calendar: GenerationSchedule
    unevenness: float = 0.0  # deviation of a generation's length, as a share; 0 without generations
    blur: float = 0.0  # standard deviation of a position

    def error(self, x: float) -> float:
        """Standard error of a place ahead, beyond that of the models."""
        ahead = max(0.0, x - self.calendar.now_x)
        return math.hypot(TIME_ERROR * ahead, self.unevenness * math.sqrt(ahead), self.blur, LEAST_ERROR)

    def blurred(self, places: Iterable[tuple[float, float]]) -> list[_Blurred]:
        """Places and their probabilities, each with its error; none lies behind."""
        now_x = self.calendar.now_x
        return [(ahead := max(x, now_x), odds, self.error(ahead)) for x, odds in places]


@dataclass(frozen=True, slots=True)
class TimeToLimitDistribution:
    """Every place at which the limit may be met, with its probability, earliest first."""

    limit: float  # bytes
    places: tuple[tuple[float, float], ...]
    p_never: float  # probability that it is not met at all
    usual: tuple[float, ...]  # the places that are the quantiles of 5, 50 and 95 %; infinity for never

    def is_passed(self, x: float) -> bool:
        """The run has gone beyond the earliest of them."""
        return bool(self.places) and self.places[0][0] < x - 1.0 / SLOTS


@dataclass(frozen=True, slots=True)
class TimeToLimit:
    """When the limit is reached, and how likely, as seen from the present: answers what TimeToLimitProtocol asks."""

    outcomes: TimeToLimitDistribution
    timing: UncertainSchedule
    cycle_seconds: float  # of a generation, or of the blocks of time that stand for them
    level_seconds: float  # from one level to the next
    passed: float = 0.0  # seconds since the calendar's place
    short_horizon: ShortHorizonModel | None = None
    safe_seconds: float = 0.0  # within which the limit cannot be met: it is farther than memory ever went in that time
    run_seconds: float = math.inf  # until the run's last generation ends, at the latest
    p_ended: float = 0.0  # that the growth has just ended: memory is behind its trend
    if_ended: ShortHorizonModel | None = None  # what the next minutes are then

    def quantiles(self) -> tuple[float, float, float]:
        """The positions by which the limit is met with 5, 50 and 95 %; infinity for never.

        If growth goes on; where it is likelier that it has ended, of both.
        """
        now_x, usual, goes_on = self.timing.calendar.now_x, self.outcomes.usual, 1.0 - self.p_ended
        if goes_on < 0.5:
            blurred = self.timing.blurred(self.outcomes.places)
            usual = tuple(
                [_quantile(share / goes_on, blurred, now_x) if share < goes_on else math.inf for share in QUANTILES]
            )
        low, middle, high = (max(now_x, place) for place in usual)
        return low, middle, high

    @property
    def p_never(self) -> float:
        return self.p_ended + (1.0 - self.p_ended) * self.outcomes.p_never

    def p_exceed(self, seconds: float) -> float:
        seconds, found = min(seconds, self.run_seconds - self.passed), 0.0
        if self.short_horizon is not None:
            found = self._p_near(0.0, CheckpointCost(seconds + self.passed))
        if seconds + self.passed <= self._near_seconds:
            return found
        x = self.timing.calendar.place(seconds + self.passed)
        return max(found, (1.0 - self.p_ended) * _met_by(x, self.timing.blurred(self.outcomes.places)))

    def p_checkpoint_fails(self, delay: float, cost: CheckpointCost) -> float:
        seconds = delay + cost.seconds
        if self.short_horizon is None or seconds >= self.run_seconds - self.passed:
            return self.p_exceed(seconds)
        near = self._p_near(delay + self.passed, cost)
        return near if seconds + self.passed <= self._near_seconds else max(near, self.p_exceed(seconds))

    @property
    def _near_seconds(self) -> float:
        """Since the calendar's place: so far the short horizon looks, or without one the limit is not met."""
        near = self.short_horizon
        return self.safe_seconds + self.passed if near is None else near.farthest_seconds

    def _p_near(self, delay: float, cost: CheckpointCost) -> float:
        goes_on = 0.0 if self.short_horizon is None else self.short_horizon.p_checkpoint_fails(delay, cost)
        if self.if_ended is None:
            return goes_on
        ended = self.if_ended.p_checkpoint_fails(delay, cost)
        return (1.0 - self.p_ended) * goes_on + self.p_ended * ended

    def expected_time_to_limit(self, after: float, cap: float) -> float:
        calendar, expected = self.timing.calendar, self.p_never * cap
        for x, probability in self.outcomes.places:
            end = calendar.seconds_until(max(x, calendar.now_x)) - self.passed
            expected += (1.0 - self.p_ended) * probability * min(max(end - after, 0.0), cap)
        return expected

    def usual_headroom(self, seconds: float) -> float:
        return math.inf if self.short_horizon is None else self.short_horizon.usual_headroom(seconds)


def time_to_limit_distribution(fitted: FittedModel, timing: UncertainSchedule, limit: float) -> TimeToLimitDistribution:
    return distribution_of(limit, _outcomes(fitted, timing.calendar.now_x, limit), timing)


def distribution_of(
    limit: float, every: Iterable[tuple[float, float]], timing: UncertainSchedule
) -> TimeToLimitDistribution:
    """Outcomes of their places (infinity for never) and weights, in any order."""
    ordered = sorted(every)
    total = sum(weight for _, weight in ordered)
    places = tuple((x, weight / total) for x, weight in ordered if x < math.inf and total > 0.0)
    blurred = timing.blurred(places)
    usual = tuple([_quantile(share, blurred, timing.calendar.now_x) for share in QUANTILES])
    return TimeToLimitDistribution(limit, places, max(0.0, 1.0 - sum(odds for _, odds in places)), usual)


def _outcomes(fitted: FittedModel, now_x: float, limit: float) -> Iterator[tuple[float, float]]:
    parts = fitted.profile.parts()
    for component in fitted.components:
        unrest = math.hypot(fitted.profile.peak_sd, component.fit.noise)
        for model in component.fit.models:
            weight = component.weight * model.weight
            if model.kind == "flat":
                yield math.inf, weight
                continue
            met_by, left = first_of_many(unrest, max(model.slope, 0.0) * component.regressor.pace * fitted.period)
            doubt = fitted.profile.scaling.doubt(limit, parts[0][1])
            left = math.hypot(left, doubt)
            most = fitted.profile.record - parts[0][1] + MORE * unrest + 1.65 * doubt
            ahead = fitted.profile.scaling.level_under(limit, parts[0][1]) - model.level
            slope_errors, level_errors = _shares(model, ahead, left)
            for errors, share in ERRORS:
                bound = limit - min(met_by + errors * level_errors * left, most)
                off = errors * slope_errors
                x = _first(fitted, component.regressor, model, parts, limit=bound, errors=off, now_x=now_x)
                yield x, weight * share


def first_of_many(unrest: float, growth: float, count: float = math.inf) -> tuple[float, float]:
    """How far below the limit the usual high is when the first one meets it, and the deviation that is left.

    `unrest` bytes is the deviation of the highs, `growth` what they gain from one to the next, `count` how many are to
    come. Where growth is slow, many come near the limit, and the first that meets it is an unusual one (figures by
    simulation).
    """
    alike = min(count, unrest / growth if growth > 0.0 else count)
    chances = math.log1p(alike) if alike < math.inf else 0.0
    return 0.45 * chances * unrest, unrest / (1.0 + 0.2 * chances)


def _shares(model: GrowthModel, ahead: float, unrest: float) -> tuple[float, float]:
    """How much of a standard error of the place is due to the slope's, and to the level's unrest (squares sum to 1)."""
    by_slope = max(ahead, 0.0) * model.slope_error / model.slope if model.slope > 0.0 else 0.0
    both = math.hypot(by_slope, unrest)
    return (by_slope / both, unrest / both) if both > 0.0 else (1.0, 0.0)


def _first(
    fitted: FittedModel,
    regressor: Regressor,
    model: GrowthModel,
    parts: Sequence[tuple[float, float]],
    *,
    limit: float,
    errors: float,
    now_x: float,
) -> float:
    """The first place at which any part of a generation, or a peak, meets the limit.

    The growth of the model is off by so many standard errors. The highs come highest first, so that the level which
    each allows is met later and later.
    """

    def met_by(above: float) -> float:
        level = fitted.profile.scaling.level_under(limit, above)
        return max(regressor.position(model.x_at_level(level, errors)), now_x)

    first = math.inf
    if fitted.by_generation:
        for part, above in parts:
            x = met_by(above)
            if x >= first or x == math.inf:
                break
            first = min(first, math.ceil(x - part - fitted.begins_x - 1e-9) + part + fitted.begins_x)
    else:
        first = met_by(parts[0][1])
    if fitted.periodic_peak is not None:
        x = met_by(fitted.periodic_peak.excess)
        first = min(first, fitted.periodic_peak.first_from(x) if math.isfinite(x) else math.inf)
    return max(first, now_x)


def _met_by(x: float, places: Sequence[_Blurred]) -> float:
    """The probability that the limit is met before x."""
    met = 0.0
    for place, odds, error in places:
        off = (x - place) / error
        if off <= -FARTHEST_OFF:  # and all later places are farther off: an error is less than in proportion
            break
        met += odds * 0.5 * math.erfc(-off / ROOT_TWO)
    return met


def _quantile(share: float, places: Sequence[_Blurred], now_x: float) -> float:
    """The place by which the limit is met with that probability; infinity for never."""
    if not places:
        return math.inf
    latest, _, error = places[-1]
    low, high = now_x, latest + FARTHEST_OFF * error
    if _met_by(high, places) < share:
        return math.inf
    while high - low > max(QUANTILE_TOLERANCE * (high - now_x), LEAST_ERROR):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _met_by(middle, places) < share else (low, middle)
    return high


MOST_BYTES = 2.0**60  # no machine has more: what leads there has no end
AHEAD_ERROR = 0.1  # of the growth ahead: standard error, at the least (on traces half-way; 0.02 holds a sixth less)


def memory_needed(fitted: FittedModel, end_x: float, most_bytes: float) -> MemoryNeeded | None:
    """The most that will be used until the place `end_x`, infinity where no end is known; `most_bytes` were so far.

    None where growth has no end that is known, or too little was seen.
    """
    if not fitted.components:
        return None
    low, middle, high = _quantiles(_tops(fitted, end_x), QUANTILES)
    if math.isinf(middle):
        return None
    low, middle, high = (max(most_bytes, value) for value in (low, middle, high))
    return MemoryNeeded(int(middle), int(low), int(high) if math.isfinite(high) else None)


def _tops(fitted: FittedModel, end_x: float) -> Iterator[tuple[float, float]]:
    """The highest use by the end, by every model and its errors, and the weight of each."""
    profile = fitted.profile
    part, usual_top = profile.parts()[0]
    place = end_x - 1.0 + part if fitted.by_generation else end_x
    peak = fitted.periodic_peak
    is_peak_due = peak is not None and peak.first_from(fitted.schedule.now_x) <= end_x
    above = max(usual_top, peak.excess) if peak is not None and is_peak_due else usual_top
    for component in fitted.components:
        unrest = math.hypot(profile.peak_sd, component.fit.noise)
        for model in component.fit.models:
            weight = component.weight * model.weight
            level = _level(model, component.regressor.x_at(place))
            if math.isinf(level):
                yield math.inf, weight
                continue
            usual = profile.scaling.top_over(level, above)
            growth = max(model.slope, 0.0) * component.regressor.pace * fitted.period
            met_by, left = first_of_many(unrest, growth, max(0.0, end_x - fitted.schedule.now_x) / fitted.period)
            doubt = profile.scaling.doubt(usual, above)
            left = math.hypot(left, doubt)
            most = profile.record - usual_top + MORE * unrest + 1.65 * doubt
            ahead = max(0.0, level - model.level)
            relative = math.hypot(AHEAD_ERROR, model.slope_error / model.slope) if model.slope > 0.0 else 0.0
            by_slope = relative * ahead
            both = math.hypot(by_slope, left) or 1.0
            for errors, share in ERRORS:
                beside = min(met_by + errors * left * (left / both), most)
                yield usual + beside + errors * by_slope * (by_slope / both), weight * share


def _level(model: GrowthModel, x: float) -> float:
    """The level at x, or where growth ends before it; infinity where it goes on without an end."""
    if model.kind == "flat" or x <= model.x:
        return model.level
    if math.isinf(x):
        ends = model.kind == "saturating" and model.linear_term == 0.0
        return model.level_at(model.x + 1e3 * model.span) if ends else math.inf
    level = model.level_at(x)
    return level if level < MOST_BYTES else math.inf


def _quantiles(weighted: Iterable[tuple[float, float]], shares: Iterable[float]) -> list[float]:
    """Quantiles of weighted values; between two values on the line through the middles of their weights."""
    ordered = sorted(weighted)
    values, weights = [value for value, _ in ordered], [weight for _, weight in ordered]
    total = sum(weights)
    middles = [(end - 0.5 * weight) / total for end, weight in zip(accumulate(weights), weights, strict=True)]
    return [_interpolated(values, middles, share) for share in shares]


def _interpolated(values: list[float], at: list[float], share: float) -> float:
    if share <= at[0]:
        return values[0]
    for (a, low), (b, high) in pairwise(zip(at, values, strict=True)):
        if share <= b:
            return high if math.isinf(high) or b == a else low + (high - low) * (share - a) / (b - a)
    return values[-1]
