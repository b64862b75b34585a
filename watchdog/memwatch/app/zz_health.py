"""Which sources and outputs fail: each failure, its new reason and its recovery are told once."""

from __future__ import annotations

from collections.abc import Iterable

from memwatch.core.events import SourceChanged


class Health:
    """What is known to fail, and why."""

    def __init__(self) -> None:
        self._failing: dict[str, str] = {}

    def told(self, now: float, source: str, reason: str | None) -> Iterable[SourceChanged]:
        """The change, if it is one, now that `source` works (no reason) or does not."""
        if self._failing.get(source) == reason:
            return
        if reason is None:
            del self._failing[source]
        else:
            self._failing[source] = reason
        yield SourceChanged(now, source, reason is None, reason or "")
