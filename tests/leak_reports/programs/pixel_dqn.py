"""DQN on a small pixel world."""

import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN

torch.set_num_threads(1)

CHUNKS = 64
CHUNK_STEPS = 400
CHUNK_SECONDS = 2.0


class PixelWorld(gym.Env):
    """A dot has to reach a mark; the observation is a grey picture, flattened."""

    SIZE = 56

    def __init__(self):
        self.observation_space = gym.spaces.Box(0, 255, shape=(self.SIZE * self.SIZE,), dtype=np.uint8)
        self.action_space = gym.spaces.Discrete(4)
        self.background = None
        self.returns = deque(maxlen=50)

    def _picture(self):
        img = self.background.copy()
        x, y = self.pos
        img[y : y + 4, x : x + 4] = 255
        gx, gy = self.goal
        img[gy : gy + 4, gx : gx + 4] = 160
        return img.reshape(-1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.background = self.np_random.integers(0, 40, size=(self.SIZE, self.SIZE), dtype=np.uint8)
        self.pos = self.np_random.integers(0, self.SIZE - 4, size=2)
        self.goal = self.np_random.integers(0, self.SIZE - 4, size=2)
        self.steps = 0
        self.total = 0.0
        return self._picture(), {}

    def step(self, action):
        move = [(4, 0), (-4, 0), (0, 4), (0, -4)][int(action)]
        self.pos = np.clip(self.pos + move, 0, self.SIZE - 4)
        self.steps += 1
        dist = float(np.abs(self.pos - self.goal).sum())
        reward = 1.0 if dist < 5 else -dist / 400.0
        self.total += reward
        done = dist < 5
        if done or self.steps >= 60:
            self.returns.append(self.total)
        return self._picture(), reward, done, self.steps >= 60, {}


class Schedule:
    def __init__(self):
        self.rows = []

    def log(self, steps, value):
        self.rows.append((steps, value))


def main():
    env = PixelWorld()
    model = DQN(
        "MlpPolicy",
        env,
        buffer_size=14000,
        learning_starts=400,
        batch_size=32,
        train_freq=16,
        gradient_steps=1,
        target_update_interval=500,
        exploration_fraction=0.5,
        policy_kwargs={"net_arch": [48], "normalize_images": True},
        seed=0,
        device="cpu",
    )
    schedule = Schedule()
    for k in range(1, CHUNKS + 1):
        t0 = time.time()
        model.learn(total_timesteps=CHUNK_STEPS, reset_num_timesteps=(k == 1), log_interval=None)
        value = float(np.mean(env.returns)) if env.returns else 0.0
        schedule.log(model.num_timesteps, value)
        print(f"chunk {k}/{CHUNKS} steps {model.num_timesteps} return {value:.3f}", flush=True)
        time.sleep(max(0.1, CHUNK_SECONDS - (time.time() - t0)))


if __name__ == "__main__":
    main()
