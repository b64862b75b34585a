"""Online logistic model fed by feature rows that several edge nodes publish.

A coordinator asks every node for its newest window once per round, merges the
answers into a batch and makes a few gradient steps on it.
"""

import asyncio
import collections
import json
import random
import time

import numpy as np

NODES = [f"edge-{k:02d}" for k in range(10)]
ROUNDS = 92
WINDOW = 150
N_FEAT = 14


class EdgeNode:
    """Stands for the remote side: answers with a JSON document."""

    def __init__(self, name, seed):
        self.name = name
        self.rng = random.Random(seed)
        self.version = 0

    async def get(self, path):
        await asyncio.sleep(self.rng.uniform(0.02, 0.25))
        self.version += 1
        rows = []
        for _ in range(WINDOW):
            x = [round(self.rng.gauss(0, 1), 5) for _ in range(N_FEAT)]
            rows.append({"x": x, "y": int(sum(x[:4]) > self.rng.gauss(0, 0.3))})
        return json.dumps({"node": self.name, "path": path, "version": self.version, "rows": rows})


class WindowCoordinator:
    def __init__(self, nodes):
        self.nodes = {n.name: n for n in nodes}
        self.latest = {}
        self.latency = collections.deque(maxlen=500)
        self._requests = set()
        self._closed = False

    async def _request(self, name, path):
        started = time.monotonic()
        text = await self.nodes[name].get(path)
        self.latency.append(time.monotonic() - started)
        return json.loads(text)

    async def refresh(self):
        batch = []
        for name in self.nodes:
            task = asyncio.create_task(self._request(name, "/window"), name=f"request to {name}")
            self._requests.add(task)
            batch.append(task)
        for task in asyncio.as_completed(batch):
            doc = await task
            self.latest[doc["node"]] = {"version": doc["version"], "n": len(doc["rows"])}
            yield doc

    async def close(self):
        self._closed = True
        for task in self._requests:
            task.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)


class LogisticModel:
    def __init__(self, n):
        self.w = np.zeros(n)
        self.b = 0.0
        self.history = collections.deque(maxlen=50)

    def fit_rows(self, rows, lr=0.15, sweeps=6):
        x = np.array([r["x"] for r in rows])
        y = np.array([r["y"] for r in rows], dtype=float)
        for _ in range(sweeps):
            p = 1.0 / (1.0 + np.exp(-(x @ self.w + self.b)))
            g = p - y
            self.w -= lr * (x.T @ g) / len(y)
            self.b -= lr * g.mean()
        eps = 1e-9
        loss = float(-(y * np.log(p + eps) + (1 - y) * np.log(1 - p + eps)).mean())
        self.history.append(loss)
        return loss


async def main():
    coordinator = WindowCoordinator([EdgeNode(n, i) for i, n in enumerate(NODES)])
    model = LogisticModel(N_FEAT)
    for rnd in range(1, ROUNDS + 1):
        t0 = time.monotonic()
        losses = [model.fit_rows(doc["rows"]) async for doc in coordinator.refresh()]
        await asyncio.sleep(max(0.0, 0.97 - (time.monotonic() - t0)))
        lat = 1000 * sum(coordinator.latency) / len(coordinator.latency)
        print(f"[round {rnd}/{ROUNDS}] loss={np.mean(losses):.4f} latency={lat:.0f}ms", flush=True)
    await coordinator.close()


if __name__ == "__main__":
    asyncio.run(main())
