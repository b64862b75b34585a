"""Text for people: foreign text made safe to print, and sizes, durations and names as people write and read them.

Safe text is one bounded line without terminal escapes and control characters. Sizes are in decimal units by default:
1 GB is 10**9 bytes, 1 GiB is 2**30.
"""

from __future__ import annotations

import math
import re
import unicodedata

# ECMA-48: CSI sequences, then OSC/DCS/PM/APC strings up to BEL or ST, then the two- and three-byte escapes.
TERMINAL_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\`-~]?)")
_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # controls, bidi and zero-width marks, surrogates, unassigned


def encodable(text: str) -> str:
    """Make `text` encodable as UTF-8: bytes that never were UTF-8 (lone surrogates) become `\\udcff`."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def replace_unprintable(text: str) -> str:
    """Replace each character that cannot be shown, line ends too, with a `?`, tabs with a space; the length stays."""
    if text.isprintable():
        return text
    text = text.replace("\t", " ")
    return "".join(c if c.isprintable() or unicodedata.category(c) not in _UNSAFE else "?" for c in text)


def shown_json(text: str) -> str:
    """Escape every character of one-line JSON that cannot be shown as `\\u009b`: the same JSON, safe on a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def printable(text: str, limit: int = 200) -> str:
    """Make one printable line of at most `limit` characters: white space collapsed, `?` for unprintable characters."""
    if len(text) <= limit and text.isprintable() and text == " ".join(text.split()):
        return text
    bounded = text[: 8 * limit + 64]
    line = " ".join(TERMINAL_ESCAPE.sub("", bounded).split())
    shown = replace_unprintable(line)
    return shown if len(shown) <= limit and len(text) == len(bounded) else shown[: max(0, limit - 1)] + "…"


_FACTORS: dict[str, int] = {
    "": 1,
    "B": 1,
    **{p + "B": 1000**i for i, p in enumerate("kMGTP", 1)},
    **{p + "iB": 1024**i for i, p in enumerate("KMGTP", 1)},
}
_BY_LOWER = {unit.lower(): factor for unit, factor in _FACTORS.items()}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)")


def parse_size(text: str) -> int:
    """Parse `175GB`, `163 GiB`, `1.5TB` or a plain number of bytes into bytes; ValueError says what is wrong."""
    match = _SIZE.fullmatch(text.strip())
    factor = _BY_LOWER.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not a size: write a number and a unit, as 175GB or 163GiB")
    size = float(match[1]) * factor
    if not 0 < size < 2**63:
        raise ValueError(f"{text!r} is not a size that memory can have")
    return round(size)


def format_bytes(count: float, signed: bool = False) -> str:
    """Format as `12.9 GB`, `843.0 MB`, `0 B`: one decimal, decimal units."""
    sign = "-" if count < 0 else "+" if signed else ""
    size = abs(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.95 or unit == "TB":
            break
        size /= 1000
    digits = 0 if unit == "B" else 1
    return f"{sign}{size:.{digits}f} {unit}"


def format_duration(seconds: float) -> str:
    """Format as `5 h 10 m`, `3 m 20 s`, `45 s`, `under 1 s`, `2 d 4 h`."""
    if not math.isfinite(seconds):
        return "never"
    left = max(0, round(seconds))
    if left == 0 and seconds > 0:
        return "under 1 s"
    for unit, size, lower, lower_size in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if left >= size:
            rest = left % size // lower_size
            return f"{left // size} {unit} {rest} {lower}" if rest else f"{left // size} {unit}"
    return f"{left} s"


def index_text(index: float) -> str:
    """The generation an index falls in: 13.4 is within generation 13."""
    return str(math.floor(index))


def since_text(since: float, unit: str) -> str:
    """`generation 3`, or where the unit is "hour" `2 h after the start`."""
    return f"{unit} {index_text(since)}" if unit != "hour" else f"{format_duration(since * 3600)} after the start"


def without_main_module(name: str) -> str:
    """A path or a type as people say it: without the main program's module."""
    return name.removeprefix("__main__.")


def program_name(command: str) -> str:
    """`evolve.py` of `python ../examples/evolve.py --leak`: the script, the module, or the program itself."""
    words = command.split()
    for before, word in zip(["", *words], words, strict=False):
        if before == "-m" or word.endswith(".py"):
            return word.rpartition("/")[2]
    return words[0].rpartition("/")[2] if words else ""
