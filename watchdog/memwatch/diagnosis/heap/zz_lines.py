"""Which line of its source an instruction belongs to: the tables of code objects, as CPython's versions have them."""

from __future__ import annotations

from collections.abc import Iterator

_NO_LINE = -128  # in 3.10's tables: these instructions have none
_LONG, _NO_COLUMNS, _NO_LOCATION, _ONE_LINE = 14, 13, 15, (10, 11, 12)


def line_of(table: bytes, first: int, offset: int, minor: int) -> int:
    """The line of the instruction at an offset (in bytes) of code that begins at the line `first`.

    `table`: co_lnotab up to 3.9, co_linetable from 3.10 on. A table that is cut off gives the last line that it tells.
    """
    if minor <= 9:
        return _by_lnotab(table, first, offset)
    line = first
    for length, new in _by_linetable(table, first) if minor == 10 else _by_locations(table, first):
        line = line if new is None else new
        offset -= length
        if offset < 0:
            break
    return line


def _by_lnotab(table: bytes, line: int, offset: int) -> int:
    """Pairs: so many bytes further, so many lines further."""
    at = 0
    for forward, lines in zip(table[::2], table[1::2], strict=False):
        at += forward
        if at > offset:
            break
        line += _signed(lines)
    return line


def _by_linetable(table: bytes, line: int) -> Iterator[tuple[int, int | None]]:
    """Pairs: so many lines further, which so many bytes have."""
    for length, lines in zip(table[::2], table[1::2], strict=False):
        if _signed(lines) == _NO_LINE:
            yield length, None
        else:
            line += _signed(lines)
            yield length, line


def _by_locations(table: bytes, line: int) -> Iterator[tuple[int, int | None]]:
    """Entries: a first byte with its highest bit set, which tells the form and how many instructions it is for."""
    at = 0
    while at < len(table):
        form, length = table[at] >> 3 & 15, 2 * ((table[at] & 7) + 1)
        at += 1
        if form in (_LONG, _NO_COLUMNS):
            line += _number(table, at)
        elif form in _ONE_LINE:
            line += form - _ONE_LINE[0]
        yield length, None if form == _NO_LOCATION else line
        while at < len(table) and not table[at] & 128:
            at += 1


def _number(table: bytes, at: int) -> int:
    """Six bits a byte, the lowest first, while the seventh is set; the lowest of all is the sign."""
    value = shift = 0
    for byte in table[at : at + 8]:
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return -(value >> 1) if value & 1 else value >> 1


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte
