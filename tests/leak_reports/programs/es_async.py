"""Evolution strategy whose rollouts run in a thread pool behind an asyncio loop."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

OBS, HORIZON = 64, 2000


class Plant:
    """Linear system with noise; the reward is the negative distance to the origin."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.A = np.eye(OBS, dtype=np.float32) * 0.97 + 0.01 * rng.standard_normal((OBS, OBS), dtype=np.float32)
        self.seed = seed

    def rollout(self, theta, seed):
        rng = np.random.default_rng(seed)
        noise = rng.standard_normal((HORIZON, OBS), dtype=np.float32)
        x = np.ones(OBS, np.float32)
        states = np.empty((HORIZON, OBS), np.float32)
        for t in range(0, HORIZON, 50):
            x = self.A @ x + theta * np.tanh(x)
            states[t : t + 50] = x + 0.1 * noise[t : t + 50]
        return states, float(-np.abs(states).mean())


class ScoreBoard:
    def __init__(self):
        self.lock = threading.Lock()
        self.scores = {}
        self.history = []

    def put(self, generation, member, score):
        with self.lock:
            self.scores.setdefault(generation, {})[member] = score

    def take(self, generation):
        with self.lock:
            return self.scores.pop(generation, {})


class AsyncES:
    def __init__(self, members=8, seed=0):
        self.rng = np.random.default_rng(seed)
        self.members = members
        self.plants = [Plant(i) for i in range(members)]
        self.theta = np.zeros(OBS, np.float32)
        self.board = ScoreBoard()
        self.pool = ThreadPoolExecutor(2)

    def evaluate(self, generation, member, theta, seed):
        states, score = self.plants[member].rollout(theta, seed)
        self.board.put(generation, member, score)
        return {"member": member, "score": score, "states": states}

    async def generation(self, g):
        loop = asyncio.get_running_loop()
        eps = self.rng.standard_normal((self.members, OBS)).astype(np.float32)
        for m in range(self.members):
            theta = self.theta + 0.05 * eps[m]
            loop.run_in_executor(self.pool, self.evaluate, g, m, theta, g * 100 + m)
            time.sleep(0.15)
        scores = self.board.take(g)
        done = sorted(scores)
        values = np.array([scores[m] for m in done])
        self.theta += 0.02 * (values - values.mean()) @ eps[done] / (values.std() + 1e-8)
        self.board.history.append(float(values.mean()))
        return values.mean()

    async def train(self, generations=112):
        for g in range(generations):
            score = await self.generation(g)
            print(f"generation {g} score {score:.4f} |theta| {np.linalg.norm(self.theta):.4f}", flush=True)


if __name__ == "__main__":
    asyncio.run(AsyncES().train())
