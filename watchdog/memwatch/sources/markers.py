"""Lines -> markers: which generation a run is in, its total, phases, gauges, checkpoints and failed allocations."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Sequence

from memwatch.core.model import CheckpointSeen, Event, GaugeSeen, OutOfMemorySeen, PhaseSeen, TotalSeen
from memwatch.core.text import printable
from memwatch.sources.counter import BAR, Counter, bar_at
from memwatch.sources.presets import PATTERN_BYTES, Preset, Rule
from memwatch.sources.streams import OTHER_UNIT, PRIORITY, Choice, Hit, Piece, Stream, changed, user_priority
from memwatch.sources.words import unit_named

_PRESET_WEIGHT = 5
_HELD_HITS = 64  # phases, gauges and so on of a preset that is not chosen yet
_GAUGES = 64  # names of gauges that are told apart
_EVIDENCE_CHARS = 160
_LARGEST = 1e15  # a number beyond it counts nothing


class MarkerFinder:
    """Feed it the segments of a log, in order; it chooses the preset, or the counter, by itself.

    A hit may be told late, when more lines had to be seen before they could be understood; its place and its time
    are those of its own line. `changes` goes up each time that another counter is taken for the clock: the
    generations told before were those of an inner loop, or of something else.
    """

    def __init__(self, presets: Sequence[Preset] = ()) -> None:
        self.total: int | None = None
        self._choice = Choice()
        self._counter = Counter()
        self._states = [_PresetState(preset) for preset in presets]
        self._rules = _RuleIndex(self._states)
        self._totals: dict[str, Hit] = {}
        self._phase: PhaseSeen | None = None
        self._gauges: dict[str, tuple[float, float | None]] = {}
        self._skip = False
        self._drawing = (b"", 0.0)

    @property
    def changes(self) -> int:
        """How often a clock was chosen."""
        return self._choice.changes

    @property
    def preset(self) -> str | None:
        """Name of the preset in force, or what was found without one: words, table, bar, counter ..."""
        return self._choice.stream.name if self._choice.stream else None

    @property
    def unit(self) -> str | None:
        """What the clock counts: generation, epoch, iteration ..."""
        return self._choice.stream.unit if self._choice.stream else None

    def feed(self, segment: bytes | str, byte: int, line: int, t: float) -> list[Hit]:
        """The hits that `segment` (of line `line`, its first byte at `byte`, read at `t`) makes known."""
        raw = segment.encode("utf-8", "surrogateescape") if isinstance(segment, str) else segment
        if not raw or raw.isspace() or self._drawn_again(raw, t):
            return []
        piece = Piece(raw[:PATTERN_BYTES], byte, line, t)
        bar = BAR.match(piece.text) if "| " in piece.text and " [" in piece.text else None
        if bar is None:
            return self._look(piece, None)
        drawn = self._look(piece.part(0, bar.end()), bar)
        if len(piece.text) == bar.end():
            return drawn
        return drawn + self._look(piece.part(bar.end()), None)  # a line printed beside a bar is glued to its end

    def _drawn_again(self, raw: bytes, t: float) -> bool:
        """The same bar at the same count as before, read at the same moment: some are redrawn 100 times a second."""
        if not raw.endswith(b"]"):
            return False
        count, bracket, _ = raw.partition(b" [")
        if not bracket or b"| " not in count:
            return False
        drawing = (count, t)
        if drawing == self._drawing:
            return True
        self._drawing = drawing
        return False

    def _look(self, piece: Piece, bar: re.Match[str] | None) -> list[Hit]:
        if not piece.text or piece.text.isspace():
            return []
        if self._skip:
            self._skip = False
            return []
        moved, others = self._apply_rules(piece, bar)
        moved |= self._count(piece, bar, known=bool(others))
        told: list[Hit] = []
        if moved and self._choice.update([s.stream for s in self._states] + self._counter.streams):
            others = self._release() + others
            self.total = None
        if moved or others:
            told = self._tell_clock()
        return told + self._fresh(others)

    # --- what the presets say ---

    def _apply_rules(self, piece: Piece, bar: re.Match[str] | None) -> tuple[bool, list[Hit]]:
        """Whether a preset's counter moved, and the hits of other kinds."""
        moved, others = False, []
        for state, rule in self._rules.candidates(piece.lower):
            match = rule.pattern.search(piece.text)
            if match is None or (rule.unless is not None and rule.unless.search(piece.text)):
                continue
            if rule.kind == "generation":
                moved |= _count_generation(state.stream, rule, match, piece, bar)
                continue
            if rule.kind == "skip_next":
                self._skip = state.stream is self._choice.stream
                continue
            event = _event(rule, match, piece)
            if event is None:
                continue
            hit = Hit(piece.byte_of(_place(match)), piece.line, event)
            if isinstance(event, TotalSeen):
                self._totals[unit_named(match.groupdict().get("unit") or "") or rule.unit] = hit
                moved = True
            elif state.preset.common or state.stream is self._choice.stream:
                others.append(hit)
            else:
                state.held.append(hit)
        return moved, others

    def _release(self) -> list[Hit]:
        """What the preset that is now chosen said before it was."""
        for state in self._states:
            if state.stream is self._choice.stream:
                held = list(state.held)
                state.held.clear()
                return held
        return []

    # --- what counts up ---

    def _count(self, piece: Piece, bar: re.Match[str] | None, known: bool) -> bool:
        """Whether a counter moved that no preset tells of; a line `known` for something else counts by a word only."""
        clock = self._choice.stream
        if clock is not None and clock.priority >= (PRIORITY["generation"], _PRESET_WEIGHT):
            return False  # nothing greater can come
        if bar is not None:
            return self._counter.bar(piece, bar)
        unnamed = not known and (clock is None or clock.priority[0] <= OTHER_UNIT)
        return self._counter.text(piece, unnamed)

    # --- what is told ---

    def _tell_clock(self) -> list[Hit]:
        clock = self._choice.stream
        if clock is None:
            return []
        if clock.nameless and len(self._totals) == 1 and clock.unit not in self._totals:
            clock.rename(next(iter(self._totals)), clock.priority)  # `[ 12] loss 0.31` after `Training for 50 epochs`
        apart = self._totals.get(clock.unit)
        said = apart.event.total if apart and isinstance(apart.event, TotalSeen) else None
        hits = list(clock.hits)
        clock.hits.clear()
        if hits:
            self._phase = None  # the same phase in another generation is news
        if clock.total and said == clock.total + 1 and clock.first == 0:
            clock.total = said  # `29/29` of thirty, counted from 0
        if clock.total == said:
            hits = [changed(hit, total=said) for hit in hits]
        return self._tell_total(clock, apart, clock.total or said, hits) + hits

    def _tell_total(self, clock: Stream, apart: Hit | None, total: int | None, hits: list[Hit]) -> list[Hit]:
        """The total, unless the markers say it themselves."""
        if total is None or total == self.total:
            return []
        self.total = total
        if any(getattr(hit.event, "total", None) == total for hit in hits):
            return []
        if apart is not None and clock.total is None:
            return [apart]
        return [hit._replace(event=TotalSeen(hit.event.t, total)) for hit in hits[:1]]

    def _fresh(self, hits: Iterable[Hit]) -> list[Hit]:
        """Without what a redrawn bar only says again."""
        return [hit for hit in hits if self._is_fresh(hit.event)]

    def _is_fresh(self, event: Event) -> bool:
        if isinstance(event, PhaseSeen):
            before, self._phase = self._phase, event
            return before is None or (before.phase, before.at) != (event.phase, event.at)
        if isinstance(event, GaugeSeen):
            level = (event.value, event.capacity)
            if self._gauges.get(event.name) == level or (
                event.name not in self._gauges and len(self._gauges) >= _GAUGES
            ):
                return False
            self._gauges[event.name] = level
        return True


class _PresetState:
    """A preset, its counter, and what it said while it was not chosen."""

    __slots__ = ("held", "preset", "stream")

    def __init__(self, preset: Preset) -> None:
        self.preset = preset
        priority = user_priority(preset.unit) if preset.user else None
        self.stream = Stream(preset.name, preset.unit, _PRESET_WEIGHT, 0, priority)
        self.held: deque[Hit] = deque(maxlen=_HELD_HITS)


_Candidate = tuple[_PresetState, Rule]


class _RuleIndex:
    """Rules by the words that a line must contain: the look for words is far cheaper than the patterns."""

    def __init__(self, states: Sequence[_PresetState]) -> None:
        self._always: list[_Candidate] = []
        self._by_word: dict[str, list[_Candidate]] = {}
        for state in states:
            for rule in state.preset.rules:
                candidate = (state, rule)
                if not rule.contains:
                    self._always.append(candidate)
                for word in rule.contains:
                    self._by_word.setdefault(word, []).append(candidate)

    def candidates(self, lower: str) -> Iterable[_Candidate]:
        """The rules that a line with this text may satisfy, each once."""
        words = [word for word in self._by_word if word in lower]
        if not words:
            return self._always
        found = {id(candidate): candidate for candidate in self._always}  # by id: rules are dear to compare
        for word in words:
            for candidate in self._by_word[word]:
                found[id(candidate)] = candidate
        return found.values()


def _count_generation(
    stream: Stream, rule: Rule, match: re.Match[str], piece: Piece, bar: re.Match[str] | None
) -> bool:
    groups = match.groupdict()
    index = _number(groups["index"])
    if index is None:
        return False
    total = _number(groups.get("total"))
    last = _number(groups.get("last"))  # `Epoch 4/4` of five: the last index, where they count from 0
    if total is None and last is not None:
        total = last + 1
    at = rule.at if bar is None or rule.at != "start" else stream.at_first(index, bar_at(bar))
    return stream.add(piece, match.start("index"), index, _whole(total), at)


def _event(rule: Rule, match: re.Match[str], piece: Piece) -> Event | None:
    """The event of a line of any kind but `generation`; None when its number is none."""
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


def _place(match: re.Match[str]) -> int:
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
