"""The presets' rules, applied to a line: what it says by them, and whether another line of its form could say it."""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from memwatch.core.events import CheckpointSeen, Event, GaugeSeen, OutOfMemorySeen, PhaseSeen, TotalSeen
from memwatch.core.text_and_units import printable
from memwatch.sources.log.counter_finder import bar_at
from memwatch.sources.log.counters import LineText, LocatedEvent, LogCounter, user_priority
from memwatch.sources.log.line_templates import mask_digits, pattern_for_any_digits
from memwatch.sources.log.marker_presets import MarkerRule, Preset
from memwatch.system.cpu_time_limit import CpuTimeExceededError, run_with_cpu_limit

PRESET_WEIGHT = 5
_HELD_HITS = 64  # phases, gauges and so on of a preset that is not chosen yet
_EVIDENCE_CHARS = 160
_LARGEST = 1e15  # a number beyond it counts nothing
LINE_SECONDS = 0.1  # of CPU that a user's rule may take for one line ...
_MEAN_SECONDS = 0.001  # ... and for each on average ...
_CREDIT_SECONDS = 0.5  # ... beyond this

_T = TypeVar("_T")


class SlowRuleError(Exception):
    """A user's rule takes more time than the loop has."""


class PresetState:
    """A preset, its counter, and what it said while it was not chosen."""

    __slots__ = ("held", "preset", "stream")

    def __init__(self, preset: Preset) -> None:
        self.preset = preset
        priority = user_priority(preset.unit) if preset.user else None
        self.stream = LogCounter(preset.name, preset.unit, PRESET_WEIGHT, 0, priority)
        self.held: deque[LocatedEvent] = deque(maxlen=_HELD_HITS)


class RuleMatcher:
    """A rule that a line may satisfy."""

    __slots__ = ("_any_digits", "_blind", "rule", "state")

    def __init__(self, state: PresetState, rule: MarkerRule) -> None:
        self.state, self.rule = state, rule
        self._any_digits = pattern_for_any_digits(rule.pattern)
        unless = rule.unless
        self._blind = self._any_digits is rule.pattern and (unless is None or pattern_for_any_digits(unless) is unless)

    def match(self, text: str) -> re.Match[str] | None:
        """What the rule finds in `text`."""
        match = self.rule.pattern.search(text)
        if match is None or (self.rule.unless is not None and self.rule.unless.search(text)):
            return None
        return match

    def depends_on_digits(self, text: str) -> bool:
        """With other digits in `text` the rule may find something else than it does."""
        return not self._blind and (self._any_digits is None or self._any_digits.search(text) is not None)


class TimeLimitedRuleMatcher(RuleMatcher):
    """A rule of the user's own, which may take any time: SlowRuleError when it takes too much."""

    __slots__ = ("_credit_seconds",)

    def __init__(self, state: PresetState, rule: MarkerRule) -> None:
        super().__init__(state, rule)
        self._credit_seconds = _CREDIT_SECONDS

    def match(self, text: str) -> re.Match[str] | None:
        """What the rule finds in `text`."""
        return self._bounded(super().match, text)

    def depends_on_digits(self, text: str) -> bool:
        """With other digits in `text` the rule may find something else than it does."""
        return self._bounded(super().depends_on_digits, text)

    def _bounded(self, look: Callable[[str], _T], text: str) -> _T:
        begun = time.thread_time()
        try:
            found = run_with_cpu_limit(LINE_SECONDS, lambda: look(text))
        except CpuTimeExceededError:
            raise SlowRuleError(f"it takes more than {LINE_SECONDS:g} s for one line") from None
        credit = self._credit_seconds + _MEAN_SECONDS - (time.thread_time() - begun)
        self._credit_seconds = min(_CREDIT_SECONDS, credit)
        if credit < 0:
            raise SlowRuleError(f"it takes more than {_MEAN_SECONDS * 1000:g} ms a line")
        return found


class RuleIndex:
    """Rules by the words that a line must contain: the look for words is far cheaper than the patterns."""

    def __init__(self, states: Sequence[PresetState]) -> None:
        self._always: list[RuleMatcher] = []
        self._by_word: dict[str, list[RuleMatcher]] = {}
        for state in states:
            for rule in state.preset.rules:
                candidate = (TimeLimitedRuleMatcher if state.preset.user else RuleMatcher)(state, rule)
                if not rule.contains:
                    self._always.append(candidate)
                for word in rule.contains:
                    self._by_word.setdefault(word, []).append(candidate)
        self._numbered = [(mask_digits(word), word) for word in self._by_word if mask_digits(word) != word]

    def candidates(self, lower: str) -> Iterable[RuleMatcher]:
        """The rules that a line with this text may satisfy, each once."""
        words = [word for word in self._by_word if word in lower]
        if not words:
            return self._always
        found = {id(candidate): candidate for candidate in self._always}  # by id: rules are dear to compare
        for word in words:
            for candidate in self._by_word[word]:
                found[id(candidate)] = candidate
        return found.values()

    def disable(self, candidate: RuleMatcher) -> None:
        """It is no candidate any more; a preset that cannot count as it should counts no more."""
        for candidates in (self._always, *self._by_word.values()):
            if candidate in candidates:
                candidates.remove(candidate)
        if candidate.rule.kind == "generation":
            candidate.state.stream.dead = True

    def depends_on_digits(self, lower: str) -> bool:
        """With other digits in it the text may have other candidates: `.h4` and `.h5`."""
        if not self._numbered:
            return False
        form = mask_digits(lower)
        return any(word in form and own not in lower for word, own in self._numbered)


def count_generation(
    stream: LogCounter, rule: MarkerRule, match: re.Match[str], piece: LineText, bar: re.Match[str] | None
) -> bool:
    """Count what a rule for generations found; True when its counter moved."""
    groups = match.groupdict()
    index = _number(groups["index"])
    if index is None:
        return False
    total = _number(groups.get("total"))
    last = _number(groups.get("last"))  # `Epoch 4/4` of five: the last index, where they count from 0
    if total is None and last is not None:
        total = last + 1
    at = rule.at if bar is None or rule.at != "start" else stream.at_first(index, bar_at(bar))
    return stream.add_value(piece, match.start("index"), index, _whole(total), at)


def event_of(rule: MarkerRule, match: re.Match[str], piece: LineText) -> Event | None:
    """What a rule of any kind but `generation` found; None when its number is none."""
    groups = match.groupdict()
    if rule.kind == "phase":
        return PhaseSeen(piece.t, printable(rule.name or groups.get("phase") or "", 60), rule.at)
    if rule.kind == "total":
        total = _whole(_number(groups["total"]))
        return TotalSeen(piece.t, total) if total else None
    if rule.kind == "gauge":
        value = _number(groups["value"])
        name = printable(rule.name or groups.get("name") or "gauge", 60)
        return None if value is None else GaugeSeen(piece.t, name, value, _number(groups.get("capacity")))
    if rule.kind == "oom":
        return OutOfMemorySeen(piece.t, printable(rule.name or "MemoryError", 60), printable(piece.text))
    state = "writing" if rule.kind == "checkpoint_writing" else "saved"
    return CheckpointSeen(piece.t, state, "log: " + printable(piece.text, _EVIDENCE_CHARS))


def place_of(match: re.Match[str]) -> int:
    """Where the match's number begins, or the match itself."""
    group = next((g for g in ("total", "value", "phase") if g in match.re.groupindex and match.start(g) >= 0), None)
    return match.start(group) if group else match.start()


def _number(text: str | None) -> float | None:
    """An int where it is integral; None for what is no finite number of a size that counts something."""
    plain = (text or "").replace(",", "").replace("_", "").strip()
    try:
        number = float(plain[:40])
    except ValueError:
        return None
    if not math.isfinite(number) or abs(number) > _LARGEST:
        return None
    return int(number) if number.is_integer() else number


def _whole(number: float | None) -> int | None:
    return int(number) if number is not None and number > 0 else None
