"""Population based tuning of ridge models as a small job service with metrics."""

import collections
import random
import time
import uuid

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

REGISTRY = CollectorRegistry()
JOBS_TOTAL = Counter("tuning_jobs_total", "Finished jobs", ["worker", "outcome"], registry=REGISTRY)
QUEUE_DEPTH = Gauge("tuning_queue_depth", "Jobs waiting", registry=REGISTRY)
FOLD_SECONDS = Histogram(
    "tuning_fold_seconds",
    "Time of one cross-validation fold",
    ["worker", "job"],
    registry=REGISTRY,
    buckets=(0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0),
)
SCORE = Histogram(
    "tuning_score", "Cross-validation score", ["worker"], registry=REGISTRY, buckets=[k / 10 for k in range(-5, 11)]
)


class Job:
    def __init__(self, alpha, width, seed):
        self.key = uuid.UUID(int=random.getrandbits(128)).hex
        self.alpha = alpha
        self.width = width
        self.seed = seed
        self.score = None


class DataSource:
    def __init__(self, rows=60000, features=32, seed=0):
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(rows, features))
        self.w = rng.normal(size=features) * (rng.random(features) < 0.4)
        self.y = np.tanh(self.x @ self.w * 0.4) + rng.normal(0, 0.3, rows)

    def fold(self, rng, size=160):
        rows = rng.integers(0, len(self.x), 2 * size)
        return (self.x[rows[:size]], self.y[rows[:size]], self.x[rows[size:]], self.y[rows[size:]])


class Worker:
    def __init__(self, name, data):
        self.name = name
        self.data = data

    def features(self, x, job):
        rng = np.random.default_rng(job.seed)
        proj = rng.normal(0, job.width, (x.shape[1], 16))
        return np.cos(x @ proj)

    def run(self, job, folds=3):
        rng = np.random.default_rng(job.seed + 1)
        scores = []
        for _ in range(folds):
            with FOLD_SECONDS.labels(worker=self.name, job=job.key).time():
                xa, ya, xb, yb = self.data.fold(rng)
                fa, fb = self.features(xa, job), self.features(xb, job)
                gram = fa.T @ fa + job.alpha * np.eye(fa.shape[1])
                weights = np.linalg.solve(gram, fa.T @ ya)
                residual = yb - fb @ weights
                scores.append(1.0 - residual.var() / yb.var())
        job.score = float(np.mean(scores))
        SCORE.labels(worker=self.name).observe(job.score)
        JOBS_TOTAL.labels(worker=self.name, outcome="ok").inc()
        return job


class Population:
    def __init__(self, size, rng):
        self.rng = rng
        self.size = size
        self.best = []

    def propose(self):
        if len(self.best) < self.size:
            return Job(10 ** self.rng.uniform(-3, 3), 10 ** self.rng.uniform(-2, 0), self.rng.randrange(1 << 30))
        parent = self.rng.choice(self.best)
        return Job(
            parent.alpha * 2 ** self.rng.gauss(0, 0.5),
            parent.width * 2 ** self.rng.gauss(0, 0.3),
            self.rng.randrange(1 << 30),
        )

    def report(self, job):
        self.best.append(job)
        self.best.sort(key=lambda j: j.score, reverse=True)
        del self.best[self.size :]


def main():
    rng = random.Random(9)
    data = DataSource()
    workers = [Worker(f"w{k}", data) for k in range(4)]
    population = Population(24, rng)
    queue = collections.deque()
    exposed = 0
    generations = 320
    for generation in range(1, generations + 1):
        for _ in range(120):
            queue.append(population.propose())
        while queue:
            QUEUE_DEPTH.set(len(queue))
            population.report(rng.choice(workers).run(queue.popleft()))
            if len(queue) % 10 == 0:
                time.sleep(0.03)
        if generation % 20 == 0:
            exposed = len(generate_latest(REGISTRY))
        print(
            f"Generation {generation}/{generations} best {population.best[0].score:.4f} "
            f"alpha {population.best[0].alpha:.3g} exposition {exposed} B"
        )


if __name__ == "__main__":
    main()
