"""What the growth of a resource is to be called."""

from __future__ import annotations

from dataclasses import dataclass

from memwatch.core.model import Verdict
from memwatch.core.trend import Fit, Model

ENOUGH = 3  # complete generations (or blocks of time)
SUSTAINED = 4  # points of a line that may be called a leak
PERSISTENT = 16  # points of a line that is a leak even if the limit is far away
FADING = 0.75  # a short line that grows this much less in its later half may be the beginning of a curve
DECIDED = 8  # points from which on a curve would have been told from a line
NEAR = 5.0  # the limit matters when the line meets it within this many times its own length
LEVELLED = 0.2  # growth slower than this share of the earlier growth is a plateau
SLOWED = 0.6  # growth slower than this share of the earlier growth slows down: no leak yet


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the verdict rests on."""

    fit: Fit
    complete: int  # generations (or blocks of time) that are over
    limit: float | None  # bytes


def judge(evidence: Evidence) -> Verdict:
    """Warming up, stable, plateau, growing or leak: the least alarming that the evidence allows."""
    best, past = evidence.fit.best, evidence.fit.past
    if evidence.complete < ENOUGH:
        return Verdict.WARMING_UP
    if best.kind == "flat" or best.slope <= 0.0:
        return Verdict.PLATEAU if past.risen > 4.0 * evidence.fit.noise else Verdict.STABLE
    if best.slope < LEVELLED * past.fastest:
        return Verdict.PLATEAU
    sustained = best.points + (past.points if past.slope > SLOWED * best.slope else 0)
    if best.kind == "saturating" or sustained < SUSTAINED or best.slope < SLOWED * past.slope:
        return Verdict.GROWING
    if evidence.fit.pace < FADING and best.points < DECIDED:
        return Verdict.GROWING
    return Verdict.LEAK if best.points >= PERSISTENT or _near(evidence.limit, best) else Verdict.GROWING


def _near(limit: float | None, line: Model) -> bool:
    """The line meets the limit soon enough to matter."""
    return limit is not None and line.when(limit) - line.x <= NEAR * line.span
