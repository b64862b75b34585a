"""The time left, as programs print it, and lines that do not tell any."""

from __future__ import annotations

import pytest

from memwatch.sources.log.run_length import remaining_seconds


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("0:\tlearn: 0.2813387\ttotal: 97.9ms\tremaining: 6m 31s", 391.0),
        ("2000:\tlearn: 0.01\ttotal: 58.1s\tremaining: 979ms", 0.979),
        ("[12/01 10:20:30 d2.utils.events]: eta: 0:12:33  iter: 19  total_loss: 4.6", 753.0),
        ("Epoch(train) [1][50/7330]  lr: 1.9820e-02  eta: 1 day, 1:02:03  time: 0.42", 90_123.0),
        ("step 300 | loss 2.1 | ETA: 2h 3m 4s", 7384.0),
        ("iter 40, time left 1:02", 62.0),
        ("Remaining time: 3.5 min, iteration 8", 210.0),
        ('{"step": 7, "eta": "0:00:59"}', 59.0),
        ("2 days, 0:00:01 so far, remaining 2 days, 0:00:01", 172_801.0),
        ("eta: 0.01", None),  # a learning rate's factor
        ("beta: 0.9 s", None),
        ("lr 0.1, eta_min 3", None),
        ("12 samples left", None),
        ("remaining: 17", None),
        ("remaining samples: 3m", None),
    ],
)
def test_the_time_left_is_read_as_it_is_printed(line: str, seconds: float | None) -> None:
    assert remaining_seconds(line) == (None if seconds is None else pytest.approx(seconds))
