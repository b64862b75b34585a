"""Tag classifier with a running average-precision readout on the validation stream."""

import time
from collections import deque

import torch
from torch import nn
from torchmetrics.classification import (
    MultilabelAccuracy,
    MultilabelAveragePrecision,
    MultilabelPrecision,
)

torch.set_num_threads(1)

N_TAGS = 16
BATCH = 2048
EPOCHS = 62
EPOCH_SECONDS = 2.0


class TagNet(nn.Module):
    def __init__(self, n_in=40, n_hidden=64, n_tags=N_TAGS):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_tags))

    def forward(self, x):
        return self.body(x)


class TagStream:
    """Synthetic multi-label problem; every call gives a fresh batch."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.mix = torch.randn(40, N_TAGS, generator=self.gen)

    def batch(self, n=BATCH):
        x = torch.randn(n, 40, generator=self.gen)
        noise = torch.randn(n, N_TAGS, generator=self.gen)
        y = ((x @ self.mix + noise) > 1.5).long()
        return x, y


class Evaluator:
    def __init__(self, n_tags):
        self.accuracy = MultilabelAccuracy(num_labels=n_tags)
        self.precision = MultilabelPrecision(num_labels=n_tags)
        self.avg_precision = MultilabelAveragePrecision(num_labels=n_tags)
        self.recent = deque(maxlen=200)

    def step(self, logits, target):
        probs = logits.sigmoid()
        values = (
            float(self.accuracy(probs, target)),
            float(self.precision(probs, target)),
            float(self.avg_precision(probs, target)),
        )
        self.recent.append(values)
        return values


def main():
    torch.manual_seed(0)
    train, valid = TagStream(1), TagStream(1)
    cached_batches = [train.batch(512) for _ in range(40)]
    net = TagNet()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    loss_fn = nn.BCEWithLogitsLoss()
    evaluator = Evaluator(N_TAGS)
    losses = []

    for epoch in range(1, EPOCHS + 1):
        t0 = time.time()
        total = 0.0
        for x, y in cached_batches:
            opt.zero_grad()
            loss = loss_fn(net(x), y.float())
            loss.backward()
            opt.step()
            total += loss.item()
        losses.append(total / len(cached_batches))

        with torch.no_grad():
            for _ in range(3):
                x, y = valid.batch()
                acc, prec, ap = evaluator.step(net(x), y)
        print(f"epoch {epoch}/{EPOCHS} loss {losses[-1]:.4f} acc {acc:.3f} ap {ap:.3f}", flush=True)
        time.sleep(max(0.1, EPOCH_SECONDS - (time.time() - t0)))


if __name__ == "__main__":
    main()
