"""Random search over learning rates; trials that diverge are given up with an exception."""

import random
import time

import torch
from torch import nn

torch.set_num_threads(1)


class Diverged(RuntimeError):
    pass


class Regressor(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        return self.layers(x)


def augment(x, copies):
    return torch.cat([x + 0.01 * torch.randn_like(x) for _ in range(copies)])


def run_trial(lr, width, data, target):
    model = Regressor(width)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    inputs = augment(data, 5)
    targets = target.repeat(5, 1)
    loss = None
    for step in range(8):
        loss = nn.functional.mse_loss(model(inputs), targets)
        if not torch.isfinite(loss) or loss.item() > 6.0:
            raise Diverged(f"loss {loss.item():.3g} at step {step}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


class Search:
    def __init__(self, seed=0):
        self.rng = random.Random(seed)
        torch.manual_seed(seed)
        self.data = torch.randn(1200, 32)
        self.target = self.data[:, :3].sum(1, keepdim=True) + 0.5 * torch.randn(1200, 1)
        self.widths = [16, 24, 32, 48]
        self.trials = []
        self.failed = []
        self.best = float("inf")

    def propose(self):
        return {"lr": 10 ** self.rng.uniform(-2, 1.2), "width": self.rng.choice(self.widths)}

    def step(self):
        cfg = self.propose()
        try:
            value = run_trial(cfg["lr"], cfg["width"], self.data, self.target)
        except Diverged as exc:
            self.failed.append(exc)
            value = float("nan")
        self.trials.append((cfg["lr"], cfg["width"], value))
        if value < self.best:
            self.best = value
        return value

    def run(self, rounds=60, per_round=9):
        due = time.time()
        for r in range(rounds):
            for _ in range(per_round):
                self.step()
                due += 0.25
                time.sleep(max(0.0, due - time.time()))
            last = self.failed[-1] if self.failed else "none"
            print(
                f"round {r} trials {len(self.trials)} best {self.best:.4f} "
                f"failed {len(self.failed)} last failure: {last}",
                flush=True,
            )


if __name__ == "__main__":
    Search().run()
