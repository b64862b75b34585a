"""Remembers which lines of a log need not be parsed, by their template: this makes reading a log cheap.

The template of a line is its text with 0 for each digit. Nearly all lines of a log share a few templates of which no
line can hold a marker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from memwatch.sources.log.line_text import LineText
from memwatch.sources.log.primary_counter import LogCounter

MAX_TEMPLATE_BYTES = 2 * 1024 * 1024  # of memory for templates; when it is full, all are forgotten
CLEAR_AFTER_LINES = 1 << 20  # lines after which all templates are forgotten, so that a wrong decision does not last
_MAX_KNOWN_VALUES = 256  # combinations of numbers that are kept for one template
_TEMPLATE_OVERHEAD_BYTES = 100  # of memory that a template takes beside its text

_NUMBER = re.compile(rb"[0-9][0-9,._\0]*")  # NULs are between the characters of UTF-16


class CounterNumber(NamedTuple):
    """A number of a line that belongs to a counter, and the counter's state before the line."""

    counter: LogCounter
    state_before: tuple[object, ...]
    line: LineText
    position: int

    def column(self, raw: bytes, byte: int) -> slice:
        """The place of the number in `raw`, a line whose first byte is at `byte` of the log."""
        start = self.line.byte_of(self.position) - byte
        number = _NUMBER.match(raw, start)
        return slice(start, number.end() if number else start)


class LineObservations:
    """What parsing a line showed about its template."""

    def __init__(self) -> None:
        self.counter_numbers: list[CounterNumber] = []
        self.template_undecided = False  # another line of the same template may hold a marker

    def add_counter_numbers(self, counter: LogCounter, line: LineText, *positions: int) -> None:
        """Note that the numbers at `positions` are values of `counter`, or tell it from similar counters."""
        if line.process:  # its number tells the counters of several processes apart
            start = line.line.text.find(line.process)
            labels = [start + number.start() - line.offset for number in re.finditer("[0-9]+", line.process)]
            positions = (*labels, *positions)
        self.counter_numbers += [CounterNumber(counter, counter.state, line, position) for position in positions]

    def reset(self) -> None:
        self.counter_numbers.clear()
        self.template_undecided = False


class _ConditionalTemplate:
    """A template whose lines can be skipped while the numbers in some columns have known values."""

    __slots__ = ("columns", "counter_version", "known_values")

    def __init__(self, columns: Sequence[slice]) -> None:
        self.columns, self.counter_version = columns, -1
        self.known_values: set[tuple[bytes, ...]] = set()


class SkippableLines:
    """The templates of lines that need not be parsed, within `max_bytes` of memory.

    A template is irrelevant when no rule can match its lines and none of its counters can be the primary one. With a
    counter that can be primary, its lines are skipped while that counter's numbers stay the same.
    """

    def __init__(self, max_bytes: int = MAX_TEMPLATE_BYTES, clear_after_lines: int = CLEAR_AFTER_LINES) -> None:
        self.irrelevant: set[bytes] = {b""}
        self.conditional: dict[bytes, _ConditionalTemplate] = {}
        self.must_read_next = False  # whatever its template
        self.clear_after_lines = clear_after_lines
        self._max_bytes = max_bytes
        self._bytes = 0
        self._counter_version = 0  # how often a counter that may be the primary one has changed

    def can_skip(self, template: bytes, raw: bytes) -> bool:
        """Whether this line can hold no marker."""
        if self.must_read_next:
            return False
        if template in self.irrelevant:
            return True
        conditional = self.conditional.get(template)
        return (
            conditional is not None
            and conditional.counter_version == self._counter_version
            and tuple([raw[column] for column in conditional.columns]) in conditional.known_values
        )

    def skip_template(self, template: bytes) -> None:
        """Skip all lines of this template from now on."""
        if self._has_room(template):
            self.conditional.pop(template, None)
            self.irrelevant.add(template)

    def skip_while_unchanged(self, template: bytes, raw: bytes, columns: Iterable[slice]) -> None:
        """Skip lines of this template while their numbers in `columns` are the same and no counter has changed."""
        conditional = self.conditional.get(template)
        if conditional is None:
            if not self._has_room(template):
                return
            conditional = self.conditional[template] = _ConditionalTemplate(
                sorted(columns, key=lambda column: column.start)
            )
        if conditional.counter_version != self._counter_version or len(conditional.known_values) >= _MAX_KNOWN_VALUES:
            conditional.counter_version = self._counter_version
            conditional.known_values.clear()
        conditional.known_values.add(tuple([raw[column] for column in conditional.columns]))

    def invalidate_unchanged(self) -> None:
        """Note that a counter has changed which may be the primary one."""
        self._counter_version += 1

    def clear(self) -> None:
        self.irrelevant.clear()
        self.irrelevant.add(b"")
        self.conditional.clear()
        self._bytes = 0

    def _has_room(self, template: bytes) -> bool:
        cost = len(template) + _TEMPLATE_OVERHEAD_BYTES
        if self._bytes + cost > self._max_bytes:
            self.clear()
        self._bytes += cost
        return cost <= self._max_bytes


_TO_TEMPLATE = bytes.maketrans(b"123456789\r", b"000000000\n")
# Parts of a pattern with digits: an escape, a class, a quantifier, a reference to a group, a literal digit.
_TOKEN = re.compile(
    r"(?P<escape>\\.)|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])|\{[0-9]*,?[0-9]*\}|(?P<reference>\(\?P=|\(\?\()|[0-9]",
    re.DOTALL,
)
_DIGIT = re.compile(r"[0-9]")
_NAMES_A_CHARACTER = "0123456789xuUN"  # after a backslash: a character by its number or name, or a group


def line_template(raw: bytes) -> bytes:
    r"""Replace each digit by 0 and \r by \n; the length stays the same, so that positions do, too."""
    return raw.translate(_TO_TEMPLATE)


@lru_cache(1024)  # compiling them takes 0.7 MB, which `serve` would need for each watch
def pattern_for_any_digits(pattern: re.Pattern[str]) -> re.Pattern[str] | None:
    """Return a pattern that matches all lines of a template if `pattern` matches one; None when there is none.

    It is `pattern` itself when that treats all digits alike, as most do: it matches all lines of a template or none.
    """
    tokens = list(_TOKEN.finditer(pattern.pattern))
    if any(_distinguishes_digits(token) for token in tokens):
        return None
    literal = [token for token in tokens if token[0].isdigit()]
    if not literal:
        return pattern
    if "(?!" in pattern.pattern or "(?<!" in pattern.pattern:
        return None  # in a negative look-around, any digit would match fewer lines, not more
    try:
        return re.compile(_TOKEN.sub(lambda token: "[0-9]" if token[0].isdigit() else token[0], pattern.pattern))
    except re.error:
        return None


def _distinguishes_digits(token: re.Match[str]) -> bool:
    if token["class"]:
        return _DIGIT.search(token["class"].replace("0-9", "")) is not None or r"\N" in token["class"]
    return bool(token["reference"]) or (bool(token["escape"]) and token["escape"][1] in _NAMES_A_CHARACTER)


def mask_digits(text: str) -> str:
    return _DIGIT.sub("0", text)
