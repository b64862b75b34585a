"""Recurring lines: which of their integers count, told from how they move alone."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import NamedTuple

from memwatch.sources.log.counters import UNNAMED_UNIT

LINES = 5  # in so many lines a number must go up by the same step each time to count from then on
NEVER = 10**9
_TEMPLATES_KEPT = 256
_TEXT_CHARS = 200
_PATIENCE = 256  # lines in which an outer counter must have gone up
_PLACES = 12  # integers of a line that are looked at

_DRAWING = re.compile(r"[|\[][^\w|\[\]]{3,100}[|\]]")  # |####      |, [=====>....]: as far as it got
_DIGITS = re.compile(r"[0-9]+")
# 2026-11-21 03:52:47,123 and other moments, addresses, fractions, process ids (`cron[311]:`): no counters
_NO_COUNTER = re.compile(
    r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}|[0-9]+(?::[0-9]+)+(?:[.,][0-9]+)?|0x[0-9a-fA-F]+"
    r"|[-+]?[0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|(?<![\w \t])-[0-9]+|(?<= )-[0-9]+"
    r"|(?<=[A-Za-z])\[[0-9]+\]:|\b1[0-9]{9}(?:[0-9]{3})?\b"
)
# 512 MB, 20 s, 95%: measured, not counted; nor is what follows these words
_MEASURE = re.compile(r"\s?(?:[kKMGT]i?B|[mnu]?s|secs?|seconds?|min|minutes?|h|%|x)\b|%")
_NO_UNITS = frozenset(
    (
        *("elapsed", "time", "timestamp", "ts", "seconds", "sec", "rss", "mem", "memory", "pid", "port", "seed"),
        *("bytes", "eta", "wall", "uptime", "fps", "sps"),
    )
)
# did chunk 3 | E3 | [3]
_INTEGER = re.compile(r"(?:(?<![\w.])|(?<=\b[A-Za-z])|(?<=\b[A-Za-z]{2}))[0-9]{1,15}(?![\w.])")
_OF_TOTAL = re.compile(r"[ ]{0,12}(?:/|of)[ ]{0,12}([0-9]{1,15})(?![\w.%])")
_NOUN = re.compile(r"([^\W\d_]{1,20})[\s:=#\[(\"']{0,6}$")


class CandidateNumber(NamedTuple):
    """An integer of a line that may count."""

    place: int  # which of the line's integers it is
    position: int
    value: int
    noun: str  # the word before it
    total: int | None
    needs: int  # how often it must have gone up in all to be taken for a counter


class Recurring:
    """The lines of a log by their shape, each with how its integers moved."""

    def __init__(self) -> None:
        self._templates: OrderedDict[str, _Template] = OrderedDict()

    def numbers(self, text: str) -> tuple[str, list[CandidateNumber]]:
        """The line's shape, and those of its integers that may count after all that was seen of them."""
        text = text[:_TEXT_CHARS]
        shape = line_shape(text)
        template = self._templates.get(shape)
        if template is not None:
            self._templates.move_to_end(shape)
        if "#" not in shape or (template is not None and template.hopeless):
            return shape, []
        plain = mask_non_counters(text)
        found = [match for match in _INTEGER.finditer(plain) if not _MEASURE.match(plain, match.end())][:_PLACES]
        if template is None:
            template = self._templates[shape] = _Template(len(found))
            if len(self._templates) > _TEMPLATES_KEPT:
                self._templates.popitem(last=False)
        template.see([int(match[0]) for match in found])
        return shape, [number for i, needs in template.counting() if (number := _number(plain, i, found[i], needs))]

    def is_undecided(self, shape: str) -> bool:
        """Another line of this shape may tell more."""
        template = self._templates.get(shape)
        return template is not None and not template.hopeless


class _Template:
    """A recurring line: how each of its integers moved so far."""

    __slots__ = ("_places", "_seen")

    def __init__(self, places: int) -> None:
        self._seen = 0
        self._places = [_IntegerPosition() for _ in range(places)]

    @property
    def hopeless(self) -> bool:
        """None of its integers counts, and none ever will: what starts anew only tells whether another one counts."""
        return all(place.lost or place.restarts > 2 for place in self._places)

    def see(self, values: list[int]) -> None:
        """One more such line."""
        self._seen += 1
        if len(values) != len(self._places):
            self._places = []
        for place, value in zip(self._places, values, strict=False):
            place.see(value)
        if self._seen == _PATIENCE:  # what did not move at all by now is a part of the text
            for place in self._places:
                place.lost |= not place.ups

    def counting(self) -> list[tuple[int, int]]:
        """(place, needed ups) of the integers that may count."""
        restarts = self._restarts()
        return [(i, place.needs(restarts)) for i, place in enumerate(self._places) if not place.lost]

    def _restarts(self) -> set[int]:
        return {place.restarts for place in self._places if place.restarts}


class _IntegerPosition:
    """One integer of a recurring line."""

    __slots__ = ("first", "last", "lost", "pauses", "restarts", "step", "ups")

    def __init__(self) -> None:
        self.first: int | None = None
        self.last = self.step = self.ups = self.pauses = self.restarts = 0
        self.lost = False

    def see(self, value: int) -> None:
        if self.first is None:
            self.first = value
        elif value > self.last:
            self.lost |= self.step not in (0, value - self.last) and not self.restarts
            self.step, self.ups = self.step or value - self.last, self.ups + 1
        elif value == self.last:
            self.pauses += 1
        elif value <= self.first:
            self.restarts += 1
        else:
            self.lost = True
        self.last = value

    def needs(self, restarts: set[int]) -> int:
        """Ups to be sure; fewer for one that goes up as often as another of its line starts anew."""
        if self.restarts:
            return NEVER
        if self.ups in restarts:
            return 2
        return NEVER if self.pauses else LINES - 1


def mask_non_counters(text: str) -> str:
    """The same text with letters in place of moments, fractions and whatever else is no counter."""
    return _NO_COUNTER.sub(lambda match: "F" * len(match[0]), text)


def line_shape(text: str) -> str:
    """What is the same in each line of a kind."""
    return _DIGITS.sub("#", " ".join(_DRAWING.sub("|", text).split()))


def line_shape_any_number(text: str) -> str:
    """The same, whatever sort of number stands in it."""
    return line_shape(_NO_COUNTER.sub("#", text))


def is_measure(noun: str) -> bool:
    """What follows this word is measured, not counted."""
    return noun in _NO_UNITS


def _number(plain: str, place: int, match: re.Match[str], needs: int) -> CandidateNumber | None:
    before = _NOUN.search(plain, max(0, match.start() - 30), match.start())
    noun = before[1].lower() if before and set(before[1]) != {"F"} else UNNAMED_UNIT
    if is_measure(noun):
        return None
    of = _OF_TOTAL.match(plain, match.end())
    total = int(of[1]) if of and int(of[1]) >= int(match[0]) else None
    return CandidateNumber(place, match.start(), int(match[0]), noun, total or None, needs)
