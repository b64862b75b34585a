"""A log says the same in whatever pieces it arrives: as a whole file, in one poll, or cut anywhere into many."""

from __future__ import annotations

import random
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

from memwatch.core.events import CheckpointSeen, GaugeSeen, GenerationSeen, PhaseSeen
from memwatch.sources.log.log_source import LogSource
from memwatch.sources.log.whole_log_scan import scan_log
from support.logs import deep_learning, further, hostile, logs_of, plain, reinforcement, search, wrapped
from support.presets import packaged_presets

LOGS = {log.name: log.raw for room in (deep_learning, reinforcement, search, plain, hostile, further, wrapped)
        for log in logs_of(vars(room))}  # fmt: skip
# The capacity stands in one line of each generation, the level in a second one.
LOGS["capacity_in_one_line_of_two"] = "".join(
    f"=== Generation {g} / 12 ===\nReplay Buffer:     {112 * g} / 5,000\n"
    f"--- Training Population (Buffer: {112 * g}) ---\n"
    for g in range(1, 13)
).encode()
PIECES = (2, 8, 50)


def followed(raw: bytes, cuts: list[int], path: Path) -> dict[str, Any]:
    """What polls report of a log that grows by the pieces between `cuts`."""
    path.touch()
    source = LogSource(path, packaged_presets(), catch_up=False)
    events = []
    with path.open("ab") as log:
        for now, (start, end) in enumerate(pairwise([0, *sorted(cuts), len(raw)])):
            log.write(raw[start:end])
            log.flush()
            events += source.poll(float(now))
    events += source.poll(1e6)
    source.close()
    indexes = [event.index for event in events if isinstance(event, GenerationSeen)]
    return {
        "generations": [index for index, _ in groupby(indexes)],
        "unit": source.finder.unit,
        "total": source.finder.total,
        "gauges": {event.name: (event.value, event.capacity) for event in events if isinstance(event, GaugeSeen)},
        "phases": [(event.phase, event.at) for event in events if isinstance(event, PhaseSeen)],
        "checkpoints": [(event.state, event.evidence) for event in events if isinstance(event, CheckpointSeen)],
    }


@pytest.mark.parametrize("name", LOGS)
def test_a_log_says_the_same_in_whatever_pieces_it_arrives(name: str, tmp_path: Path) -> None:
    raw, chance = LOGS[name], random.Random(name)
    at_once = followed(raw, [], tmp_path / "whole.log")
    for pieces in PIECES:
        cuts = [chance.randrange(len(raw) + 1) for _ in range(pieces - 1)]
        assert followed(raw, cuts, tmp_path / f"{pieces}.log") == at_once, cuts
    found = scan_log(tmp_path / "whole.log", packaged_presets())
    assert (found.unit, found.total) == (at_once["unit"], at_once["total"])
    levels = {gauge.event.name: gauge.event for gauge in found.events["gauges"] if isinstance(gauge.event, GaugeSeen)}
    assert {name: (level.value, level.capacity) for name, level in levels.items()} == at_once["gauges"]


def test_a_capacity_that_one_line_prints_holds_for_the_lines_without_it(tmp_path: Path) -> None:
    reported = followed(LOGS["capacity_in_one_line_of_two"], [], tmp_path / "train.log")
    assert reported["gauges"] == {"replay buffer": (1344, 5000)}
