"""What is read of real tensors."""

from __future__ import annotations

import pytest

from memwatch.diagnosis.heap.named_objects import look_at_names
from support.commoner import ROOT
from support.processes import running

PYTHON = ROOT / ".venv" / "libraries" / "bin" / "python"
SUMS = """
import sys, torch
def train():
    weight, total = torch.ones(8, requires_grad=True), 0
    for step in range(1, 1001):
        loss = (weight * 2).sum()
        total += loss
        if step % 500 == 0:
            print(step, flush=True)
            sys.stdin.readline()
train()
"""


def test_how_deep_the_graph_of_a_sum_has_become_is_read() -> None:
    if not PYTHON.exists():
        pytest.skip("needs stable-baselines3 and torch: make libraries")
    with running([str(PYTHON), "-c", SUMS]) as program:
        for step in (500, 1000):
            depths = {one.path: one.nodes for one in look_at_names(program.pid, names_seconds=1.0)[0].graph_depths}
            assert depths["local variable of train: loss"] == 2
            assert step <= depths["local variable of train: total"] <= step + 3
            program.stdin.write("\n")
            program.stdin.flush()
            program.stdout.readline()
