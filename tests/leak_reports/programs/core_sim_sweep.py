"""Random search of recurrent network gains on a simulated neuromorphic board."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
import atexit
import time

import numpy as np

RUNS = 132
CORES = 16
NEURONS_PER_CORE = 24
STEPS = 750
SETTLE = 0.72
TOP_K = 6


class Board:
    """A board which hands out cores to one simulation at a time."""

    def __init__(self, cores):
        self.free = list(range(cores))
        self.claims = {}

    def claim(self, who, n):
        got, self.free = self.free[:n], self.free[n:]
        self.claims[who] = got
        return got

    def release(self, who):
        self.free.extend(self.claims.pop(who, []))
        self.free.sort()


class Simulator:
    def __init__(self, board, params, seed, dt=0.001):
        self.board = board
        self.dt = dt
        self.params = params
        self.name = f"sim{seed}"
        self.cores = board.claim(self.name, CORES)
        self.n = len(self.cores) * NEURONS_PER_CORE
        self.rng = np.random.default_rng(seed)
        self.weights = self.rng.standard_normal((self.n, self.n)) / np.sqrt(self.n) * params["gain"]
        self.inputs = np.sin(np.arange(STEPS)[:, None] * 0.02 + self.rng.uniform(0, 6, self.n)[None] * 0.1)[
            :, :4
        ].copy()
        self.probe = np.zeros((STEPS, self.n), dtype=np.float32)
        self.closed = False
        atexit.register(self.close)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def run(self):
        state = np.zeros(self.n)
        w_in = self.rng.standard_normal((4, self.n)) * self.params["drive"]
        decay = self.params["tau"]
        for t in range(STEPS):
            state += decay * (-state + np.tanh(self.weights @ state + self.inputs[t] @ w_in))
            self.probe[t] = state
        return self.probe

    def fit_readout(self, delay=20):
        x = self.probe[delay:, ::8].astype(np.float64)
        y = self.inputs[:-delay, 0]
        w = np.linalg.lstsq(x, y, rcond=None)[0]
        return float(np.sqrt(np.mean((x @ w - y) ** 2)))

    def close(self):
        if self.closed:
            return
        self.board.release(self.name)
        self.closed = True


class Study:
    def __init__(self, rng):
        self.rng = rng
        self.trials = []
        self.top = []

    def suggest(self):
        if self.top and self.rng.random() < 0.5:
            base = self.top[self.rng.integers(len(self.top))][1]
            return {k: v * float(np.exp(self.rng.normal(0, 0.15))) for k, v in base.items()}
        return {
            "gain": float(self.rng.uniform(0.4, 1.6)),
            "drive": float(self.rng.uniform(0.1, 1.0)),
            "tau": float(self.rng.uniform(0.05, 0.6)),
        }

    def report(self, params, value):
        self.trials.append(value)
        self.top.append((value, params))
        self.top.sort(key=lambda t: t[0])
        del self.top[TOP_K:]


def main():
    board = Board(CORES)
    study = Study(np.random.default_rng(4))
    for run in range(RUNS):
        params = study.suggest()
        with Simulator(board, params, run) as sim:
            sim.run()
            error = sim.fit_readout()
        study.report(params, error)
        if (run + 1) % 6 == 0:
            print(
                f"run {run + 1:>3} rmse {error:.5f} best {study.top[0][0]:.5f} cores free {len(board.free)}", flush=True
            )
        time.sleep(SETTLE)
    gains = [p["gain"] for _, p in study.top]
    print("best gains", np.round(gains, 3))


if __name__ == "__main__":
    main()
