"""Profile-likelihood scan: for each signal strength, build binned models and fit toys."""

import time
from collections import defaultdict

import numpy as np

SCAN_POINTS = 75
TOYS_PER_POINT = 3
BINS = 220


class Events:
    """Tiny publish/subscribe hub, used to announce that the tensor backend was switched."""

    def __init__(self):
        self._listeners = defaultdict(list)
        self.fired = defaultdict(int)

    def subscribe(self, topic, func):
        self._listeners[topic].append(func)

    def trigger(self, topic):
        self.fired[topic] += 1
        for func in self._listeners[topic]:
            func()


events = Events()


class Backend:
    def __init__(self, precision):
        self.dtype = np.float64 if precision == "64b" else np.float32

    def astensor(self, x):
        return np.asarray(x, dtype=self.dtype)


_backend = Backend("64b")


def set_backend(precision):
    global _backend
    changed = np.dtype(Backend(precision).dtype) != np.dtype(_backend.dtype)
    _backend = Backend(precision)
    if changed:
        events.trigger("backend_changed")


class TensorViewer:
    """Keeps index tensors in the format of the current backend."""

    def __init__(self, blocks):
        self._blocks = blocks
        self._precompute()
        events.subscribe("backend_changed", self._precompute)

    def _precompute(self):
        self.stacked = _backend.astensor(np.concatenate(self._blocks))

    def split(self, n):
        return np.array_split(self.stacked, n)


class BinnedModel:
    def __init__(self, mu, rng):
        edges = np.linspace(0, 1, BINS + 1)
        mid = 0.5 * (edges[1:] + edges[:-1])
        self.signal = mu * 25 * np.exp(-0.5 * ((mid - 0.6) / 0.05) ** 2)
        self.background = 60 * np.exp(-2.0 * mid)
        variations = [rng.normal(0, 0.03, (40, BINS)) for _ in range(5)]
        self.viewer = TensorViewer(variations)

    def expected(self, theta):
        shifts = sum(t * part.mean(axis=0) for t, part in zip(theta, self.viewer.split(len(theta))))
        return np.clip((self.signal + self.background) * (1 + shifts), 1e-6, None)

    def nll(self, theta, data):
        lam = self.expected(theta)
        return float((lam - data * np.log(lam)).sum() + 0.5 * (theta**2).sum())


def fit(model, data, rng, steps=40):
    theta = np.zeros(5)
    best = model.nll(theta, data)
    for k in range(steps):
        trial = theta + rng.normal(0, 0.5 / (1 + 0.1 * k), 5)
        value = model.nll(trial, data)
        if value < best:
            theta, best = trial, value
    return theta, best


def main():
    rng = np.random.default_rng(12)
    set_backend("64b")
    curve = []
    for k, mu in enumerate(np.linspace(0.0, 3.0, SCAN_POINTS), start=1):
        t0 = time.time()
        values = []
        for _ in range(TOYS_PER_POINT):
            model = BinnedModel(mu, rng)
            data = rng.poisson(model.expected(np.zeros(5)))
            values.append(fit(model, data, rng)[1])
        curve.append((mu, float(np.mean(values))))
        time.sleep(max(0.4, 1.18 - (time.time() - t0)))
        print(
            f"scan point {k} ({k / SCAN_POINTS:.0%}) of {SCAN_POINTS}: mu={mu:.2f} nll={curve[-1][1]:.2f}", flush=True
        )
    print("minimum at mu =", min(curve, key=lambda c: c[1])[0], flush=True)


if __name__ == "__main__":
    main()
