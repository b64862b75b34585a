"""The form of a line: its text with 0 for every digit. What is told from the form holds for all lines of that form."""

from __future__ import annotations

import re

_FORM = bytes.maketrans(b"123456789\r", b"000000000\n")
# Of a pattern: an escape, a class, a quantifier, a reference to a group, a digit that stands for itself.
_TOKEN = re.compile(
    r"(?P<escape>\\.)|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])|\{[0-9]*,?[0-9]*\}|(?P<reference>\(\?P=|\(\?\()|[0-9]",
    re.DOTALL,
)
_DIGIT = re.compile(r"[0-9]")
_NAMES_A_CHARACTER = "0123456789xuUN"  # after a backslash: any character, or a group


def form_of(raw: bytes) -> bytes:
    r"""Every digit is 0, every \r a \n: as long as `raw`, so that places in one are places in the other."""
    return raw.translate(_FORM)


def whatever_the_digits(pattern: re.Pattern[str]) -> re.Pattern[str] | None:
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


def any_digit(text: str) -> str:
    """`text` with 0 for every digit."""
    return _DIGIT.sub("0", text)
