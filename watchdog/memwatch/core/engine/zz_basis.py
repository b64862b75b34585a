"""What a decision stood on: the looks before it, and what it was measured by. Its fit and limit are its forecast's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memwatch.core.decision.policy import Policy, hold_seconds, horizon_seconds
from memwatch.core.engine.resource_monitor import Decision, Track
from memwatch.core.forecast.zz_near import Need

Basis = Mapping[str, Any]  # JSON-ready: bytes, seconds, shares; None is unknown


def of_interrupt(policy: Policy, decision: Decision, lead: float, takes: tuple[float, str]) -> Basis:
    """`lead`: seconds before the end at which a checkpoint must be asked for; `takes`: those of one, and whence."""
    track, (seconds, origin) = decision.track, takes
    limit, ends, need = track.usage.limit, track.outlook.ends, Need(lead, track.needed_bytes)
    threshold = {
        "lead_s": _round(lead),
        "reserve": round(need.bytes),
        "checkpoint_s": _round(seconds),
        "checkpoint_origin": origin,
        "confidence": policy.confidence,
        "odds_within_lead": None if ends is None else _round(ends.odds(lead)),
        "odds_within_next": None if ends is None else _round(ends.too_late(ends.step_seconds, need)),
        "guard": None if limit is None else round(policy.headroom_guard * limit.bytes),
        "rate": round(decision.rate) if decision.kind == "emergency" else None,
    }
    return {"samples": _samples(track), "threshold": threshold}


def of_warning(policy: Policy, track: Track, step_seconds: float | None) -> Basis:
    """`step_seconds`: how long a generation lasts; None: there are none."""
    threshold = {
        "horizon_s": _round(horizon_seconds(policy, step_seconds)),
        "held_s": _round(hold_seconds(track.outlook.forecast)),
    }
    return {"samples": _samples(track), "threshold": threshold}


def _samples(track: Track) -> list[list[float]]:
    """Time, bytes in use and bytes taken of the limit by anybody, oldest first."""
    return [[_round(t), used, taken] for t, used, taken in track.latest]


def _round(value: float) -> float:
    return round(value, 3)
