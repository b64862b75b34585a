"""How a run stands, as one value that colours, words, alerts, page titles and icons follow."""

from __future__ import annotations

import math
from collections.abc import Iterable

from memwatch.core.decision.policy import reaches_limit
from memwatch.core.decision.warning import run_ends_first
from memwatch.core.events import Cause, Exited
from memwatch.core.forecast.outlook import Outlook
from memwatch.core.measurements import Usage
from memwatch.core.snapshot import PlannedInterrupt, Severity, WatchState

ABOUT_SECONDS = 60.0  # without generations, an interrupt that is due within this is about to come (chosen)
_ACTING = (WatchState.INTERRUPTING, WatchState.SAVED, WatchState.ESCALATED)


def resource_severity(
    usage: Usage,
    outlook: Outlook,
    *,
    warned: bool,
    planned: PlannedInterrupt | None,
    last_generation: float | None,
    generation_seconds: float | None,
) -> Severity:
    """Of one resource, by its forecast; `planned`: the interrupt that would reach the trainer, None if none would.

    Where no end of the run is known, growth is taken to reach the limit once it is warned of.
    """
    verdict, forecast = outlook.verdict, outlook.forecast
    due = math.inf if planned is None or planned.seconds is None else planned.seconds
    if due <= (generation_seconds or ABOUT_SECONDS):
        return Severity.ABOUT_TO_INTERRUPT
    if reaches_limit(verdict, forecast):
        is_end_known = last_generation is not None
        certain = warned or (is_end_known and not run_ends_first(forecast, last_generation))
        return Severity.WILL_NOT_FIT if certain else Severity.WATCHING
    finishes = forecast is not None and forecast.finishes is True
    if usage.limit is not None and (verdict.stands_still or finishes or outlook.fits_when_full):
        return Severity.FITS
    return Severity.WATCHING


def watch_severity(state: WatchState, exited: Exited | None, of_resources: Iterable[Severity]) -> Severity:
    """Of the whole watch: that of its end, of an interrupt under way, or of the resource that stands worst."""
    if exited is not None:
        return Severity.ENDED_WELL if exited.cause is Cause.COMPLETED else Severity.ENDED_BADLY
    if state in _ACTING:
        return Severity.INTERRUPTING
    return max(of_resources, key=list(Severity).index, default=Severity.WATCHING)
