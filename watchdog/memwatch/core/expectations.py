"""The expectations that a user has of a run, written as text and checked as generations and examinations end.

TradingEnvironment == 2
DDPGAgent in 16..17
growth < 5GB/generation
rss < 50GB at generation 15
generations 1-5: +1..2GB each; 6-10: +0.5..1GB; 11+: < 0.5GB
generation time not rising
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from memwatch.core.measurements import HOST
from memwatch.core.robust_statistics import median
from memwatch.core.snapshot import Expectation, GenerationRow
from memwatch.core.text_and_units import format_bytes, format_duration, parse_size

HELP = (
    "write one of: Type == 2; Type in 16..17; growth < 5GB/generation; rss < 50GB at generation 15; "
    "generations 1-5: +1..2GB each; 6+: < 0.5GB; generation time not rising"
)
COMPARED = 3  # The median durations of the first and the latest generations, this many each, are compared (chosen).
LONGER = 1.25  # The latest generations must not take more than this many times as long as the first (chosen).

_SIZE = r"[+-]?\d+(?:\.\d*)?\s*[A-Za-z]*"
_BOUND = re.compile(rf"(==|<=|>=|<|>)\s*({_SIZE})|(?:in\s+)?({_SIZE})\s*\.\.\s*({_SIZE})")
_COUNT = re.compile(r"([^\W\d][\w.]*)\s*((?:==|<=|>=|<|>)\s*\d+|in\s+\d+\s*\.\.\s*\d+)")
_GROWTH = re.compile(r"growth\b\s*(.+?)\s*(?:/\s*(?:generation|epoch|iteration|gen))?")
_LEVEL = re.compile(r"(rss|memory|gpu\d+)\b\s*(.+?)(?:\s+at\s+(?:generation|epoch|iteration|gen)\s+(\d+))?")
_RANGES = re.compile(r"(?:generations|epochs|iterations)\s+(.+)")
_RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d+)|\s*(\+))?\s*:\s*(.+?)(?:\s+each)?")
_TIME = re.compile(r"(?:generation|epoch|iteration)\s+time\s+not\s+rising")


_COMPARISONS = {"==": operator.eq, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}

Outcome = tuple[bool, str]  # whether the expectation is met, and the value that was measured
IsExpected = Callable[[float], bool]


@dataclass(frozen=True, slots=True)
class ExpectationCheck:
    """One expectation and its checks, of a resource's ended rows and of objects by type; None: it does not apply."""

    text: str
    check_generations: Callable[[str, Sequence[GenerationRow]], Outcome | None] = lambda _, __: None
    check_type_counts: Callable[[Mapping[str, int]], Outcome | None] | None = None


def parse_expectation(text: str) -> ExpectationCheck:
    """Parse one of the lines above; ValueError, with the lines that are allowed, for any other."""
    words = " ".join(text.split())
    if _TIME.fullmatch(words):
        return ExpectationCheck(words, check_generations=_time)
    for pattern, make in ((_RANGES, _ranges), (_GROWTH, _growth), (_LEVEL, _level), (_COUNT, _count)):
        if found := pattern.fullmatch(words):
            return make(words, found)
    raise ValueError(HELP)


class Expectations:
    """All expectations of a run, each with its latest outcome."""

    def __init__(self, checks: Iterable[ExpectationCheck]) -> None:
        self._checks = tuple(checks)
        self._known = {check.text: Expectation(check.text) for check in self._checks}

    @property
    def known(self) -> tuple[Expectation, ...]:
        return tuple(self._known.values())

    def update_generations(self, resource: str, rows: Sequence[GenerationRow]) -> list[Expectation]:
        """Check after the last of these generations; return the expectations that have become broken."""
        return self._update(lambda check: check.check_generations(resource, rows))

    def update_type_counts(self, counts: Mapping[str, int]) -> list[Expectation]:
        """Check after an examination; return the expectations that have become broken."""
        return self._update(lambda check: check.check_type_counts(counts) if check.check_type_counts else None)

    @property
    def count_types(self) -> bool:
        """Whether one of them is of the number of objects of a type."""
        return any(check.check_type_counts is not None for check in self._checks)

    def _update(self, run: Callable[[ExpectationCheck], Outcome | None]) -> list[Expectation]:
        broken = []
        for check in self._checks:
            outcome = run(check)
            if outcome is None:
                continue
            met, value = outcome
            before = self._known[check.text]
            first = before.first or ("" if met else value)
            now = replace(before, met=met, breaches=before.breaches + (not met), first=first, latest=value)
            self._known[check.text] = now
            if not met and before.met is not False:
                broken.append(now)
        return broken


# --- kinds ----------------------------------------------------------------------------------------------------------


def _count(text: str, found: re.Match[str]) -> ExpectationCheck:
    name, is_expected = found[1], _condition(found[2], int)

    def of_counts(counts: Mapping[str, int]) -> Outcome:
        number = sum(count for type_, count in counts.items() if type_ == name or type_.endswith(f".{name}"))
        return is_expected(number), f"{name}: {number:,}"

    return ExpectationCheck(text, check_type_counts=of_counts)


def _growth(text: str, found: re.Match[str]) -> ExpectationCheck:
    return _of_deltas(text, [(0.0, math.inf, _condition(found[1], _size))])


def _ranges(text: str, found: re.Match[str]) -> ExpectationCheck:
    parts = []
    for part in found[1].split(";"):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(HELP)
        last = math.inf if match[3] else float(match[2] or match[1])
        parts.append((float(match[1]), last, _condition(match[4], _size)))
    return _of_deltas(text, parts)


def _of_deltas(text: str, parts: Sequence[tuple[float, float, IsExpected]]) -> ExpectationCheck:
    def of_row(resource: str, rows: Sequence[GenerationRow]) -> Outcome | None:
        row = rows[-1]
        if resource != HOST or row.partial:
            return None
        is_expected = next((condition for first, last, condition in parts if first <= row.index < last + 1), None)
        if is_expected is None:
            return None
        return is_expected(row.delta_bytes), f"generation {row.index:g}: {format_bytes(row.delta_bytes, signed=True)}"

    return ExpectationCheck(text, check_generations=of_row)


def _level(text: str, found: re.Match[str]) -> ExpectationCheck:
    name, is_expected = (HOST if found[1] in ("rss", "memory") else found[1]), _condition(found[2], _size)
    at = None if found[3] is None else int(found[3])

    def of_row(resource: str, rows: Sequence[GenerationRow]) -> Outcome | None:
        row = rows[-1]
        if resource != name or (at is not None and not at <= row.index < at + 1):
            return None
        return is_expected(row.end_bytes), f"generation {row.index:g}: {format_bytes(row.end_bytes)}"

    return ExpectationCheck(text, check_generations=of_row)


def _time(resource: str, rows: Sequence[GenerationRow]) -> Outcome | None:
    whole = [row for row in rows if not row.partial and row.attempt == rows[-1].attempt and row.end_t is not None]
    if resource != HOST or len(whole) < 2 * COMPARED:
        return None
    lengths = [(row.end_t or row.start_t) - row.start_t for row in whole]
    first, latest = median(lengths[:COMPARED]), median(lengths[-COMPARED:])
    value = f"generation {whole[-1].index:g}: {format_duration(latest)}, {format_duration(first)} at the beginning"
    return latest <= LONGER * first, value


def _condition(text: str, number: Callable[[str], float]) -> IsExpected:
    found = _BOUND.fullmatch(text.strip())
    if found is None:
        raise ValueError(HELP)
    sign, value, low, high = found.groups()
    if sign is not None:
        compare, bound = _COMPARISONS[sign], number(value)
        return lambda measured: compare(measured, bound)
    unit = re.sub(r"[^A-Za-z]", "", high)  # +1..2GB: the unit stands once
    least, most = number(low if re.search(r"[A-Za-z]", low) else f"{low}{unit}"), number(high)
    if least > most:
        raise ValueError(f"{text}: the first is larger than the second")
    return lambda measured: least <= measured <= most


def _size(text: str) -> float:
    words = text.strip()
    sign = -1 if words.startswith("-") else 1
    rest = words.lstrip("+-")
    return 0.0 if re.fullmatch(r"0+(\.0*)?\s*[A-Za-z]*", rest) else float(sign * parse_size(rest))
