"""Cross-entropy search on a pendulum; each iteration looks at its rollouts through a viewer."""

import atexit
import time
from collections import deque

import gymnasium as gym
import numpy as np

ITERATIONS = 62
ITERATION_SECONDS = 2.0
SIZE = 64
STEPS = 100


class Viewer:
    """Draws the pendulum into small grey images."""

    def __init__(self, name):
        self.name = name
        self.canvas = np.zeros((4 * STEPS, SIZE, SIZE), dtype=np.uint8)
        self.cursor = 0
        self.is_open = True
        self._yy, self._xx = np.mgrid[0:SIZE, 0:SIZE]
        atexit.register(self.close)

    def draw(self, obs):
        c, s = float(obs[0]), float(obs[1])
        tip_x, tip_y = SIZE / 2 + 24 * s, SIZE / 2 - 24 * c
        image = self.canvas[self.cursor % len(self.canvas)]
        image[:] = 255 * np.exp(-((self._xx - tip_x) ** 2 + (self._yy - tip_y) ** 2) / 20.0)
        self.cursor += 1

    def brightness(self):
        return float(self.canvas[: max(1, self.cursor)].mean())

    def close(self):
        if self.is_open:
            self.is_open = False


class CrossEntropy:
    def __init__(self, dim, seed=0):
        self.rng = np.random.default_rng(seed)
        self.mean = np.zeros(dim)
        self.std = np.ones(dim) * 2
        self.returns = []
        self.elites = deque(maxlen=20)

    def ask(self, n):
        return self.mean + self.std * self.rng.normal(size=(n, len(self.mean)))

    def tell(self, thetas, scores):
        order = np.argsort(scores)[-3:]
        elite = thetas[order]
        self.elites.append(elite)
        self.mean = 0.6 * self.mean + 0.4 * elite.mean(axis=0)
        self.std = 0.8 * self.std + 0.2 * elite.std(axis=0)
        self.returns.append(float(np.mean(scores)))


def rollout(env, theta, seed, viewer=None):
    obs, _ = env.reset(seed=seed)
    total = 0.0
    for _ in range(STEPS):
        action = np.clip([theta[:3] @ obs + theta[3]], -2, 2).astype(np.float32)
        obs, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        if viewer is not None:
            viewer.draw(obs)
        if terminated or truncated:
            break
    return total


def main():
    env = gym.make("Pendulum-v1")
    search = CrossEntropy(dim=4)
    for k in range(1, ITERATIONS + 1):
        t0 = time.time()
        viewer = Viewer(f"iteration-{k}")
        thetas = search.ask(12)
        scores = np.array([rollout(env, th, seed=k, viewer=viewer if i < 4 else None) for i, th in enumerate(thetas)])
        search.tell(thetas, scores)
        light = viewer.brightness()
        viewer.close()
        print(f"iteration {k}/{ITERATIONS} return {search.returns[-1]:.1f} light {light:.2f}", flush=True)
        time.sleep(max(0.1, ITERATION_SECONDS - (time.time() - t0)))
    env.close()


if __name__ == "__main__":
    main()
