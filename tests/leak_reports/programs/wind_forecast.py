"""Short-term wind power forecast: train a small network on synthetic farms."""

import argparse
import collections
import time

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

torch.set_num_threads(1)


class WindFarmData:
    """Endless mini-batches of correlated turbine series."""

    def __init__(self, turbines=16, history=12, seed=0):
        self.turbines = turbines
        self.history = history
        self.rng = np.random.default_rng(seed)
        mix = self.rng.normal(size=(turbines, turbines)) / np.sqrt(turbines)
        self.mix = 0.7 * np.eye(turbines) + 0.3 * mix

    def batch(self, size):
        steps = self.history + 1
        series = np.empty((size, steps, self.turbines), dtype=np.float32)
        state = self.rng.normal(size=(size, self.turbines))
        for t in range(steps):
            for _ in range(4):
                gust = self.rng.normal(0, 0.15, (size, 1))
                state = 0.98 * state @ self.mix + gust + self.rng.normal(0, 0.05, state.shape)
            series[:, t] = np.clip(state, -3, 3)
        return torch.from_numpy(series[:, :-1]), torch.from_numpy(series[:, -1])


class Forecaster(nn.Module):
    def __init__(self, turbines, history, hidden=96):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(),
            nn.Linear(turbines * history, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, turbines),
        )

    def forward(self, x):
        return x[:, -1] + self.net(x)


class StepTimer:
    def __init__(self, span=200):
        self.samples = collections.deque(maxlen=span)

    def measure(self, started):
        self.samples.append(time.perf_counter() - started)

    def mean_ms(self):
        return 1000.0 * sum(self.samples) / len(self.samples)


class Trainer:
    def __init__(self, model, data, batch_size=128, lr=2e-3):
        self.model = model
        self.data = data
        self.batch_size = batch_size
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.loss_fn = nn.SmoothL1Loss()
        self.timer = StepTimer()
        self.losses = collections.deque(maxlen=300)
        self.op_profiler = profile(activities=[ProfilerActivity.CPU])

    def train_step(self):
        started = time.perf_counter()
        x, y = self.data.batch(self.batch_size)
        with record_function("forward"):
            loss = self.loss_fn(self.model(x), y)
        self.optimizer.zero_grad()
        with record_function("backward"):
            loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.timer.measure(started)

    def fit(self, epochs, steps):
        self.op_profiler.start()
        for epoch in range(1, epochs + 1):
            for _ in range(steps):
                self.train_step()
                time.sleep(0.04)
            print(f"Epoch {epoch}/{epochs} loss {np.mean(self.losses):.4f} step {self.timer.mean_ms():.1f} ms")
        self.op_profiler.stop()
        table = self.op_profiler.key_averages().table(sort_by="cpu_time_total", row_limit=12)
        print(table)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=260)
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = WindFarmData(seed=8)
    trainer = Trainer(Forecaster(data.turbines, data.history), data)
    trainer.fit(args.epochs, args.steps)


if __name__ == "__main__":
    main()
