from __future__ import annotations

import pytest

from memwatch.core.checkpoint_timing import (
    FILES,
    HOLD_LEAST_SECONDS,
    HOLD_TIMES,
    WRITING_TIMEOUT_SECONDS,
    CheckpointTracker,
)


def measured(seconds: float) -> CheckpointTracker:
    tracker = CheckpointTracker()
    tracker.record_saved(0.0, "file", seconds)
    return tracker


@pytest.mark.parametrize("witness", ["log", "file"])
def test_no_save_is_held_to_last_longer_than_such_saves_take_here(witness):
    tracker = measured(5.0)
    tracker.record_writing(100.0, witness)
    assert tracker.is_writing(100.0 + HOLD_TIMES * 5.0, 5.0)
    assert not tracker.is_writing(101.0 + HOLD_TIMES * 5.0, 5.0)


def test_before_one_was_measured_the_files_are_believed_and_the_log_for_a_while():
    tracker = CheckpointTracker()
    tracker.record_writing(0.0, "log")
    assert not tracker.is_writing(HOLD_LEAST_SECONDS + 1, 1.0)
    tracker.record_writing(100.0, "file")
    assert tracker.is_writing(100.0 + WRITING_TIMEOUT_SECONDS, 1.0)


def test_files_that_were_dropped_hold_nothing():
    tracker = CheckpointTracker()
    tracker.record_writing(0.0, "file")
    tracker.record_dropped()
    assert not tracker.is_writing(1.0, 10.0)


def test_when_the_files_are_complete_the_save_is_whatever_the_log_says_then():
    tracker = CheckpointTracker()
    tracker.record_writing(0.0, "log", "saving checkpoint to out-name")
    tracker.record_saved(2.0, "file", 1.0)
    assert not tracker.is_writing(2.0, 1.0)
    tracker.record_writing(3.0, "log", "Writing model shards: 100%")
    assert not tracker.is_writing(3.0, 1.0) and tracker.is_writing_duplicate


def test_files_that_are_told_after_the_log_are_of_the_save_that_it_told():
    tracker = CheckpointTracker()
    tracker.record_saved(10.0, "log")
    assert tracker.is_duplicate(9.5, "file") and tracker.is_duplicate(9.9, "file")


def test_a_save_that_files_show_after_the_log_has_told_all_of_it_leaves_nothing_open() -> None:
    saves = CheckpointTracker()
    saves.record_writing(10.0, "log", "Saving checkpoint to a.npz")
    saves.record_saved(10.0, "log", None, "Checkpoint saved: a.npz")
    saves.record_writing(10.5, FILES, "a.npz is being written")
    assert saves.is_duplicate(9.9, FILES)
    assert not saves.is_writing(11.0, 1.0)
    saves.record_writing(20.0, "log", "Saving checkpoint to b.npz")
    assert saves.record_saved(20.5, "log", None, "Checkpoint saved: b.npz") == 0.5
