"""How programs say which unit they are in: `Epoch 3/10`, `"gen": 3`, `global_step=300`, `第 3/30 轮`, `Fold 2 of 5`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

# By the unit that memwatch calls it. A plural or a prefix (`global_step`, `Episodes = 3`) is understood beside them.
_VOCABULARY = {
    "generation": "generation gen ngen generación generacion génération generazione geração поколение 世代 代",
    "trial": "trial",
    "epoch": "epoch ep epoche époque época epoca эпоха эпох эпоху エポック 轮",
    "iteration": "iteration iter iterat iterate itr iteración iteracion itération iterazione итерация 迭代",
    "round": "round runde",
    "update": "update",
    "episode": "episode",
    "timestep": "timestep",
    "step": "step schritt шаг 步",
    "batch": "batch",
}
_UNITS = {word: unit for unit, find_unit_mentions in _VOCABULARY.items() for word in find_unit_mentions.split()}
# Names of columns, cells and bars.
_NAMES = {
    **_UNITS,
    **{word + "s": unit for word, unit in _UNITS.items()},
    "n_gen": "generation",
    "n_iter": "iteration",
    "training_iteration": "iteration",
    "num_iterations": "iteration",
    "total_timesteps": "timestep",
    "num_timesteps": "timestep",
    "global_step": "step",
    "total_steps": "step",
    "num_updates": "update",
    "nupdates": "update",
}
_STEMS = ("epoch", "step", "gen", "iter", "itr", "round", "rund", "trial", "episode", "update", "batch")
_SHORT = re.compile(r"\bep\b")  # too short to be looked for as a mere part of a line
_FOREIGN = re.compile(
    "é?poqu|época|эпох|шаг|エポック|世代|итерац|поколен|[代轮步迭]|itération|géné|geraç|generac|epoca|schritt"
)

_INDEX = r"(?P<index>[0-9]{1,3}(?:,[0-9]{3}){1,4}|[0-9]{1,15})"
_TOTAL = r"(?P<total>[0-9]{1,3}(?:,[0-9]{3}){1,4}|[0-9]{1,15})"
_ENDS = r"(?![\w%]|[.:][0-9])"
_OF = r"[ ]{0,12}(?:/|out of|of|von|sur|из|de)[ ]{0,12}"
_ALL_WORDS = "|".join(sorted((re.escape(word) for word in _UNITS), key=len, reverse=True))
# Epoch 3/10:  |  generation = 3  |  [Gen 3 of 25]  |  Epoch(train) [3][ 50/200]  |  "epoch": 3  |  Iteration No: 3
_WORD = re.compile(
    rf"(?<![^\W_])(?P<word>{_ALL_WORDS})(?P<plural>s?)(?:\([a-z]{{2,10}}\))?(?: no\b| number\b)?"
    rf"(?:[ \t:=#\[(\"'.]{{0,20}}| - )(?<!\.){_INDEX}{_ENDS}"
    rf"(?:{_OF}{_TOTAL}(?![\w%]|\.[0-9]))?"
)
_BEFORE_WORD = re.compile(
    r"第[ ]{0,3}(?P<index>[0-9]{1,15})(?:[ ]?/[ ]?(?P<total>[0-9]{1,15}))?[ ]{0,3}(?P<word>[轮代步])"
)
# Fold 2/5  |  Simulation day 3 of 365: whatever is counted, it says how many there are
_NOUN_OF = re.compile(
    r"(?<![\w-])(?P<word>[^\W\d_]{3,20})[ ]{0,2}[:=#\[(]?[ ]{0,4}(?P<index>[0-9]{1,9})"
    r"[ ]{0,2}(?:/|of)[ ]{0,2}(?P<total>[0-9]{1,9})(?![\w%/]|[.:][0-9])"
)
# `Best is trial 3`, `no gain since epoch 4`, `resuming from epoch 12`: said of another one than the present
_OTHER = re.compile(
    r"(?:(?<![^\W_])(?:best|last|since|until|every|than|previous|from|warmup|max|num|this|(?:in|per|of)(?=_))"
    r"[\s_:]{0,3}(?:is|at|was|in|of|from)?|\b(?:load|resum|restor)\w{0,8}\b[^.;|]{0,24}?)[\s_:('\"]{0,4}$"
)
# [rank3]: epoch 1 | island 2: gen 14: several that count the same
_PROCESS = re.compile(
    r"\b(?:\w{0,12}rank|default|proc|worker|actor|node|island)[ _#:=]{0,3}(?P<number>[0-9]{1,4})\b", re.IGNORECASE
)
_PROCESS_CHARS = 200  # from the beginning of a line that are looked at for it
_BEFORE_CHARS = 32  # that are looked at for what makes it another unit
_AT_MOST = 4  # units that one line is looked through for


class UnitMention(NamedTuple):
    """A unit that a line names, and where."""

    unit: str
    number: int
    position: int  # of the number in the text
    total: int | None
    start: int  # where the word begins ...
    end: int  # ... and where all that belongs to it ends
    sure: bool = True  # a word that is known to count; False: any noun with `3 of 10` behind it
    plural: bool = False  # `epochs: 5` may be a setting


def unit_from_name(name: str) -> str | None:
    """The unit that a column, a cell or a bar of this name counts."""
    return _NAMES.get(name.lower().rpartition("/")[2].strip("#: "))


class ProcessLabel(NamedTuple):
    """Which of several processes or islands says something, and where its number stands."""

    text: str
    number: int


def find_process_label(text: str) -> ProcessLabel | None:
    """Which of several processes or islands says this; None where it is only one."""
    match = _PROCESS.search(text, 0, _PROCESS_CHARS)
    return ProcessLabel(match[0], match.start("number")) if match else None


def may_name_unit(lower: str) -> bool:
    """A line with this text in lower case may name a unit (a look that is much cheaper than the pattern)."""
    for stem in _STEMS:  # any() of a generator takes three times as long, and this is for every line
        if stem in lower:
            return True
    return _SHORT.search(lower) is not None or (not lower.isascii() and _FOREIGN.search(lower) is not None)


def words(text: str, end: int) -> Iterator[UnitMention]:
    """The units that `text[:end]` names (in lower case), each unit once."""
    found: set[str] = set()
    matches = list(islice(_WORD.finditer(text, 0, end), _AT_MOST))
    if "第" in text:
        matches += _BEFORE_WORD.finditer(text, 0, end)
    for match in matches:
        unit = _UNITS[match["word"]]
        plural = bool(match.groupdict().get("plural"))
        if (
            unit in found
            or (plural and match["word"] == "ep")
            or _OTHER.search(text, max(0, match.start() - _BEFORE_CHARS), match.start())
        ):
            continue
        found.add(unit)
        yield _word(match, unit, sure=True, plural=plural)


def nouns_of(text: str, end: int) -> Iterator[UnitMention]:
    """Other things of which `text[:end]` says `3 of 10`: the first."""
    match = _NOUN_OF.search(text, 0, end)
    if match is not None and int(match["index"]) <= int(match["total"]) and match["word"] not in _NAMES:
        yield _word(match, match["word"], sure=False)


def _word(match: re.Match[str], unit: str, sure: bool, plural: bool = False) -> UnitMention:
    total = match["total"]
    return UnitMention(
        unit,
        int(match["index"].replace(",", "")),
        match.start("index"),
        int(total.replace(",", "")) or None if total else None,
        match.start(),
        match.end(),
        sure,
        plural,
    )
