"""Lines -> markers: which generation a run is in, its total, phases, gauges, checkpoints and failed allocations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from memwatch.core.events import Event, GaugeSeen, PhaseSeen, TotalSeen
from memwatch.sources.log.counter_finder import BAR, CounterFinder
from memwatch.sources.log.counters import (
    OTHER_UNIT_PRIORITY,
    UNIT_PRIORITY,
    LineText,
    LocatedEvent,
    LogCounter,
    PrimaryCounterSelector,
    changed,
)
from memwatch.sources.log.line_templates import LineObservations, SkippableLines, line_template
from memwatch.sources.log.marker_presets import PATTERN_BYTES, Preset
from memwatch.sources.log.marker_rules import (
    PRESET_WEIGHT,
    PresetState,
    RuleIndex,
    RuleMatcher,
    SlowRuleError,
    count_generation,
    event_of,
    place_of,
)
from memwatch.sources.log.unit_words import unit_from_name

_GAUGES = _PHASES = 64  # names of gauges and of phases that are told apart: a log may invent one with each line
_OTHER_PHASE = "other"


class MarkerFinder:
    """Feed it the segments of a log, in order; it chooses the preset, or the counter, by itself.

    A hit may be told late, when more lines had to be seen before they could be understood; its place and its time
    are those of its own line. `changes` goes up each time that another counter is taken for the clock: the
    generations told before were those of an inner loop, or of something else. `chatter` knows which lines need not
    be fed; what is found is the same with or without them.
    """

    def __init__(self, presets: Sequence[Preset] = (), chatter: SkippableLines | None = None) -> None:
        self.total: int | None = None
        self.disabled_rules: dict[str, str] = {}  # places of the user's rules that take too long, and what they did
        self.skippable_lines = chatter or SkippableLines()
        self._reading = LineObservations()
        self._choice = PrimaryCounterSelector()
        self._counter = CounterFinder(self._reading)
        self._states = [PresetState(preset) for preset in presets]
        self._rules = RuleIndex(self._states)
        self._totals: dict[str, LocatedEvent] = {}
        self._phase: PhaseSeen | None = None
        self._phases: set[str] = set()
        self._gauges: dict[str, tuple[float, float | None]] = {}
        self._skip = False
        self._drawing = (b"", 0.0)

    @property
    def counter_changes(self) -> int:
        """How often a clock was chosen."""
        return self._choice.changes

    @property
    def preset(self) -> str | None:
        """Name of the preset in force, or what was found without one: words, table, bar, counter ..."""
        return self._choice.selected.name if self._choice.selected else None

    @property
    def unit(self) -> str | None:
        """What the clock counts: generation, epoch, iteration ..."""
        return self._choice.selected.unit if self._choice.selected else None

    def feed(self, segment: bytes | str, byte: int, line: int, t: float) -> list[LocatedEvent]:
        """The hits that `segment` (of line `line`, its first byte at `byte`, read at `t`) makes known."""
        raw = segment.encode("utf-8", "surrogateescape") if isinstance(segment, str) else segment
        text = raw[:PATTERN_BYTES]
        form = line_template(text)
        if self.skippable_lines.can_skip(form, text):
            return []
        frame = self.counter_changes, self._counter.headers
        self._reading.reset()
        told = self._read(raw, byte, line, t)
        if frame == (self.counter_changes, self._counter.headers):
            self._judge(form, text, byte)
        else:
            self.skippable_lines.forget()  # what a line means is another thing now
        self.skippable_lines.must_read_next = self._skip or (self._counts and self._counter.expects_first_row)
        return told

    def _read(self, raw: bytes, byte: int, line: int, t: float) -> list[LocatedEvent]:
        if raw.isspace():
            return []
        if self._drawn_again(raw, t):
            self._reading.template_undecided = True
            return []
        piece = LineText(raw[:PATTERN_BYTES], byte, line, t)
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

    def _look(self, piece: LineText, bar: re.Match[str] | None) -> list[LocatedEvent]:
        if not piece.text or piece.text.isspace():
            return []
        if self._skip:
            self._skip, self._reading.template_undecided = False, True
            return []
        moved, others = self._apply_rules(piece, bar)
        moved |= self._count(piece, bar, known=bool(others))
        told: list[LocatedEvent] = []
        if moved and self._choice.update([s.stream for s in self._states] + self._counter.counters):
            others = self._release() + others
            self.total = None
        if moved or others:
            told = self._release_generations()
        return told + self._fresh(others)

    # --- which lines need not be read ---

    def _judge(self, form: bytes, raw: bytes, byte: int) -> None:
        """Whether lines of this form can be passed over from now on."""
        chatter, reading = self.skippable_lines, self._reading
        for touch in reading.counter_numbers:
            self._settle(touch.stream)
        open_ = [touch for touch in reading.counter_numbers if not self._settled(touch.stream)]
        if any(touch.before != touch.stream.state for touch in open_):
            chatter.invalidate_unchanged()
        elif reading.template_undecided:
            return
        elif open_:
            chatter.skip_while_unchanged(form, raw, (touch.column(raw, byte) for touch in open_))
        else:
            chatter.skip_template(form)

    def _settle(self, stream: LogCounter) -> None:
        """A lesser counter that goes on while the clock stands is within it, or beside it: it is no clock."""
        clock = self._choice.selected
        if clock is None or clock.inner or clock.priority[0] <= OTHER_UNIT_PRIORITY:
            return
        if stream.inner or stream.family == clock.family or stream.priority[0] > clock.priority[0]:
            return
        if stream.outruns(clock, self.counter_changes):
            self._counter.exclude_family(stream.family)
            stream.mark_inner_loop()

    def _settled(self, stream: LogCounter) -> bool:
        """Neither it nor one of its kind can be the clock."""
        clock = self._choice.selected
        if clock is not None and clock.family == stream.family:
            return False
        return (stream.inner or stream.dead) and self._counter.is_family_excluded(stream.family)

    # --- what the presets say ---

    def _apply_rules(self, piece: LineText, bar: re.Match[str] | None) -> tuple[bool, list[LocatedEvent]]:
        """Whether a preset's counter moved, and the hits of other kinds."""
        moved, others = False, []
        reading = self._reading
        reading.template_undecided |= self._rules.depends_on_digits(piece.lower)
        for candidate in self._rules.candidates(piece.lower):
            try:
                reading.template_undecided |= candidate.depends_on_digits(piece.text)
                match = candidate.match(piece.text)
            except SlowRuleError as error:
                self._set_aside(candidate, str(error))
                moved = True  # it may have been the clock
                continue
            if match is None:
                continue
            state, rule = candidate.state, candidate.rule
            if rule.kind == "generation":
                reading.add_counter_numbers(state.stream, piece, match.start("index"))
                moved |= count_generation(state.stream, rule, match, piece, bar)
                continue
            reading.template_undecided = True
            if rule.kind == "skip_next":
                self._skip = state.stream is self._choice.selected
                continue
            event = event_of(rule, match, piece)
            if event is None:
                continue
            if isinstance(event, PhaseSeen):
                event = self._known_phase(event)
            hit = LocatedEvent(piece.byte_of(place_of(match)), piece.line, event)
            if isinstance(event, TotalSeen):
                self._totals[unit_from_name(match.groupdict().get("unit") or "") or rule.unit] = hit
                moved = True
            elif state.preset.applies_to_all_logs or state.stream is self._choice.selected:
                others.append(hit)
            else:
                state.held.append(hit)
        return moved, others

    def _set_aside(self, candidate: RuleMatcher, reason: str) -> None:
        self.disabled_rules[candidate.rule.location] = reason
        self._rules.disable(candidate)
        self._reading.template_undecided = True

    def _known_phase(self, event: PhaseSeen) -> PhaseSeen:
        """`event` itself, or of another phase where there are too many already."""
        if len(self._phases) < _PHASES:
            self._phases.add(event.phase)
        return event if event.phase in self._phases else replace(event, phase=_OTHER_PHASE)

    def _release(self) -> list[LocatedEvent]:
        """What the preset that is now chosen said before it was."""
        for state in self._states:
            if state.stream is self._choice.selected:
                held = list(state.held)
                state.held.clear()
                return held
        return []

    # --- what counts up ---

    @property
    def _counts(self) -> bool:
        """A clock without a preset is looked for: nothing greater was found."""
        clock = self._choice.selected
        return clock is None or clock.priority < (UNIT_PRIORITY["generation"], PRESET_WEIGHT)

    def _count(self, piece: LineText, bar: re.Match[str] | None, known: bool) -> bool:
        """Whether a counter moved that no preset tells of; a line `known` for something else counts by a word only."""
        if not self._counts:
            return False
        clock = self._choice.selected
        if bar is not None:
            return self._counter.process_bar(piece, bar)
        unnamed = not known and (clock is None or clock.priority[0] <= OTHER_UNIT_PRIORITY)
        return self._counter.process_line(piece, unnamed)

    # --- what is told ---

    def _release_generations(self) -> list[LocatedEvent]:
        clock = self._choice.selected
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

    def _tell_total(
        self, clock: LogCounter, apart: LocatedEvent | None, total: int | None, hits: list[LocatedEvent]
    ) -> list[LocatedEvent]:
        """The total, unless the markers say it themselves."""
        if total is None or total == self.total:
            return []
        self.total = total
        if any(getattr(hit.event, "total", None) == total for hit in hits):
            return []
        if apart is not None and clock.total is None:
            return [apart]
        return [hit._replace(event=TotalSeen(hit.event.t, total)) for hit in hits[:1]]

    def _fresh(self, hits: Iterable[LocatedEvent]) -> list[LocatedEvent]:
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
