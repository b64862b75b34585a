"""Applies the rules of presets to a line, and says whether other digits in the line could change what they find."""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from memwatch.core.events import CheckpointSeen, Event, GaugeSeen, OutOfMemorySeen, PhaseSeen, TotalSeen
from memwatch.core.text_and_units import printable
from memwatch.sources.log.counter_finder import at_of_bar
from memwatch.sources.log.line_text import LineText
from memwatch.sources.log.marker_presets import MarkerRule, Preset
from memwatch.sources.log.primary_counter import UNNAMED_PRIORITY, LocatedEvent, LogCounter, user_priority
from memwatch.sources.log.skippable_lines import mask_digits, pattern_for_any_digits
from memwatch.system.clock import CpuTimeExceededError, run_with_cpu_limit

PRESET_WEIGHT = 5  # of a preset's counter, among those of the same unit; others have up to 4
_FRACTION_WEIGHT = -100  # of whole units of a fraction: less than any other counter has
_MAX_PROCESSES = 64  # whose counts are kept apart
_MAX_HELD_EVENTS = 64  # phases, gauges and so on of a preset whose counter is not selected yet
EVIDENCE_CHARS = 160  # of a line that a checkpoint event quotes
_MAX_TOTALS = 8  # of one line, which may be a whole configuration (chosen)
_MAX_NUMBER = 1e15  # a larger number is no count
# CPU seconds that a user's rule may take: for one line, on average, and once beyond the average.
LINE_SECONDS, _MEAN_SECONDS, _CREDIT_SECONDS = 0.1, 0.001, 0.5

_T = TypeVar("_T")


class SlowRuleError(Exception):
    """A user's rule takes more CPU time than it may."""


class PresetState:
    """A preset, its counters, one for each process, and the events found before one of them was selected."""

    __slots__ = ("counters", "held_events", "is_ruled_out", "preset")

    def __init__(self, preset: Preset) -> None:
        self.preset = preset
        self.counters: dict[str, LogCounter] = {}
        self.held_events: deque[LocatedEvent] = deque(maxlen=_MAX_HELD_EVENTS)
        self.is_ruled_out = False

    def counter(self, process: str) -> LogCounter:
        """The counter of what this process writes."""
        if process not in self.counters:
            while len(self.counters) >= _MAX_PROCESSES:
                del self.counters[next(p for p, c in self.counters.items() if not c.was_selected)]
            preset = self.preset
            fraction = any("done" in rule.pattern.groupindex for rule in preset.rules)
            priority = user_priority(preset.unit) if preset.user else UNNAMED_PRIORITY if fraction else None
            weight = _FRACTION_WEIGHT if fraction else PRESET_WEIGHT
            counter = self.counters[process] = LogCounter(preset.name, preset.unit, weight, 0, priority)
            counter.is_ruled_out = self.is_ruled_out
        return self.counters[process]

    def rule_out(self) -> None:
        """One of its rules for generations is not applied any more: what is counted by the others is incomplete."""
        self.is_ruled_out = True
        for counter in self.counters.values():
            counter.is_ruled_out = True


class RuleMatcher:
    """Matches lines against one rule of a preset."""

    __slots__ = ("_any_digits", "_ignores_digits", "reads_message", "rule", "state")

    def __init__(self, state: PresetState, rule: MarkerRule) -> None:
        self.state, self.rule = state, rule
        # A user's pattern is for the line as it stands there; what a failure says may stand before the message.
        self.reads_message = rule.kind in ("generation", "phase") and not state.preset.user
        self._any_digits = pattern_for_any_digits(rule.pattern)
        unless = rule.unless
        self._ignores_digits = self._any_digits is rule.pattern and (
            unless is None or pattern_for_any_digits(unless) is unless
        )

    def find_matches(self, text: str) -> list[re.Match[str]]:
        """Return the first match of the rule's pattern, of totals one for each unit; none where `unless` matches."""
        found = list(islice(self.rule.pattern.finditer(text), _MAX_TOTALS if self.rule.kind == "total" else 1))
        if not found or (self.rule.unless is not None and self.rule.unless.search(text)):
            return []
        by_unit = {match.groupdict().get("unit"): match for match in reversed(found)}
        return list(by_unit.values())

    def depends_on_digits(self, text: str) -> bool:
        """Whether the rule may match otherwise when `text` has other digits."""
        return not self._ignores_digits and (self._any_digits is None or self._any_digits.search(text) is not None)


class TimeLimitedRuleMatcher(RuleMatcher):
    """Matches lines against a user's rule; SlowRuleError when that takes too much CPU time."""

    __slots__ = ("_credit_seconds",)

    def __init__(self, state: PresetState, rule: MarkerRule) -> None:
        super().__init__(state, rule)
        self._credit_seconds = _CREDIT_SECONDS

    def find_matches(self, text: str) -> list[re.Match[str]]:
        return self._run_limited(super().find_matches, text)

    def depends_on_digits(self, text: str) -> bool:
        return self._run_limited(super().depends_on_digits, text)

    def _run_limited(self, function: Callable[[str], _T], text: str) -> _T:
        begun = time.thread_time()
        try:
            found = run_with_cpu_limit(LINE_SECONDS, lambda: function(text))
        except CpuTimeExceededError:
            raise SlowRuleError(f"it takes more than {LINE_SECONDS:g} s for one line") from None
        credit = self._credit_seconds + _MEAN_SECONDS - (time.thread_time() - begun)
        self._credit_seconds = min(_CREDIT_SECONDS, credit)
        if credit < 0:
            raise SlowRuleError(f"it takes more than {_MEAN_SECONDS * 1000:g} ms a line")
        return found


class RuleIndex:
    """Finds the rules that may match a line by words that it must contain, which is far cheaper than patterns."""

    def __init__(self, states: Sequence[PresetState]) -> None:
        self._always: list[RuleMatcher] = []
        self._by_word: dict[str, list[RuleMatcher]] = {}
        for state in states:
            for rule in state.preset.rules:
                matcher = (TimeLimitedRuleMatcher if state.preset.user else RuleMatcher)(state, rule)
                if not rule.contains:
                    self._always.append(matcher)
                for word in rule.contains:
                    self._by_word.setdefault(mask_digits(word), []).append(matcher)

    def matchers(self, lower: str) -> Iterable[RuleMatcher]:
        """Return the rules that may match a line with this lower-case text or with other digits, each once."""
        masked = mask_digits(lower)
        words = [word for word in self._by_word if word in masked]
        if not words:
            return self._always
        found = {id(matcher): matcher for matcher in self._always}  # by id: comparing rules is slow
        for word in words:
            for matcher in self._by_word[word]:
                found[id(matcher)] = matcher
        return found.values()

    def disable(self, matcher: RuleMatcher) -> None:
        """Remove a rule; the counter of a preset without one of its rules for generations is ruled out."""
        for matchers in (self._always, *self._by_word.values()):
            if matcher in matchers:
                matchers.remove(matcher)
        if matcher.rule.kind == "generation":
            matcher.state.rule_out()


def count_generation(
    counter: LogCounter, rule: MarkerRule, match: re.Match[str], line: LineText, bar: re.Match[str] | None
) -> bool:
    """Add the value that a rule for generations found; True when its counter changed."""
    groups = match.groupdict()
    place = index_group(match)
    index = _parse_number(groups[place])
    if index is not None and place == "done":
        index = int(index)
    if index is None or (place == "done" and index in (0, counter.last)):
        return False
    total = _parse_number(groups.get("total"))
    last = _parse_number(groups.get("last"))  # `Epoch 4/4` of five, counted from 0: the last index
    if total is None and last is not None:
        total = last + 1
    drawn = bar is not None and rule.at == "start"
    at = at_of_bar(bar) if bar is not None and drawn else rule.at
    return counter.add_value(line, match.start(place), index, _positive_int(total), at, redrawn=drawn)


def index_group(match: re.Match[str]) -> str:
    """The group of a rule for generations that has the number: `index`, or `done` with a fraction."""
    return "done" if match.groupdict().get("done") else "index"


def event_from_match(rule: MarkerRule, match: re.Match[str], line: LineText) -> Event | None:
    """Return the event of a rule, for `generation` the gauge of a fraction; None when its number cannot be used."""
    groups = match.groupdict()
    if rule.kind == "generation":
        done = _parse_number(groups.get("done"))
        return None if done is None else GaugeSeen(line.t, printable(rule.unit, 60), round(done, 6))
    if rule.kind == "phase":
        return PhaseSeen(line.t, printable(rule.name or groups.get("phase") or "", 60), rule.at)
    if rule.kind == "total":
        total = _positive_int(_parse_number(groups["total"]))
        return TotalSeen(line.t, total) if total else None
    if rule.kind == "gauge":
        value = _parse_number(groups["value"])
        name = printable(rule.name or groups.get("name") or "gauge", 60)
        return None if value is None else GaugeSeen(line.t, name, value, _parse_number(groups.get("capacity")))
    if rule.kind == "oom":
        return OutOfMemorySeen(line.t, printable(rule.name or "MemoryError", 60), printable(line.text))
    state = "writing" if rule.kind == "checkpoint_writing" else "saved"
    return CheckpointSeen(line.t, state, "log: " + printable(line.text, EVIDENCE_CHARS))


def marker_position(match: re.Match[str]) -> int:
    """Return where the match's number begins, or the match itself without one."""
    groups = (g for g in ("total", "value", "phase", "done") if g in match.re.groupindex and match.start(g) >= 0)
    group = next(groups, None)
    return match.start(group) if group else match.start()


def _parse_number(text: str | None) -> float | None:
    """Parse a number, as an int when it is integral; None when it is not finite or exceeds any count."""
    plain = (text or "").replace(",", "").replace("_", "").strip()
    try:
        number = float(plain[:40])
    except ValueError:
        return None
    if not math.isfinite(number) or abs(number) > _MAX_NUMBER:
        return None
    return int(number) if number.is_integer() else number


def _positive_int(number: float | None) -> int | None:
    return int(number) if number is not None and number > 0 else None
