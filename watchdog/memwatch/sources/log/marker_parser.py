"""Finds markers in log lines: generations, their total, phases, gauges, checkpoints and failed allocations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from memwatch.core.events import CheckpointSeen, Event, GaugeSeen, GenerationSeen, PhaseSeen, TotalSeen
from memwatch.core.text_and_units import printable
from memwatch.sources.log.counter_finder import CounterFinder, match_bar
from memwatch.sources.log.line_text import LineText
from memwatch.sources.log.marker_presets import PATTERN_BYTES, RECORD_BYTES, Preset
from memwatch.sources.log.marker_rule_matcher import (
    EVIDENCE_CHARS,
    PRESET_WEIGHT,
    PresetState,
    RuleIndex,
    RuleMatcher,
    SlowRuleError,
    count_generation,
    event_from_match,
    index_group,
    marker_position,
)
from memwatch.sources.log.primary_counter import (
    OTHER_UNIT_PRIORITY,
    LocatedEvent,
    LogCounter,
    PrimaryCounterSelector,
    with_event_fields,
)
from memwatch.sources.log.run_length import PrintedTotals, remaining_seconds
from memwatch.sources.log.save_mentions import find_save
from memwatch.sources.log.skippable_lines import LineObservations, SkippableLines, line_template
from memwatch.sources.log.unit_mentions import UNIT_PRIORITY, unit_from_name

_MAX_GAUGES = _MAX_PHASES = 64  # names that are kept apart: a log may have another one in each line
_OTHER_PHASE = "other"
_ALSO_CALLED = {"step": "timestep", "timestep": "step"}  # `Training step: 5000` of `'total_timesteps': 1500000`
# The line begins with a fraction such as `723/9350`; other lines name the step only when the loss improves.
_OF_TOTAL = re.compile(r"\W{0,8}[0-9]{1,15} ?/ ?[0-9]{1,15}(?![\w.%/])")
_EVALUATION = re.compile(r"\W{0,80}(?:[Ee]valuat|[Vv]alidat|[Tt]esting)\w{0,6}(?: \w{1,20})?:\W{0,80}")


class MarkerFinder:
    """Finds the markers in the segments of a log, given in order; it selects the preset or the counter by itself.

    A marker may be returned late, when it took further lines to understand it, but with its own position and time.
    `counter_changes` increases each time that another counter is selected: the generations before were those of
    another loop. `skippable_lines` knows which lines need not be given; with or without them the markers are the same.
    """

    def __init__(self, presets: Sequence[Preset] = (), skippable_lines: SkippableLines | None = None) -> None:
        self.total: int | None = None
        self.disabled_rules: dict[str, str] = {}  # location of each rule that is too slow -> reason
        self.skippable_lines = skippable_lines or SkippableLines()
        self._observations = LineObservations()
        self._selector = PrimaryCounterSelector()
        self._counter_finder = CounterFinder(self._observations)
        self._states = [PresetState(preset) for preset in presets]
        self._rules = RuleIndex(self._states)
        self._totals = PrintedTotals()
        self._phase: PhaseSeen | None = None
        self._phases: set[str] = set()
        self._gauges: dict[str, tuple[float, float | None]] = {}
        self._has_counted = self._recount = False  # generations were returned; the next ones are another counter's
        self._skip_next = self._in_evaluation = False

    @property
    def counter_changes(self) -> int:
        """How often a primary counter was selected or dropped."""
        return self._selector.changes

    @property
    def preset(self) -> str | None:
        """The name of the selected preset, or the kind of counter without one: words, table, bar, counter ..."""
        return self._selector.selected.name if self._selector.selected else None

    @property
    def unit(self) -> str | None:
        """The unit of the primary counter: generation, epoch, iteration ..."""
        return self._selector.selected.unit if self._selector.selected else None

    def find_markers(self, segment: bytes | str, byte: int, line_number: int, t: float) -> list[LocatedEvent]:
        """Return the markers that `segment` reveals: its first byte is at `byte`, and it was read at `t`."""
        raw = segment.encode("utf-8", "surrogateescape") if isinstance(segment, str) else segment
        raw = raw[: RECORD_BYTES if raw.startswith(b"{") else PATTERN_BYTES]
        template = line_template(raw)
        if self.skippable_lines.can_skip(template, raw):
            return []
        frame = self.counter_changes, self._counter_finder.header_count
        self._observations.reset()
        found = self._parse_segment(raw, byte, line_number, t)
        if frame == (self.counter_changes, self._counter_finder.header_count):
            self._remember_template(template, raw, byte)
        else:
            self.skippable_lines.clear()  # lines have another meaning now
            found = _of_latest_counter(found)
        self.skippable_lines.must_read_next = self._skip_next or (
            self._may_count_without_preset and self._counter_finder.expects_first_row
        )
        return found

    def _parse_segment(self, raw: bytes, byte: int, line_number: int, t: float) -> list[LocatedEvent]:
        if raw.isspace():
            return []
        line = LineText(raw, byte, line_number, t)
        return [marker for drawing in line.drawings() for marker in self._parse_drawing(drawing)]

    def _parse_drawing(self, line: LineText) -> list[LocatedEvent]:
        found: list[LocatedEvent] = []
        while bar := match_bar((message := line.message()).text):
            end = message.offset + bar.end()
            found += self._parse_part(line.part(0, end).message(), bar)
            line = line.part(end)  # a line may follow a bar without a line end
        return found + self._parse_part(message, None)

    def _parse_part(self, line: LineText, bar: re.Match[str] | None) -> list[LocatedEvent]:
        if not line.text or line.text.isspace():
            return []
        if self._skip_next:
            self._skip_next, self._observations.template_undecided = False, True
            return []
        changed, others = self._apply_rules(line, bar)
        if not any(isinstance(other.event, CheckpointSeen) for other in others):  # a preset knows better
            others += self._find_save(line, bar)
        changed |= self._count_without_preset(line, bar, known=bool(others))
        found: list[LocatedEvent] = []
        before = self.counter_changes
        if changed and self._selector.update(self._all_counters()):
            others = self._release_held_events() + others
            self.total = None
            self._recount = self._has_counted and self.counter_changes != before
        if changed or others:
            found = self._release_generations()
        return [*self._with_remaining(found, line), *self._without_repeats(others)]

    def _with_remaining(self, found: list[LocatedEvent], line: LineText) -> list[LocatedEvent]:
        """Return the markers, with the time left in that of this line; it matters where no total is known."""
        if self.total is not None or not found or found[-1].line != line.number:
            return found
        if not isinstance(found[-1].event, GenerationSeen) or (seconds := remaining_seconds(line.text)) is None:
            return found
        return [*found[:-1], with_event_fields(found[-1], remaining_seconds=seconds)]

    def _all_counters(self) -> list[LogCounter]:
        return [c for state in self._states for c in state.counters.values()] + self._counter_finder.counters

    def _is_selected(self, state: PresetState) -> bool:
        return self._selector.selected in state.counters.values()

    # --- which lines can be skipped ---

    def _remember_template(self, template: bytes, raw: bytes, byte: int) -> None:
        """Decide whether lines of this template can be skipped from now on."""
        observed = self._observations
        for number in observed.counter_numbers:
            self._mark_if_inner_loop(number.counter)
        numbers = [number for number in observed.counter_numbers if not self._is_excluded(number.counter)]
        if any(number.state_before != number.counter.state for number in numbers):
            self.skippable_lines.invalidate_unchanged()
        elif observed.template_undecided:
            return
        elif numbers:
            self.skippable_lines.skip_while_unchanged(template, raw, (number.column(raw, byte) for number in numbers))
        else:
            self.skippable_lines.skip_template(template)

    def _mark_if_inner_loop(self, counter: LogCounter) -> None:
        """A lesser counter that changes while the primary one stands still is an inner loop."""
        primary = self._selector.selected
        if primary is None or primary.is_inner_loop or primary.priority[0] <= OTHER_UNIT_PRIORITY:
            return
        if counter.is_inner_loop or counter.family == primary.family or counter.priority[0] > primary.priority[0]:
            return
        if counter.moves_far_more_often(primary, self.counter_changes) and not counter.may_follow(primary):
            self._counter_finder.exclude_family(counter.family)
            counter.mark_inner_loop()

    def _is_excluded(self, counter: LogCounter) -> bool:
        """Neither this counter nor one of its family can be the primary one."""
        primary = self._selector.selected
        if primary is not None and primary.family == counter.family:
            return False
        cannot_be = counter.is_inner_loop or counter.is_ruled_out
        return cannot_be and self._counter_finder.is_family_excluded(counter.family)

    # --- presets ---

    def _apply_rules(self, line: LineText, bar: re.Match[str] | None) -> tuple[bool, list[LocatedEvent]]:
        """Return whether a preset's counter changed, and the markers of other kinds."""
        changed = False
        others: list[LocatedEvent] = []
        observed, no_counters = self._observations, self._counter_finder.no_counters
        no_counters.clear()
        message, whole = line, line.line
        for matcher in self._rules.matchers(whole.lower):
            line = message if matcher.reads_message else whole
            try:
                observed.template_undecided |= matcher.depends_on_digits(line.text)
                matches = matcher.find_matches(line.text)
            except SlowRuleError as error:
                self._disable_rule(matcher, str(error))
                changed = True  # its counter may have been the primary one
                continue
            for match in matches:
                changed |= self._apply_match(matcher, match, line, bar, others)
        return changed, others

    def _apply_match(
        self,
        matcher: RuleMatcher,
        match: re.Match[str],
        line: LineText,
        bar: re.Match[str] | None,
        others: list[LocatedEvent],
    ) -> bool:
        """Add what a rule found to the counters, the totals or `others`; True when a counter or a total changed."""
        state, rule, changed = matcher.state, matcher.rule, False
        if rule.kind == "generation":
            counter = state.counter(line.process)
            self._observations.add_counter_numbers(counter, line, match.start(index_group(match)))
            changed = count_generation(counter, rule, match, line, bar)
        else:
            self._observations.template_undecided = True
        if rule.kind == "skip_next":
            self._skip_next = self._is_selected(state)
            return changed
        event = event_from_match(rule, match, line)
        if event is None or any(other.event == event for other in others):
            return changed
        if isinstance(event, PhaseSeen):
            event = self._limit_phase_names(event)
        marker = LocatedEvent(line.byte_of(marker_position(match)), line.number, event)
        if isinstance(event, TotalSeen):
            unit = unit_from_name(match.groupdict().get("unit") or "") or rule.unit
            words = match[0][: match.start("total") - match.start()].lower()
            return self._totals.add(unit, words, event.total, marker)
        if rule.kind == "generation":
            self._counter_finder.no_counters.add(rule.unit)
        if rule.kind == "generation" or state.preset.applies_to_all_logs or self._is_selected(state):
            others.append(marker)
        else:
            state.held_events.append(marker)
        return changed

    def _find_save(self, line: LineText, bar: re.Match[str] | None) -> list[LocatedEvent]:
        """Return what the line says of a checkpoint; a bar of its parts says so at its begin and its end."""
        found = find_save(line.lower)
        if found is None:
            return []
        self._observations.template_undecided = True
        state = found.state if found.has_object or self._has_begun() else ""
        if state and bar is not None:
            state = {bar["total"]: "saved", "0": "writing"}.get(bar["done"], "")
        if not state:
            return []
        evidence = "log: " + printable(line.line.text, EVIDENCE_CHARS)
        return [LocatedEvent(line.byte_of(found.position), line.number, CheckpointSeen(line.t, state, evidence))]

    def _has_begun(self) -> bool:
        """Whether a line has named a unit of the run with its number."""
        return any(c.priority[0] > OTHER_UNIT_PRIORITY and not c.may_be_setting for c in self._all_counters())

    def _disable_rule(self, matcher: RuleMatcher, reason: str) -> None:
        self.disabled_rules[matcher.rule.location] = reason
        self._rules.disable(matcher)
        self._observations.template_undecided = True

    def _limit_phase_names(self, event: PhaseSeen) -> PhaseSeen:
        """Return `event`, or with another phase name when there are too many names already."""
        if len(self._phases) < _MAX_PHASES:
            self._phases.add(event.phase)
        return event if event.phase in self._phases else replace(event, phase=_OTHER_PHASE)

    def _release_held_events(self) -> list[LocatedEvent]:
        """Return the events that the selected preset found before its selection."""
        for state in self._states:
            if self._is_selected(state):
                held = list(state.held_events)
                state.held_events.clear()
                return held
        return []

    # --- counters without a preset ---

    @property
    def _may_count_without_preset(self) -> bool:
        """No preset counts generations, so a counter without a preset can be the primary one."""
        primary = self._selector.selected
        return primary is None or primary.priority < (UNIT_PRIORITY["generation"], PRESET_WEIGHT)

    def _count_without_preset(self, line: LineText, bar: re.Match[str] | None, known: bool) -> bool:
        """Return whether a counter without a preset changed; a line that is `known` otherwise counts by words only."""
        if not self._may_count_without_preset:
            return False
        if self._is_of_evaluation(line):
            return False
        primary = self._selector.selected
        if bar is not None:
            return self._counter_finder.process_bar(line, bar)
        is_named = primary is not None and primary.priority[0] > OTHER_UNIT_PRIORITY and primary.name != "counter"
        unnamed = not known and not is_named
        if primary is not None and is_named and primary.total is None:
            unnamed = not known and _OF_TOTAL.match(line.text) is not None
        return self._counter_finder.process_line(line, unnamed)

    def _is_of_evaluation(self, line: LineText) -> bool:
        """Whether it is indented below a line `Evaluation:`, whose steps are none of the training."""
        if line.text[:1].isspace():
            return self._in_evaluation
        self._in_evaluation = _EVALUATION.fullmatch(line.text) is not None
        self._observations.template_undecided |= self._in_evaluation
        return False

    # --- results ---

    def _release_generations(self) -> list[LocatedEvent]:
        primary = self._selector.selected
        if primary is None:
            return []
        if primary.is_unnamed and (unit := self._unit_of_total(primary)):
            primary.rename(unit, primary.priority)
        totals = self._totals.latest(primary.last or 0.0)
        separate = totals.get(primary.unit) or totals.get(_ALSO_CALLED.get(primary.unit, ""))
        printed_total = separate.event.total if separate and isinstance(separate.event, TotalSeen) else None
        markers = primary.release_events()
        if markers:
            self._phase = None  # the same phase in another generation is a new event
            if self._recount:
                markers[0] = with_event_fields(markers[0], recount=True)
            self._has_counted, self._recount = True, False
        if primary.total and printed_total == primary.total + 1 and primary.first == 0:
            primary.total = printed_total  # `29/29` of thirty, counted from 0
        if primary.total == printed_total:
            markers = [with_event_fields(marker, total=printed_total) for marker in markers]
        total = primary.total or printed_total or self._total_of_same(primary)
        return self._new_total(primary, separate, total, markers) + markers

    def _total_of_same(self, primary: LogCounter) -> int | None:
        """The total of another counter that agrees with `primary`: `(epoch: 3, ...` beside `End of epoch 3 / 200`.

        Or of a bar without a name in its line: `| 4/30 [...] Trial 3 finished`.
        """
        same = (
            c
            for c in self._all_counters()
            if c.total
            and c.agrees_with(primary)
            and (
                c.unit == primary.unit
                or (c.name == "bar" and c.is_unnamed and c.increments and c.is_in_line_of(primary))
            )
        )
        return next((counter.total for counter in same), None)

    def _unit_of_total(self, counter: LogCounter) -> str | None:
        """The unit of a counter without a name: that of its total, as `[ 12] loss` after `Training for 50 epochs`."""
        totals = self._totals.latest().items()
        units = [unit for unit, total in totals if counter.total in (None, getattr(total.event, "total", None))]
        return units[0] if len(units) == 1 else None

    def _new_total(
        self, primary: LogCounter, separate: LocatedEvent | None, total: int | None, markers: list[LocatedEvent]
    ) -> list[LocatedEvent]:
        """Return a changed total as a marker, unless `markers` have it."""
        if total is None or total == self.total:
            self.total = total
            return []
        self.total = total
        if any(getattr(marker.event, "total", None) == total for marker in markers):
            return []
        if separate is not None and primary.total is None:
            return [separate]
        return [marker._replace(event=TotalSeen(marker.event.t, total)) for marker in markers[:1]]

    def _without_repeats(self, markers: Iterable[LocatedEvent]) -> list[LocatedEvent]:
        completed = (marker._replace(event=self._with_capacity(marker.event)) for marker in markers)
        return [marker for marker in completed if self._is_new(marker.event)]

    def _with_capacity(self, event: Event) -> Event:
        """Return a gauge with the capacity that an earlier line printed: `Buffer: 224` after `Buffer: 224 / 5,000`."""
        if not isinstance(event, GaugeSeen) or event.capacity is not None:
            return event
        _, capacity = self._gauges.get(event.name, (0.0, None))
        return event if capacity is None else replace(event, capacity=capacity)

    def _is_new(self, event: Event) -> bool:
        if isinstance(event, PhaseSeen):
            before, self._phase = self._phase, event
            return before is None or (before.phase, before.at) != (event.phase, event.at)
        if isinstance(event, GaugeSeen):
            latest, level = self._gauges.get(event.name), (event.value, event.capacity)
            if latest == level or (latest is None and len(self._gauges) >= _MAX_GAUGES):
                return False
            self._gauges[event.name] = level
        return True


def _of_latest_counter(found: list[LocatedEvent]) -> list[LocatedEvent]:
    """Drop the generations of a counter that another one replaced in the same segment."""
    events = [marker.event for marker in found]
    first = max((i for i, event in enumerate(events) if getattr(event, "recount", False)), default=0)
    return [m for m in found[:first] if not isinstance(m.event, GenerationSeen)] + found[first:]
