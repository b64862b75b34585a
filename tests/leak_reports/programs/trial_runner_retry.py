"""Hyperparameter trials of a small torch net; trials that run out of budget are retried smaller."""

import random
import time
import traceback

import torch
from torch import nn

TRIALS = 72
ACTIVATION_BUDGET = 210_000
torch.set_num_threads(1)


class OutOfBudget(RuntimeError):
    pass


class TrialFailed(Exception):
    def __init__(self, trial, stage):
        super().__init__(f"trial {trial} failed while {stage}")
        self.trial = trial
        self.stage = stage


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return x + torch.relu(self.norm(self.lin(x)))


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Linear(20, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        h = self.inp(x)
        used = h.numel()
        for block in self.blocks:
            h = block(h)
            used += h.numel()
            if used > ACTIVATION_BUDGET:
                raise OutOfBudget(f"{used} activations at batch size {len(x)}")
        return self.head(h)


class Trainer:
    def __init__(self, trial, width, depth, batch_size):
        torch.manual_seed(trial)
        self.trial = trial
        self.batch_size = batch_size
        self.net = Net(width, depth)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-3)

    def training_step(self):
        x = torch.randn(self.batch_size, 20)
        y = (x[:, :1] * x[:, 1:2]).sin()
        loss = nn.functional.mse_loss(self.net(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def train(self, steps=8):
        last = float("nan")
        for _ in range(steps):
            try:
                last = self.training_step()
            except OutOfBudget:
                raise TrialFailed(self.trial, "stepping")
        return last


class TrialRunner:
    """Runs trials one after the other and keeps a record for the final report."""

    def __init__(self):
        self.results = {}
        self.failed = []
        self.rng = random.Random(11)

    def run(self, trial):
        width, depth = self.rng.choice([64, 96, 128]), self.rng.choice([5, 6])
        for batch_size in (512, 128):
            try:
                self.results[trial] = Trainer(trial, width, depth, batch_size).train()
                return self.results[trial], batch_size
            except TrialFailed as err:
                # the report needs the message only, so let go of the frames
                traceback.clear_frames(err.__traceback__)
                err.__traceback__ = None
                self.failed.append((trial, batch_size, err))
        return float("nan"), batch_size

    def report(self):
        done = {t: v for t, v in self.results.items() if v == v}
        best = min(done, key=done.get) if done else None
        return f"{len(done)} done, {len(self.failed)} attempts failed, best trial {best}"


def main():
    runner = TrialRunner()
    for trial in range(1, TRIALS + 1):
        t0 = time.time()
        loss, batch_size = runner.run(trial)
        time.sleep(max(0.6, 1.22 - (time.time() - t0)))
        print(f"Trial {trial} finished ({trial} of {TRIALS}); loss {loss:.4f} at batch size {batch_size}", flush=True)
    print(runner.report(), flush=True)


if __name__ == "__main__":
    main()
