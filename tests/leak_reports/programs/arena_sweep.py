"""Evaluates a linear walker policy on many generated arenas (gymnasium API)."""

import collections
import time

import gymnasium as gym
import numpy as np
from gymnasium import spaces

ARENAS = 76
EPISODE = 160


class VariationRecorder:
    """Writes down which variation of the arena was active at each reset."""

    def __init__(self):
        self.env = None
        self.applied = collections.deque(maxlen=20)

    def bind_env(self, env):
        self.env = env

    def note(self):
        if self.env is not None:
            self.applied.append(float(self.env.height.std()))


class ArenaEnv(gym.Env):
    metadata = {"render_modes": []}

    def __init__(self, roughness, seed, recorder=None):
        self.observation_space = spaces.Box(-np.inf, np.inf, (10,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        rng = np.random.default_rng(seed)
        h = rng.standard_normal((640, 640)).astype(np.float32)
        for axis in (0, 1):
            for _ in range(4):
                h = 0.5 * (h + np.roll(h, 1, axis))
        self.height = h * roughness
        self.pos = np.zeros(2)

    def _obs(self):
        i, j = (self.pos * 10).astype(int) % 630
        patch = self.height[i : i + 4, j : j + 2].ravel()
        return np.concatenate([patch, np.sin(self.pos)]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos = self.np_random.uniform(0, 60, 2)
        return self._obs(), {}

    def step(self, action):
        before = self._obs()[0]
        self.pos = self.pos + np.clip(action, -1, 1) * 0.4
        obs = self._obs()
        return obs, float(action[0] - abs(obs[0] - before)), False, False, {}


class ArenaBuilder:
    def __init__(self, number, roughness):
        self.name = f"Arena-r{number:04d}-v0"
        self.number = number
        self.roughness = roughness

    def make(self):
        recorder = VariationRecorder()
        kwargs = {"roughness": self.roughness, "seed": self.number, "recorder": recorder}
        gym.register(
            self.name, entry_point=ArenaEnv, kwargs=kwargs, max_episode_steps=EPISODE, disable_env_checker=True
        )
        env = gym.make(self.name)
        recorder.bind_env(env.unwrapped)
        return env, recorder


class LinearPolicy:
    def __init__(self, rng):
        self.w = np.zeros((2, 10))
        self.rng = rng

    def rollout(self, env, w):
        obs, _ = env.reset(seed=int(self.rng.integers(1 << 30)))
        total, truncated = 0.0, False
        while not truncated:
            obs, reward, _, truncated, _ = env.step((w @ obs).astype(np.float32))
            total += reward
        return total

    def improve(self, env, sigma=0.1, pairs=3):
        base = []
        for _ in range(pairs):
            d = self.rng.standard_normal(self.w.shape)
            up, down = self.rollout(env, self.w + sigma * d), self.rollout(env, self.w - sigma * d)
            self.w += 0.001 * (up - down) * d
            base += [up, down]
        return float(np.mean(base))


def main():
    rng = np.random.default_rng(0)
    policy = LinearPolicy(rng)
    returns = {}
    for n in range(1, ARENAS + 1):
        t0 = time.time()
        env, recorder = ArenaBuilder(n, roughness=0.2 + 0.01 * n).make()
        returns[n] = policy.improve(env)
        recorder.note()
        env.close()
        time.sleep(max(0.5, 1.17 - (time.time() - t0)))
        print(f"arena {n}/{ARENAS}  return {returns[n]:+.2f}  height std {recorder.applied[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
