"""The logs of more than 200 programs: each unit once, at its place, known early, no second thoughts without cause."""

from __future__ import annotations

import pytest

from memwatch.core.events import GenerationSeen
from memwatch.sources.log.log_tail import LogSegmenter
from memwatch.sources.log.marker_parser import MarkerFinder
from memwatch.sources.log.primary_counter import LocatedEvent
from support.logs import TrainerLog, deep_learning, further, hostile, logs_of, plain, reinforcement, search, wrapped
from support.presets import packaged_presets

LOGS = [
    log
    for room in (deep_learning, reinforcement, search, plain, hostile, further, wrapped)
    for log in logs_of(vars(room))
]
LATE_UNITS = 5  # so many units of the run may pass before the clock is known
# Here what is counted first is an inner loop, or a preparation: the outer one cannot be known until it has moved.
SECOND_THOUGHTS = {
    "a_bar_without_a_name_that_ends_first",
    "alphazero_general", "curriculum", "darknet", "dopamine", "federated_inner_epochs", "folds_around_epochs",
    "generation_said_at_its_end_only", "icefall", "marian", "optuna_around_epochs", "outer_iteration_inner_epochs",
    "preparation_counts_first", "pykeen", "tpot", "walk_forward", "yunjey_steps",
}  # fmt: skip


def read(log: TrainerLog) -> tuple[MarkerFinder, list[LocatedEvent], int]:
    """The finder after the whole log, the clock's first hit of each index, and how many it told at once at first."""
    finder, segmenter = MarkerFinder(packaged_presets()), LogSegmenter()
    told: list[list[LocatedEvent]] = []
    changes = 0
    for piece in [*segmenter.split(log.raw), *segmenter.flush()]:
        hits = [
            h
            for h in finder.find_markers(piece.data, piece.byte, piece.line, 0.0)
            if isinstance(h.event, GenerationSeen)
        ]
        if finder.counter_changes != changes:
            changes = finder.counter_changes
            told.clear()
        if hits:
            told.append(hits)
    once: list[LocatedEvent] = []
    for hit in (hit for hits in told for hit in hits):
        if not once or hit.event.index != once[-1].event.index:
            once.append(hit)
    return finder, once, len({hit.event.index for hit in told[0]}) if told else 0


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_each_unit_is_found_and_nothing_else(log: TrainerLog) -> None:
    finder, hits, at_first = read(log)
    found = [(hit.event.index, hit.line) for hit in hits]
    assert log.right(found), (found[:5], log.markers[:5])
    assert finder.unit == log.unit
    assert log.total is None or finder.total == log.total
    assert log.at is None or {hit.event.at for hit in hits} == {log.at}
    assert at_first <= LATE_UNITS + 1
    assert finder.counter_changes <= 1 or log.name in SECOND_THOUGHTS
    assert all(log.raw[hit.byte : hit.byte + 1].isdigit() for hit in hits)


def test_the_names_of_logs_are_their_own() -> None:
    names = [log.name for log in LOGS]
    assert len(set(names)) == len(names)
    assert set(names) >= SECOND_THOUGHTS
