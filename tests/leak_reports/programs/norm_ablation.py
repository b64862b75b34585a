"""Compare running-statistics momentum for a normalised MLP on a synthetic regression task."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


class RunningNorm(nn.Module):
    """Batch normalisation whose running estimates use an unbiased, per-batch correction."""

    def __init__(self, width, momentum=0.05, eps=1e-5):
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def track(self, x):
        m = self.momentum
        self.running_mean = (1 - m) * self.running_mean + m * x.mean(0)
        self.running_var = (1 - m) * self.running_var + m * x.var(0, unbiased=True)

    def forward(self, x):
        if self.training:
            self.track(x)
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)


class Regressor(nn.Module):
    def __init__(self, features=64, width=640):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(features, width),
            RunningNorm(width),
            nn.ReLU(),
            nn.Linear(width, 256),
            RunningNorm(256),
            nn.ReLU(),
        )
        self.head = nn.Linear(256, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(1)


def make_batch(generator, teacher, size):
    x = torch.randn(size, teacher.numel(), generator=generator)
    y = torch.tanh(x @ teacher) + 0.05 * torch.randn(size, generator=generator)
    return x, y


@torch.no_grad()
def validate(model, x, y):
    model.eval()
    error = F.mse_loss(model(x), y).item()
    model.train()
    return error


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=28)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--batch-size", type=int, default=256)
    args = parser.parse_args()

    generator = torch.Generator().manual_seed(3)
    teacher = torch.randn(64, generator=generator) / 8
    val_x, val_y = make_batch(generator, teacher, 512)
    model = Regressor()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(1, args.epochs + 1):
        total, started = 0.0, time.time()
        for _ in range(args.steps):
            x, y = make_batch(generator, teacher, args.batch_size)
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
            time.sleep(0.26)
        print(
            f"epoch {epoch:3d}/{args.epochs}  train {total / args.steps:.4f}  "
            f"val {validate(model, val_x, val_y):.4f}  {time.time() - started:.1f}s",
            flush=True,
        )


if __name__ == "__main__":
    main()
