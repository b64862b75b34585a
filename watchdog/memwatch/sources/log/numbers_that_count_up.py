"""Finds the integers of recurring lines that count up, judging by their values alone."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import NamedTuple

from memwatch.sources.log.primary_counter import Progression
from memwatch.sources.log.unit_mentions import (
    GROUPED,
    PROCESS_NOUNS,
    UNIT_PRIORITY,
    UNNAMED_UNIT,
    unit_from_name,
    whole_number,
)

MIN_LINES = 5  # lines in which a number must increase by the same step each time to be a counter
NEVER = 10**9  # required increments of a number that is no counter
_MAX_SHAPES = 256
_TEXT_CHARS = 200  # of a line, its beginning, that are analysed
_MAX_LINES_UNMOVED = 256  # lines after which a number that never increased is part of the text
_MAX_INTEGERS = 12  # of a line that are followed

_DRAWING = re.compile(r"[|\[][^\w|\[\]]{3,100}[|\]]")  # progress drawings: |####      |, [=====>....]
_GROUPED = rf"{GROUPED}(?![\w,])"
_DIGITS = re.compile(rf"{_GROUPED}|[0-9]+")
# 1 hour, 3 minutes | 59 m, 15 s: a time left changes its words as it passes the hour
_DURATION = (
    r"\b(?:[0-9]+(?:\.[0-9]+)? ?(?:d|days?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|ms)(?![^\W\d])"
    r"(?:,? and |, | )?){1,5}"
)
# Not counters: 2026-11-21 03:52:47,123 and other times, addresses, fractions, process IDs (`cron[311]:`), a
# model's parts (`(3): Linear(`).
_NO_COUNTER = re.compile(
    r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}|[0-9]+(?::[0-9]+)+(?:[.,][0-9]+)?|0x[0-9a-fA-F]+|"
    + _DURATION
    + r"|[-+]?[0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|(?<![\w \t])-[0-9]+|(?<= )-[0-9]+"
    r"|(?<=[A-Za-z])\[[0-9]+\]:|\b1[0-9]{9}(?:[0-9]{3})?\b|\([0-9]+\): (?=[A-Za-z_]\w{0,60}\()"
)
_NO_NUMBER = re.compile(r"(?<!\S)--(?!\S)|(?<![\w.-])(?:[nN]a[nN]|[nN]/[aA]|None|[+-]?inf)(?![\w.-])")
_ONE_BRACKET = str.maketrans("[]", "()")  # `(-12.3) [-11.9]`: the best one in other brackets
# Measured, not counted: 512 MB, 20 s, 95%, and any number after one of these words.
_MEASURE = re.compile(r" ?(?:[kKMGT]i?B|[mnu]?s|secs?|seconds?|min|minutes?|h|%|x)\b|%")
MEASURED_NOUNS = frozenset(
    "elapsed time timestamp line ts seconds sec rss mem memory pid port seed bytes eta wall uptime fps sps".split()  # noqa: SIM905
)
# did chunk 3 | E3 | [3]
_INTEGER = re.compile(rf"(?:(?<![\w.])|(?<=\b[A-Za-z])|(?<=\b[A-Za-z]{{2}}))(?:{_GROUPED}|[0-9]{{1,15}}(?![\w.]))")
_NUMBER = re.compile(rf"{_GROUPED}|[0-9]+|F+")  # of a line whose other numbers are masked
_IN_PATH = re.compile(r"[A-Za-z][^\s()\[\]]{0,60}/[^\s()\[\]]{0,60}$")  # what is before `12/2020` in NY/A-12/2020
_UNIT_OF_RATE = re.compile(r"(?<!\S)#/[A-Za-z]+(?!\S)")  # 1h54m/Msamples
_OF_TOTAL = re.compile(r"[ ]{0,12}(?:/|of)[ ]{0,12}([0-9]{1,15})(?![\w.%])")
_NOUN_AFTER = re.compile(r" ([^\W\d_]{3,20})")  # The 3 communication accuracy: 13.5
# did chunk 3 | Img No. 300
_NOUN = re.compile(r"([^\W\d_]{1,20})(?:[ _](?:no|nr|num|number|idx|index)\b\.?)?[\s:=#\[(\"']{0,6}$", re.IGNORECASE)


class CandidateNumber(NamedTuple):
    """An integer of a line that may be a counter."""

    number: int  # which of the line's integers it is, from 0
    position: int  # of its first character
    value: int
    noun: str  # the word before it
    total: int | None
    required_increments: int  # before it can be the primary counter


class RecurringLines:
    """The recurring lines of a log by their shape, with how each of their integers has changed."""

    def __init__(self) -> None:
        self._numbers: OrderedDict[str, dict[int, Progression]] = OrderedDict()

    def find_candidates(self, text: str, message_start: int) -> tuple[str, list[CandidateNumber]]:
        """Add a line; return its shape, and those of its integers that may be counters by now.

        No word before `message_start` names what is counted.
        """
        text = text[:_TEXT_CHARS]
        shape = line_shape(text)
        if "#" not in shape or (shape in self._numbers and not self.is_undecided(shape)):
            return shape, []
        plain = mask_non_counters(text)
        found = [
            (number, match)
            for number, match in enumerate(_NUMBER.finditer(plain))
            if _INTEGER.match(plain, match.start()) and not _MEASURE.match(plain, match.end())
        ][:_MAX_INTEGERS]
        numbers = self._numbers.setdefault(shape, {number: Progression() for number, _ in found})
        self._numbers.move_to_end(shape)
        if len(self._numbers) > _MAX_SHAPES:
            self._numbers.popitem(last=False)
        for number in numbers.keys() - {number for number, _ in found}:
            del numbers[number]  # it was a fraction this time
        found = [(number, match) for number, match in found if number in numbers]
        for number, match in found:
            numbers[number].move(whole_number(match[0]))
            if _OF_TOTAL.match(plain, match.end()):
                numbers[number].is_uneven = False  # `641/1875 ━━━━━`: drawn now and then
        restarts = {progression.restarts for progression in numbers.values() if progression.restarts}
        candidates, is_within = list[CandidateNumber](), False
        for number, match in found:
            required = _required_increments(numbers[number], restarts)
            candidate = _candidate(plain, message_start, number, match, required)
            if candidate is None:
                continue
            if not _is_ruled_out(numbers[number]):
                candidates.append(candidate._replace(total=None) if is_within else candidate)
            is_within |= not numbers[number].increments and _may_be_outer_loop(candidate)
        return shape, candidates

    def is_undecided(self, shape: str) -> bool:
        """Another line of this shape may reveal a counter; an integer that restarts only confirms an outer counter."""
        return any(
            not _is_ruled_out(number) and number.restarts <= 2 for number in self._numbers.get(shape, {}).values()
        )


def _is_ruled_out(number: Progression) -> bool:
    unmoved = number.values >= _MAX_LINES_UNMOVED and not number.increments
    return unmoved or number.is_uneven or number.erratic_decrements > 0


def _required_increments(number: Progression, restarts: set[int]) -> int:
    """Increments to be sure; fewer for one that increments as often as another of its line restarts."""
    if number.restarts:
        return NEVER
    return 2 if number.increments in restarts and not number.steps_differ else MIN_LINES - 1


def _may_be_outer_loop(number: CandidateNumber) -> bool:
    """Whether a number that has not moved yet may be that of the loop around the next one: `[0/25][3/20]`, `Epoch: 1
    [640/60000]`.
    """
    if number.total is not None:
        return number.total > 1 and number.noun not in PROCESS_NOUNS
    return UNIT_PRIORITY.get(unit_from_name(number.noun) or "", 0) >= UNIT_PRIORITY["episode"]


def mask_non_counters(text: str) -> str:
    """Replace times, fractions and other numbers that are no counters by letters, at the same length."""
    return _NO_COUNTER.sub(lambda match: "F" * len(match[0]), text)


def line_shape(text: str) -> str:
    """The part of a line that is the same in all lines of its kind: # replaces each number, | each drawing."""
    plain = _DRAWING.sub("|", _NO_COUNTER.sub("#", _NO_NUMBER.sub("#", text)))
    return _UNIT_OF_RATE.sub("#", _DIGITS.sub("#", " ".join(plain.split())).translate(_ONE_BRACKET))


def _candidate(
    plain: str, message_start: int, number: int, match: re.Match[str], required: int
) -> CandidateNumber | None:
    before = _NOUN.search(plain, max(message_start, match.start() - 30), match.start())
    noun = before[1].lower() if before and set(before[1]) != {"F"} else UNNAMED_UNIT
    if noun == "the":
        after = _NOUN_AFTER.match(plain, match.end())
        noun = after[1].lower() if after else UNNAMED_UNIT
    if noun in MEASURED_NOUNS:
        return None
    of, value = _OF_TOTAL.match(plain, match.end()), whole_number(match[0])
    if of and _IN_PATH.search(plain[max(0, match.start() - 120) : match.start()]):
        return None
    total = int(of[1]) if of and int(of[1]) >= value else None
    return CandidateNumber(number, match.start(), value, noun, total or None, required)
