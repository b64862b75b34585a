import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import ctypes
import time

import numpy as np
import xgboost as xgb
from xgboost.core import _LIB


class Surrogate:
    """Boosted trees as a cheap model of the simulator, scored through the C interface."""

    def __init__(self, params, rounds):
        self.params = params
        self.rounds = rounds
        self.booster = None

    def fit(self, X, y):
        data = xgb.DMatrix(X, label=y, nthread=1)
        self.booster = xgb.train(self.params, data, num_boost_round=self.rounds)

    def _matrix(self, X):
        X = np.ascontiguousarray(X, dtype=np.float32)
        handle = ctypes.c_void_p()
        rc = _LIB.XGDMatrixCreateFromMat(
            X.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
            ctypes.c_uint64(X.shape[0]),
            ctypes.c_uint64(X.shape[1]),
            ctypes.c_float(np.nan),
            ctypes.byref(handle),
        )
        if rc != 0:
            raise RuntimeError("XGDMatrixCreateFromMat failed")
        return handle

    def score(self, X):
        handle = self._matrix(X)
        size = ctypes.c_uint64()
        values = ctypes.POINTER(ctypes.c_float)()
        rc = _LIB.XGBoosterPredict(
            self.booster.handle,
            handle,
            ctypes.c_int(0),
            ctypes.c_uint(0),
            ctypes.c_int(0),
            ctypes.byref(size),
            ctypes.byref(values),
        )
        if rc != 0:
            raise RuntimeError("XGBoosterPredict failed")
        return np.ctypeslib.as_array(values, shape=(size.value,)).copy()


def simulator(X, coupling, steps=500, dt=0.02):
    """Coupled oscillators driven by the design; the score is their synchrony."""
    phase, drive = X @ coupling, np.tanh(X @ coupling[::-1])
    order = np.zeros(len(X))
    for _ in range(steps):
        mean = np.exp(1j * phase).mean(1)
        pull = np.abs(mean)[:, None] * np.sin(np.angle(mean)[:, None] - phase)
        phase = phase + dt * (drive + 1.5 * pull)
        order += np.abs(mean)
    return order / steps - 0.01 * (X**2).mean(1)


class DifferentialEvolution:
    def __init__(self, pop, dim, rng):
        self.rng = rng
        self.x = rng.uniform(-3, 3, (pop, dim))
        self.value = np.full(pop, -np.inf)

    def propose(self):
        a, b, c = (self.x[self.rng.permutation(len(self.x))] for _ in range(3))
        trial = a + 0.7 * (b - c)
        keep = self.rng.random(self.x.shape) < 0.35
        return np.clip(np.where(keep, trial, self.x), -4, 4)

    def select(self, trial, value):
        better = value > self.value
        self.x[better], self.value[better] = trial[better], value[better]
        return int(better.sum())


def main(rounds=2600, dim=32, pop=800):
    rng = np.random.default_rng(12)
    coupling = rng.standard_normal((dim, 24)) / 4
    X = rng.uniform(-3, 3, (4000, dim))
    y = simulator(X, coupling)
    surrogate = Surrogate({"max_depth": 6, "eta": 0.15, "nthread": 1, "verbosity": 0}, rounds=120)
    surrogate.fit(X, y)
    search = DifferentialEvolution(pop, dim, rng)
    started = time.time()
    for it in range(1, rounds + 1):
        trial = search.propose()
        accepted = search.select(trial, surrogate.score(trial))
        top = np.argsort(search.value)[-20:]
        rows = (it * 20) % 4000 + np.arange(20)
        X[rows], y[rows] = search.x[top], simulator(search.x[top], coupling)
        if it % 25 == 0:
            surrogate.fit(X, y)
            search.value = surrogate.score(search.x)
        if it % 10 == 0:
            print(
                f"iteration {it}/{rounds} predicted {search.value.max():.3f} simulated {y.max():.3f}"
                f" accepted {accepted} ({time.time() - started:.0f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
