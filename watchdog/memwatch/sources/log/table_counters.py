"""Finds counters in the tables of a log: columns below a header, and boxes of `| name | value |` between separators."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import NamedTuple

from memwatch.sources.log.unit_mentions import unit_from_name

_MAX_COLUMNS = 128  # of a header; RL tables of statistics have 60 (seen)
_MAX_ROWS = 1024  # that are remembered, to know them when the table is drawn again
_OTHER_LINES = 8  # lines that are no rows, after which a header without rows is dropped
_HEADER_CELLS = 3  # of a header that names no unit, at least (chosen)
_OTHER_BARS = 64  # drawings of bars, in their place (chosen)
# 12  1.5e-3  8.55G  nan  [1.81e+03, of a list  15:47:08  -69.4*, with a note below
_NUMBER = re.compile(
    r"[\[(]?[-+]?[0-9][0-9.,]*(?:e[-+]?[0-9]+)?[a-z%*]{0,2}[\]),]{0,2}|[0-9]{1,3}(?::[0-9]{2}){1,2}|nan|[-+]?inf|-",
    re.IGNORECASE,
)
_WHOLE = re.compile(r"([0-9]{1,15})(?:/([0-9]{1,15}))?")
_HAS_NUMBER = re.compile(r"(?<![^\s|,;])[0-9][0-9./]*(?![^\s|,;])")  # which no header has among its words
# |    iterations           | 2           |
# | step | 20,100 |  | step | 2.01e+04 |
_CELL = re.compile(
    r"[|│┃]\s{0,40}(?P<key>[A-Za-z_][\w/.-]{0,60})\s*[|│┃]\s*"
    r"(?P<index>[0-9][0-9,]{0,14}|[0-9](?:\.[0-9]{1,6})?e\+?[0-9]{1,2})\s*[|│┃]\s*"
)
_RULE = re.compile(r"[\s|+\-=_─━═┄┈└┗╰┌┏╭┘┛╯┐┓╮┼╋┴┻┬┳├┣┤┫╇┡┩╪]{3,}")
_CSV = re.compile(r"[^\s,;]{1,40}(?:[,;][^\s,;]{0,40}){1,60}\s?")
# How a line is cut into the cells of its table; a cell of several words has two spaces around it: `1 h, 15 m, 0 s`.
_CELLS = {
    "words": re.compile(r"\[[^\]|]{0,200}\]|[^\s|│┃]+"),
    "gaps": re.compile(r"[^\s|│┃]+(?: [^\s|│┃]+)*"),
    "borders": re.compile(r"[^\s|│┃](?:[^|│┃]*[^\s|│┃])?"),
    "commas": re.compile(r"[^,;\s]+"),
}


class _Columns(NamedTuple):
    """The columns of a header, cut in one of these ways, and which of them counts the unit."""

    cells: str
    width: int
    unit: str
    column: int


def is_separator(text: str) -> bool:
    """The line has nothing but the lines of a table."""
    return _RULE.fullmatch(text) is not None


def parse_box_row(text: str) -> tuple[str, str, int, int] | None:
    """Return (name, unit, position, index) of a row such as `| iterations | 2 |`; None unless it names a unit."""
    match = _CELL.fullmatch(text) if text[:1] in "|│┃" else None
    unit = unit_from_name(match["key"]) if match else None
    if match is None or unit is None:
        return None
    return match["key"], unit, match.start("index"), round(float(match["index"].replace(",", "")))


class TableReader:
    """Follows a table: a header that names a unit, and rows with an integer in that column."""

    def __init__(self) -> None:
        self._columns: list[_Columns] = []
        self._width = 0  # cells of its rows; 0 before the first one
        self._other_lines_left = self._bars_left = 0
        self._rows: OrderedDict[int, int] = OrderedDict()  # index -> hash of its latest row
        self._is_beside_another = False  # a header of another table came after its own
        self.header_count = 0  # headers that differ from the one before
        self.template_undecided = False  # the latest line was a header, or no row because of its number alone

    @property
    def expects_first_row(self) -> bool:
        return bool(self._columns) and not self._width

    @property
    def expects_rows(self) -> bool:
        return bool(self._columns)

    @property
    def is_wide(self) -> bool:
        """Its rows have so many columns that a single one is enough evidence."""
        return self._width >= 3

    def parse_row(self, text: str) -> tuple[str, int, int, int | None] | None:
        """Return (unit, position, index, total) of a row; None for a header and any other line."""
        self.template_undecided = False
        first = _CELLS["words"].search(text)
        if first is None:
            return None
        row = None
        if self._columns and not is_separator(text):
            row = next(filter(None, (self._row(text, columns) for columns in self._columns)), None)
        may_be_header = first[0][0].isalpha() or first[0][0] == "#"
        if row is None and may_be_header and not _HAS_NUMBER.search(text) and (columns := _columns_of_header(text)):
            self._begin(columns)
        elif row is None and may_be_header and self._width and _is_other_header(text):
            self._is_beside_another = self.template_undecided = True
        elif row is None and self._columns and not self._width and not is_separator(text):
            self._other_lines_left -= 1
            if self._other_lines_left <= 0:
                self._columns = []
        return row

    def pass_bar(self) -> None:
        """A bar is drawn where the first row may come; after many, the header was none: `Update Best Score`."""
        self._bars_left -= 1
        if self.expects_first_row and self._bars_left <= 0:
            self._columns = []

    def _begin(self, columns: list[_Columns]) -> None:
        self.template_undecided = True
        if columns != self._columns:
            self._columns, self._width, self._bars_left = columns, 0, _OTHER_BARS
            self.header_count += 1
        self._other_lines_left, self._is_beside_another = _OTHER_LINES, False

    def _row(self, text: str, columns: _Columns) -> tuple[str, int, int, int | None] | None:
        cells = list(_CELLS[columns.cells].finditer(text))
        first_words = [cell[0].split(None, 1)[0] for cell in cells]
        # `BFGS:   3 15:47:08 -9.25` below `Step Time Energy`
        column = columns.column + (len(cells) == columns.width + 1 and first_words[0][-1:] == ":")
        whole = _WHOLE.fullmatch(first_words[column]) if column < len(cells) else None
        if whole is None or not 2 <= len(cells) <= columns.width + 1 or not _are_values(first_words, columns.cells):
            return None
        if columns.cells != "gaps" and abs(len(cells) - (self._width or len(cells))) > 1:
            return None
        # The last cells may be empty, but for those below another table's header.
        may_differ = columns.cells == "gaps" and columns.column == 0 and self._width and not self._is_beside_another
        if columns.cells in ("gaps", "borders") and len(cells) != columns.width and not may_differ:
            return None
        self._width, index = self._width or len(cells), int(whole[1])
        if self._rows.get(index) == hash(text):
            self.template_undecided = True
            return None  # the whole table is drawn again
        self._rows[index] = hash(text)
        if len(self._rows) > _MAX_ROWS:
            self._rows.popitem(last=False)
        return columns.unit, cells[column].start(), index, int(whole[2]) or None if whole[2] else None


def _are_values(cells: list[str], kind: str) -> bool:
    """Half of them are numbers; in a table with borders, a third."""
    return (3 if kind == "borders" else 2) * sum(_NUMBER.fullmatch(cell) is not None for cell in cells) >= len(cells)


def _columns_of_header(text: str) -> list[_Columns]:
    """The columns of a header that names a unit, by each way in which its rows may be cut; none for another line."""
    if ("," in text or ";" in text) and _CSV.fullmatch(text):
        return _named_column(text, "commas")
    words = _CELLS["words"].findall(text)
    if not 2 <= len(words) <= _MAX_COLUMNS:
        return []
    plain = text
    if all(word.endswith(":") for word in words):
        plain = text.replace(":", " ")
    elif any(word[-1:] in ":.,;" or "=" in word for word in words):
        return []
    if text[:1] in "|│┃":
        return _named_column(plain, "borders")
    cells = _CELLS["gaps"].findall(plain.replace("\t", "  "))
    by_word, by_gap = _named_column(plain, "words"), _named_column(plain.replace("\t", "  "), "gaps")
    if words[0] == "E" and len(cells) >= 3:  # the column of epochs in spaCy's table
        return [_Columns("words", len(words), "epoch", 0)]
    if by_word and (by_word[0].column == 0 or 3 <= len(cells) == len(words)):
        return by_word + by_gap
    return []


def _is_other_header(text: str) -> bool:
    """Whether a line without numbers is the header of another table: single words, with two spaces or more between."""
    cells = _CELLS["gaps"].findall(text.replace("\t", "  "))
    return len(cells) >= _HEADER_CELLS and not _HAS_NUMBER.search(text) and not any(" " in cell for cell in cells)


def _named_column(text: str, kind: str) -> list[_Columns]:
    """The columns of a header that is cut in this way, when one of them is named after a unit."""
    cells = _CELLS[kind].findall(text)
    for index, cell in enumerate(cells):
        word, _, rest = cell.partition(" ")
        if (unit := unit_from_name(word)) and not rest[:1].isalpha():
            return [_Columns(kind, len(cells), unit, index)]
    return []
