"""Foreign text made safe to print: no terminal escapes, no control characters, one line, bounded."""

from __future__ import annotations

import re
import unicodedata

# ECMA-48: CSI sequences, then OSC/DCS/PM/APC strings up to BEL or ST, then the two- and three-byte escapes.
TERMINAL_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\`-~]?)")
_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # controls, bidi and zero-width marks, surrogates, unassigned


def strip_escapes(text: str) -> str:
    """`text` without terminal escape sequences."""
    return TERMINAL_ESCAPE.sub("", text) if "\x1b" in text else text


def encodable(text: str) -> str:
    """`text` that UTF-8 can write: bytes that never were UTF-8 (lone surrogates) as `\\udcff`."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def visible(text: str) -> str:
    """`text` with a `?` for each character that cannot be shown, line ends too; as long as it was."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or unicodedata.category(c) not in _UNSAFE else "?" for c in text)


def shown_json(text: str) -> str:
    """JSON of one line with every character that cannot be shown as `\\u009b`: the same JSON, safe on a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def printable(text: str, limit: int = 200) -> str:
    """One printable line of at most `limit` characters, white space collapsed, what cannot be shown as `?`."""
    if len(text) <= limit and text.isprintable() and text == " ".join(text.split()):
        return text
    bounded = text[: 8 * limit + 64]
    line = " ".join(strip_escapes(bounded).split())
    shown = visible(line)
    return shown if len(shown) <= limit and len(text) == len(bounded) else shown[: max(0, limit - 1)] + "…"
