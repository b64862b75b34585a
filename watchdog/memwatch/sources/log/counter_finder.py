"""Finds the counters in a log without a preset: in progress bars, tables, boxes, words and recurring lines."""

from __future__ import annotations

import re
from collections import OrderedDict

from memwatch.sources.log.line_text import LineText
from memwatch.sources.log.numbers_that_count_up import (
    MEASURED_NOUNS,
    MIN_LINES,
    RecurringLines,
    line_shape,
    mask_non_counters,
)
from memwatch.sources.log.primary_counter import MIN_OF_EACH_KIND, OTHER_UNIT_PRIORITY, UNNAMED_PRIORITY, LogCounter
from memwatch.sources.log.skippable_lines import LineObservations
from memwatch.sources.log.table_counters import TableReader, is_separator, parse_box_row
from memwatch.sources.log.unit_mentions import (
    PROCESS_NOUNS,
    ROUNDED,
    UNIT_PRIORITY,
    UNNAMED_UNIT,
    UnitMention,
    find_counted_nouns,
    find_process_label,
    find_unit_mentions,
    may_name_unit,
    unit_from_name,
    whole_number,
)

MAX_COUNTERS = 128  # followed at a time; then the least useful and longest unchanged are dropped
_DROPPED_AT_ONCE = 32  # counters
_KEPT_EVENTS = 64  # The counter of a unit in all lines keeps so many until it is selected (chosen).
_SETTING_INCREMENTS = 3  # required of `epochs: 5`, which may be a setting of several runs
# Characters before a word that are compared, and how many of them, with numbers masked, tell kinds of lines apart.
_BEFORE_CHARS, _KIND_CHARS = 80, 24
_RESULT_CHARS = 400  # after a number that are searched for a result
_RESULT = "loss|score|fitness|acc|best|reward|took|time|done|complete|finish|verlust"
_AT_RESULT = re.compile(rf"\d[.,]\d|[a-z]: ?-?\d+$|{_RESULT}", re.IGNORECASE)
_RESULT_BEFORE = re.compile(_RESULT, re.IGNORECASE)
# iteration 50-----9950 left | epoch 3: 7 epochs remaining
_LEFT = re.compile(r"\W{0,80}(?P<left>[0-9]{1,15})(?: [a-z]{4,12})? (?:left|remain\w{0,3}|to go)\b", re.IGNORECASE)
# Epoch 3 (3/200)
_AGAIN = re.compile(r" ?[(\[](?P<index>[0-9]{1,9}) ?/ ?(?P<total>[0-9]{1,9})[)\]]")
_DIGITS = re.compile(r"[0-9]+")
_MAY_BE_OF = re.compile(r"[0-9][ ]{0,2}(?:/|of)[ ]{0,2}[0-9]")
# `loss: 0.31, `: figures in a bar's description
_FIGURES = re.compile(r"[\w./ ]{0,30}[:=]\s{0,4}[-+]?[0-9][0-9.e+-]{0,20}[,;]?")

# 12.9k/200k, of tqdm(unit_scale=True)
_DONE = rf"(?P<done>[0-9]{{1,15}}|{ROUNDED}[kM])/"
_TOTAL = rf"(?P<total>[0-9]{{1,15}}|{ROUNDED}[kM])"

# Epoch 3:  13%|###   | 5/38 [00:00<00:02, 14.30it/s, loss=0.6]
_BAR = re.compile(
    r"(?P<description>.{0,200}?)(?::[ ]{0,4})?(?:[ ]{0,4}[0-9]{1,3}%)?\|[^|\w]{0,400}[0-9]?[^|\w]{0,400}\|[ ]{0,4}"
    rf"{_DONE}(?:{_TOTAL}|\?)[ ]?\[[^\]]{{0,400}}\]"
)
# Epoch 4/4  ━━━━━━━╸━━━━ 25/38 0:00:00 • 0:00:00 49.10it/s  |  640: 100% ━━━━━━━━━━━━ 4/4 1.2it/s 3.2s
_LINE_BAR = re.compile(
    r"(?P<description>[^━╸╺]{0,200}?)(?::[ ]{0,4})?(?:[ ]{0,4}[0-9]{1,3}%)?[ ]{0,4}[━╸╺][━╸╺─ ]{2,400}[ ]"
    rf"{_DONE}{_TOTAL}[ ].*"
)
# epoch |███-----| 40.00% [4/10 00:04<00:06 0.31]
_FAST_BAR = re.compile(
    r"(?P<description>[^|]{0,200}?)\|[^|]{0,400}\|[ ][0-9.]{1,6}%[ ]"
    rf"\[{_DONE}{_TOTAL}[ ][^\]]{{0,200}}\]"
)
# train: 100% 1626/1626 [22:57<00:00,  1.18it/s], where there was no room for the bar itself
_BARLESS = re.compile(
    rf"(?P<description>.{{0,200}}?)(?::[ ]{{0,4}})?[0-9]{{1,3}}%[ ]{{1,4}}{_DONE}{_TOTAL}[ ]?"
    r"\[[0-9:?]{1,12}<[^\]]{0,400}\]"
)
# Training: 1245it [00:05, 241.3it/s, loss=0.6], where nobody told how many there will be; bytes are no units of a run
_OPEN_BAR = re.compile(
    rf"(?P<description>.{{0,200}}?)(?::[ ]{{1,4}}|(?<![\w.]))(?P<done>[0-9]{{1,15}}|{ROUNDED}[kM])(?P<total>(?!))?"
    r"[ ]?(?!i?B )[a-z]{1,20}[ ]\[[0-9:]{4,12},[ ][^\]]{0,400}/[^\]]{0,400}\]"
)
# Progress on: train 12.5kit/200kit rate:6.5it/s remaining:1:03 elapsed:02:02 postfix:-, of tqdm-loggable
_LOGGED_BAR = re.compile(
    rf"Progress on:(?P<description>.{{0,200}}?) (?P<done>{ROUNDED}[kM]|[0-9]{{1,15}})(?:\.[0-9]{{1,2}})?[a-z]{{2,20}}/"
    rf"(?P<total>{ROUNDED}[kM]|[0-9]{{1,15}})[a-z]{{2,20}}"
    r" rate:\S{1,40} remaining:.{0,400}"
)
# Loading weights:  40%|####  | 38/96 [...]: a bar of what comes before the units of the run, or between them
_PREPARATION = re.compile(
    r"\b(?:(?:down|up)?load|fetch|tokeni[sz]|map\b|filter|generating \w+ split|eval|valid|test|sanity|predict|infer"
    r"|writing|saving|shard|verify|resolv|extract|unpack|unzip|preprocess|cach)",
    re.IGNORECASE,
)
# 1.31epoch/s | 2.5s/trial, from tqdm(unit="epoch")
_RATE = re.compile(r"[0-9?](?:(?P<unit>[a-z_]{2,20})/s|s/(?P<slow>[a-z_]{2,20}))[,\]]")
# All that a line says: `Time = 12`, `Time = 0.005s`
_SIMULATED_TIME = re.compile(r"\s*(?:t|time)\s?[=:]\s?([0-9]{1,15}(?:\.[0-9]{1,15})?(?:e[-+]?[0-9]{1,3})?)\s?s?\s*")
_INTEGER = re.compile(r"(?<![\w.:])[0-9]{1,15}(?![\w.])")
# Progress:  12.3% | 12% complete: whole percents are the units of a run that tells nothing else
_PERCENT = re.compile(
    r"(?:\b(?:progress|completed?|done|finished)\b(?: at)?[ \t:=\[(]{0,6}([0-9]{1,3})(?:\.[0-9]{1,6})? ?%"
    r"|(?<![\w.])([0-9]{1,3})(?:\.[0-9]{1,6})? ?%(?= (?:complete|done|finished)))",
    re.IGNORECASE,
)
_ALL = "all "  # in the key of the counter of a unit in all lines
_PERCENT_INCREMENTS = 5  # required, as of a recurring line (chosen)


def match_bar(text: str) -> re.Match[str] | None:
    """Match the drawing of a progress bar at the beginning of `text`, up to the end of its figures."""
    if "| " in text and " [" in text and (bar := _BAR.match(text) or _FAST_BAR.match(text)):
        return bar
    if "% " in text and "<" in text and (bar := _BARLESS.match(text)):
        return bar
    if "/" in text and " [" in text and (bar := _OPEN_BAR.match(text)):
        return bar
    if " rate:" in text and (bar := _LOGGED_BAR.match(text)):
        return bar
    return _LINE_BAR.match(text) if "━" in text else None


def at_of_bar(bar: re.Match[str]) -> str:
    """Whether a bar shows the start or the end of the unit that it is named after: a full one shows the end."""
    return "end" if bar["done"] == bar["total"] else "start"


def _unit_of_bar(description: str, drawing: str) -> str | None:
    rate = _RATE.search(drawing)
    named = (unit_from_name(word) for word in description.split())
    return (unit_from_name(rate["unit"] or rate["slow"]) if rate else None) or next(filter(None, named), None)


class CounterFinder:
    """Finds and holds all counters of one log."""

    def __init__(self, reading: LineObservations | None = None) -> None:
        self._observations = reading or LineObservations()
        self._excluded_families: set[str] = set()  # families of inner loops
        self.no_counters: set[str] = set()  # units of which this line has a fraction
        self._counters: OrderedDict[str, LogCounter] = OrderedDict()
        self._box: dict[str, LogCounter] = {}  # counters of the open box
        self._closed_box_keys: set[str] = set()
        self._tables: dict[str, TableReader] = {}  # of each process that prints one
        self._recurring = RecurringLines()

    @property
    def counters(self) -> list[LogCounter]:
        return list(self._counters.values())

    @property
    def expects_first_row(self) -> bool:
        """A table's first row may come: the next line must be parsed, whatever its template."""
        return any(table.expects_first_row for table in self._tables.values())

    @property
    def header_count(self) -> int:
        """The number of table headers so far; after a new one, lines that were irrelevant may be rows."""
        return sum(table.header_count for table in self._tables.values())

    def exclude_family(self, family: str) -> None:
        """Mark all counters of this family, present and future, as inner loops."""
        if len(self._excluded_families) >= MAX_COUNTERS:
            self._excluded_families.clear()
        self._excluded_families.add(family)
        for counter in self._counters.values():
            if counter.family == family:
                counter.mark_inner_loop()

    def is_family_excluded(self, family: str) -> bool:
        """Whether no counter of this family can be the primary one."""
        return all(s.is_inner_loop or s.is_ruled_out for s in self._counters.values() if s.family == family)

    def process_bar(self, line: LineText, match: re.Match[str]) -> bool:
        """Parse a drawing of a progress bar; True when a counter changed."""
        end = match.end("description")
        named = may_name_unit(line.lower)
        mentions = list(find_unit_mentions(line.lower, end)) if named else []
        if mentions:  # `Epoch 3:  13%|`: the bar shows its parts
            return self._count_mentions(line, end, mentions, at_of_bar(match))
        if _DIGITS.search(line.text, 0, end) and self._count_table_row(line, end, named):
            return True
        beside = list(find_unit_mentions(line.lower, len(line.text))) if named else []
        if beside and beside[0].start > end:  # `| 5/38 [00:00<00:02, epoch=3/5, loss=0.6]`
            changed = self._count_mentions(line, len(line.text), beside, "progress")
            if _unit_of_bar(match["description"], match[0]) is None:
                return changed
            return self._count_bar(line, match, match["description"].strip()) or changed
        if self.expects_first_row:  # a bar in the place of a table's next row
            for table in self._tables.values():
                table.pass_bar()
            return False
        return self._count_numbered_bar(line, match) or self._count_bar(line, match, match["description"].strip())

    def process_line(self, line: LineText, unnamed: bool) -> bool:
        """Parse a line, with `unnamed` also for counters without a name; True when a counter changed."""
        end, named = len(line.text), may_name_unit(line.lower)
        if self._count_box_row(line) or self._count_table_row(line, end, named):
            return True
        if (time := _SIMULATED_TIME.fullmatch(line.lower)) is not None:
            return self._count_simulated_time(line, time)
        mentions = list(find_unit_mentions(line.lower, end)) if named else []
        if mentions and (outer := self._outer_loop(line, mentions[0])):  # `Fold 1/4, epoch 3/12`
            mentions = [outer, *(mention._replace(total=None) for mention in mentions)]
        changed = self._count_mentions(line, end, mentions)
        known = changed  # by words, which tell more than the line's percents
        if not changed and _MAY_BE_OF.search(line.text):
            changed = self._count_mentions(line, end, list(find_counted_nouns(line.lower, end)))
        if unnamed and not known:
            changed |= self._count_percent(line)
        if unnamed:
            changed |= self._count_recurring(line)
        return changed

    def _counter(
        self,
        key: str,
        name: str,
        unit: str,
        weight: int,
        line: LineText,
        *positions: int,
        required: int,
        priority: int | None = None,
        family: str = "",
    ) -> LogCounter:
        """Return the counter with this key; the numbers of `line` at `positions` are its value or distinguish it."""
        line.process = line.process or find_process_label(line.text)
        key = line.process + key
        counter = self._counters.get(key)
        if counter is None:
            if len(self._counters) >= MAX_COUNTERS:
                self._drop_least_useful()
            counter = self._counters[key] = LogCounter(name, unit, weight, required, priority)
            counter.family = _DIGITS.sub("#", line.process + family if family else key)
            counter.is_inner_loop = counter.family in self._excluded_families
        self._counters.move_to_end(key)
        self._observations.add_counter_numbers(counter, line, *positions)
        return counter

    def _drop_least_useful(self) -> None:
        """Make room, so that text which differs in each line does not replace real counters."""
        worth = {
            key: (s.was_selected, s.priority[0] > OTHER_UNIT_PRIORITY, s.increments > 0)
            for key, s in self._counters.items()
        }
        for key in sorted(worth, key=worth.__getitem__)[:_DROPPED_AT_ONCE]:  # equal ones in the order of last use
            del self._counters[key]

    # --- words ---

    def _outer_loop(self, line: LineText, inner: UnitMention) -> UnitMention | None:
        """Return the noun before a unit that says of which part the line is: the unit counts within that part."""
        end = min(inner.start, inner.position)
        if not _MAY_BE_OF.search(line.text, 0, end):
            return None
        found = next(find_counted_nouns(line.lower, end), None)
        is_loop = found is not None and found.total not in (None, 1) and found.unit not in PROCESS_NOUNS
        return found if is_loop else None

    def _count_mentions(self, line: LineText, end: int, found: list[UnitMention], at: str = "") -> bool:
        """Count the units that the text up to `end` names; without `at` the surrounding words tell start from end."""
        changed = False
        for i, word in enumerate(found):
            if word.unit in self.no_counters:
                continue
            before = line.text[found[i - 1].end if i else 0 : word.start]
            is_of_part = word.total is not None and any(self._may_be_outer_loop(line, other, word) for other in found)
            counted = word._replace(total=None) if is_of_part else word
            changed |= self._count_mention(line, before, counted, line.text[word.end : end], at)
        return changed

    def _may_be_outer_loop(self, line: LineText, other: UnitMention, word: UnitMention) -> bool:
        """Whether `other` has not moved yet, and may be the loop around `word`: `Epoch 1/3 step 20/500`."""
        if (other.total or 1) == 1 or other.unit in self.no_counters:
            return False
        if UNIT_PRIORITY.get(other.unit, 0) <= UNIT_PRIORITY.get(word.unit, OTHER_UNIT_PRIORITY):
            return False
        known = self._counters.get(f"{line.process}{_ALL}{other.unit}")
        return known is None or not known.increments

    def _count_mention(self, line: LineText, before: str, mention: UnitMention, rest: str, at: str) -> bool:
        shown_at = at or ("end" if _AT_RESULT.search(rest) or _RESULT_BEFORE.search(before) else "start")
        kind = line_shape(before[-_BEFORE_CHARS:])[-_KIND_CHARS:]
        kind += line_shape(line.text[mention.start : mention.position])
        family = f"word {kind}#{'/' if mention.total else ''}"
        key = f"{family}{'|' if at else shown_at}"
        unit, position = mention.unit, mention.position
        if mention.is_known_unit:
            certain = mention.total is not None and shown_at == "start" and not (at and self.expects_first_row)
            required = 2 if UNIT_PRIORITY[unit] < UNIT_PRIORITY["episode"] else 0 if certain else 1
            required = _SETTING_INCREMENTS if mention.plural and not certain else required
            counter = self._counter(key, "words", unit, 2, line, position, required=required, family=family)
            counter.may_be_setting = required == _SETTING_INCREMENTS
        elif unit in MEASURED_NOUNS:
            return False
        else:
            counter = self._counter(
                key, "words", unit, 1, line, position, required=2, priority=OTHER_UNIT_PRIORITY, family=family
            )
            counter.needs_constant_step = True
        counter.is_rounded |= mention.is_rounded
        if mention.total is None and (left := _LEFT.match(rest)):
            mention = mention._replace(total=counter.total_of_left(mention.number, int(left["left"])))
        if mention.total is None and (again := _AGAIN.match(rest)):
            total = counter.total_told_again(mention.number, int(again["index"]), int(again["total"]))
            mention = mention._replace(total=total)
        is_index = mention.is_known_unit and not mention.plural and not at
        changed = is_index and self._count_in_all_lines(line, counter.family, mention, shown_at)
        if not at:
            self._join(counter, f"{line.process}{family}{'start' if shown_at == 'end' else 'end'}", line, mention)
        return (
            counter.add_value(line, mention.position, mention.number, mention.total, shown_at, redrawn=bool(at))
            or changed
        )

    def _count_in_all_lines(self, line: LineText, family: str, mention: UnitMention, at: str) -> bool:
        """Count a unit in all kinds of lines that name it: `iteration 20: best 3.1`, `solved at iteration 21`."""
        key, unit = f"{_ALL}{mention.unit}", mention.unit
        counter = self._counter(key, "words", unit, 3, line, mention.position, required=MIN_OF_EACH_KIND)
        before = counter.increments
        changed = counter.add_value(line, mention.position, mention.number, mention.total, at)
        counter.kinds[family] += counter.increments - before
        if not counter.was_selected:
            counter.is_ruled_out |= counter.decrements > 0
            del counter.pending_events[:-_KEPT_EVENTS]
        return changed

    def _join(self, counter: LogCounter, other_key: str, line: LineText, mention: UnitMention) -> None:
        """Let the counter of starts count, too, what only an end shows: `Epoch 4 - ok`, `Epoch 5 - acc: 0.97`."""
        other = self._counters.get(other_key)
        if other is None or other.last is None or mention.number <= other.last:
            return
        if other_key.endswith("start"):
            other.add_value(line, mention.position, mention.number, mention.total, "start")
        elif counter.last is None:
            counter.take_over(other)

    # --- progress bars ---

    def _count_numbered_bar(self, line: LineText, match: re.Match[str]) -> bool:
        """`train 3:  13%|...`: a bar for each unit, with the unit's number in its description."""
        description = match["description"]
        numbers = list(_INTEGER.finditer(mask_non_counters(description)))
        if len(numbers) != 1:
            return False
        number = numbers[0]
        key = f"numbered {line_shape(description[: number.start()])}#{line_shape(description[number.end() :])}"
        outer = self._outer_bar()
        counter = self._counter(key, "numbered bar", "iteration", 3, line, number.start(), required=1)
        if outer is not None and counter.unit != outer.unit:
            counter.rename(outer.unit)
        index = int(number[0])
        if outer is not None:
            outer.required_increments = 2  # wait which of the two is the counter
        changed = counter.add_value(line, number.start(), index, None, at_of_bar(match), redrawn=True)
        counter.is_ruled_out |= counter.decrements > 1  # it says which client or file the bar is of
        return changed

    def _outer_bar(self) -> LogCounter | None:
        """The latest bar whose name says that it is an outer loop."""
        for key in reversed(self._counters):
            if key.startswith("bar ") and self._counters[key].priority[0] > UNIT_PRIORITY["batch"]:
                return self._counters[key]
        return None

    def _count_bar(self, line: LineText, match: re.Match[str], description: str) -> bool:
        unit = _unit_of_bar(description, match[0])
        done, total = whole_number(match["done"]), whole_number(match["total"]) if match["total"] else None
        positions = [match.start(group) for group in ("done", "total") if match[group]]
        key = f"bar {_DIGITS.sub('#', _FIGURES.sub('', description)).strip()} {total}"
        required, priority = (1, None) if unit is not None else (3, UNNAMED_PRIORITY - (total is None))
        counter = self._counter(
            key, "bar", unit or UNNAMED_UNIT, 1, line, *positions, required=required, priority=priority
        )
        counter.is_ruled_out |= _PREPARATION.search(description) is not None
        counter.is_training |= description.lower().startswith("train")
        counter.is_ruled_out |= line.is_below_another and self._has_bar_above(counter)
        if unit is None:
            counter.is_ruled_out |= counter.last is not None and done < counter.last  # drawn again: an inner loop
            counter.has_ended |= total is not None and done >= total
        return (total is None or done < total) and counter.add_value(line, match.start("done"), done, total, "start")

    def _has_bar_above(self, counter: LogCounter) -> bool:
        return any(
            other is not counter and other.name == "bar" and not other.is_ruled_out and not other.has_ended
            for other in self._counters.values()
        )

    # --- tables ---

    def _count_box_row(self, line: LineText) -> bool:
        separator = is_separator(line.text)
        self._observations.template_undecided |= separator  # it may close a box
        if self._box and separator:
            self._close_box()
            return True
        found = parse_box_row(line.text)
        if found is None or len(self._box) + len(self._closed_box_keys) > MAX_COUNTERS:
            return False
        name, unit, position, index = found
        key = f"box {name}"
        counter = self._counter(key, "boxed table", unit, 4, line, position, required=10**9)
        counter.required_increments = 0 if key in self._closed_box_keys else counter.required_increments
        self._box[key] = counter
        self._observations.template_undecided |= not counter.is_inner_loop
        return counter.add_value(line, position, index, None, "end")

    def _close_box(self) -> None:
        """Allow the counters of a complete box to be selected.

        When only every Nth episode is printed, time steps are finer and steadier.
        """
        units = {counter.unit for counter in self._box.values()}
        for key, counter in self._box.items():
            sparse = counter.unit == "episode" and (counter.first or 0) > 1
            if key not in self._closed_box_keys and sparse and "timestep" in units:
                counter.priority = (UNIT_PRIORITY["timestep"] - 1, counter.priority[1])
            counter.required_increments = 0
        self._closed_box_keys.update(self._box)
        self._box.clear()

    def _count_table_row(self, line: LineText, end: int, named: bool) -> bool:
        table = self._tables.get(line.process)
        if table is None:
            if len(self._tables) >= MAX_COUNTERS:
                return False
            table = self._tables[line.process] = TableReader()
        if not table.expects_rows and not named and line.text[:1] != "E":
            return False
        found = table.parse_row(line.text[:end])
        self._observations.template_undecided |= table.template_undecided
        if found is None:
            return False
        unit, position, index, total = found
        counter = self._counter(f"table {unit}", "table", unit, 4, line, position, required=0 if table.is_wide else 1)
        return counter.add_value(line, position, index, total, "end")

    # --- recurring lines ---

    def _count_recurring(self, line: LineText) -> bool:
        message_start, line = line.offset, line.line
        shape, numbers = self._recurring.find_candidates(line.text, message_start)
        self._observations.template_undecided |= self._recurring.is_undecided(shape)
        changed = False
        for number in numbers:
            counter = self._counter(
                f"line {number.number} {shape}",
                "counter",
                unit_from_name(number.noun) or number.noun,
                -number.number,
                line,
                number.position,
                required=MIN_LINES - 1,
                priority=UNNAMED_PRIORITY + (number.total is not None),
            )
            counter.required_increments = number.required_increments
            result = _AT_RESULT.search(line.text, number.position, number.position + _RESULT_CHARS)
            at = "end" if result else "start"
            changed |= counter.add_value(line, number.position, number.value, number.total, at)
            counter.is_ruled_out |= counter.decrements > 1  # it only increased for a while
        return changed

    def _count_simulated_time(self, line: LineText, match: re.Match[str]) -> bool:
        """Count the time of a simulation; its steps may differ."""
        counter = self._counter(
            "simulated time",
            "time",
            "time",
            1,
            line,
            match.start(1),
            required=MIN_LINES - 1,
            priority=OTHER_UNIT_PRIORITY,
        )
        changed = counter.add_value(line, match.start(1), float(match[1]), None, "start")
        counter.is_ruled_out |= counter.decrements > 0 and not counter.was_selected
        return changed

    def _count_percent(self, line: LineText) -> bool:
        """Count whole percents of the run; a part that begins again is not the run."""
        match = _PERCENT.search(line.text) if "%" in line.text else None
        if match is None:
            return False
        start, index = match.start(match.lastindex or 0), int(match[match.lastindex or 0])
        key = f"percent {line_shape(line.text[:start])}"
        counter = self._counter(
            key, "percent", "percent", -1, line, start, required=_PERCENT_INCREMENTS, priority=UNNAMED_PRIORITY
        )
        changed = counter.add_value(line, start, index, 100, "progress", redrawn=True)
        counter.is_ruled_out |= counter.decrements > 0
        return changed
