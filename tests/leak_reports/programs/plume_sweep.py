"""Parameter sweep of a pollutant plume model: each run has its own logger below 'sweep'."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import logging
import time
import uuid
from collections import deque

import numpy as np

CONFIG = {
    "grid": 230,
    "levels": 2,
    "steps_per_run": 22,
    "runs_per_batch": 9,
    "batches": 80,
    "diffusion": (0.05, 0.2),
    "wind": (0.2, 1.4),
    "keep_best": 12,
    "pace_s": 0.95,
}

root_log = logging.getLogger("sweep")


class PlumeRun:
    """Advection and diffusion of one release, logged with the step and the peak of the field."""

    def __init__(self, cfg, params, weather):
        self.name = uuid.uuid4().hex[:10]
        self.params = params
        self.weather = weather
        self.field = np.zeros((cfg["levels"], cfg["grid"], cfg["grid"]), dtype=np.float32)
        y, x = params["source"]
        self.field[:, y - 3 : y + 3, x - 3 : x + 3] = params["release"]
        self.dose = np.zeros_like(self.field)
        self.step_no = 0
        self.log = root_log.getChild(self.name)
        self.log.addFilter(self.stamp)

    def stamp(self, record):
        record.run = self.name
        record.step = self.step_no
        record.peak = float(self.field.max())
        return True

    def advance(self):
        f = self.field
        k = self.params["diffusion"]
        lap = -4 * f
        for axis in (1, 2):
            lap += np.roll(f, 1, axis=axis) + np.roll(f, -1, axis=axis)
        drift = self.params["wind"] * self.weather * (f - np.roll(f, 1, axis=2))
        self.field = np.maximum(f + k * lap - 0.1 * drift, 0)
        self.dose += self.field
        self.step_no += 1

    def simulate(self, steps):
        for _ in range(steps):
            self.advance()
        self.log.info("finished")
        return float(self.dose[0, ::4, ::4].mean()), float(self.dose.max())


class Sampler:
    """Random search that narrows around the best runs so far."""

    def __init__(self, cfg, rng):
        self.cfg, self.rng = cfg, rng
        self.best = []

    def propose(self):
        lo, hi = self.cfg["diffusion"]
        w0, w1 = self.cfg["wind"]
        if len(self.best) >= 4 and self.rng.random() < 0.6:
            anchor = self.best[self.rng.integers(0, len(self.best))][1]
            diffusion = float(np.clip(anchor["diffusion"] + self.rng.normal(0, 0.01), lo, hi))
            wind = float(np.clip(anchor["wind"] + self.rng.normal(0, 0.05), w0, w1))
        else:
            diffusion, wind = self.rng.uniform(lo, hi), self.rng.uniform(w0, w1)
        n = self.cfg["grid"]
        return {
            "diffusion": diffusion,
            "wind": wind,
            "release": float(self.rng.uniform(5, 10)),
            "source": tuple(int(v) for v in self.rng.integers(n // 4, n // 2, 2)),
        }

    def tell(self, misfit, params):
        self.best.append((misfit, params))
        self.best.sort(key=lambda pair: pair[0])
        del self.best[self.cfg["keep_best"] :]


class Sweep:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rng = np.random.default_rng(17)
        self.weather = self.rng.uniform(0.5, 1.5, (cfg["levels"], cfg["grid"], cfg["grid"])).astype(np.float32)
        self.archive = self.rng.random((24, cfg["grid"], cfg["grid"]), dtype=np.float32)
        self.target = 0.03
        self.sampler = Sampler(cfg, self.rng)
        self.misfits = deque(maxlen=200)

    def batch(self):
        for _ in range(self.cfg["runs_per_batch"]):
            params = self.sampler.propose()
            run = PlumeRun(self.cfg, params, self.weather)
            mean_dose, peak = run.simulate(self.cfg["steps_per_run"])
            misfit = abs(mean_dose - self.target) + 0.001 * abs(peak - 20.0)
            self.sampler.tell(misfit, params)
            self.misfits.append(misfit)
        return self.sampler.best[0][0], float(np.mean(self.misfits))


def main():
    cfg = CONFIG
    handler = logging.FileHandler(os.devnull)
    handler.setFormatter(logging.Formatter("%(run)s step %(step)d peak %(peak).3f %(message)s"))
    root_log.addHandler(handler)
    root_log.setLevel(logging.INFO)
    root_log.propagate = False
    sweep = Sweep(cfg)
    for b in range(1, cfg["batches"] + 1):
        began = time.time()
        best, mean = sweep.batch()
        print(f"batch {b}/{cfg['batches']} best misfit {best:.4f} mean {mean:.4f}", flush=True)
        time.sleep(max(0.0, cfg["pace_s"] - (time.time() - began)))


if __name__ == "__main__":
    main()
