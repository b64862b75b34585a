"""Normalising flow (RealNVP with batch norm between the couplings) on sensor readings of a gas turbine."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import math
import time
from collections import deque

import torch
from torch import nn

torch.set_num_threads(1)

CONFIG = {
    "features": 8,
    "couplings": 6,
    "hidden": 24,
    "batch": 256,
    "steps_per_epoch": 60,
    "epochs": 62,
    "lr": 8e-4,
    "records": 160_000,
    "momentum": 0.1,
    "pace_s": 1.1,
}


class TurbineRecords:
    """Correlated readings: load, temperatures, pressures and emissions."""

    def __init__(self, cfg, gen):
        d = cfg["features"]
        mixing = torch.randn(d, d, generator=gen)
        base = torch.randn(cfg["records"], d, generator=gen)
        self.table = torch.tanh(base @ mixing * 0.5) + 0.1 * base
        self.gen = gen

    def batches(self, size, count):
        for _ in range(count):
            rows = torch.randint(0, len(self.table), (size,), generator=self.gen)
            yield self.table[rows]


class AffineCoupling(nn.Module):
    def __init__(self, features, hidden, flip):
        super().__init__()
        mask = torch.arange(features) % 2 == int(flip)
        self.register_buffer("mask", mask.float())
        self.net = nn.Sequential(
            nn.Linear(features, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 2 * features),
        )

    def forward(self, x):
        kept = x * self.mask
        shift, scale = self.net(kept).chunk(2, dim=-1)
        scale = torch.tanh(scale) * (1 - self.mask)
        y = kept + (1 - self.mask) * (x * scale.exp() + shift)
        return y, scale.sum(-1)


class FlowBatchNorm(nn.Module):
    """Invertible batch norm; in training it uses the statistics of the batch."""

    def __init__(self, features, momentum, eps=1e-5):
        super().__init__()
        self.momentum = momentum
        self.eps = eps
        self.unconstrained_weight = nn.Parameter(torch.full((features,), math.log(math.e - 1)))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.zeros(features))

    @property
    def weight(self):
        return nn.functional.softplus(self.unconstrained_weight) + self.eps

    def forward(self, x):
        if self.training:
            mean, var = x.mean(0), x.var(0)
            self.running_mean.mul_(1 - self.momentum).add_(mean * self.momentum)
            self.running_var.mul_(1 - self.momentum).add_(var * self.momentum)
        else:
            mean, var = self.running_mean, self.running_var
        y = self.weight * ((x - mean) / torch.sqrt(var + self.eps)) + self.bias
        logdet = (torch.log(self.weight) - 0.5 * torch.log(var + self.eps)).sum()
        return y, logdet.expand(len(x))


class Flow(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        parts = []
        for k in range(cfg["couplings"]):
            parts.append(AffineCoupling(cfg["features"], cfg["hidden"], flip=k % 2))
            parts.append(FlowBatchNorm(cfg["features"], cfg["momentum"]))
        self.parts = nn.ModuleList(parts)

    def log_prob(self, x):
        total = x.new_zeros(len(x))
        for part in self.parts:
            x, logdet = part(x)
            total = total + logdet
        base = -0.5 * (x.pow(2) + math.log(2 * math.pi)).sum(-1)
        return base + total


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        gen = torch.Generator().manual_seed(0)
        self.records = TurbineRecords(cfg, gen)
        self.flow = Flow(cfg)
        self.opt = torch.optim.Adam(self.flow.parameters(), lr=cfg["lr"])
        self.nll_window = deque(maxlen=500)

    def epoch(self):
        self.flow.train()
        for batch in self.records.batches(self.cfg["batch"], self.cfg["steps_per_epoch"]):
            self.opt.zero_grad()
            nll = -self.flow.log_prob(batch).mean()
            nll.backward()
            nn.utils.clip_grad_norm_(self.flow.parameters(), 5.0)
            self.opt.step()
            self.nll_window.append(nll.item())
        return sum(self.nll_window) / len(self.nll_window)


def main():
    cfg = CONFIG
    trainer = Trainer(cfg)
    for epoch in range(1, cfg["epochs"] + 1):
        began = time.time()
        nll = trainer.epoch()
        print(f"epoch {epoch}/{cfg['epochs']} nll {nll:.4f}", flush=True)
        time.sleep(max(0.0, cfg["pace_s"] - (time.time() - began)))


if __name__ == "__main__":
    main()
