"""A state of a watch in which whatever can be a text of the trainer's is a hostile one."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from hypothesis import strategies as st

from memwatch.core.events import Notice
from memwatch.core.snapshot import Expectation, Snapshot
from support.snapshots import make_diagnosis, make_snapshot

EVILS = (
    "\x1b[2J\x1b]0;title\x07\x1bP1$r\x1b\\",  # clears the terminal, names its window
    "\x9b31m\x90\x85\x07\b\x7f",  # the same by single bytes of C1
    "<script>alert(1)</script><img src=x onerror='alert(1)'>",
    '"><b onclick="a" \' && </style></svg> -->',
    'a"} 1\nmemwatch_up{x="\\',
    "line\r\nSTATUS=gone\rnext\u2028\u2029\v\f",
    "\u202egnp.exe\u2066\u200f\ufeff\u200b",  # written from right to left, and of no width
    "\udcff\ud800 \udfff",  # bytes that are no UTF-8, halves of pairs
    "{0!r:>9999999} %s %n [bold red]x[/] :smile: `id` $(id) ${HOME}",  # of format, rich and shells
    "\x00" * 8,
    "é̀́̂̃" * 50,
    "x" * 100_000,
    "\t",
    "",
)
hostile = (
    st.sampled_from(EVILS)
    | st.text(st.characters(), max_size=80)
    | st.builds("".join, st.lists(st.sampled_from(EVILS), max_size=3))
)

_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def harmful(text: str, besides: str = "\n") -> set[str]:
    """Its characters that steer a terminal or hide text, but for those that are `besides`."""
    return {c for c in set(text) if unicodedata.category(c) in _UNSEEN and c not in besides}


def defiled(value: Any, word: str) -> Any:
    """The same with `word` for every text within."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return word
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: defiled(getattr(value, f.name), word) for f in fields(value) if f.init})
    if isinstance(value, Mapping):
        return {key: defiled(item, word) for key, item in value.items()} | {word: 1}
    if isinstance(value, tuple):
        return tuple(defiled(item, word) for item in value)
    return value


def snapshot_of(word: str) -> Snapshot:
    """Everything is known, and every name is `word`."""
    expectation = Expectation("growth < 5GB/generation", False, 3, "generation 1: +12.9 GB", "now")
    whole = make_snapshot(4, 2, diagnosis=make_diagnosis(), expectations=(expectation,), unarmed="it does not answer")
    return defiled(whole, word)


def notices_of(word: str, *events: str) -> list[Notice]:
    """One of each kind, with nothing but `word` in it."""
    return [Notice(1.0, event, word, {"line": word, "seconds": 1.0, word: word}) for event in events]
