"""Logistic regression on simulated sensor recordings with mining of hard windows."""

import time

import numpy as np

WINDOW, PER_RECORDING = 256, 600


class SensorSimulator:
    def __init__(self, seed=5):
        self.rng = np.random.default_rng(seed)
        self.template = np.sin(np.linspace(0, 12, WINDOW)).astype(np.float32)
        self.gains = [0.05 * i for i in range(1, 40)]

    def recording(self):
        """A matrix of windows (rows) and a label for each of them."""
        labels = self.rng.integers(0, 2, PER_RECORDING)
        windows = self.rng.standard_normal((PER_RECORDING, WINDOW), dtype=np.float32)
        windows += labels[:, None].astype(np.float32) * 0.2 * self.template
        return windows, labels


class LogisticModel:
    def __init__(self, dim, lr=0.05):
        self.w = np.zeros(dim, np.float32)
        self.b = 0.0
        self.lr = lr

    def prob(self, x):
        return 1.0 / (1.0 + np.exp(-(x @ self.w + self.b)))

    def update(self, x, y):
        p = self.prob(x)
        err = (p - y).astype(np.float32)
        self.w -= self.lr * (x.T @ err) / len(x)
        self.b -= self.lr * float(err.mean())
        return -np.mean(np.log(np.where(y == 1, p, 1 - p) + 1e-9)), np.abs(err)


class HardExamples:
    """Remembers the worst window of each recording for a second pass at the end."""

    def __init__(self):
        self.windows = []
        self.labels = []
        self.errors = []

    def offer(self, windows, labels, errors):
        worst = int(errors.argmax())
        self.windows.append(windows[worst])
        self.labels.append(int(labels[worst]))
        self.errors.append(float(errors[worst]))


def second_pass(model, hard):
    x, y = np.stack(hard.windows), np.array(hard.labels)
    for _ in range(5):
        loss, _ = model.update(x, y)
    return loss


def main():
    simulator, model, hard = SensorSimulator(), LogisticModel(WINDOW), HardExamples()
    losses = []
    for epoch in range(60):
        for _ in range(12):
            windows, labels = simulator.recording()
            loss, errors = model.update(windows, labels)
            losses.append(float(loss))
            hard.offer(windows, labels, errors)
            time.sleep(0.185)
        print(
            f"epoch {epoch} loss {np.mean(losses[-12:]):.4f} hard {len(hard.windows)} worst {max(hard.errors):.4f}",
            flush=True,
        )
    print(f"second pass loss {second_pass(model, hard):.4f}", flush=True)


if __name__ == "__main__":
    main()
