import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import asyncio
import contextlib
import contextvars
import time

import numpy as np
from scipy import special

_active_span = contextvars.ContextVar("active_span", default=None)


class Span:
    def __init__(self, name, parent, tags):
        self.name, self.parent, self.tags = name, parent, tags
        self.started = time.perf_counter()

    def finish(self, totals):
        totals[self.name] = totals.get(self.name, 0.0) + time.perf_counter() - self.started


class Tracer:
    def __init__(self):
        self.totals = {}

    @contextlib.contextmanager
    def span(self, name, **tags):
        span = Span(name, _active_span.get(), tags)
        token = _active_span.set(span)
        yield span
        span.finish(self.totals)
        _active_span.reset(token)


class SensorFeed:
    def __init__(self, channels=48, rows=1200, seed=9):
        self.rng, self.shape = np.random.default_rng(seed), (rows, channels)
        self.axis = self.rng.standard_normal(channels)

    async def read(self):
        await asyncio.sleep(0.01)
        self.axis += 0.02 * self.rng.standard_normal(self.shape[1])
        X = self.rng.standard_normal(self.shape)
        y = (np.sin(X @ self.axis / 4) + 0.3 * self.rng.standard_normal(len(X)) > 0).astype(float)
        if self.rng.random() < 0.45:
            X[tuple(self.rng.integers(self.shape))] = np.nan
        return X, y


class DriftModel:
    """Logistic regression on random Fourier features of centred channels."""

    def __init__(self, tracer, channels=48, components=1400, seed=0):
        rng = np.random.default_rng(seed)
        self.tracer = tracer
        self.proj = rng.standard_normal((channels, components)) / 6
        self.phase = rng.uniform(0, 2 * np.pi, components)
        self.coef, self.scale = np.zeros(components), np.full(components, 1e-3)
        self.mean, self.seen = np.zeros(channels), 0

    def update(self, X, y):
        with self.tracer.span("update", batch=X):
            if not np.isfinite(X).all():
                raise ValueError("batch contains missing values")
            with self.tracer.span("features"):
                self.mean += 0.05 * (X.mean(0) - self.mean)
                Z = np.cos((X - self.mean) @ self.proj + self.phase)
            acc = float(((Z @ self.coef > 0) == (y > 0.5)).mean())
            with self.tracer.span("fit"):
                for _ in range(3):
                    for rows in np.array_split(np.arange(len(Z)), 12):
                        grad = Z[rows].T @ (special.expit(Z[rows] @ self.coef) - y[rows]) / len(rows)
                        self.scale += grad**2
                        self.coef -= 0.05 * grad / np.sqrt(self.scale)
            self.seen += len(X)
        return acc


async def consume(queue, model, total):
    acc, repaired = 0.5, 0
    for batch in range(1, total + 1):
        X, y = await queue.get()
        try:
            result = model.update(X, y)
        except ValueError:
            repaired += 1
            result = model.update(np.nan_to_num(X), y)
        acc = 0.95 * acc + 0.05 * result
        if batch % 10 == 0:
            print(f"batch {batch}/{total} accuracy {acc:.3f} repaired {repaired} rows {model.seen}", flush=True)


async def produce(queue, feed, total):
    for _ in range(total):
        await queue.put(await feed.read())


async def main(total=3000):
    queue = asyncio.Queue(maxsize=3)
    model = DriftModel(Tracer())
    feeder = asyncio.create_task(produce(queue, SensorFeed(), total))
    await consume(queue, model, total)
    await feeder


if __name__ == "__main__":
    asyncio.run(main())
