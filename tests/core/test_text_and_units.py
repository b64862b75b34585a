"""Text from anywhere can be printed: one line, no escapes, bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwatch.core.text_and_units import TERMINAL_ESCAPE, encodable, printable


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\rb\nc\td", "a b c d"),
        ("nul\x00bell\x07", "nul?bell?"),
        ("\x9b31mC1", "?31mC1"),
        ("right\u202eleft", "right?left"),
        ("bytes \udcff\udcfe", "bytes ??"),
        ("é 中 █ ✓", "é 中 █ ✓"),
        ("\x1b[2J\x1b[H\x1b(Bclear\x1bM", "clear"),
        ("", ""),
    ],
)
def test_text_is_shown_without_what_a_terminal_would_obey(raw: str, shown: str) -> None:
    assert printable(raw) == shown


def test_long_text_ends_with_a_sign_that_more_came() -> None:
    assert printable("x" * 300, limit=10) == "x" * 9 + "…"
    assert printable("x" * 10, limit=10) == "x" * 10
    assert len(printable("\x1b[0m" * 10**6 + "end")) <= 200


def test_escapes_alone_are_stripped_and_the_rest_is_left() -> None:
    assert TERMINAL_ESCAPE.sub("", "a\x1b[1mb\x1b[0m\tc\n") == "ab\tc\n"


@given(st.text(), st.integers(1, 50))
def test_any_text_becomes_one_bounded_printable_line(text: str, limit: int) -> None:
    line = printable(text, limit)
    assert len(line) <= limit
    assert all(c.isprintable() for c in line)
    assert line == " ".join(line.split())
    line.encode()  # no surrogates


@given(st.text(st.characters()))
def test_any_text_can_be_made_encodable_and_what_was_stays(text: str) -> None:
    shown = encodable(text)
    assert shown.encode().decode() == shown
    if not any(0xD800 <= ord(char) < 0xE000 for char in text):
        assert shown == text


def test_a_byte_that_was_never_utf8_is_spelled_out() -> None:
    assert encodable(b"/runs/\xff".decode(errors="surrogateescape")) == r"/runs/\udcff"
