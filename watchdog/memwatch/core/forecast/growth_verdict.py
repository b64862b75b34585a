"""What the growth of a resource is to be called."""

from __future__ import annotations

from dataclasses import dataclass

from memwatch.core.forecast.growth_models import GrowthModel
from memwatch.core.forecast.piecewise_trend import TrendFit
from memwatch.core.snapshot import Verdict

MIN_GENERATIONS = 3  # complete generations (or blocks of time)
SUSTAINED = 4  # points of a line that may be called a leak
PERSISTENT = 16  # points of a line that is a leak even if the limit is far away ...
FAR = 25.0  # ... up to so many times its own length
FADING = 0.75  # a short line that grows this much less in its later half may be the beginning of a curve
DECIDED = 8  # points from which on a curve would have been told from a line
NEAR = 5.0  # the limit matters when the line meets it within this many times its own length
LEVELLED = 0.2  # growth slower than this share of the earlier growth is a plateau
MATERIAL = 0.25  # of the rise before it
CEASING = ("saturating", "logarithmic", "power")  # curves whose growth becomes ever less
STILL_DOUBT = 0.1  # belief that nothing grows: with more, growth is no leak
SLOWED = 0.6  # growth slower than this share of the earlier growth slows down: no leak yet


@dataclass(frozen=True, slots=True)
class VerdictInput:
    """What the verdict rests on."""

    fit: TrendFit
    complete: int  # generations (or blocks of time) that are over
    limit: float | None  # bytes


def classify_growth(evidence: VerdictInput) -> Verdict:
    """Warming up, stable, plateau, growing or leak: the least alarming that the evidence allows."""
    best, past = evidence.fit.best, evidence.fit.history
    if evidence.complete < MIN_GENERATIONS:
        return Verdict.WARMING_UP
    if best.kind == "flat" or best.slope <= 0.0:
        return Verdict.PLATEAU if past.risen > 4.0 * evidence.fit.noise else Verdict.STABLE
    fading = best.kind in CEASING or (
        best.curve is None and best.points < DECIDED and evidence.fit.slope_ratio < FADING
    )
    if best.slope < LEVELLED * past.fastest and (fading or best.points < DECIDED or not _is_material(best, past.risen)):
        return Verdict.GROWING if _near(evidence.limit, best, 1.0) else Verdict.PLATEAU
    sustained = best.points + (past.points if past.slope > SLOWED * best.slope else 0)
    undecided = best.points < DECIDED and (best.kind == "accelerating" or best.slope < SLOWED * past.slope)
    still = sum(model.weight for model in evidence.fit.models if model.kind == "flat")
    if fading or undecided or sustained < SUSTAINED or still > STILL_DOUBT:
        return Verdict.GROWING
    lengths = FAR if best.points >= PERSISTENT else NEAR
    return Verdict.LEAK if _near(evidence.limit, best, lengths) else Verdict.GROWING


def _is_material(line: GrowthModel, risen: float) -> bool:
    """Slow growth after a fast rise has come to a share of that rise that cannot be its tail."""
    slope = line.linear_term if line.curve is not None else line.slope
    return slope * line.span > MATERIAL * (
        risen + (line.level - line.level_at(line.x - line.span) if line.curve else 0.0)
    )


def _near(limit: float | None, model: GrowthModel, lengths: float) -> bool:
    """The limit is met within so many times the model's own length: soon enough to matter."""
    return limit is not None and model.x_at_level(limit) - model.x <= lengths * model.span
