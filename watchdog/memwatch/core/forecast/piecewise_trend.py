"""Growth models of a series of levels, and the honest choice between them.

The series is cut into pieces that are straight lines (dynamic programming, a price for each piece), so that a load,
a jump or an earlier plateau never bends the line of today; the last piece may instead be a curve, or a curve upon a
line. Every model that explains the series nearly as well as the best one is kept, with its weight: their spread is
the uncertainty of what follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice, pairwise
from operator import add, itemgetter, mul

from memwatch.core.forecast.growth_models import MIN_POINTS, CurveFit, GrowthModel, fit_curves
from memwatch.core.robust_statistics import median, robust_sd_about, straight_line

MIN_SEGMENT_POINTS = 3  # points of a line, unless told otherwise; the first piece may be shorter, it is the warm-up
SEGMENT_PENALTY = 6.0  # of one more piece, in squared noise units per ln(points); BIC asks 3, levels are autocorrelated
CURVE_PENALTY = 4.0  # of the curve over the line, per ln(points)
CLEAR_POINTS = 16  # the latest, that clarity is judged by
THIRD_DIFFERENCE = math.sqrt(20.0)  # standard deviation of a third difference, in those of a point
JUMP_FACTOR = 4.0  # times what any other step is off the usual one
LEAST_RISE = 0.003  # of the level: a line that rises by less is none
STEP_NOISE = 0.03  # of the usual step from one level to the next
UNEVEN_NOISE = 1.2  # of the deviation of a step from its neighbours
FEW_POINTS_ERROR = 0.15  # relative error of a slope, divided by its points
BENDING = 0.3  # of the change from the piece before: standard error of a slope that may go on to change ...
LEAST_ALIKE = 0.4  # ... where one of the two is no less than this share of the other: no new leak, no end of a fill
SWINGS = 4  # across the line through all levels: waves, no new trend each time
WAVE_STEPS = 14  # from one level to the next that tell a wave from a level that wanders
TEMPER = 2.0  # levels are autocorrelated: each tells half of what an independent one would
KEPT_COST = 12.0  # a model whose cost is higher than the best by this has a twentieth of its weight
KEPT_MODELS = 10


@dataclass(frozen=True, slots=True)
class BaselinePoint:
    """A level in bytes at x (middle of a generation, or seconds); `weight` in generations, `t` the time of x."""

    x: float
    level: float
    weight: float = 1.0
    t: float = 0.0


@dataclass(frozen=True, slots=True)
class SegmentHistory:
    """What was before the last piece; pieces shorter than MIN_PIECE are warm-up or jumps and do not count."""

    fastest: float = 0.0  # slope of the steepest piece, bytes per x
    risen: float = 0.0  # sum of all rises, bytes
    slope: float = 0.0  # of the latest piece
    points: int = 0  # of the latest piece


@dataclass(frozen=True, slots=True)
class TrendFit:
    """All that a series of levels says about growth."""

    models: tuple[GrowthModel, ...]  # best first; never empty
    noise: float  # standard deviation of a level around its model, bytes
    history: SegmentHistory
    slope_ratio: float  # growth in the later half of the last piece, as a share of that in its earlier half
    r_squared: float  # 0..1, share of the levels' variance

    @property
    def best(self) -> GrowthModel:
        return self.models[0]


class _Sums:
    """Prefix sums that give the least-squares line of y on z over any stretch in constant time."""

    def __init__(self, w: Sequence[float], z: Sequence[float], y: Sequence[float]) -> None:
        wz: list[float] = list(map(mul, w, z))
        wy: list[float] = list(map(mul, w, y))
        self.w: list[float] = [0.0, *accumulate(w)]
        self.z: list[float] = [0.0, *accumulate(wz)]
        self.y: list[float] = [0.0, *accumulate(wy)]
        self.zz: list[float] = [0.0, *accumulate(map(mul, wz, z))]
        self.zy: list[float] = [0.0, *accumulate(map(mul, wz, y))]
        self.yy: list[float] = [0.0, *accumulate(map(mul, wy, y))]

    def line(self, i: int, j: int) -> tuple[float, float, float, float]:
        """(mean y, slope, squared residual, squared spread of z) over points i..j-1."""
        w = self.w[j] - self.w[i]
        z = (self.z[j] - self.z[i]) / w
        y = (self.y[j] - self.y[i]) / w
        zz = max(0.0, self.zz[j] - self.zz[i] - w * z * z)
        zy = self.zy[j] - self.zy[i] - w * z * y
        yy = max(0.0, self.yy[j] - self.yy[i] - w * y * y)
        if zz <= 1e-12:
            return y, 0.0, yy, 0.0
        return y, zy / zz, max(0.0, yy - zy * zy / zz), zz

    def residuals(self, j: int, count: int) -> list[float]:
        """`line(i, j)[2]` of every i below `count`: the inner loop of a fit, hence without calls."""
        w1, z1, y1, zz1, zy1, yy1 = self.w[j], self.z[j], self.y[j], self.zz[j], self.zy[j], self.yy[j]
        found = []
        rows = zip(self.w, self.z, self.y, self.zz, self.zy, self.yy, strict=True)
        for w0, z0, y0, zz0, zy0, yy0 in islice(rows, count):
            w, z, y = w1 - w0, z1 - z0, y1 - y0
            zz = zz1 - zz0 - z * z / w
            rss = yy1 - yy0 - y * y / w
            if zz > 1e-12:
                zy = zy1 - zy0 - z * y / w
                rss -= zy * zy / zz
            found.append(rss if rss > 0.0 else 0.0)
        return found


def line_t_stat(points: Sequence[BaselinePoint]) -> tuple[float, float]:
    """Growth of the latest points along a straight line, in its standard errors; and their deviation from it, bytes."""
    latest = points[-CLEAR_POINTS:]
    if len(latest) < 4 or latest[-1].x <= latest[0].x:
        return 0.0, 0.0
    z, y = _columns(latest)
    line = straight_line(z, y)
    noise = robust_sd_about(line.residuals, 0.0) * math.sqrt(len(latest) / (len(latest) - 2))
    floor = STEP_NOISE * abs(line.slope) / (len(latest) - 1)
    return abs(line.slope) / max(noise / math.sqrt(line.x_sum_of_squares), floor, 1.0), noise


def noise_of(points: Sequence[BaselinePoint], least: float = 0.0) -> float | None:
    """Deviation of a level in bytes, as points with increasing x tell it, but no less than `least`; None: too few."""
    if len(points) < 2 or points[-1].x <= points[0].x:
        return None
    levels = [p.level for p in points]
    return max(_noise(points), least, 2e-3 * (max(levels) - min(levels)), 1e-4 * max(map(abs, levels))) or 1.0


def fit_trend(
    points: Sequence[BaselinePoint], min_piece: int = MIN_SEGMENT_POINTS, noise: float | None = None
) -> TrendFit | None:
    """The growth models of points with increasing x; None of fewer than two. `noise` as of `noise_of` if not given."""
    noise = noise or noise_of(points)
    if noise is None:
        return None
    series = _Series(points, noise, min_piece)
    models = series.models()
    best = models[0]
    return TrendFit(tuple(models), noise, series.past(best), series.pace(best), series.explained(best))


def _noise(points: Sequence[BaselinePoint]) -> float:
    """Deviation of a level from the line through its neighbours, robustly; 0 with fewer than five points.

    Growth that is not the same in each generation is not a new trend each time: a part of a usual step is noise too.
    """
    if len(points) < 5:
        return 0.0
    steps = [(b.level - a.level) / (b.x - a.x) * (points[-1].x - points[-2].x) for a, b in pairwise(points)]
    jump = _jump(steps)
    off = []
    for i, (a, b, c) in enumerate(zip(points, points[1:], points[2:], strict=False)):
        if jump not in (i, i + 1):
            share = (b.x - a.x) / (c.x - a.x)
            between = a.level + share * (c.level - a.level)
            off.append(abs(b.level - between) / math.sqrt(1.0 + share * share + (1.0 - share) ** 2))
    uneven = [
        abs(b - 0.5 * (a + c))
        for i, (a, b, c) in enumerate(zip(steps, steps[1:], steps[2:], strict=False))
        if jump is None or not i <= jump <= i + 2
    ]
    bent = [
        abs(d - 3.0 * c + 3.0 * b - a) / THIRD_DIFFERENCE
        for i, (a, b, c, d) in enumerate(zip(*[[p.level for p in points[k:]] for k in range(4)], strict=False))
        if jump is None or not i <= jump <= i + 2
    ]
    usual_step = median([abs(s) for s in steps])
    line = straight_line(*_columns(points))
    apart = max(robust_sd_about(off, 0.0), UNEVEN_NOISE * median(uneven))
    if len(bent) > 1:  # a smooth bend is no noise
        apart = min(apart, 1.6 * median(bent))
    if sum(a * b < 0.0 for a, b in pairwise(line.residuals)) >= SWINGS:
        apart = max(apart, robust_sd_about(line.residuals, 0.0))
    apart = max(apart, STEP_NOISE * usual_step)
    return min(apart, 1.1 * line.residual_sd)


def _wander(off: Sequence[float], power: float) -> float:
    """How much of the squares (their sum is `power`) of increments, less their mean, is left in the long run, 0..1.

    Increments of pure noise are anticorrelated by -1/2 and leave nothing, those of a wave by as much, but later; those
    of a level that wanders are not.
    """
    if power <= 0.0:
        return 0.0
    along: float = sum(map(mul, off, off[1:]))
    if len(off) >= WAVE_STEPS:
        along += min(0.0, sum(map(mul, off, off[2:])))
    return min(1.0, max(0.0, 1.0 + 2.0 * along / power))


def _jump(steps: Sequence[float]) -> int | None:
    """The one step that is unlike all others, if there is one: no noise, and no trend."""
    usual = median(steps)
    off = [abs(step - usual) for step in steps]
    i = max(range(len(steps)), key=off.__getitem__)
    return i if off[i] > JUMP_FACTOR * sorted(off)[-2] else None


def _columns(points: Sequence[BaselinePoint]) -> tuple[list[float], list[float]]:
    first, span = points[0], points[-1].x - points[0].x
    return [(p.x - first.x) / span for p in points], [p.level - first.level for p in points]


_Belief = tuple[float, float]  # a cost, and the weight that it leaves
_Candidate = tuple[float, Callable[[_Belief], GrowthModel]]  # a cost, and what makes the model that has it
_cost = itemgetter(0)


class _Series:
    """One fit at work: levels in noise units, x from 0 to 1."""

    def __init__(self, points: Sequence[BaselinePoint], noise: float, min_piece: int) -> None:
        self.points, self.n = points, len(points)
        self.noise = noise
        self.min_piece = min_piece
        x0, self.y0 = points[0].x, points[0].level
        self.span = points[-1].x - x0
        self.w = [p.weight for p in points]
        self.z = [(p.x - x0) / self.span for p in points]
        self.y = [(p.level - self.y0) / noise for p in points]
        self.sums = _Sums(self.w, self.z, self.y)
        self.least = LEAST_RISE * max(abs(p.level) for p in points) / noise
        self.price = SEGMENT_PENALTY * math.log(max(4, self.n))
        self.cost, self.cut = self._pieces()

    def _pieces(self) -> tuple[list[float], list[int]]:
        """Lowest cost of the first j points, and where its last piece begins."""
        cost, cut = [0.0], [0]
        for j in range(1, self.n + 1):
            count = max(1, j - self.min_piece + 1)
            costs = list(map(add, cost, self.sums.residuals(j, count)))
            best = min(costs)
            cost.append(best + self.price)
            cut.append(costs.index(best))
        return cost, cut

    def models(self) -> list[GrowthModel]:
        """Every plausible last piece, best first, with its weight."""
        found = [*self._lines(), *self._steps()]
        found += self._curves(min(found, key=_cost)[0] + KEPT_COST)
        found.sort(key=_cost)
        best = found[0][0]
        kept = [(cost, build) for cost, build in found[:KEPT_MODELS] if cost <= best + KEPT_COST]
        weights = [math.exp(0.5 * (best - cost) / TEMPER) for cost, _ in kept]
        return [build((cost, weight / sum(weights))) for weight, (cost, build) in zip(weights, kept, strict=True)]

    def _lines(self) -> Iterator[_Candidate]:
        """Lines to the latest point. Of few, too, the first may be the warm-up's: growth was faster with it."""
        starts = [*range(max(1, self.n - self.min_piece + 1))]
        if self.n <= self.min_piece and self.sums.line(1, self.n)[1] < self.sums.line(0, self.n)[1]:
            starts.append(1)
        for i in starts:
            line = self.sums.line(i, self.n)
            yield self.cost[i] + line[2] + self.price, partial(self._on_from, i, line)

    def _on_from(self, i: int, line: tuple[float, float, float, float], belief: _Belief) -> GrowthModel:
        mean, slope, rss, spread = line
        error, wander = self._slope_error(i, rss, spread)
        z = (self.sums.z[self.n] - self.sums.z[i]) / (self.sums.w[self.n] - self.sums.w[i])
        end = mean + slope * (1.0 - z)
        return self._line(i, end + wander * (self.y[-1] - end), slope, error, belief)

    def _steps(self) -> Iterator[_Candidate]:
        """A jump to where the latest one or two points are, and on with the growth of before."""
        for after in (1, 2):
            j = self.n - after
            i = self.cut[j] if j > 0 else 0
            if j - i < (2 if i == 0 else self.min_piece):
                continue
            _, slope, before, spread = self.sums.line(i, j)
            levels = [self.y[k] + slope * (1.0 - self.z[k]) for k in range(j, self.n)]
            end = sum(levels) / after
            if j == 2 and end < slope:
                continue  # growth that one step shows, and that did not go on, is the warm-up's
            rss = sum((level - end) ** 2 for level in levels)
            error = math.sqrt((before + 2.0) / (j - i) / spread) if spread > 0.0 else 1.0
            yield self.cost[j] + rss + self.price, partial(self._line, i, end, slope, error)

    def _slope_error(self, i: int, rss: float, spread: float) -> tuple[float, float]:
        """Standard error of a line's slope in noise units per unit of z, and how much the level wanders, 0..1."""
        m = self.n - i
        if spread <= 0.0:
            return 1.0, 0.0
        scatter = (rss + 2.0) / m / spread
        first = i if i > 0 or m <= MIN_POINTS else 1  # the first step of all holds the load
        steps = [(self.y[j + 1] - self.y[j]) / (self.z[j + 1] - self.z[j]) for j in range(first, self.n - 1)]
        mean = sum(steps) / len(steps)
        off = [s - mean for s in steps]
        power = sum(s * s for s in off)
        share = _wander(off, power)
        wander = share * power / max(1, m - 2) / (m - 1)
        return math.sqrt(scatter + wander + (FEW_POINTS_ERROR * mean / m) ** 2), share * max(0.0, m - 3.0) / (m + 1.0)

    def _line(self, i: int, end: float, slope: float, error: float, belief: _Belief) -> GrowthModel:
        rise = slope * (1.0 - self.z[i])
        still = abs(rise) < max(2.0, self.least) or abs(slope) < (2.0 + 1.5 / max(1, self.n - i - 1)) * error
        return GrowthModel(
            kind="flat" if still else "linear",
            cost=belief[0],
            weight=belief[1],
            first=i,
            points=self.n - i,
            x=self.points[-1].x,
            level=self.y0 + self.noise * end,
            slope=self.noise * slope / self.span,
            slope_error=self.noise * math.hypot(error, self._bending(i, slope)) / self.span,
            span=self.points[-1].x - self.points[i].x,
        )

    def _bending(self, i: int, slope: float) -> float:
        """Standard error of a slope that has changed once, and may change on, in noise units per unit of z."""
        j = self.cut[i]
        if i - j < self.min_piece:
            return 0.0
        before = self.sums.line(j, i)[1]
        alike = min(before, slope) > LEAST_ALIKE * max(before, slope) > 0.0
        return BENDING * abs(slope - before) if alike else 0.0

    def _curves(self, most: float) -> Iterator[_Candidate]:
        """Curves that begin where a piece does, half a step before it: searching every start buys nothing."""
        starts, j = {0, 1, 2}, self.n
        while j > 0:
            j = self.cut[j]
            starts.add(j)
        for i in sorted(start for start in starts if self.n - start >= MIN_POINTS):
            price, each = self.price, CURVE_PENALTY * math.log(self.n)
            room = most - self.cost[i] - price - each
            if room < 0.0:
                continue
            begin = self.z[i] - 0.5 * (self.z[-1] - self.z[i]) / (self.n - 1 - i)
            u = [(z - begin) / (self.z[-1] - begin) for z in self.z[i:]]
            length = (self.z[-1] - begin) * self.span
            for bend in fit_curves(self.w[i:], u, self.y[i:], room):
                yield self.cost[i] + bend.rss + price + bend.extra * each, partial(self._curve, i, bend, length)

    def _curve(self, i: int, bend: CurveFit, span: float, belief: _Belief) -> GrowthModel:
        return GrowthModel(
            kind=bend.kind,
            cost=belief[0],
            weight=belief[1],
            first=i,
            points=self.n - i,
            x=self.points[-1].x,
            level=self.y0 + self.noise * bend.end,
            slope=self.noise * bend.slope / span,
            slope_error=self.noise * bend.slope_error / span,
            span=span,
            curve=bend.curve,
            amplitude=self.noise * bend.amplitude,
            origin=self.points[-1].x - span,
            linear_term=self.noise * bend.linear_term / span,
        )

    def past(self, best: GrowthModel) -> SegmentHistory:
        """The pieces before the last; of a curve, its own beginning too."""
        pieces: list[tuple[float, float, int]] = []  # slope, rise, points; latest first
        j = best.first
        while j > 0:
            i = self.cut[j]
            if j - i >= self.min_piece:
                rise = self.sums.line(i, j)[1] * self.noise * (self.z[j - 1] - self.z[i])
                pieces.append((rise / (self.span * (self.z[j - 1] - self.z[i])), rise, j - i))
            j = i
        fastest = max((slope for slope, _, _ in pieces), default=0.0)
        if best.curve is not None:
            fastest = max(fastest, best.slope_at(best.x - 0.95 * best.span))
        slope, _, points = pieces[0] if pieces else (0.0, 0.0, 0)
        return SegmentHistory(max(0.0, fastest), sum(max(0.0, rise) for _, rise, _ in pieces), slope, points)

    def pace(self, best: GrowthModel) -> float:
        """Growth of the later half of the last piece over that of its earlier half; 1 where that says nothing."""
        half = best.points // 2
        if half < 2:
            return 1.0
        early = self.sums.line(best.first, self.n - half)[1]
        late = self.sums.line(self.n - half - best.points % 2, self.n)[1]
        return late / early if early > 0.0 else 1.0

    def explained(self, best: GrowthModel) -> float:
        """Share of the variance of the last piece that its model explains."""
        stretch = self.points[best.first :]
        mean = sum(p.level for p in stretch) / len(stretch)
        around = sum((p.level - mean) ** 2 for p in stretch)
        off = sum((p.level - best.level_at(p.x)) ** 2 for p in stretch)
        if around <= 0.0:
            return 1.0
        return max(0.0, min(1.0, 1.0 - off / around)) if best.kind != "flat" else 1.0
