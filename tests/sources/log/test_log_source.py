"""A log as a source: what was there before is told as its latest state, what comes is told as it comes."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memwatch.core.events import CheckpointSeen, Event, GaugeSeen, GenerationSeen, OutOfMemorySeen, PhaseSeen, TotalSeen
from memwatch.errors import SourceError
from memwatch.sources.log.log_source import (
    HEAD_BYTES,
    MAX_CATCH_UP_CPU_SECONDS,
    MAX_POLL_CPU_SECONDS,
    TAIL_BYTES,
    LogSource,
)
from memwatch.sources.log.whole_log_scan import format_scan, scan_json, scan_log
from support.logs import tqdm
from support.presets import packaged_presets


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


@pytest.fixture
def source(log: Path) -> Iterator[LogSource]:
    source = LogSource(log, packaged_presets())
    yield source
    source.close()


class Ticks:
    """CPU seconds of a machine on which a look at the clock takes so many."""

    def __init__(self, step: float) -> None:
        self.seconds, self._step = 0.0, step

    def __call__(self) -> float:
        self.seconds += self._step
        return self.seconds


def polled(source: LogSource, now: float, until: Callable[[list[Event]], bool]) -> list[Event]:
    """What the polls tell `until` that holds of it."""
    events = source.poll(now)
    while not until(events):
        events += source.poll(now)
    return events


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_of_old_lines_only_the_latest_state_is_told(log: Path, source: LogSource) -> None:
    append(log, "Number of Generations: 50\nGeneration 1 / 50\n--- Evolving Population ---\nMemoryError\n")
    append(log, "Saving checkpoint a.pt\nCheckpoint saved: a.pt\nReplay Buffer: 1 / 9\n")
    append(log, "Generation 2 / 50\nReplay Buffer: 2 / 9\n--- Evaluating Population ---\nSaving checkpoint b.pt\n")
    assert source.poll(100.0) == [
        GenerationSeen(100.0, 2, 50, "generation", "start", before_watch=True),
        GaugeSeen(100.0, "replay buffer", 2, 9),
        PhaseSeen(100.0, "evaluate_population"),
        CheckpointSeen(100.0, "writing", "log: Saving checkpoint b.pt", before_watch=True),
    ]
    append(log, "Generation 3 / 50\n")
    assert source.poll(101.0) == [GenerationSeen(101.0, 3, 50, "generation", "start")]


def test_a_phase_that_is_over_and_a_checkpoint_that_is_saved_are_not_the_state(log: Path, source: LogSource) -> None:
    append(
        log, "Generation 2 / 50\n--- Evolving Population ---\nGeneration 2 -> 3\nSaving model a.pt\nSaved model a.pt\n"
    )
    assert [type(event) for event in source.poll(0.0)] == [GenerationSeen]
    append(log, "--- Training Population ---\nGeneration 3 / 50\n")
    source.poll(1.0)
    later = LogSource(log, packaged_presets())
    assert [type(event) for event in later.poll(0.0)] == [GenerationSeen]  # the phase was of the generation before
    later.close()


def test_a_log_that_begins_with_the_trainer_is_all_news(log: Path) -> None:
    append(log, "Generation 1 / 50\nMemoryError\n")
    source = LogSource(log, packaged_presets(), catch_up=False)
    assert source.poll(5.0) == [
        GenerationSeen(5.0, 1, 50, "generation", "start"),
        OutOfMemorySeen(5.0, "MemoryError", "MemoryError"),
    ]
    source.close()


def test_of_a_former_run_only_the_total_is_told(log: Path) -> None:
    append(
        log, "max_steps: 50\nepochs: 9\nGeneration 1 / 50\nGeneration 7 / 50\nReplay Buffer: 2 / 9\nSaving model a.pt\n"
    )
    began_t = log.stat().st_mtime + 1.0
    source = LogSource(log, packaged_presets(), began_t=began_t)
    assert not {GenerationSeen, GaugeSeen, CheckpointSeen} & {type(event) for event in source.poll(5.0)}
    append(log, "Generation 8 / 50\n")
    os.utime(log, (began_t, began_t))
    assert source.poll(6.0) == [GenerationSeen(6.0, 8, 50, "generation", "start")]
    source.close()
    later = LogSource(log, packaged_presets(), began_t=began_t)
    assert [event.index for event in later.poll(7.0) if isinstance(event, GenerationSeen)] == [8]
    later.close()


def test_old_lines_that_are_understood_later_still_tell_only_the_latest(log: Path, source: LogSource) -> None:
    append(log, "".join(f"did part {i}\n" for i in range(3)))
    assert source.poll(0.0) == []
    append(log, "did part 3\ndid part 4\n")
    assert [(event.t, event.index) for event in source.poll(9.0) if isinstance(event, GenerationSeen)] == [
        (0.0, 2),
        (9.0, 3),
        (9.0, 4),
    ]


def test_the_beginning_and_the_end_of_a_long_log_are_told_first(log: Path) -> None:
    append(log, "Number of Generations: 90000\n")
    append(log, "".join(f"Generation = {i}\nFitness = 0.{i}\n" for i in range(80_000)))
    assert log.stat().st_size > HEAD_BYTES + TAIL_BYTES + 500_000
    source = LogSource(log, packaged_presets(), cpu_seconds=Ticks(MAX_POLL_CPU_SECONDS / 64))
    first = polled(source, 7.0, until=bool)
    assert first == [TotalSeen(7.0, 90_000), GenerationSeen(7.0, 79_999, at="end", before_watch=True)]
    assert source.catching_up
    assert polled(source, 7.5, until=lambda _: not source.catching_up) == []  # the middle has nothing else to tell
    append(log, "Generation = 80000\n")
    assert source.poll(8.0) == [GenerationSeen(8.0, 80_000, None, "generation", "end")]
    source.close()


def filler(lines: int) -> str:
    """Lines that count, measure and repeat, as trainers print them between two markers."""
    return "".join(
        f"2026-01-02 10:{i // 60 % 60:02}:{i % 60:02},123 - INFO - env step {i} reward=0.{i * 7919 % 10_000:04} "
        f"buffer ok worker {i % 16}\n"
        for i in range(lines)
    )


def test_the_latest_state_is_found_however_far_before_the_end_it_was_printed(log: Path, source: LogSource) -> None:
    between = filler(20_000)
    assert len(between) > 4 * TAIL_BYTES
    append(log, "Generation 1/50\nReplay Buffer: 1 / 9\n" + between + "Generation 2/50\nReplay Buffer: 2 / 9\n")
    append(log, between + "Generation 3/50\n--- Evolving Population ---\nSaving checkpoint c.pt\n" + between)
    events = polled(source, 5.0, until=lambda _: not source.catching_up)
    last = {type(event): event for event in events}
    assert last == {
        GenerationSeen: GenerationSeen(5.0, 3, 50, "generation", "start", before_watch=True),
        GaugeSeen: GaugeSeen(5.0, "replay buffer", 2, 9),
        PhaseSeen: PhaseSeen(5.0, "evolve_population"),
        CheckpointSeen: CheckpointSeen(5.0, "writing", "log: Saving checkpoint c.pt", before_watch=True),
    }


def test_what_comes_while_old_lines_are_read_is_told_as_it_comes(log: Path) -> None:
    append(log, "Number of Generations: 50\n" + filler(20_000) + "Generation 1/50\n")
    source = LogSource(log, packaged_presets(), cpu_seconds=Ticks(MAX_POLL_CPU_SECONDS / 16))
    polled(source, 1.0, until=bool)
    append(log, "Generation 2/50\nMemoryError\n")
    assert source.poll(2.0) == [
        GenerationSeen(2.0, 2, 50, "generation", "start"),
        OutOfMemorySeen(2.0, "MemoryError", "MemoryError"),
    ]
    assert source.catching_up
    assert polled(source, 3.0, until=lambda _: not source.catching_up) == []
    append(log, "Generation 3/50\n")
    assert source.poll(4.0) == [GenerationSeen(4.0, 3, 50, "generation", "start")]
    source.close()


def test_a_poll_takes_a_bounded_time_and_so_does_all_that_is_old(log: Path) -> None:
    append(log, "".join(f"{i * i:x} no two of these lines look alike {i**3:x}\n" for i in range(60_000)))
    spent = Ticks(MAX_POLL_CPU_SECONDS / 16)
    source = LogSource(log, packaged_presets(), cpu_seconds=spent)
    polls = []
    while source.catching_up:
        before = spent.seconds
        source.poll(0.0)
        polls.append(spent.seconds - before)
    assert len(polls) > 4
    assert max(polls) < 2 * MAX_POLL_CPU_SECONDS
    assert sum(polls) < MAX_CATCH_UP_CPU_SECONDS + 20 * MAX_POLL_CPU_SECONDS
    source.close()


def test_of_what_takes_too_long_a_part_is_left_out(log: Path) -> None:
    append(log, "Generation 1/50\n" + filler(20_000) + "Buffer: 7\n" + filler(20_000))
    source = LogSource(log, packaged_presets(), cpu_seconds=Ticks(MAX_POLL_CPU_SECONDS / 4))
    events = polled(source, 1.0, until=lambda _: not source.catching_up)
    assert events == [GenerationSeen(1.0, 1, 50, "generation", "start", before_watch=True)]
    append(log, "Generation 2/50\n")
    assert source.poll(4.0) == [GenerationSeen(4.0, 2, 50, "generation", "start")]
    source.close()


def test_a_long_log_that_is_truncated_while_it_is_read_is_news(log: Path) -> None:
    append(log, "Buffer: 3\nGeneration 1/50\n" + filler(20_000))
    source = LogSource(log, packaged_presets(), cpu_seconds=Ticks(MAX_POLL_CPU_SECONDS / 16))
    assert polled(source, 1.0, until=bool) == [GaugeSeen(1.0, "replay buffer", 3)]  # which generation is not known yet
    log.write_text("Generation 2/50\n")
    assert source.poll(2.0) == [GenerationSeen(2.0, 2, 50, "generation", "start")]
    assert not source.catching_up
    source.close()


def test_after_a_rotation_all_lines_are_news(log: Path, source: LogSource) -> None:
    append(log, "Generation 1 / 50\nsome more text to come after\n")
    source.poll(0.0)
    os.truncate(log, 0)
    source.poll(1.0)
    append(log, "Generation 2 / 50\n")
    assert source.poll(2.0) == [GenerationSeen(2.0, 2, 50, "generation", "start")]
    log.rename(log.with_suffix(".1"))
    append(log, "Generation 3 / 50\n")
    assert source.poll(4.0) == [GenerationSeen(4.0, 3, 50, "generation", "start")]


def test_a_log_that_comes_late_is_news(log: Path, source: LogSource) -> None:
    with pytest.raises(SourceError):
        source.poll(0.0)
    append(log, "Generation 1 / 50\n")
    assert source.poll(1.0) == [GenerationSeen(1.0, 1, 50, "generation", "start")]


def test_a_log_whose_place_is_taken_leaves_nothing_that_only_the_collector_would_find(
    log: Path, source: LogSource
) -> None:
    append(log, "Generation 1 / 50\n")
    source.poll(0.0)
    log.rename(log.with_suffix(".1"))
    log.mkdir()
    gc.collect()
    for now in range(1, 10):
        with pytest.raises(SourceError, match="read on"):
            list(source.poll(float(now)))
    assert gc.collect() == 0


def test_a_flood_in_one_poll_is_thinned(log: Path, source: LogSource) -> None:
    log.touch()
    source.poll(0.0)
    append(log, "".join(f"MemoryError\nBuffer: {i}\n" for i in range(500)))
    events = source.poll(1.0)
    assert [e.value for e in events if isinstance(e, GaugeSeen)] == [499]
    assert len(events) == 5


def test_the_json_of_a_scan_has_the_documented_shape(log: Path) -> None:
    append(log, "Num Epochs = 5\nEpoch 1/5\nBuffer: 7\nSaving model a.pt\nValidation: |\nMemoryError\n")
    assert scan_json(scan_log(log, packaged_presets())) == {
        "preset": "keras",
        "unit": "epoch",
        "total": 5,
        "markers": [{"index": 1, "total": 5, "at": "start", "byte": 21, "line": 2}],
        "phases": [{"phase": "validate", "at": "start", "byte": 53, "line": 5}],
        "gauges": [{"name": "replay buffer", "value": 7, "capacity": None, "byte": 33, "line": 3}],
        "checkpoints": [{"state": "writing", "evidence": "log: Saving model a.pt", "byte": 35, "line": 4}],
        "failures": [{"kind": "MemoryError", "text": "MemoryError", "byte": 67, "line": 6}],
        "set_aside": [],
    }


def test_a_summary_shows_the_first_and_the_last(log: Path) -> None:
    append(log, "".join(f"Epoch {i}/40\n" for i in range(1, 41)))
    text = format_scan(scan_log(log, packaged_presets()), rows=2)
    assert "epoch 40 of 40 (preset: keras)" in text
    assert "markers (40)" in text
    assert [line.split()[1] for line in text.splitlines() if line.startswith("  line")] == ["1", "2", "39", "40"]


def test_a_log_without_markers_is_said_to_have_none(log: Path) -> None:
    log.write_bytes(b"hello\n")
    found = scan_log(log, packaged_presets())
    assert (found.preset, found.unit, found.total, found.markers) == (None, None, None, [])
    assert "no markers found" in format_scan(found)


def test_a_missing_log_is_an_error_with_a_hint(log: Path) -> None:
    with pytest.raises(SourceError) as caught:
        scan_log(log)
    assert caught.value.hint


def test_of_a_clock_that_was_none_no_generation_is_told(log: Path, source: LogSource) -> None:
    append(log, "".join(f"cache holds {i % 9} things\n" for i in range(400)))
    assert source.poll(0.0) == []


def test_the_clock_after_a_bar_of_loading_begins_the_count_anew(log: Path) -> None:
    source = LogSource(log, packaged_presets(), catch_up=False)
    append(log, "\r".join(tqdm("", i, 96) for i in range(0, 97, 4)) + "\n")
    loaded = [event for event in source.poll(1.0) if isinstance(event, GenerationSeen)]
    append(log, "".join("\r" + tqdm("", i, 400) + "\nloss 0.3\n" for i in range(0, 100, 20)))
    counted = [event for event in source.poll(2.0) if isinstance(event, GenerationSeen)]
    assert loaded[-1].unit == counted[0].unit == "step"
    assert [(event.index, event.recount) for event in counted[:3]] == [(0, True), (20, False), (40, False)]
    source.close()
