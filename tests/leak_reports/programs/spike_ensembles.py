"""Sweep of spiking network decoders: builds a network per trial, solves its decoders, scores it."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
import itertools
import time
import weakref

import numpy as np

TRIALS = 150
ENSEMBLES = 6
NEURONS = 260
DIMS = 12
EVAL_POINTS = 2400
PAUSE = 0.6

_serial = itertools.count()


class WeakKeyTable:
    """Maps owners to values without holding the owners."""

    def __init__(self):
        self._owners = weakref.WeakValueDictionary()
        self._values = {}

    def __getitem__(self, owner):
        return self._values[owner.uid]

    def __setitem__(self, owner, value):
        self._owners[owner.uid] = owner
        self._values[owner.uid] = value

    def __len__(self):
        return len(self._owners)


class Parameter:
    """Descriptor for a checked attribute of a network object."""

    def __init__(self, default=None):
        self.default = default
        self.data = WeakKeyTable()

    def __get__(self, instance, owner):
        if instance is None:
            return self
        try:
            return self.data[instance]
        except KeyError:
            return self.default

    def __set__(self, instance, value):
        self.data[instance] = self.coerce(value)

    coerce = staticmethod(lambda value: value)


class ArrayParameter(Parameter):
    def __init__(self, ndim, default=None):
        super().__init__(default)
        self.ndim = ndim

    def coerce(self, value):
        value = np.array(value, dtype=np.float64)
        assert value.ndim == self.ndim
        return value


class Ensemble:
    encoders = ArrayParameter(2)
    eval_points = ArrayParameter(2)
    gain = ArrayParameter(1)
    bias = ArrayParameter(1)
    radius = Parameter(1.0)

    def __init__(self, n, dims, rng):
        self.uid = next(_serial)
        e = rng.standard_normal((n, dims))
        self.encoders = e / np.linalg.norm(e, axis=1, keepdims=True)
        self.eval_points = rng.uniform(-1, 1, (EVAL_POINTS, dims)) * self.radius
        self.gain = rng.uniform(0.5, 2.0, n)
        self.bias = rng.uniform(-1.0, 1.0, n)

    def rates(self, points):
        return np.maximum(0.0, points @ self.encoders.T * self.gain + self.bias)


class Connection:
    solver_reg = Parameter(0.1)

    def __init__(self, pre, fn):
        self.uid = next(_serial)
        self.pre, self.fn = pre, fn
        self.decoders = None

    def solve(self):
        a = self.pre.rates(self.pre.eval_points)
        y = self.fn(self.pre.eval_points)
        g = a.T @ a + self.solver_reg * a.max() ** 2 * len(a) * np.eye(a.shape[1])
        self.decoders = np.linalg.solve(g, a.T @ y)
        return float(np.sqrt(np.mean((a @ self.decoders - y) ** 2)))


class Network:
    def __init__(self, seed, reg):
        self.rng = np.random.default_rng(seed)
        self.ensembles = [Ensemble(NEURONS, DIMS, self.rng) for _ in range(ENSEMBLES)]
        self.connections = [Connection(e, np.sin if i % 2 else np.square) for i, e in enumerate(self.ensembles)]
        for c in self.connections:
            c.solver_reg = reg


def main():
    results = []
    best = None
    rng = np.random.default_rng(0)
    for trial in range(TRIALS):
        reg = 10 ** rng.uniform(-3, -0.5)
        net = Network(trial, reg)
        rmse = float(np.mean([c.solve() for c in net.connections]))
        results.append((trial, reg, rmse))
        if best is None or rmse < best[1]:
            best = (trial, rmse, [c.decoders for c in net.connections])
        if trial % 5 == 4:
            print("trial %3d/%d  reg=%.5f  rmse=%.5f  best=%.5f" % (trial + 1, TRIALS, reg, rmse, best[1]))
        time.sleep(PAUSE)
    print("best trial", best[0], "of", len(results))


if __name__ == "__main__":
    main()
