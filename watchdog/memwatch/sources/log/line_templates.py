"""Lines that lead nowhere, by their form: nearly all of a log, and the reason why reading one is cheap.

The form of a line: its text with 0 for every digit. What is told from the form holds for all lines of that form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from memwatch.sources.log.counters import LineText, LogCounter

KEPT_BYTES = 2 * 1024 * 1024  # of forms that are remembered; with more, all are forgotten
FORGET_AFTER_LINES = 1 << 20  # lines after which all is forgotten: what was judged wrongly is judged again
_STANDING_KEPT = 256  # combinations of numbers that are remembered of one form
_FORM_COST = 100  # bytes that a form takes beside its text

_NUMBER = re.compile(rb"[0-9][0-9,._]*")


class CounterNumber(NamedTuple):
    """A counter that a line speaks of, how it stood before, and where the number is."""

    stream: LogCounter
    before: tuple[object, ...]
    piece: LineText
    position: int

    def column(self, raw: bytes, byte: int) -> slice:
        """Where the number stands in the line, whose first byte is at `byte`."""
        start = self.piece.byte_of(self.position) - byte
        number = _NUMBER.match(raw, start)
        return slice(start, number.end() if number else start)


class LineObservations:
    """What was noticed while a line was read."""

    def __init__(self) -> None:
        self.counter_numbers: list[CounterNumber] = []
        self.template_undecided = (
            False  # another line of the same form may mean something, or something waits for a line
        )

    def add_counter_numbers(self, stream: LogCounter, piece: LineText, *positions: int) -> None:
        """The numbers at `positions` count `stream`, or say which of several alike it is."""
        self.counter_numbers += [CounterNumber(stream, stream.state, piece, position) for position in positions]

    def reset(self) -> None:
        """Begin the next line."""
        self.counter_numbers.clear()
        self.template_undecided = False


class _ConditionalTemplate:
    """A form of which the numbers at some places matter, and those at which nothing happened."""

    __slots__ = ("columns", "counter_version", "known_values")

    def __init__(self, columns: Sequence[slice]) -> None:
        self.columns, self.counter_version = columns, -1
        self.known_values: set[tuple[bytes, ...]] = set()


class SkippableLines:
    """The forms of lines that need not be read. What is held is bounded by `kept_bytes`.

    A form is idle when no line of it can say anything: no rule can match it, and all that it counts is known to be no
    clock. Where it speaks of a counter that may be one, it is passed over while the number stays as it was.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES, period: int = FORGET_AFTER_LINES) -> None:
        self.irrelevant: set[bytes] = {b""}
        self.conditional: dict[bytes, _ConditionalTemplate] = {}
        self.must_read_next = False  # the next line must be read, whatever it looks like
        self.period = period
        self._kept_bytes = kept_bytes
        self._bytes = 0
        self._counter_version = 0  # how often a counter that may be the clock has moved

    def can_skip(self, form: bytes, raw: bytes) -> bool:
        """Nothing can come of this line."""
        if self.must_read_next:
            return False
        if form in self.irrelevant:
            return True
        watched = self.conditional.get(form)
        return (
            watched is not None
            and watched.counter_version == self._counter_version
            and tuple([raw[column] for column in watched.columns]) in watched.known_values
        )

    def skip_template(self, form: bytes) -> None:
        """No line of this form leads anywhere."""
        if self._has_room(form):
            self.conditional.pop(form, None)
            self.irrelevant.add(form)

    def skip_while_unchanged(self, form: bytes, raw: bytes, columns: Iterable[slice]) -> None:
        """Nothing comes of a line of this form while no counter has moved and its numbers in `columns` are these."""
        watched = self.conditional.get(form)
        if watched is None:
            if not self._has_room(form):
                return
            watched = self.conditional[form] = _ConditionalTemplate(sorted(columns, key=lambda column: column.start))
        if watched.counter_version != self._counter_version or len(watched.known_values) >= _STANDING_KEPT:
            watched.counter_version = self._counter_version
            watched.known_values.clear()
        watched.known_values.add(tuple([raw[column] for column in watched.columns]))

    def invalidate_unchanged(self) -> None:
        """A counter that may be the clock has moved."""
        self._counter_version += 1

    def forget(self) -> None:
        """Judge anew."""
        self.irrelevant.clear()
        self.irrelevant.add(b"")
        self.conditional.clear()
        self._bytes = 0

    def _has_room(self, form: bytes) -> bool:
        cost = len(form) + _FORM_COST
        if self._bytes + cost > self._kept_bytes:
            self.forget()
        self._bytes += cost
        return cost <= self._kept_bytes


_FORM = bytes.maketrans(b"123456789\r", b"000000000\n")
# Of a pattern: an escape, a class, a quantifier, a reference to a group, a digit that stands for itself.
_TOKEN = re.compile(
    r"(?P<escape>\\.)|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])|\{[0-9]*,?[0-9]*\}|(?P<reference>\(\?P=|\(\?\()|[0-9]",
    re.DOTALL,
)
_DIGIT = re.compile(r"[0-9]")
_NAMES_A_CHARACTER = "0123456789xuUN"  # after a backslash: any character, or a group


def line_template(raw: bytes) -> bytes:
    r"""Every digit is 0, every \r a \n: as long as `raw`, so that places in one are places in the other."""
    return raw.translate(_FORM)


def pattern_for_any_digits(pattern: re.Pattern[str]) -> re.Pattern[str] | None:
    """A pattern that is found in every line of a form if `pattern` is found in one of them; None when there is none.

    `pattern` itself where it treats all digits alike, as most do: it is found in all lines of a form or in none.
    """
    tokens = list(_TOKEN.finditer(pattern.pattern))
    if any(_tells_digits_apart(token) for token in tokens):
        return None
    literal = [token for token in tokens if token[0].isdigit()]
    if not literal:
        return pattern
    if "(?!" in pattern.pattern or "(?<!" in pattern.pattern:
        return None  # where the digit must not stand, any digit would say less, not more
    try:
        return re.compile(_TOKEN.sub(lambda token: "[0-9]" if token[0].isdigit() else token[0], pattern.pattern))
    except re.error:
        return None


def _tells_digits_apart(token: re.Match[str]) -> bool:
    if token["class"]:
        return _DIGIT.search(token["class"].replace("0-9", "")) is not None or r"\N" in token["class"]
    return bool(token["reference"]) or (bool(token["escape"]) and token["escape"][1] in _NAMES_A_CHARACTER)


def mask_digits(text: str) -> str:
    """`text` with 0 for every digit."""
    return _DIGIT.sub("0", text)
