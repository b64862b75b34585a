"""Find what counts up in the log of an unknown program: progress bars, tables, boxes, words, recurring lines."""

from __future__ import annotations

import re
from collections import OrderedDict

from memwatch.sources.streams import PRIORITY, UNNAMED, Piece, Stream

STREAMS_KEPT = 128  # counters followed at a time; the one that was silent for longest is forgotten
TEMPLATES_KEPT = 256
_TEMPLATE_CHARS = 200
_TEMPLATE_LINES = 5  # in so many lines a number must go up by the same step each time to count from then on

_WORD_TO_UNIT = {
    **{unit: unit for unit in PRIORITY},
    **{unit + "s": unit for unit in PRIORITY},
    "gen": "generation",
    "n_gen": "generation",
    "iter": "iteration",
    "iters": "iteration",
    "iterat": "iteration",
    "n_iter": "iteration",
    "training_iteration": "iteration",
    "num_iterations": "iteration",
    "total_timesteps": "timestep",
    "num_timesteps": "timestep",
    "global_step": "step",
    "total_steps": "step",
    "num_updates": "update",
}
_HINTS = ("gen", "epoch", "iter", "round", "trial", "episode", "update", "step", "batch")
_AT_RESULT = re.compile(r"\d\.\d|loss|score|fitness|acc|best|reward|took|time|done|complete|finish", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?[0-9][0-9.,]*(?:e[-+]?[0-9]+)?[a-z%]{0,2}|nan|[-+]?inf|-", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]+")
_WHOLE = re.compile(r"([0-9]{1,15})(?:/([0-9]{1,15}))?")

# Epoch 3/10:  |  generation = 3  |  [Gen 3 of 25]  |  Iteration #3
_WORD = re.compile(
    r"(?<![\w-])(?P<word>generation|gen|epoch|iteration|iter|round|trial|episode|update|step|batch)"
    r"[ ]{0,3}[:=#\[(]{0,2}[ ]{0,12}(?P<index>[0-9][0-9,]{0,14})(?![\w%]|[.:][0-9])"
    r"(?:[ ]{0,3}(?:/|of|out of)[ ]{0,3}(?P<total>[0-9][0-9,]{0,14})(?![\w%]|\.[0-9]))?",
    re.IGNORECASE,
)
# Epoch 3:  13%|###   | 5/38 [00:00<00:02, 14.30it/s, loss=0.6]
BAR = re.compile(
    r"(?P<description>[^|]{0,200}?)(?::[ ]{0,4})?(?:[ ]{0,4}[0-9]{1,3}%)?\|[^|]{0,400}\|[ ]{0,4}"
    r"(?P<done>[0-9]{1,15})/(?P<total>[0-9]{1,15}|\?)[ ]?\[[^\]]{0,400}\]"
)
# |    iterations           | 2           |
_CELL = re.compile(r"[|│┃]\s{0,8}(?P<key>[A-Za-z_][\w/.-]{0,60})\s*[|│┃]\s*(?P<index>[0-9][0-9,]{0,14})\s*[|│┃]\s*")
_RULE = re.compile(r"[\s|+\-=_─━═┄┈└┗╰┌┏╭┘┛╯┐┓╮┼╋┴┻┬┳├┣┤┫╇┡┩╪]{3,}")
_BORDER = re.compile(r"[|│┃]")
# 2026-11-21 03:52:47,123 and other moments, hexadecimal addresses, decimal fractions: no counters
_NO_COUNTER = re.compile(
    r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}|[0-9]+(?::[0-9]+)+(?:[.,][0-9]+)?|0x[0-9a-fA-F]+"
    r"|[-+]?[0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|-[0-9]+"
)
# 512 MB, 20 s, 95%: measured, not counted; nor is what follows these words
_MEASURE = re.compile(r"\s?(?:[kKMGT]i?B|[mnu]?s|secs?|seconds?|min|minutes?|h|%|x)\b|%")
_NO_UNITS = frozenset(
    ("elapsed", "time", "seconds", "sec", "rss", "mem", "memory", "pid", "port", "seed", "bytes", "eta")
)
_INTEGER = re.compile(r"(?<![\w.])[0-9]{1,15}(?![\w.])")


class Counter:
    """All counters of one log, whatever it looks like."""

    def __init__(self) -> None:
        self._streams: OrderedDict[str, Stream] = OrderedDict()
        self._box = _Box()
        self._table = _Table()
        self._templates: OrderedDict[str, _Template] = OrderedDict()

    @property
    def streams(self) -> list[Stream]:
        """What was found so far."""
        return list(self._streams.values())

    def bar(self, piece: Piece, match: re.Match[str]) -> bool:
        """Look at a drawing of a progress bar; True when a counter moved."""
        end = match.end("description")
        if _hinted(piece) and _WORD.search(piece.text, 0, end):  # `Epoch 3:  13%|`: what is drawn are its parts
            return self._words(piece, end, "start")
        if self._rows(piece, end):
            return True
        if match["total"] == "?":
            return False
        return self._description(piece, match) or self._bar_itself(piece, match, match["description"].strip())

    def text(self, piece: Piece, unnamed: bool) -> bool:
        """Look at a line; `unnamed`: also for a counter without a name. True when a counter moved."""
        end = len(piece.text)
        return (
            self._boxes(piece)
            or self._rows(piece, end)
            or self._words(piece, end, "")
            or (unnamed and self._recurring(piece))
        )

    def _stream(
        self, key: str, name: str, unit: str, weight: int, *, needs: int, priority: int | None = None
    ) -> Stream:
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = Stream(name, unit, weight, needs, priority)
            if len(self._streams) > STREAMS_KEPT:
                self._streams.popitem(last=False)
        self._streams.move_to_end(key)
        return stream

    # --- words ---

    def _words(self, piece: Piece, end: int, at: str) -> bool:
        if not _hinted(piece):
            return False
        match = _WORD.search(piece.text, 0, end)
        if match is None:
            return False
        unit = _WORD_TO_UNIT[match["word"].lower()]
        rest = piece.text[match.end() : end]
        prefix = _DIGITS.sub("#", piece.text[max(0, match.start() - 80) : match.start("index")])
        key = f"word {prefix}#{'/' if match['total'] else ''}{rest.lstrip()[:2] if not at else ''}"
        at = at or ("end" if _AT_RESULT.search(rest) else "start")
        sure = match["total"] is not None and at == "start"
        needs = 2 if PRIORITY[unit] < PRIORITY["episode"] else 0 if sure else 1
        stream = self._stream(key, "words", unit, 2, needs=needs)
        index = _int(match["index"])
        if index == stream.last and at == "end":  # said again and again while it is under way
            return stream.repeat()
        return stream.add(piece, match.start("index"), index, _total(match["total"]), at)

    # --- progress bars ---

    def _description(self, piece: Piece, match: re.Match[str]) -> bool:
        """`train 3:  13%|...`: a bar that is drawn for each unit and numbered by it."""
        description = match["description"]
        numbers = list(_INTEGER.finditer(_NO_COUNTER.sub(lambda m: "F" * len(m[0]), description)))
        if len(numbers) != 1:
            return False
        number = numbers[0]
        key = f"numbered {description[: number.start()]}#{description[number.end() :]}"
        outer = self._outer()
        stream = self._stream(key, "numbered bar", "iteration", 3, needs=1)
        if outer is not None and stream.unit != outer.unit:
            stream.rename(outer.unit)
        index = int(number[0])
        if stream.ups < 2:
            stream.dead |= stream.last is not None and index not in (stream.last, stream.last + 1)
        stream.total = outer.total if outer is not None else stream.total
        moved = stream.add(piece, number.start(), index, None, "start")
        if outer is not None:
            outer.needs = 2  # it may only be the frame: wait which of the two counts
        return moved

    def _outer(self) -> Stream | None:
        """The bar around the others, by its name."""
        for key in reversed(self._streams):
            if key.startswith("bar ") and self._streams[key].priority[0] > PRIORITY["batch"]:
                return self._streams[key]
        return None

    def _bar_itself(self, piece: Piece, match: re.Match[str], description: str) -> bool:
        unit = _WORD_TO_UNIT.get(description.lower())
        done, total = int(match["done"]), int(match["total"])
        key = f"bar {_DIGITS.sub('#', description)} {total}"
        if unit is not None:
            stream = self._stream(key, "bar", unit, 1, needs=1)
        else:
            stream = self._stream(key, "bar", "iteration", 1, needs=3, priority=UNNAMED)
            stream.dead |= stream.last is not None and done < stream.last  # drawn anew: an inner loop
        return done < total and stream.add(piece, match.start("done"), done, total, "start")

    # --- tables ---

    def _boxes(self, piece: Piece) -> bool:
        closed = self._box.closes(piece.text)
        if closed:
            self._judge_box()
            return True
        match = _CELL.fullmatch(piece.text) if piece.text[:1] in "|│┃" else None
        unit = _WORD_TO_UNIT.get(match["key"].lower().rpartition("/")[2]) if match else None
        if match is None or unit is None or len(self._box.keys) + len(self._box.known) > STREAMS_KEPT:
            return False
        key = f"box {match['key']}"
        stream = self._stream(key, "boxed table", unit, 4, needs=10**9)
        stream.needs = 0 if self._box.judged(key) else stream.needs
        self._box.keys[key] = stream
        return stream.add(piece, match.start("index"), _int(match["index"]), None, "end")

    def _judge_box(self) -> None:
        """At the end of the first box: its counters can be chosen now.

        Where only every Nth episode is printed, time steps are the finer and steadier clock.
        """
        units = {stream.unit for stream in self._box.keys.values()}
        for key, stream in self._box.keys.items():
            if (
                not self._box.judged(key)
                and stream.unit == "episode"
                and (stream.first or 0) > 1
                and "timestep" in units
            ):
                stream.priority = (PRIORITY["timestep"] - 1, stream.priority[1])
            stream.needs = 0
        self._box.known.update(self._box.keys)
        self._box.keys.clear()

    def _rows(self, piece: Piece, end: int) -> bool:
        if not self._table.armed and not _hinted(piece):
            return False
        found = self._table.row(piece.text[:end])
        if found is None:
            return False
        unit, position, index, total = found
        stream = self._stream(f"table {unit}", "table", unit, 4, needs=0 if self._table.wide else 1)
        return stream.add(piece, position, index, total, "end")

    # --- recurring lines ---

    def _recurring(self, piece: Piece) -> bool:
        text = piece.text[:_TEMPLATE_CHARS]
        shape = _DIGITS.sub("#", " ".join(text.split()))
        template = self._templates.get(shape)
        if template is not None:
            self._templates.move_to_end(shape)
        if "#" not in shape or (template is not None and template.hopeless):
            return False
        plain = _NO_COUNTER.sub(lambda m: "F" * len(m[0]), text)
        numbers = [number for number in _INTEGER.finditer(plain) if not _MEASURE.match(plain, number.end())]
        if template is None:
            template = self._templates[shape] = _Template(len(numbers))
            if len(self._templates) > TEMPLATES_KEPT:
                self._templates.popitem(last=False)
        moved = False
        for place in template.counting([int(number[0]) for number in numbers]):
            noun = _noun(plain, numbers[place])
            if noun in _NO_UNITS:
                continue
            key, needs, priority = f"line {place} {shape}", _TEMPLATE_LINES - 1, UNNAMED - place
            stream = self._stream(key, "counter", noun, 0, needs=needs, priority=priority)
            moved |= stream.add(piece, numbers[place].start(), int(numbers[place][0]), None, "end")
            stream.dead |= stream.downs > 1  # it only went up for a while
        return moved


class _Box:
    """A table of `| name | value |` rows between rules."""

    def __init__(self) -> None:
        self.keys: dict[str, Stream] = {}  # of the box that is open
        self.known: set[str] = set()

    def judged(self, key: str) -> bool:
        return key in self.known

    def closes(self, text: str) -> bool:
        return bool(self.keys) and _RULE.fullmatch(text) is not None


class _Table:
    """A header that names a unit, and rows with a whole number in that column."""

    def __init__(self) -> None:
        self._unit = ""
        self._column = self._columns = self._width = 0
        self._patience = 0
        self._last: int | None = None

    @property
    def armed(self) -> bool:
        """A header was seen: rows are expected."""
        return bool(self._unit)

    @property
    def wide(self) -> bool:
        return self._width >= 3

    def row(self, text: str) -> tuple[str, int, int, int | None] | None:
        """(unit, position, index, total) of a row; a header or anything else is None."""
        if not text or text.isspace():
            return None
        plain = _BORDER.sub(" ", text)
        tokens = plain.split()
        if not tokens:
            return None
        if tokens[0][0].isalpha() or tokens[0][0] == "#":
            self._header(plain, tokens)
        elif self._unit and not _RULE.fullmatch(text):
            return self._match(plain, tokens)
        return None

    def _header(self, plain: str, tokens: list[str]) -> None:
        cells = [cell for cell in re.split(r"\s{2,}|\t", plain.strip()) if cell]
        sentence = any(token[-1] in ":.,;" or "=" in token for token in tokens)
        units = [_WORD_TO_UNIT.get(token.lower().strip("#")) for token in tokens]
        if 2 <= len(tokens) <= 40 and not sentence and units[0]:
            self._begin(units[0], 0, len(tokens))
        elif 3 <= len(cells) == len(tokens) <= 40 and not sentence and any(units):
            column = next(i for i, unit in enumerate(units) if unit)
            self._begin(units[column] or "", column, len(tokens))
        elif self._unit and not self._width:
            self._be_patient()

    def _begin(self, unit: str, column: int, words: int) -> None:
        if (unit, column, words) != (self._unit, self._column, self._columns):
            self._unit, self._column, self._columns = unit, column, words
            self._width = 0
        self._patience = 2
        self._last = None

    def _be_patient(self) -> None:
        self._patience -= 1
        if self._patience <= 0:
            self._unit = ""

    def _match(self, plain: str, tokens: list[str]) -> tuple[str, int, int, int | None] | None:
        whole = _WHOLE.fullmatch(tokens[self._column]) if self._column < len(tokens) else None
        numeric = sum(_NUMBER.fullmatch(token) is not None for token in tokens)
        fits = 2 <= len(tokens) <= self._columns + 1 and 2 * numeric >= len(tokens)
        if self._width:
            fits = fits and abs(len(tokens) - self._width) <= 1
        if whole is None or not fits:
            if not self._width:
                self._be_patient()
            return None
        index = int(whole[1])
        if self._last is not None and index < self._last:
            return None  # not a row of ours: rows go up until the header comes again
        self._width, self._last = self._width or len(tokens), index
        position = [m.start() for m in re.finditer(r"\S+", plain)][self._column]
        return self._unit, position, index, _total(whole[2])


class _Template:
    """The integers of a recurring line; those that go up by the same step each time may count."""

    __slots__ = ("_counting", "_last", "_places", "_seen", "_step")

    def __init__(self, places: int) -> None:
        self._places = places
        self._seen = 0
        self._last: list[int] = []
        self._step: dict[int, int] = {}
        self._counting = list(range(places))

    @property
    def hopeless(self) -> bool:
        """None of its integers counts, and none ever will."""
        return not self._counting

    def counting(self, values: list[int]) -> list[int]:
        """Places that still count, after these values."""
        last, self._last = self._last, values
        self._seen += 1
        if len(values) != self._places:
            self._counting = []
        elif last and self._seen <= _TEMPLATE_LINES:
            steps = {place: values[place] - last[place] for place in self._counting}
            self._counting = [p for p, step in steps.items() if step > 0 and step == self._step.get(p, step)]
            self._step = steps
        return self._counting


def _hinted(piece: Piece) -> bool:
    """The line may name a unit (a look that is much cheaper than the pattern)."""
    low = piece.lower
    for hint in _HINTS:  # noqa: SIM110 - any() of a generator takes three times as long, and this is for every line
        if hint in low:
            return True
    return False


def _noun(text: str, number: re.Match[str]) -> str:
    """The word before a number: `batch 17`."""
    word = re.search(r"([A-Za-z]{2,20})[\s:=#\[(]{0,4}$", text[: number.start()])
    return word[1].lower() if word and set(word[1]) != {"F"} else "step"


def _int(text: str) -> int:
    return int(text.replace(",", "").strip() or 0)


def _total(text: str | None) -> int | None:
    return _int(text) or None if text else None
