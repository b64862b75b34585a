"""What a log says of the length of the run: totals apart from the index, and the time that is left."""

from __future__ import annotations

import re
from collections import OrderedDict

from memwatch.core.events import TotalSeen
from memwatch.sources.log.primary_counter import MAX_TOTAL_CHANGES, LocatedEvent, Progression

_MAX_PHRASES = 64  # The totals of so many phrases are kept; the oldest one goes first (chosen).

_SECONDS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_WORDS = ("eta", "left", "remaining")  # Most lines have none; the pattern takes 4 to 20 times as long (measured).
_NUMBER = r"\d{1,6}(?:\.\d{1,6})?"
_UNIT = r"(?:d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:utes?|s)?)?|s(?:ec(?:onds?|s)?)?|ms)(?![a-z])"
_CLOCK = r"(?:(?P<days>\d{1,4}) days?,? )?(?P<clock>\d{1,4}(?::[0-5]?\d){1,2})(?![\d:])"
_REMAINING = re.compile(
    r"\b(?:(?:time[ _])?(?:remaining|left)(?:[ _]time)?|eta)\b[\"']?\s{0,8}[:=]?\s{0,8}[\"']?"
    rf"(?:{_CLOCK}|(?P<parts>(?:{_NUMBER} ?{_UNIT},? ?){{1,4}}))",
)
_PART = re.compile(rf"({_NUMBER}) ?(ms|[dhms])")


class PrintedTotals:
    """The totals that a log prints apart from the index: `max_epochs=5`, `Number of Generations: 50`."""

    def __init__(self) -> None:
        # by unit and the words before the number, those of the latest line last; None: these words count something
        self._by_phrase: OrderedDict[tuple[str, str], tuple[Progression, LocatedEvent | None]] = OrderedDict()

    def add(self, unit: str, words: str, total: int, marker: LocatedEvent) -> bool:
        """Add a total; False where what these words say has increased several times: `total_steps:300` is counted."""
        phrase = (unit, words)
        progression, known = self._by_phrase.pop(phrase, (Progression(), marker))
        progression.move(total)
        is_total = known is not None and progression.increments < MAX_TOTAL_CHANGES
        self._by_phrase[phrase] = progression, marker if is_total else None
        if len(self._by_phrase) > _MAX_PHRASES:
            self._by_phrase.popitem(last=False)
        return is_total

    def latest(self, least: float = 0.0) -> dict[str, LocatedEvent]:
        """Return the latest total of each unit that is at least so large: one that the index has passed was none."""
        return {
            unit: marker
            for (unit, _), (_, marker) in self._by_phrase.items()
            if marker is not None and isinstance(marker.event, TotalSeen) and marker.event.total >= least
        }


def remaining_seconds(text: str) -> float | None:
    """Return the seconds that are left by this line, such as `remaining: 1m 31s`, `eta: 0:12:33`, `Time left 2 days,
    1:02:03`; None where it does not say.
    """
    low = text.lower()
    found = _REMAINING.search(low) if any(word in low for word in _WORDS) else None
    if found is None:
        return None
    if found["parts"]:
        return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(found["parts"]))
    seconds = _SECONDS["d"] * int(found["days"] or 0)
    for place, number in enumerate(reversed(found["clock"].split(":"))):
        seconds += int(number) * 60.0**place
    return seconds
