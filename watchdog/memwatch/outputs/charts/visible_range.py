"""How far ahead the chart of a running watch looks, and up to which limit."""

from __future__ import annotations

from memwatch.core.snapshot import ResourceView

AHEAD_MOST = 2.5  # a forecast farther ahead than this multiple of the watched time is not shown (chosen)
AHEAD_ELSE = 1.0  # multiple of the watched time that is shown ahead instead (chosen)
MAX_LIMIT_TO_PEAK_RATIO = 8.0  # a limit above this multiple of the peak is shown only if it is in sight (chosen)


def visible_limit_bytes(view: ResourceView) -> int | None:
    """Bytes in use at which the limit is reached; None if that is unknown, or too far above to be shown."""
    limit = view.usage.limit
    if limit is None:
        return None
    is_in_sight = view.forecast is not None and view.forecast.eta_seconds is not None
    end = view.usage.used_bytes + limit.headroom_bytes  # headroom counts what others use of the limit, too
    return end if is_in_sight or end < MAX_LIMIT_TO_PEAK_RATIO * view.peak_bytes else None


def chart_end_t(view: ResourceView, began: float, now: float) -> float:
    """The right end of the chart: as far ahead as the forecast goes, unless that is too far."""
    forecast = view.forecast
    etas = (forecast.eta_seconds, forecast.eta_high_seconds) if forecast is not None else ()
    ahead = max((eta for eta in etas if eta is not None), default=0.0)
    watched = now - began
    return now + (1.02 * ahead if ahead <= AHEAD_MOST * watched else AHEAD_ELSE * watched)
