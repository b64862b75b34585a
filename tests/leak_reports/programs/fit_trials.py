import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import time

import numpy as np
from scipy import optimize


class DivergedError(RuntimeError):
    pass


class Study:
    def __init__(self, objective, seed):
        self.objective = objective
        self.rng = np.random.default_rng(seed)
        self.values = []
        self.failures = []
        self.best = np.inf

    def suggest(self):
        return {"gain": float(10 ** self.rng.uniform(-2, 0.5)), "lag": int(self.rng.integers(4, 40))}

    def run_trial(self, number):
        params = self.suggest()
        try:
            value = self.objective(params, self.rng)
        except DivergedError as err:
            self.failures.append((number, params, err))
            return None
        self.values.append(value)
        self.best = min(self.best, value)
        return value


def simulate(params, rng, n=90_000, limit=9.0):
    drive = rng.standard_normal(n)
    kernel = np.exp(-np.arange(params["lag"]) / 6.0)
    out = np.convolve(drive, kernel, mode="same")
    for _ in range(6):
        out = out + params["gain"] * np.tanh(np.roll(out, 1) - out)
        if not np.isfinite(out).all() or np.abs(out).max() > limit:
            raise DivergedError(f"signal left its range for {params}")
    return drive, out


def objective(params, rng):
    drive, out = simulate(params, rng)
    power = np.abs(np.fft.rfft(out[: 1 << 16])) ** 2

    def cost(theta):
        model = theta[0] / (1 + (np.arange(len(power)) * theta[1] / 4096) ** 2)
        return float(np.mean((np.log1p(power) - np.log1p(np.abs(model))) ** 2))

    res = optimize.minimize(cost, [power.mean(), 1.0], method="Nelder-Mead", options={"maxiter": 20})
    return res.fun


def main(trials=1750):
    study = Study(objective, seed=21)
    started = time.time()
    for number in range(1, trials + 1):
        study.run_trial(number)
        if number % 10 == 0:
            print(
                f"trial {number}/{trials} best {study.best:.4f} failed {len(study.failures)}"
                f" ({time.time() - started:.0f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
