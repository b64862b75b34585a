import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import time

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


class StatsHistory:
    """Time series of named statistics with a limited length."""

    def __init__(self, history_max_size):
        self.history_max_size = history_max_size
        self._history = {}

    def add(self, name, value):
        series = self._history.setdefault(name, [])
        if len(series) >= self.history_max_size:
            del series[0]
        series.append((time.time(), value))

    def reset(self):
        self._history.clear()

    def get(self, name, nb=0):
        return self._history[name][-nb:]

    def drift(self, name, lag=20):
        series = self.get(name, lag)
        return float(np.abs(series[-1][1] - series[0][1]).mean())


class Mixer(nn.Module):
    def __init__(self, tokens=32, dim=96, depth=4, classes=10):
        super().__init__()
        self.embed = nn.Linear(24, dim)
        self.token_mix = nn.ModuleList(nn.Linear(tokens, tokens) for _ in range(depth))
        self.channel_mix = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim))
            for _ in range(depth)
        )
        self.head = nn.Linear(dim, classes)

    def forward(self, x, watch=None):
        h = self.embed(x)
        for i, (tok, chan) in enumerate(zip(self.token_mix, self.channel_mix)):
            h = h + torch.tanh(tok(h.transpose(1, 2))).transpose(1, 2)
            h = h + chan(h)
            if watch is not None:
                watch(f"block{i}", h)
        return self.head(h.mean(1))


def batch_of(teacher, size, gen):
    x = torch.randn(size, 32, 24, generator=gen)
    with torch.no_grad():
        y = teacher(x).argmax(1)
    return x, y


def main(steps=2400):
    torch.manual_seed(11)
    gen = torch.Generator().manual_seed(11)
    teacher, net = Mixer(dim=32, depth=2), Mixer()
    probe, _ = batch_of(teacher, 8, gen)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    history = StatsHistory(history_max_size=400)
    started, acc = time.time(), 0.1
    for step in range(1, steps + 1):
        x, y = batch_of(teacher, 64, gen)
        logits = net(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        acc = 0.98 * acc + 0.02 * (logits.argmax(1) == y).float().mean().item()
        with torch.no_grad():
            net(probe, watch=lambda name, h: history.add(name, h.numpy().copy()))
        history.add("head.grad", net.head.weight.grad.numpy().copy())
        if step % 10 == 0:
            print(
                f"step {step}/{steps} loss {loss.item():.3f} acc {acc:.3f} drift {history.drift('block3'):.4f}"
                f" grad {np.abs(history.get('head.grad', 1)[0][1]).mean():.5f}"
                f" ({time.time() - started:.0f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
