"""Interpolation of stellar-like tracks on a grid; odd inputs are clipped and reported."""

import logging
import time
import warnings
from collections import deque

import numpy as np

BATCHES = 62
BATCH_SECONDS = 2.0
SYSTEMS = 7500
LOG = logging.getLogger("grid_tracks")


class TrackGrid:
    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.masses = np.linspace(0.5, 60.0, 240)
        self.tracks = np.cumsum(rng.random((240, 400)), axis=1)
        self.bounds = (0.6, 55.0)

    def check(self, ident, mass, period, ecc):
        lo, hi = self.bounds
        if not lo <= mass <= hi or ecc > 0.9:
            warnings.warn(
                f"binary {ident}: mass={mass!r} period={period!r} eccentricity={ecc!r} is outside of the grid "
                f"[{lo}, {hi}] x [0, 0.9]; nearest track {int(np.searchsorted(self.masses, mass))} "
                "is taken, values at its border are held constant and the result carries flag 'edge'",
                stacklevel=2,
            )
            mass = min(max(mass, lo), hi)
        return mass

    def evolve(self, masses):
        k = np.clip(np.searchsorted(self.masses, masses), 1, 239)
        f = (masses - self.masses[k - 1]) / (self.masses[k] - self.masses[k - 1])
        return (1 - f)[:, None] * self.tracks[k - 1] + f[:, None] * self.tracks[k]


class Population:
    def __init__(self, grid, seed=1):
        self.grid = grid
        self.rng = np.random.default_rng(seed)
        self.last_results = deque(maxlen=3)
        self.summary = []
        self.count = 0

    def run_batch(self):
        raw = 0.4 + self.rng.pareto(0.9, size=SYSTEMS) * 6
        period = 10 ** self.rng.uniform(0, 4, size=SYSTEMS)
        ecc = self.rng.beta(1.2, 0.6, size=SYSTEMS)
        used = np.empty(SYSTEMS)
        for i in range(SYSTEMS):
            self.count += 1
            used[i] = self.grid.check(self.count, float(raw[i]), float(period[i]), float(ecc[i]))
        out = self.grid.evolve(used)
        self.last_results.append(out[:, -1].copy())
        self.summary.append((float(out[:, -1].mean()), float(used.mean())))
        return self.summary[-1]


def main():
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.captureWarnings(True)
    logging.getLogger("py.warnings").setLevel(logging.ERROR)
    warnings.simplefilter("default")
    pop = Population(TrackGrid())
    for k in range(1, BATCHES + 1):
        t0 = time.time()
        age, mass = pop.run_batch()
        print(f"batch {k}/{BATCHES} mean age {age:.3f} mean mass {mass:.3f} systems {pop.count}", flush=True)
        time.sleep(max(0.1, BATCH_SECONDS - (time.time() - t0)))


if __name__ == "__main__":
    main()
