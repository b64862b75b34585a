"""Finds units and their numbers in text: `Epoch 3/10`, `"gen": 3`, `global_step=300`, `第 3/30 轮`, `Fold 2 of 5`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple


class _Unit(NamedTuple):
    """What a run may be counted in: the outer loop has the higher priority."""

    priority: int
    words: str  # in text, also as plurals and with a prefix: `global_step`, `Episodes = 3`
    names: str = ""  # of columns, cells and bars, beside these words and their plurals


_UNITS_OF_RUNS = {
    "generation": _Unit(
        60,
        "generation gen ngen generación generacion génération generazione geração geracao generatie generacja "
        "pokolenie generasi nesil поколение 世代 代 세대",
        "n_gen",
    ),
    "trial": _Unit(55, "trial"),
    "epoch": _Unit(
        50, "epoch ep epoche époque época epoca epoka epok эпоха эпох эпоху エポック 轮 에포크 에폭", "epoch_num"
    ),
    "pass": _Unit(45, "pass", "passes"),
    "iteration": _Unit(
        40,
        "iteration iter iterat iterate itr iteración iteracion itération iterazione iteração iteracao iteratie "
        "iteracja iterasi итерация 迭代",
        "n_iter niter training_iteration num_iterations",
    ),
    "round": _Unit(40, "round runde"),
    "tree": _Unit(40, "tree", "num_trees n_trees"),
    "update": _Unit(35, "update", "num_updates nupdates"),
    "episode": _Unit(30, "episode"),
    "timestep": _Unit(20, "timestep", "total_timesteps num_timesteps"),
    "frame": _Unit(20, "frame", "num_frames total_frames"),
    "step": _Unit(20, "step schritt étape passo шаг 步 ステップ", "global_step total_steps"),
    "batch": _Unit(10, "batch"),
}
UNNAMED_UNIT = "step"  # of a number without any word
UNIT_PRIORITY = {name: unit.priority for name, unit in _UNITS_OF_RUNS.items()}
_UNITS = {word: name for name, unit in _UNITS_OF_RUNS.items() for word in unit.words.split()}
_NAMES = {name: key for key, unit in _UNITS_OF_RUNS.items() for name in unit.names.split()}
_NAMES |= _UNITS | {word + "s": unit for word, unit in _UNITS.items()}

ROUNDED = r"[0-9]{1,4}(?:\.[0-9]{1,3})?"  # of `1.2K`, without its letter
GROUPED = r"[0-9]{1,3}(?:,[0-9]{3}){1,4}"  # 1,200
_INDEX = rf"(?P<index>{GROUPED}|{ROUNDED}[km](?!\w)|[0-9]{{1,15}})"
_TOTAL = rf"(?P<total>{GROUPED}|[0-9]{{1,15}})"
_ENDS = r"(?![\w%]|[.:][0-9]| ?(?:ms|sec(?:ond)?s?|minutes?|hours?|[kmg]i?b)\b)"  # `time for a generation: 360 seconds`
_OF = r"[ ]{0,12}(?:/|out of|of|von|sur|из|de|\|(?=[ ]{0,4}[0-9]{1,9}\]))[ ]{0,12}"  # `[1 | 600]`
_ALL_WORDS = "|".join(sorted((re.escape(word) for word in _UNITS), key=len, reverse=True))
# Epoch 3/10: | generation = 3 | [Gen 3 of 25] | [Epoch] 003 | Epoch(train) [3][ 50/200] | "epoch": 3 | Iteration No: 3
# ('Epoch: ', 3), as Python 2 prints several things
_WORD = re.compile(
    rf"(?:(?P<open>\[)|(?<![^\W_]))(?P<word>{_ALL_WORDS})(?P<plural>s?)(?(open)\]?)"
    r"(?:\([a-z]{2,10}\))?"
    r"(?: (?:num|no|n[uú]mero|num[eé]ro|number|nummer|nr|n[°º])\b|_(?P<num>num|number|idx|index)\b)?"
    r"(?:(?:[ \t:=#\[(\"'.]|(?<=['\"]),){0,20}| - |_(?=[0-9]{1,9}(?![\w./\\-])))"
    rf"(?<!\.){_INDEX}(?:st|nd|rd|th)?{_ENDS}"
    rf"(?:{_OF}{_TOTAL}(?![\w%/]|\.[0-9]))?"
)
_BEFORE_WORD = re.compile(
    r"第[ ]{0,3}(?P<index>[0-9]{1,15})(?:[ ]?/[ ]?(?P<total>[0-9]{1,15}))?[ ]{0,3}(?P<word>[轮代步])"
)
# 3rd epoch | after the 20th generation
_ORDINAL = re.compile(rf"(?<![\w.])(?P<index>[0-9]{{1,15}})(?:st|nd|rd|th)[ -](?P<word>{_ALL_WORDS})\b(?P<total>(?!))?")
# The loss after 3 epochs is 1.2
_AFTER = re.compile(
    r"(?<!improvement )(?<!stopped )(?<!stopping )\bafter (?P<index>[0-9]{1,15}) "
    rf"(?P<word>{_ALL_WORDS})s?\b(?P<total>(?!))?"
)
# Progress: 31 / 2000 total iterations  |  10/300 epochs done
_BEFORE_PLURAL = re.compile(
    rf"(?<![\w.,/])(?P<index>[0-9]{{1,15}}){_OF}(?P<total>[0-9]{{1,15}}) "
    rf"(?:total )?(?P<word>{_ALL_WORDS})s\b(?!/|[ :=]*[0-9])"
)
# Fold 2/5  |  Simulation day 3 of 365: a total makes any noun a unit
_NOUN_OF = re.compile(
    r"(?<![\w-])(?P<word>[^\W\d_]{3,20})[ ]{0,2}[:=#\[(]?[ ]{0,4}(?P<index>[0-9]{1,9})"
    r"[ ]{0,2}(?:/|of)[ ]{0,2}(?P<total>[0-9]{1,9})(?![\w%/]|[.:][0-9])"
)
_OF_OTHERS = re.compile(r" [a-z]{3,20}s\b")  # `might be stagnating: 1/5 checks`: it is those that are counted
_WHOLE_RUN = frozenset({"train", "training", "learning", "progress", "fitting"})  # `[Train 960/1882]`: it names no unit
_LEVELS = frozenset(  # nouns of what fills: `replay=700/4000`
    {"replay", "buffer", "memory", "cache", "queue", "pool", "storage", "experience", "experiences", "transitions"}
)
PROCESS_NOUNS = frozenset({"rank", "gpu", "device", "worker", "node", "process", "proc", "core", "host", "thread"})
# `Best is trial 3`, `no gain since epoch 4`, `resuming from epoch 12`, `warm-down starting at 72.0%, iteration 504`:
# not the current one
_OTHER = re.compile(
    r"(?:(?<![^\W_])(?:best|last|since|until|every|than|previous|from|warmup|max|no|this|(?:in|per|of)(?=_))"
    r"[\s_:]{0,3}(?:is|at|was|in|of|from)?|\b(?:load|resum|restor)\w{0,8}\b[^.;|]{0,24}?"
    r"|\bstart\w{0,4} (?:at|from)\b[^;|]{0,20}?)[\s_:('\"]{0,4}$"
)
# `[Eval batch=3/50]`, `val_step: 7`: not of the training
_OF_EVALUATION = re.compile(r"(?<![^\W_])(?:eval|evaluation|valid|val|validation|test|testing|sanity)[ _]{1,2}$")
# ` ep=2010  r=  22.2 steps=209.7`, `ep:61 epch:1.52`: what is short for an epoch, too
_OF_EPISODE = re.compile(r"\b(?:reward|return|score|eps(?:ilon)?|r|ret|rew|steps|epo?ch)\b[\w ]{0,12}[=:]")
# [rank3]: epoch 1 | island 2: gen 14: several processes count the same unit
_PROCESS = re.compile(
    r"\b(?:\w{0,12}rank|default|proc|worker|actor|node|island)[ _#:=]{0,3}[0-9]{1,4}\b", re.IGNORECASE
)
_PROCESS_CHARS = 200  # of a line, its beginning, that are searched for a process
_BEFORE_CHARS = 32  # before a word that are searched for what makes it another one than the current
_OTHER_NOUN = re.compile(r" [a-z]{3,20}\)")  # after `round (5/5`: it is submissions that are counted
_MAX_MENTIONS = 4  # of units in one line


class UnitMention(NamedTuple):
    """A unit that a line names, with its number and position."""

    unit: str
    number: int
    position: int  # of the number in the text
    total: int | None
    start: int  # of the word
    end: int  # of the word, number and total
    is_known_unit: bool = True  # False for any other noun with `3 of 10` behind it
    plural: bool = False  # `epochs: 5` may be a setting
    is_rounded: bool = False  # 1.2K


def unit_from_name(name: str) -> str | None:
    """Return the unit that a column, a cell or a bar of this name counts; None when it counts none."""
    return _NAMES.get(name.lower().rpartition("/")[2].strip("#: "))


def find_process_label(text: str) -> str:
    """The words, such as `rank3`, that say which process or island wrote the line; empty where there is only one."""
    match = _PROCESS.search(text, 0, _PROCESS_CHARS)
    return match[0] if match else ""


def may_name_unit(lower: str) -> bool:
    """Whether a line, given in lower case, may name a unit; much cheaper than the pattern."""
    return any(word in lower for word in _UNITS)


def find_unit_mentions(text: str, end: int) -> Iterator[UnitMention]:
    """Yield the units that `text[:end]`, in lower case, names, each once."""
    found: set[str] = set()
    matches = list(islice(_WORD.finditer(text, 0, end), _MAX_MENTIONS))
    if "/" in text or " of " in text:
        named_after = {m.start("index"): m for m in _BEFORE_PLURAL.finditer(text, 0, end)}
        # `updates 5/1000 episodes` are episodes
        matches = [m for m in matches if not (m["plural"] and m.start("index") in named_after)]
        taken = {match.start("index") for match in matches}
        matches += [m for at, m in named_after.items() if at not in taken]
    if "第" in text:
        matches += _BEFORE_WORD.finditer(text, 0, end)
    matches += _ORDINAL.finditer(text, 0, end)
    if "after " in text:
        matches += _AFTER.finditer(text, 0, end)
    for match in matches:
        unit = "episode" if match["word"] == "ep" and _OF_EPISODE.search(text) else _UNITS[match["word"]]
        plural = any(match.groupdict().get(group) for group in ("plural", "num"))  # it may be how many there will be
        start = match.start("word")
        before = max(0, start - _BEFORE_CHARS), start
        if (
            unit in found
            or (plural and match["word"] == "ep")
            or _OTHER.search(text, *before)
            or (text.find("(", start, match.start("index")) > 0 and _OTHER_NOUN.match(text, match.end()))
            or (UNIT_PRIORITY[unit] < UNIT_PRIORITY["epoch"] and _OF_EVALUATION.search(text, *before))
        ):
            continue
        found.add(unit)
        yield _mention(match, unit, sure=True, plural=plural)


def find_counted_nouns(text: str, end: int) -> Iterator[UnitMention]:
    """Yield the first other noun of which `text[:end]` says `3 of 10`."""
    match = _NOUN_OF.search(text, 0, end)
    if (
        match is not None
        and match["word"] not in _LEVELS
        and int(match["index"]) <= int(match["total"])
        and match["word"] not in _NAMES
        and not (":" in match[0] and _OF_OTHERS.match(text, match.end()))
    ):
        yield _mention(match, UNNAMED_UNIT if match["word"] in _WHOLE_RUN else match["word"], sure=False)


def _mention(match: re.Match[str], unit: str, sure: bool, plural: bool = False) -> UnitMention:
    total = match["total"]
    return UnitMention(
        unit,
        whole_number(match["index"]),
        match.start("index"),
        int(total.replace(",", "")) or None if total else None,
        match.start("word"),
        match.end(),
        sure,
        plural,
        match["index"][-1] in "km",
    )


def whole_number(text: str) -> int:
    """The value of `1,200`, `1.2k` and `3M`."""
    factor = {"k": 1000, "m": 1_000_000}.get(text[-1].lower())
    return round(float(text[:-1]) * factor) if factor else int(text.replace(",", ""))
