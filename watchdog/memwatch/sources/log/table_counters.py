"""Finds counters in the tables of a log: columns below a header, and boxes of `| name | value |` between separators."""

from __future__ import annotations

import re

from memwatch.sources.log.unit_mentions import unit_from_name

_MAX_COLUMNS = 40
_NUMBER = re.compile(r"[-+]?[0-9][0-9.,]*(?:e[-+]?[0-9]+)?[a-z%]{0,2}|nan|[-+]?inf|-", re.IGNORECASE)
_WHOLE = re.compile(r"([0-9]{1,15})(?:/([0-9]{1,15}))?")
# |    iterations           | 2           |
_CELL = re.compile(r"[|│┃]\s{0,40}(?P<key>[A-Za-z_][\w/.-]{0,60})\s*[|│┃]\s*(?P<index>[0-9][0-9,]{0,14})\s*[|│┃]\s*")
_RULE = re.compile(r"[\s|+\-=_─━═┄┈└┗╰┌┏╭┘┛╯┐┓╮┼╋┴┻┬┳├┣┤┫╇┡┩╪]{3,}")
_BORDER = re.compile(r"[|│┃]")
_GAP = re.compile(r"\s{2,}|\t")
_CSV = re.compile(r"[^\s,;]{1,40}(?:[,;][^\s,;]{0,40}){1,60}\s?")


def is_separator(text: str) -> bool:
    """The line has nothing but the lines of a table."""
    return _RULE.fullmatch(text) is not None


def parse_box_row(text: str) -> tuple[str, str, int, int] | None:
    """Return (name, unit, position, index) of a row such as `| iterations | 2 |`; None unless it names a unit."""
    match = _CELL.fullmatch(text) if text[:1] in "|│┃" else None
    unit = unit_from_name(match["key"]) if match else None
    if match is None or unit is None:
        return None
    return match["key"], unit, match.start("index"), int(match["index"].replace(",", ""))


class TableReader:
    """Follows a table: a header that names a unit, and rows with an integer in that column."""

    def __init__(self) -> None:
        self._unit = ""
        self._column = self._columns = self._width = 0
        self._cells = self._cell = 0  # cells of the header that gaps separate, and which of them names the unit
        self._other_lines_left = 0  # lines that are no rows, until a header without rows is dropped
        self._last: int | None = None
        self.header_count = 0  # headers that differ from the one before
        self.template_undecided = False  # the latest line was a header, or no row because of its number alone

    @property
    def expects_first_row(self) -> bool:
        return bool(self._unit) and not self._width

    @property
    def expects_rows(self) -> bool:
        return bool(self._unit)

    @property
    def is_wide(self) -> bool:
        """Its rows have so many columns that a single one is enough evidence."""
        return self._width >= 3

    def parse_row(self, text: str) -> tuple[str, int, int, int | None] | None:
        """Return (unit, position, index, total) of a row; None for a header and any other line."""
        self.template_undecided = False
        plain = _BORDER.sub(" ", text)
        csv = ("," in plain or ";" in plain) and _CSV.fullmatch(plain) is not None
        if csv:
            plain = plain.replace(",", " ").replace(";", " ")
        tokens = plain.split()
        if not tokens:
            return None
        if tokens[0][0].isalpha() or tokens[0][0] == "#":
            self._header(plain, tokens, csv)
        elif self._unit and not is_separator(text):
            return self._parse_values(plain, tokens)
        return None

    def _header(self, plain: str, tokens: list[str], csv: bool) -> None:
        if all(token.endswith(":") for token in tokens):
            tokens = [token[:-1] for token in tokens]
        column = _column_of_unit(plain, tokens, csv) if 2 <= len(tokens) <= _MAX_COLUMNS else None
        if column is not None:
            self._begin(unit_from_name(tokens[column]) or "epoch", column, len(tokens))
            units = [unit_from_name(cell.split()[0]) is not None for cell in _GAP.split(plain.strip())]
            self._cells, self._cell = (len(units), units.index(True)) if True in units else (0, 0)
        elif self._unit and not self._width:
            self._count_other_line()

    def _begin(self, unit: str, column: int, words: int) -> None:
        self.template_undecided = True
        if (unit, column, words) != (self._unit, self._column, self._columns):
            self._unit, self._column, self._columns = unit, column, words
            self._width = 0
            self.header_count += 1
        self._other_lines_left = 2
        self._last = None

    def _count_other_line(self) -> None:
        self._other_lines_left -= 1
        if self._other_lines_left <= 0:
            self._unit = ""

    def _parse_values(self, plain: str, tokens: list[str]) -> tuple[str, int, int, int | None] | None:
        column = self._column
        whole = _WHOLE.fullmatch(tokens[column]) if column < len(tokens) else None
        fits = 2 <= len(tokens) <= self._columns + 1 and abs(len(tokens) - (self._width or len(tokens))) <= 1
        if whole is None or not (fits and _half_are_numbers(tokens)):  # cells of several words: `1 h, 15 m, 0 s`
            cells = [cell.split()[0] for cell in _GAP.split(plain.strip())]
            if len(cells) == self._cells and _half_are_numbers(cells):
                column, whole = tokens.index(cells[self._cell]), _WHOLE.fullmatch(cells[self._cell])
            else:
                whole = None
        if whole is None:
            if not self._width:
                self._count_other_line()
            return None
        index = int(whole[1])
        if self._last is not None and index < self._last:
            self.template_undecided = True
            return None  # not a row: rows count up until the header is repeated
        self._width, self._last = self._width or len(tokens), index
        position = [m.start() for m in re.finditer(r"\S+", plain)][column]
        return self._unit, position, index, int(whole[2]) or None if whole[2] else None


def _half_are_numbers(tokens: list[str]) -> bool:
    return 2 * sum(_NUMBER.fullmatch(token) is not None for token in tokens) >= len(tokens)


def _column_of_unit(plain: str, tokens: list[str], csv: bool) -> int | None:
    """Return which column of a header names a unit; None for a line that is no header."""
    column = next((i for i, token in enumerate(tokens) if unit_from_name(token)), None)
    lettered = tokens[0] == "E"  # the column of epochs in spaCy's table
    if (column is None and not lettered) or any(token[-1:] in ":.,;" or "=" in token for token in tokens):
        return None
    cells = [cell for cell in _GAP.split(plain.strip()) if cell]
    if lettered and len(cells) >= 3:
        return 0
    return column if column == 0 or csv or 3 <= len(cells) == len(tokens) else None
