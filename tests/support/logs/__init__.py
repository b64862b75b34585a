"""Logs of trainers as their programs print them, made by small generators; the true markers are marked in the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

_MARK = re.compile("«([^»]*)»")


@dataclass(frozen=True, slots=True)
class Marker:
    """One unit of the run: its index as the program counts, and the lines of which any may be told for it."""

    index: float
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TrainerLog:
    """A log and what must be found in it.

    `unit`: as the log calls it ("step" where it has no word for it, None where nothing counts). `total`: None where
    the log says none, so that any will do.
    """

    name: str
    unit: str | None
    total: int | None
    at: str | None  # when the markers are printed; None: it cannot be told from the log
    raw: bytes
    markers: tuple[Marker, ...]

    def right(self, found: list[tuple[float, int]]) -> bool:
        """These (index, line) are the markers, all of them and no others."""
        return len(found) == len(self.markers) and all(
            index == marker.index and line in marker.lines
            for (index, line), marker in zip(found, self.markers, strict=True)
        )


Lines = Callable[[], Iterator[str]]
Wrap = Callable[[Lines], Lines]


def n(index: float | str, spec: str = "") -> str:
    """The number of a unit, marked as such; lines in a row with the same number are one unit."""
    return f"«{index:{spec}}»"


def log(unit: str | None = None, total: int | None = None, at: str | None = None) -> Wrap:
    """Label a generator of lines (without their line ends, `\\r` of bars within)."""

    def wrap(lines: Lines) -> Lines:
        lines.label = (unit, total, at)  # type: ignore[attr-defined]
        return lines

    return wrap


def logs_of(namespace: dict[str, object]) -> list[TrainerLog]:
    """The labelled generators of a module, in its order."""
    return [_expand(name, value) for name, value in namespace.items() if hasattr(value, "label")]


def _expand(name: str, lines: Lines) -> TrainerLog:
    seen: list[tuple[float, int]] = []
    text: list[str] = []
    for number, line in enumerate("\n".join(lines()).split("\n"), 1):
        seen += [(float(match[1].replace(",", "")), number) for match in _MARK.finditer(line)]
        text.append(_MARK.sub(r"\1", line))
    markers = tuple(
        Marker(index, tuple(line for _, line in group)) for index, group in groupby(seen, key=lambda pair: pair[0])
    )
    unit, total, at = lines.label  # type: ignore[attr-defined]
    raw = ("\n".join(text) + "\n").encode("utf-8", "surrogateescape")
    return TrainerLog(name.rstrip("_"), unit, total, at, raw, markers)


def falling(i: float) -> float:
    """A loss after `i` steps."""
    return 0.21 + 2.3 / (1 + 0.37 * i) + 0.013 * ((i * 7919) % 11)


def tqdm(description: str, done: int, total: int, more: str = "") -> str:
    """A drawing of tqdm's bar."""
    full = done * 10 // total
    head = f"{description}: " if description else ""
    rate = f"{done % 60:02}<00:{(total - done) % 60:02}, {7.3 + done % 3:.2f}it/s" if done else "00<?, ?it/s"
    return f"{head}{100 * done // total:3}%|{'█' * full}{' ' * (10 - full)}| {done}/{total} [00:{rate}{more}]"


def bar(description: str, done: int, total: int, more: str = "") -> str:
    """A drawing of tqdm's bar whose count is a marker."""
    return tqdm(description, done, total, more).replace(f"| {done}/", f"| {n(done)}/")
