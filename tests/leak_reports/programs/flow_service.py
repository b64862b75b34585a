"""Small asyncio service that re-fits ridge models run after run."""

import asyncio
import contextvars
import time
import weakref
from collections import OrderedDict, deque

import numpy as np

RUNS = 64
RUN_SECONDS = 1.9

current_run = contextvars.ContextVar("current_run", default=None)


class RunContext:
    """All that the steps of one run share."""

    def __init__(self, run_id, seed):
        rng = np.random.default_rng(seed)
        self.run_id = run_id
        self.features = rng.normal(size=(2500, 80))
        self.target = self.features @ rng.normal(size=80) + rng.normal(scale=0.5, size=2500)
        self.notes = {}


class ConnectionPool:
    """Pool of pretend store connections; idle ones are reaped from time to time."""

    IDLE_AFTER = 1800.0

    def __init__(self):
        self.loop = asyncio.get_running_loop()
        self.idle = deque(["store-a", "store-b"], maxlen=8)
        self.loop.call_later(self.IDLE_AFTER, self._reap, weakref.ref(self))

    @staticmethod
    def _reap(ref):
        pool = ref()
        if pool is not None:
            pool.idle.clear()

    async def fetch_penalty(self):
        await asyncio.sleep(0.05)
        return [0.1, 1.0, 10.0]


class WeightStore:
    """Keeps the newest weights, thrown out in order of age."""

    def __init__(self, size=50):
        self.size = size
        self.items = OrderedDict()

    def put(self, key, value):
        self.items[key] = value
        while len(self.items) > self.size:
            self.items.popitem(last=False)


async def fit_step(penalty):
    run = current_run.get()
    x, y = run.features, run.target
    gram = x.T @ x + penalty * np.eye(x.shape[1])
    w = np.linalg.solve(gram, x.T @ y)
    run.notes[penalty] = float(np.mean((x @ w - y) ** 2))
    await asyncio.sleep(0.02)
    return w


async def workflow(run_id, store):
    current_run.set(RunContext(run_id, seed=run_id))
    pool = ConnectionPool()
    best = None
    for penalty in await pool.fetch_penalty():
        w = await fit_step(penalty)
        mse = current_run.get().notes[penalty]
        if best is None or mse < best[0]:
            best = (mse, penalty, w)
    store.put(run_id, best[2])
    return best[0], best[1]


async def serve():
    store = WeightStore()
    scores = deque(maxlen=30)
    pending = set()
    for run_id in range(1, RUNS + 1):
        t0 = time.time()
        task = asyncio.create_task(workflow(run_id, store))
        pending.add(task)
        task.add_done_callback(pending.discard)
        mse, penalty = await task
        scores.append(mse)
        print(f"run {run_id}/{RUNS} mse {mse:.4f} penalty {penalty} mean {np.mean(scores):.4f}", flush=True)
        await asyncio.sleep(max(0.1, RUN_SECONDS - (time.time() - t0)))


if __name__ == "__main__":
    asyncio.run(serve())
