"""A recorded trace through the same engine: what memwatch would have said, and when it would have acted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from memwatch.core.decision.policy import Policy
from memwatch.core.engine.engine import Engine
from memwatch.core.engine.status_sentence import forecast_fields
from memwatch.core.events import (
    Action,
    Event,
    Interrupt,
    Notice,
    Signalled,
    Stretch,
)
from memwatch.core.forecast.forecaster import Outlook
from memwatch.core.measurements import HOST, Usage
from memwatch.core.snapshot import Snapshot, Verdict
from memwatch.history.csv_trace import read_stretches


def replay(
    path: Path | str,
    policy: Policy,
    limit_bytes: int | None = None,
    reach: Callable[[float], None] | None = None,
) -> Generator[Notice, None, Snapshot]:
    """All that the engine has to tell about a trace, in order; every notice carries the fields of a forecast.

    What it returns is the state at the end.
    Nothing is signalled: every interrupt is a dry run. `limit_bytes` binds where it is tighter than the trace's own;
    `reach` is told how much has been read, 0 to 1.
    """
    engine = Engine(policy)
    latest: dict[str, Notice] = {}
    for told in read_stretches(path, limit_bytes, reach):
        for action in _fed(engine, told):
            if isinstance(action, Notice):
                yield _complete(action, latest)
    return engine.snapshot()


def _fed(engine: Engine, told: Event | Stretch) -> Iterator[Action]:
    """What the engine asks for, event by event; it learns that an interrupt was a dry run."""
    for event in engine.worth_feeding(told):
        actions = engine.feed(event)
        yield from actions
        if any(isinstance(action, Interrupt) for action in actions):
            yield from engine.feed(Signalled(event.t, "SIGINT", dry_run=True))


def _complete(notice: Notice, latest: dict[str, Notice]) -> Notice:
    """The notice with what was last forecast of its resource, carried on to its time."""
    resource = notice.fields.get("resource", next(iter(latest), HOST))
    if "verdict" in notice.fields:
        latest[resource] = notice
        return notice
    known = latest.get(resource)
    if known is None:
        fields = forecast_fields(Usage(resource, 0, None), None, Outlook(Verdict.WARMING_UP, None, None))
        fields["used"] = None
    else:
        fields = {**known.fields, "action": None}
        for name in ("eta_s", "eta_lo_s", "eta_hi_s"):
            fields[name] = None if fields[name] is None else max(0.0, fields[name] - (notice.t - known.t))
    return Notice(notice.t, notice.event, notice.text, {**fields, **notice.fields})
