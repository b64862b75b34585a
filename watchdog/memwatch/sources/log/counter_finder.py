"""Find what counts up in the log of an unknown program: progress bars, tables, boxes, words, recurring lines."""

from __future__ import annotations

import re
from collections import OrderedDict

from memwatch.sources.log.counters import OTHER_UNIT_PRIORITY, UNIT_PRIORITY, UNNAMED_PRIORITY, LineText, LogCounter
from memwatch.sources.log.line_templates import LineObservations
from memwatch.sources.log.recurring_lines import LINES, Recurring, is_measure, line_shape_any_number, mask_non_counters
from memwatch.sources.log.table_counters import TableReader, cell, is_separator
from memwatch.sources.log.unit_words import (
    UnitMention,
    find_process_label,
    may_name_unit,
    nouns_of,
    unit_from_name,
    words,
)

STREAMS_KEPT = 128  # counters followed at a time; of those that moved least the longest silent are forgotten
_FORGOTTEN = 32  # ... so many at once
_NEEDS_OF_SETTING = 3  # ups of `epochs: 5`, which may be a setting of several runs
_BEFORE_CHARS = 80  # before a word that are looked at ...
_KIND_CHARS = 24  # ... and of them, numbers set aside, those that tell one kind of line from another

_RESULT_CHARS = 400  # after a number that are looked at for a result
_RESULT = "loss|score|fitness|acc|best|reward|took|time|done|complete|finish|verlust"
_AT_RESULT = re.compile(rf"\d[.,]\d|{_RESULT}", re.IGNORECASE)
_RESULT_BEFORE = re.compile(_RESULT, re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]+")
_MAY_BE_OF = re.compile(r"[0-9][ ]{0,2}(?:/|of)[ ]{0,2}[0-9]")
# `loss: 0.31, `: what a bar says beside its name
_FIGURES = re.compile(r"[\w./ ]{0,30}[:=]\s{0,4}[-+]?[0-9][0-9.e+-]{0,20}[,;]?")

# Epoch 3:  13%|###   | 5/38 [00:00<00:02, 14.30it/s, loss=0.6]
BAR = re.compile(
    r"(?P<description>[^|]{0,200}?)(?::[ ]{0,4})?(?:[ ]{0,4}[0-9]{1,3}%)?\|[^|]{0,400}\|[ ]{0,4}"
    r"(?P<done>[0-9]{1,15})/(?P<total>[0-9]{1,15}|\?)[ ]?\[[^\]]{0,400}\]"
)
# 1.31epoch/s | 2.5s/trial: tqdm(unit="epoch")
_RATE = re.compile(r"[0-9?](?:(?P<unit>[a-z_]{2,20})/s|s/(?P<slow>[a-z_]{2,20}))[,\]]")
_INTEGER = re.compile(r"(?<![\w.:])[0-9]{1,15}(?![\w.])")


def bar_at(bar: re.Match[str]) -> str:
    """When the unit that a bar is named after is shown: one that is drawn when it is full already is over."""
    return "end" if bar["done"] == bar["total"] else "start"


def _unit_of_bar(description: str, drawing: str) -> str | None:
    rate = _RATE.search(drawing)
    named = (unit_from_name(word) for word in description.split())
    return (unit_from_name(rate["unit"] or rate["slow"]) if rate else None) or next(filter(None, named), None)


class CounterFinder:
    """All counters of one log, whatever it looks like."""

    def __init__(self, reading: LineObservations | None = None) -> None:
        self._reading = reading or LineObservations()
        self._within: set[str] = set()  # families of counters that are none of the clock
        self._streams: OrderedDict[str, LogCounter] = OrderedDict()
        self._box: dict[str, LogCounter] = {}  # counters of the box that is open
        self._boxed: set[str] = set()  # counters of boxes that were closed
        self._table = TableReader()
        self._recurring = Recurring()

    @property
    def counters(self) -> list[LogCounter]:
        """What was found so far."""
        return list(self._streams.values())

    @property
    def expects_first_row(self) -> bool:
        """The next line matters, whatever it says: a table is to begin."""
        return self._table.expects_first_row

    @property
    def headers(self) -> int:
        """How often another table began: lines that said nothing before may be its rows."""
        return self._table.headers

    def exclude_family(self, family: str) -> None:
        """Counters of this family are no clock, now or later."""
        if len(self._within) >= STREAMS_KEPT:
            self._within.clear()
        self._within.add(family)
        for stream in self._streams.values():
            if stream.family == family:
                stream.mark_inner_loop()

    def is_family_excluded(self, family: str) -> bool:
        """No counter of this family can be the clock."""
        return all(s.inner or s.dead for s in self._streams.values() if s.family == family)

    def process_bar(self, piece: LineText, match: re.Match[str]) -> bool:
        """Look at a drawing of a progress bar; True when a counter moved."""
        end = match.end("description")
        named = may_name_unit(piece.lower)
        if named and (counted := list(words(piece.lower, end))):  # `Epoch 3:  13%|`: what is drawn are its parts
            return self._words(piece, end, counted, bar_at(match))
        if self._rows(piece, end, named):
            return True
        beside = list(words(piece.lower, len(piece.text))) if named else []
        if beside and beside[0].start > end:  # `| 5/38 [00:00<00:02, epoch=3/5, loss=0.6]`
            return self._words(piece, len(piece.text), beside, "progress")
        if match["total"] == "?":
            return False
        return self._description(piece, match) or self._bar_itself(piece, match, match["description"].strip())

    def process_line(self, piece: LineText, unnamed: bool) -> bool:
        """Look at a line; `unnamed`: also for a counter without a name. True when a counter moved."""
        end, named = len(piece.text), may_name_unit(piece.lower)
        if self._boxes(piece) or self._rows(piece, end, named):
            return True
        moved = named and self._words(piece, end, list(words(piece.lower, end)))
        if not moved and _MAY_BE_OF.search(piece.text):
            moved = self._words(piece, end, list(nouns_of(piece.lower, end)))
        self._reading.template_undecided |= moved and unnamed  # as a recurring line it was not looked at
        return moved or (unnamed and self._lines(piece))

    def _stream(
        self,
        key: str,
        name: str,
        unit: str,
        weight: int,
        piece: LineText,
        *positions: int,
        needs: int,
        priority: int | None = None,
    ) -> LogCounter:
        """The counter of this key, which the numbers of `piece` at `positions` count, or tell from its like."""
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= STREAMS_KEPT:
                self._forget()
            stream = self._streams[key] = LogCounter(name, unit, weight, needs, priority)
            stream.family = _DIGITS.sub("#", key)
            stream.inner = stream.family in self._within
        self._streams.move_to_end(key)
        self._reading.add_counter_numbers(stream, piece, *positions)
        return stream

    def _forget(self) -> None:
        """Make room: a text that is another in each line must not drive out what counts."""
        worth = {
            key: (s.chosen, s.priority[0] > OTHER_UNIT_PRIORITY, s.increments > 0) for key, s in self._streams.items()
        }
        for key in sorted(worth, key=worth.__getitem__)[:_FORGOTTEN]:  # in equals, the order of last use
            del self._streams[key]

    # --- words ---

    def _words(self, piece: LineText, end: int, found: list[UnitMention], at: str = "") -> bool:
        """Count the units that the text up to `end` names; `at`: as a bar shows it, otherwise the words tell."""
        moved = False
        for i, word in enumerate(found):
            before = piece.text[found[i - 1].end if i else 0 : word.start]
            moved |= self._word(piece, before, word, piece.text[word.end : end], at)
        return moved

    def _word(self, piece: LineText, before: str, word: UnitMention, rest: str, at: str) -> bool:
        told = at or ("end" if _AT_RESULT.search(rest) or _RESULT_BEFORE.search(before) else "start")
        kind = line_shape_any_number(before[-_BEFORE_CHARS:])[-_KIND_CHARS:] + line_shape_any_number(
            piece.text[word.start : word.position]
        )
        process = find_process_label(piece.text)
        places = (word.position, process.number) if process else (word.position,)
        key = f"word {process.text if process else ''}{kind}#{'/' if word.total else ''}{'|' if at else told}"
        if word.sure:
            certain = word.total is not None and told == "start"
            needs = 2 if UNIT_PRIORITY[word.unit] < UNIT_PRIORITY["episode"] else 0 if certain else 1
            needs = _NEEDS_OF_SETTING if word.plural and not certain else needs
            stream = self._stream(key, "words", word.unit, 2, piece, *places, needs=needs)
        elif is_measure(word.unit):
            return False
        else:
            stream = self._stream(key, "words", word.unit, 1, piece, *places, needs=2, priority=OTHER_UNIT_PRIORITY)
            stream.even = True
        if at:
            told = stream.at_first(word.number, at)
        elif word.number == stream.last and told == "end":  # said again and again while it is under way
            return stream.repeat()
        return stream.add_value(piece, word.position, word.number, word.total, told)

    # --- progress bars ---

    def _description(self, piece: LineText, match: re.Match[str]) -> bool:
        """`train 3:  13%|...`: a bar that is drawn for each unit and numbered by it."""
        description = match["description"]
        numbers = list(_INTEGER.finditer(mask_non_counters(description)))
        if len(numbers) != 1:
            return False
        number = numbers[0]
        key = f"numbered {description[: number.start()]}#{description[number.end() :]}"
        outer = self._outer()
        stream = self._stream(key, "numbered bar", "iteration", 3, piece, number.start(), needs=1)
        if outer is not None and stream.unit != outer.unit:
            stream.rename(outer.unit)
        index = int(number[0])
        if stream.increments < 2:
            stream.dead |= stream.last is not None and index not in (stream.last, stream.last + 1)
        stream.total = outer.total if outer is not None else stream.total
        moved = stream.add_value(piece, number.start(), index, None, stream.at_first(index, bar_at(match)))
        if outer is not None:
            outer.required_increments = 2  # it may only be the frame: wait which of the two counts
        return moved

    def _outer(self) -> LogCounter | None:
        """The bar around the others, by its name."""
        for key in reversed(self._streams):
            if key.startswith("bar ") and self._streams[key].priority[0] > UNIT_PRIORITY["batch"]:
                return self._streams[key]
        return None

    def _bar_itself(self, piece: LineText, match: re.Match[str], description: str) -> bool:
        unit = _unit_of_bar(description, match[0])
        done, total = int(match["done"]), int(match["total"])
        places = match.start("done"), match.start("total")
        key = f"bar {_DIGITS.sub('#', _FIGURES.sub('', description)).strip()} {total}"
        if unit is not None:
            stream = self._stream(key, "bar", unit, 1, piece, *places, needs=1)
        else:
            stream = self._stream(key, "bar", "iteration", 1, piece, *places, needs=3, priority=UNNAMED_PRIORITY)
            stream.dead |= stream.last is not None and done < stream.last  # drawn anew: an inner loop
        return done < total and stream.add_value(piece, match.start("done"), done, total, "start")

    # --- tables ---

    def _boxes(self, piece: LineText) -> bool:
        rule = is_separator(piece.text)
        self._reading.template_undecided |= rule  # it may close a box
        if self._box and rule:
            self._judge_box()
            return True
        found = cell(piece.text)
        if found is None or len(self._box) + len(self._boxed) > STREAMS_KEPT:
            return False
        name, unit, position, index = found
        key = f"box {name}"
        stream = self._stream(key, "boxed table", unit, 4, piece, position, needs=10**9)
        stream.required_increments = 0 if key in self._boxed else stream.required_increments
        self._box[key] = stream
        self._reading.template_undecided |= not stream.inner
        return stream.add_value(piece, position, index, None, "end")

    def _judge_box(self) -> None:
        """At the end of the first box: its counters can be chosen now.

        Where only every Nth episode is printed, time steps are the finer and steadier clock.
        """
        units = {stream.unit for stream in self._box.values()}
        for key, stream in self._box.items():
            sparse = stream.unit == "episode" and (stream.first or 0) > 1
            if key not in self._boxed and sparse and "timestep" in units:
                stream.priority = (UNIT_PRIORITY["timestep"] - 1, stream.priority[1])
            stream.required_increments = 0
        self._boxed.update(self._box)
        self._box.clear()

    def _rows(self, piece: LineText, end: int, named: bool) -> bool:
        if not self._table.expects_rows and not named and piece.text[:1] != "E":
            return False
        found = self._table.row(piece.text[:end])
        self._reading.template_undecided |= self._table.template_undecided
        if found is None:
            return False
        unit, position, index, total = found
        stream = self._stream(f"table {unit}", "table", unit, 4, piece, position, needs=0 if self._table.wide else 1)
        if index == stream.last:
            return stream.repeat()
        return stream.add_value(piece, position, index, total, "end")

    # --- recurring lines ---

    def _lines(self, piece: LineText) -> bool:
        shape, numbers = self._recurring.numbers(piece.text)
        self._reading.template_undecided |= self._recurring.is_undecided(shape)
        moved = False
        for number in numbers:
            priority = UNNAMED_PRIORITY + (number.total is not None)
            stream = self._stream(
                f"line {number.place} {shape}",
                "counter",
                unit_from_name(number.noun) or number.noun,
                -number.place,
                piece,
                number.position,
                needs=LINES - 1,
                priority=priority,
            )
            stream.required_increments = number.needs
            if number.value == stream.last:
                moved |= stream.repeat()
                continue
            result = _AT_RESULT.search(piece.text, number.position, number.position + _RESULT_CHARS)
            moved |= stream.add_value(piece, number.position, number.value, number.total, "end" if result else "start")
            stream.dead |= stream.decrements > 1  # it only went up for a while
        return moved
