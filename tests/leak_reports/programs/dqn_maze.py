"""DQN on flattened top-down images of a maze."""

import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback

torch.set_num_threads(1)
SIDE = 128
TOTAL_STEPS = 12000


class MazeImage(gym.Env):
    """Agent and goal are bright squares; the observation is the flattened picture."""

    def __init__(self, seed=0):
        self.observation_space = gym.spaces.Box(0, 255, (SIDE * SIDE,), np.uint8)
        self.action_space = gym.spaces.Discrete(4)
        rng = np.random.default_rng(seed)
        self.backgrounds = [rng.integers(0, 40, (SIDE, SIDE), dtype=np.uint8) for _ in range(8)]
        self.moves = [(0, 8), (0, -8), (8, 0), (-8, 0)]
        self.lengths = []

    def _obs(self):
        img = self.backgrounds[self.level].copy()
        for (r, c), v in ((self.agent, 255), (self.goal, 160)):
            img[r : r + 8, c : c + 8] = v
        return img.ravel()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level = int(self.np_random.integers(8))
        self.agent = tuple(int(v) * 8 for v in self.np_random.integers(0, 16, 2))
        self.goal = tuple(int(v) * 8 for v in self.np_random.integers(0, 16, 2))
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        dr, dc = self.moves[int(action)]
        self.agent = (min(max(self.agent[0] + dr, 0), 120), min(max(self.agent[1] + dc, 0), 120))
        self.t += 1
        done = self.agent == self.goal
        if done or self.t >= 100:
            self.lengths.append(self.t)
        return self._obs(), (1.0 if done else -0.01), done, self.t >= 100, {}


class Pace(BaseCallback):
    def __init__(self, every=200):
        super().__init__()
        self.every = every
        self.rewards = []
        self.due = time.time()

    def _on_step(self):
        self.rewards.append(float(self.locals["rewards"][0]))
        self.due += 0.011
        time.sleep(max(0.0, self.due - time.time()))
        if self.num_timesteps % self.every == 0:
            print(
                f"iteration {self.num_timesteps // self.every} steps {self.num_timesteps} "
                f"reward {np.mean(self.rewards[-self.every :]):.4f} eps {self.model.exploration_rate:.2f}",
                flush=True,
            )
        return True


def main():
    env = MazeImage()
    model = DQN(
        "MlpPolicy",
        env,
        buffer_size=int(TOTAL_STEPS * 0.6),
        learning_starts=100,
        batch_size=32,
        train_freq=40,
        gradient_steps=1,
        target_update_interval=500,
        policy_kwargs={"net_arch": [16]},
        device="cpu",
    )
    model.learn(TOTAL_STEPS, callback=Pace())


if __name__ == "__main__":
    main()
