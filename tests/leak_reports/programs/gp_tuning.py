"""Random search over Gaussian-process kernels; trials that break down are marked and skipped."""

import time
from collections import Counter, deque

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist

ROUNDS = 60
ROUND_SECONDS = 2.0
PER_ROUND = 5
POINTS = 220


class Job:
    """One evaluation; either `value` or `error` is set afterwards."""

    def __init__(self, number, params):
        self.number = number
        self.params = params
        self.value = None
        self.error = None
        self.seconds = 0.0

    def run(self, fn):
        t0 = time.time()
        try:
            self.value = fn(self.params)
        except np.linalg.LinAlgError as exc:
            self.error = exc
        self.seconds = time.time() - t0


class Marginal:
    """Negative log marginal likelihood of a periodic + smooth kernel."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.x = np.sort(rng.uniform(0, 10, size=(POINTS, 1)), axis=0)
        self.y = np.sin(3 * self.x[:, 0]) + 0.2 * self.x[:, 0] + 0.1 * rng.normal(size=POINTS)

    def __call__(self, p):
        dist = cdist(self.x, self.x)
        smooth = np.exp(-0.5 * (dist / p["length"]) ** 2)
        cov = smooth + p["noise"] * np.eye(POINTS)
        chol = np.linalg.cholesky(cov)
        alpha = solve_triangular(chol, self.y, lower=True)
        return 0.5 * float(alpha @ alpha) + float(np.log(np.diag(chol)).sum())


class Tuner:
    def __init__(self, objective, seed=1):
        self.objective = objective
        self.rng = np.random.default_rng(seed)
        self.jobs = []
        self.best = None
        self.outcome = Counter()
        self.durations = deque(maxlen=40)

    def propose(self):
        return {
            "length": float(10 ** self.rng.uniform(-1.0, 1.0)),
            "noise": float(10 ** self.rng.uniform(-22, -1)),
        }

    def step(self):
        job = Job(len(self.jobs) + 1, self.propose())
        job.run(self.objective)
        self.jobs.append(job)
        self.durations.append(job.seconds)
        if job.error is None:
            self.outcome["ok"] += 1
            if self.best is None or job.value < self.best.value:
                self.best = job
        else:
            self.outcome[type(job.error).__name__] += 1


def main():
    tuner = Tuner(Marginal())
    for k in range(1, ROUNDS + 1):
        t0 = time.time()
        for _ in range(PER_ROUND):
            tuner.step()
        best = tuner.best.value if tuner.best else float("nan")
        print(f"round {k}/{ROUNDS} best nll {best:.3f} {dict(tuner.outcome)}", flush=True)
        time.sleep(max(0.1, ROUND_SECONDS - (time.time() - t0)))


if __name__ == "__main__":
    main()
